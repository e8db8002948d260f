"""What an origin says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OriginStatistics:
    accepted: int
    refused: int
    next_offset: int
    #: Log entries that are not served everywhere, and units that wait for their part of the log to be read.
    open: int
    parked: int
    dead_letters: int
    #: Bytes of the log that somebody waits for, and publishers that were told to pause.
    log_bytes: int = 0
    paused: int = 0
