"""What units want, as this broker has heard it: one row for each want of each unit, one digest for each large unit.

A unit's wants are told by its speaker to every broker of the enclosing unit and to nobody else: a row of a level-l unit
crosses no link above level l (I4, PPP-04). Each row has a version, (epoch, speaker, number), and the highest one wins:
repeats and detours are harmless, nothing is counted (PPP-06). A withdrawn want stays as a row that says so, until those
who were cut off have forgotten what they knew.

The invariant: for every unit and want the row with the highest version that was ever heard is kept, and passed on once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from veena.address import Address, Unit, format_address
from veena.core.interest_frames import MAX_DIGESTS, MAX_ROWS, STANDING, Digest, Interest, Row, Version
from veena.core.want import want_of
from veena.errors import RemoteProtocolError

#: Rows that a broker keeps: the wants of its cluster's brokers and of its super-cluster's clusters, withdrawn included.
MAX_TABLE_ROWS = 1 << 20
#: Units of this level and above are known by digests.
DIGEST_LEVEL = 2

#: Constraints in one frame: half of what a control frame may have.
MAX_FRAME_BYTES = 256 * 1024

Slot = tuple[Unit, bytes]


class InterestTable:
    """Rows and digests by unit, and what of them is still to be passed on."""

    def __init__(self, host: Address) -> None:
        self._host = host
        self._levels = len(host)
        self._rows: dict[Unit, dict[bytes, Row]] = {}
        self._digests: dict[Unit, Digest] = {}
        self._gone_ns: dict[Slot, int] = {}
        self._count = 0
        #: What is to be passed on, with the link that it came from.
        self._news: dict[Slot, int | None] = {}

    def __len__(self) -> int:
        return self._count

    def rows(self, unit: Unit) -> Iterator[Row]:
        """The wants of a unit that stand."""
        return (row for row in self._rows.get(unit, {}).values() if row.wanted and row.kind != STANDING)

    def row(self, unit: Unit, key: bytes) -> Row | None:
        return self._rows.get(unit, {}).get(key)

    def digest(self, unit: Unit) -> Digest | None:
        return self._digests.get(unit)

    def has_spoken(self, unit: Unit) -> bool:
        """Whether this unit's speaker was ever heard: before that it may want anything."""
        return b"" in self._rows.get(unit, {}) or unit in self._digests

    def latest(self, unit: Unit) -> Version | None:
        """The highest version heard of a unit."""
        versions = [row.version for row in self._rows.get(unit, {}).values()]
        if unit in self._digests:
            versions.append(self._digests[unit].version)
        return max(versions, default=None)

    def units(self) -> list[Unit]:
        return [*self._rows, *self._digests]

    def learn(self, row: Row, source: int | None, now_ns: int) -> tuple[Row | None, Row] | None:
        """Take in a row; the one before it and itself if it is news."""
        known = self._rows.get(row.unit, {}).get(row.key)
        if known is not None and known.version >= row.version:
            return None
        self._check(row.unit)
        if row.wanted and row.kind != STANDING:
            want_of(row)
        if known is None:
            if self._count >= MAX_TABLE_ROWS:
                raise RemoteProtocolError(f"more than {MAX_TABLE_ROWS} rows of interest: no network needs them")
            self._count += 1
        self._rows.setdefault(row.unit, {})[row.key] = row
        slot = (row.unit, row.key)
        self._gone_ns.pop(slot, None)
        if not row.wanted:
            self._gone_ns[slot] = now_ns
        self._news[slot] = source if self._news.get(slot, source) == source else None
        return known, row

    def learn_digest(self, digest: Digest, source: int | None) -> bool:
        known = self._digests.get(digest.unit)
        if known is not None and known.version >= digest.version:
            return False
        self._check(digest.unit)
        self._digests[digest.unit] = digest
        slot = (digest.unit, b"digest")
        self._news[slot] = source if self._news.get(slot, source) == source else None
        return True

    def _check(self, unit: Unit) -> None:
        """A unit whose wants may be told here is a sibling of one of the host's own units, or one of them."""
        if len(unit) > self._levels or unit[:-1] != self._host[: len(unit) - 1]:
            raise RemoteProtocolError(f"the wants of {format_address(unit)} must not be told to {self._host}")

    def take_news(self) -> list[tuple[Row | Digest, int | None]]:
        news: list[tuple[Row | Digest, int | None]] = []
        for (unit, key), source in self._news.items():
            found = self._digests.get(unit) if key == b"digest" else self._rows.get(unit, {}).get(key)
            if found is not None:
                news.append((found, source))
        self._news.clear()
        return news

    def everything(self) -> list[Row | Digest]:
        """For a new link, in the order of versions: who has a later row has the earlier ones."""
        found: list[Row | Digest] = [row for rows in self._rows.values() for row in rows.values()]
        return sorted([*found, *self._digests.values()], key=lambda item: item.version)

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
        rows = self._rows.pop(unit, {})
        self._digests.pop(unit, None)
        self._count -= len(rows)
        for key in rows:
            self._gone_ns.pop((unit, key), None)
        return [row for row in rows.values() if row.wanted and row.kind != STANDING]

    def check(self) -> None:
        assert self._count == sum(map(len, self._rows.values()))
        for unit, key in self._gone_ns:
            assert not self._rows[unit][key].wanted
        for unit in self.units():
            self._check(unit)


def frames(items: list[Row | Digest]) -> list[Interest]:
    """As few frames as hold these, in their order within each kind."""
    found: list[Interest] = []
    rows: list[Row] = []
    digests: list[Digest] = []
    size = 0
    for item in items:
        weight = len(item.payload) if isinstance(item, Row) else sum(len(part.data) for part in item.parts)
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
