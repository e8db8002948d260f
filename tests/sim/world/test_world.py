"""The virtual world: its clock, its transports, its disk, and what its brokers are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.core.small_networks import random_network
from veena.address import Address
from veena.core.boundary.inputs_effects import (
    Arrived,
    ClientDown,
    ClientUp,
    Effect,
    Input,
    LinkDown,
    LinkLoad,
    LinkUp,
    LogRead,
    Numbered,
    Publish,
    Read,
    Stored,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.links.link import LinkState
from veena.core.wire.control import Frame, Goodbye, Hello
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import ConfigError
from veena.event import Event, IdGenerator
from veena.runtime.networks.file import Network, make_network
from veena.sim.world.network import Session, VirtualLink, deliveries
from veena.sim.world.options import FAULTS, Options, draw
from veena.sim.world.world import World

ONE: Address = (0, 0, 0, 0)
TWO: Address = (0, 0, 0, 1)


def pair() -> Network:
    return make_network("pair", ["S.C.c.1", "S.C.c.2"], [("S.C.c.1", "S.C.c.2")])


class Diary(Broker):
    """A broker that keeps what it was given."""

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        self.__dict__.setdefault("given", []).append(given)
        return super().handle(given, now_ns)


def given(world: World, address: Address, kind: type[Input]) -> list[Input]:
    return [item for item in world.broker(address).__dict__.get("given", []) if type(item) is kind]


def open_links(world: World, address: Address) -> list[LinkState]:
    return [link.state for link in world.broker(address).statistics().links]


def test_entries_of_one_moment_keep_their_order() -> None:
    """Determinism: time first, then the order of entering."""
    world = World(pair(), 1)
    seen: list[int] = []
    later = world.now_ns + SECOND_NS
    for number in range(5):
        world.at(later - (number == 3), lambda number=number: seen.append(number))  # type: ignore[misc]
    world.run_until(later)
    assert seen == [3, 0, 1, 2, 4]
    assert world.now_ns == later


def test_a_broker_starts_from_what_its_disk_holds() -> None:
    """UID-02: every start has a new incarnation, also after one that died before its disk answered."""
    world = World(pair(), 1)
    assert world.broker(ONE).identity.incarnation == 1
    world.run_until(3 * SECOND_NS)
    world.crash(ONE, silent=False)
    world.start(ONE)
    assert world.broker(ONE).identity.incarnation == 2
    world.crash(ONE, silent=False)
    got_there = world.nodes[ONE].disk.identity.incarnation
    world.start(ONE)
    assert world.broker(ONE).identity.incarnation == got_there + 1 <= 3


# --- disk ---


def published(world: World, count: int) -> None:
    """A client at ONE publishes so many reliable events at once."""
    codec = EventCodec(4, 32)
    welcomed: list[int] = []
    world.on_client = lambda _, effect: welcomed.append(effect.incarnation) if type(effect) is Welcome else None
    world.give(ONE, ClientUp(1, "p"))
    ids = IdGenerator("p", welcomed[0])
    for _ in range(count):
        event = Event(topic="t", event_id=ids.next(world.now_ns), timestamp_ns=world.now_ns)
        world.give(ONE, Publish(1, codec.frame(event, reliable=True)))


def test_a_crash_loses_what_was_not_synced_and_only_that() -> None:
    """I5: what was answered is there; of the rest any beginning may be, in order."""
    survived = set()
    for seed in range(12):
        world = World(pair(), seed, make_broker=Diary)
        world.run_until(3 * SECOND_NS)
        published(world, 5)
        world.run_until(world.now_ns + SECOND_NS)
        assert len(world.nodes[ONE].disk.entries) == 5
        published_again(world)
        world.crash(ONE, silent=False)
        offsets = [entry.offset for entry in world.nodes[ONE].disk.entries]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= 5
        survived.add(len(offsets))
        world.start(ONE)
        world.run_until(world.now_ns + SECOND_NS)
        assert [entry.offset for entry in world.nodes[ONE].disk.entries] == offsets, "what was lost stays lost"
    assert len(survived) > 2, "chance decides how much of it"


def published_again(world: World) -> None:
    world.give(ONE, ClientDown(1))
    published(world, 5)


def test_tickets_are_answered_in_their_order() -> None:
    """Disk is a peer: the answers come in the order of the questions, each after a while."""
    world = World(pair(), 1, make_broker=Diary)
    world.run_until(3 * SECOND_NS)
    published(world, 30)
    world.run_until(world.now_ns + SECOND_NS)
    tickets = [each.ticket for each in given(world, ONE, Stored) if isinstance(each, Stored)]
    assert tickets == sorted(tickets)
    assert len(tickets) > 10


def test_a_log_is_read_by_offset() -> None:
    """Read gives what is synced from an offset on, up to a limit."""

    class Reader(Diary):
        def handle(self, given: Input, now_ns: int) -> list[Effect]:
            effects = super().handle(given, now_ns)
            return [*effects, Read(77, 2, 3)] if type(given) is LinkLoad else effects

    class Patient(Reader):
        def handle(self, given: Input, now_ns: int) -> list[Effect]:
            if type(given) is LogRead and given.ticket == 77:
                self.__dict__["read"] = given
                return []
            return super().handle(given, now_ns)

    world = World(pair(), 1, make_broker=Patient)
    world.run_until(3 * SECOND_NS)
    published(world, 8)
    world.run_until(world.now_ns + SECOND_NS)
    world.give(ONE, LinkLoad(0, 0.0))
    world.run_until(world.now_ns + SECOND_NS)
    read = world.broker(ONE).__dict__["read"]
    assert [entry.offset for entry in read.entries] == [2, 3, 4]


def test_an_event_sent_again_by_the_channel_is_no_crossing() -> None:
    """TRN-05: over a link that loses, an event is written until it arrives, and crosses once."""
    options = Options(ordered=False, loss=0.25)
    world = World(pair(), 2, options)
    world.run_until(5 * SECOND_NS)
    world.give(TWO, ClientUp(1, "c"))
    world.give(TWO, Subscribe(1, 1, "topic", "t", 4))
    world.run_until(world.now_ns + 10 * SECOND_NS)
    crossed: list[tuple[Address, Address]] = []
    written: list[int] = []
    world.on_crossing = lambda sender, receiver, frame: crossed.append((sender, receiver))
    world.on_delivery = lambda d: written.extend(n for n, frame in d.frames if isinstance(frame, EventFrame))
    published(world, 20)
    world.run_until(world.now_ns + 20 * SECOND_NS)
    assert crossed == [(ONE, TWO)] * 20
    assert len(set(written)) == 20 <= len(written)


def test_a_slow_link_is_slow_and_keeps_order() -> None:
    world = World(pair(), 1, Options(delay_ns=10 * MILLISECOND_NS))
    arrivals: list[int] = []
    world.give(TWO, ClientUp(9, "c"))
    world.give(TWO, Subscribe(9, 1, "topic", "t", 4))
    world.run_until(5 * SECOND_NS)
    world.links[0].slowness = 20
    world.run_until(world.now_ns + 20 * MILLISECOND_NS)  # what was on its way before
    world.on_delivery = lambda delivery: arrivals.extend(
        world.now_ns for _, frame in delivery.frames if isinstance(frame, EventFrame)
    )
    begun = world.now_ns
    published(world, 1)
    world.run_until(world.now_ns + 190 * MILLISECOND_NS)
    assert arrivals == []
    world.run_until(begun + 3 * SECOND_NS)
    assert arrivals
    assert open_links(world, ONE) == [LinkState.OPEN]


def test_a_cut_that_is_noticed_and_one_that_is_not() -> None:
    """FLT-01: sockets are reset at both ends, or nothing passes and nobody is told."""
    for silent in (False, True):
        world = World(pair(), 1, Options(dial=False), make_broker=Diary)
        world.run_until(3 * SECOND_NS)
        world.cut(world.links[0], silent)
        told = [len(given(world, address, LinkDown)) for address in (ONE, TWO)]
        assert told == ([0, 0] if silent else [1, 1])
        before = len(given(world, ONE, Arrived))
        world.run_until(world.now_ns + 2 * SECOND_NS)
        assert len(given(world, ONE, Arrived)) == before
        world.run_until(world.now_ns + 10 * SECOND_NS)
        assert open_links(world, ONE) == [], "in the end silence is noticed too"
        assert world.wrong_maps() == []
        world.heal(world.links[0])
        world.run_until(world.now_ns + 3 * SECOND_NS)
        assert open_links(world, ONE) == [LinkState.OPEN]


def test_a_crash_is_noticed_by_its_neighbours_or_not() -> None:
    """FLT-01: a process that dies resets its sockets; a machine that dies does not."""
    for silent in (False, True):
        world = World(pair(), 1, Options(dial=False), make_broker=Diary)
        world.run_until(3 * SECOND_NS)
        world.crash(ONE, silent)
        assert len(given(world, TWO, LinkDown)) == (0 if silent else 1)
        assert [broker.identity.address for broker in world.live()] == [TWO]
        with pytest.raises(AssertionError, match="this broker is down"):
            world.broker(ONE)


def test_a_new_session_has_new_numbers() -> None:
    """Rule 5: frames of the old connection can never be taken for the new one's."""
    world = World(pair(), 1, Options(dial=False), make_broker=Diary)
    world.run_until(3 * SECOND_NS)
    world.bounce(world.links[0])
    world.run_until(world.now_ns + SECOND_NS)
    ups = given(world, ONE, LinkUp)
    assert len({up.link for up in ups if isinstance(up, LinkUp)}) == len(ups) == 2
    assert open_links(world, ONE) == [LinkState.OPEN]


