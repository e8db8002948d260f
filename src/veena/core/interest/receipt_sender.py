"""What this broker claims: for itself, and for each unit that it speaks for (design §5, `receipts`).

For itself it claims the marks of its table; a gatekeeper those that the gatekeepers beyond its links have confirmed,
because these look again before an event crosses (`gateway_filter`). For a unit of level l it claims the least that all
live parts of level l-1 claim. A part that has been out of reach for a lease and a margin is not waited for: it treats
everything that it does not hear of as wanting all. The claim then says that the unit is not whole.

Only what changed is told, at the pace of rows, and three times a lease a sign of life even if nothing did. A receipt
from below goes on at once where it was the last that its unit waited for. The first claim in an office is complete: who
came since the host resigned, or since its earlier life, does not know what it told before. A claim for a unit is not
lowered when a newcomer has less: it gets everything before it is in reach, and doubts what it does not have. It is
taken back when the unit that it is about was forgotten, or told its digest by another speaker, whose digest does not
continue the one before.

The invariant: what a broker claims for itself stands in its table.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.boundary.settings import Settings
from veena.core.interest.digest import DIGEST_LEVEL
from veena.core.interest.gateway_filter import Beyond
from veena.core.interest.leases import Leases
from veena.core.interest.receipts import Claims, Marks, is_news, least
from veena.core.interest.table import InterestTable, pair_of
from veena.core.messages.pace import Pace
from veena.core.topology.network_map import NetworkMap
from veena.core.trust.epochs import first_number
from veena.core.wire.interest import MAX_COUNT, MAX_MARKS, Claim, Mark


@dataclass(slots=True)
class _Office:
    """When a unit's next claim is due: because something changed, and as a sign of life."""

    due_ns: int | None
    refresh_ns: int
    pace: Pace
    #: Whether the host has claimed anything since it took this office.
    has_claimed: bool = False


