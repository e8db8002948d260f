"""What every broker's map must be, derived from the whole topology: the judge of the simulator.

It shares no code with the core. A broker hears of a link when the link lies in one of its contexts and a chain of
working links inside that context joins them; it names each end as the sibling unit that the end lies in, if it can
hear of it inside the smallest unit that holds both; and it shows what can be reached without ever climbing into a
higher unit and down again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veena.address import Address, Unit

#: (one end, other end, level, cost, number of links): the finer or lower end first.
OracleEdge = tuple[Unit, Unit, int, int, int]
WorkingLink = tuple[Address, Address]
#: What a link that was dialled for want of another costs in addition.
DEARER = 4


class Oracle:
    """Knows all working links; answers for one broker at a time."""

    def __init__(
        self, brokers: Iterable[Address], links: Sequence[WorkingLink], dialled: Sequence[WorkingLink] = ()
    ) -> None:
        self._links = [*links, *dialled]
        self._proper = len(links)
        #: For each enclosing unit: which broker belongs to which connected part of it.
        self._parts: dict[Unit, dict[Address, int]] = {}
        self._brokers = sorted(brokers)

    def agrees(self, host: Address, edges: list[OracleEdge]) -> bool:
        """Whether this is the map that the host must have.

        Where a unit has come apart, a name that was learned before is kept if nobody is left who could know better:
        then a map may also show what it would show if the unit were whole.
        """
        must = {edge[:2]: edge for edge in self.edges(host)}
        may = {edge[:2]: edge for edge in self.edges(host, as_if_whole=True)}
        shown = {edge[:2]: edge for edge in edges}
        if not must.keys() <= shown.keys() <= may.keys():
            return False
        fewest = {pair: must[pair][4] if pair in must else 1 for pair in shown}
        return all(
            edge[:3] == may[pair][:3]
            and may[pair][3] <= edge[3] <= (must[pair][3] if pair in must else may[pair][3] + DEARER)
            and fewest[pair] <= edge[4] <= may[pair][4]
            for pair, edge in shown.items()
        )

    def edges(self, host: Address, as_if_whole: bool = False) -> list[OracleEdge]:
        levels = len(host)
        counted: dict[tuple[Unit, Unit], list[int]] = {}
        for number, (a, b) in enumerate(self._links):
            shared = _shared(a, b)
            context = a[:shared]
            if host[:shared] != context:
                continue
            parts = self._part(context)
            hears = parts[host] == parts[a] and self._is_near(host, a) and self._is_near(host, b)
            if not hears and not as_if_whole:
                continue
            ends = sorted((_seen(host, a), _seen(host, b)), key=lambda unit: (-len(unit), unit))
            entry = counted.setdefault((ends[0], ends[1]), [levels - 1 - shared, 0, DEARER])
            entry[1] += 1
            if number < self._proper:
                entry[2] = 0
        shown = _reach(host, counted)
        edges = [
            (a, b, level, 2 * levels - len(a) - len(b) + extra, count)
            for (a, b), (level, count, extra) in counted.items()
            if a in shown and b in shown
        ]
        return sorted(edges, key=lambda edge: (edge[2], -len(edge[0]), edge[0], -len(edge[1]), edge[1]))

    def _is_near(self, host: Address, end: Address) -> bool:
        """Whether the host and an end of a link are in one piece of the smallest unit that holds both.

        Where that unit has come apart, the host hears of the link only by a detour, as a link of its own unit.
        """
        parts = self._part(host[: _shared(host, end)]) if host != end else {}
        return host == end or parts[host] == parts[end]

    def _part(self, context: Unit) -> dict[Address, int]:
        parts = self._parts.get(context)
        if parts is None:
            members = [broker for broker in self._brokers if broker[: len(context)] == context]
            links = [(a, b) for a, b in self._links if _shared(a, b) >= len(context) and a[: len(context)] == context]
            parts = self._parts[context] = _connected_parts(members, links)
        return parts

    def are_joined(self, one: Address, other: Address, context: Unit) -> bool:
        """Whether a chain of working links inside that unit joins two brokers of it."""
        parts = self._part(context)
        return parts[one] == parts[other]

    def is_whole(self) -> bool:
        """Whether every unit hangs together inside itself."""
        return not self.broken_units()

    def broken_units(self) -> list[Unit]:
        """The units that do not hang together inside, the whole network (`()`) among them."""
        contexts = {broker[:size] for broker in self._brokers for size in range(len(broker))}
        return [context for context in sorted(contexts) if len(set(self._part(context).values())) > 1]


def _shared(a: Address, b: Address) -> int:
    return next(index for index, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def _seen(host: Address, broker: Address) -> Unit:
    """The sibling unit of one of the host's own that a broker lies in; the host itself as it is."""
    return broker if broker == host else broker[: _shared(host, broker) + 1]


def _reach(host: Address, edges: Iterable[tuple[Unit, Unit]]) -> set[Unit]:
    around: dict[Unit, list[Unit]] = {}
    for a, b in edges:
        around.setdefault(a, []).append(b)
        around.setdefault(b, []).append(a)
    found = {host}
    frontier = [host]
    for unit in frontier:
        for other in around.get(unit, []):
            if other not in found and len(other) <= len(unit):
                found.add(other)
                frontier.append(other)
    return found


def _connected_parts(members: Sequence[Address], links: Iterable[WorkingLink]) -> dict[Address, int]:
    parent = {member: member for member in members}

    def root(member: Address) -> Address:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    for a, b in links:
        parent[root(a)] = root(b)
    numbers: dict[Address, int] = {}
    return {member: numbers.setdefault(root(member), len(numbers)) for member in members}
