"""The audit log of a real broker: complete under a flood, in files that are rotated, and honest about a full disk."""

from __future__ import annotations

import asyncio
import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.raw_client import attach
from tests.runtime.streams import until
from veena.core.wire.client import AskSubscribe, ClientHello, Farewell, TellDenied, TellRefused
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.errors import ConfigError, RefusalCode
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.logging import audit
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import NOISE_LINES
from veena.runtime.transports.url import parse_url

USERS = f"""
[user.alice]
tokens = ["{digest_of("alice")}"]
roles = ["reader"]
limits = {{ connections = 1 }}
[role.reader]
rules = [{{ allow = "subscribe", topic = "open" }}]
"""
#: Of each kind of refusal.
FLOOD = 3000


def node_of(directory: Path, more: str = "") -> Node:
    (directory / "users.toml").write_text(USERS)
    text = (
        '[broker]\nname = "b"\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "users.toml"\n'
        f'[audit]\nfile = "audit.jsonl"\n{more}'
    )
    return Node(parse_config(text, base=directory))


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """All lines, the oldest first."""
    numbered = sorted(directory.glob("audit.jsonl.*"), key=lambda path: -int(path.suffix[1:]))
    return [
        json.loads(line) for path in (*numbered, directory / "audit.jsonl") for line in path.read_text().splitlines()
    ]


async def knock(url: str, token: str) -> Farewell:
    """The answer to a log-in that fails."""
    place = parse_url(url)
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(encode(ClientHello(VERSION_LOW, VERSION, "alice", token=token), 0))
    [(_, answer)] = Decoder().feed(await reader.read(65536))
    writer.transport.abort()
    assert isinstance(answer, Farewell)
    return answer


def test_no_decision_is_left_out_under_a_flood(tmp_path: Path) -> None:
    """SEC: thousands of refused events and wishes, to hide one refused log-in among them; the log leaves most out."""

    async def run() -> None:
        node = node_of(tmp_path, "max_bytes = 65536\nfiles = 1000\n")
        await node.start()
        alice = await attach(node.urls[0], "alice", token="alice")
        for at in range(FLOOD):
            alice.publish("closed", b"")
            alice.say(AskSubscribe(at + 1, "topic", msgspec.msgpack.encode("closed\n")))
            if at == FLOOD // 2:
                assert (await knock(node.urls[0], "guessed")).why is RefusalCode.DENIED
                assert (await knock(node.urls[0], "alice")).why is RefusalCode.LIMIT
        await until(lambda: Counter(type(frame) for frame in alice.frames)[TellDenied] == FLOOD)
        await until(lambda: Counter(type(frame) for frame in alice.frames)[TellRefused] == FLOOD)
        alice.stream.close("done")
        await until(lambda: alice.reason is not None)
        assert node.log.statistics().left_out >= 2 * (FLOOD - NOISE_LINES)
        await node.stop(drain_s=0.1)

    asyncio.run(asyncio.wait_for(run(), 60))
    lines = lines_of(tmp_path)
    assert Counter((line["kind"], line.get("code")) for line in lines) == {
        ("broker started", None): 1,
        ("log-in", None): 1,
        ("right refused", "denied"): 2 * FLOOD,
        ("log-in refused", "denied"): 1,
        ("log-in refused", "limit"): 1,
        ("broker stopped", None): 1,
    }
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert {line["client"] for line in lines if line["kind"] == "right refused"} == {"alice"}
    files = list(tmp_path.glob("audit.jsonl*"))
    assert len(files) > 10 and all(file.stat().st_size <= 65536 for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_the_oldest_file_goes_when_there_are_too_many(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", broker="b", max_bytes=1000, files=3)
    for at in range(30):
        log.note("right refused", number=at, reason="x" * 100)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    numbers = [line["number"] for line in lines_of(tmp_path)]
    assert numbers == list(range(numbers[0], 30)) and 8 < len(numbers) < 30


def test_a_full_disk_is_told_and_what_was_lost_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT: the broker goes on, `/readyz` names the trouble, and the first line afterwards says what is missing."""
    monkeypatch.setattr(audit, "MAX_WAITING_BYTES", 4096)
    monkeypatch.setattr(audit, "RETRY_S", 0.02)
    (tmp_path / "audit.jsonl").symlink_to("/dev/full")

    async def run() -> None:
        node = node_of(tmp_path)
        await node.start()
        alice = await attach(node.urls[0], "alice", token="alice")
        for _ in range(100):
            alice.publish("closed", b"")
        await until(lambda: Counter(type(frame) for frame in alice.frames)[TellDenied] == 100)
        await until(lambda: node.why_not_ready() == "the audit log cannot be written: No space left on device")
        lost = node.statistics().audit.lost
        assert 0 < lost < 100 and node.statistics().audit.written == 0
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(tmp_path / "audit.jsonl")
        await until(lambda: node.why_not_ready() is None)
        alice.publish("closed", b"")
        alice.stream.close("done")
        await until(lambda: alice.reason is not None)
        await node.stop(drain_s=0.1)
        lines = lines_of(tmp_path)
        assert [line["count"] for line in lines if line["kind"] == "lines were lost"] == [lost]
        assert sum(line["kind"] == "right refused" for line in lines) == 101 - lost

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    text = '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[audit]\nfile = "nowhere/audit.jsonl"\n'
    with pytest.raises(ConfigError, match=r"nowhere/audit.jsonl.*name a file in a directory"):
        asyncio.run(Node(parse_config(text, base=tmp_path)).start())
