"""The users file: read, refused with a remedy, and what its rules amount to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from veena.core.wire.client import ClientHello
from veena.errors import AccessDenied, ConfigError
from veena.event import Event
from veena.runtime.access.limits import Limits
from veena.runtime.access.rights import Rights, Rule, engines_of, event_type
from veena.runtime.access.users import Users, digest_of, hash_password, load_users, new_token, parse_users


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[user", "syntax"),
        ("[user.a]\npasword = 'x'", "pasword"),
        ("[user.a]\npassword = 'plain'", "is no argon2 hash"),
        ("[user.a]\nroles = ['x']", "unknown role 'x'"),
        ("[user.'a/b']", "is no name of a user"),
        ("[user.a]\nlimits = { subscriptions = 0 }", "subscriptions = 0: use 1 to"),
        ("[user.a]\nlimits = { events_per_second = -1 }", "events_per_second = -1"),
        ("[role.r]\nrules = [{ topic = 'x' }]", "needs one of allow and deny"),
        ("[role.r]\nrules = [{ allow = 'publish', deny = 'publish' }]", "needs one of allow and deny"),
        ("[user.a]\ntokens = ['secret']", "is no digest"),
        (f"[user.a]\ntokens = ['{digest_of('x')}']\n[user.b]\ntokens = ['{digest_of('x')}']", "of another user"),
        ("[role.r]\nrules = [{ allow = 'fly' }]", "fly"),
        ("[role.r]\nrules = [{ allow = 'publish', topic = 'a*b' }]", "put the only"),
    ],
)
def test_faults_of_a_users_file_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_users(text)


def test_the_file_in_the_documentation_works() -> None:
    """Who starts from it may publish and subscribe as far as clients ask without being told otherwise."""
    pages = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"
    text = next(block for block in pages.read_text().split("```toml\n")[1:] if block.startswith("[user.alice]"))
    text = text.partition("```")[0].replace("$argon2id$...", hash_password("x")).replace("sha256:...", digest_of("t"))

    async def scenario() -> None:
        alice = await parse_users(text).admit(ClientHello(1, 1, "alice", password="x"), None)
        assert alice.rights is not None
        assert alice.rights.may_publish(Event(topic="quotes.nyse"))
        assert not alice.rights.may_publish(Event(topic="quotes.internal.a"))
        assert alice.rights.allows("subscribe", "topic", "quotes.nyse") and alice.rights.allows("wide")

    asyncio.run(scenario())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_users(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b"[user.\xe9]")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_users(tmp_path / "latin.toml")


def test_certificates_and_passwords(tmp_path: Path) -> None:
    """A certificate in a user's name needs no password; a user without a password has no other way in."""
    text = f"[user.machine]\n[user.alice]\npassword = '{hash_password('x')}'\nlimits = {{ subscriptions = 7 }}"
    (tmp_path / "users.toml").write_text(text)
    users = load_users(tmp_path / "users.toml", Limits(subscriptions=9))

    async def scenario() -> None:
        machine = await users.admit(ClientHello(1, 1, "machine/7"), ("Machine Seven", "machine"))
        assert (machine.name, machine.rights, machine.limits.subscriptions) == ("machine", None, 9)
        alice = await users.admit(ClientHello(1, 1, "alice", password="x"), None)
        assert alice.limits.subscriptions == 7
        for hello, proven in (
            (ClientHello(1, 1, "machine"), None),
            (ClientHello(1, 1, "machine", password=""), ("alice",)),
            (ClientHello(1, 1, "alice"), ("machine",)),
            (ClientHello(1, 1, "alice", user="alice", password="y"), ("machine",)),
            (ClientHello(1, 1, "machine"), ()),
        ):
            with pytest.raises(AccessDenied):
                await users.admit(hello, proven)

    asyncio.run(scenario())


def test_without_a_file_everybody_is_let_in() -> None:
    users = Users()
    assert users.is_open
    assert users.anybody(ClientHello(1, 1, "x")).rights is None


