"""Constraints of one kind and topic: those that cover one, and those that one covers, without comparing with all.

Conjunctions stand in tables by their shape. A shape can only be covered by shapes that name no attribute which it does
not name; each table knows those. What is richer stands under features: under one that each of its alternatives
requires, for those who ask what covers them, and under all that it offers, for those who ask what they cover.

A constraint has a *lane* beside its form, which says how far it reaches: `admits(wide lane, narrow lane)` says whether
one may stand for the other at all.

The invariants: of two conjunctions the answer is final. Whatever else is found is worth a question, and nothing more. A
table is there while it has rows. Bounded is the number of shapes (`MAX_SHAPES`): conjunctions of more shapes are not
held, and are covered by nothing and cover nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from veena.matching.covering.form import ANYTHING, EVERYTHING, Feature, Fit, Form, Plain, Rich, features_of, fit
from veena.matching.covering.table import Table

#: Shapes of one index, over all lanes. A question looks at those that fit, about a microsecond each.
MAX_SHAPES = 256

#: Anything that can be looked up; what it means the caller knows.
Lane = Any
_Place = tuple[Lane, tuple[tuple[str, ...], str]]
Admits = Callable[[Lane, Lane], bool]


class CoverIndex:
    """Keys of constraints by their forms."""

    __slots__ = ("_admits", "_narrow", "_offering", "_requiring", "_rich", "_tables", "_wide")

    def __init__(self, admits: Admits) -> None:
        self._admits = admits
        self._tables: dict[_Place, Table] = {}
        #: By place: the tables whose rows may cover one from there, and those whose rows may be covered by one.
        self._wide: dict[_Place, list[tuple[Table, Fit]]] = {}
        self._narrow: dict[_Place, list[tuple[Table, Fit]]] = {}
        self._rich: dict[bytes, tuple[Lane, Rich, tuple[Feature, ...]]] = {}
        self._requiring: dict[Feature, dict[bytes, None]] = {}
        self._offering: dict[Feature, dict[bytes, None]] = {}

    # --- coming and going ---

    def add(self, key: bytes, form: Form, lane: Lane) -> None:
        if isinstance(form, Rich):
            self._add_rich(key, form, lane)
            return
        place = (lane, form.shape)
        table = self._tables.get(place)
        if table is None:
            if len(self._tables) >= MAX_SHAPES:
                return
            table = self._open(place)
        table.add(form, key)

    def remove(self, key: bytes, form: Form, lane: Lane) -> None:
        """Take out what was added so. What found no room is passed over."""
        if isinstance(form, Rich):
            self._remove_rich(key)
            return
        place = (lane, form.shape)
        table = self._tables.get(place)
        if table is not None:
            table.remove(form, key)
            if not len(table):
                self._close(place)

    def _open(self, place: _Place) -> Table:
        table = self._tables[place] = Table(place[1])
        for asked, tables in self._wide.items():
            if (found := self._fit(place, asked)) is not None:
                tables.append((table, found))
        for asked, tables in self._narrow.items():
            if (found := self._fit(asked, place)) is not None:
                tables.append((table, found))
        return table

    def _close(self, place: _Place) -> None:
        table = self._tables.pop(place)
        for asked in (self._wide, self._narrow):
            asked.pop(place, None)
            for tables in asked.values():
                tables[:] = [each for each in tables if each[0] is not table]

    def _fit(self, wide: _Place, narrow: _Place) -> Fit | None:
        return fit(wide[1], narrow[1]) if self._admits(wide[0], narrow[0]) else None

    def _wide_of(self, place: _Place) -> list[tuple[Table, Fit]]:
        """The tables that may cover a conjunction from there; kept for shapes that are here."""
        known = self._wide.get(place)
        if known is None:
            fits = ((table, self._fit(other, place)) for other, table in self._tables.items())
            known = [(table, found) for table, found in fits if found is not None]
            if place in self._tables:
                self._wide[place] = known
        return known

    def _narrow_of(self, place: _Place) -> list[tuple[Table, Fit]]:
        known = self._narrow.get(place)
        if known is None:
            fits = ((table, self._fit(place, other)) for other, table in self._tables.items())
            known = [(table, found) for table, found in fits if found is not None]
            if place in self._tables:
                self._narrow[place] = known
        return known

    def _add_rich(self, key: bytes, form: Rich, lane: Lane) -> None:
        chosen = tuple(dict.fromkeys(self._rarest(some) for some in form.required))
        self._rich[key] = (lane, form, chosen)
        for feature in chosen:
            self._requiring.setdefault(feature, {})[key] = None
        for feature in dict.fromkeys((*form.offered, ANYTHING)):
            self._offering.setdefault(feature, {})[key] = None

    def _rarest(self, features: tuple[Feature, ...]) -> Feature:
        return min(features, key=lambda feature: len(self._requiring.get(feature, ())), default=ANYTHING)

    def _remove_rich(self, key: bytes) -> None:
        _, form, chosen = self._rich.pop(key)
        for table, features in ((self._requiring, chosen), (self._offering, (*form.offered, ANYTHING))):
            for feature in dict.fromkeys(features):
                del table[feature][key]
                if not table[feature]:
                    del table[feature]

    # --- questions ---

    def wider(self, form: Form, lane: Lane) -> Iterator[tuple[bytes, bool]]:
        """Keys of what may cover this, and whether it surely does."""
        if isinstance(form, Plain):
            for table, found in self._wide_of((lane, form.shape)):
                for key in table.wider(form, found):
                    yield key, True
        else:
            for part in form.plain or ():
                for table, found in self._wide_of((lane, part.shape)):
                    for key in table.wider(part, found):
                        yield key, False
                break  # what covers all parts covers the first
        if self._rich:
            for feature in features_of(form):
                for key in tuple(self._requiring.get(feature, ())):
                    if self._admits(self._rich[key][0], lane):
                        yield key, False

    def narrower(self, form: Form, lane: Lane) -> Iterator[tuple[bytes, bool] | None]:
        """Keys of what this may cover, and whether it surely does; None for what was looked at in vain.

        Rows may come and go between two answers: what comes need not be found, and what is gone may be."""
        if isinstance(form, Plain):
            for table, found in tuple(self._narrow_of((lane, form.shape))):
                yield from table.narrower(form, found)
            if self._rich:
                yield from self._offered(form, lane)
            return
        for part in form.plain or ():
            for table, found in tuple(self._narrow_of((lane, part.shape))):
                for each in table.narrower(part, found):
                    yield None if each is None else (each[0], False)
        fewest = self._fewest([self._rarest_offered(some) for some in form.required])
        for key in fewest:
            yield (key, False) if key in self._rich and self._admits(lane, self._rich[key][0]) else None

    def _offered(self, form: Plain, lane: Lane) -> Iterator[tuple[bytes, bool] | None]:
        """What is rich and may lie within a conjunction: it offers everything that the conjunction asks for."""
        asked = [each for each in features_of(form) if each != ANYTHING] if form != EVERYTHING else []
        for key in self._fewest([self._rarest_offered(tuple(asked))]):
            yield (key, False) if key in self._rich and self._admits(lane, self._rich[key][0]) else None

    def _rarest_offered(self, features: tuple[Feature, ...]) -> Feature:
        return min(features, key=lambda feature: len(self._offering.get(feature, ())), default=ANYTHING)

    def _fewest(self, features: list[Feature]) -> tuple[bytes, ...]:
        """Whose first alternative offers one of these."""
        found: dict[bytes, None] = {}
        for feature in features:
            found.update(self._offering.get(feature, ()))
        return tuple(found)

    def check(self) -> None:
        for table in self._tables.values():
            assert len(table)
            table.check()
        for place, tables in self._wide.items():
            assert place in self._tables
            assert [each[0] for each in tables] == [
                table for other, table in self._tables.items() if self._fit(other, place) is not None
            ]
        for key, (_, form, chosen) in self._rich.items():
            assert all(key in self._requiring[feature] for feature in chosen)
            assert all(key in self._offering[feature] for feature in form.offered)
