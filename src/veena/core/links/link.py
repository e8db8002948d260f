"""One link of a broker: greeting, heartbeats, suspicion, load. Everything about a neighbour short of what it tells.

    GREETING --Hello--> OPEN <--heard again-- SUSPECTED --silence, or a peer's report--> CLOSED

Failure is first suspected, then confirmed or cleared (FLT-02): a link is suspected when nothing was heard for
`suspect_after_ns`, or when a heartbeat goes unanswered although the peer speaks (FLT-03: a crowded link, a slow
process). A suspected link is announced as absent, so that nobody's path uses it; it is closed when the suspicion lasts.

Control and acknowledgements always go. Events go at once while the transport has room for them, which is for ever where
its driver has told no bound (`LinkRoom`), and, over a transport that loses frames, while the channel's window is not
full; otherwise they wait in their lanes (`lanes`). A frame gets its number when it goes: until then an event is known
by a ticket, a number below zero, and `on_sent` tells which number it became. Best effort is bounded, and what is too
much is dropped; what is reliable is kept by its flight anyway, so the bounds of the flights are those of its lanes.

The load of the way out becomes one of three cost steps with hysteresis (LCM-03): a step is taken when the load passes
its threshold and left when the load has fallen well below it, so that a load near a threshold announces nothing.

The invariant: a link has a connection id exactly from its Hello to its end, and both ends compute the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from veena.address import Address, format_address, link_level
from veena.core.boundary.inputs_effects import LinkRoom, Numbered
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.links.channel import AnyFrame, Channel, ChannelStatistics
from veena.core.links.lanes import BEST_EFFORT, Lanes
from veena.core.topology.connection import ABSENT
from veena.core.wire.control import MAX_HEARTBEAT_MS, Frame, Goodbye, Heartbeat, Hello, Received, Refresh
from veena.core.wire.event import COPY, NO_TTL, EventFrame, header_size
from veena.core.wire.header import VERSION, VERSION_LOW, spoken
from veena.core.wire.membership import SetupCancel, SetupRequest
from veena.errors import LocalProtocolError, RemoteProtocolError

#: A peer that does not even say hello within so many heartbeats is closed.
GREETING_HEARTBEATS = 15
#: What a link may begin with: a broker's Hello, or the question of a node that has no address yet.
GREETINGS: tuple[type[Frame], ...] = (Hello, SetupRequest, SetupCancel)
#: Utilisation at which step 1 and step 2 are taken, and how far below it they are left.
LOAD_STEPS = (0.7, 0.9)
LOAD_HYSTERESIS = 0.2
#: Best-effort events that wait for room on one link, and their bytes: a second of a link of 4 MiB a second. Who waits
#: longer is of little use to anybody.
MAX_WAITING_EVENTS = 16_384
MAX_WAITING_BYTES = 4 << 20
#: Told when an event that had to wait has gone: connection, ticket, number (0 if its life was over), time.
OnSent = Callable[[int, int, int, int], None]


class LinkState(Enum):
    """Where a link is in its life."""

    #: Waiting for the peer's Hello.
    GREETING = "greeting"
    #: In use.
    OPEN = "open"
    #: Announced as absent; still listened to.
    SUSPECTED = "suspected"
    #: Over.
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    link: int
    state: LinkState
    neighbour: Address | None
    connection: int | None
    round_trip_ns: int | None
    channel: ChannelStatistics
    #: Events that wait for room, and their bytes; best-effort ones that were dropped for want of it; those whose time
    #: to live was over before there was room.
    waiting: int = 0
    waiting_bytes: int = 0
    dropped: int = 0
    expired: int = 0


class Link:
    """State of one link; `outbox` collects what goes out with the next write."""

    def __init__(self, number: int, ordered: bool, hello: Hello, settings: Settings, now_ns: int, ip: str = "") -> None:
        self.number = number
        #: The peer's IP address as the transport sees it.
        self.ip = ip
        self.state = LinkState.GREETING
        self.hello = hello
        self.neighbour: Address | None = None
        self.incarnation = 0
        self.listen: tuple[str, ...] = ()
        self.name = ""
        self.level = 0
        self.connection: int | None = None
        #: (version, step) that this end has announced.
        self.cost = (0, 0)
        self.cost_changed_ns = now_ns - settings.cost_hold_ns
        #: The cost step without any load: 1 for a link that was dialled because there was no other way.
        self.least_step = 0
        self.utilisation = 0.0
        self.outbox: list[Numbered] = []
        #: Whether its Hello waits, because another link has the address (`claimants`).
        self.is_claimant = False
        #: Why nothing more can be sent: the peer does not take what it is sent. The broker closes such a link.
        self.blocked: str | None = None
        #: When this peer was last told everything, and when it was last asked to tell everything.
        self.refreshed_ns = now_ns
        self._asked_ns = now_ns
        self._must_ask = False
        self._settings = settings
        self.ordered = ordered
        self._channel = Channel(ordered, settings.retransmit_ns)
        #: What waits for room; None where nothing ever has to.
        self._lanes: Lanes[int] | None = None if ordered else Lanes()
        #: Bytes of events that the transport takes now; None for any number.
        self._room: int | None = None
        self._header_size = header_size(settings.levels, settings.fanout)
        self._reads_bursts = False
        self._last_ticket = 0
        self._dropped = self._expired = 0
        self.on_sent: OnSent = lambda connection, ticket, number, now_ns: None
        #: Told of best-effort events that are not sent after all, and whether their time to live was over.
        self.on_lost: Callable[[EventFrame, bool, int], None] | None = None
        self._suspect_after_ns = settings.suspect_after_ns
        self._answer_within_ns = settings.answer_within_ns
        self._opened_ns = now_ns
        self.heard_ns = now_ns
        #: At this time or later the peer held the link for open: when the last heartbeat was sent that it answered.
        self.answered_ns = now_ns
        self.suspected_ns = 0
        self._silent_since_ns = 0
        self._next_beat_ns = now_ns + settings.heartbeat_ns
        #: When this link is next to be looked at; None after anything has happened to it.
        self._due_ns: int | None = None
        #: When the oldest heartbeat without an answer was sent.
        self._unanswered_ns: int | None = None
        self._echo_ns = 0
        self._round_trip_ns: int | None = None
        self.send(hello, now_ns)

    def send(self, frame: AnyFrame, now_ns: int) -> int:
        """Put a frame into the sequence; its number, or the ticket of an event that has to wait."""
        if self._lanes is not None and type(frame) is EventFrame:
            return self._send_in_turn(frame, self._lanes, now_ns)
        if not self.ordered:
            self._due_ns = None
        number = self._channel.next_number
        try:
            self.outbox += self._channel.send(frame, now_ns)
        except LocalProtocolError as error:
            self.blocked = str(error)
        return number

    @property
    def takes_bursts(self) -> bool:
        """Whether many events may go as one frame now: nothing has to wait for room, and the peer reads them."""
        return self._lanes is None and self._reads_bursts

    # --- events in turn ---

    def _send_in_turn(self, frame: EventFrame, lanes: Lanes[int], now_ns: int) -> int:
        size = self._header_size + len(frame.tail)
        if not lanes.events and self._has_room():
            return self._transmit(frame, size, now_ns)
        self._last_ticket -= 1
        is_mortal = frame.ttl_ms != NO_TTL and not frame.flags & COPY  # its origin waits for every copy to be kept
        lanes.put(frame, size, now_ns + frame.ttl_ms * MILLISECOND_NS if is_mortal else None, self._last_ticket)
        if not frame.reliable:
            self._drop_excess(lanes, now_ns)
        return self._last_ticket

    def _has_room(self) -> bool:
        return (self._room is None or self._room > 0) and self._channel.has_room

    def _transmit(self, frame: EventFrame, size: int, now_ns: int) -> int:
        if self._room is not None:
            self._room -= size
        self._due_ns = None
        number = self._channel.next_number
        self.outbox += self._channel.send(frame, now_ns)
        return number

    def _drop_excess(self, lanes: Lanes[int], now_ns: int) -> None:
        events, size = lanes.best_effort()
        if events <= MAX_WAITING_EVENTS and size <= MAX_WAITING_BYTES:
            return
        self._expire(lanes, now_ns)
        events, size = lanes.best_effort()
        while events > MAX_WAITING_EVENTS or size > MAX_WAITING_BYTES:
            oldest = lanes.drop_oldest(BEST_EFFORT)
            size -= oldest.size
            if self.on_lost is not None:
                self.on_lost(oldest.frame, False, now_ns)
            events -= 1
            self._dropped += 1

    def _expire(self, lanes: Lanes[int], now_ns: int) -> None:
        for waiting in lanes.expire(now_ns):
            self._expired += 1
            if self.on_lost is not None and not waiting.frame.reliable:
                self.on_lost(waiting.frame, True, now_ns)
            self._tell_sent(waiting.note, 0, now_ns)

    def room(self, size: int | None, now_ns: int) -> None:
        """The transport takes so many bytes of events from now on; None for any number."""
        self._room = size
        if self._lanes is None and size is not None:
            self._lanes = Lanes()
        self.drain(now_ns)
        if size is None and self.ordered:
            self._lanes = None

    def drain(self, now_ns: int) -> None:
        """Send what waits, as far as there is room."""
        lanes = self._lanes
        if lanes is None or not lanes.events:
            return
        self._expire(lanes, now_ns)
        while self._has_room():
            waiting = lanes.take()
            if waiting is None:
                return
            number = self._transmit(waiting.frame_now(now_ns), waiting.size, now_ns)
            self._tell_sent(waiting.note, number, now_ns)

    def _tell_sent(self, ticket: int, number: int, now_ns: int) -> None:
        assert self.connection is not None, "events go over open links alone"
        self.on_sent(self.connection, ticket, number, now_ns)

    def take_back(self, duties: int) -> list[tuple[int, int]]:
        """Strip these units from the events that wait; their tickets, and what was stripped of each (DUP-06)."""
        return [] if self._lanes is None else self._lanes.take_back(duties)

    def tell(self, frames: Sequence[Frame], now_ns: int) -> None:
        for frame in frames:
            self.send(frame, now_ns)

    def arrive(self, number: int, frame: AnyFrame, now_ns: int) -> list[Numbered]:
        """The frames for the broker, in order, heartbeats and acknowledgements taken out."""
        if self.state is LinkState.SUSPECTED and self.heard_ns < self._silent_since_ns:
            self.suspected_ns = now_ns  # it speaks again: once more the full patience, to answer in
        self.heard_ns = now_ns  # it moves what is due to a later time: no need to find out which
        if number == 0:
            return self._outside_sequence(frame, now_ns)
        ready: list[Numbered] = []
        is_greeted = self.state is not LinkState.GREETING or self.is_claimant
        for numbered in self._channel.arrive(number, frame):
            item = numbered[1]
            if type(item) is Heartbeat:
                self._beat(item, now_ns)
            elif not is_greeted and type(item) not in GREETINGS:
                raise RemoteProtocolError(f"{type(item).__name__} before Hello: greet first")
            else:
                # A Hello that was overtaken comes with what follows it, and is read before that.
                is_greeted = is_greeted or type(item) is Hello
                ready.append(numbered)
        return ready

    def _outside_sequence(self, frame: AnyFrame, now_ns: int) -> list[Numbered]:
        if type(frame) is Received:
            self.outbox += self._channel.acknowledged(frame, now_ns)
            self.drain(now_ns)
            return []
        if type(frame) is Goodbye:
            return [(0, frame)]
        raise RemoteProtocolError(f"{type(frame).__name__} without a frame number")

    def _beat(self, beat: Heartbeat, now_ns: int) -> None:
        if self.state is LinkState.SUSPECTED and beat.sent_ns > self._echo_ns:
            # Heard again: answer at once, or the peer may give up a moment before the next beat.
            self.send(Heartbeat(now_ns, beat.sent_ns), now_ns)
        self._echo_ns = beat.sent_ns
        self.answered_ns = max(self.answered_ns, min(beat.echo_ns, now_ns))
        if beat.echo_ns and self._unanswered_ns is not None and beat.echo_ns >= self._unanswered_ns:
            self._round_trip_ns = max(0, now_ns - beat.echo_ns)
            self._unanswered_ns = None

    def greeted(self, hello: Hello) -> None:
        """Take the peer's Hello; raise RemoteProtocolError unless it is of this network."""
        mine = self.hello
        if self.state is not LinkState.GREETING:
            raise RemoteProtocolError("a second Hello on one connection")
        if hello.version_low > mine.version_high or hello.version_high < mine.version_low:
            raise RemoteProtocolError(
                f"the peer speaks {spoken(hello.version_low, hello.version_high)}, this broker"
                f" {spoken(mine.version_low, mine.version_high)}: upgrade the older one"
            )
        if (hello.network, hello.levels, hello.fanout) != (mine.network, mine.levels, mine.fanout):
            raise RemoteProtocolError(
                f"network {hello.network!r} with {hello.levels} levels of {hello.fanout}; this broker is of"
                f" {mine.network!r} with {mine.levels} levels of {mine.fanout}"
            )
        if hello.address == mine.address:
            raise RemoteProtocolError(f"address {format_address(hello.address)} is this broker's own: take another")
        self._due_ns = None
        self.neighbour = hello.address
        self.incarnation = hello.incarnation
        self.listen = hello.listen
        self.name = hello.name
        self._reads_bursts = hello.bursts
        # A peer that beats rarely is not suspected between two beats, within reason.
        beat_ns = min(hello.heartbeat_ms * 1_000_000, self._settings.suspect_after_ns)
        self._suspect_after_ns = max(self._settings.suspect_after_ns, 3 * beat_ns)
        self._answer_within_ns = max(self._settings.answer_within_ns, 4 * beat_ns)
        self.level = link_level(mine.address, hello.address)
        self.connection = connection_id(mine, hello)
        self.state = LinkState.OPEN

    def tick(self, now_ns: int) -> str | None:
        """Beat, retransmit, and judge; the reason to close when this link is given up."""
        self._due_ns = None
        self.outbox += self._channel.tick(now_ns)
        if self.state is LinkState.GREETING:
            if now_ns >= self._opened_ns + GREETING_HEARTBEATS * self._settings.heartbeat_ns:
                return "no Hello came"
            return None
        if now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + self._settings.heartbeat_ns
            self.probe(now_ns)
            if self._must_ask:
                self.ask_again(now_ns)
        if self.state is LinkState.SUSPECTED and now_ns >= self.suspected_ns + self._settings.confirm_after_ns:
            return "nothing was heard from it, or it did not answer, for too long"
        return None

    def ask_again(self, now_ns: int) -> None:
        """Ask the peer for everything that it knows, at most once in two heartbeats: something was missed."""
        self._must_ask = now_ns < self._asked_ns + 2 * self._settings.heartbeat_ns
        if not self._must_ask:
            self._asked_ns = now_ns
            self.send(Refresh(), now_ns)

    def probe(self, now_ns: int) -> None:
        """Ask for a sign of life now: whoever answers this heartbeat lives."""
        self._due_ns = None
        if self._unanswered_ns is None:
            self._unanswered_ns = now_ns
        self.send(Heartbeat(now_ns, self._echo_ns), now_ns)

    def is_suspect(self, now_ns: int) -> bool:
        """Whether silence or slowness is past its bound now."""
        unanswered = self._unanswered_ns is not None and now_ns >= self._unanswered_ns + self._answer_within_ns
        return unanswered or now_ns >= self.heard_ns + self._suspect_after_ns

    def suspect(self, now_ns: int) -> None:
        self._due_ns = None
        self.state = LinkState.SUSPECTED
        self.suspected_ns = self._silent_since_ns = now_ns

    def clear(self) -> None:
        self._due_ns = None
        self.state = LinkState.OPEN

    @property
    def is_clogged(self) -> bool:
        """Whether it is full and nobody has been told yet: only a loop-free alternate may be used instead."""
        return self.utilisation >= LOAD_STEPS[-1] and self.cost[1] < len(LOAD_STEPS)

    def wanted_step(self) -> int:
        """The cost step that this link should have now."""
        if self.state is LinkState.SUSPECTED:
            return ABSENT
        announced = self.cost[1] if self.cost[1] < ABSENT else 0
        for step in range(len(LOAD_STEPS), 0, -1):
            threshold = LOAD_STEPS[step - 1] - (LOAD_HYSTERESIS if step <= announced else 0.0)
            if self.utilisation >= threshold:
                return step
        return self.least_step

    def acknowledge(self) -> None:
        """Put the acknowledgement of this read's frames behind what goes out."""
        if self.ordered:
            return
        frame = self._channel.acknowledgement()
        if frame is not None:
            self.outbox.append((0, frame))

    @property
    def is_waiting(self) -> bool:
        """Whether events wait for room."""
        return self._lanes is not None and self._lanes.events > 0

    @property
    def is_due_known(self) -> bool:
        """Whether nothing has happened that brings `next_wakeup` forward since it was asked last."""
        return self._due_ns is not None

    def next_wakeup(self) -> int:
        if self._due_ns is None:
            self._due_ns = self._next_due()
        return self._due_ns

    def _next_due(self) -> int:
        if self.state is LinkState.GREETING:
            due = self._opened_ns + GREETING_HEARTBEATS * self._settings.heartbeat_ns
        elif self.state is LinkState.SUSPECTED:
            due = min(self._next_beat_ns, self.suspected_ns + self._settings.confirm_after_ns)
        else:
            due = min(self._next_beat_ns, self.heard_ns + self._suspect_after_ns)
            if self._unanswered_ns is not None:
                due = min(due, self._unanswered_ns + self._answer_within_ns)
        again = self._channel.next_wakeup()
        return due if again is None else min(due, again)

    def statistics(self) -> LinkStatistics:
        lanes = self._lanes
        return LinkStatistics(
            self.number,
            self.state,
            self.neighbour,
            self.connection,
            self._round_trip_ns,
            self._channel.statistics(),
            0 if lanes is None else lanes.events,
            0 if lanes is None else lanes.bytes,
            self._dropped,
            self._expired,
        )

    def check(self) -> None:
        assert (self.connection is None) == (self.neighbour is None)
        assert (self.state is LinkState.GREETING) == (self.connection is None)
        self._channel.check()
        if self._lanes is not None:
            self._lanes.check()
            assert not (self._lanes.events and self._has_room()), "nothing waits while there is room"


