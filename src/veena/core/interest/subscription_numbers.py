"""The wants of one session by the numbers of its subscriptions.

Clients number their subscriptions one after the other, so most stand in a row, at 8 bytes each. A number that would
leave more places empty than are taken stands in a dict, at 60 or more with the number itself.

The invariant: a number is in one of the two, and of the places of the row at least half were taken when it grew.
"""

from __future__ import annotations

from collections.abc import Iterator

from veena.core.interest.constraint import Want

#: Places that may be empty in any case.
FEW = 16


class Numbered:
    """A dict from numbers to wants, as far as a session needs one."""

    __slots__ = ("_count", "_others", "_row")

    def __init__(self) -> None:
        self._row: list[Want | None] = []
        self._others: dict[int, Want] = {}
        #: How many places of the row are taken.
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._others)

    def get(self, number: int) -> Want | None:
        if 0 <= number < len(self._row):
            return self._row[number]
        return self._others.get(number)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __setitem__(self, number: int, want: Want) -> None:
        """A number that is not there yet."""
        if len(self._row) <= number <= 2 * self._count + FEW:
            grown = range(len(self._row), number + 1)
            self._row += [None] * len(grown)
            few = grown if len(grown) < len(self._others) else [each for each in self._others if each <= number]
            for other in few:
                if other in self._others:
                    self._place(other, self._others.pop(other))
        if number < len(self._row):
            self._place(number, want)
        else:
            self._others[number] = want

    def _place(self, number: int, want: Want) -> None:
        self._row[number] = want
        self._count += 1

    def pop(self, number: int) -> Want:
        """The want of a number that is there, which it is no longer."""
        if number >= len(self._row):
            return self._others.pop(number)
        want = self._row[number]
        if want is None:
            raise KeyError(number)
        self._row[number] = None
        self._count -= 1
        if not self._count:
            self._row = []
        return want

    def items(self) -> Iterator[tuple[int, Want]]:
        for number, want in enumerate(self._row):
            if want is not None:
                yield number, want
        yield from self._others.items()

    def check(self) -> None:
        assert self._count == sum(want is not None for want in self._row)
        assert all(number >= len(self._row) for number in self._others)
