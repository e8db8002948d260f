"""The audit of a real network's archive: clean where it was, and every planted fault is named."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.command import veena
from tests.spark.audited import JOBS, ORDERS, QUOTES, run_network
from tests.spark.stored import Rows, write_archive
from veena.core.wire_section import encode_section
from veena.errors import PipelineError
from veena.event import Event
from veena.runtime.store_schema import unsigned
from veena.spark.audit import NUMBERS, audit
from veena.spark.audit_hops import ASTRAY, DIGEST
from veena.spark.audit_report import html

Tables = dict[str, Rows]
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


# --- planted faults ---


class Planting:
    """Breaks a copy of what was recorded, and notes what an audit must say."""

    def __init__(self, recorded: Tables) -> None:
        self.tables = copy.deepcopy(recorded)
        self.expected: list[tuple[str, str, str | None]] = []
        self.by_topic: dict[str, list[dict[str, Any]]] = {}
        for row in sorted(self.tables["events"], key=lambda row: int(row["sequence"])):
            self.by_topic.setdefault(row["topic"], []).append(row)

    def event(self, topic: str, number: int) -> str:
        return str(self.by_topic[topic][number]["id"])

    def delivery(self, event: str, client: str) -> dict[str, Any]:
        return next(row for row in self.tables["deliveries"] if row["id"] == event and client in row["clients"])

    def lose(self, event: str, client: str, *, whole: bool) -> None:
        """The row goes, or the client out of it."""
        row = self.delivery(event, client)
        if whole:
            self.tables["deliveries"].remove(row)
        else:
            row["clients"] = [each for each in row["clients"] if each != client]
        self.expected.append(("missing", event, client))

    def lose_hops(self, event: str, to: str) -> None:
        self.tables["hops"] = [row for row in self.tables["hops"] if (row["id"], row["went_to"]) != (event, to)]

    def double(self, event: str, client: str, other: str | None = None, broker: str | None = None) -> None:
        row = dict(self.delivery(event, client))
        row["broker"] = broker or row["broker"]
        row.update(offset=row["offset"] + 10_000, at=row["at"] + timedelta(milliseconds=1), clients=[other or client])
        self.tables["deliveries"].append(row)

    def invent(self, event: str, like: str, client: str) -> None:
        row = self.delivery(event, like)
        row["clients"] = [*row["clients"], client]
        self.expected.append(("spurious", event, client))

    def swap(self, one: str, other: str, client: str) -> None:
        first, second = self.delivery(one, client), self.delivery(other, client)
        first["at"], second["at"] = second["at"], first["at"]
        self.expected.append(("out_of_order", one, client))

    def repeat(self, topic: str, number: int) -> None:
        """No fault: the publisher moved before it heard that its event was accepted, and published it again."""
        row = dict(self.by_topic[topic][number])
        original = (unsigned(row["incarnation"]), unsigned(row["stamp"]), row["sequence"])
        section = encode_section(Event(topic=topic, properties={"price": number}), original)
        name = f"pub:{original[0] + 1}:{original[1]}:{original[2]}"
        row.update(id=name, incarnation=row["incarnation"] + 1, offset=row["offset"] + 10_000, section=section)
        self.tables["events"].append(row)

    def stray(self, event: str, went_to: str, level: int, units: list[str]) -> None:
        row = dict(next(row for row in self.tables["hops"] if row["id"] == event))
        row.update(offset=row["offset"] + 10_000, went_to=went_to, level=level, units=units)
        self.tables["hops"].append(row)


def test_every_planted_fault_is_named(recorded: Tables, spark: SparkSession, tmp_path: Path) -> None:
    """Missing, twice, spurious, out of order, to two of a group, into a unit that nobody asked for."""
    plant = Planting(recorded)
    plant.lose(plant.event("quotes", 13), "bob", whole=True)
    plant.lose(plant.event("quotes", QUOTES - 1), "ann", whole=False)
    plant.lose(plant.event("quotes", 20), "bob", whole=True)
    plant.lose_hops(plant.event("quotes", 20), "1.0.1")
    plant.lose(plant.event("orders", ORDERS - 1), "cyn", whole=False)
    plant.lose(plant.event("quotes", 2), "gus", whole=True)
    plant.double(plant.event("quotes", 3), "ann")
    plant.expected.append(("duplicate", plant.event("quotes", 3), "ann"))
    plant.invent(plant.event("quotes", 5), "ann", "cyn")
    plant.invent(plant.event("quotes", 6), "ann", "zoe")
    plant.invent(plant.event("quotes", QUOTES - 2), "ann", "gus")
    plant.swap(plant.event("quotes", 7), plant.event("quotes", 8), "ann")
    job = plant.event("jobs", JOBS - 1)
    takers = [each for row in plant.tables["deliveries"] if row["id"] == job for each in row["clients"]]
    taker, other, broker = ("dan", "eve", "us.york.2") if takers == ["dan"] else ("eve", "dan", "us.york.1")
    plant.double(job, taker, other, broker)
    group = next(row["client_id"] for row in plant.tables["profiles"] if row["client_id"].startswith("~shared/"))
    plant.expected.append(("duplicate", job, group))
    plant.stray(plant.event("quotes", 4), "0.1.0", 1, ["0.1"])
    plant.expected.append(("wasted", plant.event("quotes", 4), None))
    plant.stray(plant.event("quotes", 5), "1.0.1", 2, ["1"])
    plant.repeat("quotes", 10)
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
