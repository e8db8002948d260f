"""A program on a real mesh: found, seen, steered; and not disturbed by any of that, nor by the loss of its broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import veena
from veena import collab, testing
from veena.collab import Member, Parameter
from veena.errors import AccessDenied, InvalidEvent, NotConnected, Unanswered
from veena.event import Value
from veena.services.application import application
from veena.services.application.application import LOOK_S, Application
from veena.services.member.feed import Feed
from veena.services.trading.registry import Registry

PATIENCE_S = 20.0
PARAMETERS = {"speed": Parameter(1.0, low=0, high=10), "mode": Parameter("slow", choices=("slow", "fast"))}


@pytest.fixture(name="url", scope="module")
def _url() -> Iterator[str]:
    with testing.broker() as url:
        yield url


class Program(threading.Thread):
    """An iterative program in a thread; in a step nothing may change."""

    def __init__(self, app: collab.Application) -> None:
        super().__init__(daemon=True)
        self.app = app
        self.disturbed: list[tuple[object, object]] = []
        self.slowest_s = 0.0

    def run(self) -> None:
        with self.app as app:
            while app.running:
                begun = time.monotonic()
                before = app.values
                field = np.full((4, 6), app["speed"], np.float32)
                app.publish_statistics(mean=field.mean(), speed=app["speed"])
                app.publish_field(field)
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                time.sleep(0.002)
                if app.values != before:
                    self.disturbed.append((before, app.values))


@contextmanager
def running(app: collab.Application) -> Iterator[Program]:
    """The program in the background; it is stopped in the end, if it still runs."""
    program = Program(app)
    program.start()
    try:
        yield program
    finally:
        app.stop()
        program.join(PATIENCE_S)
        assert not program.is_alive()


async def until(what: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await what():
            await asyncio.sleep(0.02)


async def found(member: Member, name: str) -> None:
    await until(lambda: member.applications(f"name == '{name}'"))


async def of(feed: Feed, name: str, **fields: object) -> veena.Event:
    """The next event of this name with these fields."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            event = await feed.next()
            if event.headers["event_name"] == name and all(
                event.properties.get(key) == value for key, value in fields.items()
            ):
                return event


def test_two_clients_watch_and_steer_one_program(url: str) -> None:
    """DIS-23, COL-05, NTF-03: one changes a parameter between two steps, both see what comes of it."""

    async def main() -> None:
        async with (
            veena.connect(url, client_id="a") as one,
            veena.connect(url, client_id="b") as two,
            Member(one) as alice,
            Member(two) as bob,
        ):
            feeds = [await alice.monitor("pair"), await bob.monitor("pair")]
            with running(collab.application("pair", url, parameters=PARAMETERS, period=0.02)) as program:
                await found(alice, "pair")
                assert (await alice.take("pair")).is_done
                assert (await alice.change("pair", speed=7, mode="fast")).is_done
                for feed in feeds:
                    numbers = await of(feed, "statistics", speed=7)
                    assert numbers.properties["mean"] == 7
                    field = await of(feed, "field")
                    while int(str(field.properties["step"])) < int(str(numbers.properties["step"])):
                        field = await of(feed, "field")
                    assert np.frombuffer(field.body, "<f4").tolist() == [7] * 24
                assert (await alice.pause("pair")).state == "paused"
                assert (await alice.hand_over("pair", "b")).driver == "b"
                assert (await bob.resume("pair")).state == "computing"
                assert "'b' drives" in (await alice.stop("pair")).reason
                assert (await bob.stop("pair")).is_done
                await asyncio.to_thread(program.join, PATIENCE_S)
                assert program.disturbed == []

    asyncio.run(main())


def test_every_change_of_state_is_seen_and_the_state_is_said_periodically(url: str) -> None:
    """COL-01: running, computing, interacting, paused; the period is configurable."""

    async def main() -> None:
        async with veena.connect(url, client_id="c") as client, Member(client) as carol:
            feed = await carol.monitor("states", "$event_name == 'state'")
            with running(collab.application("states", url, parameters=PARAMETERS, state_period=0.05)):
                await found(carol, "states")
                await of(feed, "state", state="computing")
                await carol.take("states")
                await carol.pause("states")
                paused = await of(feed, "state", state="paused")
                repeated = await of(feed, "state", state="paused")  # said again although nothing changed
                await carol.resume("states")
                await carol.stop("states")
            last = await of(feed, "state", state="running", driver="c")
        entries = [entry.fields for entry in carol.history().consumed if entry.name == "state"]
        numbers = {entry["number"]: entry["state"] for entry in entries}
        assert repeated.properties["number"] == paused.properties["number"]
        states = [numbers[number] for number in sorted(numbers, key=lambda each: int(str(each)))]
        assert states[:2] == ["running", "computing"]
        at = states.index("paused")
        assert states[at - 1 : at + 2] == ["interacting", "paused", "computing"]
        assert numbers[last.properties["number"]] == "running"
        assert set(numbers) == set(range(1, len(numbers) + 1))

    asyncio.run(main())


