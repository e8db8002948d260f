"""From a formula to rows: each row is a conjunction that an index can hold in columns.

A row is what one branch of the formula asks for: equalities, of which one gives access (the events that lack it never
see the row), plain tests on numbers that become columns, and the rest, a formula judged only where the plain part left
the row over. The branches of ANY become rows of their own, and so do the values of a short list; the owner matches
when any of its rows does.

All numbers in the columns are doubles, and the verdict is still exact. A bound is moved to the nearest double that
separates the same numbers (`x > 5` is `x >= nextafter(5)`), and a bound that no double stands for, or an open one
beyond 2**53, is widened and judged again by the exact formula. An event's whole number between two doubles is tested
as the two of them, see `features`.

The invariant: an event satisfies the formula exactly when it satisfies some row: access, every test and the rest.
Rejected: rows without a limit (disjunctive normal form). Twenty times `(a OR b)` are a million rows, and few rows are
large where each carries the same long rest; what exceeds `MAX_ROWS` or `MAX_ROW_LEAVES` stays a formula in the rest, so
a stored constraint costs a bounded time when it is added and at each event (MAT-22).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import inf, isnan, nextafter
from typing import NamedTuple

from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.tree import Like, Number, Scalar

#: Rows of one constraint. A row costs tens of bytes and a few microseconds to add; an IN with more values is judged
#: one by one instead.
MAX_ROWS = 64
#: With an equality at hand the branches are tested on few events anyway: more rows than this do not pay.
MAX_ROWS_WITH_ACCESS = 4
#: Leaves of all rows of one constraint that was multiplied out, each counted in every row that has it: about as many as
#: the longest text has terms, so that multiplying costs no more than the longest text does without it.
MAX_ROW_LEAVES = 1024
#: Characters of a LIKE pattern that give access. An event looks up each length in use, so there are few.
MAX_PREFIX = 4

#: Whole numbers up to here are doubles, with none between them.
EXACT_INTEGER = 1 << 53

#: The kinds of test. An attribute has up to one feature a kind: its number, its text as a code, its truth value as
#: 0 or 1, and whether it is there as 0 or 1.
NUMBER, TEXT, TRUTH, PRESENCE = range(4)


#: A conjunction, as its parts.
Branch = tuple[Formula, ...]


class Equality(NamedTuple):
    """A candidate for access: attribute `name` equals `value`."""

    name: str
    value: Scalar


class Test(NamedTuple):
    """The feature (name, kind) lies in [low, high], both ends included."""

    name: str
    kind: int
    low: float
    high: float


class Row(NamedTuple):
    """One conjunction; without parts it is always true."""

    equalities: tuple[Equality, ...] = ()
    tests: tuple[Test, ...] = ()
    rest: tuple[Formula, ...] = ()


def rows_of(formula: Formula) -> list[Row]:
    """The rows whose OR is the formula; none when it is never true."""
    if formula.__class__ is All:
        plain = _plain_row(formula.parts)
        if plain is not None:
            return [plain]
    return [row for branch in _branches(formula) if (row := _row(branch)) is not None]


def _plain_row(parts: tuple[Formula, ...]) -> Row | None:
    """The row of a conjunction of equalities and ranges of doubles, which most constraints are; None for all others.

    A conjunction has at most one plain leaf an attribute, so nothing needs to be merged here.
    """
    equalities: list[Equality] = []
    tests: list[Test] = []
    for leaf in parts:
        if leaf.__class__ is EqualTo:
            value = leaf.value
            if value.__class__ is not str:
                return None
            equalities.append(Equality(leaf.name, value))
        elif leaf.__class__ is InRange:
            low, high = leaf.low, leaf.high
            if leaf.low_open or leaf.high_open:
                test, is_exact = range_test(leaf)
            else:
                is_exact = (low is None or low.__class__ is float) and (high is None or high.__class__ is float)
                if not is_exact:
                    test, is_exact = range_test(leaf)
                else:
                    test = Test(leaf.name, NUMBER, -inf if low is None else low, inf if high is None else high)
            if not is_exact or not test.low <= test.high:
                return None
            tests.append(test)
        else:
            return None
    return Row(tuple(equalities), tuple(tests), ())


def access_key(value: Scalar) -> object:
    """What a value is looked up by: 1 equals 1.0, and TRUE equals neither."""
    return (value,) if isinstance(value, bool) else value


def prefix_key(prefix: str) -> object:
    """What the beginning of a text is looked up by."""
    return (prefix,)


def prefix_length(key: object) -> int:
    """The length of the prefix that a key stands for; 0 when it stands for a whole value."""
    return len(key[0]) if isinstance(key, tuple) and isinstance(key[0], str) else 0


def like_prefix(term: Like) -> tuple[str, bool]:
    """The plain beginning of a pattern, shortened to `MAX_PREFIX`, and whether nothing but % follows it."""
    pattern = str(term.pattern.value)
    escape = None if term.escape is None else str(term.escape.value)
    prefix: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            prefix.append(next(characters))
        elif character in "%_":
            whole = character == "%" and next(characters, None) is None and len(prefix) <= MAX_PREFIX
            return "".join(prefix[:MAX_PREFIX]), whole
        else:
            prefix.append(character)
    return "".join(prefix[:MAX_PREFIX]), False


def equality_test(equality: Equality) -> Test:
    """Equality with a truth value or a number as a test."""
    name, value = equality
    assert not isinstance(value, str), "texts have codes, which only the features know"
    if isinstance(value, bool):
        return Test(name, TRUTH, float(value), float(value))
    return number_test(name, value)[0]


def formula_of(row: Row) -> Formula:
    """A row as one formula."""
    leaves: list[Formula] = [EqualTo(name, value) for name, value in row.equalities]
    for name, kind, low, high in row.tests:
        leaves.append(Presence(name, low == 1.0) if kind == PRESENCE else InRange(name, low, high, False, False))
    return All((*leaves, *row.rest))


def is_beyond_doubles(value: Scalar) -> bool:
    """Whether no double equals this number, so that a column cannot say the last word."""
    return isinstance(value, int) and not isinstance(value, bool) and not number_test("", value)[1]


def _branches(formula: Formula, budget: int = MAX_ROW_LEAVES) -> list[Branch]:
    """Conjunctions of leaves, and of formulas where spreading them out would exceed a bound.

    What was multiplied out has at most `budget` leaves; without any, there are no more than in the formula.
    """
    if isinstance(formula, Any):
        spread = [branch for part in formula.parts for branch in _branches(part, budget)]
        if budget and (len(spread) > MAX_ROWS or sum(map(_size, spread)) > max(budget, _leaves(formula))):
            spread = [branch for part in formula.parts for branch in _branches(part, 0)]
        return spread if len(spread) <= MAX_ROWS else [(formula,)]
    if not isinstance(formula, All):
        return _values(formula)
    parts = list(_flat(formula))
    bound = MAX_ROWS_WITH_ACCESS if any(isinstance(part, EqualTo) for part in parts) else MAX_ROWS
    fixed: Branch = tuple(part for part in parts if not isinstance(part, Any | OneOf))
    spreads: list[list[Branch]] = []
    count = 1
    #: Leaves that every row has so far, and those of the spreads in all rows.
    common, varied = sum(map(_leaves, parts)), 0
    # Short ones first, so that as many as possible are spread out.
    choices = sorted(
        ((_branches(part, budget), part) for part in parts if isinstance(part, Any | OneOf)), key=lambda c: len(c[0])
    )
    for branches, part in choices:
        more, less = len(branches), common - _leaves(part)
        spread_leaves = varied * more + count * sum(map(_size, branches))
        fits = count * more <= bound and count * more * less + spread_leaves <= budget
        if more <= 1 or (fits and _gives_access(branches)):
            spreads.append(branches)
            count, common, varied = count * more, less, spread_leaves
        else:
            fixed += (part,)
    return [sum(choice, fixed) for choice in product(*spreads)]


def _gives_access(branches: list[Branch]) -> bool:
    """Whether rows of their own would be found or tested by anything but their rest."""
    return any(
        isinstance(leaf.condition, Like) and not leaf.negated
        if isinstance(leaf, Other)
        else not isinstance(leaf, All | Any)
        for branch in branches
        for leaf in branch
    )


def _leaves(formula: Formula) -> int:
    return sum(map(_leaves, formula.parts)) if isinstance(formula, All | Any) else 1


def _size(branch: Branch) -> int:
    return sum(map(_leaves, branch))


def _flat(formula: All) -> Iterable[Formula]:
    for part in formula.parts:
        if isinstance(part, All):
            yield from _flat(part)
        else:
            yield part


def _values(leaf: Formula) -> list[Branch]:
    if isinstance(leaf, OneOf) and len(leaf.values) <= MAX_ROWS:
        return [(EqualTo(leaf.name, value),) for value in leaf.values]
    return [(leaf,)]


def _row(branch: Branch) -> Row | None:
    """The branch as a row; None when no event can satisfy it."""
    equalities: dict[str, Equality] = {}
    tests: dict[tuple[str, int], Test] = {}
    rest: list[Formula] = []
    for leaf in branch:
        if isinstance(leaf, EqualTo):
            if leaf.value != leaf.value:
                return None
            known = equalities.setdefault(leaf.name, Equality(leaf.name, leaf.value))
            if access_key(known.value) != access_key(leaf.value):
                return None
            if is_beyond_doubles(leaf.value) and leaf not in rest:
                rest.append(leaf)
        elif isinstance(leaf, InRange):
            test, exact = range_test(leaf)
            if not _narrow(tests, test):
                return None
            if not exact:
                rest.append(leaf)
        elif isinstance(leaf, Presence):
            wanted = float(leaf.present)
            if not _narrow(tests, Test(leaf.name, PRESENCE, wanted, wanted)):
                return None
        elif leaf not in rest:
            rest.append(leaf)
    return Row(tuple(equalities.values()), tuple(tests.values()), tuple(rest))


def _narrow(tests: dict[tuple[str, int], Test], test: Test) -> bool:
    """Add a test; False when it can hold of no event."""
    known = tests.get((test.name, test.kind), test)
    narrowed = test._replace(low=max(known.low, test.low), high=min(known.high, test.high))
    tests[test.name, test.kind] = narrowed
    return narrowed.low <= narrowed.high


def range_test(leaf: InRange) -> tuple[Test, bool]:
    """The range in doubles, and whether it says the same; if not it is wider."""
    low, low_exact = (-inf, True) if leaf.low is None else _bound(leaf.low, leaf.low_open, inf)
    high, high_exact = (inf, True) if leaf.high is None else _bound(leaf.high, leaf.high_open, -inf)
    if isnan(low) or isnan(high) or (leaf.low_open and leaf.low == inf) or (leaf.high_open and leaf.high == -inf):
        return Test(leaf.name, NUMBER, inf, -inf), True
    return Test(leaf.name, NUMBER, low, high), low_exact and high_exact


def number_test(name: str, value: Number) -> tuple[Test, bool]:
    """Equality with a number, as a range."""
    return range_test(InRange(name, value, value, False, False))


def _bound(bound: Number, is_open: bool, inwards: float) -> tuple[float, bool]:
    """The outermost double inside a bound, or a double outside it that is not exact; `inwards` is an infinity."""
    try:
        nearest = float(bound)
    except OverflowError:
        nearest = inf if bound > 0 else -inf
    if nearest == bound:
        if not is_open:
            return nearest, True
        # Beyond these, whole numbers lie between a bound and the next double, and only the formula can tell them apart.
        is_exact = -EXACT_INTEGER < nearest < EXACT_INTEGER
        return (nextafter(nearest, inwards) if is_exact else nearest), is_exact
    is_inside = nearest > bound if inwards > 0 else nearest < bound
    return (nextafter(nearest, -inwards) if is_inside else nearest), isnan(nearest)
