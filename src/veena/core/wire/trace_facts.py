"""What is noted of events and subscriptions (`journal`), as values: in memory, on disk and told to others alike.

The tags of the notes lie in stores. They are texts of their own: whoever renames a class leaves its tag as it is.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from veena.core.wire.control import U32, U63, U64, UnitPath

#: Facts about one event that one broker keeps and tells: far more than hops change, but not for ever.
MAX_FACTS_OF_EVENT = 256
#: Stays of one client that one broker tells, the latest, and the bytes of their constraints together.
MAX_STAYS_TOLD = 64
MAX_STAY_BYTES = 256 << 10
#: How a durable subscription ends that is kept elsewhere from then on.
MOVED = "moved"
#: How a subscription ends that costs too much.
SUSPENDED = "it was suspended, because evaluating it takes too much work"
#: Why an event was dropped that a broker had to keep until it was evaluated whether the client wants it.
UNSATISFIED = "evaluated outside of the loop: the event does not satisfy the subscription"
#: Units in one fact: every unit around a broker.
MAX_UNITS = 512
#: An explaining text.
MAX_TEXT = 1024

Address = Annotated[tuple[Annotated[int, Meta(ge=0, le=63)], ...], Meta(max_length=8)]
Units = Annotated[tuple[UnitPath, ...], Meta(max_length=MAX_UNITS)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
#: A session or a subscription: below 0 those of the broker itself and of durable subscriptions.
Session = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
#: Publisher, incarnation, timestamp, sequence.
Key = tuple[Annotated[bytes, Meta(max_length=1024)], U64, U64, U32]


class What(Enum):
    """What happened to an event at a broker."""

    #: Accepted from its publisher, for these units.
    ACCEPTED = "accepted"
    #: Put into this broker's log for these units, for another broker that is gone or absent.
    LOGGED = "logged"
    #: Duties taken on for these units, from a neighbour, or (without one) out of the own log.
    TAKEN = "taken"
    #: Handed to a link, for these units.
    SENT = "sent"
    #: Handed to a client's session.
    DELIVERED = "delivered"
    #: Put into the log for a client's durable subscription, named in the text.
    KEPT = "kept"
    #: It waits at this broker for a client that does not read, or until it is evaluated (the text says so); with units,
    #: for what others hold for this broker.
    WITHHELD = "withheld"
    #: A client had it, or a later one of its stream, before.
    HAD = "had"
    #: Its time to live was over, for a client or for units.
    EXPIRED = "expired"
    #: Dropped, for a client or for units: the text names the policy.
    DROPPED = "dropped"
    #: Stopped before it crossed into a unit whose wants were looked at again, or before it left the log for one.
    STOPPED = "stopped"
    #: A dead letter for these units.
    BURIED = "buried"
    #: Not given to a client: the text names the rule.
    DENIED = "denied"


class Fact(msgspec.Struct, frozen=True, array_like=True):
    """One thing that happened to an event at the broker that tells it."""

    at_ns: U63
    what: What
    units: Units = ()
    #: The neighbour that it came from or went to, and over which connection.
    peer: Address = ()
    connection: U64 = 0
    #: The client that this is about, its session and the subscriptions that were satisfied.
    client: Text = ""
    session: Session = 0
    subscriptions: Annotated[tuple[Session, ...], Meta(max_length=1 << 16)] = ()
    text: Text = ""
    #: The time at which its life is over, where it waits; 0 for never.
    until_ns: U63 = 0
    #: Where it lies in the log.
    offset: U63 = 0


class Stay(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a client while it was at one broker, or a reachable client without one (`number` 0)."""

    client: Text
    session: Session
    number: Session
    kind: Annotated[int, Meta(ge=0, le=255)]
    payload: Annotated[bytes, Meta(max_length=64 << 10)]
    scope: Annotated[int, Meta(ge=0, le=8)]
    begun_ns: U63
    #: 0 while it stands.
    ended_ns: U63 = 0
    #: How it ended.
    ending: Text = ""
    #: (level, since when it is acknowledged up to it), ascending.
    levels: Annotated[tuple[tuple[Annotated[int, Meta(ge=0, le=8)], U63], ...], Meta(max_length=8)] = ()
    #: What the client's device can do and what it is cleared for.
    attributes: dict[str, str] = {}
    #: Kept while the client is away.
    durable: bool = False
    #: When its broker died it was known to stand at this time: it ended between then and `ended_ns`.
    last_seen_ns: U63 = 0
    #: The group that shares it: one of its members gets each event (`durable.groups`).
    group: Text = ""

    @property
    def name(self) -> tuple[int, int, int]:
        """What a later note about the same stay has in common with this one."""
        return (self.begun_ns, self.session, self.number)


class EventNote(msgspec.Struct, frozen=True, array_like=True, tag="EventNote"):
    """A fact, and with the first one about an event its frame without the body."""

    key: Key
    first: Key
    fact: Fact
    frame: Annotated[bytes, Meta(max_length=16 << 20)] = b""


class StayNote(msgspec.Struct, frozen=True, array_like=True, tag="StayNote"):
    """A stay as it is from now on."""

    stay: Stay


class ClientNote(msgspec.Struct, frozen=True, array_like=True, tag="ClientNote"):
    """A client is here for its durable subscriptions, or is gone: for audits alone, nobody who asks is told."""

    at_ns: U63
    client: Text
    session: Session
    is_here: bool
    ending: Text = ""


Note = EventNote | StayNote | ClientNote
