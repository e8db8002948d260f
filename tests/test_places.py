"""Where a test shows what it shows: planted tests, among them such as pretend to run more than they do."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _places() -> ModuleType:
    spec = importlib.util.spec_from_file_location("places_tool", ROOT / "docs" / "places.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


places = _places()

HELPERS = """
import subprocess
import sys
from veena import testing

def run(*words): return subprocess.run([sys.executable, "-m", "veena.cli", *words])
def started(words): return subprocess.Popen(words)
def network(): return testing.network({"a": 1})
class Stage:
    def __init__(self): self.world = make()
from veena.sim.world import World
def make() -> None: return World()
"""
CONFTEST = """
import pytest
from veena.spark.session import session
from playwright.sync_api import sync_playwright

@pytest.fixture(scope="session")
def spark(): return session("local[2]")

@pytest.fixture(name="page")
def _page():
    with sync_playwright() as run: yield run
"""
SIM = {
    "run.py": "from veena.sim.world import World\ndef drive(seed): return World(seed)\ndef parse(text): return text\n"
}


def found(tmp_path: Path, text: str, name: str = "test_it") -> set[str]:
    """The places of a test in a planted tree with helpers two folders away."""
    room = tmp_path / "tests" / "room" / "corner"
    room.mkdir(parents=True, exist_ok=True)
    (tmp_path / "tests" / "helpers.py").write_text(HELPERS)
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    for file, content in SIM.items():
        (tmp_path / "src" / "veena" / "sim").mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / "veena" / "sim" / file).write_text(content)
    (room / "test_planted.py").write_text(textwrap.dedent(text))
    search = places.Search(tmp_path)
    module = search.module("tests.room.corner.test_planted")
    for node in module.tree.body:
        inner = getattr(node, "body", []) if type(node).__name__ == "ClassDef" else [node]
        for each in inner:
            if getattr(each, "name", "") == name:
                enclosing = node if inner is not None and each is not node else None
                return set(search.reach(module, each, enclosing).places())
    raise AssertionError(f"there is no {name}")


SHOWN = [
    ("engine", "from veena import matching\ndef test_it(): matching.create('topic')"),
    ("engine", ("from veena.core.settings import SECOND_NS, Settings\nfrom veena import Event\n"
     "def test_it(): Event(Settings(SECOND_NS))")),
    ("core", "from veena.core.broker import Broker\ndef test_it(): Broker()"),
    ("core", "from veena.core.broker import Broker\nBROKER = Broker()\ndef test_it(): BROKER.tick()"),
    ("simulator", "from veena.sim.world import World\ndef test_it(): World()"),
    ("simulator", "from tests.helpers import Stage\ndef test_it(): Stage()"),
    ("simulator", "from veena.sim.run import drive\ndef test_it(): drive(1)"),
    ("engine", "from veena.sim.run import parse\ndef test_it(): parse('')"),
    ("sockets", "def test_it(veena_broker): pass"),
    ("sockets", "from tests import helpers\ndef test_it(): helpers.network()"),
    ("sockets", ("import pytest\nimport veena.testing\n@pytest.fixture(name='net')\ndef _n():\n"
     "    return veena.testing.broker()\ndef test_it(net): pass")),
    ("sockets", "import veena\nclass TestIt:\n    def use(self): veena.connect('')\n    def test_it(self): self.use()"),
    ("processes", "import pytest\n@pytest.mark.veena_network(processes=True)\ndef test_it(veena_network): pass"),
    ("processes", "import veena.testing\ndef test_it(): veena.testing.network(brokers=1, processes=True)"),
    ("processes", "from tests.helpers import run\ndef test_it(): run('broker', 'run')"),
    ("processes", ("from tests.helpers import started\nWORDS = ['-m', 'veena.cli', 'network', 'up']\n"
     "def test_it(): started(WORDS)")),
    ("processes", "from veena.runtime.somewhere.else_ import Fleet\nasync def test_it(): await Fleet().start()"),
    ("Spark", "def test_it(spark): spark.range(1)"),
    ("browser", "def test_it(page): page.goto('')"),
    ("document", "def test_it(): open('README.md')"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "text"), SHOWN)
def test_the_place_of_a_test_is_what_it_runs(tmp_path: Path, place: str, text: str) -> None:
    assert found(tmp_path, text) == {place}


def test_places_beside_the_ladder_are_told_with_it(tmp_path: Path) -> None:
    assert found(tmp_path, "def test_it(spark, veena_broker): pass") == {"Spark", "sockets"}
    text = "from veena.core.broker import Broker\ndef test_it(): Broker(open('docs/WIRE.md'))"
    assert found(tmp_path, text) == {"core", "document"}


PRETENDED = [
    ("an import that nobody uses", "import veena.testing\nfrom veena import Event\ndef test_it(): Event()"),
    ("an annotation", ("import veena.testing\nfrom veena import Event\n"
     "def test_it(a: veena.testing.Network = None) -> veena.testing.Network: Event()")),
    ("a local with an annotation", ("import veena.testing\nfrom veena import Event\n"
     "def test_it():\n    net: veena.testing.Network\n    Event()")),
    ("a docstring and a comment", ("import veena.testing\nfrom veena import Event\n"
     "def test_it():\n    '''veena.testing.network(processes=True)'''\n    Event()  # veena.testing.network()")),
    ("a helper of another test", ("import veena.testing\nfrom veena import Event\n"
     "def helper(): veena.testing.network()\ndef test_other(): helper()\ndef test_it(): Event()")),
    ("a fixture of another test", ("import veena.testing, pytest\nfrom veena import Event\n@pytest.fixture\n"
     "def net(): return veena.testing.network()\ndef test_other(net): pass\ndef test_it(): Event()")),
    ("a local of the same name", ("from tests.helpers import network\nfrom veena import Event\n"
     "def test_it():\n    network = Event()\n    network.start()")),
    ("words that no command gets", "from veena import Event\ndef test_it(): Event('broker', 'run')"),
    ("a process that runs no broker", ("from tests.helpers import run\nfrom veena import Event\n"
     "def test_it(): run('topology', 'check', Event())")),
    ("a keyword of something else", "from veena import Event\ndef test_it(): Event(processes=True)"),
    ("connecting to a file", "from veena.runtime.store_file import connect\ndef test_it(): connect()"),
    ("another method of the class", ("import veena\nfrom veena import Event\nclass TestIt:\n"
     "    def test_other(self): veena.connect('')\n    def test_it(self): Event()")),
]  # fmt: skip


@pytest.mark.parametrize("text", [text for _, text in PRETENDED], ids=[name for name, _ in PRETENDED])
def test_what_is_not_run_proves_nothing(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == {"engine"}


def test_some_tests_of_this_project_are_where_they_are_known_to_be() -> None:
    search = places.Search(ROOT)
    known = {
        "tests.papers.test_clients_live": {"sockets", "processes"},
        "tests.browser.test_pages": {"browser", "sockets", "processes"},
    }
    for name, expected in known.items():
        module = search.module(name)
        tests = [each for each in module.tree.body if getattr(each, "name", "").startswith("test")]
        assert tests
        assert set().union(*(search.reach(module, each).places() for each in tests)) == expected
