"""The authority of a network: a directory with its key, and what it makes: certificates, grants, the list of revoked.

    DIR/authority.pem  authority.key    who signs; the key never leaves this directory
    DIR/NAME.pem       NAME.key         a broker or a client; the two files, and authority.pem, go to its machine
    DIR/NAME.grant                      where a broker may live
    DIR/revoked.pem                     certificates that are good no more

The certificate of the authority says of which network it is, so that nobody has to repeat the name. Nothing is
overwritten but grants, which are renewed, and the list of revoked certificates, which grows. Files are for this user
alone.

The invariant: nothing that the authority signs is good for longer than its own certificate.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, unquote

from veena.address import Address
from veena.errors import ConfigError
from veena.runtime.pki.grant import AddressGrant, grant_text, read_grant, sign_grant
from veena.runtime.pki.keys import load_signing_key
from veena.runtime.transports.names import MAX_UNIT_PARTS, BrokerName
from veena.runtime.transports.secret_files import PRIVATE, open_private, write_secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    from veena.runtime.pki.keys import PublicKey, SigningKey

#: Ed25519, or ECDSA with the curve P-256 for programs that do not know the first, such as browsers.
KeyKind = Literal["ed25519", "ecdsa"]
#: Clocks differ: what is signed is good so long before.
EARLIER: Final = timedelta(minutes=5)
#: How long things are good, in days: ten years, a year, and a quarter in which the list has to be renewed.
AUTHORITY_DAYS: Final = 3650.0
DAYS: Final = 365.0
REVOKED_DAYS: Final = 90.0
#: A common name of X.509.
MAX_COMMON_NAME: Final = 64
#: Names of hosts under which a broker is dialled where nothing else is said.
LOCAL: Final = ("localhost", "127.0.0.1")
#: What a name of a host consists of, in any script.
_HOST: Final = re.compile(r"(\*\.)?\w([\w-]*\w)?(\.\w([\w-]*\w)?)*\.?")
_ORGANISATION: Final = "veena authority"
_NETWORK: Final = "veena://"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was made, with the file of its key."""

    certificate: Path
    key: Path
    serial: int
    not_after: float
    #: Where `Authority.grant` puts the grant of a broker.
    grant: Path


