"""The messages that brokers write to each other (`mailbox`): one msgpack array each, and its first element is the tag.

The invariant: a tag is what stands here as text, never the name of the class. A class may be renamed; its tag goes over
links and lies in logs, so it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from veena.address import MAX_LEVELS
from veena.core.wire.control import MAX_UNITS, U32, U63, U64, ClientId, UnitPath
from veena.core.wire.event_id import Place, Stream
from veena.core.wire.header import DECODE_ERRORS
from veena.core.wire.trace_facts import MAX_FACTS_OF_EVENT, MAX_STAYS_TOLD, Fact, Key, Stay
from veena.core.wire.trace_facts import Address as UnitOrNone
from veena.event import MAX_CLIENT_ID_LENGTH

#: Names of durable subscriptions and groups.
MAX_NAME = 255
#: Streams in one message.
MAX_STREAMS = 100_000
#: Subscriptions that one event is held for, and events of one subscription, in one message.
MAX_HELD_FOR = 1024
MAX_SETTLED = 4096
#: Bytes of the list in one message: with an event beside it, and alone, no more than links take (`wire.header`).
MAX_LIST_BYTES = 48 << 10
MAX_LONE_BYTES = 1 << 20
#: What a place of a stream, or the key of an event, takes beside the publisher's id.
PLACE_BYTES = 40
#: Versions of durable subscriptions are incarnations, of 64 bits; who adds to one stops here.
MAX_VERSION = (1 << 64) - 1
#: Any two attachments of a client differ by so much in their versions: a standby takes a place within it (`standby`).
STAND_IN_VERSIONS = 1 << 12
#: Ids of one event in a question.
MAX_KEYS = 8

Item = TypeVar("Item")
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
#: publisher, incarnation, lane, timestamp, sequence.
Had = tuple[str, U64, Annotated[int, Meta(ge=0, le=5)], U64, U32]
Hads = Annotated[tuple[Had, ...], Meta(max_length=MAX_STREAMS)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What a broker writes to another one. Each kind of message gives its tag."""


class Move(Message, frozen=True, tag="Move"):
    """A client has attached here, and what is kept for it under this name is to come. The latest version wins.

    A home with a later version refuses by a Move of its own.
    """

    client: ClientId
    name: Name
    version: U64
    #: How long ago the last of those clients came that read the subscription at the sender now; None where nobody does.
    age_ns: U63 | None


class Backlog(Message, frozen=True, tag="Backlog"):
    """An event that was kept for a client which is with the receiver now: a whole event frame."""

    client: ClientId
    name: Name
    frame: bytes
    redelivered: bool = False
    #: It came after the sender had said `End`: it may have come to the receiver by itself.
    straggler: bool = False


class End(Message, frozen=True, tag="End"):
    """The sender has forwarded what it kept; up to these places it had everything."""

    client: ClientId
    name: Name
    version: U64
    had: Hads


class Deleted(Message, frozen=True, tag="Deleted"):
    """A client has ended what is kept for it under this name, as it was up to this version."""

    client: ClientId
    name: Name
    version: U64


class Stand(Message, frozen=True, tag="Stand"):
    """The receiver stands by for a durable subscription whose home the sender is: engine, constraint as msgpack."""

    client: ClientId
    name: Name
    engine: Annotated[str, Meta(max_length=32)]
    constraint: Annotated[bytes, Meta(max_length=64 << 10)]
    scope: Annotated[int, Meta(ge=1, le=8)]
    version: U64
    #: Everything that is held for it comes again, up to the next `Standby`.
    afresh: bool = False


class StandDown(Message, frozen=True, tag="StandDown"):
    """The sender is not the home of this one any more: its client has ended it, or it is all elsewhere."""

    client: ClientId
    name: Name


class Renew(Message, frozen=True, tag="Renew"):
    """The sender stands by for the receiver and was started again: it does not know what was acknowledged."""


class Standby(Message, frozen=True, tag="Standby"):
    """Who stands by for the sender, and has been sent everything; others do no more."""

    address: UnitPath


class Hold(Message, frozen=True, tag="Hold"):
    """An event that the sender keeps for subscriptions (client, name) which the receiver stands by for."""

    frame: bytes
    of: Annotated[tuple[tuple[ClientId, Name], ...], Meta(max_length=MAX_HELD_FOR)]


class Settled(Message, frozen=True, tag="Settled"):
    """Events that the sender keeps no more for a subscription: publisher, incarnation, timestamp, sequence."""

    client: ClientId
    name: Name
    keys: Annotated[tuple[tuple[bytes, U64, U64, U32], ...], Meta(max_length=MAX_SETTLED)]


class Gather(Message, frozen=True, tag="Gather"):
    """The sender takes the place of this home, which is out of reach: it asks for what is kept for that one."""

    home: UnitPath


class Orphan(Message, frozen=True, tag="Orphan"):
    """An event that the sender keeps for a home that is out of reach: a whole event frame."""

    home: UnitPath
    frame: bytes


class Since(Message, frozen=True, tag="Since"):
    """Send what was accepted since then and satisfies this: engine, constraint as msgpack, scope."""

    number: U63
    since_ns: U63
    engine: Annotated[str, Meta(max_length=32)]
    constraint: Annotated[bytes, Meta(max_length=64 << 10)]
    scope: Annotated[int, Meta(ge=1, le=8)]


class Past(Message, frozen=True, tag="Past"):
    """An event from the sender's log that was asked for with `Since`."""

    number: U63
    frame: bytes


