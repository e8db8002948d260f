"""Whose signatures of statements count: certificates, units and grants as `veena pki` makes them."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.runtime.authority import DAY, Authority
from veena.address import Address, parse_address
from veena.core.boundary.signing import Fault, FaultCode
from veena.core.wire.signatures import Credential, Signature
from veena.errors import ConfigError
from veena.runtime.links.statement_verifier import StatementVerifier
from veena.runtime.links.trust import Bindings, Trust
from veena.runtime.pki.broker_certificate import load_authorities
from veena.runtime.pki.grant import load_grant
from veena.runtime.pki.statement_signer import StatementSigner, load_signer
from veena.runtime.transports.certificate import load_revoked

PLACE: Address = (0, 1, 0, 5)
STATEMENT = b"what was said"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def trust_of(authority: Authority, listed: dict[str, Address] | None = None) -> Trust:
    return Trust(
        anybody=False,
        network="veena",
        is_named=True,
        unit_of=parse_address,
        bindings=Bindings(listed or {}),
        authorities=load_authorities(authority.pem),
    )


def signer(authority: Authority, name: str) -> StatementSigner:
    return load_signer(authority.directory / f"{name}.pem", authority.directory / f"{name}.key")


def judged(
    verifier: StatementVerifier,
    by: StatementSigner,
    grant: bytes = b"",
    *,
    at: Address = PLACE,
    statement: bytes = STATEMENT,
    later: timedelta = timedelta(0),
) -> Fault | None:
    credential = Credential(by.certificate, grant)
    signature = Signature(at, credential.hash(), by.sign(STATEMENT))
    return verifier.why_not(credential, signature, statement, time.time_ns() + int(later.total_seconds() * 1e9))


def test_a_unit_of_the_certificate_lets_its_broker_speak_there(authority: Authority) -> None:
    authority.issue("b5", uris=["veena://veena/0/1#b5"])
    verifier, by = StatementVerifier(trust_of(authority)), signer(authority, "b5")
    assert judged(verifier, by) is None
    outside = judged(verifier, by, at=(0, 2, 0, 5))
    assert outside is not None and outside.code is FaultCode.ELSEWHERE


def test_a_grant_or_the_configuration_lets_a_name_speak(authority: Authority) -> None:
    authority.issue("b5", uris=["veena://veena#b5"])
    by, grant = signer(authority, "b5"), load_grant(authority.grant("b5", PLACE))
    verifier = StatementVerifier(trust_of(authority))
    assert judged(verifier, by, grant) is None
    assert judged(StatementVerifier(trust_of(authority, {"b5": PLACE})), by) is None
    elsewhere = judged(verifier, by, grant, at=(0, 1, 0, 6))
    assert elsewhere is not None and elsewhere.is_plain and elsewhere.code is FaultCode.ELSEWHERE
    nothing = judged(verifier, by)
    assert nothing is not None and not nothing.is_plain and nothing.code is FaultCode.UNBOUND


def test_another_ones_grant_lets_nobody_speak(authority: Authority) -> None:
    for name in ("b5", "b6"):
        authority.issue(name, uris=[f"veena://veena#{name}"])
    fault = judged(
        StatementVerifier(trust_of(authority)), signer(authority, "b6"), load_grant(authority.grant("b5", PLACE))
    )
    assert fault is not None and fault.is_plain and fault.code is FaultCode.ELSEWHERE


def test_what_was_altered_is_not_signed(authority: Authority) -> None:
    authority.issue("b5", uris=["veena://veena/0/1#b5"])
    fault = judged(StatementVerifier(trust_of(authority)), signer(authority, "b5"), statement=b"something else")
    assert fault is not None and fault.is_plain and fault.code is FaultCode.FORGED


def test_brokers_of_other_networks_and_authorities_say_nothing(authority: Authority, tmp_path: Path) -> None:
    authority.issue("b5", uris=["veena://elsewhere/0/1#b5"])
    other = Authority(tmp_path / "other")
    other.issue("b5", uris=["veena://veena/0/1#b5"])
    verifier = StatementVerifier(trust_of(authority))
    elsewhere, unknown = judged(verifier, signer(authority, "b5")), judged(verifier, signer(other, "b5"))
    assert elsewhere is not None and elsewhere.is_plain and elsewhere.code is FaultCode.ELSEWHERE
    assert unknown is not None and not unknown.is_plain and unknown.code is FaultCode.UNCERTIFIED


def test_certificates_and_grants_end_and_are_revoked(authority: Authority) -> None:
    """What was remembered of a certificate does not outlive it."""
    authority.issue("b5", good_for=DAY, uris=["veena://veena/0/1#b5"])
    authority.issue("b6", good_for=DAY, uris=["veena://veena#b6"])
    trust = trust_of(authority)
    verifier, by = StatementVerifier(trust), signer(authority, "b5")
    assert judged(verifier, by) is None
    expired = judged(verifier, by, later=2 * DAY)
    assert expired is not None and not expired.is_plain and expired.code is FaultCode.UNCERTIFIED
    grant = load_grant(authority.grant("b6", PLACE, good_for=timedelta(hours=1)))
    assert judged(verifier, signer(authority, "b6"), grant) is None
    ended = judged(verifier, signer(authority, "b6"), grant, later=timedelta(hours=2))
    assert ended is not None and not ended.is_plain and ended.code is FaultCode.UNBOUND
    verifier.renew(trust, load_revoked(authority.revoke("b5")))
    revoked = judged(verifier, by)
    assert revoked is not None and not revoked.is_plain and revoked.code is FaultCode.UNCERTIFIED


def test_noise_is_no_certificate(authority: Authority) -> None:
    authority.issue("b5", uris=["veena://veena/0/1#b5"])
    credential = Credential(bytes(range(256)), b"")
    signature = Signature(PLACE, credential.hash(), signer(authority, "b5").sign(STATEMENT))
    fault = StatementVerifier(trust_of(authority)).why_not(credential, signature, STATEMENT, time.time_ns())
    assert fault is not None and fault.code is FaultCode.UNCERTIFIED


def test_a_certificate_that_is_too_long_is_told_at_the_start(authority: Authority) -> None:
    authority.issue("b5", uris=[f"veena://veena/{'x' * 60}/{number}#b5" for number in range(80)])
    with pytest.raises(ConfigError, match="alternative names"):
        signer(authority, "b5")
