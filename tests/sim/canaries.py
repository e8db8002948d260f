"""Brokers with planted bugs: a simulator that does not catch them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from veena.address import Address, identifiers
from veena.core.broker import Broker
from veena.core.delivery.in_flight import LOG, Flight
from veena.core.links.link import LinkState
from veena.core.routing.duties import Duties
from veena.core.routing.router import Router
from veena.core.topology.connection import is_fine
from veena.core.topology.connection_table import ConnectionTable
from veena.core.wire.control import ConnectionRecord
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import event_key


class SilentLoss(ConnectionTable):
    """Tells nobody that a connection is over."""

    def withdraw(self, connection_id: int, now_ns: int) -> int | None:
        return None


class NoExchange(ConnectionTable):
    """Begins a new link without telling what it knows."""

    def everything(self) -> Iterable[ConnectionRecord]:
        return ()


class NoDetours(ConnectionTable):
    """Drops detour copies instead of keeping them and passing them on."""

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> int | None:
        return super().learn(record, source, now_ns) if is_fine(record, self._host) else None


class NoReconciling(ConnectionTable):
    """Never speaks for the dead."""

    def reconcile(self, now_ns: int, patience_ns: int, forget_ns: int, held: Container[int]) -> list[int]:
        return []


class SecretCost(ConnectionTable):
    """Does not tell a link's cost to its other end."""

    def copies(self, records: Iterable[ConnectionRecord], level: int, own_id: int | None) -> list[ConnectionRecord]:
        return super().copies([record for record in records if record.id != own_id], level, own_id)


class FirstName(ConnectionTable):
    """Recognises a repeat by its id alone, as the printed rules have it: the first copy's names stay."""

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> int | None:
        known = self._records.get(record.id)
        return None if known is not None and record.up == known.up else super().learn(record, source, now_ns)


# --- routers ---

#: No connection has this id.
NOBODY = -1


class DropById(Router):
    """Drops a copy of an event that it has seen, whatever it is to serve."""

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        seen = self.__dict__.setdefault("seen", {})
        if source != LOG and event_key(frame) in seen:
            self.duties.acknowledge(source, number)
        else:
            seen[event_key(frame)] = None
            super().take(source, number, frame, now_ns)


class AckWhatIsTaken(Router):
    """Acknowledges a copy whose duties it has taken on already, before they are done."""

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        flight = self.duties.find(event_key(frame))
        if source != LOG and flight is not None and not frame.to_serve & ~flight.taken:
            self.duties.acknowledge(source, number)
        else:
            super().take(source, number, frame, now_ns)


class AckOnTaking(Router):
    """Acknowledges at once whatever it takes on, and owes nobody an answer afterwards."""

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        super().take(source, number, frame, now_ns)
        flight = self.duties.find(event_key(frame))
        for claim in flight.claims if flight is not None and source != LOG else ():
            if (claim.source, claim.number) == (source, number):
                self.duties.acknowledge(source, number)
                claim.source = NOBODY


class BounceIgnored(Router):
    """Takes a new connection to the neighbour that it used last for the same hop: nothing is sent again."""

    def reroute(self, now_ns: int) -> None:
        last: dict[int, Address] = self.__dict__.setdefault("last", {})
        for bit in list(self._hop):
            hop = self._hops.hop(self.unit(bit))
            if hop is not None:
                if last.get(bit) == hop.neighbour:
                    self._hop[bit] = hop.connection
                last[bit] = hop.neighbour
        super().reroute(now_ns)


class WaitingCost(Router):
    """Keeps to the old way while something is under way on it: a change of cost waits until nothing is open."""

    def reroute(self, now_ns: int) -> None:
        used = 0
        for flight in self.duties.flights():
            used |= flight.open
        keep = {bit: old for bit, old in self._hop.items() if bit & used and old in self._links}
        rest = {bit: old for bit, old in self._hop.items() if bit not in keep}
        self._hop.clear()
        self._hop.update(rest)
        super().reroute(now_ns)
        self._hop.update(keep)
        self.is_stale = bool(keep)


class EventPaths(Router):
    """Sends every other event over another neighbour, if there is one in the same unit."""

    def _send(self, connection: int, flight: Flight, duties: int, now_ns: int) -> None:
        link = self._links[connection]
        others = [
            number
            for number, other in self._links.items()
            if number != connection and other.level == link.level == 0 and other.state is LinkState.OPEN
        ]
        odd = flight.frame.sequence % 2 and others
        super()._send(others[0] if odd else connection, flight, duties, now_ns)


class SetIteration(Router):
    """Sends copies in the order of a set of texts."""

    def _forward(self, flight: Flight, mask: int, now_ns: int) -> int:
        stuck = 0
        for at in {str(at) for at in identifiers(mask)}:
            stuck |= super()._forward(flight, 1 << int(at), now_ns)
        return stuck


def with_router(router: type[Router]) -> Callable[..., Broker]:
    """Brokers that route like this."""

    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.events.router.__class__ = router
        return broker

    return make


def with_duties(duties: type[Duties]) -> Callable[..., Broker]:
    """Brokers that count what is open like this."""

    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.events.router.duties.__class__ = duties
        return broker

    return make


def backwards(flight: Flight) -> tuple[int, tuple[int, int]]:
    """The order in which a careless broker sends again: the latest first."""
    return (flight.frame.lane_number, (-flight.frame.timestamp, -flight.frame.sequence))


# --- tables ---


def with_table(table: type[ConnectionTable]) -> Callable[..., Broker]:
    """Brokers that keep such a table."""

    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.table.__class__ = table
        return broker

    return make
