"""The driver: the one place where a core broker meets the clock, the sockets and the disk. It decides nothing.

An input is handled at once, and everything that follows from it is carried out before the next: one write a link, one
call for all that clients are told, the disk's part to the disk. What comes back while that happens (a stream that clogs
as it is written to, a client's conversation that ends) waits in a queue for its turn, so the core is never re-entered.

The time is that of the wall when the process started, and from then on that of the monotonic clock: events get
timestamps that mean something to others, and no step of the wall clock makes a neighbour look dead. What the wall clock
shows beyond that is looked at once a second, and given to the core when it has moved (`trust.epochs`).

**A core in doubt.** An exception that nobody foresaw may leave a core half changed, so the driver gives that core
nothing more, carries out nothing of the input that raised it, and asks `on_doubt`. Where a sender can be named for the
input, the broker makes its core anew from disk (`renewal`) and calls `begin_again`. Otherwise (a timer, an answer of
the disk, or too many senders) the broker ends, as it does when `on_doubt` is not set: everything accepted is on disk.

The invariant: one *life* of a core ends before the next begins, and nothing of an ended life reaches another. Links and
sessions have numbers that are never used again, and a ticket of the disk carries the life that it belongs to.
"""

from __future__ import annotations

import asyncio
import secrets as chances
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from veena.address import Unit, format_address
from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.inputs_effects import (
    ClockSet,
    Close,
    Dial,
    Effect,
    Granted,
    Input,
    LogRead,
    MaySpeak,
    PublishBatch,
    Reachable,
    Read,
    ReadFailed,
    Restart,
    Send,
    StatementRefused,
    Store,
    Stored,
    StoreFailed,
    ToClient,
    Unreachable,
)
from veena.core.boundary.settings import Settings
from veena.core.boundary.signing import Signing
from veena.core.boundary.staging import StagedHeld, StagedReleased, StageEffect
from veena.core.boundary.stored import Disk, Identity
from veena.core.broker import Broker
from veena.core.delivery.match_cache import Receivers
from veena.core.statistics import BrokerStatistics
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import EventCodec
from veena.core.wire.header import link_frame
from veena.errors import LocalProtocolError
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.runtime.evaluation.worker import Worker
from veena.runtime.links.links import Links, Retry
from veena.runtime.logging.logs import Log
from veena.runtime.steps import Steps
from veena.runtime.store.recorder import Recorder
from veena.runtime.supervision import Supervisor
from veena.runtime.transports.registry import NO_SECRETS, Secrets
from veena.runtime.transports.stream import Listener, Stream

#: The longest sleep: a timer is only ever late by what the loop is.
MAX_SLEEP_S = 3600.0
#: For how long answers of the disk are dealt with in one step: one more may take as long again.
TAKE_NS = 10_000_000
#: A disk is given tickets that carry the life of their core in the bits from here on. No core gives so many.
LIFE_BITS = 48
FromDisk = Stored | StoreFailed | LogRead | ReadFailed
WithTicket = FromDisk | Evaluated
#: How often the wall clock is looked at, and how far it must have moved to matter: epochs bear a minute.
CLOCK_LOOK_NS = 1_000_000_000
CLOCK_STEP_NS = 1_000_000_000


class DiskPeer(Protocol):
    """Who keeps what is written; its answers are given to `Driver.take`, in the loop's thread."""

    def submit(self, effect: Store | Read) -> None: ...


class Clients(Protocol):
    """Who speaks with clients."""

    def tell(self, effects: list[ToClient]) -> None: ...

    def accept(self, stream: Stream, data: bytes) -> Listener: ...


