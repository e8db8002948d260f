"""Where a test shows what it shows: in an engine, in a core broker, in the simulator, over sockets, in a browser, ...

The answer is computed from what the test runs, so nobody has to keep it by hand. The search starts at the test function
and goes on to the helpers, fixtures and tables that it names, through the whole tests tree and, of the package, through
the simulator and the benchmarks. Only names that are used count. An import, an annotation, a docstring or a helper that
another test calls proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: Each place with what a test there runs.
PLACES = {
    "document": "reads the texts or the sources of this project",
    "engine": "pure functions: matching engines, addresses, graphs, parsers, reports",
    "core": "the parts of a broker, driven directly, input by input",
    "simulator": "networks of core brokers on a virtual clock, with faults",
    "sockets": "brokers and clients over real sockets, in the process of the test",
    "processes": "brokers as processes of their own, some of them ended by `kill -9`",
    "browser": "the web pages in a real Chromium",
    "Spark": "a real Spark session",
}
#: From the least to the most like a running system; what is shown further right is shown for all to its left.
LADDER = ("engine", "core", "simulator", "sockets", "processes")

#: Last names of what opens sockets, by the package that has it. Packages, so that modules may move within them.
SOCKETS = {
    "veena": {"connect"},
    "veena.client": {"connect"},
    "veena.blocking": {"connect"},
    "veena.runtime": {"listen", "Node"},
    "veena.testing": {"network", "broker", "AsyncNetwork", "Network", "SingleBroker", "Starting"},
    "asyncio": {"start_server", "open_connection", "start_unix_server"},
    "socket": {"socket", "create_connection", "create_server"},
    "urllib": {"urlopen"},
}
#: ... and of what starts brokers as processes.
PROCESSES = {"veena.runtime": {"Fleet", "spawn"}, "veena.testing": {"AsProcess"}}
STARTS_A_PROCESS = {
    "subprocess.Popen", "subprocess.run", "subprocess.check_output", "subprocess.check_call",
    "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
}  # fmt: skip
#: Commands of `veena` that run brokers as processes; `broker run` does where it is itself started as one.
FLEETS = (
    ("network", "up"), ("demo",), ("bench", "broker"), ("bench", "network"), ("experiment", "latency"),
    ("experiment", "collaboratory"), ("experiment", "induced-roam"),
)  # fmt: skip
ONE_BROKER = ("broker", "run")
SIMULATIONS = (("sim", "run"), ("sim", "soak"), ("experiment", "discovery"))
#: Packages whose functions are looked into; of all others the name says enough.
FOLLOWED = ("veena.sim", "veena.bench")
FIXTURES = {"veena_broker", "veena_network"}

Test = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Used:
    """What a piece of code uses: names with dots, command lines, and what it says with keywords."""

    names: set[str] = field(default_factory=set)
    words: list[tuple[str, ...]] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    as_processes: bool = False


class Reader(ast.NodeVisitor):
    """Collects what code uses, but not its annotations, its docstrings and its local names."""

    def __init__(self) -> None:
        self.used = Used()
        self.local: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.used.names.add(node.id)
        else:
            self.local.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.used.names.add(".".join([inner.id, *reversed(parts)]))
        else:
            self.visit(inner)

    def visit_Call(self, node: ast.Call) -> None:
        self._line(node.args)
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            self.used.as_processes |= is_true and keyword.arg in {"processes", "process"}
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        self._line(node.elts)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self._line(node.elts)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.used.texts.add(node.value)

    def visit_FunctionDef(self, node: Test) -> None:
        self.local.add(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults, *node.decorator_list]:
            if default is not None:
                self.visit(default)
        self._within(node, _without_docstring(node.body))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._within(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in [*node.bases, *node.decorator_list, *_without_docstring(node.body)]:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import inside a function is no local name: the module's table of imports has it."""

    visit_ImportFrom = visit_Import  # noqa: N815

    def _within(self, node: Test | ast.Lambda, body: Sequence[ast.AST]) -> None:
        """The body of a function: what it uses, without the names that it binds itself."""
        inner = Reader()
        inner.local |= {each.arg for each in _arguments(node)}
        for each in body:
            inner.visit(each)
        found = inner.used
        self.used.names |= {name for name in found.names if name.split(".")[0] not in inner.local}
        self.used.words += found.words
        self.used.texts |= found.texts
        self.used.as_processes |= found.as_processes

    def _line(self, values: list[ast.expr]) -> None:
        """Words that stand side by side, as in `veena("broker", "run", ...)`: they may be a command."""
        words = [each.value if isinstance(each, ast.Constant) else None for each in values]
        for at in range(len(words)):
            line = tuple(each for each in words[at : at + 2] if isinstance(each, str))
            if line and isinstance(words[at], str):
                self.used.words.append(line)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def _arguments(node: Test | ast.Lambda) -> list[ast.arg]:
    found = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return found + [each for each in (node.args.vararg, node.args.kwarg) if each is not None]


