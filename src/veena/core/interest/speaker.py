"""Who says what a unit wants: its speaker, the lowest of its live controllers (design §5, PPP-01, PPP-04, PPP-05).

A broker always speaks for itself. The controllers of a cluster hold the wants of its brokers, and one of them, the
speaker, tells the super-cluster what the cluster wants, with the cluster as the one that wants it; and so on upwards.
What is told is the difference between what was told before and what should be: transitions, never repeats, at once
after a quiet time and gathered under load (`messages.pace`). From the super-cluster upwards a digest is told, no rows.

A speaker has epochs. It opens a new one whenever somebody else has spoken for the unit, or itself in an earlier life:
its first words then have a higher version than anything that was ever heard, and correct what no longer holds. It
withdraws only what it knows to be gone: a want that it has counted itself, or that was told by a speaker it can reach.
So where a unit has come apart inside and each part has a speaker, both tell what they know and neither takes back what
the other told: wider than the truth while it lasts, never narrower. And as long as it has not heard all parts of the
unit, after a start for example, it adds to what was told, takes nothing back, and sets no mark: a unit whose speaker
has not set one wants all.

The invariant: after a review every want that the unit should tell stands in the table, and of those that it should not
tell only such as a speaker out of reach has told.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from veena.address import Address, Unit, as_seen
from veena.core.boundary.settings import SECOND_NS
from veena.core.interest.announced import Due
from veena.core.interest.constraint import Want
from veena.core.interest.cover_set import CoverSet
from veena.core.interest.digest import DIGEST_LEVEL, fitted, make_parts, merge_digests
from veena.core.interest.table import InterestTable, Pair, mark_key, pair_of
from veena.core.messages.pace import Pace
from veena.core.topology.controllers import controllers
from veena.core.topology.network_map import NetworkMap
from veena.core.trust.epochs import Epochs, first_number
from veena.core.wire.interest import MAX_COUNT, STANDING, Digest, DigestPart, Row, Version

#: Parts that a unit falls into: more than a few at once is a network on fire.
MAX_OTHERS = 8
#: Rows that are told at once, which takes some milliseconds; the rest follow in the next moment. A client may come
#: with 65,536 subscriptions: events would wait, and what is told takes 400 bytes each for a moment, never given back.
MAX_BATCH = 64
#: Wants that one step reads for a digest: some milliseconds where each is another text.
MADE_AT_ONCE = 128
#: A digest of so many wants is made anew when one of them has gone. A larger one when the sixteenth part of its
#: wants has, or after a minute; until then it lets through what only they asked for. A hundred thousand hashes at every
#: change would keep all events waiting.
SMALL_DIGEST = 4096
MAX_SURPLUS = 16
MAX_STALE_NS = 60 * SECOND_NS


class Numbers:
    """The numbers of a broker's versions: one row for all its offices, so that it outlives each."""

    def __init__(self, incarnation: int) -> None:
        self.last = first_number(incarnation)

    def next(self) -> int:
        self.last = min(self.last + 1, MAX_COUNT)
        return self.last

    def passed(self, number: int) -> None:
        """Somebody used this number in the host's name: it counts on from there."""
        self.last = max(self.last, number)


