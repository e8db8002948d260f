"""Clients that stop reading for a while: their drivers say so, and events wait at the broker, or go (`outlet`).

A client that reads again is told how many events it missed. The judge holds that number against what it did not get
(`Judge`); one whose broker closes its connection comes back later, as one that was cut off.
"""

from __future__ import annotations

from random import Random

from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.settings import SECOND_NS
from veena.sim.clients.population import Population
from veena.sim.world.world import World

#: How long a client does not read.
LASTS_NS = (SECOND_NS // 10, 20 * SECOND_NS)


class SlowClients:
    """Who of a population does not read, and when."""

    def __init__(self, world: World, population: Population, chance: Random) -> None:
        self._world = world
        self._population = population
        self._chance = chance

    def plan(self, count: int, begin_ns: int, end_ns: int) -> None:
        """Let clients stop reading so many times; nobody does so after the end."""
        for _ in range(count if self._population.clients else 0):
            at_ns = self._chance.randrange(begin_ns, end_ns)
            until_ns = min(at_ns + self._chance.randint(*LASTS_NS), end_ns)
            self._world.at(at_ns, lambda until_ns=until_ns: self._clog(until_ns))  # type: ignore[misc]

    def _clog(self, until_ns: int) -> None:
        client = self._chance.choice(self._population.clients)
        session = client.session
        if session and session not in self._population.clogged:
            self._population.clogged[session] = None
            self._world.give(client.broker, SessionClogged(session))
            self._world.at(until_ns, lambda: self._clear(session))

    def _clear(self, session: int) -> None:
        client = self._population.sessions.get(session)
        if client is not None and self._population.clogged.pop(session, 0) is None:
            self._world.give(client.broker, SessionClear(session))
