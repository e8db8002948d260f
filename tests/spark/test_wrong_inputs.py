"""What is asked wrongly is told in one line with a remedy, before Spark starts where that can be known then."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import veena.testing
from veena.cli.pipeline import group as pipeline
from veena.errors import PipelineError, VeenaError
from veena.spark.archive import archive
from veena.spark.archive.table import Plan
from veena.spark.sink.replay import select

#: Starting Java, Spark and a Python worker on a busy machine.
PATIENCE_S = 500.0


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port at which nobody listens, kept from others meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def told(*arguments: str) -> str:
    """The one line that a command ends with."""
    app = typer.Typer()
    pipeline.register(app)
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    assert result.exit_code and isinstance(result.exception, VeenaError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_master_that_does_not_answer_is_refused_at_once(tmp_path: Path, nobody: int) -> None:
    for scheme, remedy in (("spark", "veena cluster up"), ("sc", "start the server first")):
        line = told("audit", "--archive", str(tmp_path), "--master", f"{scheme}://127.0.0.1:{nobody}")
        assert f"nobody answers (127.0.0.1:{nobody}: Connection refused)" in line and remedy in line
    assert "expected spark://HOST:PORT" in told("audit", "--archive", str(tmp_path), "--master", "spark://here")


def test_a_heap_that_spark_refuses_is_refused_before_it_starts(tmp_path: Path) -> None:
    assert "memory '100m': Spark needs 512m at least" in told("audit", "--archive", str(tmp_path), "--memory", "100m")


def test_what_cannot_be_read_or_written_is_named_before_spark_starts(tmp_path: Path, nobody: int) -> None:
    file, missing = tmp_path / "file", str(tmp_path / "missing")
    file.write_text("in the way")
    inside = str(file / "below")
    for verb in (["audit"], ["history", "alice"], ["profiles", "--as-of", "2026-11-16"], ["analyze"]):
        assert f"{missing}: there is no archive" in told(*verb, "--archive", missing)
    assert f"{inside}: " in told("archive", "--url", f"veena://127.0.0.1:{nobody}", "--out", inside)
    assert f"{inside}: " in told("audit", "--archive", str(tmp_path), "--html", f"{inside}/report.html")
    follow = ("analyze", "--follow", "--url", f"veena://127.0.0.1:{nobody}", "--out", str(tmp_path / "live"))
    assert told(*follow).count(f"127.0.0.1:{nobody}: Connection refused") == 1
    assert "--window 'soon': expected a time" in told(*follow, "--window", "soon")


def test_brokers_that_keep_no_deliveries_cannot_be_followed(tmp_path: Path) -> None:
    with veena.testing.network(brokers=1) as net:
        line = told("analyze", "--follow", "--url", net.url(), "--out", str(tmp_path))
    assert "records" in line


def test_wrong_sql_says_what_is_wrong_with_it(spark: SparkSession, tmp_path: Path) -> None:
    with veena.testing.network(brokers=1) as net:
        archive.run(spark, Plan(tmp_path, {"url": net.url()}), ["events"])
    with pytest.raises(PipelineError, match="Syntax error at or near 'SELEC'"):
        select(spark, tmp_path, "SELEC * FROM")
    with pytest.raises(PipelineError, match="`nope` cannot be resolved"):
        select(spark, tmp_path, "SELECT nope FROM events")


def test_a_failure_of_spark_is_one_line_without_any_stack(tmp_path: Path) -> None:
    """Java has a screen of its own: only a process of its own shows what is on it."""
    (tmp_path / "events.parquet").write_text("this is no Parquet, by no means")
    (tmp_path / "profiles.jsonl").write_text('{"id": 1, "engine": "topic", "condition": "news"}\n')
    names = {"--events": "events.parquet", "--profiles": "profiles.jsonl", "--out": "matches"}
    files = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    command = [sys.executable, "-m", "veena.cli", "pipeline", "match", *files, "--master", "local[1]"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert lines[-1].startswith("veena: Spark stopped: ") and "events.parquet" in lines[-1]
    assert not [line for line in lines if line.startswith(("\t", "Caused by", "Traceback", "  File"))], ended.stderr
