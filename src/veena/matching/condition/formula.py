"""What a selector or a constraint becomes before it is indexed: tests joined by ALL and ANY, without NOT.

Every leaf is positive: it is either true or not true of an event, and a missing attribute, a NULL or a value of another
type makes it not true. NOT and three-valued logic are gone by then: they are pushed to the leaves when a text is
compiled, in is-TRUE and is-FALSE form. So an index may evaluate leaves in any order, stop early and count, and the
verdict stays that of the text.

The four plain leaves are what an index can use; whatever is richer (arithmetic, LIKE, a comparison of two attributes)
is an `Other` around the condition it came from, evaluated one by one on what the plain leaves left over.
"""

from __future__ import annotations

from veena.matching.condition.tree import Condition, Number, Scalar, node


@node
class EqualTo:
    """The attribute is present, of the value's kind (text, truth value, number) and equal to it."""

    name: str
    value: Scalar


@node
class OneOf:
    """The attribute equals one of the values; all are of one kind."""

    name: str
    values: tuple[Scalar, ...]


@node
class InRange:
    """The attribute is a number between the bounds; None stands for no bound on that side."""

    name: str
    low: Number | None
    high: Number | None
    low_open: bool
    high_open: bool


@node
class Presence:
    """The attribute is there and not NULL (`present`), or it is not."""

    name: str
    present: bool


@node
class Other:
    """A condition that is true exactly when `condition` in the wanted form is; `negated` asks for its is-FALSE form."""

    condition: Condition
    negated: bool


@node
class All:
    """True when every part is; without parts always true."""

    parts: tuple[Formula, ...]


@node
class Any:
    """True when some part is; without parts never true."""

    parts: tuple[Formula, ...]


Leaf = EqualTo | OneOf | InRange | Presence | Other
Formula = Leaf | All | Any
