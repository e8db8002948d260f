"""One durable subscription as it stands at a broker: where it is, what is kept for it, who reads it.

The rules are those of `registry` and `handover`; this is their common record. Who else has to know of what happens to a
subscription is a `DurableObserver`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from veena import matching
from veena.address import Address
from veena.core.boundary.session_id import SessionId, durable_session
from veena.core.boundary.stored import Disk, Entry, Registered
from veena.core.boundary.user_shares import user_of_client
from veena.core.delivery.inherited import Estate
from veena.core.durable.cursor import ENTRY_BYTES, Inbox, Reader
from veena.core.messages.kinds import Deleted
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import EventKey, Place, Stream, first_key, ids_of, stream_of
from veena.matching.base.engine import Constraint, Engine

#: Ids that are remembered for one subscription.
MAX_REMEMBERED = 100_000


class State(Enum):
    """Where a subscription is with respect to this broker; the disk holds the value."""

    #: It is kept here, and nothing is expected from elsewhere.
    HOME = "home"
    #: It is kept here; stragglers may come from its former home.
    OPEN = "open"
    #: It is kept here; its former home has not yet sent everything that it kept.
    ARRIVING = "arriving"
    #: Its client attached elsewhere; what is kept here is being sent after it.
    LEAVING = "leaving"
    #: Everything was sent after it, and stragglers still are; or it has ended.
    LEFT = "left"


#: Which states may follow each other. A subscription begins at home or arriving, and may end in any state.
FOLLOWING: dict[State, tuple[State, ...]] = {
    State.ARRIVING: (State.OPEN, State.LEAVING, State.LEFT),
    State.OPEN: (State.HOME, State.LEAVING, State.LEFT),
    State.HOME: (State.OPEN, State.LEAVING, State.LEFT),
    State.LEAVING: (State.LEFT,),
    State.LEFT: (State.LEFT,),
}

#: Client and name.
Key = tuple[str, str]
#: What is remembered with an id.
Mark = TypeVar("Mark")


@dataclass(slots=True, eq=False)
class Durable:
    """One durable subscription, as it stands at this broker."""

    number: int
    client_id: str
    name: str
    engine: str
    constraint: Constraint
    scope: int
    version: int
    state: State
    inboxes: list[Inbox]
    #: Where it went; of one that is here, who stands by for it.
    to: Address | None = None
    #: Stragglers from a former home, until it is known whether they came by themselves.
    aside: Inbox | None = None
    #: (session, subscription) -> where it reads.
    readers: dict[tuple[int, int], Reader] = field(default_factory=dict)
    #: When the last reader came.
    read_ns: int = 0
    #: The last place of each stream that was kept here.
    last: dict[Stream, Place] = field(default_factory=dict)
    #: The first place of each stream that came by itself while what was kept elsewhere was waited for.
    first: dict[Stream, Place] = field(default_factory=dict)
    #: While what was kept elsewhere may still come: what came by itself, with its mark `late`, and what came from
    #: there.
    live_keys: dict[EventKey, bool] = field(default_factory=dict)
    moved_keys: dict[EventKey, None] = field(default_factory=dict)
    #: What was sent on as a straggler after it left.
    sent_keys: dict[EventKey, None] = field(default_factory=dict)
    moved_last: dict[Stream, Place] = field(default_factory=dict)
    until_ns: int | None = None
    #: What is kept is being read, to be sent after it.
    is_forwarding: bool = False
    #: When it was asked to go elsewhere, and until when it is still told that it is wanted here.
    left_ns: int | None = None
    withdraw_ns: int | None = None
    #: It went on from here before everything had come from its former home, which is waited for so long.
    waits: bool = False
    waits_until_ns: int = 0
    subscription: int = 1
    #: Who asked for it last while nobody read here and its version was the later one, and with which: the clock by
    #: which that was given was ahead, and the client is there.
    asked_by: tuple[Address, int] | None = None
    #: Its version when it came here: what is said of an earlier stay has no meaning any more.
    made: int = 0
    #: It goes with its session: a subscription that waits for its past.
    is_passing: bool = False
    #: Of such a one: ids were forgotten, though there is room again.
    was_full: bool = False
    #: How far its readers are told that it is acknowledged (`home_registry`).
    level: int = 0
    #: The user to whom what is kept is charged; bytes of that (`charges`).
    owner: str = ""
    charged: int = 0
    #: Nothing more is kept, because its owner has its share of the store; events for it that were not kept, in all.
    is_suspended: bool = False
    missed: int = 0
    #: Why nothing more is handed over, because evaluating it on the next event costs too much; empty while that is not
    #: so. Its cursor stays where it is until somebody subscribes to it again.
    rests: str = ""
    #: An engine that holds its constraint alone, once it was needed, and that constraint.
    judge: tuple[Engine, Constraint] | None = None

    @property
    def session(self) -> SessionId:
        """The broker's session in which it is announced."""
        return durable_session(self.number)

    @property
    def key(self) -> Key:
        return (self.client_id, self.name)

    def alone(self) -> Engine:
        """An engine that holds its constraint alone."""
        if self.judge is None or self.judge[1] is not self.constraint:
            engine = matching.create(self.engine)
            engine.add(0, self.constraint, 1)
            self.judge = (engine, self.constraint)
        return self.judge[0]

    def rest(self, reason: str) -> bool:
        """Hand nothing more over, for this reason; False where that was so before."""
        if self.rests:
            return False
        self.rests = (
            f"durable subscription {self.name!r} is suspended where it is: {reason}; subscribe to something cheaper"
            " under its name (docs/XPATH.md, Work), and it goes on from there"
        )
        return True

    def go_on(self) -> None:
        """Somebody subscribes again, perhaps to something else: what was not evaluated is tried once more."""
        self.rests = ""
        for reader in self.readers.values():
            reader.question = reader.verdict = None

    @property
    def live(self) -> Inbox:
        return self.inboxes[-1]

    def park(self, key: EventKey) -> None:
        """Nobody who is there may have an event: it takes no room from others (`group_denials`)."""
        for inbox in self.inboxes:
            inbox.park(key)

    def is_below_floor(self, frame: EventFrame) -> bool:
        """Whether its former home is believed to have had an event before it left."""
        return any(self.live.is_below_floor(*each) for each in ids_of(frame))

    def inbox(self, number: int) -> Inbox:
        return next(inbox for inbox in self.inboxes if inbox.number == number)

    def all_inboxes(self) -> list[Inbox]:
        """Also the one that nobody reads."""
        return self.inboxes if self.aside is None else [*self.inboxes, self.aside]

    @property
    def is_read(self) -> bool:
        """Whether everything that is kept was handed to all who read it."""
        return (
            len(self.inboxes) == 1
            and self.state is not State.ARRIVING
            and all(reader.next >= self.live.end and not reader.is_reading for reader in self.readers.values())
        )

    @property
    def is_here(self) -> bool:
        return self.state not in (State.LEAVING, State.LEFT)

    def become(self, state: State) -> None:
        """Go over to another state; only by the table."""
        assert state in FOLLOWING[self.state], f"{self.key} was {self.state.value} and became {state.value}"
        self.state = state

    def estate(self) -> Estate:
        """What the subscription of its one reader has had, when it goes on by itself."""
        (reader,) = self.readers.values()
        parts = (self.moved_keys, self.live_keys)
        return Estate(self.session, parts, not (self.was_full or self._is_full), reader.had, reader.originals)

    @property
    def _is_full(self) -> bool:
        """Whether ids may have been forgotten."""
        return max(len(self.moved_keys), len(self.live_keys)) >= MAX_REMEMBERED

    def was_not_handed(self, key: EventKey) -> None:
        """What was kept for it is gone before its reader had it: should that be repeated, it is new."""
        self.was_full = self.was_full or self._is_full
        self.moved_keys.pop(key, None)
        self.live_keys.pop(key, None)

    def registration(self) -> Registered:
        return Registered(
            self.number,
            self.client_id,
            self.name,
            self.engine,
            self.constraint,
            self.scope,
            self.version,
            tuple(inbox.number for inbox in self.inboxes),
            self.state.value,
            self.to,
            0 if self.aside is None else self.aside.number,
            self.owner,
            self.missed,
        )


