"""The advertisements that one broker holds, its own and those of its units, with the index that finds them.

An advertisement is held once, whatever the host controls: from a home in its cluster all of them, from one further away
those that reach so far. Where a client has advertised the same name at two brokers, because it moved, the later one
hides the earlier one until that one's lease ends.

The invariant: `find` gives exactly what a scan over everything would (DSC-04), and `evaluated` counts how many
advertisements were really looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from veena.address import Address
from veena.core.advert import AdvertId, id_of
from veena.core.advert_index import AdvertIndex, Postings
from veena.core.advert_query import AdvertQuery
from veena.core.discovery_frames import Advertisement
from veena.core.shelf import weight

#: What one controller holds: the advertisements of its unit, for which it needs the memory.
MAX_HELD = 1 << 18
MAX_HELD_BYTES = 512 << 20

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

    def put(self, home: Address, advert: Advertisement) -> None:
        """Hold an advertisement; what the home had under its id goes."""
        key = id_of(advert)
        self.remove(home, key)
        number = self._next
        self._next += 1
        self._held[number] = (home, advert)
        self._numbers.setdefault(home, {})[key] = number
        rivals = self._latest.setdefault(key, [])
        rivals.append(number)
        rivals.sort(key=self._age)
        self._index.add(number, advert)
        self.bytes += weight(advert)

    def _age(self, number: int) -> tuple[int, Address]:
        home, advert = self._held[number]
        return advert.stamp, home

    def remove(self, home: Address, key: AdvertId) -> None:
        numbers = self._numbers.get(home, {})
        number = numbers.pop(key, None)
        if number is None:
            return
        if not numbers:
            del self._numbers[home]
        _, advert = self._held.pop(number)
        rivals = self._latest[key]
        rivals.remove(number)
        if not rivals:
            del self._latest[key]
        self._index.remove(number, advert)
        self.bytes -= weight(advert)

    def drop(self, home: Address) -> None:
        """Forget everything of a home."""
        for key in list(self._numbers.get(home, ())):
            self.remove(home, key)

    def find(self, query: AdvertQuery, is_visible: Visible) -> list[tuple[Address, Advertisement]]:
        """The advertisements that match, each id once."""
        sources = query.sources(self._index)
        numbers: Postings = {}
        for postings in (self._held,) if sources is None else sources:
            numbers.update(dict.fromkeys(postings))
        found: list[tuple[Address, Advertisement]] = []
        for number in numbers:
            home, advert = self._held[number]
            if self._latest[id_of(advert)][-1] != number or not is_visible(home, advert):
                continue
            self.evaluated += 1
            if query.matches(advert):
                found.append((home, advert))
        return found

    def check(self) -> None:
        assert len(self._held) == sum(map(len, self._numbers.values())) == sum(map(len, self._latest.values()))
        assert self.bytes == sum(weight(advert) for _, advert in self._held.values())
        for home, numbers in self._numbers.items():
            for key, number in numbers.items():
                assert self._held[number][0] == home and id_of(self._held[number][1]) == key
        self._index.check()
