"""Guesses at real brokers: slowed, counted and told whatever frame carries them, and no bar to honest log-ins."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import veena
from tests.runtime.raw_client import attach
from tests.runtime.streams import until
from tests.tiers import few
from veena.core.wire.client import ClientHello, ClientWelcome, Farewell
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.core.wire.locator import AskLocate, TellLocated
from veena.errors import RefusalCode
from veena.runtime.access.users import digest_of, hash_password
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.url import parse_url

PASSWORD = "correct horse"
#: Guesses in one burst; each that is checked takes some 50 ms of a processor.
BURST = 300


@pytest.fixture(scope="module")
def hashed() -> str:
    return hash_password(PASSWORD)


@asynccontextmanager
async def broker(tmp_path: Path, hashed: str, more: str = "") -> AsyncIterator[Node]:
    users = "".join(f'[user.{name}]\npassword = "{hashed}"\n' for name in ("alice", "bob"))
    (tmp_path / "users.toml").write_text(f'{users}[user.meter]\ntokens = ["{digest_of("t0ken")}"]\n')
    (tmp_path / "users.toml").chmod(0o600)
    text = f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "users.toml"\ntell = true\n{more}'
    node = Node(parse_config(text, base=tmp_path))
    await node.start()
    try:
        yield node
    finally:
        await node.stop(drain_s=0.1)


async def say(url: str, frame: Frame, source: str = "127.0.0.1") -> Frame:
    """Open a connection from that address, say this, and hear the answer."""
    place = parse_url(url)
    reader, writer = await asyncio.open_connection(place.host, place.port, local_addr=(source, 0))
    try:
        writer.write(encode(frame, 0))
        decoder = Decoder()
        while True:
            data = await reader.read(65536)
            assert data, "no answer came"
            for _, answer in decoder.feed(data):
                assert isinstance(answer, Frame)
                return answer
    finally:
        writer.transport.abort()


def hello(user: str, password: str, at: int = 0) -> ClientHello:
    return ClientHello(VERSION_LOW, VERSION, f"{user}/{at}", user, password)


@pytest.mark.parametrize("names", few(["one", "many"]))
def test_a_burst_of_guesses_does_not_stop_an_honest_log_in(names: str, tmp_path: Path, hashed: str) -> None:
    """SEC: 300 wrong passwords in one burst; an honest user elsewhere, and one at that address, get in meanwhile."""

    async def run() -> None:
        async with broker(tmp_path, hashed) as node:
            url = node.urls[0]
            guesses = [
                asyncio.create_task(say(url, hello("alice" if names == "one" else f"u{at}", "wrong", at), "127.0.0.9"))
                for at in range(BURST)
            ]
            await until(lambda: len(node.clients.everybody) > 20)
            assert isinstance(await say(url, hello("alice", PASSWORD)), ClientWelcome)
            before = node.statistics().clients.log_ins.wrong
            assert before < 60, "she did not wait for all of them"
            # The client library tries again when it is told to: at the guesser's own address a first log-in is slower.
            async with veena.connect(url, client_id="bob", user="bob", password=PASSWORD, timeout=30) as bob:
                assert bob.is_connected
            answers = await asyncio.gather(*guesses)
            assert all(isinstance(each, Farewell) for each in answers)
            codes = {each.why for each in answers if isinstance(each, Farewell)}
            assert codes == {RefusalCode.DENIED, RefusalCode.BUSY}
            found = node.statistics().clients.log_ins
            assert found.wrong < 60 and found.wrong + found.slowed <= BURST, "most were refused unread"
            assert isinstance(await say(url, hello("alice", PASSWORD)), ClientWelcome)

    asyncio.run(asyncio.wait_for(run(), 90))


def test_guesses_are_counted_and_told_by_whatever_frame_they_come(
    tmp_path: Path, hashed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC, DIS-05: wrong passwords and tokens by hello and by question leave counts, lines and audit lines."""

    async def run() -> None:
        audit = tmp_path / "audit.jsonl"
        more = '[locator]\nserve = true\n[audit]\nfile = "audit.jsonl"\n'
        async with broker(tmp_path, hashed, more) as node:
            url = node.urls[0]
            for at in range(7):
                answer = await say(url, AskLocate("meter/1", token=f"wrong-{at}"))
                assert isinstance(answer, Farewell) and answer.why is RefusalCode.DENIED
                answer = await say(url, ClientHello(VERSION_LOW, VERSION, "meter/1", token=f"wrong-{at}"))
                assert isinstance(answer, Farewell) and answer.why is RefusalCode.DENIED
            for _ in range(7):
                answer = await say(url, AskLocate("alice", user="alice", password="wrong"))
            assert isinstance(answer, Farewell) and answer.why is RefusalCode.BUSY, "questions are slowed like log-ins"
            found = node.statistics()
            assert found.clients.log_ins.wrong >= 14 + 4 and found.clients.log_ins.slowed >= 1
            assert found.locator.refused == 14
            assert found.clients.access_told == 21
            good = await say(url, AskLocate("meter/1", token="t0ken"))
            assert isinstance(good, TellLocated)
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        refused = [line for line in lines if line["kind"] == "log-in refused"]
        assert len(refused) == 21 and {line["way"] for line in refused} == {"AskLocate", "ClientHello"}
        assert {line["code"] for line in refused} == {"denied", "busy"}
        assert all(line["address"].startswith("127.0.0.1:") for line in refused)

    logger = logging.getLogger("veena")
    logger.propagate = True
    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(run(), 60))
    assert "a log-in is refused" in caplog.text


