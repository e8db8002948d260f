"""Queries over stored advertisements answer as the network did (DSC-04)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import veena
import veena.blocking
import veena.testing
from veena.client.questions import QueryAnswer
from veena.errors import InvalidConstraint, PipelineError
from veena.spark.analyze.adverts import keep_adverts, query, snapshot_adverts, snapshots, store_adverts, trim_adverts
from veena.spark.log.connection import Access

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
ASKED: tuple[dict[str, Any], ...] = (
    {"sql": "SELECT * FROM adverts"},
    {"sql": "SELECT * FROM adverts", "realm": "cluster"},
    {"sql": "SELECT price, kind FROM adverts WHERE price > 2 ORDER BY price DESC, kind LIMIT 3"},
    {"sql": "SELECT kind FROM adverts WHERE kind LIKE 'pri%' OR price IS NULL ORDER BY kind"},
    {"sql": "SELECT name, client, home FROM adverts WHERE name LIKE 'print%' ORDER BY name DESC LIMIT 2"},
    {"xpath": "/menu/drink[price > 1.8]"},
    {"xpath": "/m:menu", "namespaces": {"m": "urn:menu"}},
)


async def _offer(archive: Path) -> list[QueryAnswer]:
    """Advertise at two clusters, take a snapshot, and ask the network itself."""
    async with veena.testing.network({"paris": 1, "rome": 1}) as net:  # noqa: SIM117
        async with (
            veena.connect(net.url("paris.1"), client_id="ann") as ann,
            veena.connect(net.url("rome.1"), client_id="bob") as bob,
        ):
            for number in range(5):
                await ann.advertise(f"printer {number}", properties={"kind": "printer", "price": number})
                await bob.advertise(f"scanner {number}", properties={"kind": "scanner", "price": number + 0.5})
            await bob.advertise("flag", properties={"kind": True, "price": 10**15})
            await ann.advertise("menu", xml="<menu><drink><price>1.90</price></drink></menu>")
            await bob.advertise("card", xml=b"<menu xmlns='urn:menu'/>", properties={"kind": "private"})
            await bob.advertise("at home", properties={"kind": "printer"}, scope="cluster")
            await _complete_answer(ann, {"sql": "SELECT * FROM adverts"}, 13)
            table = await asyncio.to_thread(snapshot_adverts, net.url("paris.1"))
            store_adverts(archive, table)
            return [await _complete_answer(ann, asked) for asked in ASKED]


async def _complete_answer(client: veena.Client, asked: dict[str, Any], matched: int = 0) -> QueryAnswer:
    """What the network says when every unit has answered in time, on a busy machine too."""
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        answer = await client.query(**asked)
        if answer.matched >= matched and answer.complete:
            return answer
        assert asyncio.get_running_loop().time() < deadline, answer


def test_the_archive_answers_as_the_network_did(spark: SparkSession, tmp_path: Path) -> None:
    """DSC-04, ORD-02: SQL and XPath, order and limit, realm and scope, values with their types."""
    live = asyncio.run(_offer(tmp_path))
    for asked, answer in zip(ASKED, live, strict=True):
        stored = query(spark, tmp_path, **asked)
        assert (stored.columns, stored.matched, stored.silent) == (answer.columns, answer.matched, ()), asked
        told = [(each.client, each.name, each.home, each.values, each.properties, each.xml) for each in stored.rows]
        assert told == [
            (each.client, each.name, each.home, each.values, each.properties, each.xml) for each in answer.rows
        ], asked
    assert [answer.matched for answer in live] == [13, 6, 6, 7, 5, 1, 1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_snapshots_are_kept_beside_an_archive_as_things_change(tmp_path: Path) -> None:
    over = threading.Event()
    with (
        veena.testing.network(brokers=1) as net,
        veena.blocking.connect(net.url(), client_id="ann") as ann,
        ThreadPoolExecutor() as pool,
    ):
        ann.advertise("printer", properties={"kind": "printer"})
        keeping = pool.submit(keep_adverts, tmp_path, net.url(), Access(), 0.05, over)
        until(lambda: len(snapshots(tmp_path)) == 1)
        ann.advertise("scanner", properties={"kind": "scanner"})
        until(lambda: len(snapshots(tmp_path)) == 2)
        net.kill("a.1")
        net.restart("a.1")
        ann.advertise("plotter", properties={"kind": "plotter"})
        until(lambda: names(tmp_path) == ["plotter", "printer", "scanner"])
        over.set()
        keeping.result(30)
    kept = [pq.read_table(path) for _, path in snapshots(tmp_path)]
    assert all(not one.equals(other) for one, other in pairwise(kept)), "what did not change is not kept again"


def names(archive: Path) -> list[str]:
    return sorted(pq.read_table(snapshots(archive)[-1][1]).column("name").to_pylist())


def test_a_query_without_a_snapshot_or_with_a_fault_is_told_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="veena pipeline adverts"):
        query(spark, tmp_path, sql="SELECT * FROM adverts")
    with pytest.raises(PipelineError, match="one of them"):
        query(spark, tmp_path)
    with pytest.raises(InvalidConstraint, match="FROM"):
        query(spark, tmp_path, sql="SELECT *")


def stored_at(archive: Path, taken: datetime) -> Path:
    table = pa.table({"client": ["ann"]}).replace_schema_metadata({"taken": taken.isoformat(), "asker": "0.0"})
    return store_adverts(archive, table)


def test_snapshots_are_found_by_their_time(tmp_path: Path) -> None:
    path = stored_at(tmp_path, NOON)
    assert snapshots(tmp_path) == [(NOON, path)]


@pytest.mark.parametrize(
    ("since", "left"),
    [(-1, 4), (0, 4), (0.5, 4), (1, 3), (2.5, 2), (3, 1), (100, 1)],
)
def test_old_snapshots_go_and_every_later_question_has_its_answer(tmp_path: Path, since: float, left: int) -> None:
    """In hours after the first of four: the last from before stands for the times until the next."""
    paths = [stored_at(tmp_path, NOON + timedelta(hours=number)) for number in range(4)]
    assert trim_adverts(tmp_path, NOON + timedelta(hours=since)) == paths[: 4 - left]
    assert [path for _, path in snapshots(tmp_path)] == paths[4 - left :]
    assert trim_adverts(tmp_path / "nothing there", NOON) == []


def test_who_keeps_snapshots_trims_them_also_while_nothing_changes(tmp_path: Path) -> None:
    old = stored_at(tmp_path, NOON)
    over = threading.Event()
    with (
        veena.testing.network(brokers=1) as net,
        veena.blocking.connect(net.url(), client_id="ann") as ann,
        ThreadPoolExecutor() as pool,
    ):
        ann.advertise("printer", properties={"kind": "printer"})
        keeping = pool.submit(keep_adverts, tmp_path, net.url(), Access(), 0.05, over, 0.5)
        until(lambda: not old.exists())
        over.set()
        keeping.result(30)
    assert len(snapshots(tmp_path)) == 1 and names(tmp_path) == ["printer"], "the last one stays, however old"
