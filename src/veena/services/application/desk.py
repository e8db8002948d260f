"""The desk between those who steer and the computation: what is asked, who may, and when it is done.

Commands come whenever the network brings them; a computation can take them only between two steps. So the desk answers
at once what needs no computation (a query, who drives, what is out of bounds) and keeps the rest until the next
boundary between two steps, where the values change, all of a command or none.

    client --command--> ask() --refused, or nothing to wait for--> answer
                          '--kept--> boundary() --values changed--> answer

Whether somebody may change something is asked twice: when the command comes, so that a refusal is told at once, and
when it is carried out, because the wheel may have gone to somebody else meanwhile.

| state | when (COL-01) |
|---|---|
| running | the program is there and takes no steps: before the first one and after the last |
| computing | it takes steps |
| interacting | a change was asked for and waits for the boundary |
| paused | it waits between two steps until it is resumed or stopped |

Everything may be called from any thread; nothing here waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from veena.errors import InvalidEvent
from veena.event import Event
from veena.services.application.parameters import STATE, Parameter, ParameterView, check_parameters
from veena.services.application.steering_lock import TIMEOUT_NS, Record, SteeringLock
from veena.services.structured import Scalar

State = Literal["running", "computing", "interacting", "paused"]
Verb = Literal["query", "change", "take", "release", "hand_over", "here"]
#: Changes that wait for one boundary; who is refused asks again after it.
MAX_PENDING = 64
#: Changes of state that were not told yet; above that the oldest are of no interest.
MAX_TRANSITIONS = 256
#: What `state` may be set to, and what the program does then.
STATES = {"paused": "pause", "running": "go on", "stopped": "end"}


@dataclass(frozen=True, slots=True)
class Command:
    """What a client asked for; `by` is who the brokers say that it is."""

    verb: Verb
    by: str
    values: Mapping[str, Scalar] = field(default_factory=dict)
    #: For a hand-over.
    to: str = ""
    #: The event that it came with: where its answer goes.
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command."""

    answer: Literal["done", "refused"]
    #: When it is refused: why, and what to do.
    reason: str = ""
    #: Who drives now; empty when nobody does.
    driver: str = ""
    state: str = ""
    #: For a query.
    parameters: Mapping[str, ParameterView] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.answer == "done"


