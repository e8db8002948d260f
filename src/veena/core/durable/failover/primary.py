"""Telling another broker of the cluster of the durable subscriptions that are kept here, so that it can stand in (I5).

This broker chooses who stands by for it: the next of its cluster that it reaches, and another one when that has been
out of reach for `takeover_ns`. It tells of every subscription (Stand), and with `copies = 2` of every event that it
keeps (Hold) and of every one that it keeps no more (Settled). What the other side does with it stands in `standby`.

    an event is kept here --> Hold --> the standby's disk has it --> the duty for this broker is done
    a client acknowledges --> some time later, with others --> Settled
    a subscription goes to Y: what is sent after it is settled when Y has it, not when it is posted

Which posts an event waits for is known by their offsets in the log: a post is served when its receiver's disk has it.

The invariant: with `copies = 2` and somebody else of the cluster in reach, a duty for durable subscriptions here is
done when what came of it is on two disks, or with the broker where the subscription went.

Rejected: `publishing.replica_sender`, which holds events for their origin. A holder publishes them again; here that
would go to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from veena.address import Address
from veena.core.boundary.settings import READ_BATCH, SECOND_NS, Settings
from veena.core.boundary.stored import Entry
from veena.core.boundary.tickets import LogReader
from veena.core.delivery.in_flight import Flight
from veena.core.durable.cursor import Inbox
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable, DurableObserver, Key, State
from veena.core.interest.constraint import make_want
from veena.core.messages.addresses import GROUP, broker_id, everybody_id
from veena.core.messages.kinds import (
    MAX_HELD_FOR,
    MAX_LONE_BYTES,
    MAX_SETTLED,
    PLACE_BYTES,
    Deleted,
    Hold,
    Renew,
    Settled,
    Stand,
    Standby,
    StandDown,
    parts_of,
)
from veena.core.messages.mailbox import Post
from veena.core.publishing.log import Origin
from veena.core.routing.router import Router
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import EventKey, event_key

#: How long what is settled is gathered: what a standby may hand over again, with a mark.
SETTLE_NS = SECOND_NS
#: Stands for everything that a new standby is being sent.
AFRESH = -1


@dataclass(slots=True)
class _Posted:
    """A post on its way: what waits for it."""

    cause: EventKey | None
    #: Of an event that was sent after a subscription; None for what the standby is told.
    after: tuple[Key, EventKey] | None = None


@dataclass(slots=True)
class _Waiting:
    """An event whose duty is not done before these posts are served."""

    offsets: dict[int, None] = field(default_factory=dict)
    flights: list[Flight] = field(default_factory=list)


class StandbyTelling(DurableObserver):
    """The home's side; one a broker."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        cluster: Callable[[], list[Address]],
        durables: Durables,
        post: Post,
        origin: Origin,
        router: Router,
        reader: LogReader,
    ) -> None:
        self._host = host
        self._settings = settings
        self._holds = settings.copies == 2
        #: The other brokers of the cluster that are in reach.
        self._cluster = cluster
        self._durables = durables
        self._post = post
        self._origin = origin
        self._router = router
        self._reader = reader
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        #: Who stands by, and since when it is out of reach.
        self.present: Address | None = None
        self._missing_ns: int | None = None
        self._is_stale = False
        self._changed: dict[Key, None] = {}
        self._ended: dict[Key, None] = {}
        self._settled: dict[Key, list[EventKey]] = {}
        self._settle_at_ns: int | None = None
        #: Posts on their way, by offset, and the events that wait for them.
        self._posted: dict[int, _Posted] = {}
        self._waiting: dict[EventKey, _Waiting] = {}
        #: Events sent after a subscription that have not come yet.
        self._going: dict[Key, int] = {}
        #: The posts that a new standby is to have before others are told of it, and the inboxes that are still read.
        self._afresh: dict[int, None] | None = None
        self._reads = 0
        #: The event that is being dealt with.
        self.cause: EventKey | None = None
        post.deals_with(Renew, self._on_renew)
        for durable in durables.here.values():
            if _is_told(durable):
                self.present = self.present or durable.to
                self._changed[durable.key] = None

    # --- subscriptions ---

    def on_saved(self, durable: Durable) -> None:
        if not _is_told(durable):
            return
        if durable.is_here:
            self._changed[durable.key] = None
        elif durable.state is State.LEFT:
            self.on_removed(durable)

    def on_removed(self, durable: Durable) -> None:
        if _is_told(durable) and durable.key not in self._durables.here:
            self._ended[durable.key] = None

    def on_ended_elsewhere(self, message: Deleted, now_ns: int) -> None:
        """Somebody may have taken this broker's place meanwhile: then nobody else tells that one. It passes this on in
        its turn, and whoever keeps nothing of the kind does not."""
        if self.present is not None:
            self._tell(message, now_ns)

    def flush(self, now_ns: int) -> None:
        """The end of an input: tell of what changed."""
        if not (self._changed or self._is_stale or self._ended or self._settled or self._afresh is not None):
            return
        if self._is_stale or (self.present is None and self._changed):
            self._choose(now_ns)
        if self.present is None:
            self._changed.clear()
            self._ended.clear()
            return
        changed, self._changed = self._changed, {}
        for key in changed:
            durable = self._durables.here.get(key)
            if durable is not None:
                self._stand(durable, False, now_ns)
        for key in [key for key in self._ended if not self._going.get(key)]:
            del self._ended[key]
            if key not in self._durables.here:
                self._settled.pop(key, None)
                self._tell(StandDown(*key), now_ns)
        if self._settled and self._settle_at_ns is None:
            self._settle_at_ns = now_ns + SETTLE_NS
        if self._afresh is not None and not self._afresh and not self._reads:
            self._has_all(now_ns)

    def _stand(self, durable: Durable, afresh: bool, now_ns: int) -> None:
        if durable.to != self.present:
            durable.to = self.present
            self._durables.save(durable)
            self._changed.pop(durable.key, None)
        want = make_want(durable.engine, durable.constraint, durable.scope)
        message = Stand(*durable.key, want.engine, want.payload, want.scope, durable.version, afresh)
        self._follow(self._tell(message, now_ns), None)

    def _tell(self, message: Stand | StandDown | Hold | Settled | Deleted, now_ns: int) -> int:
        """Post to the standby; the offset of it."""
        assert self.present is not None
        self._post.send(broker_id(self.present), message, now_ns)
        return self._origin.next_offset - 1

    # --- who stands by ---

    def reach_changed(self) -> None:
        self._is_stale = True

    def _choose(self, now_ns: int) -> None:
        self._is_stale = False
        if not self._settings.standby_ns:
            return
        reach = self._cluster()
        if self.present in reach:
            self._missing_ns = None
            return
        if self.present is not None:
            self._missing_ns = now_ns if self._missing_ns is None else self._missing_ns
            if now_ns < self._missing_ns + self._settings.takeover_ns:
                return
        self._missing_ns = None
        has_any = any(_is_told(durable) for durable in self._durables.here.values())
        # The next one after this broker, so that not everybody chooses the same.
        self.present = min(reach if has_any else (), key=lambda each: (each < self._host, each), default=None)
        if self.present is None:
            self._let_go(now_ns)
        else:
            self._tell_all(now_ns)

    def _let_go(self, now_ns: int) -> None:
        """There is nobody to wait for."""
        self._afresh = None
        for offset in [offset for offset, posted in self._posted.items() if posted.after is None]:
            self._is_served(offset, now_ns)
        self._is_served(AFRESH, now_ns)

    def _on_renew(self, message: Renew, origin: Address, now_ns: int) -> None:
        if origin == self.present:
            self._tell_all(now_ns)

    def _tell_all(self, now_ns: int) -> None:
        """Send everything to the standby. What waits for posts to another one waits until this is there."""
        self._afresh = {}
        for offset, posted in list(self._posted.items()):
            if posted.after is None:
                del self._posted[offset]
                if posted.cause is not None:
                    waiting = self._waiting[posted.cause]
                    del waiting.offsets[offset]
                    waiting.offsets[AFRESH] = None
        for durable in list(self._durables.here.values()):
            if _is_told(durable):
                self._stand(durable, True, now_ns)
                inboxes = [*durable.inboxes, *(() if durable.aside is None else (durable.aside,))]
                for inbox in inboxes if self._holds else ():
                    self._reads += 1
                    self._read(durable, inbox, inbox.cursor, self.present)

    def _read(self, durable: Durable, inbox: Inbox, start: int, standby: Address | None) -> None:
        until = self._origin.next_offset

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            if standby == self.present and durable.is_here and self._afresh is not None:
                for entry in entries:
                    if entry.offset < until and not inbox.is_acknowledged(entry.offset):
                        self._hold([durable], entry.frame, None, now_ns)
                if len(entries) == READ_BATCH and entries[-1].offset < until:
                    self._read(durable, inbox, entries[-1].offset + 1, standby)
                    return
            self._reads -= 1

        self._reader.read(start, READ_BATCH, found, inbox=inbox.number)

    def _has_all(self, now_ns: int) -> None:
        assert self.present is not None
        self._afresh = None
        self._post.send(everybody_id(self._host[:-1]), Standby(self.present), now_ns)
        self._is_served(AFRESH, now_ns)

    # --- events ---

    def on_kept(self, durables: list[Durable], frame: EventFrame, now_ns: int) -> None:
        found = [durable for durable in durables if _is_told(durable)] if self._holds else []
        if found and self.present is not None:
            self._hold(found, frame, self.cause, now_ns)

    def _hold(self, durables: list[Durable], frame: EventFrame, cause: EventKey | None, now_ns: int) -> None:
        data = self._codec.encode(frame, 0)
        keys = (durable.key for durable in durables)
        for of in parts_of(keys, lambda key: len("".join(key).encode()) + PLACE_BYTES, MAX_HELD_FOR):
            self._follow(self._tell(Hold(data, tuple(of)), now_ns), cause)

    def _follow(self, offset: int, cause: EventKey | None) -> None:
        """Know when the standby has a post; with one copy nothing waits for that."""
        if self._holds:
            self._wait(offset, _Posted(cause))
            if self._afresh is not None and cause is None:
                self._afresh[offset] = None

    def on_forwarded(self, durable: Durable, frame: EventFrame) -> None:
        if self._holds and _is_told(durable):
            self._going[durable.key] = self._going.get(durable.key, 0) + 1
            self._wait(self._origin.next_offset - 1, _Posted(self.cause, (durable.key, event_key(frame))))

    def _wait(self, offset: int, posted: _Posted) -> None:
        self._posted[offset] = posted
        if posted.cause is not None:
            self._waiting.setdefault(posted.cause, _Waiting()).offsets[offset] = None

    def on_settled(self, durable: Durable, key: EventKey) -> None:
        if self._holds and self.present is not None and _is_told(durable):
            self._settled.setdefault(durable.key, []).append(key)

    def served(self, offset: int, now_ns: int) -> None:
        """A post's receiver has it."""
        if offset in self._posted:
            self._is_served(offset, now_ns)

    def _is_served(self, offset: int, now_ns: int) -> None:
        posted = self._posted.pop(offset, None)
        if self._afresh is not None:
            self._afresh.pop(offset, None)
        if posted is not None and posted.after is not None:
            key, event = posted.after
            self._settled.setdefault(key, []).append(event)
            self._going[key] -= 1
            if not self._going[key]:
                del self._going[key]
        causes = [posted.cause] if posted is not None else list(self._waiting) if offset == AFRESH else []
        for cause in causes:
            waiting = self._waiting.get(cause) if cause is not None else None
            if waiting is not None and cause is not None:
                waiting.offsets.pop(offset, None)
                if not waiting.offsets:
                    del self._waiting[cause]
                    self._router.delivered(waiting.flights, now_ns)

    def waits(self, flight: Flight) -> bool:
        """Whether an event is not safe yet; then its flight is answered for later."""
        waiting = self._waiting.get(flight.key)
        if waiting is not None and not any(each is flight for each in waiting.flights):
            waiting.flights.append(flight)
        return waiting is not None

    # --- time ---

    def tick(self, now_ns: int) -> None:
        if self._missing_ns is not None and now_ns >= self._missing_ns + self._settings.takeover_ns:
            self._is_stale = True
        if self._settle_at_ns is not None and now_ns >= self._settle_at_ns:
            self._settle_at_ns = None
            settled, self._settled = self._settled, {}
            for key, found in settled.items() if self.present is not None else ():
                for part in parts_of(found, lambda each: len(each[0]) + PLACE_BYTES, MAX_SETTLED, MAX_LONE_BYTES):
                    self._tell(Settled(*key, tuple(part)), now_ns)

    def next_wakeup(self) -> int | None:
        due = [] if self._missing_ns is None else [self._missing_ns + self._settings.takeover_ns]
        due += [] if self._settle_at_ns is None else [self._settle_at_ns]
        return min(due, default=None)

    def check(self) -> None:
        for cause, waiting in self._waiting.items():
            assert waiting.offsets
            for offset in waiting.offsets:
                assert offset == AFRESH or self._posted[offset].cause == cause
        assert self._reads >= 0
        assert all(count > 0 for count in self._going.values())


def _is_told(durable: Durable) -> bool:
    """Whether somebody stands by for it: not for what goes with its session, nor (yet) for what a group shares."""
    return not durable.is_passing and not durable.client_id.startswith(GROUP)
