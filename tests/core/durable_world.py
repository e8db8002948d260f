"""Clients with durable subscriptions on a `Stage`: they acknowledge, go away and come back with what they had."""

from __future__ import annotations

from tests.core.event_world import Stage
from veena.core.boundary.inputs_effects import Acknowledge, ClientDown, Forget, Had, Subscribe
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import ids_of
from veena.event import EventId
from veena.matching.base.engine import Constraint


class Reader:
    """One client with one durable subscription, which it acknowledges as its library would."""

    def __init__(
        self,
        stage: Stage,
        client_id: str,
        constraint: Constraint = "quotes",
        *,
        engine: str = "topic",
        ack: str = "auto",
        knows_home: bool = True,
        remembers: bool = True,
        scope: int = 0,
        since_ns: int | None = None,
    ) -> None:
        self.stage = stage
        self.client_id = client_id
        self.constraint = constraint
        self.engine = engine
        self.ack = ack
        self.knows_home = knows_home
        self.remembers = remembers
        self.scope = scope or stage.network.levels
        self.since_ns = since_ns
        self.home = ""
        self.session = 0
        self.had: Had = {}
        self.frames: list[EventFrame] = []
        #: Without it the application never gets to what the library has.
        self.acknowledges = True
        self._seen = 0

    @property
    def bodies(self) -> list[str]:
        return [bytes(frame.body).decode() for frame in self.frames]

    def attach(self, at: str) -> None:
        stage = self.stage
        self.session = stage.attach(at, self.client_id)
        self._seen = 0
        home = stage.addresses[self.home] if self.home and self.knows_home else None
        self.home = at
        given = Subscribe(
            self.session, 1, self.engine, self.constraint, self.scope, "mine", self.ack,  # type: ignore[arg-type]
            dict(self.had), home, self.since_ns,
            frozenset(each for frame in self.frames for each in ids_of(frame)) if self.remembers else frozenset(),
        )  # fmt: skip
        stage.world.give(stage.addresses[at], given)

    def leave(self, *, lost: bool = True) -> None:
        self.read()
        self.stage.world.give(self.stage.addresses[self.home], ClientDown(self.session, lost))
        self.session = 0

    def read(self) -> list[str]:
        """Take what came, and acknowledge it."""
        if not self.session:
            return []
        came = self.stage.frames[self.session][self._seen :]
        self._seen += len(came)
        if not self.acknowledges:
            return [bytes(frame.body).decode() for frame in came]
        self.frames += came
        for frame in came:
            stream = (frame.publisher, frame.incarnation, frame.lane_number)
            self.had[stream] = max(self.had.get(stream, (-1, -1)), (frame.timestamp, frame.sequence))
        self.acknowledge([frame.id for frame in came])
        return [bytes(frame.body).decode() for frame in came]

    def acknowledge(self, ids: list[EventId]) -> None:
        if ids:
            given = Acknowledge(self.session, 1, tuple(ids))
            self.stage.world.give(self.stage.addresses[self.home], given)

    def forget(self) -> None:
        self.stage.world.give(self.stage.addresses[self.home], Forget(self.session, 1))
