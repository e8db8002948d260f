"""What once did harm, kept in files of text: every run sends each entry before it draws new ones.

In a file of lines each is a name, a space and JSON: a list `[kind, field, ...]` for the frame of that kind (a text that
begins with `hex:` stands for bytes), or a text that is sent as it is. In a file of texts a line `=== name` begins each.
Lines that begin with `#` are for readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load_lines(path: Path) -> list[tuple[str, Any]]:
    """Names and values of a file of lines."""
    entries: list[tuple[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        try:
            entries.append((name, _with_bytes(json.loads(rest))))
        except ValueError as error:
            raise ValueError(f"{path} line {number}: {error}; write a name, a space and JSON") from None
    return entries


def load_texts(path: Path) -> list[tuple[str, str]]:
    """Names and texts of a file of texts, which `=== name` begin."""
    entries: list[tuple[str, str]] = []
    for part in path.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        entries.append((name.strip(), text))
    return entries


def _with_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if isinstance(value, str) and value.startswith("hex:"):
        return bytes.fromhex(value[4:])
    return value
