"""One simulated broker's process and disk, and what a run costs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from veena.address import Address
from veena.core.boundary.inputs_effects import Store
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Disk
from veena.core.broker import Broker


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
    #: Never to come back.
    lost: bool = False
    #: Whether its core raises over the next frame that is more than a sign of life, with the change half made.
    breaks: bool = False
    #: When it was let into the network; None for those that were there first.
    joined_ns: int | None = None
    #: Of the network that it belongs to, where that is not the world's own.
    settings: Settings | None = None


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
