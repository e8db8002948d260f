"""Who says what a unit wants: its speaker, the lowest of its live controllers (design §5, PPP-01, PPP-04, PPP-05).

A broker always speaks for itself. The controllers of a cluster hold the wants of its brokers, and one of them, the
speaker, tells the super-cluster what the cluster wants, with the cluster as the one that wants it; and so on upwards.
What is told is the difference between what was told before and what should be: transitions, never repeats, gathered for
a short interval a level. From the super-cluster upwards a digest is told instead of rows.

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

from veena.address import Address, Unit, as_seen
from veena.core.controllers import controllers
from veena.core.cover_set import CoverSet
from veena.core.digest import fitted, make_part, merge_digests
from veena.core.interest_frames import MAX_COUNT, STANDING, Digest, DigestPart, Row, Version
from veena.core.interest_table import DIGEST_LEVEL, InterestTable, mark_key, pair_of
from veena.core.kept_row import Kept
from veena.core.map import NetworkMap
from veena.core.want import Want, known_want

#: Parts that a unit falls into: more than a few at once is a network on fire.
MAX_OTHERS = 8


def first_number(incarnation: int) -> int:
    """What a broker counts from in one of its lives: above all that it counted in those before."""
    return min(incarnation << 32, MAX_COUNT)


class Speaker:
    """The voice of one unit of the host."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        level: int,
        interval_ns: int,
        knows_all: Callable[[int], bool],
        is_apart: Callable[[Unit], bool],
        next_number: Callable[[], int],
    ) -> None:
        self.level = level
        self.unit: Unit = network.own(level)
        self.wants = CoverSet(network.levels)
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
        self._interval_ns = interval_ns
        self._knows_all = knows_all
        self._is_apart = is_apart
        self._next_number = next_number
        self._epoch = 0
        self._number = 0
        self.due_ns: int | None = None

    def take_office(self, share: Callable[[Row], Want], now_ns: int) -> None:
        """Gather what the sub-units want from the table."""
        for unit in self._table.units():
            if self.level and unit[:-1] == self.unit and self.level <= DIGEST_LEVEL:
                for row in self._table.rows(unit):
                    self.heard(None, row, share, now_ns)
        self._renewed.clear()
        self.stir(now_ns)

    def heard(self, before: Row | None, after: Row | None, share: Callable[[Row], Want], now_ns: int) -> None:
        """A row of a sub-unit changed."""
        changed = False
        for row, change in ((after, self.wants.add), (before, self.wants.remove)):
            if row is not None and row.wanted and row.kind != STANDING and row.scope > self.level:
                self._renewed[row.key] = None
                want = share(row)
                changed = change(want) or changed
                if want in self.wants:
                    self._gone.pop(row.key, None)
                else:
                    self._gone[row.key] = None
        if changed or (after is not None and self._renewed):
            self.stir(now_ns)

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

    def stir(self, now_ns: int) -> None:
        """Something may have to be told, when the interval is over."""
        if self.due_ns is None:
            self.due_ns = now_ns + self._interval_ns

    def review(self, now_ns: int) -> list[Row | Digest]:
        """What has to be told now."""
        if self.due_ns is None or now_ns < self.due_ns:
            return []
        self.due_ns = None
        sure = self.level == 0 or self._knows_all(self.level)
        certain = sure and not self._is_apart(self.unit)
        if not certain:
            self.stir(now_ns)
        return list(self._rows(sure, certain)) if self.level < DIGEST_LEVEL else list(self._digest(sure))

    def _rows(self, sure: bool, certain: bool) -> list[Row]:
        told = self._table.told(self.unit)
        new = [want for key, want in self.wants.told.items() if key not in told]
        gone = [row for key, row in told.items() if key not in self.wants.told and certain and self._knows_gone(row)]
        for row in gone:
            self._gone.pop(row.want.key, None)
        again = [row.want for row in (self._orphans(told) if sure else ())]
        # First what is wanted in addition, then what no longer is: at no time less than the truth.
        rows = [Row(self.unit, w.key, self._version(), True, w.kind, w.payload, w.scope) for w in (*again, *new)]
        rows += [Row(self.unit, r.want.key, self._version(), False, r.want.kind, b"", r.want.scope) for r in gone]
        unmarked = rows or any(self._is_unmarked(row) for row in told.values() if row.speaker == self._host)
        if sure and (unmarked or not self._table.has_spoken(self.unit)):
            rows.append(Row(self.unit, mark_key(self._host), self._version(), True, STANDING, b"", 0))
        return rows

    def _orphans(self, told: dict[bytes, Kept]) -> list[Kept]:
        """Wants that another speaker told without setting a mark behind them: if it left its office, nobody will. And
        those that came anew while the one who told them is out of reach."""
        renewed, self._renewed = self._renewed, {}
        return [
            row
            for key, row in told.items()
            if row.speaker != self._host
            and key in self.wants.told
            and (self._is_unmarked(row) or (key in renewed and not self._reaches(row.speaker)))
        ]

    def _is_unmarked(self, row: Kept) -> bool:
        return self._table.marks(self.unit).get(row.speaker, (0, 0)) < pair_of(row.version)

    def _knows_gone(self, row: Kept) -> bool:
        return self._reaches(row.speaker) or row.want.key in self._gone or row.want in self.wants

    def _reaches(self, speaker: Address) -> bool:
        """Whether a speaker of the unit can be heard inside it: then the two have one view."""
        return speaker == self._host or as_seen(self._host, speaker) in self._map.reachable()

    def _digest(self, sure: bool) -> list[Digest]:
        parts = tuple(self._parts())
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
        if known is not None and known.parts == parts and (not renewed or self._reaches(known.version[1])):
            return []
        return [Digest(self.unit, self._version(), parts)]

    def _parts(self) -> list[DigestPart]:
        scopes = range(self.level + 1, self._levels + 1)
        if self.level == DIGEST_LEVEL:
            by_scope: dict[int, list[Want]] = {scope: [] for scope in scopes}
            for want in self.wants.told.values():
                by_scope[want.scope].append(want)
            return [make_part(scope, wants) for scope, wants in by_scope.items() if wants]
        found = [self._table.digest(unit) for unit in sorted(self._table.units()) if unit[:-1] == self.unit]
        inner = merge_digests(*(digest.parts for digest in found if digest is not None))
        return [part for part in inner if part.scope in scopes]

    def _version(self) -> Version:
        latest = self._table.latest(self.unit)
        if latest is not None and latest > (self._epoch, self._host, self._number):
            self._epoch = min(max(latest[0], self._epoch) + 1, MAX_COUNT)
        elif latest is None and not self._epoch:
            self._epoch = 1
        self._number = self._next_number()
        return (self._epoch, self._host, self._number)


