"""Units that are held back: a relay without a way, or without room, refuses a unit; its upstream waits until it opens.

    relay:    Refused(W) --> drops what is still on its way for W --> Held(W) comes --> when it can again: Open(W)
    upstream: Refused(W) --> sends nothing for W --> Held(W) --> Open(W) --> sends everything open for W again, in order

`Held` is the mark between what was sent before the refusal was read and what is sent after `Open`. Without it a relay
that opens at once would take the second of two events whose first it has dropped, and the first would come too late.

The invariant: between Refused and Open nothing for that unit is taken from that upstream, and after Open everything
that is open comes in order. A connection that ends takes its refusals with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veena.address import Unit, format_address, identifiers
from veena.core.links.link import Link
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Held, Open, Refused
from veena.errors import RemoteProtocolError


class Refusals:
    """Both sides of it, as vectors of units by connection."""

    def __init__(self, network: NetworkMap, links: Mapping[int, Link], fanout: int) -> None:
        self._map = network
        self._links = links
        self._fanout = fanout
        #: What this broker refuses, and of that what the upstream has not confirmed yet.
        self._refusing: dict[int, int] = {}
        self._unconfirmed: dict[int, int] = {}
        #: Of what it refuses, that of which nothing is kept: what was refused for want of room is told again then.
        self._forgotten: dict[int, int] = {}
        #: What neighbours refuse.
        self._holding: dict[int, int] = {}

    @property
    def is_refusing(self) -> bool:
        return bool(self._refusing)

    def refusing(self, source: int) -> int:
        return self._refusing.get(source, 0)

    def is_held(self, connection: int, bit: int) -> bool:
        return bool(self._holding.get(connection, 0) & bit)

    # --- the relay's side ---

    def refuse(self, source: int, mask: int, since: int, unit: Callable[[int], Unit], now_ns: int) -> None:
        """Take nothing more for these units from that upstream; `since` is the first copy that was not taken."""
        known = self._refusing if since else self._forgotten
        new = mask & ~known.get(source, 0)
        link = self._links.get(source)
        if new and link is not None:
            if not since:
                self._forgotten[source] = self._forgotten.get(source, 0) | new
            self._refusing[source] = self._refusing.get(source, 0) | new
            self._unconfirmed[source] = self._unconfirmed.get(source, 0) | new
            link.send(Refused(_units(new, unit), since), now_ns)

    def confirmed(self, link: Link, units: tuple[Unit, ...]) -> None:
        assert link.connection is not None
        left = self._unconfirmed.get(link.connection, 0) & ~self._mask(link, units)
        if left:
            self._unconfirmed[link.connection] = left
        else:
            self._unconfirmed.pop(link.connection, None)

    def reopen(self, can: Callable[[int], object], unit: Callable[[int], Unit], now_ns: int) -> None:
        """Open what can be served again, where the upstream has confirmed that it holds."""
        for source, refused in list(self._refusing.items()):
            ready = refused & ~self._unconfirmed.get(source, 0)
            opened = sum(1 << at for at in identifiers(ready) if can(1 << at))
            if opened:
                self._forgotten[source] = self._forgotten.get(source, 0) & ~opened
                if refused & ~opened:
                    self._refusing[source] = refused & ~opened
                else:
                    del self._refusing[source]
                link = self._links.get(source)
                if link is not None:
                    link.send(Open(_units(opened, unit)), now_ns)

    # --- the upstream's side ---

    def hold(self, link: Link, units: tuple[Unit, ...]) -> int:
        assert link.connection is not None
        mask = self._mask(link, units)
        self._holding[link.connection] = self._holding.get(link.connection, 0) | mask
        return mask

    def held(self, link: Link, units: tuple[Unit, ...], now_ns: int) -> None:
        """Nothing for these units comes after this until they are opened."""
        link.send(Held(units), now_ns)

    def release(self, link: Link, units: tuple[Unit, ...]) -> None:
        assert link.connection is not None
        left = self._holding.get(link.connection, 0) & ~self._mask(link, units)
        if left:
            self._holding[link.connection] = left
        else:
            self._holding.pop(link.connection, None)

    def closed(self, connection: int) -> None:
        for table in (self._refusing, self._forgotten, self._unconfirmed, self._holding):
            table.pop(connection, None)

    def _mask(self, link: Link, units: tuple[Unit, ...]) -> int:
        """The vector of units that both ends of a link name alike; raise RemoteProtocolError for any other."""
        mask = 0
        for unit in units:
            level = self._map.levels - len(unit)
            is_common = link.level <= level and unit[:-1] == self._map.host[: len(unit) - 1]
            if not is_common or unit[-1] >= self._fanout:
                raise RemoteProtocolError(f"unit {format_address(unit)} has no meaning on a link of level {link.level}")
            mask |= 1 << (level * self._fanout + unit[-1])
        return mask


def _units(mask: int, unit: Callable[[int], Unit]) -> tuple[Unit, ...]:
    return tuple(unit(1 << at) for at in identifiers(mask))
