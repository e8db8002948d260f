"""A program that lies: a neighbour with a certificate, a grant and a key of its own, which speaks for another unit.

    python -m tests.runtime.links.forger DIRECTORY URL VICTIM HOW

It links to a broker, says that the victim (a super-cluster such as 0.2) wants nothing, and prints how the broker took
that: the reason with which the link was closed, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.runtime.raw_link import link_to
from tests.runtime.streams import until
from veena.address import Address, Unit
from veena.core.trust.signatures import Statements
from veena.core.wire.control import Frame
from veena.core.wire.interest import Digest, Interest, Version
from veena.core.wire.signatures import Credential, Credentials, DigestProof, Proofs, Signature
from veena.runtime.pki.grant import load_grant
from veena.runtime.pki.statement_signer import load_signer
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.tls import client_context, server_context

FORGER: Address = (0, 3, 0, 0)
NAME = "liar"


def lie(directory: Path, victim: Unit, how: str, grant: bytes) -> tuple[Frame, ...]:
    """The victim wants nothing: unsigned, signed in the forger's name, or in that of the victim's speaker."""
    signer = load_signer(directory / f"{NAME}.pem", directory / f"{NAME}.key")
    epoch = time.time_ns() // 1_000_000 + 1000
    speaker = FORGER if how == "own" else (*victim, 0, 0)
    version: Version = (epoch, speaker, time.time_ns() // 1000)
    credential = Credential(signer.certificate, grant)
    statement = Statements("veena", len(FORGER)).digest(speaker, victim, version, (), ())
    proof = DigestProof(victim, version, (), Signature(speaker, credential.hash(), signer.sign(statement)))
    proofs = () if how == "unsigned" else (Credentials((credential,)), Proofs(digests=(proof,)))
    return (*proofs, Interest((), (Digest(victim, version, ()),)))


async def main(directory: Path, url: str, victim: Unit, how: str) -> None:
    chain = (directory / f"{NAME}.pem", directory / f"{NAME}.key")
    authority = directory / "authority.pem"
    secrets = Secrets(server_context(*chain, authority, "optional"), client_context(authority, *chain))
    grant = load_grant(directory / f"{NAME}.grant")
    link = await link_to(url, FORGER, name=NAME, secrets=secrets, grant=grant)
    link.answers = True
    await until(lambda: any(isinstance(frame, Interest) for frame in link.frames))
    link.say(*lie(directory, victim, how, grant))
    await until(lambda: link.reason is not None)
    print(json.dumps({"goodbyes": link.goodbyes()}))


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(Path(given[0]), given[1], tuple(map(int, given[2].split("."))), given[3]))
