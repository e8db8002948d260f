"""Users, rights and certificates change while sessions and links live: they end, or are narrowed, at real brokers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.command import veena as command
from tests.runtime.authority import Authority
from tests.runtime.processes import veena
from tests.runtime.raw_client import RawClient, attach
from tests.runtime.streams import until
from veena.core.wire.client import AskSubscribe, Farewell, TellAccepted, TellDenied, TellRefused
from veena.errors import RefusalCode
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.registry import NO_SECRETS, Secrets

ROLES = """
[role.trader]
rules = [{ allow = ["publish", "subscribe"], topic = "quotes.*" }, { allow = "wide" }]
[role.narrow]
rules = [{ allow = ["publish", "subscribe"], topic = "quotes.open.*" }, { allow = "wide" }]
[role.local]
rules = [{ allow = ["publish", "subscribe"], topic = "quotes.*" }]
"""
QUICK = "[links]\nheartbeat_s = 0.2\nretry_s = 0.02\n"


#: Whom a scenario has connected.
connected: list[RawClient] = []


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run it; what hangs fails, and who is connected goes."""

    async def whole() -> None:
        try:
            await asyncio.wait_for(scenario, 60)
        finally:
            for client in connected:
                client.stream.abort("over")
            await until(lambda: all(client.reason is not None for client in connected))
            connected.clear()

    asyncio.run(whole())


async def come(url: str, name: str, secrets: Secrets = NO_SECRETS, token: str = "") -> RawClient:
    connected.append(await attach(url, name, secrets=secrets, token=token))
    return connected[-1]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.runtime.clients.service.CHECK_S", 0.05)
    monkeypatch.setattr("veena.runtime.links.links.MEASURE_S", 0.05)


class Desk:
    """A broker with a users file, which is written again while it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.audit = directory / "audit.jsonl"

    def write(self, **users: str) -> None:
        """Each user's entry; its token is its name."""
        entries = [
            f"[user.{name}]\n" + (entry if "tokens" in entry else f'tokens = ["{digest_of(name)}"]\n{entry}')
            for name, entry in users.items()
        ]
        (self.directory / "users.toml").write_text("\n".join([*entries, ROLES]))

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[Node]:
        text = (
            f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n{QUICK}[auth]\nusers_file = "users.toml"\n'
            '[audit]\nfile = "audit.jsonl"\n'
        )
        node = Node(parse_config(text, base=self.directory))
        await node.start()
        try:
            yield node
        finally:
            await node.stop(drain_s=0.1)

    def noted(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def came(node: Node, user: str) -> RawClient:
    return await come(node.urls[0], user, token=user)


async def farewell(client: RawClient) -> Farewell:
    found = await client.wait(Farewell)
    await until(lambda: client.reason is not None)
    assert isinstance(found, Farewell)
    return found


def refused(client: RawClient) -> list[TellRefused]:
    return [frame for frame in client.frames if isinstance(frame, TellRefused)]


TRADER = 'roles = ["trader"]\n'


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (None, "does not exist any more"),
        (TRADER + "revoked = true\n", "was revoked"),
        (f'tokens = ["{digest_of("another")}"]\n{TRADER}', "the token of user 'alice' changed"),
        (TRADER + 'clients = ["desk-1"]\n', "may not attach as client 'alice'"),
    ],
)
def test_a_user_who_may_not_come_any_more_has_to_go(desk: Desk, after: str | None, told: str) -> None:
    """SEC: a user was taken off the file, and its running session went on reading, publishing and subscribing."""

    async def scenario() -> None:
        desk.write(alice=TRADER, bob=TRADER)
        async with desk.broker() as node:
            alice, bob = await came(node, "alice"), await came(node, "bob")
            await alice.subscribe("quotes.open.a")
            await bob.subscribe("quotes.open.a")
            desk.write(bob=TRADER, **({} if after is None else {"alice": after}))
            node.reload(node.config)
            last = await farewell(alice)
            assert last.why is RefusalCode.DENIED and told in last.reason
            bob.publish("quotes.open.a", b"for bob")
            await bob.has(1)
            assert alice.bodies() == [] and bob.reason is None, "nobody else notices"
            assert set(node.clients.by_principal) == {"bob"}
        [ended] = desk.noted("session ended")
        assert ended["user"] == "alice" and ended["code"] == "denied"

    run(scenario())


