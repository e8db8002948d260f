"""Archived events on the network again: the same content under new ids, in order, at a pace, each once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import veena.blocking
import veena.testing
from tests.spark.stored import Rows, stored_tables, write_archive
from veena.blocking import Subscription
from veena.errors import PipelineError
from veena.event import Event
from veena.spark.archive.manifest import File, Manifest, commit
from veena.spark.log.tables import EVENTS
from veena.spark.sink.replay import Pace, Report, load, prepare, preview, publish, replay
from veena.spark.sink.replay_rows import REPLAY_OF, REPLAY_RUN
from veena.testing.networks import Network

PATIENCE_S = 60.0
QUOTES = "SELECT * FROM events WHERE topic = 'quotes'"
COUNT = 40


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with veena.testing.network(brokers=1) as running:
        yield running


@pytest.fixture(scope="module")
def originals(network: Network) -> Rows:
    """What was published, as the broker's store has it."""
    with veena.blocking.connect(network.url(), client_id="alice") as alice:
        for number in range(COUNT):
            alice.publish(
                topic="quotes" if number % 2 else "orders",
                tags={"Make": "Ford"},
                properties={"n": number, "price": number / 4, "sym": "IBM", "raw": b"\x00", "ok": True},
                headers={"lang": "en"},
                body=b"%d" % number,
                priority=4,
                reliable=True,
            )
    return stored_tables(network.directory)["events"]


