"""Ten clients in Boston at the broker in Syracuse, then at one of their own (FIX-32, FUT-06, FUT-07).

Brokers run in Syracuse and Rochester; clients are in Boston (ten of them), Houston and Albany, all at Syracuse, all
with the same durable subscription; what they want is published in Rochester. An adviser looks at the network and
proposes; a broker is started in Boston, and the ten roam to it while events go on being published. What went over the
long line is counted before and after, and every client is asked for every event: none missing, none twice (DUP-08).

For two minutes after a roam the former home forwards whatever comes to it and was wanted by who left, in case it is one
of the last that came there alone; who left has most of it already. As long as Houston and Albany are at Syracuse all
events come there, so the line carries eleven copies in these two minutes, and one from then on. The table has a row for
that. Without the two (`quick`) nothing comes to Syracuse that would be forwarded.

Brokers are processes; the lines to Boston and Houston are modelled (`line`): a delay, a rate, one queue. The adviser
comes from outside: an experiment does not know how it finds what it proposes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

from veena.bench.collaboratory.line import Line
from veena.client import Client, connect
from veena.client.subscription import Subscription
from veena.core.durable.handover import STRAGGLER_NS
from veena.errors import VeenaError
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet
from veena.runtime.networks.file import make_network

SYRACUSE, ROCHESTER = "syracuse.1", "rochester.1"
BOSTON_CLIENTS = 10
#: One way, and the rate of both lines.
BOSTON_S, HOUSTON_S = 0.040, 0.060
RATE = 10e6
BODY = 1000
EVENTS = 40
PER_SECOND = 20.0
#: While clients roam events go on, at most so many: a roam takes seconds.
MAX_DURING = 2000
PATIENCE_S = 30.0
#: For so long a former home forwards what comes, at most; how often an event shows whether it still does, and how many
#: that crossed the line once show that it does not.
STRAGGLERS_S = STRAGGLER_NS / 1e9 + 10
SETTLING_S = 0.5
SETTLED = 3
TOPIC = "weather"
MARK = b"\x00veena-induced-roam\x00"

Say = Callable[[str], None]


class Operator(Protocol):
    """Who starts brokers and changes links, as an adviser sees it."""

    async def add_broker(self, label: str, neighbours: tuple[str, ...]) -> str: ...
    async def change_link(self, what: Literal["link", "drop"], ends: tuple[str, str]) -> None: ...


class Adviser(Protocol):
    async def proposals(self) -> Sequence[Any]: ...
    def carry_out(self, proposal: Any) -> AsyncIterator[str]: ...


MakeAdviser = Callable[[Sequence[str], Operator], Adviser]


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    events: int
    #: Over the line to Boston, an event.
    copies: float
    bytes: float
    #: Of clients in Boston, and of all others.
    boston_ms: float
    others_ms: float


@dataclass(slots=True)
class Outcome:
    proposal: str
    steps: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    clients: int = 0
    expected: int = 0
    missing: int = 0
    repeated: int = 0
    out_of_order: int = 0

    @property
    def is_sound(self) -> bool:
        return not (self.missing or self.repeated or self.out_of_order)


class FleetOperator:
    """The fleet of this process; a broker that is added dials over the line."""

    def __init__(self, fleet: Fleet, line: Line) -> None:
        self._fleet = fleet
        self._line = line

    async def add_broker(self, label: str, neighbours: tuple[str, ...]) -> str:
        listening = {member.label: member.entry.listen[0] for member in self._fleet.members}
        for other in neighbours:
            self._fleet.divert(label, other, await self._line.door(listening[other]))
        return (await self._fleet.add(label, neighbours)).url

    async def change_link(self, what: Literal["link", "drop"], ends: tuple[str, str]) -> None:
        await (self._fleet.add_link if what == "link" else self._fleet.drop_link)(*ends)


@dataclass(slots=True)
class _Reader:
    """One client and what it got: numbers, and how long each took in milliseconds."""

    place: str
    client: Client
    subscription: Subscription
    numbers: list[int] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)

    async def read(self) -> None:
        while True:
            events = (await self.subscription.next(None), *self.subscription.take())
            now_ns = time.time_ns()
            self.numbers += [int(str(event.properties["number"])) for event in events]
            self.took_ms += [(now_ns - event.timestamp_ns) / 1e6 for event in events]


async def measure(directory: Path, make_adviser: MakeAdviser, events: int, say: Say, quick: bool = False) -> Outcome:
    """Before, the roam, the time in which stragglers are forwarded, after."""
    fleet = Fleet(make_network("fix-32", (SYRACUSE, ROCHESTER), [(ROCHESTER, SYRACUSE)], levels=2), directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.stop)
        boston = await stack.enter_async_context(Line(BOSTON_S, RATE, MARK))
        houston = await stack.enter_async_context(Line(HOUSTON_S, RATE))
        say("starting brokers in Syracuse and Rochester")
        await fleet.start()
        syracuse, rochester = fleet.members
        far = await boston.door(syracuse.entry.listen[0])
        places = [("Boston", far)] * BOSTON_CLIENTS
        if not quick:
            places += [("Houston", await houston.door(syracuse.entry.listen[0])), ("Albany", syracuse.url)]
        say("connecting the clients")
        readers = await asyncio.gather(*(_reader(stack, *each, number) for number, each in enumerate(places)))
        for reader in readers:
            stack.push_async_callback(_ended, asyncio.create_task(reader.read()))
        source = await stack.enter_async_context(connect(rochester.url, client_id="rochester"))
        adviser = make_adviser([syracuse.url], FleetOperator(fleet, boston))
        return await _Course(boston, readers, source, adviser, say).run(events)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _reader(stack: AsyncExitStack, place: str, url: str, number: int) -> _Reader:
    client = connect(url, client_id=f"{place.lower()}-{number}", attributes={"place": place}, timeout=PATIENCE_S)
    await stack.enter_async_context(client)
    return _Reader(place, client, await client.subscribe(topic=TOPIC, durable=True, wait=PATIENCE_S))


class _Course:
    """What happens, in order."""

    def __init__(self, line: Line, readers: Sequence[_Reader], source: Client, adviser: Adviser, say: Say) -> None:
        self._line, self._readers, self._source, self._adviser, self._say = line, readers, source, adviser, say
        self._published = 0

    async def run(self, events: int) -> Outcome:
        self._say("publishing, all at Syracuse")
        before = await self._phase("before", self._publish(events))
        self._say("asking the adviser")
        found = [each for each in await self._adviser.proposals() if each.kind == "broker"]
        if len(found) != 1:
            raise VeenaError(f"{len(found)} brokers are proposed instead of one: the machine is too busy to measure")
        outcome = Outcome(f"{found[0].title}: {found[0].reason}")
        roam = asyncio.create_task(self._carry_out(found[0], outcome))
        during = await self._phase("during", self._publish_while(roam))
        await roam
        settling = await self._phase("settling", self._settle(STRAGGLERS_S))
        self._say("publishing, Boston at its own broker")
        after = await self._phase("after", self._publish(events))
        outcome.phases = [before, during, settling, after]
        self._judge(outcome)
        return outcome

    async def _carry_out(self, proposal: Any, outcome: Outcome) -> None:
        async for step in self._adviser.carry_out(proposal):
            self._say(step)
            outcome.steps.append(step)

    async def _phase(self, name: str, publishing: Any) -> Phase:
        first, line = self._published, self._line
        copies, carried = line.copies, line.carried
        taken = [len(reader.took_ms) for reader in self._readers]
        await publishing
        with suppress(TimeoutError):  # what is missing is counted in the end
            async with asyncio.timeout(PATIENCE_S):
                while any(len(set(reader.numbers)) < self._published for reader in self._readers):
                    await asyncio.sleep(0.01)
        events = max(1, self._published - first)
        took: dict[bool, list[float]] = {True: [], False: []}
        for reader, start in zip(self._readers, taken, strict=True):
            took[reader.place == "Boston"] += reader.took_ms[start:]
        return Phase(
            name,
            events,
            (line.copies - copies) / events,
            (line.carried - carried) / events,
            fmean(took[True] or [0.0]),
            fmean(took[False] or [0.0]),
        )

    async def _publish(self, events: int) -> None:
        begin = time.perf_counter()
        body = MARK + bytes(BODY - len(MARK))
        for at in range(events):
            await asyncio.sleep(max(0.0, begin + at / PER_SECOND - time.perf_counter()))
            event = Event(topic=TOPIC, properties={"number": self._published}, body=body)
            await self._source.publish_event(event, reliable=True)
            self._published += 1

    async def _settle(self, seconds: float) -> None:
        """Publish now and then until nobody forwards any more: events cross the line once, one after the other."""
        until = time.monotonic() + seconds
        alone = 0
        while alone < SETTLED and (left := until - time.monotonic()) > 0:
            self._say(f"the former home forwards stragglers for {left:.0f} s at most")
            before = self._line.copies
            await self._publish(1)
            await asyncio.sleep(min(SETTLING_S, left))
            alone = alone + 1 if self._line.copies - before == 1 else 0

    async def _publish_while(self, roam: asyncio.Task[None]) -> None:
        for _ in range(MAX_DURING):
            await self._publish(1)
            if roam.done():
                return
            await asyncio.sleep(1 / PER_SECOND)

    def _judge(self, outcome: Outcome) -> None:
        outcome.clients = len(self._readers)
        outcome.expected = len(self._readers) * self._published
        for reader in self._readers:
            came = set(reader.numbers)
            outcome.missing += self._published - len(came)
            outcome.repeated += len(reader.numbers) - len(came)
            outcome.out_of_order += sum(one > other for one, other in pairwise(reader.numbers))
