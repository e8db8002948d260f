"""What a broker remembers of recent events and subscriptions, so that it can be asked afterwards (`explain.query`).

    accepted, taken on, sent on, handed over, kept, dropped ... --> facts, by event      (bounded; the oldest go first)
    attached, subscribed, acknowledged up to a level, ended     --> stays, by client

A *fact* is one thing that happened to one event at this broker, at a time. An event that its publisher repeats under a
later id is the same event: facts are kept under the id that it had first. A *stay* is a subscription while its client
was here. Facts say what was done, never why: the reason is found by whoever has asked everybody (`verdict`).

With `records = "off"`, the default, nothing is remembered, and the hot path pays one test. `"deliveries"` remembers
what became of events at their two ends, `"all"` the hops between as well. Facts and stays go to the disk with whatever
else an input writes, and nothing waits for them; after a restart what was synced is known again, and a *gap* says from
when to when something may be missing. Bodies are not kept: engines do not see them.

The invariant: what is told is in the order in which it happened; events, stays and bytes are within their bounds.

Rejected: asking the log instead (relays have none, and most events that somebody did not get never came to his broker);
letting events carry their history (it would grow at every hop, and nobody can ask an event that was lost).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import (
    Active,
    ClientDown,
    ClientInput,
    ClientUp,
    DeadLetter,
    Deliver,
    Effect,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.session_id import is_brokers, is_clients
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Noted
from veena.core.messages.addresses import GROUP, INTERNAL
from veena.core.wire.event import LATE, NO_TTL, REDELIVERED, EventCodec, EventFrame
from veena.core.wire.event_id import EventKey, event_key
from veena.core.wire.trace_facts import (
    MAX_FACTS_OF_EVENT,
    MAX_STAY_BYTES,
    MAX_STAYS_TOLD,
    MAX_TEXT,
    MOVED,
    SUSPENDED,
    ClientNote,
    EventNote,
    Fact,
    Note,
    Stay,
    StayNote,
    What,
)
from veena.errors import VeenaError

#: Events that facts are kept of, their frames' bytes, and stays: with ten facts each some 300 MiB at most.
MAX_EVENTS = 100_000
MAX_BYTES = 64 << 20
MAX_STAYS = 100_000
#: Lives of this broker whose gaps are known.
MAX_GAPS = 16
#: While there are clients, a sign of life goes to the disk so often: after a crash it tells when they were last here.
SIGN_NS = 1_000_000_000
#: What a subscription asks for: its kind (the engine), its constraint as msgpack, and its scope.
Asked = tuple[int, bytes, int]
_OWN = INTERNAL.encode()


@dataclass(slots=True, eq=False)
class EventRecord:
    """One event."""

    first: EventKey
    #: The frame without its body, as it goes over a link.
    frame: bytes
    facts: list[Fact] = field(default_factory=list)
    keys: list[EventKey] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordStatistics:
    events: int
    bytes: int
    stays: int
    standing: int


class Records:
    """The memory of one broker."""

    def __init__(self, host: Address, settings: Settings, now_ns: int) -> None:
        self.is_on = settings.records != "off"
        self.hops = settings.records == "all"
        self._host = host
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._events: dict[EventKey, EventRecord] = {}
        #: Every id of an event -> the id that it had first.
        self._firsts: dict[EventKey, EventKey] = {}
        self._bytes = 0
        self._stays: dict[tuple[int, int, int], Stay] = {}
        self._by_client: dict[str, dict[tuple[int, int, int], None]] = {}
        #: (session, number) -> the stay that stands.
        self._standing: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._of_session: dict[int, dict[int, None]] = {}
        self._clients: dict[int, tuple[str, dict[str, str]]] = {}
        #: Sessions that read a durable subscription.
        self._reading: dict[int, None] = {}
        #: From when on everything is remembered that is not forgotten for want of room.
        self.since_ns = now_ns
        #: (from, to): what happened then may be missing.
        self.gaps: list[tuple[int, int]] = []
        self._notes: list[Note] = []
        self._last_effect: Effect | None = None
        self._scanned = 0
        self._signed_ns = self._life_ns = now_ns

    # --- events ---

    def note(
        self,
        frame: EventFrame,
        what: What,
        now_ns: int,
        *,
        units: tuple[Unit, ...] = (),
        peer: Address = (),
        connection: int = 0,
        session: int | None = None,
        subscriptions: tuple[int, ...] = (),
        text: str = "",
        until_ns: int | None = None,
        offset: int = 0,
    ) -> None:
        """Something happened to an event; what brokers write to each other is not remembered."""
        if frame.tail[:1] == _OWN:
            return
        client = "" if session is None else self.client_of(session)
        fact = Fact(
            now_ns, what, units, peer, connection, client, session or 0, subscriptions, text[:MAX_TEXT], until_ns or 0,
            offset,
        )  # fmt: skip
        self._add(frame, fact)

    def note_kept(self, frame: EventFrame, session: int, name: str, now_ns: int) -> None:
        """It is put into the log for a durable subscription; said once of each."""
        record = self.find(event_key(frame))
        facts = () if record is None else record.facts
        if not any(fact.what is What.KEPT and fact.session == session for fact in facts):
            until_ns = 0 if frame.ttl_ms == NO_TTL else now_ns + frame.ttl_ms * MILLISECOND_NS
            self.note(frame, What.KEPT, now_ns, session=session, text=name, until_ns=until_ns)

    def denied(self, frame: EventFrame, session: int, rule: str, now_ns: int) -> None:
        """A client was not given an event that was delivered to it, whether or not it has gone since."""
        record = self.find(event_key(frame)) if self.is_on else None
        given = () if record is None else reversed(record.facts)
        last = next((fact for fact in given if fact.what is What.DELIVERED and fact.session == session), None)
        if last is not None:
            denied = Fact(now_ns, What.DENIED, client=last.client, session=session, text=rule[:MAX_TEXT])
            self._add(frame, denied)

    def _add(self, frame: EventFrame, fact: Fact) -> None:
        key = event_key(frame)
        first = self._firsts.get(key)
        record = self._events.get(first) if first is not None else None
        data = b""
        if record is None:
            try:
                original = frame.section.original
            except VeenaError:
                return  # nobody can match it, and nobody will ask
            first = key if original is None else (key[0], *original)
            record = self._events.get(first)
            if record is None:
                data = self._codec.encode(_without_body(frame), 0)
        assert first is not None
        self._keep(EventNote(key, first, fact, data))

    def _keep(self, note: EventNote) -> None:
        # Audits count what each client got: of that everything goes to the disk, however many there are.
        if self._learn(note) or note.fact.client:
            self._notes.append(note)

    def _learn(self, note: EventNote) -> bool:
        record = self._events.get(note.first)
        if record is None:
            record = self._events[note.first] = EventRecord(note.first, note.frame)
            self._bytes += len(note.frame)
            self._name(record, note.first)
            self._make_room()
        self._name(record, note.key)
        if len(record.facts) >= MAX_FACTS_OF_EVENT:
            return False
        record.facts.append(note.fact)
        return True

    def _name(self, record: EventRecord, key: EventKey) -> None:
        if key not in self._firsts:
            self._firsts[key] = record.first
            record.keys.append(key)

    def _make_room(self) -> None:
        while len(self._events) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._events) > 1):
            record = self._events.pop(next(iter(self._events)))
            self._bytes -= len(record.frame)
            for key in record.keys:
                del self._firsts[key]
            if record.facts:
                self.since_ns = max(self.since_ns, record.facts[-1].at_ns)

    def find(self, key: EventKey) -> EventRecord | None:
        """What is remembered of an event, by any of its ids."""
        first = self._firsts.get(key)
        return None if first is None else self._events[first]

    # --- clients ---

    def client_of(self, session: int) -> str:
        found = self._clients.get(session)
        return "" if found is None else found[0]

    def client(self, given: ClientInput, asked: Asked | None, now_ns: int, group: str = "") -> None:
        """A client came, went, or changed its mind; `asked` is its subscription, or its id when it is reachable."""
        if isinstance(given, ClientUp):
            self._clients[given.session] = (given.client_id, dict(given.attributes))
            if asked is not None:
                self._begin(given.session, 0, asked, now_ns)
        elif isinstance(given, ClientDown):
            ending = "lost" if given.lost else "left"
            if self._reading.pop(given.session, 0) is None:
                self._notes.append(ClientNote(now_ns, self.client_of(given.session), given.session, False, ending))
            self._end_session(given.session, ending, now_ns)
        elif isinstance(given, Subscribe) and asked is not None:
            self._begin(given.session, given.subscription, asked, now_ns, group)
        elif isinstance(given, Unsubscribe):
            self._end(given.session, given.subscription, "unsubscribed", now_ns)

    def reads(self, session: int, now_ns: int) -> None:
        """A client is here for what is kept for it; noted once a session."""
        if self.is_on and session not in self._reading:
            self._reading[session] = None
            self._notes.append(ClientNote(now_ns, self.client_of(session), session, True))

    def suspended(self, session: int, number: int, now_ns: int) -> None:
        """A subscription was ended because evaluating it costs too much."""
        self._end(session, number, SUSPENDED, now_ns)

    def left_group(self, session: int, number: int, now_ns: int) -> None:
        """A member of a group unsubscribes; nothing happens to other subscriptions."""
        name = self._standing.get((session, number))
        if name is not None and self._stays[name].group:
            self._end(session, number, "unsubscribed", now_ns)

    def moved(self, session: int, now_ns: int) -> None:
        """A durable subscription is kept elsewhere from now on."""
        self._end_session(session, MOVED, now_ns)

    def active(self, found: Iterable[Active], now_ns: int) -> None:
        """Subscriptions are acknowledged further."""
        for each in found:
            name = self._standing.get((each.session, each.subscription))
            if name is not None:
                stay = self._stays[name]
                levels = (*(pair for pair in stay.levels if pair[0] < each.level), (each.level, now_ns))
                if all(level < each.level for level, _ in stay.levels):
                    self._put(msgspec.structs.replace(stay, levels=levels))

    def _begin(self, session: int, number: int, asked: Asked, now_ns: int, group: str = "") -> None:
        client, attributes = self._clients.get(session, ("", {}))
        if client.startswith(INTERNAL) and not client.startswith(GROUP):
            return
        kind, payload, scope = asked
        before = self._standing.get((session, number))
        if before is not None and (self._stays[before].kind, self._stays[before].payload) == (kind, payload):
            return  # it was kept over a restart
        stay = Stay(
            client, session, number, kind, payload, scope, now_ns, attributes=attributes,
            durable=is_brokers(session), group=group,
        )  # fmt: skip
        self._put(stay)

    def _end_session(self, session: int, ending: str, now_ns: int) -> None:
        for number in list(self._of_session.get(session, ())):
            self._end(session, number, ending, now_ns)
        self._clients.pop(session, None)

    def _end(self, session: int, number: int, ending: str, now_ns: int, last_seen_ns: int = 0) -> None:
        name = self._standing.get((session, number))
        if name is not None:
            ended = msgspec.structs.replace(
                self._stays[name], ended_ns=now_ns, ending=ending, last_seen_ns=last_seen_ns
            )
            self._put(ended)

    def _put(self, stay: Stay) -> None:
        self._learn_stay(stay)
        self._notes.append(StayNote(stay))

    def _learn_stay(self, stay: Stay) -> None:
        self._stays[stay.name] = stay
        self._by_client.setdefault(stay.client, {})[stay.name] = None
        if stay.ended_ns:
            self._stands_no_more(stay)
        else:
            self._standing[stay.session, stay.number] = stay.name
            self._of_session.setdefault(stay.session, {})[stay.number] = None
        while len(self._stays) > MAX_STAYS:
            gone = self._stays.pop(next(iter(self._stays)))
            self._stands_no_more(gone)
            names = self._by_client[gone.client]
            del names[gone.name]
            if not names:
                del self._by_client[gone.client]
            self.since_ns = max(self.since_ns, gone.ended_ns or gone.begun_ns)

    def _stands_no_more(self, stay: Stay) -> None:
        if self._standing.get((stay.session, stay.number)) == stay.name:
            del self._standing[stay.session, stay.number]
            of = self._of_session[stay.session]
            del of[stay.number]
            if not of:
                del self._of_session[stay.session]

    def stays(self, client: str) -> tuple[Stay, ...]:
        """The latest stays of a client here, oldest first."""
        found: list[Stay] = []
        size = 0
        for name in reversed(self._by_client.get(client, {})):
            stay = self._stays[name]
            size += len(stay.payload)
            if len(found) >= MAX_STAYS_TOLD or size > MAX_STAY_BYTES:
                break
            found.append(stay)
        return tuple(reversed(found))

    # --- the disk ---

    def restore(self, noted: Sequence[Noted], now_ns: int) -> None:
        """What former lives noted; whoever was attached then has gone since."""
        if not noted or not self.is_on:
            return
        life_ns, last_ns = noted[0].life_ns, noted[0].life_ns
        self.since_ns = life_ns
        for each in noted:
            if each.life_ns != life_ns:
                self.gaps.append((last_ns, each.life_ns))
                life_ns = each.life_ns
            last_ns = each.at_ns
            for note in each.notes:
                if isinstance(note, EventNote):
                    self._learn(note)
                elif isinstance(note, StayNote):
                    self._learn_stay(note.stay)
        self.gaps = [*self.gaps, (last_ns, now_ns)][-MAX_GAPS:]
        for session, number in [pair for pair in self._standing if is_clients(pair[0])]:
            self._end(session, number, "its broker was started again", now_ns, last_ns)

    def take(self, effects: Sequence[Effect], now_ns: int) -> Noted | None:
        """The end of an input: note what is handed out, and give what is for the disk."""
        self.look(effects, now_ns)
        if not self._notes and (now_ns < self._signed_ns + SIGN_NS or not self._standing):
            return None
        self._signed_ns = now_ns
        notes, self._notes = tuple(self._notes), []
        return Noted(self._life_ns, now_ns, notes)

    def look(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Note what was handed out since the last look; who is asked within an input looks before it answers."""
        start = self._scanned
        if not (0 < start <= len(effects) and effects[start - 1] is self._last_effect):
            start = 0  # the effects of another input
        for effect in effects[start:]:
            if isinstance(effect, Deliver):
                mark = _mark(effect.frame.flags)
                for session, subscriptions in effect.receivers:
                    self.note(
                        effect.frame, What.DELIVERED, now_ns, session=session, subscriptions=subscriptions, text=mark
                    )
            elif isinstance(effect, DeadLetter):
                record = self.find((effect.id.publisher.encode(), *effect.id[1:]))
                if record is not None:
                    fact = Fact(now_ns, What.BURIED, effect.units, text=effect.reason[:MAX_TEXT])
                    self._keep(EventNote(record.first, record.first, fact))
        self._scanned = len(effects)
        self._last_effect = effects[-1] if effects else None

    def statistics(self) -> RecordStatistics:
        return RecordStatistics(len(self._events), self._bytes, len(self._stays), len(self._standing))

    def check(self) -> None:
        assert len(self._events) <= MAX_EVENTS
        assert self._bytes == sum(len(record.frame) for record in self._events.values())
        assert len(self._firsts) == sum(len(record.keys) for record in self._events.values())
        assert len(self._stays) == sum(map(len, self._by_client.values())) <= MAX_STAYS
        assert all(name in self._stays for name in self._standing.values())


def _mark(flags: int) -> str:
    return "redelivered" if flags & REDELIVERED else "late" if flags & LATE else ""


def _without_body(frame: EventFrame) -> EventFrame:
    copy = frame.copy(0, 0, frame.ttl_ms)
    copy.tail = bytes(frame.tail[: frame.publisher_length + frame.matching_length])
    return copy
