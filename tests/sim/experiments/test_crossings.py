"""Events through real brokers, counted link by link, beside the optimum and beside other means."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.cli.command import veena
from tests.tiers import few
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import ClientUp, Subscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.broker import Broker
from veena.event import Event
from veena.runtime.networks.file import Network, load_network
from veena.sim.experiments.crossings import Line, Row, Shot, Tally, Topic, Trial, draw_rows, draw_shots, judge, measure
from veena.sim.networks.generate import SPARSE, generate
from veena.sim.networks.whole_view import WholeView
from veena.sim.world.map_view import converged
from veena.sim.world.options import Options
from veena.sim.world.predicted_copies import foretell
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[3] / "networks"
A, B, C, D = ((0, 0, 0, number) for number in range(4))


def load(name: str) -> Network:
    return load_network(NETWORKS / f"{name}.toml")


def at(network: Network, *numbers: str) -> list[Address]:
    """The brokers whose labels end so."""
    found = {broker.label.rsplit(".", 1)[-1]: broker.address for broker in network.brokers}
    return [found[number] for number in numbers]


@pytest.mark.parametrize(("name", "events"), few([("ges-22", 20), ("ges-22-linked", 40), ("ges-78", 12)], 2))
def test_crossings_stay_below_the_bars_on_the_networks_of_the_papers(name: str, events: int) -> None:
    """GUA-05, GUA-04, EXP-22: at every match rate; each link once, each broker once, nobody in vain, nobody missing."""
    lines = measure(load(name), events)
    assert [fault for line in lines for fault in line.faults] == []
    by_interest = {line.interest: line for line in lines}
    everything, nothing = by_interest["100 %"], by_interest["0 %"]
    assert everything.crossings == everything.tree == events * (everything.brokers - 1)
    assert nothing.crossings == nothing.expected == 0
    assert everything.expected == events * everything.brokers


def test_crossings_stay_below_the_bars_on_a_generated_network() -> None:
    """GUA-05, GUA-13, SYS-10: the rarer the interest the fewer crossings; flooding costs the same at all rates."""
    lines = measure(generate(60, seed=4), 16)
    assert [fault for line in lines for fault in line.faults] == []
    rates = [line for line in lines if line.interest.endswith("%")]
    crossings = [line.crossings for line in rates]
    assert crossings == sorted(crossings, reverse=True)
    assert len({line.flooding for line in lines}) == len({line.tree for line in lines}) == 1
    assert all(line.crossings <= line.refinement for line in rates)
    assert any(line.thrown_away for line in rates)


def test_an_event_from_22_to_10_goes_over_the_long_link() -> None:
    """EXP-18: 22, 1, 8, 10 in the linked network, and nowhere else."""
    network = load("ges-22-linked")
    origin, end = at(network, "22", "10")
    trial = Trial(network)
    topic = Topic("quotes", (end,), (origin,))
    row = Row("one broker", 1.0, (topic,))
    trial.subscribe([row])
    shots = [Shot(topic, origin)]
    tallies = trial.fire(shots)
    assert tallies[0].way(end) == at(network, "22", "1", "8", "10")
    assert tallies[0].deliveries == {end: 1}
    line = judge(trial, row, shots, tallies)
    assert (line.crossings, line.optimum, line.faults) == (3, 3, [])


@pytest.mark.parametrize("rate", [1, 50, 99])
def test_sparse_and_dense_interest_alike(rate: int) -> None:
    """GUA-04: everybody who wants it gets it, for fewer crossings a delivery than flooding takes."""
    network = generate(40, seed=rate)
    chance = Random(rate)
    everybody = tuple(broker.address for broker in network.brokers)
    drawn = [tuple(a for a in everybody if chance.random() * 100 < rate) for _ in range(10)]
    row = Row(f"{rate} %", 1.5, tuple(Topic(f"topic-{n}", wanting, everybody) for n, wanting in enumerate(drawn)))
    trial = Trial(network)
    trial.subscribe([row])
    shots = draw_shots(row, 20, chance)
    line = judge(trial, row, shots, trial.fire(shots))
    assert line.faults == []
    assert line.crossings < line.flooding
    assert line.expected == sum(len(shot.topic.wanting) for shot in shots)


def test_the_same_seed_draws_the_same_wants_and_publishers() -> None:
    network = load("ges-78")
    one, two = (draw_rows(network, 5, Random(3)) for _ in range(2))
    assert one == two
    assert draw_shots(one[1], 9, Random(4)) == draw_shots(two[1], 9, Random(4))
    assert {len(topic.wanting) for topic in one[0].topics} == {78}
    cluster = next(row for row in one if row.interest == "half of cluster")
    for topic in cluster.topics:
        assert {address[:3] for address in (*topic.wanting, *topic.origins)} == {topic.origins[0][:3]}
        assert len(topic.wanting) == max(1, len(topic.origins) // 2)
    more = draw_rows(network, 5, Random(3), local_topics=9)
    assert [len(row.topics) for row in more] == [5] * 7 + [9, 9]


@pytest.mark.parametrize(
    "network",
    [load("ges-22-linked"), load("ges-78"), generate(70, 3, cluster=4), generate(90, 2, shape=SPARSE)],
    ids=lambda network: network.name,
)
def test_who_sees_the_whole_network_computes_the_same_copies(network: Network) -> None:
    """GUA-05, EXP-22: what is computed for thousands of brokers is what real ones do, copy by copy."""
    world = converged(network)
    brokers = {broker.identity.address: broker for broker in world.live()}
    view, chance = WholeView(network), Random(7)
    for rate in (1.0, 0.5, 0.1, 0.02):
        for origin in chance.sample(sorted(brokers), 4):
            wanting = {address for address in brokers if chance.random() < rate}
            expected: list[tuple[Address, Address]] = []
            turns = [(origin, _around(brokers[origin], (), wanting))]
            for at, units in turns:
                onwards: dict[Address, list[Unit]] = {}
                for unit in units:
                    hop = brokers[at].hops.hop(unit)
                    assert hop is not None
                    onwards.setdefault(hop.neighbour, []).append(unit)
                for to, served in onwards.items():
                    expected.append((at, to))
                    split = [_around(brokers[to], u, wanting) if to[: len(u)] == u else [u] for u in served]
                    turns.append((to, [unit for units in split for unit in units]))
            assert sorted(view.crossings(origin, wanting)) == sorted(expected)
            assert wanting - {origin} <= {to for _, to in expected}
            assert len({to for _, to in expected} | {origin}) == len(expected) + 1


def _around(broker: Broker, inside: Unit, wanting: set[Address]) -> list[Unit]:
    """The vertices of a broker's map inside a unit in which somebody wants it."""
    wanted = {address[:size] for address in wanting for size in range(1, len(address) + 1)}
    host = broker.identity.address
    return [u for u in broker.map.vertices() if u != host and u[: len(inside)] == inside and u in wanted]


