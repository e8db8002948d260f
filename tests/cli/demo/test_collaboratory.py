"""`veena demo collaboratory`: the whole story with real broker processes, once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import veena

#: The story is cited as a whole; each of its points names the requirements that it shows.
SHOWN = {"FIX-30", "DIS-04", "DIS-05", "DIS-06", "DIS-07", "DIS-09", "DIS-23", "COL-01", "COL-02", "COL-05", "NTF-03"}


def test_every_point_holds_and_the_report_is_left(tmp_path: Path) -> None:
    """FIX-30, DIS-04, DIS-06, DIS-09, DIS-23, AGG-02, AGG-03: one copy crosses the domains where three would have gone.

    A junior is refused steering, a senior steers, the field changes, both see it; a user leaves, returns in the other
    domain and gets what was missed, once.
    """
    done = veena("demo", "collaboratory", "--once", "--json", "--out", str(tmp_path))
    found = json.loads(done.out)
    assert [point for point in found["points"] if not point["ok"]] == []
    assert (done.code, found["ok"]) == (0, True)
    assert {each for point in found["points"] for each in point["requirement"].split(", ")} >= SHOWN
    assert found["three_sessions"]["copies"] == 3 * found["three_sessions"]["events"] > 0
    assert found["aggregated"]["copies"] == found["aggregated"]["events"] > 0
    assert found["aggregated"]["handed"] == 3 * found["aggregated"]["copies"]
    assert json.loads((tmp_path / "summary.json").read_text()) == found
    assert (tmp_path / "field.png").read_bytes().startswith(b"\x89PNG")


def test_what_no_demo_left_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "brokers").mkdir()
    (tmp_path / "brokers" / "mine").write_text("precious")
    done = veena("demo", "collaboratory", "--out", str(tmp_path))
    assert done.code == 2 and "name another folder" in done.err
    assert (tmp_path / "brokers" / "mine").read_text() == "precious"


def test_the_first_demo_is_still_what_demo_means() -> None:
    shown = veena("demo", "--help")
    assert shown.code == 0
    assert all(each in shown.out for each in ("--once", "--out", "--events", "collaboratory"))
