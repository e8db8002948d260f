"""The frames between a client and its broker: a conversation (design §6, last yard; IOP-08).

They have the header, the encoding and the bounds of every other frame (`control`, `codec`). Events travel in both
directions as ordinary event frames, and what is handed to many clients is the same bytes for all of them: which of a
client's subscriptions an event is for stands in a small frame before it (`Matched`), and only when it is not the same
as for the event before. What belongs to one event that a client sends (`AskRequest`, `AskWatch`) precedes it likewise.

Frames that a client sends are named `Ask...`, those of a broker `Tell...`; the rest go both ways. A frame without an
answer of its own is answered when something is wrong with it.

The places of many events (`Places`) are runs of sequence numbers: what a client has had of a publisher is mostly
without holes, and acknowledgements of a thousand events are then a few bytes.

The invariant: as in `control`, whatever was decoded obeys every bound here, so that a hostile client costs what its
bytes cost and no more.

Rejected: subscription numbers inside the event frame (each receiver would need bytes of its own); a number for every
frame (a stream neither loses nor reorders, so frames of a conversation have the number 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from veena.address import FANOUTS, MAX_LEVELS
from veena.core.wire.control import (
    MAX_IDS,
    MAX_NETWORK_NAME,
    MAX_PERMANENT_ID,
    MAX_RANGES,
    MAX_UNITS,
    MAX_URL,
    U32,
    U63,
    U64,
    ClientId,
    Frame,
    Goodbye,
    Text,
    UnitPath,
    Version,
    WireId,
)
from veena.core.wire.discovery import (
    MAX_NAMESPACES,
    MAX_QUERY,
    AdvertName,
    Chosen,
    Document,
    Namespace,
    SilentUnits,
    Values,
)
from veena.core.wire.event_id import Place, Stream
from veena.core.wire.header import MAX_FRAME
from veena.core.wire.interest import MAX_CONSTRAINT_BYTES
from veena.errors import RefusalCode

#: Streams (publisher, incarnation, lane) whose last place a client shows when it attaches.
MAX_STREAMS = 2048
#: Events that it shows one by one, all runs together: twice what a broker hands over unacknowledged.
MAX_SHOWN = 4096
MAX_RUNS = 1024
#: A user's name, a password or passphrase, a token that somebody signed.
MAX_USER = 255
MAX_PASSWORD = 1024
MAX_TOKEN = 8192
#: As many attributes as the core takes (`interest.eligibility`).
MAX_ATTRIBUTES = 32
MAX_ATTRIBUTE = 1024
MAX_SUBSCRIPTIONS = 1 << 16
#: Brokers that a client is sent to: the first that answers will do.
MAX_URLS = 16
#: Rows of an answer in one frame, and columns of a SELECT.
MAX_ROWS = 512
MAX_COLUMNS = 64
MAX_ENGINE_NAME = 64
MAX_DURABLE_NAME = 255
MAX_GROUP_NAME = 100
MAX_SOFTWARE = 128
#: A client that is silent for three of these is gone; so a broker forgets the dead within minutes.
MAX_CLIENT_HEARTBEAT_MS = 60_000
DEFAULT_CLIENT_HEARTBEAT_MS = 10_000

Lane = Annotated[int, Meta(ge=0, le=5)]
#: Subscriptions, requests, queries and watches are numbered by the client, who never uses a number again.
Number = U32
#: How far: 1 is the cluster, 0 the whole system however many levels it has.
Reach = Annotated[int, Meta(ge=0, le=MAX_LEVELS)]
#: Timestamp, first and last sequence number, both included.
Run = tuple[U64, U32, U32]
Runs = Annotated[tuple[Run, ...], Meta(max_length=MAX_RUNS)]
MaybeUnit = Annotated[tuple[Annotated[int, Meta(ge=0, le=63)], ...], Meta(max_length=MAX_LEVELS)]
Urls = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=MAX_URL)], ...], Meta(min_length=1, max_length=MAX_URLS)
]
Heartbeats = Annotated[int, Meta(ge=1, le=MAX_CLIENT_HEARTBEAT_MS)]
#: (publisher, incarnation, lane, timestamp, sequence): the last event of a stream.
Last = tuple[ClientId, U64, Lane, U64, U32]
Lasts = Annotated[tuple[Last, ...], Meta(max_length=MAX_STREAMS)]
Attribute = tuple[Annotated[str, Meta(max_length=MAX_ATTRIBUTE)], Annotated[str, Meta(max_length=MAX_ATTRIBUTE)]]


class Places(Struct, frozen=True, array_like=True, gc=False):
    """Events of one stream."""

    publisher: ClientId
    incarnation: U64
    lane: Lane
    runs: Runs

    def __post_init__(self) -> None:
        if sum(last - first + 1 for _, first, last in self.runs) > MAX_SHOWN:
            raise ValueError(f"runs of more than {MAX_SHOWN} events")
        if any(first > last for _, first, last in self.runs):
            raise ValueError("a run that ends before it begins")


AllPlaces = Annotated[tuple[Places, ...], Meta(max_length=MAX_STREAMS)]


class ClientHello(Frame, frozen=True):
    """The first frame of a client: who it is and what it had before."""

    version_low: Version
    version_high: Version
    client_id: ClientId
    user: Annotated[str, Meta(max_length=MAX_USER)] = ""
    password: Annotated[str, Meta(max_length=MAX_PASSWORD)] = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN)] = ""
    #: What subscriptions that go with their session had before the connection was lost.
    had: Lasts = ()
    #: Of that, the originals of events that came under a later id.
    skips: AllPlaces = ()
    reachable: bool = False
    attributes: Annotated[tuple[Attribute, ...], Meta(max_length=MAX_ATTRIBUTES)] = ()
    slow: Literal["drop", "disconnect"] = "drop"
    heartbeat_ms: Heartbeats = DEFAULT_CLIENT_HEARTBEAT_MS
    software: Annotated[str, Meta(max_length=MAX_SOFTWARE)] = ""

    def __post_init__(self) -> None:
        if self.version_low > self.version_high:
            raise ValueError(f"version_low {self.version_low} is above version_high {self.version_high}")
        _check_shown(self.skips)


class ClientWelcome(Frame, frozen=True):
    """The answer: which incarnation the client's events have, where it is, and what it may do."""

    version: Version
    incarnation: U64
    reply_to: ClientId
    network: Annotated[str, Meta(min_length=1, max_length=MAX_NETWORK_NAME)]
    levels: Annotated[int, Meta(ge=1, le=MAX_LEVELS)]
    fanout: Literal[32, 64]
    max_frame: Annotated[int, Meta(ge=1, le=MAX_FRAME)]
    address: UnitPath
    name: Annotated[str, Meta(max_length=MAX_PERMANENT_ID)] = ""
    #: Limits of this client: its subscriptions, events a second (0 for any), reliable events that are not accepted yet.
    max_subscriptions: U32 = MAX_SUBSCRIPTIONS
    events_per_second: U32 = 0
    max_unaccepted: U32 = 4096

    def __post_init__(self) -> None:
        if len(self.address) != self.levels or max(self.address) >= self.fanout:
            raise ValueError(f"address {self.address} does not fit {self.levels} levels of {self.fanout}")


