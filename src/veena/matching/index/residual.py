"""What the columns cannot judge: formulas evaluated one by one, each distinct one at most once an event.

LIKE, arithmetic, comparisons of two attributes, and whatever would take too many rows are kept here as closures with a
number. Rows refer to the number, so ten thousand profiles with `sym LIKE 'IB%'` share one closure, and an event asks it
once however many of their rows it meets.

The invariant: a formula is here exactly while some row refers to it. A snapshot brings texts, not code, so a formula
can be recalled from the text of the profile that brought it first, even when that profile is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from veena.matching.condition.closures import compile_condition
from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.formula_merge import admits

Check = Callable[[Mapping[str, object]], bool]
#: How to find a formula again: the text it came from, which of the text's rows it belongs to, and the `Variant`.
Origin = tuple[str, int, int]


class Rests:
    """The distinct formulas that rows refer to by number."""

    def __init__(self, recall: Callable[[Origin], tuple[Formula, ...]]) -> None:
        self._recall = recall
        self._numbers: dict[object, int] = {}
        self.origins: list[Origin] = []
        self.counts: list[int] = []
        self._keys: list[object] = []
        self._checks: list[Check | None] = []
        self._free: list[int] = []
        #: What the event at hand has been found to be, by number.
        self.verdicts: dict[int, bool] = {}
        #: Formulas evaluated so far.
        self.evaluations = 0

    def __len__(self) -> int:
        return len(self.origins) - len(self._free)

    def acquire(self, rest: tuple[Formula, ...], origin: Origin) -> int:
        """The number of a formula that one more row refers to."""
        key = _key(rest)
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else self._vacant()
            self._numbers[key] = number
            self.origins[number] = origin
            self._keys[number] = key
            self._checks[number] = compile_formula(All(rest))
        self.counts[number] += 1
        return number

    def release(self, number: int) -> None:
        self.counts[number] -= 1
        if not self.counts[number]:
            self._numbers.pop(self._keys[number], None)
            self._keys[number] = self._checks[number] = None
            self.origins[number] = ("", 0, 0)
            self._free.append(number)

    def restore(self, origins: list[Origin], counts: list[int]) -> None:
        """Take the place of what was snapshotted; formulas are recalled when they are asked for."""
        self.origins, self.counts = origins, counts
        self._keys = [("origin", number) for number in range(len(origins))]
        self._checks = [None] * len(origins)
        self._free = [number for number, count in enumerate(counts) if not count]

    def _vacant(self) -> int:
        self.origins.append(("", 0, 0))
        self.counts.append(0)
        self._keys.append(None)
        self._checks.append(None)
        return len(self.origins) - 1

    def forget(self) -> None:
        """The next event has other attributes."""
        self.verdicts.clear()

    def passing(self, numbers: NDArray[np.int32], attributes: Mapping[str, object]) -> NDArray[np.bool_]:
        """For each number whether its formula is true of the event."""
        known = self.verdicts
        verdicts = [known[number] if number in known else self.holds(number, attributes) for number in numbers.tolist()]
        return np.array(verdicts, dtype=np.bool_)

    def holds(self, number: int, attributes: Mapping[str, object]) -> bool:
        """Whether a formula is true of the event; asked once however often this is."""
        verdict = self.verdicts.get(number)
        if verdict is None:
            verdict = self.verdicts[number] = self.judge(number, attributes)
        return verdict

    def judge(self, number: int, attributes: Mapping[str, object]) -> bool:
        """Whether a formula is true of some attributes, whichever event is at hand."""
        check = self._checks[number]
        if check is None:
            check = self._checks[number] = compile_formula(All(self._recall(self.origins[number])))
        self.evaluations += 1
        return check(attributes)


def _key(rest: tuple[Formula, ...]) -> object:
    """Equal exactly for the same formulas: a leaf alone would hold 1 and TRUE for equal, its text does not."""
    return rest if all(isinstance(part, Other) for part in rest) else repr(rest)


def compile_formula(formula: Formula) -> Check:
    """A function that says whether a formula is true of some attributes."""
    if isinstance(formula, Other):
        return compile_condition(formula.condition, formula.negated)
    if isinstance(formula, All | Any):
        checks = tuple(compile_formula(part) for part in formula.parts)
        if len(checks) == 1:
            return checks[0]
        wanted = isinstance(formula, Any)
        return lambda attributes: _first(checks, attributes, wanted)
    return _leaf_check(formula)


def _first(checks: tuple[Check, ...], attributes: Mapping[str, object], wanted: bool) -> bool:
    """`wanted` if some check says so, else its opposite."""
    for check in checks:
        if check(attributes) is wanted:
            return wanted
    return not wanted


def _leaf_check(leaf: EqualTo | OneOf | InRange | Presence) -> Check:
    name = leaf.name
    if isinstance(leaf, Presence):
        present = leaf.present
        return lambda attributes: (attributes.get(name) is not None) is present

    def check(attributes: Mapping[str, object]) -> bool:
        value = attributes.get(name)
        return isinstance(value, str | bool | int | float) and admits(leaf, value)

    return check
