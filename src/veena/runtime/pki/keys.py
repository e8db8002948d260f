"""Private keys of certificates, and the signatures that are made with them: Ed25519, or ECDSA with the curve P-256.

Every signature is for a *purpose*, which stands before the data that is signed. So bytes that were signed for one
purpose are never a signature for another one, and none of them is a signature of TLS.

Rejected: RSA (a signature has 256 bytes and more, and takes a millisecond).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.errors import ConfigError
from veena.runtime.transports.secret_files import check_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    SigningKey = Ed25519PrivateKey | EllipticCurvePrivateKey
    PublicKey = Ed25519PublicKey | EllipticCurvePublicKey

#: An ECDSA signature in DER of the curve P-256 has at most 72 bytes, one of Ed25519 has 64.
MAX_SIGNATURE_BYTES: Final = 80
#: What every signed message of Veena begins with.
_PREFIX: Final = b"veena signs\0"
_REMEDY: Final = "name a PEM file with an Ed25519 or P-256 key without a password, as `veena pki` makes them"


def load_signing_key(path: Path) -> SigningKey:
    """The private key of a PEM file, such as `[tls] key`; raise ConfigError where it cannot sign."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    check_secret(path)
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(str(path), "key", f"cannot be used ({error})", _REMEDY) from None
    if not is_signing_key(key):
        raise ConfigError(str(path), "key", f"is a {type(key).__name__}, which signs nothing here", _REMEDY)
    return key  # type: ignore[return-value]


def is_signing_key(key: object) -> bool:
    """Whether a private or public key is of a kind that signs here."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return isinstance(key.curve, ec.SECP256R1)
    return isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey)


def sign(key: SigningKey, purpose: bytes, data: bytes) -> bytes:
    """A signature of this data for this purpose, which has no zero byte."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    message = _message(purpose, data)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(message, ec.ECDSA(hashes.SHA256()))
    return key.sign(message)


def is_signed(key: PublicKey, purpose: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of this key signed this data for this purpose."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    message = _message(purpose, data)
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        else:
            key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _message(purpose: bytes, data: bytes) -> bytes:
    assert b"\0" not in purpose
    return _PREFIX + purpose + b"\0" + data
