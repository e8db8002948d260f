"""The second half of `veena demo`: what the network did goes into an archive, is audited and analysed, on Spark.

The archive is made while the brokers still run, since it is read from their logs; the rest needs only its files. An
installation without `veena[spark]` has a demo without this half, and the demo says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veena.spark.audit.audit import Audit

#: A demo shares its machine with 22 brokers.
MASTER = "local[2]"
MEMORY = "1g"


@dataclass(frozen=True, slots=True)
class PipelineStory:
    """What the pipeline found."""

    rows: dict[str, int]
    audit: Audit
    summary: dict[str, Any]
    pictures: tuple[str, ...]

    def report(self) -> dict[str, Any]:
        """For `summary.json`: the numbers of the audit, and how many rows each table has."""
        audit = self.audit.report()
        numbers = {name: value for name, value in audit.items() if isinstance(value, int | float)}
        return {"archive_rows": self.rows, "audit": numbers, "analysis": self.summary}


def is_there() -> bool:
    """Whether Spark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def archive(urls: Sequence[str], out: Path, say: Callable[[str], None]) -> dict[str, int]:
    """Copy all that the brokers logged to Parquet: rows by table."""
    from veena.spark.archive.archive import run
    from veena.spark.archive.table import Plan

    say("archiving: starting Spark")
    spark = _session()
    say("archiving")
    report = run(
        spark,
        Plan(out, {"url": ",".join(urls)}),
        tell=lambda table: say(f"archiving: {table.rows} rows of {table.table}"),
    )
    return {each.table: each.rows for each in report.tables}


def look_back(archive: Path, rows: dict[str, int], out: Path, say: Callable[[str], None]) -> PipelineStory:
    """Audit and analyse an archive; `audit.html` and the folder `analysis` are left in `out`."""
    from veena.spark.analyze import analyze
    from veena.spark.analyze import frames as analyze_frames
    from veena.spark.analyze import report as analyze_report
    from veena.spark.audit import report as audit_report
    from veena.spark.audit.audit import audit

    spark = _session()
    try:
        say("auditing")
        found = audit(spark, str(archive))
        (out / "audit.html").write_text(audit_report.html(found, archive.name), encoding="utf-8")
        say("analysing")
        analysis = analyze.analyze(analyze_frames.past(spark, str(archive)))
        written = analyze_report.write(analysis, out / "analysis")
    finally:
        spark.stop()
    pictures = tuple(f"analysis/{path.name}" for path in written if path.suffix == ".png")
    return PipelineStory(rows, found, dict(analysis.summary), pictures)


def _session() -> Any:
    from veena.spark.launch.session import session

    return session(MASTER, "veena-demo", memory=MEMORY, conf={"spark.sql.shuffle.partitions": "4"})
