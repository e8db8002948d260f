"""Rows straight from the constants of a text whose shape is known.

Parsing, normal form and rows depend on a text's literals in few places: which value an equality has, where a range
ends. A plan has all the rest worked out: it goes through its steps and puts the constants in (MAT-22). Conjunctions of
equalities, ranges, presence and richer terms have one, with at most one OR or IN of plain tests among them.

Where a constant would change more than a number (bounds that cross, equal values in a list, whole numbers that no
double stands for, a pattern without wildcards), the plan gives None, and the long way is taken.

Invariant: `plan.rows(constants)` is None or exactly `rows_of(normal_form(bound(condition, constants)))`, in the same
order, since a snapshot refers to rows by number.

Rejected: plans for all shapes. What merges tests of one property would be written twice; these shapes are what
subscribers write over and over, and others take the long way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan, nextafter
from typing import Final

from veena.matching.condition.closures import MIRRORED
from veena.matching.condition.formula import Formula, Other
from veena.matching.condition.lexer import END, Word
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.tree import (
    Attribute,
    Between,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Exist,
    In,
    Literal,
    Negation,
    Not,
    NullTest,
    Operand,
    Scalar,
    Truth,
    bound,
    kind_of,
    node,
)
from veena.matching.index.rows import (
    EXACT_INTEGER,
    MAX_ROW_LEAVES,
    MAX_ROWS,
    MAX_ROWS_WITH_ACCESS,
    NUMBER,
    PRESENCE,
    Equality,
    Row,
    Test,
)

#: Tuples, since a union would be built anew for every question.
_PRESENCE_TESTS: Final = (NullTest, Exist)


@node
class Equal:
    """The attribute equals the constant in the slot."""

    name: str
    slot: int
    kind: str


@node
class Range:
    """The attribute is a number between the constants in two slots; -1 is no bound."""

    name: str
    low: int
    high: int
    low_open: bool
    high_open: bool


#: A test without constants is ready.
Step = Equal | Range | Test


class Plan:
    """The rows of one shape, but for the constants."""

    __slots__ = ("_branches", "_derived", "_equalities", "_rich", "_tests")

    def __init__(self, draft: Draft) -> None:
        self._equalities: list[Equal] = []
        self._tests: list[Range | Test] = []
        for step in draft.fixed.values():
            if isinstance(step, Equal):
                self._equalities.append(step)
            else:
                self._tests.append(step)
        self._rich = draft.rich
        self._branches = draft.branches
        self._derived = draft.derived

    @property
    def has_value(self) -> bool:
        """Whether every row names the value of a property."""
        return bool(self._equalities)

    def rows(self, constants: Sequence[Scalar]) -> list[Row] | None:
        """The rows for these constants; None when the long way must be taken, ValueError for a bad LIKE pattern."""
        values = constants
        if self._derived:
            values = [*constants, *[_derived(slot, value, constants) for slot, value in self._derived]]
        equalities: list[Equality] = []
        for equal in self._equalities:
            equality = _equality(equal, values)
            if equality is None:
                return None
            equalities.append(equality)
        tests: list[Test] = []
        for step in self._tests:
            test = _test(step, values)
            if test is None:
                return None
            tests.append(test)
        rest: list[Formula] = []
        for term in self._rich:
            formula = normal_form(bound(term, constants))
            if formula.__class__ is not Other:
                return None
            if formula not in rest:
                rest.append(formula)
        row = Row(tuple(equalities), tuple(tests), tuple(rest))
        return self._spread(row, values) if self._branches else [row]

    def _spread(self, row: Row, values: Sequence[Scalar]) -> list[Row] | None:
        """One row for each branch: the row and what the branch asks for besides."""
        equalities, tests, rest = row
        rows: list[Row] = []
        # Values that are equal become one row, which the long way sees to.
        met: dict[Equality, None] = {}
        for step in self._branches:
            if isinstance(step, Equal):
                value = _equality(step, values)
                if value is None or value in met:
                    return None
                met[value] = None
                rows.append(Row((*equalities, value), tests, rest))
            else:
                test = _test(step, values)
                if test is None:
                    return None
                rows.append(Row(equalities, (*tests, test), rest))
        return rows


def _equality(step: Equal, values: Sequence[Scalar]) -> Equality | None:
    value = values[step.slot]
    if value.__class__ is int and not -EXACT_INTEGER <= value <= EXACT_INTEGER:
        return None
    return Equality(step.name, value)


def _test(step: Range | Test, values: Sequence[Scalar]) -> Test | None:
    if isinstance(step, Test):
        return step
    low = -inf if step.low < 0 else values[step.low]
    high = inf if step.high < 0 else values[step.high]
    if low.__class__ is not float:
        low = _double(low)
    if high.__class__ is not float:
        high = _double(high)
    if not low < high:
        return None
    if step.low_open:
        if not -EXACT_INTEGER < low < EXACT_INTEGER:
            return None
        low = nextafter(low, inf)
    if step.high_open:
        if not -EXACT_INTEGER < high < EXACT_INTEGER:
            return None
        high = nextafter(high, -inf)
    return Test(step.name, NUMBER, low, high) if low <= high else None


def _double(value: Scalar) -> float:
    """The number as a double; NaN where there is none that equals it for sure."""
    return float(value) if isinstance(value, int) and -EXACT_INTEGER <= value <= EXACT_INTEGER else nan


def _derived(slot: int, value: Scalar, constants: Sequence[Scalar]) -> Scalar:
    if slot < 0:
        return value
    changed = constants[slot]
    assert not isinstance(changed, str), "the parsers let no text stand behind a sign"
    return -changed


def plan_of(condition: Condition, slots: int) -> Plan | None:
    """The plan of a text with so many literals; None for a shape that has none."""
    draft = Draft(slots)
    for part in _parts(condition, Conjunction):
        if not draft.takes(part):
            return None
    return finished(draft)


def finished(draft: Draft) -> Plan | None:
    """The plan, unless it would make too many rows."""
    plan = Plan(draft)
    if len(draft.branches) > (MAX_ROWS_WITH_ACCESS if plan.has_value else MAX_ROWS):
        return None
    leaves = len(draft.branches) * (len(draft.fixed) + len(draft.rich) + 1)
    return plan if leaves <= MAX_ROW_LEAVES else None


def _parts(condition: Condition, kind: type[Conjunction] | type[Disjunction]) -> list[Condition]:
    """The condition's parts, also those of parts of the same kind; the condition itself when it is of another."""
    if not isinstance(condition, kind):
        return [condition]
    parts: list[Condition] = []
    for part in condition.parts:
        if isinstance(part, kind):
            parts += _parts(part, kind)
        else:
            parts.append(part)
    return parts