class Driver:
    """One broker at work."""

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        store: DiskPeer,
        *,
        listen: tuple[str, ...] = (),
        grant: bytes = b"",
        signing: Signing | None = None,
        secrets: Secrets = NO_SECRETS,
        retry: Retry | None = None,
        log: Log | None = None,
        chance: Callable[[int], int] = chances.randbits,
        clock: Callable[[], int] | None = None,
        wall: Callable[[], int] = time.time_ns,
        supervisor: Supervisor | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.settings = settings
        self.codec = EventCodec(settings.levels, settings.fanout, link_frame(settings.max_frame))
        self.log = log = log or Log()
        #: Who watches over this broker's threads and tasks, and over how long its steps take.
        self.supervisor, self.steps = supervisor or Supervisor(log.failure), steps or Steps(log)
        self.links = Links(self.give, self.codec, secrets, retry or Retry(), log, self.supervisor, self.steps)
        #: Who evaluates what costs too much for this loop.
        self.worker = Worker(lambda answer: self.take((answer,)), self.supervisor, log)
        #: Set before the first client is let in.
        self.clients: Clients | None = None
        #: Who makes records, where they are asked for.
        self.recorder: Recorder | None = None
        #: Called when the broker got another address: it has to be started again under it.
        self.on_restart: Callable[[Restart], None] = lambda effect: None
        #: Called with what must not happen: the core has broken its own rules, and this process must end.
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        #: Called with an exception that nobody foresaw and the input that it came of (None for a timer), before that:
        #: true where the core is going to be made anew, so that the process need not end.
        self.on_doubt: Callable[[Input | None, Exception], bool] = lambda given, error: False
        #: Called with what became of staged rows that the broker was given.
        self.on_staged: Callable[[StageEffect], None] = lambda effect: None
        #: Called after units came into reach or were lost, and when the disk has taken the first write.
        self.on_change: Callable[[], None] = lambda: None
        #: The units in reach.
        self.reached: dict[Unit, None] = {}
        self.is_remembered = False  # whether the disk has taken anything yet: the first is who this broker is
        self._may_speak: dict[int, Callable[[MaySpeak], None]] = {}
        self._clock = clock or steady_clock()
        self._wall = WallWatch(wall)
        self._chance, self._store = chance, store
        self._listen, self._grant, self._signing = listen, grant, signing
        self.life = 0  # how many cores there were before this one
        self.broker = self._core(disk)
        self._queue: deque[Input] = deque()
        self._answers: deque[WithTicket] = deque()
        self._is_busy = self._is_over = self._is_arming = self._is_taking = False
        self._is_in_doubt = False  # between two lives: what is given meanwhile is for neither
        #: Something was handled that may have set a timer.
        self._needs_arming = True
        self._sessions = self._inputs = self._wake_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._handlers = self._handlers_of_effects(store.submit)

    def _core(self, disk: Disk) -> Broker:
        """A core with what a disk remembers, under the next incarnation."""
        found = disk.identity
        identity = Identity(found.name, found.address, found.incarnation + 1)
        now_ns = self._clock()
        return Broker(
            identity,
            self.settings,
            self._chance,
            now_ns,
            listen=self._listen,
            disk=disk,
            grant=self._grant,
            wall_offset_ns=self._wall.begin(now_ns),
            signing=self._signing,
        )

    def _handlers_of_effects(self, submit: Callable[[Store | Read], None]) -> dict[type[Effect], Callable[..., None]]:
        return {
            Send: self.links.send,
            Close: self.links.close,
            Dial: self.links.dial,
            Store: submit,
            Read: submit,
            Evaluate: self._evaluate,
            Reachable: self._reachable,
            Unreachable: self._unreachable,
            MaySpeak: self._answer_may_speak,
            Restart: self._restart,
            StatementRefused: self.links.note_statement,
            StagedReleased: self._staged,
            StagedHeld: self._staged,
        }

    # --- the boundary ---

    def start(self) -> None:
        """Begin: the identity goes to the disk, and who connects is greeted when it is there."""
        self.links.start()
        self._run(None)

    def begin_again(self, disk: Disk) -> None:
        """Begin a new life with what the disk remembers, after a doubt; every link and session of the last is gone."""
        assert self._is_in_doubt, "a core is only made anew after an exception that nobody foresaw"
        self.life += 1
        self._handlers = self._handlers_of_effects(self._submit)
        self.broker = self._core(disk)
        self._is_in_doubt = False
        self._run(None)

    def show(self, grant: bytes, signing: Signing | None) -> None:
        """Show this grant to others and sign so from now on, in lives to come too."""
        if self._signing is None:
            signing = None  # who was never asked for signatures begins with the next start
        before = None if self._signing is None else self._signing.signer.certificate
        if grant != self._grant or (signing is not None and signing.signer.certificate != before):
            self._grant, self._signing = grant, signing or self._signing
            self.give(Granted(grant, signing))

    def give(self, given: Input) -> None:
        """Let the broker handle this and carry out what follows; LocalProtocolError for what this side did wrong.

        Between two lives it goes nowhere, as what is under way to a process that ends.
        """
        if self._is_over or self._is_in_doubt:
            return
        if self._is_busy:
            self._queue.append(given)
        else:
            self._run(given)

    def again(self, session: int, burst: EventBurst) -> Receivers | None:
        """The short form of `give` for a burst like one before it: who gets it, and nothing else follows; None where it
        has to be given."""
        if self._is_busy or self._is_over or self._is_in_doubt or self.recorder is not None:
            return None
        try:
            receivers = self.broker.again(session, burst, self._clock())
        except Exception as error:
            if not self._doubt(PublishBatch(session, (burst,)), error):
                raise
            return None
        self._inputs += receivers is not None
        return receivers

    def take(self, answers: Sequence[WithTicket]) -> None:
        """What the disk or the worker answered; what is answered to an ended life is dropped."""
        self._answers += answers
        if not self._is_taking:
            self._take_some()

    def _take_some(self) -> None:
        """The answers of the disk that one step has time for; the next turn of the loop goes on."""
        until_ns = self._clock() + TAKE_NS
        with self.steps.step("answers", "the disk"):
            while self._answers and (self._clock() < until_ns or self._is_over):
                answer = self._answers.popleft()
                if answer.ticket >> LIFE_BITS != self.life:
                    continue
                try:
                    self.give(answer if not self.life else _of_core(answer))
                except LocalProtocolError as error:  # the answers behind it count all the same
                    self.log.failure(f"the core refused what the disk answered: {type(answer).__name__}", error)
                if not self.is_remembered and type(answer) is Stored:
                    self.is_remembered = True
                    self.on_change()
        self._is_taking = bool(self._answers)
        if self._is_taking:
            asyncio.get_running_loop().call_soon(self._take_some)

    def asked(self, session: int, subscription: int) -> tuple[str, Constraint, int] | None:
        """Engine, constraint and scope of a client's subscription; None if there is none."""
        return self.broker.events.sessions.asked(session, subscription)

    def watched(self, session: int) -> list[tuple[int, Event]]:
        """The events that a client watches, with their numbers, as engines see them."""
        return self.broker.events.quench.watched(session)

    def new_session(self) -> int:
        """A number for a client's conversation, never used before."""
        self._sessions += 1
        return self._sessions

    def now_ns(self) -> int:
        return self._clock()

    def expect_may_speak(self, number: int, then: Callable[[MaySpeak], None]) -> None:
        """Who waits for the answer to AskToSpeak."""
        self._may_speak[number] = then

    async def stop(self) -> None:
        """Close the links and handle nothing more. The disk is its owner's to close."""
        await self.links.stop()
        self._is_over = True
        await self.worker.stop()
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """Handle nothing more, from now on, and break off every link."""
        self._is_over = True
        self.worker.abort()
        self.links.abort()

    def statistics(self) -> BrokerStatistics:
        return self.broker.statistics()

    @property
    def inputs(self) -> int:
        """How many inputs were handled."""
        return self._inputs

    # --- one input after another ---

    def _run(self, given: Input | None) -> None:
        """Handle this, or let time pass; then whatever came of it."""
        is_step = self.steps.begin()
        self._is_busy = True
        wrong: LocalProtocolError | None = None
        try:
            try:
                self._step(given)
            except LocalProtocolError as error:
                wrong = error
            except Exception as error:
                if not self._doubt(given, error):
                    raise
            if self._queue:
                self._catch_up()
        finally:
            self._is_busy = False
            if is_step:
                self.steps.end(lambda: ("a timer" if given is None else type(given).__name__, "the broker"))
        if self._needs_arming and not self._is_arming and not self._is_in_doubt:
            self._is_arming = True
            asyncio.get_running_loop().call_soon(self._arm)
        if wrong is not None:
            raise wrong

    def _doubt(self, given: Input | None, error: Exception) -> bool:
        """Nobody foresaw this exception: never go on with this core. Whether another is going to take its place."""
        self._queue.clear()
        self._is_in_doubt = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.on_doubt(given, error):
            self._end_life()
            return True
        self._is_over = True
        self.log.failure("the broker has broken its own rules and stops", error)
        self.on_failure(error)
        return False

    def _end_life(self) -> None:
        """Forget the core, and what was told of it; an empty one, which is given nothing, is there to be looked at."""
        identity = self.broker.identity
        before = Identity(identity.name, identity.address, identity.incarnation - 1)
        self.broker = self._core(Disk(before))
        self.reached.clear()
        self._may_speak.clear()
        self.worker.forget()
        self.is_remembered = False
        self._needs_arming = True
        self.on_change()

    def _submit(self, effect: Store | Read) -> None:
        self._store.submit(replace(effect, ticket=effect.ticket + (self.life << LIFE_BITS)))

    def _evaluate(self, effect: Evaluate) -> None:
        self.worker.submit(replace(effect, ticket=effect.ticket + (self.life << LIFE_BITS)))

    def _catch_up(self) -> None:
        """What came up meanwhile."""
        while self._queue and not self._is_over:
            given = self._queue.popleft()
            try:
                self._step(given)
            except LocalProtocolError as error:  # who gave it is gone: it can only be noted
                self.log.error("input refused", input=type(given).__name__, reason=str(error))
            except Exception as error:
                if not self._doubt(given, error):
                    raise

    def _step(self, given: Input | None) -> None:
        self._inputs += 1
        now_ns = self._clock()
        effects = self.broker.tick(now_ns) if given is None else self.broker.handle(given, now_ns)
        took_fast_path = self.broker.schedule.took_fast_path
        self._needs_arming = self._needs_arming or not took_fast_path
        if self.recorder is not None:
            self.recorder.saw(given, effects, now_ns)
        if took_fast_path and self.clients is not None:
            self.clients.tell(effects)  # type: ignore[arg-type]  # it has nothing for anybody else
        else:
            self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        told: list[ToClient] = []
        handlers = self._handlers
        for effect in effects:
            handler = handlers.get(type(effect))
            if handler is None:
                told.append(effect)  # type: ignore[arg-type]  # every other effect is for clients
            else:
                handler(effect)
        if told and self.clients is not None:
            self.clients.tell(told)

    # --- time ---

    def _arm(self) -> None:
        """One timer; it may ring too early, never too late. Set once a turn of the loop, not once an input."""
        self._is_arming = self._needs_arming = False
        if self._is_over or self._is_in_doubt:
            return
        with self.steps.step("the next timer", "the broker"):
            self._look_at_clock()
            due = self._next_wakeup()
        if due is None or (self._timer is not None and self._wake_ns <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ns = due
        delay = min(max(0.0, (due - self._clock()) / 1e9), MAX_SLEEP_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _next_wakeup(self) -> int | None:
        """When the core wants to be woken. One that cannot say it would never be woken again: that is a doubt, too."""
        try:
            return self.broker.next_wakeup()
        except Exception as error:
            if not self._doubt(None, error):
                raise
            return None

    def _look_at_clock(self) -> None:
        """Tell the core when somebody has set the wall clock."""
        moved_ns = self._wall.moved(self._clock())
        if moved_ns:
            self.log.warning("the wall clock was set", by_s=round(moved_ns / 1e9, 1))
            self.give(ClockSet(self._wall.offset_ns))

    def _wake(self) -> None:
        self._timer = None
        due = self._next_wakeup()
        if due is not None and due <= self._clock():
            self._run(None)
        else:
            self._arm()

    # --- effects ---

    def _reachable(self, effect: Reachable) -> None:
        self.reached[effect.unit] = None
        self.log.info("unit in reach", unit=format_address(effect.unit))
        self.on_change()

    def _unreachable(self, effect: Unreachable) -> None:
        self.reached.pop(effect.unit, None)
        self.log.warning("unit out of reach", unit=format_address(effect.unit))
        self.on_change()

    def _answer_may_speak(self, effect: MaySpeak) -> None:
        then = self._may_speak.pop(effect.number, None)
        if then is not None:
            then(effect)

    def _staged(self, effect: StageEffect) -> None:
        self.on_staged(effect)

    def _restart(self, effect: Restart) -> None:
        self._is_over = True
        self.log.info("this broker has a new address", address=format_address(effect.identity.address))
        self.on_restart(effect)


def _of_core(answer: WithTicket) -> WithTicket:
    """An answer with the ticket that the core gave."""
    return replace(answer, ticket=answer.ticket & ((1 << LIFE_BITS) - 1))


class WallWatch:
    """What the wall clock shows beyond the time that a core is given."""

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall
        #: As it was last known, and when to look again.
        self.offset_ns = 0
        self._look_at_ns = 0

    def begin(self, now_ns: int) -> int:
        """The offset, for a core that begins now."""
        self.offset_ns = self._wall() - now_ns
        return self.offset_ns

    def moved(self, now_ns: int) -> int:
        """How far the wall clock has moved since it was last known; 0 for next to nothing, or where it is too early to
        look again."""
        if now_ns < self._look_at_ns:
            return 0
        self._look_at_ns = now_ns + CLOCK_LOOK_NS
        before_ns, found_ns = self.offset_ns, self._wall() - now_ns
        if abs(found_ns - before_ns) < CLOCK_STEP_NS:
            return 0
        self.offset_ns = found_ns
        return found_ns - before_ns


def steady_clock() -> Callable[[], int]:
    """The time of the wall as it was when this was made, and from then on that of the monotonic clock."""
    offset = time.time_ns() - time.monotonic_ns()
    monotonic = time.monotonic_ns
    return lambda: offset + monotonic()
