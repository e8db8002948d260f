"""The discovery experiment: advertisements on all brokers, asked for by SQL and XPath, beside one database and floods.

Real brokers in a world at rest; one client a broker advertises services, most of them for everybody, some for its own
units only. Queries are put one at a time at drawn brokers. What comes back is compared with what one database of all
advertisements answers, of which the asker may see: SQLite for SQL, a plain scan by lxml for XPath (DSC-04). Every frame
that a query causes is counted on every link, beside those of a flood with a limited range, as between the peers of
JXTA, and what such a flood finds (IOP-04, SYS-14). A query must not be seen outside its realm (DSC-03).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from lxml import etree

from veena.address import Address, Unit, contains, shared
from veena.core.boundary.discovery import Advertise, Advertised, AdvertRefused, Answer, Query, QueryRefused, Scalar
from veena.core.boundary.inputs_effects import ClientUp
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.codec import KINDS
from veena.core.wire.control import Routed
from veena.core.wire.discovery import Ask, Found, Shelf, ShelfRequest, Standing, StandingRequest
from veena.errors import VeenaError
from veena.runtime.networks.file import Network
from veena.runtime.networks.statistics import graph_of, hops_from
from veena.sim.networks.baselines import JXTA_TTL, Baselines
from veena.sim.world.network import Delivery
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

#: Maps, offices and shelves are where they belong long before this.
SETTLE_NS = 12 * SECOND_NS
#: How long advertising may take to climb before queries are put.
CLIMB_NS = 5 * SECOND_NS
#: Time in which nothing is asked: what keeping the shelves known costs by itself.
IDLE_NS = 15 * SECOND_NS
STEP_NS = 10 * MILLISECOND_NS
DEADLINE_MS = 5000
#: Ranges of the floods: one that is cheap, the one that JXTA gives, and one that reaches everybody in the GES networks.
TTLS = (3, JXTA_TTL, 21)
KINDS_OF_SERVICE = ("render", "solve", "store", "index", "relay", "print", "probe", "steer")
SITES = 40
LANGUAGES: tuple[Literal["sql", "xpath"], ...] = ("sql", "xpath")
UPKEEP = (Standing, StandingRequest, ShelfRequest, Shelf)

#: Columns of the table, each of one type.
COLUMNS = ("kind", "site", "price", "cores", "free")


@dataclass(frozen=True, slots=True)
class Service:
    """One advertisement of the experiment."""

    home: Address
    client: str
    name: str
    scope: int
    properties: dict[str, Scalar]
    xml: str


@dataclass(frozen=True, slots=True)
class Wish:
    """One query: `columns`, `condition` and `order` of a SELECT, or an XPath as its condition."""

    language: Literal["sql", "xpath"]
    condition: str
    columns: str = "*"
    order: str = ""
    limit: int | None = None

    @property
    def text(self) -> str:
        if self.language == "xpath":
            return self.condition
        order = f" ORDER BY {self.order}" if self.order else ""
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        return f"SELECT {self.columns} FROM adverts WHERE {self.condition}{order}{limit}"  # noqa: S608 - it is a query


@dataclass(frozen=True, slots=True)
class Line:
    """All queries of one language and realm. Sums, but for the shares."""

    network: str
    brokers: int
    adverts: int
    levels: int
    language: str
    realm: int
    queries: int
    #: Advertisements in the answers.
    found: int
    #: Queries whose answer was not that of the database, or named a silent unit.
    wrong: int
    #: Frames over links, on the way to controllers and back.
    asks: int
    answers: int
    #: Frames with a query that came to a broker outside the realm.
    escaped: int
    #: Advertisements that controllers looked at, and those that the askers may see: a scan looks at all of these.
    evaluated: int
    visible: int
    #: By range: frames of a flood and its answers, and the advertisements that it finds.
    floods: dict[int, int]
    flood_found: dict[int, int]

    @property
    def messages(self) -> int:
        return self.asks + self.answers

    @property
    def faults(self) -> list[str]:
        found = []
        if self.wrong:
            found.append(f"{self.wrong} answers differ from the database's")
        if self.escaped:
            found.append(f"{self.escaped} frames with a query left its realm")
        return found


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What holding advertisements costs without any query."""

    #: Frames over links until every controller had all of them.
    climb: int
    #: Frames over links in a second in which nothing changes.
    idle_per_s: float
    #: Advertisements at the broker that holds most.
    held_max: int


