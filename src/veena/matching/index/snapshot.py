"""An index as plain columns, and back: what is shipped to a worker so that it need not read a single text.

Rows are written table by table, the segments of a table one after the other, so that reading them back is a copy of
each run. Texts travel as texts, values with their kind, whole numbers of any length as digits; formulas that only a
closure can judge travel as the text they came from and are made when an event first asks for them. There is no code in
a snapshot and nothing to unpickle.

The invariant: `read_index(write_index(i))` answers every event as `i` does. Bitmaps are made again, with checkpoints
chosen from all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import Column, Snapshot
from veena.matching.index.index import Index, Scope, access_to
from veena.matching.index.rows import access_key, prefix_key, prefix_length
from veena.matching.index.segments import Segment

#: The kinds of key that a segment hangs under.
_OPEN, _TEXT, _WHOLE, _FLOAT, _TRUTH, _PREFIX = range(6)


def write_index(index: Index, scopes: Sequence[Scope]) -> Snapshot:
    """The rows of the index and how they are reached; scopes are named by their place."""
    table_numbers = {id(table): number for number, table in enumerate(index.tables.values())}
    runs: list[list[Segment]] = [[] for _ in index.tables]
    places: dict[int, int] = {}
    for number, scope in enumerate(scopes):
        for access in (scope.open, *(scope.access or {}).values()):
            for key in access.held():
                # Restoring links each segment before the earlier ones, so the chain is written from its end.
                for segment in reversed(list(access.chain(key))):
                    runs[table_numbers[id(segment.table)]].append(segment)
                    places[id(segment)] = number
    segments = [segment for run in runs for segment in run]
    keys = [_written_key(segment.key) for segment in segments]
    columns: Snapshot = {
        "segment_scopes": np.array([places[id(segment)] for segment in segments], dtype=np.int32),
        "segment_tables": np.array([table_numbers[id(segment.table)] for segment in segments], dtype=np.int32),
        "segment_counts": np.array([segment.count for segment in segments], dtype=np.int32),
        "segment_attributes": [segment.access.name for segment in segments],
        "segment_key_kinds": np.array([kind for kind, _ in keys], dtype=np.int8),
        "segment_keys": [text for _, text in keys],
        "table_features": [",".join(map(str, table.features)) for table in index.tables.values()],
        "table_widths": np.array([table.sides // 2 for table in index.tables.values()], dtype=np.int32),
        "table_rests": np.array([table.has_rest for table in index.tables.values()], dtype=np.bool_),
        "table_mixed": np.array([table.is_mixed for table in index.tables.values()], dtype=np.bool_),
    }
    for number, run in enumerate(runs):
        columns[f"bounds_{number}"] = _joined([s.page.bounds[:, s.start : s.start + s.count] for s in run])
        columns[f"owners_{number}"] = _joined([s.page.owners[s.start : s.start + s.count] for s in run])
        columns[f"rests_{number}"] = _joined([s.page.rests[s.start : s.start + s.count] for s in run])
        columns[f"features_{number}"] = _joined([s.page.features[:, s.start : s.start + s.count] for s in run])
    return columns | _written_features(index) | _written_rests(index)


def read_index(index: Index, scopes: Sequence[Scope], snapshot: Snapshot, owners: int) -> None:
    """Fill an empty index with what `write_index` wrote."""
    _read_features(index, snapshot)
    _read_rests(index, snapshot)
    tables = [
        index.table(
            tuple(int(feature) for feature in features.split(",") if feature),
            width,
            bool(has_rest),
            is_mixed=bool(is_mixed),
        )
        for features, width, has_rest, is_mixed in zip(
            cast("list[str]", snapshot["table_features"]),
            _listed(snapshot, "table_widths"),
            _listed(snapshot, "table_rests"),
            _listed(snapshot, "table_mixed"),
            strict=True,
        )
    ]
    starts = [0] * len(tables)
    segments: list[Segment] = []
    for scope, table, count, name, kind, text in zip(
        _listed(snapshot, "segment_scopes"),
        _listed(snapshot, "segment_tables"),
        _listed(snapshot, "segment_counts"),
        cast("list[str]", snapshot["segment_attributes"]),
        _listed(snapshot, "segment_key_kinds"),
        cast("list[str]", snapshot["segment_keys"]),
        strict=True,
    ):
        key = _read_key(kind, text)
        access = scopes[scope].open if kind == _OPEN else access_to(scopes[scope], name)
        segment = Segment(tables[table], access, key)
        run = slice(starts[table], starts[table] + count)
        segment.fill(
            _array(snapshot, f"bounds_{table}")[:, run],
            _array(snapshot, f"owners_{table}")[run],
            _array(snapshot, f"rests_{table}")[run],
            _array(snapshot, f"features_{table}")[:, run],
        )
        starts[table] += count
        access.link(segment)
        segments.append(segment)
    index.note(segments, owners)


def _written_features(index: Index) -> Snapshot:
    features, codes = index.features, index.features.code_tables()
    return {
        "feature_names": [name for name, _ in features.keys],
        "feature_kinds": np.array([kind for _, kind in features.keys], dtype=np.int8),
        "feature_counts": np.array(features.counts, dtype=np.int64),
        "code_features": np.array([code[0] for code in codes], dtype=np.int32),
        "code_texts": [code[1] for code in codes],
        "code_numbers": np.array([code[2] for code in codes], dtype=np.int64),
        "code_counts": np.array([code[3] for code in codes], dtype=np.int64),
    }


def _read_features(index: Index, snapshot: Snapshot) -> None:
    names, kinds = cast("list[str]", snapshot["feature_names"]), _listed(snapshot, "feature_kinds")
    codes = zip(
        _listed(snapshot, "code_features"),
        cast("list[str]", snapshot["code_texts"]),
        _listed(snapshot, "code_numbers"),
        _listed(snapshot, "code_counts"),
        strict=True,
    )
    index.features.restore(list(zip(names, kinds, strict=True)), _listed(snapshot, "feature_counts"), list(codes))


def _written_rests(index: Index) -> Snapshot:
    origins = index.rests.origins
    return {
        "rest_texts": [origin[0] for origin in origins],
        "rest_rows": np.array([origin[1] for origin in origins], dtype=np.int32),
        "rest_variants": np.array([origin[2] for origin in origins], dtype=np.int8),
        "rest_counts": np.array(index.rests.counts, dtype=np.int64),
    }


def _read_rests(index: Index, snapshot: Snapshot) -> None:
    texts = cast("list[str]", snapshot["rest_texts"])
    origins = zip(texts, _listed(snapshot, "rest_rows"), _listed(snapshot, "rest_variants"), strict=True)
    index.rests.restore(list(origins), _listed(snapshot, "rest_counts"))


def _joined(runs: list[NDArray[np.generic]]) -> Column:
    return np.concatenate(runs, axis=-1)


def _array(snapshot: Mapping[str, Column], name: str) -> NDArray[np.generic]:
    return cast("NDArray[np.generic]", snapshot[name])


def _listed(snapshot: Mapping[str, Column], name: str) -> list[int]:
    return cast("list[int]", _array(snapshot, name).tolist())


def _written_key(key: object) -> tuple[int, str]:
    if key is None:
        return _OPEN, ""
    if prefix_length(key):
        return _PREFIX, str(cast("tuple[str]", key)[0])
    if isinstance(key, tuple):
        return _TRUTH, str(int(key[0]))
    if isinstance(key, str):
        return _TEXT, key
    return (_FLOAT, key.hex()) if isinstance(key, float) else (_WHOLE, hex(cast("int", key)))


def _read_key(kind: int, text: str) -> object:
    if kind == _OPEN:
        return None
    if kind == _PREFIX:
        return prefix_key(text)
    if kind == _TEXT:
        return text
    if kind == _TRUTH:
        return access_key(text == "1")
    return float.fromhex(text) if kind == _FLOAT else int(text, 16)
