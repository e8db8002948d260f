"""How active each subscription is: up to which level everybody who may choose destinations has heard of it (ACT).

A subscription is *acknowledged* up to the cluster (level 1) when all other brokers of the cluster have its want, up to
the super-cluster (2) when also all other clusters have what the own cluster told of it, and so on to its scope. All of
that the client's own broker sees by itself: it has the rows and digests that its own units tell, and the claims of the
units beside them (`claims`). At each level the want itself counts, or a wider one that is told in its place, or the
digest that has its required atom. It need not be the same at each level: a wider want may go while others still have to
hear of it, and then what it stood for is told. The state is kept for each distinct want, not for each subscription, and
only wants below their scope are looked at, when something changed at their level.

Who must have heard: every known unit beside the own one that is in reach, or was a lease and a margin ago. Who has been
away longer treats the own unit as wanting all, unless another part of that unit still speaks to him. So when the own
unit is not whole, whoever is lost beside it blocks, a whole unit or a part of one, until one of the two is back or
forgotten. One loss alone blocks nobody.

*Observed* is what the client itself can see (ACT-03, ACT-04): the first event from another cluster of its super-cluster
shows that the want has arrived there.

The invariant: what is acknowledged never falls while the subscription stands (ACT-05). It is a matter of the broker
that the client is attached to: elsewhere it begins anew (ACT-06).

Why no want can be acknowledged and then be withdrawn under its subscriber: whoever may speak for a unit is in one of
its sub-units, and has the sub-unit's row before its claim is heard here; and everything that it told before its claim
is known here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veena.address import Address, Unit, as_seen, link_level
from veena.core.boundary import Active
from veena.core.claims import Claims
from veena.core.digest import DigestTest, atom_of
from veena.core.interest_frames import STANDING, Row, Version
from veena.core.interest_table import DIGEST_LEVEL, InterestTable, Pair, pair_of
from veena.core.leases import Leases
from veena.core.map import NetworkMap
from veena.core.want import Want, covers, known_want

#: The least that all have of each speaker of a unit; None where nobody else is there to have anything.
Floor = dict[Address, Pair] | None
Bucket = tuple[int, str]


@dataclass(slots=True)
class _Entry:
    """A distinct want of this broker's clients."""

    want: Want
    #: Acknowledged up to here.
    level: int = 0
    #: (session, subscription).
    subscribers: dict[tuple[int, int], None] = field(default_factory=dict)
    #: What was last heard by all in place of the want.
    told: Want | None = None


@dataclass(slots=True)
class _Subscription:
    entry: _Entry
    observed: int = 0


