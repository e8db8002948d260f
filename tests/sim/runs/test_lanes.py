"""A flood in the low lane over a link that carries half of it: the high lane does not notice, the low lane moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tests.core.event_world import Stage, cluster
from tests.tiers import few
from veena.address import Address
from veena.core.boundary.inputs_effects import Deliver, LinkRoom, Send
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event
from veena.runtime.networks.file import Network
from veena.sim.runs.run import run_seed
from veena.sim.world.narrow_links import limit
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, MakeBroker, World

#: Bytes a second of the narrow link.
CAPACITY = 100_000
BODY = 1000
#: Twice the capacity; a high event now and then, never at the same beat.
FLOOD_EVERY_NS = BODY * SECOND_NS // CAPACITY // 2
HIGH_EVERY_NS = 67 * MILLISECOND_NS
TIME_NS = 4 * SECOND_NS
HIGHS, LOWS = TIME_NS // HIGH_EVERY_NS, TIME_NS // FLOOD_EVERY_NS

LOW, HIGH = Event(topic="quotes", priority=0), Event(topic="quotes", priority=9)


@dataclass
class Run:
    """1 publishes, 3 reads, 1 - 2 is narrow: when high events were sent, and how long they took."""

    stage: Stage
    sender: int
    reader: int
    sent_ns: dict[str, int] = field(default_factory=dict)
    latency_ns: dict[str, int] = field(default_factory=dict)

    def publish(self, body: str, event: Event, reliable: bool) -> None:
        self.sent_ns[body] = self.stage.world.now_ns
        self.stage.publish(self.sender, body, event, reliable=reliable)

    def heard(self, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            body = bytes(effect.frame.body).decode()
            self.latency_ns[body] = self.stage.world.now_ns - self.sent_ns[body]

    def came(self, name: str) -> list[str]:
        """The events of that name that came, in order."""
        return [body.split()[0] for body in self.stage.bodies[self.reader] if body.startswith(name)]

    def slowest_ns(self) -> int:
        return max(time for body, time in self.latency_ns.items() if body.startswith("high"))

    def frame_ns(self) -> int:
        """How long the narrow link takes for an event of the flood."""
        codec = EventCodec(self.stage.network.levels, self.stage.network.fanout)
        flood = next(frame for _, _, frame in self.stage.copies if len(frame.body) == BODY)
        return len(codec.encode(flood, 1)) * SECOND_NS // CAPACITY


def played(flood: Event | None, *, high: bool, low: bool, ordered: bool = True) -> Run:
    """`high` and `low` say whether those events are reliable."""
    stage = Stage(cluster([(1, 2), (2, 3)]), options=Options(wire=False, ordered=ordered, check_every=50))
    run = Run(stage, reader=stage.subscribe("3"), sender=stage.attach("1", "p"))
    stage.wait()
    world, heard = stage.world, stage.world.on_client
    assert heard is not None

    def on_client(address: Address, effect: ClientEffect) -> None:
        heard(address, effect)
        run.heard(effect)

    world.on_client = on_client
    limit(world, stage.link("1", "2"), CAPACITY)
    begin_ns = world.now_ns
    for at in range(HIGHS):
        world.at(begin_ns + at * HIGH_EVERY_NS, lambda at=at: run.publish(f"high-{at}", HIGH, high))  # type: ignore[misc]
    for at in range(LOWS if flood is not None else 0):
        body = f"low-{at} ".ljust(BODY)
        world.at(begin_ns + at * FLOOD_EVERY_NS, lambda body=body: run.publish(body, flood, low))  # type: ignore[misc,arg-type]
    stage.wait(TIME_NS)
    return run


@pytest.mark.parametrize(
    ("high", "low", "ordered"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, True), (True, True, False)],
)
def test_a_flood_in_the_low_lane(high: bool, low: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """QOS-03: the high lane's latency grows by less than one frame of the flood; the low lane has the rest of the link.

    Reliable or best effort, over an ordered transport or one that is not; what is reliable is parked in the log.
    """
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 64)
    calm = played(None, high=high, low=low, ordered=ordered)
    flooded = played(LOW, high=high, low=low, ordered=ordered)
    assert calm.came("high") == [f"high-{at}" for at in range(HIGHS)]
    assert flooded.came("high") == calm.came("high"), "all of them, in order"
    assert 0 < flooded.slowest_ns() - calm.slowest_ns() < flooded.frame_ns()
    lows = flooded.came("low")
    assert lows == [f"low-{at}" for at in range(len(lows))], "order within the lane stays"
    carried = TIME_NS // flooded.frame_ns()
    assert 0.7 * carried < len(lows) < carried < 0.6 * LOWS


def test_in_one_lane_everybody_waits() -> None:
    """The same flood in the lane of the high events: what the test above would show without lanes."""
    run = played(HIGH, high=False, low=False)
    assert run.slowest_ns() > 20 * run.frame_ns()


def test_a_reliable_flood_comes_whole_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """QOS-01: parked in the log by lane and read back, everything reliable arrives, once and in order."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 64)
    run = played(LOW, high=True, low=True)
    assert len(run.came("low")) < LOWS
    run.stage.wait(2 * TIME_NS)
    assert run.came("low") == [f"low-{at}" for at in range(LOWS)]
    assert run.came("high") == [f"high-{at}" for at in range(HIGHS)]
    assert run.stage.is_idle()


