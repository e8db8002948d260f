"""What is said to traders and by them: questions for offers, and answers (TRD-06, TRD-08).

A question is a request, a structured event of type `Messaging` and name `resolve` whose domain is the one that is
asked, by its name or its network number; what it asks for stands in the body as msgpack, and the constraint as a
property for who watches. Whoever is about to take a domain's name asks `claim-name`, and a trader of another network
that has it answers with the number of that network. Answers go straight to the asker. Whatever comes in is checked
against the bounds here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from veena.client import Client
from veena.client.arguments import Content
from veena.core.wire.header import explain
from veena.errors import AccessDenied, InvalidConstraint, InvalidEvent, Refused, Unanswered
from veena.event import Event
from veena.services.structured import DOMAIN, NAME, TYPE
from veena.services.trading.offers import MAX_OFFER_BYTES, Found, Offer
from veena.services.trading.service_types import NETWORK

MESSAGING: Final = "Messaging"
RESOLVE: Final = "resolve"
#: Asks traders of a name that are in other networks than the asker.
CLAIM: Final = "claim-name"
#: Offers in one answer unless told, and at most: a page for people, and what stays far below an event's limit.
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_REPLY_BYTES = 512 * 1024
#: From trader to trader so often: no two domains of a sensible federation are further apart.
DEFAULT_HOPS = 5
MAX_HOPS = 16
MAX_VISITED = 64
MAX_TEXT = 16 * 1024
MAX_MISSING = 64
#: Properties of one question: each is two columns, for a simple and a complex value, of the 64 that a query may have.
MAX_CHOSEN = 31

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_VISITED)]


class Question(Struct, frozen=True, array_like=True):
    """Offers of a type that satisfy a constraint."""

    #: Chosen by who asked first: a trader that sees it again has answered it.
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    service_type: Name
    constraint: Annotated[str, Meta(max_length=MAX_TEXT)]
    #: Only in the domain of this number.
    network: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    #: The properties that are wanted; all for None.
    properties: Annotated[tuple[Name, ...], Meta(max_length=MAX_CHOSEN)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    #: How often it may be passed on.
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)] = DEFAULT_HOPS
    #: Names and numbers of the domains whose traders had it.
    visited: Names = ()
    #: How long its asker waits.
    deadline_ms: Annotated[int, Meta(ge=1, le=60_000)] = 2000


class OfferRow(Struct, frozen=True, array_like=True):
    service_type: Name
    reference: Name
    client: Name
    name: Name
    properties: Annotated[dict[str, bool | int | float | str], Meta(max_length=64)]
    #: Lists and tables as JSON.
    details: Annotated[str, Meta(max_length=MAX_OFFER_BYTES)] = ""


class Reply(Struct, frozen=True, array_like=True):
    """What a trader found, or what is wrong with the question."""

    trader: Name
    rows: Annotated[tuple[OfferRow, ...], Meta(max_length=MAX_LIMIT)] = ()
    missing: Annotated[tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=MAX_MISSING)] = ()
    forwarded: bool = False
    truncated: bool = False
    error: Annotated[str, Meta(max_length=1024)] = ""
    #: The offset into the constraint where it went wrong; -1 for other errors.
    position: Annotated[int, Meta(ge=-1, le=MAX_TEXT)] = -1


_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(Question)
_replies = msgspec.msgpack.Decoder(Reply)


def content_of(to: str, event_name: str, properties: dict[str, Any], body: bytes) -> Content:
    """A message to the services of a domain, as `request` takes it."""
    headers = {DOMAIN: to, TYPE: MESSAGING, NAME: event_name}
    return {"headers": headers, "properties": properties, "body": body}


async def ask(client: Client, to: str, question: Question) -> Found:
    """Ask the trader of a domain; raise Unanswered when there is none, InvalidConstraint when it says so."""
    properties = {"constraint": question.constraint, "service_type": question.service_type}
    content = content_of(to, RESOLVE, properties, _encoder.encode(question))
    answer = await client.request(timeout=question.deadline_ms / 1000, **content)
    return read_reply(answer, question)


async def claim(client: Client, name: str, network: int, timeout: float) -> int | None:
    """The network of another domain whose trader has this name; None when none says so, or it may not be asked."""
    try:
        answer = await client.request(timeout=timeout, **content_of(name, CLAIM, {NETWORK: network}, b""))
    except (Unanswered, AccessDenied):
        return None
    other = answer.properties.get(NETWORK)
    return other if isinstance(other, int) and other != network else None


def read_question(event: Event) -> Question:
    """Raise InvalidEvent unless it is one."""
    try:
        return _questions.decode(event.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"a question of {event.id}: {explain(error, Question)}") from None


def read_reply(event: Event, question: Question) -> Found:
    """What a trader found; raise what it says is wrong."""
    try:
        reply = _replies.decode(event.body)
        offers = tuple(map(_offer, reply.rows))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise Refused(f"the answer of a trader cannot be read: {error}") from None
    if reply.position >= 0:
        raise InvalidConstraint(question.constraint, reply.position, reply.error)
    if reply.error:
        raise Refused(f"trader {reply.trader}: {reply.error}")
    return Found(offers, reply.missing, reply.forwarded, reply.truncated, reply.trader)


def _offer(row: OfferRow) -> Offer:
    details = json.loads(row.details) if row.details else {}
    if not isinstance(details, dict):
        raise ValueError(f"details of {row.name!r} are no table")
    offer = Offer(row.service_type, row.reference, row.properties, row.client, row.name, details)
    if offer.network < 0 or not offer.application:
        raise ValueError(f"reference {row.reference!r} names no channel")
    return offer


def encode_found(trader: str, found: Found) -> bytes:
    """An answer within the bounds of one event."""
    rows: list[OfferRow] = []
    size = 0
    for offer in found.offers[:MAX_LIMIT]:
        details = json.dumps(dict(offer.details), separators=(",", ":")) if offer.details else ""
        properties = dict(offer.properties)
        row = OfferRow(offer.service_type, offer.reference, offer.client, offer.name, properties, details)
        size += len(_encoder.encode(row))
        if size > MAX_REPLY_BYTES:
            break
        rows.append(row)
    truncated = found.truncated or len(rows) < len(found.offers)
    missing = tuple(each[:1024] for each in found.missing[:MAX_MISSING])
    return _encoder.encode(Reply(trader, tuple(rows), missing, found.forwarded, truncated))


def encode_error(trader: str, error: Exception) -> bytes:
    if isinstance(error, InvalidConstraint):
        return _encoder.encode(Reply(trader, error=error.reason[:1024], position=min(error.position, MAX_TEXT)))
    return _encoder.encode(Reply(trader, error=str(error)[:1024] or type(error).__name__))


def merged(parts: Sequence[Found], limit: int) -> tuple[tuple[Offer, ...], bool]:
    """The offers of several answers, each once, by client and name; and whether some were left out."""
    found = {(offer.client, offer.name): offer for part in parts for offer in part.offers}
    offers = tuple(found[key] for key in sorted(found))
    return offers[:limit], len(offers) > limit
