"""The profile graph of the GES paper: its figure, its rules, and how little of it an event visits."""

from __future__ import annotations

from array import array
from itertools import combinations
from random import Random

import pytest

from veena import Event, matching
from veena.matching.base.engine import Engine
from veena.matching.tags.profile_graph import Chain, Entry, ProfileGraph

#: FIX-8: the pairs of attributes A, B, C in this order, and the units' bits.
A1, B2, B_ANY, C3, C4 = range(5)
S1, S2 = 1, 2


def _entry(chain: Chain, profile_id: int, unit: int) -> Entry:
    return Entry(chain, array("q", (profile_id,)), unit)


def _figure_8() -> tuple[ProfileGraph, list[Entry]]:
    """p1 = (A=1, B=2, C=3) of s1; p2 = (A=1, B=2, C=4) of s2; p3 = (A=1, B=*, C=3) of s1."""
    graph = ProfileGraph()
    entries = [_entry((A1, B2, C3), 1, S1), _entry((A1, B2, C4), 2, S2), _entry((A1, B_ANY, C3), 3, S1)]
    for entry in entries:
        graph.insert(entry)
    return graph, entries


def _edges(graph: ProfileGraph) -> dict[Chain, dict[int, int]]:
    return {chain: dict(counts.items()) for chain, counts in graph.edges()}


def test_figure_8_has_these_edges_and_counts() -> None:
    """FIX-8, PGR-05, PGR-07, PGR-08, PGR-09, AMB-24: shared edges, a count a unit, destination edges at the C nodes;
    GUA-07: never more of them than the profiles have constraints."""
    graph, entries = _figure_8()
    assert _edges(graph) == {
        (A1,): {S1: 2, S2: 1},
        (A1, B2): {S1: 1, S2: 1},
        (A1, B2, C3): {S1: 1},
        (A1, B2, C4): {S2: 1},
        (A1, B_ANY): {S1: 1},
        (A1, B_ANY, C3): {S1: 1},
    }
    assert len(_edges(graph)) < sum(len(entry.chain) for entry in entries)


@pytest.mark.parametrize(
    ("event", "profiles", "units"),
    [("A=1,B=2,C=3", [1, 3], S1), ("A=1,B=2,C=4", [2], S2), ("A=1,B=9,C=3", [3], S1), ("A=2,B=2,C=3", [], 0)],
)
def test_figure_8_answers(event: str, profiles: list[int], units: int) -> None:
    """FIX-8, PGR-12, PGR-13, AMB-23: value and `*` edges are both followed."""
    engine = matching.create("tags")
    engine.add(1, "A=1,B=2,C=3", S1)
    engine.add(2, "A=1,B=2,C=4", S2)
    engine.add(3, "A=1,B=*,C=3", S1)
    assert engine.match(Event(tags=event)) == profiles
    assert engine.destinations(Event(tags=event)) == units
    pairs = {"A=1": A1, "B=2": B2, "C=3": C3, "C=4": C4}
    present = [pairs[pair] for pair in event.split(",") if pair in pairs]
    present.insert(min(len(present), 1 + present.count(B2)), B_ANY)
    present.sort()
    graph, _ = _figure_8()
    assert sorted(entry.ids[0] for entry in graph.match(present)) == profiles
    assert graph.destinations(present, 0) == units


def test_counts_follow_the_profiles() -> None:
    """PGR-10, PGR-11: new unit, second unit, second count; then down to an empty graph."""
    graph = ProfileGraph()
    first = _entry((A1, B2), 1, S1)
    graph.insert(first)
    assert _edges(graph)[(A1,)] == {S1: 1}
    second = _entry((A1, C3), 2, S2)
    graph.insert(second)
    assert _edges(graph)[(A1,)] == {S1: 1, S2: 1}
    first.admit(3, S1)
    graph.count(first, S1)
    assert _edges(graph)[(A1,)] == {S1: 2, S2: 1}
    first.dismiss(3, S1)
    graph.discount(first, S1)
    assert _edges(graph)[(A1,)] == {S1: 1, S2: 1}
    graph.delete(second)
    assert _edges(graph) == {(A1,): {S1: 1}, (A1, B2): {S1: 1}}
    graph.delete(first)
    assert _edges(graph) == {} and graph.nodes() == 1 and graph.root.mask == 0


