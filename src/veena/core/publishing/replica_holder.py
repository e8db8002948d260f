"""Second copies that this broker keeps for others, and publishes when they are gone (I5).

The other side is `replica_sender`.

    keep --> on disk --> Done
    Release, or older than the retention --> forgotten
    who asked has been out of reach for `takeover_ns` --> published from here, in the order in which copies came

Of another cluster a holder sees the cluster, not its brokers: there an asker is out of reach when its link is gone.
A takeover may be wrong, since from outside a cut link and a lost disk look alike. Then both send the event, and the
ends drop what they have had: each of the two sends a publisher's events in order. Where the origin has given copies up
a holder has the later ones alone: what it publishes says so, and ends wait for the rest (`delivery.delivery`).

An event may be kept for its origin and for others who look after it for absent units: each of them has a key of its
own, and releases what it asked for.

The invariant: what was answered is on this disk until it was released, published from here, or grew too old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veena.address import Address, Unit, as_seen, identifiers
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Kept, Released
from veena.core.boundary.tickets import Ledger
from veena.core.links.link import Link
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Release
from veena.core.wire.event import ADOPTED, BACKLOG, COPY, EventFrame
from veena.core.wire.event_id import EventKey, event_key
from veena.errors import InvalidEvent, RemoteProtocolError

#: Copies that one broker holds for others, and their bytes; beyond that it does not answer, and the asker looks for
#: another one.
MAX_KEPT = 100_000
MAX_KEPT_BYTES = 256 << 20
#: How keys of what is looked after begin: no client's id does, for that is printable.
ASKER = b"\0"

#: Publishes an event of an origin that is gone; or sends it to units for which somebody looked after it who is gone.
Adopt = Callable[[EventFrame, tuple[Unit, ...], int], None]


class KeptCopies:
    """What one broker keeps for its neighbours."""

    def __init__(
        self,
        network: NetworkMap,
        links: Mapping[int, Link],
        settings: Settings,
        ledger: Ledger,
        kept: dict[EventKey, EventFrame],
    ) -> None:
        self._map = network
        self._links = links
        self._settings = settings
        self._ledger = ledger
        self._kept = dict(kept)
        self.bytes = sum(len(frame.tail) for frame in kept.values())
        #: When each copy came, oldest first; after a restart, the time of the first look.
        self._since_ns: dict[EventKey, int] = {}
        #: Askers out of reach, and since when.
        self._missing_ns: dict[Address, int] = {}
        self.adopt: Adopt = lambda frame, units, now_ns: None
        #: Answers the frame of that number on a connection.
        self.acknowledge: Callable[[int, int], None] = lambda connection, number: None

    def keep(self, link: Link, number: int, frame: EventFrame) -> None:
        """Keep a copy for a neighbour, and answer when it is on disk."""
        connection = link.connection
        assert connection is not None
        assert link.neighbour is not None
        key = event_key(frame)
        if frame.flags & BACKLOG:
            key = looked_after(link.neighbour, key)
        elif frame.origin_address != link.neighbour:
            raise RemoteProtocolError(f"a copy of an event of {frame.origin_address}: an origin asks for its own alone")
        why = why_unreadable(frame)
        if why is not None:
            raise RemoteProtocolError(f"a copy to keep of an event that could never be published: {why}")
        before = self._kept.get(key)
        if before is not None:
            frame = before.copy(before.to_serve | frame.to_serve, before.served, before.ttl_ms)
        elif len(self._kept) >= MAX_KEPT or self.bytes >= MAX_KEPT_BYTES:
            return
        else:
            self.bytes += len(frame.tail)
        self._kept[key] = frame
        self._ledger.write(Kept(key, frame), lambda now_ns: self.acknowledge(connection, number))

    def release(self, link: Link, frame: Release) -> None:
        """Forget copies that who asked for them, and nobody else, says are needed no more."""
        if link.neighbour is None:
            return
        keys = [(name.encode(), incarnation, stamp, sequence) for name, incarnation, stamp, sequence in frame.ids]
        found = [key for key in keys if key in self._kept and self._kept[key].origin_address == link.neighbour]
        found += [key for key in (looked_after(link.neighbour, key) for key in keys) if key in self._kept]
        if found:
            self._drop(found)

    def tick(self, now_ns: int) -> None:
        """Forget what is too old; take over from those who are gone."""
        for key in self._kept:
            self._since_ns.setdefault(key, now_ns)
        old = [key for key, since in self._since_ns.items() if now_ns - since > self._settings.retention_ns]
        if old:
            self._drop(old)
        self._watch(now_ns)

    def _drop(self, keys: list[EventKey]) -> list[EventFrame]:
        self._ledger.write(Released(tuple(keys)))
        for key in keys:
            self._since_ns.pop(key, None)
        dropped = [self._kept.pop(key) for key in keys if key in self._kept]
        self.bytes -= sum(len(frame.tail) for frame in dropped)
        return dropped

    def _watch(self, now_ns: int) -> None:
        reach = self._map.reachable()
        neighbours = [link.neighbour for link in self._links.values()]
        for asker in dict.fromkeys(asker_of(key, frame) for key, frame in self._kept.items()):
            seen = as_seen(self._map.host, asker)
            if seen in reach if len(seen) == len(asker) else asker in neighbours:
                self._missing_ns.pop(asker, None)
            elif now_ns - self._missing_ns.setdefault(asker, now_ns) >= self._settings.takeover_ns:
                del self._missing_ns[asker]
                self._take_over(asker, now_ns)

    def _take_over(self, asker: Address, now_ns: int) -> None:
        keys = [key for key, frame in self._kept.items() if asker_of(key, frame) == asker]
        ages_ns = [now_ns - self._since_ns.get(key, now_ns) for key in keys]
        for frame, age_ns in zip(self._drop(keys), ages_ns, strict=True):
            units = units_of(frame.to_serve, asker, self._settings.fanout) if frame.flags & BACKLOG else ()
            original = frame.copy(0, frame.served, frame.ttl_after(age_ns))
            # Another holder's may have come first: then it is late. What an origin has given up is not here.
            original.flags = original.flags & ~COPY | BACKLOG | (0 if frame.flags & BACKLOG else ADOPTED)
            self.adopt(original, units, now_ns)

    def __len__(self) -> int:
        return len(self._kept)


def looked_after(asker: Address, key: EventKey) -> EventKey:
    """The key of an event that a broker looks after for others: its origin may have asked for a copy of it too."""
    return (ASKER + bytes(asker) + key[0], *key[1:])


def asker_of(key: EventKey, frame: EventFrame) -> Address:
    """Whom a copy is kept for: its origin, or who looks after it."""
    origin = frame.origin_address
    assert origin is not None
    return tuple(key[0][1 : 1 + len(origin)]) if frame.flags & BACKLOG else origin


def why_unreadable(frame: EventFrame) -> str | None:
    """Why a copy could not be published by its holder."""
    if frame.origin_address is None or not frame.reliable:
        return "it has no origin, or is best effort"
    if bool(frame.flags & BACKLOG) != bool(frame.to_serve):
        return "a backlog is for units, and nothing else is"
    if frame.tail[: len(ASKER)] == ASKER:
        return "its publisher's id is not printable"
    try:
        frame.event()
    except InvalidEvent as error:
        return str(error)
    return None


def units_of(vector: int, address: Address, fanout: int) -> tuple[Unit, ...]:
    """The units that a vector names as seen from an address."""
    return tuple((*address[: len(address) - 1 - at // fanout], at % fanout) for at in identifiers(vector))
