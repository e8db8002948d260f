"""Whether this is the plain program, or one whose hot modules were compiled (`tools/compile.py`)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def described() -> str:
    """For `veena --version`."""
    compiled = sum(path.name.endswith(tuple(EXTENSION_SUFFIXES)) for path in PACKAGE.rglob("*"))
    if not compiled:
        return "plain"
    return f"compiled ({compiled} of {sum(1 for _ in PACKAGE.rglob('*.py'))} modules)"
