"""The process that evaluates: verdicts, its end in every way, and what it does not have of its broker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.matching.base.verdict import Verdict
from veena.matching.base.work import OUTSIDE_WORK
from veena.runtime.evaluation.worker import DEADLINE_S, Worker
from veena.runtime.logging.logs import Log
from veena.runtime.supervision import Supervisor

WIDE = "<r>" + "".join(f"<a><b>{n}</b></a>" for n in range(600)) + "</r>"
CHEAP, COSTLY = "//b[. = 5][//b]", "//b[.. = 3 or .. > 4][//a[//b = ..]]"


class Asker:
    """Asks a worker and waits for its answers."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.supervisor = Supervisor()
        self.worker = Worker(self._answered, self.supervisor, Log(), deadline_s=deadline_s)
        self._waiting: dict[int, asyncio.Future[Evaluated]] = {}

    def _answered(self, answer: Evaluated) -> None:
        self._waiting.pop(answer.ticket).set_result(answer)

    def begin(self, text: str, document: str | bytes = WIDE, work: int = OUTSIDE_WORK) -> asyncio.Future[Evaluated]:
        ticket = max(self._waiting, default=0) + 1
        found = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self.worker.submit(Evaluate(ticket, "xpath", (text, {}), document, work))
        return found

    async def ask(self, text: str, document: str | bytes = WIDE, work: int = OUTSIDE_WORK) -> Evaluated:
        return await asyncio.wait_for(self.begin(text, document, work), 30)


@asynccontextmanager
async def asking(deadline_s: float = DEADLINE_S) -> AsyncIterator[Asker]:
    asker = Asker(deadline_s)
    try:
        yield asker
    finally:
        await asker.worker.stop()


async def until(is_so: object) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # type: ignore[operator]
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_verdicts_are_those_of_the_budget() -> None:

    async def scenario() -> None:
        async with asking() as asker:
            assert asker.worker.statistics().pid == 0, "it is started when it is needed"
            assert (await asker.ask(CHEAP)).verdict is Verdict.TRUE
            assert (await asker.ask("//b[. = -1][//b]")).verdict is Verdict.FALSE
            assert (await asker.ask(CHEAP, WIDE.encode())).verdict is Verdict.TRUE
            too_much = await asker.ask(CHEAP, work=1000)
            assert too_much.verdict is Verdict.TOO_MUCH
            assert (await asker.ask(CHEAP)).work > 100_000, "what was spent is told"
            found = asker.worker.statistics()
            assert (found.started, found.ended, found.restarts, found.waiting) == (1, 0, 0, 0)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_process_that_is_killed_is_replaced() -> None:
    """kill -9 while it has nothing to do, and while it works."""

    async def scenario() -> None:
        async with asking() as asker:
            await asker.ask(CHEAP)
            os.kill(asker.worker.statistics().pid, signal.SIGKILL)
            await until(lambda: asker.worker.statistics().ended == 1)
            assert (await asker.ask(CHEAP)).verdict is Verdict.TRUE
            os.kill(asker.worker.statistics().pid, signal.SIGSTOP)  # it is at work for as long as it is stopped
            waiting = asker.begin(CHEAP)
            os.kill(asker.worker.statistics().pid, signal.SIGKILL)
            assert (await asyncio.wait_for(waiting, 20)).verdict is Verdict.FAILED
            assert (await asker.ask(CHEAP)).verdict is Verdict.TRUE
            found = asker.worker.statistics()
            assert (found.started, found.ended, found.restarts) == (3, 2, 2)
            assert asker.supervisor.statistics().trouble is None

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_takes_too_long_is_broken_off() -> None:

    async def scenario() -> None:
        async with asking(deadline_s=0.3) as asker:
            while (await asker.ask("//b[. = 5]")).verdict is Verdict.FAILED:
                pass  # a machine under load may need longer to start it
            pid = asker.worker.statistics().pid
            os.kill(pid, signal.SIGSTOP)
            assert (await asker.ask(CHEAP)).verdict is Verdict.FAILED
            assert asker.worker.statistics().overdue >= 1
            assert not is_alive(pid)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_it_ends_with_its_broker() -> None:

    async def scenario() -> None:
        async with asking() as asker:
            await asker.ask(CHEAP)
            pid = asker.worker.statistics().pid
        assert not is_alive(pid)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_it_ends_when_its_broker_is_killed() -> None:
    """Its input ends then, also while libxml2 is at work."""

    async def scenario() -> None:
        program = (
            "import asyncio\n"
            "from tests.runtime.evaluation.test_worker import Asker, COSTLY, WIDE\n"
            "async def main():\n"
            "    asker = Asker()\n"
            "    await asker.ask('//b')\n"
            "    print(asker.worker.statistics().pid, flush=True)\n"
            "    await asker.ask(COSTLY, WIDE, 1 << 60)\n"
            "asyncio.run(main())\n"
        )
        broker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert broker.stdout is not None
        pid = int(await broker.stdout.readline())
        broker.kill()
        await broker.wait()
        await until(lambda: not is_alive(pid))

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_it_has_nothing_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sockets nor secrets, and only so much memory."""

    async def scenario() -> None:
        monkeypatch.setenv("VEENA_TOKEN", "a secret")
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            door.listen()
            door.set_inheritable(True)  # even so
            async with asking() as asker:
                await asker.ask(CHEAP)
                place = Path(f"/proc/{asker.worker.statistics().pid}")
                held = [os.readlink(each) for each in (place / "fd").iterdir()]
                assert not [each for each in held if each.startswith("socket:") and each in sockets_of(door)]
                assert b"a secret" not in (place / "environ").read_bytes()
                limits = (place / "limits").read_text(encoding="ascii")
                (memory,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
                assert int(memory.split()[3]) < 4 << 30

    asyncio.run(asyncio.wait_for(scenario(), 60))


def sockets_of(door: socket.socket) -> list[str]:
    return [os.readlink(f"/proc/self/fd/{door.fileno()}")]
