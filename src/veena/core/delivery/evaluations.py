"""Constraints that are evaluated outside of this broker's loop: who may have how much of it, and whose turn it is.

    ask(user, constraint, document) --> the user's queue --> Evaluate(ticket) --> Evaluated(ticket) --> whoever asked

Users take turns, one evaluation each, and few are under way at once: so the queue is here, where it is bounded by what
waits for an answer (`held_streams`, `durable.redelivery`), and a worker that is ended loses next to nothing. What
several subscriptions ask of one document is evaluated once, also where they are of several users: it waits in the queue
of each of them, and whose turn comes first pays. So nobody waits for the turn, or the budget, of another.

Each user has a *budget* of work: `WORK_S` more every second, up to `BURST`. Who has spent more than that waits until it
is paid back; other users go on. An evaluation whose worker was ended is begun again, `MAX_TRIES` times in all;
then it counts as too much.

The invariant: every question is answered once, however often its worker fails. Work is counted, not time; the only
clock is that of the budgets.

Rejected: a limit in seconds (a verdict that depends on the load of a machine is none); a queue by subscription (a user
has thousands of them).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import SECOND_NS
from veena.core.interest.constraint import Want
from veena.matching.base.verdict import Verdict
from veena.matching.base.work import OUTSIDE_WORK

#: Given to a worker at once: one that it works on, and the next.
MAX_RUNNING = 2
#: A user's budget: a tenth to a third of one processor, and four of the largest evaluations in a row.
WORK_S = 10_000_000
BURST = 4 * OUTSIDE_WORK
#: How often an evaluation is begun before it counts as too much.
MAX_TRIES = 3
#: Questions of one user that may wait before these are looked through.
SWEEP = 64
#: Users whose budgets are remembered though they are whole again.
MAX_ACCOUNTS = 1024

#: Called with the verdict and the time; and whether somebody still waits for that.
Then = Callable[[Verdict, int], None]
IsLive = Callable[[], bool]
_Key = tuple[int, bytes, str | bytes]


@dataclass(slots=True, eq=False)
class _Question:
    key: _Key
    want: Want
    #: Who waits for the verdict, by user.
    waiting: dict[str, list[tuple[Then, IsLive]]] = field(default_factory=dict)
    #: At whose expense it is evaluated; "" while it waits in the queues of all those users.
    payer: str = ""
    tries: int = 0

    def is_live_for(self, user: str) -> bool:
        return any(is_live() for _, is_live in self.waiting[user])


@dataclass(slots=True)
class _Account:
    """A user's budget, as it was at a time, and what it asks for."""

    budget: int
    at_ns: int
    queue: deque[_Question] = field(default_factory=deque)
    #: When the queue is so long, it is looked through for what nobody waits for any more.
    sweep: int = SWEEP

    def refill(self, now_ns: int) -> None:
        earned = max(0, now_ns - self.at_ns) * WORK_S // SECOND_NS
        if earned:
            self.budget, self.at_ns = min(BURST, self.budget + earned), max(now_ns, self.at_ns)

    @property
    def ready_ns(self) -> int:
        """When something of it can be spent again."""
        return self.at_ns if self.budget > 0 else self.at_ns + (1 - self.budget) * SECOND_NS // WORK_S + 1


@dataclass(frozen=True, slots=True)
class EvaluationStatistics:
    #: Since the start: evaluated, of these too much, and begun anew because a worker failed.
    made: int = 0
    too_much: int = 0
    failed: int = 0
    #: Now: asked and not answered, and the users that have spent their budgets.
    waiting: int = 0
    spent_users: int = 0
    #: Since the start: work that was spent, and subscriptions that were suspended for it.
    work: int = 0
    suspended: int = 0


