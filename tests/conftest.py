"""Options of the whole test suite, and how its files are shared out among processes (`pytest -n`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

#: Files that take long, with their seconds on one core. They go first, so that no process is left with one at the end;
#: the order of the others does not matter. Renew a number where a file is out of place.
SECONDS = {
    "tests/spark": 450,
    "tests/cli/lab/test_sim.py": 120,
    "tests/sim/runs/test_runs.py": 90,
    "tests/sim/world/test_joining.py": 45,
    "tests/sim/clients/test_standby.py": 39,
    "tests/sim/runs/test_durable_soak.py": 36,
    "tests/sim/experiments/test_crossings.py": 28,
    "tests/sim/runs/test_workers.py": 26,
    "tests/sim/clients/test_interest.py": 25,
    "tests/sim/explaining/test_explain.py": 21,
    "tests/cli/test_in_a_shell.py": 20,
    "tests/cli/client/test_pub_sub.py": 19,
    "tests/runtime/broker/test_process.py": 16,
    "tests/runtime/fleet/test_network_up.py": 16,
    "tests/runtime/test_costly_subscriptions.py": 45,
    "tests/runtime/clients/test_numbers.py": 30,
    "tests/runtime/access/test_rights_of_members.py": 26,
    "tests/bench/fuzzing/test_fuzzing.py": 22,
    "tests/runtime/access/test_shares_of_offers.py": 14,
    "tests/sim/runs/test_liars.py": 20,
    "tests/runtime/test_kill.py": 12,
    "tests/runtime/test_chaos.py": 12,
}
#: Who uses one of these fixtures puts something else in the place of a part of the program.
REPLACING = {"monkeypatch", "wording"}
#: How many such tests were left out.
REPLACED = pytest.StashKey[int]()
#: All files of this room share one process: it starts one Java, and a second one would compete with it.
TOGETHER = "tests/spark"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scripts in tests/scenarios print, and the bytes of tests/bytes.txt, as expected",
    )


# How long an example takes is the machine's business: a busy one is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Under `nohup`, or in the background of a script, a process ignores these, and so would every command that tests start
# and interrupt. A handler is not inherited as being ignored is.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


# A broker refuses users files and keys that others can read. So what tests write is private, as an operator's is to be;
# what a checkout brings has the mode that Git gives.
os.umask(0o077)
for _key in (Path(__file__).parent / "runtime" / "certificates").glob("*.key"):
    _key.chmod(0o600)


# Every Spark that a test starts is small and lives for seconds, as a child of a child too (`veena demo`, the README's
# program): Java compiles fast rather than well, and `spark-defaults.conf` switches off what pays on large data alone.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "settings")


# --- several processes ---


def unit_of_work(nodeid: str) -> str:
    """The tests that one process runs together: those of a file, which share its fixtures, or of a whole room."""
    path = nodeid.partition("::")[0]
    return TOGETHER if path.startswith(f"{TOGETHER}/") else path


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    for path in (TOGETHER, *SECONDS):
        if not (config.rootpath / path).exists():
            raise pytest.UsageError(f"tests/conftest.py names {path}, which is not there: correct its path")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """In a process among several: what takes longest first. On compiled modules: what replaces none of them."""
    for item in items:
        if not REPLACING.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("replaces")
    yield
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -SECONDS.get(unit_of_work(item.nodeid), 0))
    if is_compiled():
        replacing = [item for item in items if item.get_closest_marker("replaces") is not None]
        items[:] = [item for item in items if item.get_closest_marker("replaces") is None]
        config.stash[REPLACED] = len(replacing)
        getattr(config, "workeroutput", {})["replacing"] = len(replacing)
        config.hook.pytest_deselected(items=replacing)


def is_compiled() -> bool:
    """Whether the modules under test were compiled (`make compiled`)."""
    found = find_spec("veena.core.broker")
    return found is not None and found.origin is not None and not found.origin.endswith(".py")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if is_compiled():
        count = config.stash.get(REPLACED, 0)
        terminalreporter.write_line(
            f"on compiled modules: {count} tests replace a part of the program and were left out"
        )


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Several processes deselect the same tests, and none says so: remember how many for the summary."""
    if items and hasattr(items[0].config, "workeroutput"):
        output = items[0].config.workeroutput
        output["deselected"] = output.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[REPLACED] = output.get("replacing", 0)
    terminal = node.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and "deselected" in output:
        terminal.stats["deselected"] = [SimpleNamespace() for _ in range(output["deselected"])]
