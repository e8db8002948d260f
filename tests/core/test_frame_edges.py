"""No frame that a broker can write ends another broker or leaves it half changed.

A hostile broker has a link to a broker between two honest ones. It sends every kind of frame with every field at its
edges, over the link and routed, and every message that brokers write to each other as events. Each frame may cost the
sender its link, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import get_args

import msgspec
import pytest

from tests.core.event_world import Stage
from tests.core.frame_edges import Edges, event_frames
from tests.core.scripted_peer import hello
from tests.tiers import few
from veena.address import Address
from veena.core.boundary.discovery import Advertise, Query
from veena.core.boundary.inputs_effects import Arrived, LinkDown, LinkUp, Subscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.messages.addresses import broker_id
from veena.core.messages.kinds import MESSAGES, TAGS, Message, decode_message
from veena.core.wire.codec import KINDS
from veena.core.wire.control import Frame, Hello
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.membership import Renumber, SetupRequest
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options

#: What brokers say to each other. Frames of discovery and of clients, and answers to who asks to be let in, have no
#: place on a link, whatever is in them.
LINK_KINDS = [cls for kind, cls in KINDS.items() if kind < 64]
MISPLACED = [cls for kind, cls in KINDS.items() if kind >= 56 or 33 <= kind <= 35]
#: The broker under attack holds every office: it is the lowest of each of its units, and has a gateway out of them.
HOST = "S.C.c.0"
OTHERS = ("S.C.c.1", "S.C.c.2", "S.C.d.0", "S.D.c.0", "T.C.c.0")
NETWORK = make_network("star", [HOST, *OTHERS], [(HOST, other) for other in OTHERS])
#: The neighbour in the cluster of the broker, and one in another super-super-cluster.
MATE: Address = (0, 0, 0, 9)
GATE: Address = (5, 0, 0, 9)
#: By then a link that was cut is noticed, and what its end told is corrected.
CALM_NS = 40 * SECOND_NS


class Attack:
    """A broker between two others, and a hostile neighbour that dials again when it loses its link."""

    def __init__(self, neighbour: Address, name: str = HOST) -> None:
        self.stage = Stage(NETWORK, options=Options(wire=False, check=False))
        self.world, self.host = self.stage.world, self.stage.addresses[name]
        self.neighbour = neighbour
        self.reader = self.stage.subscribe("S.C.c.2")
        self.writers = [self.stage.attach(name, f"writer-{name}") for name in ("S.C.c.1", "T.C.c.0")]
        #: Answers are awaited here, so that forged ones find somebody who asked.
        client = self.stage.attach(name, "asker")
        self.world.give(self.host, Subscribe(client, 1, "topic", "quotes", 4, durable="kept"))
        self.world.give(self.host, Advertise(client, "offer", 4, {"price": 5}, None, 600.0))
        self.world.give(self.host, Query(client, 1, "sql", "SELECT * FROM adverts", 4, deadline_ms=60_000))
        self.stage.wait()
        self._last = 1 << 20
        self._number = 0
        self._greeted = False

    def say(self, frame: Frame | EventFrame) -> None:
        """One frame over the link of the hostile neighbour."""
        if not self._greeted or not self._is_up():
            self._dial(greets=True)
        self._give(frame)

    def say_first(self, frame: Frame) -> None:
        """One frame over a new connection, before anything else."""
        self._dial(greets=False)
        self._give(frame)

    def _give(self, frame: Frame | EventFrame) -> None:
        self._number += 1
        self.world.give(self.host, Arrived(self._last, [(self._number, frame)]))

    def _dial(self, greets: bool) -> None:
        self.hang_up()
        self._last, self._number, self._greeted = self._last + 1, 0, greets
        self.world.give(self.host, LinkUp(self._last, True, "10.0.0.9"))
        if greets:
            self._give(hello(self.neighbour, nonce=self._last, network=self.stage.network.name))
            self._give(SetupRequest("x", 1, 1, 0, "x"))

    def _is_up(self) -> bool:
        return any(link.link == self._last for link in self.world.broker(self.host).statistics().links)

    def hang_up(self) -> None:
        self.world.give(self.host, LinkDown(self._last, "gone"))

    def honest_events_arrive(self) -> bool:
        """Whether what honest brokers publish, near and far, reaches another one."""
        self.hang_up()
        self.stage.wait(CALM_NS)
        self.world.check()
        for writer in self.writers:
            self.stage.publish(writer, f"honest {writer}")
        self.stage.wait(20 * SECOND_NS)
        honest = {f"honest {writer}" for writer in self.writers}
        return honest == {body for body in self.stage.bodies[self.reader] if body.startswith("honest")}


def attacked(
    neighbour: Address, frames: Iterable[Frame | EventFrame], *, first: bool = False, name: str = HOST
) -> list[str]:
    """What went wrong while these came in: nothing, if brokers are as they should be."""
    attack, wrong, said = Attack(neighbour, name), [], 0
    for frame in frames:
        said += 1
        try:
            if first:
                assert isinstance(frame, Frame)
                attack.say_first(frame)
            else:
                attack.say(frame)
            if said % 20 == 0:
                attack.stage.wait_ms(50)
                attack.world.broker(attack.host).check()
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error} after {frame}")
            attack = Attack(neighbour, name)
    assert said, "nothing was sent"
    if not attack.honest_events_arrive():
        wrong.append("an honest event was lost")
    return wrong


@pytest.mark.parametrize("neighbour", [MATE, GATE], ids=["mate", "gate"])
def test_no_frame_of_a_neighbour_ends_a_broker(neighbour: Address) -> None:
    """TRN-05, FLT-01: each field of each kind at its edges, from a broker of the cluster and from far away."""
    edges = Edges((0, 0, 0, 0), neighbour)
    # A broker of the unit may renumber it, which is no fault of the core.
    kinds = [cls for cls in LINK_KINDS if cls not in MISPLACED and (neighbour == GATE or cls is not Renumber)]
    assert attacked(neighbour, (frame for cls in kinds for frame in edges.frames(cls))) == []


def test_no_routed_frame_ends_a_broker() -> None:
    """NOP-10, DSC-01: the same inside Routed, from every origin that a frame can name, this broker included."""
    edges = Edges((0, 0, 0, 0), MATE)
    frames = (frame for cls in LINK_KINDS if cls is not Hello for frame in edges.frames(cls))
    assert attacked(MATE, (routed for frame in frames for routed in edges.routed(frame))) == []


def test_no_first_frame_of_a_stranger_ends_a_broker() -> None:
    """NOP-03: whatever comes before the Hello, frames of clients included."""
    edges = Edges((0, 0, 0, 0), MATE)
    plain = [frame for cls in KINDS.values() for frame in edges.frames(cls)[:3]]
    greetings = [frame for cls in (Hello, SetupRequest) for frame in edges.frames(cls)]
    assert attacked(MATE, [*plain, *greetings], first=True) == []


def test_no_misplaced_frame_ends_a_broker() -> None:
    edges = Edges((0, 0, 0, 0), MATE)
    frames = [frame for cls in MISPLACED for frame in edges.frames(cls)[:3]]
    assert attacked(MATE, frames) == []


def messages(edges: Edges, kinds: Iterable[type[Message]]) -> list[tuple[str, bytes]]:
    """Messages to the broker with each field at its edges, and what is none."""
    found = []
    for kind in kinds:
        for row in edges.rows(kind):
            body = msgspec.msgpack.encode([TAGS[kind], *row])
            try:
                decode_message(body)
            except ValueError:
                continue
            found.append((broker_id((0, 0, 0, 0)), body))
    return found


@pytest.mark.parametrize("neighbour", [MATE, GATE], ids=["mate", "gate"])
def test_no_event_of_a_neighbour_ends_a_broker(neighbour: Address) -> None:
    """ERP-02, DST-01: flags, vectors, origins and lives at their edges; and every message between brokers."""
    bodies = messages(Edges((0, 0, 0, 0), neighbour), get_args(MESSAGES))
    assert len(bodies) > 100
    assert attacked(neighbour, event_frames(EventCodec(4, 32), neighbour, bodies)) == []


@pytest.mark.parametrize("seed", few(range(20), 2))
def test_no_drawn_conversation_ends_a_broker(seed: int) -> None:
    """The same with all fields at once at edges that chance chooses, kinds mixed, so that frames follow each other."""
    chance = Random(seed)
    neighbour, name = (MATE, GATE)[seed % 2], (OTHERS[0], HOST)[seed % 3 > 0]
    edges = Edges(NETWORK.labels.unit(name), neighbour)
    kinds = [cls for cls in LINK_KINDS if cls not in (Hello, Renumber)]
    drawn: list[Frame] = []
    for cls in kinds:
        for frame in edges.drawn(cls, chance, 20):
            drawn += [frame, *edges.routed(frame)] if chance.random() < 0.4 else [frame]
    chance.shuffle(drawn)
    assert attacked(neighbour, drawn, name=name) == []
