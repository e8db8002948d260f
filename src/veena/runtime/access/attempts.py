"""Wrong log-ins, remembered for a while: how long the next one has to wait, by where it comes from and whom it names.

| remembered by | from so many wrong ones on | what happens |
|---|---|---|
| place and name | `PAIR` | the next log-in is refused unread for a time that doubles, up to a minute |
| the same, and the name was let in from that place lately | `EXPECTED` | the same, up to two seconds |
| place | `PLACE` | the same for a few seconds, unless that name was let in from that place lately |
| name | `NAME` | the next log-in is read a little later, unless that name was let in from that place lately |

Guesses at a name therefore never lock its owner out who is at another place: they make his first log-in from a new
place up to two seconds slower. Whoever shares a place with a guesser waits a few seconds for a first log-in, and not at
all after that. Behind one portal all people share a place: guesses at somebody who uses that portal cost its owner two
seconds there, not a minute. A place is an address, or the 64 bits of an IPv6 address that one customer has.

Rejected: locking a name after some wrong passwords, whoever sent them. Anybody could then lock out anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Places, names and pairs that are remembered, each; beyond that the longest untouched is forgotten: some MiB.
MAX_REMEMBERED: Final = 1 << 15
#: Without a wrong log-in for so long, those before are forgotten.
FORGET_S: Final = 600.0
#: A name that was let in from a place is expected there for so long.
EXPECTED_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How what is remembered slows the next log-in: not at all up to `free` wrong ones, then from `first_s` on."""

    free: int
    first_s: float
    longest_s: float

    def pause_s(self, wrong: int) -> float:
        beyond = wrong - self.free
        # The exponent is bounded: a float ends at 2 ** 1024.
        return 0.0 if beyond <= 0 else min(self.longest_s, self.first_s * 2.0 ** min(beyond - 1, 64))


#: People mistype a few times, and programs have one password.
PAIR: Final = Pace(4, 0.5, 60.0)
#: Behind a portal others guess from the place where the owner of the name is expected.
EXPECTED: Final = Pace(4, 0.5, 2.0)
#: Many people may share an address; a first log-in there must stay possible.
PLACE: Final = Pace(30, 0.25, 4.0)
#: Guesses from many addresses at once; the owner of the name waits as long.
NAME: Final = Pace(20, 0.1, 2.0)


@dataclass(slots=True)
class _Wrong:
    count: int
    at: float


class _Counts:
    """Wrong log-ins by one key, the longest untouched first."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._found: dict[int, _Wrong] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, key: int, now: float) -> None:
        found = self._found.pop(key, None)
        if found is None or now - found.at > FORGET_S:
            found = _Wrong(0, now)
        found.count, found.at = found.count + 1, now
        self._found[key] = found
        if len(self._found) > MAX_REMEMBERED:
            del self._found[next(iter(self._found))]

    def clear(self, key: int) -> None:
        self._found.pop(key, None)

    def pause_s(self, key: int, now: float, pace: Pace | None = None) -> float:
        found = self._found.get(key)
        return 0.0 if found is None or now - found.at > FORGET_S else (pace or self._pace).pause_s(found.count)

    def left_s(self, key: int, now: float, pace: Pace | None = None) -> float:
        """How much of the pause after the last wrong one is left."""
        found = self._found.get(key)
        return 0.0 if found is None else max(0.0, found.at + self.pause_s(key, now, pace) - now)


class Attempts:
    """What one broker remembers. Names and places are kept as hashes: they are short, and show nobody's typing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pairs, self._places, self._names = _Counts(PAIR), _Counts(PLACE), _Counts(NAME)
        #: When a name was let in from a place last.
        self._expected: dict[int, float] = {}

    def wait_s(self, place: str, name: str) -> float:
        """How long a log-in of this name from this place is refused unread; 0 if it is read."""
        now = self._clock()
        pair = hash((place, name))
        if self._is_expected(place, name, now):
            return self._pairs.left_s(pair, now, EXPECTED)
        return max(self._pairs.left_s(pair, now), self._places.left_s(hash(place), now))

    def delay_s(self, place: str, name: str) -> float:
        """How much later a log-in is read because others guess at this name."""
        now = self._clock()
        return 0.0 if self._is_expected(place, name, now) else self._names.pause_s(hash(name), now)

    def wrong(self, place: str, name: str) -> None:
        now = self._clock()
        self._pairs.add(hash((place, name)), now)
        self._places.add(hash(place), now)
        self._names.add(hash(name), now)

    def right(self, place: str, name: str) -> None:
        key = hash((place, name))
        self._pairs.clear(key)
        self._expected.pop(key, None)
        self._expected[key] = self._clock()
        if len(self._expected) > MAX_REMEMBERED:
            del self._expected[next(iter(self._expected))]

    def remembered(self) -> int:
        return len(self._pairs) + len(self._places) + len(self._names) + len(self._expected)

    def _is_expected(self, place: str, name: str, now: float) -> bool:
        at = self._expected.get(hash((place, name)))
        return at is not None and now - at <= EXPECTED_S
