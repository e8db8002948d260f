"""An analysis of a small past whose figures are worked out here by plain Python."""

from __future__ import annotations

import json
import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from veena.errors import PipelineError
from veena.spark.analyze.analyze import Analysis, Table, analyze
from veena.spark.analyze.frames import Past, broker_addresses, handed_rows, known_events
from veena.spark.analyze.live import NAME, WINDOWS_MAX, Known, follow, joined, seconds_of
from veena.spark.analyze.report import show, write
from veena.spark.log.tables import TABLES, ddl

START = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
#: Three brokers in a row: 0.0 - 0.1 - 1.0, the last link between clusters.
ADDRESSES = {"one": "0.0", "two": "0.1", "three": "1.0"}
CLIENTS = {"ann": "one", "bob": "two", "cem": "three", "dan": "three"}
HOPS = {"one": 0, "two": 1, "three": 2}
#: An event of each second: who got it. Ann publishes all, at broker one.
WANTED = (("ann", "bob", "cem", "dan"), ("bob",), ("cem", "dan"), (), ("ann", "bob", "cem", "dan"), ("dan",))


def latency_ms(second: int, client: str) -> float:
    return 2.0 + 3.0 * HOPS[CLIENTS[client]] + second + (100.0 if client == "dan" else 0.0)


def row(table: str, **given: Any) -> tuple[Any, ...]:
    assert set(given) <= set(TABLES[table])
    return tuple(given.get(column) for column in TABLES[table])


def id_of(second: int) -> str:
    return f"ann:1:5:{second}"


def rows() -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}

    def add(table: str, **given: Any) -> None:
        found[table].append(row(table, **given))

    for name, address in ADDRESSES.items():
        start = {"client_id": "", "change": "started", "engine": "", "attributes": {"address": address}}
        add("profiles", broker=name, offset=0, at=START, **start)
    for client, broker in CLIENTS.items():
        add("profiles", broker=broker, offset=1, at=START, client_id=client, change="added", engine="topic")
    for second, wanted in enumerate(WANTED):
        published = START + timedelta(seconds=second)
        same = {"offset": second, "id": id_of(second)}
        add(
            "events", broker="one", at=published + timedelta(milliseconds=1), publisher="ann", published=published,
            origin="0.0", topic="even" if second % 2 == 0 else "odd", section=b"s" * 20, body=b"b" * (20 + 40 * second),
            reliable=True, **same,
        )  # fmt: skip
        far = max((HOPS[CLIENTS[client]] for client in wanted), default=0)
        if far > 0:
            add("hops", broker="one", at=published, went_to="0.1", level=0, **same)
        if far > 1:
            add("hops", broker="two", at=published, came_from="0.0", went_to="1.0", level=1, **same)
        for client in wanted:
            at = published + timedelta(milliseconds=latency_ms(second, client))
            add("deliveries", broker=CLIENTS[client], at=at, clients=[client], mark="", **same)
    again = START + timedelta(seconds=30)
    add("deliveries", broker="two", offset=90, at=again, id=id_of(0), clients=["bob"], mark="redelivered")
    add("deliveries", broker="two", offset=91, at=again, id=id_of(1), clients=["dan"], mark="dropped")
    add("events", broker="one", offset=99, at=START, id="~b:1:1:1", publisher="~b", published=START, origin="0.0")
    return found


@pytest.fixture(scope="module")
def past(spark: SparkSession) -> Past:
    given = rows()
    return Past(
        *(spark.createDataFrame(given[table], ddl(table)) for table in ("events", "deliveries", "hops", "profiles"))
    )


@pytest.fixture(scope="module")
def found(past: Past) -> Analysis:
    return analyze(past)


def expected() -> list[tuple[int, str, float]]:
    return [(second, client, latency_ms(second, client)) for second, wanted in enumerate(WANTED) for client in wanted]


def test_the_summary_counts_first_deliveries_of_clients_events(found: Analysis) -> None:
    """EXP-03, EXP-08: mean, variance, least and most, since publication; repeated and refused ones are left out."""
    values = [ms for _, _, ms in expected()]
    told = found.summary
    assert (told["events"], told["deliveries"], told["clients"], told["publishers"], told["brokers"]) == (
        6,
        12,
        4,
        1,
        3,
    )
    latency = told["latency_ms"]
    assert latency["mean"] == pytest.approx(statistics.mean(values), abs=0.01)
    assert latency["variance"] == pytest.approx(statistics.pvariance(values), abs=0.1)
    assert (latency["min"], latency["max"]) == (min(values), max(values))
    assert latency["p50"] in values and latency["p99"] == max(values)
    assert told["hops_mean"] == pytest.approx(statistics.mean(HOPS[CLIENTS[c]] for _, c, _ in expected()), abs=0.01)
    assert (told["hops_max"], told["before_their_event"], told["seconds"]) == (2, 0, 5.0)


def test_latency_is_told_by_match_rate_size_and_hops(found: Analysis) -> None:
    """EXP-08, EXP-19, ORD-02: a cell a match rate, publish rate and size; latency rises with hops."""
    by_match = {
        share: [ms for s, _, ms in expected() if len(WANTED[s]) == count]
        for share, count in ((25, 1), (50, 2), (100, 4))
    }
    assert counts(found.tables["match"]) == {
        share: (len(values), round(statistics.mean(values), 3)) for share, values in by_match.items()
    }
    by_hops = {hops: [ms for _, c, ms in expected() if HOPS[CLIENTS[c]] == hops] for hops in (0, 1, 2)}
    assert counts(found.tables["hops"]) == {
        hops: (len(values), round(statistics.mean(values), 3)) for hops, values in by_hops.items()
    }
    sizes = {0: 50, 1: 100, 2: 150, 4: 200, 5: 250}
    assert {row[0]: row[1] for row in found.tables["size"].rows} == {
        band: len(WANTED[second]) for second, band in sizes.items()
    }
    assert [row[:4] for row in found.tables["cells"].rows] == sorted(
        (25 * len(WANTED[second]), 1, band, len(WANTED[second])) for second, band in sizes.items()
    )


