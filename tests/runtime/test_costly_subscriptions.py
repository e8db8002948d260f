"""Subscriptions that cost more than a broker's loop may spend: real brokers, real sockets, a real worker process.

An attacker subscribes to what is expensive, and an honest client of the same broker notices nothing.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import veena
from tests.runtime.client_brokers import PATIENCE_S, run, until
from tests.runtime.processes import veena as started
from veena.client import Client, Subscription
from veena.core.boundary.explain import Reason
from veena.errors import RefusalCode
from veena.event import Event
from veena.runtime.broker.metrics import exposition
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config

#: No step that a client causes takes more of the loop's CPU time: 50 ms on a machine of its own (see
#: `benchmarks/steps.py`), and more where other tests share the caches.
STEP_S = 0.150


def wide(elements: int, last: int = 0) -> str:
    """A document with so many elements, which costs libxml2 their square or more."""
    return "<r>" + "".join(f"<a><b>{n}</b></a>" for n in range(elements)) + f"<z>{last}</z></r>"


#: False of every document, and true of those that end with an odd number.
FALSE, ODD = "//b[. = -1][//b]", "//z[. mod 2 = 1][//b]"
#: Above what is spent on any evaluation.
HOPELESS = "//*[translate(., //b, //a) = //b]"
SMALL, LARGE = 150, 600


@asynccontextmanager
async def broker(folder: Path, extra: str = "") -> AsyncIterator[Node]:
    text = f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[store]\npath = "{folder}/store"\n{extra}'
    node = Node(parse_config(text))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def pulse(publisher: Client, reader: Subscription, done: asyncio.Event) -> int:
    """An honest client's round trips until the attack is over: how many there were. One that is not served fails."""
    count = 0
    while not done.is_set() or count < 20:
        await publisher.publish(topic="pulse", reliable=count % 2 == 0)
        await reader.next(PATIENCE_S)
        count += 1
        await asyncio.sleep(0.005)
    return count


async def withstands(node: Node, attack: Callable[[Client], Awaitable[None]]) -> None:
    """During an attack an honest client is served, and no step takes long."""
    async with veena.connect(node.urls[0], client_id="honest") as honest:
        reader = await honest.subscribe(topic="pulse")
        await honest.subscribe(xpath="//nothing")  # from now on the engine is there
        await honest.publish(xml="<r/>")
        gc.collect()
        gc.freeze()  # what earlier tests of this process left behind is no work of this broker
        node.steps.forget()
        done = asyncio.Event()
        trips = asyncio.create_task(pulse(honest, reader, done))
        async with veena.connect(node.urls[0], client_id="mallory") as mallory:
            await attack(mallory)
        done.set()
        assert await trips >= 20
        found = node.steps.statistics()
        assert found.longest_ever_s < STEP_S, found.longest_cause


def test_few_costly_subscriptions_and_one_document(tmp_path: Path) -> None:
    """CLI-03, FLT-09: ten subscriptions of 0.1 to 2 s each, and a document of 16 kB, again and again."""

    async def scenario() -> None:
        async with broker(tmp_path) as node:

            async def attack(mallory: Client) -> None:
                texts = [f"//b[.. = {n} or .. > 4][. = -1]" for n in range(5)] + [
                    f"//a[//b = -{n}]" for n in range(1, 6)
                ]
                for text in texts:
                    await mallory.subscribe(xpath=text)
                for _ in range(5):
                    await mallory.publish(xml=wide(900))
                await until(lambda: node.driver.statistics().evaluations.made >= 2, 60)

            await withstands(node, attack)
            assert node.driver.statistics().evaluations.made >= 2

    run(scenario())


