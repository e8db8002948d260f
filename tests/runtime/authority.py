"""An authority for a test: it signs certificates that expire when the test says, and revokes them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.tls import client_context, server_context

HOUR = timedelta(hours=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@dataclass
class Authority:
    """Its files are in a directory of its own; the certificate of NAME is in `NAME.pem`, its key in `NAME.key`."""

    directory: Path
    name: str = "authority"
    serials: dict[str, int] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = self._builder(self.name, self._key.public_key(), HOUR)
        signed = (
            built.add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(usage, True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = _write(self.directory / f"{self.name}.pem", signed.public_bytes(Encoding.PEM))

    def _builder(self, name: str, key: ec.EllipticCurvePublicKey, good_for: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + good_for)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )

    def issue(self, name: str, good_for: timedelta = HOUR, uris: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """A certificate in this name, for this machine; `uris` and `hosts` are names beside that."""
        key = ec.generate_private_key(ec.SECP256R1())
        others = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, hosts)]
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *others])
        signed = (
            self._builder(name, key.public_key(), good_for).add_extension(here, False).sign(self._key, hashes.SHA256())
        )
        self.serials[name] = signed.serial_number
        _write(self.directory / f"{name}.pem", signed.public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(self.directory / f"{name}.key", private)

    def revoke(self, *names: str) -> Path:
        """The list of what is revoked: these and no others."""
        now = datetime.now(UTC)
        built = x509.CertificateRevocationListBuilder().issuer_name(_name(self.name))
        built = built.last_update(now - HOUR).next_update(now + HOUR)
        for name in names:
            entry = x509.RevokedCertificateBuilder().serial_number(self.serials[name]).revocation_date(now)
            built = built.add_revoked_certificate(entry.build())
        signed = built.sign(self._key, hashes.SHA256())
        return _write(self.directory / "revoked.pem", signed.public_bytes(Encoding.PEM))

    def secrets(self, name: str) -> Secrets:
        """What somebody dials and listens with that shows this certificate."""
        chain = (self.directory / f"{name}.pem", self.directory / f"{name}.key")
        return Secrets(server_context(*chain, self.pem, "optional"), client_context(self.pem, *chain))
