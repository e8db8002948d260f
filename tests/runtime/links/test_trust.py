"""Who may be a broker: at real brokers, over real sockets, with real certificates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import veena
from tests.runtime.authority import Authority
from tests.runtime.raw_link import link_to, listening
from tests.runtime.streams import until
from veena.core.boundary.inputs_effects import Dial
from veena.core.wire.control import Goodbye
from veena.errors import AccessDenied
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import Config, ConfigFaults


def write_users(directory: Path) -> Path:
    path = directory / "users.toml"
    path.write_text('[user.alice]\ntokens = ["sha256:' + 64 * "0" + '"]\n')
    path.chmod(0o600)
    return path


def guarded(directory: Path, broker: str = "") -> Config:
    """A broker with users, which listens without TLS."""
    return parse_config(
        f'[broker]\nname = "b1"\naddress = "0.0.0.1"\nlisten = ["veena://127.0.0.1:0"]\n{broker}'
        f'[auth]\nusers_file = "{write_users(directory)}"\n'
    )


async def refused(node: Node) -> str:
    """What a broker without any secret is told."""
    link = await link_to(node.urls[0], (0, 0, 0, 7))
    await until(link.goodbyes)
    assert not node.driver.statistics().links
    return link.goodbyes()[0]


def test_no_reload_lets_everybody_in(tmp_path: Path) -> None:
    """A configuration that is empty, or was read while it was written, opened the doors that a broker has."""

    async def run() -> None:
        node = Node(guarded(tmp_path))
        await node.start()
        _, left = node.reload(parse_config(""))
        assert "[auth] users_file" in left and not node.clients.users.is_open
        with pytest.raises(AccessDenied):
            async with veena.connect(node.urls[0], client_id="anybody"):
                pass
        assert "brokers show a certificate here" in await refused(node)
        await node.stop()

    asyncio.run(run())


@pytest.mark.parametrize("setting", ["", "plaintext = true\n"])
def test_a_stranger_is_no_broker_where_there_are_users(tmp_path: Path, setting: str) -> None:
    """SEC: "without TLS" was "without rights" too, and whoever dialled in as a broker read everybody's events."""

    async def run() -> None:
        node = Node(guarded(tmp_path, setting))
        await node.start()
        assert "brokers show a certificate here" in await refused(node)
        await node.stop()

    asyncio.run(run())


def test_no_reload_opens_links(tmp_path: Path) -> None:
    """SEC: a reload said that it needs a restart, and yet anybody was a broker from then on."""

    async def run() -> None:
        node = Node(guarded(tmp_path))
        await node.start()
        opened = guarded(tmp_path, "plaintext = true\nopen_links = true\n")
        for _ in range(2):  # it is said as often as it is read
            taken, left = node.reload(opened)
            assert not taken and left == ["[broker] plaintext", "[broker] open_links"]
            assert "brokers show a certificate here" in await refused(node)
        await node.stop()
        node = Node(opened)
        await node.start()
        link = await link_to(node.urls[0], (0, 0, 0, 7))
        await until(lambda: (0, 0, 0, 7) in node.driver.reached)
        assert not link.goodbyes()
        await node.stop()

    asyncio.run(run())


# --- inside TLS ---

#: Where everybody says to be who dials the broker of a test, or is dialled by it.
THERE = (0, 0, 0, 5)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """It has signed for a broker that it names, one that it does not name, and a client."""
    made = Authority(tmp_path)
    made.issue("b1", uris=["veena://veena#b1"])
    made.issue("plain-b1")
    made.issue("mallory")
    return made


def inside(authority: Authority, links: str = "", chain: str = "plain-b1", more: str = "") -> Config:
    return parse_config(
        f'[broker]\nname = "b1"\naddress = "0.0.0.1"\nlisten = ["veenas://127.0.0.1:0"]\n{more}'
        f"[links]\nheartbeat_s = 0.1\nretry_s = 0.05\nretry_s_max = 0.1\n{links}\n"
        f'[tls]\ncertificate = "{chain}.pem"\nkey = "{chain}.key"\nauthority = "authority.pem"\nclients = "optional"\n'
        '[audit]\nfile = "audit.jsonl"\n',
        base=authority.directory,
    )


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Node]:
    node = Node(config)
    await node.start()
    try:
        yield node
    finally:
        await node.stop(drain_s=0.1)