def test_only_the_application_that_is_named_gets_the_command(url: str) -> None:
    """COL-02: two applications on one channel; a query is answered by an event to the client that asked."""

    async def main() -> None:
        async with (
            veena.connect(url, client_id="one-app") as one,
            veena.connect(url, client_id="two-app") as two,
            veena.connect(url, client_id="d") as client,
            Application(one, "one", parameters={"x": Parameter(1)}) as first,
            Application(two, "two", parameters={"y": Parameter(2)}) as second,
            Member(client) as dora,
        ):
            assert {name: each.value for name, each in (await dora.parameters("one")).items()} == {"x": 1}
            assert {name: each.value for name, each in (await dora.parameters("two")).items()} == {"y": 2}
            await dora.take("one")
            assert (first.statistics().commands, second.statistics().commands) == (2, 1)
            answers = [entry for entry in dora.history().consumed if entry.name == "answer"]
            asked = [entry for entry in dora.history().produced if entry.type == "Steering"]
            assert [entry.fields["command"] for entry in answers] == [str(entry.id) for entry in asked]
            with pytest.raises(Unanswered, match="'three'"):
                await Member(client, timeout=0.2).parameters("three")

    asyncio.run(main())


def test_who_steers_is_who_the_brokers_let_in_and_not_what_an_event_says(url: str) -> None:
    async def main() -> None:
        async with (
            veena.connect(url, client_id="forged-app") as one,
            veena.connect(url, client_id="e") as driver,
            veena.connect(url, client_id="mallory") as other,
            Application(one, "forged", parameters=PARAMETERS),
            Member(driver) as emma,
        ):
            await emma.take("forged")
            header = {"domain_name": "forged", "type_name": "Steering", "event_name": "change"}
            wish: dict[str, Value] = {"by": "e", "parameter": "speed", "value": 9.0}
            answer = await other.request(headers=header, properties=wish)
            assert answer.properties["answer"] == "refused"
            assert "'e' drives" in str(answer.properties["reason"]) and answer.properties["by"] == "mallory"
            # Nor does anybody else speak for an application.
            await Registry(one).export("Application", "quiet")

            async def lie(event: veena.Event) -> None:
                await other.reply(event, properties={"answer": "done"})

            for name, who in (("quiet", "'forged-app'"), ("absent", "nobody")):
                wanted = f"$domain_name == '{name}' and $type_name == 'Steering'"
                await other.subscribe(constraint=wanted, on_event=lie)
                with pytest.raises(AccessDenied, match=f"'mallory' answered for application .*, which {who} offers"):
                    await emma.take(name)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("verb", "fields", "body", "reason"),
    [
        ("change", {}, b'{"speed": 1' + b"0" * 400 + b"}", "the values of a change"),
        ("change", {}, b'{"speed": 1' + b"0" * 30 + b"}", "the values of a change"),
        ("change", {}, b'{"' + b"a" * 300 + b'": 1}', "the values of a change"),
        ("change", {"parameter": "a" * 300, "value": 1}, b"", "parameter is 'aaa"),
        ("change", {"parameter": "speed", "value": float("nan")}, b"", "is no float"),
        ("change", {"parameter": "state", "value": "x" * 5000}, b"", "a program can be made"),
        ("change", {}, b"{", "the values of a change"),
        ("hand_over", {"to": "x" * 300}, b"", "to is 'xxx"),
        ("hand_over", {"to": 7}, b"", "needs `to`"),
    ],
)
def test_what_is_no_command_is_refused_and_harms_nobody(
    url: str, verb: str, fields: dict[str, Value], body: bytes, reason: str
) -> None:
    """SEC-05: whoever may steer can send anything; it is explained, the driver is named, and the program goes on."""

    async def main() -> None:
        async with (
            veena.connect(url, client_id="odd-app") as one,
            veena.connect(url, client_id="odd") as client,
            Application(one, "odd", parameters=PARAMETERS, state_period=0.05) as app,
            Member(client) as olga,
        ):
            records = await olga.monitor("odd", "$event_name == 'record'")
            await olga.take("odd")
            header = {"domain_name": "odd", "type_name": "Steering", "event_name": verb}
            answer = await client.request(headers=header, properties=fields, body=body)
            assert answer.properties["answer"] == "refused" and reason in str(answer.properties["reason"])
            assert answer.properties["driver"] == "odd"
            await olga.release("odd")
            await of(records, "record", action="release")  # what it says of itself still comes
            refused = await client.request(headers=header, properties=fields, body=body)
            assert refused.properties["answer"] == "refused", "the same from who does not drive, which is recorded"
            await olga.take("odd")
            await of(records, "record", action="take", number=app.desk.records[-1].number)
            assert app.statistics().refused == 0

    asyncio.run(main())