def test_a_best_effort_flood_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-09: what waits on a link stays within its bound; the oldest is dropped, and every event is accounted for."""
    monkeypatch.setattr("veena.core.links.link.MAX_WAITING_EVENTS", 50)
    run = played(LOW, high=False, low=False)
    (narrow,) = run.stage.broker("1").statistics().links
    assert narrow.waiting == 50
    run.stage.wait()
    (narrow,) = run.stage.broker("1").statistics().links
    assert narrow.waiting == 0
    came = [int(name.removeprefix("low-")) for name in run.came("low")]
    assert came == sorted(came)
    assert came[-1] == LOWS - 1, "not the newest"
    assert narrow.dropped == LOWS - len(came) > LOWS // 3
    assert run.came("high") == [f"high-{at}" for at in range(HIGHS)]


def test_a_link_that_is_cut_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in lanes when its connection ends goes again over the next one: nothing lost, nothing twice."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 64)
    stage = Stage(cluster([(1, 2), (2, 3), (1, 4), (4, 3)]))
    reader, sender = stage.subscribe("3"), stage.attach("1", "p")
    stage.wait()
    narrow, other = stage.link("1", "2"), stage.link("1", "4")
    for link in (narrow, other):
        limit(stage.world, link, CAPACITY)
    for at in range(300):
        stage.publish(sender, f"{at}".ljust(BODY), Event(topic="quotes", priority=at % 3 * 4))
        if at % 60 == 30:
            stage.wait_ms(200)
            stage.world.bounce(narrow if at % 120 == 30 else other)
    stage.wait(10 * SECOND_NS)
    came = [int(body) for body in stage.bodies[reader]]
    for lane in range(3):
        assert [at for at in came if at % 3 == lane] == list(range(lane, 300, 3))
    assert stage.is_idle()


# --- everything at once ---


class NarrowWorld(World):
    """Every link takes one event at a time, and says only after a while that it takes the next one."""

    def __init__(self, network: Network, seed: int, options: Options, make_broker: MakeBroker) -> None:
        self._patience = Random(seed)
        super().__init__(network, seed, options, make_broker=make_broker)

    def connect(self, link: VirtualLink) -> None:
        former = link.session
        super().connect(link)
        if link.session is not None and link.session is not former:
            for end, handle in link.session.handles.items():
                self.give(end, LinkRoom(handle, 1))

    def _send(self, sender: Address, effect: Send) -> None:
        super()._send(sender, effect)
        if any(isinstance(frame, EventFrame) for _, frame in effect.frames):
            pause_ns = self._patience.randrange(self._patience.choice((1, 10, 50, 200)) * MILLISECOND_NS)
            self.at(self.now_ns + pause_ns, lambda: self.give(sender, LinkRoom(effect.link, 1)))


@pytest.mark.parametrize("seed", few([50, 58, 67]))
def test_narrow_links_and_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1 with events waiting in every lane, and hardly any window at the origins, while links and brokers fail."""
    monkeypatch.setattr("veena.sim.runs.run.World", NarrowWorld)
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 8)

    def change(options: Options) -> Options:
        return replace(options, copies=1, durables=0, absences=0, check_every=10)

    report = run_seed(seed, "all", brokers=6 + seed % 7, events=150, change=change)
    assert report.is_sound, report.wrong
    assert report.expected
