"""What a broker says of its reach: which units came into it and which were lost, once for every input that changed it.

The driver hears it as an effect, the event side as a change, and, where something was forgotten while it was out of
reach, the neighbours are asked for everything again: they may hold it still, and do not tell unasked
(`topology.connection_table`).

The invariant: what was last reported is what the map showed then, so that nothing is reported twice (BNM-10).
"""

from __future__ import annotations

from collections.abc import Mapping

from veena.address import Unit
from veena.core.boundary.inputs_effects import Effect, Reachable, Unreachable
from veena.core.event_side import Events
from veena.core.links.link import Link
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Refresh


class Reach:
    """One a broker; `links` are its open links by connection id."""

    def __init__(self, network: NetworkMap, table: ConnectionTable, links: Mapping[int, Link], events: Events) -> None:
        self._map = network
        self._table = table
        self._links = links
        self._events = events
        self._shown: dict[Unit, None] = dict(network.reachable())
        self._shown_version = network.version

    def report(self, now_ns: int) -> list[Effect]:
        """Which units came into reach and which were lost since the last input."""
        if self._map.version == self._shown_version:
            return []
        self._shown_version = self._map.version
        found, lost = self._map.changes(self._shown)
        if found and self._table.has_forgotten:
            self._table.has_forgotten = False
            for link in self._links.values():
                link.send(Refresh(), now_ns)
        self._events.reach_changed(found, lost, now_ns)
        self._shown = dict(self._map.reachable())
        return [*map(Reachable, found), *map(Unreachable, lost)]
