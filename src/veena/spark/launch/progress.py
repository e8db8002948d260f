"""What a job is doing, on one line of the screen, in place of Spark's own output.

    with watch(spark, "matching 1,000,000 events"):
        result.write.parquet(...)

Counts the tasks of the stages that are running. Draws on standard error, and only if that is a terminal: what a
script reads stays clean.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Often enough to be seen moving, seldom enough to cost nothing.
_REFRESH_SECONDS: Final = 0.25


@contextmanager
def watch(spark: SparkSession, title: str, *, shown: bool | None = None) -> Iterator[None]:
    """Show the progress of whatever Spark does inside the block; `shown=None` means if there is somebody to see it."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, tasks="")
        over = threading.Event()

        def refresh() -> None:
            while not over.wait(_REFRESH_SECONDS):
                done, total = running_tasks(spark)
                bar.update(task, completed=done, total=total or None, tasks=f"{done}/{total} tasks" if total else "")

        thread = threading.Thread(target=refresh, name="veena-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def running_tasks(spark: SparkSession) -> tuple[int, int]:
    """Tasks done and tasks in all of the stages that run now; nothing is known of a Spark Connect server's."""
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    try:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # the session may be stopping: a bar is never worth an error
        return 0, 0
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
