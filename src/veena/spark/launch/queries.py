"""Streaming queries that a command looks after: how their batches fail, and how they are stopped.

Spark 4.3 searches the text of what a batch raised for signs of an interruption, by a regular expression that recurses
for every character behind Py4J's words. On a long text its stack may overflow: a thousand lines are printed (seen when
a query was stopped in the midst of a batch). So a batch raises one line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from veena.errors import VeenaError
from veena.spark.launch.failures import brief

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: A batch that takes longer than this is cut off; it comes again when the query is begun again.
STOP_S: Final = 10.0
_POLL_S: Final = 0.02

_logger = logging.getLogger("veena.spark")


def told_briefly(batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """The same for `foreachBatch`, with failures in one line."""

    def run(frame: DataFrame, number: int) -> None:
        try:
            batch(frame, number)
        except VeenaError:
            raise
        except Exception as error:
            _logger.debug("batch %d failed", number, exc_info=True)
            raise brief(error) from None

    return run


def stop(query: StreamingQuery, patience_s: float = STOP_S) -> None:
    """Stop between two batches, if that is soon: in the midst of one Spark complains of every task."""
    deadline = time.monotonic() + patience_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    query.stop()
