"""One broker with a disk that answers when it is told to, and neighbours that hand it events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.core.scripted_peer import HOST, Peer
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import (
    Accepted,
    Arrived,
    ClientUp,
    Deliver,
    Effect,
    Input,
    LinkDown,
    LogRead,
    Numbered,
    Publish,
    PublishRefused,
    Read,
    Send,
    Store,
    Stored,
    StoreFailed,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Disk, Identity
from veena.core.broker import Broker
from veena.core.interest.constraint import make_want
from veena.core.interest.table import mark_key
from veena.core.wire.control import ConnectionRecord, Done, Frame, Release
from veena.core.wire.event import COPY, EventCodec, EventFrame
from veena.core.wire.interest import STANDING, Interest, Row
from veena.errors import RefusalCode
from veena.event import Event, EventId

CODEC = EventCodec(4, 32)
FANOUT = 32


def bit(unit: Unit) -> int:
    """The vector that holds this unit alone."""
    return 1 << ((len(HOST) - len(unit)) * FANOUT + unit[-1])


def mate(number: int) -> Address:
    """A broker of the host's cluster."""
    return (0, 0, 0, number)


def mates(*numbers: int) -> int:
    """The vector of these brokers of the host's cluster."""
    return sum(bit(mate(number)) for number in numbers)


if TYPE_CHECKING:
    _Broker = Broker
else:
    _Broker = object  # a compiled class lets no interpreted one inherit: the broker is inside


class Host(_Broker):
    """The broker under test; what it writes waits in `stores` until `sync` or `fail`."""

    def __init__(
        self, settings: Settings | None = None, disk: Disk | None = None, now_ns: int = 0, address: Address = HOST
    ) -> None:
        first = disk.identity.incarnation * 1000 if disk is not None else 100
        nonces = iter(range(first, first + 1000))
        identity = Identity("host", address, 1 if disk is None else disk.identity.incarnation + 1)
        self.stores: list[Store] = []
        self.kept = Disk(identity) if disk is None else disk
        copied = replace(
            self.kept, entries=list(self.kept.entries), cursors=dict(self.kept.cursors), had=dict(self.kept.had)
        )
        self.inner = Broker(identity, settings or Settings(), lambda _: next(nonces), now_ns, disk=copied)
        self.tick(now_ns)
        self.sync(now_ns)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["inner"], name)

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        effects = self.inner.handle(given, now_ns)
        self.stores += [effect for effect in effects if isinstance(effect, Store)]
        self.check()
        return effects

    def tick(self, now_ns: int) -> list[Effect]:
        effects = self.inner.tick(now_ns)
        self.stores += [effect for effect in effects if isinstance(effect, Store)]
        return effects

    def sync(self, now_ns: int = 0) -> list[Effect]:
        """Let the disk take everything, and whatever is written then."""
        effects: list[Effect] = []
        while self.stores:
            store = self.stores.pop(0)
            for write in store.writes:
                self.kept.write(write)
            effects += self.handle(Stored(store.ticket), now_ns)
        return effects

    def fail(self, reason: str, now_ns: int = 0) -> list[Effect]:
        """Let the disk refuse what waits first."""
        return self.handle(StoreFailed(self.stores.pop(0).ticket, reason), now_ns)

    def read_back(self, effects: Sequence[Effect], now_ns: int = 0) -> list[Effect]:
        """Answer what was asked of the log."""
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Read):
                entries = [entry for entry in self.kept.entries if entry.offset >= effect.offset][: effect.limit]
                found += self.handle(LogRead(effect.ticket, tuple(entries)), now_ns)
        return found

    def run(self, from_ns: int, until_ns: int) -> list[Effect]:
        """Tick whenever the broker asks for it, with a disk that answers."""
        effects: list[Effect] = []
        due = self.next_wakeup()
        while due is not None and due <= until_ns:
            now_ns = max(due, from_ns)
            ticked = self.tick(now_ns)
            effects += [*ticked, *self.read_back(ticked, now_ns), *self.sync(now_ns)]
            later = self.next_wakeup()
            due = later if later is None or later > due else due + 1
        return effects

    # --- clients ---

    def attach(self, session: int, client_id: str, now_ns: int = 0, **up: object) -> int:
        """A client; the incarnation that it was given."""
        effects = self.handle(ClientUp(session, client_id, **up), now_ns)  # type: ignore[arg-type]
        return next(effect.incarnation for effect in effects if isinstance(effect, Welcome))

    def reader(self, session: int, topic: str = "quotes", now_ns: int = 0, **up: object) -> int:
        self.attach(session, f"reader-{session}", now_ns, **up)
        self.handle(Subscribe(session, 1, "topic", topic, 4), now_ns)
        return session


