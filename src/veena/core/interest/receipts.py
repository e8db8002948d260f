"""Who has heard what: acknowledgements of wants, gathered from broker to cluster to super-cluster (design §5, ACT).

A *claim* says: all brokers of this unit have everything that a speaker of that other unit told, up to a version. A
broker tells its cluster what it has itself; the speaker of a cluster tells the super-cluster the least that all live
brokers of the cluster have; and so on upwards (`receipt_sender`). So whoever serves a subscriber sees at once, from at
most fan-out claims a level, whether everybody who may choose destinations has heard of the subscription, and no broker
answers anybody in particular. A claim of a level-l unit concerns those beside it and the speaker above them: it crosses
no link above level l.

Claims pass over the same links as rows and behind them. So who hears a claim has heard everything that its teller had
told before: a want that was withdrawn and came back cannot be taken as acknowledged by an old row.

A unit in two parts has two speakers. Each claims for its part, and the least of both counts. A claim counts until its
teller resigns, or was not heard for a lease and a margin. It also says whether the unit is whole: a lost part may live
on, and speak for the unit to others that are lost too.

The invariant: of every teller the latest claim is kept, with all of its marks, and passed on once.

Rejected: one acknowledgement a subscription and broker (10,000 subscriptions at 1,000 brokers are ten millions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from veena.address import Address, Unit, as_seen, format_address
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.interest.leases import Leases
from veena.core.interest.table import Pair, pair_of
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import MAX_CLAIMS, MAX_COUNT, MAX_MARKS, Claim, Have, Mark
from veena.errors import RemoteProtocolError

#: Tellers of one unit at a time: while a large network starts, many of its brokers believe to be the speaker.
MAX_TELLERS = 64
#: Marks in one frame: about 150 KiB.
MAX_FRAME_MARKS = 4 * MAX_MARKS

#: By unit and speaker, how far that speaker was heard.
Marks = dict[Unit, dict[Address, Pair]]
_NOTHING: Pair = (0, 0)


@dataclass(slots=True)
class Record:
    """What one speaker of a unit has claimed."""

    serial: int
    heard_ns: int
    whole: bool = True
    last: bool = False
    marks: Marks = field(default_factory=dict)


class Claims:
    """All claims that this broker has heard, its own included."""

    def __init__(self, network: NetworkMap, leases: Leases) -> None:
        self._map = network
        self._leases = leases
        self._records: dict[Unit, dict[Address, Record]] = {}
        self._news: list[tuple[Claim, int | None]] = []
        #: Counts changes of what anybody claims, and claims that follow others which this broker has not: it was out of
        #: reach, or had to wait, for longer than a claim counts.
        self.changes = 0
        self.missed = 0
        #: Told of every claim that is news.
        self.on_change: Callable[[Claim, int], None] = _nobody

    def check_claim(self, claim: Claim) -> None:
        """Raise RemoteProtocolError unless this can be a claim that concerns the host."""
        host, size = self._map.host, len(claim.who)
        name = f"a claim of {format_address(claim.who)}"
        if size > len(host) or claim.who[:-1] != host[: size - 1]:
            raise RemoteProtocolError(f"{name} must not be told to {format_address(host)}")
        if len(claim.teller) != len(host) or claim.teller[:size] != claim.who:
            raise RemoteProtocolError(f"{name} is told by {format_address(claim.teller)}, who is not in it")
        if claim.serial > MAX_COUNT:
            raise RemoteProtocolError(f"{name} has the serial {claim.serial}: count on from the last one")
        for mark in claim.marks:
            end = len(mark.unit)
            if end > size or mark.unit[:-1] != host[: end - 1]:
                raise RemoteProtocolError(f"{name} is about {format_address(mark.unit)}, which is not for it to hear")
            check_version(mark.unit, mark.version, len(host))

    def learn(self, claim: Claim, source: int | None, now_ns: int) -> None:
        """Take in a claim that was checked, and pass it on if it is news."""
        heard_ns = now_ns - claim.age_ms * MILLISECOND_NS
        records = self._records.setdefault(claim.who, {})
        known = records.get(claim.teller)
        if known is None:
            if claim.last or not self._has_room(records, now_ns):
                return  # passing on what nobody keeps would go round for ever
            self.missed += not claim.complete and source is not None
            known = records[claim.teller] = Record(claim.serial, heard_ns)
        elif claim.serial < known.serial or (claim.serial == known.serial and not is_news(claim, known.marks)):
            return
        elif claim.complete and claim.serial > known.serial:
            known.marks = {}
        known.serial, known.whole, known.last = claim.serial, claim.whole, claim.last
        known.heard_ns = max(known.heard_ns, heard_ns)
        _merge(claim, known.marks)
        self.changes += 1
        self._news.append((claim, source))
        if not claim.last:
            self._leases.heard(claim.who, known.heard_ns, now_ns)
        self.on_change(claim, now_ns)

    def is_old(self, claim: Claim) -> bool:
        """Whether a claim says nothing that is not known."""
        known = self.record(claim.who, claim.teller)
        if known is None or claim.serial > known.serial:
            return False
        return claim.serial < known.serial or not is_news(claim, known.marks)

    def after(self, claim: Claim, before: Record | None) -> Record:
        """What would be known of its teller after a claim."""
        is_new = before is None or (claim.complete and claim.serial > before.serial)
        marks: Marks = {} if before is None or is_new else {unit: dict(each) for unit, each in before.marks.items()}
        _merge(claim, marks)
        return Record(claim.serial, 0, claim.whole, claim.last, marks)

    def tellers_known(self) -> dict[tuple[Unit, Address], None]:
        """Everybody who speaks, or spoke, for a unit."""
        return {(who, teller): None for who, records in self._records.items() for teller in records}

    def _has_room(self, records: dict[Address, Record], now_ns: int) -> bool:
        """Whether one more teller of a unit can be kept; those who resigned, or are silent, make room."""
        if len(records) < MAX_TELLERS:
            return True
        silent_ns = now_ns - self._leases.patience_ns
        gone = next((teller for teller, known in records.items() if known.last or known.heard_ns < silent_ns), None)
        if gone is not None:
            del records[gone]
        return gone is not None

    def record(self, who: Unit, teller: Address) -> Record | None:
        return self._records.get(who, {}).get(teller)

    def of(self, who: Unit, now_ns: int) -> Marks | None:
        """What all of a unit has, as far as its fresh claims say; None without any."""
        fresh = self._fresh(who, now_ns)
        if not fresh:
            return None
        return fresh[0].marks if len(fresh) == 1 else least([record.marks for record in fresh])

    def tellers(self, who: Unit, now_ns: int) -> list[Address]:
        """Who speaks for a unit, as far as it is heard."""
        since = now_ns - self._leases.patience_ns
        records = self._records.get(who, {})
        return [teller for teller, record in records.items() if not record.last and record.heard_ns > since]

    def _fresh(self, who: Unit, now_ns: int) -> list[Record]:
        since = now_ns - self._leases.patience_ns
        return [record for record in self._records.get(who, {}).values() if not record.last and record.heard_ns > since]

    def is_apart(self, unit: Unit, now_ns: int) -> bool:
        """Whether somebody out of reach speaks for a unit of the host's own: another part of it is alive."""
        since, reach = now_ns - self._leases.patience_ns, self._map.reachable()
        return any(
            record.heard_ns > since and not record.last and as_seen(self._map.host, teller) not in reach
            for teller, record in self._records.get(unit, {}).items()
            if teller != self._map.host
        )

    def others_speak(self, unit: Unit, now_ns: int) -> bool:
        """Whether a unit of the host's own may have another part: more than one speaks for it, or one out of reach."""
        return len(self.tellers(unit, now_ns)) > 1 or self.is_apart(unit, now_ns)

    def is_whole(self, level: int, now_ns: int) -> bool:
        """Whether the host's own unit of this level is in one piece, as far as anybody in it knows."""
        if any(self._leases.has_lost(below, now_ns) for below in range(level)):
            return False
        siblings = (unit for below in range(1, level) for unit in self._leases.siblings(below))
        return all(self.claims_whole(unit, now_ns) for unit in siblings)

    def claims_whole(self, who: Unit, now_ns: int) -> bool:
        """Whether another unit says so of itself."""
        return all(record.whole for record in self._fresh(who, now_ns))

    def take_news(self) -> list[tuple[Claim, int | None]]:
        news, self._news = self._news, []
        return news

    def everything(self, now_ns: int) -> list[Claim]:
        """For a new link: all claims that count, complete."""
        found: list[Claim] = []
        for who, records in self._records.items():
            for teller, record in records.items():
                age_ns = now_ns - record.heard_ns
                assert age_ns >= 0, "nobody is heard before he speaks"
                if record.last or age_ns >= self._leases.patience_ns:
                    continue
                marks = [
                    Mark(unit, (pair[1], speaker, pair[0]))
                    for unit, speakers in record.marks.items()
                    for speaker, pair in speakers.items()
                ]
                for at in range(0, max(len(marks), 1), MAX_MARKS):
                    part, age_ms = tuple(marks[at : at + MAX_MARKS]), age_ns // MILLISECOND_NS
                    found.append(Claim(who, teller, record.serial, age_ms, record.whole, False, at == 0, part))
        return found

    def prune(self, now_ns: int) -> None:
        """Drop what counts no more. Nobody can bring it back: a claim is told with its age."""
        since = now_ns - self._leases.patience_ns
        for records in self._records.values():
            for teller in [teller for teller, record in records.items() if record.heard_ns <= since]:
                del records[teller]

    def forget(self, unit: Unit) -> None:
        """This unit is out of reach for good."""
        self._records.pop(unit, None)
        self.changes += 1

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def check(self) -> None:
        for who, records in self._records.items():
            assert len(records) <= MAX_TELLERS
            assert all(teller[: len(who)] == who for teller in records)