def test_computed_and_counted_tables_are_the_same() -> None:
    """EXP-22: the same wants, publishers, crossings and baselines, with brokers and without."""
    network = load("ges-22-linked")
    assert measure(network, 12, computed=True) == measure(network, 12)


def test_crossings_stay_below_the_bars_on_five_hundred_brokers() -> None:
    """GUA-05, GUA-04, EXP-22: every match rate and local interest, computed, where links are few and ways long."""
    lines = measure(generate(500, 1, shape=SPARSE), 60, computed=True)
    assert [fault for line in lines for fault in line.faults] == []
    assert len(lines) == 9


def test_copies_are_foretold_from_what_brokers_know() -> None:
    """The oracle follows hops and interest maps alone: a client in another super-super-cluster, and one next door."""
    network = load("ges-22-linked")
    origin, near, far = at(network, "22", "1", "10")
    world = World(network, 1, Options(wire=False, check=False))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    for session, address in enumerate((near, far), 1):
        world.give(address, ClientUp(session, f"client-{session}"))
        world.give(address, Subscribe(session, 1, "topic", "quotes", 4))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    brokers = {broker.identity.address: broker for broker in world.live()}
    told = foretell(brokers, origin, Event(topic="quotes"), world.now_ns)
    way = at(network, "22", "1", "8", "10")
    assert told.crossings == tuple(itertools.pairwise(way))
    assert (told.served, told.lost) == ((near, far), ())
    assert foretell(brokers, origin, Event(topic="other"), world.now_ns).crossings == ()


def test_a_tally_sees_what_was_in_vain() -> None:
    tally = Tally([(A, B), (B, C), (B, D), (A, D)])
    tally.deliveries[C] += 1
    assert tally.way(C) == [A, B, C]
    assert tally.in_vain() == 1
    assert Tally([(A, B), (B, A)]).in_vain() == 2
    assert Tally([(A, B), (B, A)]).way(B) != []


SOUND = Line(
    "n", 4, 4, "50 %", 1, expected=2, missing=0, duplicates=0, crossings=2, optimum=2, bar=1.2, p95=1.0, flooding=5,
    tree=3, ttl_flooding=5, ttl_missed=0, refinement=3, thrown_away=1, crossings_per_link_max=1, entered_twice=0,
    in_vain=0, unforetold=0,
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"crossings": 3}, {"missing": 1}, {"duplicates": 1}, {"crossings_per_link_max": 2}, {"entered_twice": 1},
        {"in_vain": 1}, {"unforetold": 1}, {"optimum": 0},
    ],
)  # fmt: skip
def test_everything_that_may_not_be_is_a_fault(change: dict[str, int]) -> None:
    assert SOUND.faults == []
    assert len(replace(SOUND, **change).faults) == 1  # type: ignore[arg-type]


def test_the_command_prints_writes_and_checks(tmp_path: Path) -> None:
    file = str(NETWORKS / "ges-22.toml")
    found = veena("experiment", "crossings", "--network", file, "--events", "4", "--out", str(tmp_path), "--check")
    assert found.code == 0, found.err
    assert "ges-22: 22 brokers, 21 links" in found.out
    assert (tmp_path / "crossings.png").stat().st_size > 10_000
    written = json.loads((tmp_path / "crossings.json").read_text())
    printed = veena("experiment", "crossings", "--network", file, "--events", "4", "--json")
    assert json.loads(printed.out) == written
    assert [row["interest"] for row in written][:3] == ["100 %", "50 %", "25 %"]
    assert {row["flooding"] for row in written} == {4 * 21}


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = veena("experiment", "crossings", "--generated", "3000", "--out", str(tmp_path / "file" / "folder"))
    assert found.code != 0
    assert "cannot be made" in found.err
