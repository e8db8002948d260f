"""The frames of the node organisation protocol: who asks for a place, who gives it, who hears of a new number.

Three conversations. *Set-up*: the requester and the broker it asks (`SetupRequest` and its three answers,
`SetupCancel`). *Inside the network*: that broker and its cluster mates for a free gateway (`Slot...`), and with the
registrar of a unit for a free identifier (`Identifier...`). *Renumbering*: a merged unit's members, then their clients
(`Renumber`, `ClientRenumber`). A set-up is named by the pair (requester, number) in all of them, so an answer that
comes late, twice or to nobody can be told from the one that is awaited.

The invariant: every field is bounded by its type, so the decoder refuses what no honest broker sends. Requirements:
NOP-03, NOP-05, NOP-06, NOP-10, NOP-12..16 (the GES paper, section 3.1; AMB-44: it is also called node addition).

Rejected: one reply with a status and optional fields. Three structs cannot hold an address in a refusal.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from veena.address import MAX_LEVELS
from veena.core.wire.control import (
    MAX_GRANT,
    MAX_NETWORK_NAME,
    MAX_PERMANENT_ID,
    MAX_URL,
    U63,
    ClientId,
    Frame,
    Level,
    Text,
    UnitPath,
)
from veena.core.wire.interest import Count

#: Places in one answer: every unit next to a full fan-out of 64, one gatekeeper each.
MAX_PLACES = 64
#: Most links that a threshold vector may allow at one level.
MAX_THRESHOLD = 4096
#: A registrar is found by descending the hierarchy, one message a level; twice that while two maps disagree.
MAX_REGISTRAR_HOPS = 2 * MAX_LEVELS
#: Longest wait that a refusal may ask for: one hour.
MAX_RETRY_MS = 3_600_000
#: The textual form of an IPv6 address with a scope.
MAX_IP = 64

PermanentId = Annotated[str, Meta(min_length=1, max_length=MAX_PERMANENT_ID)]
#: A path, or nothing where nobody has given one yet.
PathOrNone = Annotated[tuple[Annotated[int, Meta(ge=0, le=63)], ...], Meta(max_length=MAX_LEVELS)]
#: One bit a level, the rightmost is level 0 (NOP-06).
Vector = Annotated[int, Meta(ge=1, le=(1 << MAX_LEVELS) - 1)]
Counts = Annotated[tuple[Annotated[int, Meta(ge=0, le=MAX_THRESHOLD)], ...], Meta(max_length=MAX_LEVELS)]
Ip = Annotated[str, Meta(max_length=MAX_IP)]
#: Ways to reach a place that an answer names: 64 places with four of the longest fit into a control frame.
MAX_PLACE_LISTEN = 4
PlaceListen = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=MAX_URL)], ...], Meta(max_length=MAX_PLACE_LISTEN)
]


NetworkName = Annotated[str, Meta(max_length=MAX_NETWORK_NAME)]


class Place(Struct, frozen=True, array_like=True, gc=False):
    """A broker that can be asked or dialled."""

    address: UnitPath
    listen: PlaceListen = ()
    #: The grant of the broker, as in its Hello.
    grant: Annotated[bytes, Meta(max_length=MAX_GRANT)] = b""


Places = Annotated[tuple[Place, ...], Meta(max_length=MAX_PLACES)]


#: Contacts of one unit: more than die together, and few enough to be kept for every unit of a map.
MAX_CONTACTS = 4
#: Statements in a frame: with the longest listen addresses and grants nine tenths of what a control frame may hold.
MAX_STATEMENTS = 64


class Statement(Struct, frozen=True, array_like=True, gc=False):
    """Brokers of a unit that can be dialled, as one of them tells it; the highest (number, teller) counts."""

    unit: UnitPath
    #: Of a broker about itself its incarnation at first; after that one more than the one before.
    number: Count
    teller: UnitPath
    places: Annotated[tuple[Place, ...], Meta(min_length=1, max_length=MAX_CONTACTS)]


class Contacts(Frame, frozen=True):
    """Whom to dial should a unit of the enclosing one be out of reach."""

    statements: Annotated[tuple[Statement, ...], Meta(max_length=MAX_STATEMENTS)]


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """A gateway that a broker keeps free for the requester: dial it and claim the link of this level."""

    level: Level
    place: Place


# --- set-up: requester and contact ---


class SetupRequest(Frame, frozen=True):
    """A stand-alone node, a broker of this network, or the one spokesman of a unit asks for gateways."""

    requester: PermanentId
    number: U63
    vector: Vector
    #: 0 for a node; l when the requester speaks for a unit of level l that is to be added.
    unit_level: Level
    #: The unit's permanent id; a node is its own unit. Two spokesmen of one unit show the same (NOP-14).
    unit: PermanentId
    #: Empty for a stand-alone node; the granted or present address of a node; the old address of a unit's spokesman.
    address: PathOrNone = ()


class SetupAccepted(Frame, frozen=True):
    requester: PermanentId
    number: U63
    #: A node's address, a merged unit's new path; empty when only a gateway was asked *to* and the place comes later.
    address: PathOrNone
    grant: Grant
    #: Gatekeepers for the rest of the request, nearest level first.
    gatekeepers: Places = ()


class SetupRedirected(Frame, frozen=True):
    """Nothing free here; these may have something."""

    requester: PermanentId
    number: U63
    reason: Text
    gatekeepers: Places


class SetupRefused(Frame, frozen=True):
    """Final for this broker; `retry_ms` above 0 says that asking again after that time may help."""

    requester: PermanentId
    number: U63
    reason: Text
    retry_ms: Annotated[int, Meta(ge=0, le=MAX_RETRY_MS)] = 0


class SetupCancel(Frame, frozen=True):
    """The requester gives back what the broker it asked had kept free for it."""

    requester: PermanentId
    number: U63


# --- inside the network ---


class SlotRequest(Frame, frozen=True):
    """A cluster mate is asked to keep one gateway free (NOP-10, second branch)."""

    requester: PermanentId
    number: U63
    level: Level
    #: As the contact saw it; empty for a broker of this network.
    ip: Ip
    #: The requester's address where it has one: two brokers need no second link.
    address: PathOrNone = ()


class SlotReply(Frame, frozen=True):
    requester: PermanentId
    number: U63
    granted: bool
    listen: PlaceListen
    #: The mate's present links and thresholds by level, so that the asker knows whom to try first next time.
    links: Counts
    thresholds: Counts
    #: The mate's gatekeepers, for the answer to a requester that nobody could take.
    gatekeepers: Places = ()


class SlotRelease(Frame, frozen=True):
    requester: PermanentId
    number: U63


class IdentifierRequest(Frame, frozen=True):
    """Asks the registrar of `enclosing` for a free identifier in it; `contact` gets the answer."""

    requester: PermanentId
    number: U63
    unit: PermanentId
    enclosing: PathOrNone
    contact: UnitPath
    hops: Annotated[int, Meta(ge=0, le=MAX_REGISTRAR_HOPS)] = 0


class IdentifierReply(Frame, frozen=True):
    requester: PermanentId
    number: U63
    #: -1 when there is none; `reason` then says why.
    identifier: Annotated[int, Meta(ge=-1, le=63)]
    reason: Text = ""
    retry_ms: Annotated[int, Meta(ge=0, le=MAX_RETRY_MS)] = 0


class IdentifierRelease(Frame, frozen=True):
    requester: PermanentId
    number: U63
    unit: PermanentId
    enclosing: PathOrNone
    contact: UnitPath
    hops: Annotated[int, Meta(ge=0, le=MAX_REGISTRAR_HOPS)] = 0


class GateRequest(Frame, frozen=True):
    """Who are the gatekeepers beyond the gates of `unit`? Passed on inside the unit until a gate is reached."""

    unit: UnitPath
    contact: UnitPath
    hops: Annotated[int, Meta(ge=0, le=MAX_LEVELS)] = 0


class GateReply(Frame, frozen=True):
    """The brokers outside the unit that the answering gate has links with."""

    unit: UnitPath
    places: Places


# --- a merged unit gets its number ---


class SpokesmanRequest(Frame, frozen=True):
    """Inside the unit that wants to join: may this broker speak for it? Asked of the unit's own registrar (NOP-14)."""

    requester: PermanentId
    number: U63
    #: The unit's present path; empty when it is a whole network.
    unit: PathOrNone
    contact: UnitPath
    hops: Annotated[int, Meta(ge=0, le=MAX_REGISTRAR_HOPS)] = 0


class SpokesmanReply(Frame, frozen=True):
    requester: PermanentId
    number: U63
    granted: bool
    reason: Text = ""
    retry_ms: Annotated[int, Meta(ge=0, le=MAX_RETRY_MS)] = 0


class Renumber(Frame, frozen=True):
    """Every broker under `old` is from now on under `new`; passed on once by each (NOP-15)."""

    #: The set-up that led to it: the same renumbering is known by this pair whichever way it comes.
    requester: PermanentId
    number: U63
    old: PathOrNone
    new: UnitPath
    #: The network that the unit is part of from now on; empty when that does not change.
    network: NetworkName = ""


class ClientRenumber(Frame, frozen=True):
    """To a client: its broker, and so its logical address, moved (NOP-05). Its id and its profiles stay."""

    client: ClientId
    old: UnitPath
    new: UnitPath
