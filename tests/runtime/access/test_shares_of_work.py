"""One user's requests, pasts, groups and memories at a broker are bounded, and cost nobody else (real brokers)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec
import pytest

import veena
from tests.runtime.client_brokers import PATIENCE_S, run, until
from tests.runtime.raw_client import RawClient, attach
from veena.client import Client
from veena.core.durable import groups
from veena.core.sessions import presented
from veena.core.sessions.requests import MAX_PENDING, MAX_PENDING_OF_USER
from veena.core.wire.client import AskRequest, AskSubscribe, ClientWelcome, TellActive, TellRefused
from veena.core.wire.codec import encode
from veena.errors import RefusalCode
from veena.event import Event, EventId
from veena.runtime.access.users import parse_users
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config

USERS = "".join(
    f'[user.{name}]\ntokens = ["sha256:{sha256(name.encode()).hexdigest()}"]\nroles = ["all"]\n'
    for name in ("mallory", "honest")
)
ROLE = '[role.all]\nrules = [{ allow = "*" }]\n'
HOUR_MS = 3_600_000


@asynccontextmanager
async def broker() -> AsyncIterator[Node]:
    node = Node(parse_config('[broker]\nname = "b"\nlisten = ["veena://127.0.0.1:0"]\n'))
    await node.start()
    node.clients.users = parse_users(USERS + ROLE)
    try:
        yield node
    finally:
        await node.stop()


async def mallory(node: Node, name: str) -> RawClient:
    return await attach(node.urls[0], f"mallory/{name}", user="mallory", token="mallory")


def honest(node: Node, name: str) -> Client:
    return veena.connect(node.urls[0], client_id=f"honest/{name}", user="honest", token="honest")


def topic(text: str) -> bytes:
    return msgspec.msgpack.encode(text)


def refusals(client: RawClient) -> list[RefusalCode]:
    return [frame.why for frame in client.frames if isinstance(frame, TellRefused)]


async def ask(client: RawClient, count: int) -> None:
    """So many requests that nobody is going to answer."""
    welcome = await client.wait(ClientWelcome)
    parts = []
    for number in range(1, count + 1):
        headers = {"reply-to": welcome.reply_to, "correlation": number}
        event_id = EventId(client.client_id, client.incarnation, 1, number)
        event = Event(topic="void", body=b"", headers=headers, event_id=event_id)
        parts += [encode(AskRequest(number, HOUR_MS, 1), 0), client.codec.encode_event(event, 0, reliable=False)]
    client.stream.write(parts)


async def cpu_of_honest_events(node: Node, client: Client) -> float:
    before = time.process_time()
    for _ in range(100):
        await client.publish(topic="any", body=b"", reliable=True)
    return time.process_time() - before


def test_requests_that_nobody_answers_cost_nobody_else() -> None:
    """CLI-03: the broker looked at each open request for every input; a user may have them in 4,096 sessions."""

    async def scenario() -> None:
        async with broker() as node, honest(node, "1") as client:
            requests = node.driver.broker.events.sessions.requests
            reader = await mallory(node, "reader")
            reader.say(AskSubscribe(1, "topic", topic("void"), 1))
            await reader.wait(TellActive)
            alone = await cpu_of_honest_events(node, client)
            for number in range(MAX_PENDING_OF_USER // MAX_PENDING):
                await ask(await mallory(node, str(number)), MAX_PENDING)
            await until(lambda: requests.pending == MAX_PENDING_OF_USER)
            more = await mallory(node, "more")
            await ask(more, 1)
            await until(lambda: any(getattr(frame, "why", None) is RefusalCode.LIMIT for frame in more.frames))
            beside = await cpu_of_honest_events(node, client)
            assert beside < 4 * alone + 0.2, (
                f"{beside:.3f} s of CPU beside {MAX_PENDING_OF_USER} requests, {alone:.3f} s"
            )
            for session in list(node.clients.sessions.values()):
                session.stream.abort("gone")
            await until(lambda: not requests.pending)
            requests.check()

    run(scenario())


def test_questions_about_the_past_leave_room_for_those_of_others() -> None:
    """CLI-03: a thousand subscriptions with a past had everybody else's refused, and the log read for each at once."""

    async def scenario() -> None:
        began = datetime.now().astimezone() - timedelta(minutes=1)
        async with broker() as node, honest(node, "1") as client:
            await client.publish(topic="kept", body=b"old", reliable=True)
            flood = await mallory(node, "flood")
            flood.say(*(AskSubscribe(n, "topic", topic(f"t{n}"), 1, since_ns=1) for n in range(1, 1200)))
            await until(lambda: RefusalCode.LIMIT in refusals(flood))
            past = await client.subscribe(topic="kept", since=began)
            event = await past.next(PATIENCE_S)
            assert event is not None and bytes(event.body) == b"old"

    run(scenario())


def test_a_user_does_not_take_all_places_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-03: a broker has room for so many members of groups; one user has a part of it, and gets it back."""
    monkeypatch.setattr(groups, "MAX_MEMBERS", 40)
    monkeypatch.setattr(groups, "MAX_MEMBERS_OF_USER", 10)

    async def scenario() -> None:
        async with broker() as node, honest(node, "1") as client:
            for _ in range(2):
                flood = await mallory(node, "flood")
                flood.say(*(AskSubscribe(n, "topic", topic("x"), 1, group="g", durable="d") for n in range(1, 61)))
                await until(lambda flood=flood: len(refusals(flood)) == 50)
                assert set(refusals(flood)) == {RefusalCode.LIMIT}
                await client.subscribe(topic="x", group="others")
                flood.stream.close("over")
                await until(lambda: len(node.clients.sessions) == 1)

    run(scenario())


def test_what_clients_say_they_have_had_is_bounded_by_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-03: each subscription may present 2,048 streams with long names, and a user may have 65,536 subscriptions."""
    monkeypatch.setattr(presented, "MAX_BYTES_OF_USER", 1 << 20)
    had = tuple((f"{'x' * 200}{number}", 1, 1, 1, 1) for number in range(500))

    async def scenario() -> None:
        async with broker() as node, honest(node, "1") as client:
            held = node.driver.broker.events.sessions.presented
            for _ in range(2):
                flood = await mallory(node, "flood")
                flood.say(*(AskSubscribe(n, "topic", topic("x"), 1, f"d{n}", had=had) for n in range(1, 11)))
                await until(lambda flood=flood: len(refusals(flood)) == 5)
                assert set(refusals(flood)) == {RefusalCode.LIMIT} and 0 < held.bytes <= 1 << 20
                await client.subscribe(topic="x", durable="mine")
                flood.stream.close("over")
                await until(lambda: not held.bytes)

    run(scenario())
