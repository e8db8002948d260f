"""Which test shows which requirement, and where: reads requirements.toml and every test, writes TRACEABILITY.md.

    python docs/trace.py            write docs/TRACEABILITY.md
    python docs/trace.py --check    exit 1 if the file on disk is not what would be written

A test cites an id in its docstring, in a comment or in its data: `GPP-07`, a range `NOP-01..19`, a list `DST-01/02`. A
table of cases outside the test functions counts for each test that uses it; other text outside them does not count.
Scenario files count as one test each. An id that requirements.toml does not have is an error: a slip of the pen.
Where a test shows what it cites is computed from what it runs (`places.py`).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from places import LADDER, PLACES, Module, Search, Test

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.toml"
REPORT = ROOT / "docs" / "TRACEABILITY.md"

#: `GPP-07` and what may follow it: `..19`, `..GPP-19`, `/08`, in any number.
CITATION = re.compile(r"(?<![\w-])([A-Z]{3})-(\d{2})(?!\d)((?:(?:\.\.|/)(?:[A-Z]{3}-)?\d{2}(?!\d))*)")
STEP = re.compile(r"(\.\.|/)(?:([A-Z]{3})-)?(\d{2})")


class UnknownRequirement(Exception):
    """A test cites what is not in requirements.toml."""


@dataclass(frozen=True)
class Requirement:
    """One row of requirements.toml."""

    id: str
    #: What the papers ask.
    says: str
    #: How one sees that it is so.
    check: str
    #: The place where the check asks to be shown.
    asks: str
    #: Where the papers say so.
    source: str = ""
    #: What Veena does otherwise, and why; docs/DEPARTURES.md has more.
    departs: str = ""
    #: What of it no test shows yet.
    part: str = ""
    #: It is not there yet; what is missing.
    open: str = ""

    @property
    def state(self) -> str:
        """The least that can be said of it: a departure counts only where nothing is missing."""
        return "open" if self.open else "part" if self.part else "otherwise" if self.departs else "shown"


@dataclass(frozen=True)
class Group:
    title: str
    rows: dict[str, Requirement]


@dataclass
class Evidence:
    """The tests that cite a requirement, by their names, and where they show what they show."""

    tests: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def places(self) -> frozenset[str]:
        return frozenset().union(*self.tests.values())

    def shows(self, asked: str) -> bool:
        """Whether a test is where the check asks for, or where more of the real system runs."""
        if asked in LADDER:
            enough = {*LADDER[LADDER.index(asked) :]} | ({"Spark", "browser"} if asked == "engine" else set())
            return bool(self.places & enough)
        return asked in self.places


def read_requirements(path: Path = REQUIREMENTS) -> dict[str, Group]:
    """The groups in the order of the file."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    groups: dict[str, Group] = {}
    for name, table in document.items():
        rows = {key: Requirement(id=key, **row) for key, row in table.items() if key != "title"}
        groups[name] = Group(str(table["title"]), rows)
    return groups


def rows_of(groups: Mapping[str, Group]) -> dict[str, Requirement]:
    return {key: row for group in groups.values() for key, row in group.rows.items()}


def cited_ids(text: str, known: Sequence[str]) -> Iterator[str]:
    """The requirement ids in a text, ranges and lists expanded; raises UnknownRequirement.

    Other words of the same shape, such as `SSC-12`, are left alone: only prefixes of requirements count.
    """
    present = set(known)
    prefixes = {identifier[:3] for identifier in known}
    for found in CITATION.finditer(text):
        if found[1] not in prefixes:
            continue
        last = f"{found[1]}-{found[2]}"
        cited = [last]
        for kind, prefix, number in STEP.findall(found[3]):
            end = f"{prefix or found[1]}-{number}"
            if kind == "..":
                cited += [identifier for identifier in known if identifier[:3] == end[:3] and last < identifier < end]
            cited.append(end)
            last = end
        for identifier in cited:
            if identifier not in present:
                raise UnknownRequirement(f"{found[0]!r} cites {identifier}, which is not in docs/requirements.toml")
        yield from cited


