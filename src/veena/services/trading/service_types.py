"""Service types: what an offer of a kind must and may say about itself (TRD-01, TRD-02).

A service type is the name of an interface and the types of its properties. The interface is that of the channel on
which the application's events are, for the channel is what serves them. A property is mandatory or optional and has one
of several types, or any; simple ones can stand in constraints, a `complex` one, a list or a table, is carried along.

A type may have a base: it inherits its properties and may make an optional one mandatory, and a query for the base
finds its offers too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from veena.errors import InvalidConstraint, InvalidEvent
from veena.matching.condition.constraint_parser import CONSTRAINT_LEXICON, parse_constraint
from veena.matching.condition.tree import Condition, attribute_names

#: The standard type: something that publishes structured events and may be steered.
APPLICATION: Final = "Application"
TRADER: Final = "Trader"
#: The interface of a channel of structured events, by its repository id (TRD-01).
EVENT_CHANNEL: Final = "veena:channel/structured-events:1"
#: Types of one repository, and bases above one type: a hierarchy is for people.
MAX_TYPES = 256
MAX_DEPTH = 16
MAX_NAME = 64

#: What a property can be; all but the last can stand in constraints.
SIMPLE: Final = ("text", "int", "number", "truth")
COMPLEX: Final = "complex"


class Mode(Enum):
    #: Every offer of the type has it.
    MANDATORY = "mandatory"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class PropertyType:
    """A property by name: which of the types it may have, any simple one if none is named."""

    name: str
    types: tuple[str, ...] = ()
    mode: Mode = Mode.OPTIONAL

    @property
    def is_complex(self) -> bool:
        return COMPLEX in self.types

    def admits(self, value: object) -> bool:
        kinds = _kinds(value)
        return any(kind in (self.types or SIMPLE) for kind in kinds)


@dataclass(frozen=True, slots=True)
class ServiceType:
    """An interface with the properties that its offers have."""

    name: str
    properties: tuple[PropertyType, ...] = ()
    base: str = ""
    interface: str = EVENT_CHANNEL


class ServiceTypes:
    """The types that are known here."""

    def __init__(self, types: Iterable[ServiceType] = ()) -> None:
        self._types: dict[str, ServiceType] = {}
        for each in types:
            self.add(each)

    @classmethod
    def standard(cls) -> ServiceTypes:
        """`Application`, with a name and a network, and `Trader`."""
        return cls((_APPLICATION, _TRADER))

    def add(self, kind: ServiceType) -> None:
        """Know one more; raise InvalidEvent naming what is wrong with it."""
        if not 1 <= len(kind.name) <= MAX_NAME or not kind.name.isidentifier():
            raise InvalidEvent(f"service type {kind.name!r:.80}: expected a name of letters, digits and _")
        if len(self._types) >= MAX_TYPES and kind.name not in self._types:
            raise InvalidEvent(f"service type {kind.name!r}: there are {MAX_TYPES} types already")
        if kind.base and kind.base not in self._types:
            known = ", ".join(self._types) or "none"
            raise InvalidEvent(f"service type {kind.name!r}: its base {kind.base!r} is not known; there are {known}")
        if kind.base and (kind.name in self.line(kind.base) or len(self.line(kind.base)) >= MAX_DEPTH):
            raise InvalidEvent(f"service type {kind.name!r}: base {kind.base!r} stands below it, or too deep")
        for each in kind.properties:
            self._check_property(kind, each)
        self._types[kind.name] = kind

    def _check_property(self, kind: ServiceType, each: PropertyType) -> None:
        where = f"service type {kind.name!r}, property {each.name!r:.80}"
        if not each.name.isidentifier():
            raise InvalidEvent(f"{where}: expected a name of letters, digits and _")
        if unknown := [name for name in each.types if name not in (*SIMPLE, COMPLEX)]:
            raise InvalidEvent(f"{where}: type {unknown[0]!r} is none of {', '.join((*SIMPLE, COMPLEX))}")
        inherited = self.properties(kind.base).get(each.name) if kind.base else None
        if inherited is not None and inherited.mode is Mode.MANDATORY and each.mode is not Mode.MANDATORY:
            raise InvalidEvent(f"{where}: {kind.base!r} has it as mandatory, so it must be here too")
        if inherited is not None and inherited.types and set(each.types or SIMPLE) - set(inherited.types):
            raise InvalidEvent(f"{where}: {kind.base!r} allows only {', '.join(inherited.types)}")

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def of(self, name: str) -> ServiceType:
        found = self._types.get(name)
        if found is None:
            raise InvalidEvent(f"service type {name!r:.80} is not known; there are {', '.join(self._types)}")
        return found

    def line(self, name: str) -> tuple[str, ...]:
        """The type and its bases, nearest first."""
        line = [self.of(name).name]
        while base := self._types[line[-1]].base:
            line.append(base)
        return tuple(line)

    def properties(self, name: str) -> dict[str, PropertyType]:
        """All properties of a type, inherited ones too."""
        found: dict[str, PropertyType] = {}
        for each in reversed(self.line(name)):
            found.update((kind.name, kind) for kind in self._types[each].properties)
        return found

    def check(self, name: str, properties: Mapping[str, Any]) -> None:
        """Raise InvalidEvent unless an offer of this type may have these properties (TRD-02, TRD-05).

        What the type does not know is the application's own, and may be anything simple.
        """
        known = self.properties(name)
        for kind in known.values():
            if kind.mode is Mode.MANDATORY and kind.name not in properties:
                raise InvalidEvent(f"an offer of type {name!r} needs the property {kind.name!r}: give it a value")
        for key, value in properties.items():
            if not isinstance(key, str) or not key.isidentifier():
                raise InvalidEvent(f"property {key!r:.80}: expected a name of letters, digits and _")
            kind = known.get(key) or PropertyType(key, (*SIMPLE, COMPLEX))
            if not kind.admits(value):
                expected = ", ".join(kind.types or SIMPLE)
                raise InvalidEvent(f"property {key!r} of type {name!r} is {value!r:.80}: expected {expected}")

    def check_constraint(self, name: str, text: str) -> Condition:
        """What a constraint over offers of this type says; raise InvalidConstraint with the position of what is wrong.

        Only simple properties can be compared (TRD-02). A type that is not known here may be known elsewhere.
        """
        condition = parse_constraint(text)
        if name in self._types:
            known = self.properties(name)
            for each in attribute_names(condition):
                if each in known and known[each].is_complex:
                    reason = f"property {each!r} of {name!r} is a list or a table: only simple ones can be compared"
                    raise InvalidConstraint(text, _place(text, each), reason)
        return condition


def _place(text: str, name: str) -> int:
    return next((match.start() for match in CONSTRAINT_LEXICON.pattern.finditer(text) if match[1] == name), 0)


def _kinds(value: object) -> tuple[str, ...]:
    """The types that a value is of."""
    if isinstance(value, bool):
        return ("truth",)
    if isinstance(value, int):
        return ("int", "number")
    if isinstance(value, float):
        return ("number",) if math.isfinite(value) else ()
    if isinstance(value, str):
        return ("text",)
    return (COMPLEX,) if isinstance(value, list | tuple | Mapping) else ()


#: Clients of which categories may use it, by the lowest; no category means everybody (TRD-04).
CATEGORY: Final = "category"
NETWORK: Final = "network"

_APPLICATION = ServiceType(
    APPLICATION,
    (
        PropertyType("name", ("text",), Mode.MANDATORY),
        PropertyType(NETWORK, ("int",), Mode.MANDATORY),
        PropertyType(CATEGORY, ("text",)),
        PropertyType("parameters", (COMPLEX,)),
    ),
)
_TRADER = ServiceType(
    TRADER,
    (PropertyType("name", ("text",), Mode.MANDATORY), PropertyType(NETWORK, ("int",), Mode.MANDATORY)),
    interface="veena:trader:1",
)