@pytest.fixture
def archive(originals: Rows, tmp_path: Path) -> Path:
    """An archive of them, in two files that are not in the order of time."""
    files = []
    for at, rows in enumerate((originals[COUNT // 2 :], originals[: COUNT // 2])):
        written = write_archive({"events": rows}, tmp_path / f"part-{at}") / "events" / "rows.parquet"
        path = f"date=2026-11-16/{at}.parquet"
        (tmp_path / "archive" / "events" / path).parent.mkdir(parents=True, exist_ok=True)
        written.rename(tmp_path / "archive" / "events" / path)
        files.append(File(path, len(rows), 1))
    commit(tmp_path / "archive", Manifest("events", "test", columns=dict(EVENTS), files=tuple(files)))
    return tmp_path / "archive"


@contextmanager
def reading(network: Network, topic: str) -> Iterator[Subscription]:
    with veena.blocking.connect(network.url(), client_id=f"reader-{topic}") as reader:
        yield reader.subscribe(topic=topic)


def taken(found: Subscription, count: int) -> list[Event]:
    return [found.next(timeout=PATIENCE_S) for _ in range(count)]


def of_topic(originals: Rows, topic: str) -> Rows:
    return [row for row in originals if row["topic"] == topic]


def test_a_replay_says_what_was_said_in_order_and_once(
    spark: SparkSession, network: Network, archive: Path, originals: Rows
) -> None:
    """ORD-02: what Spark selects is what a plain loop over the published events selects."""
    expected = of_topic(originals, "quotes")
    with reading(network, "quotes") as found:
        report = replay(spark, archive, QUOTES, network.url(), run="once")
        assert (report.rows, report.before, report.published, report.left) == (len(expected), 0, len(expected), 0)
        events = taken(found, len(expected))
        assert [event.headers[REPLAY_OF] for event in events] == [row["id"] for row in expected]
        assert all(event.headers[REPLAY_RUN] == "once" and event.headers["lang"] == "en" for event in events)
        assert [bytes(event.body) for event in events] == [row["body"] for row in expected]
        assert [dict(event.properties) for event in events] == [
            {"n": n, "price": n / 4, "sym": "IBM", "raw": b"\x00", "ok": True} for n in range(1, COUNT, 2)
        ], "with the types that they had"
        assert all(event.tag_values == {"Make": "Ford"} for event in events)
        assert not {str(event.id) for event in events} & {row["id"] for row in expected}
        again = replay(spark, archive, None, network.url(), run="once")
        assert (again.before, again.published) == (len(expected), 0)
        replay(spark, archive, f"{QUOTES} AND integer IS NULL LIMIT 1", network.url(), run="another")
        assert taken(found, 1)[0].headers[REPLAY_RUN] == "another", "nothing came before it"


def test_a_run_that_is_stopped_goes_on_where_it_was(
    spark: SparkSession, network: Network, archive: Path, originals: Rows
) -> None:
    """Also when what it knew of itself is older than what the broker knows, as after a kill."""
    with reading(network, "again") as found:
        directory = prepare(spark, archive, "SELECT * FROM events", "stopped", topic="again")
        kept = (directory / "run.json").read_text()
        reports: list[Report] = []
        told: list[int] = []
        while not reports or reports[-1].left:
            told.clear()
            reports.append(
                publish(
                    directory,
                    network.url(),
                    pace=Pace(rate=200),
                    tell=lambda done, rows: told.append(done),
                    is_over=lambda: bool(told),
                )
            )
            if reports[-1].left:
                (directory / "run.json").write_text(kept)
        assert len(reports) > 1 and sum(report.published for report in reports) == COUNT
        events = taken(found, COUNT)
        assert [event.headers[REPLAY_OF] for event in events] == [row["id"] for row in originals]
        assert all(event.tags is None and event.properties["sym"] == "IBM" for event in events)
        assert load(directory).done and not (directory / "rows").exists()


def test_gaps_are_kept_and_named_clients_alone_get_it(spark: SparkSession, network: Network, archive: Path) -> None:
    """Three events with seconds between them, at ten times their speed, for one client."""
    sql = """SELECT id, topic, body, timestamp_seconds(2 * n) AS published FROM (
        SELECT *, row_number() OVER (ORDER BY offset) AS n FROM events) WHERE n <= 3"""
    with (
        veena.blocking.connect(network.url(), client_id="bob", reachable=True) as bob,
        reading(network, "quotes") as others,
    ):
        report = replay(spark, archive, sql, network.url(), run="spaced", to=("bob",), speed=10.0)
        assert report.published == 3
        assert report.seconds >= 0.4 - 0.1, "what is due within 50 ms goes along"
        events = taken(bob.inbox, 3)
        assert [bytes(event.body) for event in events] == [b"0", b"1", b"2"]
        with veena.blocking.connect(network.url(), client_id="end") as end:
            end.publish(topic="quotes", body=b"end", reliable=True)
        assert bytes(taken(others, 1)[0].body) == b"end"


def test_a_dry_run_tells_what_there_is(spark: SparkSession, archive: Path) -> None:
    found = preview(spark, archive, "SELECT * FROM events")
    assert found.rows == COUNT
    assert found.topics == {"orders": COUNT // 2, "quotes": COUNT // 2}
    assert found.first is not None and found.last is not None and found.first < found.last
    assert not (archive / "_replays").exists()


def test_what_cannot_be_replayed_is_told(spark: SparkSession, network: Network, archive: Path) -> None:
    for sql, told in (
        ("SELECT nonsense FROM events", "SQL .*nonsense"),
        ("SELECT topic, body FROM events", "the SQL gives topic, body: select `id` too"),
        ("SELECT id FROM events", "select something to publish"),
    ):
        with pytest.raises(PipelineError, match=told):
            prepare(spark, archive, sql)
    with pytest.raises(PipelineError, match=r"run 'never' is not known .* give --sql to begin it"):
        prepare(spark, archive, None, "never")
    with pytest.raises(PipelineError, match="name it by 1 to 64 letters"):
        prepare(spark, archive, QUOTES, "../elsewhere")
    with pytest.raises(PipelineError, match="--speed 0: use a number above 0"):
        Pace(speed=0)
    directory = prepare(spark, archive, QUOTES, "mine")
    with pytest.raises(PipelineError, match="run 'mine' was begun with other words"):
        prepare(spark, archive, "SELECT * FROM events", "mine")
    kept = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**kept, "broker": "another"}))
    with pytest.raises(PipelineError, match="was begun at broker 'another', which alone knows how far it is"):
        publish(directory, network.url())
    (directory / "run.json").write_text(json.dumps({**kept, "published": 7}))
    with pytest.raises(PipelineError, match=r"7 rows were published, but broker .* knows of 0 only"):
        publish(directory, network.url())


def test_the_command_goes_on_with_a_run_without_spark(
    spark: SparkSession, network: Network, archive: Path, originals: Rows
) -> None:
    """As a user gives it: progress and the end as lines of JSON; what is wrong in one line, with what to do."""
    prepare(spark, archive, QUOTES, "by-hand", topic="by-command")
    command = [sys.executable, "-m", "veena.cli", "pipeline", "replay", "--archive", str(archive), "--json"]
    with reading(network, "by-command") as found:
        done = subprocess.run(
            [*command, "--url", network.url(), "--run", "by-hand", "--rate", "400/s"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        *progress, last = map(json.loads, done.stdout.splitlines())
        expected = [row["id"] for row in of_topic(originals, "quotes")]
        assert (last["published"], last["left"]) == (len(expected), 0)
        assert [each["progress"]["done"] for each in progress][-1] == len(expected)
        assert [event.headers[REPLAY_OF] for event in taken(found, len(expected))] == expected
    wrong = subprocess.run([*command, "--run", "never"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert wrong.returncode != 0 and "give --sql to begin it" in wrong.stderr