class AskSubscribe(Frame, frozen=True):
    """A client wants events."""

    subscription: Number
    engine: Annotated[str, Meta(min_length=1, max_length=MAX_ENGINE_NAME)]
    #: The constraint as msgpack: an integer, a text, [topic, selector], or [XPath, map of namespaces].
    constraint: Annotated[bytes, Meta(max_length=MAX_CONSTRAINT_BYTES)]
    scope: Reach = 0
    durable: Annotated[str, Meta(max_length=MAX_DURABLE_NAME)] = ""
    ack: Literal["auto", "manual"] = "auto"
    had: Lasts = ()
    skips: AllPlaces = ()
    #: Where the durable subscription was kept last; empty when the client does not know.
    home: MaybeUnit = ()
    #: Also what was accepted since then, in nanoseconds since 1970; 0 for nothing of the past.
    since_ns: U63 = 0
    #: The group that shares it: each event is for one of its members, until that one acknowledges it.
    group: Annotated[str, Meta(max_length=MAX_GROUP_NAME)] = ""

    def __post_init__(self) -> None:
        _check_shown(self.skips)


class AskUnsubscribe(Frame, frozen=True):
    """It no longer wants them; a durable subscription stays and is read no more."""

    subscription: Number


class AskForget(Frame, frozen=True):
    """A durable subscription ends for good."""

    subscription: Number