def test_a_refused_link_is_dialled_again() -> None:
    """A driver dials again: also where the peer closed."""

    class Grumpy(Diary):
        def handle(self, given: Input, now_ns: int) -> list[Effect]:
            first = type(given) is Arrived and not self.__dict__.get("refused")
            if first and self.identity.address == TWO and isinstance(given, Arrived):
                self.__dict__["refused"] = True
                given = Arrived(given.link, [(5, frame) for _, frame in given.frames])
            return super().handle(given, now_ns)

    world = World(pair(), 1, make_broker=Grumpy)
    world.run_until(10 * SECOND_NS)
    assert len(given(world, ONE, LinkUp)) == 2
    assert open_links(world, ONE) == open_links(world, TWO) == [LinkState.OPEN]


def test_quiet_means_that_nothing_new_is_under_way() -> None:
    world = World(random_network(Random(1)), 1, Options(delay_ns=300 * MILLISECOND_NS, check=False))
    assert not world.run_until_quiet(world.now_ns + 400 * MILLISECOND_NS)
    assert world.run_until_quiet(world.now_ns + 60 * SECOND_NS)
    assert world.wrong_maps() == []


# --- transports ---


def session() -> Session:
    return Session(VirtualLink(ONE, TWO, 10), {ONE: 1, TWO: 2})


