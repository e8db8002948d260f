"""Who stands beyond the gates: the brokers of other units that a newcomer can be sent to.

A map names the units that hold gates, not the brokers behind them; those are known to the gates alone. So a contact
that is asked for a place first asks the gates of its own units, one question a gate, passed on inside a larger unit
until a gate is reached (as changes of profiles are, PPP-11), and answers the newcomer with what has come back. Nothing
is kept up to date that nobody asked for.

The invariant: a question is held for at most `PATIENCE_NS`, and at most `MAX_HELD` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.links.link import Link
from veena.core.membership.protocol import Peer, Send
from veena.core.topology.controllers import controllers
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.membership import (
    MAX_PLACE_LISTEN,
    MAX_PLACES,
    GateReply,
    GateRequest,
    Place,
    SetupRequest,
)

#: Gates of a super-super-cluster answer within a few round trips of the longest links.
PATIENCE_NS = 500_000_000
#: Answers are good for so long: newcomers often come in groups.
FRESH_NS = 5_000_000_000
#: Newcomers that wait at once; the next one is answered with what is known.
MAX_HELD = 128


@dataclass(frozen=True, slots=True)
class Held:
    """A newcomer's question that waits for the gates."""

    request: SetupRequest
    peer: Peer
    until_ns: int


class Gates:
    """What one broker has heard of the gatekeepers beyond its units."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known: dict[int, dict[Address, Place]] = {}
        self._asked_ns: int | None = None
        #: Units whose gates have not answered yet.
        self._awaited: dict[tuple[int, Unit], None] = {}
        self._held: list[Held] = []

    def hold(self, request: SetupRequest, peer: Peer, network: NetworkMap, now_ns: int) -> list[Send] | None:
        """Ask the gates before this request is answered; None when it can be answered at once."""
        fresh = self._asked_ns is not None and now_ns < self._asked_ns + FRESH_NS
        if len(self._held) >= MAX_HELD or (fresh and not self._awaited):
            return None
        self._held.append(Held(request, peer, now_ns + PATIENCE_NS))
        if fresh:
            return []
        self._asked_ns = now_ns
        self._known.clear()
        asked: list[Send] = []
        for level in range(1, network.levels):
            unit = network.own(level)
            for gate in controllers(network, level):
                if gate != self._address:
                    self._awaited[level, gate] = None
                    asked.append(Send(gate, GateRequest(unit, self._address)))
        return asked

    def asked(self, frame: GateRequest, network: NetworkMap, links: list[Link]) -> list[Send]:
        """Answer for this broker's own gates, or pass the question on to those that the map shows."""
        level = network.levels - len(frame.unit)
        if not 0 < level < network.levels or network.own(level) != frame.unit:
            return []
        if len(frame.contact) != network.levels or frame.contact[: len(frame.unit)] != frame.unit:
            return []  # only somebody inside the unit has a reason to ask
        places = own_places(links, level)
        gates = [gate for gate in controllers(network, level) if gate != self._address]
        if places or not gates or frame.hops >= network.levels:
            return [Send(frame.contact, GateReply(frame.unit, tuple(places[:MAX_PLACES])))]
        onward = GateRequest(frame.unit, frame.contact, frame.hops + 1)
        # Only gates nearer than the unit that was asked: the others were asked by the contact itself.
        return [Send(gate, onward) for gate in gates if gate[:-1] == self._address[: len(gate) - 1]][:MAX_PLACES]

    def answered(self, frame: GateReply, origin: Address, network: NetworkMap) -> None:
        """Believe only a gate that was asked, and only about brokers that can lie beyond it."""
        level = network.levels - len(frame.unit)
        awaited = [key for key in self._awaited if key[0] == level and origin[: len(key[1])] == key[1]]
        if not awaited or network.own(level) != frame.unit:
            return
        known = self._known.setdefault(level, {})
        for place in frame.places:
            fits = len(place.address) == network.levels and place.address[: len(frame.unit) - 1] == frame.unit[:-1]
            if len(known) < MAX_PLACES and fits and place.address[: len(frame.unit)] != frame.unit:
                known[place.address] = place
        for key in awaited:
            del self._awaited[key]

    def ready(self, now_ns: int) -> list[Held]:
        """The questions that can be answered now: every gate has spoken, or they waited long enough."""
        if self._awaited and any(now_ns < held.until_ns for held in self._held):
            due = [held for held in self._held if now_ns >= held.until_ns]
        else:
            due = self._held
            self._awaited.clear()
        self._held = [held for held in self._held if held not in due]
        return due

    def places(self, links: list[Link], levels: int) -> dict[int, tuple[Place, ...]]:
        """By level: the gatekeepers beyond, those of this broker's own links first."""
        found: dict[int, tuple[Place, ...]] = {}
        for level in range(1, levels):
            places = {place.address: place for place in own_places(links, level)} | self._known.get(level, {})
            if places:
                found[level] = tuple(places.values())
        return found

    def next_wakeup(self) -> int | None:
        return min((held.until_ns for held in self._held), default=None)


def own_places(links: list[Link], level: int) -> list[Place]:
    """The neighbours beyond this broker's own links of a level."""
    return [
        Place(link.neighbour, link.listen[:MAX_PLACE_LISTEN])
        for link in links
        if link.neighbour is not None and link.level == level
    ]