class Draft:
    """A plan in the making: one step an attribute, what is richer, and the branches of one OR."""

    def __init__(self, slots: int) -> None:
        self.fixed: dict[str, Equal | Range | Test] = {}
        self.rich: list[Condition] = []
        self.branches: list[Step] = []
        #: What stands in the slots behind those of the text: a constant with its sign changed, by its slot, or, where
        #: that is -1, a value that the language has a word for.
        self.derived: list[tuple[int, Scalar]] = []
        self._slots = slots

    def takes(self, part: Condition) -> bool:
        """Make one more part of the conjunction a step; False when there is none for it."""
        if isinstance(part, Disjunction):
            return self.spreads(self._alternatives(part))
        step = self._step(part)
        if step is not None:
            return self.joins(step)
        if isinstance(part, In):
            return self.spreads(self._members(part))
        if isinstance(normal_form(part), Other):
            self.rich.append(part)
            return True
        return False

    def joins(self, step: Step) -> bool:
        """Make one more test a part of the conjunction; False when it does not go with those that are there."""
        name = step.name
        for branch in self.branches:
            if branch.name == name:
                return False
        known = self.fixed.setdefault(name, step)
        if known is step:
            return True
        if not isinstance(known, Range) or not isinstance(step, Range):
            return False
        # A ray upwards and one downwards are a range; whatever else meets takes the long way.
        if known.high < 0 and step.low < 0:
            self.fixed[name] = Range(name, known.low, step.high, known.low_open, step.high_open)
        elif known.low < 0 and step.high < 0:
            self.fixed[name] = Range(name, step.low, known.high, step.low_open, known.high_open)
        else:
            return False
        return True

    def _alternatives(self, part: Disjunction) -> Sequence[Step | None]:
        steps: list[Step | None] = []
        for branch in _parts(part, Disjunction):
            step = self._step(branch)
            if step is None:
                steps += self._members(branch)
            else:
                steps.append(step)
        return steps

    def spreads(self, steps: Sequence[Step | None]) -> bool:
        """Make alternatives, of which one must hold, a part of the conjunction; False when that cannot be."""
        if self.branches:
            return False
        #: Values of one property and kind stand together, at the place of the first, as `disjoin` has them.
        gathered: dict[object, list[Step]] = {}
        for step in steps:
            if step is None or step.name in self.fixed:
                return False
            key = (step.name, step.kind) if isinstance(step, Equal) else len(gathered)
            gathered.setdefault(key, []).append(step)
        self.branches = [step for steps in gathered.values() for step in steps]
        return True

    def _members(self, part: Condition) -> Sequence[Step | None]:
        """A step for each value of a list; None for what is no list."""
        if not isinstance(part, In):
            return (None,)
        name = part.attribute.name
        return [Equal(name, self._slot(literal), kind_of(literal)) for literal in part.values]

    def _step(self, part: Condition) -> Step | None:
        """The step of a plain test; None for all else."""
        if isinstance(part, Comparison):
            return self._comparison(part.left, part.operator, part.right)
        if isinstance(part, Between):
            if part.outside or not isinstance(part.operand, Attribute):
                return None
            low, high = self._slot(part.low), self._slot(part.high)
            return Range(part.operand.name, low, high, False, False) if low >= 0 <= high else None
        if isinstance(part, In):
            steps = self._members(part)
            return steps[0] if len(steps) == 1 else None
        negated = isinstance(part, Not)
        term = part.part if isinstance(part, Not) else part
        if isinstance(term, _PRESENCE_TESTS):
            wanted = float(isinstance(term, Exist) != negated)
            return Test(term.attribute.name, PRESENCE, wanted, wanted)
        if isinstance(term, Truth) and isinstance(term.operand, Attribute):
            return Equal(term.operand.name, self._slot(Literal(not negated)), "truth value")
        return None

    def _comparison(self, left: Operand, operator: str, right: Operand) -> Step | None:
        if not isinstance(left, Attribute):
            left, right, operator = right, left, MIRRORED[operator]
        if not isinstance(left, Attribute) or operator == "<>":
            return None
        if isinstance(right, Literal) and right.slot >= 0 and not right.has_minus:
            slot = right.slot
        else:
            slot = self._slot(right)
            if slot < 0:
                return None
        kind = kind_of(right)
        if operator == "=":
            return Equal(left.name, slot, kind)
        if kind != "number":
            return None
        is_open = operator in {"<", ">"}
        if operator in {">", ">="}:
            return Range(left.name, slot, -1, is_open, False)
        return Range(left.name, -1, slot, False, is_open)

    def _slot(self, operand: Operand) -> int:
        """Where the operand's value stands; -1 for what is no literal."""
        if isinstance(operand, Literal):
            if operand.slot >= 0 and not operand.has_minus:
                return operand.slot
            self.derived.append((operand.slot, operand.value))
        elif isinstance(operand, Negation) and isinstance(operand.operand, Literal) and operand.operand.slot >= 0:
            self.derived.append((operand.operand.slot, 0))
        else:
            return -1
        return self._slots + len(self.derived) - 1


