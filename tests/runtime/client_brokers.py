"""Real brokers with real clients over real sockets, in this process; a broker can be killed and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from tests.runtime.brokers import BRISK, BRISK_RETRY, copied
from veena.address import Address, as_seen
from veena.client import Client, Subscription, connect
from veena.core.boundary.inputs_effects import LogRead, Read, Store, Stored, StoreFailed
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Disk, Identity
from veena.errors import TimedOut
from veena.event import Event
from veena.runtime.access.users import Users
from veena.runtime.broker.driver import Driver, FromDisk
from veena.runtime.broker.entrance import Entrance
from veena.runtime.clients.service import Conversations
from veena.runtime.config.schema import EntranceLimits
from veena.runtime.logging.logs import Log
from veena.runtime.transports.registry import NO_SECRETS, Secrets, Server, listen
from veena.runtime.transports.stream import Listener, Stream
from veena.runtime.transports.url import parse_url

#: As in production, but impatient.
QUICK = replace(BRISK, merge_ns=100 * MILLISECOND_NS, arrive_ns=1000 * MILLISECOND_NS)
PATIENCE_S = 20.0


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario; what hangs fails."""
    asyncio.run(asyncio.wait_for(scenario, 60))


class Kept:
    """A disk that outlives its broker; what was not answered when that was killed may be on it or not: here it is."""

    def __init__(self, identity: Identity) -> None:
        self.disk = Disk(identity)

    def submit_for(self, driver: list[Driver]) -> Peer:
        return Peer(self.disk, driver)


class Peer:
    """The disk as one life of a broker sees it."""

    def __init__(self, disk: Disk, driver: list[Driver]) -> None:
        self._disk = disk
        self._driver = driver
        self.is_cut = False
        #: While set, what is stored is not answered.
        self.holds: list[FromDisk] | None = None
        #: While set, the disk writes nothing and answers with this.
        self.fault: str | None = None

    def submit(self, effect: Store | Read) -> None:
        if self.is_cut:
            return
        if isinstance(effect, Store) and self.fault is not None:
            answer: FromDisk = StoreFailed(effect.ticket, self.fault)
        elif isinstance(effect, Store):
            for write in effect.writes:
                self._disk.write(write)
            answer = Stored(effect.ticket)
        else:
            wanted = (
                entry
                for entry in self._disk.entries
                if entry.offset >= effect.offset
                and (not effect.inbox or effect.inbox in entry.inboxes)
                and entry.accepted_ns >= effect.since_ns
            )
            answer = LogRead(effect.ticket, tuple(islice(wanted, effect.limit)))
        if self.holds is not None:
            self.holds.append(answer)
        else:
            asyncio.get_running_loop().call_soon(self._answer, [answer])

    def release(self) -> None:
        """Answer everything that was held."""
        held, self.holds = self.holds or [], None
        self._answer(held)

    def _answer(self, answers: Sequence[FromDisk]) -> None:
        if not self.is_cut:
            self._driver[0].take(answers)


class Site:
    """One broker."""

    def __init__(
        self,
        address: Address = (0, 0, 0, 0),
        users: Users | None = None,
        settings: Settings = QUICK,
        url: str = "veena://127.0.0.1:0",
        secrets: Secrets = NO_SECRETS,
    ) -> None:
        self.address = address
        self.users = users
        self.settings = settings
        self.url = url
        self.secrets = secrets
        self.limits = EntranceLimits()
        self.kept = Kept(Identity(f"broker-{address}", address, 0))
        self.neighbours: list[Site] = []
        self.streams: list[Stream] = []
        self._server: Server | None = None
        self._driver: Driver | None = None
        self._clients: Conversations | None = None
        self.peer: Peer | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None
        return self._driver

    @property
    def clients(self) -> Conversations:
        assert self._clients is not None
        return self._clients

    async def start(self) -> Site:
        lives: list[Driver] = []

        def take_link(stream: Stream, data: bytes) -> Listener:
            return lives[0].links.accept(stream, data)

        def take_client(stream: Stream, data: bytes) -> Listener:
            return self.clients.accept(stream, data)

        entrance = Entrance(self.limits, take_link, take_client, Log())

        def accept(stream: Stream) -> Listener:
            self.streams.append(stream)
            return entrance.accept(stream)

        self._server = await listen(parse_url(self.url), accept, self.secrets, entrance.strangers)
        self.url = str(self._server.url)
        self.peer = self.kept.submit_for(lives)
        disk = copied(self.kept.disk)
        driver = Driver(disk, self.settings, self.peer, listen=(self.url,), retry=BRISK_RETRY)
        lives.append(driver)
        self._driver = driver
        driver.clients = self._clients = Conversations(driver, driver.broker.identity, self.settings, self.users)
        driver.start()
        entrance.open()
        for neighbour in self.neighbours:
            driver.links.keep([parse_url(neighbour.url)])
        return self

    async def kill(self) -> None:
        """End it without a word; its disk stays."""
        assert self._server is not None and self.peer is not None
        self.peer.is_cut = True
        await self._server.close()
        for stream in self.streams:
            stream.abort("killed")
        self.streams.clear()
        await asyncio.sleep(0)
        await self.driver.stop()
        self.clients.close()
        self._driver = None

    async def stop(self) -> None:
        if self._driver is not None:
            assert self._server is not None
            await self._server.close()
            self.clients.close()
            await asyncio.sleep(0.01)
            await self.driver.stop()
            for stream in self.streams:
                stream.abort("over")
            self._driver = None

    async def __aenter__(self) -> Site:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def client(self, client_id: str | None = None, **options: Any) -> Client:
        return connect(self.url, client_id=client_id, **options)


@asynccontextmanager
async def two_sites() -> AsyncIterator[tuple[Site, Site]]:
    """Two brokers of one cluster, linked, that know each other."""
    async with Site((0, 0, 0, 0)) as one:
        other = Site((0, 0, 0, 1))
        other.neighbours = [one]
        async with other:
            for here, there in ((one, other), (other, one)):
                await until(lambda here=here, there=there: as_seen(here.address, there.address) in here.driver.reached)
            yield one, other


async def until(condition: Any, patience_s: float = PATIENCE_S) -> None:
    """Wait for something that nothing else tells."""
    async with asyncio.timeout(patience_s):
        while not condition():
            await asyncio.sleep(0.005)


async def bodies(subscription: Subscription, count: int, ack: bool = False) -> list[str]:
    """The bodies of the next so many events."""
    found: list[str] = []
    for _ in range(count):
        event = await subscription.next(PATIENCE_S)
        if ack:
            await subscription.ack(event)
        found.append(text(event))
    return found


async def nothing_more(subscription: Subscription, within_s: float = 0.15) -> bool:
    try:
        await subscription.next(within_s)
    except TimedOut:
        return True
    return False


def text(event: Event) -> str:
    return bytes(event.body).decode()
