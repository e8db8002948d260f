"""Best-effort events for history and audits, taken where they cross the boundary of the core: it does not keep them.

It runs only with `history = "all"`; the store writes them unsynced and nobody waits for it. Deliveries, hops and
changes of profiles are not made here but out of what the core notes itself (`audit_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veena.core.boundary.clients import Request, Unanswered
from veena.core.boundary.inputs_effects import Effect, Input, Publish, PublishRefused
from veena.core.boundary.staging import StagedReleased
from veena.runtime.store.audit_records import Passed, Record

Keep = Callable[[list[Record]], None]


class Recorder:
    """The best-effort events that were published at one broker."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep

    def saw(self, given: Input | None, effects: Sequence[Effect], now_ns: int) -> None:
        """One input, and everything that followed from it."""
        for effect in effects:
            if type(effect) is StagedReleased and effect.passed:
                self._keep([Passed(now_ns, frame) for frame in effect.passed])
        if not (type(given) is Publish or type(given) is Request) or given.frame.reliable:
            return
        if not any(type(effect) is PublishRefused or type(effect) is Unanswered for effect in effects):
            self._keep([Passed(now_ns, given.frame)])
