"""The house rules that a machine can hold us to: layers, rooms, banned imports, sizes, words.

Each rule is a function of a tree's root that yields one line an offender, so that one run shows all of them. The rules
are themselves tested: `PLANTED` breaks each of them in a small tree, and the rule must say so.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_MODULES_IN_A_ROOM = 20
SIGN_LINES = range(3, 11)

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

#: What composes the rooms of a package: the modules at its top that no order names.
TOP = "(top)"
#: The rooms of each package from low to high; several orders where a room is above some rooms and beside others. A room
#: may import from those before it in an order that has both. A name may be that of one module, such as `journal`.
ROOM_LAYERS: dict[str, list[str]] = {
    "core": [
        (
            "wire boundary trust topology links messages journal interest delivery routing publishing durable sessions"
            " explain"
        ),
        "wire boundary trust topology links interest membership discovery",
    ],
    "runtime": [
        (
            "supervision logging steps toml_text evaluation networks transports pki links fleet store access export"
            " locator config clients broker"
        ),
    ],
    "matching": ["base covering condition index tags xpath simple engines"],
    "spark": ["log launch source archive matching audit analyze bench scale sink"],
    "sim": ["networks world clients judges runs explaining", "networks world clients judges runs experiments"],
    "services": ["structured wording dictionary trading domain application member", "structured wording adviser"],
    "dashboard": ["pictures sessions pages"],
    "bench": ["progress report_folder manned_fleet matching load latency collaboratory endurance fuzzing steps"],
    "cli": [
        f"plain completion connection stdin {room}"
        for room in ("broker", "client", "pipeline", "collab", "lab", "demo")
    ],
}  # fmt: skip
#: Modules of one room that import each other today, each knot as what it has in common. No other may come.
KNOTS: dict[str, list[set[str]]] = {
    "client": [{"broker_list", "explain", "questions", "session"}],
    "services": [{"member/chat", "member/member", "member/shadow"}],
    "sim": [{"world/dialling", "world/narrow_links", "world/world"}],
    "spark": [{"bench/match", "bench/push", "bench/read", "bench/suite"}],
}

PURE = ("core", "matching")
PURE_BANNED = {
    "asyncio", "socket", "ssl", "selectors", "time", "datetime", "random", "secrets", "os", "io", "pathlib", "shutil",
    "tempfile", "logging", "threading", "multiprocessing", "concurrent", "subprocess", "sqlite3", "urllib", "http",
    "pickle", "signal",
}  # fmt: skip
PURE_BANNED_CALLS = {"open", "print", "input", "eval", "exec", "hash"}
BANNED_NAMES = {"utils", "common", "types", "manager", "helpers"}

Rule = Callable[[Path], Iterator[str]]


# -- what the rules look at ------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _read(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def _source(root: Path) -> Path:
    return root / "src" / "veena"


def _modules(root: Path, package: str = "") -> list[Path]:
    return sorted((_source(root) / package).rglob("*.py"))


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


@lru_cache(maxsize=2048)
def _imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Every name that is imported, with its line: lazily and for annotations too. `from a import b` gives `a.b`."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(_read(path)[1]):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


@lru_cache(maxsize=1 << 15)
def _module_of(root: Path, name: str) -> str | None:
    """The module of ours that an imported name is, or is in: `core/links/link`; a package is its `__init__`."""
    parts = name.split(".")
    if parts[0] != "veena":
        return None
    for length in range(len(parts), 0, -1):
        there = _source(root).joinpath(*parts[1:length])
        if there.with_suffix(".py").is_file() and length > 1:
            return "/".join(parts[1:length])
        if (there / "__init__.py").is_file():
            return "/".join([*parts[1:length], "__init__"])
    return None


def _edges(root: Path, package: str) -> Iterator[tuple[str, str, str]]:
    """(importing module, imported module, where), both within the package and relative to it."""
    for path in _modules(root, package):
        here = path.relative_to(_source(root) / package).with_suffix("").as_posix()
        for line, name in _imports(path):
            module = _module_of(root, name)
            if module is not None and module.startswith(f"{package}/"):
                there = module.removeprefix(f"{package}/")
                if there != here:
                    yield here, there, f"{_name(root, path)}:{line}"


def _room(module: str, ordered: set[str]) -> str:
    first = module.partition("/")[0]
    return first if first in ordered or "/" in module else TOP


def _allowed(orders: list[str]) -> dict[str, set[str]]:
    """What each room may import by the order."""
    rooms: dict[str, set[str]] = {}
    for order in orders:
        names = order.split()
        for at, name in enumerate(names):
            rooms.setdefault(name, {name}).update(names[:at])
    return {**rooms, TOP: {*rooms, TOP}}


def _rooms(root: Path) -> list[Path]:
    """The folders of modules inside the packages."""
    folders = {path.parent for path in _modules(root)}
    return sorted(folder for folder in folders if len(folder.relative_to(_source(root)).parts) > 1)


def _python_files(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [root / name for name in sorted(set(listed)) if (root / name).exists()]


# -- the rules -------------------------------------------------------------------------------------------------------


def imports_are_written_in_full(root: Path) -> Iterator[str]:
    for path in _modules(root):
        for node in ast.walk(_read(path)[1]):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{_name(root, path)}:{node.lineno}: relative import; write `from veena.`... in full"


def packages_point_one_way(root: Path) -> Iterator[str]:
    """LAYERS: nothing imports from a layer above, and leaves do not import each other."""
    for path in _modules(root):
        noun = path.relative_to(_source(root)).parts[0].removesuffix(".py")
        if noun == "__init__":
            continue
        if noun not in LAYERS:
            yield f"{_name(root, path)}: {noun} has no layer; give it one in LAYERS"
            continue
        for line, name in _imports(path):
            parts = name.split(".")
            if parts[0] != "veena" or len(parts) < 2 or parts[1] == "__version__":
                continue
            target = parts[1] if parts[1] in LAYERS else "event"
            where = f"{_name(root, path)}:{line}"
            if LAYERS[target] > LAYERS[noun]:
                yield f"{where}: {noun} must not import {name}, which is in a layer above"
            if target == "testing" != noun:
                yield f"{where}: what is for tests is used by tests alone"
            if target in LEAVES and noun in LEAVES and target != noun:
                yield f"{where}: leaves do not import each other ({name})"


def rooms_point_one_way(root: Path) -> Iterator[str]:
    """ROOM_LAYERS: inside a package no room imports from one above it, be it lazily or for annotations alone."""
    for package, orders in ROOM_LAYERS.items():
        allowed = _allowed(orders)
        for here, there, where in _edges(root, package):
            if "__init__" in {here, there}:  # the package's own door: what it shows lies in its rooms
                continue
            room, target = _room(here, set(allowed)), _room(there, set(allowed))
            if room not in allowed or target not in allowed:
                unknown = room if room not in allowed else target
                yield f"{where}: room {package}/{unknown} has no place in the order; give it one in ROOM_LAYERS"
            elif target not in allowed[room]:
                yield f"{where}: {package}/{room} must not import {there.replace('/', '.')}, which is not below it"


def no_module_imports_itself_by_others(root: Path) -> Iterator[str]:
    """No cycle of imports among the modules of a package, annotations and lazy imports included."""
    for package in sorted({path.relative_to(_source(root)).parts[0] for path in _rooms(root)} | {"client", "testing"}):
        graph: dict[str, dict[str, None]] = {}
        for here, there, _ in _edges(root, package):
            graph.setdefault(here, {})[there] = None
        for knot in _cycles(graph):
            if not any(set(knot) <= known for known in KNOTS.get(package, [])):
                yield f"src/veena/{package}: these import each other: {', '.join(knot)}"


def _cycles(graph: Mapping[str, Mapping[str, None]]) -> list[list[str]]:
    """The strongly connected parts of more than one module (Tarjan)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        path.append(module)
        for other in graph.get(module, ()):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in path:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            part = path[path.index(module) :]
            del path[path.index(module) :]
            if len(part) > 1:
                found.append(sorted(part))

    for module in graph:
        if module not in number:
            visit(module)
    return found