def test_rights_that_are_narrowed_end_what_they_do_not_allow(desk: Desk) -> None:
    """SEC: a subscription that the new rules do not allow ends with a code, gets nothing more, and others go on."""

    async def scenario() -> None:
        desk.write(alice=TRADER, bob=TRADER)
        async with desk.broker() as node:
            alice, bob = await came(node, "alice"), await came(node, "bob")
            for number, topic in ((1, "quotes.secret.a"), (2, "quotes.open.a")):
                alice.say(AskSubscribe(number, "topic", msgspec.msgpack.encode(topic)))
            bob.publish("quotes.secret.a", b"before")
            bob.publish("quotes.open.a", b"before")
            await alice.has(2)
            desk.write(alice='roles = ["narrow"]\n', bob=TRADER)
            node.reload(node.config)
            [ended] = [await alice.wait(TellRefused)]
            assert ended.number == 1 and ended.why is RefusalCode.DENIED and "do not allow" in ended.reason
            bob.publish("quotes.secret.a", b"secret")
            bob.publish("quotes.open.a", b"open")
            await alice.has(3)
            assert alice.bodies()[2:] == [b"open"]
            alice.publish("quotes.secret.a", b"from alice")
            assert (await alice.wait(TellDenied)).why is RefusalCode.DENIED
            alice.say(AskSubscribe(3, "topic", msgspec.msgpack.encode("quotes.secret.b")))
            await until(lambda: len(refused(alice)) == 2)
            assert alice.reason is None
        assert [each["user"] for each in desk.noted("rights changed")] == ["alice"]

    run(scenario())


@pytest.mark.parametrize("after", ['roles = ["local"]\n', 'roles = ["trader"]\nclearances = ["secret"]\n'])
def test_what_stays_in_the_network_is_asked_for_anew(desk: Desk, after: str) -> None:
    """A right with effects elsewhere, and clearances: the client has to attach again, as what it is now."""

    async def scenario() -> None:
        desk.write(alice=TRADER)
        async with desk.broker() as node:
            alice = await came(node, "alice")
            desk.write(alice=after)
            node.reload(node.config)
            assert (await farewell(alice)).why is RefusalCode.BUSY
            assert (await came(node, "alice")).reason is None

    run(scenario())


def test_a_token_ends_at_its_time(desk: Desk) -> None:
    async def scenario() -> None:
        desk.write(bob="")
        async with desk.broker() as node:
            end = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
            desk.write(alice=f'tokens = [{{ digest = "{digest_of("alice")}", until = {end} }}]\n', bob="")
            node.reload(node.config)
            alice, bob = await came(node, "alice"), await came(node, "bob")
            last = await farewell(alice)
            assert last.why is RefusalCode.DENIED and "expired" in last.reason and bob.reason is None

    run(scenario())


def test_the_command_ends_the_sessions_of_a_user(desk: Desk) -> None:
    """SEC: `veena users revoke` has the running broker send the user away before it returns."""
    desk.write(alice=TRADER, bob=TRADER)
    config = desk.directory / "broker.toml"
    config.write_text(
        '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "users.toml"\n[store]\npath = "store"\n'
    )

    async def scenario(url: str) -> None:
        alice, bob = await come(url, "alice", token="alice"), await come(url, "bob", token="bob")
        said = await asyncio.to_thread(command, "users", "revoke", "alice", "--config", str(config))
        assert said.code == 0 and "has ended the sessions of 'alice'" in said.out, said
        last = await farewell(alice)
        assert last.why is RefusalCode.DENIED and "was revoked" in last.reason and bob.reason is None

    with veena("broker", "run", "--config", str(config), "--json") as started:
        run(scenario(started.told()["url"]))
        assert started.end() == 0
    assert "revoked = true" in (desk.directory / "users.toml").read_text()


# --- certificates ---


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("one")
    made.revoke()
    return made


def secured(
    authority: Authority, name: str, address: str, dial: Sequence[str] = (), *, names: str = '["two"]', more: str = ""
) -> Node:
    """A broker that shows the certificate of its name, and asks everybody for one."""
    urls = ", ".join(f'"{url}"' for url in dial)
    return Node(
        parse_config(
            f'[broker]\nname = "{name}"\naddress = "{address}"\nlisten = ["veenas://127.0.0.1:0"]\n'
            f'{QUICK}dial = [{urls}]\ncertificates = {names}\n[tls]\ncertificate = "{name}.pem"\nkey = "{name}.key"\n'
            f'authority = "authority.pem"\nrevoked = "revoked.pem"\nclients = "required"\n{more}',
            base=authority.directory,
        )
    )


@asynccontextmanager
async def linked(authority: Authority) -> AsyncIterator[tuple[Node, Node]]:
    """Broker `two` dials broker `one`."""
    one = secured(authority, "one", "0.0.0.0")
    await one.start()
    two = secured(authority, "two", "0.0.0.1", one.urls, names='["one"]')
    await two.start()
    try:
        await until(lambda: (0, 0, 0, 1) in one.driver.reached and (0, 0, 0, 0) in two.driver.reached)
        yield one, two
    finally:
        await two.stop(drain_s=0.1)
        await one.stop(drain_s=0.1)


