"""The worker of a broker: a process that evaluates what costs too much for the loop, and that can be ended.

It is started with the first question. One question is with it at a time; the core gives out few at once
(`core.delivery.evaluations`), so the queue here is bounded by that. An evaluation that is not done after `DEADLINE_S`
is broken off by killing the process; budgets of work are the rule, and this is the last resort, for a machine that is
too slow or a fault in libxml2. When the process ends, for whatever reason, its question fails, the end is logged and
counted, and the next question starts another one.

The invariant: each question is answered once; no process outlives its broker, which closes its input in any case.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.matching.base.verdict import Verdict
from veena.runtime.evaluation.process import LENGTH, MAX_MESSAGE, Question, encode, framed, read_answer
from veena.runtime.logging.logs import Log
from veena.runtime.supervision import Supervisor

#: One evaluation may take so long: five times what the largest takes on a machine with nothing else to do.
DEADLINE_S: Final = 10.0
#: What the process is started with, and what of the environment it gets: nothing that is secret.
COMMAND: Final = ("-P", "-c", "from veena.runtime.evaluation.process import main; main()")
ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LANG", "LC_ALL", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    #: The process, 0 while there is none; and questions that wait for it.
    pid: int = 0
    waiting: int = 0
    #: Since the start: processes that were started, that ended without being told to, and that took too long.
    started: int = 0
    ended: int = 0
    overdue: int = 0

    @property
    def restarts(self) -> int:
        """Processes that were started after the first."""
        return max(0, self.started - 1)


class Worker:
    """One a broker; to be used in its loop."""

    def __init__(
        self,
        answer: Callable[[Evaluated], None],
        supervisor: Supervisor,
        log: Log,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._answer = answer
        self._supervisor = supervisor
        self._log = log
        self._deadline_s = deadline_s
        self._queue: deque[Evaluate] = deque()
        self._has_more = asyncio.Event()
        self._process: Process | None = None
        #: The one that was ended last, by this side.
        self._killed: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._started = self._ended = self._overdue = 0

    def submit(self, effect: Evaluate) -> None:
        """Evaluate this when its turn comes."""
        if self._is_over:
            return
        self._queue.append(effect)
        self._has_more.set()
        if not self._tasks:
            self._tasks.append(self._supervisor.task("evaluations", self._serve))

    async def _serve(self) -> None:
        while True:
            while not self._queue:
                self._has_more.clear()
                await self._has_more.wait()
            process = self._process or await self._start()
            found = await self._ask(process, self._queue[0])
            self._queue.popleft()
            self._answer(found)

    async def _start(self) -> Process:
        """Start the process; raises OSError where there can be none now, and the question stays."""
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, *COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        self._started += 1
        self._log.info("a process evaluates what costs too much for the loop", pid=process.pid)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._supervisor.task(f"evaluating process {process.pid}", lambda: self._watch(process)))
        return process

    async def _watch(self, process: Process) -> None:
        """Wait for the end of a process, whenever it comes."""
        code = await process.wait()
        if self._process is process:
            self._process = None
            self._note_end(code)

    def _note_end(self, code: int | None) -> None:
        self._ended += 1
        self._log.warning("the process that evaluates has ended; the next question starts another", code=code)

    async def _ask(self, process: Process, effect: Evaluate) -> Evaluated:
        assert process.stdin is not None
        assert process.stdout is not None
        document, is_text = effect.document, isinstance(effect.document, str)
        data = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
        question = Question(effect.ticket, effect.engine, effect.constraint, data, is_text, effect.work)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(self._deadline_s):
                process.stdin.write(framed(encode(question)))
                await process.stdin.drain()
                (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                if length > MAX_MESSAGE:
                    raise ConnectionError(f"an answer of {length} bytes")
                found = read_answer(await process.stdout.readexactly(length))
        except TimeoutError:
            self._overdue += 1
            self._log.warning("an evaluation took too long: its process is ended", after_s=self._deadline_s)
            await self._end(process)
            return Evaluated(effect.ticket, Verdict.FAILED)
        except (OSError, asyncio.IncompleteReadError, ValueError):  # what is no message is a ValueError
            await self._end(process)
            self._note_end(process.returncode)
            return Evaluated(effect.ticket, Verdict.FAILED)
        return Evaluated(effect.ticket, found.verdict, found.work)

    def _kill(self, process: Process) -> None:
        with suppress(ProcessLookupError):
            process.kill()

    async def _end(self, process: Process) -> None:
        if self._process is process:
            self._process = None
        self._kill(process)
        await process.wait()

    def forget(self) -> None:
        """Nobody waits for what was asked so far: its core is no more. What is being evaluated is answered in vain."""
        while len(self._queue) > 1:
            self._queue.pop()

    def abort(self) -> None:
        """End the process, from now on, and answer nothing more."""
        self._is_over = True
        process, self._process = self._process, None
        if process is not None:
            self._kill(process)
            self._killed = process
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """The same, and wait until it has ended."""
        self.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._killed is not None:
            await self._killed.wait()

    def statistics(self) -> WorkerStatistics:
        pid = 0 if self._process is None else self._process.pid
        return WorkerStatistics(pid, len(self._queue), self._started, self._ended, self._overdue)
