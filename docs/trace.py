"""Which test speaks for which requirement: reads requirements.toml and every test, writes TRACEABILITY.md.

    python docs/trace.py            write docs/TRACEABILITY.md
    python docs/trace.py --check    exit 1 if the file on disk is not what would be written

A test cites an id in its docstring, a comment or its data: `GPP-07`, a range `NOP-01..19`, a list `DST-01/02`. Ids in
a test module outside its test functions (tables of cases) count for the whole file, those in its docstring do not.
Scenario files count as one test each. An id that requirements.toml does not have is an error: a slip of the pen.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.toml"
REPORT = ROOT / "docs" / "TRACEABILITY.md"

#: `GPP-07` and what may follow it: `..19`, `..GPP-19`, `/08`, in any number.
CITATION = re.compile(r"(?<![\w-])([A-Z]{3})-(\d{2})(?!\d)((?:(?:\.\.|/)(?:[A-Z]{3}-)?\d{2}(?!\d))*)")
STEP = re.compile(r"(\.\.|/)(?:([A-Z]{3})-)?(\d{2})")

#: A group of requirements: its title, and the statement of each id.
Group = tuple[str, dict[str, str]]


class UnknownRequirement(Exception):
    """A test cites what is not in requirements.toml."""


def read_requirements(path: Path = REQUIREMENTS) -> dict[str, Group]:
    """The groups in the order of the file."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    groups: dict[str, Group] = {}
    for name, table in document.items():
        statements = {key: str(value) for key, value in table.items() if key != "title"}
        groups[name] = (str(table["title"]), statements)
    return groups


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


def passages(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """The tests of a file with their text, by node id as pytest prints it; the rest of the file under its own name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield name, text
        return
    lines = text.splitlines()
    module = ast.parse(text)
    rest = list(lines)
    if ast.get_docstring(module) is not None:
        _blank(rest, module.body[0].lineno, module.body[0].end_lineno)
    for prefix, node in _tests(module, name):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        yield f"{prefix}::{node.name}", "\n".join(lines[first - 1 : node.end_lineno])
        _blank(rest, first, node.end_lineno)
    yield name, "\n".join(rest)


def _tests(module: ast.Module, name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in module.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{name}::{node.name}" if isinstance(node, ast.ClassDef) else name
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
                yield prefix, each


def _blank(lines: list[str], first: int, last: int | None) -> None:
    for at in range(first - 1, last or first):
        lines[at] = ""


def read_citations(root: Path, known: Sequence[str]) -> dict[str, list[str]]:
    """For each id the tests that cite it, in order of their names."""
    cited: dict[str, dict[str, None]] = {}
    tests = root / "tests"
    files = sorted([*tests.rglob("test_*.py"), *tests.rglob("*.txt")])
    for path in files:
        name = path.relative_to(tests).as_posix()
        for test, text in passages(path, name):
            try:
                for identifier in cited_ids(text, known):
                    cited.setdefault(identifier, {})[test] = None
            except UnknownRequirement as error:
                raise UnknownRequirement(f"tests/{test}: {error}") from None
    return {identifier: sorted(tests_of) for identifier, tests_of in cited.items()}


def render(groups: Mapping[str, Group], cited: Mapping[str, Sequence[str]]) -> str:
    total = sum(len(statements) for _, statements in groups.values())
    done = sum(identifier in cited for _, statements in groups.values() for identifier in statements)
    lines = [
        "# Requirements and the tests that speak for them",
        "",
        "Written by `make trace` from [requirements.toml](requirements.toml) and the ids that tests cite; do not edit.",
        f"Of {total} requirements {done} are cited by a test.",
        "",
        "| group | about | requirements | tested | not yet |",
        "|---|---|---:|---:|---:|",
    ]
    for name, (title, statements) in groups.items():
        tested = sum(identifier in cited for identifier in statements)
        anchor = f"[{name}](#{name.lower()})"
        lines.append(f"| {anchor} | {title} | {len(statements)} | {tested} | {len(statements) - tested} |")
    lines.append(f"| all | | {total} | {done} | {total - done} |")
    for name, (title, statements) in groups.items():
        lines += ["", f"## {name}", "", f"{title}.", "", "| id | requirement | tests |", "|---|---|---|"]
        for identifier, statement in statements.items():
            tests = "<br>".join(f"`{test}`" for test in cited.get(identifier, ())) or "not yet"
            lines.append(f"| {identifier} | {_cell(statement)} | {tests} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def main(arguments: Sequence[str]) -> int:
    if [each for each in arguments if each != "--check"]:
        sys.stderr.write("usage: python docs/trace.py [--check]\n")
        return 2
    groups = read_requirements()
    known = [identifier for _, statements in groups.values() for identifier in statements]
    try:
        report = render(groups, read_citations(ROOT, known))
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