class Citations:
    """Collects which tests of a project cite which ids."""

    def __init__(self, root: Path, known: Sequence[str]) -> None:
        self._root = root
        self._known = known
        self._search = Search(root)
        self.of: dict[str, Evidence] = {}

    def read(self) -> dict[str, Evidence]:
        tests = self._root / "tests"
        for path in sorted(tests.rglob("test_*.py")):
            self._read_module(path, path.relative_to(tests).as_posix())
        for path in sorted(tests.rglob("*.txt")):
            ids = self._ids(path.read_text(encoding="utf-8"), path.relative_to(tests).as_posix())
            if ids:
                self._add(ids, path.relative_to(tests).as_posix(), self._places_of_runner(path))
        return {identifier: Evidence(dict(sorted(each.tests.items()))) for identifier, each in self.of.items()}

    def _read_module(self, path: Path, name: str) -> None:
        module = self._module(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        tables = self._tables(module, lines, name)
        for prefix, test, enclosing in _tests(module.tree, name):
            node_id = f"{prefix}::{test.name}"
            first = min([test.lineno, *(each.lineno for each in test.decorator_list)])
            ids = self._ids("\n".join(lines[first - 1 : test.end_lineno]), node_id)
            if ids or tables:
                reached = self._search.reach(module, test, enclosing)
                for table in sorted(reached.own & tables.keys()):
                    ids |= dict.fromkeys(tables[table])
                if ids:
                    self._add(ids, node_id, reached.places())

    def _tables(self, module: Module, lines: list[str], name: str) -> dict[str, dict[str, None]]:
        """The ids in each table of cases: a value at the top of a module, with the comment above it."""
        found: dict[str, dict[str, None]] = {}
        for table, node in module.defined.items():
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            first = node.lineno
            while first > 1 and lines[first - 2].startswith("#"):
                first -= 1
            ids = self._ids("\n".join(lines[first - 1 : node.end_lineno]), name)
            if ids:
                found[table] = ids
        return found

    def _places_of_runner(self, path: Path) -> frozenset[str]:
        """Where a file of cases is run: by the tests of its folder that speak of such files."""
        found: frozenset[str] = frozenset()
        for runner in sorted(path.parent.glob("test_*.py")):
            module = self._module(runner)
            for _, test, enclosing in _tests(module.tree, runner.name):
                reached = self._search.reach(module, test, enclosing)
                if reached.texts & {path.name, "*.txt"}:
                    found |= reached.places() - {"document"}
        return found

    def _module(self, path: Path) -> Module:
        found = self._search.module(".".join(path.relative_to(self._root).with_suffix("").parts))
        if found is None:
            raise FileNotFoundError(path)
        return found

    def _ids(self, text: str, test: str) -> dict[str, None]:
        try:
            return dict.fromkeys(cited_ids(text, self._known))
        except UnknownRequirement as error:
            raise UnknownRequirement(f"tests/{test}: {error}") from None

    def _add(self, ids: Mapping[str, None], test: str, places: frozenset[str]) -> None:
        for identifier in ids:
            self.of.setdefault(identifier, Evidence()).tests[test] = places


def _tests(tree: ast.Module, name: str) -> Iterator[tuple[str, Test, ast.ClassDef | None]]:
    for node in tree.body:
        enclosing = node if isinstance(node, ast.ClassDef) else None
        prefix = f"{name}::{enclosing.name}" if enclosing is not None else name
        for each in [node] if enclosing is None else enclosing.body:
            if isinstance(each, Test) and each.name.startswith("test"):
                yield prefix, each, enclosing


def read_citations(root: Path, known: Sequence[str]) -> dict[str, Evidence]:
    """For each id the tests that cite it, in order of their names, and where they show it."""
    return Citations(root, known).read()


# --- the report ---


@dataclass(frozen=True)
class Counts:
    """How many rows there are of each state.

    `weak` are said to be shown, or done otherwise, and no test is where their check asks for one.
    """

    all: int
    shown: int
    otherwise: int
    part: int
    open: int
    weak: tuple[str, ...]

    def cells(self) -> str:
        return f"{self.all} | {self.shown} | {self.otherwise} | {self.part} | {self.open}"


def count(rows: Mapping[str, Requirement], cited: Mapping[str, Evidence]) -> Counts:
    claimed = {key: row for key, row in rows.items() if row.state in {"shown", "otherwise"}}
    weak = tuple(key for key, row in claimed.items() if key not in cited or not cited[key].shows(row.asks))
    states = [row.state for key, row in rows.items() if key not in weak]
    shown, otherwise, part, open_ = (states.count(state) for state in ("shown", "otherwise", "part", "open"))
    return Counts(len(rows), shown, otherwise, part, open_, weak)


HEAD = """\
# Requirements and the tests that show them

`make trace` writes this page from [requirements.toml](requirements.toml) and from the ids that tests cite; do not edit
it. Of {all} requirements {shown} are shown by a test where their check asks for it, {otherwise} are met otherwise than
the papers say, on purpose ([DEPARTURES](DEPARTURES.md)), {part} are shown in part, and {open} are open.

- *says*: what the papers ask. *check*: how one sees that it is so.
- *shown in*: where the tests that cite the id run, computed from what they run; in brackets, where the check asks for
  it. What is shown on a more real rung is shown for the ones before it: engine, core, simulator, sockets, processes.
- *tests*: the tests that cite the id, under `tests/`.
- *remarks*: **departs**: what Veena does otherwise and why. **part**: what is not shown yet. **open**: not there yet.
"""


def render(groups: Mapping[str, Group], cited: Mapping[str, Evidence]) -> str:
    rows = rows_of(groups)
    whole = count(rows, cited)
    numbers = {"all": whole.all, "shown": whole.shown, "otherwise": whole.otherwise}
    lines = HEAD.format(**numbers, part=whole.part, open=whole.open).split("\n")
    lines += [
        "| group | about | requirements | shown | otherwise | in part | open |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, group in groups.items():
        lines.append(f"| [{name}](#{name.lower()}) | {group.title} | {count(group.rows, cited).cells()} |")
    lines += [f"| all | | {whole.cells()} |", "", *_by_place(rows, cited)]
    if whole.weak:
        lines += ["", f"Said to be shown, but not where the check asks for it: {', '.join(whole.weak)}."]
    for name, group in groups.items():
        lines += ["", f"## {name}", "", f"{group.title}.", ""]
        lines += ["| id | says | check | shown in | tests | remarks |", "|---|---|---|---|---|---|"]
        lines += [_row(row, cited.get(row.id, Evidence())) for row in group.rows.values()]
    return "\n".join(lines) + "\n"


def _by_place(rows: Mapping[str, Requirement], cited: Mapping[str, Evidence]) -> Iterator[str]:
    yield "| place | what a test there does | ids cited there | checks that ask for it | shown or otherwise |"
    yield "|---|---|---:|---:|---:|"
    for place, about in PLACES.items():
        there = sum(place in each.places for each in cited.values())
        asked = {key: row for key, row in rows.items() if row.asks == place}
        counts = count(asked, cited)
        yield f"| {place} | {about} | {there} | {len(asked)} | {counts.shown + counts.otherwise} |"


def _row(row: Requirement, evidence: Evidence) -> str:
    tests = "<br>".join(f"`{test}`" for test in evidence.tests) or "-"
    places = ", ".join(place for place in PLACES if place in evidence.places) or "nowhere"
    remarks = [(name, getattr(row, name)) for name in ("departs", "part", "open")]
    said = "<br>".join(f"**{name}**: {_cell(text)}" for name, text in remarks if text)
    return f"| {row.id} | {_cell(row.says)} | {_cell(row.check)} | {places} ({row.asks}) | {tests} | {said} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


@cache
def evidence() -> dict[str, Evidence]:
    """What the tests of this project cite."""
    return read_citations(ROOT, list(rows_of(read_requirements())))


def main(arguments: Sequence[str]) -> int:
    if [each for each in arguments if each != "--check"]:
        sys.stderr.write("usage: python docs/trace.py [--check]\n")
        return 2
    try:
        report = render(read_requirements(), evidence())
    except UnknownRequirement as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if "--check" in arguments:
        if not REPORT.exists() or REPORT.read_text(encoding="utf-8") != report:
            sys.stderr.write("docs/TRACEABILITY.md is stale: run `make trace`\n")
            return 1
        return 0
    REPORT.write_text(report, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
