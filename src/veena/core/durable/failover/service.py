"""Standing by for each other, composed: what a home tells (`primary`), what the other holds and when it takes
the home's place (`standby`), and what others keep for a home that is gone (`backlog`).

This module says who is told of what; with `copies = 1` nothing of it lies in an event's way.
"""

from __future__ import annotations

from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Disk
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.delivery.in_flight import Flight
from veena.core.durable.failover.backlog import Orphans
from veena.core.durable.failover.primary import StandbyTelling
from veena.core.durable.failover.standby import Standbys
from veena.core.durable.handover import Roaming
from veena.core.durable.registry import Durables
from veena.core.messages.mailbox import Post
from veena.core.publishing.log import Origin
from veena.core.routing.router import Router
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import event_key


class Standing:
    """One a broker."""

    def __init__(
        self,
        network: NetworkMap,
        settings: Settings,
        durables: Durables,
        roaming: Roaming,
        post: Post,
        origin: Origin,
        router: Router,
        ledger: Ledger,
        reader: LogReader,
        disk: Disk,
        now_ns: int,
    ) -> None:
        host = network.host
        self._me = router.me
        #: With one copy nothing waits for another broker's disk.
        self._holds = settings.copies == 2
        self.telling = StandbyTelling(
            host, settings, lambda: [unit for unit in network.reachable() if len(unit) == len(host) and unit != host],
            durables, post, origin, router, reader,
        )  # fmt: skip
        self.standbys = Standbys(
            host, settings, lambda home: home in network.reachable(), durables, roaming, post, origin, ledger, reader,
            disk, now_ns,
        )  # fmt: skip
        self.orphans = Orphans(host, settings, origin, router, post, reader)

    # --- events ---

    def dealing_with(self, frame: EventFrame | None) -> None:
        """The broker deals with this event now, or with none: its duty waits for whatever is posted meanwhile."""
        if self._holds:
            self.telling.cause = None if frame is None else event_key(frame)

    def served(self, offset: int, mask: int, now_ns: int) -> None:
        """These units (a mask) have an entry of the log: one that was posted to another broker is there."""
        if mask & ~self._me:
            self.telling.served(offset, now_ns)

    def must_wait(self, flight: Flight) -> bool:
        """Whether an event is not safe elsewhere yet; if so, its flight is answered for when it is."""
        return self._holds and self.telling.waits(flight)

    def safe(self, flights: list[Flight]) -> list[Flight]:
        """The places of these are on disk here: those that need not wait for another disk."""
        return [flight for flight in flights if not self.telling.waits(flight)] if self._holds else flights

    def reach_changed(self) -> None:
        self.telling.reach_changed()
        self.standbys.reach_changed()

    def flush(self, now_ns: int) -> None:
        self.telling.flush(now_ns)

    def tick(self, now_ns: int) -> None:
        self.standbys.tick(now_ns)
        self.telling.tick(now_ns)

    def next_wakeup(self) -> int | None:
        due = [self.standbys.next_wakeup(), self.telling.next_wakeup()]
        return min((time for time in due if time is not None), default=None)

    def check(self) -> None:
        self.telling.check()
        self.standbys.check()
