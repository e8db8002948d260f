"""Profiles climb: from a broker's clients to its speaker, from speaker to speaker, and to everybody who must know.

This composes the parts: `subscriptions` hold subscriptions, `speaker` tells what a unit wants, `table` keeps and
passes on what was told, `interest_map` answers which units want an event. Whatever is news in the table goes to all
three (PPP-01..06, PRF-01..11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import (
    Active,
    ClientDown,
    ClientInput,
    ClientRefused,
    ClientUp,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.session_id import is_brokers, is_clients
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.activation import Acknowledgements
from veena.core.interest.constraint import Want, former_want, unreadable, want_of
from veena.core.interest.digest import DIGEST_LEVEL, check_parts, size_of
from veena.core.interest.gateway_filter import Beyond, BeyondStatistics
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.leases import Leases
from veena.core.interest.quota import Quota
from veena.core.interest.receipt_sender import Claimant
from veena.core.interest.receipts import Claims, check_version, have_frames
from veena.core.interest.speaker import Speakers
from veena.core.interest.split_digests import Superseded
from veena.core.interest.subscriptions import REACH, Clients
from veena.core.interest.table import InterestTable, frames, mark_key
from veena.core.journal import Records
from veena.core.messages.addresses import INTERNAL
from veena.core.topology.network_map import NetworkMap
from veena.core.trust.contradictions import Contradictions
from veena.core.trust.epochs import Epochs, first_number
from veena.core.wire.control import Frame
from veena.core.wire.interest import STANDING, Claim, Digest, Have, Interest, Row, Version
from veena.errors import InvalidConstraint, LocalProtocolError, RemoteProtocolError
from veena.matching.base.work import Meter

#: What a client may present of what it has had: as many streams as an end remembers.
MAX_PRESENTED = 100_000


@dataclass(frozen=True, slots=True)
class ProfileStatistics:
    """Sizes, and how many transitions this broker told as a speaker."""

    sessions: int
    subscriptions: int
    rows: int
    digest_bytes: int
    speaks_for: tuple[int, ...]
    transitions: tuple[int, ...]
    #: What is known of the units beyond its links, and what was stopped for it.
    beyond: BeyondStatistics
    #: For each level of `speaks_for`: the wants that the unit tells, which are those that no other one covers.
    told: tuple[int, ...] = ()
    #: The wants told of the broker, its cluster and its super-cluster, and the subscriptions that a quota refused.
    climbing: tuple[int, ...] = ()
    over_quota: int = 0
    #: What others said of the host's own units that its speakers did not say.
    lies: int = 0
    #: Frames from ahead of this broker's clock that had to wait or cost their link; how far the last was, in seconds.
    early: int = 0
    clock_ahead_s: int = 0


class Profiles:
    """One a broker."""

    def __init__(
        self,
        network: NetworkMap,
        settings: Settings,
        now_ns: int,
        known: tuple[Unit, ...] = (),
        is_newcomer: bool = False,
        incarnation: int = 1,
        wall_offset_ns: int = 0,
    ) -> None:
        self._map = network
        self.epochs = Epochs(wall_offset_ns)
        self.contradictions = Contradictions(settings)
        #: Earlier lives told under lower numbers than this one, and in epochs before this one.
        self._begins = (first_number(incarnation), self.epochs.epoch(0, now_ns))
        self._settings = settings
        self.records = Records(network.host, settings, now_ns)
        self.table = InterestTable(network.host)
        #: What one step may spend on evaluating constraints.
        self.meter = Meter(settings.evaluation_work)
        self.clients = Clients(network.host, self.table.own.share, self.meter)
        self.interest = InterestMap(network, self.table, settings.fanout, settings.top, self.meter)
        self.beyond = Beyond(network, self.table, settings.top, self.meter)
        if known:
            self.beyond.restarted(now_ns)
        self.leases = Leases(network, self.table, settings, known, now_ns, is_newcomer)
        self.table.doubted = self.leases.doubted
        self.claims = Claims(network, self.leases)
        self.superseded = Superseded(self.claims)
        self.speakers = Speakers(
            network, self.table, settings.batch_ns, now_ns, self.leases.knows_all, self.claims.is_apart, incarnation,
            self.epochs,
        )  # fmt: skip
        self.quota = Quota(network, settings, self.table, self.speakers)
        self.claimant = Claimant(network, self.table, self.leases, self.claims, settings, self.beyond, incarnation)
        self.acknowledgements = Acknowledgements(
            network, self.clients, self.table, self.leases, self.claims, self.speakers.own.wants.cover_of
        )
        #: Whether a neighbour has told everything that it knows; who begins a network waits for nobody.
        self.is_told = not self.leases.known() and not is_newcomer
        self._elected_version = -1
        self._transitions = [0] * network.levels

    # --- clients ---

    def client(
        self, given: ClientInput, now_ns: int, was_accepted: bool = False, replaces: int | None = None
    ) -> list[ClientRefused]:
        """What a client asks for; a refusal if it cannot be. No quota holds for a subscription that was accepted
        before, and one that replaces another of its session takes its place."""
        subscription = given.subscription if isinstance(given, Subscribe | Unsubscribe) else None
        try:
            if isinstance(given, Subscribe):
                want: Want | None = self._subscribe(given, was_accepted, replaces, now_ns)
            else:
                want = self._client(given, now_ns)
        except (LocalProtocolError, InvalidConstraint) as error:
            return [ClientRefused(given.session, subscription, error.code, str(error))]
        if self.records.is_on:
            self.records.client(given, None if want is None else want.asked, now_ns)
        return []

    def _subscribe(self, given: Subscribe, was_accepted: bool, replaces: int | None, now_ns: int) -> Want:
        leaving = None if replaces is None else self.clients.want(given.session, replaces)

        def admit(want: Want) -> None:
            if not was_accepted:
                self.quota.admit(want, leaving, now_ns)

        want = self.clients.subscribe(
            given.session, given.subscription, given.engine, given.constraint, given.scope, admit
        )
        self._count(want, True, now_ns)
        self.acknowledgements.add(given.session, given.subscription, want, self._is_first(want))
        if not was_accepted:
            self.contradictions.subscribed(given.session, given.subscription, now_ns)
        return want

    def _client(self, given: ClientInput, now_ns: int) -> Want | None:
        """Do it; what is told to others from now on."""
        if isinstance(given, ClientUp):
            if is_clients(given.session) and given.client_id.startswith(INTERNAL):
                raise LocalProtocolError(f"client id {given.client_id!r}: ids that begin with ~ are the brokers' own")
            if len(given.had) + len(given.skips) > MAX_PRESENTED:
                raise LocalProtocolError(
                    f"client {given.client_id} says it has had events of {len(given.had) + len(given.skips)} streams:"
                    f" at most {MAX_PRESENTED}, the latest"
                )
            reach = self.clients.open(given.session, given.client_id, given.reachable, given.attributes)
            if reach is not None:
                self._count(reach, True, now_ns)
                if is_brokers(given.session):
                    self.acknowledgements.add(given.session, REACH, reach, self._is_first(reach))
            return reach
        if isinstance(given, ClientDown):
            until_ns = now_ns + self._settings.grace_ns if given.lost and self._settings.grace_ns > 0 else None
            if self.clients.is_large(given.session):
                self.acknowledgements.departed(given.session)
                gone = self.clients.depart(given.session, until_ns)
            else:
                self.acknowledgements.close(given.session)
                gone = self.clients.close(given.session, until_ns)
            for want in gone:
                self._count(want, False, now_ns)
        elif isinstance(given, Unsubscribe):
            is_told = self.clients.told_want(given.session, given.subscription) is not None
            want = self.clients.unsubscribe(given.session, given.subscription)
            self._count(want, False, now_ns)
            if is_told:
                self.acknowledgements.remove(given.session, given.subscription, want)
        return None

    def _is_first(self, want: Want) -> bool:
        """Whether the subscription that was just counted is the only one that asks for this."""
        return self.speakers.own.wants.count(want) - self.clients.lingering(want) == 1

    def moved(self, session: int, now_ns: int) -> None:
        """What a session wants is read elsewhere from now on; it is still told."""
        if self.records.is_on:
            self.records.moved(session, now_ns)
        self.acknowledgements.close(session)

    def silence(self, session: int, now_ns: int) -> None:
        """Tell others that of what a session wants only old events are wanted here; what comes is matched with it."""
        for want in self.clients.silence(session):
            self._count(former_want(want), True, now_ns)
            self._count(want, False, now_ns)

    def drop_silent(self, session: int, now_ns: int) -> None:
        """End a session that was silenced."""
        for want in self.clients.close(session):
            self._count(former_want(want), False, now_ns)

    def _count(self, want: Want, more: bool, now_ns: int) -> None:
        own = self.speakers.own
        if own.wants.add(want) if more else own.wants.remove(want):
            if more:
                self.quota.added(want, now_ns)
            if more and self.leases.known():
                own.stir(now_ns)
            else:
                own.stir_later(now_ns)  # nobody waits for a withdrawal, nor at a broker alone for anything
        if not more:
            self.quota.removed(want)

    def observe(self, session: int, subscriptions: tuple[int, ...], origin: Address) -> None:
        """An event published at `origin` was delivered for these subscriptions: how far they are seen to be active."""
        self.acknowledgements.observe(session, subscriptions, origin)

    def state(self, session: int, subscription: int) -> tuple[int, int] | None:
        """(observed, acknowledged) of a subscription, each 0 to the number of levels (ACT); None if there is none."""
        return self.acknowledgements.state(session, subscription)

    def active(self, now_ns: int) -> list[Active]:
        """The subscriptions that were acknowledged further since this was asked last."""
        found = self.acknowledgements.review(now_ns)
        if self.records.is_on and found:
            self.records.active(found, now_ns)
        return found

    # --- what others say ---

    def handle(self, frame: Interest, link: int, level: int, now_ns: int) -> None:
        # All links of a cluster bring the same rows: most are no news, and cost one look-up each.
        rows = [row for row in frame.rows if self.table.is_news(row)]
        for unit in dict.fromkeys((*(row.unit for row in rows), *(digest.unit for digest in frame.digests))):
            if self._map.level(unit) < level:
                raise RemoteProtocolError(
                    f"the wants of a level-{self._map.level(unit)} unit must not cross a link of level {level}"
                )
            if max(unit) >= self._settings.fanout:
                raise RemoteProtocolError(f"wants of {unit}: units here are numbered below {self._settings.fanout}")
        for row in rows:  # all of them before any: a frame is taken whole or not at all
            self._check(row)
        for digest in frame.digests:
            self._check_version(digest.unit, digest.version)
            self._check_digest(digest)
        for row in rows:
            self._learn(row, link, now_ns)
        for digest in frame.digests:
            self._learn_digest(digest, link, now_ns)

    def _check(self, row: Row) -> None:
        """Raise RemoteProtocolError unless a row that is news holds a constraint that its engine can read."""
        self._check_version(row.unit, row.version)
        if row.kind == STANDING and row.key != mark_key(row.version[1]):
            raise RemoteProtocolError(f"a mark of {row.unit} with the key of another speaker")
        if row.wanted and row.kind != STANDING:
            if not self._map.level(row.unit) < row.scope <= self._map.levels:
                raise RemoteProtocolError(f"a row of {row.unit} with scope {row.scope}: it would not be told so far")
            want = want_of(row)
            reason = unreadable(want.kind, want.payload)
            if reason is not None:
                raise RemoteProtocolError(f"a row of {row.unit} holds no {want.engine} constraint: {reason}")

    def _check_digest(self, digest: Digest) -> None:
        level = self._map.level(digest.unit)
        if level < DIGEST_LEVEL:
            raise RemoteProtocolError(f"a digest of {digest.unit}: wants of a level-{level} unit are told as rows")
        check_parts(digest.parts, level, self._map.levels)

    def _check_version(self, unit: Unit, version: Version) -> None:
        check_version(unit, version, self._map.levels)

    def handle_claims(self, frame: Have, link: int, level: int, now_ns: int) -> bool:
        """Who has heard what; whether anything of it is news."""
        before = self.claims.changes
        for claim in frame.claims:
            if self._map.level(claim.who) < level:
                raise RemoteProtocolError(f"a claim of {claim.who} must not cross a link of level {level}")
            if any(max(unit) >= self._settings.fanout for unit in (claim.teller, *(mark.unit for mark in claim.marks))):
                raise RemoteProtocolError(f"a claim of {claim.who} names a unit beyond {self._settings.fanout - 1}")
            self.claims.check_claim(claim)
        for claim in frame.claims:
            if claim.teller == self._map.host:
                self.claimant.heard_own(claim, now_ns)
            else:
                self.claims.learn(claim, link, now_ns)
        return self.claims.changes != before

    def clock_set(self, offset_ns: int, now_ns: int) -> bool:
        """The wall clock shows so much more than `now_ns`. Forget what is from ahead of it; whether there was any."""
        self.epochs.offset_ns = offset_ns
        early = [
            unit
            for unit in self.table.units()
            if (latest := self.table.latest(unit)) is not None and not self.epochs.is_credible(latest, now_ns)
        ]
        for unit in early:
            self._forget_wants(unit, now_ns)
        if early:
            self.speakers.start_again(now_ns)
        return bool(early)

    def _forget_wants(self, unit: Unit, now_ns: int) -> None:
        for row in self.table.forget(unit):
            self.acknowledgements.heard(row, None)
            self.interest.heard(row, None)
            self.speakers.heard(row, None, now_ns)
            self.quota.heard(row, None)
            self.beyond.heard(row, None)
        self.interest.forget(unit)
        self.superseded.forget(unit)

    def is_ready(self, now_ns: int) -> bool:
        """Whether what others told is complete, as far as the neighbours know it: events can be accepted."""
        return self.is_told and self.leases.has_met_all(now_ns)

    def snapshot_taken(self, level: int) -> None:
        """A neighbour over a link of this level has told everything that it knows."""
        self.is_told = True
        self.leases.told_everything(level)

    def _learn(self, row: Row, source: int | None, now_ns: int) -> None:
        news = self.table.learn(row, source, now_ns)
        if news is not None:
            if source is not None and row.unit == self._map.host[: len(row.unit)]:
                self._heard_own(row.unit, row.version, self._is_taken_back(*news), now_ns)
            self.leases.note(row.unit, now_ns)
            self._note_speaker(row.unit, row.version, now_ns)
            self.acknowledgements.heard(*news)
            self.interest.heard(*news)
            self.speakers.heard(*news, now_ns, source is None)
            self.quota.heard(*news)
            self.beyond.heard(*news)

    def _is_taken_back(self, before: Row | None, after: Row) -> bool:
        """Whether a row takes back what an office of the host has to tell."""
        return not after.wanted and self.table.own.is_due(after.key, self._map.level(after.unit))

    def _heard_own(self, unit: Unit, version: Version, contradicts: bool, now_ns: int) -> None:
        """Somebody else told something of a unit of the host's own: see whether it is a lie."""
        level, (number, epoch) = self._map.level(unit), self._begins
        if version[1] == self._map.host:
            self.speakers.numbers.passed(version[2])
            is_lie = version[2] > number or version[0] > epoch
        else:
            is_lie = (
                contradicts
                and level in self.speakers.levels()
                and self.speakers.is_settled(self._settings.lease_ns, now_ns)
            )
        if is_lie:
            self.contradictions.heard(level, now_ns)

    def _note_speaker(self, unit: Unit, version: Version, now_ns: int) -> None:
        if version[1] != self._map.host and unit == self._map.host[: len(unit)]:
            self.leases.heard_of_others(self._map.level(unit), now_ns)

    def _learn_digest(self, digest: Digest, source: int | None, now_ns: int) -> None:
        before = self.table.digest(digest.unit)
        if self.table.learn_digest(digest, source):
            if source is not None and digest.unit == self._map.host[: len(digest.unit)]:
                self._heard_own(digest.unit, digest.version, before is None or before.parts != digest.parts, now_ns)
            kept = self.table.digest(digest.unit) or digest
            self.leases.note(kept.unit, now_ns)
            self._note_speaker(digest.unit, digest.version, now_ns)
            self.acknowledgements.heard_digest(kept.unit)
            self.interest.heard_digest(self.superseded.effective(before, kept, now_ns))
            self.speakers.heard_digest(kept, now_ns, source is None)
            self.beyond.heard_digest(kept)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Tell what is due."""
        dropped, gone = self.clients.drop_some()
        for each in dropped:
            self.acknowledgements.remove(*each)
        for want in (*gone, *self.clients.expire(now_ns)):
            self._count(want, False, now_ns)
        self._speak(now_ns)
        self.quota.tick(now_ns)
        self.table.expire(now_ns - 2 * self._settings.forget_wants_ns)
        self.claimant.review(self.speakers.levels(), now_ns)
        self.beyond.tick(now_ns)

    def flush(self, now_ns: int) -> None:
        """Tell what is due after an input that may have brought news."""
        self._speak(now_ns)
        self.beyond.flush(now_ns)  # before the receipts: they say what those beyond have, too
        self.claimant.tell(self.speakers.levels(), now_ns)

    def _speak(self, now_ns: int) -> None:
        """Each office has one turn, upwards: what one level tells is news for the next, and goes on at once. What is
        too much for one turn goes on in the next moment."""
        for level in sorted(self.speakers.levels()):
            for item in self.speakers.review(level, now_ns):
                self._transitions[level] += not (isinstance(item, Row) and item.kind == STANDING)
                if isinstance(item, Row):
                    self._learn(item, None, now_ns)
                else:
                    self._learn_digest(item, None, now_ns)

    def map_changed(self, now_ns: int) -> None:
        """Offices and leases follow the map."""
        self.leases.sync(now_ns)
        if self._map.version != self._elected_version:
            self._elected_version = self._map.version
            self.speakers.elect(now_ns)
        self.claimant.look_around(self.speakers.levels(), now_ns)

    def reconcile(self, now_ns: int) -> bool:
        """Forget units that have been out of reach for long; whether something was forgotten."""
        self.leases.sync(now_ns)
        gone = self.leases.gone_since(now_ns - self._settings.forget_wants_ns)
        for unit in gone:
            self._forget_wants(unit, now_ns)
            self.claims.forget(unit)
            self.leases.forget(unit)
        return bool(gone)

    def all_known(self) -> list[Unit]:
        """The other units around this broker, in reach or not, of this life or an earlier one."""
        return list(dict.fromkeys((*self.interest.vertices(), *self.leases.known())))

    def take_known(self) -> tuple[Unit, ...] | None:
        """The units around this broker that it has heard of, if there are others than when this was asked last."""
        return self.leases.take_known()

    def next_wakeup(self) -> int | None:
        parts = (self.speakers, self.clients, self.claimant, self.acknowledgements, self.beyond)
        due = [part.next_wakeup() for part in parts]
        departure = self.leases.oldest_departure()
        due.append(None if departure is None else departure + self._settings.forget_wants_ns)
        return min((time for time in due if time is not None), default=None)

    # --- passing on ---

    def news(self) -> list[tuple[Row | Digest | Claim, int | None]]:
        """What is to be passed on, claims behind what they are about."""
        return [*self.table.take_news(), *self.claims.take_news()]

    def everything(self, now_ns: int) -> list[Row | Digest | Claim]:
        """What a new link begins with."""
        return [*self.table.everything(), *self.claims.everything(now_ns)]

    def frames(self, items: Iterable[Row | Digest | Claim], level: int) -> list[Frame]:
        """What of this may cross a link of that level."""
        wants: list[Row | Digest] = []
        claims: list[Claim] = []
        for item in items:
            if not isinstance(item, Claim):
                wants.append(item)
            elif self._map.level(item.who) >= level:
                claims.append(item)
        return [*frames(self.table.crossing(wants, level)), *have_frames(claims)]

    def statistics(self) -> ProfileStatistics:
        clients = self.clients.statistics()
        digests = [self.table.digest(unit) for unit in self.table.units()]
        return ProfileStatistics(
            clients.sessions,
            clients.subscriptions,
            len(self.table),
            sum(size_of(digest.parts) for digest in digests if digest is not None),
            tuple(self.speakers.levels()),
            tuple(self._transitions),
            self.beyond.statistics(),
            tuple(self.speakers.told()),
            self.quota.climbing(),
            self.quota.refused,
            self.contradictions.count + self.claimant.forged,
            self.epochs.early,
            self.epochs.ahead_ns // SECOND_NS,
        )

    def check(self) -> None:
        self.clients.check()
        self.table.check()
        self.speakers.check()
        self.quota.check()
        self.leases.check()
        self.claims.check()
        self.claimant.check()
        self.acknowledgements.check()
        self.beyond.check()
        self.records.check()
        self.contradictions.check()
