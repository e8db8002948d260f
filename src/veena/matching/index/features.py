"""What of an event the columns are tested against: one number a feature, NaN where the event has none.

A feature is an attribute seen as a number, as a text, as a truth value, or as being there. Texts become codes, so that
every plain test of the index is `low <= value <= high` on doubles. A missing, NULL or ill-typed attribute leaves NaN,
of which no such test holds; only presence always has a value, 0 or 1.

A whole number that lies between two doubles has two values: the double below it is tested against the lower bounds and
the one above against the upper bounds. Since bounds are doubles, both verdicts are those of the number itself.

The invariant: between events `low` and `high` hold what an event without attributes has; a feature has a number exactly
while some row tests it, so strangers' attribute names cost nothing when their profiles are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, nan, nextafter

from veena.matching.condition.tree import Number
from veena.matching.index.rows import EXACT_INTEGER, NUMBER, PRESENCE, TEXT, TRUTH

#: The feature that pads short rows: its value is 0 for every event, and its bounds are infinite.
ALWAYS = 0


@dataclass(slots=True)
class _Codes:
    """The texts that rows compare one attribute with, as numbers."""

    codes: dict[str, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    last: int = 0


class Features:
    """The features in use, and the values that the event at hand gives them."""

    def __init__(self) -> None:
        #: By feature: what is tested against lower and against upper bounds.
        self.low: list[float] = [0.0]
        self.high: list[float] = [0.0]
        #: (name, kind) of each feature, and how many rows test it.
        self.keys: list[tuple[str, int]] = [("", PRESENCE)]
        self.counts: list[int] = [1]
        #: By attribute: its features by kind, -1 for none.
        self._of: dict[str, list[int]] = {}
        self._codes: dict[int, _Codes] = {}
        self._free: list[int] = []
        self._touched: list[int] = []

    def acquire(self, name: str, kind: int) -> int:
        """The number of a feature that one more row tests."""
        kinds = self._of.get(name)
        number = -1 if kinds is None else kinds[kind]
        if number < 0:
            number = self._number(name, kind)
        self.counts[number] += 1
        return number

    def release(self, number: int) -> None:
        """One row less; the number may be given to another feature afterwards."""
        self.counts[number] -= 1
        if self.counts[number]:
            return
        name, kind = self.keys[number]
        self._codes.pop(number, None)
        numbers = self._of[name]
        numbers[kind] = -1
        if max(numbers) < 0:
            del self._of[name]
        self.low[number] = self.high[number] = nan
        self._free.append(number)

    def acquire_code(self, number: int, text: str) -> float:
        """The code of a text that one more row compares a feature with."""
        table = self._codes.get(number)
        if table is None:
            table = self._codes[number] = _Codes()
        code = table.codes.get(text)
        if code is None:
            table.last += 1
            code = table.codes[text] = table.last
            table.texts[code] = text
            table.counts[code] = 0
        table.counts[code] += 1
        return float(code)

    def release_code(self, number: int, code: float) -> None:
        table = self._codes[number]
        key = int(code)
        table.counts[key] -= 1
        if not table.counts[key]:
            del table.counts[key], table.codes[table.texts.pop(key)]

    def see(self, attributes: Mapping[str, object]) -> None:
        """Give the features the values of an event; `forget` must follow."""
        of = self._of
        for name in of if len(of) < len(attributes) else attributes:
            numbers, value = of.get(name), attributes.get(name)
            if numbers is None or value is None:
                continue
            if type(value) is float and numbers[NUMBER] >= 0:
                self._set(numbers[NUMBER], value, value)
            elif isinstance(value, bool):
                if numbers[TRUTH] >= 0:
                    self._set(numbers[TRUTH], float(value), float(value))
            elif isinstance(value, str):
                if numbers[TEXT] >= 0 and (code := self._codes[numbers[TEXT]].codes.get(value)) is not None:
                    self._set(numbers[TEXT], float(code), float(code))
            elif isinstance(value, int | float) and numbers[NUMBER] >= 0:
                self._set(numbers[NUMBER], *doubles_around(value))
            if numbers[PRESENCE] >= 0:
                self._set(numbers[PRESENCE], 1.0, 1.0)

    def forget(self) -> None:
        low, high = self.low, self.high
        for number in self._touched:
            low[number] = high[number] = 0.0 if self.keys[number][1] == PRESENCE else nan
        self._touched.clear()

    def codes(self, number: int) -> Mapping[str, int]:
        """The codes of the texts that rows compare a feature with."""
        table = self._codes.get(number)
        return {} if table is None else table.codes

    def code_tables(self) -> list[tuple[int, str, int, int]]:
        """(feature, text, code, count) of all codes, for a snapshot."""
        return [
            (number, text, code, table.counts[code])
            for number, table in self._codes.items()
            for text, code in table.codes.items()
        ]

    def restore(self, keys: list[tuple[str, int]], counts: list[int], codes: list[tuple[int, str, int, int]]) -> None:
        """Take the place of what was snapshotted; free numbers have count 0."""
        for (name, kind), count in zip(keys[1:], counts[1:], strict=True):
            number = self._number(name, kind) if count else self._vacant()
            self.counts[number] = count
        self._free = [number for number, count in enumerate(self.counts) if not count]
        for number, text, code, count in codes:
            table = self._codes.setdefault(number, _Codes())
            table.codes[text], table.texts[code], table.counts[code] = code, text, count
            table.last = max(table.last, code)

    def _number(self, name: str, kind: int) -> int:
        absent = 0.0 if kind == PRESENCE else nan
        if self._free:
            number = self._free.pop()
            self.keys[number] = (name, kind)
            self.low[number] = self.high[number] = absent
        else:
            number = len(self.keys)
            self.keys.append((name, kind))
            self.low.append(absent)
            self.high.append(absent)
            self.counts.append(0)
        kinds = self._of.get(name)
        if kinds is None:
            kinds = self._of[name] = [-1, -1, -1, -1]
        kinds[kind] = number
        return number

    def _vacant(self) -> int:
        self.low.append(nan)
        self.high.append(nan)
        self.keys.append(("", NUMBER))
        self.counts.append(0)
        return len(self.keys) - 1

    def _set(self, number: int, low: float, high: float) -> None:
        self.low[number] = low
        self.high[number] = high
        self._touched.append(number)


def doubles_around(value: Number) -> tuple[float, float]:
    """The number twice when it is a double, else the doubles next to it: (below, above)."""
    if isinstance(value, float) or -EXACT_INTEGER <= value <= EXACT_INTEGER:
        return float(value), float(value)
    try:
        nearest = float(value)
    except OverflowError:
        return (nextafter(inf, 0.0), inf) if value > 0 else (-inf, nextafter(-inf, 0.0))
    if nearest == value:
        return nearest, nearest
    return (nearest, nextafter(nearest, inf)) if nearest < value else (nextafter(nearest, -inf), nearest)
