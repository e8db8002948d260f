"""Where a broker with a certificate may live: at real brokers, over real sockets, dialled and accepted alike."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.authority import Authority
from tests.runtime.raw_link import RawLink, link_to, listening
from tests.runtime.streams import until
from veena.address import Address, format_address
from veena.core.boundary.inputs_effects import Dial
from veena.core.wire.control import Goodbye
from veena.core.wire.membership import Place
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import Config, ConfigFaults
from veena.runtime.pki.grant import AddressGrant, load_grant, sign_grant

HERE, THERE, ELSEWHERE = (0, 0, 0, 1), (0, 0, 0, 5), (0, 0, 0, 6)
DIALLED = pytest.mark.parametrize("dialled", [True, False], ids=["dialled", "accepted"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    for name in ("b1", "b5", "b6"):
        made.issue(name, uris=[f"veena://veena#{name}"])
    return made


def named(authority: Authority, links: str = "", name: str = "b1", address: str = "0.0.0.1") -> Config:
    """A broker whose certificate names it."""
    return parse_config(
        f'[broker]\nname = "{name}"\naddress = "{address}"\nlisten = ["veenas://127.0.0.1:0"]\n'
        f"[links]\nheartbeat_s = 0.1\nretry_s = 0.05\nretry_s_max = 0.1\n{links}\n"
        f'[tls]\ncertificate = "{name}.pem"\nkey = "{name}.key"\nauthority = "authority.pem"\nclients = "optional"\n'
        f'[audit]\nfile = "{name}.jsonl"\n',
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


@asynccontextmanager
async def met(authority: Authority, dialled: bool, grant: bytes) -> AsyncIterator[tuple[Node, RawLink]]:
    """A broker, and its link with one whose certificate names `b5`, which says to be at THERE and shows this grant."""
    async with AsyncExitStack() as stack:
        secrets = authority.secrets("b5")
        if not dialled:
            node = await stack.enter_async_context(running(named(authority)))
            link = await link_to(node.urls[0], THERE, name="b5", secrets=secrets, grant=grant)
            link.answers = True
            yield node, link
            return
        there = listening("veenas://127.0.0.1:0", THERE, name="b5", secrets=secrets, grant=grant)
        url, came = await stack.enter_async_context(there)
        node = await stack.enter_async_context(running(named(authority, f'dial = ["{url}"]')))
        await until(lambda: came)
        yield node, came[0]


async def noted(authority: Authority, kind: str, name: str = "b1") -> dict[str, Any]:
    """The first line of this kind in a broker's audit log."""

    def lines() -> list[dict[str, Any]]:
        text = (authority.directory / f"{name}.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    await until(lines)
    return lines()[0]


def flipped(data: bytes) -> bytes:
    """With one bit of the signature changed."""
    return data[:-1] + bytes([data[-1] ^ 1])


def none(authority: Authority) -> bytes:
    return b""


def of_another_name(authority: Authority) -> bytes:
    return load_grant(authority.grant("b6", THERE))


def for_another_place(authority: Authority) -> bytes:
    return load_grant(authority.grant("b5", ELSEWHERE))


def of_another_network(authority: Authority) -> bytes:
    now = int(time.time())
    return sign_grant(authority.signer.key, AddressGrant("elsewhere", "b5", THERE, now - 60, now + 60))


def of_another_authority(authority: Authority) -> bytes:
    return load_grant(Authority(authority.directory / "other").grant("b5", THERE))


def expired(authority: Authority) -> bytes:
    now = int(time.time())
    return sign_grant(authority.signer.key, AddressGrant("veena", "b5", THERE, now - 60, now - 30))


def not_begun(authority: Authority) -> bytes:
    now = int(time.time())
    return sign_grant(authority.signer.key, AddressGrant("veena", "b5", THERE, now + 60, now + 90))


def with_a_flipped_bit(authority: Authority) -> bytes:
    return flipped(load_grant(authority.grant("b5", THERE)))


def noise(authority: Authority) -> bytes:
    return bytes(range(256))


@DIALLED
@pytest.mark.parametrize(
    ("grant", "told"),
    [
        (none, "nothing says that broker 'b5' may live at 0.0.0.5"),
        (of_another_name, "the grant says that broker 'b6'"),
        (for_another_place, "may live at 0.0.0.6 until"),
        (of_another_network, "of network 'elsewhere'"),
        (of_another_authority, "signed by nobody"),
        (expired, "has expired"),
        (not_begun, "not good yet"),
        (with_a_flipped_bit, "signed by nobody"),
        (noise, "no grant can be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_link_without_a_grant_for_this_name_and_place(
    authority: Authority, grant: Callable[[Authority], bytes], told: str, dialled: bool
) -> None:
    """SEC: a certificate of some broker of the network was one of any address."""
    shown = grant(authority)

    async def run() -> None:
        async with met(authority, dialled, shown) as (node, link):
            await until(link.goodbyes)
            line = await noted(authority, "link refused")
            assert told in line["reason"] and line["code"] == "denied" and line["certificate"] == "b5"
            assert told in link.goodbyes()[0] and "veena pki grant DIR b5 --address 0.0.0.5" in link.goodbyes()[0]
            assert THERE not in node.driver.reached and not node.driver.statistics().links

    asyncio.run(run())


@DIALLED
def test_a_grant_makes_a_neighbour(authority: Authority, dialled: bool) -> None:
    """SEC: the configuration says nothing of that broker; the authority does."""
    shown = load_grant(authority.grant("b5", THERE))

    async def run() -> None:
        async with met(authority, dialled, shown) as (node, _):
            await until(lambda: THERE in node.driver.reached)

    asyncio.run(run())


def test_the_units_of_the_certificate_bound_a_grant(authority: Authority) -> None:
    """SEC: who signs grants may be another one than who said in which units a broker may live."""
    authority.issue("bound", uris=["veena://veena/0.0.1#bound"])
    shown, secrets = load_grant(authority.grant("bound", THERE)), authority.secrets("bound")

    async def run() -> None:
        async with running(named(authority)) as node:
            link = await link_to(node.urls[0], THERE, name="bound", secrets=secrets, grant=shown)
            await until(link.goodbyes)
            assert "lets broker 'bound' live in 0.0.1, and its address is 0.0.0.5" in link.goodbyes()[0]

    asyncio.run(run())


def test_the_configuration_is_believed_before_a_grant(authority: Authority) -> None:
    """SEC: whom the operator expects at one place is not taken at another one, whatever it shows."""
    shown, secrets = load_grant(authority.grant("b5", THERE)), authority.secrets("b5")
    listed = '[[links.neighbours]]\nname = "b5"\naddress = "0.0.0.6"'

    async def run() -> None:
        async with running(named(authority, listed)) as node:
            link = await link_to(node.urls[0], THERE, name="b5", secrets=secrets, grant=shown)
            await until(link.goodbyes)
            assert "lives at 0.0.0.6 by the configuration here" in link.goodbyes()[0]
            await link_to(node.urls[0], ELSEWHERE, name="b5", secrets=secrets)
            await until(lambda: ELSEWHERE in node.driver.reached)

    asyncio.run(run())


def test_a_network_file_binds_its_labels(authority: Authority) -> None:
    """SEC: a broker whose name is a label of the network file lives where that says, and nowhere else."""
    for name in ("A.1.c.1", "A.1.c.2"):
        authority.issue(name, uris=[f"veena://veena#{name}"])
    text = '[network]\nname = "veena"\n' + "".join(f'[[broker]]\naddress = "A.1.c.{at}"\n' for at in (1, 2))
    (authority.directory / "network.toml").write_text(text)
    config = parse_config(
        '[broker]\nnetwork = "network.toml"\nlabel = "A.1.c.1"\nlisten = ["veenas://127.0.0.1:0"]\n'
        '[links]\nheartbeat_s = 0.1\n[tls]\ncertificate = "A.1.c.1.pem"\nkey = "A.1.c.1.key"\n'
        'authority = "authority.pem"\nclients = "optional"\n',
        base=authority.directory,
    )
    assert config.address == (0, 0, 0, 0)

    async def run() -> None:
        secrets = authority.secrets("A.1.c.2")
        async with running(config) as node:
            link = await link_to(node.urls[0], (0, 0, 0, 2), name="A.1.c.2", secrets=secrets)
            await until(link.goodbyes)
            assert "lives at 0.0.0.1 by the configuration here" in link.goodbyes()[0]
            await link_to(node.urls[0], (0, 0, 0, 1), name="A.1.c.2", secrets=secrets)
            await until(lambda: (0, 0, 0, 1) in node.driver.reached)

    asyncio.run(run())


# --- on others' word ---


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        (none, "who told of it showed no grant"),
        (for_another_place, "the grant says that broker 'b5' of network 'veena' may live at 0.0.0.6"),
        (of_another_network, "of network 'elsewhere'"),
        (of_another_authority, "signed by nobody"),
        (expired, "has expired"),
        (with_a_flipped_bit, "signed by nobody"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nobody_is_dialled_on_others_word_without_a_grant(
    authority: Authority, grant: Callable[[Authority], bytes], told: str
) -> None:
    """SEC: a neighbour said that a broker listens at a place of its choice, and this broker dialled there."""
    shown, secrets = grant(authority), authority.secrets("b5")

    async def run() -> None:
        there = listening("veenas://127.0.0.1:0", THERE, name="b5", secrets=secrets, grant=shown)
        async with there as (url, came), running(named(authority)) as node:
            node.driver.links.dial(Dial(THERE, (url,), shown))
            line = await noted(authority, "dial refused")
            assert told in line["reason"] and line["code"] == "denied" and line["address"] == url
            assert not came, "nobody has connected there"

    asyncio.run(run())


@pytest.mark.parametrize("by", ["grant", "configuration"])
def test_who_answers_such_a_dial_is_judged_too(authority: Authority, by: str) -> None:
    """SEC: that a broker may live at an address does not make whoever answers there that broker."""
    shown = load_grant(authority.grant("b5", THERE))
    links = '[[links.neighbours]]\nname = "b5"\naddress = "0.0.0.5"' if by == "configuration" else ""
    effect_grant = shown if by == "grant" else b""

    async def run() -> None:
        async with (
            listening("veenas://127.0.0.1:0", THERE, name="b6", secrets=authority.secrets("b6")) as (bad, thief),
            listening(
                "veenas://127.0.0.1:0", THERE, name="b5", secrets=authority.secrets("b5"), grant=effect_grant
            ) as (good, _),
            running(named(authority, links)) as node,
        ):
            node.driver.links.dial(Dial(THERE, (bad,), effect_grant))
            await until(lambda: thief and thief[0].goodbyes())
            assert "nothing says that broker 'b6' may live at 0.0.0.5" in thief[0].goodbyes()[0]
            assert THERE not in node.driver.reached
            node.driver.links.dial(Dial(THERE, (good,), effect_grant))
            await until(lambda: THERE in node.driver.reached)

    asyncio.run(run())


def known(node: Node) -> list[Place]:
    """What a broker has heard of others that it could dial."""
    return [place for unit in (THERE, ELSEWHERE, HERE) for place in node.driver.broker.contacts.places(unit)]


def linked(node: Node) -> list[Address | None]:
    """Its neighbours."""
    return [link.neighbour for link in node.driver.statistics().links]


@pytest.mark.parametrize(
    "is_killed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["live", "one of them dies"]
)
def test_brokers_tell_each_others_grants(authority: Authority, is_killed: bool) -> None:
    """SEC: of three brokers in a line the ends hear where the other one listens, and by which grant; so each can dial
    the other should the one between them die."""
    grants = {name: authority.grant(name, (0, 0, 0, int(name[1]))) for name in ("b1", "b5", "b6")}

    def line(name: str, *urls: str) -> Config:
        dial = ", ".join(f'"{url}"' for url in urls)
        return named(authority, f'dial = [{dial}]\ngrant = "{name}.grant"', name, f"0.0.0.{name[1]}")

    async def run() -> None:
        async with (
            running(line("b1")) as one,
            running(line("b5", one.urls[0])) as five,
            running(line("b6", five.urls[0])) as six,
        ):
            await until(lambda: Place(ELSEWHERE, six.urls, load_grant(grants["b6"])) in known(one))
            await until(lambda: Place(HERE, one.urls, load_grant(grants["b1"])) in known(six))
            # A new grant is told to all, without a restart and without losing a link.
            before = {link.link for node in (one, five, six) for link in node.driver.statistics().links}
            renewed = load_grant(authority.grant("b6", ELSEWHERE, timedelta(hours=2)))
            six.reload(six.config)
            await until(lambda: Place(ELSEWHERE, six.urls, renewed) in known(one))
            assert before == {link.link for node in (one, five, six) for link in node.driver.statistics().links}
            if is_killed:
                await five.kill()
                await until(lambda: ELSEWHERE in linked(one) and HERE in linked(six))

    asyncio.run(run())


# --- while links are there ---


@DIALLED
def test_a_link_ends_with_its_grant(authority: Authority, dialled: bool) -> None:
    """SEC: a grant ends the link that it made when its time is over, as a certificate does."""
    now = int(time.time())
    shown = sign_grant(authority.signer.key, AddressGrant("veena", "b5", THERE, now - 60, now + 2))

    async def run() -> None:
        async with met(authority, dialled, shown) as (node, link):
            await until(lambda: THERE in node.driver.reached)
            await until(lambda: [reason for reason in link.goodbyes() if "has expired" in reason])
            assert time.time() >= now + 2
            line = await noted(authority, "link ended")
            assert "grant" in line["reason"] and line["certificate"] == "b5"
            await until(lambda: THERE not in node.driver.reached)

    asyncio.run(run())


def test_a_reload_judges_by_what_binds_now(authority: Authority) -> None:
    """SEC: a neighbour that the configuration lists no more, and that shows no grant, has to go."""
    listed = '[[links.neighbours]]\nname = "b5"\naddress = "0.0.0.5"'

    async def run() -> None:
        async with running(named(authority, listed)) as node:
            link = await link_to(node.urls[0], THERE, name="b5", secrets=authority.secrets("b5"))
            link.answers = True
            await until(lambda: THERE in node.driver.reached)
            node.reload(named(authority, listed))
            assert not link.goodbyes() and THERE in node.driver.reached
            taken, left = node.reload(named(authority))
            assert taken == ["[links] neighbours"] and not left
            await until(link.goodbyes)
            assert "nothing says that broker 'b5' may live at" in link.goodbyes()[0]
            await until(lambda: [frame for frame in link.frames if isinstance(frame, Goodbye)])

    asyncio.run(run())


# --- the configuration ---


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        (of_another_name, "and this is broker 'b5' of network 'veena' at 0.0.0.5"),
        (for_another_place, "and this is broker 'b5' of network 'veena' at 0.0.0.5"),
        (of_another_network, "and this is broker 'b5' of network 'veena' at 0.0.0.5"),
        (of_another_authority, "signed by nobody"),
        (expired, "has expired"),
        (with_a_flipped_bit, "signed by nobody"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broker_does_not_start_with_a_grant_that_is_not_its_own(
    authority: Authority, grant: Callable[[Authority], bytes], told: str
) -> None:
    from base64 import b64encode

    text = f"-----BEGIN VEENA GRANT-----\n{b64encode(grant(authority)).decode()}\n-----END VEENA GRANT-----\n"
    (authority.directory / "shown.grant").write_text(text)
    with pytest.raises(ConfigFaults) as caught:
        named(authority, 'grant = "shown.grant"', "b5", "0.0.0.5")
    (fault,) = caught.value.faults
    assert told in fault.reason and fault.entry.endswith("[links] grant")
    assert "veena pki grant DIR b5 --address 0.0.0.5" in fault.remedy


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ('grant = "none.grant"', "which is no file"),
        ('grant = "b1.pem"', "no -----BEGIN VEENA GRANT-----"),
        ('[[links.neighbours]]\nname = "b5"\naddress = "0.0.0"', "is a unit of 3 levels"),
        ('[[links.neighbours]]\nname = "b5"\naddress = "A.1"', "[links.neighbours] address"),
        (2 * '[[links.neighbours]]\nname = "b5"\naddress = "0.0.0.5"\n', "is 'b5' twice"),
    ],
)
def test_wrong_bindings_are_told(authority: Authority, links: str, told: str) -> None:
    with pytest.raises(ConfigFaults) as caught:
        named(authority, links)
    assert told in str(caught.value)


def test_a_grant_is_for_a_broker_with_a_certificate(authority: Authority) -> None:
    authority.grant("b1", HERE)
    with pytest.raises(ConfigFaults, match="named without"):
        parse_config(
            f'[broker]\nname = "b1"\naddress = "{format_address(HERE)}"\n[links]\ngrant = "b1.grant"\n',
            base=authority.directory,
        )


def test_a_broken_grant_leaves_a_reload_undone(authority: Authority) -> None:
    """The file was damaged while the broker runs: it goes on with the one that it has read."""
    path = authority.grant("b1", HERE)

    async def run() -> None:
        async with running(named(authority, 'grant = "b1.grant"')) as node:
            good = load_grant(path)
            path.write_text("nothing")
            with pytest.raises(Exception, match="veena pki grant"):
                node.reload(replace(node.config))
            await until(
                lambda: node.driver.is_remembered
            )  # before that it greets nobody, and sends this one away first
            link = await link_to(node.urls[0], THERE, name="b5", secrets=authority.secrets("b5"))
            assert getattr(link.frames[0], "grant", None) == good

    asyncio.run(run())
