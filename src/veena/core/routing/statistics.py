"""What a broker counts of the copies that go through it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RouterStatistics:
    """Counts since the start."""

    flights: int = 0
    copies_in: int = 0
    copies_out: int = 0
    #: Copies that went out again because a hop changed.
    sent_again: int = 0
    expanded: int = 0
    #: Copies that came in for an own unit and found nobody who wants them.
    in_vain: int = 0
    #: Best-effort copies without a way, or that came back.
    dropped: int = 0
    expired: int = 0
    #: Duties that came while they were open already.
    repeated: int = 0
    refused: int = 0
    taken_back: int = 0
    stopped_at_gate: int = 0