def counts(table: Table) -> dict[Any, tuple[int, float]]:
    return {row[0]: (row[1], row[2]) for row in table.rows}


def test_load_of_links_and_units_and_the_slow_and_busy_are_named(found: Analysis) -> None:
    assert found.tables["links"].rows == (("0.0", "0.1", 0, 5, 5), ("0.1", "1.0", 1, 4, 4))
    units = {row[0]: row[1:] for row in found.tables["units"].rows}
    assert units["1"] == units["1.0"] == (4, 7)
    assert units["0.1"] == (5, 3) and units["0"] == (0, 5)
    assert [row[:3] for row in found.tables["topics"].rows] == [("even", 3, 10), ("odd", 3, 2)]
    slowest = found.tables["subscribers"].rows[0]
    assert (slowest[0], slowest[1], slowest[-1]) == ("dan", 4, 1)
    assert dict(found.tables["marks"].rows) == {"delivered": 12, "redelivered": 1, "dropped": 1}
    assert sum(row[1] for row in found.tables["timeline"].rows) == 6


def test_latency_can_be_counted_from_acceptance(past: Past, found: Analysis) -> None:
    handed = handed_rows(past, known_events(past), broker_addresses(past.profiles), "accepted")
    assert handed.selectExpr("min(ms)").collect()[0][0] == found.summary["latency_ms"]["min"] - 1.0
    with pytest.raises(PipelineError, match="since 'birth'"):
        analyze(past, "birth")  # type: ignore[arg-type]


def test_the_page_needs_no_other_host(found: Analysis, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write(found, tmp_path)
    assert [path.name for path in written] == [
        "analysis.json",
        "latency.png",
        "throughput.png",
        "load.png",
        "analysis.html",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:4])
    page = written[-1].read_text()
    assert "http" not in page and page.count("data:image/png;base64,") == 3
    assert json.loads(written[0].read_text())["summary"]["deliveries"] == 12
    show(found)
    assert "handed to 4 clients 12 times" in capsys.readouterr().out.replace("\n", " ")


def test_a_past_without_deliveries_says_what_to_switch_on(spark: SparkSession, tmp_path: Path) -> None:
    given = rows()
    empty = {**given, "deliveries": [], "hops": [], "profiles": []}
    past = Past(
        *(spark.createDataFrame(empty[table], ddl(table)) for table in ("events", "deliveries", "hops", "profiles"))
    )
    page = write(analyze(past), tmp_path)[-1].read_text()
    assert "6 events, and no delivery on record" in page


def test_windows_are_told_while_rows_come(spark: SparkSession, tmp_path: Path) -> None:
    """Streams with a watermark: what comes later is added to its window, and goes on after a restart."""
    given = rows()
    streams = {
        table: spark.readStream.schema(ddl(table)).parquet(str(tmp_path / table)) for table in given_dirs(tmp_path)
    }
    for part in (slice(0, 4), slice(4, None)):
        for table in ("events", "deliveries"):
            frame = spark.createDataFrame(given[table][part], ddl(table)).coalesce(1)
            frame.write.mode("append").parquet(str(tmp_path / table))
        query = follow(joined(streams["events"], streams["deliveries"]), tmp_path / "out", "3 seconds", once=True)
        assert query.awaitTermination(200)
    told = json.loads((tmp_path / "out" / NAME).read_text())
    halves = [[e for e in expected() if e[0] < 3], [e for e in expected() if e[0] >= 3]]
    assert told["window_s"] == 3
    assert [window["start"] for window in told["windows"]] == ["2026-11-16T12:00:00.000Z", "2026-11-16T12:00:03.000Z"]
    for window, half in zip(told["windows"], halves, strict=True):
        values = sorted(ms for _, _, ms in half)
        assert window["deliveries"] == len(half)
        assert window["latency_ms"]["mean"] == pytest.approx(statistics.mean(values), abs=0.01)
        assert window["latency_ms"]["variance"] == pytest.approx(statistics.pvariance(values), abs=0.1)
        assert window["latency_ms"]["max"] == values[-1]
        assert window["latency_ms"]["p50"] == pytest.approx(values[(len(values) - 1) // 2], rel=0.05)


def given_dirs(tmp_path: Path) -> list[str]:
    for table in ("events", "deliveries"):
        (tmp_path / table).mkdir()
    return ["events", "deliveries"]


def test_a_batch_that_comes_again_is_counted_once() -> None:
    known = Known(10, windows={})
    row = {"start": 20, "bin": 5, "deliveries": 3, "sum_ms": 6.0, "sum_squares": 12.0, "max_ms": 2.0}
    assert known.add(7, [row]) and not known.add(7, [row]) and known.add(8, [row])
    assert known.windows[20].deliveries == 6
    assert known.add(9, [{**row, "start": 10 * at} for at in range(WINDOWS_MAX + 5)])
    assert len(known.windows) == WINDOWS_MAX and min(known.windows) == 50


def test_a_window_that_is_no_time_is_refused() -> None:
    assert seconds_of("window", "2 minutes") == 120
    with pytest.raises(PipelineError, match="window 'soon'"):
        seconds_of("window", "soon")