class EventPeer(Peer):
    """A neighbour that hands over events and says what it wants."""

    def hand(self, *frames: Frame | EventFrame, now_ns: int = 0) -> list[Effect]:
        """Let frames arrive in one read; `first` is the number of the first of them."""
        numbered: list[Numbered] = [(self.number + at, frame) for at, frame in enumerate(frames, 1)]
        self.first = self.number + 1
        self.number += len(frames)
        return self.broker.handle(Arrived(self.link, numbered), now_ns)

    def links_to(self, *numbers: int, now_ns: int = 0) -> list[Effect]:
        """Tell that it has connections to these brokers of the cluster."""
        return self.tell(*(self.connection_to(number) for number in numbers), now_ns=now_ns)

    def connection_to(self, number: int, *, up: bool = True, step: int = 0) -> ConnectionRecord:
        low, high = sorted((self.address, mate(number)))
        cost = (step, step)
        return ConnectionRecord(self.link * 1000 + number, 0, low, high, up, cost, cost)

    def wants(self, *topics: str, unit: Unit | None = None, now_ns: int = 0) -> list[Effect]:
        """Say what its unit, or another one, wants: everything, so that the rest is not wanted."""
        whose = self.address if unit is None else unit
        speaker = (*whose, *(0,) * (len(self.address) - len(whose)))
        found = [make_want("topic", topic, 4) for topic in topics]
        rows = [
            Row(whose, want.key, (1, speaker, number), True, want.kind, want.payload, want.scope)
            for number, want in enumerate(found, 1)
        ]
        mark = Row(whose, mark_key(speaker), (1, speaker, len(rows) + 1), True, STANDING, b"", 0)
        effects = self.say(Interest((*rows, mark)), now_ns=now_ns)
        self.broker.profiles.leases.heard(whose, now_ns, now_ns)  # as a sign of life of its speaker would do
        return effects

    def leave(self, now_ns: int = 0) -> list[Effect]:
        return self.broker.handle(LinkDown(self.link, "connection reset"), now_ns)


def peer(host: Host, link: int, address: Address | None = None, now_ns: int = 0) -> EventPeer:
    """A neighbour that has greeted, by default the broker of the cluster with the link's number."""
    made = EventPeer(host, link, mate(link) if address is None else address, now_ns, nonce=1000 + link)
    made.greet(now_ns)
    return made


def relay(*behind: int) -> tuple[Host, EventPeer, EventPeer]:
    """A broker between 1 and 2; these brokers lie behind 2."""
    host = Host()
    up, down = peer(host, 1), peer(host, 2)
    down.links_to(*behind)
    host.sync()
    return host, up, down


def patient(**more: int) -> Settings:
    """Settings under which a neighbour may be silent for hours."""
    hour = 3600 * SECOND_NS
    return Settings(
        suspect_after_ns=2 * hour,
        confirm_after_ns=2 * hour,
        answer_within_ns=2 * hour,
        reconcile_ns=4 * hour,
        lease_ns=5 * hour,
        tombstone_ns=16 * hour,
        **more,  # type: ignore[arg-type]
    )


def origin(settings: Settings | None = None, disk: Disk | None = None) -> tuple[Host, EventPeer, int]:
    """A broker with the publisher p (session 1) and the neighbour 2, which wants everything; p's incarnation."""
    host = Host(settings, disk)
    down = peer(host, 2)
    incarnation = host.attach(1, "p")
    host.sync()
    return host, down, incarnation


# --- events ---