def make_authority(
    directory: Path,
    network: str,
    *,
    days: float = AUTHORITY_DAYS,
    key_kind: KeyKind = "ed25519",
    now: datetime | None = None,
) -> Authority:
    """An authority of a new network; raise ConfigError where there is one in that directory."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    _check_name("network", network)
    now = now or datetime.now(UTC)
    files = (directory / "authority.pem", directory / "authority.key")
    _refuse_to_overwrite(*files)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = _new_key(key_kind)
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION)
    name = x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, network)])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    network_uri = x509.UniformResourceIdentifier(_NETWORK + quote(network, safe=""))
    built = _builder(name, name, key.public_key(), now - EARLIER, now + timedelta(days=days))
    built = built.add_extension(x509.BasicConstraints(True, 0), True).add_extension(usage, True)
    built = built.add_extension(x509.SubjectAlternativeName([network_uri]), False)
    _write_key(files[1], key)
    _write_pem(files[0], built.sign(key, _digest(key)))
    return open_authority(directory, lambda: now)


def open_authority(directory: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Authority:
    """The authority of a directory; raise ConfigError where there is none, or no longer a good one."""
    certificate = _load(directory / "authority.pem", "run `veena pki authority` first, or name its directory")
    key = load_signing_key(directory / "authority.key")
    if key.public_key() != certificate.public_key():
        raise ConfigError(str(directory), "authority.key", "is not the key of authority.pem", "restore the right file")
    if certificate.not_valid_after_utc <= clock():
        reason = f"has expired at {certificate.not_valid_after_utc:%Y-%m-%d}"
        raise ConfigError(str(directory), "authority.pem", reason, "make a new authority in another directory")
    network = network_of(certificate)
    if network is None:
        reason = "is no authority that `veena pki authority` has made"
        raise ConfigError(str(directory), "authority.pem", reason, "make one in another directory")
    return Authority(directory, certificate, key, network, clock)


def network_of(certificate: x509.Certificate) -> str | None:
    """Of which network this is the authority; None for other certificates."""
    for uri in uris_of(certificate):
        name = uri.removeprefix(_NETWORK)
        if uri.startswith(_NETWORK) and name and "/" not in name and "#" not in name:
            return unquote(name)
    return None


def uris_of(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return found.get_values_for_type(x509.UniformResourceIdentifier)


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs for one network."""

    directory: Path
    certificate: x509.Certificate
    key: SigningKey
    network: str
    clock: Callable[[], datetime]

    def issue_broker(
        self,
        name: str,
        units: Sequence[str] = (),
        hosts: Sequence[str] = (),
        *,
        days: float = DAYS,
        key_kind: KeyKind = "ed25519",
    ) -> Issued:
        """A certificate of a broker, which may live in these units (by label, or anywhere) and is reached as `hosts`.

        It is good at both ends of a connection: brokers are dialled, and dial each other.
        """
        paths = [self._unit(unit) for unit in units] or [()]
        uris = [str(BrokerName(self.network, name, path)) for path in paths]
        reached = (*hosts, *(each for each in LOCAL if each not in hosts))
        return self.issue("broker", name, uris, reached, days=days, key_kind=key_kind)

    def issue_client(self, user: str, *, days: float = DAYS, key_kind: KeyKind = "ed25519") -> Issued:
        """A certificate of a user. Nobody can listen with it."""
        return self.issue("user", user, listens=False, days=days, key_kind=key_kind)

    def grant(self, name: str, address: Address, *, days: float = DAYS) -> Path:
        """A file that lets a broker live at this address; it takes the place of an older one of that broker."""
        _check_name("broker", name)
        begins, ends = self._span(days)
        made = AddressGrant(self.network, name, address, int(begins.timestamp()), int(ends.timestamp()))
        path = self._path(name, ".grant")
        write_secret(path, grant_text(sign_grant(self.key, made)))
        return path

    def revoke(self, names: Sequence[str] = (), serials: Sequence[int] = (), *, days: float = REVOKED_DAYS) -> Path:
        """The list of revoked certificates, with these added: certificates by name or serial number.

        With none the list is made or renewed: a broker with a list takes nobody once its time is over.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        path = self.directory / "revoked.pem"
        found = self._revoked(path)
        remedy = "write the name as it was given to `veena pki broker` or `client`, or its --serial"
        added = [_load(self._path(name, ".pem"), remedy).serial_number for name in names]
        now = self.clock()
        for serial in (*added, *serials):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            found.setdefault(serial, entry.build())
        _, ends = self._span(days)
        built = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        built = built.last_update(now - EARLIER).next_update(ends)
        built = built.add_extension(x509.CRLNumber(time.time_ns()), False)
        built = built.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        for each in found.values():
            built = built.add_revoked_certificate(each)
        signed = built.sign(self.key, _digest(self.key))
        write_secret(path, signed.public_bytes(Encoding.PEM).decode())
        return path

    def _revoked(self, path: Path) -> dict[int, x509.RevokedCertificate]:
        from cryptography import x509

        if not path.exists():
            return {}
        try:
            return {each.serial_number: each for each in x509.load_pem_x509_crl(path.read_bytes())}
        except ValueError as error:
            raise ConfigError(str(path), "list", f"cannot be read ({error})", "restore or remove that file") from None

    def issue(
        self,
        what: str,
        name: str,
        uris: Sequence[str] = (),
        hosts: Sequence[str] = (),
        *,
        listens: bool = True,
        days: float = DAYS,
        key_kind: KeyKind = "ed25519",
    ) -> Issued:
        """Any certificate that is none of an authority: for one who dials, and for one who listens if it `listens`."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        _check_name(what, name)
        files = (self._path(name, ".pem"), self._path(name, ".key"))
        _refuse_to_overwrite(*files)
        key = _new_key(key_kind)
        begins, ends = self._span(days)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        built = _builder(subject, self.certificate.subject, key.public_key(), begins, ends)
        built = built.add_extension(x509.BasicConstraints(False, None), True).add_extension(usage, True)
        uses = [*([ExtendedKeyUsageOID.SERVER_AUTH] if listens else []), ExtendedKeyUsageOID.CLIENT_AUTH]
        built = built.add_extension(x509.ExtendedKeyUsage(uses), False).add_extension(issuer, False)
        others = [*map(x509.UniformResourceIdentifier, uris), *map(_host, hosts)]
        if others:
            built = built.add_extension(x509.SubjectAlternativeName(others), False)
        signed = built.sign(self.key, _digest(self.key))
        _write_key(files[1], key)
        _write_pem(files[0], signed)
        return Issued(*files, signed.serial_number, ends.timestamp(), self._path(name, ".grant"))

    def _span(self, days: float) -> tuple[datetime, datetime]:
        now = self.clock()
        return now - EARLIER, min(now + timedelta(days=days), self.certificate.not_valid_after_utc)

    def _path(self, name: str, ending: str) -> Path:
        """The file of a name, whatever characters that has."""
        return self.directory / f"{quote(name, safe=' @')}{ending}"

    def _unit(self, label: str) -> tuple[str, ...]:
        parts = tuple(label.split("."))
        if not all(parts) or len(parts) > MAX_UNIT_PARTS:
            reason = f"is {label!r}"
            raise ConfigError("veena pki", "unit", reason, "write labels joined by dots, such as SSC-B.SC-5")
        return parts


def shown_grant(path: Path) -> AddressGrant:
    """What the grant of a file says."""
    from veena.runtime.pki.grant import load_grant

    return read_grant(load_grant(path))


def _new_key(kind: KeyKind) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


def _digest(key: SigningKey) -> hashes.SHA256 | None:
    """What a certificate is hashed with before this key signs: Ed25519 hashes by itself."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        if not _HOST.fullmatch(host):
            raise ValueError(host)
        return x509.DNSName(host.encode("idna").decode())
    except ValueError:
        raise ConfigError("veena pki", "host", f"is {host!r}", "write the name or IP address of a host") from None


def _check_name(what: str, name: str) -> None:
    if not name or not name.isprintable() or len(name.encode()) > MAX_COMMON_NAME:
        remedy = f"write 1 to {MAX_COMMON_NAME} bytes of printable text"
        raise ConfigError("veena pki", what, f"is named {name!r}", remedy)


def _refuse_to_overwrite(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(str(path), "file", "is there already", "move it away, or choose another name")


def _load(path: Path, remedy: str) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(str(path), "certificate", f"cannot be read ({reason})", remedy) from None


def _write_key(path: Path, key: SigningKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write_pem(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    _write(path, certificate.public_bytes(Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    """A new file of this user alone; raise FileExistsError where somebody was quicker."""
    with open(path, "xb", opener=open_private) as file:
        file.write(data)
    path.chmod(PRIVATE)
