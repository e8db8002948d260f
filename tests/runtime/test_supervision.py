"""No thread and no task of a broker ends unseen: exceptions planted into real brokers by what these are given."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from functools import partial
from typing import Any, cast

import pytest

import veena
from tests.runtime.client_brokers import bodies, run, until
from veena.cli.broker.status import summary
from veena.core.boundary.inputs_effects import Read
from veena.runtime import supervision
from veena.runtime.broker.metrics import exposition
from veena.runtime.broker.node import Node
from veena.runtime.broker.process import EXIT_FAILURE
from veena.runtime.config.reader import parse_config
from veena.runtime.supervision import Supervisor, once

BROKER = '[broker]\nname = "b"\nlisten = ["veena://127.0.0.1:0"]\n[http]\nlisten = "127.0.0.1:0"\n'
#: What no store, no reader and no task expects.
NONSENSE = cast(Any, object())


async def page(node: Node, name: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{node.http_url}/{name}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def keeps_and_delivers(node: Node, name: str) -> None:
    """A durable subscription gets what came while its client was away: the log is read for that."""
    for is_back in (False, True):
        async with veena.connect(node.urls[0], client_id=name) as client:
            kept = await client.subscribe(topic=name, durable="kept", scope="cluster")
            if is_back:
                assert await bodies(kept, 1) == ["here"]
        if not is_back:
            async with veena.connect(node.urls[0]) as writer:
                await writer.publish(topic=name, body=b"here", reliable=True)


def traces(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged with an exception."""
    return [record.getMessage() for record in caplog.records if record.exc_info]


def test_a_read_that_fails_is_answered_and_the_next_ones_are_read(caplog: pytest.LogCaptureFixture) -> None:
    """A number that SQLite cannot compare ended the thread that reads, and durable delivery with it."""

    async def scenario() -> None:
        node = Node(parse_config(BROKER))
        await node.start()
        try:
            node.store.submit(Read(1 << 40, 0, 10, 0, 1 << 63))
            node.store.submit(Read(1 << 41, 1 << 63, 10))
            await keeps_and_delivers(node, "alice")
            found = node.supervisor.statistics()
            assert (found.ended, found.failed, found.trouble) == (0, 2, None) and "OverflowError" in found.last
            assert await page(node, "readyz") == (200, "ready\n")
        finally:
            await node.stop()

    run(scenario())
    assert traces(caplog) == ["a read of the log failed"] * 2


def test_a_thread_that_ends_is_logged_shown_and_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads is given no read at all; `/readyz` said ready while nothing was read any more."""
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 3.0)

    async def scenario() -> None:
        node = Node(parse_config(BROKER))
        await node.start()
        try:
            async with veena.connect(node.urls[0]) as client:
                node.store.submit(NONSENSE)
                await until(lambda: node.supervisor.trouble is not None)
                code, why = await page(node, "readyz")
                assert code == 503 and why.startswith("thread veena-store-reader was ended by AttributeError")
                told = summary(await client.status())
                assert told["trouble"].startswith("thread veena-store-reader") and told["parts_ended"] == 1
                assert "veena_parts_trouble 1.0" in exposition(node.statistics()).decode()
                await until(lambda: node.supervisor.trouble is None)
                assert await page(node, "readyz") == (200, "ready\n")
                await keeps_and_delivers(node, "bob")
                told = summary(await client.status())
                assert (told["trouble"], told["parts_ended"]) == (None, 1)
                assert told["last_failure"].startswith("AttributeError")
        finally:
            await node.stop()
        assert node.supervisor.statistics().parts == 0, "whoever owns a part has ended it"

    run(scenario())
    assert traces(caplog)[-1] == "thread veena-store-reader was ended by an exception"


def test_a_task_that_ends_is_logged_shown_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """The task that publishes staged batches is given one that is none; it goes on when that is gone."""

    async def scenario() -> None:
        node = Node(parse_config(BROKER))
        await node.start()
        try:
            await until(lambda: node.why_not_ready() is None)
            planted = [NONSENSE]
            assert node.staging.on_published is not None
            node.staging.on_published(planted)
            await until(lambda: node.supervisor.trouble is not None)
            assert (await page(node, "readyz"))[1].startswith("task publishing of staged batches was ended by Attr")
            await until(lambda: node.supervisor.statistics().ended == 2)
            assert node.supervisor.statistics().started_again == 1
        finally:
            await node.stop()

    run(scenario())
    assert set(traces(caplog)) == {"task publishing of staged batches was ended by an exception"}


WITHOUT_A_WRITER = """
import asyncio, sys
from veena.core.boundary.inputs_effects import Store
from veena.runtime.broker.process import run, serve
from veena.runtime.config.reader import parse_config
config = parse_config('[broker]\\nlisten = ["veena://127.0.0.1:0"]\\n')
plant = lambda node: node.store.submit(Store("no number", ()))
sys.exit(run(serve(config, lambda: config, lambda node: None, plant)))
"""


def test_a_broker_that_cannot_write_any_more_stops_with_an_exit_code() -> None:
    """The thread that writes is given a ticket that cannot be answered: nobody may be told that more is kept."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_WRITER], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == EXIT_FAILURE, done.stderr
    assert "thread veena-store-writer was ended by an exception" in done.stderr
    assert "TypeError" in done.stderr


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_good_life(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, is_over = Supervisor(lambda what, error: None), threading.Event()

    def wait() -> None:
        is_over.wait()

    thread = supervisor.thread("patient", wait)
    (part,) = supervisor._parts
    assert [supervisor.pause_s(part) for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    monkeypatch.setattr(supervision, "GOOD_LIFE_S", 0.0)
    assert supervisor.pause_s(part) == 0.5
    is_over.set()
    thread.end()
    assert supervisor.statistics().parts == 0


def test_a_task_is_watched_until_its_owner_ends_it() -> None:
    """An inner future that somebody cancelled ends the work, not the watching; `cancel` ends both."""

    async def scenario() -> None:
        told: list[str] = []
        supervisor = Supervisor(lambda what, error: told.append(f"{what}: {type(error).__name__}"))
        lives = 0

        async def work() -> None:
            nonlocal lives
            lives += 1
            future = asyncio.get_running_loop().create_future()
            if lives == 1:
                future.cancel()
            await future

        task = supervisor.task("work", work)
        await until(lambda: lives == 2)
        assert told == ["task work was ended by an exception: CancelledError"] and supervisor.trouble is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() and supervisor.statistics().parts == 0

    run(scenario())


def test_work_that_fails_once_is_told_and_counted_but_not_without_end() -> None:
    """Somebody may cause failures at will: all are counted, a few of a kind are told."""

    async def scenario() -> None:
        told: list[str] = []
        supervisor = Supervisor(lambda what, error: told.append(f"{what}: {error}"))
        asyncio.get_running_loop().set_exception_handler(lambda _, context: supervisor.unexpected(context))
        ended: list[int] = []

        async def dial() -> None:
            raise ValueError("no such name")

        for number in range(20):
            once("a dial", dial(), partial(ended.append, number))
        await until(lambda: len(ended) == 20)
        assert supervisor.statistics().failed == 20
        assert told == ["a dial failed: no such name"] * supervision.MAX_TOLD

    run(scenario())