def test_a_silent_driver_loses_the_wheel_and_that_is_recorded(url: str) -> None:
    async def main() -> None:
        async with (
            veena.connect(url, client_id="silent-app") as one,
            veena.connect(url, client_id="f") as client,
            Application(one, "silent", parameters=PARAMETERS, lock_timeout=0.2, state_period=0.05),
            Member(client) as frank,
        ):
            feed = await frank.monitor("silent", "$event_name == 'record'")
            assert (await frank.take("silent")).driver == "f"
            expired = await of(feed, "record", action="expire")
            assert (expired.properties["by"], expired.properties["driver"]) == ("f", "")
            refused = await frank.change("silent", speed=2)
            assert not refused.is_done and "nobody drives" in refused.reason

    asyncio.run(main())


def test_a_field_comes_as_it_was_and_what_does_not_fit_is_refused(url: str) -> None:
    async def main() -> None:
        async with (
            veena.connect(url, client_id="field-app") as one,
            veena.connect(url, client_id="g") as client,
            Application(one, "field", period=3600) as app,
            Member(client) as grace,
        ):
            feed = await grace.monitor("field", "$event_name == 'field' and step > 3")
            field = np.arange(24, dtype=">i2").reshape(2, 3, 4)[:, :, ::2]
            assert app.publish_field(field, step=5, name="pressure", unit="Pa")
            assert not app.publish_field(field, name="pressure")  # not twice in a period
            event = await of(feed, "field", field="pressure")
            shape = tuple(map(int, str(event.properties["shape"]).split("x")))
            got = np.frombuffer(event.body, str(event.properties["dtype"])).reshape(shape)
            assert np.array_equal(got, field) and got.dtype == field.dtype
            assert event.properties["unit"] == "Pa"
            with pytest.raises(InvalidEvent, match=r"field\[::2, ::2\]"):
                app.publish_field(np.zeros(5_000_000), name="huge")
            with pytest.raises(InvalidEvent, match="objects"):
                app.publish_field(np.array([object()]), name="objects")
            with pytest.raises(InvalidEvent, match="'mean'"):
                app.publish_statistics(mean=[1, 2])
            with pytest.raises(InvalidEvent, match="'step'"):
                app.publish_statistics(step=-1)

    asyncio.run(main())


def test_the_program_goes_on_when_its_broker_dies_and_is_back_with_it() -> None:
    """The computation never waits for the network; it is found and steered again as soon as a broker is there."""
    with testing.network(brokers=1) as net:
        url = net.url()
        with running(collab.application("tough", url, parameters=PARAMETERS, period=0.0)) as program:
            while program.app.statistics().published < 3:
                time.sleep(0.01)
            net.kill("a.1")
            while program.app.is_connected:
                time.sleep(0.01)
            steps, begun = program.app.steps, time.monotonic()
            while program.app.steps < steps + 50:
                assert time.monotonic() - begun < PATIENCE_S
                time.sleep(0.01)
            assert not program.app.is_connected
            net.restart("a.1")

            async def main() -> None:
                async with veena.connect(url, client_id="h") as client, Member(client) as heidi:
                    await found(heidi, "tough")

                    async def is_taken() -> bool:
                        try:
                            return (await heidi.take("tough")).is_done
                        except Unanswered:  # its offer is kept by the broker; it comes itself in a moment
                            return False

                    await until(is_taken)
                    assert (await heidi.change("tough", speed=2)).is_done

            asyncio.run(main())
            assert program.disturbed == []


def test_a_program_may_begin_without_a_broker() -> None:
    with testing.network(brokers=1) as net:
        url = net.url()
        net.kill("a.1")
        with pytest.raises(NotConnected), collab.application("early", url, timeout=0.1):
            raise AssertionError("it must not begin")
        with running(collab.application("early", url, parameters=PARAMETERS, timeout=0.1, required=False)) as program:
            while program.app.steps < 5:
                time.sleep(0.01)
            net.restart("a.1")

            async def main() -> None:
                async with veena.connect(url, client_id="i") as client, Member(client) as ivan:
                    await found(ivan, "early")

            asyncio.run(main())


