"""Trace, explain and status asked from the shell, over TLS and with a password, of a broker that demands both."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Outcome
from tests.cli.command import veena as command
from tests.runtime.processes import veena
from veena import blocking
from veena.runtime.access.users import hash_password

CERTIFICATES = Path(__file__).parent.parent / "certificates"
PASSWORD = "open sesame"

BROKER = """
[broker]
listen = ["veenas://127.0.0.1:0"]
[store]
path = "{directory}/store"
records = "all"
[tls]
certificate = "{certificates}/broker.pem"
key = "{certificates}/broker.key"
[auth]
users_file = "{directory}/users.toml"
"""
USERS = """
[user.alice]
password = "{0}"
roles = ["trader"]
[user.auditor]
password = "{0}"
roles = ["auditor"]

[role.trader]
rules = [{{ allow = ["publish", "subscribe"], topic = "quotes" }}, {{ allow = "wide" }}]
[role.auditor]
rules = [{{ allow = "subscribe", topic = "quotes" }}, {{ allow = ["explain", "status"] }}]
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of such a broker, and an event that alice published and got there."""
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "users.toml").write_text(USERS.format(hash_password(PASSWORD)))
    (directory / "broker.toml").write_text(BROKER.format(directory=directory, certificates=CERTIFICATES))
    with veena("broker", "run", "--config", str(directory / "broker.toml"), "--json") as broker:
        url = broker.told()["url"]
        tls = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
        with blocking.connect(url, client_id="alice", user="alice", password=PASSWORD, tls=tls) as alice:
            quotes = alice.subscribe(topic="quotes")
            event = alice.publish(topic="quotes", body=b"x", reliable=True)
            assert quotes.next(20).id == event
        yield url, str(event)


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEENA_PASSWORD", PASSWORD)
    monkeypatch.setenv("COLUMNS", "160")


def ask(*arguments: str, user: str = "auditor", ca: str = "authority.pem") -> Outcome:
    return command(*arguments, "--user", user, "--ca", str(CERTIFICATES / ca), "--json")


def test_who_may_ask_is_answered(asked: tuple[str, str]) -> None:
    """SEC-05: the same answers as without TLS and users."""
    url, event = asked
    traced = ask("trace", event, "--url", url)
    assert traced.code == 0, traced.err
    told = json.loads(traced.out)
    assert told["known"] and [each["client"] for each in told["delivered"]] == ["alice"]
    explained = ask("explain", event, "alice", "--url", url)
    assert explained.code == 0, explained.err
    assert json.loads(explained.out)["reason"] == "delivered"
    shown = ask("status", url)
    assert shown.code == 0, shown.err
    assert json.loads(shown.out.splitlines()[0])


def test_who_may_not_is_refused_and_told_why(asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-05: a user without the right, a wrong password, a broker that cannot show who it is."""
    url, event = asked
    for arguments, lacks in ((("trace", event, "--url", url), "which way events went"), (("status", url), "status")):
        denied = ask(*arguments, user="alice")
        assert denied.code != 0 and lacks in denied.out + denied.err
    monkeypatch.setattr("veena.client.client.CONNECT_S", 1.0)
    stranger = ask("trace", event, "--url", url, ca="stranger.pem")
    assert stranger.code != 0 and "certificate" in (stranger.out + stranger.err).lower()


@pytest.mark.parametrize("arguments", [("trace", "{event}", "--url", "{url}"), ("status", "{url}")])
def test_a_wrong_password_opens_nothing(
    asked: tuple[str, str], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-05: whatever is asked."""
    url, event = asked
    monkeypatch.setenv("VEENA_PASSWORD", "open barley")
    refused = ask(*(each.format(url=url, event=event) for each in arguments))
    assert refused.code != 0
    assert "password" in (refused.out + refused.err).lower()
