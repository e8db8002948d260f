"""What a client does when it is refused: retry, go elsewhere, or give up. The code decides, whatever the text is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from tests.runtime.client_brokers import PATIENCE_S, QUICK, Site, bodies, nothing_more, run, two_sites, until
from tests.runtime.raw_client import attach
from tests.runtime.wording import Wording
from veena.client import Client, connect
from veena.core.wire.client import AskSubscribe, ClientHello, ClientWelcome, Farewell, TellRedirect, TellRefused
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.header import VERSION
from veena.errors import AccessDenied, NotConnected, Overloaded, RefusalCode, Refused, StoreError, VeenaError
from veena.event import Event, EventId

#: What decided about codes when they were read out of the texts.
FORMER_WORDS = ("publish again in a moment", "publish it later", "try another broker", "read elsewhere")


def test_a_busy_broker_is_asked_again_until_it_takes_everything(wording: Wording) -> None:
    """QOS-01, FLT-09: what does not fit is refused as busy and sent again, in order and once."""

    async def scenario() -> None:
        async with Site(settings=replace(QUICK, max_open=4)) as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            assert site.peer is not None
            site.peer.holds = []
            sent = asyncio.create_task(
                alice.publish_many([Event(topic="t", body=b"%d" % n) for n in range(12)], reliable=True)
            )
            await until(lambda: site.driver.statistics().origin.refused)
            assert not sent.done(), "busy is no failure"
            site.peer.release()
            ids = await sent
            assert ids == sorted(ids, key=EventId.parse)
            assert await bodies(wanted, 12) == [str(n) for n in range(12)]
            assert await nothing_more(wanted)

    run(scenario())


def test_who_does_not_want_to_wait_is_told_that_the_broker_is_busy(wording: Wording) -> None:
    """QOS-01: with block=False the refusal is the caller's to deal with."""

    async def scenario() -> None:
        async with Site(settings=replace(QUICK, max_open=4)) as site, site.client("alice") as alice:
            await alice.subscribe(topic="t")
            assert site.peer is not None
            site.peer.holds = []
            sent = asyncio.create_task(alice.publish_many([Event(topic="t")] * 12, reliable=True, block=False))
            await until(lambda: site.driver.statistics().origin.refused == 8)
            site.peer.release()
            with pytest.raises(Overloaded, match=wording.of("publish it later")) as caught:
                await sent
            assert caught.value.code is RefusalCode.BUSY

    run(scenario())


def test_a_disk_that_takes_nothing_is_told_from_a_busy_broker(wording: Wording) -> None:
    """FLT-07: the publisher hears at once that another broker would do; the connection stays."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            await alice.publish(topic="t", reliable=True)
            assert site.peer is not None
            site.peer.fault = "no space left"
            with pytest.raises(StoreError, match=wording.of("no space left")) as caught:
                await alice.publish(topic="t", reliable=True)
            assert caught.value.code is RefusalCode.STORE
            site.peer.fault = None
            await alice.publish(topic="t", reliable=True)
            assert alice.statistics().connections == 1

    run(scenario())


def test_a_durable_subscription_that_is_read_elsewhere_is_not_taken_back(wording: Wording) -> None:
    """CLI-05: its client gives up here, so that two devices do not take it from each other for ever."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("alice") as first, other.client("alice") as second:
            before = await first.subscribe(topic="t", durable="publish it later")
            after = await second.subscribe(topic="t", durable="publish it later")
            with pytest.raises(Refused, match=wording.of("is read elsewhere now")) as caught:
                await before.next(PATIENCE_S)
            assert caught.value.code is RefusalCode.MOVED
            assert first.is_connected and first.statistics().subscriptions == 0
            await first.publish(topic="t", body=b"x", reliable=True)
            assert await bodies(after, 1) == ["x"]

    run(scenario())


@pytest.mark.parametrize("words", FORMER_WORDS)
def test_a_client_cannot_choose_a_code_by_a_name(words: str) -> None:
    """A refusal shows the durable name to people; what the client does about it depends on the code alone."""

    async def scenario() -> None:
        async with Site() as site:
            raw = await attach(site.url, "alice")
            constraint = msgspec.msgpack.encode("t")
            names = (f"\n{words}", f"{words}\n", "\n" + words + "x" * 100)
            raw.say(*(AskSubscribe(number, "topic", constraint, durable=name) for number, name in enumerate(names)))
            await until(lambda: len([each for each in raw.frames if isinstance(each, TellRefused)]) == len(names))
            refused = [each for each in raw.frames if isinstance(each, TellRefused)]
            assert all(words in each.reason for each in refused)
            assert [each.why for each in refused] == [RefusalCode.INVALID] * len(names)
            raw.stream.abort("done")

    run(scenario())


#: What `publish` raises; what is not here is no answer to a publisher.
RAISED = {
    RefusalCode.DENIED: AccessDenied,
    RefusalCode.INVALID: Refused,
    RefusalCode.LIMIT: Refused,
    RefusalCode.BUSY: Overloaded,
    RefusalCode.STARTING: Overloaded,
    RefusalCode.STORE: StoreError,
}


