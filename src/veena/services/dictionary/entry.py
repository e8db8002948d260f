"""One entry of an event dictionary: an event type, its fields, its quality and who may publish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

from veena.errors import InvalidEvent
from veena.event import Value
from veena.services.structured import Scalar

Role = Literal["application", "client"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
#: Stands for every domain, or for every name.
ANY: Final = "*"
#: What a field may hold, and the classes of Python that are that. A whole number is a number, but a truth is none.
KINDS: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {"text": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "bytes": (bytes,), "null": (type(None),)}
)
ALL_KINDS: Final = tuple(KINDS)
#: Fields are what is matched; what is larger belongs into the remainder.
MAX_TEXT = 4096
MAX_FIELDS = 64


@dataclass(frozen=True, slots=True)
class Field:
    """What one field of the filterable body may hold."""

    name: str
    #: Names of `KINDS`; empty for any of them.
    kinds: tuple[str, ...] = ()
    required: bool = False
    enum: tuple[Scalar, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    #: Characters of a text, bytes of bytes.
    max_length: int = MAX_TEXT
    description: str = ""

    def fault(self, value: Value) -> str:
        """What is expected instead of the value; empty when it is right."""
        kinds = self.kinds or ALL_KINDS
        if not any(is_kind(value, kind) for kind in kinds):
            return f"expected {' or '.join(kinds)}, found {type(value).__name__}"
        if isinstance(value, str | bytes) and len(value) > self.max_length:
            unit = "characters" if isinstance(value, str) else "bytes"
            return f"it has {len(value)} {unit}, at most {self.max_length} fit: put what is large into the remainder"
        if self.enum and not any(_same(value, each) for each in self.enum):
            return f"expected one of {', '.join(map(repr, self.enum))}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Written so that what is not a number (NaN) is outside every range.
            if self.minimum is not None and not value >= self.minimum:
                return f"expected at least {self.minimum}"
            if self.maximum is not None and not value <= self.maximum:
                return f"expected at most {self.maximum}"
        return ""

    @property
    def shown(self) -> str:
        """What it may hold, for people: `float 0 to 0.25`, `text running | paused`, `text(40)`."""
        kinds = " or ".join(self.kinds) or "any"
        if self.enum:
            return f"{kinds} {' | '.join(map(str, self.enum))}"
        if self.minimum is not None and self.maximum is not None:
            return f"{kinds} {self.minimum} to {self.maximum}"
        if self.minimum is not None or self.maximum is not None:
            return f"{kinds} from {self.minimum}" if self.maximum is None else f"{kinds} up to {self.maximum}"
        return kinds if self.max_length == MAX_TEXT else f"{kinds}({self.max_length})"


#: What an open entry holds beside the fields that it names.
_ANY_FIELD: Final = Field("")


@dataclass(frozen=True, slots=True)
class Interaction:
    """A type of events (Monitoring, Steering, ...): events are told apart by interaction, not direction (DIC-12)."""

    name: str
    #: Who may publish events of it, and who has a use for them (DIC-10).
    publishers: tuple[Role, ...] = ROLES
    consumers: tuple[Role, ...] = ROLES
    #: Whether a client needs more than to be let in for it: `domain.categories` gives such types to trusted categories
    #: alone.
    is_guarded: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class EventType:
    """One entry: what events of this domain, type and name are like."""

    domain: str
    type: str
    name: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    publishers: tuple[Role, ...] = ROLES
    qos: Mapping[str, Scalar] = field(default_factory=dict)
    #: Whether an event may have fields that the entry does not name.
    is_open: bool = False
    description: str = ""

    @property
    def label(self) -> str:
        return f"{self.domain}/{self.type}/{self.name}"

    def check(self, fields: Mapping[str, Value], label: str) -> None:
        """Raise InvalidEvent at the first field that is missing, too much or wrong."""
        for each in self.fields.values():
            if each.required and each.name not in fields:
                raise InvalidEvent(
                    f"event {label}: field {each.name!r} is missing; give it {' or '.join(each.kinds) or 'a value'}"
                )
        if len(fields) > MAX_FIELDS:
            raise InvalidEvent(f"event {label}: {len(fields)} fields; at most {MAX_FIELDS}: use the remainder")
        for name, value in fields.items():
            known = self.fields.get(name)
            if known is None and not self.is_open:
                raise InvalidEvent(
                    f"event {label}: field {name!r} = {value!r:.80} is not in the dictionary; it has"
                    f" {', '.join(self.fields) or 'no fields'}: drop it, put it into the remainder, or add it there"
                )
            fault = (known or _ANY_FIELD).fault(value)
            if fault:
                raise InvalidEvent(f"event {label}: field {name!r} is {value!r:.80}; {fault}")


def is_kind(value: object, kind: str) -> bool:
    """Whether a value is of a kind; True is no number."""
    return isinstance(value, KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))


def _same(one: object, other: object) -> bool:
    """Whether two values are one, as JSON has it: 1 and 1.0 are, 1 and True are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