def test_offers_come_and_go_with_the_program(url: str) -> None:
    """DIS-16: an application is a client like any other; what it offers can be asked for by any of its properties."""

    async def main() -> None:
        async with veena.connect(url, client_id="j") as client, Member(client) as judy:
            app = collab.application("offered", url, parameters=PARAMETERS, properties={"kind": "CFD", "cells": 4096})
            with running(app):
                await found(judy, "offered")
                [offer] = await judy.applications("kind == 'CFD' and cells > 1000")
                assert offer.application == "offered" and offer.client.startswith("offered/")
                assert offer.details["parameters"] == ["speed", "mode"]
                with pytest.raises(veena.LocalProtocolError, match="runs already"):
                    app.__enter__()
            assert await judy.applications("kind == 'CFD'") == []

    asyncio.run(main())


def test_two_programs_of_one_name_do_not_run_at_once(url: str) -> None:
    """Both would obey, with a wheel each: the second one waits until the first is gone."""

    async def main() -> None:
        async with veena.connect(url, client_id="k1") as one, veena.connect(url, client_id="k2") as two:
            first, second = Application(one, "single"), Application(two, "single")
            await first.open()
            opening = asyncio.create_task(second.open())
            done, _ = await asyncio.wait({opening}, timeout=2 * LOOK_S)
            assert not done
            await first.close()
            await asyncio.wait_for(opening, PATIENCE_S)
            await second.close()

    asyncio.run(main())


def test_while_two_programs_have_one_name_neither_is_steered(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """COL-02: each part of a parted network can begin one; a command would reach both, and two wheels turn."""
    monkeypatch.setattr(application, "ALONE_S", 0.05)

    async def main() -> None:
        async with (
            veena.connect(url) as client,
            veena.connect(url, client_id="twin") as other,
            veena.connect(url, client_id="ann") as user,
            Application(client, "pair", parameters=PARAMETERS),
            Member(user) as ann,
        ):
            assert (await ann.take("pair")).is_done
            registry = Registry(other)
            await registry.export("Application", "pair", {})

            async def is_closed() -> bool:
                return not (await ann.take("pair")).is_done

            await until(is_closed)
            for command in (ann.change("pair", speed=2.0), ann.pause("pair"), ann.hand_over("pair", "bob")):
                answer = await command
                assert not answer.is_done and "also as client 'twin'" in answer.reason
            assert (await ann.query("pair")).is_done, "looking is allowed"
            await registry.withdraw("pair")

            async def is_open() -> bool:
                return (await ann.take("pair")).is_done

            await until(is_open)

    asyncio.run(main())


def test_of_two_programs_that_begin_at_once_one_waits(url: str) -> None:
    """Neither sees the other before both are offered; then one stays at most, and the other one comes after it."""

    async def main() -> None:
        async with (
            veena.connect(url, client_id="n1") as one,
            veena.connect(url, client_id="n2") as two,
            veena.connect(url, client_id="n3") as three,
            Member(three) as nina,
        ):
            programs = [Application(one, "twin"), Application(two, "twin")]
            opening = {asyncio.create_task(each.open()) for each in programs}
            async with asyncio.timeout(PATIENCE_S):
                done, waiting = await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
                [first] = [task.result() for task in done]
                for _ in range(10):
                    await asyncio.sleep(LOOK_S / 5)
                    assert not any(task.done() for task in waiting)
                    assert [offer.client for offer in await nina.applications("name == 'twin'")] == [
                        first.client.client_id
                    ]
                await first.close()
                for task in waiting:
                    await (await task).close()

    asyncio.run(main())


def test_a_program_with_asyncio_waits_while_it_is_paused_and_ends_with_its_application(url: str) -> None:
    """COL-01: the same with `await app.step()`; a value may be changed while it waits."""

    async def main() -> None:
        async with (
            veena.connect(url, client_id="l") as one,
            veena.connect(url, client_id="m") as two,
            Member(two) as mia,
        ):
            app = Application(one, "slow", parameters=PARAMETERS)
            await app.open()
            speeds: list[object] = []

            async def compute() -> None:
                while await app.step():
                    speeds.append(app["speed"])
                    await asyncio.sleep(0.001)

            computing = asyncio.create_task(compute())
            await mia.take("slow")
            assert (await mia.pause("slow")).state == "paused"
            taken = len(speeds)
            assert (await mia.change("slow", speed=2)).state == "paused"
            assert len(speeds) == taken
            await mia.resume("slow")
            assert (await mia.change("slow", speed=3)).is_done
            await mia.pause("slow")
            assert list(dict.fromkeys(speeds)) == [1.0, 2.0, 3.0]
            await app.close()
            await asyncio.wait_for(computing, PATIENCE_S)

    asyncio.run(main())
