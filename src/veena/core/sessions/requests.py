"""Requests and their answers, with deadlines.

A request is an event like any other; whoever gets it may answer. Where answers go is a place (`messages.addresses`):
the asker's broker and a mark of 64 random bits that this broker gave the session when it attached. So an answer needs
no interest and finds its way by the address alone, and nobody writes to a client who was not asked by it.

A request that nobody wants is told to its asker at once instead of after the deadline: the broker sees it where it
computes the destinations. It may be wrong in one direction only: with units that have not spoken yet, or by a digest,
somebody may seem to want it, and then the deadline decides.

The invariant: every request ends once, with its last answer or with one `Unanswered`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from veena.address import Address
from veena.core.boundary.clients import Request, Unanswered
from veena.core.boundary.inputs_effects import Deliver, Effect, Publish
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.boundary.user_shares import Tally, UserTable
from veena.core.messages.addresses import MARK, reply_id
from veena.core.wire.event import EventFrame
from veena.errors import InvalidEvent, LocalProtocolError, RefusalCode
from veena.event import Event

#: Requests that wait for answers: of one session, of one user over all of its sessions, and of all.
MAX_PENDING = 4096
MAX_PENDING_OF_USER = 4 * MAX_PENDING
MAX_PENDING_OF_BROKER = 64 * MAX_PENDING
#: Deadlines of requests that were answered already are taken out when there are so many more of them.
MAX_ANSWERED = 1024
MAX_ANSWERS = 1 << 16
MAX_DEADLINE_MS = 3_600_000
REPLY_TO = "reply-to"
CORRELATION = "correlation"


@dataclass(slots=True)
class _Pending:
    due_ns: int
    waited_for: int
    deadline_ms: int
    answers: int = 0


class Requests:
    """The requests of one broker's clients."""

    def __init__(
        self,
        host: Address,
        effects: list[Effect],
        chance: Callable[[int], int],
        publish: Callable[[Publish, int], RefusalCode | None],
        is_wanted: Callable[[Event, int], bool],
        users: UserTable,
    ) -> None:
        self._host = host
        self._effects = effects
        self._chance = chance
        self._publish = publish
        self._is_wanted = is_wanted
        self._marks: dict[int, str] = {}
        self._sessions: dict[str, int] = {}
        self._users = users
        self._pending: dict[int, dict[int, _Pending]] = {}
        #: How many wait; and the user of each session that ever asked.
        self._of_user = Tally(MAX_PENDING_OF_BROKER, MAX_PENDING_OF_USER)
        self._askers: dict[int, str] = {}
        #: (deadline, session, number) of all that wait, the first one first; and of some that were answered.
        self._due: list[tuple[int, int, int]] = []
        #: Answers that came for nobody, or too late.
        self.stray = 0

    @property
    def pending(self) -> int:
        """How many wait for answers."""
        return self._of_user.count

    def attach(self, session: int) -> str:
        """Where answers to this session go."""
        mark = f"{self._chance(64):016x}"
        self._marks[session], self._sessions[mark] = mark, session
        return reply_id(self._host, mark)

    def detach(self, session: int) -> None:
        mark = self._marks.pop(session, None)
        if mark is not None:
            del self._sessions[mark]
        self._ended(session, len(self._pending.pop(session, ())))
        self._askers.pop(session, None)

    def request(self, given: Request, now_ns: int) -> None:
        mark = self._marks.get(given.session)
        if mark is None:
            raise LocalProtocolError(f"session {given.session} is not open")
        if not 0 < given.deadline_ms <= MAX_DEADLINE_MS or not 0 < given.answers <= MAX_ANSWERS:
            raise LocalProtocolError(
                f"request {given.number}: a deadline of {given.deadline_ms} ms and {given.answers} answers; expected 1"
                f" to {MAX_DEADLINE_MS} and 1 to {MAX_ANSWERS}"
            )
        pending = self._pending.setdefault(given.session, {})
        user = self._askers.setdefault(given.session, self._users.of(given.session, ""))
        if given.number in pending:
            raise LocalProtocolError(f"request {given.number}: the number is in use", code=RefusalCode.INVALID)
        if len(pending) >= MAX_PENDING:
            reason = f"request {given.number}: {MAX_PENDING} of this session wait for answers already; wait for some"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        self._of_user.admit(user, f"request {given.number}")
        try:
            event = given.frame.event()
        except InvalidEvent as error:
            raise LocalProtocolError(str(error)) from None
        if event.headers.get(REPLY_TO) != reply_id(self._host, mark) or event.headers.get(CORRELATION) != given.number:
            raise LocalProtocolError(
                f"request {given.number}: its headers must hold {REPLY_TO!r} as it was given, and {CORRELATION!r}"
            )
        if not self._is_wanted(event, now_ns):
            why = RefusalCode.UNWANTED
            self._effects.append(Unanswered(given.session, given.number, 0, why, "nobody wants it"))
            return
        refused = self._publish(Publish(given.session, given.frame), now_ns)
        if refused is not None:
            self._effects.append(Unanswered(given.session, given.number, 0, refused, "it was refused"))
            return
        due_ns = now_ns + given.deadline_ms * MILLISECOND_NS
        pending[given.number] = _Pending(due_ns, given.answers, given.deadline_ms)
        self._of_user.add(user)
        heappush(self._due, (due_ns, given.session, given.number))

    def arrived(self, who: str, frame: EventFrame) -> None:
        """An answer; `who` is its place's conversation."""
        session = self._sessions.get(who.removeprefix(MARK))
        number = frame.section.headers.get(CORRELATION)
        found = self._pending.get(session, {}) if session is not None else {}
        pending = found.get(number) if isinstance(number, int) else None
        if session is None or pending is None:
            self.stray += 1
            return
        assert isinstance(number, int)
        pending.answers += 1
        if pending.answers >= pending.waited_for:
            del found[number]
            self._ended(session, 1)
        self._effects.append(Deliver(frame, ((session, ()),)))

    def _ended(self, session: int, count: int) -> None:
        """So many requests of a session wait no more."""
        if not count:
            return
        self._of_user.add(self._askers[session], -count)
        if len(self._due) > 2 * self._of_user.count + MAX_ANSWERED:
            self._due = [each for each in self._due if self._waits(*each)]
            heapify(self._due)

    def _waits(self, due_ns: int, session: int, number: int) -> bool:
        """Whether a request waits for answers until then."""
        pending = self._pending.get(session, {}).get(number)
        return pending is not None and pending.due_ns == due_ns

    def tick(self, now_ns: int) -> None:
        over: list[tuple[int, int]] = []
        while self._due and self._due[0][0] <= now_ns:
            due_ns, session, number = heappop(self._due)
            if self._waits(due_ns, session, number):
                over.append((session, number))
        for session, number in sorted(over):
            pending = self._pending[session].pop(number)
            self._ended(session, 1)
            reason = f"{pending.answers} of {pending.waited_for} answers within {pending.deadline_ms} ms"
            self._effects.append(Unanswered(session, number, pending.answers, RefusalCode.EXPIRED, reason))

    def next_wakeup(self) -> int | None:
        while self._due and not self._waits(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def check(self) -> None:
        assert len(self._marks) == len(self._sessions)
        assert self._pending.keys() <= self._marks.keys()
        assert self._of_user.count == sum(map(len, self._pending.values())) <= len(self._due)
