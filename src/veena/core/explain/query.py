"""Explain and trace: everybody is asked what they remember of an event and a client, and the answers are combined.

    Explain --> Ask to every broker (`messages.mailbox`, best effort) --> Told, one each --> `verdict` --> Explained

Nobody knows where an event was accepted or where a client has been, so all are asked; a broker that remembers nothing
says so, in some hundred bytes. Each answer also names the units that its sender knows, and so the asker learns, unit by
unit, who there is to be waited for: the question ends when all of these have answered, or at its deadline, and then the
units from which nothing came are named as silent. Who is silent at half the time is asked once more. Where an answer
says that the event had another id first, everybody is asked again for that one as well.

Who may ask is a matter of rights (`may_explain`): an answer shows what others want and got.

The invariant: every question ends once, with one `Explained`, `Traced` or `ExplainRefused`, unless its session ended.

Rejected: asking reliably (a question is worth nothing after its deadline); following the way hop by hop (as many round
trips as hops, and one broker that was restarted would end it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from veena.address import Address, Unit
from veena.core.boundary.explain import Explain, Explained, ExplainInput, ExplainRefused, Reason, Trace, Traced, Verdict
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.explain.path import is_root
from veena.core.explain.verdict import acceptances, all_hops, handed_to, happenings, judge
from veena.core.journal import EventRecord, Records
from veena.core.messages.addresses import broker_id, everybody_id
from veena.core.messages.kinds import Ask, OpenDuty, Told
from veena.core.messages.mailbox import Post
from veena.core.publishing.log import Origin
from veena.core.routing.router import Router
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import EventKey
from veena.core.wire.trace_facts import What
from veena.errors import LocalProtocolError, RefusalCode, VeenaError
from veena.event import MAX_PRIORITY, EventId

#: Questions of one broker's clients at a time: each asks the whole network.
MAX_OPEN = 64
#: Those of one user, over all of its sessions.
MAX_OPEN_OF_USER = 32
MAX_DEADLINE_MS = 60_000
#: Brokers whose answers to one question are kept, and units that are waited for.
MAX_PARTS = 1 << 14
MAX_AWAITED = 1 << 16
#: How often everybody is asked for one question, within its deadline.
MAX_ROUNDS = 4
#: Silent units that are asked once more.
MAX_AGAIN = 64
#: Every broker that an event passed remembers it: those who only passed it on send it when it is small.
SMALL = 4096


@dataclass(slots=True, eq=False)
class _Question:
    given: ExplainInput
    due_ns: int
    again_ns: int | None
    keys: list[EventKey]
    #: How often everybody was asked.
    rounds: int = 0
    parts: dict[Address, Told] = field(default_factory=dict)
    #: Units from which an answer came, and those that others know of and that have not answered.
    answered: dict[Unit, None] = field(default_factory=dict)
    awaited: dict[Unit, None] = field(default_factory=dict)


class Explainer:
    """The questions of one broker's clients, and its answers to those of others."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        records: Records,
        router: Router,
        origin: Origin,
        post: Post,
        effects: list[Effect],
        vertices: Callable[[], Sequence[Unit]],
        lost_since: Callable[[Unit], int | None],
        is_attached: Callable[[int], bool],
        is_ready: Callable[[int], bool],
        user_of: Callable[[int], str],
    ) -> None:
        self._host = host
        self._settings = settings
        self._records = records
        self._router = router
        self._origin = origin
        self._post = post
        self._effects = effects
        self._vertices = vertices
        self._lost_since = lost_since
        self._is_attached = is_attached
        self._is_ready = is_ready
        self._user_of = user_of
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._open: dict[int, _Question] = {}
        self._last = 0
        #: Whether a session may ask; for the runtime's rights.
        self.may_explain: Callable[[int], bool] = lambda session: True
        post.deals_with(Ask, self._on_ask)
        post.deals_with(Told, self._on_told)

    # --- who asks ---

    def ask(self, given: ExplainInput, now_ns: int) -> None:
        try:
            question = self._question(given, now_ns)
        except LocalProtocolError as error:
            self._effects.append(ExplainRefused(given.session, given.number, error.code, str(error)))
            return
        self._send(question, now_ns)

    def _question(self, given: ExplainInput, now_ns: int) -> _Question:
        if not self._is_attached(given.session):
            raise LocalProtocolError(f"session {given.session} is not open")
        if not self.may_explain(given.session):
            reason = "this client may not ask what became of events: give it the right to explain"
            raise LocalProtocolError(reason, code=RefusalCode.DENIED)
        if not self._is_ready(now_ns):  # a broker that has not met its own units cannot say which of them are silent
            reason = "this broker does not know yet who there is to be asked: ask again in a moment, or another broker"
            raise LocalProtocolError(reason, code=RefusalCode.STARTING)
        if not 0 < given.deadline_ms <= MAX_DEADLINE_MS:
            raise LocalProtocolError(f"deadline {given.deadline_ms} ms: use 1 to {MAX_DEADLINE_MS}")
        if len(self._open) >= MAX_OPEN:
            reason = f"{MAX_OPEN} questions wait for answers here already: ask again in a moment"
            raise LocalProtocolError(reason, code=RefusalCode.BUSY)
        user = self._user_of(given.session)
        mine = sum(self._user_of(each.given.session) == user for each in self._open.values())
        if mine >= MAX_OPEN_OF_USER:
            reason = f"{mine} questions of user {user!r} wait for answers here: wait for some of them"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        wait_ns = given.deadline_ms * MILLISECOND_NS
        return _Question(given, now_ns + wait_ns, now_ns + wait_ns // 2, [_key(given.event_id)])

    def _send(self, question: _Question, now_ns: int) -> None:
        """Ask everybody, under a number of its own."""
        self._last += 1
        number = self._last
        question.rounds += 1
        self._open[number] = question
        question.parts.clear()
        question.answered.clear()
        question.awaited = dict.fromkeys(self._vertices())
        ask = self._ask(number, question)
        self._post.send(everybody_id(()), ask, now_ns, reliable=False, priority=MAX_PRIORITY)
        self._look(now_ns)
        self._told(number, self.answer(ask.keys, ask.client, number), self._host, now_ns)

    def _ask(self, number: int, question: _Question) -> Ask:
        given = question.given
        return Ask(number, tuple(question.keys), given.client_id if isinstance(given, Explain) else "")

    def _on_told(self, message: Told, origin: Address, now_ns: int) -> None:
        if origin != self._host:
            self._told(message.number, message, origin, now_ns)

    def _told(self, number: int, message: Told, origin: Address, now_ns: int) -> None:
        question = self._open.get(number)
        if question is None:
            return
        for size in range(1, len(origin) + 1):
            question.answered[origin[:size]] = None
            question.awaited.pop(origin[:size], None)
        for unit in message.known:
            if unit not in question.answered and len(question.awaited) < MAX_AWAITED:
                question.awaited[unit] = None
        if len(question.parts) < MAX_PARTS:
            question.parts[origin] = message
        if message.first is not None and message.first not in question.keys and question.rounds < MAX_ROUNDS:
            del self._open[number]
            question.keys.append(message.first)
            self._send(question, now_ns)
        elif not question.awaited:
            self._finish(number, now_ns)

    def _finish(self, number: int, now_ns: int) -> None:
        question = self._open.pop(number)
        given = question.given
        if not self._is_attached(given.session):
            return
        silent = tuple(question.awaited)
        parts = {at: question.parts[at] for at in sorted(question.parts)}
        if isinstance(given, Trace):
            first = next(iter(acceptances(parts, self._frame(parts))), None)
            origin, at_ns = ((), 0) if first is None else (first.origin, first.at_ns)
            hops, handed = tuple(all_hops(parts)), tuple(handed_to(parts))
            happened, heard, frame = tuple(happenings(parts)), _heard(parts), self._frame(parts)
            self._effects.append(
                Traced(given.session, given.number, origin, at_ns, hops, handed, silent, happened, heard, frame)
            )
        else:
            verdict = self.combine(parts, given.client_id, silent, now_ns)
            if verdict.reason is Reason.UNKNOWN and verdict.broker and not silent and question.rounds < MAX_ROUNDS:
                self._send(question, now_ns)  # it was under way while one after the other was asked
                return
            heard, frame = _heard(parts), self._frame(parts)
            self._effects.append(Explained(given.session, given.number, verdict, silent, heard, frame))

    def combine(self, parts: Mapping[Address, Told], client: str, silent: tuple[Unit, ...], now_ns: int) -> Verdict:
        """What follows from these answers."""
        return judge(parts, self._frame(parts), client, silent, now_ns)

    def read(self, data: bytes) -> EventFrame:
        """An event as it is remembered, without its body."""
        return self._codec.read(data)

    def _frame(self, parts: Mapping[Address, Told]) -> EventFrame | None:
        """The event; of several frames that of where it was accepted, which has its whole time to live."""
        found: EventFrame | None = None
        for told in parts.values():
            if told.frame and (found is None or any(fact.what is What.ACCEPTED for fact in told.facts)):
                try:
                    found = self._codec.read(told.frame)
                except VeenaError:
                    continue
        return found

    # --- who is asked ---

    def _on_ask(self, message: Ask, origin: Address, now_ns: int) -> None:
        if origin != self._host:
            self._look(now_ns)
            told = self.answer(message.keys, message.client, message.number)
            self._post.send(broker_id(origin), told, now_ns, reliable=False, priority=MAX_PRIORITY)

    def _look(self, now_ns: int) -> None:
        """An event and the question about it may come in one read: what was handed out in it is noted at its end."""
        if self._records.is_on:
            self._records.look(self._effects, now_ns)

    def answer(self, keys: tuple[EventKey, ...], client: str, number: int = 0) -> Told:
        """What this broker remembers of an event and of a client, and what of the event is still to be done here."""
        records = self._records
        record = next((found for found in map(records.find, keys) if found is not None), None)
        level, known = self._settings.records, tuple(self._vertices())
        stays = records.stays(client) if client else ()
        told = Told(number, level, records.since_ns, tuple(records.gaps), known, stays)
        if record is None:
            return told
        most = self._settings.max_frame // 2 if any(map(is_root, record.facts)) else SMALL
        frame = record.frame if len(record.frame) <= most else b""
        connections = dict.fromkeys(fact.connection for fact in record.facts if fact.what is What.SENT)
        closed = tuple(each for each in connections if not self._router.is_connected(each))
        facts, duties = tuple(record.facts), (*self._duties(record.keys), *self._parked(record))
        return Told(
            number, level, records.since_ns, told.gaps, known, stays, frame, record.first, facts, duties, closed
        )

    def _duties(self, keys: Sequence[EventKey]) -> list[OpenDuty]:
        """What of the event is still to be sent, and why it has not been."""
        found: list[OpenDuty] = []
        for key in keys:
            for unit, peer, since_ns, is_held in self._router.open_units(key):
                if unit == self._host:
                    found.append(OpenDuty(unit, "here", (), since_ns))
                elif peer is not None:
                    found.append(OpenDuty(unit, "refused" if is_held else "neighbour", peer, since_ns))
                else:
                    found.append(OpenDuty(unit, "route", (), self._lost_since(unit) or since_ns))
        return found

    def _parked(self, record: EventRecord) -> list[OpenDuty]:
        """The units for which it still lies in the log."""
        lane = self._codec.read(record.frame).lane_number
        found: dict[Unit, OpenDuty] = {}
        for fact in record.facts:
            for unit in fact.units if fact.what in (What.ACCEPTED, What.LOGGED) else ():
                bit = self._router.bit(unit)
                if self._origin.is_parked(bit, lane, fact.offset):
                    has_way = self._router.has_hop(bit)
                    since_ns = fact.at_ns if has_way else self._lost_since(unit) or fact.at_ns
                    found[unit] = OpenDuty(unit, "window" if has_way else "route", (), since_ns)
        return list(found.values())

    # --- time ---

    def tick(self, now_ns: int) -> None:
        for number, question in list(self._open.items()):
            if now_ns >= question.due_ns:
                self._finish(number, now_ns)
            elif question.again_ns is not None and now_ns >= question.again_ns:
                question.again_ns = None
                ask = self._ask(number, question)
                for unit in list(question.awaited)[:MAX_AGAIN]:
                    self._post.send(everybody_id(unit), ask, now_ns, reliable=False, priority=MAX_PRIORITY)

    def next_wakeup(self) -> int | None:
        return min((each.again_ns or each.due_ns for each in self._open.values()), default=None)

    def check(self) -> None:
        assert len(self._open) <= MAX_OPEN


def _heard(parts: Mapping[Address, Told]) -> tuple[tuple[str, int], ...]:
    counts = {level: sum(told.records == level for told in parts.values()) for level in ("off", "deliveries", "all")}
    return tuple((level, count) for level, count in counts.items() if count)


def _key(event_id: EventId) -> EventKey:
    return (event_id.publisher.encode(), *event_id[1:])
