"""What a selector or a constraint says, as a tree, and what that is worth for an event: true, false or unknown.

Two languages, one tree: SQL-92 selectors as JMS has them (MAT-20..22) and the Trader Constraint Language (TRD-09,
DIS-03) differ in spelling and precedence, not in how a term is judged. `evaluate` is the reference: a plain
three-valued interpreter, short enough to be checked by eye. Everything faster (closures, the normal form, the index)
is tested against it.

The rules, in the order in which they apply to a term:
 1. a missing or NULL operand makes the term unknown (None); arithmetic that has no result is NULL, and so is, for
    LIKE, a text too long to be looked at (`MAX_LIKE_TEXT`);
 2. operands of unlike kinds (text, truth value, number; anything else is like nothing) make it false;
 3. then the operator decides; `<` and its kin order numbers, and in the Trader Constraint Language text and truth
    values too (`collated`).
Invariant: a value is never converted. 1, 1.0 and TRUE are three literals; 1 equals 1.0 and nothing equals TRUE but
TRUE. Integers and floats compare exactly, as Python does, also beyond 2**53.

Rejected: evaluation by Python's own `and`/`or` on True, False and None. It looks right and is wrong for
`FALSE AND unknown` against `unknown AND FALSE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeGuard, TypeVar, dataclass_transform

from veena.matching.condition.like import LikePattern, is_beyond_like, like

#: What is judged: properties by name. Values of other types than `Scalar` are there, but like nothing.
Attributes = Mapping[str, object]

#: An exact result with more bits has no value (unknown): a chain of products must not grow without bound. Far above
#: the 64 bits of any number on the wire, so that nobody meets it by accident.
MAX_EXACT_BITS: Final = 4096

Number = int | float
#: What an attribute can be compared with. A bool is not a number here, and 1 is never True.
Scalar = str | bool | int | float

_Node = TypeVar("_Node")


@dataclass_transform(frozen_default=True)
def node(kind: type[_Node]) -> type[_Node]:
    """A class of the trees that texts become: slots, equality and a hash, and frozen for the type checker alone.

    A text becomes dozens of nodes, and a dataclass that is frozen at run time takes four times as long to make.
    """
    return dataclass(slots=True, unsafe_hash="__hash__" not in kind.__dict__)(kind)


@node
class Literal:
    """A constant. `slot` is its place among the literals of the text, or -1 for TRUE, FALSE and made ones.

    With `has_minus`, which only a number of a list can have, the text has the value without its sign in that slot.
    Equality tells 1, 1.0 and TRUE apart (`x / 2` and `x / 2.0` differ); the slot and the minus have no part in it.
    """

    value: Scalar
    slot: int = -1
    has_minus: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return self.value.__hash__()


@node
class Attribute:
    name: str


@node
class Arithmetic:
    """`left operator right` with one of + - * /."""

    operator: str
    left: Operand
    right: Operand


@node
class Negation:
    operand: Operand


@node
class Comparison:
    """`operator` is one of = <> < <= > >=; `collated` orders text and truth values too."""

    operator: str
    left: Operand
    right: Operand
    collated: bool = False


@node
class Between:
    """low <= operand <= high; with `outside`, operand < low or operand > high, which is not its NOT for text or NaN."""

    operand: Operand
    low: Operand
    high: Operand
    outside: bool = False


@node
class In:
    """The attribute equals one of the literals, which are of one kind."""

    attribute: Attribute
    values: tuple[Literal, ...]


@node
class Like:
    attribute: Attribute
    pattern: Literal
    escape: Literal | None = None


@node
class NullTest:
    """IS NULL: missing or NULL. Never unknown itself."""

    attribute: Attribute


@node
class Exist:
    """The trader's `exist`: there and not NULL. Never unknown itself."""

    attribute: Attribute


@node
class Truth:
    """A truth value alone as a condition; what is no truth value is unknown here."""

    operand: Literal | Attribute


@node
class Contains:
    """The trader's `part ~ whole`: the left text stands somewhere in the right one."""

    part: Operand
    whole: Operand


@node
class MemberOf:
    """The trader's `item in attribute`: the attribute is a sequence with an element equal to the item."""

    item: Operand
    attribute: Attribute


@node
class Not:
    part: Condition


@node
class Conjunction:
    parts: tuple[Condition, ...]


@node
class Disjunction:
    parts: tuple[Condition, ...]


Operand = Literal | Attribute | Arithmetic | Negation
Term = Comparison | Between | In | Like | NullTest | Exist | Truth | Contains | MemberOf
Condition = Term | Not | Conjunction | Disjunction

#: What an empty text means (MAT-21).
ALWAYS: Final = Truth(Literal(True))


