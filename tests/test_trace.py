"""The list of requirements and the tool that joins it with the tests."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
KNOWN = ["TAX-01", "TAX-02", "TAX-03", "TAX-10", "TAX-11", "TOY-01"]  # prefixes that no requirement has


def _trace() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_tool", ROOT / "docs" / "trace.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for the module of their annotations
    spec.loader.exec_module(module)
    return module


trace = _trace()


@pytest.fixture(name="rows", scope="module")
def _rows() -> dict[str, Any]:
    rows: dict[str, Any] = trace.rows_of(trace.read_requirements())
    return rows


# --- the list ---


def test_every_requirement_is_listed_once_and_in_order(rows: dict[str, Any]) -> None:
    groups = trace.read_requirements()
    assert len(rows) == sum(len(group.rows) for group in groups.values()) == 413
    assert len(groups["ADD"].rows) == 14
    for name, group in groups.items():
        assert group.title
        assert all(identifier.startswith(f"{name}-") for identifier in group.rows)
        assert list(group.rows) == sorted(group.rows)


def test_every_row_is_made_of_sentences(rows: dict[str, Any]) -> None:
    for identifier, row in rows.items():
        for text in (row.says, row.check, row.departs, row.part, row.open):
            assert not text or (len(text) > 10 and text.endswith((".", ".)"))), f"{identifier}: {text!r}"
            assert not re.search(r"\bD[0-4]\b|AMB-|\[LOST|\[INFER|FIX-\d", text), f"{identifier}: {text!r}"
        assert row.says and row.check and row.source, identifier
        assert row.asks in trace.PLACES, f"{identifier} asks for {row.asks!r}; the places are {', '.join(trace.PLACES)}"
        assert not (row.part and row.open), f"{identifier} is shown in part, or open, not both"


def test_what_is_not_marked_is_shown_where_its_check_asks(rows: dict[str, Any]) -> None:
    """Who cites too little, or moves a test to another place, marks the row with `part` or `open`."""
    cited = trace.evidence()
    assert trace.count(rows, cited).weak == ()
    for identifier, row in rows.items():
        assert not (row.open and identifier in cited), f"{identifier} is open, and yet a test cites it: is it `part`?"
        assert not (row.part and identifier not in cited), f"{identifier} is shown in part by no test: is it `open`?"


def test_every_departure_is_explained_and_no_other(rows: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "DEPARTURES.md").read_text(encoding="utf-8")
    explained = {
        identifier
        for line in text.splitlines()
        if line.startswith("Requirements: ")
        for identifier in trace.cited_ids(line, list(rows))
    }
    assert explained == {identifier for identifier, row in rows.items() if row.departs}


def test_the_readme_has_the_numbers_of_the_list(rows: dict[str, Any]) -> None:
    counts = trace.count(rows, trace.evidence())
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = f"Of the {counts.all} requirements {counts.shown} are shown by a test where their check asks for it, "
    told += f"{counts.otherwise} are met otherwise than the papers say, {counts.part} are shown in part, "
    told += f"and {counts.open} are open"
    assert told in words


# --- citations ---


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("TAX-01: a", ["TAX-01"]),
        ("TAX-01, TAX-03.", ["TAX-01", "TAX-03"]),
        ("TAX-02..10", ["TAX-02", "TAX-03", "TAX-10"]),
        ("TAX-02..TAX-10", ["TAX-02", "TAX-03", "TAX-10"]),
        ("TAX-01/03/11", ["TAX-01", "TAX-03", "TAX-11"]),
        ("TAX-01..03/11", ["TAX-01", "TAX-02", "TAX-03", "TAX-11"]),
        ("TAX-01/TOY-01", ["TAX-01", "TOY-01"]),
        ("SSC-12 UTF-08 XTAX-01 TAX-011 TAX-1", []),
    ],
)
def test_citations_are_read(text: str, ids: list[str]) -> None:
    assert list(trace.cited_ids(text, KNOWN)) == ids


@pytest.mark.parametrize("text", ["TAX-04", "TAX-01..12", "TAX-01/09"])
def test_a_citation_of_nothing_is_an_error(text: str) -> None:
    with pytest.raises(trace.UnknownRequirement, match="not in docs/requirements"):
        list(trace.cited_ids(text, KNOWN))


def test_tests_cite_by_their_text_and_by_the_tables_that_they_use(tmp_path: Path) -> None:
    tests = tmp_path / "tests" / "deep" / "er"
    tests.mkdir(parents=True)
    (tests / "test_one.py").write_text(
        '"""TAX-11 is only mentioned."""\n# TAX-10\nCASES = [1]\nUNUSED = "TAX-11"\n\n'
        "def helper():\n    '''TAX-11'''\n\n"
        "@mark(CASES, id='TAX-03')\ndef test_a():\n    '''TAX-01'''\n\n"
        "class TestB:\n    async def test_c(self):\n        helper()  # TAX-01..02\n"
    )
    (tests / "story.txt").write_text("# TOY-01\n")
    found = {key: list(each.tests) for key, each in trace.read_citations(tmp_path, KNOWN).items()}
    assert found == {
        "TAX-01": ["deep/er/test_one.py::TestB::test_c", "deep/er/test_one.py::test_a"],
        "TAX-02": ["deep/er/test_one.py::TestB::test_c"],
        "TAX-03": ["deep/er/test_one.py::test_a"],
        "TAX-10": ["deep/er/test_one.py::test_a"],
        "TOY-01": ["deep/er/story.txt"],
    }
    (tests / "test_one.py").write_text("def test_a():\n    '''TAX-99'''\n")
    with pytest.raises(trace.UnknownRequirement, match=r"tests/deep/er/test_one.py::test_a: 'TAX-99' cites TAX-99"):
        trace.read_citations(tmp_path, KNOWN)


# --- the report ---


def test_the_report_says_what_is_shown_where_and_what_is_not() -> None:
    asks = {"TAX-01": "core", "TAX-02": "sockets", "TAX-03": "core", "TAX-10": "browser", "TAX-11": "engine"}
    remarks = {
        "TAX-02": {"part": "Only half.", "departs": "Not so."},
        "TAX-03": {"open": "Not there."},
        "TAX-11": {"departs": "Not so."},
    }
    rows = {
        key: trace.Requirement(key, "Pay | them.", "A *receipt*.", place, **remarks.get(key, {}))
        for key, place in asks.items()
    }
    cited = {
        "TAX-01": trace.Evidence({"a.py::test_a": frozenset({"simulator"})}),
        "TAX-02": trace.Evidence({"a.py::test_a": frozenset({"simulator"})}),
        "TAX-10": trace.Evidence({"b.py::test_b": frozenset({"sockets", "Spark"})}),
        "TAX-11": trace.Evidence({"b.py::test_b": frozenset({"sockets", "Spark"})}),
    }
    assert trace.count(rows, cited) == trace.Counts(all=5, shown=1, otherwise=1, part=1, open=1, weak=("TAX-10",))
    report = trace.render({"TAX": trace.Group("Taxes", rows)}, cited)
    words = " ".join(report.split())
    assert "Of 5 requirements 1 are shown by a test where their check asks for it, 1 are met otherwise" in words
    assert "1 are shown in part, and 1 are open." in words
    assert "| [TAX](#tax) | Taxes | 5 | 1 | 1 | 1 | 1 |" in report
    assert "| core | the parts of a broker, driven directly, input by input | 0 | 2 | 1 |" in report
    assert "Said to be shown, but not where the check asks for it: TAX-10." in report
    assert "| TAX-01 | Pay \\| them. | A \\*receipt\\*. | simulator (core) | `a.py::test_a` |  |" in report
    assert "| simulator (sockets) | `a.py::test_a` | **departs**: Not so.<br>**part**: Only half. |" in report
    assert "| nowhere (core) | - | **open**: Not there. |" in report
    assert "| sockets, Spark (browser) | `b.py::test_b` |  |" in report


@pytest.mark.parametrize(
    ("places", "asked", "is_shown"),
    [
        ({"processes"}, "core", True),
        ({"core"}, "processes", False),
        ({"simulator"}, "sockets", False),
        ({"Spark"}, "engine", True),
        ({"Spark"}, "core", False),
        ({"processes"}, "browser", False),
        ({"document"}, "engine", False),
        (set(), "engine", False),
    ],
)
def test_what_is_more_real_shows_what_is_less(places: set[str], asked: str, is_shown: bool) -> None:
    assert trace.Evidence({"a.py::test_a": frozenset(places)}).shows(asked) is is_shown


def test_the_command_checks_whether_the_file_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "REPORT", tmp_path / "TRACEABILITY.md")
    assert trace.main(["--check"]) == 1
    assert trace.main([]) == 0
    assert trace.main(["--check"]) == 0
    trace.REPORT.write_text("old")
    assert trace.main(["--check"]) == 1
    assert trace.main(["--wrong"]) == 2


def test_the_list_on_disk_is_current() -> None:
    """`make trace` writes it; a test that cites another requirement needs that."""
    assert trace.main(["--check"]) == 0, "docs/TRACEABILITY.md is stale: run `make trace`"
