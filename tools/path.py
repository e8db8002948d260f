"""How many places of the core one event and one subscription visit on their way through three brokers.

    python tools/path.py [--json]

Three core brokers 1 - 2 - 3 stand in a line in one cluster, on the simulator's virtual clock; client `pub` is at 1,
client `sub` at 3. Two ways are followed:

- subscription: `sub` asks for the topic `quotes`, until the interest map of 1 knows that 3 wants it. Three broker
  steps: the subscription at 3, which announces it at once, and its arrival at 2 and at 1;
- data: `pub` publishes one reliable event, in a burst of one, until 3 hands it over. Four broker steps: the burst at 1,
  the answer of 1's disk, the arrival at 2 and at 3;
- acknowledgements: what comes back. Three broker steps: the answer of 3's disk, the arrival at 2 and at 1.

How it counts. A step is one call of `Broker.handle` or `Broker.tick`; steps between these (heartbeats, receipts) are
left out. A call is a function of `veena.core` that is entered in a step, as `sys.setprofile` reports it: also from
outside the core or through a callback. Lambdas count; comprehensions and generator expressions belong to the function
around them. A change is a call whose module (or room) is another than that of the call before it in the same step. A
module is one file; a room is a sub-package of `veena.core`, and the modules directly in `veena.core` are one room.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from types import CodeType, FrameType

from veena.address import Address
from veena.core.boundary.inputs_effects import (
    Arrived,
    ClientUp,
    Deliver,
    Effect,
    Input,
    PublishBatch,
    Send,
    Stored,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS
from veena.core.broker import Broker
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.control import Done
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.interest import Interest
from veena.event import Event, IdGenerator
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

CORE = "veena.core."
#: Long enough for three brokers to know each other, and for a subscription to be known everywhere.
SETTLE_NS = 10 * SECOND_NS
TOPIC = "quotes"
PUBLISHER, SUBSCRIBER = 1, 2
#: Frames of their own that belong to the function around them.
INNER = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


@dataclass(frozen=True, slots=True)
class Call:
    """One function of the core that was entered."""

    module: str
    function: str
    #: Where it stands in its module: lambdas share one name.
    line: int

    @property
    def room(self) -> str:
        """The sub-package that holds the module; the package `core` itself for those directly in it."""
        room, _, rest = self.module.removeprefix(CORE).partition(".")
        return room if rest else "core"


@dataclass(slots=True)
class Step:
    """What one broker did with one input, or with the passing of time."""

    at: Address
    #: What the input is about: the types of the input and of the frames that it brings; none for a tick.
    kinds: tuple[type, ...]
    calls: list[Call] = field(default_factory=list)
    #: The same of what came of it.
    effects: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """The size of one part of a way."""

    steps: int
    calls: int
    functions: int
    modules: int
    module_changes: int
    rooms: int
    room_changes: int


class Tracer:
    """Makes brokers whose steps are noted while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.steps: list[Step] = []
        self._calls: list[Call] = []
        self._known: dict[CodeType, Call | None] = {}

    def note(self, at: Address, given: Input | None, work: Callable[[], list[Effect]]) -> list[Effect]:
        """Do one step, and note it."""
        if not self.is_on:
            return work()
        self._calls = []
        sys.setprofile(self._saw)
        try:
            effects = work()
        finally:
            sys.setprofile(None)
        made = [part for effect in effects for part in (effect, *(effect.frames if isinstance(effect, Send) else ()))]
        self.steps.append(Step(at, _kinds(given), self._calls, tuple(map(_kind, made))))
        return effects

    def _saw(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._known:
            module = str(frame.f_globals.get("__name__"))
            is_counted = module.startswith(CORE) and code.co_name not in INNER
            self._known[code] = Call(module, code.co_qualname, code.co_firstlineno) if is_counted else None
        call = self._known[code]
        if call is not None:
            self._calls.append(call)


def _kind(part: object) -> type:
    """The type of an effect, or of a frame that goes out with its number."""
    return type(part[1]) if isinstance(part, tuple) else type(part)


def _kinds(given: Input | None) -> tuple[type, ...]:
    if given is None:
        return ()
    return (type(given), *(type(frame) for _, frame in given.frames)) if isinstance(given, Arrived) else (type(given),)


class Line:
    """The three brokers and the two clients."""

    def __init__(self) -> None:
        tracer = self.tracer = Tracer()

        class Traced(Broker):
            def handle(self, given: Input, now_ns: int) -> list[Effect]:
                return tracer.note(self.identity.address, given, lambda: Broker.handle(self, given, now_ns))

            def tick(self, now_ns: int) -> list[Effect]:
                return tracer.note(self.identity.address, None, lambda: Broker.tick(self, now_ns))

        names = ["S.C.a.1", "S.C.a.2", "S.C.a.3"]
        self.network = make_network("line", names, list(pairwise(names)))
        self.first, self.middle, self.last = map(self.network.labels.unit, names)
        self.world = World(self.network, 1, Options(check=False), make_broker=Traced)
        self.world.on_client = self._hear
        self._incarnations: dict[int, int] = {}
        self.world.run_until(self.world.now_ns + SETTLE_NS)
        self.world.give(self.first, ClientUp(PUBLISHER, "pub"))
        self.world.give(self.last, ClientUp(SUBSCRIBER, "sub"))
        self.world.run_until(self.world.now_ns + SETTLE_NS)

    def _hear(self, at: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome):
            self._incarnations[effect.session] = effect.incarnation

    def subscribe(self) -> list[Step]:
        """The steps of a subscription."""
        return self._follow(self.last, Subscribe(SUBSCRIBER, 1, "topic", TOPIC, self.network.levels))

    def publish(self) -> list[Step]:
        """The steps of an event."""
        codec = EventCodec(self.network.levels, self.network.fanout)
        event_id = IdGenerator("pub", self._incarnations[PUBLISHER]).next(self.world.now_ns)
        event = Event(topic=TOPIC, body=b"1", event_id=event_id, timestamp_ns=self.world.now_ns)
        read = Decoder(codec).feed_bursts(codec.encode(codec.frame(event, reliable=True), 0))
        bursts = [burst for burst in read if isinstance(burst, EventBurst)]
        return self._follow(self.first, PublishBatch(PUBLISHER, bursts))

    def _follow(self, at: Address, given: Input) -> list[Step]:
        self.tracer.steps, self.tracer.is_on = [], True
        self.world.give(at, given)
        self.world.run_until(self.world.now_ns + SECOND_NS)
        self.tracer.is_on = False
        return self.tracer.steps


#: A step: where, what its input is about (None: a tick), and what must come of it (None: anything).
Wanted = tuple[Address, type | None, type | None]


def chosen(steps: Sequence[Step], wanted: Sequence[Wanted]) -> list[Step]:
    """The steps of a way, each the first such after the one before; ValueError where the way is another one."""
    rest, found = iter(steps), list[Step]()
    for at, kind, effect in wanted:
        for step in rest:
            is_kind = not step.kinds if kind is None else kind in step.kinds
            if step.at == at and is_kind and (effect is None or effect in step.effects):
                found.append(step)
                break
        else:
            name = "tick" if kind is None else kind.__name__
            raise ValueError(f"no step of broker {at} with {name}: the way of the core has changed; mend tools/path.py")
    return found


def measured(steps: Sequence[Step]) -> Part:
    """The size of these steps."""
    calls = [call for step in steps for call in step.calls]
    pairs = [pair for step in steps for pair in pairwise(step.calls)]
    return Part(
        len(steps),
        len(calls),
        len(set(calls)),
        len({call.module for call in calls}),
        sum(one.module != other.module for one, other in pairs),
        len({call.room for call in calls}),
        sum(one.room != other.room for one, other in pairs),
    )


def ways() -> dict[str, Part]:
    """Every way with its size."""
    line = Line()
    first, middle, last = line.first, line.middle, line.last
    announced = [(last, Subscribe, Interest), (middle, Interest, None), (first, Interest, None)]
    subscription = chosen(line.subscribe(), announced)
    interest = line.world.broker(first).profiles.interest
    if not interest.destinations(Event(topic=TOPIC), first, line.world.now_ns) & interest.bit(last):
        raise ValueError("broker 1 does not know that 3 wants the topic: the subscription did not arrive")
    line.world.run_until(line.world.now_ns + SETTLE_NS)
    there: list[Wanted] = [
        (first, PublishBatch, None),
        (first, Stored, Send),
        (middle, EventFrame, None),
        (last, EventFrame, Deliver),
    ]
    back: list[Wanted] = [(last, Stored, Send), (middle, Done, None), (first, Done, None)]
    event = chosen(line.publish(), [*there, *back])
    return {
        "subscription": measured(subscription),
        "data": measured(event[: len(there)]),
        "acknowledgements": measured(event[len(there) :]),
        "data and acknowledgements": measured(event),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Count what an event and a subscription visit in the core.")
    parser.add_argument("--json", action="store_true", help="print one JSON object, a way each")
    given = parser.parse_args()
    found = ways()
    if given.json:
        print(json.dumps({way: asdict(part) for way, part in found.items()}))
        return
    names = list(asdict(next(iter(found.values()))))
    print(" " * 26 + "".join(f"{name.replace('_', ' '):>16}" for name in names))
    for way, part in found.items():
        print(f"{way:26}" + "".join(f"{number:16,}" for number in asdict(part).values()))


if __name__ == "__main__":
    main()
