"""Which integers a frame holds and what each may be; and the words of a refusal when one is out of its range.

The bounds stand in the types of the fields (`Meta(ge=..., le=...)`), where the decoder in C checks them before anything
of a frame is built. This module reads them out of the types again. So a refusal names value and range beside the field,
and a test goes through all integers of all frames: one without a bound fails it.

The invariant: nothing here decides what is refused; a frame that cannot be read again is refused in fewer words.

Rejected: a table of bounds beside the types (two places that may differ); a check in Python of every frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

#: msgpack has no integer above this.
HIGHEST = (1 << 64) - 1
#: A longer payload is not read a second time for the sake of a refusal.
MAX_READ_AGAIN = 64 * 1024

#: One step from a value to a part of it: the place of a field, or ANY for every element of a list.
Step = int | None
ANY = None


class Integer(NamedTuple):
    """An integer of a frame: the names and steps that lead to it, and the lowest and highest value it may have.

    `low` and `high` are None where the type sets no bound; `allowed` are the only values of one that is enumerated.
    """

    name: str
    steps: tuple[Step, ...]
    low: int | None
    high: int | None
    allowed: tuple[int, ...] = ()

    @property
    def range(self) -> str:
        """What it may be, in words."""
        if self.allowed:
            return " or ".join(map(str, self.allowed))
        return f"{self.low} to {HIGHEST if self.high is None else self.high}"

    def holds(self, value: int) -> bool:
        """Whether it may have this value."""
        if self.allowed:
            return value in self.allowed
        return (self.low is None or self.low <= value) and value <= (HIGHEST if self.high is None else self.high)


#: What was found, by frame or record: as many as this code has.
_found: dict[type[Any], tuple[Integer, ...]] = {}


def integers_of(struct: type[Any]) -> tuple[Integer, ...]:
    """Every integer of a frame or record, those inside lists and other records included."""
    if struct not in _found:
        _found[struct] = tuple(_integers(inspect.type_info(struct), "", ()))
    return _found[struct]


def _integers(kind: inspect.Type, name: str, steps: tuple[Step, ...]) -> Iterator[Integer]:
    match kind:
        case inspect.IntType():
            low = kind.ge if kind.gt is None else kind.gt + 1
            high = kind.le if kind.lt is None else kind.lt - 1
            yield Integer(name, steps, low, high)
        case inspect.LiteralType(values=values) if isinstance(values[0], int):
            yield Integer(name, steps, None, None, tuple(value for value in values if isinstance(value, int)))
        case inspect.StructType():
            for at, field in enumerate(kind.fields, 0 if kind.tag is None else 1):
                inner = f"{name}.{field.name}" if name else field.name
                yield from _integers(field.type, inner, (*steps, at))
        case inspect.TupleType():
            for at, item in enumerate(kind.item_types):
                yield from _integers(item, f"{name}[{at}]", (*steps, at))
        case inspect.VarTupleType() | inspect.ListType():
            yield from _integers(kind.item_type, f"{name}[]", (*steps, ANY))
        case inspect.DictType():
            yield from _integers(kind.value_type, f"{name}[]", (*steps, ANY))
        case inspect.UnionType():
            for item in kind.types:
                yield from _integers(item, name, steps)
        case _:
            return


def out_of_range(struct: type[msgspec.Struct], payload: bytes | memoryview) -> str:
    """The first integer of a payload that is out of its range, in words; "" where there is none."""
    if len(payload) > MAX_READ_AGAIN:
        return ""
    try:
        value = msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    for integer in integers_of(struct):
        for found in _at(value, integer.steps):
            if type(found) is int and not integer.holds(found):
                return f"{integer.name} is {found}, allowed are {integer.range}"
    return ""


def _at(value: Any, steps: Sequence[Step]) -> Iterator[object]:
    """Every value at the end of these steps."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if not isinstance(value, list):
        return
    if step is ANY:
        for item in value:
            yield from _at(item, rest)
    elif step < len(value):
        yield from _at(value[step], rest)
