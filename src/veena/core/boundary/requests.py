"""What crosses the boundary for requests and for the past: Inputs and Effects, counted by `boundary` among its own."""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Unit
from veena.core.wire.event import EventFrame
from veena.errors import RefusalCode

# --- inputs ---


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


SessionInput = Request


# --- effects ---


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


SessionEffect = Unanswered | CaughtUp
