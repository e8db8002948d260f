"""What of a constraint is compared when it is asked whether another one covers it.

A `Plain` is a conjunction with one test an attribute: equal to a value, between two numbers, there, or not there. Of
two of them one covers the other exactly when each of its tests is implied by a test of the other: that is a comparison
of columns, and needs no text. Everything richer is `Rich`: *features* that say which pairs are worth a look. If one
constraint covers another, then the first one's required features are among those that the other offers; whether it
really does, the engine's own `covers` says.

The invariants: `plain_covers` is never wrongly true. Where `covers` says yes of two constraints, and one of them is
rich, the features nearly always say that the pair is worth a look: where they do not, one more is told than need be.

Rejected: normal forms as the engines have them. They take a kilobyte each, and a comparison walks through both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

#: The kinds of test, a letter for each attribute of a shape.
VALUE, RANGE, THERE, ABSENT = "vrt0"
#: Which kinds of test of the narrow side imply one of the wide side.
_IMPLY = {VALUE: VALUE, RANGE: RANGE, THERE: VALUE + RANGE + THERE, ABSENT: ABSENT}

#: Attributes in their order, and the letter of each one's test.
Shape = tuple[tuple[str, ...], str]
#: Something that a constraint asks for or has, of whatever form its engine gives it.
Feature = tuple[object, ...]
#: What is common to all constraints that nothing better is known of.
ANYTHING: Feature = ("anything",)


class Plain(NamedTuple):
    """A conjunction of tests of different attributes; without tests it is always true."""

    shape: Shape
    #: Of the tests for a value, in the order of the shape: something that is equal where the values are.
    values: tuple[object, ...]
    #: Of the ranges: lower bound and upper bound with its sign turned, so that in each column the lower is the wider.
    bounds: tuple[float, ...]


class Rich(NamedTuple):
    """Any other constraint: it is true where one of its alternatives is."""

    #: What the first alternative offers: a wider constraint requires some of it.
    offered: tuple[Feature, ...]
    #: For each alternative what it requires: whatever it covers offers all of these. One is enough to look for it.
    required: tuple[tuple[Feature, ...], ...]
    #: For each alternative what of it is plain: it is covered where all of these are, and covers at most what lies in
    #: one of them. None where nothing plain is known.
    plain: tuple[Plain, ...] | None = None


Form = Plain | Rich

EVERYTHING = Plain(((), ""), (), ())


class Fit(NamedTuple):
    """How the columns of a wide shape lie in those of a narrow one."""

    values: tuple[int, ...]
    bounds: tuple[int, ...]
    #: Whether the two name the same values: then those are looked up as they are.
    has_all_values: bool


def plain(tests: Sequence[tuple[str, str, object]]) -> Plain:
    """The conjunction of (attribute, kind, value or (low, high) or None), one an attribute."""
    ordered = sorted(tests, key=_name)
    shape = tuple([name for name, _, _ in ordered]), "".join([kind for _, kind, _ in ordered])
    values = tuple([value for _, kind, value in ordered if kind == VALUE])
    bounds: list[float] = []
    for _, kind, asked in ordered:
        if kind == RANGE:
            low, high = cast("tuple[float, float]", asked)
            bounds += (low, -high)
    return Plain(shape, values, tuple(bounds))


def _name(test: tuple[str, str, object]) -> str:
    return test[0]


@lru_cache(maxsize=1 << 14)
def fit(wide: Shape, narrow: Shape) -> Fit | None:
    """How a conjunction of the wide shape may cover one of the narrow shape; None where it never does."""
    places: dict[str, tuple[str, int, int]] = {}
    value = bound = 0
    for name, kind in zip(*narrow, strict=True):
        places[name] = (kind, value, bound)
        value += kind == VALUE
        bound += 2 * (kind == RANGE)
    values: list[int] = []
    bounds: list[int] = []
    for name, kind in zip(*wide, strict=True):
        found = places.get(name)
        if found is None or found[0] not in _IMPLY[kind]:
            return None
        if kind == VALUE:
            values.append(found[1])
        elif kind == RANGE:
            bounds += (found[2], found[2] + 1)
    return Fit(tuple(values), tuple(bounds), len(values) == value)


def plain_covers(wide: Plain, narrow: Plain) -> bool:
    """Whether the wide conjunction holds of whatever the narrow one holds of."""
    found = fit(wide.shape, narrow.shape)
    return (
        found is not None
        and all(value == narrow.values[at] for value, at in zip(wide.values, found.values, strict=True))
        and all(bound <= narrow.bounds[at] for bound, at in zip(wide.bounds, found.bounds, strict=True))
    )


def features_of(form: Form) -> frozenset[Feature]:
    """What a constraint offers: a wider one that is rich requires only such."""
    if isinstance(form, Rich):
        return frozenset((*form.offered, ANYTHING))
    names, kinds = form.shape
    found: list[Feature] = [ANYTHING, *((name,) for name in names)]
    tested = [name for name, kind in zip(names, kinds, strict=True) if kind == VALUE]
    found += zip(tested, form.values, strict=True)
    return frozenset(found)