async def _refuse(site: Site, alice: Client, code: RefusalCode) -> None:
    """Refuse the one event that waits for the disk."""
    await until(lambda: any(who.unaccepted for who in site.clients.sessions.values()))
    (who,) = site.clients.sessions.values()
    (place,) = who.unaccepted
    who.unaccepted.clear()
    who.refuse_event(*place, code, "for a reason")


@pytest.mark.parametrize("code", RAISED)
def test_what_a_publisher_is_told_by_the_code(code: RefusalCode, wording: Wording) -> None:
    """The class of the exception and its code follow from the code of the refusal; only what passes is sent again."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            await alice.wait_connected()
            assert site.peer is not None
            site.peer.holds = []
            sent = asyncio.create_task(alice.publish(topic="t", reliable=True, block=False))
            await _refuse(site, alice, code)
            with pytest.raises(VeenaError, match=wording.of("for a reason")) as caught:
                await sent
            assert type(caught.value) is RAISED[code] and caught.value.code is code
            waiting = asyncio.create_task(alice.publish(topic="t", reliable=True))
            await _refuse(site, alice, code)
            if code.is_passing:
                await until(lambda: any(who.unaccepted for who in site.clients.sessions.values()))
                site.peer.release()
                assert (await waiting).startswith("alice:")
            else:
                with pytest.raises(RAISED[code]):
                    await waiting
                site.peer.release()

    run(scenario())


@asynccontextmanager
async def _closed_door(code: RefusalCode) -> AsyncIterator[str]:
    """The URL of somebody who lets no client in."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ((_, hello),) = Decoder().feed(await reader.read(1 << 16))
        assert isinstance(hello, ClientHello)
        writer.write(encode(Farewell(code, "no"), 0))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"veena://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("code", [RefusalCode.LIMIT, RefusalCode.BUSY, RefusalCode.CLOSING, RefusalCode.SLOW])
def test_a_broker_that_may_let_others_in_is_passed_over(code: RefusalCode) -> None:
    """CLI-04, FLT-04: the next URL is tried; where there is none, the last refusal is told."""

    async def scenario() -> None:
        async with _closed_door(code) as url, Site() as site:
            async with connect([url, site.url], client_id="alice") as alice:
                assert alice.broker == site.address
            with pytest.raises(NotConnected, match="no broker let this client in") as caught:
                await connect(url, client_id="bob", timeout=0.2).open()
            assert caught.value.code is code

    run(scenario())


@pytest.mark.parametrize(("code", "error"), [(RefusalCode.DENIED, AccessDenied), (RefusalCode.PROTOCOL, Refused)])
def test_who_is_not_let_in_for_good_gives_up(code: RefusalCode, error: type[VeenaError]) -> None:
    """CLI-06: wrong credentials or another version are wrong everywhere: no other broker is asked."""

    async def scenario() -> None:
        async with _closed_door(code) as url, Site() as site:
            with pytest.raises(error) as caught:
                await connect([url, site.url], client_id="alice").open()
            assert caught.value.code is code
            assert site.clients.statistics().attached == 0

    run(scenario())


@asynccontextmanager
async def _open_door(last: Callable[[str], Frame]) -> AsyncIterator[tuple[str, list[float]]]:
    """A broker that lets every client in and then says one thing more: its URL, and when clients came."""
    came: list[float] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1 << 16)
            came.append(asyncio.get_running_loop().time())
            writer.write(encode(ClientWelcome(VERSION, 1, "~reply", "net", 4, 32, 1 << 20, (0, 0, 0, 0)), 0))
            await reader.read(1 << 16)  # the client has the welcome: it says something
            writer.write(encode(last(url), 0))
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(welcome, "127.0.0.1", 0) as server:
        url = f"veena://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield url, came


def test_a_client_that_is_denied_after_its_welcome_gives_up() -> None:
    """CLI-06: nothing in its program fails, and it does not attach again."""

    async def scenario() -> None:
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        async with _open_door(lambda _: Farewell(RefusalCode.DENIED, "taken from you")) as (url, came):
            client = connect(url, client_id="alice")
            await client.open()
            await until(lambda: not client.is_connected)
            with pytest.raises(AccessDenied, match="taken from you"):
                await client.publish(topic="t", reliable=True)
            await until(lambda: len(asyncio.all_tasks()) <= 2)  # this one and that of the server: nobody dials
            assert len(came) == 1 and not faults
            await client.close()

    run(scenario())


def test_a_broker_that_sends_clients_to_itself_is_asked_less_and_less_often() -> None:
    """CLI-04: being sent elsewhere right after the welcome is no progress, so the client waits before it follows."""

    async def scenario() -> None:
        async with _open_door(lambda url: TellRedirect((url,), "there")) as (url, came):
            async with connect(url, client_id="alice"):
                await until(lambda: len(came) == 7)
            assert came[6] - came[5] > 2 * (came[1] - came[0]), "each wait is twice as long, but for chance"

    run(scenario())
