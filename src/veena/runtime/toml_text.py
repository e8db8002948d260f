"""TOML from files that people write: read as `tomllib` does, but never for long.

`tomllib` takes time with the square of the parts of one key (`a.b.c`), half a minute for 50,000. A name has a few.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

#: Parts of one key, or of the name of a table.
MAX_KEY_PARTS = 64
#: Texts in quotes, and comments: dots in them part nothing.
_TEXTS = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|#[^\n]*")
#: What cannot stand inside a key.
_ENDS = re.compile(r"[^\w\-\". \t]+")


def load_toml(text: str) -> dict[str, Any]:
    """The tables of a text; raise tomllib.TOMLDecodeError, whose text ends with the line, or RecursionError."""
    bare = _TEXTS.sub('""', text)
    if bare.count(".") >= MAX_KEY_PARTS:
        for number, line in enumerate(bare.split("\n"), 1):
            if any(run.count(".") >= MAX_KEY_PARTS for run in _ENDS.split(line)):
                raise tomllib.TOMLDecodeError(f"A key has more than {MAX_KEY_PARTS} parts (at line {number}, column 1)")
    return tomllib.loads(text)
