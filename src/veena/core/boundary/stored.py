"""What a broker keeps on disk, as values: what is written, and what a restart finds (design §7).

The core writes through `Store(ticket)` and learns from `Stored(ticket)` that it is synced; many writes of one input are
one ticket, and a driver may sync many tickets at once. Only this survives a crash: who the broker is, the log of events
it has accepted with how far each unit has been served, what its clients have had, which units it knew, and what is
advertised. A relay keeps nothing: its upstreams send again what was open.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from veena.address import Address, Unit
from veena.core.boundary.staging import BatchPublished, PartsDropped, QueriesForgotten, Staged, StageWrite, Unstaged
from veena.core.wire.burst import EventBurst
from veena.core.wire.discovery import Advertisement
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import EventKey, Place, Stream
from veena.core.wire.trace_facts import Note
from veena.matching.base.engine import Constraint

#: After a crash, an event so little below the cursor may come again, out of a backlog whose sender had no answer yet:
#: more than one group that is written at once (`runtime.store.writer`, `GROUP_WRITES`).
DOUBTFUL = 16_384
#: The state of a durable subscription of another broker, for which this one stands by (`standby`).
STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a broker must not forget: its permanent name, its place, and how often it was started."""

    name: str
    address: Address
    incarnation: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted event in its origin's log; the frame's `to_serve` holds the units that it was for."""

    offset: int
    frame: EventFrame
    accepted_ns: int
    #: The inboxes of this broker's durable subscriptions that it is kept for.
    inboxes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Entries:
    """The events of a burst in the log, at offsets that follow each other; all are for the same units."""

    offset: int
    burst: EventBurst
    accepted_ns: int
    to_serve: int
    served: int

    def entries(self) -> list[Entry]:
        """One by one."""
        return [
            Entry(self.offset + at, frame.copy(self.to_serve, self.served, frame.ttl_ms), self.accepted_ns)
            for at, frame in enumerate(self.burst.frames())
        ]


@dataclass(frozen=True, slots=True)
class Progress:
    """Each of these units (by its bit) has everything of the log below its offset, or will never need it."""

    cursors: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LastHad:
    """The clients of this broker have had everything of this stream up to this place."""

    stream: Stream
    place: Place


@dataclass(frozen=True, slots=True)
class Skip:
    """The clients of this broker have had this event under a later id."""

    stream: Stream
    place: Place


@dataclass(frozen=True, slots=True)
class Known:
    """The units around this broker that it has heard of: they may want anything until they speak again."""

    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A second copy of another broker's event."""

    key: EventKey
    frame: EventFrame