def rooms_are_small(root: Path) -> Iterator[str]:
    for room in _rooms(root):
        modules = [path for path in room.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > MAX_MODULES_IN_A_ROOM:
            yield f"{_name(root, room)} holds {len(modules)} modules; {MAX_MODULES_IN_A_ROOM} are a room, more are two"


def rooms_have_signs(root: Path) -> Iterator[str]:
    """A room's `__init__.py` is its sign: prose of three to ten lines, and nothing that runs."""
    for room in _rooms(root):
        sign = room / "__init__.py"
        if not sign.is_file():
            yield f"{_name(root, room)} has no sign: write what it decides into {sign.name}"
            continue
        tree = _read(sign)[1]
        written = ast.get_docstring(tree)
        if written is None or len(written.splitlines()) not in SIGN_LINES:
            yield f"{_name(root, sign)}: a sign has {SIGN_LINES.start} to {SIGN_LINES.stop - 1} lines"
        if len(tree.body) > (written is not None):
            yield f"{_name(root, sign)}: a sign is prose alone; its modules are imported by name"


def pure_layers_do_no_io(root: Path) -> Iterator[str]:
    for package in PURE:
        for path in _modules(root, package):
            for line, name in _imports(path):
                if name.partition(".")[0] in PURE_BANNED:
                    yield f"{_name(root, path)}:{line}: {name}: {package} takes time, chance and bytes as arguments"
            for node in ast.walk(_read(path)[1]):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PURE_BANNED_CALLS:
                    yield f"{_name(root, path)}:{node.lineno}: {node.func.id}() has no place in {package}"


def no_set_is_iterated_in_the_core(root: Path) -> Iterator[str]:
    for path in _modules(root, "core"):
        for node in ast.walk(_read(path)[1]):
            iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
            called = iterated.func if isinstance(iterated, ast.Call) else None
            if isinstance(iterated, ast.Set | ast.SetComp) or (
                isinstance(called, ast.Name) and called.id in {"set", "frozenset"}
            ):
                yield f"{_name(root, path)}:{iterated.lineno}: iterate something with an order"  # type: ignore[union-attr]


def files_and_functions_are_short(root: Path) -> Iterator[str]:
    for path in _python_files(root):
        text, tree = _read(path)
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            yield f"{_name(root, path)} has {lines} lines, more than {MAX_FILE_LINES}; split it by what it says"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    yield f"{_name(root, path)}:{node.lineno}: {node.name} has {length} lines"


def names_say_what_is_inside(root: Path) -> Iterator[str]:
    for path in [*_modules(root), *_rooms(root)]:
        if path.stem in BANNED_NAMES:
            yield f"{_name(root, path)}: name it after what it decides"


def every_module_says_what_it_is(root: Path) -> Iterator[str]:
    for path in _modules(root):
        if not ast.get_docstring(_read(path)[1]):
            yield f"{_name(root, path)} has no docstring"


def pins_hold_names_and_versions_only(root: Path) -> Iterator[str]:
    for line in (root / "constraints.txt").read_text().splitlines():
        name, equals, version = line.partition("==")
        if not (equals and name and version) or "/" in line:
            yield f"constraints.txt: {line!r}: expected name==version"


def the_broker_holds_no_application_logic(root: Path) -> Iterator[str]:
    """The core knows matching and addresses, nothing of clients' programs, services or transports."""
    for path in _modules(root, "core"):
        for line, name in _imports(path):
            parts = name.split(".")
            if (
                parts[0] == "veena"
                and len(parts) > 1
                and parts[1] not in {"core", "matching", "address", "event", "errors"}
            ):
                yield f"{_name(root, path)}:{line}: the core must not know {name}"


RULES: list[Rule] = [
    imports_are_written_in_full, packages_point_one_way, rooms_point_one_way, no_module_imports_itself_by_others,
    rooms_are_small, rooms_have_signs, pure_layers_do_no_io, no_set_is_iterated_in_the_core,
    files_and_functions_are_short, names_say_what_is_inside, every_module_says_what_it_is,
    pins_hold_names_and_versions_only, the_broker_holds_no_application_logic,
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Rule) -> None:
    offenders = list(rule(ROOT))
    assert not offenders, "\n".join(["", *offenders])


def test_the_core_imports_no_application() -> None:
    """TOP-01: the broker is made of the core, and that knows nothing of applications."""
    assert len(_modules(ROOT, "core")) > 100 and not list(the_broker_holds_no_application_logic(ROOT))


# -- the rules can fail ----------------------------------------------------------------------------------------------

LONG = "def long() -> None:\n" + "    pass\n" * MAX_FUNCTION_LINES
#: A rule, one file that breaks it, and words of what must be said of it.
PLANTED: list[tuple[Rule, str, str, str]] = [
    (imports_are_written_in_full, "src/veena/core/broker.py", "from . import wire\n", "broker.py:1: relative"),
    (packages_point_one_way, "src/veena/core/broker.py", "def f():\n    import veena.runtime\n", "broker.py:2: core"),
    (packages_point_one_way, "src/veena/spark/a.py", "from veena.sim import b\n", "leaves do not import each other"),
    (packages_point_one_way, "src/veena/cli/a.py", "from veena import testing\n", "used by tests alone"),
    (packages_point_one_way, "src/veena/new/a.py", "", "new has no layer"),
    (rooms_point_one_way, "src/veena/core/wire/a.py", "from veena.core.links import link\n", "core/wire must not"),
    (rooms_point_one_way, "src/veena/core/links/a.py", "from veena.core.broker import x\n", "core/links must not"),
    (rooms_point_one_way, "src/veena/core/membership/a.py", "import veena.core.messages.post\n", "core/membership"),
    (
        rooms_point_one_way,
        "src/veena/core/messages/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from veena.core.journal import Records\n",
        "a.py:3: core/messages must not import journal",
    ),
    (rooms_point_one_way, "src/veena/core/attic/a.py", "import veena.core.links.link\n", "core/attic has no place"),
    (
        no_module_imports_itself_by_others,
        "src/veena/core/links/link.py",
        "def f():\n    from veena.core.links import other\n",
        "links/link, links/other",
    ),
    (rooms_are_small, "src/veena/core/links/", "", f"core/links holds {MAX_MODULES_IN_A_ROOM + 1} modules"),
    (rooms_have_signs, "src/veena/core/attic/a.py", "", "core/attic has no sign"),
    (rooms_have_signs, "src/veena/core/links/__init__.py", '"""One line."""\n', "3 to 10 lines"),
    (rooms_have_signs, "src/veena/core/links/__init__.py", '"""A\n\nB\n"""\nimport json\n', "prose alone"),
    (pure_layers_do_no_io, "src/veena/matching/a.py", "from time import sleep\n", "a.py:1: time.sleep"),
    (pure_layers_do_no_io, "src/veena/core/links/link.py", "open('x')\n", "open() has no place"),
    (no_set_is_iterated_in_the_core, "src/veena/core/links/link.py", "for a in {1, 2}: pass\n", "link.py:1: iterate"),
    (no_set_is_iterated_in_the_core, "src/veena/core/links/link.py", "[a for a in set(x)]\n", "link.py:1: iterate"),
    (files_and_functions_are_short, "tools/a.py", "\n" * (MAX_FILE_LINES + 1), "tools/a.py has 601 lines"),
    (files_and_functions_are_short, "tools/a.py", LONG, "a.py:1: long has 61 lines"),
    (names_say_what_is_inside, "src/veena/cli/common.py", "", "cli/common.py: name it"),
    (every_module_says_what_it_is, "src/veena/core/links/link.py", "x = 1\n", "link.py has no docstring"),
    (pins_hold_names_and_versions_only, "constraints.txt", "veena @ file:///home/x\n", "expected name==version"),
    (the_broker_holds_no_application_logic, "src/veena/core/broker.py", "import veena.services\n", "veena.services"),
]  # fmt: skip
SMALL_TREE = {
    "src/veena/__init__.py": '"""The package."""\n',
    "src/veena/core/__init__.py": '"""The core."""\n',
    "src/veena/core/broker.py": '"""A broker."""\nfrom veena.core.links.link import Link\n',
    "src/veena/core/journal.py": '"""What is recorded."""\n',
    "src/veena/core/links/__init__.py": '"""Links.\n\nOne to a neighbour.\n"""\n',
    "src/veena/core/links/link.py": '"""A link."""\n',
    "src/veena/core/links/other.py": '"""Another."""\nfrom veena.core.links import link\n',
    "src/veena/core/messages/__init__.py": '"""Messages.\n\nBetween brokers.\n"""\n',
    "src/veena/core/messages/post.py": '"""Post."""\nfrom veena.core.links.link import Link\n',
    "constraints.txt": "msgspec==0.20\n",
}


def _small_tree(root: Path) -> Path:
    """A tree that keeps every rule."""
    for name, text in SMALL_TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_has_nothing_to_say_of_a_tree_that_keeps_it(rule: Rule, tmp_path: Path) -> None:
    assert list(rule(_small_tree(tmp_path))) == []


@pytest.mark.parametrize(
    ("rule", "path", "text", "said"), PLANTED, ids=[f"{rule.__name__}-{said}" for rule, _, _, said in PLANTED]
)
def test_a_rule_sees_what_breaks_it(rule: Rule, path: str, text: str, said: str, tmp_path: Path) -> None:
    root = _small_tree(tmp_path)
    if path.endswith("/"):
        for number in range(MAX_MODULES_IN_A_ROOM - 1):
            (root / path / f"more_{number}.py").write_text('"""One more."""\n')
    else:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    found = list(rule(root))
    assert len(found) == 1 and said in found[0], found


def test_every_rule_is_planted() -> None:
    """A rule that nobody has seen fail proves nothing."""
    assert Counter(rule.__name__ for rule in RULES).keys() == Counter(rule.__name__ for rule, *_ in PLANTED).keys()


@pytest.mark.parametrize("package", sorted(ROOM_LAYERS))
def test_the_order_names_rooms_that_are_there(package: str) -> None:
    """A room that was renamed would otherwise take its rule with it."""
    there = {path.stem for path in (_source(ROOT) / package).iterdir()}
    named = {name for order in ROOM_LAYERS[package] for name in order.split()}
    assert named <= there, f"ROOM_LAYERS[{package!r}] names what is not in src/veena/{package}: {named - there}"


def test_the_known_knots_are_still_tied() -> None:
    """A knot that was cut goes from the list, so that it cannot be tied again."""
    for package, knots in KNOTS.items():
        graph: dict[str, dict[str, None]] = {}
        for here, there, _ in _edges(ROOT, package):
            graph.setdefault(here, {})[there] = None
        tied = [set(cycle) for cycle in _cycles(graph)]
        for knot in knots:
            assert any(cycle <= knot for cycle in tied), f"KNOTS[{package!r}]: {sorted(knot)} is cut; take it out"
