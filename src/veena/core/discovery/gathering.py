"""The rows of one answer: gathered as they are found, put in order a few at a time.

Rows come in runs, each of which is sorted at once: what a part of the advertisements gave, or a page of another
broker's answer. The whole order is made when it is read, by merging the runs, so that no step sorts everything.

The invariant: `in_order` gives what `AdvertQuery.merge` of all rows would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from veena.core.discovery.query import AdvertQuery
from veena.core.wire.discovery import FoundRow

#: Rows of a run that is gathered here.
RUN = 512


class Gathering:
    """Rows of one query."""

    def __init__(self, query: AdvertQuery) -> None:
        self._query = query
        self._runs: list[list[FoundRow]] = []
        #: Rows that are no run yet.
        self._loose: list[FoundRow] = []
        #: How many advertisements are in it; known when all rows have come and the first is read.
        self.count = 0
        #: Of each advertisement the latest row.
        self._latest: dict[tuple[str, str], FoundRow] = {}

    def add(self, row: FoundRow) -> None:
        self._loose.append(row)
        if len(self._loose) >= RUN:
            self._end_run()

    def add_all(self, rows: Iterable[FoundRow]) -> None:
        """A page of rows: no more than one step can sort."""
        self._loose += rows
        self._end_run()

    def _end_run(self) -> None:
        loose, self._loose = self._loose, []
        for row in loose:
            known = self._latest.get((row.client, row.name))
            if known is None or (known.stamp, known.home) < (row.stamp, row.home):
                self._latest[row.client, row.name] = row
        self._runs.append(sorted(loose, key=self._query.place))

    def in_order(self) -> Iterator[FoundRow]:
        """Each advertisement once, the latest of it, in the order of the query, up to its limit."""
        self._end_run()
        self.count = len(self._latest)
        latest = self._latest
        told = (row for row in merge(*self._runs, key=self._query.place) if self._take(latest, row))
        return islice(told, self._query.limit)

    @staticmethod
    def _take(latest: dict[tuple[str, str], FoundRow], row: FoundRow) -> bool:
        """Whether this is the row that stands for its advertisement, which is told once."""
        if latest.get((row.client, row.name)) is not row:
            return False
        del latest[row.client, row.name]
        return True