class Acknowledged(Frame, frozen=True):
    """The client has these events of a durable subscription for good."""

    subscription: Number
    ids: Annotated[tuple[WireId, ...], Meta(max_length=MAX_IDS)]


class AskRequest(Frame, frozen=True):
    """The event frame behind this one is a request, which waits for answers."""

    number: Number
    deadline_ms: Annotated[int, Meta(ge=1, le=3_600_000)]
    answers: Annotated[int, Meta(ge=1, le=1 << 16)] = 1


class AskWatch(Frame, frozen=True):
    """Would anybody want an event like the one behind this frame? It is not published."""

    number: Number


class AskUnwatch(Frame, frozen=True):
    """It no longer asks."""

    number: Number


class AskAdvertise(Frame, frozen=True):
    """A client offers something."""

    name: AdvertName
    scope: Reach
    #: A msgpack map of names to booleans, integers, floats and text.
    properties: Values
    xml: Document = b""
    #: Whether the document came as text.
    is_text: bool = False
    lease_ms: U32 = 60_000


class AskWithdraw(Frame, frozen=True):
    """It offers it no longer. `Advertised` or `AdvertRefused` is the answer, as for AskAdvertise."""

    name: AdvertName


class AskQuery(Frame, frozen=True):
    """A client asks for advertisements."""

    number: Number
    language: Literal["sql", "xpath", "constraint"]
    text: Annotated[str, Meta(max_length=MAX_QUERY)]
    realm: Reach
    full: bool = True
    namespaces: Annotated[tuple[Namespace, ...], Meta(max_length=MAX_NAMESPACES)] = ()
    deadline_ms: Annotated[int, Meta(ge=1, le=60_000)] = 2000
    #: With a constraint: the properties that are wanted, all if none is named, and how many rows; 0 for no limit.
    columns: Chosen = ()
    limit: U32 = 0


class TellRefused(Frame, frozen=True):
    """What the client asked for under this number, such as a subscription or a request, was not done, or is over."""

    number: Number
    why: RefusalCode
    reason: Text


class TellActive(Frame, frozen=True):
    """A subscription is acknowledged by all brokers that matter, up to the client's unit of this level."""

    subscription: Number
    level: Annotated[int, Meta(ge=0, le=MAX_LEVELS)]


class TellAccepted(Frame, frozen=True):
    """These reliable events of the client are on disk: runs of its ids, one frame a read."""

    runs: Annotated[tuple[Run, ...], Meta(max_length=MAX_RANGES)]


class TellDenied(Frame, frozen=True):
    """An event of the client was not accepted."""

    timestamp: U64
    sequence: U32
    why: RefusalCode
    reason: Text


class Matched(Frame, frozen=True):
    """The events behind this frame are for these subscriptions, until another such frame; none: for the client."""

    subscriptions: Annotated[tuple[Number, ...], Meta(max_length=MAX_SUBSCRIPTIONS)]


class TellDropped(Frame, frozen=True):
    """So many events were dropped because the client did not read; what waited comes behind this frame.

    `missed` says how many of each subscription: its number, 0 for what is addressed to the client, and its count.
    """

    count: U63
    missed: Annotated[tuple[tuple[Number, U63], ...], Meta(max_length=MAX_SUBSCRIPTIONS + 1)] = ()


class TellState(Frame, frozen=True):
    """Whether a subscription is suspended: `why` and `reason` say the cause and what to do; "bye" says that it is not.

    Of the events for it `missed` were not kept, in all.
    """

    subscription: Number
    missed: U63 = 0
    why: RefusalCode = RefusalCode.BYE
    reason: Text = ""


class TellCaughtUp(Frame, frozen=True):
    """A subscription with a past has all of it, except what silent units hold, and what was before `gone_ns`."""

    subscription: Number
    silent: Annotated[tuple[UnitPath, ...], Meta(max_length=MAX_UNITS)] = ()
    gone_ns: U63 = 0


