"""Looks at brokers as one signed-in person may: again and again while a page of that person shows them, else not.

The broker that the person is attached to is asked first. It names contacts in every unit around it, and they name
those around them; so all that is shown can be looked into, wherever the person entered. Brokers of the unit on the
page come first, and so many are asked and no more. A broker that does not answer, or does not let the person in, is
shown as silent; the rest of the picture does not wait for it, or what others suspect of it would be over when it shows.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from veena.client import Client
from veena.dashboard.pictures.figures import broker_row, facts, link_rates, rates
from veena.dashboard.pictures.scene import Path, Scene, compose, label_of, natural, path_of
from veena.errors import AccessDenied, VeenaError
from veena.runtime.transports.url import parse_url

#: Brokers that one person's pages ask: more than a screen can show at once would not be read.
MAX_ASKED = 40
#: Asked at the same time, and how long one may take.
AT_ONCE = 8
ANSWER_S = 3.0
#: How long a look waits for all of them; who takes longer is shown as it was.
ROUND_S = 1.0
#: Between two looks; a page asks for more at least this often, and without it looking ends.
EVERY_S = 2.0
IDLE_S = 20.0
#: Readings that charts show: ten minutes.
MAX_READINGS = 300
#: A broker that was silent is tried again after so long.
RETRY_S = 3.0

#: The end of the ids of clients by which portals look at brokers.
LOOKING = re.compile(r"/portal-[0-9a-f]{12}/at-[0-9a-f]{8}$")

Connect = Callable[[Sequence[str], str], Client]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured at one moment."""

    at: float
    events_in: float
    events_out: float
    #: Round trips in milliseconds: from here to the broker, and over links.
    to_broker_ms: float | None
    link_median_ms: float | None
    link_worst_ms: float | None


