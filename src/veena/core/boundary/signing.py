"""Who signs for a broker and checks what others signed: arguments of the core, which does no cryptography itself.

What is signed stands in `trust.signatures`. Without these nothing is signed and no signature is asked for: the broker
behaves as one of a network without an authority.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from veena.core.wire.signatures import Credential, Signature


class Signer(Protocol):
    """Signs for one broker."""

    @property
    def certificate(self) -> bytes:
        """The certificate of its key, in DER."""

    def sign(self, statement: bytes) -> bytes:
        """A signature of this statement."""


class FaultCode(StrEnum):
    """Why a signature does not count, for programs; the audit log has the values."""

    #: Nobody has signed who would have to.
    UNSIGNED = "unsigned"
    #: It is not of this statement, or not made with the signer's key.
    FORGED = "forged"
    #: The signer lives elsewhere: what it says here is not its to say.
    ELSEWHERE = "elsewhere"
    #: Nothing binds the signer's name to its address: it shows no grant, or one that does not count.
    UNBOUND = "unbound"
    #: The signer's certificate does not count here: it cannot be read, has expired, was revoked, or is of nobody known.
    UNCERTIFIED = "uncertified"
    #: Something that came before it is missing here: a credential, or other statements.
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a signature does not count."""

    code: FaultCode
    reason: str
    #: Whether every broker of the network sees that: who passes it on has not looked. Otherwise brokers may differ, by
    #: their clocks, their lists of revoked certificates or their configuration.
    is_plain: bool


class Verifier(Protocol):
    """Checks signatures of others."""

    def why_not(self, credential: Credential, signature: Signature, statement: bytes, wall_ns: int) -> Fault | None:
        """Why the broker at `signature.signer` has not signed this, or may not; None when all is well."""


@dataclass(frozen=True, slots=True)
class Signing:
    """Both, for one broker."""

    signer: Signer
    verifier: Verifier
