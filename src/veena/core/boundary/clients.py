"""Inputs and Effects for sessions of clients: slow readers, back-pressure to publishers, quench, requests, the past.

`inputs_effects` counts them among its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Unit
from veena.core.boundary.user_shares import UserShares
from veena.core.wire.event import EventFrame
from veena.errors import RefusalCode

# --- inputs ---


@dataclass(frozen=True, slots=True)
class SessionClogged:
    """A client does not read: what is on its way to it is above the driver's mark. Hand it nothing more for now."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionClear:
    """It reads again: what is on its way to it has fallen below the driver's mark."""

    session: int


@dataclass(frozen=True, slots=True)
class AskWanted:
    """A publisher asks whether an event like this one would be for anybody, now and until `Unwatch` (SYS-01).

    The frame is one that `EventCodec.frame` makes: engines see its fields; id and body do not matter.
    """

    session: int
    number: int
    frame: EventFrame


@dataclass(frozen=True, slots=True)
class Unwatch:
    """It no longer asks."""

    session: int
    number: int


@dataclass(frozen=True, slots=True)
class Request:
    """A client publishes an event and waits for answers to it (`requests`).

    The event names where answers go in its header `reply-to`, as `Welcome` gave it, and the number of the request in
    `correlation`; an answer repeats the number.
    """

    session: int
    number: int
    frame: EventFrame
    deadline_ms: int
    #: How many answers are waited for.
    answers: int = 1


@dataclass(frozen=True, slots=True)
class RightsChanged:
    """What a client may read is not what it was: its groups offer it again what it was denied."""

    session: int


ServiceInput = SessionClogged | SessionClear | AskWanted | Unwatch | Request | RightsChanged | UserShares


# --- effects ---


@dataclass(frozen=True, slots=True)
class Pause:
    """This broker is filling up: a publisher had better wait; soon it will be refused."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused publisher may go on."""

    session: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Tell a client that reads again how many events it missed, before those that waited are handed to it."""

    session: int
    count: int
    #: By subscription, 0 for what is addressed to the client itself; one event may be for many.
    missed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AskRoom:
    """More waits for a client: answer `SessionClear` when what was handed over has gone out and there is room."""

    session: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close a client's connection and answer `ClientDown`; it is handed nothing more."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The answer to `AskWanted`, at once and whenever it changes: whether anybody may want such an event."""

    session: int
    number: int
    wanted: bool


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request that has not got all its answers: nobody wants it, or the time is over. Nothing more comes of it."""

    session: int
    number: int
    answers: int
    why: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A subscription with a past (`since`) has all of it; units that did not answer in time are named."""

    session: int
    subscription: int
    silent: tuple[Unit, ...] = ()
    #: From when on something is left of the past, where that is later than what was asked for.
    gone_ns: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """Whether a subscription is suspended: `why` and `reason` say so. While a durable one is, nothing is kept for it;
    of the events for it so many were not kept, in all."""

    session: int
    subscription: int
    missed: int
    why: RefusalCode | None = None
    reason: str = ""


ServiceEffect = Pause | Resume | Dropped | AskRoom | CloseSession | Wanted | Unanswered | CaughtUp | SubscriptionState
