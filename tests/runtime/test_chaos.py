"""A short bad day for real processes; `benchmarks/chaos.py` is the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.runtime.client_brokers import run, text, two_sites
from veena.bench.endurance.chaos import Chaos, Got, Outcome, Plan, judge
from veena.client import connect
from veena.runtime.networks.file import parse_network

SITES = """
[network]
name = "sites"
levels = 2
[[broker]]
address = "a.1"
[[broker]]
address = "a.2"
[[broker]]
address = "b.3"
[[broker]]
address = "b.4"
[[link]]
between = ["a.1", "a.2"]
[[link]]
between = ["b.3", "b.4"]
[[link]]
between = ["a.1", "b.3"]
[[link]]
between = ["a.2", "b.4"]
"""


def test_kills_cuts_and_roaming_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """I1, I5, FLT-01, TOP-16, CLI-04: durable subscribers roam while brokers are killed and a link is cut."""
    plan = Plan(seconds=4, per_second=100, publishers=2, subscribers=8, roamers=2, kills=2, cuts=1, match_percent=50)
    outcome = asyncio.run(Chaos(parse_network(SITES), tmp_path, plan).run())
    assert outcome.is_sound, outcome.faults
    assert len(outcome.killed) == 2 and len(outcome.cut) == 1 and outcome.roamed == 2
    assert outcome.events == 400 and outcome.delivered == outcome.expected > 1000


def test_what_is_wrong_is_seen() -> None:
    """Missing, repeated, unwanted and overtaking events are counted and told, and other incarnations are not mixed."""
    wanted = {("p", number) for number in range(6)}
    outcome = Outcome()
    judge(outcome, "r", wanted, [Got("p", 1, number) for number in (0, 2, 1, 1, 9)] + [Got("p", 2, 4)])
    assert (outcome.missing, outcome.duplicates, outcome.spurious) == (2, 1, 1)
    assert (outcome.out_of_order, outcome.between_incarnations) == (1, 1)
    assert len(outcome.faults) == 4 and not outcome.is_sound


def test_what_is_late_and_says_so_is_counted_and_no_disorder() -> None:
    outcome, wanted = Outcome(), {("p", number) for number in range(4)}
    judge(outcome, "r", wanted, [Got("p", 1, 2), Got("p", 1, 0, is_late=True), Got("p", 1, 3), Got("p", 1, 1)])
    assert (outcome.late, outcome.out_of_order, outcome.missing) == (1, 1, 0)
    assert outcome.faults == [
        "r: event 3, Got(publisher='p', incarnation=1, number=1, is_redelivered=False, is_late=False), came after 3"
    ]


def test_a_client_goes_where_it_is_sent_by_its_own_program() -> None:
    """CLI-04: what is kept for a durable subscription follows, in order and once."""

    async def scenario() -> None:
        async with (
            two_sites() as (one, other),
            connect(one.url, client_id="writer") as writer,
            connect(one.url, client_id="reader") as reader,
        ):
            wanted = await reader.subscribe(topic="t", durable="d")
            await writer.publish(topic="t", body=b"0", reliable=True)
            assert text(await wanted.next(10)) == "0"
            before = reader.broker
            await reader.move(other.url)
            assert reader.broker != before
            for number in (1, 2):
                await writer.publish(topic="t", body=b"%d" % number, reliable=True)
            assert [text(await wanted.next(10)) for _ in range(2)] == ["1", "2"]
            assert wanted.poll() is None

    run(scenario())


def test_a_plan_that_cannot_be_carried_out_is_told_before_anything_starts() -> None:
    """CLI: the number, what was expected, and why."""
    network = parse_network(SITES)
    assert Plan(publishers=2, kills=2).why_not(network) is None
    assert "3 kills: expected at most 2 on 4 brokers" in str(Plan(publishers=2, kills=3).why_not(network))
    assert "expected at most as many as subscribers, 1" in str(Plan(0, kills=0, subscribers=1).why_not(network))
