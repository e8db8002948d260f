"""The story of `veena demo collaboratory`, chapter by chapter; each says what should be and what was found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veena.cli.demo.collaboratory_site import PERIOD_S, POLL_S, Counters, Say, Simulation, Site
from veena.client import Client
from veena.collab import Member
from veena.errors import AccessDenied, TimedOut
from veena.event import Event
from veena.services.member.feed import Feed

#: How long anything may take on a busy machine.
PATIENCE_S = 30.0
#: How long the simulation publishes while copies are counted.
COUNTED_S = 15 * PERIOD_S
#: Messages that are said while bob is away.
MISSED = 5
#: The values that alice steers to: far from those of the beginning, so that the field shows it.
STEERED = {"source_temperature": 250.0, "source_x": 0.2, "source_y": 0.8, "diffusivity": 1.0}
#: Steps after which the heat of the new place has spread.
SPREAD = 400


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that the demo shows."""

    what: str
    requirement: str
    is_met: bool
    #: What was found, for people.
    found: str


@dataclass(slots=True)
class Story:
    """What came of it all."""

    points: list[Point] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    before: NDArray[Any] | None = None
    after: NDArray[Any] | None = None

    @property
    def is_good(self) -> bool:
        return bool(self.points) and all(point.is_met for point in self.points)

    def note(self, what: str, requirement: str, is_met: bool, found: str) -> None:
        self.points.append(Point(what, requirement, is_met, found))