class Desk:
    """The desk of one application."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        lock_timeout_ns: int = TIMEOUT_NS,
        on_news: Callable[[], Any] = lambda: None,
    ) -> None:
        self._parameters = check_parameters(parameters)
        self._values: dict[str, Scalar] = {
            name: each.check(name, each.value, is_first=True) for name, each in self._parameters.items()
        }
        self._lock = SteeringLock(lock_timeout_ns)
        self._pending: deque[Command] = deque()
        self._state: State = "running"
        self._transitions: deque[State] = deque(["running"], maxlen=MAX_TRANSITIONS)
        self._is_paused = self._is_stopped = False
        #: Why nobody may steer now, whoever drives; empty while they may.
        self.closed = ""
        #: Called, in any thread, when a command waits for the computation.
        self.on_news = on_news
        self._guard = threading.Lock()

    # --- the computation's side ---

    def __getitem__(self, name: str) -> Scalar:
        with self._guard:
            return self._values[name]

    @property
    def values(self) -> dict[str, Scalar]:
        with self._guard:
            return dict(self._values)

    def show(self, name: str, value: Scalar) -> None:
        """The computation itself sets a parameter: what it found, or what it takes to be better."""
        with self._guard:
            self._values[name] = self._parameters[name].check(name, value, is_first=True)

    def boundary(self, now_ns: int) -> list[tuple[Command, Answer]]:
        """Between two steps: carry out what was asked for. What is to be answered, in the order in which it came."""
        with self._guard:
            done = [(command, self._carry_out(command, now_ns)) for command in self._pending]
            self._pending.clear()
            self._enter("running" if self._is_stopped else "paused" if self._is_paused else "computing")
            return [(command, self._answer(now_ns, refused)) for command, refused in done]

    def end(self) -> list[tuple[Command, Answer]]:
        """The program has taken its last step: who still waits is told."""
        with self._guard:
            self._is_stopped, self._is_paused = True, False
            left, self._pending = list(self._pending), deque()
            self._enter("running")
            return [(command, Answer("refused", "the program has ended", state="stopped")) for command in left]

    @property
    def has_news(self) -> bool:
        """Whether there are changes of state that were not told yet."""
        return bool(self._transitions)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    # --- the network's side ---

    def ask(self, command: Command, now_ns: int) -> Answer | None:
        """A command came: its answer, or None when it waits for the boundary, or needs none."""
        with self._guard:
            if command.verb == "here":
                self._lock.stay(command.by, now_ns)
                return None
            self._lock.touch(command.by, now_ns)
            if self.closed and command.verb not in ("query", "release"):
                return self._answer(now_ns, self.closed)
            match command.verb:
                case "query":
                    return self._answer(now_ns, views=self._views())
                case "take":
                    outcome = self._lock.take(command.by, now_ns)
                case "release":
                    outcome = self._lock.release(command.by, now_ns)
                case "hand_over":
                    if not command.to:
                        return self._answer(now_ns, "a hand-over needs `to`: the client id of who is to drive")
                    outcome = self._lock.hand_over(command.by, command.to, now_ns)
                case "change":
                    refused = self._why_not(command, now_ns)
                    if refused:
                        return self._answer(now_ns, refused)
                    self._pending.append(command)
                    if not self._is_paused:
                        self._enter("interacting")
                    self.on_news()
                    return None
            return self._answer(now_ns, "" if outcome.is_granted else outcome.reason)

    def refuse(self, reason: str, now_ns: int) -> Answer:
        """The answer to what is no sound command."""
        with self._guard:
            return self._answer(now_ns, reason)

    def look(self, now_ns: int) -> tuple[State, str]:
        """The state, and who drives; empty for nobody."""
        with self._guard:
            return self._state, self._lock.driver(now_ns) or ""

    def untold(self, now_ns: int) -> tuple[list[State], list[Record]]:
        """Changes of state and records that were not asked for before, oldest first: each is to be published once."""
        with self._guard:
            self._lock.driver(now_ns)  # a silence that is too long is noticed now
            states, self._transitions = list(self._transitions), deque(maxlen=MAX_TRANSITIONS)
            return states, self._lock.untold()

    @property
    def records(self) -> tuple[Record, ...]:
        """Who steered what, the last of it."""
        with self._guard:
            return self._lock.records

    # --- deciding ---

    def _why_not(self, command: Command, now_ns: int) -> str:
        """Why a change is refused; empty when it may be carried out."""
        driver = self._lock.driver(now_ns)
        if driver != command.by:
            name, value = next(iter(command.values.items()), (STATE, ""))
            return self._lock.steer(command.by, name, value, now_ns).reason
        if not command.values:
            return "nothing is to be changed: name a parameter and its value"
        if len(self._pending) >= MAX_PENDING:
            return f"{MAX_PENDING} changes wait for the next step already: ask again after it"
        if self._is_stopped:
            return "the program has been stopped"
        try:
            for name, value in command.values.items():
                self._check(name, value)
        except InvalidEvent as error:
            return str(error)
        return ""

    def _check(self, name: str, value: Scalar) -> Scalar:
        if name == STATE:
            if not isinstance(value, str) or value not in STATES:
                raise InvalidEvent(f"state {value!r:.80}: a program can be made {', '.join(STATES)}")
            return value
        parameter = self._parameters.get(name)
        if parameter is None:
            known = ", ".join(self._parameters) or "none"
            raise InvalidEvent(f"parameter {name!r:.80} does not exist here; there are: {known}")
        return parameter.check(name, value)

    def _carry_out(self, command: Command, now_ns: int) -> str:
        """Do it; why not, if it is not done."""
        for name, value in command.values.items():
            outcome = self._lock.steer(command.by, name, value, now_ns)
            if not outcome.is_granted:  # the wheel changed hands since it was asked for, so this is the first of them
                return outcome.reason
        for name, value in command.values.items():
            checked = self._check(name, value)
            if name == STATE:
                self._is_paused, self._is_stopped = value == "paused", value == "stopped"
            else:
                self._values[name] = checked
        return ""

    def _answer(self, now_ns: int, refused: str = "", views: Mapping[str, ParameterView] | None = None) -> Answer:
        state = "stopped" if self._is_stopped else "paused" if self._is_paused else self._state
        driver = self._lock.driver(now_ns) or ""
        return Answer("refused" if refused else "done", refused, driver, state, views or {})

    def _views(self) -> dict[str, ParameterView]:
        return {name: each.view(name, self._values[name]) for name, each in self._parameters.items()}

    def _enter(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self._transitions.append(state)
