"""The audit of a real network's archive: clean where it was, and every planted fault is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.command import veena
from tests.spark.audited import JOBS, ORDERS, QUOTES, run_network
from tests.spark.planted import Tables, with_every_fault
from tests.spark.stored import write_archive
from veena.errors import PipelineError
from veena.spark.audit.audit import NUMBERS, audit
from veena.spark.audit.hops import ASTRAY, DIGEST
from veena.spark.audit.report import html

SHORT = QUOTES // 2 + 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return run_network(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def archive(recorded: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(recorded, tmp_path_factory.mktemp("archive"))


def test_a_network_without_faults_is_clean(archive: Path, spark: SparkSession) -> None:
    """I1, I2, and design §9: the numbers, the exit code, and a page that asks nobody for anything."""
    page = archive / "report.html"
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    given = ("--archive", str(archive), "--json", "--html", str(page), "--master", "local[2]")
    done = veena("pipeline", "audit", *given)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))  # the command's session is this one
    assert done.code == 0, done
    found = json.loads(done.out)
    assert list(found)[: len(NUMBERS)] == list(NUMBERS)
    # That a client can be written to is acknowledged to nobody: the letter may be delivered, and is not promised.
    promised = QUOTES + (QUOTES - 12) + ORDERS + JOBS + SHORT
    assert found["events"] == QUOTES + ORDERS + JOBS + 1
    assert (found["expected"], found["delivered"]) == (promised, promised)
    assert [found[name] for name in ("missing", "duplicates", "spurious", "wasted_units", "out_of_order")] == [0] * 5
    assert (found["violations"], found["unknown"]) == ([], 2), "the best-effort event is not in the log"
    text = page.read_text()
    assert "Every promise was kept" in text
    assert "http:" not in text and "https:" not in text and "<script" not in text


def test_every_planted_fault_is_named(recorded: Tables, spark: SparkSession, tmp_path: Path) -> None:
    """ORD-02: missing, twice, spurious, out of order, to two of a group, into a unit that nobody asked for."""
    plant = with_every_fault(recorded)
    result = audit(spark, str(write_archive(plant.tables, tmp_path)))
    named = {(each.kind, each.event, each.client) for each in result.violations}
    assert named == set(plant.expected)
    assert (result.missing, result.duplicates, result.spurious, result.out_of_order) == (5, 2, 3, 1)
    reasons = {(each.event, each.client): each for each in result.violations if each.kind == "missing"}
    cut = reasons[plant.event("quotes", 20), "bob"]
    assert cut.hop is None and "no copy went from there towards 1.0.1" in cut.reason
    sent = reasons[plant.event("quotes", 13), "bob"]
    assert sent.hop == "0.0.0>1.0.1" and "no record of it there" in sent.reason
    wasted = [each for each in result.violations if each.kind == "wasted"]
    assert wasted and all(each.hop == "0.0.0>0.1.0" and ASTRAY in each.reason for each in wasted)
    assert {each.event for each in result.tolerated} == {plant.event("quotes", 5)}
    assert all(DIGEST in each.reason for each in result.tolerated)
    assert result.wasted_units == len(wasted) + len(result.tolerated)
    assert not result.is_clean
    text = html(result, "archive")
    assert all(each.event in text for each in result.violations)


def test_an_archive_without_records_says_what_to_do(recorded: Tables, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match='records = "all"'):
        audit(spark, str(write_archive({**recorded, "profiles": []}, tmp_path)))
    with pytest.raises(PipelineError, match="settle"):
        audit(spark, str(tmp_path), settle_s=-1)
