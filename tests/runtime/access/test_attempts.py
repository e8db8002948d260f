"""How wrong log-ins slow the next ones, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from veena.errors import AccessDenied
from veena.runtime.access.attempts import (
    EXPECTED_S,
    FORGET_S,
    MAX_REMEMBERED,
    NAME,
    PAIR,
    PLACE,
    Attempts,
)
from veena.runtime.access.turns import CHECKERS, MAX_WAITING, MAX_WAITING_EACH, Turns
from veena.runtime.transports.senders import place_of


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_few_mistakes_cost_nothing_and_guesses_take_ever_longer() -> None:
    """SEC: the pause doubles with each wrong try, ends at a bound, and is forgotten after a while."""
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(PAIR.free):
        attempts.wrong("10.0.0.1", "alice")
        assert attempts.wait_s("10.0.0.1", "alice") == 0
    pauses = []
    for _ in range(12):
        attempts.wrong("10.0.0.1", "alice")
        pauses.append(attempts.wait_s("10.0.0.1", "alice"))
        clock.now += pauses[-1]
        assert attempts.wait_s("10.0.0.1", "alice") == 0, "it passes"
    assert pauses == sorted(pauses) and pauses[0] == PAIR.first_s and pauses[-1] == PAIR.longest_s
    clock.now += FORGET_S + 1
    attempts.wrong("10.0.0.1", "alice")
    assert attempts.wait_s("10.0.0.1", "alice") == 0


def test_guesses_at_a_name_do_not_lock_its_owner_out_elsewhere() -> None:
    """SEC: from another address she is let in, a little later the first time, and at once when she is expected."""
    attempts = Attempts(Clock())
    for at in range(1000):
        attempts.wrong(f"10.0.{at // 250}.{at % 250}", "alice")
    assert attempts.wait_s("192.0.2.1", "alice") == 0
    assert 0 < attempts.delay_s("192.0.2.1", "alice") <= NAME.longest_s
    attempts.right("192.0.2.1", "alice")
    assert attempts.delay_s("192.0.2.1", "alice") == 0


def test_guesses_from_a_place_slow_others_there_only_until_they_are_known() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    attempts.right("10.0.0.1", "bob")
    for at in range(1000):
        attempts.wrong("10.0.0.1", f"user-{at}")
    assert 0 < attempts.wait_s("10.0.0.1", "carol") <= PLACE.longest_s
    assert attempts.wait_s("10.0.0.1", "bob") == 0
    assert attempts.wait_s("10.0.0.2", "carol") == 0
    clock.now += EXPECTED_S + 1
    attempts.wrong("10.0.0.1", "x")
    assert attempts.delay_s("10.0.0.1", "bob") == 0 and attempts.remembered() > 0


def test_what_is_remembered_is_bounded() -> None:
    attempts = Attempts(Clock())
    for at in range(MAX_REMEMBERED + 100):
        attempts.wrong(str(at), str(at))
        attempts.right(str(at), str(at))
    assert attempts.remembered() <= 4 * MAX_REMEMBERED


@pytest.mark.parametrize(
    ("ip", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1%eth0", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
    ],
)
def test_places(ip: str, place: str) -> None:
    """Who has an IPv6 network does not get a new start with each of its addresses."""
    assert place_of(ip) == place


def test_places_take_turns() -> None:
    """SEC: a burst from one address delays another one by the checks under way, not by the burst."""

    async def run() -> None:
        turns, order, refused = Turns(), list[str](), Counter[str]()

        async def one(place: str, name: str) -> None:
            try:
                await turns.check(place, name, lambda: None, lambda: True)
                order.append(place)
            except AccessDenied:
                refused[place] += 1

        burst = [asyncio.create_task(one("attacker", f"u{at % 3}")) for at in range(300)]
        await asyncio.sleep(0)
        assert len(turns) == MAX_WAITING_EACH
        honest = asyncio.create_task(one("honest", "alice"))
        await honest
        assert len(order) <= 2 * CHECKERS + 2
        await asyncio.gather(*burst)
        assert refused == {"attacker": 300 - CHECKERS - MAX_WAITING_EACH} and not len(turns)
        # Many places fill what may wait in all; the place with most gives way.
        crowd = [asyncio.create_task(one(f"p{at % 20}", "x")) for at in range(2 * MAX_WAITING)]
        await asyncio.sleep(0)
        assert len(turns) == MAX_WAITING
        assert await asyncio.wait_for(asyncio.gather(*crowd), 30)
        turns.close()

    asyncio.run(run())


def test_who_leaves_gives_its_turn_up() -> None:
    async def run() -> None:
        turns = Turns()
        tasks = [
            asyncio.create_task(turns.check("p", str(at), lambda: None, lambda: True)) for at in range(CHECKERS + 5)
        ]
        await asyncio.sleep(0)
        assert len(turns) == 5
        for task in tasks[CHECKERS:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not len(turns)
        assert await turns.check("p", "x", lambda: None, lambda: True)
        turns.close()

    asyncio.run(run())