async def no_link(one: Node) -> None:
    """The link is gone, and broker two has tried to come again since."""
    await until(lambda: not len(one.driver.links))
    before = one.statistics().entrance
    tried = before.accepted + before.refused
    await until(lambda: one.statistics().entrance.accepted + one.statistics().entrance.refused > tried)
    await until(lambda: not len(one.driver.links))


def test_a_certificate_on_the_list_ends_a_session(authority: Authority) -> None:
    """SEC: the key of a client is stolen, its certificate is revoked, and who is connected with it has to go."""

    async def scenario() -> None:
        for name in ("alice", "bob"):
            authority.issue(name)
        node = secured(authority, "one", "0.0.0.0")
        await node.start()
        alice, bob = [await come(node.urls[0], name, authority.secrets(name)) for name in ("alice", "bob")]
        authority.revoke("alice")
        node.reload(node.config)
        last = await farewell(alice)
        assert last.why is RefusalCode.DENIED and "was revoked" in last.reason
        bob.publish("x", b"")
        await bob.wait(TellAccepted)
        assert bob.reason is None
        await node.stop(drain_s=0.1)

    run(scenario())


@pytest.mark.parametrize("told", ["who was dialled", "who dials"])
def test_a_certificate_on_the_list_ends_a_link(
    authority: Authority, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC: the key of a broker is stolen, its certificate is revoked: whichever end is told of it gives the link up."""
    caplog.set_level(logging.INFO)

    def asks_for_a_reason() -> bool:
        fields = [getattr(record, "fields", {}) for record in caplog.records]
        return any("does it refuse this broker's certificate" in str(each.get("reason")) for each in fields)

    async def scenario() -> None:
        authority.issue("two")
        async with linked(authority) as (one, two):
            authority.revoke("two" if told == "who was dialled" else "one")
            knows = one if told == "who was dialled" else two
            knows.reload(knows.config)
            await no_link(one)
            await until(lambda: not len(two.driver.links))
            if told == "who was dialled":
                await until(asks_for_a_reason)

    run(scenario())


def test_a_broker_that_is_not_listed_any_more_loses_its_link(authority: Authority) -> None:
    """SEC: a broker was taken off `[links] certificates`, and its link stayed."""

    async def scenario() -> None:
        authority.issue("two")
        async with linked(authority) as (one, _):
            one.reload(secured(authority, "one", "0.0.0.0", names='["three"]').config)
            await no_link(one)

    run(scenario())


def test_certificates_that_expire_end_sessions_and_links(authority: Authority) -> None:
    """SEC: a certificate was good when the connection was made; it ends when that is over."""

    async def scenario() -> None:
        soon = timedelta(seconds=4)  # long enough for both brokers to start on a busy machine
        authority.issue("bob")
        authority.issue("alice", soon)
        authority.issue("two", soon)
        async with linked(authority) as (one, _):
            alice = await come(one.urls[0], "alice", secrets=authority.secrets("alice"))
            bob = await come(one.urls[0], "bob", secrets=authority.secrets("bob"))
            last = await farewell(alice)
            assert last.why is RefusalCode.DENIED and "has expired" in last.reason
            await no_link(one)
            assert bob.reason is None

    run(scenario())


def test_an_authority_that_is_not_believed_any_more_takes_its_people_along(
    authority: Authority, tmp_path: Path
) -> None:
    """SEC: two authorities in the file, one is taken out: who showed a certificate of that one has to go."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    other.issue("bob")
    other.revoke()
    authority.issue("alice")
    own, lists = authority.pem.read_text(), authority.revoke().read_text()
    authority.pem.write_text(own + other.pem.read_text())
    (tmp_path / "revoked.pem").write_text(lists + (tmp_path / "other" / "revoked.pem").read_text())

    async def scenario() -> None:
        node = secured(authority, "one", "0.0.0.0")
        await node.start()
        secrets = other.secrets("bob")
        secrets.client.load_verify_locations(authority.pem)  # type: ignore[union-attr]
        bob = await come(node.urls[0], "bob", secrets=secrets)
        alice = await come(node.urls[0], "alice", secrets=authority.secrets("alice"))
        authority.pem.write_text(own)
        node.reload(node.config)
        last = await farewell(bob)
        assert last.why is RefusalCode.DENIED and "not believed any more" in last.reason
        alice.publish("x", b"")
        await alice.wait(TellAccepted)
        assert alice.reason is None
        await node.stop(drain_s=0.1)

    run(scenario())