class Speaker:
    """The voice of one unit of the host."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        level: int,
        interval_ns: int,
        knows_all: Callable[[int, int], bool],
        is_apart: Callable[[Unit, int], bool],
        numbers: Numbers,
        epochs: Epochs,
    ) -> None:
        self.level = level
        self.unit: Unit = network.own(level)
        due = Due(table.own, level) if level <= DIGEST_LEVEL else None
        self.wants = CoverSet(network.levels, due)
        #: Wants that this speaker has counted itself until nobody had them any longer, and not yet withdrawn: of these
        #: it knows that they are gone.
        self._gone: dict[bytes, None] = {}
        #: Digests that other speakers of this unit told while this one is in office, out of reach: another part of the
        #: unit is alive, and what it wants is wanted.
        self._others: dict[Address, tuple[DigestPart, ...]] = {}
        #: Wants that came since the last review: if a speaker out of reach told them before, they are told again, since
        #: it may have taken them back.
        self._renewed: dict[bytes, None] = {}
        self._map = network
        self._host = network.host
        self._levels = network.levels
        self._table = table
        self._pace = Pace(interval_ns)
        self._knows_all = knows_all
        self._is_apart = is_apart
        self._numbers = numbers
        self._epochs = epochs
        self._epoch = 0
        self._number = 0
        self.due_ns: int | None = None
        #: Whether there was more to tell than one step has time for.
        self.is_amid = False
        #: Whether what was told of a digest has to be told again, because its signature will not count for long.
        self._is_outdated = False
        #: Of a unit that tells a digest of its wants: what there is of it.
        self._made: list[DigestPart] = []
        #: One that is being made anew, and the keys of what has still to be looked at.
        self._anew: list[DigestPart] = []
        self._rest: list[bytes] | None = None
        #: When it was known to hold nothing that nobody wants.
        self._precise_ns = 0

    def take_office(self, now_ns: int) -> None:
        """Gather what the sub-units want from the table."""
        own = self._table.own
        for unit in self._table.units():
            if self.level and unit[:-1] == self.unit and self.level <= DIGEST_LEVEL:
                for row in list(self._table.rows(unit)):
                    if row.scope > self.level:
                        # The speaker before had compared it with all others. To do so again for thousands at once
                        # would keep all events waiting, and heartbeats too.
                        is_told = self.level < DIGEST_LEVEL and own.version(row.key, self.level) is not None
                        self.wants.add(self._table.want(row), is_told)
        self.stir_later(now_ns)

    def heard(self, before: Row | None, after: Row | None, now_ns: int) -> None:
        """A row of a sub-unit changed."""
        changed = False
        for row, change in ((after, self.wants.add), (before, self.wants.remove)):
            if row is not None and row.wanted and row.kind != STANDING and row.scope > self.level:
                self._renewed[row.key] = None
                want = self._table.want(row)
                changed = change(want) or changed
                if want in self.wants or self.level >= DIGEST_LEVEL:
                    self._gone.pop(row.key, None)
                elif self._table.own.version(row.key, self.level) is not None:  # else there is nothing to withdraw
                    self._gone[row.key] = None
                else:
                    self._gone.pop(row.key, None)
        if after is not None and after.wanted and (changed or self._renewed):
            self.stir(now_ns)
        elif changed or (after is not None and self._renewed):
            self.stir_later(now_ns)  # nobody waits for a withdrawal

    def heard_inner(self, now_ns: int) -> None:
        """The digest of a sub-unit changed."""
        self._renewed[b""] = None
        self.stir(now_ns)

    def heard_other(self, digest: Digest, now_ns: int) -> None:
        """Somebody else told a digest of this unit."""
        if digest.version[1] != self._host:
            self._others.pop(digest.version[1], None)
            self._others[digest.version[1]] = digest.parts
            while len(self._others) > MAX_OTHERS:
                del self._others[next(iter(self._others))]
        self.stir(now_ns)

    def start_again(self, now_ns: int) -> None:
        """Tell in an epoch of today from now on."""
        self._epoch = 0
        self.stir_later(now_ns)

    def tell_again(self, now_ns: int) -> None:
        """Tell the digest once more, under a new version, though nothing has changed."""
        self._is_outdated = True
        self.stir_later(now_ns)

    def has_told(self, version: Version) -> bool:
        """Whether this is the last that the host itself told of the unit."""
        return version == (self._epoch, self._host, self._number)

    def stir(self, now_ns: int) -> None:
        """Something may have to be told: with this input, or under load when the interval is over."""
        due_ns = self._pace.next_ns(now_ns)
        if self.due_ns is None or due_ns < self.due_ns:
            self.due_ns = due_ns

    def stir_later(self, now_ns: int) -> None:
        """Something may have to be told that is better gathered: much of it comes at a time."""
        due_ns = self._pace.later_ns(now_ns)
        if self.due_ns is None or due_ns < self.due_ns:
            self.due_ns = due_ns

    def review(self, now_ns: int) -> list[Row | Digest]:
        """What has to be told now."""
        if self.wants.is_busy and self.wants.go_on():
            self.stir(now_ns)
        if self.due_ns is None or now_ns < self.due_ns:
            return []
        self.due_ns = None
        sure = self.level == 0 or self._knows_all(self.level, now_ns)
        certain = sure and not self._is_apart(self.unit, now_ns)
        if not certain:
            self.stir_later(now_ns)
        if self.level >= DIGEST_LEVEL:
            self._pace.told(now_ns)  # whether or not it differs from the last: making it is work
            return list(self._digest(sure, now_ns))
        rows = self._rows(sure, certain, now_ns)
        if rows:
            self._pace.told(now_ns)
        self.is_amid = len(rows) >= MAX_BATCH
        if self.is_amid:
            self.due_ns = now_ns  # there may be more
        return list(rows)

    def _rows(self, sure: bool, certain: bool, now_ns: int) -> list[Row]:
        """What is told now, with a mark behind it when that is all."""
        own = self._table.own
        if not self.is_amid:
            self._gone = {key: None for key in self._gone if own.version(key, self.level) is not None}
        known = (want for want, version in own.unfounded(self.level) if self._knows_gone(want, version))
        gone = list(islice(known, MAX_BATCH + 1)) if certain else []
        new = own.untold(self.level, MAX_BATCH + 1)
        more = [*(self._orphans() if sure else ()), *new[:MAX_BATCH]]
        less = gone[: MAX_BATCH - len(more)] if len(more) < MAX_BATCH else []
        for want in less:
            self._gone.pop(want.key, None)
        rows: list[Row] = []
        if more or less:
            version = self._version(now_ns)  # one for all: what was told together is kept as such
            # First what is wanted in addition, then what no longer is: at no time less than the truth.
            rows += [Row(self.unit, w.key, version, True, w.kind, w.payload, w.scope) for w in more]
            rows += [Row(self.unit, w.key, version, False, w.kind, b"", w.scope) for w in less]
            if len(new) > MAX_BATCH or len(less) < len(gone):
                return rows
        unmarked = rows or self._is_unmarked(self._host)
        if sure and (unmarked or not self._table.has_spoken(self.unit)):
            rows.append(Row(self.unit, mark_key(self._host), self._version(now_ns), True, STANDING, b"", 0))
        return rows

    def _orphans(self) -> list[Want]:
        """Wants that another speaker told without setting a mark behind them: if it left its office, nobody will. And
        those that came anew while the one who told them is out of reach."""
        own, level = self._table.own, self.level
        renewed, self._renewed = self._renewed, {}
        unmarked = [who for who in self._table.tellers(self.unit) if self._is_left_unmarked(who)]
        found: dict[bytes, Want] = {}
        left: dict[Address, Pair] = {}
        for want, version in own.rows(level) if unmarked else ():
            if version[1] in unmarked and self._is_beyond_mark(version):
                if not own.is_due(want.key, level):
                    continue  # when it is, it is renewed
                if len(found) < MAX_BATCH:
                    found[want.key] = want
                else:
                    left[version[1]] = max(left.get(version[1], (0, 0)), pair_of(version))
        self._table.retold(self.unit, unmarked, left)
        for key in renewed:
            told, again = own.version(key, level), own.find(key)
            if told is None or again is None or not own.is_due(key, level):
                continue
            if self._is_beyond_mark(told) or not self._reaches(told[1]):
                if len(found) < MAX_BATCH:
                    found[key] = again
                else:
                    self._renewed[key] = None
        return list(found.values())

    def _is_unmarked(self, speaker: Address) -> bool:
        """Whether something that a speaker told may have no mark behind it."""
        last = self._table.tellers(self.unit).get(speaker)
        return last is not None and self._table.marks(self.unit).get(speaker, (0, 0)) < last

    def _is_left_unmarked(self, speaker: Address) -> bool:
        """Whether nobody will set that mark: another speaker may not, and the host cannot where somebody has told in
        its name under a number that it has not reached."""
        if not self._is_unmarked(speaker):
            return False
        return speaker != self._host or self._table.tellers(self.unit)[speaker][0] > self._numbers.last

    def _is_beyond_mark(self, version: Version) -> bool:
        return self._table.marks(self.unit).get(version[1], (0, 0)) < pair_of(version)

    def _knows_gone(self, want: Want, version: Version) -> bool:
        return self._reaches(version[1]) or want.key in self._gone or want in self.wants

    def _reaches(self, speaker: Address) -> bool:
        """Whether a speaker of the unit can be heard inside it: then the two have one view."""
        return speaker == self._host or as_seen(self._host, speaker) in self._map.reachable()

    def _digest(self, sure: bool, now_ns: int) -> list[Digest]:
        parts = tuple(self._parts(now_ns))
        if self.level == DIGEST_LEVEL and self._table.own.untold_keys(DIGEST_LEVEL):
            return []  # in a moment, with all of it
        known = self._table.digest(self.unit)
        if not sure:
            if known is None:
                return []
            parts = tuple(merge_digests(parts, known.parts))
        if sure:
            self._others = {speaker: told for speaker, told in self._others.items() if not self._reaches(speaker)}
        if self._others:
            parts = tuple(merge_digests(parts, *self._others.values()))
        # As the table will keep it: otherwise it would seem to differ from what was told, again and again.
        parts = fitted(parts, self._table.digest_limit)
        renewed, self._renewed = self._renewed, {}
        is_told = known is not None and known.parts == parts and (not renewed or self._reaches(known.version[1]))
        if is_told and not self._is_outdated:
            return []
        self._is_outdated = False
        return [Digest(self.unit, self._version(now_ns), parts)]

    def _parts(self, now_ns: int) -> list[DigestPart]:
        if self.level == DIGEST_LEVEL:
            return self._own_parts(now_ns)
        scopes = range(self.level + 1, self._levels + 1)
        found = [self._table.digest(unit) for unit in sorted(self._table.units()) if unit[:-1] == self.unit]
        inner = merge_digests(*(digest.parts for digest in found if digest is not None))
        return [part for part in inner if part.scope in scopes]

    def _own_parts(self, now_ns: int) -> list[DigestPart]:
        """The digest of the wants that rows tell below: with the new ones at once, in the end without the old."""
        own = self._table.own
        count, surplus = own.due_count(DIGEST_LEVEL), own.surplus
        if not surplus and self._rest is None:
            self._precise_ns = now_ns
        is_poor = count <= SMALL_DIGEST or surplus >= count // MAX_SURPLUS or now_ns >= self._stale_ns()
        if self._rest is None and surplus and is_poor:
            self._rest, self._anew = own.take_all(), []
            self._precise_ns = now_ns
        fresh = make_parts(own.take_untold(MADE_AT_ONCE))
        self._made = merge_digests(self._made, fresh) if fresh else self._made
        if self._rest is not None:
            self._make_anew(self._rest, fresh)
        if self._rest is not None or own.untold_keys(DIGEST_LEVEL):
            self.due_ns = now_ns  # there is more
        elif own.surplus and self.due_ns is None:
            self.due_ns = self._stale_ns()
        return self._made

    def _make_anew(self, rest: list[bytes], fresh: list[DigestPart]) -> None:
        """Some more of a digest that holds nothing that nobody wants; when it is whole, it takes the other's place."""
        own = self._table.own
        some, self._rest = rest[-MADE_AT_ONCE:], rest
        del rest[-MADE_AT_ONCE:]
        wants = [own.find(key) for key in some if own.is_due(key, DIGEST_LEVEL)]
        self._anew = merge_digests(self._anew, make_parts([want for want in wants if want is not None]), fresh)
        if not rest:
            self._made, self._anew, self._rest = self._anew, [], None

    def _stale_ns(self) -> int:
        return self._precise_ns + MAX_STALE_NS

    def _version(self, now_ns: int) -> Version:
        latest = self._table.latest(self.unit)
        if latest is not None and latest > (self._epoch, self._host, self._number):
            self._epoch = min(self._epochs.epoch(max(latest[0], self._epoch), now_ns), MAX_COUNT)
        elif latest is None and not self._epoch:
            self._epoch = self._epochs.epoch(0, now_ns)
        self._number = self._numbers.next()
        return (self._epoch, self._host, self._number)


