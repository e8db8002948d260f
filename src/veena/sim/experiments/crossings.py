"""The crossing experiment: how many links an event crosses, beside the fewest it could, and beside other means.

Real brokers in a world at rest; one client a broker. For each row of a table there are topics, and each topic is wanted
by brokers drawn from the seed: each with the row's match rate, or half of the cluster or super-cluster in which it is
published. Events on these topics are published at drawn brokers, and every copy that is written to a link is counted
(EXP-21, EXP-22, GUA-04, GUA-05, GUA-13).

Topics are few enough for every digest to be exact, so that not one copy may go where nobody wants it. What was counted
is also told in advance (`world.predicted_copies`) from what brokers know: both must name the same links. Thousands of
brokers take long to learn all this from each other, so their table may be computed instead, by who sees the whole
(`whole_view`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from veena.address import Address, format_address
from veena.core.boundary.inputs_effects import (
    Accepted,
    ClientRefused,
    ClientUp,
    Deliver,
    Publish,
    PublishRefused,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS
from veena.core.interest.digest import MAX_ATOMS
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import VeenaError
from veena.event import Event, EventId
from veena.runtime.networks.file import Network
from veena.sim.networks.baselines import Baselines
from veena.sim.networks.whole_view import WholeView
from veena.sim.world.options import Options
from veena.sim.world.predicted_copies import foretell
from veena.sim.world.world import ClientEffect, World

#: Match rates in percent, with the most crossings allowed as a multiple of the optimum.
RATES = {100: 1.0, 50: 1.2, 25: 1.25, 10: 1.35, 5: 1.4, 1: 1.5, 0: 1.0}
#: Half of the publisher's own unit of this level wants the event, nobody else; with the bar.
LOCAL = {1: 1.1, 2: 1.2}
UNITS = {1: "half of cluster", 2: "half of SC"}
#: Topics of a match rate: enough to vary who wants what, few enough for a large network to learn in a minute.
TOPICS_MIN, TOPICS_MAX, TOPICS_TIMES_BROKERS = 8, 40, 20_000
#: Topics of a local row: units are small and differ, so it takes many of them to tell 1.08 from 1.12.
LOCAL_TOPICS_MAX = 200
#: Events of a row, unless told: as many as make about so many crossings when everybody wants them.
EVENTS_MIN, EVENTS_MAX, EVENTS_TIMES_BROKERS = 24, 200, 60_000
#: But no fewer than this on each topic.
EVENTS_A_TOPIC = 2
#: Maps, wants and events are where they belong long before this; virtual time in which nothing happens costs nothing.
SETTLE_NS = 5 * SECOND_NS

assert (len(RATES) + len(LOCAL)) * TOPICS_MAX <= MAX_ATOMS, "digests of all topics together are to be exact"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of one row, the brokers whose clients subscribe to it, and those at which it may be published."""

    name: str
    wanting: tuple[Address, ...]
    origins: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of interest."""

    interest: str
    #: The most crossings as a multiple of the optimum.
    bar: float
    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True)
class Shot:
    """One event to be published."""

    topic: Topic
    origin: Address


@dataclass(slots=True)
class Tally:
    """What became of one event."""

    #: From broker to broker, as they were written.
    crossings: list[tuple[Address, Address]] = field(default_factory=list)
    deliveries: Counter[Address] = field(default_factory=Counter)

    def way(self, address: Address) -> list[Address]:
        """The brokers that the event passed on its way to this one, the origin first."""
        came_from = self._came_from()
        found = [address]
        while found[-1] in came_from and len(found) <= len(came_from):
            found.append(came_from[found[-1]])
        return found[::-1]

    def in_vain(self) -> int:
        """Brokers that the event entered and that neither were served nor passed it on to one that was."""
        came_from = self._came_from()
        useful: set[Address] = set()
        for served in self.deliveries:
            address: Address | None = served
            while address is not None and address not in useful:
                useful.add(address)
                address = came_from.get(address)
        return len(came_from.keys() - useful)

    def _came_from(self) -> dict[Address, Address]:
        """The sender of each broker's first copy."""
        return {to: sender for sender, to in reversed(self.crossings)}


