"""What crosses the boundary of the core: Inputs go in, Effects come out. Tests compare lists of these.

A link is named by a number that its driver chose and never uses again: a new connection to the same neighbour is a new
link, and frames of the old one can no longer be mistaken for its own. Disk is a peer (`stored`): `Store(ticket)` out,
`Stored(ticket)` in; nothing that depends on it is said to anybody in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from veena.address import Address, Unit
from veena.core.boundary.clients import ServiceEffect, ServiceInput, SessionClear, SessionClogged
from veena.core.boundary.discovery import DiscoveryEffect, DiscoveryInput
from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.explain import Denied, ExplainEffect, ExplainInput
from veena.core.boundary.signing import FaultCode, Signing
from veena.core.boundary.staging import ReleaseStaged, StageEffect
from veena.core.boundary.stored import Entry, Identity, Write
from veena.core.wire.burst import EventBurst
from veena.core.wire.control import Frame
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import Place, Stream
from veena.errors import LocalProtocolError, RefusalCode
from veena.event import EventId
from veena.matching.base.engine import Constraint

#: A frame with its number on its connection; 0 for frames outside the sequence.
Numbered = tuple[int, Frame | EventFrame]
#: What a client has had: the last event of each (publisher, incarnation, lane number).
Had = dict[tuple[str, int, int], tuple[int, int]]


# --- inputs ---


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A transport is there; `ordered` when it neither loses nor reorders frames."""

    link: int
    ordered: bool
    #: The peer's IP address as the transport sees it; empty when there is none.
    ip: str = ""
    #: Made because this broker asked for it with `Dial`.
    dialled: bool = False


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
class LinkRoom:
    """How many bytes of events the way out takes from now on, whatever was told before; None, the default, for any.

    A driver that has told a number tells the next one when what it was given has gone. Small numbers keep what it has
    taken short, so that a later event of a higher priority has little before it (QOS-03).
    """

    link: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The wall clock shows so much more than the time that the core is given: it was set, or has drifted."""

    offset_ns: int


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
class Granted:
    """From now on this broker shows this grant to others, `b""` for none, and signs so; None: as before."""

    grant: bytes
    signing: Signing | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The unit `old` was given the place `new` in the network it joined: tell every member (NOP-15)."""

    number: int
    old: Unit
    new: Unit
    network: str


@dataclass(frozen=True, slots=True)
class ClientUp:
    """A client has attached; `session` is a number that its driver never uses again.

    `had` is what the client had before it was cut off: it gets nothing of that again. A `reachable` client can be
    written to by its id (EVT-05). `attributes` say what its device can do and what it is cleared for
    (`interest.eligibility`). `slow` says what happens when it does not read and too much waits for it
    (`delivery.session_queue`).
    """

    session: int
    client_id: str
    had: Had = field(default_factory=dict)
    #: Of what it had, the events that came under a later id: (stream, place) of the original.
    skips: frozenset[tuple[Stream, Place]] = frozenset()
    reachable: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    slow: Literal["drop", "disconnect"] = "drop"
    #: Whose shares of this broker it uses (`user_shares`); empty for the client itself.
    user: str = ""

    def __post_init__(self) -> None:
        if self.slow not in ("drop", "disconnect"):
            raise LocalProtocolError(f"slow {self.slow!r} of {self.client_id}: use 'drop' or 'disconnect'")


@dataclass(frozen=True, slots=True)
class ClientDown:
    """A client's connection is gone, and with it what it subscribed to.

    At once when the client said goodbye; when the connection was `lost`, after a grace in which it may come back.
    """

    session: int
    lost: bool = False
    #: Whether this broker sent it away because it stops: what the client advertised stays for its lease all the same.
    dismissed: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client wants events: the engine, a constraint in its language, and how far around it (1 is the cluster)."""

    session: int
    subscription: int
    engine: str
    constraint: Constraint
    scope: int
    #: The name of a durable subscription (`durable.subscription`); empty for one that goes with its session.
    durable: str = ""
    #: Who acknowledges: the client's library when the application gets an event, or the application.
    ack: Literal["auto", "manual"] = "auto"
    #: The last place of each stream that a durable subscription has had: what comes from before it is marked as late,
    #: and with `manual` as redelivered.
    had: Had = field(default_factory=dict)
    #: The broker where the durable subscription was kept last, if the client knows.
    home: Address | None = None
    #: Also what was accepted since then (`durable.replay`), in nanoseconds since 1970.
    since_ns: int | None = None
    #: What it had last, or with `manual` acknowledged last, event by event, with the originals of what came under a
    #: later id: none of that is handed over again. A place in a stream would not do: where a subscription goes on
    #: before its former home has answered, events overtake others.
    skips: frozenset[tuple[Stream, Place]] = frozenset()
    #: The group that shares it (`durable.groups`): each event is for one of its members.
    group: str = ""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client no longer wants them."""

    session: int
    subscription: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A client has these events of a durable subscription for good."""

    session: int
    subscription: int
    ids: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """A client ends a durable subscription that it is attached to: what is kept for it is gone."""

    session: int
    subscription: int


@dataclass(frozen=True, slots=True)
class Publish:
    """A client publishes: the event as `EventCodec.frame` makes it, under the incarnation that the client was given."""

    session: int
    frame: EventFrame


@dataclass(slots=True)
class PublishBatch:
    """A client publishes many events, all of one read. Best-effort ones that are accepted may go without a word.

    Not frozen, as it and `DeliverBurst` are made for every read: that would take longer than all else about them.
    """

    session: int
    bursts: Sequence[EventBurst]


@dataclass(frozen=True, slots=True)
class LogRead:
    """What the disk gave for a `Read`: entries from that offset on, without gaps; fewer than asked for at the end.

    Where older entries were given up, `begins_ns` is the time at which the oldest that is left was accepted.
    """

    ticket: int
    entries: Sequence[Entry]
    begins_ns: int = 0


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The disk cannot answer this `Read`, for a reason that lies in the read and not in the disk."""

    ticket: int
    reason: str


