"""How long a broker holds up its event loop: the CPU time of each step, of which none should take more than 50 ms.

A *step* is everything that follows from one read, timer, answer of the disk or question, until the event loop can turn
to somebody else. Steps inside a step belong to it. The longest is exported; a step above `LIMIT_NS` is counted and
logged with what caused it.

A step costs two looks at the monotonic clock. The clock of CPU time is ten times slower, so a step begins with an
earlier look at it, at most `MARK_NS` old: what is measured is never less than the step, and more by at most that.
A short step counts with the time on the wall, which is never less than its CPU time.

Rejected: the debug mode of asyncio (it measures the wall, names callbacks and not clients, and slows every callback);
a thread that watches the loop (it sees that something takes long, not what).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from veena.runtime.logging.logs import Log

#: What no step should exceed.
LIMIT_NS: Final = 50_000_000
#: How old a look at the CPU clock may be where a step begins.
MARK_NS: Final = 1_000_000
#: Steps below this count with the time on the wall.
SHORT_NS: Final = 5_000_000
#: The longest step is that of the present window or of the one before it.
WINDOW_NS: Final = 60 * 1_000_000_000

#: Says what a step was for, and for whom: asked only when it took long.
Cause = Callable[[], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class StepStatistics:
    #: CPU time of the longest step of the last one to two minutes, and since the start.
    longest_s: float = 0.0
    longest_ever_s: float = 0.0
    #: What that was, and for whom; "" while no step took long.
    longest_cause: str = ""
    #: Steps above the limit, since the start.
    over_limit: int = 0


class Steps:
    """The steps of one broker, all in the thread of its event loop."""

    __slots__ = (
        "_bar", "_began", "_cause", "_clock", "_cpu", "_ever", "_log", "_mark", "_mark_cpu", "_over", "_recent",
        "_turn", "_window",
    )  # fmt: skip

    def __init__(
        self,
        log: Log | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._log = log or Log()
        self._clock, self._cpu = clock, cpu
        #: When the present step began; 0 between two.
        self._began = 0
        #: The last look at the CPU clock: when, and what it said.
        self._mark = self._mark_cpu = 0
        #: The longest of the present window, and of the one before; when the present one is over.
        self._window = self._recent = self._turn = 0
        self._ever = self._over = 0
        #: A step above this is worth noting.
        self._bar = 0
        self._cause = ""

    def begin(self) -> bool:
        """A step begins, unless this is a part of one; who is told so ends it."""
        if self._began:
            return False
        self._began = now = self._clock()
        if now - self._mark > MARK_NS:
            self._mark, self._mark_cpu = now, self._cpu()
        return True

    def end(self, cause: Cause) -> None:
        """The step that was begun is over."""
        now = self._clock()
        took = now - self._began
        self._began = 0
        if took > SHORT_NS:
            cpu = self._cpu()
            took = min(took, cpu - self._mark_cpu)
            self._mark, self._mark_cpu = now, cpu
        if took > self._bar or now >= self._turn:
            self._note(took, now, cause)

    @contextmanager
    def step(self, what: str, whom: str = "") -> Iterator[None]:
        """What is done inside is a step, or a part of one."""
        if not self.begin():
            yield
            return
        try:
            yield
        finally:
            self.end(lambda: (what, whom))

    def _note(self, took: int, now: int, cause: Cause) -> None:
        if now >= self._turn:
            self._recent = self._window if now < self._turn + WINDOW_NS else 0
            self._window, self._turn = 0, now + WINDOW_NS
        self._window = max(self._window, took)
        self._bar = min(self._window, LIMIT_NS)
        if took > self._ever:
            self._ever = took
            if took > SHORT_NS:
                self._cause = " for ".join(filter(None, cause()))
        if took > LIMIT_NS:
            self._over += 1
            what, whom = cause()
            self._log.noise("a step took long", cpu_ms=round(took / 1e6), step=what, client_or_link=whom)

    def forget(self) -> None:
        """Begin to measure anew."""
        self._window = self._recent = self._ever = self._over = self._bar = 0
        self._cause = ""

    def statistics(self) -> StepStatistics:
        recent = self._window if self._clock() < self._turn + WINDOW_NS else 0
        before = self._recent if self._clock() < self._turn else 0
        return StepStatistics(max(recent, before) / 1e9, self._ever / 1e9, self._cause, self._over)


def kinds_of(things: Iterable[object]) -> str:
    """What kinds these are, and how many of each: "32 AskSubscribe, 1 EventBurst"."""
    counts = Counter(type(each).__name__ for each in things).most_common(4)
    return ", ".join(f"{count} {kind}" for kind, count in counts)
