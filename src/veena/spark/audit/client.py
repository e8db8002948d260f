"""One client's promises against what it was handed: who was to get what, and who got it (design §6, I1; §9).

A client's subscriptions, the events that match them, what it was handed and when it was attached are all that is
needed, so clients are judged one by one, in any number of processes, by this pure code.

A subscription *wants* an event that matches it, whose origin lies in its scope and which suits the client's device and
clearances. If it was acknowledged for its scope before a reliable event was accepted and stood then, the client is
*promised* that event. Between its beginning and that, after its end, and of best effort, a client may get an event and
need not. What it is handed must be wanted by a subscription that stood at that broker at that time; a durable one is
kept at one broker and then at another. It must come once (what is marked as redelivered apart), and in the order of its
stream (what is marked as late apart): a durable subscription is a queue of its own, and may be behind the others, so
that an event which two of them want may come through each at its time.

Of a promise that was not kept it depends on what its broker has on record whether that is a violation: `verdict`.

The subscription of a group is the group's: the promise is to the group, and its members have a right to what it wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veena.core.interest.eligibility import Fitness
from veena.errors import LocalProtocolError
from veena.event import Event
from veena.runtime.store.audit_records import HANDED

#: Ids of groups begin with this (`core.messages.addresses`).
GROUP: Final = "~shared/"
#: Attachments of a client that are told with what is kept for it: the latest.
MAX_ATTACHMENTS: Final = 64
FOREVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Stay:
    """A subscription while it was at one broker. Times are microseconds; None: not on record, or not over."""

    profile_id: int
    broker: str
    address: str | None
    scope: int
    begun: int | None
    active: int | None
    ended: int | None
    durable: bool = False
    is_crashed: bool = False
    #: The group that shares it.
    shared: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class Matched(NamedTuple):
    """An event that satisfies a condition; `first` is the id that it had first."""

    profile_id: int
    id: str
    first: str
    at: int
    reliable: bool
    ttl_ms: int | None
    origin: str
    publisher: str
    incarnation: int
    lane: int
    place: tuple[int, int]
    needs: Mapping[str, str] | None = None


class Row(NamedTuple):
    """Something on record about an event and the client."""

    id: str
    first: str
    at: int
    offset: int
    broker: str
    mark: str


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise that nothing was handed over for, and what is known of it; `told` is the mark that says why."""

    event: Matched
    stay: Stay
    told: str
    overtaken_by: str | None
    #: Where the subscription was kept, and when the client was there, for a durable one.
    homes: tuple[str, ...] = ()
    attached: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Findings:
    """What was found about one client."""

    promised: int = 0
    kept: int = 0
    handed: int = 0
    late: int = 0
    redelivered: int = 0
    open: list[Promise] = field(default_factory=list)
    #: First id, rows, how many of them are too many.
    duplicates: list[tuple[str, list[Row], int]] = field(default_factory=list)
    #: Row, reason; with an empty reason nothing of the client's matches the event, if there is such an event at all.
    spurious: list[tuple[Row, str]] = field(default_factory=list)
    #: Row, the later event.
    disordered: list[tuple[Row, str]] = field(default_factory=list)
    #: (group, first id, whether it got it without a mark and had no right to it of its own), as a member.
    shared: list[tuple[str, str, bool]] = field(default_factory=list)


def judge(
    client: str,
    stays: Sequence[Stay],
    matched: Iterable[Matched],
    rows: Sequence[Row],
    attached: Sequence[tuple[int, int]] = (),
) -> Findings:
    """Everything about one client."""
    found = Findings()
    by_profile: dict[int, list[Stay]] = {}
    for stay in stays:
        by_profile.setdefault(stay.profile_id, []).append(stay)
    wanted: dict[str, list[Matched]] = {}
    for event in matched:
        wanted.setdefault(event.first, []).append(event)
    by_event: dict[str, list[Row]] = {}
    for row in sorted(rows, key=_moment):
        by_event.setdefault(row.first, []).append(row)
    fitness = _Fit()
    lost: list[tuple[list[Right], list[Row]]] = []
    for first in dict.fromkeys((*wanted, *by_event)):
        events, got = wanted.get(first, _NOTHING), by_event.get(first, _NO_ROWS)
        if len(events) == len(got) == 1 and _is_plain(found, events[0], got[0], by_profile, client):
            continue
        rights = _rights({(event.id, event.profile_id): event for event in events}.values(), by_profile, fitness)
        handed = _look_at(found, first, rights, got)
        promises = [(event, stay) for event, stay in rights if _is_promised(event, stay, client)]
        found.promised += bool(promises)
        found.kept += bool(promises and handed)
        if promises and not handed:
            lost.append((promises, got))
    plain = _plain(by_event, wanted)
    latest = _latest(plain) if lost else {}
    found.open = [_promise(promises, got, latest, by_profile, attached) for promises, got in lost]
    _check_order(found, plain, wanted, by_profile)
    return found