def carried(options: Options, count: int = 400) -> list[tuple[int, Numbered]]:
    """Arrivals of frames that are sent one a nanosecond."""
    chance, one = Random(5), session()
    frames: list[tuple[int, Frame]] = [(number, Goodbye(str(number))) for number in range(1, count + 1)]
    found = [
        (delivery.at_ns, numbered)
        for number, frame in frames
        for delivery in deliveries(one, ONE, ((number, frame),), now_ns=number, options=options, chance=chance)
        for numbered in delivery.frames
    ]
    return sorted(found, key=lambda arrival: arrival[0])


def test_an_ordered_transport_keeps_order_and_everything() -> None:
    arrivals = carried(Options(jitter_ns=1000))
    assert [number for _, (number, _) in arrivals] == list(range(1, 401))
    assert all(at_ns >= number + 10 for at_ns, (number, _) in arrivals)


def test_a_datagram_transport_loses_repeats_and_overtakes() -> None:
    """TRN-05."""
    arrivals = carried(Options(ordered=False, jitter_ns=1000, loss=0.2, duplication=0.2))
    numbers = [number for _, (number, _) in arrivals]
    assert 40 < 400 - len(set(numbers)) < 130, "about a fifth is lost"
    assert 40 < len(numbers) - len(set(numbers)) < 130, "about a fifth of the rest comes twice"
    assert numbers != sorted(numbers)


def test_nothing_passes_a_cut_datagram_link() -> None:
    one = session()
    one.link.cut = True
    assert deliveries(one, ONE, ((1, Goodbye("x")),), now_ns=0, options=Options(ordered=False), chance=Random(1)) == []


def test_what_arrives_went_through_the_wire_format() -> None:
    """The bytes are part of the run: another frame size would be another trace."""
    plain, wired = World(pair(), 1, Options(wire=False)), World(pair(), 1, Options(wire=True), make_broker=Diary)
    for world in (plain, wired):
        world.run_until(3 * SECOND_NS)
    assert plain.trace_hash() != wired.trace_hash()
    first = given(wired, ONE, Arrived)[0]
    assert isinstance(first, Arrived)
    assert isinstance(first.frames[0][1], Hello)


# --- options ---


@pytest.mark.parametrize("faults", FAULTS)
def test_options_are_drawn_from_the_seed(faults: str) -> None:
    one, same, other = (draw(Random(seed), faults, 20) for seed in (4, 4, 5))
    assert one == same != other
    assert one.faults == faults
    assert (one.fault_count > 0) == (faults != "none")
    if faults in {"none", "crash", "partition"}:
        assert one.ordered and one.loss == 0.0
    assert draw(Random(4), faults, 20).as_dict()["delay_ns"] == one.delay_ns


def test_an_unknown_kind_of_fault_is_refused() -> None:
    with pytest.raises(ConfigError, match="--faults: floods: is no kind of fault; use one of none, links"):
        draw(Random(1), "floods", 5)


Change = Callable[[Options], Options]


@pytest.mark.parametrize(
    "change",
    [
        lambda options: replace(options, ordered=False, loss=0.3, duplication=0.3),
        lambda options: replace(options, jitter_ns=900 * MILLISECOND_NS),
        lambda options: replace(options, delay_ns=400 * MILLISECOND_NS),
    ],
    ids=["lossy", "jittery", "far"],
)
def test_maps_are_right_over_bad_links(change: Change) -> None:
    """TRN-05, GPP-20: loss and delay make it later, not wrong."""
    world = World(random_network(Random(11), largest=10), 3, change(Options()))
    world.run_until(40 * SECOND_NS)
    # At this loss a link is suspected now and then, and rightly so; what was learned must be right when that is over.
    world.options = replace(world.options, loss=0.0, duplication=0.0)
    world.run_until(48 * SECOND_NS)
    assert world.wrong_maps() == []
    world.check()