@dataclass(slots=True, eq=False)
class _Asked:
    """A broker, and what it said."""

    label: str
    urls: tuple[str, ...]
    client: Client | None = None
    view: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    attached: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    reason: str = ""
    #: When it may be tried again.
    retry_at: float = 0.0
    failures: int = 0
    #: The question that is under way.
    asking: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class Observer:
    """What one person sees of the network."""

    client: Client
    connect: Connect
    #: Whether brokers are asked inside TLS: as those are that the operator named, so that no password leaves it.
    inside_tls: bool = False
    scene: Scene = field(default_factory=lambda: compose(()))
    #: Grows with each look.
    version: int = 0
    #: Why nothing can be seen.
    denied: str = ""
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=MAX_READINGS))
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _home: str = ""
    _focus: Path = ()
    _wanted_at: float = 0.0
    #: Until when clients are listed too.
    _clients_until: float = 0.0
    _looking: asyncio.Task[None] | None = None
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, focus: Path | None = None, *, clients: bool = False) -> None:
        """A page shows what is seen: go on looking, at this unit above all, and at each client."""
        self._wanted_at = time.monotonic()
        if clients:
            self._clients_until = self._wanted_at + IDLE_S
        if focus is not None:
            self._focus = focus
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def wait_seen(self, timeout: float, after: int = 0) -> bool:
        """Wait until there is something to show that is newer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.version <= after and not self.denied:
                    self._changed.clear()
                    await self._changed.wait()
        return self.version > after

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for asked in self._asked.values():
            await _stop(asked)

    # --- looking ---

    async def _look(self) -> None:
        while time.monotonic() - self._wanted_at < IDLE_S:
            began = time.monotonic()
            was_known = set(self._asked)
            try:
                await self._round()
            except VeenaError as error:
                self.denied = str(error) if isinstance(error, AccessDenied) else ""
            self._changed.set()
            if set(self._asked) - was_known and not self.denied:
                continue  # there is more to be seen: at once
            await asyncio.sleep(max(0.1, EVERY_S - (time.monotonic() - began)))
        await self._forget(())

    async def _round(self) -> None:
        if not self.client.is_connected:
            return
        view, status = await asyncio.gather(
            self.client.topology(timeout=ANSWER_S), self.client.status(timeout=ANSWER_S)
        )
        self.denied = ""
        self._home = view["at"]
        home = self._asked.setdefault(self._home, _Asked(self._home, ()))
        _said(home, view, status)
        home.attached = await self._attached(self.client)
        self._learn(view)
        chosen = self._chosen()
        loop = asyncio.get_running_loop()
        for asked in chosen:
            if asked.asking is None or asked.asking.done():
                asked.asking = loop.create_task(self._ask(asked))
        asking = [asked.asking for asked in chosen if asked.asking is not None]
        if asking:
            done, _ = await asyncio.wait(asking, timeout=ROUND_S)
            for task in done:
                task.result()
        await self._forget(chosen)
        self._compose([home, *chosen])

    def _learn(self, view: dict[str, Any]) -> None:
        for places in view.get("contacts", {}).values():
            for place in places:
                if place["broker"] != self._home and place["broker"] not in self._asked:
                    urls = tuple(url for url in place["urls"] if self._may_ask(url))
                    if urls:
                        self._asked[place["broker"]] = _Asked(place["broker"], urls)

    def _may_ask(self, url: str) -> bool:
        try:
            found = parse_url(url)
        except VeenaError:
            return False
        return found.carrier != "memory" and found.is_secure == self.inside_tls

    def _chosen(self) -> list[_Asked]:
        """Those in focus first, then one of each unit, then whoever else there is."""
        depth, seen = len(self._focus), dict[Path, int]()

        def rank(asked: _Asked) -> tuple[bool, int, Any]:
            path = path_of(asked.label)
            is_near = path[:depth] == self._focus
            seen[path[:-1]] = turn = seen.get(path[:-1], 0) + 1
            return (not is_near, turn, natural(path))

        others = sorted(
            (each for each in self._asked.values() if each.label != self._home),
            key=lambda each: natural(path_of(each.label)),
        )
        return sorted(others, key=rank)[:MAX_ASKED]

    async def _ask(self, asked: _Asked) -> None:
        async with self._turns:
            if time.monotonic() < asked.retry_at:
                return
            try:
                async with asyncio.timeout(2 * ANSWER_S):
                    if asked.client is None:
                        asked.client = await self.connect(asked.urls, asked.label).open()
                    view = await asked.client.topology(timeout=ANSWER_S)
                    status = await asked.client.status(timeout=ANSWER_S)
                    attached = await self._attached(asked.client)
            except (VeenaError, TimeoutError) as error:
                asked.reason = str(error) or "no answer"
                asked.failures += 1
                asked.retry_at = time.monotonic() + RETRY_S
                asked.view = asked.status = asked.before = None
                await _leave(asked)
                return
            if view["at"] != asked.label:  # it was sent elsewhere, or has another name now
                await _leave(asked)
                asked.retry_at = time.monotonic() + RETRY_S
                return
            _said(asked, view, status)
            asked.attached = attached
            self._learn(view)

    async def _attached(self, client: Client) -> dict[str, Any] | None:
        """Who is attached there, if a page shows it."""
        return await client.clients(timeout=ANSWER_S) if time.monotonic() < self._clients_until else None

    async def _forget(self, chosen: Iterable[_Asked]) -> None:
        kept = {id(asked) for asked in chosen}
        for asked in self._asked.values():
            if id(asked) not in kept and (asked.client is not None or asked.asking is not None):
                await _stop(asked)
                asked.view = asked.status = asked.before = None

    # --- what it amounts to ---

    def _compose(self, asked: Sequence[_Asked]) -> None:
        told = [each for each in asked if each.view is not None and each.status is not None]
        labels = {tuple(each.status["broker"]["address"]): each.label for each in told if each.status}
        pace = {
            (each.label, labels[neighbour]): rate
            for each in told
            if each.status is not None
            for neighbour, rate in link_rates(each.status, each.before).items()
            if neighbour in labels
        }
        self.scene = compose(
            (each.view for each in told if each.view is not None),
            pace,
            {each.label: facts(each.status, each.before) for each in told if each.status is not None},
            [each.label for each in asked if each.view is None and each.failures],
        )
        self._note(told)
        self.version += 1

    def _note(self, told: Sequence[_Asked]) -> None:
        paces = [pace for each in told if each.status is not None and (pace := rates(each.status, each.before))]
        trips = sorted(line.round_trip_ms for line in self.scene.lines if line.round_trip_ms is not None)
        own = self.client.statistics().round_trip_s
        self.readings.append(
            Reading(
                time.time(),
                sum(pace["in"] for pace in paces),
                sum(pace["out"] for pace in paces),
                None if own is None else own * 1e3,
                trips[len(trips) // 2] if trips else None,
                trips[-1] if trips else None,
            )
        )

    def rows(self) -> list[dict[str, Any]]:
        """Brokers for the tables."""
        found = [
            broker_row(each.label, each.status, each.before) for each in self._asked.values() if each.status is not None
        ]
        return sorted(found, key=lambda row: natural(path_of(row["broker"])))

    def clients(self) -> list[dict[str, Any]]:
        """Clients of the brokers that were asked, the slow ones first; not those that only look."""
        found = [
            {**client, "broker": each.label}
            for each in self._asked.values()
            if each.attached is not None
            for client in each.attached["clients"]
            if not LOOKING.search(client["id"])
        ]
        return sorted(found, key=lambda client: (-client.get("waiting", 0), not client.get("slow"), client["id"]))

    def silent(self) -> list[tuple[str, str]]:
        """Brokers that do not answer, and why."""
        return [(each.label, each.reason) for each in self._asked.values() if each.failures and each.view is None]

    def status_of(self, unit: Path) -> dict[str, Any] | None:
        asked = self._asked.get(label_of(unit))
        return None if asked is None else asked.status


def _said(asked: _Asked, view: dict[str, Any], status: dict[str, Any]) -> None:
    asked.view, asked.before, asked.status = view, asked.status, status
    asked.reason, asked.failures = "", 0


async def _stop(asked: _Asked) -> None:
    """Ask it no longer."""
    asking, asked.asking = asked.asking, None
    if asking is not None:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await _leave(asked)


async def _leave(asked: _Asked) -> None:
    client, asked.client = asked.client, None
    if client is not None:
        with suppress(VeenaError):
            await client.close()