def test_many_subscriptions_and_many_documents(tmp_path: Path) -> None:
    """FLT-09: hundreds of expressions and selectors that the index cannot answer together within its share."""

    async def scenario() -> None:
        async with broker(tmp_path) as node:

            async def attack(mallory: Client) -> None:
                for number in range(100):
                    await mallory.subscribe(xpath=f"//b[. = {number}][//b]", wait=0)
                    await mallory.subscribe(topic="many", selector=f"p LIKE '%a%b%{number}%c%d%'", wait=0)
                node.steps.forget()  # subscribing has no such bound yet
                for number in range(40):
                    await mallory.publish(topic="many", properties={"p": "abcd" * 500}, xml=wide(SMALL, number))
                await until(lambda: node.driver.statistics().evaluations.made >= 100)

            await withstands(node, attack)

    run(scenario())


def test_verdicts_come_in_order_and_others_do_not_wait(tmp_path: Path) -> None:
    """I1, I5: what the index cannot decide is evaluated by the worker, and comes once and in order; a session waits for
    its own evaluations alone."""

    async def scenario() -> None:
        async with broker(tmp_path) as node:
            url = node.urls[0]
            async with (
                veena.connect(url, client_id="costly") as costly,
                veena.connect(url, client_id="cheap") as cheap,
                veena.connect(url, client_id="publisher") as publisher,
            ):
                odd = await costly.subscribe(xpath=ODD)
                own = await costly.subscribe(topic="news")
                never = await costly.subscribe(xpath=FALSE)
                other = await cheap.subscribe(topic="news")
                for number in range(10):
                    await publisher.publish(topic="news", xml=wide(LARGE, number), reliable=True)
                assert [await order_of(other) for _ in range(10)] == list(range(10))
                assert [await order_of(odd) for _ in range(5)] == [1, 3, 5, 7, 9]
                assert [await order_of(own) for _ in range(10)] == list(range(10))
                assert not never.waiting
                found = node.driver.statistics()
                assert found.evaluations.made >= 20
                assert (found.held.events, found.evaluations.waiting, found.evaluations.suspended) == (0, 0, 0)
                assert "veena_evaluations_total 2" in exposition(node.statistics()).decode()

    run(scenario())


async def order_of(subscription: Subscription) -> int:
    """The number of the next event."""
    return number_of(await subscription.next(PATIENCE_S))


def number_of(event: Event) -> int:
    assert isinstance(event.xml, str)
    return int(event.xml.partition("<z>")[2].partition("<")[0])


def test_what_costs_too_much_is_suspended_and_goes_on_from_its_cursor(tmp_path: Path) -> None:
    """FLT-05: a plain subscription ends, a durable one stays where it is; both say why, and other ones go on."""

    async def scenario() -> None:
        async with broker(tmp_path, 'records = "all"\n') as node:
            url = node.urls[0]
            async with (
                veena.connect(url, client_id="plain") as unkept,
                veena.connect(url, client_id="kept-only") as costly,
                veena.connect(url, client_id="publisher") as publisher,
            ):
                plain = await unkept.subscribe(xpath=HOPELESS)
                other = await unkept.subscribe(topic="news")
                kept = await costly.subscribe(xpath=HOPELESS.replace("//b)", "//b[1])"), durable="kept")
                for number in range(6):
                    await publisher.publish(topic="news", xml=wide(SMALL, number), reliable=True)
                assert [await order_of(other) for _ in range(6)] == list(range(6))
                for each in (plain, kept):
                    await until(lambda each=each: each.is_suspended)
                    assert each.suspension is not None and each.suspension.code is RefusalCode.WORK
                    assert "cheaper" in str(each.suspension)
                    assert "suspended: work" in repr(each)
                assert plain.not_kept >= 1
                await plain.close()  # what has ended can be ended
                assert node.driver.statistics().evaluations.suspended == 2
                last = await publisher.publish(xml=wide(SMALL, 6), reliable=True)
                told = await publisher.explain(last, "kept-only")
                assert (told.reason, "'kept'" in told.text, "suspended" in told.text) == (Reason.KEPT, True, True), told
                told = await publisher.explain(last, "plain")
                assert (told.reason, "suspended" in told.text) == (Reason.NOT_SUBSCRIBED, True), told
                await kept.close()
                again = await costly.subscribe(xpath=ODD, durable="kept")
                assert [await order_of(again) for _ in range(3)] == [1, 3, 5]
                assert not again.is_suspended
                await publisher.publish(topic="news", xml=wide(SMALL, 7), reliable=True)
                assert await order_of(again) == 7

    run(scenario())


