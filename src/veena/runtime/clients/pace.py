"""How much control work a client's frames are, and the part of a read that waits for its turn.

What a frame costs its broker differs by orders of magnitude, so each kind has a weight; the user's rate
(`control_per_second` of `access.limits`) is in these units. A read may bring thousands of control frames. Of one read a
conversation deals with `TURN` units at once, and with no more than its user's rate allows; the rest waits, in its
order, and nothing more is read meanwhile. Those that wait go on one after the other (`Turns`): in a turn of the event
loop for `TURNS_S` together, however many they are. So what some clients send holds up nobody else.

Rejected: refusing what is too fast. A client that floods by mistake would lose subscriptions that it believes it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from veena.core.wire.burst import EventBurst
from veena.core.wire.client import (
    AskAdvertise,
    AskForget,
    AskQuery,
    AskSubscribe,
    AskUnsubscribe,
    AskWatch,
    AskWithdraw,
)
from veena.core.wire.control import Frame
from veena.core.wire.event import RELIABLE
from veena.runtime.access.limits import Rates

#: Units of control work that are dealt with at once: 4 subscriptions, about a millisecond.
TURN = 40
#: How long all those that wait go on in one turn of the loop.
TURNS_S = 0.001
#: Events in one turn of the loop. A reliable one is written, routed and delivered by itself; of best effort so many are
#: dealt with at the price of one.
TURN_EVENTS = 384
BEST_EFFORT = 8
#: The same where they are not alike: what is matched with ten thousand constraints takes a hundred microseconds each.
MIXED = 2
#: The weights that are not 1, in units of about 5 microseconds. A subscription changes what other brokers are told; an
#: offer is written to disk and sent to the controllers of its realm; a question is asked of all of them.
WEIGHTS: dict[type[Frame], int] = {
    AskSubscribe: 10,
    AskUnsubscribe: 10,
    AskForget: 20,
    AskWatch: 4,
    AskAdvertise: 40,
    AskWithdraw: 20,
    AskQuery: 100,
}
#: A subscription with a past, for which brokers read their logs.
WITH_A_PAST = 100
#: Bytes of a constraint, a query or an offered document that are one unit more.
LENGTH_A_UNIT = 128
#: All other frames: acknowledgements of up to 256 events, requests, heartbeats, reads of the log (which have limits of
#: their own).
OTHERWISE = 1


def weight(frame: Frame) -> int:
    """How much control work a frame is: what has to be read first counts by its length as well."""
    if isinstance(frame, AskSubscribe):
        found = WITH_A_PAST if frame.since_ns else WEIGHTS[AskSubscribe]
        return found + len(frame.constraint) // LENGTH_A_UNIT
    if isinstance(frame, AskQuery):
        return WEIGHTS[AskQuery] + len(frame.text) // LENGTH_A_UNIT
    if isinstance(frame, AskAdvertise):
        return WEIGHTS[AskAdvertise] + (len(frame.properties) + len(frame.xml)) // LENGTH_A_UNIT
    return WEIGHTS.get(type(frame), OTHERWISE)


class Turns:
    """Who waits for its turn, of all conversations of a broker: each goes on once before any goes on again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_called = False

    def ask(self, go_on: Callable[[], None], soon: Callable[[Callable[[], None]], object]) -> None:
        """Call `go_on` when it is its turn; `soon` calls something in the next turn of the loop."""
        self._waiting.append(go_on)
        if not self._is_called:
            self._is_called = True
            soon(lambda: self._run(soon))

    def _run(self, soon: Callable[[Callable[[], None]], object]) -> None:
        until = self._clock() + TURNS_S
        try:
            for _ in range(len(self._waiting)):  # who asks again meanwhile goes on in the next turn of the loop
                self._waiting.popleft()()
                if self._clock() >= until:
                    break
        finally:
            self._is_called = bool(self._waiting)
            if self._is_called:
                soon(lambda: self._run(soon))


class Pace:
    """How fast one conversation goes on: by turns, and by its user's rates once it is attached."""

    def __init__(self) -> None:
        #: What of the last read waits, in its order.
        self.rest: list[Frame | EventBurst] = []
        #: What came behind it, because the transport had read it before it was told to stop.
        self.late = bytearray()
        #: None before the client is attached: a greeting is one frame.
        self.rates: Rates | None = None
        self._work = 0

    @property
    def waits(self) -> bool:
        """Whether something that was read is not dealt with yet."""
        return bool(self.rest or self.late)

    def take_late(self) -> bytes:
        late, self.late = bytes(self.late), bytearray()
        return late

    def turn(self, frames: Sequence[Frame | EventBurst]) -> Sequence[Frame | EventBurst]:
        """What is dealt with at once of what waits and of these; the rest waits.

        Events cost no control work. They keep their place between the frames around them.
        """
        events = 0
        if self.rest:
            frames, self.rest = [*self.rest, *frames], []
        self._work = 0
        for at, frame in enumerate(frames):
            if type(frame) is EventBurst:
                if frame.like.flags & RELIABLE:
                    events += frame.count
                else:
                    events += 1 + frame.count // (BEST_EFFORT if frame.sections is None else MIXED)
                if events >= TURN_EVENTS:
                    self.rest = list(frames[at + 1 :])
                    return frames[: at + 1]
                continue
            assert isinstance(frame, Frame)
            self._work += weight(frame)
            if self._work >= TURN:
                self.rest = list(frames[at + 1 :])
                return frames[: at + 1]
        return frames

    def wait_s(self, events: int, size: int, now: float) -> tuple[float | None, str]:
        """Take the tokens of a turn. How long nothing more is dealt with: not at all (None), until the next turn of the
        loop (0), or until there are tokens again; and the rate that there are too few of."""
        work, self._work = self._work, 0
        if self.rates is not None and (work or self.rates.counts_all):
            wait, why = self.rates.take(events, size, work, now)
            if wait > 0:
                return wait, why
        return (0.0 if self.rest else None), ""
