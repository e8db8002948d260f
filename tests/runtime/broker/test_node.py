"""A broker put together: what it starts it also ends, and what it cannot start leaves nothing behind."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.runtime.raw_client import attach
from tests.runtime.store_desk import entry
from tests.runtime.streams import Ears, until
from veena.core.boundary.inputs_effects import Input
from veena.core.boundary.stored import Identity
from veena.core.wire.client import ClientHello, TellAccepted, TellRedirect
from veena.core.wire.codec import encode
from veena.core.wire.header import VERSION
from veena.errors import ConfigError, StoreError
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import Config
from veena.runtime.store.file import FILE_NAME
from veena.runtime.store.file import connect as connect_file
from veena.runtime.store.repair import repair
from veena.runtime.store.store import Store
from veena.runtime.transports.registry import Secrets, connect, listen
from veena.runtime.transports.tls import client_context
from veena.runtime.transports.url import parse_url

QUICK = "[links]\nheartbeat_s = 0.2\nretry_s = 0.02\n"


def config(
    name: str, address: str, *, listen: str = "veena://127.0.0.1:0", dial: list[str] | None = None, more: str = ""
) -> Config:
    dialled = ", ".join(f'"{url}"' for url in dial or [])
    head = f'[broker]\nname = "{name}"\naddress = "{address}"\nlisten = ["{listen}"]\n'
    return parse_config(f"{head}{QUICK}dial = [{dialled}]\n{more}")


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests that run at the same time leave and take away theirs elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def temporary() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("veena-*"))


def test_two_nodes_link_and_know_where_to_send_their_clients() -> None:
    """CLI, FLT-04: who drains sends its clients to another broker of the cluster."""

    async def run() -> None:
        one = Node(config("one", "0.0.0.0"))
        await one.start()
        other = Node(config("other", "0.0.0.1", dial=[one.urls[0]]))
        await other.start()
        await until(lambda: (0, 0, 0, 1) in one.driver.reached and (0, 0, 0, 0) in other.driver.reached)
        await until(lambda: list(one.elsewhere()) == list(other.urls))
        assert one.why_not_ready() is None
        status = one.statistics()
        assert status.transports[0].bytes_in > 0 and status.entrance.connections == 1
        await other.stop()
        assert other.why_not_ready() == "stopping"
        await until(lambda: (0, 0, 0, 1) not in one.driver.reached)
        await one.stop()

    before = temporary()
    asyncio.run(run())
    assert temporary() <= before, "a store without a path goes with its broker"


def test_a_network_over_tls_and_websocket() -> None:
    """TRN-01: a broker listens on several transports at once."""
    certificates = Path(__file__).parent.parent / "certificates"
    tls = "".join(
        f'{key} = "{certificates}/{name}"\n'
        for key, name in (("certificate", "broker.pem"), ("key", "broker.key"), ("authority", "authority.pem"))
    )
    more = f'certificates = ["bro*"]\n[tls]\n{tls}clients = "required"\n'

    async def run() -> None:
        one = Node(config("one", "0.0.0.0", listen='veenas://127.0.0.1:0", "wss://localhost:0', more=more))
        await one.start()
        others = [Node(config(f"o{at}", f"0.0.0.{at + 1}", dial=[url], more=more)) for at, url in enumerate(one.urls)]
        for other in others:
            await other.start()
        await until(lambda: len(one.driver.reached) >= 2)
        assert sorted(url.partition(":")[0] for url in one.urls) == ["veenas", "wss"]
        for node in (*others, one):
            await node.stop()

    asyncio.run(run())


def test_a_renewed_certificate_is_shown_after_a_reload(tmp_path: Path) -> None:
    certificates = Path(__file__).parent.parent / "certificates"

    def show(name: str) -> None:
        for kind in ("pem", "key"):
            shutil.copy(certificates / f"{name}.{kind}", tmp_path / f"shown.{kind}")

    tls = f'[tls]\ncertificate = "{tmp_path}/shown.pem"\nkey = "{tmp_path}/shown.key"\n'

    async def run() -> None:
        show("broker")
        node = Node(config("b", "0.0.0.0", listen="veenas://127.0.0.1:0", more=tls))
        await node.start()
        believing = Secrets(client=client_context(certificates / "authority.pem"))
        ears = Ears()
        await connect(parse_url(node.urls[0]), ears, believing)
        show("stranger")
        node.reload(node.config)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(parse_url(node.urls[0]), ears, believing)
        assert ears.all[0].reason is None, "who is connected stays so"
        (tmp_path / "shown.key").write_text("half a key")
        with pytest.raises(ConfigError, match="cannot be used"):
            node.reload(node.config)
        ears.all[0].stream.close("done")
        await node.stop()

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["veena", "ws"])
def test_clients_come_by_the_same_door_and_are_sent_elsewhere(scheme: str) -> None:
    """FLT-04: a client's events cross two brokers; when its broker stops it is told where to go."""

    async def run() -> None:
        one = Node(config("one", "0.0.0.0", listen=f"{scheme}://127.0.0.1:0"))
        await one.start()
        other = Node(config("other", "0.0.0.1", listen=f"{scheme}://127.0.0.1:0", dial=[one.urls[0]]))
        await other.start()
        reader = await attach(one.urls[0], "reader")
        await reader.subscribe("quotes")
        await until(lambda: list(one.elsewhere()))
        writer = await attach(other.urls[0], "writer")
        writer.publish("quotes", b"hello")
        assert await writer.wait(TellAccepted)
        await until(lambda: reader.bodies() == [b"hello"])
        stopping = asyncio.get_running_loop().create_task(one.stop())
        redirect = await reader.wait(TellRedirect)
        assert redirect.urls == other.urls
        reader.stream.close("on my way")
        await stopping
        await other.stop()
        await until(lambda: writer.reason is not None)

    asyncio.run(run())


