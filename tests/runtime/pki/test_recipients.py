"""Where the credentials of clients go: inside TLS, with places that collect whatever they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import veena
from tests.runtime.authority import Authority
from tests.runtime.streams import until
from veena.core.wire.client import TellRedirect
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.header import MAX_CONTROL_FRAME
from veena.core.wire.locator import AskLocate, Located, TellLocated
from veena.errors import NotConnected
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.registry import listen
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.tls import client_context
from veena.runtime.transports.url import parse_url
from veena.spark.log.client import LogClient
from veena.spark.log.connection import Access

TOKEN = "a-token-of-pub"


class Door:
    """Somebody who listens with a certificate, remembers what is said there, and has one answer to everything."""

    def __init__(self, answer: Frame | None = None) -> None:
        self.url = ""
        self.visits = 0
        self.said: list[object] = []
        self.answer = answer

    def accept(self, stream: Stream) -> _Visitor:
        self.visits += 1
        return _Visitor(self, stream)

    def leads_to(self, other: Door, way: str) -> None:
        """Send everybody there, as a broker or as a locator does."""
        if way == "redirect":
            self.answer = TellRedirect((other.url,), "go there")
        else:
            self.answer = TellLocated((Located((other.url,), "b6", (0, 0, 0, 6), 0, 0, 0),))


class _Visitor:
    def __init__(self, door: Door, stream: Stream) -> None:
        self._door, self._stream = door, stream
        self._decoder = Decoder(max_frame=MAX_CONTROL_FRAME)

    def received(self, data: Bytes) -> None:
        self._door.said += [frame for _, frame in self._decoder.feed(bytes(data))]
        if self._door.answer is not None:
            self._stream.write([encode(self._door.answer, 0)])

    def closed(self, reason: str) -> None: ...

    def clogged(self) -> None: ...

    def cleared(self) -> None: ...


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    for name in ("b1", "b5", "b6"):
        made.issue(name, uris=[f"veena://veena#{name}"])
    made.issue("collector")
    made.issue("stranger", uris=["veena://elsewhere#b6"])
    return made


@asynccontextmanager
async def door(authority: Authority, name: str) -> AsyncIterator[Door]:
    made = Door()
    server = await listen(parse_url("veenas://127.0.0.1:0"), made.accept, authority.secrets(name))
    made.url = str(server.url)
    try:
        yield made
    finally:
        await server.close()


@pytest.mark.parametrize("way", ["redirect", "locator"])
@pytest.mark.parametrize("certificate", ["collector", "stranger"])
def test_no_client_is_led_to_a_collector(authority: Authority, way: str, certificate: str) -> None:
    """SEC: any certificate of the authority was good enough for a password, wherever brokers sent clients."""

    async def run() -> None:
        async with (
            door(authority, "b5") as liar,
            door(authority, certificate) as collector,
            door(authority, "b6") as honest,
        ):
            liar.leads_to(collector, way)
            given = liar.url.replace("veenas://", "veenas+locator://") if way == "locator" else liar.url
            client = veena.connect(given, token=TOKEN, user="pub", tls=client_context(authority.pem), timeout=30)
            opening = asyncio.create_task(client.open())
            await until(lambda: collector.visits)
            liar.leads_to(honest, way)
            await until(lambda: honest.said)
            opening.cancel()
            with suppress(asyncio.CancelledError, NotConnected):
                await opening
            await client.close()
            assert getattr(honest.said[0], "token", None) == TOKEN, "a broker of the network may know"
            assert not collector.said, "who is none is told nothing"

    asyncio.run(run())


def test_without_names_nothing_changes(authority: Authority) -> None:
    """Where the certificates of a network name no brokers, clients follow its brokers as before."""

    async def run() -> None:
        async with door(authority, "collector") as first, door(authority, "stranger") as second:
            first.leads_to(second, "redirect")
            client = veena.connect(first.url, token=TOKEN, user="pub", tls=client_context(authority.pem), timeout=30)
            opening = asyncio.create_task(client.open())
            await until(lambda: second.said)
            opening.cancel()
            with suppress(asyncio.CancelledError, NotConnected):
                await opening
            await client.close()

    asyncio.run(run())


def test_no_reader_and_no_locator_is_led_to_a_collector(authority: Authority) -> None:
    """SEC: the reader of all brokers' tables gave its token to whoever a broker said was one; and a locator went on
    sending clients to whoever answered that it is a broker."""
    users = authority.directory / "users.toml"
    users.write_text(
        f'[user.pub]\ntokens = ["{digest_of(TOKEN)}"]\nroles = ["all"]\n'
        '[role.all]\nrules = [{ allow = ["log", "publish", "subscribe", "status"] }]\n'
    )
    users.chmod(0o600)

    async def run() -> None:
        async with door(authority, "collector") as collector, door(authority, "b6") as honest:
            located = Located((collector.url,), "b9", (0, 0, 0, 9), 0, 0, 1000)
            collector.answer = TellLocated((located,))
            honest.answer = TellLocated((Located((honest.url,), "b6", (0, 0, 0, 6), 0, 0, 1000),))
            config = parse_config(
                '[broker]\nname = "b1"\naddress = "0.0.0.1"\nlisten = ["veenas://127.0.0.1:0"]\n'
                f'[locator]\nserve = true\nbrokers = ["{collector.url}", "{honest.url}"]\nrefresh_s = 0.05\n'
                '[tls]\ncertificate = "b1.pem"\nkey = "b1.key"\nauthority = "authority.pem"\nclients = "optional"\n'
                '[auth]\nusers_file = "users.toml"\n',
                base=authority.directory,
            )
            node = Node(config)
            await node.start()
            await until(lambda: [broker.name for broker in node.locator.others()] == ["b6"])
            assert collector.visits and not collector.said
            honest.answer = None

            def found() -> list[str]:
                access = Access(user="pub", token=TOKEN, ca_file=str(authority.pem))
                with LogClient(node.urls[0], access, timeout=2.0) as client:
                    return [broker.name for broker in client.brokers()]

            before = collector.visits, len(honest.said)
            assert await asyncio.to_thread(found) == ["b1"]
            assert collector.visits > before[0] and not collector.said
            heard = [frame for frame in honest.said[before[1] :] if not isinstance(frame, AskLocate)]
            assert [getattr(frame, "token", None) for frame in heard] == [TOKEN]
            await node.stop(drain_s=0.1)

    asyncio.run(run())