def test_the_graph_does_not_remember_its_history() -> None:
    """PGR-11: whatever was added and removed in between, the same profiles are the same graph."""
    chains = [chain for size in (1, 2, 3) for chain in combinations(range(6), size)]
    kept = [_entry(chain, number, 1 << number % 5) for number, chain in enumerate(chains) if number % 3 == 0]
    gone = [_entry(chain, number, 1 << number % 5) for number, chain in enumerate(chains) if number % 3]
    detour, straight = ProfileGraph(), ProfileGraph()
    for entry in sorted(kept + gone, key=lambda entry: entry.ids[0]):
        detour.insert(_entry(entry.chain, entry.ids[0], entry.mask))
    for entry in gone:
        detour.delete(next(found for found in detour.match(list(entry.chain)) if found.chain == entry.chain))
    for entry in kept:
        straight.insert(entry)
    assert _edges(detour) == _edges(straight)
    assert detour.nodes() == straight.nodes()


def test_no_event_satisfies_halves_of_two_profiles() -> None:
    """PGR-06: the tree keeps (A=1, B=2, C=3) and (A=9, B=2, C=4) apart."""
    engine = matching.create("tags")
    engine.add(1, "A=1,B=2,C=3", 1)
    engine.add(2, "A=9,B=2,C=4", 2)
    assert engine.match(Event(tags="A=1,B=2,C=4")) == []


def test_gaps_are_free() -> None:
    """PGR-01, PGR-03, AMB-26: {a3 = 7} matches whatever a1 and a2 are, whatever comes after, and without them too."""
    engine = matching.create("tags")
    engine.add(1, "a3=7", 1)
    engine.add(2, "a1=1,a2=2", 2)
    assert engine.match(Event(tags="a1=1,a2=2,a3=7,a4=0,a5=0,a6=0")) == [1, 2]
    assert engine.match(Event(tags="a1=5,a2=2,a3=7")) == [1]
    assert engine.match(Event(tags="a3=7")) == [1], "a gap is no condition: the attribute need not be there"


def _many(profiles: int, seed: int = 1) -> Engine:
    random = Random(seed)
    engine = matching.create("tags")
    for number in range(profiles):
        tags = sorted(random.sample(range(10), random.randint(2, 5)))
        engine.add(number, ",".join(f"t{tag}=v{random.randrange(20)}" for tag in tags), 1)
    return engine


def test_an_event_of_another_kind_touches_nothing() -> None:
    """PGR-04, PGR-12: no step for an event whose attributes are not in the graph."""
    engine = _many(2_000)
    before = engine.statistics()
    assert before.detail["in_graph"] > 0 and before.detail["in_sets"] == 0
    assert engine.match(Event(tags="u0=v1,u1=v2")) == []
    assert engine.statistics().evaluations == before.evaluations


def test_few_nodes_are_visited() -> None:
    """PGR-14, PRF-11: with 20,000 random equality profiles an event visits far fewer than a tenth as many nodes."""
    engine = _many(20_000)
    random = Random(2)
    before = engine.statistics().evaluations
    for _ in range(20):
        engine.match(Event(tags={f"t{tag}": f"v{random.randrange(20)}" for tag in range(10)}))
    assert (engine.statistics().evaluations - before) / 20 < 20_000 / 100


def _visits(chains: list[Chain], present: list[int]) -> int:
    graph = ProfileGraph()
    for number, chain in enumerate(chains):
        graph.insert(_entry(chain, number, 1))
    graph.match(present)
    return graph.visited


def test_late_wildcards_are_cheaper() -> None:
    """PGR-15, MAT-33: `*` before the value makes every event walk on; after it, hardly any. More `*`, more nodes."""
    stars = list(range(100, 106))
    values = list(range(50))
    present = [0, *stars]
    late: list[Chain] = [(value, star, other) for value in values for star, other in combinations(stars, 2)]
    early: list[Chain] = [(star, other, value) for value in values for star, other in combinations(stars, 2)]
    assert _visits(late, present) < _visits(early, [*stars, 0])
    assert _visits(late, present[:3]) < _visits(late, present)


def test_the_engine_puts_wildcards_last() -> None:
    """PGR-15: though written first, `*` is tested last, so an event without the value goes no further."""
    engine = matching.create("tags")
    engine.add(1, "Model=*,Make=Ford", 1)
    assert (
        engine.explain(1, Event(tags="Color=Red"))
        == "unknown: the event has no tag 'Make'; the profile wants Make=Ford"
    )


def test_covered_destinations_are_skipped() -> None:
    """DST-04, DST-06, DST-07: 32 units, covered by the first 32 constraints: the thousands behind are not visited."""
    graph = ProfileGraph()
    for unit in range(32):
        graph.insert(_entry((unit,), unit, 1 << unit))
    for number, chain in enumerate(combinations(range(32), 3)):
        graph.insert(_entry(chain, 32 + number, 1 << number % 32))
    assert graph.destinations(list(range(32)), 0) == (1 << 32) - 1
    assert graph.visited == 1