def have_frames(claims: Iterable[Claim]) -> list[Have]:
    """As few frames as hold these, in their order."""
    found: list[Have] = []
    gathered: list[Claim] = []
    marks = 0
    for claim in claims:
        if gathered and (len(gathered) == MAX_CLAIMS or marks + len(claim.marks) > MAX_FRAME_MARKS):
            found.append(Have(tuple(gathered)))
            gathered, marks = [], 0
        gathered.append(claim)
        marks += len(claim.marks)
    if gathered:
        found.append(Have(tuple(gathered)))
    return found


def check_version(unit: Unit, version: tuple[int, Address, int], levels: int) -> None:
    """Raise RemoteProtocolError unless a broker of the unit can have told this version."""
    epoch, speaker, number = version
    if len(speaker) != levels or speaker[: len(unit)] != unit:
        raise RemoteProtocolError(
            f"{format_address(speaker)} speaks for {format_address(unit)}, and is no broker of it"
        )
    if epoch > MAX_COUNT or number > MAX_COUNT:
        raise RemoteProtocolError(f"version {epoch}, {number} of {format_address(unit)}: nobody counts so far")


def least(all_marks: list[Marks]) -> Marks:
    """For every unit and speaker the least that all have."""
    first, *others = all_marks
    found: Marks = {}
    for unit, speakers in first.items():
        for speaker, pair in speakers.items():
            lowest = min((pair, *(marks.get(unit, {}).get(speaker, _NOTHING) for marks in others)))
            if lowest != _NOTHING:
                found.setdefault(unit, {})[speaker] = lowest
    return found


def is_news(claim: Claim, marks: Marks) -> bool:
    """Whether a claim says anything that these marks do not."""
    return any(marks.get(mark.unit, {}).get(mark.version[1], _NOTHING) != pair_of(mark.version) for mark in claim.marks)


def _merge(claim: Claim, marks: Marks) -> None:
    for mark in claim.marks:
        speaker = mark.version[1]
        if mark.version[0]:
            marks.setdefault(mark.unit, {})[speaker] = pair_of(mark.version)
        else:
            marks.get(mark.unit, {}).pop(speaker, None)


def _nobody(claim: Claim, now_ns: int) -> None:
    """Nobody listens."""