class Claimant:
    """The claims of one broker."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        leases: Leases,
        claims: Claims,
        settings: Settings,
        beyond: Beyond,
        incarnation: int,
    ) -> None:
        self._map = network
        self._table = table
        self._leases = leases
        self._claims = claims
        #: Who knows whether the gatekeepers beyond this broker's links, who look again, have a version too.
        self._beyond = beyond
        self._intervals_ns = settings.claim_ns
        self._sign_ns = settings.lease_ns // 3
        self._settle_ns = settings.heartbeat_ns
        self._offices: dict[int, _Office] = {}
        #: The last serial by level. It outlives an office, and every life begins above the one before.
        self._serials: dict[int, int] = dict.fromkeys(range(network.levels), first_number(incarnation))
        #: Offices of an earlier life: others wait for their holder.
        self._vacant: dict[int, None] = {}
        self._seen = (-1, -1, -1)
        #: Claims in the host's name that it did not make.
        self.forged = 0
        self._release_ns: int | None = None
        claims.on_change = self._changed

    def heard_own(self, claim: Claim, now_ns: int) -> None:
        """What an earlier life of the host claimed: where it speaks no longer, others would wait for it in vain. Or
        what somebody else claimed in its name: it counts on from there, and claims anew what is true."""
        level = self._map.level(claim.who)
        told, last = self._claims.record(claim.who, self._map.host), self._serials[level]
        is_own = claim.serial < last or (claim.serial == last and told is not None and not is_news(claim, told.marks))
        if not is_own and told is not None:
            self.forged += 1
            self._serials[level] = max(last, claim.serial)
            office = self._offices.get(level)
            if office is not None:
                office.has_claimed, office.due_ns = False, now_ns
            return
        self._serials[level] = max(last, claim.serial)
        if self._claims.record(claim.who, self._map.host) is None and level not in self._offices and not claim.last:
            self._vacant[level] = None
            self._claims.learn(claim, None, now_ns)

    def review(self, levels: list[int], now_ns: int) -> None:
        """Leave the offices that others have now, and tell what is due in the others."""
        self.look_around(levels, now_ns)
        for level in [*(level for level in self._offices if level not in levels), *self._vacant]:
            self._offices.pop(level, None)
            told = self._claims.record(self._map.own(level), self._map.host)
            if level not in levels and told is not None and not told.last:
                self._tell(level, [], now_ns, last=True)
        self._vacant.clear()
        self.tell(levels, now_ns)

    def tell(self, levels: list[int], now_ns: int) -> None:
        """Tell what the host's own units have, where this broker speaks for them and it is due; upwards, since what a
        unit has depends on what its parts have."""
        self.look_around(levels, now_ns)
        for level in sorted(levels):
            office = self._offices[level]
            if (office.due_ns is not None and now_ns >= office.due_ns) or now_ns >= office.refresh_ns:
                self._claim(level, office, now_ns)

    def look_around(self, levels: list[int], now_ns: int) -> None:
        """Notice what changed: something has to be told then."""
        for level in levels:
            if level not in self._offices:
                # For a while after a start everybody believes to be alone, and to speak for all of its units.
                first_ns = now_ns + (self._settle_ns if level else self._interval(0))
                self._offices[level] = _Office(first_ns, first_ns, Pace(self._interval(level)))
                self._vacant.pop(level, None)
        seen = (self._table.mark_changes, self._beyond.settled, self._leases.changes)
        if seen[:2] != self._seen[:2]:
            self._stir(0, now_ns)
        released = self._release_ns is not None and now_ns >= self._release_ns
        if seen[2] != self._seen[2] or released:
            for level in levels:
                self._stir_later(level, now_ns)
        self._seen = seen
        self._release_ns = self._leases.next_release(now_ns)

    def _changed(self, claim: Claim, now_ns: int) -> None:
        """Somebody claimed something: it matters at once where all others have that already."""
        level = self._map.level(claim.who) + 1
        if level in self._offices and any(
            self._have_all(level, mark, now_ns) for mark in claim.marks if mark.version[0]
        ):
            self._stir(level, now_ns)
        else:
            self._stir_later(level, now_ns)

    def _have_all(self, level: int, mark: Mark, now_ns: int) -> bool:
        """Whether all live parts of the host's own unit of this level have this."""
        speaker, pair = mark.version[1], pair_of(mark.version)
        for unit in self._parts(level, now_ns):
            marks = self._claims.of(unit, now_ns)
            if marks is None or marks.get(mark.unit, {}).get(speaker, (0, 0)) < pair:
                return False
        return True

    def _stir(self, level: int, now_ns: int) -> None:
        """Something may have to be told: with this input, or under load when the interval is over."""
        office = self._offices.get(level)
        if office is not None and (office.due_ns is None or office.has_claimed):
            due_ns = office.pace.next_ns(now_ns)
            office.due_ns = due_ns if office.due_ns is None else min(office.due_ns, due_ns)

    def _stir_later(self, level: int, now_ns: int) -> None:
        """Something may have to be told that is better gathered: more of it is about to come."""
        office = self._offices.get(level)
        if office is not None and office.due_ns is None:
            office.due_ns = office.pace.later_ns(now_ns)

    def _interval(self, level: int) -> int:
        return self._intervals_ns[min(level, len(self._intervals_ns) - 1)]

    def _claim(self, level: int, office: _Office, now_ns: int) -> None:
        office.due_ns = None
        self._claims.prune(now_ns)
        record = self._claims.record(self._map.own(level), self._map.host) if office.has_claimed else None
        told = {} if record is None else record.marks
        have = self._have(level, told, now_ns)
        marks = [
            Mark(unit, (pair[1], speaker, pair[0]))
            for unit, speakers in have.items()
            for speaker, pair in speakers.items()
            if told.get(unit, {}).get(speaker) != pair
        ]
        marks += [
            Mark(unit, (0, speaker, 0))
            for unit, speakers in told.items()
            for speaker in speakers
            if speaker not in have.get(unit, {})
        ]
        is_changed = record is None or record.whole != self._claims.is_whole(level, now_ns)
        if marks or is_changed or now_ns >= office.refresh_ns:
            office.refresh_ns = now_ns + self._sign_ns
            office.has_claimed = True
            office.pace.told(now_ns)
            self._tell(level, marks, now_ns, first=record is None)

    def _tell(self, level: int, marks: list[Mark], now_ns: int, *, first: bool = False, last: bool = False) -> None:
        own, whole = self._map.own(level), self._claims.is_whole(level, now_ns)
        for at in range(0, max(len(marks), 1), MAX_MARKS):
            self._serials[level] = min(self._serials[level] + 1, MAX_COUNT)
            part = tuple(marks[at : at + MAX_MARKS])
            claim = Claim(own, self._map.host, self._serials[level], 0, whole, last, first and at == 0, part)
            self._claims.learn(claim, None, now_ns)

    def _have(self, level: int, told: Marks, now_ns: int) -> Marks:
        """What all live parts of the host's own unit of this level have."""
        if level == 0:
            return self._settled(told, now_ns)
        found = [self._claims.of(unit, now_ns) for unit in self._parts(level, now_ns)]
        heard = [marks for marks in found if marks is not None]
        size = self._map.levels - level
        have: Marks = {}
        if len(heard) == len(found):
            have = {unit: dict(speakers) for unit, speakers in least(heard).items() if len(unit) <= size}
        for unit, speakers in told.items():
            for speaker, pair in speakers.items():
                if self._still_holds(unit, speaker, heard):
                    held = have.setdefault(unit, {})
                    held[speaker] = max(pair, held.get(speaker, pair))
        return have

    def _parts(self, level: int, now_ns: int) -> list[Unit]:
        """All live parts of the host's own unit of this level."""
        others = [unit for unit in self._leases.siblings(level - 1) if self._leases.must_acknowledge(unit, now_ns)]
        return [*others, self._map.own(level - 1)]

    def _settled(self, told: Marks, now_ns: int) -> Marks:
        """The marks of the table; of what is not settled yet, the one before."""
        have: Marks = {}
        for unit in self._table.units():
            for speaker, pair in self._table.marks(unit).items() if unit != self._map.host else ():
                if self._beyond.is_settled(unit, (pair[1], speaker, pair[0])):
                    have.setdefault(unit, {})[speaker] = pair
                elif speaker in told.get(unit, {}):
                    have.setdefault(unit, {})[speaker] = told[unit][speaker]
        return have

    def _still_holds(self, unit: Unit, speaker: Address, heard: list[Marks]) -> bool:
        if not self._table.has_spoken(unit):
            return False
        if self._map.level(unit) < DIGEST_LEVEL:
            return True
        return all(not marks.get(unit) or speaker in marks[unit] for marks in (*heard, {unit: self._table.marks(unit)}))

    def next_wakeup(self) -> int | None:
        # Alone, there is nobody to give a sign to.
        due = [office.refresh_ns for office in self._offices.values() if len(self._map.reachable()) > 1]
        due += [office.due_ns for office in self._offices.values() if office.due_ns is not None]
        if self._release_ns is not None:
            due.append(self._release_ns)
        return min(due, default=None)

    def check(self) -> None:
        record = self._claims.record(self._map.host, self._map.host)
        if record is None or 0 not in self._offices or self._offices[0].due_ns is not None:
            return
        for unit, speakers in record.marks.items():
            for speaker, pair in speakers.items():
                has = self._table.marks(unit).get(speaker, pair)
                assert self._map.level(unit) >= DIGEST_LEVEL or has >= pair, "what was claimed stands in the table"