def evaluate(condition: Condition, attributes: Attributes) -> bool | None:
    """Judge by three-valued logic; None is unknown. An event matches when the result is True."""
    if isinstance(condition, Conjunction):
        verdicts = [evaluate(part, attributes) for part in condition.parts]
        return False if False in verdicts else None if None in verdicts else True
    if isinstance(condition, Disjunction):
        verdicts = [evaluate(part, attributes) for part in condition.parts]
        return True if True in verdicts else None if None in verdicts else False
    if isinstance(condition, Not):
        verdict = evaluate(condition.part, attributes)
        return None if verdict is None else not verdict
    return _TERMS[type(condition)](condition, attributes)


def value_of(operand: Operand, attributes: Attributes) -> object:
    """The operand's value; None is NULL. Arithmetic on what is no number has none."""
    if isinstance(operand, Literal):
        return operand.value
    if isinstance(operand, Attribute):
        return attributes.get(operand.name)
    if isinstance(operand, Negation):
        inner = value_of(operand.operand, attributes)
        return -inner if is_number(inner) else None
    return calculate(operand.operator, value_of(operand.left, attributes), value_of(operand.right, attributes))


def folded(operand: Operand) -> Operand:
    """A literal where the operand is made of literals only and has a value; the operand itself otherwise."""
    if isinstance(operand, Literal | Attribute) or attribute_names(operand):
        return operand
    value = value_of(operand, {})
    return Literal(value) if is_number(value) else operand


def attribute_names(part: Operand | Condition) -> tuple[str, ...]:
    """The names that the part refers to, in the order of the text, each once."""
    return tuple(dict.fromkeys(_names(part)))


def _names(part: Operand | Condition) -> Iterator[str]:
    if isinstance(part, Attribute):
        yield part.name
    elif isinstance(part, Conjunction | Disjunction):
        for inner in part.parts:
            yield from _names(inner)
    elif not isinstance(part, Literal):
        for field in fields(part):
            inner = getattr(part, field.name)
            if not isinstance(inner, str | bool | tuple | None):
                yield from _names(inner)


