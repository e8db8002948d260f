"""Shares of a broker: what one user has it keep is bounded, and nobody else notices (real brokers, stores, sockets)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import veena
from tests.runtime.client_brokers import PATIENCE_S, run, until
from veena.client import Client, Subscription
from veena.errors import RefusalCode, Refused
from veena.event import Event
from veena.runtime.access.users import digest_of
from veena.runtime.broker.metrics import exposition
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.store.retention import REFUSE_AT, TRIM_AT

MAX_BYTES = 4 << 20
BODY = bytes(16 << 10)


def _users(folder: Path, limits: str = "") -> Path:
    path = folder / "users.toml"
    names = ("mallory", "honest", "publisher")
    entries = [
        f'[user.{name}]\ntokens = ["{digest_of(name)}"]\n' + (limits if name == "mallory" else "") for name in names
    ]
    path.write_text("\n".join(entries))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def _broker(folder: Path, extra: str = "") -> AsyncIterator[Node]:
    text = (
        f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "{folder}/users.toml"\n'
        f'[store]\npath = "{folder}/store"\nmax_bytes = {MAX_BYTES}\nhistory_s = 0.001\n{extra}'
    )
    node = Node(parse_config(text))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def _client(node: Node, user: str, client_id: str = "") -> Client:
    return veena.connect(node.urls[0], client_id=client_id or user, user=user, token=user)


async def _publish(node: Node, publisher: Client, first: int, last: int) -> None:
    """Every one is accepted, or this fails; not faster than a store so small gives up what everybody has had."""
    for number in range(first, last):
        await until(lambda: node.store.statistics().used_bytes < MAX_BYTES * TRIM_AT // 100)
        await publisher.publish(topic="news", properties={"number": number}, body=BODY, reliable=True)


async def _subscribe(node: Node, client: Client, topic: str, durable: str, **options: Any) -> Subscription:
    """Subscribe durably; this broker knows of it then, and there is no other."""
    here = node.driver.broker.events.sessions.durables.here
    subscription = await client.subscribe(topic=topic, durable=durable, wait=0, **options)
    await until(lambda: (client.client_id, durable) in here and bool(here[client.client_id, durable].readers))
    return subscription


async def _read(subscription: Subscription, count: int) -> list[int]:
    return [_number(await subscription.next(PATIENCE_S)) for _ in range(count)]


def _number(event: Event | None) -> int:
    assert event is not None
    number = event.properties["number"]
    assert isinstance(number, int)
    return number


def _is_suspended(node: Node) -> bool:
    return node.driver.statistics().durables.suspended > 0


def test_a_durable_subscription_that_nobody_reads_stops_nobody_else(tmp_path: Path) -> None:
    """FLT-05, FLT-09, CLI-03: an attacker subscribes durably and leaves. Far more than the store holds is published;
    all of it is accepted, and an honest durable subscription, which is read by and by, misses nothing. The attacker has
    its share, is told why there is no more and how much it missed, and goes on when it has read."""
    _users(tmp_path)
    count = 5 * MAX_BYTES // 4 // len(BODY) // 16 * 16

    async def scenario() -> None:
        async with _broker(tmp_path) as node:
            async with _client(node, "mallory") as mallory:
                await _subscribe(node, mallory, "news", "never read")
            async with _client(node, "honest") as honest, _client(node, "publisher") as publisher:
                wanted = await _subscribe(node, honest, "news", "kept")
                for first in range(0, count, 16):
                    await _publish(node, publisher, first, first + 16)
                    assert await _read(wanted, 16) == list(range(first, first + 16))
                assert not wanted.is_suspended and not wanted.not_kept
                store = node.store.statistics()
                assert store.used_bytes < MAX_BYTES * REFUSE_AT // 100 and not store.failed
                charge = next(each for each in node.driver.statistics().durables.users if each.user == "mallory")
                assert charge.suspended == 1 and 0 < charge.kept_bytes <= charge.share_bytes == MAX_BYTES // 4
                shown = exposition(node.statistics()).decode()
                assert "veena_durables_suspended 1.0" in shown and f"veena_events_missed_total {charge.missed}" in shown
                async with _client(node, "mallory") as mallory:
                    late = await _subscribe(node, mallory, "news", "never read", ack="manual")
                    await until(lambda: late.is_suspended)
                    error = late.suspension
                    assert error is not None and error.code is RefusalCode.LIMIT
                    for part in ("'never read'", "'mallory'", "store_share", "delete"):
                        assert part in str(error)
                    got = count - late.not_kept
                    assert 0 < got < count and late.not_kept == charge.missed
                    for number in range(got):
                        event = await late.next(PATIENCE_S)
                        assert event is not None and _number(event) == number, "what was kept is the first of it"
                        await late.ack(event)
                    await until(lambda: not late.is_suspended)
                    assert late.not_kept == count - got
                    await _publish(node, publisher, count, count + 1)
                    assert await _read(late, 1) == await _read(wanted, 1) == [count]

    run(scenario())


def test_what_is_charged_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """FLT-05: charges are computed from the disk, and what was missed is still told."""
    _users(tmp_path)
    count = MAX_BYTES // len(BODY)

    async def scenario() -> None:
        async with _broker(tmp_path) as node:
            async with _client(node, "mallory", "mallory/a") as mallory:
                await _subscribe(node, mallory, "news", "never read")
            async with _client(node, "publisher") as publisher:
                await _publish(node, publisher, 0, count)
            before = node.driver.statistics().durables.users[0]
            assert before.user == "mallory" and before.suspended and before.missed
            with closing(sqlite3.connect(f"file:{tmp_path}/store/veena.db?mode=ro", uri=True)) as disk:
                await until(lambda: disk.execute("SELECT missed FROM registered").fetchone() == (before.missed,))
        async with _broker(tmp_path) as node:
            after = node.driver.statistics().durables.users[0]
            assert (after.user, after.missed, after.durables) == ("mallory", before.missed, 1)
            assert abs(after.kept_bytes - before.kept_bytes) <= 64 << 10
            async with _client(node, "publisher") as publisher:
                await _publish(node, publisher, count, count + 8)
            assert _is_suspended(node)
            async with _client(node, "mallory", "mallory/a") as mallory:
                late = await _subscribe(node, mallory, "news", "never read")
                got = await _read(late, count - before.missed)
                assert got == list(range(len(got)))
                assert before.missed <= late.not_kept <= before.missed + 8

    run(scenario())


def test_a_user_has_one_share_for_all_of_its_clients(tmp_path: Path) -> None:
    """CLI-03: more client ids and more subscriptions give no more bytes; a subscription that is read goes on while the
    others of its user are suspended; who has less in the users file gets less."""
    _users(tmp_path, "limits = { store_share = 0.125, durables = 3 }\n")

    async def scenario() -> None:
        async with _broker(tmp_path) as node:
            for number in range(3):
                async with _client(node, "mallory", f"mallory/{number}") as mallory:
                    await _subscribe(node, mallory, "news", "never read")
                    if number == 2:
                        with pytest.raises(Refused, match="3 durable subscriptions here, of at most 3") as told:
                            await mallory.subscribe(topic="other", durable="one more")
                        assert told.value.code is RefusalCode.LIMIT
            async with _client(node, "mallory", "mallory/2") as reader, _client(node, "publisher") as publisher:
                read = await _subscribe(node, reader, "news", "never read")
                for number in range(100):
                    await _publish(node, publisher, number, number + 1)
                    assert await _read(read, 1) == [number]
                    await asyncio.sleep(0)
                charge = node.driver.statistics().durables.users[0]
                assert charge.share_bytes == MAX_BYTES // 8 and charge.suspended == 2
                assert charge.kept_bytes <= charge.share_bytes * 9 // 8
                await read.delete()
                await _subscribe(node, reader, "other", "room again")

    run(scenario())
