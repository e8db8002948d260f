"""What a controller holds of the advertisements in its units, how it comes by them, and what it lacks (DSC-01).

Every broker tells the controllers of its cluster how far its own shelf has changed, the speaker of a cluster tells the
controllers of the super-cluster which shelves of the cluster reach so far, and so on upwards: numbers only, changes
soon and everything every so often, like a profile's climb (PPP-04). A controller that sees a higher number than it has
asks that home for the difference. So nothing has to be remembered about who holds what, the next round makes good for
a lost frame, and a controller that starts anew asks each part of its unit for a round and is whole two round trips
later.

A home that nobody has heard for the lease is dropped, and what it had is kept for the lease of each advertisement
(`orphaned`); the age of its last word travels with the numbers, so that the lease ends everywhere at the same
time, however many speakers lie between. A home that says itself that it has nothing is believed. Parts of the unit that
were not heard, and homes whose shelf has not come yet, are named: an answer from here says what it lacks.

The invariant: of every home that is not named as silent, the store holds what the home had at the number `version`,
restricted to the lowest level that the host controls around that home.

Rejected: every broker telling every controller itself (renewals would grow with the square of the unit), and holding
advertisements at every broker as interest is held (a description is a thousand times larger than a want).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from msgspec.structs import replace

from veena.address import Address, Unit, contains
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.discovery.advertisement import check_advert, check_withdrawal
from veena.core.discovery.home_registry import OwnShelf
from veena.core.discovery.orphaned import Estate
from veena.core.discovery.store import AdvertStore
from veena.core.interest.leases import Leases
from veena.core.topology.controllers import controllers, holders, is_holder
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.paths import distances
from veena.core.wire.discovery import MAX_MARKS, MAX_SILENT, Shelf, ShelfMark, ShelfRequest, Standing, StandingRequest
from veena.core.wire.interest import MAX_COUNT
from veena.errors import RemoteProtocolError

#: Shelves that are asked for at once: each answer is a page.
MAX_PULLS = 32
#: A question that was not answered is asked again after so long.
RETRY_NS = 2 * SECOND_NS
#: A part that names silent parts of its own is asked so often whether they still are; after that its rounds must do.
MAX_TRIES = 4
#: Homes that a controller knows of: the brokers of a unit of 64 x 64 x 64 are more than one broker can serve.
MAX_HOMES = 1 << 16
MAX_PARTS = MAX_HOMES // MAX_MARKS + 1

Say = Callable[[Unit, Standing | StandingRequest | ShelfRequest, int], None]


@dataclass(slots=True)
class _Holding:
    """What is known of one home."""

    versions: tuple[int, ...]
    heard_ns: int
    #: The level for which its shelf is held.
    level: int
    #: The number up to which it is held; 0 before the first page.
    version: int = 0


@dataclass(slots=True)
class _Hearing:
    """How a part of a unit was heard of."""

    heard_ns: int | None = None
    silent: tuple[Unit, ...] = ()
    asked_ns: int | None = None
    #: How often it was asked again because parts of it were silent.
    tries: int = 0
    #: The round that is coming in: teller and number, the next of its frames, and the homes in it so far.
    round: tuple[Address, int] = ((), 0)
    next_part: int = 0
    listed: dict[Address, None] = field(default_factory=dict)


class Office:
    """The controller's side of one broker, for every level that it controls."""

    def __init__(
        self,
        network: NetworkMap,
        settings: Settings,
        leases: Leases,
        own: OwnShelf,
        store: AdvertStore,
        estate: Estate,
        say: Say,
    ) -> None:
        self._map = network
        self._leases = leases
        self._own = own
        self._store = store
        self._estate = estate
        self._say = say
        #: Four times the lease of wants: rounds of all levels one after another must fit in it twice.
        self.lease_ns = 4 * settings.lease_ns
        self.round_ns = self.lease_ns // (2 * settings.levels)
        self._batch_ns = settings.batch_ns
        self._gather_ns = max(settings.batch_ns)
        #: The levels that the host controls, or is the deputy for, each with the time since when.
        self._since_ns: dict[int, int] = {}
        self._holdings: dict[Address, _Holding] = {}
        #: Homes of which not everything has come even once.
        self._unfetched: dict[Address, None] = {}
        self._hearings: dict[Unit, _Hearing] = {}
        #: Homes to be asked, in turn, and until when an answer is awaited.
        self._wanted: dict[Address, None] = {}
        self._awaited: dict[Address, int] = {}
        #: By level that the host may speak for: homes whose numbers changed, when they are told, when everything is.
        self._changed: dict[int, dict[Address, None]] = {}
        self._due_ns: dict[int, int] = {}
        self._round_due_ns: dict[int, int] = {}
        self._round = 0
        #: By level, the parts that the host last named as silent in a round.
        self._named: dict[int, list[Unit]] = {}
        self._map_version = -1
        self._next_look_ns = 0
        self._distances: dict[Unit, tuple[int, int]] = {}
        self._distances_version = -1

    # --- offices ---

    def controls(self, level: int) -> bool:
        return level in self._since_ns

    def is_settling(self, level: int, now_ns: int) -> bool:
        """Whether the host has only just taken this office and lacks something: another controller knows better."""
        return now_ns < self._since_ns[level] + self.round_ns and bool(self.silent(level, now_ns))

    def map_changed(self, now_ns: int) -> None:
        """Offices follow the map; whoever is new in a unit of the host is asked."""
        if self._map.version == self._map_version:
            return
        self._map_version = self._map.version
        held = [level for level in range(1, self._map.levels) if is_holder(self._map, level)]
        if held != list(self._since_ns):
            self._since_ns = {level: self._since_ns.get(level, now_ns) for level in held}
            for home, holding in list(self._holdings.items()):
                level = self._level_of(home)
                if level is None:
                    self._drop(home, now_ns)
                    self._estate.settle(home)
                elif level != holding.level:
                    holding.level, holding.version = level, 0
                    self._awaited.pop(home, None)
                    self._want(home)
            parts = [self._map.levels - level + 1 for level in held]
            self._hearings = {unit: heard for unit, heard in self._hearings.items() if len(unit) in parts}
        for unit, hearing in self._hearings.items():
            if self._leases.is_out(unit):
                # What changes there meanwhile is not heard here: it is silent until it is back and has told everything.
                hearing.heard_ns, hearing.asked_ns, hearing.tries = None, None, 0
        # A map that is changing goes on changing for a moment: ask once, when it has come to rest.
        self._next_look_ns = now_ns + self._gather_ns
        self._review_silence(now_ns)

    def _level_of(self, home: Address) -> int | None:
        """The lowest level at which the host controls a unit around this home."""
        return next((level for level in self._since_ns if contains(self._map.own(level), home)), None)

    def _parts(self, level: int) -> list[Unit]:
        """The parts of the host's unit of this level that the host has to hear of from others."""
        others = self._leases.siblings(level - 1)
        return others if level == 1 or level - 1 in self._since_ns else [self._map.own(level - 1), *others]

    def look(self, now_ns: int) -> None:
        """Ask parts that were not heard, and drop homes whose lease is over."""
        if now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + self.round_ns
        for home, holding in list(self._holdings.items()):
            if now_ns >= holding.heard_ns + self.lease_ns:
                self._drop(home, now_ns)
        reach = self._map.reachable()
        for level in self._since_ns:
            for unit in self._parts(level):
                hearing = self._hearings.setdefault(unit, _Hearing())
                if self._is_fresh(hearing, now_ns) and (not hearing.silent or hearing.tries >= MAX_TRIES):
                    continue
                if hearing.asked_ns is None or now_ns >= hearing.asked_ns + RETRY_NS:
                    hearing.asked_ns = now_ns
                    hearing.tries += 1
                    goal = self.nearest(level - 1) if unit == self._map.own(level - 1) else unit
                    if goal is not None and goal in reach:
                        self._say(goal, StandingRequest(unit, self._map.host), now_ns)
                self._next_look_ns = min(self._next_look_ns, now_ns + RETRY_NS)

    def nearest(self, level: int, preferred: Container[Unit] = ()) -> Unit | None:
        """A controller of the host's own unit of this level as the map sees it: a preferred one, else the nearest."""
        others = [unit for unit in controllers(self._map, level) if unit != self._map.host]
        if self._distances_version != self._map.version:
            self._distances_version, self._distances = self._map.version, distances(self._map)
        return min(
            (unit for unit in others if unit in self._distances),
            key=lambda unit: (unit not in preferred, -len(unit), self._distances[unit], unit),
            default=None,
        )

    def _is_fresh(self, hearing: _Hearing, now_ns: int) -> bool:
        return hearing.heard_ns is not None and now_ns < hearing.heard_ns + self.lease_ns

    def silent(self, level: int, now_ns: int) -> list[Unit]:
        """The parts of the host's unit of this level whose advertisements are not held here."""
        if level == 0:
            return []
        found: dict[Unit, None] = {}
        if level - 1 in self._since_ns:
            found.update(dict.fromkeys(self.silent(level - 1, now_ns)))
        for unit in self._parts(level):
            hearing = self._hearings.get(unit)
            if hearing is None or not self._is_fresh(hearing, now_ns):
                found[unit] = None
            else:
                found.update(dict.fromkeys(hearing.silent))
        own = self._map.own(level)
        found.update((home, None) for home in self._unfetched if contains(own, home))
        if len(found) > MAX_SILENT:
            found = dict.fromkeys(unit[: len(own) + 1] for unit in found)
        return sorted(found)

    # --- hearing ---

    def hear(self, frame: Standing, now_ns: int) -> None:
        """What a part of a unit of the host has; passed on to controllers in the same part of the map."""
        host, levels = self._map.host, self._map.levels
        level = levels - len(frame.unit) + 1
        enclosing = frame.unit[:-1]
        if not 1 <= level < levels or not contains(enclosing, host) or not contains(frame.within, host):
            raise RemoteProtocolError(f"what {frame.unit} has on its shelves is not for {host}")
        if len(frame.teller) != levels or not contains(frame.unit, frame.teller) or frame.parts > MAX_PARTS:
            raise RemoteProtocolError(f"shelves of {frame.unit} told by {frame.teller} in {frame.parts} parts")
        for mark in frame.marks:
            if len(mark.home) != levels or not contains(frame.unit, mark.home) or len(mark.versions) != levels - 1:
                raise RemoteProtocolError(f"a shelf of {mark.home} cannot stand in {frame.unit}")
            if max(mark.versions) > MAX_COUNT:
                raise RemoteProtocolError(f"nobody's shelf has changed {max(mark.versions)} times")
        for unit in frame.silent:
            if not contains(frame.unit, unit):
                raise RemoteProtocolError(f"{unit} is no part of {frame.unit} that could be silent")
        for unit in holders(self._map, level):
            if len(frame.within) < len(unit) and contains(frame.within, unit) and unit != host:
                self._say(unit, replace(frame, within=unit), now_ns)
        if level in self._since_ns and frame.teller != host:
            for mark in frame.marks:
                self._note(mark, level, frame.teller, now_ns)
            self._hear_round(frame, now_ns)
            self._pull(now_ns)
            self._review_silence(now_ns)

    def _note(self, mark: ShelfMark, level: int, teller: Address, now_ns: int) -> None:
        """Numbers of one home; what is told for a higher level than the host's office around it is known already."""
        held_for = self._level_of(mark.home)
        if mark.home == self._map.host or held_for != level:
            return
        holding = self._holdings.get(mark.home)
        if not mark.versions[level - 1]:
            if holding is not None:
                self._drop(mark.home, now_ns)
            if teller == mark.home:
                self._estate.settle(mark.home)
            return
        heard_ns = now_ns - mark.age_ms * MILLISECOND_NS
        if heard_ns + self.lease_ns <= now_ns:
            return
        if holding is None:
            if len(self._holdings) >= MAX_HOMES:
                return
            holding = self._holdings[mark.home] = _Holding(mark.versions, heard_ns, level)
            self._unfetched[mark.home] = None
            self._stir(mark.home, now_ns)
        elif holding.heard_ns < heard_ns:
            if holding.versions != mark.versions:
                self._stir(mark.home, now_ns)
            if holding.versions[level - 1] > mark.versions[level - 1]:
                self._want(mark.home)  # it lost its disk and counts anew
            holding.versions, holding.heard_ns = mark.versions, heard_ns
        if holding.versions[level - 1] > holding.version:
            self._want(mark.home)

    def _hear_round(self, frame: Standing, now_ns: int) -> None:
        """When all frames of a round have come the part is heard; what was not in it is there no more."""
        if not frame.parts:
            return
        hearing = self._hearings.setdefault(frame.unit, _Hearing())
        if frame.part == 0:
            hearing.round, hearing.next_part, hearing.listed = (frame.teller, frame.round), 0, {}
        if hearing.round != (frame.teller, frame.round) or hearing.next_part != frame.part:
            return
        hearing.next_part += 1
        hearing.listed.update((mark.home, None) for mark in frame.marks)
        if hearing.next_part < frame.parts:
            return
        hearing.heard_ns, hearing.silent = now_ns, frame.silent
        if frame.silent:
            self._next_look_ns = min(self._next_look_ns, now_ns + RETRY_NS)
        else:
            hearing.tries = 0
        level = self._map.levels - len(frame.unit) + 1
        for home, holding in list(self._holdings.items()):
            is_told_of = holding.level == level and contains(frame.unit, home) and home not in hearing.listed
            if is_told_of and not any(contains(unit, home) for unit in frame.silent):
                self._drop(home, now_ns)
        self._estate.heard(frame.unit, hearing.listed, frame.silent)
        if frame.unit == frame.teller and frame.teller not in hearing.listed:
            self._estate.settle(frame.teller)
        hearing.listed = {}

    def _drop(self, home: Address, now_ns: int) -> None:
        """A home is heard no longer: what it had stays for the lease of each."""
        heard_ns = self._holdings.pop(home).heard_ns
        self._unfetched.pop(home, None)
        self._wanted.pop(home, None)
        self._awaited.pop(home, None)
        self._estate.inherit(home, heard_ns, now_ns)
        self._stir(home, now_ns)

    # --- shelves ---

    def _want(self, home: Address) -> None:
        if home not in self._awaited:
            self._wanted[home] = None

    def _pull(self, now_ns: int) -> None:
        while self._wanted and len(self._awaited) < MAX_PULLS:
            home = next(iter(self._wanted))
            del self._wanted[home]
            holding = self._holdings[home]
            self._awaited[home] = now_ns + RETRY_NS
            self._say(home, ShelfRequest(holding.level, holding.version, self._map.host), now_ns)

    def take(self, frame: Shelf, home: Address, now_ns: int) -> None:
        """A page of a shelf, from its home."""
        holding = self._holdings.get(home)
        if holding is None or home not in self._awaited or frame.level != holding.level:
            return  # an answer to what is no longer asked
        if frame.since not in (0, holding.version) or not frame.since <= frame.up_to <= frame.latest <= MAX_COUNT:
            raise RemoteProtocolError(f"a page of {home} from {frame.since} to {frame.up_to} of {frame.latest}")
        for advert in frame.adverts:
            check_advert(advert, self._map.levels)
            if advert.scope < frame.level:
                raise RemoteProtocolError(f"{advert.name!r:.80} of {home} must not be told to level {frame.level}")
        for gone in frame.withdrawn:
            check_withdrawal(gone, self._map.levels)
        del self._awaited[home]
        if not self._estate.make_room(frame.adverts):
            return  # its home stays named as one whose shelf has not come
        if not frame.since:
            self._estate.settle(home)
            self._store.drop(home)
        for removal in frame.removed:
            self._store.remove(home, (removal.client, removal.name))
        for advert in frame.adverts:
            self._store.put(home, advert)
        for gone in frame.withdrawn:
            self._store.bury(home, gone, now_ns)
        holding.version = frame.up_to
        if frame.up_to < frame.latest:
            self._want(home)
        else:
            self._unfetched.pop(home, None)
            holding.version = max(frame.latest, holding.version)
        self._pull(now_ns)
        self._review_silence(now_ns)

    # --- telling ---

    def own_changed(self, now_ns: int) -> None:
        """The host's own shelf changed."""
        self._stir(self._map.host, now_ns)

    def _stir(self, home: Address, now_ns: int) -> None:
        """The numbers of a home changed: whoever speaks for a unit around it tells so."""
        first = 0 if home == self._map.host else self._level_of(home)
        if first is None:
            return
        for level in range(first, self._map.levels - 1):
            if level == 0 or level in self._since_ns:
                self._changed.setdefault(level, {})[home] = None
                self._due_ns.setdefault(level, now_ns + self._interval_ns(level))

    def _review_silence(self, now_ns: int) -> None:
        """Whoever was told that parts are silent learns soon that they no longer are."""
        for level, named in self._named.items():
            if level in self._round_due_ns and self.silent(level, now_ns) != named:
                self._round_due_ns[level] = min(self._round_due_ns[level], now_ns + self._interval_ns(level))

    def _interval_ns(self, level: int) -> int:
        return self._batch_ns[min(level, len(self._batch_ns) - 1)]

    def tell(self, speaks_for: list[int], now_ns: int) -> None:
        """Tell the controllers above what is due, of the units that the host speaks for."""
        for level in range(self._map.levels - 1):
            if level not in speaks_for or (level and level not in self._since_ns):
                for due in (self._changed, self._due_ns, self._round_due_ns, self._named):
                    due.pop(level, None)
                continue
            # Whoever takes an office asks for what it needs: the first round of a new speaker has time.
            if now_ns >= self._round_due_ns.setdefault(level, now_ns + self.round_ns):
                self._round_due_ns[level] = now_ns + self.round_ns
                self._named[level] = self.silent(level, now_ns)
                self._spread(level, self.round_frames(level, now_ns), now_ns)
            elif now_ns >= self._due_ns.get(level, now_ns + 1):
                marks = [self._mark(home, now_ns) for home in self._changed.get(level, ())]
                self._spread(level, self._frames(level, marks, False, now_ns), now_ns)
            else:
                continue
            self._changed.pop(level, None)
            self._due_ns.pop(level, None)

    def round_frames(self, level: int, now_ns: int) -> list[Standing]:
        """Everything that the host's unit of this level has for controllers above it."""
        unit = self._map.own(level)
        homes = [home for home, each in self._holdings.items() if contains(unit, home) and each.versions[level]]
        homes += [self._map.host] if self._own.versions[level] else []
        return self._frames(level, [self._mark(home, now_ns) for home in homes], True, now_ns)

    def _mark(self, home: Address, now_ns: int) -> ShelfMark:
        if home == self._map.host:
            return ShelfMark(home, self._own.versions, 0)
        holding = self._holdings.get(home)
        if holding is None:
            return ShelfMark(home, (0,) * (self._map.levels - 1), 0)
        return ShelfMark(home, holding.versions, min((now_ns - holding.heard_ns) // MILLISECOND_NS, (1 << 32) - 1))

    def _frames(self, level: int, marks: list[ShelfMark], is_round: bool, now_ns: int) -> list[Standing]:
        unit, host = self._map.own(level), self._map.host
        self._round += 1
        starts = list(range(0, len(marks), MAX_MARKS)) or [0]
        silent = tuple(self.silent(level, now_ns)) if is_round else ()
        parts = len(starts) if is_round else 0
        return [
            Standing(unit, host, host, self._round, parts, part, tuple(marks[at : at + MAX_MARKS]), silent)
            for part, at in enumerate(starts)
        ]

    def _spread(self, level: int, frames: list[Standing], now_ns: int) -> None:
        for unit in holders(self._map, level + 1):
            if unit != self._map.host:
                for frame in frames:
                    self._say(unit, replace(frame, within=unit), now_ns)

    # --- time ---

    def tick(self, speaks_for: list[int], now_ns: int) -> None:
        for home in [home for home, until in self._awaited.items() if now_ns >= until]:
            del self._awaited[home]
            self._wanted[home] = None
        self.look(now_ns)
        self._pull(now_ns)
        self.tell(speaks_for, now_ns)

    def next_wakeup(self) -> int | None:
        if len(self._map.reachable()) == 1 and not self._holdings:
            return None  # alone: there is nobody to tell or to ask
        due = [*self._due_ns.values(), *self._round_due_ns.values(), *self._awaited.values()]
        if self._since_ns:
            due.append(self._next_look_ns)
        return min(due, default=None)

    def heard_ns(self, home: Address) -> int:
        """When a home was heard last; 0 for one that is not."""
        holding = self._holdings.get(home)
        return 0 if holding is None else holding.heard_ns

    def homes(self) -> list[Address]:
        return list(self._holdings)

    def check(self) -> None:
        for home, holding in self._holdings.items():
            assert holding.level == self._level_of(home), "a shelf is held for the lowest office around its home"
            assert len(holding.versions) == self._map.levels - 1
        assert all(home in self._holdings for home in (*self._wanted, *self._awaited, *self._unfetched))
        assert len(self._awaited) <= MAX_PULLS
        assert not any(home in self._awaited for home in self._wanted)
