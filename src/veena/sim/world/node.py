"""One simulated broker's process and disk, and what a run costs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from veena.address import Address
from veena.core.boundary.inputs_effects import Store
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Disk
from veena.core.broker import Broker
from veena.sim.world.lying import Lying

#: What a right wall clock shows when the world begins: some day of 2025.
WALL_NS = 1_760_000_000 * SECOND_NS


@dataclass(slots=True)
class Node:
    """A broker's process and its disk."""

    address: Address
    broker: Broker | None
    #: What is synced.
    disk: Disk
    #: What is on its way to the disk, in order, and when the last of it gets there.
    unsynced: deque[Store] = field(default_factory=deque)
    synced_ns: int = 0
    steps: int = 0
    #: When its next tick is due.
    wake_ns: int | None = None
    #: What its wall clock shows beyond the true time; and the same when its process started, which its core goes by.
    clock_ns: int = 0
    base_ns: int = 0
    #: Never to come back.
    lost: bool = False
    #: Whether its core raises over the next frame that is more than a sign of life, with the change half made.
    breaks: bool = False
    #: What it says that is not so, over links to other super-clusters.
    lying: Lying | None = None
    #: When it was let into the network; None for those that were there first.
    joined_ns: int | None = None
    #: Of the network that it belongs to, where that is not the world's own.
    settings: Settings | None = None

    def time(self, now_ns: int) -> int:
        """What its core takes for the time, when that is the world's."""
        return now_ns + self.base_ns

    @property
    def wall_offset_ns(self) -> int:
        """What its wall clock shows beyond its core's time."""
        return WALL_NS + self.clock_ns - self.base_ns


@dataclass(slots=True)
class Counters:
    """What a run cost."""

    steps: int = 0
    frames: int = 0
    #: What brokers asked to be connected to, and how often they were.
    dials: int = 0
    dialled: int = 0
    #: Cores that raised an exception and were made anew.
    renewals: int = 0
