"""Real brokers in this process, over real transports: networks for the tests of the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import fields, replace

from tests.runtime.streams import until
from veena.address import Address, as_seen
from veena.core.boundary.inputs_effects import (
    Active,
    ClientUp,
    Deliver,
    LogRead,
    Publish,
    Read,
    Store,
    Stored,
    Subscribe,
    ToClient,
    Welcome,
)
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Disk, Identity
from veena.event import Event, IdGenerator
from veena.runtime.broker.driver import Driver, FromDisk
from veena.runtime.broker.entrance import Entrance
from veena.runtime.config.schema import EntranceLimits
from veena.runtime.links.links import Retry
from veena.runtime.logging.logs import Log
from veena.runtime.transports.registry import NO_SECRETS, Secrets, Server, listen
from veena.runtime.transports.stream import Bytes, Listener, Stream
from veena.runtime.transports.url import parse_url

#: As in production, but impatient.
BRISK = Settings(
    heartbeat_ns=100 * MILLISECOND_NS,
    suspect_after_ns=400 * MILLISECOND_NS,
    confirm_after_ns=400 * MILLISECOND_NS,
    answer_within_ns=800 * MILLISECOND_NS,
    reconcile_ns=1000 * MILLISECOND_NS,
    lease_ns=2000 * MILLISECOND_NS,
    dial_after_ns=1000 * MILLISECOND_NS,
)
BRISK_RETRY = Retry(0.02, 0.2)


def copied(disk: Disk) -> Disk:
    """The same contents, apart from what is written later. What a disk holds does not change, its tables do; a frozen
    record that is compiled cannot be copied."""
    tables = {
        each.name: copy(getattr(disk, each.name)) for each in fields(disk) if each.name not in ("identity", "floors")
    }
    return replace(disk, **tables, floors={inbox: dict(floor) for inbox, floor in disk.floors.items()})


class KeptInMemory:
    """A disk that lasts as long as the test: what was stored is answered in the next turn of the loop."""

    def __init__(self, identity: Identity) -> None:
        self.disk = Disk(identity)
        self.answer: Callable[[list[FromDisk]], None] = lambda answers: None

    def load(self) -> Disk:
        return copied(self.disk)

    def submit(self, effect: Store | Read) -> None:
        if isinstance(effect, Store):
            for write in effect.writes:
                self.disk.write(write)
            answer: FromDisk = Stored(effect.ticket)
        else:
            found = [entry for entry in self.disk.entries if entry.offset >= effect.offset][: effect.limit]
            answer = LogRead(effect.ticket, found)
        asyncio.get_running_loop().call_soon(self.answer, [answer])


class Silent:
    """Where there are no clients: whoever says it is one is closed."""

    def received(self, data: Bytes) -> None: ...

    def closed(self, reason: str) -> None: ...

    def clogged(self) -> None: ...

    def cleared(self) -> None: ...


def no_clients(stream: Stream, data: bytes) -> Listener:
    stream.close("no clients here")
    return Silent()


class Heard:
    """Clients without connections: what the broker tells them is remembered."""

    def __init__(self) -> None:
        self.all: list[ToClient] = []
        self.calls = 0

    def tell(self, effects: list[ToClient]) -> None:
        self.calls += 1
        self.all += effects

    def accept(self, stream: Stream, data: bytes) -> Listener:
        return no_clients(stream, data)

    def bodies(self) -> list[bytes]:
        return [bytes(effect.frame.body) for effect in self.all if isinstance(effect, Deliver)]


class Place:
    """One broker of a network, which can be killed and started again."""

    def __init__(self, address: Address, url: str, secrets: Secrets = NO_SECRETS, settings: Settings = BRISK) -> None:
        self.address = address
        self.url = url
        self.secrets = secrets
        self.settings = settings
        self.kept = KeptInMemory(Identity(f"broker-{address}", address, 0))
        self.limits = EntranceLimits()
        self.entrance: Entrance | None = None
        self.neighbours: list[Place] = []
        self.server: Server | None = None
        self.driver: Driver | None = None
        self.heard = Heard()

    async def start(self) -> Driver:
        """Begin to listen, then to work; the port stays the same when it is started again."""
        waiting: list[Driver] = []

        def take_over(stream: Stream, data: bytes) -> Listener:
            return waiting[0].links.accept(stream, data)

        entrance = Entrance(self.limits, take_over, no_clients, Log())
        self.entrance = entrance
        self.server = await listen(parse_url(self.url), entrance.accept, self.secrets, entrance.strangers)
        self.url = str(self.server.url)
        driver = Driver(
            self.kept.load(),
            self.settings,
            self.kept,
            listen=(self.url,),
            secrets=self.secrets,
            retry=BRISK_RETRY,
        )
        waiting.append(driver)
        self.kept.answer = driver.take
        self.driver = driver
        driver.clients = self.heard
        driver.start()
        entrance.open()
        for neighbour in self.neighbours:
            driver.links.keep([parse_url(neighbour.url)])
        return driver

    @property
    def running(self) -> Driver:
        assert self.driver is not None
        return self.driver

    async def subscribe(self, topic: str) -> None:
        """A client that wants this, known everywhere."""
        session = self.running.new_session()
        self.running.give(ClientUp(session, f"reader-{self.address}-{session}"))
        self.running.give(Subscribe(session, 1, "topic", topic, self.settings.levels))
        await until(lambda: Active(session, 1, self.settings.levels) in self.heard.all)

    async def publisher(self) -> Callable[..., None]:
        """A client that publishes; a function that takes topic, body and what else an event has."""
        session, name = self.running.new_session(), f"writer-{self.address}"
        self.running.give(ClientUp(session, name))
        await until(lambda: [each for each in self.heard.all if isinstance(each, Welcome) and each.session == session])
        welcome = next(each for each in self.heard.all if isinstance(each, Welcome) and each.session == session)
        ids = IdGenerator(name, welcome.incarnation)

        def publish(topic: str, body: bytes, reliable: bool = True) -> None:
            event = Event(topic=topic, body=body, event_id=ids.next(self.running.now_ns()))
            self.running.give(Publish(session, self.running.codec.frame(event, reliable=reliable)))

        return publish

    async def stop(self) -> None:
        if self.driver is not None and self.server is not None and self.entrance is not None:
            await self.server.close()
            self.entrance.close("stopping")
            await self.driver.stop()
            self.driver = None

    def reaches(self, others: list[Address]) -> bool:
        wanted = {as_seen(self.address, other) for other in others if other != self.address}
        return self.driver is not None and wanted <= self.driver.reached.keys()


async def converge(places: list[Place]) -> None:
    """Wait until every broker that runs reaches every other."""
    live = [place for place in places if place.driver is not None]
    addresses = [place.address for place in live]
    await until(lambda: all(place.reaches(addresses) for place in live))
