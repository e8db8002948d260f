"""Questions in simulated runs: what became of this event for that client? Each answer is held against the oracle.

Pairs are drawn during the faults and after them, most of them such that the client wanted the event or nearly did. Half
of the questions go through the network: the one who asks is attached to any live broker. The other half are asked of
everybody alive in the same moment: then nothing moves between one answer and the next, and the answer must be the truth
of that moment. A run counts as right when every answer is, and the oracle believes no lie (`lies`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from veena.address import Address
from veena.core.boundary.explain import Denied, Explain, Explained, ExplainRefused, Reason
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.wire.event_id import event_key
from veena.errors import RefusalCode, VeenaError
from veena.sim.clients.traffic import Publication
from veena.sim.explaining.lies import TemptedOracle
from veena.sim.explaining.question import Question
from veena.sim.explaining.stays import CAPABILITIES, NEEDS, Somebody
from veena.sim.explaining.witness import WatchedWorld
from veena.sim.networks.generate import generate
from veena.sim.runs.run import Play, draw_size
from veena.sim.runs.workers import worker_pool
from veena.sim.world.options import draw
from veena.sim.world.world import ClientEffect, MakeBroker

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
#: The share of clients that may not read some topic, of those with poor devices, and of events that these cannot show.
RULED = 0.15
PAGERS = 0.15
VIDEOS = 0.15
#: The share of runs in which what waits for a way is a dead letter soon, and how soon.
FORGETTING = 0.3
RETENTION_NS = 8 * SECOND_NS
#: How often the oracle looks while a question is open.
LOOK_NS = 100 * MILLISECOND_NS
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
    #: Answers that somebody who would know is silent or has forgotten, although every broker answered.
    unknown_to_all: int
    #: Answers about wanted events that agree with the truth in everything that is certain; the others are only not
    #: refuted, because somebody who had the event is silent or died with what it had noted.
    exact: int
    plausible: int
    #: Questions whose asker was cut off before the answer, or whose broker had not met the others yet.
    unanswered: int
    #: Lies that the oracle was told beside right answers, by what they say; and those of them that it believed.
    lies: dict[str, int]
    believed: dict[str, int]
    broken: str | None

    @property
    def is_sound(self) -> bool:
        return self.right == self.asked and self.broken is None and not self.believed


class Questions:
    """Those who ask in one run."""

    def __init__(
        self, play: Play, world: WatchedWorld, chance: Random, make_oracle: type[TemptedOracle] = TemptedOracle
    ) -> None:
        self._play = play
        self._world = world
        self._chance = chance
        self.oracle = make_oracle(world, play.traffic, play.durables)
        self._open: dict[int, Question] = {}
        self._tell = world.on_client
        world.on_client = self._heard
        #: Topics that some clients may not read, by client.
        self._rules: dict[str, str] = {}
        self.asked = self.right = self.unknown_to_all = 0
        self.reasons: Counter[str] = Counter()
        #: How answers about wanted events were found to be right.
        self.agreements: Counter[str] = Counter()
        self.wrong: list[str] = []

    def draw_people(self) -> None:
        """Some clients may not read a topic, and the devices of some cannot show everything."""
        for client in self._play.population.clients:
            if self._chance.random() < RULED:
                self._rules[client.name] = f"topic-{self._chance.randrange(6)}"
            if self._chance.random() < PAGERS:
                self._world.attributes[client.name] = {CAPABILITIES: "text"}

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
            around, event_id = self.oracle.around(broker), self._chance.choice(publication.ids)
            self._open[key] = Question(publication, client, broker, self._world.now_ns, False, around, event_id)
            self._look(key)
            self._world.give(broker, Explain(session, key, event_id, client.name, DEADLINE_MS))
        for _ in range(PAIRS):
            pair = self._draw_pair(sent)
            if pair is not None:
                self._ask_at_once(*pair)
        self._world.at(
            self._world.now_ns + (DEADLINE_MS + 500) * MILLISECOND_NS,
            lambda: self._world.give(broker, ClientDown(session)),
        )

    def _ask_at_once(self, publication: Publication, client: Somebody) -> None:
        """Ask as one would who reaches everybody alive in the same moment, whatever links there are.

        Through the network nobody can be asked to whom there is no way: a client's broker and one that has no way to it
        seldom answer the same question.
        """
        world = self._world
        live = {broker.identity.address: broker.events.explainer for broker in world.live()}
        silent = tuple(address for address in world.nodes if address not in live)
        keys = tuple((each.publisher.encode(), *each[1:]) for each in publication.ids)
        asker = next(iter(live))
        question = Question(publication, client, asker, world.now_ns, True, frozenset(live))
        parts = {address: live[address].answer(keys, client.name) for address in sorted(live)}
        verdict = live[asker].combine(parts, client.name, silent, world.now_ns)
        self._judge(question, Explained(0, 0, verdict, silent))

    def _look(self, key: int) -> None:
        """See what is true now, and again and again until the answer comes: brokers are asked one after the other."""
        question = self._open.get(key)
        if question is not None:
            self.oracle.look(question)
            self._world.at(self._world.now_ns + LOOK_NS, lambda: self._look(key))

    def _draw_pair(self, sent: list[Publication]) -> tuple[Publication, Somebody] | None:
        """An event and a client: one that wanted it and has not got it, one that it matches, or any."""
        chance, population, durables = self._chance, self._play.population, self._play.durables
        groups = self._play.groups.groups
        if chance.random() < MISSES:
            for publication in chance.sample(sent, min(len(sent), LOOKS)):
                missed = self._missed(publication)
                if missed:
                    return publication, chance.choice(missed)
        publication = chance.choice(sent[-20:] if chance.random() < 0.5 else sent)
        near: list[Somebody] = [each.client for each in population.history if each.engine.match(publication.event)]
        near += [each.client for each in durables.history if each.engine.match(publication.event)]
        near += [one for group in groups if group.engine.match(publication.event) for one in group.members]
        if near and chance.random() < 0.5:
            return publication, chance.choice(near)
        everybody: list[Somebody] = [*population.clients, *durables.clients]
        everybody += [member for group in groups for member in group.members]
        return (publication, chance.choice(everybody)) if everybody else None

    def _missed(self, publication: Publication) -> list[Somebody]:
        """Who wanted an event when it was accepted and has not got it."""
        at_ns = publication.accepted_ns
        if at_ns is None:
            return []
        got = {receipt.client.name for receipt in self._play.traffic.receipts if receipt.publication is publication}
        found: list[Somebody] = [
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

    def _heard(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            effect = self._obey(address, effect)
        self._world.heard(address, effect)
        if isinstance(effect, Explained):
            self._judge(self._open.pop(effect.number), effect)
        elif isinstance(effect, ExplainRefused) and effect.why is RefusalCode.STARTING:
            pass  # its broker was started just now: unanswered
        elif isinstance(effect, ExplainRefused):
            self.wrong.append(f"refused ({effect.why}): {effect.reason}")
        elif self._tell is not None:
            self._tell(address, effect)

    def _judge(self, question: Question, answer: Explained) -> None:
        self.asked += 1
        self.reasons[answer.verdict.reason.value] += 1
        self.unknown_to_all += answer.verdict.reason is Reason.UNKNOWN and not answer.silent
        fault = self.oracle.judge(question, answer)
        if fault is None:
            self.right += 1
            self.agreements[self.oracle.agreement] += 1
        else:
            self.wrong.append(self._told(question, answer, fault))

    def _obey(self, address: Address, effect: Deliver) -> Deliver:
        """As a driver that tests rights does: withhold what a client may not read, and tell its broker which rule."""
        left = []
        for receiver in effect.receivers:
            client = self._play.population.sessions.get(receiver[0])
            topic = None if client is None else self._rules.get(client.name)
            if topic is None or effect.frame.event().topic != topic:
                left.append(receiver)
                continue
            rule = f"rule 1: deny subscribe topic {topic}"
            self._world.denied[receiver[0], event_key(effect.frame)] = (self._world.now_ns, rule)
            denied = Denied(receiver[0], effect.frame, rule)
            self._world.at(self._world.now_ns, lambda denied=denied: self._world.give(address, denied))  # type: ignore[misc]
        return Deliver(effect.frame, tuple(left))

    def _told(self, question: Question, effect: Explained, fault: str) -> str:
        label = self._world.network.labels.label
        verdict = effect.verdict
        return (
            f"{question.publication.ids[-1]} for {question.client.name}, asked"
            f" {'of everybody' if question.at_once else 'at ' + label(question.asker)}"
            f" {question.asked_ns / SECOND_NS:.3f} s: {verdict.reason.value} "
            f" ({verdict.text}; {verdict.at_ns / SECOND_NS:.3f} s, broker {verdict.broker}, unit {verdict.unit});"
            f" {fault}; {len(effect.silent)} units are silent"
        )

    @property
    def unanswered(self) -> int:
        return len(self._open)


def _change_events(play: Play, chance: Random) -> None:
    """Let more events expire than in other runs: before they are read, on their way, while they wait.

    And let some ask more of a device than every one can do.
    """
    for publication in play.traffic.publications:
        if chance.random() < MORTAL:
            publication.event = replace(publication.event, ttl=chance.uniform(*chance.choice(LIVES)))
        if chance.random() < VIDEOS:
            publication.event = replace(publication.event, headers={NEEDS: "video"})


def explain_seeds(
    first: int, seeds: int, faults: str = "all", *, brokers: int | None = None, jobs: int = 1
) -> Generator[ExplainReport, None, None]:
    """The reports of so many seeds, in their order; to close it breaks off what runs."""
    run = partial(explain_seed, faults=faults, brokers=brokers)
    numbers = range(first, first + seeds)
    if jobs == 1:
        yield from map(run, numbers)
        return
    with worker_pool(jobs) as pool:
        yield from pool.map(run, numbers)


def explain_seed(
    seed: int,
    faults: str = "all",
    make_broker: MakeBroker = Broker,
    *,
    brokers: int | None = None,
    make_oracle: type[TemptedOracle] = TemptedOracle,
) -> ExplainReport:
    """Simulate a seed with records, ask, and judge the answers."""
    chance = Random(seed)
    size = draw_size(chance)
    network = generate(size if brokers is None else brokers, seed=chance.getrandbits(32))
    # Invariants and the wire are looked at by other runs of the same seeds.
    options = replace(draw(chance, faults, len(network.brokers)), records="all", check=False, wire=False)
    # A client is asked about as one: what it has on which device, and what it asked for before, is not told apart.
    # Brokers note times of their own clocks; the oracle has one clock, so the brokers' clocks are right here.
    options = replace(options, devices=0, changes=0, clocks=0)
    if Random(seed + 3).random() < FORGETTING:
        options = replace(options, retention_ns=RETENTION_NS)
    world = WatchedWorld(network, seed, options, make_broker)
    play = Play(world, chance)
    questions = Questions(play, world, Random(seed + 1), make_oracle)
    questions.draw_people()
    _change_events(play, Random(seed + 2))
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
        questions.unknown_to_all,
        questions.agreements["exact"],
        questions.agreements["plausible"],
        questions.unanswered,
        dict(sorted(questions.oracle.lies.items())),
        dict(sorted((+questions.oracle.believed).items())),
        broken,
    )
