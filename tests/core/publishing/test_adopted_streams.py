"""What somebody publishes for an origin that is gone may begin in the middle: nothing is lost or had twice for that."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import EventPeer, Host, bit, event_copy, peer
from tests.core.scripted_peer import HOST
from tests.tiers import few
from veena.core.boundary.inputs_effects import Deliver
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.event import ADOPTED, BACKLOG, LATE
from veena.sim.world.options import Options

EVENTS = 20


class Stream:
    """One stream at one end with a reader: its origin, and two who took over and have some of it each."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._host = Host()
        self._origin, *self._others = (peer(self._host, link) for link in (1, 2, 3))
        self._host.reader(7)
        self._host.sync()
        #: Sequences that the reader got, and whether each was marked as late.
        self.got: list[tuple[int, bool]] = []

    def play(self) -> None:
        """The origin sends in order, and goes back now and then; the others send what they have in order."""
        chance, at = self._chance, 1
        held = [(other, self._some()) for other in self._others]
        while at <= EVENTS or any(left for _, left in held):
            drawn = chance.random()
            if drawn < 0.5 and at <= EVENTS:
                self._hand(self._origin, at, 0)
                at += 1
            elif drawn < 0.55 and at <= EVENTS:
                at = max(1, at - chance.randrange(6))
            else:
                other, left = chance.choice(held)
                if left:
                    self._hand(other, left.pop(0), BACKLOG | ADOPTED)

    def _some(self) -> list[int]:
        first = self._chance.randrange(1, EVENTS)
        return sorted(self._chance.sample(range(first, EVENTS + 1), self._chance.randrange(EVENTS - first + 1)))

    def _hand(self, sender: EventPeer, sequence: int, flags: int) -> None:
        frame = event_copy(sequence, bit(HOST))
        frame.flags |= flags
        effects = [*sender.hand(frame), *(self._host.sync() if self._chance.random() < 0.7 else [])]
        delivered = [effect.frame for effect in effects if isinstance(effect, Deliver)]
        self.got += [(each.sequence, bool(each.flags & LATE)) for each in delivered]


@pytest.mark.parametrize("seed", few(range(60), 10))
def test_every_event_once_and_marked_where_it_was_overtaken(seed: int) -> None:
    """DUP-08, I1: whoever sends which part of a stream first, each comes once, and what is late says so."""
    stream = Stream(Random(seed))
    stream.play()
    assert sorted(sequence for sequence, _ in stream.got) == list(range(1, EVENTS + 1))
    highest = 0
    for sequence, is_late in stream.got:
        assert is_late == (sequence < highest)
        highest = max(highest, sequence)


@pytest.mark.parametrize("meanwhile", ["restarts", "forgets", "moves"])
def test_a_durable_subscription_gets_what_its_origin_brings_later(
    meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1, I5 with `copies = 2`: nothing is lost, nothing comes twice."""
    wanted, got = play_takeover(meanwhile, monkeypatch)
    assert sorted(got) == sorted(wanted)


def play_takeover(meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What a durable subscription at 2 is owed and gets. 2 was cut off, and 0 has given up copies of what it lacks. 1
    takes over from 0 and has the newest alone. Something happens to 2 or its client before 0 is back."""
    monkeypatch.setattr("veena.core.publishing.replica_sender.MAX_FOR_ABSENT", 10)
    options = Options(wire=False, dial=False)  # or who is cut off would find the others by itself
    stage = Stage(cluster([(0, 1), (0, 2), (1, 2)]), options=options, settings=Settings("small", copies=2))
    reader = Reader(stage, "d")
    reader.attach("2")
    publisher = stage.attach("0", "p")
    stage.wait()
    for other in "01":
        stage.world.cut(stage.link(other, "2"), silent=False)
    stage.wait(SECOND_NS)
    bodies = [f"e{number}" for number in range(40)]
    for body in bodies:
        stage.publish(publisher, body)
        stage.wait_ms(200)
    stage.wait(20 * SECOND_NS)
    assert stage.broker("0").statistics().copies.given_up == 30
    stage.world.crash(stage.addresses["0"], silent=False)
    stage.wait(10 * SECOND_NS)
    stage.world.heal(stage.link("1", "2"))
    stage.wait(20 * SECOND_NS)
    reader.read()
    assert reader.bodies == bodies[-10:]
    if meanwhile == "forgets":
        monkeypatch.setattr("veena.core.delivery.delivery.MAX_RECENT", 20)
        other_publisher = stage.attach("1", "q")
        for number in range(30):
            stage.publish(other_publisher, f"q{number}")
            stage.wait_ms(10)
    else:
        reader.leave()
        stage.wait(SECOND_NS)
        if meanwhile == "restarts":
            stage.world.crash(stage.addresses["2"], silent=False)
            stage.wait(2 * SECOND_NS)
            stage.world.start(stage.addresses["2"])
            stage.wait(12 * SECOND_NS)
        reader.attach("2" if meanwhile == "restarts" else "1")
    stage.wait(20 * SECOND_NS)
    reader.read()
    stage.world.start(stage.addresses["0"])
    for other in "12":
        stage.world.heal(stage.link("0", other))
    stage.wait(40 * SECOND_NS)
    reader.read()
    return bodies, [body for body in reader.bodies if body.startswith("e")]
