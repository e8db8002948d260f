"""Before the first greeting: nobody is let in until this broker is sure to remember who it is.

Links that come up while the identity is on its way to the disk wait here. If the disk refuses it they are closed with
the reason, and the next link that comes up is a reason to try again.
"""

from __future__ import annotations

from collections.abc import Callable

from veena.core.boundary.inputs_effects import Arrived, Close, Effect, LinkUp
from veena.core.boundary.stored import Identity
from veena.core.boundary.tickets import Ledger

#: Reads of one link that are kept: nobody says more than its Hello before it is greeted.
MAX_EARLY = 8


class Threshold:
    """Where links wait for the disk."""

    def __init__(
        self,
        identity: Identity,
        ledger: Ledger,
        effects: list[Effect],
        enter: Callable[[LinkUp, int], None],
        arrive: Callable[[Arrived, int], None],
    ) -> None:
        self._identity = identity
        self._ledger = ledger
        self._effects = effects
        self._enter = enter
        self._arrive = arrive
        self._waiting: list[LinkUp] = []
        #: What came over the links that wait: their peers may be quicker with their disk.
        self._early: list[Arrived] = []
        self._is_writing = False
        #: Whether the identity is on disk.
        self.is_open = False
        self._write()

    def __contains__(self, link: int) -> bool:
        return any(up.link == link for up in self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, up: LinkUp) -> None:
        self._waiting.append(up)
        if not self._is_writing:
            self._write()

    def hold(self, given: Arrived) -> None:
        """Keep what came over a link that waits; a peer that says more than a greeting is cut short."""
        if sum(early.link == given.link for early in self._early) < MAX_EARLY:
            self._early.append(given)

    def leave(self, link: int) -> None:
        self._waiting = [up for up in self._waiting if up.link != link]

    def _write(self) -> None:
        self._is_writing = True
        self._ledger.write(self._identity, self._written, self._refused)

    def _written(self, now_ns: int) -> None:
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for up in waiting:
            self._enter(up, now_ns)
        early, self._early = self._early, []
        for given in early:
            self._arrive(given, now_ns)

    def _refused(self, reason: str, now_ns: int) -> None:
        self._is_writing = False
        for up in self._waiting:
            self._effects.append(Close(up.link, f"this broker could not store its identity: {reason}"))
        self._waiting.clear()
        self._early.clear()
