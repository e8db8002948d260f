"""Exceptions that nobody foresaw, planted in the core of a broker's process: the core is made anew, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import veena as command
from tests.runtime.broker.breaking_broker import PLANTED
from tests.runtime.broker.test_process import page, until_ready
from tests.runtime.processes import Started, veena
from tests.runtime.raw_client import RawClient, attach
from tests.runtime.raw_link import link_to
from tests.runtime.streams import until
from veena.client import Client, Subscription, connect
from veena.core.wire.client import ClientHello, Farewell
from veena.core.wire.control import Goodbye
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.errors import RefusalCode
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.registry import NO_SECRETS
from veena.runtime.transports.registry import connect as connect_stream
from veena.runtime.transports.url import parse_url

BROKER = """
[broker]
name = "breaking"
address = "0.0.0.0"
listen = ["veena://127.0.0.1:0"]
[store]
path = "data"
[http]
listen = "127.0.0.1:0"
[links]
heartbeat_s = 0.2
retry_s = 0.02
"""
NEIGHBOUR = '[broker]\nname = "b"\naddress = "0.0.0.1"\nlisten = ["veena://127.0.0.1:0"]\n[links]\nheartbeat_s = 0.2\n'
EACH = 150
PROGRAM = "tests.runtime.broker.breaking_broker"


class Breaking:
    """A process whose core raises over what says `planted`."""

    def __init__(self, started: Started, directory: Path) -> None:
        self.process = started.process
        self.quarantine = directory / "data" / "quarantine"
        words = started.line().split()
        self.url, self.http = words[-2].rstrip(","), words[-1]
        until_ready(self.http)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(page(f"{self.http}/statusz")[1])
        return found

    async def has_renewed(self, times: int) -> dict[str, Any]:
        """The broker's status when its core was made anew so often."""
        await until(lambda: self.status()["renewal"]["renewed"] >= times)
        return self.status()

    def files(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.quarantine.iterdir())]


@pytest.fixture
def breaking(tmp_path: Path) -> Any:
    (tmp_path / "b.toml").write_text(BROKER)
    with veena("broker", "run", "--config", str(tmp_path / "b.toml"), program=PROGRAM) as started:
        yield Breaking(started, tmp_path)


@asynccontextmanager
async def neighbour_of(url: str) -> AsyncIterator[Node]:
    node = Node(parse_config(f'{NEIGHBOUR}retry_s = 0.02\ndial = ["{url}"]\n'))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def farewell(url: str, client_id: str) -> Farewell:
    """What somebody is told who tries to attach."""
    made: list[RawClient] = []
    await connect_stream(parse_url(url), lambda stream: made.append(RawClient(stream, 4)) or made[0], NO_SECRETS)  # type: ignore[func-returns-value]
    made[0].say(ClientHello(VERSION_LOW, VERSION, client_id))
    found = await made[0].wait(Farewell)
    assert isinstance(found, Farewell)
    return found


async def publish(client: Client, name: str) -> None:
    for number in range(EACH):
        await client.publish(topic="t", body=f"{name} {number}".encode(), reliable=True)
        await asyncio.sleep(0.01)
    await client.flush(30)


async def read(subscription: Subscription, found: list[str]) -> None:
    while True:
        event = await subscription.next()
        found.append(bytes(event.body).decode())


async def knock(url: str, refused: list[str]) -> None:
    """Whether somebody listens, all the time."""
    place = parse_url(url)
    while True:
        try:
            _, writer = await asyncio.open_connection(place.host, place.port)
            writer.close()
        except OSError as error:
            refused.append(str(error))
        await asyncio.sleep(0.01)


def test_a_frame_that_breaks_the_core_costs_nobody_an_event(breaking: Breaking) -> None:
    """I1, I5, FLT-01: a client and then a neighbour send what the core raises over, when half of its change is made."""
    asyncio.run(_break_twice(breaking))
    assert breaking.process.poll() is None
    breaking.process.terminate()
    assert breaking.process.wait(30) == 0


