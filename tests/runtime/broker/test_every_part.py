"""Every thread, task and timer of a broker, ended by an exception: seen, told, and at work again; real brokers.

Exceptions are raised inside: in a thread where it runs next, in a task by what it waits for, in a timer by
what it asks.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.client_brokers import run, until
from tests.runtime.raw_client import attach
from tests.runtime.test_supervision import keeps_and_delivers, page
from veena.core.boundary.inputs_effects import ClientUp, Read
from veena.core.wire.log_tables import AskLogEnds, TellLogEnds
from veena.runtime import supervision
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config

#: What every broker has; `serving` starts each of them.
THREADS = {"veena-audit", "veena-store-reader", "veena-store-writer", "veena-log-0", "veena-log-1"}
TASKS = {"publishing of staged batches", "locator", "link to veena://127.0.0.1:9"}
#: Threads of pools: what they run answers to whoever waits for it.
POOLS = ("asyncio_", "veena-passwords", "veena-staging")


async def read_tables(node: Node) -> None:
    """Ask what each thread that reads tables has to answer."""
    for number in range(4):
        reader = await attach(node.urls[0], f"reader-{number}")
        reader.say(AskLogEnds(1, "events"))
        await reader.wait(TellLogEnds)
        reader.stream.close("done")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Node]:
    """A broker with everything that a configuration can ask for."""
    node = Node(
        parse_config(
            f'[broker]\nname = "b"\nlisten = ["veena://127.0.0.1:0"]\n[audit]\nfile = "{folder}/audit.jsonl"\n'
            f'[store]\npath = "{folder}/store"\nrecords = "all"\n[http]\nlisten = "127.0.0.1:0"\n'
            '[locator]\nserve = true\n[links]\ndial = ["veena://127.0.0.1:9"]\nretry_s = 9\nretry_s_max = 9\n'
        )
    )
    before = set(threading.enumerate())
    await node.start()
    try:
        await read_tables(node)
        found = {each.name for each in set(threading.enumerate()) - before if not each.name.startswith(POOLS)}
        assert found == THREADS, "give every new thread an end in this test"
        tasks = {task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-")}
        assert tasks == TASKS, "give every new task an end in this test"
        assert node.supervisor.statistics().parts == len(THREADS) + len(TASKS)
        yield node
    finally:
        await node.stop(drain_s=0.1)


class PlantedError(Exception):
    """Raised inside whatever this test ends."""


def end_thread(name: str) -> None:
    """Raise where a thread runs next; one that waits is woken by `poke`."""
    (thread,) = (each for each in threading.enumerate() if each.name == name)
    assert thread.ident is not None
    count = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(PlantedError))
    assert count == 1


async def poke(node: Node, name: str) -> None:
    """Have a thread do something."""
    if name == "veena-store-reader":
        node.store.submit(Read(1 << 40, 0, 1))
    elif name == "veena-store-writer":
        node.store.keep()
    elif name == "veena-audit":
        node._note("poked")
    else:
        await read_tables(node)


def waits_for(name: str) -> Any:
    """The future that a task waits for: what is broken off is that, not the task."""
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == name)
    return getattr(task, "_fut_waiter")  # noqa: B009 (nothing else tells it)


@pytest.mark.parametrize("name", sorted(THREADS - {"veena-store-writer"}))
def test_a_thread_that_ends_is_told_and_begins_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.3)

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            end_thread(name)
            poking = asyncio.create_task(poke(node, name))
            await until(lambda: node.supervisor.trouble is not None)
            assert f"thread {name} was ended by" in str(node.supervisor.trouble)
            code, why = await page(node, "readyz")
            assert code == 503 and f"thread {name}" in why
            await until(lambda: node.supervisor.trouble is None)
            assert (await page(node, "readyz"))[0] == 200
            poking.cancel()  # what the thread had just taken may be lost with it
            await asyncio.wait_for(poke(node, name), 20)
            if name == "veena-store-reader":
                await keeps_and_delivers(node, "alice")
            assert node.supervisor.statistics().ended == 1

    run(scenario())
    assert any(f"thread {name} was ended" in each.getMessage() and each.exc_info for each in caplog.records)


def test_the_thread_that_writes_ends_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as node:
            end_thread("veena-store-writer")
            await poke(node, "veena-store-writer")
            await asyncio.wait_for(node.ended.wait(), 20)
            assert isinstance(node.failure, PlantedError)

    run(scenario())
    assert any("thread veena-store-writer was ended" in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_task_that_ends_is_told_and_begins_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.3)

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            await until(lambda: waits_for(name) is not None)
            waits_for(name).cancel()
            await until(lambda: node.supervisor.trouble is not None)
            code, why = await page(node, "readyz")
            assert code == 503 and why.startswith(f"task {name} was ended by CancelledError")
            await until(lambda: node.supervisor.trouble is None)
            assert node.supervisor.statistics().started_again == 1

    run(scenario())
    assert any(f"task {name} was ended" in each.getMessage() for each in caplog.records)


def _raise(*_: object) -> Any:
    raise PlantedError("by the test")


def test_a_core_that_cannot_say_when_to_wake_it_ends_the_broker(tmp_path: Path) -> None:
    """It would never have been woken again, and heard nothing of silent neighbours and deadlines."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            setattr(node.driver.broker, "next_wakeup", _raise)  # noqa: B010
            node.driver.give(ClientUp(node.driver.new_session(), "anybody"))
            await asyncio.wait_for(node.ended.wait(), 20)
            assert isinstance(node.failure, PlantedError)

    run(scenario())


def test_looking_after_links_goes_on_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates and grants of the others are judged on; the link that failed is made again."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            other = Node(
                parse_config(
                    '[broker]\nname = "c"\naddress = "0.0.0.1"\nlisten = ["veena://127.0.0.1:0"]\n'
                    f'[links]\nretry_s = 0.02\ndial = ["{node.urls[0]}"]\n'
                )
            )
            await other.start()
            try:
                await until(lambda: (0, 0, 0, 1) in node.driver.reached)
                first = next(iter(node.driver.links._ends))
                monkeypatch.setattr(node.driver.links._ends[first], "measure", _raise)
                await until(lambda: node.driver.links._ends and first not in node.driver.links._ends)
                await until(lambda: (0, 0, 0, 1) in node.driver.reached)
            finally:
                await other.stop(drain_s=0.1)

    run(scenario())
