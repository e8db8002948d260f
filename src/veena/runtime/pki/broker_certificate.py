"""A broker's certificate that came in a message: whose it is, and the key that its owner signs with.

TLS verifies the certificates of neighbours. A certificate of a broker far away comes beside what that broker signed,
and is verified here: signed by an authority that this broker believes, good now, not revoked, and naming a broker.

Rejected: chains over intermediate authorities. The file of `[tls] authority` names whoever signs certificates of
brokers; a chain would have to travel with every statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from veena.errors import ConfigError, RefusalCode, VeenaError
from veena.runtime.pki.keys import is_signing_key
from veena.runtime.transports.certificate import MAX_NAMES, NONE_REVOKED, Certificate, Revoked
from veena.runtime.transports.names import BrokerName, names_in

if TYPE_CHECKING:
    from cryptography import x509

    from veena.runtime.pki.keys import PublicKey

#: With the longest names and a dozen units a certificate has some 2 KiB.
MAX_CERTIFICATE_BYTES: Final = 16 << 10


class NotCertified(VeenaError):
    """A certificate that is no proof of being a broker of the network's authority."""

    code: RefusalCode = RefusalCode.DENIED


@dataclass(frozen=True, slots=True)
class BrokerCertificate:
    """What a verified certificate says of a broker."""

    #: Network, name and unit; one entry for each unit in which the broker may live.
    names: tuple[BrokerName, ...]
    public_key: PublicKey
    #: In seconds since 1970.
    not_before: float
    not_after: float
    serial: int


def own_certificate(path: Path) -> bytes:
    """The first certificate of a PEM file, such as `[tls] certificate`, in DER; raise ConfigError without one."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)
    except (OSError, ValueError) as error:
        remedy = "name a PEM file that begins with the certificate"
        raise ConfigError(str(path), "certificate", f"cannot be used ({error})", remedy) from None


def load_authorities(path: Path) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM file, such as `[tls] authority`; raise ConfigError without any."""
    from cryptography import x509

    try:
        return tuple(x509.load_pem_x509_certificates(path.read_bytes()))
    except (OSError, ValueError) as error:
        remedy = "name a PEM file with the certificates of the authority"
        raise ConfigError(str(path), "authority", f"cannot be used ({error})", remedy) from None


def verify_certificate(
    der: bytes, authorities: tuple[x509.Certificate, ...], now: float, revoked: Revoked = NONE_REVOKED
) -> BrokerCertificate:
    """What a certificate proves at this time, in seconds since 1970; raise NotCertified where it proves nothing."""
    from cryptography import x509

    if len(der) > MAX_CERTIFICATE_BYTES:
        raise NotCertified(f"a certificate of {len(der)} bytes; at most {MAX_CERTIFICATE_BYTES} are read")
    try:
        found = x509.load_der_x509_certificate(der)
        uris = _uris(found)
        key = found.public_key()
        issuer = tuple(str(attribute.value) for attribute in found.issuer)
        starts, ends = found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
    except Exception as error:  # the parser has exceptions of many kinds for what is no certificate
        raise NotCertified(f"no certificate can be read ({error})") from None
    if now < starts:
        raise NotCertified(f"certificate {found.serial_number:X} is not good yet: compare the clocks")
    why_not = revoked.why_not(Certificate(issuer, found.serial_number, ends), now)
    if why_not is not None:
        raise NotCertified(why_not)
    if not any(is_authority(each, now) and _has_issued(each, found) for each in authorities):
        raise NotCertified(f"certificate {found.serial_number:X} was signed by nobody whom [tls] authority names")
    if not is_signing_key(key):
        raise NotCertified(f"certificate {found.serial_number:X} has no Ed25519 or P-256 key")
    names = names_in(uris[:MAX_NAMES])
    if not names:
        raise NotCertified(f"certificate {found.serial_number:X} names no broker")
    return BrokerCertificate(names, cast("PublicKey", key), starts, ends, found.serial_number)


def is_authority(certificate: x509.Certificate, now: float) -> bool:
    """Whether a certificate is one of an authority, and good at this time."""
    from cryptography import x509

    if not certificate.not_valid_before_utc.timestamp() <= now < certificate.not_valid_after_utc.timestamp():
        return False
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _uris(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return found.get_values_for_type(x509.UniformResourceIdentifier)
