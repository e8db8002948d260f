"""A day of a network with its archive: many profiles of every engine, events in bulk, kills, and then the audit.

Brokers run as processes and record everything. While events are published, `veena pipeline archive` copies the logs to
Parquet as another process; it and one broker are killed by `kill -9`, several times, and started again. At the end the
archive is brought up to date and `veena pipeline audit` says what was missing, came twice or came to the wrong place
(I1). It must have seen every event, and no more deliveries than clients counted: one that sees nothing is not sound.

Spark is reached by its commands, as its users reach it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from veena.client import Client, connect
from veena.client.subscription import Subscription
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import Network

#: How long clients may need to attach and to be known everywhere.
PATIENCE_S = 120.0
#: Quiet for so long: whatever was to come has come.
QUIET_S = 5.0
POLL_S = 0.25
#: Events that one publisher sends without waiting for the ones before.
BATCH = 100
#: So many subscriptions are made at once: brokers tell each other of all that they have learnt in the meantime
#: together, so few at a time cost every broker more.
AT_ONCE = 400
#: What a day does, one after the other.
PHASES = ("starting", "subscribing", "publishing", "settling", "archive", "audit")
ENGINES = ("topic", "selector", "tags", "integer", "xpath", "constraint")
#: How many different things of each engine there are to want: with 5,000 profiles about three match an event.
VARIETY = 300

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a day it is."""

    events: int = 200_000
    publishers: int = 4
    profiles: int = 5_000
    clients: int = 100
    #: One client in so many has durable subscriptions.
    durable_every: int = 5
    #: Events a second, of all publishers; 0 for as fast as they are accepted. What two cores do with 22 brokers and
    #: Spark on them: with more, brokers that get no processor for seconds are taken for dead, which is another test.
    per_second: float = 500.0
    driver_kills: int = 2
    broker_kills: int = 2
    patience_s: float = 600.0
    master: str = "local[2]"
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    events: int = 0
    profiles: int = 0
    #: What the clients counted: an event is one for each of them, however many of its subscriptions it is for.
    received: int = 0
    #: Those that came as redelivered.
    again: int = 0
    driver_kills: int = 0
    broker_kills: int = 0
    #: Events that were in the archive when the last one had been published.
    archived_meanwhile: int = 0
    #: What it was at when it ended: the last of `PHASES`, or where it was interrupted.
    phase: str = ""
    starting_s: float = 0.0
    subscribing_s: float = 0.0
    publishing_s: float = 0.0
    settling_s: float = 0.0
    archive_s: float = 0.0
    audit_s: float = 0.0
    audit_exit: int = -1
    audit: dict[str, Any] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong by the audit, and it saw what the clients saw."""
        wrong = [self.audit.get(name) for name in ("missing", "duplicates", "spurious")]
        has_seen = self.audit.get("events") == self.events and 0 < self.audit.get("delivered", 0) <= self.received
        return self.audit_exit == 0 and wrong == [0, 0, 0] and has_seen

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it, without the list of what the audit tolerated, which is as long as it likes."""
        told = asdict(self)
        told["audit"].pop("tolerated", None)
        return {**told, "is_sound": self.is_sound}


