"""A network as far as the brokers that were asked can see, put together from their views.

A broker knows its cluster broker by broker, and larger units only from outside. So what several brokers say is laid
over each other: units by their label paths, links by their ends. A link that one of its own brokers told of is known
with load and round trip; an edge of a map only says that two units are joined, and is left out where somebody knows
the links behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

#: The names of a unit and of those around it, from the highest down; `()` is the network.
Path = tuple[str, ...]
#: Units that one scene holds at most: a view of a broker names a few hundred.
MAX_UNITS = 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """A link, or an edge between two units behind which there are some."""

    a: Path
    b: Path
    level: int
    #: Links behind it.
    links: int = 1
    #: One of its brokers told of it.
    is_exact: bool = False
    is_suspected: bool = False
    round_trip_ms: float | None = None
    #: The share of what the link can carry, from 0 to 1.
    load: float | None = None
    bytes_per_second: float | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a broker said of itself."""

    clients: int
    subscriptions: int
    durable: int
    events_in_per_second: float | None
    events_out_per_second: float | None
    slow: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Scene:
    #: Numbers of a broker's address.
    levels: int
    #: Every unit that is known, with its members in order; brokers have none.
    members: Mapping[Path, tuple[Path, ...]]
    lines: tuple[Line, ...]
    facts: Mapping[Path, BrokerFacts]
    #: Brokers that were asked and did not answer.
    silent: frozenset[Path]

    def brokers(self, within: Path = ()) -> list[Path]:
        return [unit for unit in self.members if len(unit) == self.levels and unit[: len(within)] == within]

    def level(self, unit: Path) -> int:
        return self.levels - len(unit)

    def gateways(self) -> dict[Path, list[int]]:
        """The levels above 0 of each broker's links."""
        found: dict[Path, set[int]] = {}
        for line in self.lines:
            for end in (line.a, line.b):
                if line.level and len(end) == self.levels:
                    found.setdefault(end, set()).add(line.level)
        return {broker: sorted(levels) for broker, levels in found.items()}


def path_of(label: str) -> Path:
    return tuple(label.split(".")) if label else ()


def label_of(path: Path) -> str:
    return ".".join(path)


def natural(path: Path) -> tuple[tuple[str | int, ...], ...]:
    """The order in which people count: 2 before 10."""
    return tuple(
        tuple(int(piece) if at % 2 else piece for at, piece in enumerate(re.split(r"(\d{1,9})", name))) for name in path
    )


def compose(
    views: Iterable[Mapping[str, Any]],
    rates: Mapping[tuple[str, str], float] | None = None,
    facts: Mapping[str, BrokerFacts] | None = None,
    silent: Iterable[str] = (),
) -> Scene:
    """The scene of what brokers said (`client.topology()`); `rates` are bytes a second from a broker to another."""
    views = list(views)
    levels = max((len(path_of(view["at"])) for view in views), default=1)
    exact: dict[tuple[Path, Path], Line] = {}
    rough: dict[tuple[Path, Path], Line] = {}
    units: dict[Path, None] = {}
    for view in views:
        for label in _labels(view):
            path = path_of(label)
            for depth in range(len(path) + 1):
                units[path[:depth]] = None
        for line in _own_links(view, rates or {}):
            _merge(exact, line)
        for line in _edges(view):
            _merge(rough, line)
    for label in silent:
        path = path_of(label)
        units.update(dict.fromkeys(path[:depth] for depth in range(len(path) + 1)))
    for pair in exact.keys() & rough.keys():
        if rough.pop(pair).is_suspected:
            exact[pair] = replace(exact[pair], is_suspected=True)
    known_better = _coarser((*exact, *rough))
    lines = (*exact.values(), *(line for pair, line in rough.items() if pair not in known_better))
    members = _members(list(units)[:MAX_UNITS])
    known = {path_of(label): fact for label, fact in (facts or {}).items()}
    return Scene(levels, members, lines, known, frozenset(map(path_of, silent)))


def _labels(view: Mapping[str, Any]) -> Iterable[str]:
    yield view["at"]
    for level in view["levels"]:
        yield from level
    for link in view.get("links", ()):
        yield link["to"]
    for places in view.get("contacts", {}).values():
        for place in places:
            yield place["broker"]


def _members(units: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    found: dict[Path, list[Path]] = {(): []}
    for unit in sorted(units, key=lambda unit: (len(unit), natural(unit))):
        found.setdefault(unit, [])
        if unit:
            found[unit[:-1]].append(unit)
    return {unit: tuple(inside) for unit, inside in found.items()}


def _own_links(view: Mapping[str, Any], rates: Mapping[tuple[str, str], float]) -> Iterable[Line]:
    at = path_of(view["at"])
    for link in view.get("links", ()):
        yield Line(
            *_pair(at, path_of(link["to"])),
            level=link["level"],
            is_exact=True,
            is_suspected=bool(link["suspected"]),
            round_trip_ms=link["round_trip_ms"],
            load=link["load"],
            bytes_per_second=rates.get((view["at"], link["to"])),
            waiting=link["waiting"],
        )


def _edges(view: Mapping[str, Any]) -> Iterable[Line]:
    for edge in view["edges"]:
        yield Line(*_pair(path_of(edge["a"]), path_of(edge["b"])), level=edge["level"], links=edge["links"])
    for edge in view.get("absent", ()):
        yield Line(*_pair(path_of(edge["a"]), path_of(edge["b"])), level=edge["level"], is_suspected=True)


def _pair(one: Path, other: Path) -> tuple[Path, Path]:
    return (one, other) if natural(one) <= natural(other) else (other, one)


def _merge(found: dict[tuple[Path, Path], Line], line: Line) -> None:
    """What both ends, or two maps, say of one link: the worse of it."""
    known = found.get((line.a, line.b))
    if line.a == line.b:
        return
    if known is None:
        found[line.a, line.b] = line
        return
    found[line.a, line.b] = Line(
        line.a,
        line.b,
        line.level,
        max(known.links, line.links),
        line.is_exact,
        known.is_suspected or line.is_suspected,
        _most(known.round_trip_ms, line.round_trip_ms),
        _most(known.load, line.load),
        _most(known.bytes_per_second, line.bytes_per_second),
        max(known.waiting, line.waiting),
    )


def _most(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _coarser(lines: Iterable[tuple[Path, Path]]) -> set[tuple[Path, Path]]:
    """The pairs of units that lines join which are known more closely."""
    return {
        _pair(a[:one], b[:other])
        for a, b in lines
        for one in range(1, len(a) + 1)
        for other in range(1, len(b) + 1)
        if (one, other) != (len(a), len(b))
    }
