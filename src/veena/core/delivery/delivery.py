"""The end of an event's way: which clients of this broker get it, once each and in order (DUP-02, DUP-08, design §6).

Duplicates are judged here alone. For each stream (publisher, incarnation, lane) the broker keeps the place of the last
event that its clients have had; what is not later was had. Relays may send an event again and again: here it ends.
Events of a stream come in order, so an older place means "had" and not "missed" (the router's invariant). What comes
out of a backlog is the exception: it says so, and is judged by the ids that were handed over. And who took over from an
origin may not have all of its events (`publishing.replica_sender`): what it published says so too, and until the origin
is heard again older ones are not taken for had, nor does the disk know of more than what came before.

A reliable event is done here when its place is on disk; its clients get it before, because a client keeps its own last
places and shows them when it attaches again. An event that a roaming publisher repeats under a new incarnation names
its original, the id that it had first. It goes to those who did not get it under that id: the two have different
origins, so they are in the scope of different subscriptions, and somebody may have subscribed in between. The original
is skipped should it still come.

Where this broker was cut off inside one of its units, or was dead, brokers around it hold backlogs. When it finds them
again it gathers what comes for a moment, and on while they send their backlogs, up to a bound, and hands it over in
order; what comes later than that is handed over with a mark. What was published here does not wait: nobody else can
have an earlier event of its streams. And units that are lost and found over and over make it gather for a quarter of
the time at most, after `GATHER_BURST` waits. Which of it came before a crash the log tells, for durable subscriptions;
other clients come back after it and say what they had.

Places are kept for twice the time that origins may send again, and at most `MAX_STREAMS` of them: beyond that the
streams that were quiet longest are forgotten first.

The invariant: no session is handed an event of a stream that is not later than the last one of that stream it had,
unless it is marked as late; and none is handed an event under two ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from veena.address import Address
from veena.core.boundary.inputs_effects import Deliver, Effect, Had
from veena.core.boundary.session_id import BROKER_ITSELF, durable_session, is_brokers, is_clients
from veena.core.boundary.stored import DOUBTFUL, STANDBY, Disk, LastHad, Skip
from veena.core.boundary.tickets import Ledger
from veena.core.delivery.delivered_runs import HandedRuns
from veena.core.delivery.held_streams import HeldStreams, SessionSide
from veena.core.delivery.in_flight import Flight
from veena.core.delivery.inherited import HadBefore
from veena.core.delivery.match_cache import Decisions, Receivers
from veena.core.delivery.session_queue import Outlet
from veena.core.interest.service import Profiles
from veena.core.interest.subscriptions import Doubts
from veena.core.messages.addresses import is_here, place_of
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import ADOPTED, BACKLOG, REDELIVERED, RELIABLE, EventFrame
from veena.core.wire.event_id import Place, Stream, first_key, ids_of
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent

#: Streams whose last place is held in memory: about 20 MiB.
MAX_STREAMS = 100_000
#: Events handed over lately, to tell a late one from one that was had, and with all their receivers: about 60 MiB.
MAX_RECENT = 200_000
MAX_RECEIVERS = 2_000_000
#: Before every place, and fit for the disk.
NOTHING: Place = (0, 0)
#: Originals that may still come.
MAX_SKIPS = 10_000
#: Backlogs are waited for in all this many times the wait for one: less than a client that has moved is kept waiting.
MAX_WAITS = 4
#: So many waits may follow each other, each with a rest of `REST` times its length, before the rests count.
GATHER_BURST = 8
REST = 3
#: Events that are held meanwhile; then they are handed over, whatever may still come.
MAX_GATHERED = 100_000


class Outcome(Enum):
    """What came of an event at this broker."""

    #: No client here wants it.
    NOBODY = "nobody"
    #: Its clients have had it, or were handed it and nothing has to be waited for.
    HAD = "had"
    #: Its time to live was over before they could be handed it.
    EXPIRED = "expired"
    #: Its clients were handed it; it is done when the disk has its place.
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class EndStatistics:
    delivered: int
    #: Events that had been had before.
    repeated: int
    #: Events out of a backlog that came after later ones: handed over with a mark.
    late: int
    streams: int


class EventSide(SessionSide, Protocol):
    """The composing module (`event_side`), which passes on whatever does not end with a client's session."""

    def receive(self, frame: EventFrame, now_ns: int) -> None:
        """Take an event for this broker itself, or for where a client's durable subscriptions are kept."""

    def keep(self, frame: EventFrame, sessions: list[int], now_ns: int) -> list[tuple[int, int]]:
        """Take an event for durable subscriptions (by their sessions); who is handed it at once, groups included. One
        that is marked as doubtful is for those for which nobody has evaluated it yet."""

    def must_wait(self, flight: Flight) -> bool:
        """Whether an event that was had is not yet safe elsewhere; if so, its flight is answered for later."""

    def places_saved(self, flights: list[Flight], now_ns: int) -> None:
        """The places of these flights are on disk."""

    def bursts_saved(self, offsets: list[int], now_ns: int) -> None:
        """The places of these bursts of the log, by the offset of their first entry, are on disk."""