class Speakers:
    """All the units that the host speaks for."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        intervals_ns: tuple[int, ...],
        now_ns: int,
        knows_all: Callable[[int], bool],
        is_apart: Callable[[Unit], bool],
        incarnation: int,
    ) -> None:
        self._map = network
        #: The last number of a version: one row of numbers for all offices, so that it outlives each.
        self._number = first_number(incarnation)
        self._knows_all = knows_all
        self._is_apart = is_apart
        self._table = table
        self._intervals_ns = intervals_ns
        self._speaking: dict[int, Speaker] = {0: self._make(0)}
        self._speaking[0].stir(now_ns)

    def _make(self, level: int) -> Speaker:
        interval = self._intervals_ns[min(level, len(self._intervals_ns) - 1)]
        return Speaker(self._map, self._table, level, interval, self._knows_all, self._is_apart, self._next_number)

    def _next_number(self) -> int:
        # A sum has a digit to spare, which is 16 bytes more in every row that is kept; a bitwise OR has none.
        self._number = min(self._number + 1, MAX_COUNT) | 0
        return self._number

    def share(self, row: Row) -> Want:
        """The want of a row: the object that another office has of it already, if there is one."""
        for speaker in self._speaking.values():
            if row.key in speaker.wants.told:
                return speaker.wants.told[row.key]
        return known_want(row)

    @property
    def own(self) -> Speaker:
        return self._speaking[0]

    def levels(self) -> list[int]:
        return list(self._speaking)

    def told(self) -> list[int]:
        """How many wants each of these units tells: the widest of all that are in it."""
        return [len(speaker.wants.told) for speaker in self._speaking.values()]

    def elect(self, now_ns: int) -> None:
        """The map changed: take offices that are the host's now, leave those that are not, and look at what others
        told who are in reach again."""
        for level in range(1, self._map.levels):
            speaks = min(controllers(self._map, level)) == self._map.host
            if speaks and level not in self._speaking:
                self._speaking[level] = self._make(level)
                self._speaking[level].take_office(self.share, now_ns)
            elif not speaks:
                self._speaking.pop(level, None)
        for speaker in self._speaking.values():
            speaker.stir(now_ns)

    def heard(self, before: Row | None, after: Row | None, now_ns: int) -> None:
        """A row is news: of a sub-unit that the host speaks above, or of a unit that it speaks for itself."""
        row = after or before
        assert row is not None
        level = self._map.levels - len(row.unit)
        above = self._speaking.get(level + 1)
        if above is not None and above.unit == row.unit[:-1] and above.level <= DIGEST_LEVEL:
            above.heard(before, after, self.share, now_ns)
        own = self._speaking.get(level)
        if own is not None and own.unit == row.unit:
            own.stir(now_ns)  # somebody else, or an earlier life, spoke for it: look whether it is true

    def heard_digest(self, digest: Digest, now_ns: int) -> None:
        level = self._map.levels - len(digest.unit)
        above = self._speaking.get(level + 1)
        if above is not None and above.unit == digest.unit[:-1]:
            above.heard_inner(now_ns)
        own = self._speaking.get(level)
        if own is not None and own.unit == digest.unit:
            own.heard_other(digest, now_ns)

    def review(self, now_ns: int) -> list[Row | Digest]:
        return [item for speaker in self._speaking.values() for item in speaker.review(now_ns)]

    def next_wakeup(self) -> int | None:
        due = (speaker.due_ns for speaker in self._speaking.values())
        return min((time for time in due if time is not None), default=None)

    def check(self) -> None:
        for speaker in self._speaking.values():
            speaker.wants.check()