class Speakers:
    """All the units that the host speaks for."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        intervals_ns: tuple[int, ...],
        now_ns: int,
        knows_all: Callable[[int, int], bool],
        is_apart: Callable[[Unit, int], bool],
        incarnation: int,
        epochs: Epochs,
    ) -> None:
        self._map = network
        self.numbers = Numbers(incarnation)
        self._epochs = epochs
        #: When the map changed last, and offices with it.
        self._elected_ns = now_ns
        self._knows_all = knows_all
        self._is_apart = is_apart
        self._table = table
        self._intervals_ns = intervals_ns
        self._speaking: dict[int, Speaker] = {0: self._make(0)}
        self._speaking[0].stir_later(now_ns)

    def _make(self, level: int) -> Speaker:
        interval = self._intervals_ns[min(level, len(self._intervals_ns) - 1)]
        if level <= DIGEST_LEVEL:
            self._table.own.open(level)
        return Speaker(
            self._map, self._table, level, interval, self._knows_all, self._is_apart, self.numbers, self._epochs
        )

    @property
    def own(self) -> Speaker:
        return self._speaking[0]

    def cover(self, level: int) -> CoverSet | None:
        """What the host's unit of this level wants, if the host speaks for it."""
        speaker = self._speaking.get(level)
        return None if speaker is None else speaker.wants

    def levels(self) -> list[int]:
        return list(self._speaking)

    def tell_again(self, now_ns: int) -> None:
        """Digests have to be signed anew."""
        for level, speaker in self._speaking.items():
            if level >= DIGEST_LEVEL:
                speaker.tell_again(now_ns)

    def has_told(self, unit: Unit, version: Version) -> bool:
        """Whether this is the last that the host itself told of one of its units."""
        speaker = self._speaking.get(self._map.levels - len(unit))
        return speaker is not None and speaker.unit == unit and speaker.has_told(version)

    def start_again(self, now_ns: int) -> None:
        """The clock was set back: what was told in epochs from ahead of it has to be told anew."""
        for speaker in self._speaking.values():
            speaker.start_again(now_ns)

    def is_settled(self, lease_ns: int, now_ns: int) -> bool:
        """Whether offices have not changed hands for a lease: nobody has business in another one's."""
        return now_ns >= self._elected_ns + lease_ns

    def told(self) -> list[int]:
        """How many wants each of these units tells: the widest of all that are in it."""
        return [len(speaker.wants.told) for speaker in self._speaking.values()]

    def elect(self, now_ns: int) -> None:
        """The map changed: take offices that are the host's now, leave those that are not, and look at what others
        told who are in reach again."""
        self._elected_ns = now_ns
        for level in range(1, self._map.levels):
            speaks = min(controllers(self._map, level)) == self._map.host
            if speaks and level not in self._speaking:
                self._speaking[level] = self._make(level)
                self._speaking[level].take_office(now_ns)
            elif level in self._speaking and not speaks:
                del self._speaking[level]
                if level <= DIGEST_LEVEL:
                    self._table.own.close(level)
        for speaker in self._speaking.values():
            speaker.stir_later(now_ns)

    def heard(self, before: Row | None, after: Row | None, now_ns: int, is_told_here: bool = False) -> None:
        """A row is news: of a sub-unit that the host speaks above, or of a unit that it speaks for itself."""
        row = after or before
        assert row is not None
        level = self._map.levels - len(row.unit)
        above = self._speaking.get(level + 1)
        if above is not None and above.unit == row.unit[:-1] and above.level <= DIGEST_LEVEL:
            above.heard(before, after, now_ns)
        own = self._speaking.get(level)
        if own is not None and own.unit == row.unit and not is_told_here:
            own.stir(now_ns)  # somebody else, or an earlier life, spoke for it: look whether it is true

    def heard_digest(self, digest: Digest, now_ns: int, is_told_here: bool = False) -> None:
        level = self._map.levels - len(digest.unit)
        above = self._speaking.get(level + 1)
        if above is not None and above.unit == digest.unit[:-1]:
            above.heard_inner(now_ns)
        own = self._speaking.get(level)
        if own is not None and own.unit == digest.unit and not is_told_here:
            own.heard_other(digest, now_ns)

    def review(self, level: int, now_ns: int) -> list[Row | Digest]:
        """What has to be told now of the host's unit of this level, as much as one step has time for."""
        speaker = self._speaking.get(level)
        return [] if speaker is None or self._waits_for_more(level, now_ns) else speaker.review(now_ns)

    def _waits_for_more(self, level: int, now_ns: int) -> bool:
        """Whether a digest would be told again in a moment, because what it is made of is being told: for a second."""
        due_ns = self._speaking[level].due_ns
        return (
            level >= DIGEST_LEVEL
            and due_ns is not None
            and now_ns < due_ns + SECOND_NS
            and any(speaker.is_amid for below, speaker in self._speaking.items() if below < DIGEST_LEVEL)
        )

    def next_wakeup(self) -> int | None:
        if any(speaker.wants.is_busy for speaker in self._speaking.values()):
            return 0
        due = (speaker.due_ns for speaker in self._speaking.values())
        return min((time for time in due if time is not None), default=None)

    def check(self) -> None:
        for speaker in self._speaking.values():
            speaker.wants.check()
