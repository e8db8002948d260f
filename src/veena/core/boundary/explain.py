"""What crosses the boundary for questions about the past of an event (`explain.query`): Inputs and Effects.

`inputs_effects` counts them among its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from veena.address import Address, Unit
from veena.core.wire.event import EventFrame
from veena.errors import RefusalCode
from veena.event import EventId

# --- inputs ---


@dataclass(frozen=True, slots=True)
class Explain:
    """A client asks what became of an event for a client, itself or another one: `Explained` within the deadline."""

    session: int
    number: int
    event_id: EventId
    client_id: str
    deadline_ms: int = 2000


@dataclass(frozen=True, slots=True)
class Trace:
    """A client asks which way an event went: `Traced` within the deadline."""

    session: int
    number: int
    event_id: EventId
    deadline_ms: int = 2000


ExplainInput = Explain | Trace


@dataclass(frozen=True, slots=True)
class Denied:
    """A driver has not handed a client an event that this broker delivered to it: a rule of access forbids it.

    Rights are a matter of drivers; only with this does a broker know that its `Deliver` came to nothing, and by which
    rule. Of the `subscriptions` that may not have the event, a durable one passes over it, and a group that the client
    shares takes it back for another member. Needed for those, and where records are kept.
    """

    session: int
    frame: EventFrame
    rule: str
    subscriptions: tuple[int, ...] = ()
    #: The client got the event by another subscription.
    is_handed: bool = False


# --- effects ---


class Reason(Enum):
    """What became of an event for a client. Where several hold, `verdict` says which one is told."""

    #: It was handed to the client.
    DELIVERED = "delivered"
    #: It lies in the log for a durable subscription of the client.
    KEPT = "kept"
    #: The client had it, or a later one of its stream, when it came.
    HAD = "had"
    #: The client wanted nothing when it was accepted, or had left before it came.
    NOT_SUBSCRIBED = "not-subscribed"
    #: None of its constraints is satisfied: which term failed or was unknown.
    NOT_MATCHED = "not-matched"
    #: It was published outside the scope of what the client wants.
    OUT_OF_SCOPE = "out-of-scope"
    #: The client's device cannot use it, or it lacks the clearance.
    UNFIT = "unfit"
    #: It was not known yet, where the destinations were computed, that the client wants it.
    NOT_ACTIVE = "not-active"
    #: It is for one member of a group that the client shares a subscription with, and another one got it or will.
    SHARED = "shared"
    #: Its time to live was over before.
    EXPIRED = "expired"
    #: It was dropped, by which policy.
    DROPPED = "dropped"
    #: A rule of access forbade it.
    DENIED = "denied"
    #: It outlived its retention before there was a way.
    DEAD_LETTER = "dead-letter"
    #: It waits at a broker that has no way to the client's unit, since when.
    NO_ROUTE = "no-route"
    #: It is under way, or waits for its turn.
    WAITING = "waiting"
    #: Who would know does not remember it, was not asked to, or did not answer.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Hop:
    """A copy of the event that went from one broker to the next, for these units; 0 where a time is not known."""

    sender: Address
    receiver: Address
    units: tuple[Unit, ...]
    sent_ns: int
    entered_ns: int


@dataclass(frozen=True, slots=True)
class Handed:
    """The event was handed to a client."""

    broker: Address
    client_id: str
    session: int
    subscriptions: tuple[int, ...]
    at_ns: int


@dataclass(frozen=True, slots=True)
class Happened:
    """Something else became of a copy of the event (`notes.What`, by its name), for units or for a client."""

    broker: Address
    what: str
    at_ns: int
    client_id: str = ""
    units: tuple[Unit, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an event for a client, and how it is known."""

    reason: Reason
    #: The same in a sentence.
    text: str
    #: When that was, or since when it is so; 0 where there is no such time.
    at_ns: int = 0
    #: Where.
    broker: Address = ()
    #: The unit that has no way, or whose wants were not known; the level up to which they had to be (NOT_ACTIVE).
    unit: Unit = ()
    level: int = 0
    #: The subscriptions that it was delivered for, or the one that came nearest.
    subscriptions: tuple[int, ...] = ()
    #: From where it was accepted to the broker that it came to last.
    way: tuple[Hop, ...] = ()
    accepted_ns: int = 0
    origin: Address = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer to `Explain`. What the silent units know is not in it."""

    session: int
    number: int
    verdict: Verdict
    silent: tuple[Unit, ...] = ()
    #: How many brokers answered, by how much they remember ("off", "deliveries", "all").
    heard: tuple[tuple[str, int], ...] = ()
    #: The event without its body, where somebody remembers it: whoever tests rights needs it.
    event: EventFrame | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """The answer to `Trace`: every hop in the order of time, and who was handed the event."""

    session: int
    number: int
    origin: Address
    accepted_ns: int
    hops: tuple[Hop, ...]
    handed: tuple[Handed, ...]
    silent: tuple[Unit, ...] = ()
    #: What else became of copies, in the order of time; `heard` and `event` as in `Explained`.
    happened: tuple[Happened, ...] = ()
    heard: tuple[tuple[str, int], ...] = ()
    event: EventFrame | None = None


@dataclass(frozen=True, slots=True)
class ExplainRefused:
    """The question cannot be answered: `reason` names what is wrong and what to do."""

    session: int
    number: int
    why: RefusalCode
    reason: str


ExplainEffect = Explained | Traced | ExplainRefused
