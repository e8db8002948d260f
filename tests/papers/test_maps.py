"""The worked example of connection dissemination: node SSC-A.SC-1.c.6 and what it comes to know (FIX-5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import few
from veena.address import Unit
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.broker import Broker
from veena.core.topology.connection import ABSENT
from veena.core.topology.controllers import controllers, targets
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.paths import cheapest_paths
from veena.core.wire.control import ConnectionRecord, Connections
from veena.runtime.networks.file import Network, load_network
from veena.sim.world.map_view import converged, map_view
from veena.sim.world.network import Delivery
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[2] / "networks"
AT = "SSC-A.SC-1.c.6"

#: Edge -> (cost, links), as the text of the GES paper and its reconstruction have them.
EDGES_AT_6 = {
    "c.4 c.5": (0, 1), "c.4 c.6": (0, 1), "c.5 c.6": (0, 1), "c.4 b": (1, 1), "a b": (2, 1), "c.5 SC-2": (2, 1),
    "b SC-3": (3, 1), "SC-2 SC-3": (4, 1), "a SSC-B": (4, 1), "SC-3 SSC-B": (5, 1), "SC-2 SSC-C": (5, 1),
    "SSC-B SSC-D": (6, 2), "SSC-C SSC-D": (6, 1),
}  # fmt: skip
EDGES_AT_99 = {
    "x.99 SC-1": (2, 1), "SC-1 SC-2": (4, 1), "SC-1 SC-3": (4, 1), "SC-2 SC-3": (4, 1), "SC-1 SSC-B": (5, 1),
    "SC-3 SSC-B": (5, 1), "SC-2 SSC-C": (5, 1), "SSC-B SSC-D": (6, 2), "SSC-C SSC-D": (6, 1),
}  # fmt: skip
HOPS_AT_6 = {
    "c.4": "c.4", "c.5": "c.5", "b": "c.4", "a": "c.4", "SC-2": "c.5", "SC-3": "c.4", "SSC-B": "c.4", "SSC-C": "c.5",
    "SSC-D": "c.4",
}  # fmt: skip
COSTS_AT_6 = {
    "c.4": 0, "c.5": 0, "b": 1, "a": 3, "SC-2": 2, "SC-3": 4, "SSC-B": 7, "SSC-C": 7, "SSC-D": 13,
}  # fmt: skip


def short(label: str) -> str:
    """`SSC-A.SC-1.c.4` as `c.4`, larger units by their own name."""
    parts = label.split(".")
    return ".".join(parts[-2:]) if len(parts) == 4 else parts[-1]


def edges(view: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {f"{short(e['a'])} {short(e['b'])}": (e["cost"], e["links"]) for e in view["edges"]}


@pytest.fixture(scope="module")
def fix5() -> Network:
    return load_network(NETWORKS / "fix-5.toml", connected=True)


@pytest.fixture(scope="module")
def joined() -> Network:
    return load_network(NETWORKS / "fix-5-joined.toml", connected=True)


def broker_at(network: Network, label: str, world: World | None = None) -> Broker:
    return (world or converged(network)).broker(network.labels.unit(label))


def named(network: Network, units: list[Unit]) -> list[str]:
    return [short(network.labels.label(unit)) for unit in units]


def test_the_graph_at_6(fix5: Network) -> None:
    """BNM-07, GPP-11, GPP-13, GPP-20: exactly these edges, weights and counts, from messages alone."""
    view = map_view(fix5, broker_at(fix5, AT))
    assert edges(view) == EDGES_AT_6
    assert view["at"] == AT
    assert [sorted(map(short, level)) for level in view["levels"]] == [
        ["c.4", "c.5", "c.6"], ["a", "b"], ["SC-2", "SC-3"], ["SSC-B", "SSC-C", "SSC-D"],
    ]  # fmt: skip


@pytest.mark.parametrize("block", few(range(40)))
def test_the_graph_is_the_same_in_every_delivery_order(fix5: Network, joined: Network, block: int) -> None:
    """GPP-19, GPP-20: 200 random orders, 5 a block; no vertex ever stands for the own unit."""
    for seed in range(5 * block, 5 * block + 5):
        chaotic = Options(wire=False, check=False, jitter_ns=200 * MILLISECOND_NS)
        view = map_view(fix5, broker_at(fix5, AT, converged(fix5, seed, chaotic)))
        assert edges(view) == EDGES_AT_6
        assert {short(unit): short(route["hop"]) for unit, route in view["routes"].items()} == HOPS_AT_6
        if seed % 5 == 0:
            world = converged(joined, seed, chaotic)
            assert edges(map_view(joined, broker_at(joined, "SSC-A.SC-4.x.99", world))) == EDGES_AT_99


def test_paths_and_hops_at_6(fix5: Network) -> None:
    """SPR-03, SPR-04, SPR-10, LCM-04: costs, the best hop to every unit, and the tie to SSC-D."""
    view = map_view(fix5, broker_at(fix5, AT))
    routes = {short(unit): route for unit, route in view["routes"].items()}
    assert {unit: route["cost"] for unit, route in routes.items()} == COSTS_AT_6
    assert {unit: short(route["hop"]) for unit, route in routes.items()} == HOPS_AT_6
    assert [short(step) for step in routes["SSC-B"]["path"]] == ["c.6", "c.4", "b", "a", "SSC-B"]
    # Two routes of cost 13: the one over the doubled link wins although it has one hop more.
    assert [short(step) for step in routes["SSC-D"]["path"]] == ["c.6", "c.4", "b", "a", "SSC-B", "SSC-D"]
    assert [short(step) for step in routes["b"]["path"]] == ["c.6", "c.4", "b"]


def test_spr_best_hop_is_the_vertex_next_to_the_host(fix5: Network) -> None:
    """SPR-04, SPR-05: at a gatekeeper the hop is the unit beyond its own gateway."""
    five = broker_at(fix5, "SSC-A.SC-1.c.5")
    paths = cheapest_paths(five.map)
    assert named(fix5, [paths[fix5.labels.unit("SSC-A.SC-2")].hop]) == ["SC-2"]


def lower_links(network: NetworkMap, unit: Unit) -> list[Unit]:
    """L_UL: neighbours of the same or a lower level."""
    return [other for other in network.neighbours(unit) if len(other) >= len(unit)]


def higher_links(network: NetworkMap, unit: Unit) -> list[Unit]:
    """L_D: neighbours of a higher level."""
    return [other for other in network.neighbours(unit) if len(other) < len(unit)]


def test_links_by_direction(fix5: Network) -> None:
    """BNM-04..06, BNM-08: L_UL and L_D of SC-3, seen from 6; first steps from SSC-B (SPR-03)."""
    network = broker_at(fix5, AT).map
    unit = fix5.labels.unit
    assert network.host == unit(AT)
    assert sorted(named(fix5, lower_links(network, unit("SSC-A.SC-3")))) == ["SC-2", "b"]
    assert named(fix5, higher_links(network, unit("SSC-A.SC-3"))) == ["SSC-B"]
    assert network.neighbours(unit("SSC-A.SC-3"))[unit("SSC-A.SC-1.b")].cost == 3
    a, b = unit("SSC-A.SC-1.a"), unit("SSC-A.SC-1.b")
    assert b in lower_links(network, a)
    assert a in lower_links(network, b)
    assert b not in higher_links(network, a)
    steps = {short(fix5.labels.label(u)): e.cost for u, e in network.neighbours(unit("SSC-B")).items()}
    assert steps == {"a": 4, "SC-3": 5, "SSC-D": 6}


def test_targets_of_profile_changes(fix5: Network, joined: Network) -> None:
    """PPP-09, PPP-10: the gates of each enclosing unit; after SC-4 joined, 6 is one too."""
    network = broker_at(fix5, AT).map
    assert [named(fix5, targets(network, level)) for level in range(3)] == [
        ["c.4"], ["c.5", "b"], ["a", "SC-2", "SC-3"],
    ]  # fmt: skip
    assert named(joined, targets(broker_at(joined, AT).map, 1)) == ["c.5", "c.6", "b"]


def test_a_cheaper_first_step_changes_the_route(fix5: Network) -> None:
    """AMB-11's alternative: with a link from a to 4 the way to SSC-B costs 5."""
    entry = next(link for link in fix5.links if link.level == 1 and fix5.labels.label(link.a).endswith("8"))
    four = fix5.labels.unit("SSC-A.SC-1.c.4")
    moved = replace(
        fix5, links=(*(link for link in fix5.links if link is not entry), entry, replace(entry, a=four, level=1))
    )
    paths = cheapest_paths(broker_at(moved, AT).map)
    assert paths[fix5.labels.unit("SSC-B")].cost == 5


