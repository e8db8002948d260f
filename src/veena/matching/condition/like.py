"""LIKE, in time linear in the text: what a stored pattern can cost an event is bounded whatever both say.

`%` cuts the pattern into pieces of known length. The first piece must stand at the start, the last at the end, and
the ones between may each be taken at the leftmost place where they fit: a later place can only leave less room for the
rest, so there is never anything to go back to. A piece without `_` is searched by `str.find`. One with `_` inside is
searched by its longest plain run, and what is found is checked in place. Where too much is found and little of it
fits, the shift-and method takes over: one integer holds, bit by bit, how much of the piece fits up to here, and each
character of the text costs one shift and one AND. That is a step of Python a character, so one selector has few such
patterns (`MAX_GAPPED_LIKES`), and an event's text longer than `MAX_LIKE_TEXT` is not looked at: LIKE is unknown there,
and so is NOT LIKE (MAT-22).

Invariant: a match costs steps linear in the text, whatever the pattern.

Rejected: translation to a regular expression. `%a%a%a%b` makes a backtracking engine take exponential or high
polynomial time, and a stored selector is somebody else's text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: Characters of one pattern. The shift-and method costs a machine word for 30 of them and character of the text.
MAX_PATTERN_LENGTH: Final = 1024

#: Characters of an event's text that LIKE looks at: 64 Ki, far above any name, symbol or line. On a longer one it is
#: unknown, so that what many stored patterns cost an event is bounded by the patterns and not by the event.
MAX_LIKE_TEXT: Final = 64 * 1024

#: LIKE terms of one text with `_` between plain characters of a piece between two `%`: the only ones that can cost a
#: step of Python, not of C, for each character. The slowest take some ten milliseconds each on the longest text.
MAX_GAPPED_LIKES: Final = 16

#: Characters that failed checks may cost before anything was passed over; further on, as many as were passed over.
_FREE_CHECKS: Final = 64

#: A pattern is read when its text is checked, put in normal form and compiled; this many are remembered meanwhile.
PATTERNS_KEPT: Final = 1024


class PatternError(ValueError):
    """A pattern that means nothing; `offset` counts in the pattern's own characters."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


#: One character each; None is `_`, any character.
Piece = tuple[str | None, ...]


class LikePattern:
    """A pattern made ready once and matched many times. `_` is one code point, `%` any number of them."""

    __slots__ = ("_first", "_last", "_least", "_middle", "exact", "is_gapped")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = _split(pattern, escape)
        self._first = _Anchored(pieces[0])
        self._last = _Anchored(pieces[-1]) if len(pieces) > 1 else None
        self._middle = [_Floating(piece) for piece in pieces[1:-1] if piece]
        self._least = sum(len(piece) for piece in pieces)
        #: The only text that fits, when the pattern holds no wildcard.
        self.exact = self._first.plain if self._last is None else None
        #: Whether it is one of those that `MAX_GAPPED_LIKES` counts.
        self.is_gapped = any(piece.is_gapped for piece in self._middle)

    def matches(self, text: str) -> bool:
        """Whether the text fits; a text too long to be looked at does not."""
        length = len(text)
        if length > MAX_LIKE_TEXT:
            return False
        if self._last is None:
            return length == self._least and self._first.stands_at(text, 0)
        if length < self._least or not self._first.stands_at(text, 0):
            return False
        end = length - self._last.length
        if not self._last.stands_at(text, end):
            return False
        start = self._first.length
        for piece in self._middle:
            start = piece.end_of_leftmost(text, start, end)
            if start < 0:
                return False
        return True


def is_beyond_like(value: object) -> bool:
    """Whether the value is a text that LIKE says nothing about."""
    return isinstance(value, str) and len(value) > MAX_LIKE_TEXT


@lru_cache(maxsize=PATTERNS_KEPT)
def like(pattern: str, escape: str | None) -> LikePattern:
    """The pattern made ready, from memory where it was used of late."""
    return LikePattern(pattern, escape)


