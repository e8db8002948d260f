"""`kill -9` of real brokers, again and again: what they lose of their records is told by those who had the events."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

import veena
import veena.testing
from tests.spark.stored import stored_tables, write_archive
from veena.spark.audit.audit import audit

EVENTS = 240
#: After so many events a broker is killed.
KILLS = {60: "a.2", 120: "a.1", 180: "a.2"}


async def run_with_kills(directory: Path) -> int:
    """Publish while brokers die and come back; how many distinct events the durable client had."""
    settings = {"store": {"records": "all"}}
    had: dict[bytes, None] = {}
    returning: list[asyncio.Task[None]] = []
    brokers = veena.testing.network(brokers=3, processes=True, settings=settings, directory=directory)
    async with brokers as net:  # noqa: SIM117
        async with (
            veena.connect(net.url("a.1"), client_id="pub") as pub,
            veena.connect(net.url("a.2"), client_id="dur") as dur,
            veena.connect(net.url("a.2"), client_id="pla") as pla,
            veena.connect(net.url("a.3"), client_id="far") as far,
        ):
            kept = await dur.subscribe(topic="quotes", durable="quotes")
            await pla.subscribe(topic="quotes")
            await far.subscribe(topic="quotes")

            async def take() -> None:
                while len(had) < EVENTS:
                    had[bytes((await kept.next()).body)] = None

            async def publish() -> None:
                for number in range(EVENTS):
                    await pub.publish(topic="quotes", body=str(number).encode(), reliable=True)
                    if number in KILLS:
                        await net.kill(KILLS[number])
                        returning.append(asyncio.create_task(net.restart(KILLS[number])))

            await asyncio.wait_for(asyncio.gather(take(), publish()), 120)
            await asyncio.gather(*returning)
    return len(had)


def test_kills_leave_no_violation(spark: SparkSession, tmp_path: Path) -> None:
    """I1, I5: an audit after the kills of the client's broker and of the origin finds every promise kept."""
    assert asyncio.run(run_with_kills(tmp_path / "network")) == EVENTS
    tables = stored_tables(tmp_path / "network")
    starts = [row for row in tables["profiles"] if row["change"] == "started"]
    assert len(starts) == 3 + len(KILLS)
    found = audit(spark, str(write_archive(tables, tmp_path / "archive")))
    assert (found.missing, found.duplicates, found.spurious, found.out_of_order) == (0, 0, 0, 0), found.violations
    assert found.expected >= EVENTS
