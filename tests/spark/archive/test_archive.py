"""The archive on Spark: every row once, whatever is killed; compaction under readers; columns that come later."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import veena
import veena.blocking
import veena.testing
from veena.errors import DataLost, PipelineError
from veena.runtime.store import writer as store_writer
from veena.spark.archive import archive
from veena.spark.archive.compact import compact
from veena.spark.archive.manifest import Gap, Manifest, commit, load
from veena.spark.archive.table import Plan
from veena.spark.log.client import LogClient

PATIENCE_S = 200.0
COUNT = 60


def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def publish(url: str, count: int = COUNT, client_id: str = "alice") -> list[str]:
    async def all_of_them() -> list[str]:
        async with veena.connect(url, client_id=client_id) as client:
            events = (client.publish(topic="t", properties={"n": n}, body=b"b", reliable=True) for n in range(count))
            return [str(each) for each in await asyncio.gather(*events)]

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def network() -> Iterator[veena.testing.Network]:
    with veena.testing.network(brokers=2, settings={"store": {"records": "deliveries"}}) as net:
        with veena.blocking.connect(net.url("a.2"), client_id="bob") as bob:
            wanted = bob.subscribe(topic="t")
            for label, url in zip(net.brokers, net.urls, strict=True):
                publish(url, client_id=label)
            for _ in range(2 * COUNT):
                wanted.next(timeout=PATIENCE_S)
        yield net


def ids(spark: SparkSession, out: Path) -> list[str]:
    return sorted(row.id for row in archive.read(spark, out).select("id").collect())


def test_each_row_is_archived_once(spark: SparkSession, network: veena.testing.Network, tmp_path: Path) -> None:
    """ORD-02 (v, vi): all tables that brokers keep; again, and without its checkpoint, only what is new."""
    with LogClient(network.url("a.2")) as log:
        until(lambda: log.ends("deliveries").next == 2 * COUNT)
    plan = Plan(tmp_path, {"url": network.url()}, rows_per_batch=70, compact=True)
    report = archive.run(spark, plan)
    assert [(each.table, each.rows_added) for each in report.tables] == [
        ("events", 2 * COUNT),
        ("deliveries", 2 * COUNT),
    ], "hops and profiles are not recorded here"
    first = ids(spark, tmp_path)
    assert len(first) == len(set(first)) == 2 * COUNT
    clients = archive.read(spark, tmp_path, "deliveries").selectExpr("explode(clients) AS client").distinct().collect()
    assert [row.client for row in clients] == ["bob"]
    assert archive.read(spark, tmp_path, "hops").count() == 0
    with LogClient(network.url()) as log:
        committed = network.statistics("a.1").store.readers
        manifest = load(tmp_path, "events")
        assert manifest is not None and manifest.reader in str(committed)
        assert log.ends("events").next == manifest.offsets["a.1"] == COUNT

    later = publish(network.url("a.1"), 5, client_id="carol")
    shutil.rmtree(tmp_path / "_checkpoints")
    (report_of_events,) = archive.run(spark, plan, ["events"]).tables
    assert report_of_events.rows_added == 5
    second = ids(spark, tmp_path)
    assert len(second) == len(set(second)) and set(second) - set(first) == set(later)

    before = archive.read(spark, tmp_path)
    small = load(tmp_path, "events")
    assert small is not None and len(small.files) >= 3
    after = compact(spark, tmp_path, small, min_files=2)
    assert (len(after.files), after.rows) == (1, len(second))
    assert before.count() == len(second), "who began to read before still finds its files"
    assert ids(spark, tmp_path) == second
    assert sum(pq.read_metadata(path).num_rows for path in archive.files(tmp_path)) == len(second)
    assert [each.files for each in archive.merge(spark, tmp_path, ["events"]).tables] == [1], "nothing left to merge"

    older = msgspec.structs.replace(after, columns={**after.columns, "later": "string"})
    commit(tmp_path, older)
    evolved = archive.read(spark, tmp_path)
    assert evolved.columns[-2:] == ["later", "date"]
    assert evolved.where("later IS NULL").count() == len(second)


def test_driver_and_broker_killed_leave_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """`kill -9` of the driver while it writes, and of a broker; then the same archive goes on in another process."""
    out = tmp_path / "archive"
    with veena.testing.network(brokers=2) as net:
        published = [event for url in net.urls for event in publish(url, 400, client_id=url[-5:])]
        command = ["pipeline", "archive", "--url", net.url(), "--out", str(out), "--tables", "events", "--json"]
        limits = ["--rows-per-batch", "40", "--trigger", "100ms", "--master", "local[1]", "--memory", "1g"]
        driver = subprocess.Popen(
            [sys.executable, "-m", "veena.cli", *command, *limits],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: _commits(out) >= 3)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        net.kill("a.2")
        net.restart("a.2")
        published += publish(net.url("a.2"), 20, client_id="dave")
        archived = _commits(out)
        archive.run(spark, Plan(out, {"url": net.url()}), ["events"])
    assert archived >= 3
    assert ids(spark, out) == sorted(published)


def test_what_cannot_be_written_ends_it_with_the_cause(
    spark: SparkSession, network: veena.testing.Network, tmp_path: Path
) -> None:
    """A task's failure comes with all of Java's stacks, and must not be lost on the way: nothing was archived."""
    day = datetime.now(UTC).date()
    (tmp_path / "events").mkdir()
    for each in (day - timedelta(days=1), day, day + timedelta(days=1)):
        (tmp_path / "events" / f"date={each}").write_text("in the way")
    with pytest.raises(PipelineError, match=f"archiving events stopped: .*{day.year}"):
        archive.run(spark, Plan(tmp_path, {"url": network.url()}), ["events"])


def test_rows_that_were_given_up_end_it_or_are_listed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design §7: a gap is reported with its offsets; whoever accepts it finds it in the manifest."""
    monkeypatch.setattr(store_writer, "TRIM_SECONDS", 0.05)
    with (
        veena.testing.broker(settings={"store": {"path": "store", "history_s": 0.001}}) as url,
        LogClient(url, timeout=PATIENCE_S) as log,
    ):
        publish(url, 5)
        until(lambda: log.ends("events").first == 5)
        commit(tmp_path, Manifest("events", "archive-test", offsets={"a.1": 2}))
        log.commit("holder", "events", 5)
        later = publish(url, 4)
        strict, lenient = Plan(tmp_path, {"url": url}), Plan(tmp_path, {"url": url}, accept_loss=True)
        with pytest.raises(PipelineError, match=r"archiving events stopped: offsets 2 to 4 of broker a\.1 in events"):
            archive.run(spark, strict, ["events"])
        (report,) = archive.run(spark, lenient, ["events"]).tables
        assert (report.rows, report.gaps) == (4, (Gap("a.1", "log", 2, 5),))
        assert ids(spark, tmp_path) == sorted(later)

        found = load(tmp_path, "events")
        assert found is not None
        commit(tmp_path, msgspec.structs.replace(found, offsets={"a.1": 100}))
        with pytest.raises(DataLost, match=r"offsets 9 to 99 of broker a\.1 in events are lost: .* was it replaced"):
            archive.run(spark, strict, ["events"])
        later += publish(url, 2)
        (report,) = archive.run(spark, lenient, ["events"]).tables
        assert report.gaps[1:] == (Gap("a.1", "log", 100, 100),)
        assert ids(spark, tmp_path) == sorted(later), "what follows on the archived rows, and nothing twice"


def _commits(out: Path) -> int:
    path = out / "events" / "_manifest.json"
    return int(json.loads(path.read_bytes())["commits"]) if path.exists() else 0