class Ends:
    """The clients' side of one broker."""

    def __init__(
        self,
        event_side: EventSide,
        host: Address,
        profiles: Profiles,
        decisions: Decisions,
        outlet: Outlet,
        held: HeldStreams,
        ledger: Ledger,
        effects: list[Effect],
        disk: Disk,
        now_ns: int,
    ) -> None:
        self.outlet = outlet
        self.held = held
        self._event_side = event_side
        self._host = host
        self._me = 1 << host[-1]
        self._decisions = decisions
        self._profiles = profiles
        self._records = profiles.records
        self._ledger = ledger
        self._effects = effects
        #: The last place of each stream, the stream that was quiet longest first.
        self._had: dict[Stream, Place] = dict(disk.had)
        #: What a former life had handed over, or not where it was overtaken.
        self._former = dict(disk.had)
        self._heard_ns: dict[Stream, int] = dict.fromkeys(disk.had, now_ns)
        #: Streams that somebody has taken over: the last place of the origin, and the first since; between is missing.
        self._gaps: dict[Stream, tuple[Place, Place]] = {}
        #: Events that were had under a later id.
        self._skips: dict[tuple[Stream, Place], None] = dict(disk.skips)
        self.before = HadBefore()
        #: Streams of which all sessions may have had something under another id.
        self._retold: dict[Stream, None] = {}
        #: Counts what may change whether events are plain: best effort that were can be so until then.
        self.changes = 0
        #: Places of this input that are not on disk yet, with the flights that wait for them.
        self._unsaved: dict[Stream, Place] = {}
        self._waiting: list[Flight] = []
        #: The sessions that got an event lately, by the id that it had first; reliable ones by their own id as well.
        self._recent: dict[tuple[Stream, Place], tuple[int, ...]] = {}
        self._runs = HandedRuns()
        #: Up to where that was forgotten again: everybody counts as having had it.
        self._forgotten: dict[Stream, Place] = {}
        #: While backlogs are waited for: until when unless more comes; since when, until when at most, and how
        #: long for one.
        self._gather_until_ns: int | None = None
        self._gather_began_ns = self._gather_end_ns = self._merge_ns = 0
        #: When this broker has rested from all its gathering.
        self._rested_ns = 0
        self._gathered: list[Flight] = []
        self._receivers = self._late = self._delivered = self._repeated = 0
        #: Bursts of the log whose places are not on disk yet, by the offset of their first entry; `publishing.log` adds
        #: them.
        self.waiting_bursts: list[int] = []
        self._recall(disk)

    def _recall(self, disk: Disk) -> None:
        """What a former life kept for durable subscriptions, as far back as a backlog may bring it again."""
        since = {
            each.number: disk.reached.get(each.number, 0) - DOUBTFUL
            for each in disk.registered.values()
            if each.state != STANDBY
        }
        for entry in disk.entries:
            doubtful = [number for number in entry.inboxes if entry.offset >= since.get(number, entry.offset + 1)]
            sessions = tuple(map(durable_session, doubtful))
            for stream, place in ids_of(entry.frame) if sessions else ():
                self._remember(stream, place, sessions)

    def attach(self, session: int, had: Had, skips: frozenset[tuple[Stream, Place]]) -> None:
        """What a client says it has had before, and which of it under a later id."""
        if had or skips:
            self.before.attach(session, had, skips)
            self.changes += 1

    def is_plain(self, stream: Stream, like: EventFrame, first: int, receivers: Receivers) -> bool:
        """Whether events from a sequence on are new to all of their receivers, and nothing is kept."""
        if is_brokers(receivers[0][0]) or stream in self._retold or self._skips:
            return False
        if self._gather_until_ns is not None and like.reliable and like.origin_address != self._host:
            return False
        place = (like.timestamp, first)
        if not self._is_new(stream, place) or self.before.concerns(stream, place):
            return False
        presented = self.before.presented
        return not presented or not any(stream in presented.get(each, ()) for each, _ in receivers)

    def is_plain_stream(self, stream: Stream, like: EventFrame, first: int) -> bool:
        """The same for whichever sessions of clients get them."""
        if stream in self._retold or self._skips or self.before.presented:
            return False
        if self._gather_until_ns is not None and like.reliable:
            return False
        place = (like.timestamp, first)
        return self._is_new(stream, place) and not self.before.concerns(stream, place)

    def hand_over_mixed(self, stream: Stream, last: Place, delivered: int, now_ns: int) -> None:
        """Plain best-effort events of a stream, published here, up to this place, are handed over: so many copies."""
        if self._gaps:
            self._gaps.pop(stream, None)
        self._had.pop(stream, None)  # as `_note` does it
        self._had[stream] = last
        self._heard_ns[stream] = now_ns
        self._delivered += delivered

    def hand_over_plain(
        self,
        stream: Stream,
        like: EventFrame,
        first: int,
        last: Place,
        count: int,
        receivers: Receivers,
        burst: EventBurst | None,
        now_ns: int,
        origin: bytes = b"",
    ) -> Receivers:
        """Hand over plain events that are alike, published here or at `origin`; who is left to be handed them. Of
        reliable ones a note is made, and `saved` says when their place is on disk."""
        if self._gaps:
            self._gaps.pop(stream, None)
        self._had.pop(stream, None)  # as `_note` does it
        self._had[stream] = last
        self._heard_ns[stream] = now_ns
        self._delivered += count * len(receivers)
        if like.flags & RELIABLE:
            self._unsaved[stream] = last
            sessions = tuple(session for session, _ in receivers)
            for gone, place in self._runs.add(stream, last[0], first, last[1], sessions).items():
                self._forget(gone, place)
        if self.outlet.clogged or self.held.sessions:
            frames, origin = [like] if burst is None else burst.frames(), origin or bytes(self._host)
            receivers = self.held.hold_plain(frames, stream, receivers, origin, now_ns)
            return self.outlet.withhold_plain(frames, receivers, origin, now_ns)
        return receivers

    def deliver(self, flight: Flight, now_ns: int) -> Outcome:
        """Hand an event to those who want it."""
        frame = flight.frame
        try:
            decision = self._decisions.of(frame, frame.origin, now_ns)
            publisher = frame.publisher
        except InvalidEvent:
            return Outcome.NOBODY
        receivers = self._decisions.receivers(decision, frame.origin_address or self._host)
        to = decision.to
        if to and any(place is not None and is_here(place, self._host) for place in map(place_of, to)):
            receivers = {BROKER_ITSELF: [], **receivers}
        if not receivers:
            return Outcome.NOBODY
        if flight.deadline_ns is not None and flight.deadline_ns <= now_ns:
            if self._records.is_on:
                self._records.note(frame, What.EXPIRED, now_ns, units=(self._host,))
            return Outcome.EXPIRED
        stream, place = (publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        is_backlog = bool(frame.flags & BACKLOG or flight.late & self._me)
        if not self._is_new(stream, place):
            return self._deliver_again(flight, stream, place, receivers, decision.doubts, is_backlog, now_ns)
        if self._gather_until_ns is not None and frame.reliable and (is_backlog or frame.origin_address != self._host):
            self._gathered.append(flight)
            if len(self._gathered) >= MAX_GATHERED:
                self._gather_until_ns = now_ns
            elif is_backlog:
                self._gather_until_ns = min(now_ns + self._merge_ns, self._gather_end_ns)
            if self._records.is_on:
                self._records.note(frame, What.WITHHELD, now_ns, units=(self._host,))
            return Outcome.WAITS
        if frame.flags & ADOPTED:
            self._gaps.setdefault(stream, (self._had.get(stream, NOTHING), place))
        elif self._gaps and not is_backlog:
            self._gaps.pop(stream, None)
        self._note(stream, place, frame.reliable, now_ns)
        if self._skips.pop((stream, place), 0) is None:
            self._repeated += 1
            if self._records.is_on:
                self._records.note(frame, What.HAD, now_ns)
        else:
            self._hand_over(flight, frame, stream, place, receivers, decision.doubts, now_ns)
        if not frame.reliable:
            return Outcome.HAD
        self._waiting.append(flight)
        return Outcome.WAITS

    def _deliver_again(
        self,
        flight: Flight,
        stream: Stream,
        place: Place,
        receivers: dict[int, list[int]],
        doubts: Doubts,
        is_backlog: bool,
        now_ns: int,
    ) -> Outcome:
        """An event that is not later than the last of its stream: it was had, or is late."""
        frame, mark = flight.frame, 0
        gap = self._gaps.get(stream) if self._gaps else None
        if not is_backlog and (gap is None or place <= gap[0]):
            receivers = {}
        elif not is_backlog and gap is not None and place < gap[1]:
            self._gaps[stream] = (place, gap[1])  # the origin sends in order: it has brought all until here
            mark = REDELIVERED if place <= self._forgotten.get(stream, NOTHING) else 0
        elif not self._is_late(stream, place):
            receivers, mark = self._doubtful(stream, place, receivers), REDELIVERED
        if receivers:
            self._late += 1
            self._remember(stream, place, ())
            copy = frame.late_copy()
            copy.flags |= mark
            self._hand_over(flight, copy, stream, place, receivers, doubts, now_ns)
            self._unsaved.setdefault(stream, self._sure(stream, self._had[stream]))
            self._waiting.append(flight)
            return Outcome.WAITS
        self._repeated += 1
        if self._records.is_on:
            self._records.note(frame, What.HAD, now_ns)
        return Outcome.WAITS if self._event_side.must_wait(flight) else Outcome.HAD

    def hand_missed(self, flight: Flight, had_begun: Callable[[int, int], bool], now_ns: int) -> bool:
        """Hand an event out of its origin's log to the subscriptions that were there and never got it, marked as late;
        whether there are any. It may still come by itself: so the place of its stream stays where it is."""
        frame = flight.frame
        stream, place = (frame.publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        if not self._is_late(stream, place) or (stream, place) in self._skips:
            return False
        decision = self._decisions.of(frame, frame.origin, now_ns)
        found = self._decisions.receivers(decision, frame.origin_address or self._host)
        receivers = {
            session: begun
            for session, numbers in found.items()
            if session != BROKER_ITSELF and (begun := [each for each in numbers if had_begun(session, each)])
        }
        if not receivers:
            return False
        self._late += 1
        self._remember(stream, place, ())
        before = self._delivered
        self._hand_over(flight, frame.late_copy(), stream, place, receivers, decision.doubts, now_ns)
        return self._delivered > before

    def _is_new(self, stream: Stream, place: Place) -> bool:
        last = self._had.get(stream)
        return last is None or place > last

    def _note(self, stream: Stream, place: Place, reliable: bool, now_ns: int) -> None:
        self._had.pop(stream, None)  # so that the dict stays in the order of use
        self._had[stream] = place
        self._heard_ns[stream] = now_ns
        if reliable:
            self._unsaved[stream] = self._sure(stream, place)
            self._remember(stream, place, ())

    def _sure(self, stream: Stream, place: Place) -> Place:
        """Up to where a stream has certainly come, where it has come to this place."""
        return self._gaps[stream][0] if stream in self._gaps else place

    def _is_late(self, stream: Stream, place: Place) -> bool:
        """Whether an event out of a backlog was overtaken, and not had."""
        if self._handed(stream, place) is not None:
            return False
        return place > max(self._former.get(stream, (-1, -1)), self._forgotten.get(stream, (-1, -1)))

    def _doubtful(self, stream: Stream, place: Place, receivers: dict[int, list[int]]) -> dict[int, list[int]]:
        """Who may not have been handed an event out of a backlog from before a crash of this broker, where it may have
        been overtaken: durable subscriptions, if it is not in the log for them. What the log has lost comes again."""
        if self._handed(stream, place) is not None or place <= self._forgotten.get(stream, (-1, -1)):
            return {}
        return {session: found for session, found in receivers.items() if is_brokers(session) and found}

    def _remember(self, stream: Stream, place: Place, sessions: tuple[int, ...]) -> None:
        self._recent[stream, place] = self._recent.get((stream, place), ()) + sessions
        self._receivers += len(sessions)
        while len(self._recent) > MAX_RECENT or self._receivers > MAX_RECEIVERS:
            (stream, place), sessions = next(iter(self._recent.items()))
            del self._recent[stream, place]
            self._receivers -= len(sessions)
            self._forget(stream, place)

    def _forget(self, stream: Stream, place: Place) -> None:
        self._forgotten[stream] = max(place, self._forgotten.pop(stream, place))
        if len(self._forgotten) > MAX_STREAMS:
            del self._forgotten[next(iter(self._forgotten))]

    def _handed(self, stream: Stream, place: Place) -> tuple[int, ...] | None:
        """Who got an event lately, by the id that it had first; None if nobody remembers it."""
        alone, run = self._recent.get((stream, place)), self._runs.find(stream, place)
        return run if alone is None else alone if run is None else alone + run

    def _hand_over(
        self,
        flight: Flight,
        frame: EventFrame,
        stream: Stream,
        place: Place,
        receivers: dict[int, list[int]],
        doubts: Doubts,
        now_ns: int,
    ) -> None:
        """Hand an event to those of its receivers who have not had it, under this id or its first."""
        original = frame.section.original
        first = (stream, place)
        if original is not None:
            first = (stream[0], original[0], stream[2]), (original[1], original[2])
            if first[1] <= self._forgotten.get(first[0], (-1, -1)):
                receivers = {}
        handed = frozenset(self._handed(*first) or ())
        ids, said = ((stream, place), first), self.before.said
        fresh = {
            session: subscriptions
            for session, subscriptions in receivers.items()
            if session not in handed and (session not in said or self.before.is_new_to(session, ids))
        }
        has_heirs = self.before.has_heirs(ids, handed)
        if has_heirs:
            fresh = self.before.without_had(fresh, first_key(frame), handed)
        if self._records.is_on and len(fresh) != len(receivers):
            for session in receivers:
                if session not in fresh and session != BROKER_ITSELF:
                    self._records.note(frame, What.HAD, now_ns, session=session)
        if not fresh:
            self._repeated += 1
            return
        if original is not None and self._is_new(*first):
            self._skip(*first, frame.reliable)
        if original is not None or frame.reliable:
            self._remember(*first, tuple(fresh))
        if original is not None and not frame.reliable:
            self._retold[first[0]] = None
            self.changes += 1
            if len(self._retold) > MAX_STREAMS:
                del self._retold[next(iter(self._retold))]
        self._delivered += len(fresh)
        origin = frame.origin_address or self._host
        doubts = {session: doubts[session] for session in fresh if session in doubts} if doubts else doubts
        for session, subscriptions in fresh.items():
            certain = subscriptions if session not in doubts else _without(subscriptions, doubts[session])
            self._profiles.observe(session, tuple(certain), origin)
        if is_brokers(next(iter(fresh))):
            fresh, doubts = self._inward(frame, fresh, doubts, now_ns)
            if not fresh:
                return
        for mark, those in self.before.by_mark(fresh, ids).items() if has_heirs else ((0, fresh),):
            marked = frame
            if mark & ~frame.flags:
                marked = frame.late_copy()
                marked.flags |= mark
            self._give_out(flight, marked, stream, those, doubts, now_ns)

    def _give_out(
        self,
        flight: Flight,
        frame: EventFrame,
        stream: Stream,
        receivers: dict[int, list[int]],
        doubts: Doubts,
        now_ns: int,
    ) -> None:
        """Hand an event to sessions, except to those that have to be evaluated first, or that do not read."""
        if doubts or self.held.sessions:
            receivers = self.held.hold(frame, stream, flight.deadline_ns, receivers, doubts, now_ns)
        for group in [session for session in receivers if is_brokers(session)]:
            self._event_side.group_event(group, frame, now_ns)
            receivers = {session: found for session, found in receivers.items() if session != group}
        left = self.outlet.withhold(flight, frame, receivers, now_ns) if self.outlet.clogged else receivers
        if left:
            self._effects.append(Deliver(frame, tuple((s, tuple(found)) for s, found in left.items())))

    def _inward(
        self, frame: EventFrame, fresh: dict[int, list[int]], doubts: Doubts, now_ns: int
    ) -> tuple[dict[int, list[int]], Doubts]:
        """Take what is for this broker itself and for durable subscriptions; who else is handed it now, and who of them
        is in doubt about it."""
        if any(is_brokers(session) and not subscriptions for session, subscriptions in fresh.items()):
            self._event_side.receive(frame, now_ns)
        kept = [session for session, subscriptions in fresh.items() if is_brokers(session) and subscriptions]
        handed = {session: subscriptions for session, subscriptions in fresh.items() if is_clients(session)}
        certain = [session for session in kept if session not in doubts]
        for session, subscription in self._event_side.keep(frame, certain, now_ns) if certain else ():
            handed[session] = [*handed.get(session, ()), subscription]
        if not doubts:
            return handed, doubts
        doubtful = [session for session in kept if session in doubts]
        doubts = {session: numbers for session, numbers in doubts.items() if is_clients(session)}
        for session, subscription in self._event_side.keep(frame.doubtful_copy(), doubtful, now_ns) if doubtful else ():
            handed[session] = [*handed.get(session, ()), subscription]
            doubts[session] = (*doubts.get(session, ()), subscription)
        return handed, doubts

    def was_handed(self, first: tuple[Stream, Place], session: int) -> bool:
        """Whether a session got an event lately, by the id that it had first."""
        return session in (self._handed(*first) or ())

    def _skip(self, stream: Stream, place: Place, reliable: bool) -> None:
        """An event was handed over under a later id before it came under this one."""
        if (stream, place) in self._skips:
            return
        if len(self._skips) >= MAX_SKIPS:
            del self._skips[next(iter(self._skips))]
        self._skips[stream, place] = None
        self.changes += 1
        if reliable:
            self._ledger.write(Skip(stream, place), stubborn=True)

    # --- after an absence ---

    def gather(self, merge_ns: int, now_ns: int) -> None:
        """Others may hold a backlog for this broker: hold what comes for so long, and on for as long again after each
        event of a backlog, and hand it over in order."""
        if self._gather_until_ns is None:
            self._rested_ns = max(self._rested_ns, now_ns)
            if self._rested_ns - now_ns > GATHER_BURST * MAX_WAITS * merge_ns:
                return
            self._gather_end_ns = now_ns + MAX_WAITS * merge_ns
            self._gather_began_ns = now_ns
        self._merge_ns = merge_ns
        self._gather_until_ns = min(now_ns + merge_ns, self._gather_end_ns)

    def tick(self, now_ns: int) -> None:
        if self._gather_until_ns is None or now_ns < self._gather_until_ns:
            return
        self._gather_until_ns = None
        self._rested_ns += (1 + REST) * (now_ns - self._gather_began_ns)
        gathered, self._gathered = self._gathered, []
        done = [
            flight
            for flight in sorted(gathered, key=lambda flight: flight.order)
            if self.deliver(flight, now_ns) is not Outcome.WAITS
        ]
        self._event_side.places_saved(done, now_ns)

    def next_wakeup(self) -> int | None:
        return self._gather_until_ns

    def flush(self) -> None:
        """Put the places of this input on disk; the flights that wait for them are done after that."""
        if not self._unsaved:
            return
        flights, self._waiting = self._waiting, []
        bursts, self.waiting_bursts = self.waiting_bursts, []
        writes = [LastHad(stream, place) for stream, place in self._unsaved.items()]
        self._unsaved = {}
        for write in writes[:-1]:
            self._ledger.write(write, stubborn=True)

        def saved(now_ns: int) -> None:
            self._event_side.places_saved(flights, now_ns)
            if bursts:
                self._event_side.bursts_saved(bursts, now_ns)

        self._ledger.write(writes[-1], saved, stubborn=True)

    def expire(self, before_ns: int) -> None:
        """Forget streams that have been quiet since before then."""
        for stream in list(self._had):
            if self._heard_ns[stream] >= before_ns and len(self._had) <= MAX_STREAMS:
                return
            del self._had[stream], self._heard_ns[stream]
            self._former.pop(stream, None)
            self._gaps.pop(stream, None)
            self._forgotten.pop(stream, None)
            self._runs.drop(stream)

    def statistics(self) -> EndStatistics:
        return EndStatistics(self._delivered, self._repeated, self._late, len(self._had))

    def check(self) -> None:
        assert not self._unsaved, "what was handed over is on its way to the disk"
        assert not self._waiting and not self.waiting_bursts
        self._runs.check()
        assert self._had.keys() == self._heard_ns.keys()
        assert len(self._recent) <= MAX_RECENT
        assert 0 <= self._receivers <= MAX_RECEIVERS


def _without(numbers: list[int], doubtful: tuple[int, ...]) -> list[int]:
    among = frozenset(doubtful)
    return [number for number in numbers if number not in among]
