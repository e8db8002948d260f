"""What units want, as this broker has heard it: one row for each want of each unit, one digest for each large unit.

A unit's wants are told by its speaker to every broker of the enclosing unit and to nobody else: a row of a level-l unit
crosses no link above level l (I4, PPP-04). Each row has a version, (epoch, speaker, number), and the highest one wins:
repeats and detours are harmless, nothing is counted (PPP-06). A withdrawn want stays as a row that says so, until those
who were cut off have forgotten what they knew.

A speaker ends each batch of rows with a *mark*, a standing row under its own name. Over links that keep order, whatever
is passed on or told to a new neighbour has marks behind rows; so who has a speaker's mark has, of every want of that
unit, the row of that version or a later one, whatever way each took: the sender had it, and sent it before. That makes
versions cumulative, and one number a unit and speaker an acknowledgement of all (`receipts`). A digest is complete in
itself: its version is its mark. Acknowledgements compare numbers, which rise through all lives of a speaker; epochs
decide between speakers. So what one says after a start is never acknowledged by what it said before.

Rows of the host's own units that stand are kept with what its offices have to tell (`announced`).

The invariants: for every unit and want the row with the highest version that was ever heard is kept, and passed on
once; nothing is ever sent behind a mark that the mark speaks for. All digests together are within 128 KiB (`digest`):
the more of them there are the more are folded, what is passed on like what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from veena.address import Address, Unit, format_address
from veena.core.interest.announced import OwnWants
from veena.core.interest.constraint import Want, known_want
from veena.core.interest.digest import DIGEST_LEVEL, digest_limit, fitted, size_of
from veena.core.interest.table_row import Kept
from veena.core.wire.interest import MAX_DIGESTS, MAX_ROWS, STANDING, Digest, Interest, Row, Version
from veena.errors import RemoteProtocolError

#: Rows that a broker keeps: the wants of its cluster's brokers and of its super-cluster's clusters, withdrawn included.
MAX_TABLE_ROWS = 1 << 20

#: Constraints in one frame: half of what a control frame may have.
MAX_FRAME_BYTES = 256 * 1024

Slot = tuple[Unit, bytes]
#: Number and epoch of a version: a speaker's numbers rise through all its lives, so the higher pair is the later.
Pair = tuple[int, int]
#: Versions that are shared: beyond that it is begun anew, which costs memory and nothing else.
MAX_VERSIONS = 4096

_NO_ROWS: dict[bytes, Kept] = {}


class InterestTable:
    """Rows and digests by unit, and what of them is still to be passed on."""

    def __init__(self, host: Address) -> None:
        self._host = host
        self._levels = len(host)
        #: What stands of the host's own units is kept apart; here are their marks and what they withdrew.
        self.own = OwnWants()
        self._own_level: dict[Unit, int] = {host[: self._levels - level]: level for level in range(DIGEST_LEVEL)}
        #: The last that each speaker told of them, whether it stands or not.
        self._tellers: dict[Unit, dict[Address, Pair]] = {unit: {} for unit in self._own_level}
        self._rows: dict[Unit, dict[bytes, Kept]] = {}
        self._versions: dict[Version, Version] = {}
        self._digests: dict[Unit, Digest] = {}
        self._gone_ns: dict[Slot, int] = {}
        self._count = 0
        #: What is to be passed on, with the link that it came from.
        self._news: dict[Slot, int | None] = {}
        self._latest: dict[Unit, Version] = {}
        #: How far each speaker of a unit was heard completely; of a digest only who told the present one.
        self._marks: dict[Unit, dict[Address, Pair]] = {}
        #: Counts changes of marks, and units that spoke for the first time or were forgotten.
        self.mark_changes = 0
        self.spoken = 0
        #: Units that may want anything, whatever the table says: whoever keeps the leases answers.
        self.doubted: Callable[[int], tuple[Unit, ...]] = lambda now_ns: ()

    def __len__(self) -> int:
        return self._count

    def rows(self, unit: Unit) -> Iterator[Row]:
        """The wants of a unit that stand."""
        return (kept.row(unit) for kept in self._all(unit) if kept.stands)

    def _all(self, unit: Unit) -> Iterator[Kept]:
        """Everything that is kept of a unit, one by one."""
        level = self._own_level.get(unit)
        if level is not None:
            for want, version in self.own.rows(level):
                yield Kept(want, True, version)
        yield from self._rows.get(unit, _NO_ROWS).values()

    def kept(self, unit: Unit, key: bytes) -> Kept | None:
        found = self._rows.get(unit, _NO_ROWS).get(key)
        level = self._own_level.get(unit)
        if found is not None or level is None:
            return found
        want, version = self.own.find(key), self.own.version(key, level)
        return None if want is None or version is None else Kept(want, True, version)

    def want(self, row: Row) -> Want:
        """The want of a row: the object that stands for it already, if there is one."""
        found = self.own.find(row.key)
        if found is None:
            kept = self._rows.get(row.unit, _NO_ROWS).get(row.key)
            found = kept.want if kept is not None and kept.stands else known_want(row)
        return found

    def digest(self, unit: Unit) -> Digest | None:
        return self._digests.get(unit)

    @property
    def digests(self) -> Mapping[Unit, Digest]:
        """All of them, by unit."""
        return self._digests

    @property
    def digest_limit(self) -> int:
        """What each of the digests may take."""
        return digest_limit(len(self._digests))

    def has_spoken(self, unit: Unit) -> bool:
        """Whether this unit's speaker was ever heard to the end: before that it may want anything."""
        return unit in self._marks

    def marks(self, unit: Unit) -> dict[Address, Pair]:
        """How far each speaker of a unit was heard completely. Not to be changed."""
        return self._marks.get(unit, {})

    def tellers(self, unit: Unit) -> dict[Address, Pair]:
        """The last that each speaker told of an own unit that is known by rows. Not to be changed."""
        return self._tellers[unit]

    def retold(self, unit: Unit, speakers: list[Address], left: dict[Address, Pair]) -> None:
        """What these speakers told of an own unit is told anew, but for what is left."""
        for speaker in speakers:
            del self._tellers[unit][speaker]
        self._tellers[unit].update(left)

    def latest(self, unit: Unit) -> Version | None:
        """The highest version heard of a unit."""
        return self._latest.get(unit)

    def units(self) -> list[Unit]:
        return [*self._rows, *self._digests]

    def is_news(self, row: Row) -> bool:
        """Whether nothing as late is known of this want."""
        known = self.kept(row.unit, row.key)
        return known is None or known.version < row.version

    def learn(self, row: Row, source: int | None, now_ns: int) -> tuple[Row | None, Row] | None:
        """Take in a row; the one before it and itself if it is news."""
        known = self.kept(row.unit, row.key)
        if known is not None and known.version >= row.version:
            return None
        self._check(row.unit)
        if known is None:
            if self._count >= MAX_TABLE_ROWS:
                raise RemoteProtocolError(f"more than {MAX_TABLE_ROWS} rows of interest: no network needs them")
            self._count += 1
        self._put(row)
        slot = (row.unit, row.key)
        self._gone_ns.pop(slot, None)
        if not row.wanted:
            self._gone_ns[slot] = now_ns
        self._note(slot, row.version, source)
        if row.kind == STANDING:
            self._mark(row.unit)[row.version[1]] = pair_of(row.version)
        return None if known is None else known.row(row.unit), row

    def _put(self, row: Row) -> None:
        if len(self._versions) >= MAX_VERSIONS:
            self._versions.clear()
        version = self._versions.setdefault(row.version, row.version)
        kept = Kept(self.want(row) if row.wanted else known_want(row), row.wanted, version)
        rows = self._rows.setdefault(row.unit, {})
        level = self._own_level.get(row.unit)
        if level is not None and kept.stands:
            rows.pop(row.key, None)
            self.own.tell(kept.want, level, version)
            tellers = self._tellers[row.unit]
            tellers[version[1]] = max(tellers.get(version[1], (0, 0)), pair_of(version))
            return
        if level is not None:
            self.own.untell(row.key, level)
        rows[kept.want.key] = kept

    def learn_digest(self, digest: Digest, source: int | None) -> bool:
        known = self._digests.get(digest.unit)
        if known is not None and known.version >= digest.version:
            return False
        self._check(digest.unit)
        self._keep(digest)
        self._note((digest.unit, b"digest"), digest.version, source)
        marks = self._mark(digest.unit)
        marks.clear()
        marks[digest.version[1]] = pair_of(digest.version)
        return True

    def _keep(self, digest: Digest) -> None:
        """Keep a digest within its share; one more unit makes the share of all smaller."""
        self._digests[digest.unit] = digest
        for unit, kept in self._digests.items():
            parts = fitted(kept.parts, self.digest_limit)
            if parts != kept.parts:
                self._digests[unit] = Digest(unit, kept.version, parts)

    def _note(self, slot: Slot, version: Version, source: int | None) -> None:
        # At the end, even if an earlier row of the same want is still to be passed on: the order is that of versions.
        before = self._news.pop(slot, source)
        self._news[slot] = source if before == source else None
        self._latest[slot[0]] = max(self._latest.get(slot[0], version), version)

    def _mark(self, unit: Unit) -> dict[Address, Pair]:
        self.mark_changes += 1
        if unit not in self._marks:
            self._marks[unit] = {}
            self.spoken += 1
        return self._marks[unit]

    def _check(self, unit: Unit) -> None:
        """A unit whose wants may be told here is a sibling of one of the host's own units, or one of them."""
        if len(unit) > self._levels or unit[:-1] != self._host[: len(unit) - 1]:
            raise RemoteProtocolError(f"the wants of {format_address(unit)} must not be told to {self._host}")

    def take_news(self) -> list[tuple[Row | Digest, int | None]]:
        news: list[tuple[Row | Digest, int | None]] = []
        for (unit, key), source in self._news.items():
            kept, digest = self.kept(unit, key), self._digests.get(unit) if key == b"digest" else None
            found = digest if kept is None else kept.row(unit)
            if found is not None:
                news.append((found, source))
        self._news.clear()
        return sorted(news, key=lambda item: _is_mark(item[0]))

    def everything(self) -> list[Row | Digest]:
        """For a new link: everything, marks last."""
        found: list[Row | Digest] = [kept.row(unit) for unit in self._rows for kept in self._all(unit)]
        return sorted([*found, *self._digests.values()], key=lambda item: (_is_mark(item), item.version))

    def crossing(self, items: Iterable[Row | Digest], level: int) -> list[Row | Digest]:
        """What of this may cross a link of that level."""
        return [item for item in items if self._levels - len(item.unit) >= level]

    def expire(self, before_ns: int) -> None:
        """Forget wants that have been withdrawn since before then."""
        while self._gone_ns:
            slot, since = next(iter(self._gone_ns.items()))
            if since >= before_ns:
                return
            del self._gone_ns[slot]
            del self._rows[slot[0]][slot[1]]
            self._count -= 1

    def forget(self, unit: Unit) -> list[Row]:
        """Drop all that is known of a unit that is out of reach for good; what it wanted."""
        rows = list(self._all(unit))
        self._rows.pop(unit, None)
        self._digests.pop(unit, None)
        self._latest.pop(unit, None)
        if self._marks.pop(unit, None) is not None:
            self.mark_changes += 1
            self.spoken += 1
        self._count -= len(rows)
        for kept in rows:
            self._gone_ns.pop((unit, kept.want.key), None)
            if unit in self._own_level:
                self.own.untell(kept.want.key, self._own_level[unit])
                self._tellers[unit].clear()
        return [kept.row(unit) for kept in rows if kept.stands]

    def check(self) -> None:
        self.own.check()
        assert self._count == sum(1 for unit in self._rows for _ in self._all(unit))
        assert self._count == sum(map(len, self._rows.values())) + sum(map(self.own.row_count, range(DIGEST_LEVEL)))
        for unit, key in self._gone_ns:
            assert not self._rows[unit][key].wanted
        for unit in self.units():
            self._check(unit)
            assert self._latest[unit] >= max((row.version for row in self._all(unit)), default=())
        for digest in self._digests.values():
            assert size_of(digest.parts) <= self.digest_limit
        for unit, marks in self._marks.items():
            for speaker, pair in marks.items():
                said = self._digests[unit] if unit in self._digests else self._rows[unit][mark_key(speaker)]
                assert pair_of(said.version) == pair, "a mark is what was heard"


def pair_of(version: Version) -> Pair:
    return version[2], version[0]


def mark_key(speaker: Address) -> bytes:
    """The key of the standing row of a speaker."""
    return bytes(speaker)


def _is_mark(item: Row | Digest) -> bool:
    return isinstance(item, Row) and item.kind == STANDING


def frames(items: list[Row | Digest]) -> list[Interest]:
    """As few frames as hold these, in their order within each kind."""
    found: list[Interest] = []
    rows: list[Row] = []
    digests: list[Digest] = []
    size = 0
    for item in items:
        weight = len(item.payload) if isinstance(item, Row) else size_of(item.parts)
        if size + weight > MAX_FRAME_BYTES or len(rows) == MAX_ROWS or len(digests) == MAX_DIGESTS:
            found.append(Interest(tuple(rows), tuple(digests)))
            rows, digests, size = [], [], 0
        size += weight
        if isinstance(item, Row):
            rows.append(item)
        else:
            digests.append(item)
    if rows or digests:
        found.append(Interest(tuple(rows), tuple(digests)))
    return found
