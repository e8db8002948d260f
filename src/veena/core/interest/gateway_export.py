"""What a gatekeeper tells the other end of its links of level 2 and above: the wants of its own side (design §5).

Of its super-cluster it knows the wants word by word, the rows of its clusters; of other units inside the unit that the
link leads into, it knows digests. Together they are told over the link, without saying who wants what: a want that
three clusters have crosses once. First comes a snapshot, then what changes, additions before withdrawals. A want whose
scope ends on this side is not told: no event from over there is for it.

The other end confirms what it has taken in. Before all other ends have that could act on less, this broker must not
count as having heard a want (`Settlement`). An end could act on less when it was told a complete snapshot that lacks
the want. So a connection that is lost goes on blocking what comes later, until the other end has surely noticed: its
lease, and a margin for clocks that run unlike. For the same reason nothing is settled for that long after a restart.

A gatekeeper says that it does not know all, and the other end then wants all, when a cluster or larger unit on its
side is doubted (it has not spoken, is out of reach or was not heard for a lease: it may live on and want new things),
and when the wants are more than `MAX_FAR_ROWS`. It knows all again when that has held for `STEADY_NS`: a network that
is just coming together would otherwise be told piece by piece.

The invariant: what was told over a link that is exact is what the table holds for its level as of the last flush.
Rejected: the rows of the own cluster's brokers instead of the cluster's own. They are more and change more often, and a
part of the cluster that can be heard only around through another cluster stands in the cluster's rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from veena.address import Address, Unit, as_seen
from veena.core.interest.digest import DIGEST_LEVEL, fitted, merge_digests
from veena.core.interest.table import MAX_FRAME_BYTES, InterestTable, Pair
from veena.core.links.link import Link
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Frame
from veena.core.wire.interest import (
    COMPLETE,
    MAX_DIGEST_BYTES,
    MAX_REMOVED,
    MAX_ROWS,
    MORE,
    STANDING,
    UNKNOWN,
    Digest,
    DigestPart,
    FarDigest,
    FarInterest,
    FarWant,
    Row,
    Version,
)
from veena.errors import RemoteProtocolError

#: Links of this level and above lead between units that know each other by digests.
GATE_LEVEL = 2
#: Wants that are told over one link: some 10 MiB in engines at the other end. Beyond that it does not look again.
MAX_FAR_ROWS = 20_000
#: They are told again when they are so few: not each time that one comes or goes.
ENOUGH_ROWS = MAX_FAR_ROWS * 3 // 4
#: How long everything must have been known before it is said to be all.
STEADY_NS = 1_000_000_000


@dataclass(slots=True)
class Gate:
    """One link: what was told over it and confirmed, by batch number."""

    link: Link
    is_exact: bool = False
    sent: int = 0
    confirmed: int = 0
    #: The digests that were told.
    parts: tuple[DigestPart, ...] = ()


class Telling:
    """The far end of each link of level 2 and above."""

    def __init__(self, network: NetworkMap, table: InterestTable, lease_ns: int) -> None:
        self._map = network
        self._table = table
        self.settlement = Settlement()
        #: Clocks may differ by an eighth in speed.
        self._hold_ns = lease_ns + lease_ns // 8
        self._gates: dict[int, Gate] = {}
        #: The wants of all clusters of the super-cluster, counted; only kept while there are gates.
        self._counts: dict[bytes, int] = {}
        self._rows: dict[bytes, Row] = {}
        self._told: dict[bytes, Row] = {}
        self._changed: dict[bytes, None] = {}
        #: By level the digests that are told and the versions that they were made of: making them is work.
        self._merged: dict[int, tuple[tuple[tuple[Unit, Version], ...], tuple[DigestPart, ...]]] = {}
        #: Since when everything below a level is known.
        self._steady_ns: dict[int, int] = {}
        self._crowded = False
        self._is_dirty = False
        self._version = -1

    # --- links ---

    def opened(self, link: Link) -> None:
        assert link.connection is not None
        if not self._gates:
            self._clear()
            for unit in self._table.units():
                for row in self._table.rows(unit) if self._is_cluster(unit) else ():
                    self._count(row, 1)
        self._gates[link.connection] = Gate(link)
        self._is_dirty = True

    def closed(self, connection: int, now_ns: int) -> None:
        gate = self._gates.pop(connection)
        if gate.is_exact or gate.confirmed < gate.sent:
            self.settlement.lose(now_ns + self._hold_ns, gate.confirmed)
        if not self._gates:
            self._clear()
        self._settle()

    def restarted(self, now_ns: int) -> None:
        self.settlement.lose(now_ns + self._hold_ns, 0)

    def confirmed(self, link: Link, number: int) -> None:
        assert link.connection is not None
        gate = self._gates[link.connection]
        if number > gate.sent:
            raise RemoteProtocolError(f"batch {number} was confirmed, and {gate.sent} is the last that was sent")
        gate.confirmed = max(gate.confirmed, number)
        self._settle()

    def _settle(self) -> None:
        self.settlement.settle(gate.confirmed for gate in self._gates.values() if gate.confirmed < gate.sent)

    def _clear(self) -> None:
        for table in (self._counts, self._rows, self._told, self._changed, self._merged, self._steady_ns):
            table.clear()

    # --- what is heard ---

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row changed, or was forgotten. What a broker wants its cluster tells."""
        changed = after or before
        if changed is None or not self._is_cluster(changed.unit):
            return
        if after is not None:
            self._mark(after.unit, after.version)
        if self._gates:
            self._is_dirty = True
            for row, step in ((after, 1), (before, -1)):
                if row is not None and row.wanted and row.kind != STANDING:
                    self._count(row, step)

    def _is_cluster(self, unit: Unit) -> bool:
        return self._map.level(unit) == DIGEST_LEVEL - 1

    def heard_digest(self, digest: Digest) -> None:
        if self._map.host[: len(digest.unit)] != digest.unit:
            self._mark(digest.unit, digest.version)

    def _mark(self, unit: Unit, version: Version) -> None:
        if self._gates or self.settlement.has_lost:
            self.settlement.heard(unit, version)
            self._is_dirty = True

    def _count(self, row: Row, step: int) -> None:
        count = self._counts.get(row.key, 0) + step
        self._changed[row.key] = None
        if count:
            self._counts[row.key] = count
            if step > 0:
                self._rows[row.key] = row
        else:
            del self._counts[row.key], self._rows[row.key]

    # --- time ---

    def tick(self, now_ns: int) -> None:
        if self.settlement.has_lost:
            self.settlement.expire(now_ns)
            self._settle()
        self._is_dirty = self._is_dirty or bool(self._gates)  # doubt comes with time

    def next_wakeup(self) -> int | None:
        if not self._gates and not self.settlement.has_lost:
            return None
        due = [self.settlement.next_expiry()]
        for gate in self._gates.values():
            since = self._steady_ns.get(gate.link.level)
            if since is not None and not gate.is_exact and not self._crowded:
                due.append(since + STEADY_NS)
        return min((time for time in due if time is not None), default=None)

    def flush(self, now_ns: int) -> None:
        """Tell what is new; at the end of every input, so that one batch holds what came together."""
        if not self._is_dirty and (self._map.version == self._version or not self._gates):
            return
        self._is_dirty = False
        self._version = self._map.version
        if self.settlement.has_news:
            self.settlement.next_number()
        added, removed = self._take_changes()
        for level in dict.fromkeys(gate.link.level for gate in self._gates.values()):
            if self._is_whole(level, now_ns):
                self._steady_ns.setdefault(level, now_ns)
            else:
                self._steady_ns.pop(level, None)
        for gate in self._gates.values():
            self._tell(gate, added, removed, now_ns)
        self.settlement.close_batch()
        self._settle()

    def _take_changes(self) -> tuple[list[Row], list[Row]]:
        added: list[Row] = []
        removed: list[Row] = []
        for key in self._changed:
            row, told = self._rows.get(key), self._told.get(key)
            if row is not None and told is None:
                added.append(row)
                self._told[key] = row
            elif row is None and told is not None:
                removed.append(told)
                del self._told[key]
        self._changed.clear()
        self._crowded = len(self._told) > (ENOUGH_ROWS if self._crowded else MAX_FAR_ROWS)
        return added, removed

    def _is_whole(self, level: int, now_ns: int) -> bool:
        """Whether everything is known of the host's own unit of this level."""
        reach = self._map.reachable()
        if not self._table.has_spoken(self._map.own(DIGEST_LEVEL - 1)):
            return False
        for own in (self._map.own(below) for below in range(DIGEST_LEVEL, level)):
            digest = self._table.digest(own)
            if digest is not None and as_seen(self._map.host, digest.version[1]) not in reach:
                return False  # a part of it that cannot be heard from here still speaks
        return not any(0 < self._map.level(unit) < level for unit in self._table.doubted(now_ns))

    # --- frames ---

    def _tell(self, gate: Gate, added: list[Row], removed: list[Row], now_ns: int) -> None:
        level = gate.link.level
        since = self._steady_ns.get(level)
        if self._crowded or since is None or now_ns < since + STEADY_NS:
            if gate.is_exact:
                gate.is_exact = False
                self._send(gate, [FarInterest(self._number(gate), True, UNKNOWN)], now_ns)
            return
        parts = self._parts(level)
        if not gate.is_exact:
            self._send(gate, self._snapshot(gate, parts), now_ns)
        else:
            more, fewer = crossing(added, level), crossing(removed, level)
            digest = [FarDigest(parts)] if parts != gate.parts else []
            if more or fewer or digest:
                self._send(gate, [*digest, *batch(self._number(gate), more, fewer)], now_ns)
        gate.is_exact, gate.parts = True, parts

    def _snapshot(self, gate: Gate, parts: tuple[DigestPart, ...]) -> list[Frame]:
        acts_on_less = gate.confirmed < gate.sent
        number = self._number(gate)
        if not acts_on_less:
            # Until the other end has this it wants all, and when it has this it has everything: nothing to wait for.
            gate.confirmed = number
        rows = crossing(self._told.values(), gate.link.level)
        return [FarInterest(number, True, MORE), FarDigest(parts), *batch(number, rows, [])]

    def _number(self, gate: Gate) -> int:
        gate.sent = self.settlement.number if self.settlement.has_news else self.settlement.next_number()
        return gate.sent

    def _send(self, gate: Gate, frames: Sequence[Frame], now_ns: int) -> None:
        for frame in frames:
            gate.link.send(frame, now_ns)

    def _parts(self, level: int) -> tuple[DigestPart, ...]:
        """The digests of the other units inside the one that a link of this level leads into."""
        found: dict[Unit, Digest] = {}
        for unit in sorted(self._table.units()):
            digest = self._table.digest(unit)
            if digest is not None and self._map.level(unit) < level and self._map.host[: len(unit)] != unit:
                found[unit] = digest
        versions = tuple((unit, digest.version) for unit, digest in found.items())
        known = self._merged.get(level)
        if known is None or known[0] != versions:
            parts = merge_digests(*(digest.parts for digest in found.values()))
            crossing_parts = [part for part in parts if part.scope > level]
            known = self._merged[level] = (versions, fitted(crossing_parts, MAX_DIGEST_BYTES))
        return known[1]

    def check(self) -> None:
        self.settlement.check()
        assert self._counts.keys() == self._rows.keys()
        assert self._gates or not self._counts
        for gate in self._gates.values():
            assert gate.confirmed <= gate.sent <= self.settlement.number


