"""What a broker still has to do: every legal state occurs between real brokers, and no other one is accepted."""

from __future__ import annotations

from itertools import product

import pytest

from veena.address import Address
from veena.core.boundary.inputs_effects import (
    ClientUp,
    Deliver,
    DeliverBurst,
    Input,
    LinkUp,
    Publish,
    PublishBatch,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS
from veena.core.broker import Broker
from veena.core.schedule import LEGAL_AT_REST, LEGAL_IN_INPUT, Schedule, Timers, Turn, Work
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import LocalProtocolError
from veena.event import Event, IdGenerator
from veena.runtime.networks.file import Network, make_network
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

#: Brokers, routers and worlds of these tests are subclasses of the program's.
pytestmark = pytest.mark.replaces

State = tuple[Work, Turn]
PUBLISHER, NEAR, FAR = 1, 2, 3
LINK = 999


def line() -> Network:
    return make_network("line", ["S.C.a.1", "S.C.a.2"], [("S.C.a.1", "S.C.a.2")])


class Watching(World):
    """Two brokers whose states are noted between inputs."""

    def __init__(self, options: Options) -> None:
        self.states: dict[tuple[State, Timers], None] = {}
        super().__init__(line(), 1, options)
        self.incarnation = 0
        self.delivered = 0
        self.on_client = self._hear
        self.first, self.second = self.nodes
        self._codec = EventCodec(self.network.levels, self.network.fanout)
        self._ids: IdGenerator | None = None

    def _hear(self, at: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome) and effect.session == PUBLISHER:
            self.incarnation = effect.incarnation
        self.delivered += isinstance(effect, Deliver | DeliverBurst)

    def look(self) -> None:
        for broker in self.live():
            broker.check()
            self.states[state_of(broker.schedule), broker.schedule.timers] = None

    def give(self, address: Address, given: Input) -> None:
        """As a driver does: what was refused changes nothing, and the timers may be asked for later."""
        super().give(address, given)
        self.look()

    def wait(self, time_ns: int = 10 * SECOND_NS) -> None:
        until_ns = self.now_ns + time_ns
        while self._queue and self._queue[0][0] <= until_ns:
            self._step()
            self.look()
        self.now_ns = until_ns

    def event(self, topic: str, *, reliable: bool = False) -> EventFrame:
        if self._ids is None:
            self._ids = IdGenerator("pub", self.incarnation)
        event_id = self._ids.next(self.now_ns)
        event = Event(topic=topic, body=b"1", event_id=event_id, timestamp_ns=self.now_ns)
        return self._codec.frame(event, reliable=reliable)

    def batch(self, frame: EventFrame) -> PublishBatch:
        read = Decoder(self._codec).feed_bursts(self._codec.encode(frame, 0))
        return PublishBatch(PUBLISHER, [burst for burst in read if isinstance(burst, EventBurst)])


def state_of(schedule: Schedule) -> State:
    return schedule.work, schedule.turn


def busy(options: Options) -> Watching:
    """Events on every way, control messages, a refused input, and quiet times."""
    world = Watching(options)
    world.look()
    world.wait()
    world.give(world.first, ClientUp(PUBLISHER, "pub"))
    world.give(world.first, ClientUp(NEAR, "near"))
    world.give(world.second, ClientUp(FAR, "far"))
    world.give(world.first, Subscribe(NEAR, 1, "topic", "here", world.network.levels))
    world.give(world.second, Subscribe(FAR, 1, "topic", "there", world.network.levels))
    world.wait()
    for topic, reliable in (("here", False), ("there", False), ("here", True), ("there", True)):
        world.give(world.first, world.batch(world.event(topic, reliable=reliable)))
        world.give(world.first, Publish(PUBLISHER, world.event(topic, reliable=reliable)))
        world.wait(SECOND_NS)
    broker = world.broker(world.first)
    world.give(world.first, LinkUp(LINK, True, "10.0.0.9"))
    with pytest.raises(LocalProtocolError, match="in use"):
        world.give(world.first, LinkUp(LINK, True, "10.0.0.9"))
    world.look()
    assert broker.schedule.work is Work.CONTROL, "the next input tells others whatever it had changed"
    world.wait()
    return world


@pytest.mark.parametrize("ordered", [True, False])
def test_every_legal_state_occurs_and_no_other_one(ordered: bool) -> None:
    world = busy(Options(ordered=ordered, check=False))
    assert world.delivered == 8
    assert {state for state, _ in world.states} == LEGAL_AT_REST


def test_a_broker_with_a_state_that_loses_work_is_caught() -> None:
    world = busy(Options(check=False))
    broker = world.broker(world.first)
    for work, turn in product(Work, Turn):
        broker.schedule.work, broker.schedule.turn = work, turn
        if (work, turn) in LEGAL_AT_REST:
            broker.check()
        else:
            with pytest.raises(AssertionError, match="work would be lost"):
                broker.check()


def test_transitions_never_leave_the_table() -> None:
    """From every legal state every transition leads to a legal one; only what changed is told to others."""
    (link,) = broker_with_a_link()._links.values()
    for work, turn in sorted(LEGAL_IN_INPUT, key=str):
        for act in (
            Schedule.control_changed,
            Schedule.events_passed,
            lambda schedule: schedule.signs_came(link),
            lambda schedule: schedule.receipt_came(True),
            lambda schedule: schedule.receipt_came(False),
            Schedule.take_fast_path,
            Schedule.take_link,
            *([Schedule.begin_settling] if work is Work.CONTROL else []),
        ):
            schedule = Schedule()
            schedule.work, schedule.turn = work, turn
            act(schedule)
            assert state_of(schedule) in LEGAL_IN_INPUT, (work, turn, act)


def broker_with_a_link() -> Broker:
    world = Watching(Options(check=False))
    world.wait()
    return world.broker(world.first)


def test_times_are_found_once_and_again_after_a_change() -> None:
    """A time that is asked for before it was found is a mistake of the broker."""
    schedule = Schedule()
    with pytest.raises(AssertionError):
        schedule.wakeups()
    schedule.begin_settling()
    with pytest.raises(AssertionError):
        schedule.begin_settling()
    schedule.know_wakeup(7)
    with pytest.raises(AssertionError):
        schedule.know_wakeup(8)
    schedule.know_beat(None)
    assert schedule.wakeups() == (7, None)
    schedule.beat_changed()
    with pytest.raises(AssertionError):
        schedule.wakeups()
    schedule.know_beat(5)
    assert schedule.wakeups() == (7, 5)
    schedule.control_changed()
    schedule.begin_settling()
    schedule.beat_changed()
    with pytest.raises(AssertionError):
        schedule.know_beat(5)  # the other time is to be found before