class Archiver:
    """`veena pipeline archive` as a process, its JVM with it."""

    def __init__(self, urls: Sequence[str], archive: Path, master: str, log: Path) -> None:
        self._command = (
            sys.executable, "-m", "veena.cli", "pipeline", "archive", "--url", ",".join(urls), "--out", str(archive),
            "--master", master,
        )  # fmt: skip
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await self._spawn()

    async def kill(self) -> None:
        """`kill -9` of the driver and of its JVM."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        self._process = None

    async def once(self) -> int:
        """Bring the archive up to date: the exit code."""
        self._process = await self._spawn("--once")
        return await self._process.wait()

    async def _spawn(self, *more: str) -> asyncio.subprocess.Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._command, *more, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )


class Day:
    """One day on one network."""

    def __init__(self, network: Network, directory: Path, plan: Plan, say: Say = lambda text: None) -> None:
        self._network, self._directory, self._plan, self._say = network, directory, plan, say
        self._stack = AsyncExitStack()
        self._clients: list[Client] = []
        self._writers: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._published = 0
        self._last_came = 0.0
        self._came: set[tuple[int, str]] = set()
        self.archive = directory / "archive"
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """The whole of it; whoever interrupts it finds in `outcome` what was reached."""
        async with self._stack:
            with self._phase("starting"):
                await self._start()
            with self._phase("subscribing"):
                await self._subscribe_all()
            members = self._fleet.members
            urls = [member.url for member in members]
            archiver = Archiver(urls, self.archive, self._plan.master, self._directory / "archive.log")
            self._stack.push_async_callback(archiver.kill)
            await archiver.start()
            with self._phase("publishing"):
                trouble = asyncio.create_task(self._trouble(archiver, members))
                await asyncio.gather(*map(self._publish, range(self._plan.publishers)))
            self.outcome.archived_meanwhile = _archived(self.archive)
            await trouble
            with self._phase("settling"):
                await self._settle()
            await archiver.kill()
            with self._phase("archive"):
                self._say("bringing the archive up to date")
                code = await archiver.once()
            assert code == 0, f"the archive ended with {code}: see {self._directory / 'archive.log'}"
        with self._phase("audit"):
            await self._audit()
        return self.outcome

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Note how long it takes, also when it does not end."""
        self.outcome.phase = name
        begin = time.perf_counter()
        try:
            yield
        finally:
            setattr(self.outcome, f"{name}_s", round(time.perf_counter() - begin, 2))

    async def _start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._fleet = Fleet(
            self._network, self._directory / "brokers", restart=True, records="all", on_up=lambda member: None
        )
        self._stack.push_async_callback(self._fleet.stop)
        self._say("starting brokers")
        await self._fleet.start()
        members, plan, chance = self._fleet.members, self._plan, Random(self._plan.seed)
        for number in range(plan.publishers):
            home, other = chance.sample(range(len(members)), 2)
            client = connect((members[home].url, members[other].url), client_id=f"publisher-{number}")
            self._writers.append(await self._stack.enter_async_context(client))
        self._stack.push_async_callback(self._stop_reading)
        for number in range(plan.clients):
            client = connect(members[number % len(members)].url, client_id=f"client-{number}", timeout=PATIENCE_S)
            self._clients.append(await self._stack.enter_async_context(client))

    async def _subscribe_all(self) -> None:
        chance, todo = Random(self._plan.seed + 1), asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._subscribe(number, chance, todo) for number in range(self._plan.profiles)))

    async def _subscribe(self, number: int, chance: Random, todo: asyncio.Semaphore) -> None:
        at = number % len(self._clients)
        durable = f"d{number}" if at % self._plan.durable_every == 0 else False
        async with todo:
            wanted = wish(ENGINES[number % len(ENGINES)], chance)
            subscription = await self._clients[at].subscribe(**wanted, durable=durable, wait=PATIENCE_S)
        self._tasks.append(asyncio.create_task(self._read(at, subscription)))
        self.outcome.profiles += 1
        self._say(f"profiles: {self.outcome.profiles} of {self._plan.profiles}")

    async def _read(self, client: int, subscription: Subscription) -> None:
        while True:
            event = await subscription.next(None)
            for each in (event, *subscription.take()):
                self._came.add((client, str(each.id)))
                self.outcome.again += each.redelivered
            self.outcome.received = len(self._came)
            self._last_came = time.monotonic()

    async def _stop_reading(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self, number: int) -> None:
        plan, client, begin = self._plan, self._writers[number], time.perf_counter()
        chance = Random(plan.seed * 1000 + number)
        share = plan.per_second / plan.publishers
        total = plan.events // plan.publishers + (number < plan.events % plan.publishers)
        done = 0
        while done < total:
            batch = [happening(chance, at) for at in range(done, min(total, done + BATCH))]
            await client.publish_many(batch, reliable=True)
            done += len(batch)
            self._published += len(batch)
            self.outcome.events = self._published
            left_s = (plan.events - self._published) * (time.perf_counter() - begin) / self._published
            self._say(
                f"published {self._published} of {plan.events}, {left_s:.0f} s left; {self.outcome.received} received;"
                f" killed: {self.outcome.driver_kills} x the archive, {self.outcome.broker_kills} x a broker"
            )
            if share:
                await asyncio.sleep(max(0.0, begin + done / share - time.perf_counter()))

    async def _trouble(self, archiver: Archiver, members: Sequence[Member]) -> None:
        """Kills, evenly over the events, of the archive and of one broker in turn.

        An archive is killed when it has written something since it was started: killing what has not begun shows less.
        """
        plan = self._plan
        todo = ["driver", "broker"] * max(plan.driver_kills, plan.broker_kills)
        left = {"driver": plan.driver_kills, "broker": plan.broker_kills}
        todo = [what for at, what in enumerate(todo) if at // 2 < left[what]]
        victim = members[Random(plan.seed).randrange(len(members))]
        had = 0
        for at, what in enumerate(todo):
            while self._published < plan.events * (at + 1) // (len(todo) + 1):
                await asyncio.sleep(POLL_S)
            if what == "driver":
                while _archived(self.archive) <= had and self._published < plan.events:
                    await asyncio.sleep(POLL_S)
                await archiver.kill()
                had = _archived(self.archive)
                await archiver.start()
                self.outcome.driver_kills += 1
            else:
                await self._kill(victim)
                self.outcome.broker_kills += 1

    async def _kill(self, victim: Member) -> None:
        """`kill -9` of a broker that is up: one that is on its way back from the last time is waited for."""
        until = time.monotonic() + self._plan.patience_s
        while not (victim.is_ready and victim.process is not None and victim.process.returncode is None):
            assert time.monotonic() < until, f"{victim.label} did not come back: see {victim.log}"
            await asyncio.sleep(POLL_S)
        starts = victim.starts
        os.kill(victim.process.pid, signal.SIGKILL)
        while victim.starts == starts:  # and back again
            assert time.monotonic() < until, f"{victim.label} did not come back: see {victim.log}"
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Until nothing more comes."""
        until = time.monotonic() + self._plan.patience_s
        self._last_came = time.monotonic()
        while time.monotonic() < until and time.monotonic() - self._last_came < QUIET_S:
            self._say(f"waiting for the last events: {self.outcome.received} came")
            await asyncio.sleep(POLL_S)

    async def _audit(self) -> None:
        self._say("auditing")
        begin = time.perf_counter()
        with (self._directory / "audit.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "veena.cli", "pipeline", "audit", "--archive", str(self.archive), "--json",
                "--master", self._plan.master,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                said, _ = await process.communicate()
            finally:
                if process.returncode is None:  # interrupted: nobody waits for it any more
                    os.killpg(process.pid, signal.SIGKILL)
        self.outcome.audit_s = round(time.perf_counter() - begin, 2)
        self.outcome.audit_exit = await process.wait()
        with suppress(ValueError):
            self.outcome.audit = json.loads(said.splitlines()[-1]) if said.strip() else {}


def _archived(archive: Path) -> int:
    """How many events an archive has, by its manifest."""
    path = archive / "events" / "_manifest.json"
    return sum(file["rows"] for file in json.loads(path.read_bytes())["files"]) if path.exists() else 0


def wish(engine: str, chance: Random) -> dict[str, Any]:
    """What one profile of an engine wants, as `subscribe` takes it."""
    n = chance.randrange(VARIETY)
    if engine == "topic":
        return {"topic": f"topic-{n}"}
    if engine == "selector":
        low = chance.randrange(50)
        return {"topic": "quotes", "selector": f"sym = 'S{n}' AND price BETWEEN {low} AND {low + 50}"}
    if engine == "tags":
        return {"tags": f"Make=M{n},Color={chance.choice(('Red', 'Blue', '*'))}"}
    if engine == "integer":
        return {"integer": n}
    if engine == "xpath":
        return {"xpath": f"/order[item='i{n}' and total > {chance.randrange(60)}]"}
    return {"constraint": f"$type_name == 'Steering' and site == 's{n}' and load > {chance.randrange(60) / 100}"}


def happening(chance: Random, number: int) -> Event:
    """An event for one of the engines."""
    engine, n, body = chance.choice(ENGINES), chance.randrange(VARIETY), b"%d" % number
    if engine == "topic":
        return Event(topic=f"topic-{n}", body=body)
    if engine == "selector":
        return Event(topic="quotes", properties={"sym": f"S{n}", "price": chance.randrange(100)}, body=body)
    if engine == "tags":
        return Event(tags={"Make": f"M{n}", "Color": chance.choice(("Red", "Blue"))}, body=body)
    if engine == "integer":
        return Event(integer=n, body=body)
    if engine == "xpath":
        return Event(xml=f"<order><item>i{n}</item><total>{chance.randrange(100)}</total></order>", body=body)
    return Event(headers={"type_name": "Steering"}, properties={"site": f"s{n}", "load": chance.random()}, body=body)


def shown(outcome: Outcome, plan: Plan) -> dict[str, str]:
    """The lines of a table."""
    rate = outcome.events / outcome.publishing_s if outcome.publishing_s else 0.0
    return {
        "ended in": f"{outcome.phase} (the last is {PHASES[-1]})",
        "events": f"{outcome.events} from {plan.publishers} publishers, {rate:.0f}/s",
        "profiles": f"{outcome.profiles} of {len(ENGINES)} engines, {plan.clients} clients",
        "killed": f"{outcome.driver_kills} x the archive, {outcome.broker_kills} x a broker",
        "received": f"{outcome.received} by the clients' count, {outcome.again} again",
        "to start": f"{outcome.starting_s:g} s, and {outcome.subscribing_s:g} s for the profiles",
        "archived while publishing": f"{outcome.archived_meanwhile} events",
        "settled after": f"{outcome.settling_s:g} s",
        "archive up to date": f"{outcome.archive_s:g} s",
        **{f"audit: {name}": str(value) for name, value in outcome.audit.items() if isinstance(value, int | float)},
        "audit": f"exit code {outcome.audit_exit}, {outcome.audit_s:g} s",
    }
