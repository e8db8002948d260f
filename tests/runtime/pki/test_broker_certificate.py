"""Signatures for a purpose, and certificates of brokers that come in messages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.runtime.authority import Authority
from tests.runtime.certificate_edges import of_no_time
from veena.errors import ConfigError
from veena.runtime.pki.broker_certificate import NotCertified, load_authorities, own_certificate, verify_certificate
from veena.runtime.pki.keys import MAX_SIGNATURE_BYTES, is_signed, load_signing_key, sign
from veena.runtime.transports.certificate import load_revoked
from veena.runtime.transports.names import BrokerName

if TYPE_CHECKING:
    from veena.runtime.pki.keys import SigningKey


def key_file(path: Path, key: SigningKey | rsa.RSAPrivateKey) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())])
def test_a_signature_is_of_one_key_purpose_and_text(key: SigningKey, tmp_path: Path) -> None:
    loaded = load_signing_key(key_file(tmp_path / "a.key", key))
    found = sign(loaded, b"digest", b"what is said")
    assert len(found) <= MAX_SIGNATURE_BYTES
    assert is_signed(key.public_key(), b"digest", b"what is said", found)
    assert not is_signed(key.public_key(), b"claim", b"what is said", found)
    assert not is_signed(key.public_key(), b"digest", b"what is not said", found)
    assert not is_signed(ed25519.Ed25519PrivateKey.generate().public_key(), b"digest", b"what is said", found)
    assert not is_signed(ec.generate_private_key(ec.SECP256R1()).public_key(), b"digest", b"what is said", found)
    for place in range(len(found)):
        assert not is_signed(key.public_key(), b"digest", b"what is said", _flipped(found, place))
    assert not is_signed(key.public_key(), b"digest", b"what is said", b"")


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_keys_that_sign_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RSAPrivateKey"):
        load_signing_key(key_file(tmp_path / "rsa.key", rsa.generate_private_key(65537, 2048)))
    with pytest.raises(ConfigError, match="signs nothing"):
        load_signing_key(key_file(tmp_path / "large.key", ec.generate_private_key(ec.SECP384R1())))
    with pytest.raises(ConfigError, match="cannot be used"):
        load_signing_key(tmp_path / "none.key")
    (tmp_path / "rsa.key").chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        load_signing_key(tmp_path / "rsa.key")


def test_a_certificate_says_who_its_owner_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("b1", uris=["veena://acme/SSC-A#b1", "veena://acme/SSC-B/SC-5#b1", "https://example.org"])
    der = own_certificate(tmp_path / "b1.pem")
    now = authority.now
    found = verify_certificate(der, load_authorities(authority.pem), now)
    assert found.names == (BrokerName("acme", "b1", ("SSC-A",)), BrokerName("acme", "b1", ("SSC-B", "SC-5")))
    assert found.not_before < now < found.not_after
    key = load_signing_key(tmp_path / "b1.key")
    assert is_signed(found.public_key, b"digest", b"x", sign(key, b"digest", b"x"))


def test_certificates_that_prove_nothing(tmp_path: Path) -> None:
    """SEC: one that came in a message is judged as strictly as one of a handshake."""
    authority = Authority(tmp_path)
    authority.issue("b1", uris=["veena://acme#b1"])
    authority.issue("client")
    der = own_certificate(tmp_path / "b1.pem")
    now = authority.now
    known = load_authorities(authority.pem)
    other = load_authorities(Authority(tmp_path / "other").pem)  # of the same name, with another key
    stranger = load_authorities(tmp_path / "b1.pem")  # no authority at all
    hours = timedelta(hours=2).total_seconds()
    for data, authorities, time, why in [
        (der, known, now + hours, "has expired"),
        (der, known, now - hours, "not good yet"),
        (der, other, now, "signed by nobody"),
        (der, stranger, now, "signed by nobody"),
        (der, (), now, "signed by nobody"),
        (own_certificate(tmp_path / "client.pem"), known, now, "names no broker"),
        (own_certificate(authority.pem), known, now, "names no broker"),
        (_flipped(der, len(der) - 1), known, now, "signed by nobody"),
        (der[:-1], known, now, "no certificate can be read"),
        (b"", known, now, "no certificate can be read"),
        (of_no_time(der), known, now, "no certificate can be read"),
        (of_no_time(der, b"00010101000000Z"), known, now, "has expired"),
        (of_no_time(der, b"99991231235959Z"), known, now, "not good yet"),
        (bytes(100_000), known, now, "at most"),
    ]:
        with pytest.raises(NotCertified, match=why):
            verify_certificate(data, authorities, time)
    revoked = load_revoked(authority.revoke("b1"))
    with pytest.raises(NotCertified, match="was revoked"):
        verify_certificate(der, known, now, revoked)