def crossing(rows: Iterable[Row], level: int) -> list[Row]:
    """Those that events over a link of this level can be for."""
    return [row for row in rows if row.scope > level]


def batch(number: int, added: list[Row], removed: list[Row]) -> list[FarInterest]:
    """As few frames as hold this, additions first; the last says that it is all."""
    found: list[FarInterest] = []
    wants: list[FarWant] = []
    size = 0
    for row in added:
        if size + len(row.payload) > MAX_FRAME_BYTES or len(wants) == MAX_ROWS:
            found.append(FarInterest(number, False, MORE, tuple(wants)))
            wants, size = [], 0
        wants.append(FarWant(row.kind, row.payload, row.scope))
        size += len(row.payload)
    keys = [row.key for row in removed]
    while len(keys) > MAX_REMOVED:
        found.append(FarInterest(number, False, MORE, tuple(wants), tuple(keys[:MAX_REMOVED])))
        wants, keys = [], keys[MAX_REMOVED:]
    found.append(FarInterest(number, False, COMPLETE, tuple(wants), tuple(keys)))
    return found


#: Unconfirmed batches that are told apart; more are confirmed together.
MAX_UNCONFIRMED = 64
#: Lost connections that are told apart.
MAX_LOST = 64

#: The lowest version of each unit and speaker.
Lowest = dict[tuple[Unit, Address], Pair]


