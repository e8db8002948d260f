"""The house rules that a machine can hold us to: layers, banned imports, sizes, words."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "veena"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

#: A module may import from its own layer or one with a lower number; leaves only from themselves and below.
LAYERS = {
    "errors": 0,
    "address": 1,
    "event": 1,
    "matching": 2,
    "core": 3,
    "runtime": 4,
    "client": 5,
    "blocking": 6,
    "jms": 6,
    "peer": 6,
    "testing": 6,
    "collab": 8,
    "gateways": 7,
    "services": 7,
    "spark": 7,
    "sim": 7,
    "dashboard": 7,
    "bench": 7,
    "cli": 9,
}
LEAVES = {"gateways", "services", "spark", "sim", "dashboard", "bench"}
PURE_BANNED = {
    "asyncio", "socket", "ssl", "selectors", "time", "datetime", "random", "secrets", "os", "io", "pathlib", "shutil",
    "tempfile", "logging", "threading", "multiprocessing", "concurrent", "subprocess", "sqlite3", "urllib", "http",
    "pickle", "signal",
}  # fmt: skip
BANNED_NAMES = {"utils", "common", "types", "manager", "helpers"}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in sorted(set(listed)) if (ROOT / name).exists()]


def _noun(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" if module == "veena" else module for alias in node.names)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    noun = _noun(path)
    if noun == "__init__":
        return
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] != "veena" or len(parts) < 2 or parts[1] == "__version__":
            continue
        target = parts[1] if parts[1] in LAYERS else "event"
        assert LAYERS[target] <= LAYERS[noun], f"{path}: {noun} must not import {name}"
        assert target != "testing" or noun == "testing", f"{path}: what is for tests is used by tests alone"
        if target in LEAVES and noun in LEAVES:
            assert target == noun, f"{path}: leaves do not import each other ({name})"


@pytest.mark.parametrize("noun", ["core", "matching"])
def test_pure_layers_do_no_io(noun: str) -> None:
    for path in sorted((SOURCE / noun).rglob("*.py")):
        banned = {name.split(".")[0] for name in _imports(path)} & PURE_BANNED
        assert not banned, f"{path} imports {sorted(banned)}: {noun} takes time, chance and bytes as arguments"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "print", "input", "eval", "exec", "hash"}, (
                    f"{path}:{node.lineno}: {node.func.id}() has no place in {noun}"
                )


def test_no_set_is_iterated_in_the_core() -> None:
    for path in sorted((SOURCE / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
            assert not isinstance(iterated, ast.Set | ast.SetComp), f"{path}: iterate something with an order"
            if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
                assert iterated.func.id not in {"set", "frozenset"}, f"{path}: iterate something with an order"


@pytest.mark.parametrize("path", _python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= MAX_FILE_LINES, f"{path} has {lines} lines; split it by what it says"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name} has {length} lines"


def test_names_say_what_is_inside() -> None:
    for path in _modules():
        assert path.stem not in BANNED_NAMES, f"{path}: name it after what it decides"


def test_every_module_says_what_it_is() -> None:
    for path in _modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_pins_hold_names_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, equals, version = line.partition("==")
        assert equals and name and version, f"constraints.txt: {line!r}"
        assert "/" not in line, f"constraints.txt: {line!r}"


def test_the_broker_holds_no_application_logic() -> None:
    """TOP-01: the core knows matching and addresses, nothing of clients' programs, services or transports."""
    for path in sorted((SOURCE / "core").rglob("*.py")):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "veena" and len(parts) > 1:
                assert parts[1] in {"core", "matching", "address", "event", "errors"} or "." not in name, (path, name)
