"""How active each subscription is: up to which level everybody who may choose destinations has heard of it (ACT).

A subscription is *acknowledged* up to the cluster (level 1) when all other brokers of the cluster have its want, up to
the super-cluster (2) when also all other clusters have what the own cluster told of it, and so on to its scope. All of
that the client's own broker sees by itself: it has the rows and digests that its own units tell, and the claims of the
units beside them (`receipts`). At each level the want itself counts, or a wider one that is told in its place, or the
digest that has its required atom. It need not be the same at each level: a wider want may go while others still have to
hear of it, and then what it stood for is told. The state is kept for each distinct want, not for each subscription, and
only wants below their scope are looked at, when something changed at their level. Of a want that has reached its scope
nothing is kept: what stands, and does not wait here, has reached it.

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

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice

from veena.address import Address, Unit, as_seen, link_level
from veena.core.boundary.inputs_effects import Active
from veena.core.interest.constraint import TOPIC, Want, covers, known_want
from veena.core.interest.cover_set import ToldWants
from veena.core.interest.digest import DIGEST_LEVEL, DigestTest
from veena.core.interest.leases import Leases
from veena.core.interest.receipts import Claims
from veena.core.interest.subscriptions import Clients
from veena.core.interest.table import InterestTable, Pair, pair_of
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import STANDING, Row, Version

#: Wants that are judged at once, which takes a millisecond or two; the rest follow in the next moment. A digest tells
#: of a hundred thousand together, and so does a unit beside the own one that comes or goes: events would wait.
MAX_JUDGED = 256
#: Wants that wait for something that is not told are judged again whenever anything is; more of them once in a while.
MAX_UNKNOWN = 2048
UNKNOWN_NS = 1_000_000_000

#: Who has a want: the profile id of its only subscription, or those of several (`subscriptions`).
Subscribers = int | dict[int, None]
#: The least that all have of each speaker of a unit; None where nobody else is there to have anything.
Floor = dict[Address, Pair] | None


class Acknowledgements:
    """The state of all subscriptions at one broker."""

    def __init__(
        self,
        network: NetworkMap,
        clients: Clients,
        table: InterestTable,
        leases: Leases,
        claims: Claims,
        cover_of: Callable[[Want], Want | None],
    ) -> None:
        """`cover_of` says what the own broker tells in place of a want that it holds back."""
        self._map = network
        self._clients = clients
        self._table = table
        self._leases = leases
        self._claims = claims
        #: By session and subscription, what was observed.
        self._observed: dict[int, dict[int, int]] = {}
        #: The wants below their scope, by key at the level that they have. A hundred thousand may come at once.
        self._waiting: list[dict[bytes, Subscribers]] = [{} for _ in range(network.levels)]
        #: What was last heard by all in place of such a want, where it was another one.
        self._instead: dict[bytes, Want] = {}
        self._cover_of = cover_of
        #: What the clusters of the own super-cluster tell, for finding wider wants.
        self._wider: dict[Unit, ToldWants] = {}
        self._news: list[Active] = []
        #: Wants that were not judged yet: they may be covered by what was told before, or concern nobody else.
        self._fresh: dict[bytes, None] = {}
        #: Levels at which something may have changed, whatever the claims say, each with the wants that it concerns;
        #: None is all of them.
        self._stirred: dict[int, dict[bytes, None] | None] = {}
        #: For what the waiting wants wait, by level.
        self._causes = [Causes() for _ in range(network.levels)]
        self._floors: dict[int, tuple[bool, Floor]] = {}
        #: The digests of the own units, made ready for asking, with their scopes.
        self._tests: dict[int, tuple[Version, list[tuple[int, DigestTest]]]] = {}
        self._seen = (-1, -1)
        self._release_ns: int | None = None
        #: When `review` has to go on: at once while a digest's wants are left, or when this broker may be alone; None
        #: where it ended, or where nobody can say when it may begin. `review` ends every input that changes anything.
        self._resume_ns: int | None = None

    # --- subscriptions ---

    def add(self, session: int, subscription: int, want: Want, is_first: bool) -> None:
        """A subscription was made; whether it is the first to ask for this."""
        profile = self._clients.profile(session, subscription)
        level = self._level(want)
        if level is None:
            if is_first:
                self._waiting[0][want.key] = profile
                self._fresh[want.key] = None
            else:
                self._news.append(Active(session, subscription, want.scope))
            return
        found = self._waiting[level][want.key]
        if isinstance(found, int):
            found = self._waiting[level][want.key] = {found: None}
        found[profile] = None
        if level:
            self._news.append(Active(session, subscription, level))

    def remove(self, session: int, subscription: int, want: Want) -> None:
        """A subscription that was added is over."""
        if session in self._observed:
            self._observed[session].pop(subscription, None)
        level = self._level(want)
        if level is None:
            return
        found = self._waiting[level][want.key]
        if not isinstance(found, int):
            del found[self._clients.profile(session, subscription)]
        if isinstance(found, int) or not found:
            del self._waiting[level][want.key]
            self._causes[level].forget(want.key)
            self._fresh.pop(want.key, None)
            self._instead.pop(want.key, None)

    def _level(self, want: Want) -> int | None:
        """The level of a want that is below its scope."""
        return next((level for level, waiting in enumerate(self._waiting) if want.key in waiting), None)

    def close(self, session: int) -> None:
        """All that a session asks for is over."""
        for subscription, want in self._clients.told(session):
            self.remove(session, subscription, want)
        self.departed(session)

    def departed(self, session: int) -> None:
        """Nothing more is observed for a session, whose subscriptions are removed by and by."""
        self._observed.pop(session, None)

    def observe(self, session: int, subscriptions: tuple[int, ...], origin: Address) -> None:
        """An event that was published at `origin` satisfied these (ACT-03, ACT-04)."""
        level = 0 if origin == self._map.host else link_level(self._map.host, origin) + 1
        if level:
            observed = self._observed.setdefault(session, {})
            for number in subscriptions:
                if observed.get(number, 0) < level and self._clients.told_want(session, number) is not None:
                    observed[number] = level

    def state(self, session: int, subscription: int) -> tuple[int, int] | None:
        """(observed, acknowledged): 0 not yet, 1 for the cluster, up to the number of levels for the whole system."""
        want = self._clients.told_want(session, subscription)
        if want is None:
            return None
        level = self._level(want)
        return self._observed.get(session, {}).get(subscription, 0), want.scope if level is None else level

    # --- what is told ---

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row changed."""
        for row, stands in ((before, False), (after, True)):
            if row is None or not self._concerns(row.unit):
                continue
            if row.wanted and row.kind != STANDING and row.unit == self._map.host[: len(row.unit)]:
                self._stir(self._map.level(row.unit), row.key)
            if row.wanted and row.kind not in (STANDING, TOPIC) and row.unit != self._map.host:
                told = self._wider.setdefault(row.unit, ToldWants())
                if stands:
                    told.add(known_want(row))
                else:
                    told.remove(known_want(row))
                if not told:
                    del self._wider[row.unit]

    def heard_digest(self, unit: Unit) -> None:
        if unit == self._map.host[: len(unit)]:
            self._stirred[self._map.level(unit)] = None

    def _concerns(self, unit: Unit) -> bool:
        """Rows of the host itself and of clusters: in its cluster nobody else tells what its clients want."""
        return unit == self._map.host or self._map.level(unit) == 1

    # --- judging ---

    def review(self, now_ns: int) -> list[Active]:
        """Whose state has risen since this was asked last."""
        seen = (self._claims.changes, self._leases.changes)
        alone_from_ns = self._leases.may_be_alone_from()
        if alone_from_ns is None or now_ns < alone_from_ns:
            self._resume_ns = alone_from_ns
            return []
        released = self._release_ns is not None and now_ns >= self._release_ns
        if seen != self._seen or released:
            self._seen = seen
            self._release_ns = self._leases.next_release(now_ns)
            for level, waiting in enumerate(self._waiting):
                if waiting:
                    self._move_floor(level, *self._floor(level, now_ns))
        if self._fresh and 0 not in self._stirred:
            self._move_floor(0, *self._floor(0, now_ns))
        if self._fresh and 0 not in self._stirred:
            self._judge(0, self._take_fresh(MAX_JUDGED), self._floors[0], now_ns)
        if self._stirred:
            for level, waiting in enumerate(self._waiting):  # upwards: who rises is judged at the next level too
                if level in self._stirred and waiting:
                    self._move_floor(level, *self._floor(level, now_ns))  # it moves with time, too
                    concerned = self._concerned(level, now_ns)
                    if not level:
                        concerned += self._take_fresh(MAX_JUDGED - len(concerned))
                    self._judge(level, list(dict.fromkeys(concerned)), self._floors[level], now_ns)
            self._stirred = {level: concerned for level, concerned in self._stirred.items() if self._is_left(level)}
        self._resume_ns = now_ns if self._stirred or self._fresh else None
        news, self._news = self._news, []
        return news

    def _stir(self, level: int, key: bytes) -> None:
        """The row of a want changed."""
        concerned = self._stirred.setdefault(level, {})
        if concerned is not None:
            concerned[key] = None
            concerned.update(self._causes[level].take(key))

    def _take_fresh(self, at_most: int) -> list[bytes]:
        """Wants that were not judged yet."""
        fresh = list(islice(self._fresh, at_most))
        for key in fresh:
            del self._fresh[key]
        if not self._fresh:
            self._fresh = {}  # an emptied dict keeps the room of all that were in it
        found = [key for key in fresh if key in self._waiting[0]]
        for key in found:
            self._causes[0].wait(key)
        return found

    def _judge(self, level: int, keys: list[bytes], floor: tuple[bool, Floor], now_ns: int) -> None:
        """Let those of these rise that may."""
        others = self._raise_alone(level, keys, now_ns)
        untold = self._table.own.untold_keys(level) if level < DIGEST_LEVEL else {}
        self._raise(level, [key for key in others if key not in untold], *floor)

    def _move_floor(self, level: int, found: bool, floor: Floor) -> None:
        """Judge what others have heard of meanwhile: all of it where it cannot be said what that is."""
        before = self._floors.get(level)
        self._floors[level] = (found, floor)
        if before == (found, floor) or not found:
            return
        if before is None or not before[0] or before[1] is None or floor is None or level >= DIGEST_LEVEL:
            self._stirred[level] = None
            return
        heard = self._causes[level].heard(floor)
        concerned = self._stirred.setdefault(level, {}) if heard else None
        if concerned is not None:
            concerned.update(dict.fromkeys(heard))

    def _concerned(self, level: int, now_ns: int) -> list[bytes]:
        """Which of the waiting wants may rise, some at a time. One that its unit has yet to tell will be heard of when
        it does."""
        waiting, concerned = self._waiting[level], self._stirred[level]
        if concerned is None:
            concerned = self._stirred[level] = dict.fromkeys(waiting)
        else:
            concerned.update(self._causes[level].take_unknown(now_ns))
        now = list(islice(concerned, MAX_JUDGED))
        for key in now:
            del concerned[key]
        untold = self._table.own.untold_keys(level) if level < DIGEST_LEVEL else {}
        for key in now:
            if key in untold and key in waiting:
                self._causes[level].wait(key)
        return [key for key in now if key in waiting and key not in untold]

    def _is_left(self, level: int) -> bool:
        """Whether wants are still to be judged at a level where that was begun."""
        return bool(self._waiting[level]) and bool(self._stirred[level])

    def _raise_alone(self, level: int, keys: list[bytes], now_ns: int) -> list[bytes]:
        """Let those of these rise to their scope for which nobody else has to hear of them; the others.

        Every broker of the own unit has them. Where no other unit is known up to the scope, that is everybody who may
        publish for them: it is not waited for what is told there, which nobody would read.
        """
        reach = level
        while reach < self._map.levels and not self._leases.siblings(reach) and self._leases.has_met(reach + 1, now_ns):
            reach += 1
        if reach == level:
            return keys
        waiting, others = self._waiting[level], list[bytes]()
        for key in keys:
            want = self._clients.profile_want(_one(waiting[key]))
            if want.scope > reach:
                others.append(key)
                continue
            self._instead.pop(key, None)
            self._causes[level].forget(key)
            subscribers = _all(waiting.pop(key))
            for above in range(level + 1, want.scope + 1):
                self._news += [Active(*self._clients.subscription(profile), above) for profile in subscribers]
        if not waiting:
            self._waiting[level] = {}  # an emptied dict keeps the room of all that were in it
        return others

    def _raise(self, level: int, keys: list[bytes], found: bool, floor: Floor) -> None:
        """Let those of these rise that everybody has heard of."""
        if not found:
            return
        above = level + 1
        waiting = self._waiting[level]
        wants = [self._clients.profile_want(_one(waiting[key])) for key in keys]
        for want in [want for want in wants if self._holds(want, level, floor)]:
            subscribers = waiting.pop(want.key)
            self._causes[level].forget(want.key)
            self._news += [Active(*self._clients.subscription(profile), above) for profile in _all(subscribers)]
            if above < want.scope:
                self._waiting[above][want.key] = subscribers
                self._stir(above, want.key)
            else:
                self._instead.pop(want.key, None)
        if not waiting:
            self._waiting[level] = {}  # an emptied dict keeps the room of all that were in it

    def _floor(self, level: int, now_ns: int) -> tuple[bool, Floor]:
        """Whether all have spoken who must, and the least that they have of what the own unit told."""
        if not self._leases.has_met(level + 1, now_ns):
            return False, None  # a newcomer does not know yet who else is there
        own = self._map.own(level)
        siblings = self._leases.siblings(level)
        needed = [unit for unit in siblings if self._leases.must_acknowledge(unit, now_ns)]
        apart = not self._claims.is_whole(level, now_ns)
        if apart and len(needed) < len(siblings):
            return False, None
        if apart and not all(self._claims.claims_whole(unit, now_ns) for unit in needed):
            return False, None
        floor: Floor = None
        # Of what the own unit told, its own brokers must have heard too: gatekeepers among them tell it beyond.
        for unit in (*needed, own) if level else needed:
            marks = self._claims.of(unit, now_ns)
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

    def _holds(self, asked: Want, level: int, floor: Floor) -> bool:
        # What was told in place of the want may have gone since: then the want itself is told, or another wider one.
        instead = self._instead.get(asked.key)
        wants = [asked] if instead is None else [instead, asked]
        own = self._map.own(level)
        if level >= DIGEST_LEVEL:
            digest = self._table.digest(own)
            if digest is None or not _has(floor, digest.version):
                return False
            return any(self._digest_has(level, asked, want) for want in wants)
        for want in wants:
            told = self._told(level, own, asked, want, floor)
            if told is not None:
                if told.key == asked.key:
                    self._instead.pop(asked.key, None)
                else:
                    self._instead[asked.key] = told
                return True
        return False

    def _told(self, level: int, own: Unit, asked: Want, want: Want, floor: Floor) -> Want | None:
        """What all have heard of the own unit that asks for this: the want itself, or a wider one."""
        causes = self._causes[level]
        row = self._table.kept(own, want.key)
        if row is not None and row.wanted:
            if _has(floor, row.version):
                return want
            causes.wait_for(asked.key, want.key, row.version)
            return None
        for wider in self._comparable(level, own, want):
            row = self._table.kept(own, wider.key)
            if row is not None and row.wanted:
                if _has(floor, row.version):
                    return wider
                causes.wait_for(asked.key, wider.key, row.version)
        causes.wait(asked.key)
        return None

    def _comparable(self, level: int, unit: Unit, want: Want) -> Iterator[Want]:
        """What a unit tells, or will tell, that is wider than a want."""
        if level == 0:
            cover = self._cover_of(want)
            if cover is not None:
                yield cover
            return
        for topic in self._topics(unit, want.topic_keys(self._map.levels)):
            if covers(topic, want):
                yield topic
        told = self._wider.get(unit)
        if told is not None:
            yield from told.wider(want)

    def _topics(self, unit: Unit, keys: list[bytes]) -> list[Want]:
        rows = [self._table.kept(unit, key) for key in keys]
        return [row.want for row in rows if row is not None and row.wanted]

    def _digest_has(self, level: int, asked: Want, want: Want) -> bool:
        """Whether the own unit's digest lets through what is asked for: by its atoms, or those of a wider want that
        some cluster told."""
        tests = [test for scope, test in self._digest_tests(level) if scope >= asked.scope]
        if _lets_through(tests, want):
            return True
        keys = want.topic_keys(self._map.levels)
        for unit in filter(self._concerns, self._table.units()) if keys else ():
            if any(_lets_through(tests, wider) and covers(wider, want) for wider in self._topics(unit, keys)):
                return True
        return any(_lets_through(tests, wider) for told in self._wider.values() for wider in told.wider(want))

    def _digest_tests(self, level: int) -> list[tuple[int, DigestTest]]:
        digest = self._table.digest(self._map.own(level))
        assert digest is not None
        if level not in self._tests or self._tests[level][0] != digest.version:
            self._tests[level] = (digest.version, [(part.scope, DigestTest(part)) for part in digest.parts])
        return self._tests[level][1]

    def next_wakeup(self) -> int | None:
        if not any(self._waiting):
            return None
        return self._release_ns if self._resume_ns is None else self._resume_ns

    def __len__(self) -> int:
        """The wants that are not yet acknowledged up to their scope."""
        return sum(map(len, self._waiting))

    def check(self) -> None:
        keys = [key for waiting in self._waiting for key in waiting]
        assert len(keys) == len(set(keys)), "a want waits at one level"
        for level, waiting in enumerate(self._waiting):
            for key, found in waiting.items():
                subscriptions = [self._clients.subscription(profile) for profile in _all(found)]
                wants = [self._clients.told_want(*each) for each in subscriptions]
                assert wants and all(want is not None and want.key == key and level < want.scope for want in wants)
        assert all(key in keys for key in self._instead)


