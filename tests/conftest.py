"""Options of the whole test suite, and how its files are shared out among processes (`pytest -n`)."""

from __future__ import annotations

import signal
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

#: Files that take long, by name, with their seconds on one core. They go first, so that no process is left with one at
#: the end; of others the order does not matter. The numbers need not be exact: renew them where a file is out of place.
SECONDS: dict[str, int] = {}
#: All files of this room share one process: it starts one Java, and a second one would compete with it.
TOGETHER = "spark"


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


# --- several processes ---


def unit_of_work(nodeid: str) -> str:
    """The tests that one process runs together: those of a file, which share its fixtures, or of a whole room."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return TOGETHER if TOGETHER in path.parts else str(path)


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process whole files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process among several: what takes longest first."""
    if hasattr(config, "workerinput"):
        seconds: dict[str, int] = {}
        for path in dict.fromkeys(item.path for item in items):
            unit = unit_of_work(path.relative_to(config.rootpath).as_posix())
            seconds[unit] = seconds.get(unit, 0) + SECONDS.get(path.name, 0)
        items.sort(key=lambda item: -seconds[unit_of_work(item.nodeid)])


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Several processes deselect the same tests, and none says so: remember how many for the summary."""
    if items and hasattr(items[0].config, "workeroutput"):
        output = items[0].config.workeroutput
        output["deselected"] = output.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    terminal = node.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and "deselected" in output:
        terminal.stats["deselected"] = [SimpleNamespace() for _ in range(output["deselected"])]
