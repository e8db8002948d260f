"""The advertisements that one broker holds, its own and those of its units, with the index that finds them.

An advertisement is held once, whatever the host controls: from a home in its cluster all of them, from one further away
those that reach so far. Where a client has advertised the same name at two brokers, because it moved, the later one
hides the earlier one until that one's lease ends. Withdrawals are held beside them, by home too: whether one counts
against an advertisement is for `service` to say.

`touched` names what has changed here, for who writes it down (`persistence`).

The invariant: `find` gives exactly what a scan over everything would (DSC-04), and `evaluated` counts how many
advertisements were really looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from msgspec.structs import replace

from veena.address import Address
from veena.core.discovery.advertisement import AdvertId, id_of, withdrawn_until
from veena.core.discovery.home_registry import FEW, weight
from veena.core.discovery.index import AdvertIndex, Postings
from veena.core.discovery.query import AdvertQuery
from veena.core.wire.discovery import Advertisement

#: What one controller holds: the advertisements of its unit, for which it needs the memory.
MAX_HELD = 1 << 18
MAX_HELD_BYTES = 512 << 20
#: Withdrawals: beyond these the one goes that would end first.
MAX_WITHDRAWN = 1 << 16

Visible = Callable[[Address, Advertisement], bool]


class AdvertStore:
    """Advertisements by home and id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Address, Advertisement]] = {}
        self._numbers: dict[Address, dict[AdvertId, int]] = {}
        #: The latest of each id.
        self._latest: dict[AdvertId, list[int]] = {}
        self._index = AdvertIndex()
        self._next = 0
        #: With the time at which each came here.
        self._withdrawn: dict[AdvertId, dict[Address, tuple[Advertisement, int]]] = {}
        self._withdrawn_of: dict[Address, dict[AdvertId, None]] = {}
        self._withdrawn_ends: list[tuple[int, Address, AdvertId]] = []
        self._withdrawals = 0
        self.touched: dict[tuple[Address, AdvertId], None] = {}
        self.bytes = 0
        #: Advertisements that were compared with a query, in all.
        self.evaluated = 0

    def __len__(self) -> int:
        return len(self._held)

    def of(self, home: Address) -> int:
        """How many of this home are held."""
        return len(self._numbers.get(home, ()))

    def has_room(self, adverts: tuple[Advertisement, ...]) -> bool:
        return len(self) + len(adverts) <= MAX_HELD and self.bytes + sum(map(weight, adverts)) <= MAX_HELD_BYTES

    def ids(self, home: Address) -> list[AdvertId]:
        """What is held of this home, withdrawals too."""
        return [*self._numbers.get(home, ()), *self._withdrawn_of.get(home, ())]

    def has(self, home: Address) -> bool:
        """Whether anything is held of this home."""
        return home in self._numbers or home in self._withdrawn_of

    def held(self, home: Address, key: AdvertId) -> Advertisement | None:
        """The advertisement or the withdrawal of a home under this id."""
        number = self._numbers.get(home, {}).get(key)
        if number is not None:
            return self._held[number][1]
        found = self._withdrawn.get(key, {}).get(home)
        return None if found is None else found[0]

    def is_withdrawn(self, advert: Advertisement, since_ns: int) -> bool:
        """Whether it is known here, since then at least, that its client took it back after it had said it."""
        found = self._withdrawn.get(id_of(advert), {}).values()
        return any(gone.stamp >= advert.stamp and came_ns >= since_ns for gone, came_ns in found)

    def bury(self, home: Address, gone: Advertisement, now_ns: int) -> None:
        """Hold a withdrawal; what the home had under its id goes."""
        key = id_of(gone)
        self.remove(home, key)
        self.touched[home, key] = None
        self._withdrawn_of.setdefault(home, {})[key] = None
        self._remember(home, gone, now_ns)
        self._withdrawals += 1
        while self._withdrawals > MAX_WITHDRAWN:
            self._unbury(*heappop(self._withdrawn_ends))

    def _remember(self, home: Address, gone: Advertisement, came_ns: int) -> None:
        """A withdrawal outlasts every advertisement of its id that is held: one may have had a longer lease."""
        key = id_of(gone)
        leases = [self._held[number][1].lease_ms for number in self._latest.get(key, ())]
        gone = replace(gone, lease_ms=max([gone.lease_ms, *leases]))
        self._withdrawn.setdefault(key, {})[home] = (gone, came_ns)
        heappush(self._withdrawn_ends, (withdrawn_until(gone, came_ns), home, key))
        if len(self._withdrawn_ends) > 2 * self._withdrawals + FEW:  # most were followed by others
            self._withdrawn_ends = sorted(
                (withdrawn_until(*found), home, key)
                for key, homes in self._withdrawn.items()
                for home, found in homes.items()
            )

    def _unbury(self, end_ns: int, home: Address, key: AdvertId) -> None:
        """End a withdrawal, unless there is a later one."""
        found = self._withdrawn.get(key, {}).get(home)
        if found is not None and withdrawn_until(*found) <= end_ns:
            self._exhume(home, key)

    def _exhume(self, home: Address, key: AdvertId) -> None:
        self.touched[home, key] = None
        homes, keys = self._withdrawn[key], self._withdrawn_of[home]
        del homes[home], keys[key]
        self._withdrawals -= 1
        if not homes:
            del self._withdrawn[key]
        if not keys:
            del self._withdrawn_of[home]

    def expire(self, now_ns: int) -> None:
        """Withdrawals that are needed no longer go."""
        while self._withdrawn_ends and self._withdrawn_ends[0][0] <= now_ns:
            self._unbury(*heappop(self._withdrawn_ends))

    def next_wakeup(self) -> int | None:
        return self._withdrawn_ends[0][0] if self._withdrawn_ends else None

    def put(self, home: Address, advert: Advertisement) -> None:
        """Hold an advertisement; what the home had under its id goes."""
        key = id_of(advert)
        self.remove(home, key)
        self.touched[home, key] = None
        number = self._next
        self._next += 1
        self._held[number] = (home, advert)
        self._numbers.setdefault(home, {})[key] = number
        rivals = self._latest.setdefault(key, [])
        rivals.append(number)
        rivals.sort(key=self._age)
        self._index.add(number, advert, home)
        self.bytes += weight(advert)
        for other, (gone, came_ns) in list(self._withdrawn.get(key, {}).items()):
            if gone.lease_ms < advert.lease_ms:
                self.touched[other, key] = None
                self._remember(other, gone, came_ns)

    def _age(self, number: int) -> tuple[int, Address]:
        home, advert = self._held[number]
        return advert.stamp, home

    def remove(self, home: Address, key: AdvertId) -> None:
        if key in self._withdrawn_of.get(home, ()):
            self._exhume(home, key)
        numbers = self._numbers.get(home, {})
        number = numbers.pop(key, None)
        if number is None:
            return
        self.touched[home, key] = None
        if not numbers:
            del self._numbers[home]
        _, advert = self._held.pop(number)
        rivals = self._latest[key]
        rivals.remove(number)
        if not rivals:
            del self._latest[key]
        self._index.remove(number, advert, home)
        self.bytes -= weight(advert)

    def drop(self, home: Address) -> None:
        """Forget everything of a home."""
        for key in self.ids(home):
            self.remove(home, key)

    def find(self, query: AdvertQuery, is_visible: Visible) -> list[tuple[Address, Advertisement]]:
        """The advertisements that match, each id once."""
        found: list[tuple[Address, Advertisement]] = []
        for number in self.candidates(query):
            candidate = self.candidate(number, is_visible)
            if candidate is not None and query.matches(candidate[1], candidate[0]):
                found.append(candidate)
        return found

    def candidates(self, query: AdvertQuery) -> list[int]:
        """Numbers of advertisements among which are all that match."""
        sources = query.sources(self._index)
        numbers: Postings = {}
        for postings in (self._held,) if sources is None else sources:
            numbers.update(dict.fromkeys(postings))
        return list(numbers)

    def candidate(self, number: int, is_visible: Visible) -> tuple[Address, Advertisement] | None:
        """The home and the advertisement of this number, if it is to be compared with a query: it is there (it may be
        gone since it was named), the latest of its id, and visible."""
        found = self._held.get(number)
        if found is None or self._latest[id_of(found[1])][-1] != number or not is_visible(*found):
            return None
        self.evaluated += 1
        return found

    def check(self) -> None:
        assert len(self._held) == sum(map(len, self._numbers.values())) == sum(map(len, self._latest.values()))
        assert self.bytes == sum(weight(advert) for _, advert in self._held.values())
        assert (
            sum(map(len, self._withdrawn.values())) == sum(map(len, self._withdrawn_of.values())) == self._withdrawals
        )
        assert self._withdrawals <= MAX_WITHDRAWN
        for home, keys in self._withdrawn_of.items():
            assert all(home in self._withdrawn[key] and key not in self._numbers.get(home, ()) for key in keys)
        for home, numbers in self._numbers.items():
            for key, number in numbers.items():
                assert self._held[number][0] == home and id_of(self._held[number][1]) == key
        self._index.check()
