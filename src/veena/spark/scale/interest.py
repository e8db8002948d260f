"""Who wants what in a network of any size, as a function of numbers alone.

Nothing is stored: whether broker 812,345 wants topic 17 follows from the seed and these two, by a hash, the same in
every worker and in a test. Interests are written as text:

- `10%`: each broker wants each event with this chance (the match rate of the papers);
- `local:1`, `local:2`: half of the publisher's own cluster, or super-cluster, and nobody else;
- `zipf`: each broker subscribes to some topics, drawn by popularity; events are published on topics so drawn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from veena.address import level_name
from veena.errors import PipelineError
from veena.spark.scale.network import Ints, Shape
from veena.spark.scale.routes import Bits, Flags

#: What is worked out unless told otherwise: match rates as in the papers' experiments, interest close by, topics.
USUAL: Final = ("100%", "50%", "25%", "10%", "1%", "0.1%", "0%", "local:1", "local:2", "zipf")
TOPICS_MAX: Final = 1_000_000
INTERESTS_MAX: Final = 1_000
#: Keep draws for different purposes apart.
_ORIGIN, _WANT, _TOPIC, _SUBSCRIBE, _START, _END = range(1, 7)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_LOCAL = re.compile(r"local:(\d+)")


@dataclass(frozen=True, slots=True)
class Popularity:
    """Topics and how they are chosen: topic r (from 1) in proportion to 1 / r ** exponent."""

    topics: int = 10_000
    #: Subscriptions of each broker's clients together, drawn with repetition.
    interests: int = 10
    exponent: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.topics <= TOPICS_MAX:
            raise PipelineError(f"topics {self.topics}: expected 1 to {TOPICS_MAX:,}")
        if not 1 <= self.interests <= INTERESTS_MAX:
            raise PipelineError(f"interests {self.interests}: expected 1 to {INTERESTS_MAX:,} a broker")
        if not 0 <= self.exponent <= 10:
            raise PipelineError(f"exponent {self.exponent}: expected 0 (all topics alike) to 10")

    def choose(self, chance: npt.NDArray[np.float64]) -> Ints:
        """The topics, from 0, for draws between 0 and 1."""
        weights = np.arange(1, self.topics + 1, dtype=np.float64) ** -self.exponent
        return (
            np.searchsorted(np.cumsum(weights) / weights.sum(), chance, side="right")
            .clip(0, self.topics - 1)
            .astype(np.int32)
        )


@dataclass(frozen=True, slots=True)
class Interest:
    """One kind of interest."""

    text: str
    #: Exactly one of these three.
    rate: float | None = None
    level: int | None = None
    popularity: Popularity | None = None

    def shot(self, shape: Shape, seed: int, number: int) -> tuple[int, Flags]:
        """Where event `number` is published, and the brokers that want it."""
        origin = int(_drawn(seed, _ORIGIN, np.array([number]))[0] * shape.brokers)
        if self.popularity is not None:
            topic = int(self.popularity.choose(_drawn(seed, _TOPIC, np.array([number])))[0])
            return origin, (subscriptions(self.popularity, seed, np.arange(shape.brokers)) == topic).any(axis=1)
        if self.level is not None:
            units = shape.units[max(0, shape.levels - self.level)]
            wanting = np.zeros(shape.brokers, dtype=np.bool_)
            inside = np.flatnonzero(units == units[origin])
            wanting[inside] = _drawn(seed, _WANT, inside, number) < 0.5
            return origin, wanting
        assert self.rate is not None
        return origin, _drawn(seed, _WANT, np.arange(shape.brokers), number) < self.rate


def interest(text: str, popularity: Popularity | None = None) -> Interest:
    """Read `10%`, `local:1` or `zipf`."""
    if (rate := _RATE.fullmatch(text.strip())) and float(rate.group(1)) <= 100:
        return Interest(text.strip(), rate=float(rate.group(1)) / 100)
    if (local := _LOCAL.fullmatch(text.strip())) and int(local.group(1)) >= 1:
        return Interest(f"half of {level_name(int(local.group(1)))}", level=int(local.group(1)))
    if text.strip() == "zipf":
        chosen = popularity or Popularity()
        return Interest(f"Zipf {chosen.exponent:g}", popularity=chosen)
    raise PipelineError(f"interest {text!r}: expected a match rate such as 10%, local:1, local:2 or zipf")


def subscriptions(popularity: Popularity, seed: int, brokers: npt.NDArray[np.int64]) -> Ints:
    """The topics that each of these brokers subscribes to, a row each; some may be there twice."""
    rows = [popularity.choose(_drawn(seed, _SUBSCRIBE, brokers, each)) for each in range(popularity.interests)]
    return np.stack(rows, axis=1)


def pairs(shape: Shape, seed: int, numbers: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Two brokers for each of these numbers."""
    start, end = (_drawn(seed, purpose, numbers) * shape.brokers for purpose in (_START, _END))
    return start.astype(np.int32), end.astype(np.int32)


def _drawn(seed: int, purpose: int, numbers: npt.NDArray[np.int64], other: int = 0) -> npt.NDArray[np.float64]:
    """Numbers from 0 to below 1 that look like chance: SplitMix64 over the arguments, one after another."""
    mixed = np.zeros(len(numbers), dtype=np.uint64)
    for part in (seed, purpose, other):
        mixed = _mixed(mixed + np.uint64(part & 0xFFFF_FFFF_FFFF_FFFF))
    return (_mixed(mixed ^ numbers.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _mixed(values: Bits) -> Bits:
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
