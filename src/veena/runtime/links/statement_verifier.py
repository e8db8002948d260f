"""Checks what brokers of other units signed: their certificates, the addresses that they speak for, their signatures.

A broker far away is no neighbour, so TLS says nothing of it. Its certificate and its grant come with its signatures. It
may speak as the broker at an address where

- its certificate names units, one of which has that address (by the network file here), or
- the configuration here says that the broker of this name lives there, or
- the grant says so.

What was found of a certificate and a grant is remembered for a minute, or until either ends; a certificate that is
revoked counts no more from the moment when the list of revoked ones is read again.

The invariant: `why_not` gives None only for a signature by the key of a certificate that is good now.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from veena.address import Address, format_address
from veena.core.boundary.signing import Fault, FaultCode
from veena.core.wire.signatures import Credential, Signature
from veena.runtime.links.trust import Trust
from veena.runtime.pki.broker_certificate import BrokerCertificate, NotCertified, verify_certificate
from veena.runtime.pki.grant import AddressGrant, NotGranted, remedy_for, verify_grant
from veena.runtime.pki.keys import is_signed
from veena.runtime.pki.statement_signer import PURPOSE
from veena.runtime.transports.certificate import NONE_REVOKED, Revoked
from veena.runtime.transports.names import BrokerName

#: Credentials that are remembered; each has a key and a few names.
MAX_KNOWN: Final = 4096
#: How long what was found counts.
GOOD_FOR_S: Final = 60.0
_NOBODY: Final = Trust()


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found of a credential."""

    found_at: float
    good_until: float
    certificate: BrokerCertificate | None
    grant: AddressGrant | None = None
    #: Why the certificate, or the grant, does not count.
    why_not: str = ""


class StatementVerifier:
    """One a broker."""

    def __init__(self, trust: Trust = _NOBODY, revoked: Revoked = NONE_REVOKED) -> None:
        self._trust, self._revoked = trust, revoked
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def renew(self, trust: Trust, revoked: Revoked) -> None:
        """Go by these from now on."""
        self._trust, self._revoked = trust, revoked
        self._known.clear()

    def why_not(self, credential: Credential, signature: Signature, statement: bytes, wall_ns: int) -> Fault | None:
        known = self._find(credential, signature.credential, wall_ns / 1e9)
        certificate = known.certificate
        if certificate is None:
            return Fault(FaultCode.UNCERTIFIED, known.why_not, is_plain=False)
        names = [name for name in certificate.names if name.network == self._trust.network]
        if not names:
            return Fault(
                FaultCode.ELSEWHERE,
                f"its signer is a broker of network {certificate.names[0].network!r}",
                is_plain=True,
            )
        fault = self._fault_of_place(names, known, signature.signer)
        if fault is None and not is_signed(certificate.public_key, PURPOSE, statement, signature.data):
            fault = Fault(FaultCode.FORGED, f"its signature is not one of broker {names[0].name!r}", is_plain=True)
        return fault

    def _find(self, credential: Credential, name: bytes, now: float) -> _Known:
        known = self._known.get(name)
        if known is None or not known.found_at - GOOD_FOR_S <= now < known.good_until:
            known = self._known[name] = self._read(credential, now)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(name)
        return known

    def _read(self, credential: Credential, now: float) -> _Known:
        try:
            certificate = verify_certificate(credential.certificate, self._trust.authorities, now, self._revoked)
        except NotCertified as error:
            return _Known(now, now + GOOD_FOR_S, None, why_not=str(error))
        until = min(now + GOOD_FOR_S, certificate.not_after)
        if not credential.grant:
            return _Known(now, until, certificate, why_not="its signer shows no grant")
        try:
            grant = verify_grant(credential.grant, self._trust.authorities, now)
        except NotGranted as error:
            return _Known(now, until, certificate, why_not=str(error))
        return _Known(now, min(until, grant.not_after), certificate, grant)

    def _fault_of_place(self, names: list[BrokerName], known: _Known, signer: Address) -> Fault | None:
        """Why a broker of one of these names may not speak as the one at this address."""
        outside: list[str] = []
        for name in names:
            label = ".".join(name.unit)
            try:
                unit = self._trust.unit_of(label) if label else None
            except ValueError:
                continue  # a unit that this broker does not know: the grant counts
            if unit is not None and signer[: len(unit)] == unit:
                return None
            if unit is not None:
                outside.append(label)
        shown = f"broker {names[0].name!r} may not speak as {format_address(signer)}"
        if len(outside) == len(names):
            return Fault(
                FaultCode.ELSEWHERE, f"{shown}: its certificate lets it live in {' or '.join(outside)}", is_plain=False
            )
        if any(self._trust.bindings.address_of(name.name) == signer for name in names):
            return None
        grant = known.grant
        if grant is None:
            return Fault(
                FaultCode.UNBOUND, f"{shown}: {known.why_not}; {remedy_for(names[0].name, signer)}", is_plain=False
            )
        if (grant.network, grant.address) != (self._trust.network, signer) or all(
            name.name != grant.name for name in names
        ):
            return Fault(FaultCode.ELSEWHERE, f"{shown}: its grant says that {grant}", is_plain=True)
        return None