def told(network: Network) -> dict[str, set[tuple[str, str, int]]]:
    """What each broker was told, by label: the tuples as they arrived over links."""
    heard: dict[str, set[tuple[str, str, int]]] = {entry.label: set() for entry in network.brokers}
    label = network.labels.label
    world = World(network, 1, Options(wire=False, check=False))

    def listen(delivery: Delivery) -> None:
        for _, frame in delivery.frames:
            if isinstance(frame, Connections):
                for record in frame.records:
                    heard[label(delivery.to)].add((short(label(record.low)), short(label(record.high)), record.level))

    world.on_delivery = listen
    assert world.run_until_quiet(world.now_ns + 10**12)
    return heard


def test_a_super_cluster_link_is_told_level_by_level(fix5: Network) -> None:
    """GPP-05..09, BNM-03: `5 - SC-2` inside c, `c - SC-2` in a and b, `SC-1 - SC-2` in SC-3, nothing in SSC-B."""
    heard = told(fix5)
    for node in ("4", "6"):
        assert ("c.5", "SC-2", 2) in heard[f"SSC-A.SC-1.c.{node}"]
    for node in ("a.1", "a.2", "a.3", "b.7", "b.8", "b.9"):
        assert ("c", "SC-2", 2) in heard[f"SSC-A.SC-1.{node}"]
        assert ("c.5", "SC-2", 2) not in heard[f"SSC-A.SC-1.{node}"]
    for node in ("f.16", "f.17", "f.18", "g.19", "g.20", "g.21"):
        assert ("SC-1", "SC-2", 2) in heard[f"SSC-A.SC-3.{node}"]
    for label, tuples in heard.items():
        if not label.startswith("SSC-A"):
            assert not any("SC-2" in ends for *ends, level in tuples), f"it must not reach {label}"