ClientInput = ClientUp | ClientDown | Subscribe | Unsubscribe | Acknowledge | Forget
Input = (
    LinkUp
    | LinkDown
    | Arrived
    | LinkLoad
    | LinkRoom
    | Stored
    | StoreFailed
    | LogRead
    | ReadFailed
    | Evaluated
    | AskToSpeak
    | Granted
    | Merged
    | ClockSet
    | ClientInput
    | Publish
    | PublishBatch
    | ReleaseStaged
    | DiscoveryInput
    | ServiceInput
    | ExplainInput
    | Denied
)
#: Inputs after which, by themselves, nothing has to be told to others beside events.
QUIET: tuple[type[Input], ...] = (
    Arrived,
    Publish,
    PublishBatch,
    ReleaseStaged,
    Stored,
    LogRead,
    ReadFailed,
    Evaluated,
    LinkRoom,
    SessionClogged,
    SessionClear,
    Denied,
)


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
    #: Set where the peer is refused the link for what it says it is: an operator should know.
    why: RefusalCode | None = None


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to this broker at one of these, if it can be done: `LinkUp(dialled=True)` follows then, or nothing."""

    address: Address
    listen: tuple[str, ...]
    #: What lets a broker live at that address, as others told it.
    grant: bytes = b""


@dataclass(frozen=True, slots=True)
class Store:
    """Keep all of this, synced, and answer `Stored` with the ticket; tickets are answered in their order."""

    ticket: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Read entries of the log back and answer `LogRead` with the ticket, or `ReadFailed`.

    With `inbox` only entries for that inbox count, with `since_ns` only those that were accepted at that time or later.
    """

    ticket: int
    offset: int
    limit: int
    inbox: int = 0
    since_ns: int = 0


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
class StatementRefused:
    """A neighbour passed on what somebody says of another unit, and its signature does not count here; at most one a
    second for a link, however many there were."""

    link: int
    why: FaultCode
    reason: str


@dataclass(frozen=True, slots=True)
class ClientRefused:
    """What a client asked for cannot be done; `reason` names field, value and remedy. Nothing changed."""

    session: int
    subscription: int | None
    why: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The incarnation that a client's events have from now on: never given to it before, here or elsewhere."""

    session: int
    incarnation: int
    #: Where answers to this session's requests go.
    reply_to: str = ""


@dataclass(frozen=True, slots=True)
class Active:
    """A subscription is acknowledged by all that may expand, up to the client's unit of this level (ACT-02, ACT-05)."""

    session: int
    subscription: int
    level: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event was accepted: a reliable one is on disk, and on a second one where two copies are asked for."""

    session: int
    id: EventId


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """The same for reliable events of one stamp, from one sequence to another, without a hole."""

    session: int
    timestamp: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PublishRefused:
    """An event was not accepted; `reason` names what is wrong and what to do."""

    session: int
    id: EventId
    why: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an event to these sessions, each with the subscriptions that it satisfies."""

    frame: EventFrame
    receivers: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(slots=True)
class DeliverBurst:
    """Hand all events of a burst to these sessions: its bytes are what they get."""

    burst: EventBurst
    receivers: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(slots=True)
class DeliverMixed:
    """Hand events of a mixed burst to sessions: who gets those from one number in the burst to another, in order."""

    burst: EventBurst
    pieces: Sequence[tuple[tuple[tuple[int, tuple[int, ...]], ...], int, int]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An accepted event will not reach these units: why. It was also published to the dead-letter topic."""

    id: EventId
    units: tuple[Unit, ...]
    reason: str


Effect = (
    Send
    | Close
    | Dial
    | Store
    | Read
    | Evaluate
    | Unreachable
    | Reachable
    | MaySpeak
    | Restart
    | StatementRefused
    | ClientRefused
    | Welcome
    | Active
    | Accepted
    | AcceptedRun
    | PublishRefused
    | Deliver
    | DeliverBurst
    | DeliverMixed
    | DeadLetter
    | DiscoveryEffect
    | ServiceEffect
    | ExplainEffect
    | StageEffect
)
#: What a broker tells a client, or of its event.
ToClient = (
    ClientRefused
    | Welcome
    | Active
    | Accepted
    | AcceptedRun
    | PublishRefused
    | Deliver
    | DeliverBurst
    | DeliverMixed
    | DeadLetter
    | ServiceEffect
    | DiscoveryEffect
    | ExplainEffect
)