#: A term is looked at as far as this from its name, also where the text ends before.
_BEYOND = (END,) * 4


def plan_of_words(
    text: Sequence[Word], slots: int, meanings: Mapping[Word, str], joints: tuple[str, str]
) -> Plan | None:
    """The plan of a text, given how its language writes comparisons, and AND and OR; None where it must be parsed.

    `sym = 'IBM' AND price BETWEEN 10 AND 20 AND (size > 3 OR note IS NULL)` needs neither a tree nor an order of
    binding to be understood: terms of a name and its literals stand between ANDs, and a group has ORs and nothing else.
    Such a text becomes steps of a plan word by word, which takes half the time of parsing it and planning the tree. It
    is what a new form costs that nobody has subscribed to before (MAT-22).

    Invariant: the plan is the one that `plan_of` makes of the parsed text. At the first word that does not fit there is
    none: whatever is rich, unusual or wrong is left to the parser, which alone complains.
    Rejected: more shapes. LIKE has rules for its pattern, arithmetic and NOT have an order of binding, a literal before
    a name is rare: each would be a second grammar to keep in step with the first.
    """
    words = (*text, *_BEYOND)
    draft, at, (all_of, any_of) = Draft(slots), 0, joints
    while True:
        is_group = words[at] == "("
        step, at = _term(words, at + is_group, meanings)
        if step is None:
            return None
        if not is_group:
            fits = draft.joins(step)
        else:
            branches: list[Step | None] = [step]
            while words[at] == any_of:
                step, at = _term(words, at + 1, meanings)
                branches.append(step)
            if len(branches) == 1 or words[at] != ")":
                return None
            at += 1
            fits = draft.spreads(branches)
        if not fits:
            return None
        if words[at] == END:
            return finished(draft)
        if words[at] != all_of:
            return None
        at += 1


def _term(words: Sequence[Word], at: int, meanings: Mapping[Word, str]) -> tuple[Step | None, int]:
    """The step of the term that begins here, and the place behind it; None for any other term."""
    name = words[at]
    if not isinstance(name, Attribute):
        return None, at
    operator, literal = words[at + 1], words[at + 2]
    meaning = meanings.get(operator)
    if meaning is not None:
        if isinstance(literal, Literal):
            return _comparison(name.name, meaning, literal), at + 3
    elif operator == "BETWEEN":
        high = words[at + 4] if words[at + 3] == "AND" else None
        if isinstance(literal, Literal) and isinstance(high, Literal) and kind_of(literal) == kind_of(high) == "number":
            return Range(name.name, literal.slot, high.slot, False, False), at + 5
    elif operator == "IS":
        wanted = 1.0 if literal == "NOT" else 0.0
        at += 3 if wanted else 2
        if words[at] == "NULL":
            return Test(name.name, PRESENCE, wanted, wanted), at + 1
    return None, at


def _comparison(name: str, meaning: str, literal: Literal) -> Step | None:
    if meaning == "=":
        return Equal(name, literal.slot, kind_of(literal))
    if meaning == "<>" or isinstance(literal.value, str):
        return None
    if meaning in {">", ">="}:
        return Range(name, literal.slot, -1, meaning == ">", False)
    return Range(name, -1, literal.slot, False, meaning == "<")
