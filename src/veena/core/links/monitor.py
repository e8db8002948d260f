"""Watching the neighbours: which links are suspected, what each costs now, and who is given up on others' word.

A suspicion is announced as an absent link at once, a cleared one as well; a change of load at most once in
`cost_hold_ns` a link, because everybody sends again what is open when a path changes (LCM-03, FLT-02, SPR-08).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veena.address import Address
from veena.core.links.link import Link, LinkState
from veena.core.topology.connection import ABSENT, with_cost
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import ConnectionRecord

#: Takes in what is now known of a connection.
Learn = Callable[[ConnectionRecord, int | None, int], None]


class Watch:
    """One a broker; `links` are its open links by connection id."""

    def __init__(
        self,
        host: Address,
        network: NetworkMap,
        table: ConnectionTable,
        links: Mapping[int, Link],
        cost_hold_ns: int,
        learn: Learn,
    ) -> None:
        self._host = host
        self._map = network
        self._table = table
        self._links = links
        self._cost_hold_ns = cost_hold_ns
        self._learn = learn

    def judge(self, link: Link, now_ns: int) -> None:
        """Suspect or clear a link by what was heard of it, and say so."""
        suspect = link.is_suspect(now_ns)
        if link.state is LinkState.OPEN and suspect:
            link.suspect(now_ns)
            self.announce_cost(link, now_ns)
        elif link.state is LinkState.SUSPECTED and not suspect:
            link.clear()
            self.announce_cost(link, now_ns)

    def announce_cost(self, link: Link, now_ns: int) -> None:
        """Tell everybody of the context what this link costs now; load at most once in `cost_hold_ns` a link."""
        assert link.connection is not None
        assert link.neighbour is not None
        wanted, (version, announced) = link.wanted_step(), link.cost
        by_load = link.state is LinkState.OPEN and announced < ABSENT
        if wanted == announced or (by_load and now_ns < link.cost_changed_ns + self._cost_hold_ns):
            return
        link.cost = (version + 1, wanted)
        if by_load:
            link.cost_changed_ns = now_ns
        known = self._table.record(link.connection)
        if known is not None:
            self._learn(with_cost(known, self._host, link.neighbour, link.cost), None, now_ns)

    def is_forged(self, link: Link, record: ConnectionRecord) -> bool:
        """Whether a cost is told in this end's name that it never told."""
        assert link.neighbour is not None
        mine = record.low_cost if self._host < link.neighbour else record.high_cost
        return mine > link.cost

    def given_up(self) -> list[Link]:
        """Suspected neighbours that nobody else reaches either: a peer's report confirms a death (FLT-02)."""
        return [
            link
            for link in self._links.values()
            if link.state is LinkState.SUSPECTED
            and not link.level
            and link.neighbour is not None
            and not self._map.neighbours(link.neighbour)
            and self._table.was_given_up(link.neighbour, link.heard_ns)
        ]