_NOTHING: Final[list[Matched]] = []
_NO_ROWS: Final[list[Row]] = []


def _moment(row: Row) -> tuple[int, int]:
    return row.at, row.offset


def _is_plain(found: Findings, event: Matched, row: Row, by_profile: Mapping[int, list[Stay]], client: str) -> bool:
    """What nearly everything is: one event for one subscription, handed over once. False where more has to be asked."""
    stays = by_profile.get(event.profile_id, ())
    if len(stays) != 1 or row.mark or event.needs or stays[0].shared or not _allows(event, stays[0], row):
        return False
    is_promised = _is_promised(event, stays[0], client)
    found.handed += 1
    found.promised += is_promised
    found.kept += is_promised
    return True


Right = tuple[Matched, Stay]


def _rights(events: Iterable[Matched], by_profile: Mapping[int, list[Stay]], fitness: _Fit) -> list[Right]:
    return [
        (event, stay) for event in events for stay in by_profile.get(event.profile_id, ()) if fitness.suits(event, stay)
    ]


def is_in_scope(event: Matched, stay: Stay) -> bool | None:
    """Whether the event was published in the unit of the scope; None where the broker's address is not known."""
    size = event.origin.count(".") + 1 - stay.scope
    if size <= 0:
        return True
    origin = event.origin.split(".")
    return None if stay.address is None else stay.address.split(".")[:size] == origin[:size]


def _is_promised(event: Matched, stay: Stay, client: str) -> bool:
    return (
        event.reliable
        and stay.active is not None
        and stay.active < event.at
        and (stay.ended is None or stay.ended >= event.at)
        and (not stay.shared or client.startswith(GROUP))
        and is_in_scope(event, stay) is True
    )


def _allows(event: Matched, stay: Stay, row: Row) -> bool:
    """Whether a subscription may have been why an event was handed over."""
    if stay.begun is not None and stay.begun > row.at:
        return False
    if not stay.shared and is_in_scope(event, stay) is False:
        return False
    return stay.durable or (stay.broker == row.broker and (stay.ended is None or stay.ended >= row.at))


def _look_at(found: Findings, first: str, rights: list[Right], got: list[Row]) -> bool:
    """What was handed over of one event; whether the client has it."""
    handed = [row for row in got if row.mark in HANDED]
    denied = sum(row.mark == "denied" for row in got)
    plain = [row for row in handed if row.mark != "redelivered"]
    found.handed += len(handed)
    found.late += sum(row.mark == "late" for row in handed)
    found.redelivered += len(handed) - len(plain)
    extra = len(plain) - denied - max(1, _queues(rights, handed))
    if extra > 0:
        found.duplicates.append((first, handed, extra))
    for row in handed:
        if not any(_allows(event, stay, row) for event, stay in rights):
            found.spurious.append((row, _why_not(rights)))
    is_own = any(not stay.shared for _, stay in rights)
    if len(handed) > denied:
        for group in dict.fromkeys(stay.shared for _, stay in rights if stay.shared):
            found.shared.append((group, first, bool(plain) and not is_own))
    return len(handed) > denied


def _queues(rights: list[Right], handed: Sequence[Row]) -> int:
    """How often an event may come: once through each durable subscription that wants it, once through the others. A
    row does not tell its subscriptions; what comes through several at a time is one row."""
    kept = [(event, stay) for event, stay in rights if any(_allows(event, stay, row) for row in handed)]
    return len(dict.fromkeys(event.profile_id if stay.durable else 0 for event, stay in kept))


def _why_not(rights: list[Right]) -> str:
    if not rights:
        return ""
    if all(is_in_scope(event, stay) is False for event, stay in rights):
        return "it was published outside the scope of the subscription"
    return "the subscription did not stand at that broker when it was handed over"


# --- promises that were not kept ---


