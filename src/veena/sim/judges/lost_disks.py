"""What lay on the disks of brokers that are lost for good: for which durable subscriptions, and for which units.

With one copy exactly that may be lost: what a lost log still owed to a unit. What its cursor has left behind was
answered for by others, and what another disk has too was not lost with this one.

A judge must not believe brokers, but a disk is a fact: an event that is on no lost disk cannot have been lost with one.
"""

from __future__ import annotations

from collections.abc import Iterable

from veena.address import Address, as_seen, contains
from veena.core.boundary.stored import Disk
from veena.core.messages.addresses import INTERNAL
from veena.core.messages.kinds import Backlog, Hold, Orphan, decode_message
from veena.core.publishing.replica_holder import asker_of, units_of
from veena.core.wire.event import BACKLOG, EventCodec, EventFrame
from veena.core.wire.event_id import EventKey
from veena.event import EventId
from veena.runtime.networks.file import Network
from veena.sim.world.world import World

#: Client and name.
Key = tuple[str, str]


class LostDisks:
    """An index of all lost disks of one world."""

    def __init__(self, world: World) -> None:
        self._codec = EventCodec(world.network.levels, world.network.fanout)
        self._network: Network = world.network
        #: By broker: the subscriptions that an event was kept for, and the units that it was to be sent to.
        self._kept: dict[Address, dict[EventId, set[Key]]] = {}
        self._for_units: dict[Address, dict[EventId, int]] = {}
        self._world = world
        for address, node in world.nodes.items():
            if node.lost:
                self._kept[address], self._for_units[address] = {}, {}
                self._read(address, node.disk)

    def _read(self, address: Address, disk: Disk) -> None:
        keys = {
            inbox: (found.client_id, found.name)
            for found in disk.registered.values()
            for inbox in (*found.inboxes, found.aside)
        }
        for entry in disk.entries:
            if entry.frame.publisher.startswith(INTERNAL):
                self._read_post(address, entry.frame)
                continue
            kept = self._kept[address].setdefault(entry.frame.id, set())
            kept.update(keys[inbox] for inbox in entry.inboxes if inbox in keys)
            units = self._for_units[address]
            units[entry.frame.id] = units.get(entry.frame.id, 0) | entry.frame.to_serve

    def _read_post(self, address: Address, frame: EventFrame) -> None:
        message = decode_message(frame.body)
        if isinstance(message, Backlog | Hold | Orphan):
            inner = self._codec.read(message.frame)
            found = {(message.client, message.name)} if isinstance(message, Backlog) else set()
            self._kept[address].setdefault(inner.id, set()).update(found)

    def keeping(self, ids: Iterable[EventId], key: Key) -> list[Address]:
        """The lost brokers that kept an event for a subscription."""
        wanted = list(ids)
        return [at for at, kept in self._kept.items() if any(key in kept.get(each, ()) for each in wanted)]

    def holding_for(self, ids: Iterable[EventId], home: Address) -> list[Address]:
        """The lost brokers that had written an event down for a home, to send it there."""
        wanted = list(ids)
        return [
            at
            for at, found in self._for_units.items()
            if at != home and any(found.get(each, 0) & self._bit(at, home) for each in wanted)
        ]

    def owing(self, ids: Iterable[EventId], home: Address) -> list[Address]:
        """The lost brokers whose disk had an event that its unit was still owed, in the log or as a second copy."""
        nodes = self._world.nodes.items()
        return [at for at, node in nodes if node.lost and self._is_held(at, node.disk, ids, home, is_open=True)]

    def surviving(self, ids: Iterable[EventId], home: Address) -> list[Address]:
        """The other brokers whose disk has it for that unit, whether they think it served or not."""
        nodes = self._world.nodes.items()
        return [at for at, node in nodes if not node.lost and self._is_held(at, node.disk, ids, home, is_open=False)]

    def _is_held(self, at: Address, disk: Disk, ids: Iterable[EventId], home: Address, is_open: bool) -> bool:
        wanted = list(ids)
        if any(frame.id in wanted and self._is_for(key, frame, home) for key, frame in disk.kept.items()):
            return True
        bit = 0 if at == home else self._bit(at, home)
        least = disk.cursors.get(bit, 0) if is_open else 0
        return any(
            entry.frame.to_serve & bit and entry.offset >= least and entry.frame.id in wanted for entry in disk.entries
        )

    def _is_for(self, key: EventKey, frame: EventFrame, home: Address) -> bool:
        """Whether a second copy is one for everybody, or for a unit of this home."""
        units = units_of(frame.to_serve, asker_of(key, frame), self._network.fanout)
        return not frame.flags & BACKLOG or any(contains(unit, home) for unit in units)

    def _bit(self, at: Address, home: Address) -> int:
        unit = as_seen(at, home)
        return 1 << ((len(at) - len(unit)) * self._network.fanout + unit[-1])
