"""The driver tells its core when somebody sets the wall clock."""

from __future__ import annotations

import asyncio
import time

from tests.runtime.brokers import BRISK, KeptInMemory
from tests.runtime.streams import until
from veena.core.boundary.inputs_effects import ClientDown, ClientUp
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.stored import Identity
from veena.runtime.broker.driver import CLOCK_STEP_NS, Driver, WallWatch

HOUR_NS = 3600 * SECOND_NS


def test_small_steps_are_drift_and_large_ones_are_told() -> None:
    shown = [100 * SECOND_NS]
    watch = WallWatch(lambda: shown[0])
    assert watch.begin(40 * SECOND_NS) == 60 * SECOND_NS
    shown[0] += CLOCK_STEP_NS - 1
    assert watch.moved(40 * SECOND_NS) == 0
    shown[0] += 1
    assert watch.moved(40 * SECOND_NS) == 0, "it is looked at once a second"
    assert watch.moved(41 * SECOND_NS) == 0, "one second passed, and the clock shows one second more"
    shown[0] -= HOUR_NS
    assert watch.moved(42 * SECOND_NS) == -HOUR_NS - SECOND_NS and watch.offset_ns == 59 * SECOND_NS - HOUR_NS


def test_a_core_learns_that_the_clock_was_set() -> None:
    """NTP sets it an hour back: epochs follow, and what is timed by the steady clock does not notice."""

    async def run() -> None:
        step = [0]
        store = KeptInMemory(Identity("here", (0, 0, 0, 0), 0))
        driver = Driver(store.load(), BRISK, store, wall=lambda: time.time_ns() + step[0])
        store.answer = driver.take
        driver.start()
        epochs = driver.broker.profiles.epochs
        assert abs(epochs.offset_ns) < SECOND_NS
        before_ns = driver.now_ns()
        step[0] = -HOUR_NS
        sessions = iter(range(1, 10_000))

        def is_told() -> bool:
            session = next(sessions)  # a lone broker without clients sleeps
            driver.give(ClientUp(session, f"client-{session}"))
            driver.give(ClientDown(session))
            return epochs.offset_ns < -HOUR_NS // 2

        await until(is_told)
        assert abs(epochs.offset_ns + HOUR_NS) < 2 * SECOND_NS
        assert driver.now_ns() > before_ns
        await driver.stop()

    asyncio.run(run())
