"""What crosses the boundary of the core: Inputs go in, Effects come out. Tests compare lists of these.

A link is named by a number that its driver chose and never uses again: a new connection to the same neighbour is a new
link, and frames of the old one can no longer be mistaken for its own. Disk is a peer: `Store(ticket)` out,
`Stored(ticket)` in; nothing that depends on it is said to anybody in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.frames import Frame
from veena.matching.engine import Constraint

#: A frame with its number on its connection; 0 for frames outside the sequence.
Numbered = tuple[int, Frame]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a broker must not forget: its permanent name, its place, and how often it was started."""

    name: str
    address: Address
    incarnation: int


# --- inputs ---


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A transport is there; `ordered` when it neither loses nor reorders frames."""

    link: int
    ordered: bool
    #: The peer's IP address as the transport sees it; empty when there is none.
    ip: str = ""


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The transport is gone."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """All frames of one read."""

    link: int
    frames: Sequence[Numbered]


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """How full the way out is: 0 idle, 1 full. What the driver measured last counts."""

    link: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Stored:
    """The disk has it, synced."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The disk did not take it."""

    ticket: int
    reason: str


@dataclass(frozen=True, slots=True)
class AskToSpeak:
    """This broker's unit of that level is to be added to another network: may this broker speak for it (NOP-14)?"""

    number: int
    unit_level: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The unit `old` was given the place `new` in the network it joined: tell every member (NOP-15)."""

    number: int
    old: Unit
    new: Unit
    network: str


@dataclass(frozen=True, slots=True)
class ClientUp:
    """A client has attached; `session` is a number that its driver never uses again."""

    session: int
    client_id: str


@dataclass(frozen=True, slots=True)
class ClientDown:
    """A client's connection is gone, and with it what it subscribed to."""

    session: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client wants events: the engine, a constraint in its language, and how far around it (1 is the cluster)."""

    session: int
    subscription: int
    engine: str
    constraint: Constraint
    scope: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client no longer wants them."""

    session: int
    subscription: int


ClientInput = ClientUp | ClientDown | Subscribe | Unsubscribe
Input = LinkUp | LinkDown | Arrived | LinkLoad | Stored | StoreFailed | AskToSpeak | Merged | ClientInput


# --- effects ---


@dataclass(frozen=True, slots=True)
class Send:
    """Everything for one link after one input, in order: one write."""

    link: int
    frames: tuple[Numbered, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Close this transport; the driver dials again if the link is one of its own."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Store:
    """Keep this, synced, and answer `Stored` with the ticket."""

    ticket: int
    identity: Identity


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A unit that was in the map can no longer be reached: the network has come apart there (BNM-12)."""

    unit: Unit


@dataclass(frozen=True, slots=True)
class Reachable:
    """A unit can be reached, for the first time or again."""

    unit: Unit


@dataclass(frozen=True, slots=True)
class MaySpeak:
    """The answer to AskToSpeak; `reason` says why not."""

    number: int
    granted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Restart:
    """This broker has a new address: store it and start again under it, in that network."""

    identity: Identity
    network: str


@dataclass(frozen=True, slots=True)
class ClientRefused:
    """What a client asked for cannot be done; `reason` names field, value and remedy. Nothing changed."""

    session: int
    subscription: int | None
    reason: str


Effect = Send | Close | Store | Unreachable | Reachable | MaySpeak | Restart | ClientRefused
