"""Pictures of running networks without a browser: what brokers say put together, drawn, and pointed at."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lxml import etree

from veena.dashboard.pictures.picture import MAX_SHOWN, Highlight, Hop, draw, line_text, width
from veena.dashboard.pictures.scene import Line, Scene, compose, label_of, natural, path_of

SVG = "{http://www.w3.org/2000/svg}"


def link(to: str, level: int, **more: Any) -> dict[str, Any]:
    told = {"to": to, "level": level, "suspected": False, "round_trip_ms": 1.5, "load": 0.25, "waiting": 0}
    return {**told, **more}


def view(at: str, levels: list[list[str]], edges: list[tuple[str, str, int]], **more: Any) -> dict[str, Any]:
    told = [{"a": a, "b": b, "level": level, "cost": level, "links": 2} for a, b, level in edges]
    return {"at": at, "levels": levels, "edges": told, "links": [], "absent": [], "contacts": {}, **more}


PARIS = view(
    "eu.paris.1",
    [["eu.paris.1", "eu.paris.2"], ["eu.rome"], ["us"]],
    [("eu.paris.1", "eu.paris.2", 0), ("eu.paris.1", "eu.rome", 1), ("eu.rome", "us", 2)],
    links=[link("eu.paris.2", 0), link("eu.rome.1", 1, suspected=True)],
    contacts={"us": [{"broker": "us.ny.1", "urls": ["veena://10.0.0.1:7700"]}]},
)
ROME = view(
    "eu.rome.1",
    [["eu.rome.1"], ["eu.paris"], ["us"]],
    [("eu.rome.1", "eu.paris", 1), ("eu.rome.1", "us", 2)],
    links=[link("eu.paris.1", 1), link("us.ny.1", 2, load=0.9)],
)


def drawn(scene: Scene, *arguments: Any) -> Any:
    return etree.fromstring(draw(scene, *arguments).svg.encode())


def classes(root: Any, tag: str) -> list[str]:
    return [element.get("class") or "" for element in root.iter(SVG + tag)]


def test_what_several_brokers_say_is_one_scene() -> None:
    scene = compose([PARIS, ROME])
    assert scene.levels == 3
    assert scene.members[("eu",)] == (("eu", "paris"), ("eu", "rome"))
    assert scene.brokers() == [path_of(label) for label in ("eu.paris.1", "eu.paris.2", "eu.rome.1", "us.ny.1")]
    found = {(label_of(line.a), label_of(line.b)): line for line in scene.lines}
    # Edges that stand for links which somebody knows are not there a second time.
    assert set(found) == {
        ("eu.paris.1", "eu.paris.2"),
        ("eu.paris.1", "eu.rome.1"),
        ("eu.rome.1", "us.ny.1"),
    }
    assert found["eu.paris.1", "eu.rome.1"].is_suspected, "one of its ends suspects it"
    assert scene.gateways() == {("eu", "paris", "1"): [1], ("eu", "rome", "1"): [1, 2], ("us", "ny", "1"): [2]}


def test_one_broker_sees_larger_units_from_outside() -> None:
    scene = compose([PARIS])
    found = {(label_of(line.a), label_of(line.b)): line for line in scene.lines}
    assert found["eu.rome", "us"].links == 2 and not found["eu.rome", "us"].is_exact
    root = drawn(scene)
    units = [each.get("data-unit") for each in root.iter(SVG + "a")]
    assert "eu.rome.1" in units and "us.ny.1" in units, "contacts are brokers that are known"
    assert len(units) == len(set(units))


def test_connections_that_nobody_uses_are_suspected() -> None:
    absent = [{"a": "eu.rome", "b": "us", "level": 2}]
    scene = compose([view("eu.paris.1", [["eu.paris.1"], ["eu.rome"], ["us"]], [], absent=absent)])
    assert [line.is_suspected for line in scene.lines] == [True]
    assert any("suspected" in each for each in classes(drawn(scene), "path"))


def test_levels_loads_and_suspicion_show_in_the_picture() -> None:
    """Links by level, load by width, suspected ones in another colour, gateways marked."""
    scene = compose([PARIS, ROME], {("eu.rome.1", "us.ny.1"): 5e6})
    root = drawn(scene)
    links = [element for element in root.iter(SVG + "path") if (element.get("class") or "").startswith("link")]
    by_level = {re.search(r"level-(\d)", element.get("class")).group(1): element for element in links}  # type: ignore[union-attr]
    assert set(by_level) == {"0", "1", "2"}
    assert "suspected" in by_level["1"].get("class") and "suspected" not in by_level["2"].get("class")
    widths = {level: float(element.get("stroke-width")) for level, element in by_level.items()}
    assert widths["2"] > widths["0"]
    assert sum("broker level-2" in each for each in classes(root, "circle")) == 2
    assert sum("ring level-1" in each for each in classes(root, "circle")) == 1
    said = [each.get("aria-label") for each in root.iter(SVG + "a")]
    assert "broker eu.rome.1, cluster gatekeeper, super-cluster gatekeeper" in said


def test_the_width_grows_with_the_load_in_steps_and_has_bounds() -> None:
    def of(rate: float | None, load: float | None = None) -> float:
        return width(Line(("a",), ("b",), 0, bytes_per_second=rate, load=load))

    rates = [0.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e12]
    found = [of(rate) for rate in rates]
    assert found == sorted(found) and found[0] == found[1] and found[-1] == found[-2]
    assert of(None, 0.0) < of(None, 0.5) < of(None, 1.0)
    assert of(1e5) == of(1.001e5), "a picture does not change with every byte"
    assert "1 waiting" in line_text(Line(("a",), ("b",), 0, waiting=1))


def test_a_unit_is_drawn_alone_and_what_leaves_it_is_listed() -> None:
    scene = compose([PARIS, ROME])
    picture = draw(scene, ("eu",))
    assert picture.shown == (("eu", "paris", "1"), ("eu", "paris", "2"), ("eu", "rome", "1"))
    assert [label_of(line.b) for line in picture.outside] == ["us.ny.1"]
    cluster = draw(scene, ("eu", "paris"))
    assert [label_of(unit) for unit in cluster.shown] == ["eu.paris.1", "eu.paris.2"]


def test_a_large_network_is_closed_below_what_can_be_read() -> None:
    names = [f"u{one}.c{two}.{three}" for one in range(8) for two in range(5) for three in range(6)]
    scene = compose([view(name, [[name]], []) for name in names])
    assert len(scene.brokers()) == 240
    whole = draw(scene)
    assert len(whole.shown) == 40 <= MAX_SHOWN and all(len(unit) == 2 for unit in whole.shown)
    assert len(draw(scene, ("u0",)).shown) == 30, "one unit shows its brokers"
    way = Highlight((Hop(path_of("u0.c0.0"), path_of("u3.c2.1")),))
    pointed = draw(scene, (), way)
    assert path_of("u0.c0.0") in pointed.shown and path_of("u3.c2.1") in pointed.shown
    assert 'data-hop="u0.c0.0&gt;u3.c2.1"' in pointed.svg


def test_a_trace_is_numbered_arrows_and_says_what_is_lost() -> None:
    scene = compose([PARIS, ROME])
    paris, rome, york = (path_of(label) for label in ("eu.paris.1", "eu.rome.1", "us.ny.1"))
    way = Highlight((Hop(paris, rome), Hop(rome, york, is_lost=True)), {rome: 3}, paris)
    root = drawn(scene, (), way)
    hops = [element for element in root.iter(SVG + "g") if (element.get("class") or "").startswith("hop")]
    assert [hop.get("class") for hop in hops] == ["hop", "hop lost"]
    assert [hop.find(SVG + "text").text for hop in hops] == ["1", "2"]
    assert any("handed" in each for each in classes(root, "circle"))
    assert any("selected" in each for each in classes(root, "circle"))


def test_names_cannot_put_anything_into_the_page() -> None:
    hostile = 'x"><script>alert(1)</script>'
    scene = compose([view(f"a.{hostile}", [[f"a.{hostile}"]], [])], silent=[f"a.{hostile}"])
    text = draw(scene, (), Highlight(selected=("a", hostile))).svg
    assert "<script" not in text and etree.fromstring(text.encode()) is not None


def test_nothing_seen_is_no_picture() -> None:
    assert draw(compose([])).svg == ""


@pytest.mark.parametrize(
    ("names", "ordered"), [(["10", "9", "2"], ["2", "9", "10"]), (["b2", "a10", "a9", "a"], ["a", "a9", "a10", "b2"])]
)
def test_units_are_in_the_order_in_which_people_count(names: list[str], ordered: list[str]) -> None:
    assert sorted(names, key=lambda name: natural((name,))) == ordered