def draw_services(network: Network, count: int, chance: Random) -> list[Service]:
    """Services at drawn brokers; seven in ten are for the whole system."""
    services = []
    for number in range(count):
        broker = chance.choice(network.brokers)
        scope = network.levels if chance.random() < 0.7 else chance.randint(1, network.levels)
        values: dict[str, Scalar] = {
            "kind": chance.choice(KINDS_OF_SERVICE),
            "site": f"site-{chance.randrange(SITES)}",
            "price": round(chance.uniform(0, 100), 2),
            "cores": 2 ** chance.randrange(8),
        }
        if chance.random() < 0.5:
            values["free"] = chance.randrange(100)
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in values.items() if name != "site")
        xml = f'<service site="{values["site"]}">{inner}</service>'
        services.append(Service(broker.address, _client(broker.label), f"service-{number}", scope, values, xml))
    return services


def draw_wishes(language: Literal["sql", "xpath"], count: int, chance: Random) -> list[Wish]:
    """Queries of all forms, from a few answers to a tenth of everything."""
    wishes = []
    for number in range(count):
        kind, site = chance.choice(KINDS_OF_SERVICE), f"site-{chance.randrange(SITES)}"
        price, cores = round(chance.uniform(0, 20), 1), 2 ** chance.randrange(8)
        cheap, dear = round(price / 10, 2), round(99.9 - price / 40, 2)
        sql = (
            Wish("sql", f"site = '{site}' AND kind = '{kind}'"),
            Wish("sql", f"price < {cheap} AND cores >= {cores}", "price, cores"),
            Wish("sql", f"kind IN ('{kind}', 'probe') AND cores = {cores}", "kind, free", "price, site", 10),
            Wish("sql", f"free IS NOT NULL AND free < 3 AND NOT kind = '{kind}'", "free", "free DESC, price"),
            Wish("sql", f"site = '{site}' OR price BETWEEN {price} AND {price + 1}", "site"),
            Wish("sql", f"kind LIKE 's%' AND price > {dear}", "kind, price", "price DESC", 25),
        )
        xpath = (
            Wish("xpath", f"/service[@site = '{site}' and kind = '{kind}']"),
            Wish("xpath", f"/service[price < {cheap}]/cores[. >= {cores}]"),
            Wish("xpath", f"/service[free > 97 and not(kind = '{kind}')]"),
            Wish("xpath", f"//price[. >= {dear}]"),
            Wish("xpath", f"/service[@site = '{site}']/free[1]"),
        )
        choice = sql if language == "sql" else xpath
        wishes.append(choice[number % len(choice)])
    return wishes


