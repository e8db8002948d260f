"""Every program in `examples/` runs as a newcomer would run it, against a broker that knows nothing of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.processes import veena

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_LINES = 60
#: What each prints, line by line; what depends on chance is left open.
PRINTED: dict[str, tuple[str, ...]] = {
    "hello": (r"quotes \{'price': 12.5, 'sym': 'IBM'\} hello",),
    "selector": (
        r"refused before it is sent: .*position 8 of 'price > AND 10'\)",
        r"bargains .* IBM at 12.5, SUN at 5.25",
        r"blue chips .* IBM at 12.5, INTC at 44.0",
        r"alarms .* SUN at 5.25, ORCL at 31.0",
    ),
    "xpath_feed": (
        r"(alerts|all weather|by Fox) +<- <entry id='[123]'.*",
        r"(alerts|all weather|by Fox) +<- <entry id='[123]'.*",
        r"(alerts|all weather|by Fox) +<- <entry id='[123]'.*",
        r"(alerts|all weather|by Fox) +<- <entry id='[123]'.*",
        r"mirror +<- <m:entry id='4'.*",
    ),
    "durable_worker": (
        r"4 jobs were published while no worker was there",
        r"the worker's first life:",
        r"  copy: done",
        r"  convert: begun, and the worker dies before it has acknowledged it",
        r"its second life:",
        r"  convert: done \(it had been handed out before\)",
        r"  compress: done.*",
        r"  mail: done.*",
    ),
    "many_events": (
        r"2000 events are on the broker's disk, in their order",
        r"2000 events came, in order: True",
        r"refused: event 1 of 2 .*property 'watt' is \[1, 2\], a list: convert it.*",
        r"published all the same: 1",
    ),
    "request_reply": (
        r"Rome: 17.0 degrees",
        r"all: Oslo -4.5, Rome 17.0, Syracuse 9.5",
        r"Atlantis: .*nobody wants it",
    ),
    "three_sites": (
        r"6 brokers run: paris.1, paris.2, rome.1, rome.2, oslo.1, oslo.2",
        r"only rome wants some: .* got \[10\]; copies received in paris 0, rome \d+, oslo 0",
        r"oslo wants all of its own site: .* got \[10\]; copies received in paris 0, rome \d+, oslo 0",
        r"oslo wants everything: .* got \[10, 100\]; copies received in paris 0, rome \d+, oslo \d+",
        r"oslo's own site: -7 degrees, and nothing else",
    ),
}
#: Run by tests of its own: it goes on until it is stopped (`tests/services/application/test_heat.py`).
ELSEWHERE = ("heat",)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with veena("broker", "run", "--listen", "veena://127.0.0.1:0", "--json") as broker:
        yield broker.told()["url"]


@pytest.mark.parametrize("name", PRINTED)
def test_it_runs_and_ends_by_itself(name: str, url: str) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run([*command, url], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert len(lines) == len(PRINTED[name]), ran.stdout
    for line, expected in zip(lines, PRINTED[name], strict=True):
        assert re.fullmatch(expected, line), f"{line!r} is not {expected!r}"


def test_all_of_them_are_run_are_short_and_are_listed() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*PRINTED, *ELSEWHERE}
    listed = (EXAMPLES / "README.md").read_text()
    for name in sorted(names):
        assert (EXAMPLES / f"{name}.py").read_text().count("\n") <= MAX_LINES
        assert f"[{name}.py]({name}.py)" in listed
