"""Clients that are cut off, roam and come back: nothing that was accepted is lost, nothing comes twice."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, bodies, nothing_more, run, text, two_sites, until
from tests.runtime.wording import Wording
from veena.client import Client, connect
from veena.core.wire.client import ClientHello, TellRedirect
from veena.core.wire.codec import Decoder, encode
from veena.errors import NotConnected, TimedOut
from veena.event import Event, EventId


def test_a_killed_broker_comes_back_with_its_disk() -> None:
    """CLI-05, CLI-07, DUP-02: a durable subscriber and a publisher go on; no loss, no repeat, in order."""

    async def scenario() -> None:
        async with (
            Site() as site,
            site.client("reader", heartbeat=0.2) as reader,
            site.client("writer", heartbeat=0.2) as writer,
        ):
            wanted = await reader.subscribe(topic="quotes", durable="all")
            sent = [f"{number}" for number in range(60)]
            before = asyncio.create_task(_publish_all(writer, sent[:20]))
            got = await bodies(wanted, 10)
            await before
            await site.kill()
            during = asyncio.create_task(_publish_all(writer, sent[20:40]))
            await until(lambda: not writer.is_connected and not reader.is_connected)
            await site.start()
            await during
            got += await bodies(wanted, 30)
            await _publish_all(writer, sent[40:])
            got += await bodies(wanted, 20)
            assert got == sent
            assert await nothing_more(wanted)
            assert reader.statistics().connections == 2

    run(scenario())


async def _publish_all(client: Client, sent: list[str]) -> None:
    for body in sent:
        await client.publish(topic="quotes", body=body.encode(), reliable=True)


def test_what_was_not_accepted_is_repeated_under_its_first_id() -> None:
    """DUP-08: the disk had it, the word did not come back; what is repeated names its original and is had once."""

    async def scenario() -> None:
        async with Site() as site, site.client("reader") as reader, site.client("writer") as writer:
            wanted = await reader.subscribe(topic="quotes", durable="all")
            await writer.publish(topic="quotes", body=b"first", reliable=True)
            assert await bodies(wanted, 1) == ["first"]
            assert site.peer is not None
            site.peer.holds = []
            lost = asyncio.create_task(
                writer.publish_many([Event(topic="quotes", body=b"%d" % n) for n in range(5)], reliable=True)
            )
            await until(lambda: len(site.kept.disk.entries) >= 6)
            incarnation = EventId.parse(await writer.publish(topic="other")).incarnation
            await site.kill()
            await site.start()
            ids = await lost
            assert {EventId.parse(each).incarnation for each in ids} != {incarnation}
            assert writer.statistics().repeated == 5
            originals = [entry.frame.section.original for entry in site.kept.disk.entries]
            assert sum(original is not None and original[0] == incarnation for original in originals) >= 5
            assert await bodies(wanted, 5) == ["0", "1", "2", "3", "4"]
            assert await nothing_more(wanted)

    run(scenario())


def test_a_durable_client_roams_between_two_brokers() -> None:
    """CLI-04, CLI-05, FLT-05: what was kept at the first broker follows the client to the second, and back."""

    async def scenario() -> None:
        async with two_sites() as (one, other):
            sent = 0

            async def publish(writer: Client, count: int) -> None:
                nonlocal sent
                for _ in range(count):
                    await writer.publish(topic="quotes", body=str(sent).encode(), reliable=True)
                    sent += 1

            got: list[str] = []
            async with connect(one.url, client_id="writer") as writer:
                for visit, site in enumerate((one, other, one)):
                    async with connect(site.url, client_id="roamer") as roamer:
                        wanted = await roamer.subscribe(topic="quotes", durable="all")
                        await publish(writer, 5)
                        got += await bodies(wanted, 5 if not visit else 10)
                    await publish(writer, 5)
                async with connect(other.url, client_id="roamer") as roamer:
                    wanted = await roamer.subscribe(topic="quotes", durable="all")
                    got += await bodies(wanted, 5)
                    assert await nothing_more(wanted)
            assert sorted(got, key=int) == [str(number) for number in range(sent)]
            assert got == [str(number) for number in range(sent)]

    run(scenario())


def test_several_urls_the_next_broker_takes_over() -> None:
    """CLI-04: with two URLs a client goes on at the other broker when its own dies; subscriptions go with it."""

    async def scenario() -> None:
        async with (
            two_sites() as (one, other),
            connect([one.url, other.url], client_id="alice") as alice,
            other.client("writer") as writer,
        ):
            assert alice.broker == one.address
            plain = await alice.subscribe(topic="quotes")
            await one.kill()
            await until(lambda: alice.broker == other.address and alice.is_connected)
            await plain.wait_active(PATIENCE_S)
            await writer.publish(topic="quotes", body=b"here", reliable=True)
            assert await bodies(plain, 1) == ["here"]

    run(scenario())


def test_a_draining_broker_sends_its_clients_elsewhere(wording: Wording) -> None:
    """IOP-06: they follow, and what they publish and keep is not lost."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("alice") as alice, other.client("writer") as writer:
            wanted = await alice.subscribe(topic="quotes", durable="all")
            one.clients.drain([other.url])
            await writer.publish(topic="quotes", body=b"on the way", reliable=True)
            await until(lambda: alice.broker == other.address and alice.is_connected)
            await alice.publish(topic="quotes", body=b"from there", reliable=True)
            assert sorted(await bodies(wanted, 2)) == ["from there", "on the way"]
            assert one.clients.statistics().clients == 0
            async with one.client("late") as late:
                assert late.broker == other.address

    run(scenario())