class PastEnd(Message, frozen=True, tag="PastEnd"):
    """That was all; `gone_ns` is the time from which the sender's log begins, if that is later than what was asked."""

    number: U63
    gone_ns: U63 = 0


class AskMissed(Message, frozen=True, tag="AskMissed"):
    """Send what was accepted since so long ago and is for the sender: somebody had told lies about what it wants."""

    age_ms: U63


class Missed(Message, frozen=True, tag="Missed"):
    """An event from the sender's log that was asked for with `AskMissed`, accepted so long ago."""

    age_ms: U63
    frame: bytes


class Mistold(Message, frozen=True, tag="Mistold"):
    """To every broker of the sender's unit of this level: lies were told about the unit since so long ago."""

    level: Annotated[int, Meta(ge=1, le=MAX_LEVELS)]
    age_ms: U63


class Join(Message, frozen=True, tag="Join"):
    """A member of a group is with the sender, who takes so many events for it at once; 0 when it has left."""

    group: ClientId
    member: U64
    room: U32
    #: How often the member's rights have changed: what it was denied before it may have now.
    rights: U32 = 0


class Give(Message, frozen=True, tag="Give"):
    """An event for one member of a group; without one, that the member has joined."""

    group: ClientId
    member: U64
    frame: bytes


class Took(Message, frozen=True, tag="Took"):
    """Members of the sender's have these: publisher, incarnation, timestamp, sequence."""

    group: ClientId
    member: U64
    keys: Annotated[tuple[tuple[bytes, U64, U64, U32], ...], Meta(max_length=4096)]


class Return(Message, frozen=True, tag="Return"):
    """A member of a group may not have this event, a whole event frame: it is for another member."""

    group: ClientId
    member: U64
    frame: bytes


class Ask(Message, frozen=True, tag="Ask"):
    """Asks what the receiver knows of an event, by any of these ids, and of a client; "" for no client.

    `explain.query` sends it and gathers the answers.
    """

    number: U63
    keys: Annotated[tuple[Key, ...], Meta(min_length=1, max_length=MAX_KEYS)]
    client: Annotated[str, Meta(max_length=MAX_CLIENT_ID_LENGTH)]


class OpenDuty(msgspec.Struct, frozen=True, array_like=True):
    """A unit that an event still has to be sent to, what it waits for, at whom, and since when."""

    unit: UnitPath
    waits_for: Literal["route", "refused", "neighbour", "window", "here"]
    peer: UnitOrNone
    since_ns: U63


class Told(Message, frozen=True, tag="Told"):
    """The answer to `Ask`."""

    number: U63
    records: Literal["off", "deliveries", "all"]
    #: From when on the sender remembers, and when something may be missing.
    since_ns: U63
    gaps: Annotated[tuple[tuple[U63, U63], ...], Meta(max_length=64)]
    #: The other units that it knows of: who else there is to be asked.
    known: Annotated[tuple[UnitPath, ...], Meta(max_length=MAX_UNITS)]
    stays: Annotated[tuple[Stay, ...], Meta(max_length=MAX_STAYS_TOLD)] = ()
    #: The event without its body, as a frame, where the sender remembers it and it is not too large.
    frame: bytes = b""
    first: Key | None = None
    facts: Annotated[tuple[Fact, ...], Meta(max_length=MAX_FACTS_OF_EVENT)] = ()
    open: Annotated[tuple[OpenDuty, ...], Meta(max_length=MAX_UNITS)] = ()
    #: Connections in the facts that are open no more.
    closed: Annotated[tuple[U64, ...], Meta(max_length=MAX_FACTS_OF_EVENT)] = ()


Standing = Stand | StandDown | Renew | Standby | Hold | Settled | Gather | Orphan
Recovery = AskMissed | Missed | Mistold
MESSAGES = (
    Ask
    | Told
    | Move
    | Backlog
    | End
    | Deleted
    | Since
    | Past
    | PastEnd
    | Join
    | Give
    | Took
    | Return
    | Standing
    | Recovery
)

#: The tag of each kind of message.
TAGS: dict[type[Message], str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(MESSAGES)}

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[MESSAGES] = msgspec.msgpack.Decoder(MESSAGES)


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Read a message; raise ValueError when it is none."""
    try:
        return _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise ValueError(f"message of {len(data)} bytes: {error}") from None


def hads(places: dict[Stream, Place]) -> Hads:
    """Places as they are written; of too many the latest."""
    found = [(publisher, incarnation, lane, *place) for (publisher, incarnation, lane), place in places.items()]
    latest = next(
        parts_of(reversed(found), lambda each: len(each[0].encode()) + PLACE_BYTES, MAX_STREAMS, MAX_LONE_BYTES), []
    )
    return tuple(reversed(latest))


def parts_of(
    items: Iterable[Item], size: Callable[[Item], int], most: int, most_bytes: int = MAX_LIST_BYTES
) -> Iterator[list[Item]]:
    """Parts of a list that is too long for one message: at most so many items, and so many bytes, in each."""
    part: list[Item] = []
    total = 0
    for each in items:
        if part and (len(part) == most or total + size(each) > most_bytes):
            yield part
            part, total = [], 0
        part.append(each)
        total += size(each)
    if part:
        yield part


def places(told: Hads) -> dict[Stream, Place]:
    return {(publisher, incarnation, lane): (stamp, number) for publisher, incarnation, lane, stamp, number in told}