@dataclass(frozen=True, slots=True)
class Released:
    """Second copies that are needed no more."""

    keys: tuple[EventKey, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """A durable subscription as it is now; `number` is its own and that of its newest inbox."""

    number: int
    client_id: str
    name: str
    engine: str
    constraint: Constraint
    scope: int
    #: Counts up with every attachment, anywhere: the latest is where the client is.
    version: int
    #: First to be read first.
    inboxes: tuple[int, ...]
    state: str
    #: Where it went.
    to: Address | None = None
    #: One more inbox, which nobody reads (`durable.handover`); 0 for none.
    aside: int = 0
    #: The user to whom what is kept for it is charged (`durable.charges`).
    owner: str = ""
    #: Events for it that were not kept, because that was too much.
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """An inbox is acknowledged below this offset. Up to the places in `floor` its events come by another inbox."""

    inbox: int
    cursor: int
    floor: tuple[tuple[Stream, Place], ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A durable subscription is no more."""

    number: int


@dataclass(frozen=True, slots=True)
class Shelved:
    """An advertisement that this broker holds, or the withdrawal of one: of its own client where `home` is empty, else
    of a client of that broker."""

    home: Address
    advert: Advertisement
    #: Since when its client, or its home, is away; 0 while it is there.
    left_ns: int = 0


@dataclass(frozen=True, slots=True)
class Unshelved:
    """It is held no longer."""

    home: Address
    client: str
    name: str


@dataclass(frozen=True, slots=True)
class Attended:
    """This broker lived then, and held advertisements. Nothing waits for it."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What happened to events and subscriptions here (`journal`), noted at a time in the life that began at `life_ns`.
    Nothing waits for it."""

    life_ns: int
    at_ns: int
    notes: tuple[Note, ...]


Subscribed = Registered | Reached | Forgotten
Advertising = Shelved | Unshelved | Attended
#: Home, client and name of an advertisement.
ShelfKey = tuple[Address, str, str]
Write = (
    Identity | Entry | Entries | Progress | LastHad | Skip | Known | Kept | Released | Subscribed | Advertising | Noted
    | StageWrite
)  # fmt: skip
#: What is on disk beside the core's own; a broker learns of it from its driver.
_STAGING = (Staged, BatchPublished, PartsDropped, QueriesForgotten, Unstaged)


@dataclass(slots=True)
class Disk:
    """Everything that was written, as a restart finds it. A driver may leave out entries below every cursor."""

    identity: Identity
    entries: list[Entry] = field(default_factory=list)
    next_offset: int = 0
    cursors: dict[int, int] = field(default_factory=dict)
    had: dict[Stream, Place] = field(default_factory=dict)
    skips: dict[tuple[Stream, Place], None] = field(default_factory=dict)
    known: tuple[Unit, ...] = ()
    kept: dict[EventKey, EventFrame] = field(default_factory=dict)
    registered: dict[int, Registered] = field(default_factory=dict)
    #: By inbox.
    reached: dict[int, int] = field(default_factory=dict)
    floors: dict[int, dict[Stream, Place]] = field(default_factory=dict)
    #: In the order in which each was first held.
    shelved: dict[ShelfKey, Shelved] = field(default_factory=dict)
    #: When the broker was last known to live; 0 for never.
    attended_ns: int = 0
    #: A driver may leave out the oldest.
    noted: list[Noted] = field(default_factory=list)
    #: What became of staged batches, in order; a driver keeps it apart.
    staging: list[StageWrite] = field(default_factory=list)

    def write(self, write: Write) -> None:
        """Apply one write. Whoever keeps a disk in memory (the simulator, tests) does it with this."""
        if isinstance(write, Identity):
            self.identity = write
        elif isinstance(write, Noted):
            self.noted.append(write)
        elif isinstance(write, _STAGING):
            self.staging.append(write)
        elif isinstance(write, Entry):
            insort(self.entries, write, key=lambda entry: entry.offset)  # later than others where the disk was full
            self.next_offset = max(self.next_offset, write.offset + 1)
        elif isinstance(write, Entries):
            for entry in write.entries():
                self.write(entry)
        elif isinstance(write, Progress):
            self.cursors.update(write.cursors)
        elif isinstance(write, LastHad):
            assert min(write.place) >= 0, "a place is made of unsigned numbers"
            self.had[write.stream] = write.place
        elif isinstance(write, Skip):
            self.skips[write.stream, write.place] = None
        elif isinstance(write, Known):
            self.known = write.units
        elif isinstance(write, Kept):
            self.kept[write.key] = write.frame
        elif isinstance(write, Registered):
            self.registered[write.number] = write
        elif isinstance(write, Reached):
            self.reached[write.inbox] = write.cursor
            if write.floor:
                self.floors.setdefault(write.inbox, {}).update(write.floor)
        elif isinstance(write, Forgotten):
            gone = self.registered.pop(write.number)
            for inbox in (*gone.inboxes, gone.aside):
                self.reached.pop(inbox, None)
                self.floors.pop(inbox, None)
        elif isinstance(write, Shelved):
            self.shelved[write.home, write.advert.client, write.advert.name] = write
        elif isinstance(write, Unshelved):
            self.shelved.pop((write.home, write.client, write.name), None)
        elif isinstance(write, Attended):
            self.attended_ns = write.at_ns
        else:
            for key in write.keys:
                self.kept.pop(key, None)
