"""Where to connect: the question and its answer (IOP-06).

    AskLocate --> TellLocated, or Farewell when the broker is no locator or the asker is not let in

The question is the first frame of a connection of its own, so that who asks need not attach to find out where to
attach; the answer is the last. A locator puts the same question, about the broker alone (`own`), to the brokers that it
knows: how loaded they are is what they say of themselves.

The invariant: as in `client`, whatever was decoded obeys every bound here.

Rejected: an answer to every ClientHello by TellRedirect (a client could not tell a locator from a broker that sends it
away, and nobody would learn of loads); asking over HTTP (the monitoring page is not for other machines).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from veena.core.wire.client import MAX_PASSWORD, MAX_TOKEN, MAX_URLS, MAX_USER
from veena.core.wire.control import MAX_PERMANENT_ID, MAX_URL, U32, ClientId, Frame, UnitPath

#: Addresses of one broker: a few transports.
MAX_BROKER_URLS = 4
#: Load in thousandths: 1,000 is all that a broker serves well. A hundred times that is as bad as anything worse.
FULL = 1000
MAX_LOAD = 100 * FULL

PlaceUrl = Annotated[str, Meta(min_length=1, max_length=MAX_URL)]
#: A URL and the microseconds that a question and its answer took.
RoundTrip = tuple[PlaceUrl, U32]


class Located(Struct, frozen=True, array_like=True, gc=False):
    """One broker: where it is, and how much it has to do."""

    urls: Annotated[tuple[PlaceUrl, ...], Meta(min_length=1, max_length=MAX_BROKER_URLS)]
    name: Annotated[str, Meta(max_length=MAX_PERMANENT_ID)]
    address: UnitPath
    load: Annotated[int, Meta(ge=0, le=MAX_LOAD)]
    clients: U32
    #: How many more clients it can take before it is four fifths full.
    room: U32


class AskLocate(Frame, frozen=True):
    """Which broker should this client attach to? Who it is stands here as in a ClientHello."""

    client_id: ClientId
    user: Annotated[str, Meta(max_length=MAX_USER)] = ""
    password: Annotated[str, Meta(max_length=MAX_PASSWORD)] = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN)] = ""
    #: About the broker that is asked, and no other.
    own: bool = False
    #: Where the client was attached last: what is kept for it is there.
    last: Annotated[str, Meta(max_length=MAX_URL)] = ""
    round_trips: Annotated[tuple[RoundTrip, ...], Meta(max_length=MAX_URLS)] = ()


class TellLocated(Frame, frozen=True):
    """The brokers to try, the best first."""

    brokers: Annotated[tuple[Located, ...], Meta(min_length=1, max_length=MAX_URLS)]
