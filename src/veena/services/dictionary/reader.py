"""What the two kinds of dictionary files have in common: their small parts are read and checked here.

Every fault is a ConfigError with the line, the place in the file, what stands there and what to write instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from veena.errors import ConfigError, InvalidEvent
from veena.services.dictionary.entry import (
    ANY,
    MAX_FIELDS,
    MAX_TEXT,
    ROLES,
    EventType,
    Field,
    Interaction,
    Role,
    is_kind,
)
from veena.services.structured import Scalar, check_name, check_qos

#: A dictionary is read by people.
MAX_ENTRIES = 1000
MAX_INTERACTIONS = 100
MAX_ENUM = 256
#: A text that is matched; the frame of an event bounds it too.
MAX_LENGTH = 1 << 16
EXTENDS = ("standard", "nothing")


@dataclass(frozen=True, slots=True)
class Entries:
    """What stands in one file, before it is joined with what it extends."""

    file: str
    extends: str
    interactions: tuple[Interaction, ...]
    #: By their place in the file.
    entries: Mapping[str, EventType]
    #: The places of those that say who may publish them.
    with_publishers: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)

    def fault(self, place: str, reason: str, remedy: str) -> ConfigError:
        return fault_at(self.file, self.lines, place, reason, remedy)


def fault_at(file: str, lines: Mapping[str, int], place: str, reason: str, remedy: str) -> ConfigError:
    """The error for a place such as `event[2].fields.rate.minimum`, with the line where that stands."""
    at = place
    while at and at not in lines:
        at = at[: max(at.rfind("."), at.rfind("["), 0)]
    return ConfigError(f"{file}:{lines[at]}" if at else file, place, reason, remedy)


class Reader:
    """Reads one file; `kinds` are the names that it has for the types of fields."""

    def __init__(self, file: str, lines: Mapping[str, int], kinds: Mapping[str, str]) -> None:
        self._file = file
        self._lines = lines
        self._kinds = kinds

    def fault(self, place: str, reason: str, remedy: str) -> ConfigError:
        return fault_at(self._file, self._lines, place, reason, remedy)

    # --- the large parts ---

    def entries(
        self,
        extends: Any,
        at: str,
        types: Any,
        types_at: str,
        entries: Mapping[str, EventType],
        declared: tuple[str, ...],
    ) -> Entries:
        """The whole file; `at` and `types_at` are the places of what it extends and of its types."""
        if extends not in EXTENDS:
            raise self.fault(at, f"is {extends!r:.80}", f"write one of {', '.join(map(repr, EXTENDS))}")
        types = self.table(types, types_at)
        if len(types) > MAX_INTERACTIONS:
            raise self.fault(types_at, f"has {len(types)} types", f"declare at most {MAX_INTERACTIONS}")
        seen: dict[str, str] = {}
        for place, each in entries.items():
            if seen.setdefault(each.label, place) != place:
                raise self.fault(place, f"{each.label} stands there twice", f"join it with {seen[each.label]}")
        interactions = tuple(self._interaction(name, each, f"{types_at}.{name}") for name, each in types.items())
        return Entries(self._file, extends, interactions, entries, declared, self._lines)

    def _interaction(self, name: str, given: Any, place: str) -> Interaction:
        raw = self.table(given, place)
        self.known(raw, place, ("publishers", "consumers", "guarded", "description"))
        return Interaction(
            self.name(name, place),
            self.roles(raw, place, "publishers"),
            self.roles(raw, place, "consumers"),
            self.truth(raw, place, "guarded"),
            self.text(raw, place, "description"),
        )

    def qos(self, given: Any, place: str) -> dict[str, Scalar]:
        qos: dict[str, Scalar] = self.table(given, place)
        for name, value in qos.items():
            try:
                check_qos({name: value}, "*")
            except InvalidEvent as error:
                raise self.fault(f"{place}.{name}", str(error).removeprefix("event *: "), "correct it") from None
        return qos

    def fields(
        self, raw: Mapping[str, Any], place: str, required: Collection[str], more: tuple[str, ...]
    ) -> dict[str, Field]:
        """The fields of an entry; `more` are words that this kind of file has beside those that both have."""
        if len(raw) > MAX_FIELDS:
            raise self.fault(place, f"has {len(raw)} fields", f"at most {MAX_FIELDS}: use the remainder for the rest")
        return {name: self._field(name, each, f"{place}.{name}", name in required, more) for name, each in raw.items()}

    def _field(self, name: str, given: Any, place: str, required: bool, more: tuple[str, ...]) -> Field:
        raw = self.table(given, place)
        self.known(raw, place, ("type", "enum", "minimum", "maximum", "maxLength", "description", *more))
        for word in more:
            self.truth(raw, place, word) if word == "required" else self.text(raw, place, word)
        kinds = self._kinds_of(raw, place)
        length = raw.get("maxLength", MAX_TEXT)
        if type(length) is not int or not 1 <= length <= MAX_LENGTH:
            raise self.fault(f"{place}.maxLength", f"is {length!r:.80}", f"write a number from 1 to {MAX_LENGTH}")
        low, high = (self._number(raw, place, each) for each in ("minimum", "maximum"))
        if low is not None and high is not None and low > high:
            raise self.fault(f"{place}.minimum", f"is {low}, above maximum {high}", "swap them")
        enum, description = self._enum(raw, place, kinds), self.text(raw, place, "description")
        return Field(self.name(name, place), kinds, required, enum, low, high, length, description)

    def _kinds_of(self, raw: Mapping[str, Any], place: str) -> tuple[str, ...]:
        given = raw.get("type", [])
        names = given if isinstance(given, list) else [given]
        for name in names:
            if not isinstance(name, str) or name not in self._kinds:
                raise self.fault(f"{place}.type", f"is {name!r:.80}", f"write one or more of {', '.join(self._kinds)}")
        return tuple(self._kinds[name] for name in names)

    def _enum(self, raw: Mapping[str, Any], place: str, kinds: tuple[str, ...]) -> tuple[Scalar, ...]:
        given = raw.get("enum")
        if given is None:
            return ()
        if not isinstance(given, list) or not 1 <= len(given) <= MAX_ENUM:
            raise self.fault(f"{place}.enum", "is no list, empty or too long", f"list 1 to {MAX_ENUM} values")
        for each in given:
            if not isinstance(each, bool | int | float | str) or (kinds and not any(is_kind(each, k) for k in kinds)):
                remedy = f"list values of type {' or '.join(kinds) or 'text, int, float or bool'}"
                raise self.fault(f"{place}.enum", f"holds {each!r:.80}", remedy)
        return tuple(given)

    def _number(self, raw: Mapping[str, Any], place: str, name: str) -> int | float | None:
        given = raw.get(name)
        if given is None:
            return None
        if type(given) is not int and not (isinstance(given, float) and math.isfinite(given)):
            raise self.fault(f"{place}.{name}", f"is {given!r:.80}", "write a finite number, or leave it out")
        number: int | float = given
        return number

    # --- the small parts ---

    def roles(self, raw: Mapping[str, Any], place: str, name: str) -> tuple[Role, ...]:
        given = raw.get(name, list(ROLES))
        if not isinstance(given, list) or any(each not in ROLES for each in given):
            raise self.fault(f"{place}.{name}", f"is {given!r:.80}", f"write a list of {' and '.join(ROLES)}")
        return tuple(given)

    def truth(self, raw: Mapping[str, Any], place: str, name: str, otherwise: bool = False) -> bool:
        given = raw.get(name, otherwise)
        if not isinstance(given, bool):
            raise self.fault(f"{place}.{name}", f"is {given!r:.80}", "write true or false")
        return given

    def text(self, raw: Mapping[str, Any], place: str, name: str) -> str:
        given = raw.get(name, "")
        if not isinstance(given, str):
            raise self.fault(f"{place}.{name}", f"is {given!r:.80}", "write a text")
        return given

    def table(self, given: Any, place: str) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise self.fault(place, f"is {given!r:.80}", "write a table of names and values here")
        return given

    def name(self, given: Any, place: str) -> str:
        try:
            found = check_name("name", given)
        except InvalidEvent as error:
            raise self.fault(place, str(error), "correct it") from None
        if ANY in found and found != ANY:
            raise self.fault(place, f"{found!r} has a * in it", f"write a whole name, or {ANY!r} alone for every one")
        return found

    def known(self, raw: Mapping[str, Any], place: str, known: tuple[str, ...]) -> None:
        for name in raw:
            if name not in known:
                remedy = f"what can stand here is {', '.join(known)}"
                raise self.fault(f"{place}.{name}" if place else name, "is not known", remedy)