def test_a_worker_that_is_killed_costs_no_event(tmp_path: Path) -> None:
    """FLT-01: kill -9 of the worker, at work and idle; its questions are asked again."""

    async def scenario() -> None:
        async with (
            broker(tmp_path) as node,
            veena.connect(node.urls[0], client_id="costly") as costly,
            veena.connect(node.urls[0], client_id="publisher") as publisher,
        ):
            odd = await costly.subscribe(xpath=ODD)
            kept = await costly.subscribe(xpath=ODD + "[1]", durable="kept")
            for number in range(4):
                await publisher.publish(topic="news", xml=wide(LARGE, number), reliable=True)
                await until(lambda: node.driver.worker.statistics().pid)
                os.kill(node.driver.worker.statistics().pid, signal.SIGKILL)
                if number % 2:
                    assert (await order_of(odd), await order_of(kept)) == (number, number)
            found = node.statistics()
            assert found.worker.ended >= 2
            assert found.worker.restarts >= 1
            assert found.broker.evaluations.suspended == 0
            assert node.supervisor.trouble is None

    run(scenario())


def test_a_broker_that_is_killed_with_evaluations_open(tmp_path: Path) -> None:
    """I5, FLT-01: kill -9 of the broker while events wait for verdicts: what is kept comes, once and in order."""
    (tmp_path / "b.toml").write_text(
        f'[broker]\nname = "b"\nlisten = ["veena://127.0.0.1:0"]\n[store]\npath = "{tmp_path}/store"\n'
    )

    async def fill(url: str) -> None:
        async with (
            veena.connect(url, client_id="publisher") as publisher,
            veena.connect(url, client_id="costly") as costly,
        ):
            kept = await costly.subscribe(xpath=ODD, durable="kept")
            await publisher.publish(topic="news", xml=wide(LARGE, 1), reliable=True)
            assert await order_of(kept) == 1
            for number in range(2, 12):
                await publisher.publish(topic="news", xml=wide(LARGE, number), reliable=True)

    async def rest(url: str) -> None:
        async with veena.connect(url, client_id="costly") as costly:
            kept = await costly.subscribe(xpath=ODD, durable="kept")
            event = await kept.next(PATIENCE_S)
            first = number_of(event)
            assert first == 3 or (first == 1 and event.redelivered), "its acknowledgement may not have been on disk"
            wanted = range(first + 2, 12, 2)
            assert [await order_of(kept) for _ in wanted] == list(wanted)

    command = ("broker", "run", "--config", str(tmp_path / "b.toml"), "--json")
    with started(*command) as first:
        run(fill(first.told()["url"]))
        first.process.kill()
        first.process.wait()
    with started(*command) as second:
        run(rest(second.told()["url"]))


def test_a_query_gets_the_verdict_of_the_worker(tmp_path: Path) -> None:
    """DSC-04: an XPath that costs more on a document than the loop may spend is decided outside of it."""

    async def scenario() -> None:
        async with (
            broker(tmp_path) as node,
            veena.connect(node.urls[0], client_id="offering") as offering,
            veena.connect(node.urls[0], client_id="asking") as asking,
        ):
            for last in (1, 2):
                await offering.advertise(f"wide{last}", xml=wide(LARGE, last))
            await offering.advertise("small", xml="<r><b/><z>3</z></r>")
            node.steps.forget()
            found = await asking.query(xpath=ODD)
            assert sorted(row.name for row in found) == ["small", "wide1"] and found.undecided == 0
            assert node.driver.broker.statistics().evaluations.made == 2
            assert node.steps.statistics().longest_ever_s < STEP_S
            hopeless = await asking.query(xpath=HOPELESS)
            assert [row.name for row in hopeless] == ["small"] and hopeless.undecided == 2

    run(scenario())
