"""The list of requirements and the tool that joins it with the tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
KNOWN = ["TAX-01", "TAX-02", "TAX-03", "TAX-10", "TAX-11", "TOY-01"]  # prefixes that no requirement has


def _trace() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_tool", ROOT / "docs" / "trace.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trace = _trace()


def test_every_requirement_is_listed_once_and_short() -> None:
    groups = trace.read_requirements()
    statements = {key: text for _, group in groups.values() for key, text in group.items()}
    assert len(statements) == sum(len(group) for _, group in groups.values()) == 399
    for name, (title, group) in groups.items():
        assert title
        assert all(identifier.startswith(f"{name}-") for identifier in group)
        assert list(group) == sorted(group)
    for identifier, text in statements.items():
        assert 10 < len(text) <= 140 and text.endswith("."), identifier


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


def test_tests_are_found_by_function_and_the_rest_by_file(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_one.py").write_text(
        '"""TAX-11 is only mentioned."""\nCASES = [1]  # TAX-10\n\n'
        "@mark(CASES, id='TAX-03')\ndef test_a():\n    '''TAX-01'''\n\n"
        "class TestB:\n    async def test_c(self):\n        pass  # TAX-01..02\n"
    )
    (tests / "story.txt").write_text("# TOY-01\n")
    assert trace.read_citations(tmp_path, KNOWN) == {
        "TAX-01": ["test_one.py::TestB::test_c", "test_one.py::test_a"],
        "TAX-02": ["test_one.py::TestB::test_c"],
        "TAX-03": ["test_one.py::test_a"],
        "TAX-10": ["test_one.py"],
        "TOY-01": ["story.txt"],
    }
    (tests / "test_one.py").write_text("def test_a():\n    '''TAX-99'''\n")
    with pytest.raises(trace.UnknownRequirement, match=r"tests/test_one.py::test_a: 'TAX-99' cites TAX-99"):
        trace.read_citations(tmp_path, KNOWN)


def test_the_report_says_what_is_tested_and_what_is_not() -> None:
    groups = {"TAX": ("Taxes", {"TAX-01": "Pay | them.", "TAX-02": "Or not."})}
    report = trace.render(groups, {"TAX-01": ["a.py::test_a"]})
    assert "Of 2 requirements 1 are cited by a test." in report
    assert "| [TAX](#tax) | Taxes | 2 | 1 | 1 |" in report
    assert "| TAX-01 | Pay \\| them. | `a.py::test_a` |" in report
    assert "| TAX-02 | Or not. | not yet |" in report


def test_every_id_that_a_test_cites_exists() -> None:
    groups = trace.read_requirements()
    known = [identifier for _, group in groups.values() for identifier in group]
    assert len(trace.read_citations(ROOT, known)) > 0


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
    checked = subprocess.run([sys.executable, ROOT / "docs" / "trace.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, "docs/TRACEABILITY.md is stale: run `make trace`"