def test_cluster_links_stay_in_the_cluster(fix5: Network) -> None:
    """GPP-09, GPP-06: the link 4-6 is told to 4, 5 and 6 alone."""
    heard = told(fix5)
    assert {label for label, tuples in heard.items() if ("c.4", "c.6", 0) in tuples} <= {
        f"SSC-A.SC-1.c.{node}" for node in (4, 5, 6)
    }


def test_sc_4_joins(joined: Network) -> None:
    """GPP-14, GPP-15, GPP-16: what 99 comes to know, and how the old system sees the new link."""
    world = converged(joined)
    view = map_view(joined, broker_at(joined, "SSC-A.SC-4.x.99", world))
    assert edges(view) == EDGES_AT_99
    costs = {short(unit): route["cost"] for unit, route in view["routes"].items()}
    assert costs == {"SC-1": 2, "SC-2": 6, "SC-3": 6, "SSC-B": 7, "SSC-C": 11, "SSC-D": 13}
    assert short(view["routes"]["SSC-B"]["hop"]) == "SC-1"  # SPR-05
    assert edges(map_view(joined, broker_at(joined, AT, world))) == EDGES_AT_6 | {"c.6 SC-4": (2, 1)}
    for label, edge in (
        ("c.4", "c.6 SC-4"), ("c.5", "c.6 SC-4"), ("a.1", "c SC-4"), ("b.9", "c SC-4"),
    ):  # fmt: skip
        assert edge in edges(map_view(joined, broker_at(joined, f"SSC-A.SC-1.{label}", world)))
    for label in ("SSC-A.SC-2.d.11", "SSC-A.SC-3.g.19"):
        assert "SC-1 SC-4" in edges(map_view(joined, broker_at(joined, label, world)))
    assert all(level in (2, 3) for *_, level in told(joined)["SSC-A.SC-4.x.99"])


