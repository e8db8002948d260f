"""Watches over the threads and tasks of a broker: none of them ends unseen.

A *part* lasts as long as its broker, such as the thread that reads the log back, or the task that dials a neighbour. A
part that an exception ends is logged, counted, and named by `/readyz` and `veena status`; it is started again after a
pause, which grows while it keeps failing. A part that is *vital* is not started again: what it left half done may be
wrong, so the broker stops with an exit code, and everything accepted is on disk.

A piece of work that ends by itself (`once`: a dial, a log-in) is not done again; what ends it is logged and counted.
So is what a callback of the event loop raises (`Supervisor.unexpected`). The one child process that a broker may have
(`evaluation.worker`) has a part that waits for its end.

The invariant: from its start until its owner ends it, a part runs, or `trouble` names it.

Rejected: a try-except in every loop (each forgets some exceptions, and nobody hears of the loop's end); a process that
restarts the broker for any of them (one wrong question of one client would stop everybody's events).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

#: The pause before a part is started again: the first, and what doubling it leads to while it keeps failing.
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
#: A part that ran for so long has recovered: its next pause is the first one again.
GOOD_LIFE_S: Final = 60.0
#: Characters of an exception that are shown.
MAX_SHOWN: Final = 200
#: Failures of one kind that are told in one window: somebody may cause them at will. All are counted.
MAX_TOLD: Final = 5
WINDOW_S: Final = 10.0
#: Kinds of failures whose windows are remembered.
MAX_KINDS: Final = 256

#: Called with what happened and the exception.
Tell = Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True)
class SupervisionStatistics:
    #: Threads and tasks that last as long as the broker.
    parts: int = 0
    #: How often an exception has ended one, and how often one was started again.
    ended: int = 0
    started_again: int = 0
    #: Exceptions that nobody foresaw and that ended one piece of work alone.
    failed: int = 0
    #: Which parts do not run now, and why; None while all do.
    trouble: str | None = None
    #: The last of these exceptions; "" if there was none.
    last: str = ""


class _Part:
    """One thread or task; `fault` is what ended it, while it does not run."""

    __slots__ = ("fault", "name", "pause_s", "since")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault = ""
        self.pause_s = FIRST_PAUSE_S
        self.since = time.monotonic()


def _log(what: str, error: BaseException) -> None:
    logging.getLogger("veena.broker").error(what, exc_info=error)


class Supervisor:
    """The parts of one broker. May be used from any thread."""

    def __init__(self, tell: Tell = _log, on_fatal: Callable[[BaseException], None] = lambda error: None) -> None:
        """`on_fatal` is called when a vital part has ended, in the thread in which it did."""
        self._tell = tell
        self._on_fatal = on_fatal
        self._lock = threading.Lock()
        self._parts: dict[_Part, None] = {}
        self._ended = self._started_again = self._failed = 0
        self._last = ""
        #: Kind of failure -> when its window began, and how many were told in it.
        self._told: dict[str, tuple[float, int]] = {}

    # --- parts ---

    def thread(self, name: str, run: Callable[[], None], *, is_vital: bool = False) -> WatchedThread:
        """Run this in a thread until it returns, which it does when its owner wants its end."""
        return WatchedThread(self, self._add(f"thread {name}"), name, run, is_vital)

    def task(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Do this in the running loop until it returns or is cancelled."""
        return asyncio.get_running_loop().create_task(self._do(self._add(f"task {name}"), work), name=name)

    async def _do(self, part: _Part, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while True:
                try:
                    await work()
                    return
                except asyncio.CancelledError as error:
                    if task.cancelling():
                        raise
                    self.ended(part, error)  # something inside was cancelled, not this task
                except Exception as error:
                    self.ended(part, error)
                await asyncio.sleep(self.pause_s(part))
                self.started(part)
        finally:
            self.over(part)

    # --- what becomes of them ---

    def _add(self, name: str) -> _Part:
        part = _Part(name)
        with self._lock:
            self._parts[part] = None
        return part

    def ended(self, part: _Part, error: BaseException) -> None:
        """An exception has ended a part."""
        with self._lock:
            part.fault = self._last = shown(error)
            self._ended += 1
        self._tell(f"{part.name} was ended by an exception", error)

    def pause_s(self, part: _Part) -> float:
        """How long to wait before it is started again."""
        if time.monotonic() - part.since >= GOOD_LIFE_S:
            part.pause_s = FIRST_PAUSE_S
        pause_s, part.pause_s = part.pause_s, min(2 * part.pause_s, LONGEST_PAUSE_S)
        return pause_s

    def started(self, part: _Part) -> None:
        """It runs again."""
        part.since = time.monotonic()
        with self._lock:
            part.fault = ""
            self._started_again += 1

    def over(self, part: _Part) -> None:
        """Its owner has ended it."""
        with self._lock:
            self._parts.pop(part, None)

    def fatal(self, error: BaseException) -> None:
        """A vital part has ended: the broker must not go on."""
        self._on_fatal(error)

    # --- pieces of work ---

    def failed(self, what: str, error: BaseException) -> None:
        """A piece of work has failed, by an exception that nobody foresaw; everything else goes on."""
        now = time.monotonic()
        with self._lock:
            self._failed += 1
            self._last = shown(error)
            began, told = self._told.get(what, (now, 0))
            if now - began >= WINDOW_S:
                began, told = now, 0
            if len(self._told) >= MAX_KINDS:
                self._told.clear()
            self._told[what] = began, told + 1
        if told < MAX_TOLD:
            self._tell(what, error)

    def unexpected(self, context: dict[str, Any]) -> None:
        """What a callback or a forgotten task has raised: for `loop.set_exception_handler`."""
        what = str(context.get("message") or "a callback failed")
        error = context.get("exception")
        self.failed(what, error if isinstance(error, BaseException) else RuntimeError(what))

    def unexpected_in_thread(self, context: threading.ExceptHookArgs) -> None:
        """What has ended a thread that is no part: for `threading.excepthook`."""
        name = "?" if context.thread is None else context.thread.name
        self.failed(f"thread {name} was ended by an exception", context.exc_value or context.exc_type())

    # --- looking at them ---

    @property
    def trouble(self) -> str | None:
        """Which parts do not run now, and why; None while all do."""
        with self._lock:
            down = [f"{part.name} was ended by {part.fault}" for part in self._parts if part.fault]
        return "; ".join(down) or None

    def statistics(self) -> SupervisionStatistics:
        trouble = self.trouble
        with self._lock:
            return SupervisionStatistics(
                len(self._parts), self._ended, self._started_again, self._failed, trouble, self._last
            )


class WatchedThread:
    """A thread that is a part of a broker."""

    def __init__(self, supervisor: Supervisor, part: _Part, name: str, run: Callable[[], None], is_vital: bool) -> None:
        self._supervisor = supervisor
        self._part = part
        self._run = run
        self._is_vital = is_vital
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def end(self, patience_s: float | None = None) -> None:
        """Wait until it has returned; its owner has told it to. It is not started again any more."""
        self._is_over.set()
        self._thread.join(patience_s)

    def _live(self) -> None:
        supervisor, part = self._supervisor, self._part
        while True:
            try:
                self._run()
                break
            except BaseException as error:  # whatever it is, it must not end unseen
                supervisor.ended(part, error)
                if self._is_vital:
                    supervisor.fatal(error)
                    return
            if self._is_over.wait(supervisor.pause_s(part)):
                break
            supervisor.started(part)
        supervisor.over(part)


def once(
    name: str, work: Coroutine[Any, Any, None], otherwise: Callable[[], None] = lambda: None
) -> asyncio.Task[None]:
    """Do a piece of work in the running loop. The loop hears of an exception that ends it; then comes `otherwise`."""
    task = asyncio.get_running_loop().create_task(work, name=name)

    def done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            tell_loop(f"{name} failed", error)
            otherwise()

    task.add_done_callback(done)
    return task


def tell_loop(what: str, error: BaseException) -> None:
    """Tell whoever handles the exceptions of the running loop: of a broker's process that is its supervisor."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})


def shown(error: BaseException) -> str:
    """An exception as people read it, in one line."""
    text = ""
    with suppress(Exception):  # its words are somebody else's code
        text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MAX_SHOWN] if text else type(error).__name__