async def _break_twice(breaking: Breaking) -> None:
    url = breaking.url
    async with (
        neighbour_of(url) as neighbour,
        connect(url, client_id="near") as near,
        connect(neighbour.urls[0], client_id="far") as far,
        connect(url, client_id="writer") as writer,
        connect(neighbour.urls[0], client_id="other") as other,
    ):
        readers = [await client.subscribe(topic="t", durable="d") for client in (near, far)]
        found: list[list[str]] = [[] for _ in readers]
        refused: list[str] = []
        tasks = [asyncio.create_task(read(each, found[at])) for at, each in enumerate(readers)]
        tasks.append(asyncio.create_task(knock(url, refused)))
        writing = [asyncio.create_task(publish(writer, "w")), asyncio.create_task(publish(other, "o"))]

        await until(lambda: min(map(len, found)) > EACH // 4)
        evil = await attach(url, "evil")
        evil.publish("t", PLANTED)
        told = await evil.wait(Farewell)
        assert told.why is RefusalCode.QUARANTINED and "its quarantine" in told.reason
        status = await breaking.has_renewed(1)
        assert status["broker"]["incarnation"] == 2 and status["pid"] == breaking.process.pid
        again = await farewell(url, "evil")
        assert again.why is RefusalCode.QUARANTINED and "come again in" in again.reason

        await until(lambda: min(map(len, found)) > EACH)
        link = await link_to(url, (0, 0, 0, 2))
        link.say(Goodbye("planted"))
        await until(link.goodbyes)
        assert "its quarantine" in link.goodbyes()[0]
        await breaking.has_renewed(2)
        link = await link_to(url, (0, 0, 0, 2))
        await until(lambda: link.reason is not None)
        assert any("come again in" in reason for reason in link.goodbyes())

        await asyncio.gather(*writing)
        await until(lambda: min(map(len, found)) >= 2 * EACH)
        await asyncio.sleep(0.3)  # what would come twice
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in found:
            assert len(each) == 2 * EACH
            for name in ("w", "o"):
                assert [body for body in each if body.startswith(name)] == [f"{name} {n}" for n in range(EACH)]
        assert not refused, "nobody listened for a moment"
        _check_quarantine(breaking)


def _check_quarantine(breaking: Breaking) -> None:
    assert stat.S_IMODE(breaking.quarantine.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in breaking.quarantine.iterdir()} == {0o600}
    of_client, of_link = breaking.files()
    assert PLANTED in bytes.fromhex(of_client["frames"]) and of_client["input"] == "PublishBatch"
    assert of_client["sender"] == "client 'evil' at 127.0.0.1" and of_client["peer"].startswith("127.0.0.1:")
    assert "planted by the test" in of_client["error"] and "handle_half" in of_client["trace"]
    assert PLANTED in bytes.fromhex(of_link["frames"]) and of_link["sender"] == "broker 0.0.0.2 ('raw') at 127.0.0.1"
    status = breaking.status()["renewal"]
    assert status["quarantined"] == 2 and status["refused_senders"] == 2 and not status["is_under_way"]
    metrics = page(f"{breaking.http}/metrics")[1]
    assert "veena_core_renewals_total 2.0" in metrics and "veena_quarantined_frames_total 2.0" in metrics
    listed = command("broker", "quarantine", "--data", str(breaking.quarantine.parent))
    assert "1  2" in listed.out and "PublishBatch of client 'evil' at 127.0.0.1" in listed.out and "2  2" in listed.out
    shown = command("broker", "quarantine", "--data", str(breaking.quarantine.parent), "--show", "1")
    assert PLANTED.hex() in shown.out and "Traceback" in shown.out
    assert command("broker", "quarantine", "--data", str(breaking.quarantine.parent), "--show", "3").code == 2