class DurableObserver:
    """Whoever is told of what happens to the durable subscriptions of a broker (`Durables.observers`).

    A part overrides what concerns it. Before the order of the observers was fixed nobody is told of anything.
    """

    def on_saved(self, durable: Durable) -> None:
        """A subscription was written down, or written down anew."""

    def on_active(self, durable: Durable, now_ns: int) -> None:
        """A subscription is acknowledged for all of its scope."""

    def on_left(self, durable: Durable, now_ns: int) -> None:
        """A subscription is about to go to another broker."""

    def on_forgotten(self, durable: Durable, now_ns: int) -> None:
        """Its client is about to end a subscription for good."""

    def on_suspension(self, durable: Durable) -> None:
        """More is not kept for a subscription, or is kept again."""

    def on_removed(self, durable: Durable) -> None:
        """A subscription has ended here."""

    def on_ended_elsewhere(self, message: Deleted, now_ns: int) -> None:
        """A client has ended, at another broker, a subscription that was kept here."""

    def on_kept(self, durables: list[Durable], frame: EventFrame, now_ns: int) -> None:
        """An event was put into the log for some subscriptions."""

    def on_stored(self, durable: Durable) -> None:
        """More of what is kept for a subscription that leaves is on disk."""

    def on_settled(self, durable: Durable, key: EventKey) -> None:
        """An event is kept no more for a subscription: it is acknowledged, was had, or has expired."""

    def on_straggler(self, durable: Durable, frame: EventFrame, now_ns: int) -> None:
        """An event satisfies a subscription that has left."""

    def on_forwarded(self, durable: Durable, frame: EventFrame) -> None:
        """An event was posted to where a subscription went."""

    def on_group_event(self, session: int, frame: EventFrame, now_ns: int) -> None:
        """An event is handed to a session of the broker's own, which reads for a group."""


