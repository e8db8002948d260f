"""The words that profiles search texts for, so that a text finds its words and not each word the text.

A text has as many pieces of a given length as it has characters, and each piece is one look-up; so a text costs its
length times the number of distinct lengths of words, whatever the number of words. Where that is more than the number
of words, they are tested one by one. Rejected: an Aho-Corasick automaton, to be rebuilt whenever words change.
"""

from __future__ import annotations

from typing import TypeVar

#: Characters that a search goes through in the time of a look-up.
SEARCHED_A_LOOK_UP = 256


class Words:
    """The constants of one `contains` or `starts-with`, found by the pieces of a text that have their lengths."""

    __slots__ = ("_anywhere", "_lengths", "_words")

    def __init__(self, anywhere: bool) -> None:
        self._anywhere = anywhere
        self._words: dict[str, int] = {}
        self._lengths: dict[int, int] = {}

    def change(self, word: str, uses: int) -> None:
        """Count one use more or less of a constant."""
        _count(self._words, word, uses)
        _count(self._lengths, len(word), uses)

    def effort(self, text: str) -> int:
        """The look-ups or searches that `within` makes, in look-ups."""
        size, words = len(text), len(self._words)
        pieces = len(self._lengths) * (size if self._anywhere else 1)
        return pieces if pieces <= words else words * (1 + size // SEARCHED_A_LOOK_UP)

    def within(self, text: str) -> list[str]:
        """Those that the text contains, or starts with."""
        words, size = self._words, len(text)
        pieces = len(self._lengths) * (size if self._anywhere else 1)
        if pieces > len(words):
            return [word for word in words if (word in text if self._anywhere else text.startswith(word))]
        if not self._anywhere:
            return [text[:length] for length in self._lengths if length <= size and text[:length] in words]
        found: dict[str, None] = {}
        for length in self._lengths:
            for start in range(size - length + 1):
                piece = text[start : start + length]
                if piece in words:
                    found[piece] = None
        return list(found)


_Key = TypeVar("_Key", int, str)


def _count(counts: dict[_Key, int], key: _Key, uses: int) -> None:
    left = counts.get(key, 0) + uses
    if left:
        counts[key] = left
    else:
        del counts[key]