def _promise(
    promises: list[Right],
    got: list[Row],
    latest: Mapping[tuple[str, int, int, str], list[tuple[tuple[int, int], int, str]]],
    by_profile: Mapping[int, list[Stay]],
    attached: Sequence[tuple[int, int]],
) -> Promise:
    """Of several promises the one counts that stood longest: nothing that excuses it would not excuse the others."""
    ends = {id(stay): _end(stay, by_profile) for _, stay in promises}
    event, stay = max(promises, key=lambda each: (ends[id(each[1])], each[1].durable, each[0].at))
    marks = {row.mark for row in got}
    told = next((mark for mark in ("denied", "had", "dropped", "expired", "withheld") if mark in marks), "")
    later = latest.get((event.publisher, event.incarnation, event.lane, stay.broker), ())
    over = next(
        (name for place, at, name in later if place > event.place and at >= (stay.begun or 0) and at <= ends[id(stay)]),
        None,
    )
    end = ends[id(stay)]
    lasting = Stay(
        stay.profile_id, stay.broker, stay.address, stay.scope, stay.begun, stay.active,
        None if end == FOREVER else end, stay.durable, stay.is_crashed, stay.shared,
    )  # fmt: skip
    if not stay.durable:
        return Promise(event, lasting, told, over)
    homes = tuple(dict.fromkeys(each.broker for each in by_profile[stay.profile_id] if each.durable))
    there = sorted(each for each in attached if each[1] > event.at)[-MAX_ATTACHMENTS:]
    return Promise(event, lasting, told, over, homes, tuple(there))


def _end(stay: Stay, by_profile: Mapping[int, list[Stay]]) -> int:
    """When a subscription ended; a durable one that is kept elsewhere ends there."""
    if not stay.durable:
        return FOREVER if stay.ended is None else stay.ended
    mine = [each for each in by_profile[stay.profile_id] if each.durable]
    return max(FOREVER if each.ended is None else each.ended for each in mine)


Plain = list[tuple[Row, Matched]]


def _plain(by_event: Mapping[str, list[Row]], wanted: Mapping[str, list[Matched]]) -> Plain:
    """What was handed over without a mark, each id for the first time, with what is known of the event; in order."""
    found: Plain = []
    for first, got in by_event.items():
        events = wanted.get(first)
        if events is None:
            continue
        if len(got) == len(events) == 1:
            if got[0].mark == "" and got[0].id == events[0].id:
                found.append((got[0], events[0]))
            continue
        by_id = {event.id: event for event in events}
        for row in got:
            if row.mark == "" and row.id in by_id:
                found.append((row, by_id.pop(row.id)))
    found.sort(key=lambda each: _moment(each[0]))
    return found


def _latest(plain: Plain) -> dict[tuple[str, int, int, str], list[tuple[tuple[int, int], int, str]]]:
    """By stream and broker: the places that were handed over without a mark, the latest first."""
    found: dict[tuple[str, int, int, str], list[tuple[tuple[int, int], int, str]]] = {}
    for row, event in plain:
        key = (event.publisher, event.incarnation, event.lane, row.broker)
        found.setdefault(key, []).append((event.place, row.at, row.id))
    for places in found.values():
        places.sort(reverse=True)
    return found


def _check_order(
    found: Findings, plain: Plain, wanted: Mapping[str, list[Matched]], by_profile: Mapping[int, list[Stay]]
) -> None:
    """A durable subscription is a queue of its own, and the others of a client are one. What two of them want may have
    come through either: it is out of order when it is in both, and what comes behind it in one of them is not."""
    queues: dict[tuple[str, int, int, int], tuple[tuple[int, int], str]] = {}
    for row, event in plain:
        profiles = (each.profile_id for each in wanted[row.first])
        names = dict.fromkeys(profile if _is_durable(by_profile.get(profile, ())) else 0 for profile in profiles)
        streams = [(event.publisher, event.incarnation, event.lane, name) for name in names]
        behind = [queues[stream] for stream in streams if stream in queues and event.place < queues[stream][0]]
        if len(behind) == len(streams):
            found.disordered.append((row, behind[0][1]))
        elif len(streams) == 1:
            queues[streams[0]] = (event.place, event.id)


def _is_durable(stays: Sequence[Stay]) -> bool:
    return any(stay.durable for stay in stays)


class _Fit:
    """Whether events suit devices; attributes are read once."""

    def __init__(self) -> None:
        self._read: dict[int, Fitness | None] = {}

    def suits(self, event: Matched, stay: Stay) -> bool:
        if not event.needs:
            return True
        key = id(stay)
        if key not in self._read:
            try:
                self._read[key] = Fitness(stay.attributes)
            except LocalProtocolError:
                self._read[key] = None
        fitness = self._read[key]
        return fitness is not None and fitness.suits(Event(headers=dict(event.needs)))