def event_copy(
    sequence: int,
    to_serve: int,
    *,
    event: Event | None = None,
    publisher: str = "p",
    incarnation: int = 1,
    reliable: bool = True,
    origin: Address | None = (0, 0, 0, 9),
    served: int = 0,
    original: tuple[int, int, int] | None = None,
) -> EventFrame:
    """A copy of the event with this sequence, on its way."""
    stamped = replace(
        Event(topic="quotes") if event is None else event,
        event_id=EventId(publisher, incarnation, 1, sequence),
        timestamp_ns=1,
        body=f"e{sequence}".encode(),
    )
    return CODEC.frame(stamped, reliable=reliable, origin=origin, to_serve=to_serve, served=served, original=original)


def publication(
    sequence: int,
    incarnation: int,
    *,
    publisher: str = "p",
    event: Event | None = None,
    reliable: bool = True,
    original: tuple[int, int, int] | None = None,
) -> EventFrame:
    """An event as a client hands it over."""
    return event_copy(
        sequence,
        0,
        event=event,
        publisher=publisher,
        incarnation=incarnation,
        reliable=reliable,
        origin=None,
        original=original,
    )


def give(host: Host, frame: EventFrame, now_ns: int = 0) -> list[Effect]:
    return host.handle(Publish(1, frame), now_ns)


def publish(host: Host, session: int, *frames: EventFrame, now_ns: int = 0) -> list[Effect]:
    """Publish, with a disk that takes it at once."""
    effects: list[Effect] = []
    for frame in frames:
        effects += host.handle(Publish(session, frame), now_ns)
        effects += host.sync(now_ns)
    return effects


# --- what comes out ---


def copies(effects: Sequence[Effect], link: int) -> list[tuple[int, EventFrame]]:
    """The copies that go out over a link, with their numbers."""
    return [
        (number, frame)
        for effect in effects
        if isinstance(effect, Send) and effect.link == link
        for number, frame in effect.frames
        if isinstance(frame, EventFrame)
    ]


def sequences(effects: Sequence[Effect], link: int) -> list[int]:
    """Which events go out over a link, in order."""
    return [frame.sequence for _, frame in copies(effects, link)]


def numbers(effects: Sequence[Effect], link: int) -> list[int]:
    return [number for number, _ in copies(effects, link)]


def frames(effects: Sequence[Effect], link: int, *kinds: type[Frame]) -> list[Frame]:
    """The frames of these kinds that go out over a link."""
    return [
        frame
        for effect in effects
        if isinstance(effect, Send) and effect.link == link
        for _, frame in effect.frames
        if isinstance(frame, kinds)
    ]


def acknowledged(effects: Sequence[Effect], link: int) -> list[int]:
    """The frame numbers that are acknowledged over a link."""
    found: list[int] = []
    for frame in frames(effects, link, Done):
        assert isinstance(frame, Done)
        found += [n for first, last in frame.ranges for n in range(first, last + 1) if frame.contains(n)]
    return found


def delivered(effects: Sequence[Effect], session: int | None = None) -> list[int]:
    """The events that are handed to a client, or to anybody."""
    return [
        effect.frame.sequence
        for effect in effects
        if isinstance(effect, Deliver) and (session is None or session in [each for each, _ in effect.receivers])
    ]


def accepted(effects: Sequence[Effect]) -> list[int]:
    return [effect.id.sequence for effect in effects if isinstance(effect, Accepted)]


def refusals(effects: Sequence[Effect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, PublishRefused)]


def codes(effects: Sequence[Effect]) -> list[RefusalCode]:
    return [effect.why for effect in effects if isinstance(effect, PublishRefused)]


def asked(effects: list[Effect], holder: EventPeer) -> list[int]:
    """The numbers of the frames in which a neighbour is asked to keep something."""
    return [number for number, frame in copies(effects, holder.link) if frame.flags & COPY]


def released(effects: list[Effect], holder: EventPeer) -> list[int]:
    """The sequences of the events whose copies a neighbour may forget."""
    told = frames(effects, holder.link, Release)
    return [sequence for frame in told if isinstance(frame, Release) for *_, sequence in frame.ids]
