"""What this broker keeps for a home out of reach, handed to the one who takes its place (design §6, hard cases).

An event for an absent broker is kept by the one through which it entered the cluster, or where it was published: in the
log, synced, for the day of its return. Who stands by for the absent one (`standby`) must have of it what is for durable
subscriptions. It asks everybody in the cluster; each reads its log from the first entry that the absent one still has
to be sent, and posts what it finds. Which of it is wanted only the asker knows.

What is kept stays kept: the absent one may come back, and had more clients than durable ones.

The invariant: an entry is sent to the same asker once, and to everybody who asks. Rejected: sending such entries to the
asker as events. It may have had them for other clients, and an end drops what it has had.
"""

from __future__ import annotations

from collections.abc import Sequence

from veena.address import Address
from veena.core.boundary.settings import READ_BATCH, Settings
from veena.core.boundary.stored import Entry
from veena.core.boundary.tickets import LogReader
from veena.core.messages.addresses import INTERNAL, broker_id
from veena.core.messages.kinds import TAGS, Backlog, Deleted, Gather, Orphan
from veena.core.messages.mailbox import KIND, Post
from veena.core.publishing.log import Origin
from veena.core.routing.router import Router
from veena.core.wire.event import EventCodec
from veena.errors import VeenaError

#: Askers that are remembered: in a cluster of 64 everybody for some of the others.
MAX_ASKERS = 1024


class Orphans:
    """The side of whoever keeps such events; one a broker."""

    def __init__(
        self, host: Address, settings: Settings, origin: Origin, router: Router, post: Post, reader: LogReader
    ) -> None:
        self._host = host
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._origin = origin
        self._router = router
        self._post = post
        self._reader = reader
        #: (home, asker) -> from where the log is to be read for them.
        self._next: dict[tuple[Address, Address], int] = {}
        self._reading: dict[tuple[Address, Address], None] = {}
        post.deals_with(Gather, self._on_gather)

    def _on_gather(self, message: Gather, origin: Address, now_ns: int) -> None:
        home = message.home
        if home == self._host or home[:-1] != self._host[:-1] or origin[:-1] != self._host[:-1]:
            return
        first = self._origin.open_from(self._router.bit(home))
        pair = (home, origin)
        start = max(first, self._next.pop(pair, 0))
        self._next[pair] = start
        if len(self._next) > MAX_ASKERS:
            del self._next[next(iter(self._next))]
        if pair not in self._reading:
            self._read(pair)

    def _read(self, pair: tuple[Address, Address]) -> None:
        self._reading[pair] = None
        self._reader.read(
            self._next.get(pair, 0), READ_BATCH, lambda entries, now_ns: self._found(pair, entries, now_ns)
        )

    def _found(self, pair: tuple[Address, Address], entries: Sequence[Entry], now_ns: int) -> None:
        del self._reading[pair]
        home, asker = pair
        bit = self._router.bit(home)
        for entry in entries:
            frame = entry.frame
            if not frame.to_serve & bit or not self._origin.is_open(bit, frame.lane_number, entry.offset):
                continue
            if self._is_for_clients(entry):
                orphan = Orphan(home, self._codec.encode(frame, 0))
                self._post.send(broker_id(asker), orphan, now_ns)
        if entries:
            self._next[pair] = entries[-1].offset + 1
        if len(entries) == READ_BATCH:
            self._read(pair)

    def _is_for_clients(self, entry: Entry) -> bool:
        """Whether durable subscriptions may want it: an event for anybody, or what brokers say of such a one."""
        try:
            event = entry.frame.event()
        except VeenaError:
            return False
        return not event.to or (
            entry.frame.publisher.startswith(INTERNAL) and event.headers.get(KIND) in (TAGS[Backlog], TAGS[Deleted])
        )
