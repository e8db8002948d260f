"""The records of a store as columns: deliveries, hops and changes of profiles, a range of numbers at a time.

As for events (`events`), SQLite joins the values of a column itself, in one step for all columns, so that the
interpreter's lock is not taken for every row. Tests are SQL's: columns and comparisons come from the tables below,
values are parameters.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from veena.core.wire.log_tables import COLUMNS, LogTest
from veena.runtime.export.columns import (
    Block,
    Buffers,
    bytes_column,
    joined_column,
    joins_bytes,
    number_column,
    parsed_numbers,
)

_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
#: Columns under another name on the disk; the rest have their own.
_NAMES: Final = {"offset": "number", "at": "at_ns"}
#: About what a row takes beside its text.
ROW_BYTES: Final = 64


def sql_of(tests: Sequence[LogTest]) -> tuple[str, list[int | str]]:
    """Tests as a condition and its parameters."""
    text = ""
    values: list[int | str] = []
    for test in tests:
        name = _NAMES.get(test.column, test.column)
        given: tuple[int | str, ...] = test.numbers or test.texts
        if test.how == "in":
            text += f" AND {name} IN ({', '.join('?' * len(given))})"
            values += given
        else:
            text += f" AND {name} {_COMPARISONS[test.how]} ?"
            values.append(given[0])
    return text, values


class RecordReader:
    """Reads tables of records over one connection, which one thread uses at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._joins = joins_bytes(connection)

    def block(
        self,
        table: str,
        start: int,
        end: int,
        columns: tuple[str, ...],
        tests: Sequence[LogTest],
        max_rows: int,
        max_bytes: int,
    ) -> Block:
        """The next rows of a range, as far as one block goes."""
        kinds = {name: COLUMNS[table][name] for name in columns}
        condition, values = sql_of(tests)
        execute = self._connection.execute
        first = execute(f"SELECT min(number) FROM {table} WHERE number >= ?", (start,)).fetchone()[0]  # noqa: S608
        first = end if first is None else min(first, end)
        text = [_NAMES.get(name, name) for name, kind in kinds.items() if kind == "bytes"]
        size = " + ".join([str(ROW_BYTES), *(f"coalesce(length({name}), 0)" for name in text)])
        count = max_rows
        while True:
            until = min(first + count, end)
            span = f"FROM {table} WHERE number >= ? AND number < ?"
            looked, total = execute(f"SELECT count(*), total({size}) {span}", (first, until)).fetchone()
            if total <= max_bytes or count == 1:
                break
            count = max(1, min(count - 1, int(count * max_bytes / total)))
        read = self._joined if self._joins else self._one_by_one
        rows, made = read(f"{span}{condition}", (first, until, *values), kinds)
        buffers = [buffer for name in columns for buffer in made[name]]
        return Block(rows, looked, until, buffers, until >= end)

    def _joined(
        self, span: str, values: Sequence[int | str], kinds: Mapping[str, str]
    ) -> tuple[int, dict[str, Buffers]]:
        """All columns in one step of SQLite. Rows of a range come in the order of their numbers."""
        what = ["count(*)"]
        for name, kind in kinds.items():
            column = _NAMES.get(name, name)
            if kind == "number":
                what.append(f"group_concat({column})")
            else:
                what.append(f"group_concat(coalesce(length(CAST({column} AS BLOB)), -1))")
                what.append(f"CAST(group_concat(coalesce({column}, ''), '') AS BLOB)")
        rows, *found = self._connection.execute(f"SELECT {', '.join(what)} {span}", values).fetchone()
        made: dict[str, Buffers] = {}
        for name, kind in kinds.items():
            numbers = parsed_numbers(found.pop(0))
            made[name] = number_column(numbers) if kind == "number" else joined_column(found.pop(0) or b"", numbers)
        return rows, made

    def _one_by_one(
        self, span: str, values: Sequence[int | str], kinds: Mapping[str, str]
    ) -> tuple[int, dict[str, Buffers]]:
        """The same where SQLite is too old for that: a step a row."""
        names = ", ".join(["number", *(_NAMES.get(name, name) for name in kinds)])
        rows = self._connection.execute(f"SELECT {names} {span} ORDER BY number", values).fetchall()
        made: dict[str, Buffers] = {}
        for at, (name, kind) in enumerate(kinds.items(), 1):
            column: list[Any] = [row[at] for row in rows]
            if kind == "number":
                made[name] = number_column(np.array(column, np.int64))
            else:
                made[name] = bytes_column([each.encode() if isinstance(each, str) else each for each in column])
        return len(rows), made
