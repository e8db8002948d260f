"""A bad minute for real processes: brokers are killed, links are cut, clients roam, and every delivery is checked.

Reliable events come from a few publishers at a steady rate. A hundred durable subscribers want a share of them each;
some go to another broker in between. Brokers are killed by `kill -9`, those that accept events first of all, and
started again; links are cut and mended. When all is quiet again each subscriber must have had everything that it wants,
once, and the events of each life of a publisher in order (I1, I5). What lay at a broker that could not be waited for
comes after later ones with the mark `late`: that is counted, and as in the audit and the simulator it is no disorder.

A publisher whose broker dies goes on elsewhere under a new incarnation: order is promised within one, so inversions
between two of them are counted apart.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from veena.bench.endurance.detour import Detour
from veena.client import Client, connect
from veena.client.subscription import Subscription
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import LinkEntry, Network

#: Kinds of events, equally often; a subscriber wants some of them.
KINDS = 100
TOPIC = "chaos"
#: Events that are published without waiting for the ones before.
BATCH_S = 0.05
#: How long a link stays cut, and how long after a kill the next fault may come.
CUT_S = 4.0
#: How long clients may need to attach and to be known everywhere.
PATIENCE_S = 60.0
POLL_S = 0.1
#: How long afterwards to look for what should not come.
AFTER_S = 1.0
#: Faults that are told one by one.
MAX_TOLD = 50

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How bad the minute is."""

    seconds: float = 60.0
    per_second: float = 500.0
    publishers: int = 3
    subscribers: int = 100
    roamers: int = 10
    kills: int = 6
    cuts: int = 2
    #: Of the kinds, what each subscriber wants.
    match_percent: int = 5
    #: How long to wait for the last events.
    patience_s: float = 120.0
    #: Disks that an event is on before it is accepted.
    copies: int = 1
    seed: int = 1

    @property
    def events(self) -> int:
        return round(self.seconds * self.per_second)

    def why_not(self, network: Network) -> str | None:
        """Why it cannot be carried out on a network."""
        brokers = len(network.brokers)
        if self.kills > brokers - self.publishers:
            return (
                f"{self.kills} kills: expected at most {brokers - self.publishers} on {brokers} brokers with"
                f" {self.publishers} publishers at different ones"
            )
        if self.roamers > self.subscribers:
            return f"{self.roamers} roamers: expected at most as many as subscribers, {self.subscribers}"
        return None


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    brokers: int = 0
    events: int = 0
    expected: int = 0
    delivered: int = 0
    missing: int = 0
    duplicates: int = 0
    spurious: int = 0
    out_of_order: int = 0
    #: Between two incarnations of a publisher, where no order is promised.
    between_incarnations: int = 0
    #: Came again and said so: the subscriber can tell.
    marked_again: int = 0
    #: Came after later ones and said so: where it lay could not be waited for.
    late: int = 0
    roamed: int = 0
    killed: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    publishing_s: float = 0.0
    settling_s: float = 0.0
    #: The first of what is wrong, in words.
    faults: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.missing or self.duplicates or self.spurious or self.out_of_order)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_sound": self.is_sound}


class Got(NamedTuple):
    """An event that a subscriber was given."""

    publisher: str
    incarnation: int
    number: int
    is_redelivered: bool = False
    is_late: bool = False