class Evaluations:
    """One a broker."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._ticket = 0
        self._accounts: dict[str, _Account] = {}
        #: Users that ask for something, whose turn is next first.
        self._turns: dict[str, None] = {}
        self._open: dict[_Key, _Question] = {}
        self._running: dict[int, _Question] = {}
        self._wake_ns: int | None = None
        self._made = self._too_much = self._failed = self._work = 0
        #: Subscriptions that were suspended; whoever suspends one counts it.
        self.suspended = 0

    def ask(self, user: str, want: Want, document: str | bytes, then: Then, is_live: IsLive, now_ns: int) -> None:
        """Evaluate a want on a document at the expense of a user; `then` is called with the verdict, later, unless
        nobody waits for it any more."""
        key = (want.base, want.payload, document)
        question = self._open.get(key)
        if question is None:
            question = self._open[key] = _Question(key, want)
        is_new = user not in question.waiting
        question.waiting.setdefault(user, []).append((then, is_live))
        if not is_new or question.payer:
            return
        account = self._account(user, now_ns)
        account.queue.append(question)
        self._turns.setdefault(user)
        if len(account.queue) > account.sweep:
            self.drop_dead(user)
            account.sweep = max(SWEEP, 2 * len(account.queue))
        self._start(now_ns)

    def _account(self, user: str, now_ns: int) -> _Account:
        account = self._accounts.get(user)
        if account is None:
            self._forget_idle(now_ns)
            account = self._accounts[user] = _Account(BURST, now_ns)
        return account

    def on_evaluated(self, given: Evaluated, now_ns: int) -> None:
        """A worker has answered, or has failed."""
        question = self._running.pop(given.ticket, None)
        if question is None:
            return
        verdict = given.verdict
        account = self._accounts[question.payer]
        account.refill(now_ns)
        spent = OUTSIDE_WORK if verdict is Verdict.FAILED else min(given.work, OUTSIDE_WORK)
        account.budget -= spent
        self._work += spent
        if verdict is Verdict.FAILED:
            self._failed += 1
            question.tries += 1
            if question.tries < MAX_TRIES:
                self._wait_again(question, now_ns)
                self._start(now_ns)
                return
            verdict = Verdict.TOO_MUCH
        self._made += 1
        self._too_much += verdict is Verdict.TOO_MUCH
        del self._open[question.key]
        self._start(now_ns)
        for then, is_live in [each for found in question.waiting.values() for each in found]:
            if is_live():
                then(verdict, now_ns)

    def _wait_again(self, question: _Question, now_ns: int) -> None:
        """Its worker has failed: it comes first in the queues of all who wait for it."""
        question.payer = ""
        for user in question.waiting:
            self._account(user, now_ns).queue.appendleft(question)
            self._turns.setdefault(user)

    def _begin(self, question: _Question, payer: str) -> None:
        """It waits no more, in any queue."""
        question.payer = payer
        for user in question.waiting:
            queue = self._accounts[user].queue
            queue.remove(question)
            if not queue:
                del self._turns[user]

    def waiting(self, user: str) -> int:
        """Questions of a user whose turn has not come yet."""
        account = self._accounts.get(user)
        return 0 if account is None else len(account.queue)

    def drop_dead(self, user: str) -> None:
        """Forget what a user asked for and nobody waits for any more."""
        account = self._accounts.get(user)
        if account is None or not account.queue:
            return
        kept: deque[_Question] = deque()
        for question in account.queue:
            if question.is_live_for(user):
                kept.append(question)
                continue
            del question.waiting[user]
            if not question.waiting:
                del self._open[question.key]
        account.queue = kept
        if not kept:
            del self._turns[user]

    def _start(self, now_ns: int) -> None:
        """Give out what there is room for."""
        self._wake_ns = None
        for user in list(self._turns) if len(self._running) < MAX_RUNNING else ():
            if user not in self._turns:
                continue  # all that it waited for has begun in the turns of others
            account = self._accounts[user]
            account.refill(now_ns)
            if account.budget <= 0:
                ready_ns = account.ready_ns
                self._wake_ns = ready_ns if self._wake_ns is None else min(self._wake_ns, ready_ns)
                continue
            question = account.queue[0]
            self._begin(question, user)
            if user in self._turns:  # there is more: behind the others
                del self._turns[user]
                self._turns[user] = None
            self._ticket += 1
            self._running[self._ticket] = question
            want = question.want
            self._effects.append(Evaluate(self._ticket, want.engine, want.constraint, question.key[2], OUTSIDE_WORK))
            if len(self._running) >= MAX_RUNNING:
                return

    def _forget_idle(self, now_ns: int) -> None:
        if len(self._accounts) < MAX_ACCOUNTS:
            return
        running = {question.payer for question in self._running.values()}
        for user, account in list(self._accounts.items()):
            account.refill(now_ns)
            if account.budget >= BURST and not account.queue and user not in running:
                del self._accounts[user]

    def tick(self, now_ns: int) -> None:
        if self._wake_ns is not None and now_ns >= self._wake_ns:
            self._start(now_ns)

    def next_wakeup(self) -> int | None:
        return self._wake_ns

    def statistics(self) -> EvaluationStatistics:
        spent = sum(account.budget <= 0 for account in self._accounts.values())
        return EvaluationStatistics(
            self._made, self._too_much, self._failed, len(self._open), spent, self._work, self.suspended
        )

    def check(self) -> None:
        queued = [question for account in self._accounts.values() for question in account.queue]
        assert len(self._running) <= MAX_RUNNING
        assert len(set(queued)) + len(self._running) == len(self._open)
        assert {user for question in queued for user in question.waiting} == self._turns.keys()
        assert not any(question.payer for question in queued) and all(each.payer for each in self._running.values())
        assert all(question.waiting for question in self._open.values())
