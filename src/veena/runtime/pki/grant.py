"""Grants: the authority's word on where a broker may live. A grant binds a permanent name to an address, for a time.

A certificate proves a broker's name, and a Hello says an address. Whoever has a certificate could say any address, so
a neighbour believes an address only by its own configuration or by a grant. The broker shows its grant in its Hello,
and the places that brokers tell each other (`Contacts`) carry the grants of the brokers that they name.

On the wire a grant is an array of two byte strings: the statement, which is an array of its own, and a signature of
those bytes with the authority's key (`keys.sign`, purpose `grant`). In a file the same bytes stand between two lines,
as in PEM. The bytes that were signed travel as they are, so nothing depends on how another program writes an array.

The invariant: `verify_grant` returns a grant only where an authority that this broker believes has signed it, and only
while it is good.

Rejected: the address in the certificate. A broker that moves would need a new certificate and with it new handshakes;
and the registrar that gives addresses has no key that signs certificates.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import msgspec
from msgspec import Meta, Struct

from veena.address import Address, format_address
from veena.core.wire.control import MAX_GRANT, MAX_NETWORK_NAME, MAX_PERMANENT_ID, UnitPath
from veena.errors import ConfigError, RefusalCode, VeenaError
from veena.runtime.pki.broker_certificate import is_authority
from veena.runtime.pki.keys import MAX_SIGNATURE_BYTES, is_signed, is_signing_key, sign

if TYPE_CHECKING:
    from cryptography import x509

    from veena.runtime.pki.keys import PublicKey, SigningKey

#: What a signature of a grant is for.
PURPOSE: Final = b"grant"
#: The file has a grant, two lines around it, and perhaps a comment.
MAX_FILE_BYTES: Final = 16 << 10
#: Seconds since 1970, up to the year 9999.
Time = Annotated[int, Meta(ge=0, le=253_402_300_799)]
_BEGIN, _END = "-----BEGIN VEENA GRANT-----", "-----END VEENA GRANT-----"
_BLOCK: Final = re.compile(f"{_BEGIN}([A-Za-z0-9+/=\\s]+){_END}")
_REMEDY: Final = "name a file that `veena pki grant` has made"


class NotGranted(VeenaError):
    """Bytes that are no grant, or one that is not good here and now."""

    code: RefusalCode = RefusalCode.DENIED


class AddressGrant(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What the authority says."""

    network: Annotated[str, Meta(min_length=1, max_length=MAX_NETWORK_NAME)]
    #: The permanent name of the broker, as its certificate and its Hello have it.
    name: Annotated[str, Meta(min_length=1, max_length=MAX_PERMANENT_ID)]
    address: UnitPath
    #: It is good from the first second to before the last.
    not_before: Time
    not_after: Time

    def __str__(self) -> str:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.not_after))
        return (
            f"broker {self.name!r} of network {self.network!r} may live at {format_address(self.address)} until {until}"
        )


class _Signed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    statement: Annotated[bytes, Meta(max_length=MAX_GRANT)]
    signature: Annotated[bytes, Meta(max_length=MAX_SIGNATURE_BYTES)]


#: What the decoder raises for bytes that are none of these.
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_SIGNED: Final = msgspec.msgpack.Decoder(_Signed)
_GRANT: Final = msgspec.msgpack.Decoder(AddressGrant)


def sign_grant(key: SigningKey, grant: AddressGrant) -> bytes:
    """The grant as it goes over links; raise NotGranted where it is too long for that."""
    statement = msgspec.msgpack.encode(grant)
    _read_statement(statement)
    made = msgspec.msgpack.encode(_Signed(statement, sign(key, PURPOSE, statement)))
    if len(made) > MAX_GRANT:
        raise NotGranted(f"a grant of {len(made)} bytes, and {MAX_GRANT} fit into a Hello: choose shorter names")
    return made


def read_grant(data: bytes) -> AddressGrant:
    """What a grant says, whoever has signed it; raise NotGranted for other bytes."""
    return _read_statement(_read_signed(data).statement)


def verify_grant(data: bytes, authorities: tuple[x509.Certificate, ...], now: float) -> AddressGrant:
    """A grant of one of these authorities that is good at this time; raise NotGranted for any other."""
    signed = _read_signed(data)
    if not any(_has_signed(each, signed, now) for each in authorities):
        raise NotGranted("the grant was signed by nobody whom [tls] authority names")
    grant = _read_statement(signed.statement)
    if now < grant.not_before:
        raise NotGranted(f"the grant for {grant.name!r} is not good yet: compare the clocks")
    if now >= grant.not_after:
        raise NotGranted(f"the grant for {grant.name!r} has expired")
    return grant


def load_grant(path: Path) -> bytes:
    """The grant of a file as it goes over links; raise ConfigError where there is none."""
    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_FILE_BYTES} are read")
        found = _BLOCK.search(data.decode("ascii", "replace"))
        if found is None:
            raise ValueError(f"no {_BEGIN} is in it")
        grant = base64.b64decode("".join(found[1].split()), validate=True)
        read_grant(grant)
    except (OSError, ValueError, binascii.Error, NotGranted) as error:
        raise ConfigError("[links]", f"grant {path}", f"cannot be used ({error})", _REMEDY) from None
    return grant


def grant_text(grant: bytes) -> str:
    """The text of the file of a grant."""
    text = base64.b64encode(grant).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"# {read_grant(grant)}", _BEGIN, *lines, _END]) + "\n"


def remedy_for(name: str, address: Address) -> str:
    """How an operator lets this broker live there."""
    return (
        f"run `veena pki grant DIR {name} --address {format_address(address)}` where the authority's key is, and name"
        f" the file in its [links] grant; or list it in [[links.neighbours]] of the broker that refuses it"
    )


def _read_signed(data: bytes) -> _Signed:
    if len(data) > MAX_GRANT:
        raise NotGranted(f"a grant of {len(data)} bytes; at most {MAX_GRANT} are read")
    try:
        return _SIGNED.decode(data)
    except _UNREADABLE as error:
        raise NotGranted(f"no grant can be read ({error})") from None


def _read_statement(statement: bytes) -> AddressGrant:
    try:
        return _GRANT.decode(statement)
    except _UNREADABLE as error:
        raise NotGranted(f"no grant can be read ({error})") from None


def _has_signed(authority: x509.Certificate, signed: _Signed, now: float) -> bool:
    key = authority.public_key()
    if not is_authority(authority, now) or not is_signing_key(key):
        return False
    return is_signed(cast("PublicKey", key), PURPOSE, signed.statement, signed.signature)