class Pause(Frame, frozen=True):
    """Send me no more events for now: I am filling up (a broker to a publisher), or have too much to do (a client)."""

    reason: Text = ""


class Resume(Frame, frozen=True):
    """Go on."""


class TellUnanswered(Frame, frozen=True):
    """Nothing more comes of a request; so many answers came before."""

    number: Number
    answers: U32
    why: RefusalCode
    reason: Text


class TellAdvertised(Frame, frozen=True):
    """It stands, or stands no more."""

    name: AdvertName


class TellAdvertRefused(Frame, frozen=True):
    """It was not taken, or there was none."""

    name: AdvertName
    why: RefusalCode
    reason: Text


class FoundRow(Struct, frozen=True, array_like=True, gc=False):
    """One advertisement of an answer."""

    client: ClientId
    name: AdvertName
    home: UnitPath
    #: The columns as a msgpack array; empty when ids alone, or everything, was asked for.
    values: Values = b""
    #: A msgpack map; empty when it was not asked for.
    properties: Values = b""
    xml: Document = b""
    is_text: bool = False


class TellAnswer(Frame, frozen=True):
    """A part of an answer to a query; the frame without `more` is the last one and has the counts."""

    number: Number
    columns: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=MAX_COLUMNS)]
    rows: Annotated[tuple[FoundRow, ...], Meta(max_length=MAX_ROWS)]
    more: bool = False
    matched: U32 = 0
    silent: SilentUnits = ()
    truncated: bool = False
    #: Advertisements on whose documents the XPath costs more than is spent on one: they may match or not.
    undecided: U32 = 0


class TellWanted(Frame, frozen=True):
    """Whether anybody may want such an event, when asked and whenever it changes."""

    number: Number
    wanted: bool


class TellRedirect(Frame, frozen=True):
    """Go to one of these brokers instead, the first that answers; before or after the welcome."""

    urls: Urls
    reason: Text = ""


class Farewell(Frame, frozen=True):
    """The last frame of a conversation, from either side: why it ends."""

    why: RefusalCode
    reason: Text = ""


assert FANOUTS == (32, 64)


def code_of(last: Farewell | Goodbye) -> RefusalCode | None:
    """Why the peer ended the conversation. A Goodbye, with which a door ends a link, carries no code."""
    return last.why if isinstance(last, Farewell) else None


def _check_shown(places: tuple[Places, ...]) -> None:
    if sum(last - first + 1 for each in places for _, first, last in each.runs) > MAX_SHOWN:
        raise ValueError(f"more than {MAX_SHOWN} events are shown one by one")


def runs_of(places: Iterable[Place]) -> list[Run]:
    """Ascending (timestamp, sequence) pairs as runs."""
    found: list[Run] = []
    first = last = stamp = -2
    for timestamp, sequence in places:
        if timestamp == stamp and sequence == last + 1:
            last = sequence
            continue
        if stamp >= 0:
            found.append((stamp, first, last))
        stamp, first, last = timestamp, sequence, sequence
    if stamp >= 0:
        found.append((stamp, first, last))
    return found


def show(events: Iterable[tuple[Stream, Place]]) -> tuple[Places, ...]:
    """Events one by one, as a frame holds them."""
    streams: dict[Stream, list[Place]] = {}
    for stream, place in events:
        streams.setdefault(stream, []).append(place)
    return tuple(
        Places(*stream, tuple(runs[at : at + MAX_RUNS]))
        for stream, places in streams.items()
        for runs in (runs_of(sorted(places)),)
        for at in range(0, len(runs), MAX_RUNS)
    )


def had_of(lasts: Lasts) -> dict[tuple[str, int, int], tuple[int, int]]:
    """The last events that a client had, by stream, as the core takes them."""
    return {(publisher, incarnation, lane): (stamp, number) for publisher, incarnation, lane, stamp, number in lasts}


def shown(places: Iterable[Places]) -> Iterator[tuple[Stream, Place]]:
    """What `show` was given."""
    for each in places:
        stream = (each.publisher, each.incarnation, each.lane)
        for timestamp, first, last in each.runs:
            for sequence in range(first, last + 1):
                yield stream, (timestamp, sequence)