class Teller:
    """Three users in domain L, one simulation in domain R."""

    def __init__(self, site: Site, simulation: Simulation, say: Say) -> None:
        self._site = site
        self._simulation = simulation
        self._say = say
        self._clients: dict[str, Client] = {}
        self._stack = AsyncExitStack()
        self.story = Story()

    async def tell(self) -> Story:
        """All chapters, one after the other."""
        try:
            for title, chapter in (
                ("finding the simulation", self._finds),
                ("counting copies: three sessions across", self._counts_without),
                ("counting copies: aggregated", self._counts_with),
                ("a junior tries to steer", self._refuses),
                ("a senior steers", self._steers),
                ("leaving, and returning in the other domain", self._returns),
            ):
                self._say(title)
                async with asyncio.timeout(4 * PATIENCE_S):
                    await chapter()
        finally:
            await self._stack.aclose()
        return self.story

    async def _join(self, user: str, broker: str, keep: bool = False) -> Member:
        client = await self._stack.enter_async_context(self._site.client(user, broker))
        self._clients[user] = client
        return await self._stack.enter_async_context(Member(client, keep=keep, timeout=PATIENCE_S))

    # --- chapters ---

    async def _finds(self) -> None:
        self.jim = await self._join("jim", "L.a.1")
        self.alice = await self._join("alice", "L.a.2")
        self.bob = await self._join("bob", "L.a.1", keep=True)
        offers = await _until(lambda: self.alice.applications("kind == 'simulation' and cells > 1000"))
        here, there = (self._site.services[domain].network for domain in "LR")
        trader = self._site.services["L"].statistics().trader
        self.story.note(
            "found by a constraint, in the other domain", "DIS-13, TRD-08",
            len(offers) == 1 and offers[0].network == there != here,
            f"{offers[0].name} at network {offers[0].network}, asked in {here}; "
            f"the trader passed on {trader.forwarded} of {trader.asked} questions",
        )  # fmt: skip
        denied = ""
        try:
            async with self._site.client("jim", "R.a.1"):
                pass
        except AccessDenied as error:
            denied = str(error)
        self.story.note("a user of L is nobody in R", "DIS-05", bool(denied), denied or "jim was let in")

    async def _counts_without(self) -> None:
        """Three users that subscribe at the remote channel: each event is sent to each of them."""
        async with AsyncExitStack() as stack:
            feeds = []
            for number in (1, 2, 3):
                client = await stack.enter_async_context(self._site.client(f"guest-{number}", "R.a.1"))
                guest = await stack.enter_async_context(Member(client))
                feeds.append(await guest.monitor("heat"))
            published, _, counted = await self._count("R", feeds)
        each = counted.handed / published
        self.story.numbers["three_sessions"] = {"events": published, "copies": counted.handed, "copies_per_event": each}
        self.story.note(
            "three sessions across the domains", "FIX-30, AGG-03", counted.handed == 3 * published,
            f"{counted.handed} copies of {published} events: {each:.2f} each",
        )  # fmt: skip

    async def _counts_with(self) -> None:
        feeds = [await member.monitor("heat") for member in (self.jim, self.alice, self.bob)]
        self.seen = dict(zip(("jim", "alice", "bob"), feeds, strict=True))
        published, got, counted = await self._count("L", feeds)
        each = counted.copies_in / published
        [aggregate] = self._site.services["L"].statistics().aggregation.aggregates
        self.story.numbers["aggregated"] = {
            "events": published, "copies": counted.copies_in, "copies_per_event": each, "bytes": counted.bytes_in,
            "handed": got, "members": aggregate.members, "subscriptions_told": len(aggregate.texts),
        }  # fmt: skip
        self.story.note(
            "the same, aggregated: one copy where three would have gone", "FIX-30, AGG-02",
            counted.copies_in == published and got == 3 * published,
            f"{counted.copies_in} copies of {published} events crossed ({each:.2f} each), {got} were handed over",
        )  # fmt: skip
        self.story.note(
            "three users are one consumer of the remote application", "AGG-01, DIS-15",
            aggregate.members == 3 and len(aggregate.texts) == 1,
            f"{aggregate.members} members, told as {len(aggregate.texts)}: {aggregate.texts[0]}",
        )  # fmt: skip

    async def _refuses(self) -> None:
        commands, denied = self._simulation.app.statistics().commands, ""
        try:
            await self.jim.take("heat")
        except AccessDenied as error:
            denied = str(error)
        reached = self._simulation.app.statistics().commands - commands
        self.story.note(
            "the junior's steering is refused by the broker", "DIS-04", bool(denied) and not reached,
            f"{denied or 'not refused'}; {reached} commands reached the simulation",
        )  # fmt: skip

    async def _steers(self) -> None:
        self._simulation.go()
        self.story.before = field_of(await _next(self.seen["jim"], "field"))
        taken = await self.alice.take("heat")
        refused = await self.bob.change("heat", diffusivity=0.5)
        self.story.note(
            "one drives at a time, and a refusal names who", "COL-02",
            taken.is_done and not refused.is_done and "'alice'" in refused.reason, refused.reason,
        )  # fmt: skip
        wrong = await self.alice.change("heat", diffusivity=1000.0)
        self.story.note("a change out of bounds is explained", "COL-02", not wrong.is_done, wrong.reason)
        changed = await self.alice.change("heat", **STEERED)
        records = [
            [(await _next(self.seen[name], "record", parameter=each, answer="done")).properties for each in STEERED]
            for name in ("jim", "bob")
        ]
        is_told = all(record["by"] == "alice" for each in records for record in each)
        self.story.note(
            "the senior steers; the others see who changed what", "COL-01, COL-05", changed.is_done and is_told,
            ", ".join(f"{record['parameter']!s} = {record['value']!s} by {record['by']!s}" for record in records[0]),
        )  # fmt: skip
        await self._sees()

    async def _sees(self) -> None:
        """The field has changed, and two who watch see the same one."""
        hot = STEERED["source_temperature"]
        steered = await _next(self.seen["jim"], "statistics", lambda event: event.properties["high"] == hot)
        spread = int(str(steered.properties["step"])) + SPREAD
        async with asyncio.timeout(PATIENCE_S):
            fields: list[dict[object, Event]] = [{}, {}]
            while not (common := fields[0].keys() & fields[1].keys()):
                for name, seen in zip(("jim", "bob"), fields, strict=True):
                    event = await _next(self.seen[name], "field")
                    if int(str(event.properties["step"])) >= spread:
                        seen[event.properties["step"]] = event
        one, other = (seen[min(common, key=str)] for seen in fields)
        self.story.after = field_of(one)
        assert self.story.before is not None
        changed = float(np.abs(self.story.after - self.story.before).max())
        self.story.note(
            "the field changes, and both see the same", "DIS-23, NTF-03",
            bytes(one.body) == bytes(other.body) and changed > 100,
            f"up to {changed:.0f} degrees apart; step {one.properties['step']!r}: {len(one.body)} equal bytes for both",
        )  # fmt: skip
        paused = await self.alice.pause("heat")
        told = await _next(self.seen["jim"], "state", state="paused")
        resumed = await self.alice.resume("heat")
        states = dict.fromkeys(
            str(entry.fields["state"]) for entry in self.jim.history().consumed if entry.name == "state"
        )
        self.story.note(
            "paused and resumed, each change of state seen", "COL-01",
            paused.state == "paused" and resumed.is_done and told.properties["driver"] == "alice", ", ".join(states),
        )  # fmt: skip

    async def _returns(self) -> None:
        """Bob leaves L, five messages are said, and he comes back in R."""
        await self.jim.room("heat")
        await self.bob.room("heat")
        await self.alice.say("heat", "bob is here")
        await _next(await self.bob.room("heat"), "message")
        await self.bob.close()
        await self._clients["bob"].close()
        said = [f"missed {number}" for number in range(1, MISSED + 1)]
        for text in said:
            await (self.alice if text.endswith(("1", "3", "5")) else self.jim).say("heat", text)
        handed = await self.alice.hand_over("heat", "bob")
        back = await self._join("bob", "R.a.2", keep=True)
        room, feed = await back.room("heat"), await back.monitor("heat")
        await self.alice.say("heat", "welcome back")
        got: list[str] = []
        while "welcome back" not in got:
            got.append(str((await _next(room, "message")).properties["text"]))
        more = [event for event in room.take() if event.headers["event_name"] == "message"]
        record = await _next(feed, "record", action="hand_over")
        self.story.note(
            f"{MISSED} messages wait for who returns in the other domain", "DIS-06",
            got == [*said, "welcome back"] and not more, f"{', '.join(got)}: each once, in order, in domain R",
        )  # fmt: skip
        steered = await back.change("heat", boundary="insulated")
        self.story.note(
            "what happened to the simulation meanwhile waits too", "DIS-06, DIS-09",
            handed.driver == "bob" and record.properties["driver"] == "bob" and steered.is_done,
            f"alice handed the wheel to {record.properties['driver']!s}, who steers from R now",
        )  # fmt: skip
        history = back.history()
        named = [entry for entry in history.consumed if entry.name == "message"]
        self.story.note(
            "each has its history", "DIS-07", len(named) == MISSED + 1 and len(history.produced) >= 1,
            f"bob in R: {len(history.consumed)} consumed, {len(history.produced)} produced",
        )  # fmt: skip

    # --- counting ---

    async def _count(self, domain: str, feeds: Sequence[Feed]) -> tuple[int, int, Counters]:
        """Let the simulation publish for a while: how many events, how many came to these, what the brokers counted."""
        simulation, site = self._simulation, self._site
        await simulation.hold()
        for feed in feeds:
            feed.take()
        before, sent = await site.counters(domain), simulation.app.statistics().published
        simulation.go()
        await asyncio.sleep(COUNTED_S)
        await simulation.hold()
        published = simulation.app.statistics().published - sent
        got = [0] * len(feeds)
        async with asyncio.timeout(PATIENCE_S):
            while min(got) < published:
                await asyncio.sleep(POLL_S)
                got = [count + len(feed.take()) for count, feed in zip(got, feeds, strict=True)]
        return published, sum(got), (await site.counters(domain)).since(before)


def field_of(event: Event) -> NDArray[Any]:
    """The array that an event carries."""
    shape = tuple(int(each) for each in str(event.properties["shape"]).split("x"))
    return np.frombuffer(event.body, str(event.properties["dtype"])).reshape(shape)


async def _next(
    feed: Feed, name: str, is_wanted: Callable[[Event], bool] = lambda event: True, **fields: object
) -> Event:
    """The next event of this name, with these fields."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            event = await feed.next()
            told = event.properties
            if (
                event.headers["event_name"] == name
                and all(told.get(key) == value for key, value in fields.items())
                and is_wanted(event)
            ):
                return event


async def _until(ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    """What is found, as soon as anything is."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await ask()):
                await asyncio.sleep(POLL_S)
            return found
    except TimeoutError:
        raise TimedOut(f"the simulation was not found within {PATIENCE_S:g} seconds") from None
