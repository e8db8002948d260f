"""`veena topology`: what it prints, what it refuses, and how."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.command import veena

ROOT = Path(__file__).parents[3]
NETWORKS = ROOT / "networks"
BROKERS = """
[network]
name = "small"
levels = 2
{extra}
[[broker]]
address = "c.1"
[[broker]]
address = "c.2"
[[broker]]
address = "d.3"
[[link]]
between = ["c.1", "c.2"]
[[link]]
between = ["c.2", "d.3"]
"""


def test_show_prints_the_map_of_the_worked_example() -> None:
    """SPR-03, SPR-04, PPP-10, BNM-07: keys and values as scripts read them."""
    found = veena("topology", "show", str(NETWORKS / "fix-5.toml"), "--at", "SSC-A.SC-1.c.6", "--json")
    assert found.code == 0
    view = json.loads(found.out)
    assert {"at", "levels", "edges", "routes", "targets"} <= set(view)
    assert len(view["edges"]) == 13
    assert {"a": "SSC-B", "b": "SSC-D", "level": 3, "cost": 6, "links": 2} in view["edges"]
    assert view["routes"]["SSC-D"]["cost"] == 13
    assert view["routes"]["SSC-D"]["hop"] == "SSC-A.SC-1.c.4"
    assert view["routes"]["SSC-B"]["path"] == [
        "SSC-A.SC-1.c.6", "SSC-A.SC-1.c.4", "SSC-A.SC-1.b", "SSC-A.SC-1.a", "SSC-B",
    ]  # fmt: skip
    assert view["targets"] == {
        "0": ["SSC-A.SC-1.c.4"],
        "1": ["SSC-A.SC-1.c.5", "SSC-A.SC-1.b"],
        "2": ["SSC-A.SC-1.a", "SSC-A.SC-2", "SSC-A.SC-3"],
    }


def test_show_has_a_form_for_people() -> None:
    found = veena("topology", "show", str(NETWORKS / "fix-5.toml"), "--at", "SSC-A.SC-1.c.6")
    assert found.code == 0
    assert "6 > 4 > b > a > SSC-B" in found.out
    assert "a change at level 0 goes to: SSC-A.SC-1.c.4" in found.out


@pytest.mark.parametrize(
    ("at", "message"), [("SSC-A.SC-1.c.66", "holds 4, 5, 6"), ("SSC-A.SC-1", "is a larger unit"), ("", "label")]
)
def test_a_wrong_broker_is_named(at: str, message: str) -> None:
    found = veena("topology", "show", str(NETWORKS / "fix-5.toml"), "--at", at)
    assert found.code == 2
    assert message in found.err
    assert found.err.count("\n") == 1


def _many(count: int) -> str:
    brokers = "".join(f'[[broker]]\naddress = "c.{n}"\n' for n in range(count))
    links = "".join(f'[[link]]\nbetween = ["c.{n}", "c.{n + 1}"]\n' for n in range(count - 1))
    return f'[network]\nname = "many"\nlevels = 2\n{brokers}{links}'


GOOD = BROKERS.format(extra="")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (GOOD.replace('"c.2", "d.3"', '"c.2", "d.33"'), ["[[link]]", "d.33", "d.3"]),
        (GOOD.replace('address = "d.3"', 'address = "c.2"'), ["[[broker]]", "c.2"]),
        (GOOD.replace('between = ["c.1", "c.2"]', 'between = ["c.1", "d.3"]'), ["cluster", "c"]),
        (_many(33), ["[[broker]] 33", "c holds 32 brokers already", "fanout = 64"]),
        (GOOD.replace("levels = 2", "levels = "), ["line 4"]),
        (GOOD.replace("levels = 2", "levels = 3"), ["3"]),
        (BROKERS.format(extra="fan_out = 32"), ["fan_out", "fanout"]),
        (GOOD.replace('["c.1", "c.2"]', '["c.1", "c.1"]'), ["c.1"]),
        ("", ["broker"]),
        ("\x00", ["line 1"]),
    ],
    ids=[
        "unknown-broker",
        "duplicate",
        "disconnected",
        "33-brokers",
        "syntax",
        "levels",
        "key",
        "self",
        "empty",
        "nul",
    ],
)
def test_a_bad_network_file_gets_one_clear_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    """One line with file, entry and remedy; exit code 2."""
    path = tmp_path / "network.toml"
    path.write_text(text)
    found = veena("topology", "check", str(path))
    assert found.code == 2
    assert found.err.count("\n") == 1, found.err
    assert found.err.startswith(f"veena: {path}: ")
    for part in parts:
        assert part in found.err
    assert ";" in found.err, "a remedy follows the reason"


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    for command in ("check", "statistics"):
        found = veena("topology", command, str(tmp_path / "none.toml"))
        assert found.code == 2
        assert "cannot be read" in found.err


def test_check_lists_partitions_articulation_brokers_and_controllers(tmp_path: Path) -> None:
    """TOP-19, CTX-03, TOP-17."""
    found = veena("topology", "check", str(NETWORKS / "ges-22.toml"), "--json")
    assert found.code == 0
    report = json.loads(found.out)
    assert report["partitions"] == []
    assert {"SSC-B.SC-4.j.4", "SSC-B.SC-6.l.7"} <= {entry["broker"] for entry in report["articulation_brokers"]}
    assert report["controllers"]["SSC-B.SC-6.m"] == ["SSC-B.SC-6.m.9", "SSC-B.SC-6.m.10"]
    path = tmp_path / "parted.toml"
    path.write_text(GOOD.replace('between = ["c.2", "d.3"]', 'between = ["c.1", "c.2"]'))
    found = veena("topology", "check", str(path), "--json")
    assert found.code == 2
    assert json.loads(found.out)["partitions"] == [{"unit": "", "parts": [["c"], ["d"]]}]


def test_draw(tmp_path: Path) -> None:
    svg, png = tmp_path / "deep" / "n.svg", tmp_path / "n.png"
    assert veena("topology", "draw", str(NETWORKS / "ges-22.toml"), "--out", str(svg)).code == 0
    assert ET.fromstring(svg.read_text()).tag.endswith("svg")
    assert veena("topology", "draw", str(NETWORKS / "fix-5.toml"), "--within", "SSC-A", "--out", str(png)).code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    found = veena("topology", "draw", str(NETWORKS / "fix-5.toml"), "--out", str(tmp_path / "n.pdf"))
    assert found.code == 2
    assert "neither .svg nor .png" in found.err


def test_generate_check_and_measure(tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    assert veena("topology", "generate", "--brokers", "60", "--seed", "3", "--out", str(path)).code == 0
    assert veena("topology", "check", str(path)).code == 0
    assert veena("topology", "generate", "--brokers", "60", "--seed", "3").out == path.read_text()
    measured = json.loads(veena("topology", "statistics", str(path), "--json").out)
    assert measured["brokers"] == 60
    assert 1 < measured["pathlength"] < 6
    found = veena("topology", "generate", "--brokers", "0", "--seed", "3")
    assert found.code == 2
    assert "0 brokers" in found.err


def test_growth(tmp_path: Path) -> None:
    """TOP-15."""
    out = tmp_path / "growth.png"
    found = veena("topology", "growth", "--largest", "81", "--out", str(out), "--json")
    assert found.code == 0
    assert [row["brokers"] for row in json.loads(found.out)] == [27, 81]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_folder_as_output_is_refused(tmp_path: Path) -> None:
    for command in (("generate", "--brokers", "5", "--seed", "1"), ("draw", str(NETWORKS / "fix-1.toml"))):
        folder = tmp_path / "folder.svg"
        folder.mkdir(exist_ok=True)
        found = veena("topology", *command, "--out", str(folder))
        assert found.code == 2
        assert "cannot be written" in found.err


def test_the_version_is_shown() -> None:
    assert re.fullmatch(r"veena 0\.\S+, (plain|compiled \(\d+ of \d+ modules\))\n", veena("--version").out)


def test_the_installed_command_works() -> None:
    command = Path(sys.executable).parent / "veena"
    shown = subprocess.run([command, "topology", "check", NETWORKS / "fix-1.toml"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "controllers" in shown.stdout
