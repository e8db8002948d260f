"""What a witness of a simulated run keeps as evidence (`witness`): copies, arrivals, endings, who was where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import Subscribe

#: Why an event does not wait for a client any more that does not read.
Why = Literal["expired", "oldest", "disconnected", "left"]


@dataclass(slots=True, eq=False)
class Crossing:
    """A copy that was written to a connection for these units; None until the other end has it, in its turn."""

    at_ns: int
    sender: Address
    receiver: Address
    handle: int
    units: tuple[Unit, ...]
    came_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Coming:
    """An event came to a broker, over a link, from a publisher or out of its log: for these units, as it took it."""

    at_ns: int
    broker: Address
    lane: int
    #: How it came; None from a publisher or a log.
    crossing: Crossing | None
    units: tuple[Unit, ...]
    #: Those of them that there was no way to, and those that the copy had been to.
    wayless: tuple[Unit, ...] = ()
    #: Whether the broker held it for what others had kept for it while it was absent.
    is_held: bool = False
    #: When its life is over; None for never.
    deadline_ns: int | None = None
    #: Out of a log, for the units that it had been found to be for before.
    is_adopted: bool = False
    #: Units of the broker's own that it did not take it for: it had met nobody there, and its neighbour holds it.
    refused: tuple[Unit, ...] = ()


class Logged(NamedTuple):
    """An event was written to a broker's log: for these units, or for durable subscriptions."""

    at_ns: int
    broker: Address
    offset: int
    lane: int
    units: tuple[Unit, ...]
    #: The clients and groups whose durable subscriptions these are.
    keepers: tuple[str, ...]
    deadline_ns: int | None


class Ending(NamedTuple):
    """A broker will not send an event on to these units."""

    at_ns: int
    broker: Address
    units: tuple[Unit, ...]


@dataclass(slots=True, eq=False)
class Membership:
    """A client while it shares the subscription of a group."""

    client: str
    broker: Address
    given: Subscribe
    begun_ns: int
    ended_ns: int | None = None


class Release(NamedTuple):
    """An event does not wait for a client any more."""

    at_ns: int
    why: Why
