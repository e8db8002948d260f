"""What a client consumed and produced, and who wanted what at a time, from the archive as from the brokers."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import veena
import veena.testing
from tests.cli.command import veena as command
from tests.runtime.store_desk import Desk
from tests.spark.stored import stored_tables, write_archive
from veena.cli.collab.dashboard import archived_history
from veena.errors import PipelineError
from veena.event import EventId
from veena.spark.analyze.history import Kind, constraint_text, history, profiles_as_of

BROKERS = ("a.1", "a.2")


async def _roam(directory: Path) -> datetime:
    """Ann gets events at one broker and then at the other, and publishes at both; a time in between."""
    settings = {"store": {"records": "all"}}
    async with veena.testing.network(brokers=2, settings=settings, directory=directory) as net:
        async with veena.connect(net.url("a.1"), client_id="pub") as pub:
            between = datetime.now(UTC)
            for broker in BROKERS:
                async with veena.connect(net.url(broker), client_id="ann") as ann:
                    quotes = await ann.subscribe(topic="quotes", selector="price > 1")
                    for price in range(4):
                        await pub.publish(topic="quotes", properties={"price": price}, reliable=True)
                    for _ in range(2):
                        await quotes.next(timeout=30)
                    await ann.publish(topic="seen", reliable=True)
                    if broker == "a.1":
                        between = datetime.now(UTC)
        return between


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, datetime]:
    """The network's directory, its archive, and the time when Ann was at the first broker."""
    directory, archive = tmp_path_factory.mktemp("network"), tmp_path_factory.mktemp("archive")
    between = asyncio.run(_roam(directory))
    return directory, write_archive(stored_tables(directory), archive), between


def of_brokers(directory: Path, client: str, kind: Kind) -> list[EventId]:
    """The same from the brokers themselves."""
    found = []
    for path in sorted(directory.rglob("veena.db")):
        with Desk(path.parent, levels=2) as desk:
            found += desk.store.history(client, kind)
    return [each.id for each in sorted(found, key=lambda each: each.at_ns)]


def test_the_archive_gives_what_brokers_give(past: tuple[Path, Path, datetime], spark: SparkSession) -> None:
    """DIS-07, ORD-02: both lists, in order, wherever the client was."""
    directory, archive, between = past
    for client, kind, count in (("ann", "consumed", 4), ("ann", "produced", 2), ("pub", "produced", 8)):
        rows = history(spark, str(archive), client, kind).collect()  # type: ignore[arg-type]
        assert [EventId.parse(row["id"]) for row in rows] == of_brokers(directory, client, kind)  # type: ignore[arg-type]
        assert len(rows) == count
    early = history(spark, str(archive), "ann", "consumed", until=between).collect()
    assert [(row["broker"], row["topic"], row["publisher"]) for row in early] == [("a.1", "quotes", "pub")] * 2
    late = history(spark, str(archive), "ann", "consumed", since=between).collect()
    assert [row["broker"] for row in late] == ["a.2"] * 2
    with pytest.raises(PipelineError, match="consumed"):
        history(spark, str(archive), "ann", "eaten")  # type: ignore[arg-type]


def test_the_portal_shows_the_same_the_newest_first(past: tuple[Path, Path, datetime], spark: SparkSession) -> None:
    """DIS-07: what `veena dashboard --archive` shows of a client."""
    directory, archive, _ = past
    rows = archived_history(archive, "ann")
    for kind in ("consumed", "produced"):
        found = [EventId.parse(row["id"]) for row in rows if row["kind"] == kind]
        assert found[::-1] == of_brokers(directory, "ann", kind)
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)


def test_profiles_as_of_a_time(past: tuple[Path, Path, datetime], spark: SparkSession) -> None:
    _, archive, between = past
    (row,) = profiles_as_of(spark, str(archive), between).collect()
    assert (row["client"], row["broker"], row["is_acknowledged"]) == ("ann", "a.1", True)
    assert constraint_text(row["engine"], row["condition"]) == "quotes: price > 1"
    assert profiles_as_of(spark, str(archive), between - timedelta(hours=1)).collect() == []


def test_the_commands(past: tuple[Path, Path, datetime], spark: SparkSession) -> None:
    """`veena pipeline history` and `profiles`, as a script reads them."""
    _, archive, between = past
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    common = ("--archive", str(archive), "--json", "--master", "local[2]")
    done = command("pipeline", "history", "ann", "--until", between.isoformat(), *common)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [(line["kind"], line["topic"]) for line in lines] == [("consumed", "quotes")] * 2 + [("produced", "seen")]
    done = command("pipeline", "profiles", "--as-of", between.isoformat(), "--client", "ann", *common)
    assert [json.loads(line)["constraint"] for line in done.out.splitlines()] == ["quotes: price > 1"]
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))  # the commands' session is this one
    wrong = command("pipeline", "profiles", "--as-of", "yesterday", *common)
    assert wrong.code == 2 and "2026-11-16T08:30" in wrong.err
