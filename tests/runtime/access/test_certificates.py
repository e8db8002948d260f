"""Certificates of clients, at a real broker that has no users file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.runtime.authority import Authority
from tests.runtime.streams import until
from veena import connect
from veena.errors import AccessDenied, NotConnected
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.tls import client_context

BROKER = """
[broker]
listen = ["veenas://127.0.0.1:0"]
[tls]
certificate = "b.pem"
key = "b.key"
authority = "authority.pem"
clients = "required"
[audit]
file = "audit.jsonl"
"""


def test_a_client_is_whom_its_certificate_names(tmp_path: Path) -> None:
    """SEC: whoever had some certificate attached as "alice", read her durable subscription and published as alice."""
    authority = Authority(tmp_path)
    authority.issue("b")
    authority.issue("mallory", hosts=["meter-7"])
    tls = authority.secrets("mallory").client

    async def run() -> None:
        node = Node(parse_config(BROKER, base=tmp_path))
        await node.start()
        url = node.urls[0]
        for client_id, user in (("alice", ""), ("mallory", "alice"), (None, "alice")):
            with pytest.raises(AccessDenied, match="certificate is"):
                await connect(url, client_id=client_id, user=user, tls=tls).open()
        await until(lambda: node.clients.statistics().refused == 3)
        for client_id, user in (("mallory", ""), ("mallory/phone", "mallory"), (None, "mallory"), ("meter-7/1", "")):
            async with connect(url, client_id=client_id, user=user, tls=tls) as client:
                await client.publish(topic="t", reliable=True)
        # A reload judges by the same rule, and ends nobody who is who it says.
        async with connect(url, client_id="meter-7", tls=tls) as client:
            node.reload(node.config)
            await client.publish(topic="t", reliable=True)
        await node.stop()

    asyncio.run(run())
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    refused = [line for line in lines if line["kind"] == "log-in refused"]
    assert [line["user"] for line in refused] == ["mallory", "alice", "alice"]
    assert len([line for line in lines if line["kind"] == "log-in"]) == 5


def test_who_is_not_let_in_by_its_certificate_is_told_where_to_look(tmp_path: Path) -> None:
    """A broker ends such a connection without a word; an authority of one's own has to be named."""
    authority = Authority(tmp_path)
    authority.issue("b")
    authority.issue("alice")

    async def run() -> None:
        node = Node(parse_config(BROKER, base=tmp_path))
        await node.start()
        for tls, told in (
            (client_context(tmp_path / "authority.pem"), "does the client show a good one that is not revoked"),
            (client_context(), "its certificate is refused here .*; trust its authority's file, by --ca"),
        ):
            with pytest.raises(NotConnected, match=told):
                await connect(node.urls[0], tls=tls, timeout=2.0).open()
        await node.stop()
        with pytest.raises(NotConnected, match="does a broker run there"):
            await connect(node.urls[0], tls=client_context(), timeout=0.5).open()

    asyncio.run(run())
