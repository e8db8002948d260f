"""What a network for a test looks like: a network file, or so many brokers in so many clusters.

Clusters are joined in a ring, brokers of a cluster too, and two neighbouring clusters by two links between different
brokers where they have that many: so that no single broker's death parts the rest, as in a network that is meant well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path

from veena.address import DEFAULT_FANOUT
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.networks.file import Network, load_network, make_network

#: A test on one machine; a network file may have more.
MAX_BROKERS = 64


def network_of(shape: str | PathLike[str] | Mapping[str, int] | None, brokers: int) -> Network:
    """The network that a test asks for; raise ConfigError when it cannot be."""
    if shape is None:
        shape = {"a": brokers}
    if not isinstance(shape, Mapping):
        return load_network(Path(shape), connected=True)
    if not shape:
        raise ConfigError("network", "shape", "names no cluster", 'write {"paris": 2, "rome": 1}')
    if len(shape) > DEFAULT_FANOUT:
        raise ConfigError("network", "shape", f"has {len(shape)} clusters", f"use at most {DEFAULT_FANOUT}")
    for cluster, count in shape.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= DEFAULT_FANOUT:
            reason = f"has {count!r} brokers"
            raise ConfigError("network", f"cluster {cluster!r}", reason, f"a cluster has 1 to {DEFAULT_FANOUT}")
    if sum(shape.values()) > MAX_BROKERS:
        reason = f"has {sum(shape.values())} brokers"
        raise ConfigError("network", "shape", reason, f"use at most {MAX_BROKERS}, or a network file")
    members = {name: [f"{name}.{number}" for number in range(1, count + 1)] for name, count in shape.items()}
    labels = [label for each in members.values() for label in each]
    try:
        return make_network("test", labels, list(_links(members)), levels=labels[0].count(".") + 1)
    except InvalidAddress as error:
        raise ConfigError("network", "shape", str(error), "use names without dots, or all with as many") from None


def _links(members: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for brokers in members.values():
        yield from _ring(brokers)
    for one, other in _ring(list(members)):
        yield members[one][0], members[other][-1]
        if len(members[one]) > 1 and len(members[other]) > 1:
            yield members[one][-1], members[other][0]


def _ring(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from pairwise(names)
    if len(names) > 2:
        yield names[-1], names[0]