@dataclass(slots=True)
class _Reader:
    """A durable subscriber: where it is, what it wants, what it got."""

    name: str
    first: int
    at: int
    client: Client | None = None
    task: asyncio.Task[None] | None = None
    #: Where it has been since which of the events that it got.
    stays: list[tuple[int, str]] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)

    def wants(self, kind: int, percent: int) -> bool:
        return (kind - self.first) % KINDS < percent

    def selector(self, percent: int) -> str | None:
        if percent >= KINDS:
            return None
        last = self.first + percent
        terms = [f"(kind >= {self.first} AND kind < {min(last, KINDS)})"]
        return " OR ".join([*terms, f"(kind < {last - KINDS})"] if last > KINDS else terms)

    async def attach(self, member: Member, percent: int) -> None:
        """Be there, and read until `leave`."""
        self.stays.append((len(self.got), member.label))
        self.client = connect(member.url, client_id=self.name, timeout=PATIENCE_S)
        await self.client.open()
        wanted = await self.client.subscribe(
            topic=TOPIC, selector=self.selector(percent), durable="all", wait=PATIENCE_S
        )
        if not wanted.is_active:
            raise TimeoutError(f"{self.name} at {member.label}: not acknowledged everywhere after {PATIENCE_S:g} s")
        self.task = asyncio.create_task(self._read(wanted))

    async def move(self, member: Member) -> None:
        """Go to another broker, and take along what is known of the past."""
        assert self.client is not None
        self.stays.append((len(self.got), member.label))
        await self.client.move(member.url, PATIENCE_S)

    async def leave(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if self.client is not None:
            await self.client.close()

    async def _read(self, subscription: Subscription) -> None:
        while True:
            event = await subscription.next(None)
            for each in (event, *subscription.take()):
                assert each.event_id is not None
                self.got.append(
                    Got(
                        each.event_id.publisher,
                        each.event_id.incarnation,
                        int(bytes(each.body)),
                        each.redelivered,
                        each.late,
                    )
                )


class Chaos:
    """One bad minute on one network."""

    def __init__(self, network: Network, directory: Path, plan: Plan, say: Say = lambda text: None) -> None:
        self._network, self._directory, self._plan, self._say = network, directory, plan, say
        self._chance = Random(plan.seed)
        self._stack = AsyncExitStack()
        self._detours: dict[str, Detour] = {}
        self._readers: list[_Reader] = []
        self._homes: list[int] = []
        self._writers: list[Client] = []
        self._is_quiet = asyncio.Event()
        self.outcome = Outcome(brokers=len(network.brokers))

    async def run(self) -> Outcome:
        async with self._stack:
            await self._start()
            begin = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._trouble())
                writing = [group.create_task(self._publish(number)) for number in range(self._plan.publishers)]
                kinds = await asyncio.gather(*writing)
                self.outcome.publishing_s = round(time.perf_counter() - begin, 2)
            begin = time.perf_counter()
            await self._settle(kinds)
            self.outcome.settling_s = round(time.perf_counter() - begin, 2)
            self._judge(kinds)
        return self.outcome

    # --- the beginning ---

    async def _start(self) -> None:
        links = self._chance.sample(range(len(self._network.links)), min(self._plan.cuts, len(self._network.links)))
        self._fleet = Fleet(self._network, self._directory, restart=True, copies=self._plan.copies, on_up=self._came_up)
        for at in links:
            await self._divert(self._network.links[at])
        self._stack.push_async_callback(self._fleet.stop)
        await self._fleet.start()
        members, plan = self._fleet.members, self._plan
        self._homes = self._chance.sample(range(len(members)), plan.publishers)
        for number, home in enumerate(self._homes):
            other = self._chance.choice([at for at in range(len(members)) if at != home])
            urls = (members[home].url, members[other].url)
            client = connect(urls, client_id=f"publisher-{number}", timeout=PATIENCE_S)
            self._writers.append(await self._stack.enter_async_context(client))
        for number in range(plan.subscribers):
            self._readers.append(_Reader(f"reader-{number}", self._chance.randrange(KINDS), number % len(members)))
        self._say(f"attaching: none of {plan.subscribers} readers yet")
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(self._attach(reader))

    async def _attach(self, reader: _Reader) -> None:
        self._stack.push_async_callback(reader.leave)
        await reader.attach(self._fleet.members[reader.at], self._plan.match_percent)
        self._say(f"attaching: {sum(each.task is not None for each in self._readers)} of {len(self._readers)} readers")

    async def _divert(self, link: LinkEntry) -> None:
        """Let the broker that dials this link dial a detour."""
        labels = self._network.labels
        dialling, dialled = labels.label(link.a), labels.label(link.b)
        target = next(member.entry.listen[0] for member in self._fleet.members if member.label == dialled)
        detour = await self._stack.enter_async_context(Detour(target))
        self._fleet.divert(dialling, dialled, detour.url)
        self._detours[f"{dialling} - {dialled}"] = detour

    def _came_up(self, member: Member) -> None:
        up = sum(each.starts > 0 and each.listening.is_set() for each in self._fleet.members)
        self._say(
            f"starting brokers: {up} of {len(self._fleet.members)}" if member.starts == 1 else f"{member.label} is back"
        )

    # --- the minute ---

    async def _publish(self, number: int) -> list[int]:
        """One publisher's share: the kinds of its events, by number."""
        plan, client, begin = self._plan, self._writers[number], time.perf_counter()
        chance = Random(plan.seed * 1000 + number)
        share = plan.per_second / plan.publishers
        total = plan.events // plan.publishers + (number < plan.events % plan.publishers)
        kinds: list[int] = []
        waiting: set[asyncio.Task[Any]] = set()
        while len(kinds) < total:
            due = min(total, int((time.perf_counter() - begin) * share) + 1)
            batch = []
            for at in range(len(kinds), due):
                kinds.append(chance.randrange(KINDS))
                batch.append(Event(topic=TOPIC, properties={"kind": kinds[-1]}, body=b"%d" % at))
            if batch:
                task = asyncio.create_task(client.publish_many(batch, reliable=True))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            if number == 0:
                self._say(f"published {len(kinds) * plan.publishers} of {plan.events}; faults: {self._faults}")
            await asyncio.sleep(BATCH_S)
        await asyncio.gather(*waiting)
        return kinds

    @property
    def _faults(self) -> str:
        found = self.outcome
        return f"{len(found.killed)} brokers killed, {len(found.cut)} links cut, {found.roamed} clients roamed"

    async def _trouble(self) -> None:
        """Kills, cuts and roaming, spread over the time, in an order that the seed decides."""
        plan, chance = self._plan, self._chance
        todo = ["kill"] * plan.kills + ["cut"] * len(self._detours) + ["roam"] * plan.roamers
        chance.shuffle(todo)
        victims = self._victims()
        detours = iter(self._detours.items())
        roamers = iter(chance.sample(self._readers, min(plan.roamers, len(self._readers))))
        pause = plan.seconds / (len(todo) + 1)
        running: list[asyncio.Task[None]] = []
        for what in todo:
            await asyncio.sleep(pause)
            if what == "kill":
                member = next(victims)
                self.outcome.killed.append(member.label)
                assert member.process is not None
                with suppress(ProcessLookupError):
                    os.kill(member.process.pid, signal.SIGKILL)
            elif what == "cut":
                running.append(asyncio.create_task(self._cut(*next(detours))))
            else:
                running.append(asyncio.create_task(self._roam(next(roamers))))
        await asyncio.gather(*running)

    def _victims(self) -> Any:
        """Half of the kills hit brokers that accept events."""
        members = self._fleet.members
        others = [at for at in range(len(members)) if at not in self._homes]
        chosen = self._homes[: (self._plan.kills + 1) // 2]
        chosen = chosen + self._chance.sample(others, max(0, self._plan.kills - len(chosen)))
        self._chance.shuffle(chosen)
        return iter([members[at] for at in chosen])

    async def _cut(self, name: str, detour: Detour) -> None:
        self.outcome.cut.append(name)
        detour.cut()
        await asyncio.sleep(CUT_S)
        detour.mend()

    async def _roam(self, reader: _Reader) -> None:
        members = self._fleet.members
        reader.at = self._chance.choice([at for at in range(len(members)) if at != reader.at])
        await reader.move(members[reader.at])
        self.outcome.roamed += 1

    # --- the end ---

    def _wanted(self, reader: _Reader, kinds: Sequence[Sequence[int]]) -> set[tuple[str, int]]:
        percent = self._plan.match_percent
        return {
            (f"publisher-{who}", number)
            for who, each in enumerate(kinds)
            for number, kind in enumerate(each)
            if reader.wants(kind, percent)
        }

    async def _settle(self, kinds: Sequence[Sequence[int]]) -> None:
        expected = [len(self._wanted(reader, kinds)) for reader in self._readers]
        with suppress(TimeoutError):  # what is missing then is counted
            async with asyncio.timeout(self._plan.patience_s):
                while any(len(reader.got) < count for reader, count in zip(self._readers, expected, strict=True)):
                    came = sum(len(reader.got) for reader in self._readers)
                    self._say(f"waiting for the last events: {came} of {sum(expected)} came")
                    await asyncio.sleep(POLL_S)
        await asyncio.sleep(AFTER_S)

    def _judge(self, kinds: Sequence[Sequence[int]]) -> None:
        outcome = self.outcome
        outcome.events = sum(map(len, kinds))
        for reader in self._readers:
            stays = ", ".join(f"at {label} from event {at}" for at, label in reader.stays)
            judge(outcome, f"{reader.name} ({stays})", self._wanted(reader, kinds), reader.got)


def judge(outcome: Outcome, name: str, wanted: set[tuple[str, int]], got: Sequence[Got]) -> None:
    """Add what one subscriber should have had and what it got."""
    came = Counter((who, number) for who, _, number, *_ in got)
    outcome.expected += len(wanted)
    outcome.delivered += len(wanted & came.keys())
    outcome.missing += len(wanted - came.keys())
    outcome.spurious += len(came.keys() - wanted)
    outcome.duplicates += sum(came.values()) - len(came)
    outcome.marked_again += sum(each.is_redelivered for each in got)
    outcome.late += sum(each.is_late for each in got)
    wrong = [f"{who} {number} is missing" for who, number in sorted(wanted - came.keys())]
    last: dict[tuple[str, int], int] = {}
    highest: dict[str, int] = {}
    had: set[tuple[str, int]] = set()
    for at, each in enumerate(got):
        who, incarnation, number = each[:3]
        is_again = (who, number) in had
        had.add((who, number))
        if is_again:
            wrong.append(f"event {at}, {each}, came again")
        elif each.is_late:
            number = max(number, last.get((who, incarnation), -1))
        elif number < last.get((who, incarnation), -1):
            outcome.out_of_order += 1
            wrong.append(f"event {at}, {each}, came after {last[who, incarnation]}")
        elif number < highest.get(who, -1):
            outcome.between_incarnations += 1
        last[who, incarnation] = number
        highest[who] = max(number, highest.get(who, -1))
    outcome.faults += [f"{name}: {each}" for each in wrong[: MAX_TOLD - len(outcome.faults)]]


def shown(outcome: Outcome, plan: Plan) -> Mapping[str, str]:
    """The lines of a table."""
    reached = outcome.events / outcome.publishing_s if outcome.publishing_s else 0.0
    return {
        "brokers": f"{outcome.brokers} processes",
        "events": f"{outcome.events} reliable ones from {plan.publishers} publishers, {reached:.0f}/s",
        "subscribers": f"{plan.subscribers} durable ones, {outcome.roamed} of them roamed",
        "killed": ", ".join(outcome.killed) or "none",
        "cut": ", ".join(outcome.cut) or "none",
        "expected": str(outcome.expected),
        "delivered": str(outcome.delivered),
        "missing": str(outcome.missing),
        "duplicates": str(outcome.duplicates),
        "spurious": str(outcome.spurious),
        "out of order": f"{outcome.out_of_order} (between incarnations: {outcome.between_incarnations})",
        "late, and said so": str(outcome.late),
        "settled after": f"{outcome.settling_s:g} s",
    }
