"""Standing by for the durable subscriptions of another broker of the cluster, and taking its place (design §6, I5).

    home X --> Stand, for each of its durable subscriptions --> S: on disk, and nothing else happens
    copies = 2: --> Hold, for each event that X keeps --> S: on disk, before X answers for the event; Settled when X
                    keeps it no more
    X out of reach for `standby_ns` --> S makes the subscription its own, wants what it wants, and asks for what is
                    kept elsewhere, as if the client had come (`durable.handover`): Move to where else it may be,
                    Gather to everybody in the cluster who keeps events for X (`backlog`)

Nothing is agreed on: from outside a cut link and a lost disk look alike, and taking a place wrongly costs a move, no
event. The place is taken under the version that X had and a little, so whoever the client attaches to later wins, S
goes there with everything, and X itself, should it come back without its client, goes to S; if its client was there
all the while, S goes to X. Of several who took the place the highest version wins. All of that are the rules of
`durable.handover`, and so are order and doubles.

With `copies = 1` what lay in X's log alone is lost with it, and nothing else. Who stands by is X's choice
(`primary`); a cluster of one has nobody.

The invariant: what is held and not settled is on this disk until it was taken in here or X says that nobody needs it.

Rejected: letting S want all along what X wants. It needs no Hold, but a want is told before it is acknowledged, so what
was accepted in between would be at X alone; and with `copies = 1` every event would be on two disks all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from veena.address import Address
from veena.core.boundary.inputs_effects import Subscribe
from veena.core.boundary.settings import READ_BATCH, Settings
from veena.core.boundary.stored import STANDBY, Disk, Entry, Forgotten, Reached, Registered
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.durable.handover import Roaming
from veena.core.durable.intake import KeepsEvents
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable, DurableObserver, Key, remember
from veena.core.interest.constraint import SUBSCRIBED, create_engine, keyed_want, make_want, unreadable
from veena.core.messages.addresses import INTERNAL, broker_id, everybody_id
from veena.core.messages.kinds import (
    MAX_VERSION,
    Backlog,
    Deleted,
    Gather,
    Hold,
    Message,
    Orphan,
    Renew,
    Settled,
    Stand,
    Standby,
    StandDown,
    decode_message,
)
from veena.core.messages.mailbox import Post
from veena.core.wire.event import EventCodec
from veena.core.wire.event_id import EventKey, event_key
from veena.errors import VeenaError
from veena.matching.base.engine import Constraint, Engine
from veena.matching.base.work import Meter

#: Subscriptions of others that one broker stands by for.
MAX_STANDBY = 100_000


@dataclass(slots=True, eq=False)
class _Record:
    """One subscription of another broker."""

    number: int
    home: Address
    client: str
    name: str
    engine: str
    constraint: Constraint
    scope: int
    version: int
    matcher: Engine
    #: What is held of its events lies in the log from here on; nothing of it is needed below.
    cursor: int
    end: int
    #: From where on everything was sent again; None while that is not so.
    afresh: int | None = None
    settled: dict[EventKey, None] = field(default_factory=dict)
    is_reading: bool = False
    #: Its home's place was taken; what was held has been taken in.
    is_taken: bool = False
    is_merged: bool = False
    #: Its home has spoken since: it is back.
    is_back: bool = False

    @property
    def key(self) -> Key:
        return (self.client, self.name)


@dataclass(slots=True)
class _Office:
    """A home whose place was taken: when to ask for what is kept for it, and when there will be no more."""

    ask_ns: int | None
    end_ns: int | None = None


class Standbys(DurableObserver):
    """The subscriptions that one broker stands by for."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        is_in_reach: Callable[[Address], bool],
        durables: Durables,
        roaming: Roaming,
        post: Post,
        log: KeepsEvents,
        ledger: Ledger,
        reader: LogReader,
        disk: Disk,
        now_ns: int,
    ) -> None:
        self._host = host
        self._settings = settings
        self._is_in_reach = is_in_reach
        self._durables = durables
        self._roaming = roaming
        self._post = post
        self._log = log
        self._ledger = ledger
        self._reader = reader
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        #: By home, then client and name.
        self._homes: dict[Address, dict[Key, _Record]] = {}
        self._missing_ns: dict[Address, int] = {}
        self._offices: dict[Address, _Office] = {}
        self._is_stale = True
        for kind, handler in (
            (Stand, self._on_stand),
            (StandDown, self._on_stand_down),
            (Standby, self._on_standby),
            (Hold, self._on_hold),
            (Settled, self._on_settled),
            (Orphan, self._on_orphan),
        ):
            post.deals_with(kind, handler)
        ends: dict[int, int] = {}
        for entry in disk.entries:
            for inbox in entry.inboxes:
                ends[inbox] = entry.offset + 1
        for found in disk.registered.values():
            if found.state == STANDBY:
                self._restore(found, disk.reached.get(found.number, 0), ends.get(found.number, 0))
        #: Homes that are to be asked what is still needed.
        self._renewing = [home for home in self._homes if settings.copies == 2]

    def _restore(self, found: Registered, cursor: int, end: int) -> None:
        assert found.to is not None
        engine = self._engine(found.engine, found.constraint, found.scope)
        if engine is not None:
            record = _Record(
                found.number, found.to, found.client_id, found.name, found.engine, found.constraint, found.scope,
                found.version, engine, cursor, max(cursor, end),
            )  # fmt: skip
            self._homes.setdefault(found.to, {})[record.key] = record

    # --- what the home tells ---

    def _on_stand(self, message: Stand, origin: Address, now_ns: int) -> None:
        if origin == self._host or origin[:-1] != self._host[:-1] or message.engine not in SUBSCRIBED:
            return
        kind = SUBSCRIBED.index(message.engine)
        if unreadable(kind, message.constraint) is not None or not message.scope <= len(self._host):
            return
        constraint = keyed_want(kind, message.constraint, message.scope).constraint
        engine = self._engine(message.engine, constraint, message.scope)
        records = self._homes.setdefault(origin, {})
        record = records.get((message.client, message.name))
        if engine is None or (record is None and sum(map(len, self._homes.values())) >= MAX_STANDBY):
            return
        start = self._log.next_offset
        if record is None:
            number = self._durables.new_number()
            record = records[message.client, message.name] = _Record(
                number, origin, message.client, message.name, message.engine, constraint, message.scope,
                message.version, engine, start, start,
            )  # fmt: skip
            self._ledger.write(Reached(number, start))
        else:
            record.engine, record.constraint, record.scope = message.engine, constraint, message.scope
            record.version, record.matcher, record.is_back = message.version, engine, record.is_taken
            if message.afresh:
                record.afresh = start
        self._ledger.write(
            Registered(
                record.number, record.client, record.name, record.engine, record.constraint, record.scope,
                record.version, (record.number,), STANDBY, origin,
            )
        )  # fmt: skip
        self._is_stale = True

    def _engine(self, engine: str, constraint: Constraint, scope: int) -> Engine | None:
        try:
            matcher = create_engine(make_want(engine, constraint, scope).kind)
            matcher.add(1, make_want(engine, constraint, scope).constraint, 1)
        except VeenaError:
            return None
        return matcher

    def _on_stand_down(self, message: StandDown, origin: Address, now_ns: int) -> None:
        record = self._homes.get(origin, {}).get((message.client, message.name))
        if record is not None:
            self._forget(record)

    def _on_standby(self, message: Standby, origin: Address, now_ns: int) -> None:
        for record in list(self._homes.get(origin, {}).values()):
            if message.address != self._host:
                self._forget(record)
            elif record.afresh is not None:
                record.cursor, record.afresh = max(record.cursor, record.afresh), None
                record.end = max(record.end, record.cursor)
                self._ledger.write(Reached(record.number, record.cursor))

    def _on_hold(self, message: Hold, origin: Address, now_ns: int) -> None:
        try:
            frame = self._codec.read(message.frame)
        except VeenaError:
            return
        records = self._homes.get(origin, {})
        found = [records[key] for key in message.of if key in records]
        if found:
            offset = self._log.keep(frame, tuple(record.number for record in found), now_ns)
            for record in found:
                record.end = offset + 1

    def _on_settled(self, message: Settled, origin: Address, now_ns: int) -> None:
        record = self._homes.get(origin, {}).get((message.client, message.name))
        if record is not None:
            for key in message.keys:
                remember(record.settled, key, None)
            if not record.is_taken:
                self._read(record)

    def _forget(self, record: _Record) -> None:
        del self._homes[record.home][record.key]
        if not self._homes[record.home]:
            del self._homes[record.home]
        self._ledger.write(Forgotten(record.number))

    # --- what is held ---

    def _is_known(self, record: _Record) -> bool:
        return self._homes.get(record.home, {}).get(record.key) is record

    def _read(self, record: _Record) -> None:
        """Look at what is held, from the first on."""
        if record.is_reading or record.cursor >= record.end:
            return
        record.is_reading = True

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            record.is_reading = False
            if self._is_known(record):
                self._found(record, entries, now_ns)

        self._reader.read(record.cursor, READ_BATCH, found, inbox=record.number)

    def _found(self, record: _Record, entries: Sequence[Entry], now_ns: int) -> None:
        """Pass what is settled; once the home's place was taken, take in the rest."""
        before = record.cursor
        for entry in entries:
            if entry.offset < record.cursor:
                continue
            if event_key(entry.frame) not in record.settled:
                if not record.is_taken:
                    break
                data = self._codec.encode(entry.frame, 0)
                self._roaming.take_in(Backlog(record.client, record.name, data, redelivered=True), now_ns)
            record.cursor = entry.offset + 1
        if record.cursor != before:
            self._ledger.write(Reached(record.number, record.cursor))
        if record.is_taken and len(entries) < READ_BATCH:
            record.is_merged = True
        elif entries and record.cursor > entries[-1].offset:
            self._read(record)

    # --- in the home's place ---

    def _take_over(self, home: Address, now_ns: int) -> None:
        self._offices[home] = _Office(now_ns)
        for record in self._homes[home].values():
            record.is_taken = self._stand_in(record, now_ns)
            if record.is_taken:
                record.is_merged = record.cursor >= record.end
                self._read(record)

    def _stand_in(self, record: _Record, now_ns: int) -> bool:
        """Be its home, unless it is here, or went from here to a later one; False when there is no room for it."""
        version = min(record.version + 1 + self._host[-1], MAX_VERSION)
        if any(each.is_here or each.version >= version for each in self._durables.named(record.key)):
            return True
        given = Subscribe(0, 1, record.engine, record.constraint, record.scope, durable=record.name)
        try:
            durable = self._durables.stand_in(given, record.key, version, now_ns)
        except VeenaError:
            return False  # what is held stays
        self._roaming.arriving(durable, record.home, now_ns)
        durable.until_ns = now_ns + 2 * self._patience_ns
        return True

    @property
    def _patience_ns(self) -> int:
        """After this everybody has written down what came for one who is absent, and it has come here."""
        return self._settings.absent_after_ns + self._settings.merge_ns + self._settings.arrive_ns // 2

    def on_active(self, durable: Durable, now_ns: int) -> None:
        """Everybody knows that it is wanted here: what comes from now on comes by itself."""
        for home, office in self._offices.items():
            record = self._homes.get(home, {}).get(durable.key)
            if record is not None and record.is_taken:
                office.ask_ns, office.end_ns = now_ns, None

    def _on_orphan(self, message: Orphan, origin: Address, now_ns: int) -> None:
        records = self._homes.get(message.home, {}) if message.home in self._offices else {}
        try:
            frame = self._codec.read(message.frame)
            event = frame.event()
            inner = decode_message(frame.body) if frame.publisher.startswith(INTERNAL) else None
        except (VeenaError, ValueError):
            return
        if inner is not None:
            self._on_posted(inner, records, now_ns)
            return
        place = frame.origin_address or self._host
        meter = Meter()
        meter.begin()
        for record in list(records.values()):
            size = len(self._host) - record.scope
            if place[:size] != self._host[:size]:
                continue
            matched, undecided = record.matcher.match_within(event, meter)
            if matched or undecided:
                data = message.frame if matched else self._codec.encode(frame.doubtful_copy(), 0)
                self._roaming.take_in(Backlog(record.client, record.name, data, straggler=True), now_ns)

    def _on_posted(self, message: Message, records: dict[Key, _Record], now_ns: int) -> None:
        """What was written to a home whose place was taken."""
        if isinstance(message, Backlog | Deleted):
            record = records.get((message.client, message.name))
            if record is None:
                return
            if isinstance(message, Backlog):
                self._roaming.take_in(message, now_ns)
            elif record.version <= message.version:
                self._forget(record)
                self._roaming.end(message, now_ns)

    # --- time ---

    def reach_changed(self) -> None:
        self._is_stale = True

    def tick(self, now_ns: int) -> None:
        for home in self._renewing:
            self._post.send(broker_id(home), Renew(), now_ns)
        self._renewing = []
        if self._is_stale:
            self._is_stale = False
            for home in self._homes:
                if self._is_in_reach(home):
                    self._missing_ns.pop(home, None)
                else:
                    self._missing_ns.setdefault(home, now_ns)
        for home, since_ns in list(self._missing_ns.items()):
            if home not in self._homes:
                del self._missing_ns[home]
            elif now_ns >= since_ns + self._settings.standby_ns:
                del self._missing_ns[home]
                self._take_over(home, now_ns)
        for home, office in list(self._offices.items()):
            self._serve(home, office, now_ns)

    def _serve(self, home: Address, office: _Office, now_ns: int) -> None:
        """Ask for what is kept for a home, and later once more: what was under way is written down by then."""
        if office.ask_ns is not None and now_ns >= office.ask_ns:
            self._post.send(everybody_id(self._host[:-1]), Gather(home), now_ns)
            office.ask_ns = now_ns + self._patience_ns if office.end_ns is None else None
            office.end_ns = now_ns + 2 * self._patience_ns
        elif office.end_ns is not None and now_ns >= office.end_ns:
            for record in list(self._homes.get(home, {}).values()):
                if record.is_taken and record.is_merged and record.is_back:
                    record.is_taken = record.is_merged = record.is_back = False
                elif record.is_taken and record.is_merged:
                    self._forget(record)
                elif record.is_taken:
                    self._read(record)
            if not any(record.is_taken for record in self._homes.get(home, {}).values()):
                del self._offices[home]
            else:
                office.end_ns = now_ns + self._settings.merge_ns

    def next_wakeup(self) -> int | None:
        if self._homes and (self._is_stale or self._renewing):
            return 0
        due = [since_ns + self._settings.standby_ns for since_ns in self._missing_ns.values()]
        due += [at for each in self._offices.values() for at in (each.ask_ns, each.end_ns) if at is not None]
        return min(due, default=None)

    def __len__(self) -> int:
        return sum(map(len, self._homes.values()))

    def check(self) -> None:
        for home, records in self._homes.items():
            assert records
            for key, record in records.items():
                assert record.key == key
                assert record.home == home != self._host
                assert record.cursor <= record.end
