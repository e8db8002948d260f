"""An advertisement: what may stand in one, and how it is read back (DSC-01).

Properties are text, truth values and numbers, as selectors see them, and a document is one that the XPath engine would
read: what is advertised can be found, in both languages, by the same rules that events are matched with. Everything is
checked twice, where a client hands it in and where a frame brings it: a controller must not fall over what another
broker let through.

A *withdrawal* is an advertisement of nothing, with the time at which its client took it back. It stands for as long as
an older one under the same id may turn up again, from the disk of a broker that was down: the later word counts.

The invariant: `read_properties` and `parse_document` succeed on every advertisement that passed `make_advert` or
`check_advert`.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from veena.address import Address, format_address
from veena.core.boundary.discovery import Advertise, Scalar
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.discovery import MAX_ADVERT_NAME, MAX_ADVERT_PROPERTIES, MAX_ADVERT_XML, Advertisement
from veena.core.wire.header import DECODE_ERRORS
from veena.errors import InvalidEvent, LocalProtocolError, RemoteProtocolError
from veena.matching.xpath.document import parse_document

MAX_PROPERTIES = 64
MAX_PROPERTY_NAME = 255
#: What msgpack can hold; selectors compare larger numbers, but nobody can send them.
MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 64) - 1
#: From a blink to a month: who is away longer advertises again.
MIN_LEASE_S, MAX_LEASE_S = 0.0, 30 * 86_400.0
#: An advertisement that ends sooner than this without its client is gone before a broker could be back: it is not
#: written to disk, and its withdrawal need not be remembered.
KEPT_LEASE_MS = 1000
#: How often a broker that keeps advertisements notes that it lives, and so how much longer than its lease one may stand
#: whose client was there when the broker was killed.
ALIVE_NS = 5 * SECOND_NS

#: The columns of every advertisement in SQL: what each row of an answer says of it.
BUILT_IN = ("client", "name", "home")

Properties = dict[str, Scalar]
#: (client id, name): what an advertisement is known by.
AdvertId = tuple[str, str]

_encoder = msgspec.msgpack.Encoder(order="sorted")
_decoder = msgspec.msgpack.Decoder(dict[str, bool | int | float | str])


def make_advert(given: Advertise, client: str, levels: int, now_ns: int) -> Advertisement:
    """The advertisement of a client; raise LocalProtocolError naming what cannot be taken."""
    name = given.name
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_ADVERT_NAME or not name.isprintable():
        raise LocalProtocolError(f"name {name!r:.80}: expected 1 to {MAX_ADVERT_NAME} printable characters")
    if not 1 <= given.scope <= levels:
        raise LocalProtocolError(f"scope {given.scope}: expected 1 (the cluster) to {levels} (the whole system)")
    if not MIN_LEASE_S <= given.lease_s <= MAX_LEASE_S:
        raise LocalProtocolError(f"lease {given.lease_s}: expected {MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds")
    if not given.properties and given.xml is None:
        raise LocalProtocolError(f"advertisement {name!r} is empty: give it properties, a document, or both")
    for key, value in given.properties.items():
        _check_property(key, value)
    if given.xml is not None and not given.xml:
        raise LocalProtocolError(f"advertisement {name!r}: its document is empty; leave xml out")
    try:
        properties = _encoder.encode(dict(given.properties))
        xml = b"" if given.xml is None else given.xml.encode() if isinstance(given.xml, str) else given.xml
    except UnicodeEncodeError:
        raise LocalProtocolError(f"advertisement {name!r}: a text holds half of a surrogate pair") from None
    is_text, lease_ms = isinstance(given.xml, str), int(given.lease_s * 1000)
    advert = Advertisement(client, name, given.scope, max(now_ns, 0), properties, xml, is_text, lease_ms)
    try:
        _check(advert)
    except (InvalidEvent, ValueError) as error:
        raise LocalProtocolError(f"advertisement {name!r}: {error}") from None
    return advert


def check_advert(advert: Advertisement, levels: int) -> None:
    """Raise RemoteProtocolError unless this is an advertisement."""
    try:
        if advert.scope > levels or not advert.name.isprintable():
            raise ValueError(f"scope {advert.scope} or its name is none")
        for key, value in read_properties(advert.properties).items():
            _check_property(key, value)
        _check(advert)
    except (*DECODE_ERRORS, InvalidEvent, LocalProtocolError, ValueError) as error:
        raise RemoteProtocolError(f"advertisement {advert.name!r:.80} of {advert.client!r:.80}: {error}") from None


def check_withdrawal(advert: Advertisement, levels: int) -> None:
    """Raise RemoteProtocolError unless this is a withdrawal."""
    if advert.scope > levels or not advert.name.isprintable() or not is_withdrawal(advert):
        raise RemoteProtocolError(f"{advert.name!r:.80} of {advert.client!r:.80} is no withdrawal")


def withdrawal(advert: Advertisement, now_ns: int) -> Advertisement:
    """What stands in the place of an advertisement that its client took back."""
    stamp = max(now_ns, advert.stamp)
    return replace(advert, stamp=stamp, properties=b"", xml=b"", is_text=False, is_orphan=False)


def is_withdrawal(advert: Advertisement) -> bool:
    return not advert.properties and not advert.xml


def end_of(advert: Advertisement, left_ns: int) -> int:
    """When an advertisement ends whose client, or whose home, is away since then."""
    return left_ns + advert.lease_ms * MILLISECOND_NS


def withdrawn_until(advert: Advertisement, now_ns: int) -> int:
    """Until when a withdrawal that is known now is needed: whatever it took back has ended by then, wherever it is
    kept. A clock that is wrong makes it no longer."""
    return end_of(advert, min(advert.stamp, now_ns)) + ALIVE_NS


def _check_property(name: str, value: Scalar) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_PROPERTY_NAME:
        raise LocalProtocolError(f"property {name!r:.80}: a name has 1 to {MAX_PROPERTY_NAME} characters")
    if not isinstance(value, str | bool | int | float):
        raise LocalProtocolError(f"property {name!r} is {value!r:.80}: expected text, a truth value or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise LocalProtocolError(f"property {name!r} is {value}: expected a finite number")
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise LocalProtocolError(f"property {name!r}: {value.bit_length()} bits are more than the 64 that can be sent")


def _check(advert: Advertisement) -> None:
    if len(read_properties(advert.properties)) > MAX_PROPERTIES:
        raise ValueError(f"it has at most {MAX_PROPERTIES} properties")
    if len(advert.properties) > MAX_ADVERT_PROPERTIES:
        raise ValueError(f"{len(advert.properties)} bytes of properties; at most {MAX_ADVERT_PROPERTIES} are taken")
    if len(advert.xml) > MAX_ADVERT_XML:
        raise ValueError(f"a document of {len(advert.xml)} bytes; at most {MAX_ADVERT_XML} are taken")
    if advert.xml:
        parse_document(document_of(advert))
    elif not advert.properties or advert.properties == _EMPTY:
        raise ValueError("it has neither properties nor a document")


_EMPTY = _encoder.encode({})


def read_properties(data: bytes) -> Properties:
    """The properties of an advertisement. Decoded anew each time: a microsecond, not a kilobyte."""
    properties: Properties = _decoder.decode(data)
    return properties


def columns_of(advert: Advertisement, home: Address) -> Properties:
    """What SQL sees: the built-in columns and the properties. A property that is called like a built-in column stands
    in its place: who stated it means that, and queries over it said so before there were built-in columns."""
    built_in = zip(BUILT_IN, (advert.client, advert.name, format_address(home)), strict=True)
    return dict(built_in) | read_properties(advert.properties)


def document_of(advert: Advertisement) -> str | bytes:
    return advert.xml.decode() if advert.is_text else advert.xml


def id_of(advert: Advertisement) -> AdvertId:
    return advert.client, advert.name
