"""What a client asks about the past of an event and about the network, and the answers (`explain.query`, design §9).

    AskTrace, AskExplain --> the broker asks all others --> TellTraced (in parts), TellExplained
    AskReport            --> what the broker says of itself --> TellReport (in parts)
    AskMove              --> the broker sends clients elsewhere --> TellMoved

A question that is refused is answered by `TellRefused`. Names of units (`labels`) come from the broker's network file,
if it has one: a client has no other way to know them.

The invariant: as in `client`, whatever was decoded obeys every bound here.

Rejected: a frame a fact (a trace of a thousand hops would be a thousand frames and no end to see); statistics as a
structure of its own (they grow with every version: JSON says what it has, and older clients show what they know).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from veena.address import MAX_LABEL_LENGTH, MAX_LEVELS
from veena.core.wire.client import MaybeUnit, Number, Urls
from veena.core.wire.control import U32, U63, ClientId, Frame, Text, UnitPath, WireId
from veena.core.wire.discovery import SilentUnits
from veena.core.wire.trace_facts import MAX_TEXT, Session, Units

#: Facts of one kind in one frame; a long trace comes in parts.
MAX_FACTS = 1024
#: A way within one network: longer ones are circles.
MAX_WAY = 256
#: Bytes of a report in one frame: below any control frame's limit.
MAX_REPORT = 256 << 10
MAX_QUESTION_MS = 60_000
#: Clients that are sent elsewhere by one frame; more are asked for one frame after the other.
MAX_SENT_AWAY = 256

Deadline = Annotated[int, Meta(ge=1, le=MAX_QUESTION_MS)]
LongText = Annotated[str, Meta(max_length=MAX_TEXT)]
#: A reason (`Reason`) or a fact (`What`) by its name: a client shows those that it does not know as they are.
Word = Annotated[str, Meta(min_length=1, max_length=32)]
Subscriptions = Annotated[tuple[Session, ...], Meta(max_length=1 << 12)]
#: A client, or "" for nobody.
MaybeClient = Annotated[str, Meta(max_length=255)]
SomeClients = Annotated[tuple[ClientId, ...], Meta(max_length=MAX_SENT_AWAY)]
Label = tuple[UnitPath, Annotated[str, Meta(max_length=MAX_LEVELS * (MAX_LABEL_LENGTH + 1))]]
Labels = Annotated[tuple[Label, ...], Meta(max_length=MAX_FACTS)]
#: How many brokers answered, by how much they remember.
Heard = Annotated[tuple[tuple[Literal["off", "deliveries", "all"], U32], ...], Meta(max_length=3)]


class HopRow(Struct, frozen=True, array_like=True, gc=False):
    """A copy that went from one broker to the next; 0 where a time is not known."""

    sender: UnitPath
    receiver: UnitPath
    units: Units
    sent_ns: U63
    entered_ns: U63


class HandedRow(Struct, frozen=True, array_like=True, gc=False):
    """The event was handed to a client."""

    broker: UnitPath
    client_id: MaybeClient
    session: Session
    subscriptions: Subscriptions
    at_ns: U63


class HappenedRow(Struct, frozen=True, array_like=True, gc=False):
    """Something else became of a copy, for units or for a client."""

    broker: UnitPath
    what: Word
    at_ns: U63
    client_id: MaybeClient = ""
    units: Units = ()
    text: LongText = ""


Way = Annotated[tuple[HopRow, ...], Meta(max_length=MAX_WAY)]


class AskTrace(Frame, frozen=True):
    """Which way did an event go?"""

    number: Number
    event_id: WireId
    deadline_ms: Deadline = 2000


class AskExplain(Frame, frozen=True):
    """What became of an event for a client, oneself or another one?"""

    number: Number
    event_id: WireId
    client_id: ClientId
    deadline_ms: Deadline = 2000


class AskReport(Frame, frozen=True):
    """What does the broker say of itself: its statistics, its map of the network, or who is attached to it?"""

    number: Number
    what: Literal["status", "map", "clients"]


class AskMove(Frame, frozen=True):
    """Let these clients of the broker go to another one (FUT-07)."""

    number: Number
    clients: SomeClients
    urls: Urls
    reason: Text = ""


class TellTraced(Frame, frozen=True):
    """A part of the way of an event; the frame without `more` is the last one."""

    number: Number
    #: Where it was accepted; empty where nobody remembers it.
    origin: MaybeUnit
    accepted_ns: U63
    hops: Annotated[tuple[HopRow, ...], Meta(max_length=MAX_FACTS)] = ()
    handed: Annotated[tuple[HandedRow, ...], Meta(max_length=MAX_FACTS)] = ()
    happened: Annotated[tuple[HappenedRow, ...], Meta(max_length=MAX_FACTS)] = ()
    labels: Labels = ()
    silent: SilentUnits = ()
    heard: Heard = ()
    more: bool = False


class TellExplained(Frame, frozen=True):
    """What became of an event for a client."""

    number: Number
    reason: Word
    text: LongText
    at_ns: U63 = 0
    broker: MaybeUnit = ()
    unit: MaybeUnit = ()
    level: Annotated[int, Meta(ge=0, le=MAX_LEVELS)] = 0
    subscriptions: Subscriptions = ()
    way: Way = ()
    accepted_ns: U63 = 0
    origin: MaybeUnit = ()
    silent: SilentUnits = ()
    heard: Heard = ()
    labels: Labels = ()


class TellMoved(Frame, frozen=True):
    """Who was told to go, and who was asked for and is not here."""

    number: Number
    sent: SomeClients = ()
    absent: SomeClients = ()


class TellReport(Frame, frozen=True):
    """A part of a report, in JSON; the frame without `more` is the last one."""

    number: Number
    data: Annotated[bytes, Meta(max_length=MAX_REPORT)]
    more: bool = False