def size_of(frame: EventFrame) -> int:
    """How many bytes a kept event takes."""
    return len(frame.tail) + ENTRY_BYTES


def remember(keys: dict[EventKey, Mark], key: EventKey, mark: Mark) -> None:
    keys[key] = mark
    if len(keys) > MAX_REMEMBERED:
        del keys[next(iter(keys))]


def restored(found: Registered, disk: Disk, entries: dict[int, list[Entry]]) -> Durable:
    """A subscription as the disk has it; `entries` are those of each inbox."""

    def inbox_of(number: int) -> Inbox:
        cursor = disk.reached.get(number, 0)
        kept = entries.get(number)
        return Inbox(number, cursor, max(cursor, kept[-1].offset + 1 if kept else 0))

    state = State(found.state)
    inboxes: list[Inbox] = []
    for number in found.inboxes:
        inbox = inbox_of(number)
        inbox.floor = dict(disk.floors.get(number, {}))
        inbox.is_closed = number != found.number and state is not State.ARRIVING
        inboxes.append(inbox)
    durable = Durable(
        found.number, found.client_id, found.name, found.engine, found.constraint, found.scope, found.version,
        state, inboxes, found.to,
    )  # fmt: skip
    durable.owner, durable.missed = found.owner or user_of_client(found.client_id), found.missed
    if found.aside:
        durable.aside = inbox_of(found.aside)
    for inbox in durable.all_inboxes():
        for entry in entries.get(inbox.number, ()):
            if entry.offset >= inbox.cursor:
                inbox.meter.add(entry.offset, size_of(entry.frame))
    for entry in entries.get(durable.number, ()):
        stream, place = stream_of(entry.frame), (entry.frame.timestamp, entry.frame.sequence)
        durable.last[stream] = max(place, durable.last.get(stream, place))
        durable.first.setdefault(stream, place)
        if state in (State.ARRIVING, State.OPEN) or entry.offset >= durable.live.cursor:
            remember(durable.live_keys, first_key(entry.frame), entry.frame.late)
    for number in found.inboxes[:-1]:
        durable.moved_keys.update(dict.fromkeys(first_key(entry.frame) for entry in entries.get(number, ())))
    return durable
