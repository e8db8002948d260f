"""Handing kept events to those who read a durable subscription, and what they acknowledge (`cursor`, `registry`).

A reader that has had everything is handed a new event at once; one that is behind is read to from the log, as long as
it has room. Everybody who reads a subscription gets every event: they are devices of one client. A group that shares
one (`groups`) reads it as one reader, a session of the broker's own (`session_id`).

What may have been handed over before is marked as redelivered: what was open here, and what an application that
acknowledges by itself may have got elsewhere. Where its former home is silent, only the client's word tells: not later
than the last place it had in the stream, or first published under an earlier incarnation than the publisher's last
that it had (a repetition may have gone before its original), and not among what it acknowledged. What was overtaken
there looks the same and is marked too; to ask the former home first would let a dead broker hold up its clients.

Whether a reader was given the clearance that an event asks for is tested here, whatever way the event came: by itself,
out of the past or from a former home. What its owner may not have the subscription passes over. Rights by topic are
tested by whoever speaks with clients, who says what was denied (`deny`).

Where nobody has evaluated yet whether a subscription wants a kept event (`DOUBTFUL`), that is done when its turn comes:
here where the loop can afford it, else outside (`delivery.evaluations`), and the reader waits. The mark lies in the log
and goes along when a subscription moves, so a crash or a move repeats the question and loses nothing. A subscription
that costs too much *rests*: its cursor stays, until somebody subscribes to it again, perhaps to something cheaper.

The invariant: an event is handed to a reader after every earlier one of the same inbox that he was to get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from veena.core.boundary.inputs_effects import Deliver, Effect
from veena.core.boundary.session_id import is_brokers
from veena.core.boundary.settings import MILLISECOND_NS, READ_BATCH, SECOND_NS
from veena.core.boundary.stored import Entry, Reached
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.delivery.evaluations import Evaluations
from veena.core.delivery.held_streams import HeldStreams
from veena.core.delivery.session_queue import Outlet
from veena.core.durable.cursor import Inbox, Reader
from veena.core.durable.subscription import Durable, DurableObserver, State
from veena.core.interest.constraint import make_want
from veena.core.interest.service import Profiles
from veena.core.wire.event import LATE, NO_TTL, REDELIVERED, EventFrame
from veena.core.wire.event_id import EventKey, Place, Stream, event_key, first_key, ids_of
from veena.core.wire.trace_facts import UNSATISFIED, What
from veena.matching.base.verdict import Verdict

#: Why a subscription passes over an event by itself.
UNCLEARED = "the client was not given the clearance that the event asks for, or its device cannot use it"
#: What reading a character of a document costs, in units of `matching.base.work`.
PARSING_WORK = 1
#: Readers of one user whose questions are open at once, each with a document; others are read to again when one of
#: these was answered.
MAX_ASKED = 16
#: How often cursors are written: what a crash makes this broker hand over again, with a mark.
REACHED_NS = SECOND_NS


class Handing:
    """The readers' side of one broker's durable subscriptions."""

    def __init__(
        self,
        ledger: Ledger,
        log: LogReader,
        effects: list[Effect],
        outlet: Outlet,
        held: HeldStreams,
        evaluations: Evaluations,
        profiles: Profiles,
        observers: list[DurableObserver],
        on_emptied: Callable[[Durable, Inbox], None],
        settle: Callable[[Durable], None],
        rest: Callable[[Durable, str, int], None],
    ) -> None:
        self._ledger = ledger
        self._log = log
        self._effects = effects
        self._outlet = outlet
        self._held = held
        self._evaluations = evaluations
        self._clients = profiles.clients
        self._meter = profiles.meter
        self._records = profiles.records
        self._observers = observers
        #: Called when an inbox is read to its end and will be used no more.
        self._on_emptied = on_emptied
        #: Called when more of a subscription was read (`charges`).
        self._settle = settle
        #: Called when evaluating a subscription costs too much.
        self._rest = rest
        #: By user, readers that wait until fewer questions are open, each for as long as its token counts.
        self._later: dict[str, dict[object, tuple[Durable, Reader]]] = {}
        self._dirty: dict[int, Durable] = {}
        self._write_at_ns: int | None = None
        #: Subscriptions that wait for their past and were read to since this was looked at last.
        self._passing: dict[int, Durable] = {}
        #: Those that are acknowledged include what was passed over because its owner may not have it.
        self.handed = self.redelivered = self.acknowledged = self.expired = self.denied = 0

    # --- new events ---

    def added(
        self, durable: Durable, inbox: Inbox, before: int, offset: int, frame: EventFrame, now_ns: int
    ) -> list[Reader]:
        """A new entry, not on disk yet; `before` is where the inbox ended. Who is handed it at once."""
        found: list[Reader] = []
        for reader in durable.readers.values():
            if reader.inbox == inbox.number and reader.next >= before and self._is_free(durable, reader, offset):
                reader.next = offset + 1
                handed = self._hand(durable, inbox, reader, offset, frame, now_ns, is_new=True)
                if handed is frame:
                    found.append(reader)
                elif handed is not None:
                    self.deliver(reader, handed, now_ns)
                if reader.question is not None or durable.rests:
                    reader.next = offset
        return found

    def deliver(self, reader: Reader, frame: EventFrame, now_ns: int) -> None:
        if is_brokers(reader.session):
            for each in self._observers:
                each.on_group_event(reader.session, frame, now_ns)
        else:
            self._effects.append(Deliver(frame, ((reader.session, (reader.subscription,)),)))

    def _is_free(self, durable: Durable, reader: Reader, offset: int) -> bool:
        inbox = durable.inbox(reader.inbox)
        return (
            durable.is_here
            and not reader.is_reading
            and not (durable.state is State.ARRIVING and inbox is durable.live)
            and (inbox.has_room or offset < inbox.front)
            and reader.question is None
            and not durable.rests
            and not self._outlet.is_clogged(reader.session)
            and not self._held.is_held(reader.session)
        )

    def _hand(
        self,
        durable: Durable,
        inbox: Inbox,
        reader: Reader,
        offset: int,
        frame: EventFrame,
        now_ns: int,
        *,
        is_new: bool = False,
    ) -> EventFrame | None:
        """Hand an entry to a reader unless it has been had; the frame to hand over.

        One that nobody has evaluated yet may have to wait for that: then the reader has a question, or the subscription
        rests, and this entry is read again afterwards.
        """
        if inbox.is_acknowledged(offset):
            return None
        key = event_key(frame)
        if self._was_had(durable, inbox, reader, frame):
            # Its client says that it has had it; the record of that may have gone with a former life.
            if self._records.is_on and not reader.skips.isdisjoint(ids_of(frame)):
                self._records.note(frame, What.HAD, now_ns, session=reader.session)
            self._pass_over(durable, inbox, offset, key)
            return None
        if not is_brokers(reader.session) and not self._may_have(durable, reader.session, frame):
            self.denied += 1
            if self._records.is_on:
                self._records.note(frame, What.DENIED, now_ns, session=reader.session, text=UNCLEARED)
            self._pass_over(durable, inbox, offset, key)
            return None
        if frame.doubtful:
            verdict = self._judge(durable, reader, offset, frame, now_ns)
            if verdict is Verdict.FALSE:
                if self._records.is_on:
                    self._records.note(frame, What.DROPPED, now_ns, session=durable.session, text=UNSATISFIED)
                self._pass_over(durable, inbox, offset, key)
            elif verdict is Verdict.TOO_MUCH:
                self._evaluations.suspended += 1
                self._rest(durable, "evaluating it on its next event takes more work than is spent on any", now_ns)
            if verdict is not Verdict.TRUE:
                return None
            frame = frame.doubtful_copy(is_doubtful=False)
        self.handed += 1
        if durable.is_passing:  # nobody acknowledges what goes with its session
            inbox.pass_over(offset)
            return frame if reader.follows(ids_of(frame)) else frame.late_copy()
        ids = ids_of(frame)
        again = (inbox.hand(offset, key) and not is_new) or reader.may_have_got(ids)
        is_late = reader.is_past(frame.late, *ids[0]) or _is_overtaken(durable, inbox, *ids[0])
        if again or is_late is not frame.late:
            self.redelivered += again
            frame = frame.copy(frame.to_serve, frame.served, frame.ttl_ms)
            frame.flags |= (REDELIVERED if again else 0) | (LATE if is_late else 0)
        return frame

    def _judge(self, durable: Durable, reader: Reader, offset: int, frame: EventFrame, now_ns: int) -> Verdict | None:
        """Whether a subscription wants an event about which there is doubt; None where that is evaluated now."""
        known, reader.verdict = reader.verdict, None
        if known is not None and known[0] == offset:
            return known[1]
        document = frame.section.xml
        if document is None:
            return Verdict.FALSE
        meter = self._meter
        meter.event()
        if meter.affords(len(document) * PARSING_WORK):
            matched, undecided = durable.alone().match_within(frame.event(), meter)
            if not undecided:
                return Verdict.TRUE if matched else Verdict.FALSE
        self._ask(durable, reader, offset, document, now_ns)
        return None

    def _ask(self, durable: Durable, reader: Reader, offset: int, document: str | bytes, now_ns: int) -> None:
        """Have it evaluated outside of the loop whether a subscription wants the event at an offset."""
        question = reader.question = object()
        if self._evaluations.waiting(durable.owner) >= MAX_ASKED:
            self._later.setdefault(durable.owner, {})[question] = (durable, reader)
            return

        def then(verdict: Verdict, then_ns: int) -> None:
            reader.question, reader.verdict = None, (offset, verdict)
            self.pump(durable)

        want = make_want(durable.engine, durable.constraint, durable.scope)
        self._evaluations.ask(durable.owner, want, document, then, lambda: reader.question is question, now_ns)

    def go_on(self) -> None:
        """Fewer evaluations are waited for: read on for some of those who wait for that."""
        for user, later in list(self._later.items()) if self._later else ():
            for question in list(later)[: max(0, MAX_ASKED - self._evaluations.waiting(user))]:
                durable, reader = later.pop(question)
                if reader.question is question:
                    reader.question = None
                    self.pump(durable)
            if not later:
                del self._later[user]

    def _may_have(self, durable: Durable, session: int, frame: EventFrame) -> bool:
        """Whether a session was given the clearance for an event. What waits for its past is judged by its device too,
        as it will be when it is an ordinary subscription; a subscription that is kept is the same on every device."""
        return self._clients.suits(session, frame) if durable.is_passing else self._clients.is_cleared(session, frame)

    def _was_had(self, durable: Durable, inbox: Inbox, reader: Reader, frame: EventFrame) -> bool:
        """Whether an event comes, or came, by an older inbox, or the client said that it has had it."""
        ids = ids_of(frame)
        if not reader.skips.isdisjoint(ids):
            return True
        if inbox is not durable.live:
            return False
        if first_key(frame) in durable.moved_keys:
            return True
        return not frame.late and durable.is_below_floor(frame)

    def _pass_over(self, durable: Durable, inbox: Inbox, offset: int, key: EventKey) -> None:
        if not inbox.acknowledge(key):
            inbox.pass_over(offset)
        self._dirty[durable.number] = durable
        self._tell_settled(durable, key)

    def _tell_settled(self, durable: Durable, key: EventKey) -> None:
        for each in self._observers:
            each.on_settled(durable, key)

    # --- acknowledgements ---

    def acknowledge(self, durable: Durable, keys: Iterable[EventKey], now_ns: int) -> None:
        """Somebody has these for good."""
        for key in keys:
            if any(inbox.acknowledge(key) for inbox in durable.inboxes):
                self.acknowledged += 1
                self._tell_settled(durable, key)
        self._dirty[durable.number] = durable
        if self._write_at_ns is None:
            self._write_at_ns = now_ns + REACHED_NS
        self.pump(durable)

    def deny(self, durable: Durable, key: EventKey, now_ns: int) -> None:
        """Its owner was not given this, because it may not read it: the subscription passes over it."""
        self.denied += 1
        self.acknowledge(durable, (key,), now_ns)

    # --- the log ---

    def pump(self, durable: Durable) -> None:
        """Read on for those who are behind."""
        for reader in durable.readers.values():
            inbox = durable.inbox(reader.inbox)
            while inbox.is_closed and reader.next >= inbox.end and inbox is not durable.live:
                inbox = durable.inboxes[durable.inboxes.index(inbox) + 1]
                reader.inbox, reader.next = inbox.number, inbox.cursor
            if reader.next < inbox.stored and self._is_free(durable, reader, reader.next):
                reader.is_reading = True
                self._read(durable, reader, inbox)
        if durable.is_passing:
            self._passing[durable.number] = durable
        else:
            self._settle(durable)
        while len(durable.inboxes) > 1 and durable.is_here and _is_empty(durable, durable.inboxes[0]):
            self._on_emptied(durable, durable.inboxes.pop(0))

    def take_passing(self) -> list[Durable]:
        """The subscriptions that wait for their past and were read to since this was asked last."""
        passing, self._passing = list(self._passing.values()), {}
        return passing

    def _read(self, durable: Durable, reader: Reader, inbox: Inbox) -> None:
        until = inbox.stored

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            reader.is_reading = False
            if durable.readers.get((reader.session, reader.subscription)) is not reader:
                return
            for entry in entries:
                if not self._is_free(durable, reader, entry.offset):
                    return
                reader.next = entry.offset + 1
                frame = self.mortal(durable, inbox, entry, now_ns)
                handed = None if frame is None else self._hand(durable, inbox, reader, entry.offset, frame, now_ns)
                if handed is not None:
                    self.deliver(reader, handed, now_ns)
                if reader.question is not None or durable.rests:
                    reader.next = entry.offset
                    return
            if len(entries) < READ_BATCH:
                reader.next = max(reader.next, until)
                inbox.front = max(inbox.front, until)
            self.pump(durable)

        self._log.read(reader.next, READ_BATCH, found, inbox=inbox.number)

    def mortal(self, durable: Durable, inbox: Inbox, entry: Entry, now_ns: int) -> EventFrame | None:
        """The event with what is left of its time to live; None when that is over."""
        frame = entry.frame
        if frame.ttl_ms == NO_TTL:
            return frame
        left_ms = frame.ttl_ms - (now_ns - entry.accepted_ns) // MILLISECOND_NS
        if left_ms > 0:
            return frame.copy(frame.to_serve, frame.served, left_ms)
        if not inbox.is_acknowledged(entry.offset):
            self.expired += 1
            if durable.is_passing:
                durable.was_not_handed(first_key(frame))
            self._pass_over(durable, inbox, entry.offset, event_key(frame))
        return None

    # --- time ---

    def tick(self, now_ns: int) -> None:
        if self._write_at_ns is not None and now_ns >= self._write_at_ns:
            self._write_at_ns = None
            for durable in self._dirty.values():
                for inbox in () if durable.is_passing else durable.inboxes:
                    self._ledger.write(Reached(inbox.number, inbox.cursor))
            self._dirty.clear()

    def forget(self, durable: Durable) -> None:
        self._dirty.pop(durable.number, None)

    def next_wakeup(self) -> int | None:
        return self._write_at_ns


def _is_overtaken(durable: Durable, inbox: Inbox, stream: Stream, place: Place) -> bool:
    """Whether a later event of its stream came from the former home, which did not say that it had everything before
    it: what came here by itself is then handed over behind that."""
    return inbox is durable.live and place <= durable.moved_last.get(stream, (-1, -1))


def _is_empty(durable: Durable, inbox: Inbox) -> bool:
    is_read = all(reader.inbox != inbox.number for reader in durable.readers.values())
    return inbox.is_closed and inbox.cursor >= inbox.end and is_read