def tell_room(links: Mapping[int, Link], given: LinkRoom, now_ns: int) -> None:
    """What a driver says of a link, if it is still there."""
    link = links.get(given.link)
    if link is not None:
        link.room(given.bytes, now_ns)


def connection_id(one: Hello, other: Hello) -> int:
    """The id of a connection: both ends have put chance into it, and both compute the same."""
    digest = blake2b(digest_size=8, person=b"veena-connection")
    for hello in sorted((one, other), key=lambda hello: hello.address):
        digest.update(bytes((len(hello.address), *hello.address)))
        digest.update(hello.incarnation.to_bytes(8, "big") + hello.nonce.to_bytes(8, "big"))
    return int.from_bytes(digest.digest(), "big")


def greeting(identity: Identity, settings: Settings, nonce: int, listen: tuple[str, ...], grant: bytes = b"") -> Hello:
    """The Hello of a broker on a new link."""
    return Hello(
        VERSION_LOW,
        VERSION,
        settings.network,
        settings.levels,
        settings.fanout,  # type: ignore[arg-type]  # checked by Settings
        identity.address,
        identity.incarnation,
        nonce,
        min(MAX_HEARTBEAT_MS, max(1, settings.heartbeat_ns // 1_000_000)),
        listen,
        identity.name,
        bursts=True,
        grant=grant,
    )