@dataclass(frozen=True, slots=True)
class Line:
    """What one row cost on one network. Sums over all events, but for the ratios."""

    network: str
    brokers: int
    links: int
    interest: str
    events: int
    expected: int
    missing: int
    duplicates: int
    crossings: int
    optimum: int
    bar: float
    #: Of single events, crossings over optimum: 95 % of them are at or below this.
    p95: float | None
    flooding: int
    tree: int
    #: A flood with the range that JXTA gives it, and the brokers out of its range that want the event.
    ttl_flooding: int
    ttl_missed: int
    #: Every event of the row to all subscribers of any of its topics; what their clients throw away.
    refinement: int
    thrown_away: int
    crossings_per_link_max: int
    #: (event, broker) with more than one copy in.
    entered_twice: int
    #: (event, broker) entered for nobody, there or further on.
    in_vain: int
    #: Events whose copies were not the foretold ones.
    unforetold: int

    @property
    def ratio(self) -> float | None:
        return self.crossings / self.optimum if self.optimum else None

    @property
    def faults(self) -> list[str]:
        """What is worse than it may be."""
        limits = {
            "missing": self.missing,
            "duplicates": self.duplicates,
            "brokers entered twice": self.entered_twice,
            "brokers entered in vain": self.in_vain,
            "events on other ways than foretold": self.unforetold,
            "crossings of one link by one event, beyond the first": max(0, self.crossings_per_link_max - 1),
        }
        found = [f"{count} {name}" for name, count in limits.items() if count]
        if self.crossings > self.bar * self.optimum:
            found.append(f"{self.crossings} crossings, more than {self.bar} x {self.optimum}")
        return found


