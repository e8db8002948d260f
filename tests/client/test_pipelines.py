"""Many events at once: batches and pipelines, whatever goes wrong in the middle of them."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.client_brokers import PATIENCE_S, QUICK, Site, bodies, nothing_more, run, text, until
from tests.runtime.processes import veena
from veena.client import Receipt, connect
from veena.errors import InvalidEvent, LocalProtocolError, NotConnected, Overloaded
from veena.event import Event, EventId


def numbered(count: int, first: int = 0) -> list[Event]:
    return [Event(topic="t", properties={"n": n}, body=b"%d" % n) for n in range(first, first + count)]


def test_a_pipeline_keeps_order_and_its_window() -> None:
    """UID-07, QOS-01: events are accepted in their order, and no more are under way than the window says."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            assert site.peer is not None
            async with alice.pipeline(window=8) as pipeline:
                site.peer.holds = []
                receipts = [await pipeline.publish_event(event) for event in numbered(8)]
                full = asyncio.create_task(pipeline.publish(topic="t", body=b"8"))
                await until(lambda: site.peer is not None and site.peer.holds)
                assert pipeline.under_way == 8 and not full.done()
                assert not any(receipt.is_done or receipt.id for receipt in receipts)
                site.peer.release()
                receipts.append(await full)
                assert await receipts[3] == receipts[3].id
            assert pipeline.under_way == 0
            ids = [await receipt for receipt in receipts]
            assert ids == sorted(ids, key=EventId.parse)
            got = [await wanted.next(PATIENCE_S) for _ in ids]
            assert [event.id for event in got] == ids
            assert [text(event) for event in got] == [str(n) for n in range(9)]

    run(scenario())


def test_a_pipeline_goes_on_when_its_broker_was_killed_in_the_middle_of_a_window() -> None:
    """CLI-05, DUP-08: what was accepted is not sent again, the rest is, in its order, and arrives once."""

    async def scenario() -> None:
        async with Site() as site, site.client("reader") as reader, site.client("writer") as writer:
            wanted = await reader.subscribe(topic="t", durable="all")
            pipeline = writer.pipeline(window=50)
            early = [await pipeline.publish_event(event) for event in numbered(20)]
            await pipeline.flush()
            assert site.peer is not None
            site.peer.holds = []
            late = [await pipeline.publish_event(event) for event in numbered(30, 20)]
            await until(lambda: len(site.kept.disk.entries) >= 30)
            await site.kill()
            more = [await pipeline.publish_event(event) for event in numbered(10, 50)]
            await site.start()
            await pipeline.flush()
            assert all(receipt.id for receipt in (*early, *late, *more))
            assert await bodies(wanted, 60) == [str(n) for n in range(60)]
            assert await nothing_more(wanted)

    run(scenario())


@pytest.mark.slow
def test_kill_9_of_a_broker_process_in_the_middle_of_a_window(tmp_path: Path) -> None:
    """I1, CLI-05, QOS-01: nothing that was acknowledged is lost, nothing is delivered twice, the order stays."""
    file = tmp_path / "one.toml"
    file.write_text('[network]\nname = "one"\nlevels = 2\n[[broker]]\naddress = "a.1"\n')

    async def scenario(url: str, pid: int) -> None:
        async with connect(url, client_id="reader") as reader, connect(url, client_id="writer") as writer:
            wanted = await reader.subscribe(topic="t", durable="all")
            receipts: list[Receipt] = []
            async with writer.pipeline(window=500) as pipeline:
                for number, event in enumerate(numbered(3_000)):
                    receipts.append(await pipeline.publish_event(event))
                    if number == 1_500:
                        os.kill(pid, signal.SIGKILL)
            assert [receipt for receipt in receipts if receipt.id is None] == []
            got: list[str] = []
            while len(got) < 3_000:
                got += [text(event) for event in await wanted.next_batch(timeout=PATIENCE_S)]
            assert got == [str(n) for n in range(3_000)]
            assert await nothing_more(wanted)
            assert writer.statistics().connections == 2

    with veena("network", "up", str(file), "--json", "--restart", "--data", str(tmp_path / "run")) as network:
        told = network.told()
        assert network.told()["ready"]
        run(scenario(told["url"], told["pid"]))


