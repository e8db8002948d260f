"""An offer: what an application says about itself, and how that is an advertisement and back (TRD-05, DIS-12).

An offer is metadata and nothing else: the type of service, where its events are (the reference), and properties. As an
advertisement it has the properties under their names, so that constraints are about them and the index finds them, and
a few marks of the registry's own, which begin with `$` and which no property can be called: the type, the reference,
and a truth value for the type and each of its bases, so that asking for the base finds it through the index too. A
complex value stands as JSON under its name with `{}` behind it, where no constraint can name it (TRD-02).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from veena.client.questions import Found as FoundAdvert
from veena.errors import InvalidEvent
from veena.services.structured import Scalar
from veena.services.trading.service_types import NETWORK, SIMPLE, PropertyType

#: All of an offer: who is there and where, not what it computes (DIS-12).
MAX_OFFER_BYTES = 2048
#: What an advertisement has beside its properties and names: its scope, its stamp, its home.
ENVELOPE_BYTES = 64

SERVICE_TYPE: Final = "$service_type"
REFERENCE: Final = "$reference"
_COMPLEX_MARK: Final = "{}"
_encoder = msgspec.msgpack.Encoder(order="sorted")
_any = PropertyType("any", SIMPLE)


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer of a service."""

    service_type: str
    #: Where its events are: the domain's number and the application, `257/heat`.
    reference: str
    #: Those that were asked for; of a simple type.
    properties: Mapping[str, Scalar]
    client: str
    name: str
    #: Lists and tables among the properties.
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> int:
        """The number of the domain that it is in (TRD-03)."""
        return int(self.reference.partition("/")[0])

    @property
    def application(self) -> str:
        """The name that its events have as `$domain_name`."""
        return self.reference.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a question for offers."""

    offers: tuple[Offer, ...] = ()
    #: Traders and units that did not answer in time.
    missing: tuple[str, ...] = ()
    #: Whether other domains were asked, because nothing was found in this one.
    forwarded: bool = False
    #: More were found than may be told at once.
    truncated: bool = False
    #: The name of the trader that answered; empty when the mesh itself was asked.
    answered_by: str = ""

    @property
    def complete(self) -> bool:
        """Whether these are all that match, as far as was asked."""
        return not self.missing and not self.truncated


def make_offer(service_type: str, name: str, network: int, properties: Mapping[str, Any], client: str) -> Offer:
    """An offer of a client in the domain of this number."""
    simple = {key: value for key, value in properties.items() if _any.admits(value)}
    details = {key: value for key, value in properties.items() if key not in simple}
    return Offer(service_type, f"{network}/{name}", simple, client, name, details)


def advertised(offer: Offer, line: Sequence[str]) -> dict[str, Scalar]:
    """The properties of its advertisement; `line` are its type and the bases of that. InvalidEvent if too large."""
    found: dict[str, Scalar] = {SERVICE_TYPE: offer.service_type, REFERENCE: offer.reference}
    found.update((mark(each), True) for each in line)
    found.update(offer.properties)
    for key, value in offer.details.items():
        try:
            found[key + _COMPLEX_MARK] = json.dumps(value, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidEvent(f"property {key!r} of offer {offer.name!r}: {error}") from None
    try:
        size = len(_encoder.encode(found)) + len(offer.client.encode()) + len(offer.name.encode()) + ENVELOPE_BYTES
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidEvent(f"properties of offer {offer.name!r}: {error}") from None
    if size >= MAX_OFFER_BYTES:
        raise InvalidEvent(
            f"offer {offer.name!r} takes {size} bytes; below {MAX_OFFER_BYTES} are taken: say in it what is offered, "
            "and publish the rest"
        )
    return found


def mark(service_type: str) -> str:
    """What every offer of a type, or of one below it, has as true."""
    return f"${service_type}"


def constraint_for(service_type: str, constraint: str = "", network: int | None = None) -> str:
    """What advertisements are asked for: offers of a type that satisfy a constraint, in one domain or in all."""
    parts = [mark(service_type)]
    if network is not None:
        parts.append(f"{NETWORK} == {network}")
    if constraint.strip():
        parts.append(f"({constraint})")
    return " and ".join(parts)


def columns_for(properties: Sequence[str] | None) -> tuple[str, ...]:
    """What is asked for so that the offers have these properties; nothing, which is all, for None."""
    if properties is None:
        return ()
    both = [column for name in properties for column in (name, name + _COMPLEX_MARK)]
    return tuple(dict.fromkeys((SERVICE_TYPE, REFERENCE, *both)))


def offer_of(row: FoundAdvert, columns: Sequence[str]) -> Offer | None:
    """The offer that a row of an answer holds; None when somebody advertised something that is none."""
    values = dict(zip(columns, row.values, strict=True)) if row.values is not None else dict(row.properties or {})
    service_type, reference = values.pop(SERVICE_TYPE, None), values.pop(REFERENCE, None)
    if not isinstance(service_type, str) or not isinstance(reference, str):
        return None
    network, _, application = reference.partition("/")
    if not (network.isascii() and network.isdigit()) or len(network) > 20 or not application:
        return None
    simple: dict[str, Scalar] = {}
    details: dict[str, Any] = {}
    for key, value in values.items():
        if key.endswith(_COMPLEX_MARK) and isinstance(value, str):
            try:
                details[key.removesuffix(_COMPLEX_MARK)] = json.loads(value)
            except ValueError:
                return None
        elif value is not None and not key.startswith("$"):
            simple[key] = value
    return Offer(service_type, reference, simple, row.client, row.name, details)