def is_number(value: object) -> TypeGuard[Number]:
    """Exact or approximate; a truth value is no number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def kind_of(operand: Operand) -> str:
    """What a text promises about an operand before any event is there."""
    if isinstance(operand, Attribute):
        return "attribute"
    if isinstance(operand, Literal):
        value = operand.value
        return "text" if isinstance(value, str) else "truth value" if isinstance(value, bool) else "number"
    return "number"


def calculate(operator: str, left: object, right: object) -> Number | None:
    """Java's promotion without its overflow: exact stays exact, division of exact numbers truncates towards zero.

    None, which is NULL, where there is no number to give: an operand that is none, division by zero, an exact number
    of more than `MAX_EXACT_BITS`, or one too large to become approximate.
    """
    if not is_number(left) or not is_number(right) or _is_too_wide(left) or _is_too_wide(right):
        return None
    try:
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        elif right == 0:
            return None
        elif isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)
            result = quotient if (left < 0) == (right < 0) else -quotient
        else:
            result = left / right
    except OverflowError:
        return None
    return None if _is_too_wide(result) else result


def _is_too_wide(value: Number) -> bool:
    return isinstance(value, int) and value.bit_length() > MAX_EXACT_BITS


def compare(operator: str, left: object, right: object, collated: bool) -> bool | None:
    """Rules 1 to 3 of the module for one comparison."""
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        return _ordered(operator, left, right)
    if not are_alike(left, right):
        return False
    if operator == "=":
        return left == right
    if operator == "<>":
        return left != right
    if not collated:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return _ordered(operator, left, right)
    return _ordered(operator, left is True, right is True)


def are_alike(left: object, right: object) -> bool:
    """Whether both are numbers, both text or both truth values."""
    if isinstance(left, str):
        return isinstance(right, str)
    if isinstance(left, bool):
        return isinstance(right, bool)
    return is_number(left) and is_number(right)


def are_equal(left: object, right: object) -> bool:
    return are_alike(left, right) and left == right


_Sortable = TypeVar("_Sortable", Number, str, bool)


def _ordered(operator: str, left: _Sortable, right: _Sortable) -> bool:
    match operator:
        case "=":
            return left == right
        case "<>":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _comparison(term: Comparison, attributes: Attributes) -> bool | None:
    return compare(term.operator, value_of(term.left, attributes), value_of(term.right, attributes), term.collated)


def _between(term: Between, attributes: Attributes) -> bool | None:
    value, low, high = (value_of(operand, attributes) for operand in (term.operand, term.low, term.high))
    if term.outside:
        return _either(compare("<", value, low, False), compare(">", value, high, False))
    above, below = compare(">=", value, low, False), compare("<=", value, high, False)
    return False if above is False or below is False else None if above is None or below is None else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    return True if left is True or right is True else None if left is None or right is None else False


def _in(term: In, attributes: Attributes) -> bool | None:
    value = attributes.get(term.attribute.name)
    return None if value is None else any(are_equal(value, literal.value) for literal in term.values)


def _like(term: Like, attributes: Attributes) -> bool | None:
    value = attributes.get(term.attribute.name)
    if value is None or is_beyond_like(value):
        return None
    return isinstance(value, str) and like_pattern(term).matches(value)


def like_pattern(term: Like) -> LikePattern:
    return like(str(term.pattern.value), None if term.escape is None else str(term.escape.value))


def _null_test(term: NullTest, attributes: Attributes) -> bool | None:
    return attributes.get(term.attribute.name) is None


def _exist(term: Exist, attributes: Attributes) -> bool | None:
    return attributes.get(term.attribute.name) is not None


def _truth(term: Truth, attributes: Attributes) -> bool | None:
    value = value_of(term.operand, attributes)
    return value if isinstance(value, bool) else None


def _contains(term: Contains, attributes: Attributes) -> bool | None:
    part, whole = value_of(term.part, attributes), value_of(term.whole, attributes)
    if part is None or whole is None:
        return None
    return isinstance(part, str) and isinstance(whole, str) and part in whole


def _member_of(term: MemberOf, attributes: Attributes) -> bool | None:
    item, sequence = value_of(term.item, attributes), attributes.get(term.attribute.name)
    if item is None or sequence is None:
        return None
    return isinstance(sequence, list | tuple) and any(are_equal(item, element) for element in sequence)


#: One handler a kind of term; each takes exactly the kind it stands under.
_TERMS: Final[Mapping[type, Callable[..., bool | None]]] = {
    Comparison: _comparison,
    Between: _between,
    In: _in,
    Like: _like,
    NullTest: _null_test,
    Exist: _exist,
    Truth: _truth,
    Contains: _contains,
    MemberOf: _member_of,
}


def bound(condition: Condition, constants: Sequence[Scalar]) -> Condition:
    """The condition with these literals; ValueError for a LIKE pattern that they make meaningless (MAT-22).

    The parsers give every literal of the text a slot, in the order of the text. The tree stays, and the constants of
    another text come into these slots; what has no slot (names, TRUE and FALSE) stays as it is.

    Invariant: the tree is what the parser would give for the text whose literals these are, provided that each constant
    is of the kind that its slot had; the one rule that looks at more than the kind, that of LIKE patterns, is applied
    again.
    Rejected: literals that are looked up when an event is judged. Each judgement would pay for what is done once.
    """
    if isinstance(condition, Comparison):
        left, right = _operand(condition.left, constants), _operand(condition.right, constants)
        return Comparison(condition.operator, left, right, condition.collated)
    if isinstance(condition, Conjunction):
        return Conjunction(tuple([bound(part, constants) for part in condition.parts]))
    if isinstance(condition, Disjunction):
        return Disjunction(tuple([bound(part, constants) for part in condition.parts]))
    if isinstance(condition, Between):
        operand, low = _operand(condition.operand, constants), _operand(condition.low, constants)
        return Between(operand, low, _operand(condition.high, constants), condition.outside)
    if isinstance(condition, Not):
        return Not(bound(condition.part, constants))
    if isinstance(condition, In):
        return In(condition.attribute, tuple([_literal(value, constants) for value in condition.values]))
    if isinstance(condition, Like):
        escape = None if condition.escape is None else _literal(condition.escape, constants)
        like = Like(condition.attribute, _literal(condition.pattern, constants), escape)
        like_pattern(like)
        return like
    if isinstance(condition, Contains):
        return Contains(_operand(condition.part, constants), _operand(condition.whole, constants))
    if isinstance(condition, MemberOf):
        return MemberOf(_operand(condition.item, constants), condition.attribute)
    return condition


def _operand(operand: Operand, constants: Sequence[Scalar]) -> Operand:
    if isinstance(operand, Attribute):
        return operand
    if isinstance(operand, Literal):
        return _literal(operand, constants)
    if isinstance(operand, Arithmetic):
        return Arithmetic(operand.operator, _operand(operand.left, constants), _operand(operand.right, constants))
    return Negation(_operand(operand.operand, constants))


def _literal(literal: Literal, constants: Sequence[Scalar]) -> Literal:
    if literal.slot < 0:
        return literal
    value = constants[literal.slot]
    if not literal.has_minus:
        return Literal(value, literal.slot)
    assert not isinstance(value, str), "the parsers let no text stand behind a sign"
    return Literal(-value, literal.slot, True)
