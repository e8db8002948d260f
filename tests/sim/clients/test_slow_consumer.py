"""A consumer that stops reading, in a network: memory is bounded, nobody else notices, and the count is right."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import event_copy
from veena.address import Address
from veena.core.boundary.clients import CloseSession, Dropped, SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import Deliver, Subscribe
from veena.core.boundary.settings import Settings
from veena.core.delivery.session_queue import OVERHEAD
from veena.event import Event
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect

EVENTS = 400
KEPT = 50
BODY = 500
#: What an event of these tests counts while it waits.
SIZE = OVERHEAD + len(event_copy(1, 0).tail) - len("e1") + BODY
NARROW = Settings(network="small", session_bytes=KEPT * SIZE)


@dataclass
class Audience:
    """1 publishes; at 2 one client may stop reading, one reads; at 3, behind 2, another one reads."""

    stage: Stage
    sender: int
    slow: int
    near: int
    far: int
    #: When which session got which event.
    came_ns: dict[int, dict[str, int]] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)
    closed: list[CloseSession] = field(default_factory=list)
    most_bytes: int = 0

    def heard(self, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            for session, _ in effect.receivers:
                body = bytes(effect.frame.body).decode().strip()
                assert body not in self.came_ns.setdefault(session, {}), "nobody gets an event twice"
                self.came_ns[session][body] = self.stage.world.now_ns
        elif isinstance(effect, Dropped):
            assert effect.session == self.slow
            self.missed.append(effect.count)
        elif isinstance(effect, CloseSession):
            self.closed.append(effect)

    def tell(self, given: SessionClogged | SessionClear) -> None:
        self.stage.world.give(self.stage.addresses["2"], given)

    def flood(self, count: int = EVENTS, first: int = 0) -> None:
        for at in range(first, first + count):
            event = Event(topic="quotes", priority=(4, 4, 4, 9)[at % 4])
            self.stage.publish(self.sender, f"{at}".ljust(BODY), event, reliable=at % 3 > 0)
            self.stage.wait_ms(2)
            self.most_bytes = max(self.most_bytes, self.stage.broker("2").statistics().outlet.waiting_bytes)
        self.stage.wait_ms(500)

    def got(self, session: int) -> list[str]:
        return list(self.came_ns.get(session, {}))


def audience(slow: str = "drop") -> Audience:
    stage = Stage(cluster([(1, 2), (2, 3)]), settings=NARROW, options=Options(wire=False, check_every=20))
    session = stage.attach("2", "slow", slow=slow)
    stage.world.give(stage.addresses["2"], Subscribe(session, 1, "topic", "quotes", stage.network.levels))
    found = Audience(stage, stage.attach("1", "p"), session, stage.subscribe("2"), stage.subscribe("3"))
    heard = stage.world.on_client
    assert heard is not None

    def on_client(address: Address, effect: ClientEffect) -> None:
        heard(address, effect)
        found.heard(effect)

    stage.world.on_client = on_client
    stage.wait()
    return found


ALL = [f"{at}" for at in range(EVENTS)]


def test_a_consumer_that_stops_reading() -> None:
    """FLT-09, CLI-03: what waits for it is bounded; others get the same at the same times; the count is right."""
    calm, clogged = audience(), audience()
    clogged.tell(SessionClogged(clogged.slow))
    for each in (calm, clogged):
        each.flood()
    assert sorted(calm.got(calm.slow), key=int) == ALL
    assert clogged.got(clogged.slow) == []
    for session in (calm.near, calm.far):
        assert clogged.came_ns[session] == calm.came_ns[session], "not a moment later"
        assert sorted(calm.got(session), key=int) == ALL
    outlet = clogged.stage.broker("2").statistics().outlet
    assert (outlet.clogged, outlet.waiting) == (1, KEPT)
    assert 0 < clogged.most_bytes <= NARROW.session_bytes
    assert clogged.stage.is_idle(), "nobody upstream waits for it"

    clogged.tell(SessionClear(clogged.slow))
    got = clogged.got(clogged.slow)
    assert clogged.missed == [EVENTS - len(got)] == [outlet.dropped]
    assert len(got) == KEPT
    high = [body for body in ALL if int(body) % 4 == 3 and int(body) % 3 > 0]
    assert got == high[-KEPT:], "lower bands are dropped first, and in a band best effort; of the rest the oldest"
    clogged.flood(20, EVENTS)
    assert sorted(clogged.got(clogged.slow)[KEPT:], key=int) == [f"{at}" for at in range(EVENTS, EVENTS + 20)]
    assert clogged.missed == [EVENTS - KEPT]


def test_ten_times_the_flood_takes_no_more_memory() -> None:
    """Memory is bounded by the settings, not by what comes."""
    one, ten = audience(), audience()
    for each, count in ((one, EVENTS // 4), (ten, 10 * EVENTS // 4)):
        each.tell(SessionClogged(each.slow))
        each.flood(count)
    assert ten.most_bytes <= 1.01 * one.most_bytes


def test_a_consumer_that_asked_to_be_disconnected() -> None:
    """Slow consumers, `disconnect`: closed with a reason; attached again it gets what is new, and nothing twice."""
    found = audience("disconnect")
    found.tell(SessionClogged(found.slow))
    found.flood(KEPT + 10)
    (close,) = found.closed
    assert close.session == found.slow
    assert f"at most {KEPT * SIZE} bytes" in close.reason
    found.stage.leave(found.slow, lost=True)
    outlet = found.stage.broker("2").statistics().outlet
    assert (outlet.clogged, outlet.waiting_bytes, outlet.dropped, outlet.disconnected) == (0, 0, KEPT + 10, 1)
    again = found.stage.subscribe("2")
    found.stage.wait()
    found.flood(20, KEPT + 10)
    assert sorted(found.got(again), key=int) == [f"{at}" for at in range(KEPT + 10, KEPT + 30)]
    assert len(found.got(found.near)) == len(found.got(found.far)) == KEPT + 30


def test_it_reads_now_and_then() -> None:
    """Clogged and clear again and again: every event is had or told as missed, in order within a lane."""
    found = audience()
    for turn in range(8):
        found.tell(SessionClogged(found.slow) if turn % 2 == 0 else SessionClear(found.slow))
        found.flood(40 + 10 * turn, 200 * turn)
    found.tell(SessionClear(found.slow))
    published = sum(40 + 10 * turn for turn in range(8))
    got = [int(body) for body in found.got(found.slow)]
    assert len(got) + sum(found.missed) == published
    assert sum(found.missed) > 0
    for lane in range(12):  # the same priority and the same reliability
        assert [at for at in got if at % 12 == lane] == sorted(at for at in got if at % 12 == lane)