@pytest.mark.parametrize("listed", [["broker"], ["other", "b"], []])
def test_a_certificate_that_is_no_brokers_makes_no_link(listed: list[str]) -> None:
    """SEC: where clients have to prove who they are, not everybody who does may be a broker."""
    certificates = Path(__file__).parent.parent / "certificates"
    tls = (
        f'[tls]\ncertificate = "{certificates}/broker.pem"\nkey = "{certificates}/broker.key"\n'
        f'authority = "{certificates}/authority.pem"\nclients = "optional"\n'
    )
    names = ", ".join(f'"{name}"' for name in listed)

    async def run() -> None:
        one = Node(config("one", "0.0.0.0", listen="veenas://127.0.0.1:0", more=f"certificates = [{names}]\n{tls}"))
        await one.start()
        other = Node(config("other", "0.0.0.1", dial=[one.urls[0]], more=f'certificates = ["broker"]\n{tls}'))
        await other.start()
        if "broker" in listed:
            await until(lambda: other.driver.reached.keys() & {(0, 0, 0, 0)})
        else:
            await until(lambda: one.statistics().entrance.accepted >= 2)  # it has tried twice
            assert not one.driver.reached.keys() & {(0, 0, 0, 1)} and not one.driver.statistics().links
        await other.stop()
        await one.stop()

    asyncio.run(run())


@pytest.mark.parametrize("what", ["port", "http"])
def test_a_start_that_fails_leaves_nothing(what: str, tmp_path: Path) -> None:
    async def run() -> None:
        taken = await listen(parse_url("veena://127.0.0.1:0"), cast(Any, None))
        store = f'[store]\npath = "{tmp_path}/data"\n'
        url = str(taken.url)
        place = url.removeprefix("veena://")
        wrong = config("b", "0.0.0.0", listen=url, more=store)
        if what == "http":
            wrong = config("b", "0.0.0.0", more=f'{store}[http]\nlisten = "{place}"\n')
        with pytest.raises(ConfigError, match="cannot be listened on"):
            await Node(wrong).start()
        await taken.close()
        node = Node(config("b", "0.0.0.0", listen=url, more=store))  # the store is free, and so is the port
        await node.start()
        await node.stop()

    asyncio.run(run())


def test_a_store_that_cannot_be_read_is_let_go(tmp_path: Path) -> None:
    """FLT-07: the event that is damaged is named with the remedy, and the file is free for who applies it."""

    async def run() -> None:
        more = f'[store]\npath = "{tmp_path}"\n'
        with Store(tmp_path, lambda answers: None) as store:
            store.save(Identity("one", (0, 0, 0, 0), 1), entry(0, to_serve=1))
        with closing(connect_file(tmp_path / FILE_NAME)) as connection:
            connection.execute("UPDATE log SET checksum = checksum + 1")
        node = Node(config("one", "0.0.0.0", more=more))
        with pytest.raises(StoreError, match=r"offset 0 is damaged.*veena broker check --repair"):
            await node.start()

    asyncio.run(run())
    assert repair(tmp_path) == ["log 0 was given up"], "nobody holds the lock"


def test_a_core_that_breaks_its_rules_stops_the_broker() -> None:
    """It must not go on with a broken state; everything accepted is on disk."""

    async def run() -> None:
        node = Node(config("b", "0.0.0.0"))
        await node.start()
        with pytest.raises(KeyError):
            node.driver.give(cast(Input, object()))
        await node.ended.wait()
        assert isinstance(node.failure, KeyError)
        await node.stop()

    asyncio.run(run())


def test_reload_changes_limits_and_names_what_it_cannot_change() -> None:
    async def run() -> None:
        node = Node(config("b", "0.0.0.0"))
        await node.start()
        taken, left = node.reload(config("b", "0.0.0.0", more="[limits]\nunidentified = 1\nopen_events = 5\n"))
        assert taken == ["[limits] unidentified"] and left == ["[limits] open_events"]
        url = parse_url(node.urls[0])
        _, quiet = await asyncio.open_connection(url.host, url.port)
        await until(lambda: node.statistics().entrance.unidentified == 1)
        _, turned_away = await asyncio.open_connection(url.host, url.port)
        await until(lambda: node.statistics().entrance.refused == 1)
        for writer in (quiet, turned_away):
            writer.close()
        await node.stop()

    asyncio.run(run())


def test_a_peer_that_does_not_read_is_no_reason_to_stay() -> None:
    """FLT-09: when a broker has stopped, none of its connections is left, whatever their peers do."""

    async def scenario() -> None:
        node = Node(config("one", "0.0.0.0"))
        await node.start()
        url = parse_url(node.urls[0])
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(encode(ClientHello(VERSION, VERSION, "mute"), 0))
        await reader.read(1)
        (who,) = node.clients.sessions.values()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        who.stream.write((bytes(8 << 20),))  # more than the sockets between the two take
        assert who.stream.waiting
        await node.stop(drain_s=0.1)
        assert not node._entrance.statistics().connections
        writer.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
