"""Pictures: every unit, broker and link is there, boxes do not overlap, and a network gives the same file each time."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from lxml import etree

from veena.errors import InvalidAddress
from veena.runtime.networks.file import Network, load_network, make_network
from veena.runtime.networks.layout import RADIUS, Box, lay_out
from veena.sim.networks.drawing import Disc, Frame, draw, draw_png, draw_svg
from veena.sim.networks.generate import generate
from veena.sim.networks.growth import Growth, fit_logarithm, measure_growth, plot_growth

NETWORKS = Path(__file__).parents[3] / "networks"
SVG = "{http://www.w3.org/2000/svg}"


def _networks() -> list[Network]:
    named = [
        load_network(NETWORKS / f"{name}.toml") for name in ("fix-1", "fix-5-joined", "ges-22", "ges-78", "fix-4-unit")
    ]
    return [
        *named,
        generate(500, 1),
        generate(40, 2, levels=6),
        generate(1, 1),
        make_network("flat", ["1", "2"], [], levels=1),
    ]


@pytest.mark.parametrize("network", _networks(), ids=lambda network: network.name)
def test_units_are_nested_and_apart_and_brokers_stand_inside(network: Network) -> None:
    layout = lay_out(network)
    inside = Box(0, 0, layout.width, layout.height)
    assert set(layout.brokers) == {broker.address for broker in network.brokers}
    assert set(layout.boxes) == {each[:size] for each in layout.brokers for size in range(1, network.levels)}
    for unit, box in layout.boxes.items():
        outer = layout.boxes.get(unit[:-1], inside)
        assert outer.x < box.x and box.x + box.width < outer.x + outer.width
        assert outer.y < box.y and box.y + box.height < outer.y + outer.height
    for one, other in itertools.combinations(layout.boxes, 2):
        if one[:-1] == other[:-1] and len(one) == len(other):
            a, b = layout.boxes[one], layout.boxes[other]
            apart = a.x + a.width < b.x or b.x + b.width < a.x or a.y + a.height < b.y or b.y + b.height < a.y
            assert apart, f"{network.labels.label(one)} and {network.labels.label(other)} overlap"
    for address, (x, y) in layout.brokers.items():
        box = layout.boxes.get(address[:-1], inside)
        assert box.x + RADIUS < x < box.x + box.width - RADIUS
        assert box.y + RADIUS < y < box.y + box.height - RADIUS
    for cluster in {address[:-1] for address in layout.brokers}:
        points = [point for address, point in layout.brokers.items() if address[:-1] == cluster]
        assert all(math.dist(a, b) > 2 * RADIUS for a, b in itertools.combinations(points, 2))


@pytest.mark.parametrize("network", _networks(), ids=lambda network: network.name)
def test_an_svg_shows_everything_once(network: Network) -> None:
    text = draw_svg(network)
    root = etree.fromstring(text.encode())
    tips = [title.text or "" for title in root.iter(f"{SVG}title")]
    for broker in network.brokers:
        assert sum(tip == broker.label or tip.startswith(f"{broker.label} (") for tip in tips) == 1
    assert sum(tip.startswith("level ") for tip in tips) == len(network.links)
    names = {element.text for element in root.iter(f"{SVG}text")}
    assert {network.labels.label(unit).rsplit(".", 1)[-1] for unit in network.labels.units()} <= names
    assert draw_svg(network) == text


def test_gatekeepers_are_marked_by_level() -> None:
    """GKP-01, GKP-03: the colour of the highest level, and a ring for each lower one."""
    network = load_network(NETWORKS / "ges-22-linked.toml")
    discs = [shape for shape in draw(network).shapes if isinstance(shape, Disc)]
    three = next(disc for disc in discs if disc.tip.startswith("SSC-B.SC-5.i.3 "))
    assert three.tip.endswith("(cluster gatekeeper, super-cluster gatekeeper)")
    ring = next(disc for disc in discs if (disc.x, disc.y) == (three.x, three.y) and disc.fill == "none")
    two = next(disc for disc in discs if disc.tip.startswith("SSC-B.SC-5.h.2 "))
    assert ring.stroke == two.fill != three.fill
    plain = next(disc for disc in discs if disc.tip == "SSC-B.SC-5.h.22")
    assert plain.fill == "#ffffff"


def test_parallel_links_do_not_hide_each_other() -> None:
    network = make_network("twice", ["a.1", "a.2"], [("a.1", "a.2"), ("a.1", "a.2")], levels=2)
    paths = [path.get("d") for path in etree.fromstring(draw_svg(network).encode()).iter(f"{SVG}path")]
    assert len(set(paths[:2])) == 2


def test_names_with_signs_of_xml_are_escaped() -> None:
    network = make_network("<&>", ["<a>.b&c", '<a>."long-name-of-a-broker"'], [], levels=2)
    texts = {element.text for element in etree.fromstring(draw_svg(network).encode()).iter(f"{SVG}text")}
    assert {"<&>", "<a>", "b&c"} <= texts


def test_one_unit_of_a_large_network_can_be_drawn() -> None:
    network = generate(3000, 1)
    with pytest.raises(InvalidAddress, match="name one unit"):
        draw(network)
    unit = network.labels.unit("SSC-2.SC-8")
    frames = [shape.tip for shape in draw(network, unit).shapes if isinstance(shape, Frame) and shape.tip]
    assert frames[0] == "super-cluster SSC-2.SC-8"
    assert all(tip.startswith("cluster SSC-2.SC-8.") for tip in frames[1:]) and len(frames) > 3
    with pytest.raises(InvalidAddress, match="is a broker"):
        draw(network, network.brokers[0].address)


def test_a_png_is_the_same_each_time(tmp_path: Path) -> None:
    network = load_network(NETWORKS / "ges-22.toml")
    for name in ("one.png", "two.png"):
        draw_png(network, tmp_path / name, dots_per_inch=40)
    data = (tmp_path / "one.png").read_bytes()
    assert data.startswith(b"\x89PNG") and data == (tmp_path / "two.png").read_bytes()


def test_growth_is_measured_fitted_and_drawn(tmp_path: Path) -> None:
    """TOP-15, GUA-05: over 27 to 729 brokers a line through the logarithm explains nearly everything."""
    seen: list[Growth] = []
    growth = plot_growth(tmp_path / "growth.png", (27, 81, 243, 729), progress=seen.append)
    assert growth == tuple(seen) == measure_growth((27, 81, 243, 729))
    fit = fit_logarithm(growth)
    assert fit.r_squared > 0.9 and fit.slope > 0
    assert growth[-1].pathlength < 4 * growth[0].pathlength
    assert all(each.random_pathlength < each.pathlength < 2 * each.random_pathlength for each in growth)
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