def test_what_may_be_a_mistyped_password_is_written_down_nowhere(
    tmp_path: Path, hashed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC: a password in the place of the name does not appear in the log, in the audit log, or in events."""
    secret = "hunter2-is-my-password"

    async def run() -> None:
        async with broker(tmp_path, hashed, '[audit]\nfile = "audit.jsonl"\n') as node:
            watcher = await attach(node.urls[0], "alice", user="alice", password=PASSWORD)
            watcher.publish("x", b"")
            for frame in (
                ClientHello(VERSION_LOW, VERSION, f"{secret}/portal-1", secret, "x"),
                ClientHello(VERSION_LOW, VERSION, secret, "", "x"),
                AskLocate(secret, secret, "x"),
            ):
                answer = await say(node.urls[0], frame)
                assert isinstance(answer, Farewell) and secret not in answer.reason
            answer = await say(node.urls[0], hello("alice", "wrong"))
            assert isinstance(answer, Farewell)

    logger = logging.getLogger("veena")
    logger.propagate = True
    with caplog.at_level(logging.DEBUG):
        asyncio.run(asyncio.wait_for(run(), 60))
    written = (tmp_path / "audit.jsonl").read_text()
    shown = "".join(f"{record.getMessage()} {getattr(record, 'fields', '')}" for record in caplog.records)
    assert secret not in written and secret not in shown
    assert "alice" in written and "alice" in shown, "who exists is named"
    assert "unknown-" in written and "unknown-" in shown


def test_no_secret_is_no_guess(tmp_path: Path, hashed: str) -> None:
    """Who shows nothing is refused at once: that costs no check, and nobody is slowed for it."""

    async def run() -> None:
        async with broker(tmp_path, hashed) as node:
            for _ in range(40):
                answer = await say(node.urls[0], hello("alice", ""))
                assert isinstance(answer, Farewell) and answer.why is RefusalCode.DENIED
            assert isinstance(await say(node.urls[0], hello("alice", PASSWORD)), ClientWelcome)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_addresses_of_this_test_are_there() -> None:
    """All of 127.0.0.0/8 is this machine: so one test has several addresses."""
    with socket.socket() as found:
        found.bind(("127.0.0.9", 0))
        assert found.getsockname()[0] == "127.0.0.9"
