"""What a filter saves: the section `push`. Rows that a broker looked at for each row that it sent, by its own counter.

A log of 100,000 events, of which one in a hundred is wanted: once by the option `selector`, once by a `WHERE` that
Spark hands down (`pushFilters`), and once by a `WHERE` alone, which sends everything. Counters are those of the
broker's `/metrics`, so what is measured is what went over the wire and not what Spark says of itself; all three must
find the same number of rows.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.request import urlopen

from veena.spark.bench.read import ReadProcess, fill
from veena.spark.bench.suite import Effort, Figure, Say, WrongAnswer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 100_000
#: The events of `fill` have 500 symbols and 1,000 topics, all alike often: one in a hundred has one of these.
SELECTOR: Final = "symbol IN ('S0', 'S1', 'S2', 'S3', 'S4')"
WHERE: Final = "topic IN (" + ", ".join(f"'topic/{number}'" for number in range(10)) + ")"
SHARE: Final = 100
#: About one in a hundred: a tenth may be lost to rounding.
PUSH_BAR: Final = 0.9 * SHARE
_COUNTER = re.compile(r'^veena_reader_rows_(looked_at|sent)_total\{.*\} (\S+)$', re.MULTILINE)  # fmt: skip


class Counted(NamedTuple):
    """What a broker has counted of all readers."""

    looked: int
    sent: int


def measure_push(spark: SparkSession, effort: Effort, say: Say) -> Iterator[Figure]:
    rows = max(ROWS // effort.divisor, 1000)
    directory = Path(tempfile.mkdtemp(prefix="veena-bench-"))
    try:
        say(f"filling a log with {rows:,} events")
        fill(directory / "data", rows)
        port = _free_port()
        (directory / "broker.toml").write_text(f'[http]\nlisten = "127.0.0.1:{port}"\n')
        with ReadProcess("veena.cli", "broker", "run", "--json", "--until-stdin-closes", "--config",
                         str(directory / "broker.toml"), "--listen", "veena://127.0.0.1:0",
                         "--data", str(directory / "data")) as broker:  # fmt: skip
            url = str(json.loads(broker.line())["url"])
            broker.line()  # it is ready
            yield from _figures(spark, url, f"http://127.0.0.1:{port}/metrics", rows, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _figures(spark: SparkSession, url: str, metrics: str, rows: int, say: Say) -> Iterator[Figure]:
    def load(**options: str) -> DataFrame:
        return spark.read.format("veena").options(url=url, columns="id,topic", **options).load()

    kinds = (
        ("by a selector", load(selector=SELECTOR), PUSH_BAR),
        ("by WHERE, pushed", load(pushFilters="true").where(WHERE), PUSH_BAR),
        ("by WHERE, not pushed", load().where(WHERE), None),
    )
    for name, frame, bar in kinds:
        say(f"1 % of {rows:,} rows {name}")
        before = counted(metrics)
        found = frame.count()
        after = counted(metrics)
        if found != rows // SHARE:
            raise WrongAnswer(f"{found:,} rows {name}, of {rows:,} every {SHARE}th was to be found")
        looked, sent = after.looked - before.looked, after.sent - before.sent
        detail = {"rows": rows, "found": found, "looked_at": looked, "sent": sent}
        yield Figure("push", f"1 % {name}", rows / sent, bar, detail)


def counted(metrics: str) -> Counted:
    """The rows that a broker looked at and sent since its start, of all readers."""
    with urlopen(metrics, timeout=30) as page:  # noqa: S310 - the broker that was just started
        found: dict[str, float] = {"looked_at": 0.0, "sent": 0.0}
        for kind, value in _COUNTER.findall(page.read().decode()):
            found[kind] += float(value)
    return Counted(int(found["looked_at"]), int(found["sent"]))


def _free_port() -> int:
    """Nobody tells which port a broker took for its pages, so it is given one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