@pytest.mark.parametrize(
    ("client_id", "user", "names", "found"),
    [
        ("mallory", "", ("mallory",), "mallory"),
        ("mallory/phone", "", ("Mallory M.", "mallory"), "mallory"),
        ("mallory/phone", "mallory", ("mallory",), "mallory"),
        ("alice", "", ("mallory",), None),
        ("mallory", "alice", ("mallory",), None),
        ("mallory2", "", ("mallory",), None),
        ("alice", "", (), None),
    ],
)
def test_a_certificate_says_who_somebody_is_without_a_file(
    client_id: str, user: str, names: tuple[str, ...], found: str | None
) -> None:
    """SEC: a certificate that some authority signed was enough to be anybody."""
    users, hello = Users(), ClientHello(1, 1, client_id, user)
    if found is None:
        with pytest.raises(AccessDenied, match="the certificate is"):
            users.anybody(hello, names)
    else:
        principal = users.anybody(hello, names)
        assert principal.name == found and users.again(principal, client_id, names).name == found


def test_nobody_attaches_under_a_name_of_the_brokers(tmp_path: Path) -> None:
    """DIS-05: what a broker tells of who came in is believed; with a wide entry `clients` or without users alike."""
    (tmp_path / "users.toml").write_text("[user.veena]\nclients = ['*']\n")
    users = load_users(tmp_path / "users.toml")

    async def scenario() -> None:
        assert (await users.admit(ClientHello(1, 1, "veena/acces"), ("veena",))).name == "veena"
        for found in (users, Users()):
            with pytest.raises(AccessDenied, match="the brokers' own"):
                await found.admit(ClientHello(1, 1, "veena/access/b1"), ("veena",))

    asyncio.run(scenario())


def test_the_first_rule_that_fits_decides_and_nothing_is_allowed_by_itself() -> None:
    rights = Rights(
        (
            Rule(deny="subscribe", topic="a.secret"),
            Rule(allow=("subscribe", "publish"), topic="a.*"),
            Rule(allow="subscribe", engine="xpath", type="Report"),
        )
    )
    assert rights.allows("subscribe", "topic", "a.b")
    assert not rights.allows("subscribe", "topic", "a.secret")
    assert rights.allows("publish", "topic", "a.secret")
    assert not rights.allows("publish", "topic", "b")
    assert not rights.allows("subscribe", "tags")
    assert not rights.allows("subscribe", "xpath"), "its type is known with the event only"
    assert rights.may_read(Event(xml="<a/>", headers={"$type_name": "Report"}), "xpath")
    assert not rights.may_read(Event(xml="<a/>", headers={"type_name": 7}), "xpath")
    assert not rights.may_publish(Event(properties={"a": 1}))
    assert Rights((Rule(allow="*"),)).allows("wide")
    assert not Rights(()).allows("publish", topic="x")


def test_engines_and_types_of_an_event() -> None:
    assert engines_of(Event(topic="t", integer=0, tags={"a": "b"}, xml="<a/>")) == ["integer", "topic", "tags", "xpath"]
    assert engines_of(Event(properties={"a": 1})) == ["constraint"]
    assert event_type(Event(headers={"type_name": "A"})) == "A"
    assert event_type(Event(headers={"type_name": "A", "$type_name": "B"})) == "B", "as the engine `constraint` sees it"
    assert event_type(Event()) is None


def test_tokens() -> None:
    """A token lets its owner in, without a password and under no other name."""
    token = new_token()
    users = parse_users(f"[user.meter]\ntokens = ['{digest_of(token)}']\n[user.other]")

    async def scenario() -> None:
        assert (await users.admit(ClientHello(1, 1, "meter/1", token=token), None)).name == "meter"
        for hello in (
            ClientHello(1, 1, "meter", token=token[:-1]),
            ClientHello(1, 1, "meter", token=digest_of(token)),
            ClientHello(1, 1, "other", user="other", token=token),
            ClientHello(1, 1, "other", token=token),
            ClientHello(1, 1, "meter"),
        ):
            with pytest.raises(AccessDenied):
                await users.admit(hello, None)

    asyncio.run(scenario())
