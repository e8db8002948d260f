"""Profiles climb: from a broker's clients to its speaker, from speaker to speaker, and to everybody who must know.

This composes the parts: `clients` hold subscriptions, `speaker` tells what a unit wants, `interest_table` keeps and
passes on what was told, `interest` answers which units want an event. Whatever is news in the table goes to all three
(PPP-01..06, PRF-01..11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veena import matching
from veena.address import Unit
from veena.core.boundary import ClientDown, ClientInput, ClientRefused, ClientUp, Subscribe, Unsubscribe
from veena.core.clients import Clients
from veena.core.interest import InterestMap
from veena.core.interest_frames import STANDING, Digest, Interest, Row
from veena.core.interest_table import InterestTable, frames
from veena.core.map import NetworkMap
from veena.core.settings import Settings
from veena.core.speaker import Speakers
from veena.core.want import Want, want_of
from veena.core.wire_faults import DECODE_ERRORS
from veena.errors import InvalidConstraint, LocalProtocolError, RemoteProtocolError


@dataclass(frozen=True, slots=True)
class ProfileStatistics:
    """Sizes, and how many transitions this broker told as a speaker."""

    sessions: int
    subscriptions: int
    rows: int
    digest_bytes: int
    speaks_for: tuple[int, ...]
    transitions: tuple[int, ...]


class Profiles:
    """One a broker."""

    def __init__(self, network: NetworkMap, settings: Settings, now_ns: int) -> None:
        self._map = network
        self._settings = settings
        self.clients = Clients(network.host)
        self.table = InterestTable(network.host)
        self.interest = InterestMap(network, self.table, settings.fanout)
        self.speakers = Speakers(network, self.table, settings.batch_ns, now_ns)
        self._elected_version = -1
        self._missing_ns: dict[Unit, int] = {}
        self._transitions = [0] * network.levels

    # --- clients ---

    def client(self, given: ClientInput, now_ns: int) -> list[ClientRefused]:
        """What a client asks for; a refusal if it cannot be."""
        subscription = given.subscription if isinstance(given, Subscribe | Unsubscribe) else None
        try:
            self._client(given, now_ns)
        except (LocalProtocolError, InvalidConstraint) as error:
            return [ClientRefused(given.session, subscription, str(error))]
        return []

    def _client(self, given: ClientInput, now_ns: int) -> None:
        if isinstance(given, ClientUp):
            self.clients.open(given.session, given.client_id)
        elif isinstance(given, ClientDown):
            for want in self.clients.close(given.session):
                self._count(want, False, now_ns)
        elif isinstance(given, Subscribe):
            want = self.clients.subscribe(
                given.session, given.subscription, given.engine, given.constraint, given.scope
            )
            self._count(want, True, now_ns)
        else:
            self._count(self.clients.unsubscribe(given.session, given.subscription), False, now_ns)

    def _count(self, want: Want, more: bool, now_ns: int) -> None:
        own = self.speakers.own
        if own.wants.add(want) if more else own.wants.remove(want):
            own.stir(now_ns)

    # --- what others say ---

    def handle(self, frame: Interest, link: int, level: int, now_ns: int) -> None:
        for unit in (*(row.unit for row in frame.rows), *(digest.unit for digest in frame.digests)):
            if self._map.level(unit) < level:
                raise RemoteProtocolError(
                    f"the wants of a level-{self._map.level(unit)} unit must not cross a link of level {level}"
                )
            if max(unit) >= self._settings.fanout:
                raise RemoteProtocolError(f"wants of {unit}: units here are numbered below {self._settings.fanout}")
        for row in frame.rows:  # all of them before any: a frame is taken whole or not at all
            self._check(row)
        for row in frame.rows:
            self._learn(row, link, now_ns)
        for digest in frame.digests:
            self._learn_digest(digest, link, now_ns)

    def _check(self, row: Row) -> None:
        """Raise RemoteProtocolError unless a row that is news holds a constraint that its engine can read."""
        known = self.table.row(row.unit, row.key)
        if not row.wanted or row.kind == STANDING or (known is not None and known.version >= row.version):
            return
        want = want_of(row)
        try:
            matching.create(want.engine).add(0, want.constraint, 0)
        except (*DECODE_ERRORS, InvalidConstraint) as error:
            raise RemoteProtocolError(f"a row of {row.unit} holds no {want.engine} constraint: {error}") from None

    def _learn(self, row: Row, source: int | None, now_ns: int) -> None:
        news = self.table.learn(row, source, now_ns)
        if news is not None:
            self.interest.heard(*news)
            self.speakers.heard(*news, now_ns)

    def _learn_digest(self, digest: Digest, source: int | None, now_ns: int) -> None:
        if self.table.learn_digest(digest, source):
            self.interest.heard_digest(digest)
            self.speakers.heard_digest(digest, now_ns)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Tell what is due."""
        for item in self.speakers.review(now_ns):
            self._transitions[self._map.level(item.unit)] += 1
            if isinstance(item, Row):
                self._learn(item, None, now_ns)
            else:
                self._learn_digest(item, None, now_ns)
        self.table.expire(now_ns - self._settings.tombstone_ns)

    def map_changed(self, now_ns: int) -> None:
        """Offices follow the map."""
        if self._map.version != self._elected_version:
            self._elected_version = self._map.version
            self.speakers.elect(now_ns)

    def reconcile(self, now_ns: int) -> bool:
        """Forget units that have been out of reach for long; whether something was forgotten."""
        reach, forgot = self._map.reachable(), False
        for unit in self.table.units():
            if not self.interest.is_vertex(unit) or unit in reach:
                self._missing_ns.pop(unit, None)
            elif now_ns - self._missing_ns.setdefault(unit, now_ns) >= self._settings.tombstone_ns // 2:
                del self._missing_ns[unit]
                for row in self.table.forget(unit):
                    self.interest.heard(row, None)
                    self.speakers.heard(row, None, now_ns)
                self.interest.forget(unit)
                forgot = True
        return forgot

    def next_wakeup(self) -> int | None:
        return self.speakers.next_wakeup()

    # --- passing on ---

    def news(self) -> list[tuple[Row | Digest, int | None]]:
        return self.table.take_news()

    def frames(self, items: Iterable[Row | Digest], level: int) -> list[Interest]:
        """What of this may cross a link of that level."""
        return frames(self.table.crossing(items, level))

    def statistics(self) -> ProfileStatistics:
        clients = self.clients.statistics()
        digests = [self.table.digest(unit) for unit in self.table.units()]
        return ProfileStatistics(
            clients.sessions,
            clients.subscriptions,
            len(self.table),
            sum(len(part.data) for digest in digests if digest is not None for part in digest.parts),
            tuple(self.speakers.levels()),
            tuple(self._transitions),
        )

    def check(self) -> None:
        self.clients.check()
        self.table.check()
        self.speakers.check()
