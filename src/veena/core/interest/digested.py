"""What digests say of many events that are published here: each atom is looked for in them once, and remembered.

The digests of all units around this broker are asked together: for an atom there is one vector, that of the units whose
digests let it through. The vectors are those of the digests as they are now; whoever hears another digest begins anew.

The invariant: the OR over all atoms of an event is what `InterestMap.destinations` finds in the digests for an event
that is published here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from veena.address import Unit
from veena.core.interest.digest import ANY_STRUCTURED, DigestTest, attribute_atom, hashed_atom
from veena.matching.engines.constraint import constraint_attributes

#: Vectors that are remembered.
MAX_REMEMBERED = 1 << 14


class Names(NamedTuple):
    """What digests read of events beside topic and integer: tags or not, and the names of attributes, None for any."""

    tags: bool
    names: frozenset[str] | None


class Outlined(Protocol):
    """An event without XML and addressees, as engines see it."""

    @property
    def tag_values(self) -> Mapping[str, str]: ...
    @property
    def properties(self) -> Mapping[str, object]: ...
    @property
    def headers(self) -> Mapping[str, object]: ...


class Digested:
    """The digests around one broker, until one of them changes."""

    def __init__(self, digests: Mapping[Unit, Mapping[int, DigestTest]], bit: Callable[[Unit], int]) -> None:
        self._digests = digests
        self._bit = bit
        self._known: dict[bytes, int] = {}
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        if self._names is None:
            self._names = self._read()
        return self._names

    def _read(self) -> Names:
        tests = [test for of_unit in self._digests.values() for test in of_unit.values()]
        return Names(bool(tests), None if tests else frozenset())

    def _vector(self, atom: bytes) -> int:
        found = self._known.get(atom)
        if found is None:
            hashed, found = [hashed_atom(atom)], 0
            for unit, tests in self._digests.items():
                if any(test.may_want(hashed) for test in tests.values()):
                    found |= self._bit(unit)
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[atom] = found
        return found

    def of_topic(self, topic: str | None) -> int:
        """The units that may want every event of a topic."""
        if not self._digests:
            return 0
        found = self._vector(ANY_STRUCTURED)
        return found if topic is None else found | self._vector(b"t" + topic.encode())

    def of_attributes(self, event: Outlined) -> int:
        """The units that may want an event for its tags and attributes."""
        found, (tags, names) = 0, self.names
        if tags:
            for tag, text in event.tag_values.items():
                found |= self._vector(b"g" + f"{tag}={text}".encode()) | self._vector(b"n" + tag.encode())
        shown: Mapping[str, object] = event.properties
        if names is None or any(name[:1] == "$" for name in names):
            shown = constraint_attributes(event)  # type: ignore[arg-type]
        for name, value in shown.items():
            if value is not None and (names is None or name in names):
                found |= self._vector(attribute_atom(name, None))
                if isinstance(value, str):
                    found |= self._vector(attribute_atom(name, value))
        return found
