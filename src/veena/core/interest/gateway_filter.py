"""The near gatekeeper looks again: does the unit beyond a link want this event, word by word (design §5)?

Larger units are known by digests, which hold topics and not selectors. So the two ends of a link of level 2 or above
tell each other more: the far end what its unit wants, as exactly as it knows it (`gateway_export`), and the near end
asks that once more when an event is about to cross into the unit. One event of a busy topic that nobody's selector
takes is stopped on this side of the wide-area link instead of on the other.

The invariant: never narrower than what has been acknowledged over there. Until everything has come, when the far end
says that it does not know all, when its rows are too many, and when it has not answered for `FAR_LEASE_NS`, the unit
wants all. The far end on its side counts no want as acknowledged that this end has not confirmed (`is_settled`), and
after a lost connection waits until this end's lease is over. An event that comes out of the far unit itself is never
stopped.

Rejected: asking the far end for each event (a round trip of a wide-area link), and telling the rows to every broker of
the near unit (no broker holds the profiles of the whole system, I3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from veena.address import Address, Unit, contains, format_address
from veena.core.interest.constraint import FORMER, INTEGER, TO, XPATH, Want, create_engine, is_kind, keyed_want
from veena.core.interest.digest import Digested, DigestTest, Outlined, check_parts, event_atoms, fitted
from veena.core.interest.gateway_export import GATE_LEVEL, MAX_FAR_ROWS, Telling
from veena.core.interest.table import InterestTable
from veena.core.links.link import Link
from veena.core.messages import addresses as whereabouts
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Frame
from veena.core.wire.header import DECODE_ERRORS
from veena.core.wire.interest import (
    COMPLETE,
    MAX_DIGEST_BYTES,
    MORE,
    Digest,
    FarDigest,
    FarHave,
    FarInterest,
    FarWant,
    Row,
    Version,
)
from veena.errors import InvalidConstraint, RemoteProtocolError
from veena.event import Event
from veena.matching.base.engine import Engine
from veena.matching.base.work import Meter

#: How long the far end's word is good after it last answered a heartbeat, which takes two seconds and the way. Shorter
#: than the margin of a lease, so that a gatekeeper who is cut off on his side cannot be believed longer than he is
#: waited for there. The same for all brokers, whatever their settings: one end's wait relies on the other's lease.
FAR_LEASE_NS = 4_000_000_000


@dataclass(frozen=True, slots=True)
class BeyondStatistics:
    #: Wants of other units that are held here.
    rows: int
    looked: int
    stopped: int
    #: Batches told to other gatekeepers that they have not confirmed.
    unconfirmed: int
    #: Links of the second level and above, and those of them beyond which all wants are known.
    links: int
    exact: int


@dataclass(slots=True)
class View:
    """What was told over one connection of the unit beyond it."""

    link: Link
    unit: Unit
    is_complete: bool = False
    engines: dict[tuple[int, int], Engine] = field(default_factory=dict)
    #: Want by key, with its id in the engine.
    wants: dict[bytes, tuple[int, Want]] = field(default_factory=dict)
    digests: dict[int, DigestTest] = field(default_factory=dict)
    next_id: int = 0
    untimely: int = 0

    def clear(self) -> None:
        self.untimely = 0
        self.is_complete = False
        self.engines.clear()
        self.wants.clear()
        self.digests.clear()

    def add(self, want: Want) -> None:
        if want.key in self.wants:
            return
        if len(self.wants) >= MAX_FAR_ROWS:
            raise RemoteProtocolError(f"more than {MAX_FAR_ROWS} wants of {format_address(self.unit)}: say UNKNOWN")
        slot = (want.kind, want.scope)
        engine = self.engines.get(slot)
        if engine is None:
            engine = create_engine(want.kind)
        try:
            engine.add(self.next_id, want.constraint, 1)
        except (*DECODE_ERRORS, InvalidConstraint) as error:
            raise RemoteProtocolError(f"a want of {format_address(self.unit)} cannot be read: {error}") from None
        self.engines[slot] = engine
        self.wants[want.key] = (self.next_id, want)
        self.untimely += want.is_untimely
        self.next_id += 1

    def remove(self, key: bytes) -> None:
        found = self.wants.pop(key, None)
        if found is not None:
            self.untimely -= found[1].is_untimely
            self.engines[found[1].kind, found[1].scope].remove(found[0])


class Beyond:
    """The links of level 2 and above of one broker: what is told over them, and what was heard."""

    def __init__(
        self, network: NetworkMap, table: InterestTable, top: str = "interest", meter: Meter | None = None
    ) -> None:
        #: What evaluating wants may cost: a want beyond that counts as one that asks for the event.
        self._meter = meter or Meter()
        self._map = network
        self._views: dict[int, View] = {}
        self._telling = Telling(network, table, FAR_LEASE_NS)
        self._broadcasts = top == "broadcast"
        self._looked = 0
        self._stopped = 0
        #: Wants of other units that may tell events apart by time or id (`delivery.match_cache`).
        self.untimely = 0

    # --- links ---

    def opened(self, link: Link, now_ns: int) -> None:
        """A link has greeted."""
        if link.level >= GATE_LEVEL:
            assert link.connection is not None and link.neighbour is not None
            unit = link.neighbour[: self._map.levels - link.level]
            self._views[link.connection] = View(link, unit)
            self._telling.opened(link)

    def closed(self, connection: int, now_ns: int) -> None:
        """A link is gone."""
        view = self._views.pop(connection, None)
        if view is not None:
            self.untimely -= view.untimely
            self._telling.closed(connection, now_ns)

    def restarted(self, now_ns: int) -> None:
        """This broker had an earlier life, whose links may still be believed in on their other side."""
        self._telling.restarted(now_ns)

    def frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        return {FarInterest: self.handle, FarDigest: self.handle, FarHave: self.handle}

    def handle(self, link: Link, frame: FarInterest | FarDigest | FarHave, now_ns: int) -> None:
        view = self._views.get(link.connection or 0)
        if view is None:
            raise RemoteProtocolError(
                f"{type(frame).__name__} over a link of level {link.level}: it belongs to links of level"
                f" {GATE_LEVEL} and above"
            )
        if isinstance(frame, FarHave):
            self._telling.confirmed(view.link, frame.number)
        elif isinstance(frame, FarDigest):
            check_parts(frame.parts, link.level, self._map.levels)
            view.digests = {part.scope: DigestTest(part) for part in fitted(frame.parts, MAX_DIGEST_BYTES)}
        else:
            self._take(view, frame, now_ns)

    def _take(self, view: View, frame: FarInterest, now_ns: int) -> None:
        self._check_scopes([want.scope for want in frame.added], view.link.level)
        self.untimely -= view.untimely
        try:
            if frame.begins:
                view.clear()
            for told in frame.added:
                view.add(_want(told))
            for key in frame.removed:
                view.remove(key)
        finally:
            self.untimely += view.untimely
        if frame.state != MORE:
            view.is_complete = frame.state == COMPLETE
            view.link.send(FarHave(frame.number), now_ns)

    def _check_scopes(self, scopes: list[int], level: int) -> None:
        for scope in scopes:
            if not level < scope <= self._map.levels:
                raise RemoteProtocolError(f"a want of scope {scope} has no meaning beyond a link of level {level}")

    # --- the question ---

    def is_blind(self, connection: int, origin: Address, now_ns: int) -> bool:
        """Whether the answer is yes whatever the event is."""
        view = self._views.get(connection)
        if view is None or not view.is_complete or now_ns >= view.link.answered_ns + FAR_LEASE_NS:
            return True
        return contains(view.unit, origin) or (self._broadcasts and len(view.unit) == 1)

    def wants(self, connection: int, event: Event, origin: Address, now_ns: int, *, is_old: bool = False) -> bool:
        """Whether the unit beyond a connection may want an event that was published at `origin`."""
        if self.is_blind(connection, origin, now_ns):
            return True
        view = self._views[connection]
        self._looked += 1
        addressed = bool(event.to)
        if any(whereabouts.place_of(addressee) is not None for addressee in event.to):
            return True
        self._meter.event()
        for (kind, scope), engine in view.engines.items():
            if (kind == TO) is not addressed or not self._in_scope(origin, scope) or (kind & FORMER and not is_old):
                continue
            if engine.destinations_within(event, self._meter):
                return True
        if view.digests:
            atoms = event_atoms(event)
            for scope, test in view.digests.items():
                if self._in_scope(origin, scope) and test.may_want(atoms):
                    return True
        self._stopped += 1
        return False

    def wants_batch(self, connection: int, events: Sequence[Outlined], now_ns: int) -> list[bool] | None:
        """The same of many events that are published here, without XML, integer and addressees; None where it has to be
        asked of each."""
        if self.is_blind(connection, self._map.host, now_ns):
            return None
        view = self._views[connection]
        found = [False] * len(events)
        for (kind, _), engine in view.engines.items():
            if kind in (INTEGER, XPATH, TO) or not len(engine):
                continue
            if kind & FORMER:
                return None
            masks = engine.destinations_batch(events)  # type: ignore[arg-type]
            found = [is_wanted or bool(mask) for is_wanted, mask in zip(found, masks, strict=True)]
        if view.digests:
            digested = Digested({view.unit: view.digests}, lambda unit: 1)
            for at, event in enumerate(events):
                found[at] = found[at] or bool(digested.of_topic(event.topic) or digested.of_attributes(event))
        return found

    def stopped(self, count: int) -> None:
        """So many events were looked at with `wants_batch` and not let through."""
        self._looked += count
        self._stopped += count

    def _in_scope(self, origin: Address, scope: int) -> bool:
        size = self._map.levels - scope
        return origin[:size] == self._map.host[:size]

    # --- telling ---

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row of the interest table changed."""
        self._telling.heard(before, after)

    def heard_digest(self, digest: Digest) -> None:
        self._telling.heard_digest(digest)

    def is_settled(self, unit: Unit, version: Version) -> bool:
        """Whether the gatekeepers beyond all links have what the speaker in a version told of a unit up to it."""
        return self._telling.settlement.is_settled(unit, version)

    @property
    def settled(self) -> int:
        """Counts how often more of what was heard was settled."""
        return self._telling.settlement.settled

    def flush(self, now_ns: int) -> None:
        """Put what has to be told into the outboxes of the links."""
        self._telling.flush(now_ns)

    def tick(self, now_ns: int) -> None:
        self._telling.tick(now_ns)

    def next_wakeup(self) -> int | None:
        return self._telling.next_wakeup()

    def statistics(self) -> BeyondStatistics:
        rows = sum(len(view.wants) for view in self._views.values())
        exact = sum(view.is_complete for view in self._views.values())
        unconfirmed = len(self._telling.settlement)
        return BeyondStatistics(rows, self._looked, self._stopped, unconfirmed, len(self._views), exact)

    def check(self) -> None:
        self._telling.check()
        assert self.untimely == sum(view.untimely for view in self._views.values())
        for view in self._views.values():
            assert len(view.wants) <= MAX_FAR_ROWS
            assert len(view.wants) == sum(map(len, view.engines.values()))


def _want(told: FarWant) -> Want:
    if not is_kind(told.kind):
        raise RemoteProtocolError(f"a want of engine {told.kind}: there is no such engine")
    return keyed_want(told.kind, told.payload, told.scope)
