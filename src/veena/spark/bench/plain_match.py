"""The plain side of the matching benchmark: `python -m veena.spark.bench.plain_match TASK FILE...`, asked over its
pipes.

Reads Parquet with PyArrow, judges batches with the function that Spark's workers run, and keeps the Arrow columns that
come out: what somebody without Spark would write. `match` answers with the number of pairs, `alone` with the
microseconds that the engine takes for an event that has been read already.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from veena import matching
from veena.spark.matching import snapshot as match_snapshot
from veena.spark.matching.bulk import KEY, Judge
from veena.spark.matching.rows import events_of, read_name

#: As many rows as Spark puts into a batch.
BATCH_ROWS = 10_000


def main(task: str, files: list[str]) -> None:
    with Path(task).open("rb") as packed:
        judge, ids, snapshots = pickle.load(packed)  # noqa: S301 - written by the benchmark itself
    engines = tuple(matching.from_snapshot(snapshots[name]) for name in judge.asked)
    match_snapshot._restored[judge.set_name, judge.asked] = match_snapshot.Restored(engines, ids)
    for line in sys.stdin:
        answer = _alone(judge, files) if line.strip() == "alone" else _match(judge, files)
        print(answer, flush=True)


def _batches(judge: Judge, files: list[str]) -> list[pa.RecordBatch]:
    names = [*KEY, *judge.form.columns]
    read = [*KEY, *map(read_name, judge.form.columns)]
    return [
        batch.rename_columns(read)
        for file in files
        for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=names)
    ]


def _match(judge: Judge, files: list[str]) -> int:
    pairs = 0
    for file in files:
        for found in judge(iter(_batches(judge, [file]))):
            pairs += len(found.column(found.num_columns - 1).values)
    return pairs


def _alone(judge: Judge, files: list[str]) -> float:
    engine = match_snapshot._restored[judge.set_name, judge.asked].engines[0]
    first = _batches(judge, files[:1])[0]
    events = [event for event in events_of(first, judge.form, judge.key) if event is not None]
    started = time.thread_time()
    for event in events:
        engine.match(event)
    return (time.thread_time() - started) / len(events) * 1e6


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
