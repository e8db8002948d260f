"""Brokers of three super-clusters, with certificates of `veena pki`, over TLS: who lies about another is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import veena
from tests.runtime.authority import Authority
from tests.runtime.certificate_edges import of_no_time
from tests.runtime.raw_link import RawLink, link_to
from tests.runtime.streams import until
from veena.address import Address, Unit, format_address
from veena.core.boundary.signing import FaultCode
from veena.core.trust.signatures import Statements
from veena.core.wire.control import Frame
from veena.core.wire.interest import Digest, Interest, Version
from veena.core.wire.signatures import Credential, Credentials, DigestProof, Proofs, Signature
from veena.errors import RefusalCode
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.pki.broker_certificate import own_certificate
from veena.runtime.pki.grant import load_grant
from veena.runtime.pki.statement_signer import load_signer
from veena.runtime.transports.tls import client_context

PLACES: dict[str, Address] = {"a": (0, 0, 0, 0), "b": (0, 1, 0, 0), "c": (0, 2, 0, 0)}
#: The liar has a certificate and a grant like everybody, for a super-cluster of its own.
LIAR: Address = (0, 3, 0, 0)
VICTIM = (0, 2)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    for name in ("a", "b", "liar"):
        made.issue(name, uris=[f"veena://veena#{name}"])
    made.issue("c", uris=["veena://veena/0.2#c"])  # one whose certificate names its unit as well
    return made


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def started(authority: Authority, name: str, dial: str = "") -> Node:
    grant = authority.grant(name, PLACES[name])
    dialled = f'dial = ["{dial}"]\n' if dial else ""
    return Node(
        parse_config(
            f'[broker]\nname = "{name}"\naddress = "{format_address(PLACES[name])}"\n'
            'listen = ["veenas://127.0.0.1:0"]\n'
            f'[links]\nheartbeat_s = 0.1\nretry_s = 0.05\nretry_s_max = 0.1\ngrant = "{grant}"\n{dialled}'
            f'[tls]\ncertificate = "{name}.pem"\nkey = "{name}.key"\nauthority = "authority.pem"\n'
            f'clients = "optional"\n[audit]\nfile = "{name}.jsonl"\n',
            base=authority.directory,
        )
    )


async def reached(node: Node, units: list[Unit]) -> None:
    await until(lambda: all(unit in node.driver.reached for unit in units))


@asynccontextmanager
async def network(authority: Authority) -> AsyncIterator[dict[str, Node]]:
    """a - b - c, each in a super-cluster of its own, and each in reach of all."""
    async with AsyncExitStack() as stack:
        nodes: dict[str, Node] = {}
        url = ""
        for name in PLACES:
            node = nodes[name] = started(authority, name, url)
            await node.start()
            stack.push_async_callback(node.stop, 0.1)
            url = node.urls[0]
        for node in nodes.values():
            await reached(node, [place[:2] for place in PLACES.values() if place != node.config.address])
        yield nodes


def client(authority: Authority, node: Node, name: str) -> veena.Client:
    return veena.connect(node.urls[0], client_id=name, tls=client_context(authority.pem))


def noted(authority: Authority, name: str, kind: str) -> list[str]:
    """The codes of all lines of this kind in a broker's audit log."""
    text = (authority.directory / f"{name}.jsonl").read_text()
    return [line["code"] for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def lied(
    authority: Authority, version: Version, *, grant: bytes = b"", is_signed: bool = True, certificate: bytes = b""
) -> tuple[Frame, ...]:
    """The victim wants nothing, as the liar says and signs."""
    signer = load_signer(authority.directory / "liar.pem", authority.directory / "liar.key")
    credential = Credential(certificate or signer.certificate, grant)
    statement = Statements("veena", 4).digest(version[1], VICTIM, version, (), ())
    proof = DigestProof(VICTIM, version, (), Signature(version[1], credential.hash(), signer.sign(statement)))
    proofs = (Credentials((credential,)), Proofs(digests=(proof,))) if is_signed else ()
    return (*proofs, Interest((), (Digest(VICTIM, version, ()),)))


async def meet(authority: Authority, node: Node) -> RawLink:
    grant = load_grant(authority.grant("liar", LIAR))
    link = await link_to(node.urls[0], LIAR, name="liar", secrets=authority.secrets("liar"), grant=grant)
    link.answers = True
    await until(lambda: any(isinstance(frame, Interest) for frame in link.frames))
    return link


def test_an_honest_network_crosses_its_relay(authority: Authority) -> None:
    """What c wants reaches a through b with the signature of c; then a's events reach c."""

    async def scenario() -> None:
        async with (
            network(authority) as nodes,
            client(authority, nodes["c"], "reader") as reader,
            client(authority, nodes["a"], "writer") as writer,
        ):
            quotes = await reader.subscribe(topic="quotes", wait=20)
            await writer.publish(topic="quotes", body=b"one", reliable=True)
            assert (await quotes.next(20)).body == b"one"
            for node in nodes.values():
                told = node.statistics().broker.signatures
                assert told.made > 0 and told.checked > 0 and told.refused == 0
            digest = nodes["a"].driver.broker.profiles.table.digest(VICTIM)
            assert digest is not None and digest.version[1] == PLACES["c"]
            assert nodes["a"].topology()["signed"]["0.2"] == "0.2.0.0"

    run(scenario())


@pytest.mark.parametrize(
    "lie",
    [
        lambda authority, version: lied(authority, version, is_signed=False),
        lambda authority, version: lied(authority, (version[0], LIAR, version[2])),
        lambda authority, version: lied(authority, version, grant=load_grant(authority.grant("liar", LIAR))),
    ],
    ids=["unsigned", "in its own name", "in the name of the victim"],
)
def test_a_liar_is_refused_and_everybody_else_goes_on(
    authority: Authority, lie: Callable[[Authority, Version], tuple[Frame, ...]]
) -> None:
    """A broker with its own certificate, grant and key says what another unit wants."""

    async def scenario() -> None:
        async with (
            network(authority) as nodes,
            client(authority, nodes["c"], "reader") as reader,
            client(authority, nodes["a"], "writer") as writer,
        ):
            quotes = await reader.subscribe(topic="quotes", wait=20)
            table = nodes["b"].driver.broker.profiles.table
            liar = await meet(authority, nodes["b"])
            digest = table.digest(VICTIM)
            assert digest is not None
            epoch, speaker, number = digest.version
            liar.say(*lie(authority, (epoch + 1000, speaker, number + 1)))
            await until(lambda: liar.reason is not None)
            assert len(liar.goodbyes()) == 1
            await until(lambda: noted(authority, "b", "link refused") == [RefusalCode.DENIED])
            kept = table.digest(VICTIM)
            assert kept is not None and kept.version < (epoch + 1000, speaker, 0)
            assert nodes["b"].statistics().broker.signatures.refused == 1
            await writer.publish(topic="quotes", body=b"one", reliable=True)
            assert (await quotes.next(20)).body == b"one"
            assert nodes["c"].statistics().broker.profiles.lies == 0

    run(scenario())


def test_what_brokers_may_see_differently_costs_no_link(authority: Authority) -> None:
    """A signer whose address nothing binds to its name: what it says is dropped, and noted."""

    async def scenario() -> None:
        async with network(authority) as nodes:
            liar, table = await meet(authority, nodes["b"]), nodes["b"].driver.broker.profiles.table
            await until(lambda: table.digest(VICTIM) is not None)
            digest = table.digest(VICTIM)
            assert digest is not None
            epoch, speaker, number = digest.version
            liar.say(*lied(authority, (epoch + 1000, speaker, number + 1)))
            await until(lambda: noted(authority, "b", "statement refused"))
            assert noted(authority, "b", "statement refused") == [FaultCode.UNBOUND] and liar.reason is None
            kept = table.digest(VICTIM)
            assert kept is not None and kept.version[0] < epoch + 1000

    run(scenario())


def test_a_certificate_that_nobody_can_read_costs_a_broker_nothing(authority: Authority) -> None:
    """Its times are of no year, it is cut off, or it is empty: what is signed by it is dropped, and the core stays."""

    async def scenario() -> None:
        async with network(authority) as nodes:
            core = nodes["b"].driver.broker
            liar, table = await meet(authority, nodes["b"]), core.profiles.table
            await until(lambda: table.digest(VICTIM) is not None)
            digest = table.digest(VICTIM)
            assert digest is not None
            epoch, speaker, number = digest.version
            good = own_certificate(authority.directory / "liar.pem")
            bad = (of_no_time(good), good[:-9], bytes(9))
            for at, certificate in enumerate(bad, 1):
                liar.say(*lied(authority, (epoch + 1000 + at, speaker, number + at), certificate=certificate))
            await until(lambda: nodes["b"].statistics().broker.signatures.refused >= len(bad) or liar.reason)
            await until(lambda: noted(authority, "b", "statement refused"))
            assert set(noted(authority, "b", "statement refused")) == {FaultCode.UNCERTIFIED}
            assert nodes["b"].driver.broker is core and liar.reason is None

    run(scenario())


def test_a_new_grant_and_certificate_are_shown_while_the_broker_runs(authority: Authority) -> None:
    """Read again, they sign what was said before: others pass it on with them."""

    async def scenario() -> None:
        async with network(authority) as nodes:
            node, far = nodes["c"], nodes["a"].driver.broker
            made = node.statistics().broker.signatures.made
            (authority.directory / "c.pem").unlink()
            (authority.directory / "c.key").unlink()
            authority.issue("c", uris=["veena://veena/0.2#c"])
            node.reload(node.config)
            signer = load_signer(authority.directory / "c.pem", authority.directory / "c.key")
            store = far.exchange.statements.store

            def is_new() -> bool:
                digest = far.profiles.table.digest(VICTIM)
                proof = None if digest is None else store.digest(VICTIM, digest.version)
                credential = None if proof is None else store.credential(proof.signature.credential)
                return credential is not None and credential.certificate == signer.certificate

            await until(is_new)
            assert node.statistics().broker.signatures.made > made
            assert all(each.statistics().broker.signatures.refused == 0 for each in nodes.values())

    run(scenario())