class Acknowledgements:
    """The state of all subscriptions at one broker."""

    def __init__(self, network: NetworkMap, table: InterestTable, leases: Leases, claims: Claims) -> None:
        self._map = network
        self._table = table
        self._leases = leases
        self._claims = claims
        self._sessions: dict[int, dict[int, _Subscription]] = {}
        self._entries: dict[bytes, _Entry] = {}
        #: Entries below their scope, by the level that they have.
        self._waiting: list[dict[bytes, _Entry]] = [{} for _ in range(network.levels)]
        #: What the own broker and the clusters of the own super-cluster tell, for finding wider wants.
        self._wider: dict[Unit, dict[Bucket, dict[bytes, Want]]] = {}
        self._news: list[Active] = []
        #: Entries of this input: they may be covered by what was told before, and nobody else is concerned.
        self._fresh: dict[bytes, _Entry] = {}
        #: Levels at which something may have changed, whatever the claims say.
        self._stirred: dict[int, None] = {}
        self._floors: dict[int, tuple[bool, Floor]] = {}
        #: The digests of the own units, made ready for asking, with their scopes.
        self._tests: dict[int, tuple[Version, list[tuple[int, DigestTest]]]] = {}
        self._seen = (-1, -1)
        self._release_ns: int | None = None

    # --- subscriptions ---

    def add(self, session: int, subscription: int, want: Want) -> None:
        entry = self._entries.get(want.key)
        if entry is None:
            entry = self._entries[want.key] = _Entry(want)
            self._waiting[0][want.key] = entry
            self._fresh[want.key] = entry
        elif entry.level:
            self._news.append(Active(session, subscription, entry.level))
        entry.subscribers[session, subscription] = None
        self._sessions.setdefault(session, {})[subscription] = _Subscription(entry)

    def remove(self, session: int, subscription: int) -> None:
        found = self._sessions.get(session, {}).pop(subscription, None)
        if found is None:
            return
        entry = found.entry
        del entry.subscribers[session, subscription]
        if not entry.subscribers:
            del self._entries[entry.want.key]
            self._fresh.pop(entry.want.key, None)
            if entry.level < entry.want.scope:
                del self._waiting[entry.level][entry.want.key]

    def close(self, session: int) -> None:
        for subscription in list(self._sessions.get(session, {})):
            self.remove(session, subscription)
        self._sessions.pop(session, None)

    def observe(self, session: int, subscriptions: tuple[int, ...], origin: Address) -> None:
        """An event that was published at `origin` satisfied these (ACT-03, ACT-04)."""
        level = 0 if origin == self._map.host else link_level(self._map.host, origin) + 1
        if level:
            found = self._sessions.get(session, {})
            for number in subscriptions:
                subscription = found.get(number)
                if subscription is not None and subscription.observed < level:
                    subscription.observed = level

    def state(self, session: int, subscription: int) -> tuple[int, int] | None:
        """(observed, acknowledged): 0 not yet, 1 for the cluster, up to the number of levels for the whole system."""
        found = self._sessions.get(session, {}).get(subscription)
        return None if found is None else (found.observed, found.entry.level)

    # --- what is told ---

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row changed."""
        for row, stands in ((before, False), (after, True)):
            if row is None or not self._concerns(row.unit):
                continue
            if row.unit == self._map.host[: len(row.unit)]:
                self._stirred[self._map.level(row.unit)] = None
            if row.wanted and row.kind != STANDING:
                want = known_want(row)
                buckets = self._wider.setdefault(row.unit, {})
                if stands:
                    buckets.setdefault(want.bucket, {})[want.key] = want
                elif want.key in buckets.get(want.bucket, {}):
                    del buckets[want.bucket][want.key]
                    if not buckets[want.bucket]:
                        del buckets[want.bucket]

    def heard_digest(self, unit: Unit) -> None:
        if unit == self._map.host[: len(unit)]:
            self._stirred[self._map.level(unit)] = None

    def _concerns(self, unit: Unit) -> bool:
        """Rows of the host itself and of clusters: in its cluster nobody else tells what its clients want."""
        return unit == self._map.host or self._map.level(unit) == 1

    # --- judging ---

    def review(self) -> list[Active]:
        """Whose state has risen since this was asked last."""
        seen = (self._claims.changes, self._leases.changes)
        now_ns = self._leases.now_ns
        alone_from_ns = self._leases.may_be_alone_from()
        if alone_from_ns is None or now_ns < alone_from_ns:
            return []
        released = self._release_ns is not None and now_ns >= self._release_ns
        if seen != self._seen or released:
            self._seen = seen
            self._release_ns = self._leases.next_release()
            for level, waiting in enumerate(self._waiting):
                if waiting and self._floors.get(level) != self._floor(level):
                    self._stirred[level] = None
        if self._fresh and 0 not in self._stirred:
            self._raise(0, list(self._fresh.values()), *self._floor(0))
        self._fresh.clear()
        if self._stirred:
            for level, waiting in enumerate(self._waiting):  # upwards: who rises is judged at the next level too
                if level in self._stirred and waiting:
                    self._floors[level] = self._floor(level)
                    self._raise(level, list(waiting.values()), *self._floors[level])
            self._stirred.clear()
        news, self._news = self._news, []
        return news

    def _raise(self, level: int, waiting: list[_Entry], found: bool, floor: Floor) -> None:
        """Let those of these rise that everybody has heard of."""
        if not found:
            return
        for entry in [entry for entry in waiting if self._holds(entry, level, floor)]:
            del self._waiting[level][entry.want.key]
            entry.level = level + 1
            self._news += [Active(*subscriber, entry.level) for subscriber in entry.subscribers]
            if entry.level < entry.want.scope:
                self._waiting[entry.level][entry.want.key] = entry
                self._stirred[entry.level] = None

    def _floor(self, level: int) -> tuple[bool, Floor]:
        """Whether all have spoken who must, and the least that they have of what the own unit told."""
        if not self._leases.has_met(level + 1):
            return False, None  # a newcomer does not know yet who else is there
        own = self._map.own(level)
        siblings = self._leases.siblings(level)
        needed = [unit for unit in siblings if self._leases.must_acknowledge(unit)]
        apart = not self._claims.is_whole(level)
        if apart and (len(needed) < len(siblings) or not all(map(self._claims.claims_whole, needed))):
            return False, None
        floor: Floor = None
        # Of what the own unit told, its own brokers must have heard too: gatekeepers among them tell it beyond.
        for unit in (*needed, own) if level else needed:
            marks = self._claims.of(unit)
            if marks is None or own not in marks:
                return False, None
            has = marks[own]
            if floor is None:
                floor = dict(has)
            else:
                floor = {speaker: min(pair, has[speaker]) for speaker, pair in floor.items() if speaker in has}
        if apart and floor is not None:
            # What the speaker of a lost part told it may have taken back since, and everybody but the host knows.
            reach = self._map.reachable()
            floor = {speaker: pair for speaker, pair in floor.items() if as_seen(self._map.host, speaker) in reach}
        return True, floor

    def _holds(self, entry: _Entry, level: int, floor: Floor) -> bool:
        # What was told in place of the want may have gone since: then the want itself is told, or another wider one.
        wants = [entry.told, entry.want] if entry.told is not None and entry.told is not entry.want else [entry.want]
        own = self._map.own(level)
        if level >= DIGEST_LEVEL:
            digest = self._table.digest(own)
            if digest is None or not _has(floor, digest.version):
                return False
            return any(self._digest_has(level, entry.want, want) for want in wants)
        for want in wants:
            told = self._told(own, want, floor)
            if told is not None:
                entry.told = told
                return True
        return False

    def _told(self, own: Unit, want: Want, floor: Floor) -> Want | None:
        """What all have heard of the own unit that asks for this: the want itself, or a wider one."""
        row = self._table.row(own, want.key)
        if row is not None and row.wanted:
            return want if _has(floor, row.version) else None
        for wider in self._wider.get(own, {}).get(want.bucket, {}).values():
            row = self._table.row(own, wider.key)
            if row is not None and _has(floor, row.version) and covers(wider, want):
                return wider
        return None

    def _digest_has(self, level: int, asked: Want, want: Want) -> bool:
        """Whether the own unit's digest lets through what is asked for: by its atom, or that of a wider want that some
        cluster told."""
        tests = [test for scope, test in self._digest_tests(level) if scope >= asked.scope]
        if _lets_through(tests, want):
            return True
        for buckets in self._wider.values():
            for wider in buckets.get(want.bucket, {}).values():
                if _lets_through(tests, wider) and covers(wider, want):
                    return True
        return False

    def _digest_tests(self, level: int) -> list[tuple[int, DigestTest]]:
        digest = self._table.digest(self._map.own(level))
        assert digest is not None
        if level not in self._tests or self._tests[level][0] != digest.version:
            self._tests[level] = (digest.version, [(part.scope, DigestTest(part)) for part in digest.parts])
        return self._tests[level][1]

    def next_wakeup(self) -> int | None:
        if not any(self._waiting):
            return None
        alone_from_ns = self._leases.may_be_alone_from()
        if alone_from_ns is None:
            return None
        return alone_from_ns if self._leases.now_ns < alone_from_ns else self._release_ns

    def __len__(self) -> int:
        return len(self._entries)

    def check(self) -> None:
        held = sum(len(entry.subscribers) for entry in self._entries.values())
        assert held == sum(map(len, self._sessions.values())), "every subscription belongs to one want"
        for level, waiting in enumerate(self._waiting):
            for entry in waiting.values():
                assert entry.level == level < entry.want.scope


def _has(floor: Floor, version: Version) -> bool:
    return floor is None or floor.get(version[1], (0, 0)) >= pair_of(version)


def _lets_through(tests: list[DigestTest], want: Want) -> bool:
    atom = atom_of(want)
    return any(test.may_want([atom]) for test in tests)
