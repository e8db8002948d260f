"""Signs what a broker says of its units with the key of its certificate (`core.trust.signatures` says what that is)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.core.wire.signatures import MAX_CERTIFICATE
from veena.errors import ConfigError
from veena.runtime.pki.broker_certificate import own_certificate
from veena.runtime.pki.keys import load_signing_key, sign

if TYPE_CHECKING:
    from veena.runtime.pki.keys import SigningKey

#: What a signature of a statement is for.
PURPOSE: Final = b"statement"


@dataclass(frozen=True, slots=True)
class StatementSigner:
    """The key of one broker, and its certificate in DER."""

    key: SigningKey
    certificate: bytes

    def sign(self, statement: bytes) -> bytes:
        return sign(self.key, PURPOSE, statement)


def load_signer(certificate: Path, key: Path) -> StatementSigner:
    """The signer of these files, such as `[tls] certificate` and `key`; raise ConfigError where they cannot sign."""
    der = own_certificate(certificate)
    if len(der) > MAX_CERTIFICATE:
        reason = f"has {len(der)} bytes, and {MAX_CERTIFICATE} go to other units with what this broker signs"
        raise ConfigError(str(certificate), "certificate", reason, "use fewer or shorter alternative names")
    return StatementSigner(load_signing_key(key), der)