def test_a_raised_cost_moves_the_route(fix5: Network) -> None:
    """BNM-09, SPR-11: a-b loaded, and the cheapest way to SSC-B goes through SC-3; absent, and likewise."""
    for step in (1, 2, ABSENT):
        broker = broker_at(fix5, AT)
        unit = fix5.labels.unit
        ab = next(r for r in broker.table.everything() if {r.low, r.high} == {unit(f"SSC-A.SC-1.{x}") for x in "ab"})
        broker.map.apply(_with_step(ab, step))
        path = cheapest_paths(broker.map)[unit("SSC-B")]
        assert named(fix5, list(path.units)) == ["c.6", "c.4", "b", "SC-3", "SSC-B"]
        broker.map.apply(ab)
        assert cheapest_paths(broker.map)[unit("SSC-B")].cost == 7


def _with_step(record: ConnectionRecord, step: int) -> ConnectionRecord:
    return ConnectionRecord(record.id, record.level, record.low, record.high, True, (1, step), record.high_cost)


def gates(network: NetworkMap) -> dict[int, list[Unit]]:
    """The levels at which the host is a gatekeeper, 0 always, and where its links of each level lead to."""
    found: dict[int, list[Unit]] = {0: []}
    for unit, edge in network.neighbours(network.host).items():
        found.setdefault(edge.level, []).append(unit)
    return found


def is_controller(network: NetworkMap, level: int) -> bool:
    return network.host in controllers(network, level)


def test_gatekeepers_and_controllers(fix5: Network) -> None:
    """GKP-01..05, GPP-18, TOP-17: who holds which gates, and who was elected where nobody does."""
    world = converged(fix5)
    five = broker_at(fix5, "SSC-A.SC-1.c.5", world).map
    assert sorted(gates(five)) == [0, 2]
    assert five.own(3) == fix5.labels.unit("SSC-A"), "the context of a gatekeeper of level 2"
    assert named(fix5, gates(five)[2]) == ["SC-2"]
    six = broker_at(fix5, AT, world).map
    assert list(gates(six)) == [0]
    assert named(fix5, controllers(six, 1)) == ["c.4"]
    assert named(fix5, controllers(six, 2)) == ["c.5", "b"]
    assert named(fix5, controllers(six, 3)) == ["a", "SC-2", "SC-3"]
    assert is_controller(five, 2)
    assert not is_controller(six, 2)


def test_every_unit_of_every_fixture_has_a_controller() -> None:
    """TOP-17, AMB-21: gatekeepers, or the lowest address."""
    for path in sorted(NETWORKS.glob("*.toml")):
        network = load_network(path)
        world = converged(network)
        for level in range(1, network.levels):
            for unit in dict.fromkeys(entry.address[: network.levels - level] for entry in network.brokers):
                inside = [e.address for e in network.brokers if e.address[: len(unit)] == unit]
                holders = [address for address in inside if is_controller(world.broker(address).map, level)]
                assert holders, f"{network.labels.label(unit)} in {path.name} has no controller"
                gatekeepers = [address for address in inside if level in gates(world.broker(address).map)]
                assert holders == (gatekeepers or [min(inside)])


def test_controllers_of_the_naradabrokering_example() -> None:
    """TOP-20, GKP-07 (FIX-2): SSC-A is controlled by 1 and 10, SC-3 by 16, n by 19 and 20."""
    network = load_network(NETWORKS / "fix-2.toml")
    world = converged(network)
    label = network.labels.label

    def holders(unit_label: str) -> set[str]:
        unit = network.labels.unit(unit_label)
        level = network.levels - len(unit)
        return {
            label(e.address).rsplit(".", 1)[-1]
            for e in network.brokers
            if e.address[: len(unit)] == unit and is_controller(world.broker(e.address).map, level)
        }

    assert holders("SSC-A") == {"1", "10"}
    assert "16" in holders("SSC-A.SC-3")
    assert holders("SSC-A.SC-3.n") == {"19", "20"}
    node21 = world.broker(network.labels.unit("SSC-A.SC-3.n.21")).map
    assert network.labels.unit("SSC-A.SC-3.m") in node21.neighbours(network.labels.unit("SSC-A.SC-3.n.20"))
