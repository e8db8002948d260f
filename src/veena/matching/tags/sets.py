"""Constraints on tags by shape, that is by which tags they name: one hash look-up a shape, whatever the profiles.

All constraints of one shape, say `Make=?,Color=?`, are a dict from the values to the constraint. An event asks each
shape once: it takes its values of those tags and looks them up. That costs the number of shapes, not of profiles, so it
beats the profile graph where few shapes exist and loses where there are many; `engine` decides.

The invariant: a shape is asked while its table has a constraint. The counts are those of all constraints held here, so
`destinations` stops when it has all there is (DST-07). Rejected: leaving out shapes whose destinations are there
already (DST-04): the test costs a third of the look-up that it seldom saves, and made the sparse case slower than
`match`. Also rejected: an index of the rarest pair with a test of each candidate: at 100,000 profiles of 20 values that
is thousands of tests an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter

from veena.matching.base.engine import DestinationCounts
from veena.matching.tags.profile_graph import Entry

#: The tags in the order of the chain, and how many of them, the first ones, have a value rather than `*`.
ShapeKey = tuple[tuple[str, ...], int]
#: What `itemgetter` makes of the valued tags of a shape: one value, or a tuple of them.
Values = str | tuple[str, ...] | None


class Shape:
    """The constraints of one shape that are held here."""

    __slots__ = ("free", "key", "table", "uses", "values_in")

    def __init__(self, key: ShapeKey) -> None:
        tags, valued = key
        self.key = key
        #: Constraints of this shape anywhere in the engine.
        self.uses = 0
        self.free = tags[valued:]
        self.values_in: Callable[[Mapping[str, str | None]], Values] = itemgetter(*tags[:valued]) if valued else _none
        self.table: dict[Values, Entry] = {}


def _none(_tags: Mapping[str, str | None]) -> Values:
    return ()


class TagSets(DestinationCounts):
    """The shapes that have a table, and what an event needs to ask them all."""

    def __init__(self) -> None:
        super().__init__()
        self._shapes: dict[ShapeKey, Shape] = {}
        #: Every tag of every shape -> None: laid under an event's tags, so that no look-up of a tag can miss.
        self._absent: dict[str, str | None] = {}
        self._entries = 0
        self.visited = 0

    def __len__(self) -> int:
        """Distinct constraints."""
        return self._entries

    def entries(self) -> Iterator[tuple[Shape, list[Entry]]]:
        """All that is held here, shape by shape."""
        for shape in self._shapes.values():
            yield shape, list(shape.table.values())

    def fill(self, shape: Shape, values: list[list[str]], entries: list[Entry]) -> None:
        """Add all constraints of a shape, a column for each valued tag; to be counted by the caller."""
        self._shapes[shape.key] = shape
        self._absent.update(dict.fromkeys(shape.key[0]))
        keys: Iterable[Values] = values[0] if len(values) == 1 else zip(*values, strict=True) if values else [()]
        shape.table = dict(zip(keys, entries, strict=True))
        self._entries += len(entries)

    def insert(self, shape: Shape, values: Values, entry: Entry) -> None:
        """Add a constraint that is not here, with all its profiles; `values` are what a match asks the table for."""
        if not shape.table:
            self._shapes[shape.key] = shape
            self._absent.update(dict.fromkeys(shape.key[0]))
        shape.table[values] = entry
        self.count_all(entry)
        self._entries += 1

    def delete(self, shape: Shape, values: Values, entry: Entry) -> None:
        del shape.table[values]
        self.discount_all(entry)
        self._entries -= 1
        if not shape.table:
            del self._shapes[shape.key]
            self._absent = {tag: None for tags, _ in self._shapes for tag in tags}

    def any_entry(self) -> Entry:
        """A constraint to move elsewhere: the same one on every machine."""
        shape = next(reversed(self._shapes.values()))
        return next(reversed(shape.table.values()))

    def match(self, tags: Mapping[str, str]) -> list[Entry]:
        found: list[Entry] = []
        padded = {**self._absent, **tags}
        for shape in self._shapes.values():
            entry = shape.table.get(shape.values_in(padded))
            if entry is not None and (not shape.free or _all_there(shape.free, padded)):
                found.append(entry)
        self.visited += len(self._shapes)
        return found

    def destinations(self, tags: Mapping[str, str]) -> int:
        """The destinations of all constraints that these tags satisfy."""
        have = asked = 0
        everything = self.mask
        padded = {**self._absent, **tags}
        for shape in self._shapes.values():
            asked += 1  # cheaper than a tuple a round
            entry = shape.table.get(shape.values_in(padded))
            if entry is not None and (not shape.free or _all_there(shape.free, padded)):
                have |= entry.mask
                if have == everything:
                    break
        self.visited += asked
        return have


def _all_there(names: tuple[str, ...], padded: Mapping[str, str | None]) -> bool:
    return all(padded[name] is not None for name in names)