def measure(
    network: Network,
    events: int | None = None,
    seed: int = 1,
    say: Callable[[str], None] = lambda text: None,
    *,
    computed: bool = False,
) -> list[Line]:
    """Run every row on one network, `events` events each; `computed` ones are followed without any broker."""
    size = len(network.brokers)
    most = events or MAX_ATOMS
    usual = min(max(EVENTS_MIN, EVENTS_TIMES_BROKERS // size), EVENTS_MAX)
    topics = min(max(TOPICS_MIN, TOPICS_TIMES_BROKERS // size), TOPICS_MAX, most)
    local_topics = min((MAX_ATOMS - len(RATES) * topics) // len(LOCAL), LOCAL_TOPICS_MAX, most)
    chance = Random(seed)
    rows = draw_rows(network, topics, chance, local_topics)
    say("brokers learn their maps")
    trial = Computed(network) if computed else Trial(network, seed)
    say("clients subscribe")
    trial.subscribe(rows)
    lines = []
    for row in rows:
        say(row.interest)
        shots = draw_shots(row, events or max(usual, EVENTS_A_TOPIC * len(row.topics)), chance)
        lines.append(judge(trial, row, shots, trial.fire(shots)))
    return lines


def draw_rows(network: Network, topics: int, chance: Random, local_topics: int | None = None) -> list[Row]:
    """Who wants which topic; so many topics a row, and in rows of local interest."""
    everybody = tuple(broker.address for broker in network.brokers)
    rows = []
    for rate, bar in RATES.items():
        drawn = [tuple(a for a in everybody if chance.random() * 100 < rate) for _ in range(topics)]
        named = (Topic(f"rate-{rate}/{number}", wanting, everybody) for number, wanting in enumerate(drawn))
        rows.append(Row(f"{rate} %", bar, tuple(named)))
    for level, bar in LOCAL.items():
        if level >= network.levels:
            continue
        local: list[Topic] = []
        for number in range(local_topics or topics):
            home = chance.choice(everybody)[: network.levels - level]
            inside = tuple(address for address in everybody if address[: len(home)] == home)
            wanting = tuple(sorted(chance.sample(inside, max(1, len(inside) // 2))))
            local.append(Topic(f"local-{level}/{number}", wanting, inside))
        rows.append(Row(UNITS[level], bar, tuple(local)))
    return rows


def draw_shots(row: Row, events: int, chance: Random) -> list[Shot]:
    topics = [row.topics[number % len(row.topics)] for number in range(events)]
    return [Shot(topic, chance.choice(topic.origins)) for topic in topics]


class Trial:
    """A world at rest with one client a broker, in which events are published and counted."""

    def __init__(self, network: Network, seed: int = 1) -> None:
        self.network = network
        self.baselines = Baselines(network)
        self.world = World(network, seed, Options(wire=False, check=False))
        self.world.run_until(self.world.now_ns + SETTLE_NS)
        self._codec = EventCodec(network.levels, network.fanout)
        self._tallies: defaultdict[EventId, Tally] = defaultdict(Tally)
        self._accepted = 0
        self._sequence = 0
        self._sessions: dict[Address, int] = {}
        self._incarnations: dict[int, int] = {}
        self.world.on_client = self._told
        self.world.on_crossing = self._crossed
        for broker in network.brokers:
            session = self._sessions[broker.address] = self.world.new_session()
            self.world.give(broker.address, ClientUp(session, _client(broker.address)))

    def subscribe(self, rows: Sequence[Row]) -> None:
        """Let clients subscribe, and everybody learn of it."""
        number = 0
        for topic in (topic for row in rows for topic in row.topics):
            for address in topic.wanting:
                number += 1
                wish = Subscribe(self._sessions[address], number, "topic", topic.name, self.network.levels)
                self.world.give(address, wish)
        self.world.run_until(self.world.now_ns + SETTLE_NS)

    def fire(self, shots: Sequence[Shot]) -> list[Tally]:
        """Publish events, wait until nothing happens any more, and say what became of each."""
        self._accepted = 0
        tallies = [self._tallies[self._publish(shot)] for shot in shots]
        self.world.run_until(self.world.now_ns + SETTLE_NS)
        if self._accepted != len(shots):
            raise VeenaError(f"{self._accepted} of {len(shots)} events were accepted: a broker does not answer")
        return tallies

    def foretold(self, shot: Shot) -> list[tuple[Address, Address]]:
        """The copies that the event must make, by what each broker knows."""
        brokers = {broker.identity.address: broker for broker in self.world.live()}
        return list(foretell(brokers, shot.origin, Event(topic=shot.topic.name), self.world.now_ns).crossings)

    def _publish(self, shot: Shot) -> EventId:
        session = self._sessions[shot.origin]
        self._sequence += 1
        event_id = EventId(_client(shot.origin), self._incarnations[session], self.world.now_ns, self._sequence)
        frame = self._codec.frame(Event(topic=shot.topic.name, event_id=event_id), reliable=True)
        self.world.give(shot.origin, Publish(session, frame))
        return event_id

    def _told(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            self._tallies[effect.frame.id].deliveries[address] += len(effect.receivers)
        elif isinstance(effect, Welcome):
            self._incarnations[effect.session] = effect.incarnation
        elif isinstance(effect, Accepted):
            self._accepted += 1
        elif isinstance(effect, PublishRefused | ClientRefused):
            raise VeenaError(f"the client of broker {format_address(address)} was refused: {effect.reason}")

    def _crossed(self, sender: Address, receiver: Address, frame: EventFrame) -> None:
        self._tallies[frame.id].crossings.append((sender, receiver))


class Computed:
    """The same questions, answered by one who sees the whole network: no broker, no message."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.baselines = Baselines(network)
        self._view = WholeView(network)

    def subscribe(self, rows: Sequence[Row]) -> None:
        """Everybody knows already."""

    def fire(self, shots: Sequence[Shot]) -> list[Tally]:
        return [self._tally(shot) for shot in shots]

    def _tally(self, shot: Shot) -> Tally:
        crossings = self.foretold(shot)
        entered = {shot.origin, *(receiver for _, receiver in crossings)}
        return Tally(crossings, Counter(address for address in shot.topic.wanting if address in entered))

    def foretold(self, shot: Shot) -> list[tuple[Address, Address]]:
        return self._view.crossings(shot.origin, shot.topic.wanting)


def judge(trial: Trial | Computed, row: Row, shots: Sequence[Shot], tallies: Sequence[Tally]) -> Line:
    """Compare what was counted with the optimum and the other means."""
    subscribed = {address for topic in row.topics for address in topic.wanting}
    total: Counter[str] = Counter()
    ratios: list[float] = []
    most = 0
    for shot, tally in zip(shots, tallies, strict=True):
        counts = _counts(trial.baselines, shot, tally, subscribed)
        counts["unforetold"] = int(sorted(trial.foretold(shot)) != sorted(tally.crossings))
        total.update(counts)
        most = max(most, *Counter(frozenset(crossing) for crossing in tally.crossings).values(), 0)
        if counts["optimum"]:
            ratios.append(counts["crossings"] / counts["optimum"])
    return Line(
        network=trial.network.name,
        brokers=len(trial.network.brokers),
        links=trial.baselines.links,
        interest=row.interest,
        events=len(shots),
        bar=row.bar,
        p95=sorted(ratios)[(len(ratios) * 95 - 1) // 100] if ratios else None,
        crossings_per_link_max=most,
        **total,
    )


def _counts(baselines: Baselines, shot: Shot, tally: Tally, subscribed: set[Address]) -> dict[str, int]:
    """What one event did, and what it would have cost otherwise."""
    wanting = shot.topic.wanting
    ttl = baselines.ttl_flood(shot.origin, wanting)
    refined = baselines.refine(shot.origin, wanting, subscribed)
    entered = Counter(to for _, to in tally.crossings)
    entered[shot.origin] += 1
    return {
        "expected": len(wanting),
        "missing": sum(1 for address in wanting if not tally.deliveries[address]),
        "duplicates": sum(max(0, count - (address in wanting)) for address, count in tally.deliveries.items()),
        "crossings": len(tally.crossings),
        "optimum": baselines.optimum(shot.origin, wanting),
        "flooding": baselines.flood(shot.origin),
        "tree": baselines.tree(),
        "ttl_flooding": ttl.crossings,
        "ttl_missed": ttl.missed,
        "refinement": refined.crossings,
        "thrown_away": refined.thrown_away,
        "entered_twice": sum(1 for count in entered.values() if count > 1),
        "in_vain": tally.in_vain(),
    }


def _client(address: Address) -> str:
    return f"client-{format_address(address)}"
