"""A signed network of broker processes over TLS: an honest event crosses it, and every broker refuses who lies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import veena
from tests.runtime.authority import Authority
from tests.runtime.links.forger import FORGER, NAME
from tests.runtime.processes import Started, until
from tests.runtime.processes import veena as process
from veena.address import Address, format_address
from veena.errors import RefusalCode
from veena.runtime.transports.tls import client_context

pytestmark = pytest.mark.slow

PLACES: dict[str, Address] = {"a": (0, 0, 0, 0), "b": (0, 1, 0, 0), "c": (0, 2, 0, 0)}


@dataclass
class Site:
    """The authority's directory, and the brokers' URLs by name."""

    authority: Authority
    urls: dict[str, str]

    def refusals(self, name: str) -> list[str]:
        """The codes of the links that a broker refused, by its audit log."""
        lines = map(json.loads, (self.authority.directory / f"{name}.jsonl").read_text().splitlines())
        return [line["code"] for line in lines if line["kind"] == "link refused"]

    def event_crosses(self) -> None:
        """What somebody at c wants gets there from a, through b."""
        tls = client_context(self.authority.pem)

        async def scenario() -> None:
            async with (
                veena.connect(self.urls["c"], client_id="reader", tls=tls) as reader,
                veena.connect(self.urls["a"], client_id="writer", tls=tls) as writer,
            ):
                quotes = await reader.subscribe(topic="quotes", wait=20)
                await writer.publish(topic="quotes", body=b"one", reliable=True)
                assert (await quotes.next(20)).body == b"one"

        asyncio.run(asyncio.wait_for(scenario(), 60))


def config(authority: Authority, name: str, place: Address, dial: list[str], grant: Path | None) -> Path:
    """A broker's configuration; who has no grant writes none."""
    path = authority.directory / f"{name}.toml"
    path.write_text(
        f'[broker]\nname = "{name}"\naddress = "{format_address(place)}"\nlisten = ["veenas://127.0.0.1:0"]\n'
        f"[links]\nheartbeat_s = 0.1\nretry_s = 0.05\nretry_s_max = 0.1\ndial = {json.dumps(dial)}\n"
        + (f'grant = "{grant}"\n' if grant is not None else "")
        + f'[tls]\ncertificate = "{name}.pem"\nkey = "{name}.key"\nauthority = "authority.pem"\nclients = "optional"\n'
        f'[audit]\nfile = "{name}.jsonl"\n'
    )
    return path


@contextmanager
def running(path: Path) -> Iterator[tuple[Started, str]]:
    with process("broker", "run", "--json", "--config", str(path)) as started:
        yield started, str(started.told()["url"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    authority = Authority(tmp_path_factory.mktemp("site"))
    for name in (*PLACES, NAME):
        authority.issue(name, uris=[f"veena://veena#{name}"])
    authority.grant(NAME, FORGER).rename(authority.directory / f"{NAME}.grant")
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        for name, place in PLACES.items():
            path = config(authority, name, place, list(urls.values())[-1:], authority.grant(name, place))
            urls[name] = stack.enter_context(running(path))[1]
        yield Site(authority, urls)


def test_an_honest_event_crosses_three_processes(site: Site) -> None:
    site.event_crosses()


def test_a_broker_without_a_grant_is_refused_by_all(site: Site) -> None:
    """Its certificate is the authority's, and says nothing of where it may live."""
    site.authority.issue("nobody", uris=["veena://veena#nobody"])
    before = {name: len(site.refusals(name)) for name in PLACES}
    path = config(site.authority, "nobody", (0, 4, 0, 0), list(site.urls.values()), None)
    with running(path):
        until(lambda: all(site.refusals(name)[before[name] :] for name in PLACES))
        site.event_crosses()
    assert {code for name in PLACES for code in site.refusals(name)[before[name] :]} == {RefusalCode.DENIED}


def test_a_broker_with_the_grant_of_another_does_not_start(site: Site) -> None:
    """It would be refused: its own check says so first."""
    site.authority.issue("thief", uris=["veena://veena#thief"])
    grant = site.authority.directory / f"{NAME}.grant"
    path = config(site.authority, "thief", (0, 5, 0, 0), list(site.urls.values()), grant)
    with process("broker", "run", "--json", "--config", str(path)) as started:
        assert started.process.wait(20) == 2


def test_a_broker_of_another_authority_is_refused_by_all(site: Site, tmp_path: Path) -> None:
    """It has made certificate, grant and authority itself, and believes the network's authority as well."""
    other = Authority(tmp_path)
    other.issue("forged", uris=["veena://veena#forged"])
    grant = other.grant("forged", (0, 6, 0, 0))
    (tmp_path / "authority.pem").write_text(other.pem.read_text() + site.authority.pem.read_text())
    before = {name: len(site.refusals(name)) for name in PLACES}
    log = tmp_path / "words"
    path = config(other, "forged", (0, 6, 0, 0), list(site.urls.values()), grant)
    with process("broker", "run", "--json", "--config", str(path), errors=log):
        until(lambda: all(url.rpartition(":")[2] in log.read_text() for url in site.urls.values()))
        site.event_crosses()
    assert before == {name: len(site.refusals(name)) for name in PLACES}, "it did not come as far as a hello"


@pytest.mark.parametrize("how", ["unsigned", "own", "victim"])
def test_a_forger_is_refused_by_all(site: Site, how: str) -> None:
    """A neighbour says what another super-cluster wants."""
    before = {name: len(site.refusals(name)) for name in PLACES}
    for name, victim in (("a", "0.2"), ("b", "0.2"), ("c", "0.1")):
        arguments = (str(site.authority.directory), site.urls[name], victim, how)
        with process(*arguments, program="tests.runtime.links.forger") as forger:
            assert len(forger.told()["goodbyes"]) == 1
    until(lambda: all(site.refusals(name)[before[name] :] == [RefusalCode.DENIED] for name in PLACES))
    site.event_crosses()
