"""What has been settled with the other ends of a gatekeeper's links: how far everybody there has what was heard here.

Whatever is heard between two flushes is one batch, with a number. An other end confirms batches by their numbers, and a
batch is settled when all have confirmed it who could act on less. Of a batch only this is kept: for each unit and
speaker in it the lowest version. A speaker's words are settled up to just before the first one that is not.

A connection that is lost goes on counting until its other end has surely noticed. The invariant: batches are kept in
the order of their numbers, and one is forgotten exactly when no link and no lost connection is below it.
"""

from __future__ import annotations

from collections.abc import Iterable

from veena.address import Address, Unit
from veena.core.interest.table import Pair
from veena.core.wire.interest import Version

#: Unconfirmed batches that are told apart; more are confirmed together.
MAX_UNCONFIRMED = 64
#: Lost connections that are told apart.
MAX_LOST = 64

#: The lowest version of each unit and speaker.
Lowest = dict[tuple[Unit, Address], Pair]


class Settlement:
    """Batches that wait for confirmation."""

    def __init__(self) -> None:
        #: Of the last batch.
        self.number = 0
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
        for number in [number for number in self._waiting if number <= lowest]:
            del self._waiting[number]

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
