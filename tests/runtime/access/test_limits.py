"""Rates of a user, over all its connections: pure buckets, and real brokers with clients that ask too much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, run, until
from tests.runtime.raw_client import attach
from veena.core.wire.burst import EventBurst
from veena.core.wire.client import AskSubscribe, AskUnsubscribe
from veena.core.wire.codec import encode
from veena.core.wire.control import Frame, Heartbeat
from veena.runtime.access.limits import BURST_S, DEFAULT_CONTROL, MAX_ABSENT, Limits, UserRates
from veena.runtime.access.users import User, Users, digest_of
from veena.runtime.broker.metrics import COUNTERS
from veena.runtime.clients.pace import TURN, TURNS_S, WEIGHTS, Pace, Turns, weight


def test_the_sessions_of_a_user_share_its_tokens() -> None:
    """FLT-09: twenty sessions may send no more than one."""
    rates = UserRates()
    limits = Limits(events_per_second=10)
    sessions = [rates.enter("mallory", limits, 0.0) for _ in range(20)]
    waits = [session.take(1, 100, 0, 0.0)[0] for session in sessions for _ in range(2)]
    assert waits[:20] == [0.0] * 20 and waits[20:] == [pytest.approx(number / 10) for number in range(1, 21)]
    assert rates.enter("alice", limits, 0.0).take(20, 0, 0, 0.0) == (0.0, "")
    assert rates.slowed == {"events": 20}


def test_who_owes_tokens_owes_them_when_it_comes_back() -> None:
    rates = UserRates()
    limits = Limits(bytes_per_second=1000)
    rates.enter("mallory", limits, 0.0).take(1, 5000, 0, 0.0)
    rates.leave("mallory", 1.0)
    wait, why = rates.enter("mallory", limits, 1.0).take(0, 0, 0, 1.0)
    assert wait == pytest.approx(2.0) and why == "bytes"
    rates.leave("mallory", 10.0)
    assert rates.enter("mallory", limits, 10.0).take(1, 2000, 0, 10.0) == (0.0, ""), "everything was paid back"
    assert rates.enter("mallory", Limits(bytes_per_second=10), 10.0).take(0, 20, 0, 10.0) == (0.0, "")


def test_what_is_remembered_of_those_who_left_is_bounded() -> None:
    rates = UserRates()
    limits = Limits(events_per_second=1)
    for number in range(MAX_ABSENT + 10):
        rates.enter(f"user-{number}", limits, 0.0).take(100, 0, 0, 0.0)
        rates.leave(f"user-{number}", 0.0)
    assert rates.enter("user-0", limits, 0.0).take(0, 0, 0, 0.0)[0] == 0.0, "it was forgotten"
    assert rates.enter("user-20", limits, 0.0).take(0, 0, 0, 0.0)[0] > 0.0


def test_a_read_is_dealt_with_in_turns_and_in_its_order() -> None:
    pace = Pace()
    given: list[Frame | EventBurst] = []
    for number in range(1, 200):
        given += [AskSubscribe(number, "topic", b""), Heartbeat(number, 0)]
    turns = []
    frames = pace.turn(given)
    while frames:
        turns.append(frames)
        frames = pace.turn(())
    assert [frame for turn in turns for frame in turn] == given
    longest = max(WEIGHTS.values())
    assert all(sum(weight(frame) for frame in turn if isinstance(frame, Frame)) < TURN + longest for turn in turns)
    assert len(turns) > 5 and not pace.waits


def test_who_waits_goes_on_once_before_anybody_goes_on_again() -> None:
    """FLT-09: in one turn of the loop for a moment together, however many they are; a fault of one stops no other."""
    now, calls, order = [0.0], list[Callable[[], None]](), list[str]()
    turns = Turns(lambda: now[0])

    def busy(name: str, again: int) -> None:
        order.append(name)
        now[0] += 0.6 * TURNS_S
        if again:
            turns.ask(lambda: busy(name, again - 1), calls.append)
        if name == "bad":
            raise ValueError(name)

    for name in ("a", "bad", "c"):
        turns.ask(lambda name=name: busy(name, 1), calls.append)  # type: ignore[misc]
    loops = 0
    while calls:
        assert len(calls) == 1, "one call for all"
        before, loops = len(order), loops + 1
        with suppress(ValueError):
            calls.pop()()
        assert len(order) - before <= 2
    assert order == ["a", "bad", "c", "a", "bad", "c"] and loops >= 3


def _flood(rounds: int) -> bytes:
    """Subscriptions that are made and ended at once, as many as there are rounds."""
    frames: list[Frame] = []
    for number in range(1, rounds + 1):
        frames += [AskSubscribe(number, "topic", msgspec.msgpack.encode(f"x.{number}")), AskUnsubscribe(number)]
    return b"".join(encode(frame, 0) for frame in frames)


def test_control_frames_slow_down_who_sends_them_and_nobody_else() -> None:
    """FLT-09: one client subscribes and unsubscribes as fast as it can; another one goes on as before."""

    async def scenario() -> None:
        async with Site() as site, site.client("honest") as honest:
            wanted = await honest.subscribe(topic="t")
            raw = await attach(site.url, "mallory")
            clients = site.driver.broker.profiles.clients
            before, began = clients.changes, asyncio.get_running_loop().time()
            rounds = 5 * DEFAULT_CONTROL // (2 * WEIGHTS[AskSubscribe])  # of five seconds
            raw.stream.write([_flood(rounds)])
            await until(lambda: clients.changes > before + 100)
            for number in range(200):
                await honest.publish(topic="t", body=b"%d" % number)
                assert (await wanted.next(PATIENCE_S)).body == b"%d" % number
            assert clients.changes - before < 2 * rounds, "all of them went before"
            await until(lambda: site.clients.statistics().slowed_control > 0)
            took = asyncio.get_running_loop().time() - began
            assert clients.changes - before <= (BURST_S + took) * rounds / 5 * 2 + TURN
            raw.stream.abort("over")

    run(scenario())


def test_what_is_slowed_down_is_done_in_the_end() -> None:
    """FLT-09: a hold-up loses nothing and changes no order: the last word of each subscription counts."""
    limits = Limits(control_per_second=2000)

    async def scenario() -> None:
        async with Site(users=Users(limits=limits)) as site:
            raw = await attach(site.url, "busy")
            raw.stream.write([_flood(250)])
            raw.say(AskSubscribe(1000, "topic", msgspec.msgpack.encode("last")))
            await until(lambda: site.clients.statistics().slowed_control > 0)
            await until(lambda: site.driver.statistics().profiles.subscriptions == 1)
            async with site.client("alice") as alice:
                await alice.publish(topic="last", body=b"here")
                await raw.has(1)
            raw.stream.abort("over")

    run(scenario())


def test_connections_of_one_user_share_one_limit() -> None:
    """FLT-09: who has a rate of 100 events a second has it with twenty connections too."""
    fast = Users({"fast": User(tokens=(digest_of("secret"),), limits=Limits(events_per_second=100))})

    async def scenario() -> None:
        async with Site(users=fast) as site:
            clients = await asyncio.gather(
                *(attach(site.url, f"fast/{number}", token="secret") for number in range(20))
            )
            loop = asyncio.get_running_loop()
            began = loop.time()
            # Each has one event on its way: two seconds' worth at once for all of them, then a hundred a second.
            while loop.time() - began < 1.5:
                for client in clients:
                    if client.accepted() == client.published:
                        client.publish("t", b"x")
                await asyncio.sleep(0.001)
            accepted = sum(client.accepted() for client in clients)
            assert 100 * BURST_S <= accepted <= 100 * (BURST_S + loop.time() - began) + len(clients)
            assert site.clients.statistics().slowed_events > 0
            for client in clients:
                client.stream.abort("over")

    run(scenario())


def test_the_counts_are_metrics() -> None:
    names = [name for name, _, _ in COUNTERS]
    assert {"veena_users_slowed_events", "veena_users_slowed_bytes", "veena_users_slowed_control"} <= set(names)