def _split(pattern: str, escape: str | None) -> list[Piece]:
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise PatternError(MAX_PATTERN_LENGTH, f"a LIKE pattern holds at most {MAX_PATTERN_LENGTH} characters")
    if escape is not None and len(escape) != 1:
        raise PatternError(0, "ESCAPE takes exactly one character, for example ESCAPE '!'")
    pieces: list[Piece] = []
    piece: list[str | None] = []
    offset = 0
    while offset < len(pattern):
        character = pattern[offset]
        if character == escape:
            offset += 1
            if offset == len(pattern):
                raise PatternError(offset - 1, "the pattern ends in its escape character; double it or drop it")
            piece.append(pattern[offset])
        elif character == "%":
            pieces.append(tuple(piece))
            piece = []
        else:
            piece.append(None if character == "_" else character)
        offset += 1
    pieces.append(tuple(piece))
    return pieces


def _runs_of(piece: Piece) -> list[tuple[int, str]]:
    """The plain runs of a piece, each with its offset."""
    runs: list[tuple[int, str]] = []
    run = ""
    for offset, character in enumerate((*piece, None)):
        if character is not None:
            run += character
        elif run:
            runs.append((offset - len(run), run))
            run = ""
    return runs


def _stands_at(runs: list[tuple[int, str]], text: str, start: int) -> bool:
    return all(text.startswith(run, start + offset) for offset, run in runs)


class _Anchored:
    """A piece at a known place: runs of plain characters, each compared where it must stand."""

    __slots__ = ("_runs", "length", "plain")

    def __init__(self, piece: Piece) -> None:
        self.length = len(piece)
        self._runs = _runs_of(piece)
        self.plain = None if None in piece else "".join(character for character in piece if character is not None)

    def stands_at(self, text: str, start: int) -> bool:
        return _stands_at(self._runs, text, start)


class _Floating:
    """A piece between two `%`. `_` at its ends only asks for room, so only the core in between is searched."""

    __slots__ = ("_after", "_before", "_core", "_fits", "_full", "_longest", "_offset", "_runs")

    def __init__(self, piece: Piece) -> None:
        solid = [offset for offset, character in enumerate(piece) if character is not None]
        core = piece[solid[0] : solid[-1] + 1] if solid else ()
        self._before = solid[0] if solid else len(piece)
        self._after = len(piece) - solid[-1] - 1 if solid else 0
        self._core = len(core)
        self._runs = _runs_of(core)
        self._offset, self._longest = max(self._runs, key=lambda run: len(run[1]), default=(0, ""))
        anything = sum(1 << offset for offset, character in enumerate(core) if character is None)
        #: By character: a bit for each place of the core where it fits.
        self._fits: dict[str, int] = {}
        for offset, character in enumerate(core):
            if character is not None:
                self._fits[character] = self._fits.get(character, anything) | 1 << offset
        self._fits[""] = anything
        self._full = 1 << self._core >> 1

    @property
    def is_gapped(self) -> bool:
        """Whether a `_` stands between plain characters."""
        return len(self._runs) > 1

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the piece ends at its leftmost place within text[start:end]; -1 when it does not fit."""
        start += self._before
        end -= self._after
        if start > end:
            return -1
        place = self._gapped_place(text, start, end) if self.is_gapped else text.find(self._longest, start, end)
        return -1 if place < 0 else place + self._core + self._after

    def _gapped_place(self, text: str, start: int, end: int) -> int:
        """The leftmost place of a core with `_` in it: by its longest run as long as that passes over more than the
        checks cost, and character by character from there on."""
        last = end - self._core + self._offset + len(self._longest)
        place = start
        spent = 0
        while spent <= _FREE_CHECKS + place - start:
            place = text.find(self._longest, place + self._offset, last) - self._offset
            if place < start:
                return -1
            if _stands_at(self._runs, text, place):
                return place
            place += 1
            spent += self._core
        return self._shifted_place(text, place, end)

    def _shifted_place(self, text: str, start: int, end: int) -> int:
        """The same by the shift-and method."""
        elsewhere = self._fits[""]
        fits = self._fits
        progress = 0
        for position in range(start, end):
            progress = (progress << 1 | 1) & fits.get(text[position], elsewhere)
            if progress & self._full:
                return position + 1 - self._core
        return -1