class Settlement:
    """How far everybody at the other ends of the links has what was heard here: batches that wait for confirmation.

    Whatever is heard between two flushes is one batch, with a number. An other end confirms batches by their numbers,
    and a batch is settled when all have confirmed it who could act on less. Of a batch only this is kept: for each unit
    and speaker in it the lowest version. A speaker's words are settled up to just before the first one that is not.

    A connection that is lost goes on counting until its other end has surely noticed. The invariant: batches are kept
    in the order of their numbers, and one is forgotten exactly when no link and no lost connection is below it.
    """

    def __init__(self) -> None:
        #: Of the last batch.
        self.number = 0
        #: Counts how often batches were settled.
        self.settled = 0
        #: Heard since the last batch.
        self._fresh: Lowest = {}
        self._waiting: dict[int, Lowest] = {}
        #: Until when a lost connection counts, and what was confirmed over it.
        self._lost: list[tuple[int, int]] = []

    def heard(self, unit: Unit, version: Version) -> None:
        epoch, speaker, number = version
        pair = (epoch, number)
        self._fresh[unit, speaker] = min(pair, self._fresh.get((unit, speaker), pair))

    def is_settled(self, unit: Unit, version: Version) -> bool:
        """Whether everything is settled that the speaker in this version told of a unit up to it."""
        epoch, speaker, number = version
        for lowest in (self._fresh, *self._waiting.values()):
            first = lowest.get((unit, speaker))
            if first is not None and first <= (epoch, number):
                return False
        return True

    def next_number(self) -> int:
        """The number of a new batch."""
        self.number += 1
        return self.number

    @property
    def has_news(self) -> bool:
        return bool(self._fresh)

    def close_batch(self) -> None:
        """What was heard belongs to the last number."""
        if self._fresh:
            self._waiting[self.number], self._fresh = self._fresh, {}
        while len(self._waiting) > MAX_UNCONFIRMED:
            *_, before, last = self._waiting
            for key, pair in self._waiting.pop(before).items():
                self._waiting[last][key] = min(pair, self._waiting[last].get(key, pair))

    def settle(self, confirmed: Iterable[int]) -> None:
        """Forget the batches that are not above any of these numbers, nor above what a lost connection had."""
        lowest = min((*confirmed, *(number for _, number in self._lost)), default=self.number)
        done = [number for number in self._waiting if number <= lowest]
        for number in done:
            del self._waiting[number]
        self.settled += bool(done)

    # --- lost connections ---

    def lose(self, until_ns: int, confirmed: int) -> None:
        self._lost.append((until_ns, confirmed))
        if len(self._lost) > MAX_LOST:
            one, other = self._lost.pop(0), self._lost.pop(0)
            self._lost.insert(0, (max(one[0], other[0]), min(one[1], other[1])))

    @property
    def has_lost(self) -> bool:
        return bool(self._lost)

    def expire(self, now_ns: int) -> None:
        self._lost = [(until, confirmed) for until, confirmed in self._lost if until > now_ns]

    def next_expiry(self) -> int | None:
        return min((until for until, _ in self._lost), default=None)

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self) -> None:
        numbers = list(self._waiting)
        assert numbers == sorted(numbers)
        assert len(numbers) <= MAX_UNCONFIRMED
        assert not numbers or numbers[-1] <= self.number
