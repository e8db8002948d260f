"""Core brokers over real transports in one process: maps converge, links come back, hostile bytes are contained."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from tests.runtime.brokers import BRISK, Place, converge
from tests.runtime.streams import secrets, until
from veena.address import Address
from veena.core.boundary.inputs_effects import LinkUp
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Identity
from veena.core.links.link import LinkState, greeting
from veena.core.wire import codec as wire
from veena.core.wire.control import Frame, Goodbye, Routed
from veena.core.wire.discovery import StandingRequest
from veena.core.wire.header import EVENT, HEADER, VERSION
from veena.core.wire.membership import Renumber, SetupRequest
from veena.errors import LocalProtocolError
from veena.runtime.transports.registry import NO_SECRETS
from veena.runtime.transports.url import parse_url

#: A chain through two clusters and a super-cluster, closed to a ring.
FIVE: list[Address] = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1), (0, 1, 0, 0)]
#: Nobody is suspected while a test makes a link slow.
PATIENT = Settings()
URLS = {
    "tcp": "veena://127.0.0.1:0",
    "tls": "veenas://127.0.0.1:0",
    "ws": "ws://127.0.0.1:0",
    "wss": "wss://localhost:0",
    "memory": "memory://broker-{}",
}


def places(transport: str, addresses: list[Address]) -> list[Place]:
    """Each dials the one before it; the last also the first, when they are more than two."""
    used = secrets("required") if transport in ("tls", "wss") else NO_SECRETS
    made = [Place(address, URLS[transport].format(at), used) for at, address in enumerate(addresses)]
    for at, place in enumerate(made[1:]):
        place.neighbours.append(made[at])
    if len(made) > 2:
        made[-1].neighbours.append(made[0])
    return made


def with_network(transport: str, count: int, test: Callable[[list[Place]], Awaitable[None]]) -> None:
    async def run() -> None:
        made = places(transport, FIVE[:count])
        try:
            for place in made:
                await place.start()
            await converge(made)
            await test(made)
            for place in made:
                if place.driver is not None:
                    place.running.broker.check()
        finally:
            for place in made:
                await place.stop()

    asyncio.run(run())


@pytest.mark.parametrize("transport", URLS)
def test_two_brokers_find_each_other(transport: str) -> None:
    """TRN-01, BNM-01: over every transport."""

    async def test(made: list[Place]) -> None:
        for place in made:
            (link,) = place.running.statistics().links
            assert link.state is LinkState.OPEN
        await until(lambda: all(place.running.statistics().links[0].round_trip_ns is not None for place in made))

    with_network(transport, 2, test)


@pytest.mark.parametrize("transport", URLS)
def test_five_brokers_have_one_map(transport: str) -> None:
    """BNM-01, GPP-06: each sees its own cluster in full and the others as units."""

    async def test(made: list[Place]) -> None:
        assert list(made[0].running.reached) and (0, 1) in made[0].running.reached
        assert (0, 0, 1, 1) not in made[0].running.reached, "the inside of another cluster is not its business"

    with_network(transport, 5, test)


@pytest.mark.parametrize("transport", URLS)
def test_events_cross_links_in_order(transport: str) -> None:
    """I1: reliable and best effort, small and of a megabyte, over every transport; each once and in order."""

    async def test(made: list[Place]) -> None:
        await made[2].subscribe("quotes")
        publish = await made[0].publisher()
        bodies = [b"%d" % number for number in range(300)] + [os.urandom(1 << 19)]
        for body in bodies:
            publish("quotes", body)
            publish("nobody", body)
        await until(lambda: len(made[2].heard.bodies()) >= len(bodies))
        assert made[2].heard.bodies() == bodies
        publish("quotes", b"best effort", reliable=False)
        await until(lambda: made[2].heard.bodies()[-1] == b"best effort")
        assert not made[1].heard.bodies()

    with_network(transport, 3, test)


def test_what_follows_from_one_read_is_told_in_one_call() -> None:
    """A batch stays a batch: many events of one read are one call for the clients."""

    async def test(made: list[Place]) -> None:
        await made[1].subscribe("quotes")
        publish = await made[0].publisher()
        before = made[1].heard.calls
        for number in range(1000):
            publish("quotes", b"%d" % number, reliable=False)
        await until(lambda: len(made[1].heard.bodies()) == 1000)
        assert made[1].heard.calls - before < 500

    with_network("tcp", 2, test)


def test_a_clogged_link_holds_events_back_and_catches_up() -> None:
    """FLT-09, QOS-03: what waits, waits in the core, bounded; the load is measured; nothing reliable is lost."""

    async def run() -> None:
        made = places("tcp", FIVE[:2])
        for place in made:
            place.settings = PATIENT
        try:
            for place in made:
                await place.start()
            await converge(made)
            await made[1].subscribe("quotes")
            publish = await made[0].publisher()
            (away,) = made[1].running.links._ends.values()
            (near,) = made[0].running.links._ends.values()
            away.stream.pause()
            body, count = b"x" * 50_000, 400
            for _ in range(count):
                publish("quotes", body)
                await asyncio.sleep(0)
            await until(lambda: near._is_clogged)
            await until(lambda: made[0].running.statistics().links[0].waiting > 0)
            assert near.stream.waiting < 4 << 20, "the rest waits where it can be ordered"
            await until(lambda: near.statistics().utilisation > 0.3)
            away.stream.resume()
            await until(lambda: len(made[1].heard.bodies()) == count)
            await until(lambda: made[0].running.statistics().links[0].waiting == 0)
            await until(lambda: near.statistics().utilisation == 0.0)
            publish("quotes", b"at once", reliable=False)
            await until(lambda: made[1].heard.bodies()[-1] == b"at once")
        finally:
            for place in made:
                await place.stop()

    asyncio.run(run())


def test_a_broker_that_was_killed_comes_back() -> None:
    """FLT-01: its neighbours notice, dial again, and its incarnation has gone up."""

    async def test(made: list[Place]) -> None:
        victim = made[1]
        first = victim.running.broker.identity.incarnation
        await victim.stop()
        await until(lambda: not made[0].reaches([victim.address]))
        await victim.start()
        await converge(made)
        assert victim.running.broker.identity.incarnation == first + 1

    with_network("tcp", 5, test)


def test_a_cut_link_is_dialled_again() -> None:
    """FLT-01, TRN-04: the loss of a socket is noticed, the link comes back as a new one."""

    async def test(made: list[Place]) -> None:
        before = made[1].running.statistics().links[0].connection
        end = next(iter(made[1].running.links._ends.values()))
        end.stream.abort("a cable was cut")
        await until(
            lambda: [link for link in made[1].running.statistics().links if link.connection not in (None, before)]
        )
        await converge(made)

    with_network("tcp", 2, test)


def test_brokers_that_were_parted_dial_each_other() -> None:
    """FLT-01: the only broker between two of one cluster is gone for good; they find each other by what they know."""

    async def run() -> None:
        made = [Place((0, 0, 0, at), "veena://127.0.0.1:0") for at in range(3)]
        made[1].neighbours.append(made[0])
        made[2].neighbours.append(made[1])
        try:
            for place in made:
                await place.start()
            await converge(made)
            await until(lambda: made[0].running.broker.contacts.places((0, 0, 0, 2)))
            await until(lambda: made[2].running.broker.contacts.places((0, 0, 0, 0)))
            await made[1].stop()
            await until(lambda: not made[0].reaches([(0, 0, 0, 2)]))
            await until(lambda: made[0].reaches([(0, 0, 0, 2)]) and made[2].reaches([(0, 0, 0, 0)]))
        finally:
            for place in made:
                await place.stop()

    asyncio.run(run())


def test_a_silent_link_is_given_up() -> None:
    """FLT-02: suspected, then confirmed; the process on the other side does not answer but its socket is open."""

    async def test(made: list[Place]) -> None:
        for end in made[1].running.links._ends.values():
            end.stream.pause()
        made[1].neighbours.clear()
        await until(lambda: made[0].running.statistics().links == ())

    with_network("tcp", 2, test)


def test_links_that_cannot_be_made_are_tried_again_and_again() -> None:
    """A neighbour that starts later is found; until then the pause grows to its bound."""

    async def run() -> None:
        made = places("tcp", FIVE[:2])
        await made[0].start()
        await made[0].stop()  # only its port is known
        try:
            await made[1].start()
            await asyncio.sleep(0)
            assert not made[1].reaches([made[0].address])
            await made[0].start()
            await converge(made)
        finally:
            for place in made:
                await place.stop()

    asyncio.run(run())


async def _say(url: str, data: bytes, *, half_close: bool = False) -> bytes:
    """What a broker answers until it closes."""
    parsed = parse_url(url)
    reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
    try:
        writer.write(data)
        if half_close:
            writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def _hello(address: Address = (0, 0, 0, 9)) -> bytes:
    return wire.encode(greeting(Identity("x", address, 1), BRISK, 7, ()), 1)


def _routed(frame: Frame, origin: Address) -> bytes:
    return wire.encode(Routed(FIVE[0], origin, 3, *wire.enclose(frame)), 2)


BYE = wire.encode(Goodbye("x"), 0)
#: Whoever has a link to it holds the highest office, and answers for it.
AFAR: Address = (5, 0, 0, 9)
HOSTILE = {
    "zeros": b"\0" * 64,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "random": os.urandom(4096),
    "event first": HEADER.pack(100, VERSION, EVENT, 0, 1) + b"\0" * 84,
    "oversize greeting": HEADER.pack(1 << 30, VERSION, 1, 0, 1),
    "garbage greeting": HEADER.pack(80, VERSION, 1, 0, 1) + b"\xff" * 64,
    "oversize event": _hello() + HEADER.pack((1 << 20) + 1, VERSION, EVENT, 0, 2),
    "garbage after the greeting": _hello() + os.urandom(256),
    "another network": wire.encode(greeting(Identity("x", (0, 0, 0, 9), 1), type(BRISK)(network="other"), 7, ()), 1),
    "a goodbye": _hello() + wire.encode(Goodbye("x"), 0),
    "a renumbering of its cluster": _hello() + wire.encode(Renumber("x", 1, (0, 0, 0), (0, 0, 7)), 2),
    "a question in the broker's own name": _hello() + _routed(SetupRequest("x", 1, 1, 0, "x"), FIVE[0]) + BYE,
    "shelves of a highest unit": _hello(AFAR) + _routed(StandingRequest((0,), AFAR), AFAR) + BYE,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_cost_their_sender_the_connection(what: str) -> None:
    """TRN-05: and nobody else anything: the other link stays up."""

    async def test(made: list[Place]) -> None:
        links = {link.connection for link in made[0].running.statistics().links}
        await _say(made[0].url, HOSTILE[what])
        await until(lambda: made[0].entrance is not None and made[0].entrance.statistics().connections == 1)
        assert {link.connection for link in made[0].running.statistics().links} == links
        assert made[0].reaches([made[1].address])
        await made[1].subscribe("quotes")
        (await made[0].publisher())("quotes", b"after it")
        await until(lambda: made[1].heard.bodies() == [b"after it"])

    with_network("tcp", 2, test)


def test_who_says_nothing_is_closed() -> None:
    """Half-open connections and slow senders are bounded in time and in number."""

    async def test(made: list[Place]) -> None:
        place = made[0]
        assert place.entrance is not None
        place.limits.identify_s = 0.05
        assert await _say(place.url, b"") == b""  # closed by the broker
        assert await _say(place.url, b"\0\0\0") == b""
        place.limits.identify_s = 30.0
        place.limits.unidentified = 3
        parsed = parse_url(place.url)
        quiet = [await asyncio.open_connection(parsed.host, parsed.port) for _ in range(3)]
        await until(lambda: place.entrance is not None and place.entrance.statistics().unidentified == 3)
        assert await _say(place.url, _hello(), half_close=True), "who says who it is is greeted all the same"
        assert await quiet[0][0].read() == b"", "and who was silent for longest had to go"
        assert place.entrance.statistics().unidentified == 2
        for _, writer in quiet:
            writer.close()
        await until(lambda: place.entrance is not None and place.entrance.statistics().unidentified == 0)

    with_network("tcp", 2, test)


def test_many_connections_leave_nothing_behind() -> None:
    async def test(made: list[Place]) -> None:
        place = made[0]
        parsed = parse_url(place.url)
        for _ in range(300):
            _, writer = await asyncio.open_connection(parsed.host, parsed.port)
            writer.close()
        await until(lambda: place.entrance is not None and place.entrance.statistics().connections == 1)
        assert len(place.running.links) == 1

    with_network("tcp", 2, test)


def test_a_link_number_is_used_once() -> None:
    """What this side does wrong is said to who did it, and the broker goes on."""

    async def test(made: list[Place]) -> None:
        with pytest.raises(LocalProtocolError):
            made[0].running.give(LinkUp(1, True))
        assert made[0].reaches([made[1].address])

    with_network("memory", 2, test)
