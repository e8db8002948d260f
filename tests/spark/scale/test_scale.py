"""The scale job against the simulator's own computation, copy by copy, and against plain counting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.cli.command import veena
from veena.errors import PipelineError
from veena.runtime.networks.file import Network, load_network
from veena.sim.networks.baselines import Baselines
from veena.sim.networks.generate import SPARSE, generate
from veena.sim.networks.whole_view import WholeView
from veena.spark.scale.interest import USUAL, Interest, Popularity, interest, pairs, subscriptions
from veena.spark.scale.network import Shape, regular, shape_of
from veena.spark.scale.report import draw, show
from veena.spark.scale.routes import path_lengths, routes, walk
from veena.spark.scale.scale import Report, Task, scale

NETWORKS = Path(__file__).parents[3] / "networks"
FANOUT, LEVELS, SEED = 4, 4, 7
POPULARITY = Popularity(topics=50, interests=3)
TASK = Task(tuple(interest(text, POPULARITY) for text in USUAL), POPULARITY, events=2, pairs=300, seed=SEED)


@pytest.mark.parametrize(("fanout", "levels", "long_links"), [(3, 3, 0.0), (4, 4, 0.0), (6, 4, 0.06), (5, 2, 0.0)])
def test_a_regular_network_is_the_one_that_the_simulator_generates(fanout: int, levels: int, long_links: float) -> None:
    """TOP-14: link by link."""
    own = regular(fanout, levels, 7, long_links)
    other = shape_of(generate(fanout**levels, 7, levels, cluster=fanout, long_links=long_links))
    assert _links(own) == _links(other)
    assert all(np.array_equal(a, b) for a, b in zip(own.units + own.first, other.units + other.first, strict=True))


@pytest.mark.parametrize(
    "network",
    [
        *(load_network(NETWORKS / f"{name}.toml") for name in ("ges-22", "ges-22-linked", "ges-78")),
        generate(150, 5, 3),
        generate(300, 6, shape=SPARSE),
        generate(625, 3, cluster=5, long_links=0.06),
        generate(3000, 4),
    ],
    ids=lambda network: network.name,
)
def test_an_event_makes_the_copies_that_the_simulator_computes(network: Network) -> None:
    """GUA-04, EXP-22: the same links, at every match rate, on regular and irregular networks, up to 3,000 brokers."""
    shape = shape_of(network)
    table, view = routes(shape), WholeView(network)
    addresses = sorted(broker.address for broker in network.brokers)
    assert shape.flooding == Baselines(network).flood(addresses[0])
    for text in ("100%", "25%", "1%", "0%", "local:1", "local:2"):
        for number in range(3):
            origin, wanting = interest(text).shot(shape, 1, number)
            own = [
                (addresses[a], addresses[b])
                for copies in walk(table, origin, wanting)
                for a, b in zip(copies.sender, copies.receiver, strict=True)
            ]
            exact = view.crossings(addresses[origin], [addresses[at] for at in np.flatnonzero(wanting)])
            assert sorted(own) == sorted(exact), (text, number)
    starts, ends = pairs(shape, 1, np.arange(40))
    exact_hops = [len(view.crossings(addresses[a], [addresses[b]])) for a, b in zip(starts, ends, strict=True)]
    assert path_lengths(table, starts, ends).tolist() == exact_hops


@pytest.fixture(scope="module")
def report(spark: SparkSession) -> Report:
    return scale(spark, regular(FANOUT, LEVELS, SEED), TASK)


def test_spark_counts_what_the_simulator_counts(report: Report) -> None:
    """EXP-21, EXP-22, ORD-02: crossings by interest beside flooding, and hops."""
    network = generate(FANOUT**LEVELS, SEED, LEVELS, cluster=FANOUT)
    shape, view = shape_of(network), WholeView(network)
    addresses = sorted(broker.address for broker in network.brokers)
    assert [line.interest for line in report.crossings] == [kind.text for kind in TASK.interests]
    for kind, line in zip(TASK.interests, report.crossings, strict=True):
        exact, wanted = _exact(kind, shape, view)
        assert (line.crossings, sum(line.by_level)) == (exact, exact)
        assert line.wanting_mean == wanted / TASK.events
        assert line.entered_twice == 0
        assert line.flooding == TASK.events * Baselines(network).flood(addresses[0])
    starts, ends = pairs(shape, SEED, np.arange(TASK.pairs))
    hops = [len(view.crossings(addresses[a], [addresses[b]])) for a, b in zip(starts, ends, strict=True)]
    assert (report.paths[-1].hops_mean, report.paths[-1].hops_max) == (sum(hops) / len(hops), max(hops))
    assert sum(line.pairs for line in report.paths[:-1]) == TASK.pairs


def _exact(kind: Interest, shape: Shape, view: WholeView) -> tuple[int, int]:
    """Copies and wanting brokers of all events of an interest, one broker after another."""
    addresses = [
        tuple(int(shape.number(size)[at]) for size in range(1, shape.levels + 1)) for at in range(shape.brokers)
    ]
    copies = wanted = 0
    for number in range(TASK.events):
        origin, wanting = kind.shot(shape, SEED, number)
        copies += len(view.crossings(addresses[origin], [addresses[at] for at in np.flatnonzero(wanting)]))
        wanted += int(wanting.sum())
    return copies, wanted


def test_profiles_that_controllers_keep_are_counted_by_plain_sets(report: Report) -> None:
    """AGG, I3: a unit's controllers keep a row for each sub-unit and distinct constraint; nobody keeps all."""
    shape = regular(FANOUT, LEVELS, SEED)
    topics = subscriptions(POPULARITY, SEED, np.arange(shape.brokers))
    everything = {(at, int(topic)) for at, row in enumerate(topics) for topic in row}
    assert report.profiles == len(everything)
    for level, line in enumerate(report.state, 1):
        size = shape.levels - level
        rows = {(int(shape.units[size + 1][at]), topic) for at, topic in everything}
        around = [sub // FANOUT for sub, _ in rows]
        assert line.profiles_max == max(around.count(unit) for unit in range(shape.count(size)))
        assert line.profiles_mean == pytest.approx(len(rows) / shape.count(size))
        assert line.profiles_max < len(everything)


def test_controllers_send_no_more_than_all_copies(report: Report) -> None:
    by_interest = {line.interest: line for line in report.crossings}
    for load in report.loads:
        assert load.count * load.copies_mean * TASK.events <= by_interest[load.interest].crossings + 1e-6
        assert load.copies_mean <= load.copies_max
    assert any(load.copies_max > 1 for load in report.loads)


def test_a_report_is_shown_and_drawn(report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(report)
    draw(report, tmp_path / "scale.png")
    assert "256 brokers" in capsys.readouterr().out
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_checks_itself_against_the_simulator(spark: SparkSession, tmp_path: Path) -> None:
    small = (
        "--fanout",
        "3",
        "--levels",
        "2",
        "--events",
        "1",
        "--pairs",
        "50",
        "--interest",
        "50%",
        "--interest",
        "zipf",
    )
    done = veena("pipeline", "scale", "--master", "local[2]", *small, "--check", "--json", "--out", str(tmp_path))
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["brokers"] == 9 and told["differences"] == []
    assert [line["interest"] for line in told["crossings"]] == ["50%", "Zipf 1"]
    assert json.loads((tmp_path / "scale.json").read_text())["links"] == told["links"]


def test_the_simulator_is_not_asked_for_more_than_it_can() -> None:
    done = veena("pipeline", "scale", "--check")
    assert done.code == 2 and "1,048,576 brokers" in done.err and "3,000" in done.err


@pytest.mark.parametrize("text", ["many", "101%", "local:0", "-1%", ""])
def test_an_interest_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(PipelineError, match=f"interest '{text}'"):
        interest(text)


@pytest.mark.parametrize(("fanout", "levels"), [(0, 4), (65, 2), (4, 9), (64, 5)])
def test_a_network_out_of_bounds_is_refused(fanout: int, levels: int) -> None:
    with pytest.raises(PipelineError, match="expected"):
        regular(fanout, levels, 1)


def _links(shape: Shape) -> dict[tuple[int, int], int]:
    ends = zip(shape.link_a.tolist(), shape.link_b.tolist(), shape.link_level.tolist(), strict=True)
    return {(min(a, b), max(a, b)): level for a, b, level in ends}