class Causes:
    """For what the wants wait that wait at one level: for others to hear of a row, or for something that nobody told.

    The invariant: a want that waits for a row is judged again when that row changes or is heard of by others; one that
    waits for something unknown whenever anything is told at this level, but no more than once in `UNKNOWN_NS` where
    these are many.
    """

    def __init__(self) -> None:
        #: By want the key of the row, and by that key the wants.
        self._row: dict[bytes, bytes] = {}
        self._wants: dict[bytes, dict[bytes, None]] = {}
        #: By speaker: the rows that it told and that others have yet to hear of, a heap.
        self._unheard: dict[Address, list[tuple[Pair, bytes]]] = {}
        self._unknown: dict[bytes, None] = {}
        self._asked_ns = 0

    def wait_for(self, want: bytes, row: bytes, version: Version) -> None:
        """A want waits until others have heard of a row; until that of several where the first is heard."""
        if self._row.get(want) == row:
            return
        self.forget(want)
        self._row[want] = row
        wants = self._wants.setdefault(row, {})
        if not wants:
            heappush(self._unheard.setdefault(version[1], []), (pair_of(version), row))
        wants[want] = None

    def wait(self, want: bytes) -> None:
        """A want waits for something that is not told yet, unless it waits for a row."""
        if want not in self._row:
            self._unknown[want] = None

    def forget(self, want: bytes) -> None:
        self._unknown.pop(want, None)
        row = self._row.pop(want, None)
        if row is not None:
            wants = self._wants[row]
            del wants[want]
            if not wants:
                del self._wants[row]

    def take(self, row: bytes) -> dict[bytes, None]:
        """The wants that waited for a row, which they do no longer."""
        found = self._wants.pop(row, {})
        for want in found:
            del self._row[want]
        return found

    def heard(self, floor: dict[Address, Pair]) -> list[bytes]:
        """The wants that waited for rows up to these."""
        found: list[bytes] = []
        for speaker, rows in list(self._unheard.items()):
            least = floor.get(speaker, (0, 0))
            while rows and rows[0][0] <= least:
                found += self.take(heappop(rows)[1])
            if not rows:
                del self._unheard[speaker]
        return found

    def take_unknown(self, now_ns: int) -> dict[bytes, None]:
        """The wants that wait for nothing known, to be judged again."""
        if len(self._unknown) > MAX_UNKNOWN and now_ns < self._asked_ns + UNKNOWN_NS:
            return {}
        self._asked_ns = now_ns
        found, self._unknown = self._unknown, {}
        return found


def _one(found: Subscribers) -> int:
    return found if isinstance(found, int) else next(iter(found))


def _all(found: Subscribers) -> list[int]:
    return [found] if isinstance(found, int) else list(found)


def _has(floor: Floor, version: Version) -> bool:
    return floor is None or floor.get(version[1], (0, 0)) >= pair_of(version)


def _lets_through(tests: list[DigestTest], want: Want) -> bool:
    return any(test.holds(want) for test in tests)
