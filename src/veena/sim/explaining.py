"""Questions in simulated runs: what became of this event for that client? Each answer is held against the oracle.

Pairs are drawn during the faults and after them, most of them such that the client wanted the event or nearly did; the
one who asks is attached to any live broker. A run counts as right when every answer is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from random import Random

from veena.address import Address
from veena.core.boundary import ClientDown, ClientUp
from veena.core.broker import Broker
from veena.core.explain import NOT_READY
from veena.core.explain_boundary import Explain, Explained, ExplainRefused
from veena.core.settings import MILLISECOND_NS, SECOND_NS
from veena.errors import VeenaError
from veena.sim.durable_clients import DurableClient
from veena.sim.explain_oracle import ExplainOracle, Question
from veena.sim.generate import generate
from veena.sim.options import draw
from veena.sim.population import Client
from veena.sim.run import Play, draw_size
from veena.sim.traffic import Publication
from veena.sim.witness import WatchedWorld
from veena.sim.world import ClientEffect, MakeBroker

#: How often somebody asks while things break and once all is healed, and how many pairs each time.
MOMENTS = 8
LAST_MOMENTS = 2
PAIRS = 6
#: The share of pairs of a client and an event that it missed, and how many events are looked at for one.
MISSES = 0.5
LOOKS = 60
#: The share of events with a time to live, and its bounds in seconds.
MORTAL = 0.2
LIVES = ((0.01, 0.2), (0.5, 10.0))
#: An answer comes within its deadline, and a little later than the last question everybody is done.
DEADLINE_MS = 5000
PATIENCE_NS = 6 * SECOND_NS


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """What `veena sim explain --json` prints for a seed."""

    seed: int
    faults: str
    brokers: int
    asked: int
    right: int
    #: By reason.
    reasons: dict[str, int]
    wrong: tuple[str, ...]
    #: Questions whose asker was cut off before the answer, or whose broker had not met the others yet.
    unanswered: int
    broken: str | None

    @property
    def is_sound(self) -> bool:
        return self.right == self.asked and self.broken is None


class Questions:
    """Those who ask in one run."""

    def __init__(self, play: Play, world: WatchedWorld, chance: Random) -> None:
        self._play = play
        self._world = world
        self._chance = chance
        self._oracle = ExplainOracle(world, play.traffic, play.durables)
        self._open: dict[int, Question] = {}
        self._tell = world.on_client
        self._cross = world.on_crossing
        world.on_client = self._heard
        world.on_crossing = self._crossed
        self.asked = self.right = 0
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []

    def plan(self, begin_ns: int, end_ns: int) -> None:
        for _ in range(MOMENTS):
            self._world.at(self._chance.randrange(begin_ns, end_ns), self.ask)

    def ask(self) -> None:
        """Ask about some pairs."""
        sent = [each for each in self._play.traffic.publications if each.ids]
        broker = self._world.any_live(self._chance)
        if not sent or broker is None:
            return
        session = self._world.new_session()
        self._world.give(broker, ClientUp(session, f"asker-{session}"))
        for number in range(PAIRS):
            pair = self._draw_pair(sent)
            if pair is None:
                continue
            publication, client = pair
            key = session * PAIRS + number
            around = self._oracle.around(broker)
            self._open[key] = Question(publication, client, broker, self._world.now_ns, around)
            event_id = self._chance.choice(publication.ids)
            self._world.give(broker, Explain(session, key, event_id, client.name, DEADLINE_MS))
        self._world.at(
            self._world.now_ns + (DEADLINE_MS + 500) * MILLISECOND_NS,
            lambda: self._world.give(broker, ClientDown(session)),
        )

    def _draw_pair(self, sent: list[Publication]) -> tuple[Publication, Client | DurableClient] | None:
        """An event and a client: one that wanted it and has not got it, one that it matches, or any."""
        chance, population, durables = self._chance, self._play.population, self._play.durables
        if chance.random() < MISSES:
            for publication in chance.sample(sent, min(len(sent), LOOKS)):
                missed = self._missed(publication)
                if missed:
                    return publication, chance.choice(missed)
        publication = chance.choice(sent[-20:] if chance.random() < 0.5 else sent)
        near: list[Client | DurableClient] = [
            each.client for each in population.history if each.engine.match(publication.event)
        ]
        near += [each.client for each in durables.history if each.engine.match(publication.event)]
        if near and chance.random() < 0.5:
            return publication, chance.choice(near)
        everybody: list[Client | DurableClient] = [*population.clients, *durables.clients]
        return (publication, chance.choice(everybody)) if everybody else None

    def _missed(self, publication: Publication) -> list[Client | DurableClient]:
        """Who wanted an event when it was accepted and has not got it."""
        at_ns = publication.accepted_ns
        if at_ns is None:
            return []
        got = {receipt.client.name for receipt in self._play.traffic.receipts if receipt.publication is publication}
        found: list[Client | DurableClient] = [
            each.client
            for each in self._play.population.history
            if each.begun_ns <= at_ns
            and (each.ended_ns is None or each.ended_ns > at_ns)
            and each.client.name not in got
            and each.matches(publication.event, publication.origin)
        ]
        found += [
            each.client
            for each in self._play.durables.history
            if each.stays
            and each.stays[0].want.begun_ns <= at_ns
            and publication not in each.got
            and each.engine.match(publication.event)
        ]
        return found

    def _crossed(self, sender: Address, receiver: Address, frame: object) -> None:
        self._world.crossed(sender, receiver, frame)  # type: ignore[arg-type]
        if self._cross is not None:
            self._cross(sender, receiver, frame)  # type: ignore[arg-type]

    def _heard(self, address: Address, effect: ClientEffect) -> None:
        self._world.heard(address, effect)
        if isinstance(effect, Explained):
            question = self._open.pop(effect.number)
            self.asked += 1
            self.reasons[effect.verdict.reason.value] += 1
            fault = self._oracle.judge(question, effect)
            if fault is None:
                self.right += 1
            else:
                self.wrong.append(self._told(question, effect, fault))
        elif isinstance(effect, ExplainRefused) and effect.reason.startswith(NOT_READY):
            pass  # its broker was started just now: unanswered
        elif isinstance(effect, ExplainRefused):
            self.wrong.append(f"refused: {effect.reason}")
        elif self._tell is not None:
            self._tell(address, effect)

    def _told(self, question: Question, effect: Explained, fault: str) -> str:
        label = self._world.network.labels.label
        verdict = effect.verdict
        return (
            f"{question.publication.ids[-1]} for {question.client.name}, asked at {label(question.asker)}"
            f" {question.asked_ns / SECOND_NS:.3f} s: {verdict.reason.value} "
            f" ({verdict.text}; {verdict.at_ns / SECOND_NS:.3f} s); {fault}; {len(effect.silent)} units are silent"
        )

    @property
    def unanswered(self) -> int:
        return len(self._open)


def _shorten_lives(play: Play, chance: Random) -> None:
    """Let more events expire than in other runs: before they are read, on their way, while they wait."""
    for publication in play.traffic.publications:
        if chance.random() < MORTAL:
            publication.event = replace(publication.event, ttl=chance.uniform(*chance.choice(LIVES)))


def explain_seeds(
    first: int, seeds: int, faults: str = "all", *, brokers: int | None = None, jobs: int = 1
) -> Iterator[ExplainReport]:
    """The reports of so many seeds, in their order."""
    run = partial(explain_seed, faults=faults, brokers=brokers)
    numbers = range(first, first + seeds)
    if jobs == 1:
        yield from map(run, numbers)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, numbers)


def explain_seed(
    seed: int, faults: str = "all", make_broker: MakeBroker = Broker, *, brokers: int | None = None
) -> ExplainReport:
    """Simulate a seed with records, ask, and judge the answers."""
    chance = Random(seed)
    size = draw_size(chance)
    network = generate(size if brokers is None else brokers, seed=chance.getrandbits(32))
    # Invariants and the wire are looked at by other runs of the same seeds.
    options = replace(draw(chance, faults, len(network.brokers)), records="all", check=False, wire=False)
    world = WatchedWorld(network, seed, options, make_broker)
    play = Play(world, chance)
    questions = Questions(play, world, Random(seed + 1))
    _shorten_lives(play, Random(seed + 2))
    questions.plan(world.now_ns + 4 * SECOND_NS, play.end_ns)
    broken: str | None = None
    try:
        play.run()
        for _ in range(LAST_MOMENTS):
            questions.ask()
            world.run_until(world.now_ns + PATIENCE_NS)
    except (AssertionError, VeenaError) as error:
        broken = f"{type(error).__name__}: {error}"
    return ExplainReport(
        seed,
        faults,
        len(network.brokers),
        questions.asked,
        questions.right,
        dict(sorted(questions.reasons.items())),
        tuple(questions.wrong),
        questions.unanswered,
        broken,
    )
