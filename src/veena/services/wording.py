"""How constraints are put into words."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(text: str) -> str:
    """A text as constraints write it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def any_of(constraints: Iterable[str]) -> str:
    """What satisfies one or more of these."""
    return " or ".join(f"({each})" for each in dict.fromkeys(constraints))
