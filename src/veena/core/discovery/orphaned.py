"""What brokers that are away left to this controller: each advertisement, for as long as its lease (DSC-01, TRD-05).

A controller holds copies of the shelves of its unit. A home that falls silent may be down for a moment or lost for
good; either way its clients have lost their connection, and what they advertise stands for its lease from then on, as
it would at the home. So the loss of one broker loses nothing that the lease of an offer promised. The home's own word
ends it: whatever it tells when it is back replaces what was kept in its name.

After a restart everything that the controller's disk has of others is such a legacy, until each home is heard. It is
*doubted* first: a home that lives may have taken back what this disk still has, so nothing of it is shown before its
home, or whoever speaks for the unit around it, has had the time to say so. Meanwhile answers name that unit as silent.

The invariant: an advertisement of a home that is not heard ends by its lease, counted from when the home was heard
last; one that is doubted is in no answer.

Rejected: dropping everything of a home that is silent for the office's own lease (offers of applications that are away
by their right would be lost with one machine), and trusting the disk at once (it brings back what was withdrawn).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import heappop, heappush

from veena.address import Address, Unit, contains
from veena.core.discovery.advertisement import AdvertId, end_of, is_withdrawal
from veena.core.discovery.home_registry import FEW
from veena.core.discovery.store import AdvertStore
from veena.core.wire.discovery import Advertisement


class Estate:
    """The homes that are not heard and have left something in the store."""

    def __init__(self, store: AdvertStore) -> None:
        self._store = store
        #: Since when each is away, the longest known first.
        self._left_ns: dict[Address, int] = {}
        self._ends: list[tuple[int, Address, AdvertId]] = []
        #: Those of which nothing is shown yet, with since when they are away by what is on disk; 0 for not.
        self._doubted: dict[Address, int] = {}
        #: From then on nobody is doubted any more.
        self._sure_from_ns = 0

    def __contains__(self, home: Address) -> bool:
        return home in self._left_ns

    def __len__(self) -> int:
        return len(self._left_ns)

    def left_ns(self, home: Address) -> int:
        """Since when a home is away, as it is to be written down: 0 for one that is there, and no news of one that is
        doubted."""
        return self._doubted.get(home, self._left_ns.get(home, 0))

    def is_doubted(self, home: Address) -> bool:
        return home in self._doubted

    def inherit(self, home: Address, left_ns: int, now_ns: int) -> None:
        """A home is not heard any more: what the store has of it stays for its lease."""
        self._keep(home, max(left_ns, self._left_ns.get(home, left_ns)))
        self._touch(home)
        self.expire(now_ns)

    def restore(self, home: Address, left_ns: int, died_ns: int, sure_from_ns: int) -> None:
        """The same with what the disk had, which said `left_ns`; doubted until then at the latest."""
        self._sure_from_ns = sure_from_ns
        self._doubted[home] = left_ns
        self._keep(home, left_ns or died_ns)

    def _keep(self, home: Address, left_ns: int) -> None:
        self._left_ns[home] = left_ns
        for end in self._ends_of(home):
            heappush(self._ends, end)
        if len(self._ends) > 2 * sum(map(self._store.of, self._left_ns)) + FEW:  # most are of homes that came back
            self._ends = sorted(end for each in self._left_ns for end in self._ends_of(each))

    def _ends_of(self, home: Address) -> Iterator[tuple[int, Address, AdvertId]]:
        for key in self._store.ids(home):
            advert = self._store.held(home, key)
            assert advert is not None
            if not is_withdrawal(advert):
                yield end_of(advert, self._left_ns[home]), home, key

    def _touch(self, home: Address) -> None:
        """Since when it is away is to be written down."""
        self._store.touched.update(((home, key), None) for key in self._store.ids(home))

    def settle(self, home: Address) -> None:
        """The home tells itself what it has: what was kept in its name is over."""
        if self._left_ns.pop(home, None) is not None:
            self._doubted.pop(home, None)
            self._store.drop(home)

    def heard(self, unit: Unit, listed: Container[Address], silent: Iterable[Unit]) -> None:
        """All of a unit was told: homes in it that were not named, nor may be in a part that is silent, are away."""
        for home in [home for home in self._doubted if contains(unit, home) and home not in listed]:
            if not any(contains(part, home) for part in silent):
                self._believe(home)

    def _believe(self, home: Address) -> None:
        del self._doubted[home]
        self._touch(home)

    def expire(self, now_ns: int) -> None:
        """What stood for its lease without its home goes."""
        if now_ns >= self._sure_from_ns:
            for home in list(self._doubted):
                self._believe(home)
        while self._ends and self._ends[0][0] <= now_ns:
            _, home, key = heappop(self._ends)
            advert = self._store.held(home, key)
            if home in self._left_ns and advert is not None and self._is_over(home, advert, now_ns):
                self._store.remove(home, key)
        for home in [home for home in self._left_ns if not self._store.has(home)]:
            del self._left_ns[home]
            self._doubted.pop(home, None)

    def _is_over(self, home: Address, advert: Advertisement, now_ns: int) -> bool:
        return not is_withdrawal(advert) and end_of(advert, self._left_ns[home]) <= now_ns

    def make_room(self, adverts: tuple[Advertisement, ...]) -> bool:
        """Whether the store has room for these; who is away longest makes room for who is there."""
        while not self._store.has_room(adverts) and self._left_ns:
            self.settle(min(self._left_ns, key=lambda home: (self._left_ns[home], home)))
        return self._store.has_room(adverts)

    def next_wakeup(self) -> int | None:
        due = [self._ends[0][0]] if self._ends else []
        return min([*due, self._sure_from_ns] if self._doubted else due, default=None)

    def check(self) -> None:
        assert all(home in self._left_ns for home in self._doubted)
