"""What one simulated run is made of: every number comes from the seed and is printed with the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from veena.core.settings import MILLISECOND_NS, SECOND_NS
from veena.errors import ConfigError

FAULTS = ("none", "links", "crash", "partition", "all")


@dataclass(frozen=True, slots=True)
class Options:
    """The conditions of a run. Times are virtual nanoseconds, chances are per frame."""

    faults: str = "none"
    #: Transports that keep order (TCP), or datagrams that may be lost, repeated and overtaken.
    ordered: bool = True
    delay_ns: int = MILLISECOND_NS
    jitter_ns: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    #: How many faults happen, and within which time.
    fault_count: int = 0
    fault_time_ns: int = 0
    #: Share of cuts, crashes and partitions that are for ever.
    permanent: float = 0.0
    #: How long closed connections are remembered; half of it for what is out of reach.
    tombstone_ns: int = 3600 * SECOND_NS
    #: Let every frame pass through the wire format.
    wire: bool = True
    #: Let brokers assert their invariants.
    check: bool = True

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def draw(chance: Random, faults: str, brokers: int) -> Options:
    """Options for a run with these faults."""
    if faults not in FAULTS:
        raise ConfigError("--faults", faults, "is no kind of fault", f"use one of {', '.join(FAULTS)}")
    options = Options(
        faults=faults,
        delay_ns=chance.randint(1, 20) * MILLISECOND_NS,
        jitter_ns=chance.randint(0, 30) * MILLISECOND_NS,
    )
    if faults == "none":
        return options
    lossy = faults in {"links", "all"} and chance.random() < 0.6
    return replace(
        options,
        ordered=not lossy,
        loss=chance.uniform(0.0, 0.1) if lossy else 0.0,
        duplication=chance.uniform(0.0, 0.1) if lossy else 0.0,
        fault_count=chance.randint(3, 6 + brokers // 4),
        fault_time_ns=chance.randint(20, 60) * SECOND_NS,
        tombstone_ns=chance.choice((3600, 45)) * SECOND_NS,
        permanent=chance.choice((0.0, 0.2, 0.6)),
    )
