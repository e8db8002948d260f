"""Records for audits and history, made from what crosses the boundary of the core: it is not asked and does not know.

Whoever sees all inputs and all effects sees every delivery, every copy that goes over a link and every change of what
clients want. It runs only where the configuration asks for records; the store keeps them and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from veena.address import Address, link_level
from veena.core.boundary import (
    Arrived,
    ClientDown,
    ClientRefused,
    ClientUp,
    Deliver,
    Effect,
    Forget,
    Input,
    LinkDown,
    Publish,
    Send,
    Subscribe,
    Unsubscribe,
)
from veena.core.event_frame import COPY, EventFrame
from veena.core.frames import Hello
from veena.event import EventId
from veena.runtime.store_records import Delivery, Hop, Passed, ProfileChange, Record

#: Events on their way whose neighbour is remembered: more than a broker has under way.
MAX_ON_THE_WAY = 1 << 17
Keep = Callable[[list[Record]], None]


class Recorder:
    """The records of one broker; only of those kinds that are kept."""

    def __init__(self, host: Address, kinds: tuple[type[Record], ...], keep: Keep) -> None:
        self._host = host
        self._kinds = kinds
        self._keep = keep
        self._clients: dict[int, str] = {}
        self._wants: dict[tuple[int, int], Subscribe] = {}
        self._neighbours: dict[int, Address] = {}
        #: Whom an event came from, the oldest first.
        self._came_from: dict[EventId, Address] = {}

    def saw(self, given: Input | None, effects: Sequence[Effect], now_ns: int) -> None:
        """One input, and everything that followed from it."""
        records: list[Record] = []
        if type(given) is Arrived:
            self._arrived(given)
        elif type(given) is LinkDown:
            self._neighbours.pop(given.link, None)
        elif type(given) is ClientUp:
            self._clients[given.session] = given.client_id
        elif type(given) is Publish and not given.frame.reliable:
            records.append(Passed(now_ns, given.frame))
        elif type(given) in (Subscribe, Unsubscribe, Forget, ClientDown):
            records += self._changed(given, effects, now_ns)  # type: ignore[arg-type]
        for effect in effects:
            if type(effect) is Deliver:
                clients = (self._clients.get(session) for session, _ in effect.receivers)
                records.append(Delivery(now_ns, effect.frame.id, tuple(each for each in clients if each is not None)))
            elif type(effect) is Send and Hop in self._kinds:
                records += self._sent(effect, now_ns)
        records = [record for record in records if type(record) in self._kinds]
        if records:
            self._keep(records)

    def _arrived(self, given: Arrived) -> None:
        for _, frame in given.frames:
            if type(frame) is Hello:
                self._neighbours[given.link] = frame.address
        if Hop not in self._kinds:
            return
        neighbour = self._neighbours.get(given.link)
        for _, frame in given.frames:
            if type(frame) is EventFrame and neighbour is not None:
                self._came_from[frame.id] = neighbour
        while len(self._came_from) > MAX_ON_THE_WAY:
            del self._came_from[next(iter(self._came_from))]

    def _sent(self, effect: Send, now_ns: int) -> list[Record]:
        neighbour = self._neighbours.get(effect.link)
        if neighbour is None:
            return []
        level = link_level(self._host, neighbour)
        return [
            Hop(now_ns, frame.id, self._came_from.get(frame.id), neighbour, level)
            for _, frame in effect.frames
            if type(frame) is EventFrame and not frame.flags & COPY
        ]

    def _changed(
        self, given: Subscribe | Unsubscribe | Forget | ClientDown, effects: Sequence[Effect], now_ns: int
    ) -> list[Record]:
        """What a client wants from now on, or no longer; a durable subscription outlives its session."""
        client = self._clients.get(given.session)
        if client is None or any(type(effect) is ClientRefused for effect in effects):
            return []
        if type(given) is Subscribe:
            self._wants[given.session, given.subscription] = given
            return [_change(now_ns, client, given, "added")]
        if type(given) is ClientDown:
            del self._clients[given.session]
            gone = [key for key in self._wants if key[0] == given.session]
            wants = [self._wants.pop(key) for key in gone]
            return [_change(now_ns, client, want, "removed") for want in wants if not want.durable]
        assert isinstance(given, Unsubscribe | Forget)
        want = self._wants.pop((given.session, given.subscription), None)
        if want is None or (want.durable and type(given) is Unsubscribe):
            return []
        return [_change(now_ns, client, want, "removed")]


def _change(now_ns: int, client: str, want: Subscribe, change: Literal["added", "removed"]) -> ProfileChange:
    return ProfileChange(now_ns, client, want.subscription, change, want.engine, want.constraint, want.scope)
