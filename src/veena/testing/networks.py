"""A network of real brokers that a test starts, breaks, mends and leaves behind no trace of.

`AsyncNetwork` is the network; `Network` is the same for tests without async, with a thread that runs the brokers. What
is killed keeps its disk and its port, as a machine that lost power does; what is cut finds no way around by itself.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType

from veena.address import Unit
from veena.blocking import LoopThread
from veena.errors import InvalidAddress, LocalProtocolError, TimedOut
from veena.runtime.broker.node import DRAIN_S
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.networks.file import Network as Plan
from veena.runtime.networks.file import dump_network
from veena.testing.doors import Cuts, Door
from veena.testing.places import AsProcess, Broker, InProcess, Place, Settings, remove
from veena.testing.shapes import network_of

#: Far more than brokers need to find each other, also on a busy machine.
START_S = 60.0
#: Nothing tells when brokers of other processes have found each other: somebody looks.
LOOK_S = 0.01

Shape = str | PathLike[str] | Mapping[str, int] | None


class AsyncNetwork:
    """Brokers that run, by their labels; made by `async with veena.testing.network(...)`."""

    def __init__(self, plan: Plan, directory: Path, processes: bool, settings: Settings) -> None:
        self._cuts = Cuts()
        self._directory = directory
        self._settings = settings
        self._kind: type[InProcess | AsProcess] = AsProcess if processes else InProcess
        self._plan = plan
        self._places = {entry.label: Place(entry, directory) for entry in plan.brokers}
        self._doors = {label: Door(place.address, self._cuts) for label, place in self._places.items()}
        self._living: dict[str, Broker] = {}

    # --- where it is ---

    @property
    def brokers(self) -> tuple[str, ...]:
        """The labels of all brokers, in the order of the network."""
        return tuple(self._places)

    @property
    def urls(self) -> tuple[str, ...]:
        """Where clients connect, in the same order; `veena.connect` takes them as they are."""
        return tuple(place.url for place in self._places.values())

    def url(self, broker: str | None = None) -> str:
        """Where clients of one broker connect; of the first one, if none is named."""
        return self._place(self.brokers[0] if broker is None else broker).url

    @property
    def directory(self) -> Path:
        """Configurations, stores and logs; gone afterwards, unless the test named the directory."""
        return self._directory

    def is_running(self, broker: str) -> bool:
        return self._place(broker).label in self._living

    def statistics(self, broker: str) -> NodeStatistics:
        """Everything that a broker of this process can say of itself, such as how many copies of events it got."""
        running = self._living.get(self._place(broker).label)
        if not isinstance(running, InProcess):
            raise LocalProtocolError(f"broker {broker!r} does not run in this process: it cannot be looked into")
        return running.statistics()

    # --- what can happen to it ---

    async def kill(self, broker: str) -> None:
        """End a broker without a word to anybody, as a loss of power would. Its disk stays."""
        label = self._place(broker).label
        if label not in self._living:
            raise LocalProtocolError(f"broker {label!r} does not run: restart it first")
        self._doors[label].target = 0
        await self._living.pop(label).kill()

    async def stop(self, broker: str) -> None:
        """End a broker in good order: it sends its clients elsewhere."""
        label = self._place(broker).label
        if label in self._living:
            await self._living.pop(label).stop(DRAIN_S)
            self._doors[label].target = 0

    async def restart(self, broker: str) -> None:
        """Start a broker again, after ending it if it runs: with the disk, the port and the address that it had.

        It returns when all brokers reach each other, or at once when others are dead or cut off.
        """
        label = self._place(broker).label
        await self.stop(label)
        async with _patience(f"broker {label!r} did not come up"):
            await self._start(label)
            await self._wait_whole()

    async def cut(self, one: str, other: str) -> None:
        """Let nothing through between two brokers, or two units (`"paris"`, `"rome"`), until `heal`."""
        self._cuts.add(self._unit(one), self._unit(other))
        for door in self._doors.values():
            door.check()

    async def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Undo one cut, or all of them; returns when the links are back."""
        if one is None or other is None:
            self._cuts.clear()
        else:
            self._cuts.remove(self._unit(one), self._unit(other))
        async with _patience("links did not come back"):
            await self._wait_whole()

    # --- its beginning and end ---

    async def start(self) -> None:
        """Start every broker; returns when each reaches all others."""
        fronts = {label: await door.open() for label, door in self._doors.items()}
        told = tuple(replace(entry, listen=(fronts[entry.label],)) for entry in self._plan.brokers)
        links = tuple(replace(link, transport="tcp", delay_ms=0.0) for link in self._plan.links)
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "network.toml").write_text(dump_network(replace(self._plan, brokers=told, links=links)))
        for label, place in self._places.items():
            place.write_config(fronts[label], self._settings)
        async with _patience("the network did not come up"):
            for outcome in await asyncio.gather(*map(self._start, self._places), return_exceptions=True):
                if outcome is not None:
                    raise outcome
            await self._wait_whole()

    async def close(self) -> None:
        """End every broker."""
        try:
            await asyncio.gather(*(broker.stop(0.0) for broker in self._living.values()))
        finally:
            self._living.clear()
            for door in self._doors.values():
                await door.close()
            for place in self._places.values():
                place.close()

    async def _start(self, label: str) -> None:
        place = self._places[label]
        broker: Broker = self._kind(place)
        await broker.start()
        self._living[label] = broker
        self._doors[label].target = place.port

    async def _wait_whole(self) -> None:
        """Until every link is there and every broker reaches all others; at once while that cannot be."""
        if len(self._living) < len(self._places):
            return
        everybody = [place.address for place in self._places.values()]
        by_address = {place.address: label for label, place in self._places.items()}
        links = [link for link in self._plan.links if not self._cuts.separate(link.a, link.b)]
        while not (
            all(self._doors[by_address[link.b]].joins(link.a) for link in links)
            and (len(self._cuts) or all(broker.reaches(everybody) for broker in self._living.values()))
        ):
            await asyncio.sleep(LOOK_S)

    def _place(self, broker: str) -> Place:
        found = self._places.get(broker)
        if found is None:
            raise LocalProtocolError(f"there is no broker {broker!r}; there are {', '.join(self._places)}")
        return found

    def _unit(self, label: str) -> Unit:
        try:
            return self._plan.labels.unit(label)
        except InvalidAddress as error:
            raise LocalProtocolError(str(error)) from None


