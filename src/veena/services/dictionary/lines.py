"""Where an entry of a TOML or JSON text stands: the line of each key, so that a fault can be shown with its place.

The parsers of Python give values without lines. These two read the same text, which has been parsed already, once more
for its keys alone. A key within an inline table of TOML has no line of its own: it is shown by that of the table.

A place is written `event[2].fields.rate`: keys joined by dots, elements of lists counted from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_TOML_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_TOML_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def toml_lines(text: str) -> dict[str, int]:
    """The line of each table and key."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("[["):
            name = _joined("", stripped[2 : stripped.find("]]")], counts)
            counts[name] = counts.get(name, 0) + 1
            table = f"{name}[{counts[name]}]"
            found.setdefault(name, number)
            found.setdefault(table, number)
        elif stripped.startswith("[") and stripped.find("]") > 0 and "=" not in stripped:
            table = _joined("", stripped[1 : stripped.find("]")], counts)
            found.setdefault(table, number)
        elif key := _TOML_KEY.match(line):
            parts = _TOML_PART.findall(key[1])
            for end in range(1, len(parts) + 1):
                found.setdefault(_joined(table, ".".join(parts[:end]), {}), number)
    return found


def _joined(table: str, path: str, counts: dict[str, int]) -> str:
    """A table's path as a place: a part of it that is a list of tables means the last one so far."""
    parts = [part.strip("\"'") for part in _TOML_PART.findall(path)]
    place = table
    for at, part in enumerate(parts):
        place = f"{place}.{part}" if place else part
        if at < len(parts) - 1 and place in counts:
            place = f"{place}[{counts[place]}]"
    return place


def json_lines(text: str) -> dict[str, int]:
    """The line of each key and of each element that is an object or a list."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found: dict[str, int] = {}
    #: What encloses this place: its path, and which element of a list comes next (0 within an object).
    stack: list[tuple[str, int]] = []
    key, is_key = "", False
    for token in _JSON_TOKEN.finditer(text):
        mark, line = token[0], bisect_right(starts, token.start())
        if mark in "{[":
            path = key
            if stack and stack[-1][1]:
                path = f"{stack[-1][0]}[{stack[-1][1]}]"
                found.setdefault(path, line)
            stack.append((path, 1 if mark == "[" else 0))
            is_key = mark == "{"
        elif mark in "}]":
            stack.pop()
        elif mark == ",":
            path, element = stack[-1]
            stack[-1] = (path, element + 1 if element else 0)
            is_key = not element
        elif mark != ":" and is_key:
            key, is_key = f"{stack[-1][0]}.{mark[1:-1]}".lstrip("."), False
            found.setdefault(key, line)
    return found
