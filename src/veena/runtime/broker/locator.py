"""Which broker a client should use: the nearest that has room, and what to do when that changes (IOP-06).

A broker that serves as a locator (`[locator] serve = true`) asks the others, every few seconds, how loaded they are. It
knows them from its configuration, from the network file, and from what brokers tell each other of where they listen
(`contacts`): all of its cluster, some of every unit around. Who does not answer is left out of its own answers.

The order: who has room before who is full; the broker where the client was before all others, because what is kept for
it is there; then the nearest by the operator's regions, then by the round trips that the client measured, then the
least loaded. Clients that a locator sends somewhere are added to that broker's load until it reports again, so that a
crowd is not sent to one door.

A broker that is above its limit (`[load]`) asks around as well, locator or not, and sends as many of its clients as are
too many, the newest first, to brokers with room. Locators are helpers: without one, clients go on with the brokers that
they know, and brokers go on helping each other.

Rejected: one locator that places every client (what it knows is old, and nobody could connect while it is down).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from veena.address import Address
from veena.core.messages.addresses import INTERNAL
from veena.core.wire.client import MAX_URLS, ClientHello, Farewell, TellRedirect
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import MAX_REASON, MAX_URL
from veena.core.wire.header import MAX_CONTROL_FRAME, VERSION, VERSION_LOW
from veena.core.wire.locator import FULL, MAX_BROKER_URLS, MAX_LOAD, AskLocate, Located, TellLocated
from veena.errors import AccessDenied, ConfigError, RefusalCode, VeenaError
from veena.runtime.broker.driver import Driver
from veena.runtime.clients.service import Conversations
from veena.runtime.config.schema import Config
from veena.runtime.links.trust import NotTrusted
from veena.runtime.locator.client import ask
from veena.runtime.locator.load import ROOMY, Gauge, Load, LoadLimits
from veena.runtime.locator.regions import Regions, levels_away
from veena.runtime.logging.logs import Log
from veena.runtime.networks.file import load_network
from veena.runtime.supervision import once
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.stream import Bytes, Listener, Stream
from veena.runtime.transports.url import parse_url

#: Brokers that one locator asks: more are in a network whose units have locators of their own.
MAX_ASKED = 256
#: Questions at once, and how long each may take.
ASKED_AT_ONCE = 16
ASKING_S = 2.0
#: A locator that knows nobody yet asks more often.
EAGER_S = 0.5
#: What a broker said of itself is forgotten after so many rounds without a word.
MISSED_ROUNDS = 3
#: How long somebody may take to put its question.
QUESTION_S = 10.0
#: Of all clients so many, at most, are sent elsewhere in one round: what they leave behind shows in the next.
MOVED_SHARE = 4
#: And so many in any case: finding a place for each takes some microseconds.
MOVED_AT_ONCE = 256
#: The client id of a broker that asks: no client has one like it.
ASKER = f"{INTERNAL}locator"


@dataclass(frozen=True, slots=True)
class LocatorStatistics:
    #: 1.0 is all that this broker serves well.
    load: float
    #: Other brokers that said how loaded they are.
    known: int
    #: Since the start: rounds of asking them, questions answered and refused, clients sent to brokers with room.
    rounds: int
    answered: int
    refused: int
    moved: int


def ranked(
    brokers: Iterable[Located],
    region: tuple[int, ...] | None = None,
    last: str = "",
    round_trips: Mapping[str, int] | None = None,
) -> list[Located]:
    """The brokers in the order in which a client should try them."""
    measured = round_trips or {}

    def key(broker: Located) -> tuple[bool, bool, int, int, int, str]:
        times = [measured[url] for url in broker.urls if url in measured]
        # Classes that double: half a millisecond more is no reason to go to a fuller broker.
        distance = (min(times) // 1000).bit_length() if times else 64 if measured else 0
        is_full = broker.load >= FULL
        return is_full, last not in broker.urls, levels_away(region, broker.address), distance, broker.load, broker.name

    return sorted(brokers, key=key)


class Locator:
    """What one broker knows of the others' load, who asks it, and whom it sends away."""

    def __init__(
        self,
        config: Callable[[], Config],
        driver: Driver,
        clients: Conversations,
        urls: Sequence[str],
        secrets: Secrets,
        log: Log,
    ) -> None:
        """`config` returns the configuration of the moment: an operator may reload it."""
        self._config = config
        self._driver = driver
        self._clients = clients
        self._urls = tuple(urls)
        self._secrets = secrets
        self._log = log
        events = lambda: clients.statistics().delivered + driver.statistics().origin.accepted  # noqa: E731
        self._gauge = Gauge(lambda: clients.statistics().clients, events, time.monotonic)
        #: What others said of themselves last, and when; by address, since names may be alike.
        self._known: dict[Address, tuple[Located, float]] = {}
        #: Clients sent to a broker since it reported.
        self._sent: dict[Address, int] = {}
        #: Conversations that were asked to go and are still here.
        self._asked_to_go: dict[int, None] = {}
        self._watching: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        #: Where the brokers of the network file listen.
        self._listed: list[tuple[str, ...]] = []
        self._is_read = False
        self._regions: tuple[object, Regions] | None = None
        self._rounds = self._answered = self._refused = self._moved = 0

    def renew(self, secrets: Secrets) -> None:
        """Ask others with these from now on."""
        self._secrets = secrets

    def start(self) -> None:
        self._watching = self._driver.supervisor.task("locator", self._watch)

    async def stop(self) -> None:
        tasks = [*self.tasks, *([] if self._watching is None else [self._watching])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is known ---

    def load(self) -> Load:
        tables = self._config().tables
        limits = LoadLimits(tables.load.clients, tables.load.events_per_second, tables.limits.connections)
        return self._gauge.read(limits)

    def own(self) -> Located:
        """What this broker says of itself."""
        config, load = self._config(), self.load()
        urls = tuple(url for url in self._urls if len(url) <= MAX_URL)[:MAX_BROKER_URLS]
        return Located(urls, config.name, config.address, load.thousandths, load.clients, load.room)

    def others(self) -> list[Located]:
        """What is known of the other brokers now, those who were sent there since included."""
        oldest = time.monotonic() - MISSED_ROUNDS * self._config().tables.locator.refresh_s
        self._known = {address: each for address, each in self._known.items() if each[1] >= oldest}
        return [_with_more(broker, self._sent.get(address, 0)) for address, (broker, _) in self._known.items()]

    async def survey(self) -> None:
        """Ask every broker that is known of how it is doing."""
        if not self._is_read:
            self._is_read = True
            await asyncio.to_thread(self._read_network)
        turn = asyncio.Semaphore(ASKED_AT_ONCE)
        own = self._urls

        async def hear(urls: Sequence[str]) -> None:
            async with turn:
                try:
                    url = self._allowed(urls)
                    (broker, *_) = await ask(url, AskLocate(ASKER, own=True), self._secrets, ASKING_S, self._judge)
                except VeenaError as error:
                    self._log.debug("a broker does not say how it is doing", url=urls[0], reason=str(error))
                    return
            if broker.address != self._config().address:
                self._known[broker.address] = broker, time.monotonic()
                self._sent.pop(broker.address, None)

        asked = [urls for urls in self.places() if urls[0] not in own][:MAX_ASKED]
        await asyncio.gather(*map(hear, asked))
        self.others()  # forgets who is silent
        self._sent = {address: count for address, count in self._sent.items() if address in self._known}
        self._rounds += 1

    def _judge(self, url: str, stream: Stream) -> None:
        """Where certificates name brokers, clients are sent to those of this network and to nobody else."""
        trust = self._driver.links.trust
        why_not = trust.why_not(stream)
        if why_not is not None and trust.asks_names:
            raise NotTrusted(f"{url}: {why_not}")

    def _allowed(self, urls: Sequence[str]) -> str:
        """The first of these that this broker may dial; raise NotTrusted where there is none."""
        faults = [self._driver.links.trust.why_not_place(parse_url(url)) for url in urls]
        for url, fault in zip(urls, faults, strict=True):
            if fault is None:
                return url
        raise NotTrusted(*faults[:1])

    def places(self) -> list[tuple[str, ...]]:
        """Where brokers listen, as far as anybody said so; a broker may be in it twice."""
        config, driver = self._config(), self._driver
        found: dict[tuple[str, ...], None] = {(url,): None for url in config.tables.locator.brokers}
        found.update((listen, None) for listen in self._listed)
        for unit in driver.reached:
            found.update((place.listen, None) for place in driver.broker.contacts.places(unit) if place.listen)
        return list(found)

    def _read_network(self) -> None:
        """Where the network file says that brokers listen: read once, it may be long."""
        config = self._config()
        path = config.path(config.tables.broker.network)
        if path is None:
            return
        try:
            self._listed = [entry.listen for entry in load_network(path).brokers[:MAX_ASKED] if entry.listen]
        except ConfigError as error:
            self._log.warning("the network file cannot be read any more", reason=str(error))

    def statistics(self) -> LocatorStatistics:
        return LocatorStatistics(
            self.load().part, len(self._known), self._rounds, self._answered, self._refused, self._moved
        )  # fmt: skip

    # --- answering ---

    def accept(self, stream: Stream, data: bytes) -> Listener:
        """Somebody asks, and these are its first bytes."""
        visit = _Visit(self, stream)
        visit.received(data)
        return visit

    async def may_ask(self, question: AskLocate, stream: Stream) -> None:
        """Raise AccessDenied for who is not let in: the same as everywhere, and brokers ask as neighbours."""
        users = self._clients.users
        if users.is_open or (question.own and self._driver.links.trust.why_not(stream) is None):
            return
        hello = ClientHello(VERSION_LOW, VERSION, question.client_id, question.user, question.password, question.token)
        await self._clients.log_ins.admit(lambda: self._clients.users, hello, stream, "AskLocate")

    def turned_away(self) -> None:
        """Somebody asked who was not let in."""
        self._refused += 1

    def answer(self, question: AskLocate, ip: str) -> TellLocated | Farewell:
        config = self._config()
        if question.own:
            return TellLocated((self.own(),))
        if not config.tables.locator.serve:
            self._refused += 1
            url = self._urls[0]
            reason = f"this broker is no locator: connect to {url}, or set [locator] serve = true in its configuration"
            return Farewell(RefusalCode.PROTOCOL, reason[:MAX_REASON])
        self._answered += 1
        section = config.tables.locator
        if self._regions is None or self._regions[0] is not section:  # it may have been read again
            self._regions = section, Regions(section.regions, config.labels, config.levels, config.fanout)
        region = self._regions[1].unit_of(ip)
        best = ranked([self.own(), *self.others()], region, question.last, dict(question.round_trips))[:MAX_URLS]
        self._send_to(best[0])
        return TellLocated(tuple(best))

    def _send_to(self, broker: Located) -> None:
        self._sent[broker.address] = self._sent.get(broker.address, 0) + 1

    # --- sending clients away ---

    async def _watch(self) -> None:
        while True:
            section = self._config().tables.locator
            try:
                excess = self.load().excess
                if section.serve or excess:
                    await self.survey()
                if excess:
                    self._move(excess)
            except Exception as error:  # whatever it is, the broker itself goes on
                self._log.failure("looking for brokers with room failed", error)
            is_alone = section.serve and not self._known
            await asyncio.sleep(min(EAGER_S, section.refresh_s) if is_alone else section.refresh_s)

    def _move(self, excess: int) -> None:
        """Send the newest clients to the nearest brokers with room, as many to each as it has room for."""
        clients, host = self._clients, self._config().address
        roomy = {each.address: each for each in ranked(self.others(), host) if each.load < ROOMY * FULL and each.room}
        nearest = dict(islice(roomy.items(), MAX_URLS))
        here = list(clients.sessions.values())
        self._asked_to_go = {who.key: None for who in here if who.key in self._asked_to_go}
        count = min(excess, max(1, len(here) // MOVED_SHARE), MOVED_AT_ONCE)
        sent = 0
        for who in islice((who for who in reversed(here) if who.key not in self._asked_to_go), count):
            targets = [each for each in ranked(nearest.values(), host) if each.room]
            if not targets:
                break
            nearest[targets[0].address] = _with_more(targets[0], 1)
            self._send_to(targets[0])
            self._asked_to_go[who.key] = None
            urls = tuple(dict.fromkeys(url for broker in targets for url in broker.urls))[:MAX_URLS]
            who.say(TellRedirect(urls, "this broker has more clients than it serves well"))
            sent += 1
        self._moved += sent
        if sent:
            self._log.info("clients were sent to brokers with room", count=sent, too_many=excess)
        else:
            self._log.noise("more clients than this broker serves well, and nobody has room for them", too_many=excess)


class _Visit:
    """One connection of somebody who asks."""

    def __init__(self, locator: Locator, stream: Stream) -> None:
        self._locator = locator
        self._stream = stream
        self._decoder = Decoder(max_frame=MAX_CONTROL_FRAME)
        self._is_over = False
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(QUESTION_S, stream.abort, f"no question within {QUESTION_S:g} seconds")

    def received(self, data: Bytes) -> None:
        if self._is_over:
            return
        try:
            frames = self._decoder.feed(bytes(data))
        except VeenaError as error:
            self._say(Farewell(RefusalCode.PROTOCOL, str(error)[:MAX_REASON]))
            return
        if not frames:
            return
        question = frames[0][1]
        if not isinstance(question, AskLocate):
            self._say(
                Farewell(RefusalCode.PROTOCOL, f"{type(question).__name__} instead of a question where to connect")
            )
            return
        self._is_over = True
        task = once("the answer to a question where to connect", self._answer(question), self._fail)
        self._locator.tasks.add(task)
        task.add_done_callback(self._locator.tasks.discard)

    async def _answer(self, question: AskLocate) -> None:
        try:
            await self._locator.may_ask(question, self._stream)
            self._say(self._locator.answer(question, self._stream.ip))
        except AccessDenied as error:
            self._locator.turned_away()
            self._say(Farewell(error.code, str(error)[:MAX_REASON]))
        except VeenaError as error:  # such as an address of this broker that is too long to be told
            self._say(Farewell(RefusalCode.PROTOCOL, str(error)[:MAX_REASON]))

    def _fail(self) -> None:
        self._say(Farewell(RefusalCode.BUSY, "the broker failed to answer: ask another, or see its log"))

    def _say(self, frame: TellLocated | Farewell) -> None:
        self._is_over = True
        self._patience.cancel()
        self._stream.write((encode(frame, 0),))
        self._stream.close("answered")

    def closed(self, reason: str) -> None:
        self._is_over = True
        self._patience.cancel()

    def clogged(self) -> None:
        """An answer is short."""

    def cleared(self) -> None:
        """As above."""


def _with_more(broker: Located, more: int) -> Located:
    """A broker as it will be when those are there that were sent to it."""
    if not more:
        return broker
    limit = (broker.room + broker.clients) / ROOMY
    load = min(MAX_LOAD, broker.load + (round(FULL * more / limit) if broker.room else 0))
    return Located(
        broker.urls, broker.name, broker.address, load, broker.clients + more, max(0, broker.room - more)
    )  # fmt: skip


def told_urls(urls: Iterable[str]) -> tuple[str, ...]:
    """Those that fit into a frame."""
    return tuple(url for url in urls if len(url) <= MAX_URL)[:MAX_URLS]
