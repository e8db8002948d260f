"""Rows that were staged become events: exactly once, however often the broker is killed on the way.

A batch is public from the moment at which the disk has `BatchPublished`. Its rows lie in a table of their own then, and
have to get into the log, which alone makes others see them. That is done chunk by chunk, and what makes it exact is one
rule: *the entries of the log and the removal of the chunk are one write*. So after a crash a chunk is still staged and
in no log, or it is in the log and no longer staged. Nothing has to be looked for.

The ids were fixed with the publication: publisher and incarnation of the query, one stamp a batch, the number of the
row as sequence. So a chunk that was tried, failed and is tried again has the ids that it had. A neighbour who keeps
second copies (`replica_sender`) may have published them meanwhile: ends drop what they have had. Chunks are given in
order, one at a time, so every lane ascends.

Rows of best effort are passed on when the removal is synced: a crash in between loses them, as best effort may.

What is wrong with a row was found when it was staged, while its publisher was there. What is wrong nevertheless is
counted as refused, and does not keep the others.

The invariant: what is released is in the order of its ids, and a chunk is answered once.

Rejected: looking through the log for ids after a crash (a search for every row, for what a transaction gives); a batch
as one write (a gigabyte of it would hold up every publisher).
"""

from __future__ import annotations

from veena.address import Address
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.staging import ReleaseStaged, StagedHeld, StagedReleased, Unstaged
from veena.core.boundary.stored import Entry
from veena.core.boundary.tickets import Ledger
from veena.core.delivery.match_cache import Decision, Decisions
from veena.core.interest.service import Profiles
from veena.core.publishing.log import Origin
from veena.core.routing.router import Router
from veena.core.wire.event import EventFrame
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent, RefusalCode

#: The session that released rows belong to: nobody's, since those of clients begin with 1.
NOBODY = 0


class Releases:
    """How staged rows of one broker become events."""

    def __init__(
        self,
        host: Address,
        profiles: Profiles,
        decisions: Decisions,
        origin: Origin,
        router: Router,
        ledger: Ledger,
        effects: list[Effect],
    ) -> None:
        self._host = host
        self._origin_bytes = bytes(host)
        self._profiles = profiles
        self._decisions = decisions
        self._origin = origin
        self._router = router
        self._ledger = ledger
        self._effects = effects

    def release(self, given: ReleaseStaged, now_ns: int) -> None:
        """Take the rows into the log, all of them, or say why not now."""
        part, first = given.part, given.first
        reason = self._why_not_now(now_ns)
        if reason is not None:
            self._effects.append(StagedHeld(part, first, reason))
            return
        best_effort: list[EventFrame] = []
        for frame in given.frames:
            decision = self._decision(frame, now_ns)
            if decision is None:
                continue
            if frame.reliable:
                self._origin.append(NOBODY, self._stamped(frame, decision, now_ns), now_ns)
            else:
                best_effort.append(frame)

        def released(now_ns: int) -> None:
            for frame in best_effort:
                self._pass_on(frame, now_ns)
            self._effects.append(StagedReleased(part, first, tuple(best_effort)))

        def failed(reason: str, now_ns: int) -> None:
            self._effects.append(StagedHeld(part, first, reason))

        self._ledger.write(Unstaged(part, first, given.last), released, failed)

    def _why_not_now(self, now_ns: int) -> str | None:
        if not self._profiles.is_ready(now_ns):
            return "this broker does not know yet who wants what"
        reason = self._origin.why_not_now(NOBODY)
        if reason is None and self._origin.pressure.is_high:
            reason = "this broker is filling up: publishers are to pause"
        return reason

    def _decision(self, frame: EventFrame, now_ns: int) -> Decision | None:
        try:
            decision = self._decisions.of(frame, self._origin_bytes, now_ns)
        except InvalidEvent as error:
            self._origin.refuse(NOBODY, frame, error.code, str(error))
            return None
        fault = self._decisions.fault(decision)
        if fault:
            self._origin.refuse(NOBODY, frame, RefusalCode.INVALID, fault)
            return None
        return decision

    def _stamped(self, frame: EventFrame, decision: Decision, now_ns: int) -> EventFrame:
        """As it leaves this broker (ERP-02)."""
        me = self._router.me
        stamped = frame.copy(self._decisions.wanted(decision, self._host, now_ns) | me, me, frame.ttl_ms)
        stamped.origin = self._origin_bytes
        return stamped

    def _pass_on(self, frame: EventFrame, now_ns: int) -> None:
        """A row of best effort; who wants it is asked now."""
        decision = self._decision(frame, now_ns)
        if decision is not None:
            stamped = self._stamped(frame, decision, now_ns)
            self._origin.accepted += 1
            self._origin.note(Entry(0, stamped, now_ns), What.ACCEPTED, now_ns)
            self._router.pass_on(stamped, now_ns)
