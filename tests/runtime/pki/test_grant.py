"""Grants: what the authority signed, and nothing else, says where a broker may live."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from veena.core.wire.control import MAX_GRANT, MAX_NETWORK_NAME, MAX_PERMANENT_ID
from veena.errors import ConfigError
from veena.runtime.pki.authority import Authority, KeyKind, make_authority
from veena.runtime.pki.grant import (
    PURPOSE,
    AddressGrant,
    NotGranted,
    grant_text,
    load_grant,
    read_grant,
    sign_grant,
    verify_grant,
)
from veena.runtime.pki.keys import load_signing_key, sign

#: Test names that take four bytes a character.
LONG = "\U0001f41d"


@pytest.fixture(params=["ed25519", "ecdsa"])
def authority(tmp_path: Path, request: pytest.FixtureRequest) -> Authority:
    kind: KeyKind = request.param
    return make_authority(tmp_path / "ca", "acme", key_kind=kind)


def believed(authority: Authority) -> tuple[x509.Certificate, ...]:
    return (authority.certificate,)


def test_a_grant_is_good_for_its_time(authority: Authority) -> None:
    now = time.time()
    good = AddressGrant("acme", "b1", (0, 1, 2, 3), int(now) - 10, int(now) + 10)
    data = sign_grant(authority.key, good)
    assert verify_grant(data, believed(authority), now) == read_grant(data) == good
    with pytest.raises(NotGranted, match="not good yet"):
        verify_grant(data, believed(authority), now - 11)
    with pytest.raises(NotGranted, match="has expired"):
        verify_grant(data, believed(authority), good.not_after)


def test_every_byte_of_a_grant_counts(authority: Authority) -> None:
    """SEC: no bit of it can be changed, and nothing can be put behind it or left out."""
    now = int(time.time())
    data = sign_grant(authority.key, AddressGrant("acme", "b1", (0, 1, 2, 3), now - 10, now + 10))
    for at in range(len(data)):
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises(NotGranted):
                verify_grant(changed, believed(authority), now)
        with pytest.raises(NotGranted):
            verify_grant(data[:at], believed(authority), now)
    for more in (data + b"\0", data + data, b"\xc0" * MAX_GRANT, bytes(MAX_GRANT + 1)):
        with pytest.raises(NotGranted):
            verify_grant(more, believed(authority), now)


def test_whose_signature_counts(authority: Authority, tmp_path: Path) -> None:
    """SEC: neither another authority of the same name, nor a broker's own key, nor a signature of something else."""
    now = int(time.time())
    other = make_authority(tmp_path / "other", "acme")
    good = AddressGrant("acme", "b1", (0, 1, 2, 3), now - 10, now + 10)
    broker = x509.load_pem_x509_certificate(authority.issue_broker("b1").certificate.read_bytes())
    with pytest.raises(NotGranted, match="signed by nobody"):
        verify_grant(sign_grant(other.key, good), believed(authority), now)
    with pytest.raises(NotGranted, match="signed by nobody"):
        verify_grant(sign_grant(authority.key, good), (), now)
    own = load_signing_key(authority.directory / "b1.key")
    with pytest.raises(NotGranted, match="signed by nobody"):
        verify_grant(sign_grant(own, good), (*believed(authority), broker), now)
    statement = msgspec.msgpack.encode(good)
    for purpose in (b"digest", b"", PURPOSE + b" "):
        forged = msgspec.msgpack.encode([statement, sign(authority.key, purpose, statement)])
        with pytest.raises(NotGranted, match="signed by nobody"):
            verify_grant(forged, believed(authority), now)
    ends = authority.certificate.not_valid_after_utc.timestamp()
    late = AddressGrant("acme", "b1", (0, 1, 2, 3), now, int(ends) + 10)
    with pytest.raises(NotGranted, match="signed by nobody"):
        verify_grant(sign_grant(authority.key, late), believed(authority), ends)


def test_the_longest_names_fit(authority: Authority) -> None:
    long = AddressGrant(LONG * MAX_NETWORK_NAME, "n" * MAX_PERMANENT_ID, (63,) * 8, 0, 253_402_300_799)
    assert len(sign_grant(authority.key, long)) <= MAX_GRANT
    with pytest.raises(NotGranted, match="shorter names"):
        sign_grant(authority.key, AddressGrant("acme", LONG * MAX_PERMANENT_ID, (0,), 0, 1))
    with pytest.raises(NotGranted, match="no grant can be read"):
        sign_grant(authority.key, AddressGrant("acme", "b1", (), 0, 1))


def test_a_grant_in_a_file(authority: Authority, tmp_path: Path) -> None:
    path = authority.grant("b1", (0, 1, 2, 3))
    data = load_grant(path)
    assert path.read_text() == grant_text(data)
    assert "broker 'b1' of network 'acme' may live at 0.1.2.3" in path.read_text()
    assert verify_grant(data, believed(authority), time.time()).address == (0, 1, 2, 3)
    text = path.read_text()
    for bad in (text.replace("BEGIN", "BEGUN"), text[:-40], text.replace("\nks", "\nkt"), "", "x" * 100_000, "\xff"):
        (tmp_path / "bad").write_text(bad)
        with pytest.raises(ConfigError, match="veena pki grant"):
            load_grant(tmp_path / "bad")
    with pytest.raises(ConfigError, match="veena pki grant"):
        load_grant(tmp_path / "none")
