"""Looking at a network as one person may: from one URL into every unit, with rates, clients, silence and refusals."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

from argon2 import PasswordHasher

import veena
from veena import testing
from veena.client import Client
from veena.dashboard.pictures.scene import path_of
from veena.dashboard.sessions.observer import Observer

SHAPE = {"eu.paris": 2, "us.boston": 1, "us.reno": 1}


def test_one_broker_leads_to_all_others_and_to_their_clients() -> None:
    async def go() -> None:
        async with testing.network(SHAPE) as net:
            number = itertools.count()

            def dial(urls: Sequence[str], label: str) -> Client:
                return veena.connect(urls, client_id=f"ann/portal-0123456789ab/at-{next(number):08x}")

            far = veena.connect(net.url("us.reno.1"), client_id="reader")
            async with veena.connect(net.url("eu.paris.1"), client_id="ann/portal-0123456789ab") as own, far:
                await far.subscribe(topic="news")
                seen = Observer(own, dial)
                try:
                    seen.want((), clients=True)
                    async with asyncio.timeout(30):
                        while len(seen.scene.facts) < 4 or not _has_rates(seen):
                            await seen.wait_seen(5.0, after=seen.version)
                    assert [row["broker"] for row in seen.rows()] == list(net.brokers)
                    assert seen.scene.facts[path_of("us.reno.1")].clients == 1
                    assert seen.scene.facts[path_of("us.boston.1")].clients == 0, "who looks is no client"
                    assert {each["id"] for each in seen.clients()} == {"reader", "ann/portal-0123456789ab"}
                    assert len(seen.readings) >= 2
                    await net.kill("us.boston.1")
                    async with asyncio.timeout(30):
                        while path_of("us.boston.1") not in seen.scene.silent:
                            seen.want(())
                            await seen.wait_seen(5.0, after=seen.version)
                    assert [label for label, _ in seen.silent()] == ["us.boston.1"]
                finally:
                    await seen.close()

    asyncio.run(go())


def _has_rates(seen: Observer) -> bool:
    """Whether every link of the brokers that were asked has a rate: for that both a first and a second look count."""
    exact = [line for line in seen.scene.lines if line.is_exact]
    return bool(exact) and all(line.bytes_per_second is not None for line in exact)


def test_who_may_not_look_is_told_by_which_right(tmp_path: Path) -> None:
    quick = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)
    rules = '[role.reader]\nrules = [{ allow = "subscribe" }]\n'
    (tmp_path / "users.toml").write_text(
        f'[user.ann]\npassword = "{quick.hash("secret")}"\nroles = ["reader"]\n{rules}'
    )

    async def go() -> None:
        settings = {"auth": {"users_file": str(tmp_path / "users.toml")}}
        async with (
            testing.broker(settings=settings) as url,
            veena.connect(url, client_id="ann/portal-0123456789ab", user="ann", password="secret") as own,
        ):
            seen = Observer(own, lambda urls, label: own)
            seen.want(())
            assert not await seen.wait_seen(10.0)
            assert "allow 'status'" in seen.denied
            await seen.close()

    asyncio.run(go())


def test_brokers_outside_tls_are_not_asked_from_inside() -> None:
    """A password that was given inside TLS does not leave it, whatever a broker says of others."""

    async def go() -> None:
        async with testing.broker() as url, veena.connect(url, client_id="ann/portal-0123456789ab") as own:
            told = {"contacts": {"b": [{"broker": "b.1", "urls": ["tcp://10.0.0.1:7700", "tls://10.0.0.1:7701", "?"]}]}}
            for inside_tls, expected in ((False, "tcp://10.0.0.1:7700"), (True, "tls://10.0.0.1:7701")):
                seen = Observer(own, lambda urls, label: own, inside_tls=inside_tls)
                seen._learn(told)
                assert [asked.urls for asked in seen._asked.values()] == [(expected,)]

    asyncio.run(go())
