"""`veena users`: what it prints can be put into a users file, and lets in whom it should."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import veena
from veena.core.wire.client import ClientHello
from veena.runtime.access.users import load_users


def test_what_is_made_lets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-06: a password and a token, made by the commands, in one file."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("open sesame\n"))
    password = veena("users", "password")
    token = json.loads(veena("users", "token", "--json").out)
    file = tmp_path / "users.toml"
    file.write_text(f"[user.alice]\n{password.out}\ntokens = ['{token['digest']}']\n")
    assert veena("users", "check", str(file)).code == 0
    users = load_users(file)

    async def scenario() -> None:
        for hello in (
            ClientHello(1, 1, "alice", password="open sesame"),
            ClientHello(1, 1, "alice", token=token["token"]),
        ):
            assert (await users.admit(hello, None)).name == "alice"

    asyncio.run(scenario())


def test_what_is_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    found = veena("users", "password")
    assert found.code == 2 and "the password is empty" in found.err
    (tmp_path / "users.toml").write_text("[user.alice]\npassword = 'plain'\n")
    found = veena("users", "check", str(tmp_path / "users.toml"))
    assert found.code != 0 and "is no argon2 hash" in found.err
