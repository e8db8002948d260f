"""A stage whose brokers remember, with somebody who asks what became of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.core.event_world import QUICK, Stage, cluster
from veena.address import Address
from veena.core.boundary.explain import Explain, Explained, ExplainRefused, Trace, Traced, Verdict
from veena.core.boundary.inputs_effects import Subscribe
from veena.core.boundary.settings import Settings
from veena.event import EventId
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import Network
from veena.sim.world.world import ClientEffect

Answer = Explained | Traced | ExplainRefused
LINE = ((1, 2), (2, 3))


class AskingStage(Stage):
    """Brokers with records, by default three in a line."""

    def __init__(self, network: Network | None = None, *, asker: str = "1", **settings: Any) -> None:
        self.answers: dict[int, Answer] = {}
        self.asked = 0
        network = network or cluster(LINE)
        given = {"records": "all", **settings}
        super().__init__(
            network,
            options=replace(QUICK, dial=False),
            settings=Settings(network.name, network.levels, network.fanout, **given),
        )
        self.asker = self.attach(asker, "asker")

    def _heard(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Answer):
            self.answers[effect.number] = effect
        else:
            super()._heard(address, effect)

    def reader(
        self, name: str, client_id: str, constraint: Constraint = "quotes", engine: str = "topic", **how: Any
    ) -> int:
        """A client with one subscription, known everywhere."""
        scope = how.pop("scope", self.network.levels)
        session = self.attach(name, client_id, **how)
        self.world.give(self.addresses[name], Subscribe(session, 1, engine, constraint, scope))
        self.wait()
        return session

    def ask(self, given: Explain | Trace) -> Answer:
        self.world.give(self._homes[given.session], given)
        if given.number not in self.answers:
            self.wait_ms(given.deadline_ms + 100)
        return self.answers[given.number]

    def explained(self, event_id: EventId, client_id: str) -> Explained:
        self.asked += 1
        answer = self.ask(Explain(self.asker, self.asked, event_id, client_id))
        assert isinstance(answer, Explained), answer
        return answer

    def why(self, event_id: EventId, client_id: str) -> Verdict:
        return self.explained(event_id, client_id).verdict

    def traced(self, event_id: EventId) -> Traced:
        self.asked += 1
        answer = self.ask(Trace(self.asker, self.asked, event_id))
        assert isinstance(answer, Traced), answer
        return answer
