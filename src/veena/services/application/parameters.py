"""What of an application can be steered: values with their kinds and bounds, and how they are shown to others.

An application says of each parameter what it may be; whatever a client asks for is checked against that before the
computation sees it, and what is refused is refused with the parameter's name, the value and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from veena.core.wire.header import DECODE_ERRORS
from veena.errors import InvalidEvent
from veena.services.structured import Scalar

Kind = Literal["float", "int", "bool", "text"]
#: More would not fit on anybody's screen, nor in the answer to a query.
MAX_PARAMETERS = 256
MAX_NAME_LENGTH = 100
MAX_TEXT_LENGTH = 1000
#: The only name with a meaning of its own: by it a program is paused, resumed and stopped.
STATE = "state"

_KINDS: Mapping[type, Kind] = {bool: "bool", int: "int", float: "float", str: "text"}


class ParameterView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter as an answer shows it: its value now, and what it may be."""

    name: str
    value: Scalar
    kind: Kind
    low: float | None = None
    high: float | None = None
    choices: tuple[Scalar, ...] = ()
    read_only: bool = False
    #: What the value is measured in, and what it does: for people.
    unit: str = ""
    about: str = ""


_views_in = msgspec.json.Decoder(tuple[ParameterView, ...])
_views_out = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that clients can see, and change unless it is `read_only`.

    The kind follows from the first value, unless it is given: `Parameter(1, kind="float")` takes 1.5 too.
    """

    value: Scalar
    low: float | None = None
    high: float | None = None
    kind: Kind | None = None
    choices: Sequence[Scalar] = ()
    read_only: bool = False
    unit: str = ""
    about: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        kind = _KINDS.get(type(self.value)) if self.kind is None else self.kind
        if kind is None or kind not in _KINDS.values():
            found = f"value {self.value!r:.80}" if self.kind is None else f"kind {self.kind!r}"
            raise InvalidEvent(f"{found}: a parameter is one of {', '.join(_KINDS.values())}")
        object.__setattr__(self, "kind", kind)
        if (self.low is not None or self.high is not None) and kind not in ("float", "int"):
            raise InvalidEvent(f"low and high are for numbers, this parameter is of kind {kind}: name its choices")
        self.check("a new parameter", self.value, is_first=True)

    def check(self, name: str, value: object, *, is_first: bool = False) -> Scalar:
        """The value as the application gets it; raise InvalidEvent saying what was expected instead."""
        if self.read_only and not is_first:
            raise InvalidEvent(f"parameter {name!r} is read-only: it shows what the computation found")
        found = self._of_kind(value)
        if found is None:
            raise InvalidEvent(f"parameter {name!r}: {value!r:.80} is no {self.kind}; expected {self.expected}")
        if self.choices and found not in self.choices:
            raise InvalidEvent(f"parameter {name!r}: {value!r:.80} is none of its choices; expected {self.expected}")
        if isinstance(found, int | float) and not (
            (self.low is None or found >= self.low) and (self.high is None or found <= self.high)
        ):
            raise InvalidEvent(f"parameter {name!r}: {value!r:.80} is out of bounds; expected {self.expected}")
        return found

    def _of_kind(self, value: object) -> Scalar | None:
        if self.kind == "float":
            is_number = isinstance(value, float) or _is_whole(value)
            return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
        if self.kind == "int":
            return value if _is_whole(value) else None  # type: ignore[return-value]
        if self.kind == "bool":
            return value if isinstance(value, bool) else None
        return value if isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH else None

    @property
    def expected(self) -> str:
        """What it may be, in words."""
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        match self.low, self.high:
            case None, None:
                bounds = f"at most {MAX_TEXT_LENGTH} characters" if self.kind == "text" else "any"
            case low, None:
                bounds = f"{low:g} or more"
            case None, high:
                bounds = f"{high:g} or less"
            case low, high:
                bounds = f"{low:g} to {high:g}"
        return f"{self.kind}, {bounds}"

    def view(self, name: str, value: Scalar) -> ParameterView:
        """How it is shown to others."""
        assert self.kind is not None
        choices = tuple(self.choices)
        return ParameterView(
            name, value, self.kind, self.low, self.high, choices, self.read_only, self.unit, self.about
        )


def _is_whole(value: object) -> bool:
    """Whether it is a whole number, and one that an event can carry."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def check_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The parameters of an application; raise InvalidEvent when they cannot be."""
    if len(parameters) > MAX_PARAMETERS:
        raise InvalidEvent(f"{len(parameters)} parameters: an application has at most {MAX_PARAMETERS}")
    for name, parameter in parameters.items():
        if not name.isidentifier() or len(name) > MAX_NAME_LENGTH or name == STATE:
            reason = f"{STATE!r} is how a program is paused" if name == STATE else f"at most {MAX_NAME_LENGTH} long"
            raise InvalidEvent(f"parameter {name!r:.120}: expected a name as of a Python variable ({reason})")
        if not isinstance(parameter, Parameter):
            raise InvalidEvent(f"parameter {name!r} is {parameter!r:.80}: write Parameter(value, low=..., high=...)")
    return dict(parameters)


def pack_views(views: Sequence[ParameterView]) -> bytes:
    """The remainder of an answer to a query."""
    return _views_out.encode(views)


def unpack_views(data: bytes) -> dict[str, ParameterView]:
    """The parameters that an answer shows, by name; raise InvalidEvent when it shows none."""
    try:
        return {view.name: view for view in _views_in.decode(data)}
    except DECODE_ERRORS as error:
        raise InvalidEvent(f"the answer shows no parameters: {error}") from None
