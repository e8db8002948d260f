"""What an origin remembers of an entry of its log: before it is safe (`Pending`), and while it is sent (`UnderWay`)."""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Unit
from veena.core.boundary.stored import Entry
from veena.core.wire.burst import EventBurst


@dataclass(slots=True)
class Pending:
    """An entry on its way to this disk, and to another one where two copies are asked for.

    The origin accepts an event when it is safe, and the destinations of an event are those who want it *then*: whoever
    was acknowledged before was promised it (I1). Between the two lie a disk, and with `copies = 2` another broker. So
    what was known of wants is kept with what is pending; if more units want the event when it is safe, an entry for
    these goes to the log first (`widens`), and is waited for.

    The invariant: what is accepted is on disk for every unit that wanted it.
    Rejected: finding destinations only when the event is safe. The log entry must name them, or a restart would not
    know.
    """

    session: int | None
    entry: Entry
    needs_copy: bool
    needs_sync: bool = True
    failed: str | None = None
    #: What was known of wants when its destinations were found.
    known: tuple[int, tuple[Unit, ...]] = (0, ())
    #: The entry that waits for this one, which is for units that have come to want it since.
    widens: Pending | None = None
    #: All events of it, where it is more than one: `entry` is then that of the first.
    burst: EventBurst | None = None


@dataclass(slots=True)
class UnderWay:
    """An entry that was sent, with the units that do not have it yet."""

    entry: Entry
    mask: int
    #: All events of it, where it is a run: `entry` is then that of the first.
    burst: EventBurst | None = None


@dataclass(frozen=True, slots=True)
class OriginStatistics:
    """What an origin says of itself."""

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