@pytest.mark.parametrize("reliable", [False, True])
def test_a_wrong_event_in_the_middle_of_a_batch(reliable: bool) -> None:
    """EVT-03: the error names the event, its field, the value and the remedy, and tells which were published."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            events = numbered(12)
            events[7] = replace(events[7], properties={"price": [1, 2]})  # type: ignore[dict-item]
            with pytest.raises(InvalidEvent) as caught:
                await alice.publish_many(events, reliable=reliable)
            for word in ("event 7 of 12", "7 were published", "property 'price'", "[1, 2]", "convert it to one of"):
                assert word in str(caught.value)
            published = caught.value.published
            assert published is not None and [each is not None for each in published] == [True] * 7 + [False] * 5
            got = [await wanted.next(PATIENCE_S) for _ in range(7)]
            assert [event.id for event in got] == list(published[:7])
            assert await nothing_more(wanted)
            with pytest.raises(InvalidEvent, match=r"event 0 of 1 .* is a str: expected a veena\.Event"):
                await alice.publish_many(["no event"], reliable=reliable)  # type: ignore[list-item]
            pipeline = alice.pipeline()
            with pytest.raises(InvalidEvent, match="property 'price'"):
                await pipeline.publish_event(events[7])
            assert pipeline.under_way == 0 and await nothing_more(wanted)
            await pipeline.flush()

    run(scenario())


def test_who_does_not_want_to_wait_hears_how_far_a_batch_got() -> None:
    """QOS-03: with block=False a batch ends where the connection takes no more."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            events = [Event(topic="t", body=bytes(100_000))] * 1000
            with pytest.raises(Overloaded, match=r"event \d+ of 1000") as caught:
                await writer.publish_many(events, block=False)
            published = caught.value.published
            assert published is not None and len(published) == 1000
            count = sum(each is not None for each in published)
            assert 0 < count < 1000 and all(published[:count])

    run(scenario())


def test_refused_events_of_a_pipeline_are_told_once() -> None:
    """FLT-07: a refusal is raised by whoever awaits the receipt, otherwise by `flush`."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            pipeline = alice.pipeline()
            assert site.peer is not None
            site.peer.fault = "no space left"
            receipts = [await pipeline.publish_event(event) for event in numbered(3)]
            with pytest.raises(Exception, match="no space left"):
                await receipts[0]
            with pytest.raises(Exception, match="no space left"):
                await pipeline.flush()
            site.peer.fault = None
            await pipeline.flush()
            assert await (await pipeline.publish(topic="t"))

    run(scenario())


def test_a_batch_that_is_cancelled_or_cut_off_by_close() -> None:
    """CLI-07: what was taken goes on after a cancellation; a closed client says what is not known."""

    async def scenario() -> None:
        async with Site(settings=replace(QUICK, max_open=4)) as site, site.client("reader") as reader:
            wanted = await reader.subscribe(topic="t")
            async with site.client("writer") as writer:
                assert site.peer is not None
                site.peer.holds = []
                sending = asyncio.create_task(writer.publish_many(numbered(6), reliable=True))
                await until(lambda: site.peer is not None and site.peer.holds)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
                site.peer.release()
                assert await bodies(wanted, 6) == [str(n) for n in range(6)]
                site.peer.holds = []
                pipeline = writer.pipeline()
                receipts = [await pipeline.publish_event(event) for event in numbered(3, 6)]
                batch = asyncio.create_task(writer.publish_many(numbered(3, 9), reliable=True))
                await until(lambda: writer.statistics().unaccepted == 6)
            with pytest.raises(NotConnected, match="not known whether it was accepted"):
                await receipts[2]
            with pytest.raises(NotConnected, match="event 0 of 3") as caught:
                await batch
            assert caught.value.published == (None, None, None)
            with pytest.raises(NotConnected):
                await pipeline.publish(topic="t")

    run(scenario())


def test_windows_are_bounded() -> None:
    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            for window in (0, 1 << 20):
                with pytest.raises(LocalProtocolError, match=f"window {window}: expected 1 to 65536"):
                    alice.pipeline(window=window)

    run(scenario())
