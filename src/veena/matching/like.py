"""LIKE, in time linear in the text: what a stored pattern can cost an event is bounded whatever both say.

`%` cuts the pattern into pieces of known length. The first piece must stand at the start, the last at the end, and
the ones between may each be taken at the leftmost place where they fit: a later place can only leave less room for the
rest, so there is never anything to go back to. A piece without `_` is searched by `str.find`, which is linear; one with
`_` inside by the shift-and method: one integer holds, bit by bit, how much of the piece fits up to here, and each
character of the text costs one shift and one AND (MAT-22).

Rejected: translation to a regular expression. `%a%a%a%b` makes a backtracking engine take exponential or high
polynomial time, and a stored selector is somebody else's text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: Characters of one pattern. The shift-and method costs a machine word for 30 of them and character of the text.
MAX_PATTERN_LENGTH: Final = 1024

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

    __slots__ = ("_first", "_last", "_least", "_middle", "exact")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = _split(pattern, escape)
        self._first = _Anchored(pieces[0])
        self._last = _Anchored(pieces[-1]) if len(pieces) > 1 else None
        self._middle = [_Floating(piece) for piece in pieces[1:-1] if piece]
        self._least = sum(len(piece) for piece in pieces)
        #: The only text that fits, when the pattern holds no wildcard.
        self.exact = self._first.plain if self._last is None else None

    def matches(self, text: str) -> bool:
        length = len(text)
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


class _Anchored:
    """A piece at a known place: runs of plain characters, each compared where it must stand."""

    __slots__ = ("_runs", "length", "plain")

    def __init__(self, piece: Piece) -> None:
        self.length = len(piece)
        self._runs: list[tuple[int, str]] = []
        run = ""
        for offset, character in enumerate((*piece, None)):
            if character is not None:
                run += character
            elif run:
                self._runs.append((offset - len(run), run))
                run = ""
        self.plain = None if None in piece else "".join(character for character in piece if character is not None)

    def stands_at(self, text: str, start: int) -> bool:
        return all(text.startswith(run, start + offset) for offset, run in self._runs)


class _Floating:
    """A piece between two `%`. `_` at its ends only asks for room, so only the core in between is searched."""

    __slots__ = ("_after", "_before", "_core", "_fits", "_full", "_plain")

    def __init__(self, piece: Piece) -> None:
        solid = [offset for offset, character in enumerate(piece) if character is not None]
        core = piece[solid[0] : solid[-1] + 1] if solid else ()
        self._before = solid[0] if solid else len(piece)
        self._after = len(piece) - solid[-1] - 1 if solid else 0
        self._core = len(core)
        self._plain = None if None in core else "".join(character for character in core if character is not None)
        anything = sum(1 << offset for offset, character in enumerate(core) if character is None)
        #: By character: a bit for each place of the core where it fits.
        self._fits: dict[str, int] = {}
        for offset, character in enumerate(core):
            if character is not None:
                self._fits[character] = self._fits.get(character, anything) | 1 << offset
        self._fits[""] = anything
        self._full = 1 << self._core >> 1

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the piece ends at its leftmost place within text[start:end]; -1 when it does not fit."""
        start += self._before
        end -= self._after
        if start > end:
            return -1
        if self._plain is not None:
            found = text.find(self._plain, start, end)
            return -1 if found < 0 else found + self._core + self._after
        elsewhere = self._fits[""]
        fits = self._fits
        progress = 0
        for position in range(start, end):
            progress = (progress << 1 | 1) & fits.get(text[position], elsewhere)
            if progress & self._full:
                return position + 1 + self._after
        return -1
