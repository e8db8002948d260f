"""What the papers' latency experiment is made of: its cells, its events, who wants which of them, and the numbers of
one cell. Nothing here touches a socket or a clock.

Events have six tag=value pairs (EXP-04). The first three are the same in all events and all profiles, so every match
looks at four pairs at least; the fourth decides. At a match rate of 100 / n % the fourth tag has n values: every n
events have each of them once, in an order that chance gives, and each subscriber wants one value, so it gets one event
of n exactly (EXP-05).

The size of an event is what its publisher made of it, as it lies on the wire: the six pairs and the body. The frame
around them (`envelope`) is the same for all events and has more bytes than the papers' smallest event, so it is not
counted in the size, but reported (`frame_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from random import Random
from statistics import fmean, pvariance

from veena.core.links.link import MAX_WAITING_BYTES, MAX_WAITING_EVENTS
from veena.core.wire.event import EventCodec
from veena.errors import VeenaError
from veena.event import Event, EventId

#: The papers' match rates, and one that D2 has besides.
MATCH_RATES = (100, 50, 25, 10, 5)
COMMON = {"a": "1", "b": "2", "c": "3"}
DECIDING = "d"
#: The fifth has one of ten values, so that events differ at a match rate of 100 % as at all others: what brokers save
#: on a row of events that are alike would be a saving at that rate alone.
REST = {"e": "5", "f": "6"}
VARYING = "e"
#: The number of an event, at the end of its body.
NUMBER_BYTES = 4
#: The papers' smallest and largest event.
SIZE_MIN, SIZE_MAX = 30, 500
RATE_MIN, RATE_MAX = 0.5, 20_000.0
#: A received share may differ by so many percentage points from the match rate (EXP-05): 33 % is a third.
SHARE_TOLERANCE = 1.0
#: Timers are exact to a millisecond: a pause is at least so long, and a burst as large as the rate then needs (EXP-06).
PAUSE_S_MIN = 0.004
#: A measuring subscriber gets so many events at least, however low the rate.
RECEIVED_MIN = 10
#: About the frame around an event; with it, all events of a cell fit into what may wait for one link. So a rate that is
#: too high makes events wait, and none is dropped for want of room.
ENVELOPE = 128


class WrongCell(VeenaError):
    """A match rate, a size or a rate that cannot be measured."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a match rate, a publish rate in events a second, a size in bytes."""

    match_percent: int
    per_second: float
    size: int
    #: Everybody gets everything and chooses for itself, as where a network floods (EXP-21).
    flooding: bool = False

    def check(self) -> Cell:
        values_of(self.match_percent)
        if not SIZE_MIN <= self.size <= SIZE_MAX:
            raise WrongCell(f"size {self.size}: expected {SIZE_MIN} to {SIZE_MAX} bytes")
        if not RATE_MIN <= self.per_second <= RATE_MAX:
            raise WrongCell(f"rate {self.per_second:g}: expected {RATE_MIN:g} to {RATE_MAX:g} events a second")
        return self

    @property
    def group(self) -> tuple[bool, int]:
        """Cells with the same subscriptions."""
        return self.flooding, self.match_percent

    def events(self, seconds: float) -> int:
        """How many events: each value of the fourth tag equally often, and enough of each."""
        values = values_of(self.match_percent)
        most = min(MAX_WAITING_EVENTS, MAX_WAITING_BYTES // (self.size + ENVELOPE))
        return values * min(max(RECEIVED_MIN, ceil(self.per_second * seconds / values)), most // values)

    def pace(self) -> tuple[int, float]:
        """A burst, and the pause in seconds from its begin to the next (EXP-06)."""
        burst = max(1, ceil(self.per_second * PAUSE_S_MIN))
        return burst, burst / self.per_second


def values_of(match_percent: int) -> int:
    """How many values the fourth tag has; raise WrongCell for a rate that no number of values gives."""
    values = round(100 / match_percent) if 0 < match_percent <= 100 else 0
    if not values or abs(100 / values - match_percent) >= SHARE_TOLERANCE:
        raise WrongCell(f"match rate {match_percent} %: expected 100 % divided by a number: 100, 50, 33, 25, 20, 10, 5")
    return values


def drawn_values(values: int, count: int, chance: Random) -> list[int]:
    """The fourth tag of so many events: within every `values` of them each value once."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += chance.sample(range(values), values)
    return drawn[:count]


def wanted_values(values: int, subscribers: int, chance: Random) -> list[int]:
    """What each subscriber wants: all values equally often, at brokers that chance chooses."""
    wanted = [number % values for number in range(subscribers)]
    chance.shuffle(wanted)
    return wanted


def profile(value: int, *, flooding: bool = False) -> str:
    """The constraint of a subscriber that wants this value of the fourth tag."""
    pairs = {**COMMON, DECIDING: "*" if flooding else str(value), **dict.fromkeys(REST, "*")}
    return ",".join(f"{tag}={wanted}" for tag, wanted in pairs.items())


def event(number: int, value: int, size: int, timestamp_ns: int) -> Event:
    """An event of so many bytes, pairs and body together."""
    tags = {**COMMON, DECIDING: str(value), **REST, VARYING: str(number % 10)}
    # One byte before every text of less than 32 bytes.
    pairs = sum(2 + len(tag) + len(given) for tag, given in tags.items())
    body = number.to_bytes(NUMBER_BYTES, "big").rjust(size - pairs, b".")
    return Event(tags=tags, body=body, timestamp_ns=timestamp_ns)


def number_of(body: bytes | memoryview) -> int:
    return int.from_bytes(body[-NUMBER_BYTES:], "big")


def wire_sizes(size: int, codec: EventCodec, publisher: str) -> tuple[int, int]:
    """Pairs and body of such an event as they lie on the wire, and its whole frame, in bytes."""
    identity, origin = EventId(publisher, 1, 1, 0), (0,) * codec.levels
    sent, empty = (
        Event(tags=each.tags, body=each.body, timestamp_ns=1, event_id=identity)
        for each in (event(0, 0, size, 1), Event())
    )
    whole, envelope = (len(codec.encode_event(each, 0, reliable=False, origin=origin)) for each in (sent, empty))
    return whole - envelope, whole


# --- what came ---


@dataclass(frozen=True, slots=True)
class Tally:
    """What one subscriber, or all of them, should have got and got."""

    expected: int = 0
    delivered: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    spurious: int = 0
    #: Per cent of the events of a cell that came and were wanted: least and most over the subscribers.
    share_min: float = 100.0
    share_max: float = 0.0

    @property
    def missing(self) -> int:
        return self.expected - self.delivered

    def faults(self, match_percent: int) -> list[str]:
        counts = {
            "missing": self.missing, "repeated": self.duplicates, "out of order": self.out_of_order,
            "not wanted": self.spurious,
        }  # fmt: skip
        found = [f"{count} of {self.expected} deliveries {what}" for what, count in counts.items() if count]
        if max(match_percent - self.share_min, self.share_max - match_percent) > SHARE_TOLERANCE:
            found.append(f"{self.share_min:.2f} to {self.share_max:.2f} % came instead of {match_percent} %")
        return found


def judge(values: Sequence[int], first: int, wanted: int, got: Iterable[int], *, flooding: bool = False) -> Tally:
    """Hold what one subscriber got against the events of a cell, which are numbered from `first` on.

    What comes after its own cell was given up there, or is there twice: it counts as not wanted.
    """
    due = {first + at for at, value in enumerate(values) if flooding or value == wanted}
    numbers = list(got)
    came = set(numbers)
    chosen = sum(1 for number in came & due if values[number - first] == wanted)
    share = 100 * chosen / len(values)
    return Tally(
        expected=len(due), delivered=len(due & came), duplicates=len(numbers) - len(came),
        out_of_order=sum(one > other for one, other in pairwise(numbers)), spurious=len(came - due),
        share_min=share, share_max=share,
    )  # fmt: skip


def summed(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        expected=sum(each.expected for each in tallies), delivered=sum(each.delivered for each in tallies),
        duplicates=sum(each.duplicates for each in tallies), out_of_order=sum(each.out_of_order for each in tallies),
        spurious=sum(each.spurious for each in tallies), share_min=min(each.share_min for each in tallies),
        share_max=max(each.share_max for each in tallies),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the events that came to a measuring subscriber, in milliseconds; variance in their square (EXP-08)."""

    mean: float
    variance: float
    min: float
    max: float
    p50: float
    p99: float

    @classmethod
    def of(cls, took_ms: Sequence[float]) -> Latency | None:
        if not took_ms:
            return None
        ranked = sorted(took_ms)
        p50, p99 = (ranked[ceil(len(ranked) * part) - 1] for part in (0.5, 0.99))
        return cls(fmean(ranked), pvariance(ranked), ranked[0], ranked[-1], p50, p99)


def per_second(moments_ns: Sequence[int]) -> float:
    """Events a second from the moments of all of them; 0 for fewer than two."""
    span_ns = moments_ns[-1] - moments_ns[0] if len(moments_ns) > 1 else 0
    return (len(moments_ns) - 1) * 1e9 / span_ns if span_ns > 0 else 0.0


# --- trends ---


def spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """The rank correlation; None where one side does not vary."""
    if len(pairs) < 2:
        return None
    ones, others = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    mean = (len(pairs) + 1) / 2
    spread = [sum((rank - mean) ** 2 for rank in ranks) for ranks in (ones, others)]
    if not all(spread):
        return None
    together = sum((one - mean) * (other - mean) for one, other in zip(ones, others, strict=True))
    return float(together / (spread[0] * spread[1]) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1 on; equal values share the mean of their ranks."""
    places: dict[float, list[int]] = {}
    for rank, value in enumerate(sorted(values), 1):
        places.setdefault(value, []).append(rank)
    return [fmean(places[value]) for value in values]