async def noted(authority: Authority, kind: str) -> dict[str, Any]:
    """The first line of this kind in the audit log."""

    def lines() -> list[dict[str, Any]]:
        text = (authority.directory / "audit.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    await until(lines)
    return lines()[0]


def test_no_broker_inside_tls_is_led_outside(authority: Authority) -> None:
    """SEC: told by a neighbour where a broker listens, it dialled there in the clear and sent it secret events."""

    async def run() -> None:
        config = inside(authority, 'certificates = ["*"]')
        async with running(config) as node, listening("veena://127.0.0.1:0", THERE) as (url, came):
            node.driver.links.dial(Dial(THERE, (url,)))
            line = await noted(authority, "dial refused")
            assert line["address"] == url and "outside TLS" in line["reason"]
            assert not came

    asyncio.run(run())


@pytest.mark.parametrize("is_own", [True, False], ids=["of the configuration", "told by others"])
def test_whoever_answers_a_dial_is_judged_as_whoever_dials(authority: Authority, is_own: bool) -> None:
    """SEC: trust was asked for accepted links alone; any certificate would do at the other end of a dialled one."""
    authority.issue("someone", hosts=["broker-5.example.org"])

    async def run() -> None:
        secrets = [authority.secrets("mallory"), authority.secrets("someone")]
        async with (
            listening("veenas://127.0.0.1:0", THERE, secrets=secrets[0]) as (bad, mallory),
            listening("veenas://127.0.0.1:0", THERE, secrets=secrets[1]) as (good, someone),
        ):
            dial = f'dial = ["{bad}", "{good}"]\n' if is_own else ""
            async with running(inside(authority, dial + 'certificates = ["broker-*.example.org"]')) as node:
                if not is_own:
                    node.driver.links.dial(Dial(THERE, (bad,)))
                line = await noted(authority, "link refused")
                assert line["certificate"] == "mallory" and "is no broker's" in line["reason"]
                await until(lambda: mallory[0].reason is not None)
                assert [type(frame) for frame in mallory[0].frames] == [Goodbye]
                if not is_own:
                    node.driver.links.dial(Dial(THERE, (good,)))
                await until(lambda: THERE in node.driver.reached)  # an alternative name counts as well
                assert someone and len(node.driver.links) == 1

    asyncio.run(run())


def test_nobody_is_dialled_beyond_the_configuration(authority: Authority) -> None:
    """SEC: a neighbour that says where others listen has this broker connect to any place it likes."""

    async def run() -> None:
        secrets = authority.secrets("plain-b1")
        async with (
            listening("veenas://127.0.0.1:0", THERE, secrets=secrets) as (named, _),
            listening("veenas://127.0.0.1:0", (0, 0, 0, 6), secrets=secrets) as (told, came),
        ):
            entry = f'[[links.neighbours]]\nname = "raw"\naddress = "0.0.0.5"\nurls = ["{named}"]'
            links = f'dial = "configured"\ncertificates = ["plain-b1"]\n{entry}'
            async with running(inside(authority, links)) as node:
                await until(lambda: THERE in node.driver.reached)
                node.driver.links.dial(Dial((0, 0, 0, 6), (told,)))
                line = await noted(authority, "dial refused")
                assert line["address"] == told and "is not in the configuration" in line["reason"]
                assert not came

    asyncio.run(run())


@pytest.mark.parametrize("dialled", [True, False], ids=["dialled", "accepted"])
@pytest.mark.parametrize(
    ("uris", "name", "told"),
    [
        (["veena://elsewhere#b5"], "b5", "names a broker of network 'elsewhere'"),
        (["veena://veena#b5"], "b6", "names broker 'b5', and the peer says that it is 'b6'"),
        (["veena://veena/0.0.1#b5", "veena://veena/1#b5"], "b5", "live in 0.0.1 or 1, and its address is 0.0.0.5"),
        (["veena://veena/SSC-A#b5"], "b5", "live in SSC-A ("),
        ([], "b5", "names no broker"),
        (["https://example.org"], "b5", "names no broker"),
    ],
)
def test_names_in_certificates_count(
    authority: Authority, uris: Sequence[str], name: str, told: str, dialled: bool
) -> None:
    """SEC: a certificate of some broker was one of any broker, at any address, of any network."""
    authority.issue("b5", uris=uris)

    async def run() -> None:
        secrets = authority.secrets("b5")
        async with listening("veenas://127.0.0.1:0", THERE, name=name, secrets=secrets) as (url, _):
            dial = f'dial = ["{url}"]\n' if dialled else ""
            async with running(inside(authority, f"{dial}{KNOWN}", "b1")) as node:
                if not dialled:
                    link = await link_to(node.urls[0], THERE, name=name, secrets=secrets)
                    await until(link.goodbyes)
                    assert told in link.goodbyes()[0]
                line = await noted(authority, "link refused")
                assert told in line["reason"] and line["certificate"] == "b5" and line["code"] == "denied"
                assert THERE not in node.driver.reached and not node.driver.statistics().links

    asyncio.run(run())


#: The operator's word on where these brokers belong.
KNOWN = "\n".join(f'[[links.neighbours]]\nname = "{name}"\naddress = "0.0.0.5"' for name in ("b5", "b6"))


@pytest.mark.parametrize("dialled", [True, False], ids=["dialled", "accepted"])
def test_a_broker_is_a_neighbour_under_its_name_in_its_unit(authority: Authority, dialled: bool) -> None:
    """SEC: network, name and unit are right, and no pattern of names is needed."""
    authority.issue("b5", uris=["veena://veena/3#b5", "veena://veena/0.0#b5"])

    async def run() -> None:
        secrets = authority.secrets("b5")
        async with listening("veenas://127.0.0.1:0", THERE, name="b5", secrets=secrets) as (url, _):
            dial = f'dial = ["{url}"]\n' if dialled else ""
            async with running(inside(authority, f"{dial}{KNOWN}", "b1")) as node:
                if not dialled:
                    await link_to(node.urls[0], THERE, name="b5", secrets=secrets)
                await until(lambda: THERE in node.driver.reached)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("links", "chain", "more", "told"),
    [
        ('dial = ["veena://127.0.0.1:1"]', "plain-b1", "", "dial veena://127.0.0.1:1 outside of it"),
        ('[[links.neighbours]]\nname = "b"\naddress = "0.0.0.2"\nurls = ["ws://b:1"]', "b1", "", "dial ws://b:1"),
        ('[locator]\nbrokers = ["veena://b:1"]', "plain-b1", "", "dial veena://b:1"),
        ("", "b1", '[network]\nname = "other"\n', "is of veena://veena#b1, and this is broker 'b1' of network 'other'"),
        ("", "b9", "", "is of veena://veena/0.0.7#b1, and the address is 0.0.0.1"),
        ('dial = "everywhere"', "plain-b1", "", "[links] dial"),
    ],
)
def test_configurations_that_contradict_certificates(
    authority: Authority, links: str, chain: str, more: str, told: str
) -> None:
    authority.issue("b9", uris=["veena://veena/0.0.7#b1"])
    with pytest.raises(ConfigFaults) as caught:
        inside(authority, links, chain, more)
    assert told in str(caught.value)
