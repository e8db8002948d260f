"""Signing in without a browser: bounds on tries, people and time, and what may be opened to other machines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from veena import testing
from veena.dashboard.sessions import signing
from veena.dashboard.sessions.signing import Desk, Door, NotSignedIn
from veena.errors import ConfigError
from veena.runtime.access.attempts import PAIR
from veena.runtime.access.users import hash_password

CERTIFICATES = Path(__file__).parents[2] / "runtime" / "certificates"


def test_a_name_is_enough_where_the_broker_has_no_users_unless_users_are_needed() -> None:
    async def go() -> None:
        async with testing.broker() as url:
            desk = Desk(Door((url,)))
            assert not await desk.has_users()
            token = await desk.sign_in("ann", "", "here")
            person = desk.person(token)
            assert person is not None and person.client.client_id.startswith("ann/portal-")
            assert desk.person(token + "x") is None and desk.person(None) is None
            await desk.sign_out(token)
            assert desk.person(token) is None and not person.client.is_connected
            with pytest.raises(NotSignedIn, match="users file"):
                await Desk(Door((url,)), who="users").sign_in("ann", "", "here")
            with pytest.raises(NotSignedIn, match="on its own machine only"):
                await desk.sign_in("ann", "", "here", host="rebound.example.org")
            anybody = Desk(Door((url,)), who="anybody")
            assert await anybody.sign_in("ann", "", "there", host="portal.example.org")
            await anybody.close()
            for name in ("", "a/b", "x" * 65, "a\nb"):
                with pytest.raises(NotSignedIn, match="a name has"):
                    await desk.sign_in(name, "", "here")

    asyncio.run(go())


def test_sessions_are_bounded_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with testing.broker() as url:
            desk = Desk(Door((url,)))
            monkeypatch.setattr(signing, "MAX_PEOPLE", 3)
            monkeypatch.setattr(signing, "MAX_OF_A_NAME", 2)
            tokens = [await desk.sign_in("ann", "", "here") for _ in range(3)]
            assert desk.person(tokens[0]) is None, "of too many with one name the oldest goes"
            assert desk.person(tokens[1]) is not None
            await desk.sign_in("bob", "", "here")
            with pytest.raises(NotSignedIn, match="3 people"):
                await desk.sign_in("joe", "", "here")
            person = desk.person(tokens[1])
            assert person is not None
            person.touched -= signing.IDLE_S + 1
            person.pages = 1
            assert desk.person(tokens[1]) is person, "with a page open nobody is idle"
            person.pages, person.touched = 0, person.touched - 2 * signing.IDLE_S
            assert desk.person(tokens[1]) is None
            await desk.sweep()
            assert len(desk) == 2
            await desk.close()
            assert len(desk) == 0

    asyncio.run(go())


def test_wrong_tries_are_counted_and_told_without_saying_what_was_wrong(tmp_path: Path) -> None:
    from argon2 import PasswordHasher

    quick = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)
    hashed = quick.hash("right")
    names = ["ann", *(f"u{at}" for at in range(3 * signing.MAX_FAULTS))]
    (tmp_path / "users.toml").write_text("".join(f'[user.{name}]\npassword = "{hashed}"\n' for name in names))

    async def go() -> None:
        async with testing.broker(settings={"auth": {"users_file": str(tmp_path / "users.toml")}}) as url:
            desk = Desk(Door((url,)), who="users")
            assert await desk.has_users()
            reasons = set()
            for name in ("ann", "nobody"):
                with pytest.raises(NotSignedIn) as caught:
                    await desk.sign_in(name, "wrong", "there")
                reasons.add(str(caught.value).replace(name, "?"))
            assert len(reasons) == 1
            token = await desk.sign_in("ann", "right", "there")
            assert desk.person(token) is not None
            for at in range(signing.MAX_FAULTS - 2):
                with pytest.raises(NotSignedIn, match="password is wrong"):
                    await desk.sign_in(f"u{at}", "wrong", "there")
            with pytest.raises(NotSignedIn, match="wait a minute"):
                await desk.sign_in("ann", "right", "there")
            assert await desk.sign_in("ann", "right", "elsewhere", host="portal.example.org")
            tries = [desk.sign_in(f"u{at}", "wrong", "at once") for at in range(3 * signing.MAX_FAULTS)]
            answers = list(map(str, await asyncio.gather(*tries, return_exceptions=True)))
            assert sum("wait a minute" in answer for answer in answers) == 2 * signing.MAX_FAULTS
            assert sum("password is wrong" in answer for answer in answers) == signing.MAX_FAULTS
            await desk.close()

    asyncio.run(go())


def test_guesses_at_the_portal_do_not_lock_out_who_uses_it(tmp_path: Path) -> None:
    """The broker sees one address for all browsers: guesses at a name slow its owner by seconds, not by a minute."""
    from argon2 import PasswordHasher

    quick = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)
    (tmp_path / "users.toml").write_text(f'[user.ann]\npassword = "{quick.hash("right")}"\n')

    async def go() -> None:
        async with testing.broker(settings={"auth": {"users_file": str(tmp_path / "users.toml")}}) as url:
            desk = Desk(Door((url,)), who="users")
            assert await desk.sign_in("ann", "right", "home")
            tries = [desk.sign_in("ann", f"guess-{at}", "there") for at in range(3 * signing.MAX_FAULTS)]
            answers = list(map(str, await asyncio.gather(*tries, return_exceptions=True)))
            read = sum("password is wrong" in answer for answer in answers)
            assert 1 <= read <= signing.MAX_FAULTS
            assert sum("minute" in answer for answer in answers) == len(tries) - read
            assert await desk.sign_in("ann", "right", "work")
            await desk.close()

    asyncio.run(go())


def test_guesses_at_one_person_are_slowed_by_address(tmp_path: Path) -> None:
    """SEC: who guesses at ann's password waits longer each time; ann, who is elsewhere, gets in meanwhile."""
    (tmp_path / "users.toml").write_text(f'[user.ann]\npassword = "{hash_password("right")}"\n')

    async def go() -> None:
        async with testing.broker(settings={"auth": {"users_file": str(tmp_path / "users.toml")}}) as url:
            desk = Desk(Door((url,)), who="users")
            for _ in range(PAIR.free + 1):
                with pytest.raises(NotSignedIn, match="password is wrong"):
                    await desk.sign_in("ann", "wrong", "2001:db8::1")
            for place in ("2001:db8::1", "2001:db8::2"):
                with pytest.raises(NotSignedIn, match=r"too many wrong tries: wait \d+ s"):
                    await desk.sign_in("ann", "right", place)
            assert await desk.sign_in("ann", "right", "2001:db8:1::1")
            await desk.close()

    asyncio.run(go())


