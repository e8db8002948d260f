"""What a store knows of its own file without reading it: how far everybody is, and so what is still needed.

The invariant: it says what the last committed transaction left. A batch reads it while it is made and changes it only
after its commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Standing:
    """How far the units, the durable subscriptions and the readers outside are."""

    next_offset: int = 0
    #: The latest time of acceptance so far.
    peak_ns: int = 0
    #: The number of a unit's bit -> below this it has everything; `bits` has all of these bits.
    cursors: dict[int, int] = field(default_factory=dict)
    bits: int = 0
    #: The last entry that was for units at all.
    last_for_units: int = -1
    #: A durable subscription's number -> its inboxes.
    inboxes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: By inbox.
    reached: dict[int, int] = field(default_factory=dict)
    #: A durable subscription that came from elsewhere and may still be sent what it has -> its first entry here.
    moving: dict[int, int] = field(default_factory=dict)
    #: How far those have come who read the log from outside.
    readers: dict[str, int] = field(default_factory=dict)
    #: How many entries were given up before such a reader had come there.
    lost: dict[str, int] = field(default_factory=dict)
    #: What follows in each table of records.
    next_number: dict[str, int] = field(default_factory=dict)

    def needed_from(self) -> int:
        """The lowest offset that a unit or a durable subscription may still need."""
        return min(self.units_need_from(), self._inboxes_need_from())

    def units_need_from(self) -> int:
        lowest = min(self.cursors.values(), default=self.next_offset)
        # Nothing was for units since: a cursor that nobody moved on holds up nothing.
        return lowest if lowest <= self.last_for_units else self.next_offset

    def _inboxes_need_from(self) -> int:
        reached = self.reached
        numbers: Iterable[int] = (number for each in self.inboxes.values() for number in each)
        return min((reached.get(number, 0) for number in numbers), default=self.next_offset)

    def cursors_of_inboxes(self) -> dict[int, int]:
        """How far each inbox of a durable subscription is acknowledged."""
        return {number: self.reached.get(number, 0) for each in self.inboxes.values() for number in each}

    def wanted_from(self) -> int:
        """Below this every reader outside has everything, and nobody asks whether an event came before."""
        committed = [offset for name, offset in self.readers.items() if table_of_reader(name) is None]
        return min((*committed, *self.moving.values()), default=self.next_offset)

    def readers_of(self, table: str) -> dict[str, int]:
        """How far the readers of a table of records are."""
        return {name: offset for name, offset in self.readers.items() if table_of_reader(name) == table}


#: Under this name the file says below which offset of the log nothing is left but what durable subscriptions need.
SPARSE_BELOW = "sparse_below"

#: Tables of records that somebody outside may read.
READ_TABLES = ("passed", "deliveries", "hops", "profiles")


def reader_name(table: str, reader: str) -> str:
    """The name under which a reader of a table of records is remembered; one of the log has its own."""
    return f"{table}:{reader}"


def table_of_reader(name: str) -> str | None:
    """The table of records that a reader with this name reads; None for the log."""
    table, colon, _ = name.partition(":")
    return table if colon and table in READ_TABLES else None
