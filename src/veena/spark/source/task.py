"""One task of a read: rows of one span of one broker's log, as Arrow, in a worker of Spark.

A broker that goes away in between is dialled again by its client, and reading goes on where it stood. Connections stay
open from one task of a worker to the next, as signing in costs more than a small task.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from veena.errors import DataLost
from veena.spark.log.client import Access, Filter, LogClient
from veena.spark.source.offsets import LOG, Span

if TYPE_CHECKING:
    import pyarrow as pa

#: Connections that a worker keeps: more brokers than that are read by one worker seldom.
MAX_OPEN: Final = 8

_logger = logging.getLogger("veena.spark")


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads, and how."""

    span: Span
    url: str
    access: Access
    table: str
    columns: tuple[str, ...]
    topic: str | None = None
    selector: str | None = None
    tests: tuple[Filter, ...] = ()
    fail_on_data_loss: bool = True
    retry_s: float = 30.0


def rows(task: Task, on_gap: Callable[[Span], None] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with its columns in their order; what is lost is told to `on_gap`, if that is allowed."""
    span = task.span
    while span.start < span.end:
        client = _taken(task)
        try:
            yield from client.read(
                task.table, *span.bounds, columns=task.columns, topic=task.topic, selector=task.selector,
                filters=task.tests,
            )  # fmt: skip
            _given_back(client)
            return
        except DataLost as lost:
            _given_back(client)
            first = min(lost.first if span.log == LOG else -1 - lost.first, span.end)
            gone = Span(
                span.broker, span.log, max(span.start, lost.asked if span.log == LOG else -1 - lost.asked), first
            )
            if task.fail_on_data_loss:
                raise data_loss(task.table, gone, "they were given up by age or size before they were read") from lost
            _logger.warning("%s of %s are lost: given up before they were read", gone, task.table)
            if on_gap is not None:
                on_gap(gone)
            span = Span(span.broker, span.log, first, span.end)
        except BaseException:
            client.close()
            raise


def data_loss(table: str, gone: Span, why: str) -> DataLost:
    """The error of rows that nobody can read any more: which of whose they are, and what to do."""
    error = DataLost(gone.broker, table, gone.start, gone.end)
    remedy = (
        "set option failOnDataLoss to false (of an archive: --accept-loss) to go on behind them, "
        "and keep more (history_s, max_bytes in [store])"
    )
    error.args = (f"{gone} in {table} are lost: {why}; {remedy}",)
    return error


_idle: dict[tuple[str, Access, float], list[LogClient]] = {}
_lock = threading.Lock()


def _taken(task: Task) -> LogClient:
    """A connection for this task alone, that of an earlier one if there is one."""
    with _lock:
        kept = _idle.get((task.url, task.access, task.retry_s))
        if kept:
            return kept.pop()
    return _Kept(task)


class _Kept(LogClient):
    """A connection that knows under which key it is kept."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.url, task.access, max(task.retry_s, 1.0))
        self.key = (task.url, task.access, task.retry_s)


def _given_back(client: LogClient) -> None:
    assert isinstance(client, _Kept)
    with _lock:
        kept = sum(map(len, _idle.values())) < MAX_OPEN
        if kept:
            _idle.setdefault(client.key, []).append(client)
    if not kept:
        client.close()


@atexit.register
def _close_all() -> None:
    while _idle:
        for client in _idle.popitem()[1]:
            client.close()