def test_a_broker_that_is_not_there_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "PROBE_S", 0.3)

    async def go() -> None:
        signing_door = Door(("veena://127.0.0.1:1",))
        with pytest.raises(NotSignedIn, match="cannot be reached"):
            await Desk(signing_door).sign_in("ann", "", "here")

    asyncio.run(go())


def test_nothing_is_opened_to_other_machines_without_protection() -> None:
    from veena.dashboard.portal import Listening

    for host in ("127.0.0.1", "::1", "localhost"):
        Listening(host, 0).check()
    for host in ("0.0.0.0", "::", "portal.example.org"):
        with pytest.raises(ConfigError, match="without TLS"):
            Listening(host, 0).check()
        Listening(host, 0, insecure=True).check()
        Listening(host, 0, CERTIFICATES / "broker.pem", CERTIFICATES / "broker.key").check()
    with pytest.raises(ConfigError, match="goes with --key"):
        Listening("127.0.0.1", 0, CERTIFICATES / "broker.pem").check()
    with pytest.raises(ConfigError, match="is no file"):
        Listening("127.0.0.1", 0, Path("no.pem"), Path("no.key")).check()


def test_the_archive_shows_everybody_only_their_own() -> None:
    from veena.dashboard.pages.history import is_own

    assert is_own("ann", "ann") and is_own("ann", "ann/desk")
    assert not any(is_own("ann", other) for other in ("", "annette", "bob", "bob/ann", "an"))
