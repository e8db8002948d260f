"""Standing by for each other, composed: what a home tells (`standby_telling`), what the other holds and when it takes
the home's place (`standby`), and what others keep for a home that is gone (`orphans`).

This module says who is told of what; with `copies = 1` nothing of it lies in an event's way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from veena.core.disk import Disk
from veena.core.durable import Durable
from veena.core.ends import Ends
from veena.core.event_frame import EventFrame
from veena.core.event_id import event_key
from veena.core.ledger import Ledger
from veena.core.log_reader import LogReader
from veena.core.map import NetworkMap
from veena.core.origin import Origin
from veena.core.orphans import Orphans
from veena.core.router import Router
from veena.core.sessions import Sessions
from veena.core.settings import Settings
from veena.core.standby import Standbys
from veena.core.standby_telling import StandbyTelling

Result = TypeVar("Result")


class Standing:
    """One a broker."""

    def __init__(
        self,
        network: NetworkMap,
        settings: Settings,
        sessions: Sessions,
        origin: Origin,
        router: Router,
        ends: Ends,
        ledger: Ledger,
        reader: LogReader,
        disk: Disk,
        now_ns: int,
    ) -> None:
        host, durables, roaming, post = network.host, sessions.durables, sessions.roaming, sessions.post
        self._me = router.me
        self.telling = StandbyTelling(
            host, settings, lambda: [unit for unit in network.reachable() if len(unit) == len(host) and unit != host],
            durables, roaming, post, origin, reader,
        )  # fmt: skip
        self.standbys = Standbys(
            host, settings, lambda home: home in network.reachable(), durables, roaming, post, origin, ledger, reader,
            disk, now_ns,
        )  # fmt: skip
        self.orphans = Orphans(host, settings, origin, router, post, reader)
        self._active = durables.on_active
        durables.on_active = self._on_active
        if settings.copies == 2:
            self._served = router.duties.on_served
            router.duties.on_served = self._on_served
            self.telling.done = router.delivered
            ends.on_saved, ends.waits = self.telling.saved, self.telling.waits
            arrived, keep = ends.on_post, ends.keep
            ends.on_post = lambda frame, now_ns: self._because(frame, lambda: arrived(frame, now_ns))
            ends.keep = lambda frame, sessions, now_ns: self._because(frame, lambda: keep(frame, sessions, now_ns))

    def _because(self, frame: EventFrame, deal: Callable[[], Result]) -> Result:
        """Deal with an event; what is posted meanwhile, its duty waits for."""
        self.telling.cause = event_key(frame)
        try:
            return deal()
        finally:
            self.telling.cause = None

    def _on_active(self, durable: Durable, now_ns: int) -> None:
        self._active(durable, now_ns)
        self.standbys.active(durable, now_ns)

    def _on_served(self, offset: int, mask: int, now_ns: int) -> None:
        self._served(offset, mask, now_ns)
        if mask & ~self._me:
            self.telling.served(offset, now_ns)

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
