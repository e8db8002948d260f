"""What is remembered of a peer's certificate: whose it is, who signed it, and if it is good still.

A handshake says that a certificate is good now. A connection lives longer: its certificate expires, the authority
revokes it, or the broker stops believing that authority. `why_not` says so of each connection afterwards.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from veena.errors import ConfigError

#: The values of a distinguished name, in its order.
Issuer = tuple[str, ...]
#: The same as `ssl` shows it.
Name = tuple[tuple[tuple[str, str], ...], ...]
#: A list of revoked certificates has some 40 bytes for each.
MAX_FILE_BYTES: Final = 64 << 20
#: Alternative names that are looked at: a certificate with more is none of people, programs or brokers.
MAX_NAMES: Final = 256
#: The kinds of alternative names that may be a user's, as `ssl` calls them.
_NAMES: Final = ("DNS", "email")
_BEGIN: Final = b"-----BEGIN X509 CRL-----"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that a peer has proved to be its own."""

    issuer: Issuer
    serial: int
    #: In seconds since 1970.
    not_after: float
    #: The names of people and programs that it proves: its common name, and alternative names of hosts and mail.
    names: tuple[str, ...] = ()
    #: Its other alternative names, such as those of brokers.
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revoked:
    """The certificates that authorities have revoked."""

    serials: frozenset[tuple[Issuer, int]] = frozenset()

    def why_not(self, certificate: Certificate | None, now: float) -> str | None:
        """Why a connection with this certificate must end; None if it may go on."""
        if certificate is None:
            return None
        if (certificate.issuer, certificate.serial) in self.serials:
            return f"certificate {certificate.serial:X} was revoked: get a new one from its authority"
        if certificate.not_after <= now:
            return f"certificate {certificate.serial:X} has expired: get a new one from its authority"
        return None


NONE_REVOKED: Final = Revoked()


def of_peer(found: object) -> Certificate | None:
    """From what a transport says of its peer's certificate; None where there is none, or it was not asked for."""
    if not isinstance(found, dict) or "serialNumber" not in found or "notAfter" not in found:
        return None
    common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    others: list[tuple[str, str]] = list(found.get("subjectAltName", ()))[:MAX_NAMES]
    return Certificate(
        _values(found.get("issuer")),
        int(found["serialNumber"], 16),
        ssl.cert_time_to_seconds(found["notAfter"]),
        tuple(dict.fromkeys([*common, *(value for kind, value in others if kind in _NAMES)])),
        tuple(value for kind, value in others if kind == "URI"),
    )


def first_name(path: Path) -> str:
    """The common name of a certificate in a PEM file; empty where there is none, or no such file."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (OSError, ValueError):  # who uses the file as a certificate tells
        return ""
    return str(found[0].value) if found else ""


def load_revoked(path: Path) -> Revoked:
    """The lists of a PEM file; raise ConfigError where it cannot be used."""
    from cryptography import x509  # a tenth of a second, for who has such a list

    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_FILE_BYTES} are read")
        lists = [x509.load_pem_x509_crl(_BEGIN + part) for part in data.split(_BEGIN)[1:]]
        if not lists:
            raise ValueError("no list of revoked certificates is in it")
    except (OSError, ValueError) as error:
        remedy = "name a PEM file with the authority's list of revoked certificates (X509 CRL)"
        raise ConfigError("[tls]", f"revoked {path}", f"cannot be used ({error})", remedy) from None
    serials = {
        (tuple(str(attribute.value) for attribute in found.issuer), each.serial_number)
        for found in lists
        for each in found
    }
    return Revoked(frozenset(serials))


@dataclass(frozen=True, slots=True)
class Believed:
    """The certificates of the authorities that a broker believes, by the names of their owners."""

    owners: frozenset[tuple[bytes, Issuer]] = frozenset()

    def dropped(self, now: Believed) -> frozenset[Issuer] | None:
        """The owners of which no certificate is believed any more; None if all are still."""
        gone = self.owners - now.owners
        if not gone:
            return None
        kept = {owner for _, owner in self.owners & now.owners}
        return frozenset(owner for _, owner in gone if owner not in kept)

    def knows(self, issuer: Issuer) -> bool:
        return any(owner == issuer for _, owner in self.owners)


def believed(authority: Path | None) -> Believed:
    """What the file of an authority holds, which was read as one before."""
    if authority is None:
        return Believed()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    found: list[tuple[bytes, Issuer]] = []
    for encoded, shown in zip(context.get_ca_certs(binary_form=True), context.get_ca_certs(), strict=True):
        found.append((encoded, _values(shown.get("subject"))))
    return Believed(frozenset(found))


def _values(name: object) -> Issuer:
    """The values of a name, as `ssl` shows one."""
    return tuple(str(value) for part in cast(Name, name or ()) for _, value in part)
