"""Steps of the event loop: measured by clocks that the test sets, and by a real broker that is asked for them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from urllib.request import urlopen

import pytest

import veena
from tests.runtime.client_brokers import run
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.logging.logs import Log
from veena.runtime.steps import LIMIT_NS, WINDOW_NS, Steps, kinds_of

MS = 1_000_000


class Clocks:
    """The wall and the CPU, moved by hand."""

    def __init__(self) -> None:
        self.wall = self.cpu = 10**9
        self.looks = 0
        self.steps = Steps(Log(logging.getLogger("veena.test")), lambda: self.wall, self.look)

    def look(self) -> int:
        self.looks += 1
        return self.cpu

    def pass_on(self, wall: int, cpu: int) -> None:
        self.wall += wall
        self.cpu += cpu

    def step(self, wall: int, cpu: int, what: str = "frames") -> None:
        assert self.steps.begin()
        self.pass_on(wall, cpu)
        self.steps.end(lambda: (what, "somebody"))


def test_the_longest_step_counts_cpu_time_and_not_what_others_take() -> None:
    clocks = Clocks()
    clocks.step(900 * MS, 20 * MS, "waited for the processor")
    assert clocks.steps.statistics().longest_s == pytest.approx(0.02)
    clocks.pass_on(100 * MS, 80 * MS)  # what is between two steps belongs to none
    clocks.step(40 * MS, 30 * MS, "worked")
    found = clocks.steps.statistics()
    assert found.longest_s == found.longest_ever_s == pytest.approx(0.03)
    assert found.longest_cause == "worked for somebody" and found.over_limit == 0


def test_parts_belong_to_the_step_around_them() -> None:
    clocks = Clocks()
    assert clocks.steps.begin()
    assert not clocks.steps.begin()
    with clocks.steps.step("a part"):
        clocks.pass_on(30 * MS, 30 * MS)
    clocks.pass_on(30 * MS, 30 * MS)
    clocks.steps.end(lambda: ("all of it", ""))
    assert clocks.steps.statistics().longest_s == pytest.approx(0.06)
    assert clocks.steps.statistics().longest_cause == "all of it"


def test_the_longest_of_late_is_forgotten_and_the_longest_ever_is_not() -> None:
    clocks = Clocks()
    clocks.step(45 * MS, 45 * MS)
    clocks.pass_on(WINDOW_NS, 0)
    clocks.step(8 * MS, 8 * MS)
    assert clocks.steps.statistics().longest_s == pytest.approx(0.045), "the window before this one counts too"
    clocks.pass_on(WINDOW_NS, 0)
    clocks.step(2 * MS, MS)
    assert clocks.steps.statistics().longest_s == pytest.approx(0.008)
    clocks.pass_on(3 * WINDOW_NS, 0)
    found = clocks.steps.statistics()
    assert found.longest_s == 0 and found.longest_ever_s == pytest.approx(0.045)


def test_a_step_above_the_limit_is_counted_and_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    with caplog.at_level(logging.WARNING, "veena.test"):
        for number in range(100):
            clocks.step(LIMIT_NS + MS, LIMIT_NS + MS, f"frame {number}")
    assert clocks.steps.statistics().over_limit == 100
    told = [record.__dict__["fields"] for record in caplog.records]
    assert len(told) == 5, "a flood of long steps is no flood of lines"
    assert told[0] == {"cpu_ms": 51, "step": "frame 0", "client_or_link": "somebody"}


def test_short_steps_look_at_the_cpu_clock_rarely() -> None:
    clocks = Clocks()
    for _ in range(1000):
        clocks.step(MS // 10, MS // 10)
    assert clocks.looks <= 110


def test_kinds_are_counted() -> None:
    assert kinds_of([1, 2, "a"]) == "2 int, 1 str"


def test_a_broker_shows_its_longest_step() -> None:
    """`/metrics`, `/statusz` and the report to clients have the figures."""

    async def scenario() -> None:
        text = '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[http]\nlisten = "127.0.0.1:0"\n'
        node = Node(parse_config(text))
        await node.start()
        try:
            async with veena.connect(node.urls[0], client_id="looker") as client:
                await client.subscribe(topic="news")
                found = await client.status()
                assert 0 < found["loop"]["longest_s"] <= found["loop"]["longest_ever_s"]

            def page() -> str:
                with closing(urlopen(f"{node.http_url}/metrics", timeout=5)) as answer:
                    return str(answer.read(), "utf-8")

            shown = await asyncio.to_thread(page)
            for name in ("longest_seconds", "longest_ever_seconds", "steps_over_limit_total"):
                assert f"veena_loop_{name} " in shown
        finally:
            await node.stop()

    run(scenario())
