"""Brokers that follow a simpler rule than ours: one that the papers, or common sense, would suggest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.event_world import Stage
from veena.address import Unit
from veena.core.boundary.inputs_effects import LinkLoad
from veena.core.broker import Broker
from veena.core.delivery.in_flight import LOG, Flight, Run
from veena.core.routing.duties import Duties
from veena.core.routing.router import NOWHERE, Router
from veena.core.routing.sent_runs import SentRuns
from veena.core.topology.next_hops import Hop, Hops
from veena.core.topology.paths import cheapest_paths
from veena.core.wire.control import ConnectionRecord, Done
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import event_key


class CheapestHops(Hops):
    """SPR-09 to the letter: the cheapest path of one's own map, decided anew at every broker."""

    def _compute(self, unit: Unit) -> Hop | None:
        path = cheapest_paths(self._map).get(unit)
        return None if path is None else self._link_into(path.hop)


class DropsById(Router):
    """DUP-02 at every broker: what was seen is a duplicate, whatever it is to serve (DUP-09)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: set[object] = set()

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        key = event_key(frame)
        if key in self.seen and source != LOG:
            self.duties.acknowledge(source, number)
            return
        self.seen.add(key)
        super().take(source, number, frame, now_ns)


class IgnoresBounces(Router):
    """A hop is a neighbour: over a new connection to the same one nothing has changed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.neighbours: dict[int, object] = {}

    def _send(self, connection: int, flight: Flight, duties: int, now_ns: int) -> None:
        for at in range(duties.bit_length()):
            if duties >> at & 1:
                self.neighbours[1 << at] = self._links[connection].neighbour
        super()._send(connection, flight, duties, now_ns)

    def reroute(self, now_ns: int) -> None:
        for bit in self._hop:
            new = self._find(bit)
            if new != NOWHERE and self.neighbours.get(bit) == self._links[new].neighbour:
                self._hop[bit] = new
        super().reroute(now_ns)


class AcknowledgesTheTaken(Router):
    """A duty that was taken before is somebody's already: its second copy is answered at once."""

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        flight = self.duties.find(event_key(frame))
        if flight is not None and source != LOG:
            frame = frame.copy(frame.to_serve & ~flight.taken, frame.served, frame.ttl_ms)
        super().take(source, number, frame, now_ns)


class TakesCustody(Router):
    """Whoever has taken an event answers for it: its upstream may forget it."""

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        if source == LOG:
            super().take(source, number, frame, now_ns)
            return
        super().take(-1, number, frame, now_ns)  # the claim of nobody who could be answered
        self.duties.acknowledge(source, number)


class SpreadsTheLoad(Router):
    """Every other event goes over the second-best path."""

    def _forward(self, flight: Flight, mask: int, now_ns: int) -> int:
        for at in range(mask.bit_length() if flight.frame.sequence % 2 else 0):
            bit = mask & 1 << at
            others = self._hops.alternates(self.unit(bit)) if bit else []
            if others:
                self._send(others[0].connection, flight, bit, now_ns)
                mask ^= bit
        return super()._forward(flight, mask, now_ns)


class NeverSendsAgain(Router):
    """What was sent is on its way; a new hop is for new events."""

    def reroute(self, now_ns: int) -> None:
        self._version, self.is_stale = self._map.version, False
        for bit in self._hop:
            self._hop[bit] = self._find(bit)


class SendsAgainBackwards(Router):
    """What is open is sent again, the latest first."""

    def reroute(self, now_ns: int) -> None:
        in_order = self.duties.open
        self.duties.open = lambda mask: in_order(mask)[::-1]  # type: ignore[method-assign]
        super().reroute(now_ns)
        self.duties.open = in_order  # type: ignore[method-assign]


class SlowNews(Broker):
    """Tells others of changed connections only when it is let: events may be faster than maps."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.is_holding = False
        self.held: list[tuple[ConnectionRecord, int | None]] = []
        self.pass_on = self.exchange.pass_on
        self.exchange.pass_on = self.hold  # type: ignore[method-assign]

    def hold(self, news: list[tuple[ConnectionRecord, int | None]], now_ns: int) -> None:
        self.held += news
        if not self.is_holding:
            self.pass_on(self.held, now_ns)
            self.held = []


def hold_news(stage: Stage, *names: str) -> None:
    for name in names:
        broker = stage.broker(name)
        assert isinstance(broker, SlowNews)
        broker.is_holding = True


def let_news_go(stage: Stage, *names: str) -> None:
    for name in names:
        broker = stage.broker(name)
        assert isinstance(broker, SlowNews)
        broker.is_holding = False
        broker.hold([], stage.world.now_ns)
        stage.world.give(stage.addresses[name], LinkLoad(0, 0.0))  # an input about nothing: what waits goes out


def use(monkeypatch: pytest.MonkeyPatch, rule: type[Router] = Router, hops: type[Hops] = Hops) -> None:
    """Brokers that are made from now on follow this rule."""
    monkeypatch.setattr("veena.core.event_side.Router", rule)
    monkeypatch.setattr("veena.core.broker.Hops", hops)


# --- runs ---


class AcknowledgesTheHalf(Duties):
    """A burst that some of its units have is stored: its upstream may forget it."""

    def complete_run(self, run: Run, duties: int, now_ns: int) -> None:
        super().complete_run(run, duties, now_ns)
        if run.flights is None and run.open and run.done and run.source != LOG:
            self.acknowledge_run(run.source, run.number, run.count)


class SendsRunsBehind(Duties):
    """What was sent as a burst goes again when the events that went one by one have gone."""

    def part(self, run: Run) -> None:
        super().part(run)
        self.__dict__.setdefault("late", set()).update(each.key for each in run.flights or ())

    def open(self, mask: int) -> list[Flight]:
        found = super().open(mask)
        late = self.__dict__.setdefault("late", set())
        return sorted(found, key=lambda flight: flight.key in late)


class IgnoresExceptions(SentRuns):
    """An answer is for all between its first and its last frame."""

    def done(self, frame: Done) -> tuple[list[Run], list[Run]]:
        return super().done(Done(frame.ranges))