class Module:
    """A source file: what it defines and what it imports."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.defined: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.defined[node.name] = node
            else:
                for target in _assigned(node):
                    self.defined[target] = node

    @cached_property
    def imported(self) -> dict[str, str]:
        """For each name what it stands for, wherever in the file it is imported."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return found

    @cached_property
    def fixtures(self) -> list[tuple[str, Test, bool]]:
        """The name of each fixture, its function, and whether every test has it."""
        found: list[tuple[str, Test, bool]] = []
        for node in self.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if ast.unparse(called).split(".")[-1] == "fixture":
                    given = decorator.keywords if isinstance(decorator, ast.Call) else []
                    said = {each.arg: each.value.value for each in given if isinstance(each.value, ast.Constant)}
                    found.append((str(said.get("name", node.name)), node, bool(said.get("autouse"))))
        return found


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


class Search:
    """Looks for what the tests of one project run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}
        self._evidence: dict[int, Used] = {}
        self._found: dict[str, tuple[Module, str] | None] = {}

    def module(self, name: str) -> Module | None:
        """A module of the tests tree, or of a package that is looked into."""
        if name not in self._modules:
            is_test = _under(name, "tests")
            path = (self._root if is_test else self._root / "src") / Path(*name.split("."))
            wanted = is_test or any(_under(name, package) for package in FOLLOWED)
            files = [path.with_suffix(".py"), path / "__init__.py"] if wanted else []
            found = next((each for each in files if each.is_file()), None)
            self._modules[name] = None if found is None else Module(name, found)
        return self._modules[name]

    def find(self, name: str) -> tuple[Module, str] | None:
        """The module that a name with its whole path comes from, and its name there."""
        if name not in self._found:
            parts = name.split(".")
            self._found[name] = None
            for at in range(len(parts) - 1, 0, -1):
                module = self.module(".".join(parts[:at]))
                if module is not None and (parts[at] in module.defined or parts[at] in module.imported):
                    self._found[name] = module, parts[at]
                    break
        return self._found[name]

    def reach(self, module: Module, test: Test, enclosing: ast.ClassDef | None = None) -> Reached:
        """Everything that a test runs."""
        reached = Reached(self)
        reached.add_test(module, test, enclosing)
        return reached

    def used(self, node: ast.AST) -> Used:
        found = self._evidence.get(id(node))
        if found is None:
            reader = Reader()
            reader.visit(node)
            found = self._evidence[id(node)] = reader.used
        return found


class Reached:
    """What one test runs: the definitions that were looked at, and the foreign names that they use."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._seen: set[int] = set()
        self.foreign: set[str] = set()
        self.words: set[tuple[str, ...]] = set()
        self.texts: set[str] = set()
        self._as_processes = False
        #: Top-level names of the test's own module: which tables of cases it uses.
        self.own: set[str] = set()
        self._module: Module | None = None

    def add_test(self, module: Module, test: Test, enclosing: ast.ClassDef | None) -> None:
        self._module = module
        self._add(module, test)
        for each in enclosing.body if enclosing is not None else []:
            if not (isinstance(each, Test) and each.name.startswith("test")):
                self._add(module, each)
        for decorator in [*test.decorator_list, *(enclosing.decorator_list if enclosing is not None else [])]:
            if "usefixtures" in ast.unparse(decorator) and isinstance(decorator, ast.Call):
                for named in decorator.args:
                    self._fixture(module, str(getattr(named, "value", "")))
        for place in self._around(module):
            for _, function, is_for_all in place.fixtures:
                if is_for_all:
                    self._add(place, function)

    def _around(self, module: Module) -> Iterator[Module]:
        """The module, and the conftest.py files of the folders around it."""
        yield module
        parts = module.name.split(".")[:-1]
        for at in range(len(parts), 0, -1):
            found = self._search.module(".".join([*parts[:at], "conftest"]))
            if found is not None:
                yield found

    def _fixture(self, module: Module, name: str) -> None:
        for place in self._around(module):
            for known, function, _ in place.fixtures:
                if known == name:
                    self._add(place, function)
                    return
        if name in module.imported:
            self._name(module, name)
        elif name in FIXTURES:
            self.foreign.add(f"veena.testing.{name.removeprefix('veena_')}")

    def _add(self, module: Module, node: ast.AST) -> None:
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        used = self._search.used(node)
        self.words.update(used.words)
        self.texts |= used.texts
        self._as_processes |= used.as_processes
        for name in sorted(used.names):
            self._name(module, name)
        if isinstance(node, Test) and (node.name.startswith("test") or node in [f for _, f, _ in module.fixtures]):
            for argument in _arguments(node):
                self._fixture(module, argument.arg)

    def _name(self, module: Module, name: str) -> None:
        first, _, rest = name.partition(".")
        if first in module.defined:
            if module is self._module:
                self.own.add(first)
            self._add(module, module.defined[first])
        elif first in module.imported:
            self._foreign(".".join(each for each in (module.imported[first], rest) if each))

    def _foreign(self, name: str) -> None:
        """A name with its whole path: what is known of its module is looked at, the rest is noted."""
        if name in self.foreign:
            return
        self.foreign.add(name)
        found = self._search.find(name)
        if found is not None:
            self._name(*found)

    # --- what that amounts to ---

    def places(self) -> frozenset[str]:
        """The most real rung of the ladder that was used, and what is beside the ladder."""
        rung = self._rung()
        beside = {place for place in ("browser", "Spark") if self._uses(place)}
        if any(text.endswith(".md") or text == "docs" for text in self.texts) or (rung is None and not beside):
            beside.add("document")
        if rung in {"engine", "core"} and beside & {"browser", "Spark"}:
            rung = None
        return frozenset({*beside, *([rung] if rung else [])})

    def _rung(self) -> str | None:
        starts = any(name in STARTS_A_PROCESS for name in self.foreign)
        is_fleet = any(line[: len(command)] == command for line in self.words for command in FLEETS)
        is_one = any(line[:2] == ONE_BROKER for line in self.words)
        tests_network = any(_is_of(name, {"veena.testing": SOCKETS["veena.testing"]}) for name in self.foreign)
        runs_command = starts or any(_under(name, "veena.cli") for name in self.foreign)
        if (
            any(_is_of(name, PROCESSES) for name in self.foreign)
            or (tests_network and self._as_processes)
            or (runs_command and is_fleet)
            or (starts and is_one)
        ):
            return "processes"
        if any(_is_of(name, SOCKETS) for name in self.foreign) or (runs_command and is_one):
            return "sockets"
        is_simulation = any(line[:2] in SIMULATIONS for line in self.words) and runs_command
        if is_simulation or any(_under(name, "veena.sim") and name.endswith(".World") for name in self.foreign):
            return "simulator"
        if any(_under(name, "veena.core") and _is_machine(name) for name in self.foreign):
            return "core"
        return "engine" if any(_under(name, "veena") for name in self.foreign) or runs_command else None

    def _uses(self, place: str) -> bool:
        if place == "browser":
            return any(_under(name, "playwright") for name in self.foreign)
        return any(
            name == "pyspark.sql.SparkSession"
            or name.startswith("pyspark.sql.SparkSession.")
            or (_under(name, "veena.spark") and name.endswith(".session"))
            for name in self.foreign
        )


def _under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _is_of(name: str, table: dict[str, set[str]]) -> bool:
    """Whether a name, or the object whose attribute it is, stands in the table of its package."""
    for package, last in table.items():
        if _under(name, package):
            rest = name[len(package) + 1 :].split(".")
            if package == "veena":
                rest = rest[:1]
            if any(part in last for part in rest):
                return True
    return False


def _is_machine(name: str) -> bool:
    """Constants and settings are used by everybody; they run nothing."""
    parts = name.split(".")
    thing = next((part for part in parts if part[:1].isupper()), parts[-1])
    return not (thing.isupper() or thing == "Settings")
