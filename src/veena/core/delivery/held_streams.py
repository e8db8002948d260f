"""Events that wait for one session, because a subscription of it is being evaluated outside of the loop.

The index leaves a subscription undecided where that would cost too much (`matching.base.work`). The event then waits
here for that session alone until the verdict comes (`evaluations`), and so do later events of its stream for this
session, whichever of its subscriptions they satisfy: their order stays. Other streams and other sessions go on.

What waits is bounded by bytes (`session_bytes` for a session, `MAX_BYTES` for all), by time (`HELD_NS`), and by the
subscriptions of a session that are open for one event (`MAX_DOUBTS`). A subscription beyond that, or one that costs
more than is spent on any evaluation, is *suspended*: its client is told why, what waited for it alone is counted as
missed, and everything else of the session goes on.

One input never does much here, however many subscriptions there are: questions are asked for the first event of a
stream alone, a few at a time, and suspended subscriptions end in slices.

This is for subscriptions that go with their session, and for best-effort events. What is kept for durable subscriptions
waits in the log instead (`durable.redelivery`), however long that takes.

The invariant: a stream that is held for a session begins with an event that is open; each event that was put here is
handed over, found unwanted, counted as missed, or gone with its session.

Rejected: to acknowledge an event only when it is evaluated, so that it would come again after a crash. What is open is
bounded, so one costly subscription would hold up its publisher and all other readers; reliable means up to the client's
broker, as for a client that does not read (`session_queue`).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from veena.core.boundary.session_id import is_brokers
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.delivery.evaluations import Evaluations
from veena.core.delivery.session_queue import OVERHEAD, OnClear, Outlet, compact
from veena.core.interest.constraint import Want
from veena.core.interest.subscriptions import Doubts
from veena.core.journal import Records
from veena.core.wire.event import NO_TTL, EventFrame
from veena.core.wire.event_id import Stream
from veena.core.wire.trace_facts import UNSATISFIED, What
from veena.matching.base.verdict import Verdict

#: What waits for all sessions of a broker.
MAX_BYTES = 64 << 20
#: How long an event waits at most: as long as several evaluations of other users take, each ended at its last moment.
HELD_NS = 30 * SECOND_NS
HELD = "it waits at the client's broker until it is evaluated whether the client wants it"
#: Subscriptions of one session that may be undecided about one event, and what each costs while the event waits.
MAX_DOUBTS = 256
DOUBT_BYTES = 128
#: Questions about one event that are asked at once, and suspended subscriptions that end at once.
ASKED_AT_ONCE = 8
ENDED_AT_ONCE = 50
LEFT = "the client left before it was evaluated whether it wants the event"
MISSED = "a subscription is suspended: evaluating it takes too much work"

Receivers = Mapping[int, list[int]]
Sessions = tuple[tuple[int, tuple[int, ...]], ...]


class SessionSide(Protocol):
    """The composing module (`event_side`), which knows the subscriptions."""

    def asked(self, session: int, subscription: int) -> tuple[Want, str] | None:
        """What a subscription asks for, and its user."""

    def suspend(self, session: int, subscription: int, missed: int, reason: str, now_ns: int) -> None:
        """Tell the client of a subscription that it costs too much. It gets nothing more."""

    def end_suspended(self, session: int, subscription: int, now_ns: int) -> None:
        """End a suspended subscription, if it is still there."""

    def group_event(self, session: int, frame: EventFrame, now_ns: int) -> None:
        """Hand a best-effort event to a group."""


@dataclass(frozen=True, slots=True)
class HeldStatistics:
    sessions: int
    events: int
    bytes: int
    #: Since the start: events that suspended subscriptions did not get.
    missed: int


class _Item:
    """An event that waits: who wants it as far as is known, and which subscriptions are open."""

    __slots__ = ("asked", "deadline_ns", "found", "frame", "open", "since_ns", "size")

    def __init__(
        self, frame: EventFrame, deadline_ns: int | None, found: list[int], open_ones: dict[int, None], now_ns: int
    ) -> None:
        self.frame = frame
        self.deadline_ns = deadline_ns
        self.found = found
        self.open = open_ones
        #: Of these, for which verdicts are waited.
        self.asked: dict[int, None] = {}
        self.size = len(frame.tail) + OVERHEAD + DOUBT_BYTES * len(open_ones)
        self.since_ns = now_ns


class _Held:
    """What waits for one session."""

    __slots__ = ("bytes", "streams")

    def __init__(self) -> None:
        self.streams: dict[Stream, deque[_Item]] = {}
        self.bytes = 0


class HeldStreams:
    """One a broker."""

    def __init__(
        self, side: SessionSide, settings: Settings, evaluations: Evaluations, outlet: Outlet, records: Records
    ) -> None:
        self._side = side
        self._max_bytes = settings.session_bytes
        self._evaluations = evaluations
        self._outlet = outlet
        self._records = records
        #: Sessions for which something waits. Whether there is any is the only question on the way of every event.
        self.sessions: dict[int, _Held] = {}
        self._bytes = self._missed = 0
        #: Told when nothing waits for a session any more: session, now.
        self.on_clear: list[OnClear] = []
        #: What was put here, the oldest first; those that are not open any more go when they are the oldest.
        self._ages: deque[tuple[int, _Item]] = deque()
        #: Suspended subscriptions that have not ended yet, by session.
        self._ending: dict[int, dict[int, None]] = {}

    # --- events ---

    def hold(
        self,
        frame: EventFrame,
        stream: Stream,
        deadline_ns: int | None,
        receivers: Receivers,
        doubts: Doubts,
        now_ns: int,
    ) -> dict[int, list[int]]:
        """Let an event wait for sessions that are in doubt about it, or have earlier ones of its stream; the others."""
        left: dict[int, list[int]] = {}
        small: EventFrame | None = None
        for session, numbers in receivers.items():
            wanted = numbers
            held = self.sessions.get(session)
            doubtful = self._doubtful(session, numbers, doubts, now_ns) if session in doubts else ()
            if session in self._ending:
                wanted = [number for number in numbers if number not in self._ending[session]]
                if not wanted:
                    continue
            if not doubtful and (held is None or stream not in held.streams):
                left[session] = wanted
                continue
            small = small or compact(frame)
            self._put(session, small, stream, deadline_ns, wanted, doubtful, now_ns)
        return left

    def _doubtful(self, session: int, numbers: list[int], doubts: Doubts, now_ns: int) -> tuple[int, ...]:
        """The subscriptions of a session that are to be evaluated. Where these are too many, others are suspended."""
        among, ending = frozenset(numbers), self._ending.get(session, {})
        found = [number for number in doubts[session] if number in among and number not in ending]
        if len(found) > MAX_DOUBTS:
            reason = (
                f"{len(found)} subscriptions of its session are to be evaluated on one event, of at most {MAX_DOUBTS}"
            )
            self._suspend(session, dict.fromkeys(found[MAX_DOUBTS:]), reason, now_ns, missed=1)
        return tuple(found[:MAX_DOUBTS])

    def hold_plain(
        self, frames: list[EventFrame], stream: Stream, receivers: Sessions, origin: bytes, now_ns: int
    ) -> Sessions:
        """The same for events that are alike and about which nobody is in doubt."""
        waiting = [each for each in receivers if each[0] in self.sessions and stream in self.sessions[each[0]].streams]
        if not waiting:
            return receivers
        for each in frames:
            frame = compact(each.copy(each.to_serve, each.served, each.ttl_ms))
            frame.origin = origin
            deadline_ns = None if frame.ttl_ms == NO_TTL else now_ns + frame.ttl_ms * MILLISECOND_NS
            for session, numbers in waiting:
                self._put(session, frame, stream, deadline_ns, list(numbers), (), now_ns)
        return tuple(each for each in receivers if each not in waiting)

    def _put(
        self,
        session: int,
        frame: EventFrame,
        stream: Stream,
        deadline_ns: int | None,
        numbers: list[int],
        doubtful: tuple[int, ...],
        now_ns: int,
    ) -> None:
        held = self.sessions.setdefault(session, _Held())
        open_ones = dict.fromkeys(doubtful)
        item = _Item(frame, deadline_ns, [number for number in numbers if number not in open_ones], open_ones, now_ns)
        held.streams.setdefault(stream, deque()).append(item)
        held.bytes += item.size
        self._bytes += item.size
        if self._records.is_on:
            self._records.note(frame, What.WITHHELD, now_ns, session=session, until_ns=deadline_ns, text=HELD)
        if doubtful:
            self._ages.append((session, item))
        self._release(session, stream, now_ns)
        while self.sessions.get(session) is held and (held.bytes > self._max_bytes or self._bytes > MAX_BYTES):
            reason = f"{held.bytes} bytes wait for this session until it is evaluated, of at most {self._max_bytes}"
            self._suspend_oldest(session, held, reason, now_ns)

    def _ask(self, session: int, stream: Stream, item: _Item, now_ns: int) -> None:
        """Ask some more questions about an event."""
        for number in [each for each in islice(item.open, 2 * ASKED_AT_ONCE) if each not in item.asked]:
            if len(item.asked) >= ASKED_AT_ONCE:
                return
            self._ask_one(session, stream, item, number, now_ns)

    def _ask_one(self, session: int, stream: Stream, item: _Item, number: int, now_ns: int) -> None:
        asked, document = self._side.asked(session, number), item.frame.section.xml
        if asked is None or document is None:
            del item.open[number]
            return
        item.asked[number] = None

        def then(verdict: Verdict, then_ns: int) -> None:
            self._judged(session, stream, item, number, verdict, then_ns)

        want, user = asked
        self._evaluations.ask(user, want, document, then, lambda: number in item.open, now_ns)

    def _judged(self, session: int, stream: Stream, item: _Item, number: int, verdict: Verdict, now_ns: int) -> None:
        if verdict is Verdict.TOO_MUCH:
            reason = "evaluating it on one event takes more work than is spent on any"
            self._suspend(session, {number: None}, reason, now_ns)
            return
        del item.open[number], item.asked[number]
        if verdict is Verdict.TRUE:
            insort(item.found, number)
        elif self._records.is_on and not item.found and not item.open:
            self._records.note(item.frame, What.DROPPED, now_ns, session=session, text=UNSATISFIED)
        self._release(session, stream, now_ns)

    def _release(self, session: int, stream: Stream, now_ns: int) -> None:
        """Hand over what is decided and waits for nothing before it."""
        held = self.sessions.get(session)
        queue = None if held is None else held.streams.get(stream)
        if held is None or queue is None:
            return
        while queue:
            item = queue[0]
            self._ask(session, stream, item, now_ns)
            if item.open:
                return
            queue.popleft()
            held.bytes -= item.size
            self._bytes -= item.size
            if item.found:
                self._hand(session, item, now_ns)
        del held.streams[stream]
        if not held.streams:
            del self.sessions[session]
            for tell in self.on_clear:
                tell(session, now_ns)

    def _hand(self, session: int, item: _Item, now_ns: int) -> None:
        frame = item.frame
        if item.deadline_ns is not None:
            if item.deadline_ns <= now_ns:
                if self._records.is_on:
                    self._records.note(frame, What.EXPIRED, now_ns, session=session)
                return
            frame = frame.copy(frame.to_serve, frame.served, max(1, (item.deadline_ns - now_ns) // MILLISECOND_NS))
        if is_brokers(session):
            self._side.group_event(session, frame, now_ns)
        else:
            self._outlet.hand(session, frame, item.deadline_ns, tuple(item.found), now_ns)

    def is_held(self, session: int) -> bool:
        """Whether anything waits for a session."""
        return session in self.sessions

    # --- subscriptions ---

    def _suspend_oldest(self, session: int, held: _Held, reason: str, now_ns: int) -> None:
        """Suspend what the oldest event of a session waits for."""
        oldest = min((queue[0] for queue in held.streams.values()), key=lambda item: item.since_ns)
        self._suspend(session, oldest.open, reason, now_ns)

    def _suspend(self, session: int, numbers: Mapping[int, None], reason: str, now_ns: int, missed: int = 0) -> None:
        """Subscriptions cost too much: they get nothing more, and other ones are not kept waiting for them."""
        counts = dict.fromkeys(numbers, missed)
        held = self.sessions.get(session)
        for queue in held.streams.values() if held is not None else ():
            for item in queue:
                gone = [number for number in item.open if number in counts]
                for number in gone:
                    counts[number] += 1
                    del item.open[number]
                    item.asked.pop(number, None)
                if gone and self._records.is_on and not item.found and not item.open:
                    self._records.note(item.frame, What.DROPPED, now_ns, session=session, text=MISSED)
        ending = self._ending.setdefault(session, {})
        for number, count in counts.items():
            ending[number] = None
            self._missed += count
            self._evaluations.suspended += 1
            self._side.suspend(session, number, count, reason, now_ns)
        self._release_all(session, now_ns)

    def end_some(self, now_ns: int) -> None:
        """End some of the subscriptions that were suspended."""
        left = ENDED_AT_ONCE
        for session, numbers in list(self._ending.items()):
            for number in list(islice(numbers, left)):
                del numbers[number]
                self._side.end_suspended(session, number, now_ns)
                left -= 1
            if not numbers:
                del self._ending[session]
            if not left:
                return

    def unsubscribed(self, session: int, number: int, now_ns: int) -> None:
        """A subscription is over: nothing waits for its verdicts."""
        if session in self._ending:
            self._ending[session].pop(number, None)
        held = self.sessions.get(session)
        if held is None:
            return
        for queue in held.streams.values():
            for item in queue:
                item.open.pop(number, None)
                item.asked.pop(number, None)
                if number in item.found:
                    item.found.remove(number)
        self._release_all(session, now_ns)

    def _release_all(self, session: int, now_ns: int) -> None:
        held = self.sessions.get(session)
        for stream in list(held.streams) if held is not None else ():
            self._release(session, stream, now_ns)

    def detach(self, session: int, now_ns: int) -> None:
        """A session is over, and with it what waited for it."""
        self._ending.pop(session, None)
        held = self.sessions.pop(session, None)
        if held is None:
            return
        self._bytes -= held.bytes
        for queue in held.streams.values():
            for item in queue:
                item.open.clear()
                if self._records.is_on:
                    self._records.note(item.frame, What.DROPPED, now_ns, session=session, text=LEFT)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        self.end_some(now_ns)
        while (oldest := self._oldest()) is not None and oldest[1].since_ns + HELD_NS <= now_ns:
            session, item = oldest
            reason = f"its evaluations have kept events waiting for {HELD_NS // SECOND_NS} seconds"
            self._suspend(session, item.open, reason, now_ns)

    def _oldest(self) -> tuple[int, _Item] | None:
        while self._ages and not self._ages[0][1].open:
            self._ages.popleft()
        return self._ages[0] if self._ages else None

    def next_wakeup(self) -> int | None:
        oldest = self._oldest()
        return 0 if self._ending else None if oldest is None else oldest[1].since_ns + HELD_NS

    def statistics(self) -> HeldStatistics:
        events = sum(len(queue) for held in self.sessions.values() for queue in held.streams.values())
        return HeldStatistics(len(self.sessions), events, self._bytes, self._missed)

    def check(self) -> None:
        assert self._bytes == sum(held.bytes for held in self.sessions.values()) <= MAX_BYTES
        for held in self.sessions.values():
            assert held.streams
            assert held.bytes == sum(item.size for queue in held.streams.values() for item in queue)
            assert held.bytes <= self._max_bytes
            for queue in held.streams.values():
                assert queue[0].open, "what is decided waits for nothing"
                assert queue[0].asked, "what is first is being evaluated"
                assert all(item.asked.keys() <= item.open.keys() for item in queue)