class Network:
    """The same for tests without async; made by `with veena.testing.network(...)`."""

    def __init__(self, loop: LoopThread, inner: AsyncNetwork) -> None:
        self._loop = loop
        self._inner = inner

    @property
    def brokers(self) -> tuple[str, ...]:
        """The labels of all brokers, in the order of the network."""
        return self._inner.brokers

    @property
    def urls(self) -> tuple[str, ...]:
        """Where clients connect, in the same order."""
        return self._inner.urls

    def url(self, broker: str | None = None) -> str:
        """Where clients of one broker connect; of the first one, if none is named."""
        return self._inner.url(broker)

    @property
    def directory(self) -> Path:
        return self._inner.directory

    def is_running(self, broker: str) -> bool:
        return self._inner.is_running(broker)

    def statistics(self, broker: str) -> NodeStatistics:
        """Everything that a broker of this process can say of itself, such as how many copies of events it got."""
        return self._loop.call(lambda: self._inner.statistics(broker))

    def kill(self, broker: str) -> None:
        """End a broker without a word to anybody, as a loss of power would. Its disk stays."""
        self._loop.wait(self._inner.kill(broker))

    def stop(self, broker: str) -> None:
        """End a broker in good order: it sends its clients elsewhere."""
        self._loop.wait(self._inner.stop(broker))

    def restart(self, broker: str) -> None:
        """Start a broker again, with the disk, the port and the address that it had."""
        self._loop.wait(self._inner.restart(broker))

    def cut(self, one: str, other: str) -> None:
        """Let nothing through between two brokers, or two units, until `heal`."""
        self._loop.wait(self._inner.cut(one, other))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Undo one cut, or all of them; returns when the links are back."""
        self._loop.wait(self._inner.heal(one, other))


def _check_settings(settings: object) -> None:
    if not isinstance(settings, Mapping) or not all(isinstance(table, Mapping) for table in settings.values()):
        remedy = 'name tables as in the file of a broker, such as {"store": {"copies": 2}}'
        raise LocalProtocolError(f"settings {settings!r:.80}: {remedy}")


class Starting:
    """A network that is about to be started, by `with` or `async with`."""

    def __init__(
        self, shape: Shape, brokers: int, processes: bool, settings: Settings, directory: str | PathLike[str] | None
    ) -> None:
        self._plan = network_of(shape, brokers)
        self._processes = processes
        _check_settings(settings)
        self._settings = settings
        self._named = None if directory is None else Path(directory).absolute()
        self._running: AsyncNetwork | None = None
        self._loop: LoopThread | None = None

    async def __aenter__(self) -> AsyncNetwork:
        if self._running is not None:
            raise LocalProtocolError("this network runs already: make another one by veena.testing.network(...)")
        directory = self._named or Path(tempfile.mkdtemp(prefix="veena-testing-"))
        running = self._running = AsyncNetwork(self._plan, directory, self._processes, self._settings)
        try:
            await running.start()
        except BaseException:
            await self._end(running)
            raise
        return running

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            await self._end(self._running)

    async def _end(self, running: AsyncNetwork) -> None:
        self._running = None
        try:
            await running.close()
        finally:
            if self._named is None:
                remove(running.directory)

    def __enter__(self) -> Network:
        loop = LoopThread()
        try:
            running = loop.wait(self.__aenter__())
        except BaseException:
            loop.stop()
            raise
        self._loop = loop
        return Network(loop, running)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.wait(self.__aexit__(kind, error, trace))
            finally:
                loop.stop()


class SingleBroker:
    """One broker that is about to be started; what `with` and `async with` give is its URL."""

    def __init__(self, starting: Starting) -> None:
        self._starting = starting

    async def __aenter__(self) -> str:
        return (await self._starting.__aenter__()).url()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._starting.__aexit__(kind, error, trace)

    def __enter__(self) -> str:
        return self._starting.__enter__().url()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._starting.__exit__(kind, error, trace)


@asynccontextmanager
async def _patience(what: str) -> AsyncIterator[None]:
    """Bounds a wait and says what did not happen."""
    try:
        async with asyncio.timeout(START_S):
            yield
    except TimeoutError:
        raise TimedOut(f"{what} within {START_S:g} seconds") from None