class Database:
    """All advertisements in one place."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = services
        self._roots = [etree.fromstring(each.xml) for each in services]
        self._visible: set[tuple[str, str]] = set()
        self._connection = sqlite3.connect(":memory:")
        # Seen through a function, so that a LIMIT counts only what the asker may see.
        self._connection.create_function("visible", 2, lambda client, name: (client, name) in self._visible)
        self._connection.execute(
            "CREATE TABLE adverts"
            " (client TEXT, name TEXT, kind TEXT, site TEXT, price REAL, cores INTEGER, free INTEGER)"
        )
        self._connection.executemany(
            "INSERT INTO adverts VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(each.client, each.name, *(each.properties.get(name) for name in COLUMNS)) for each in services],
        )

    def answer(self, wish: Wish, asker: Address, realm: int) -> list[tuple[object, ...]]:
        """(client, name, columns) of what matches, in order: what an `Answer` should hold."""
        visible = [each for each in self.services if is_visible(each, asker, realm)]
        self._visible = {(each.client, each.name) for each in visible}
        if wish.language == "xpath":
            asked = etree.XPath(f"boolean({wish.condition})")
            found = [
                (each.client, each.name)
                for each, root in zip(self.services, self._roots, strict=True)
                if (each.client, each.name) in self._visible and asked(root)
            ]
            return sorted(found)
        columns = "" if wish.columns == "*" else f", {wish.columns}"
        order = f"{wish.order}, " if wish.order else ""
        limit = "" if wish.limit is None else f" LIMIT {wish.limit}"
        condition = f"({wish.condition}) AND visible(client, name) ORDER BY {order}client, name{limit}"
        text = f"SELECT client, name{columns} FROM adverts WHERE {condition}"  # noqa: S608 - drawn here, in memory
        return self._connection.execute(text).fetchall()

    def homes(self, wish: Wish, asker: Address, realm: int) -> Counter[Address]:
        """Where the matches are that the asker may see, a LIMIT left aside."""
        everything = Wish(wish.language, wish.condition)
        matching = {row[:2] for row in self.answer(everything, asker, realm)}
        return Counter(each.home for each in self.services if (each.client, each.name) in matching)


def is_visible(service: Service, asker: Address, realm: int) -> bool:
    """Whether the smallest unit around both lies within the scope and the realm."""
    return len(asker) - shared(asker, service.home) <= min(realm, service.scope)


class Trial:
    """A world at rest with one client a broker."""

    def __init__(self, network: Network, seed: int = 1, options: Options | None = None) -> None:
        self.network = network
        self.world = World(network, seed, options or Options(wire=False, check=False))
        self.world.run_until(self.world.now_ns + SETTLE_NS)
        self.frames: Counter[type[object]] = Counter()
        #: Brokers that a frame with a query came to.
        self.asked: list[Address] = []
        self.answers: dict[int, Answer | QueryRefused] = {}
        #: How many were taken or withdrawn in all, and whose taking is not told yet.
        self.advertised = 0
        self._untold: dict[tuple[int, str], None] = {}
        self._asked = 0
        self.sessions: dict[Address, int] = {}
        self.world.on_client = self._told
        self.world.on_delivery = self._delivered
        for broker in network.brokers:
            self.attach(broker.address, _client(broker.label))

    def attach(self, address: Address, client: str) -> None:
        session = self.sessions[address] = self.world.new_session()
        self.world.give(address, ClientUp(session, client))

    def run(self, time_ns: int) -> None:
        self.world.run_until(self.world.now_ns + time_ns)

    def advertise(self, services: Sequence[Service]) -> None:
        for each in services:
            given = Advertise(self.sessions[each.home], each.name, each.scope, each.properties, each.xml)
            self._untold[given.session, given.name] = None
            self.world.give(each.home, given)
        patience = DEADLINE_MS * MILLISECOND_NS // STEP_NS
        while self._untold and patience:  # the disks take their time
            self.run(STEP_NS)
            patience -= 1
        if self._untold:
            raise VeenaError(f"{len(self._untold)} of {len(services)} advertisements were not taken")

    def ask(self, asker: Address, wish: Wish, realm: int, full: bool = True) -> Answer:
        """Put a query and wait for its answer."""
        self._asked += 1
        given = Query(self.sessions[asker], self._asked, wish.language, wish.text, realm, full, deadline_ms=DEADLINE_MS)
        self.world.give(asker, given)
        patience = DEADLINE_MS * MILLISECOND_NS // STEP_NS + 2
        while self._asked not in self.answers and patience:
            self.run(STEP_NS)
            patience -= 1
        answer = self.answers.pop(self._asked, None)
        if not isinstance(answer, Answer):
            raise VeenaError(f"query {wish.text!r} got {answer}: expected an answer")
        return answer

    def held(self) -> tuple[int, int]:
        """Advertisements that all brokers looked at so far, and that the fullest one holds."""
        statistics = [broker.statistics().discovery for broker in self.world.live()]
        return sum(each.evaluated for each in statistics), max(each.held for each in statistics)

    def _told(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Answer | QueryRefused):
            self.answers[effect.number] = effect
        elif isinstance(effect, Advertised):
            self.advertised += 1
            self._untold.pop((effect.session, effect.name), None)
        elif isinstance(effect, AdvertRefused):
            raise VeenaError(f"advertisement {effect.name!r} was refused: {effect.reason}")

    def _delivered(self, delivery: Delivery) -> None:
        for _, frame in delivery.frames:
            if isinstance(frame, Routed):
                self.frames[KINDS[frame.kind]] += 1
                if KINDS[frame.kind] is Ask:
                    self.asked.append(delivery.to)


class Floods:
    """Queries sent to everybody within a range, and answered over the way they came."""

    def __init__(self, network: Network) -> None:
        self._baselines = Baselines(network)
        self._graph = graph_of(network)
        self._places = {broker.address: place for place, broker in enumerate(network.brokers)}

    def cost(self, asker: Address, homes: Counter[Address], ttl: int) -> tuple[int, int]:
        """Frames over links, and the advertisements found."""
        hops = hops_from(self._graph, self._places[asker])
        reached = [home for home in homes if hops[self._places[home]] <= ttl]
        back = sum(hops[self._places[home]] for home in reached)
        return self._baselines.ttl_flood(asker, list(homes), ttl).crossings + back, sum(homes[home] for home in reached)


def measure(
    network: Network,
    adverts: int = 10_000,
    queries: int = 24,
    seed: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[list[Line], Upkeep]:
    """Advertise, then put `queries` queries in each language and realm."""
    chance = Random(seed)
    say("brokers learn their maps")
    trial = Trial(network, seed)
    services = draw_services(network, adverts, chance)
    database, floods = Database(services), Floods(network)
    say(f"{adverts:,} advertisements climb")
    before = sum(trial.frames[kind] for kind in UPKEEP)
    trial.advertise(services)
    trial.run(CLIMB_NS)
    climb = sum(trial.frames[kind] for kind in UPKEEP) - before
    trial.run(IDLE_NS)
    idle = (sum(trial.frames[kind] for kind in UPKEEP) - before - climb) / (IDLE_NS / SECOND_NS)
    lines = []
    for language in LANGUAGES:
        for realm in range(network.levels, 0, -1):
            say(f"{language} in realm {realm}")
            lines.append(_line(trial, database, floods, draw_wishes(language, queries, chance), realm, chance))
    return lines, Upkeep(climb, idle, trial.held()[1])


def _line(trial: Trial, database: Database, floods: Floods, wishes: Sequence[Wish], realm: int, chance: Random) -> Line:
    total: Counter[str] = Counter()
    cost: Counter[int] = Counter(dict.fromkeys(TTLS, 0))
    flooded: Counter[int] = Counter(dict.fromkeys(TTLS, 0))
    levels = trial.network.levels
    for wish in wishes:
        asker = chance.choice(trial.network.brokers).address
        before, (looked, _) = Counter(trial.frames), trial.held()
        trial.asked.clear()
        answer = trial.ask(asker, wish, realm)
        total["asks"] += trial.frames[Ask] - before[Ask]
        total["answers"] += trial.frames[Found] - before[Found]
        total["evaluated"] += trial.held()[0] - looked
        own: Unit = asker[: levels - realm]
        total["escaped"] += sum(not contains(own, address) for address in trial.asked)
        expected = database.answer(wish, asker, realm)
        total["wrong"] += rows_of(answer) != expected or not answer.complete
        total["found"] += len(answer.rows)
        homes = database.homes(wish, asker, realm)
        total["visible"] += sum(is_visible(each, asker, realm) for each in database.services)
        for ttl in TTLS:
            messages, found = floods.cost(asker, homes, ttl)
            cost[ttl] += messages
            flooded[ttl] += min(found, len(expected))
    sums = ("found", "wrong", "asks", "answers", "escaped", "evaluated", "visible")
    return Line(
        network=trial.network.name,
        brokers=len(trial.network.brokers),
        adverts=len(database.services),
        levels=levels,
        language=wishes[0].language,
        realm=realm,
        queries=len(wishes),
        floods=dict(cost),
        flood_found=dict(flooded),
        **{name: total[name] for name in sums},
    )


def rows_of(answer: Answer) -> list[tuple[object, ...]]:
    """An answer as the database gives it."""
    return [(row.client, row.name, *(row.values or ())) for row in answer.rows]


def _client(label: str) -> str:
    return f"client-{label}"