def test_a_redirection_before_the_welcome_is_followed() -> None:
    """IOP-06: whoever answers a hello with other URLs is a locator."""

    async def scenario() -> None:
        async with Site() as site:

            async def locate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                ((_, hello),) = Decoder().feed(await reader.read(1 << 16))
                assert isinstance(hello, ClientHello)
                writer.write(encode(TellRedirect((site.url,), "the nearest"), 0))
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(locate, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            async with connect(f"veena://127.0.0.1:{port}", client_id="alice") as alice:
                assert alice.broker == site.address
            server.close()

    run(scenario())


def test_unacknowledged_events_come_again_with_a_mark() -> None:
    """CLI-05: with ack="manual" exactly what was not acknowledged comes again, in the next process too."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            async with site.client("worker") as worker:
                jobs = await worker.subscribe(topic="jobs", durable="jobs", ack="manual")
                for number in range(4):
                    await writer.publish(topic="jobs", body=b"%d" % number, reliable=True)
                events = [await jobs.next(PATIENCE_S) for _ in range(4)]
                assert [event.redelivered for event in events] == [False] * 4
                await jobs.ack(events[0], events[2])
            async with site.client("worker") as worker:
                jobs = await worker.subscribe(topic="jobs", durable="jobs", ack="manual")
                again = [await jobs.next(PATIENCE_S) for _ in range(2)]
                assert [(text(event), event.redelivered) for event in again] == [("1", True), ("3", True)]
                await jobs.ack(*again)
                await jobs.delete()
            await writer.publish(topic="jobs", body=b"late", reliable=True)
            async with site.client("worker") as worker:
                jobs = await worker.subscribe(topic="jobs", durable="jobs", ack="manual")
                assert await nothing_more(jobs)

    run(scenario())


def test_unacknowledged_events_survive_the_broker() -> None:
    """FLT-05, PRF-09: after a crash of the broker the acknowledged ones stay acknowledged: the client shows them."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer, site.client("worker") as worker:
            jobs = await worker.subscribe(topic="jobs", durable="jobs", ack="manual")
            for number in range(4):
                await writer.publish(topic="jobs", body=b"%d" % number, reliable=True)
            events = [await jobs.next(PATIENCE_S) for _ in range(3)]
            await jobs.ack(events[0], events[1])
            await site.kill()
            await until(lambda: not worker.is_connected)
            await site.start()
            again = [await jobs.next(PATIENCE_S) for _ in range(2)]
            assert [text(event) for event in again] == ["2", "3"]
            assert again[0].redelivered
            await jobs.ack(*again)
            assert await nothing_more(jobs)

    run(scenario())


def test_without_reconnection_everybody_is_told() -> None:
    """What waits ends with an error that says why."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice", reconnect=False) as alice:
            wanted = await alice.subscribe(topic="quotes")
            waiting = asyncio.create_task(wanted.next())
            await asyncio.sleep(0)
            await site.kill()
            with pytest.raises(NotConnected, match="the connection is gone"):
                await waiting
            with pytest.raises(NotConnected, match="the connection is gone"):
                await alice.publish(topic="quotes", reliable=True)

    run(scenario())


def test_a_plain_subscription_goes_on_after_a_short_loss_without_repeats() -> None:
    """CLI-03, DUP-02: the transport fails again and again while events come; none comes twice or out of order."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer, site.client("reader") as reader:
            wanted = await reader.subscribe(topic="quotes")
            got: list[int] = []

            await wanted.close()
            wanted = await reader.subscribe(topic="quotes", on_event=lambda event: got.append(int(text(event))))
            for number in range(200):
                await writer.publish(topic="quotes", body=b"%d" % number, reliable=True)
                if number % 50 == 25:
                    cut = next(who for who in site.clients.sessions.values() if "reader" in who.name)
                    connections = reader.statistics().connections
                    cut.stream.abort("cut")
                    await until(lambda before=connections: reader.statistics().connections > before)
                    await wanted.wait_active(PATIENCE_S)
            await until(lambda: got and got[-1] == 199)
            assert got == sorted(set(got))
            assert len(got) >= 196, "only what came while it was away is missing"

    run(scenario())


def test_a_broker_that_says_nothing_is_given_up() -> None:
    """FLT: a half-open connection is noticed by the client too, and another broker is taken."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice", heartbeat=0.05) as alice:
            for who in site.clients.sessions.values():
                who.stream.pause()  # it hears nothing and says nothing any more
            await until(lambda: alice.statistics().connections == 2)
            assert alice.is_connected

    run(scenario())


def test_nobody_there_is_told_with_every_url() -> None:
    async def scenario() -> None:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            async with connect(["veena://127.0.0.1:1", "veena://127.0.0.1:2"], timeout=0.5):
                pass  # pragma: no cover
        with pytest.raises(TimedOut):
            async with Site() as site, site.client() as client:
                await (await client.subscribe(topic="silence")).next(timeout=0.01)

    run(scenario())
