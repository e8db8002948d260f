"""A durable subscription follows its client from X to Y (CLI-04, CLI-05, design §6, hard cases).

    client attaches at Y --> Y wants what X wants; when that is acknowledged --> Move to where the client was
    X: forwards what it keeps and what still comes, after a while says up to where it had everything: End; and withdraws
    Y: hands over what comes from X, then what came by itself, without what X had

What still comes to X after that is a *straggler*: it may be one of the last that went to X alone, or one that comes to
Y by itself. Y keeps stragglers aside. At the End it puts those that precede everything that came by itself in their
stream before that, and those that X did not have when later ones were had there; the others it looks at after a while,
and hands over what did not come by itself.

An event that was accepted for X may still be under way when X withdraws, behind others that wait, which news of wants
pass. The units on its way ask anew who wants it. So X goes on wanting old events (`interest.constraint`) until no such
one can come.

Nothing is lost: until Y's want was acknowledged everything for the client went to X too. Nothing comes twice: what X
had before it let go is known by the last place of each stream, what it forwarded later by id. A client that goes on
to Z before all has come is followed: Y forwards what comes from X, and ends after X has ended. The place where the
client attached last wins (`version`); one that is asked to let go by an older attachment asks for that one's part.
Versions follow the clocks of brokers, and the clock of X may be ahead of that of Y. So a client that reads at Y says
more than the version: Y counts on from a later version of X where nobody reads at X, where the client came from X, or
where the last reader at X came before the last one at Y. Each tells how long ago its reader came, which no clock that
is wrong can change.

Where X does not answer, Y opens after a while; what comes later from X is handed over with the mark `late` where it is
out of order. X forwards stragglers for as long as origins may send them again.

The invariant: of all brokers that keep something for a subscription, all but the one with the highest version forward
it, directly or over others, to that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from veena.address import Address
from veena.core.boundary.settings import READ_BATCH, SECOND_NS, Settings
from veena.core.boundary.stored import Disk, Entry, Reached
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.durable.cursor import Inbox
from veena.core.durable.home_registry import OtherHomes
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable, DurableObserver, State, remember
from veena.core.interest.constraint import WITHDRAW_NS
from veena.core.messages.addresses import broker_id, home_id
from veena.core.messages.kinds import (
    MAX_VERSION,
    STAND_IN_VERSIONS,
    Backlog,
    Deleted,
    End,
    Move,
    hads,
    places,
)
from veena.core.messages.mailbox import Post
from veena.core.wire.event import REDELIVERED, EventCodec, EventFrame
from veena.core.wire.event_id import Place, Stream, first_key, stream_of
from veena.errors import VeenaError

#: What was published so long after a subscription left is no straggler: where it went, it is wanted by then. Clocks of
#: publishers may differ by most of this.
STRAGGLER_NS = 120 * SECOND_NS
#: Subscriptions that went elsewhere and whose stragglers are still forwarded.
MAX_LEFT = 10_000


class Roaming(DurableObserver):
    """How durable subscriptions come to this broker and leave it."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        durables: Durables,
        elsewhere: OtherHomes,
        post: Post,
        ledger: Ledger,
        reader: LogReader,
        disk: Disk,
        now_ns: int,
    ) -> None:
        self._host = host
        self._settings = settings
        self._durables = durables
        self._elsewhere = elsewhere
        self._post = post
        self._ledger = ledger
        self._reader = reader
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        #: Subscriptions that are under way, by number.
        self._moving: dict[int, Durable] = {}
        #: Stragglers and when to look at them: (time, subscription, offset, event).
        self._aside: deque[tuple[int, Durable, int, EventFrame]] = deque()
        #: The same where it is still waited for the former home: by subscription.
        self._held: dict[int, list[tuple[int, EventFrame]]] = {}
        self._left: dict[int, None] = {}
        self._homes: dict[int, Address] = {}
        #: Where the client of a subscription that is under way said it was before.
        self._came_from: dict[int, Address] = {}
        #: Those that may be kept elsewhere only because not everybody has told yet what it keeps; True for those that
        #: are active and have asked nobody yet to let go, lest a home does so before it was heard of.
        self._in_doubt: dict[int, bool] = {}
        post.deals_with(Move, self._on_move)
        post.deals_with(Backlog, self._on_backlog)
        post.deals_with(End, self._on_end)
        post.deals_with(Deleted, self._on_deleted)
        for entry in disk.entries:
            for durable in durables.all.values():
                aside = durable.aside
                if aside is not None and aside.number in entry.inboxes and entry.offset >= aside.front:
                    self._look_later(durable, entry.offset, entry.frame, now_ns)
        for durable in durables.all.values():
            if durable.state is State.ARRIVING:
                durable.until_ns = now_ns + settings.arrive_ns
                self._moving[durable.number] = durable
            elif durable.state is State.OPEN:
                durable.until_ns = now_ns + settings.retention_ns
                self._moving[durable.number] = durable
            elif durable.state is State.LEAVING:
                self._start_leaving(durable, now_ns)
            elif durable.state is State.LEFT:
                self._keep_left(durable, now_ns)

    # --- at Y ---

    def arriving(self, durable: Durable, home: Address | None, now_ns: int) -> None:
        """A subscription was made here; its client says where it was before, if it knows."""
        if home is not None and home != self._host:
            self._homes[durable.number] = self._came_from[durable.number] = home
        if durable.state is State.ARRIVING:
            durable.until_ns = now_ns + self._settings.arrive_ns
            self._moving[durable.number] = durable
            was_here = len(self._durables.named((durable.client_id, durable.name))) > 1
            if home is None and not was_here and not self._elsewhere.is_announced(durable.client_id):
                self._in_doubt[durable.number] = False

    def _dispel(self, now_ns: int) -> None:
        """What nobody keeps, now that all have told, need not be waited for: most subscriptions are new."""
        for number, asks in list(self._in_doubt.items()):
            durable = self._moving.get(number)
            is_waiting = durable is not None and durable.state is State.ARRIVING
            if durable is not None and is_waiting and not self._elsewhere.is_announced(durable.client_id):
                if self._elsewhere.may_exist(durable.client_id, now_ns):
                    continue
                self.open(durable, now_ns)
            del self._in_doubt[number]
            if durable is not None and asks:
                self._ask(durable, now_ns)

    def on_active(self, durable: Durable, now_ns: int) -> None:
        """Everybody knows that it is wanted here: now it need not be wanted there."""
        if durable.number in self._in_doubt:
            self._in_doubt[durable.number] = True
            self._dispel(now_ns)
        else:
            self._ask(durable, now_ns)

    def _ask(self, durable: Durable, now_ns: int) -> None:
        """Ask who keeps it to let go, who has as long for that as if the client had come only now."""
        home = self._homes.pop(durable.number, None)
        if durable.state is State.ARRIVING and durable.until_ns is not None:
            durable.until_ns = max(durable.until_ns, now_ns + self._settings.arrive_ns)
        if durable.is_here and not durable.is_passing:
            move = _move(durable, now_ns)
            self._post.send(home_id(durable.client_id), move, now_ns)
            if home is not None:
                self._post.send(broker_id(home), move, now_ns)

    def on_forgotten(self, durable: Durable, now_ns: int) -> None:
        """A client ends a subscription here: wherever it is kept beside, it is no more."""
        self._moving.pop(durable.number, None)
        self._came_from.pop(durable.number, None)
        self._held.pop(durable.number, None)
        home = self._homes.pop(durable.number, None)
        deleted = Deleted(durable.client_id, durable.name, durable.version)
        for to in (home_id(durable.client_id), *(() if home is None else (broker_id(home),))):
            self._post.send(to, deleted, now_ns)

    def _on_deleted(self, message: Deleted, origin: Address, now_ns: int) -> None:
        here = self._durables.here.get((message.client, message.name))
        if here is not None and here.asked_by == (origin, message.version) and not here.readers:
            # The client ended it there before that broker had heard that the version here is the later one.
            message = msgspec.structs.replace(message, version=max(message.version, here.version))
        if self.end(message, now_ns):
            for each in self._durables.observers:
                each.on_ended_elsewhere(message, now_ns)

    def end(self, message: Deleted, now_ns: int) -> bool:
        """A client has ended a subscription elsewhere; whether it was kept here."""
        found = self._durables.named((message.client, message.name))
        ended = [each for each in found if each.version <= message.version]
        for durable in ended:
            self._finish(durable, now_ns)
        return bool(ended)

    def _on_backlog(self, message: Backlog, origin: Address, now_ns: int) -> None:
        self.take_in(message, now_ns)

    def take_in(self, message: Backlog, now_ns: int) -> None:
        """An event that was kept elsewhere: for where the subscription is, here or beyond."""
        durable = self._of(message.client, message.name)
        if durable is None:
            return
        try:
            frame = self._codec.read(message.frame)
            key = first_key(frame)
        except VeenaError:
            return
        # Of what came by itself while the former home is waited for it is not known yet whether it will be handed over.
        if message.straggler and durable.state is not State.ARRIVING and self._durables.intake.is_known(durable, frame):
            return
        self._reopen(durable, now_ns)
        if message.redelivered:
            frame.flags |= REDELIVERED
        if not durable.is_here:
            remember(durable.sent_keys, key, None)
            if (frame.timestamp, frame.sequence) <= durable.last.get(stream_of(frame), (-1, -1)):
                frame = frame.late_copy()
            self._send(durable, frame, message.redelivered, message.straggler, now_ns)
        elif message.straggler:
            offset = self._durables.set_aside(durable, frame, now_ns)
            self._look_later(durable, offset, frame, now_ns)
        else:
            self._durables.intake.add_moved(durable, frame, now_ns)

    def _reopen(self, durable: Durable, now_ns: int) -> None:
        """More comes from elsewhere to a subscription that is at home: what it has is to be known from now on."""
        if durable.state is State.HOME:
            durable.until_ns = now_ns + self._settings.retention_ns
            self._moving[durable.number] = durable
            self._durables.set_state(durable, State.OPEN)

    def _on_end(self, message: End, origin: Address, now_ns: int) -> None:
        durable = self._of(message.client, message.name)
        if durable is None:
            return
        floor = places(message.had)
        if durable.state is State.ARRIVING and message.version >= durable.made:
            self.open(durable, now_ns, floor)
        elif not durable.is_here:
            # It was going on from here before all had come: what was had there, was had.
            for stream, place in floor.items():
                durable.last[stream] = max(place, durable.last.get(stream, place))
            durable.waits = False

    def _look_later(self, durable: Durable, offset: int, frame: EventFrame, now_ns: int) -> None:
        """A straggler was set aside: look at it when the former home has ended, or after a while."""
        if durable.state is State.ARRIVING:
            self._held.setdefault(durable.number, []).append((offset, frame))
        else:
            self._aside.append((now_ns + self._settings.arrive_ns, durable, offset, frame))

    def _merge(self, durable: Durable, now_ns: int) -> None:
        """Stragglers of streams of which nothing earlier came by itself go before what did, and those below the floor,
        where nothing that did is handed over: the former home did not have them when it left. Others wait on."""
        held = self._held.pop(durable.number, [])
        for _, frame in sorted(held, key=lambda each: (each[1].timestamp, each[1].sequence)):
            if self._durables.intake.is_known(durable, frame):
                continue
            place = (frame.timestamp, frame.sequence)
            is_first = place < durable.first.get(stream_of(frame), (place[0] + 1, 0))
            if is_first or durable.is_below_floor(frame):
                self._durables.intake.add_moved(durable, frame, now_ns)
            else:
                offset = self._durables.set_aside(durable, frame, now_ns)
                self._aside.append((now_ns + self._settings.arrive_ns, durable, offset, frame))
        if held:
            self._durables.take_aside(durable, held[-1][0])

    def open(self, durable: Durable, now_ns: int, floor: dict[Stream, Place] | None = None) -> None:
        """Wait for no more from elsewhere."""
        if durable.state is State.ARRIVING:
            durable.live.floor.update(floor or {})
            self._merge(durable, now_ns)
        if not durable.is_passing:
            durable.until_ns = now_ns + self._settings.retention_ns
            self._moving[durable.number] = durable
        self._durables.close_moved(durable, floor or {})

    def _of(self, client: str, name: str) -> Durable | None:
        """The subscription as it is here, or went from here last."""
        here = self._durables.here.get((client, name))
        if here is not None:
            return here
        return max(self._durables.named((client, name)), key=lambda each: each.version, default=None)

    # --- at X ---

    def _on_move(self, message: Move, origin: Address, now_ns: int) -> None:
        """A client's subscription is wanted at `origin`."""
        durable = self._durables.here.get((message.client, message.name))
        if durable is None or origin == self._host:
            return
        is_later = durable.version > message.version
        if not is_later and self._is_read_here(durable, message, origin, now_ns):
            durable.version = min(message.version + STAND_IN_VERSIONS, MAX_VERSION)
            self._durables.save(durable)
        elif is_later:
            self._reopen(durable, now_ns)
            durable.asked_by = None if durable.readers else (origin, message.version)
        if durable.version > message.version:
            self._post.send(broker_id(origin), _move(durable, now_ns), now_ns)
            return
        durable.waits = durable.state is State.ARRIVING
        self._durables.leave(durable, now_ns)
        # Whoever had not heard of the other place when he accepted an event has sent it by then, if nothing held it up.
        durable.withdraw_ns = now_ns + WITHDRAW_NS
        durable.to, durable.version = origin, message.version
        self._durables.set_state(durable, State.LEAVING)
        self._start_leaving(durable, now_ns)

    def _is_read_here(self, durable: Durable, message: Move, origin: Address, now_ns: int) -> bool:
        """Whether a client reads here that came later than any that reads at `origin`: the clock there is ahead.

        The message was under way, so the reader there came still earlier than it says: of two brokers at most one is
        sure to have the later reader. What the client said of its former home counts once, lest two brokers with a
        half-open session each outbid each other for ever.
        """
        if not durable.readers:
            return False
        if message.age_ns is None or message.age_ns > now_ns - durable.read_ns:
            return True
        return self._came_from.pop(durable.number, None) == origin

    def _start_leaving(self, durable: Durable, now_ns: int) -> None:
        # Long enough for the withdrawal to be heard; longer where a former home may still have something.
        durable.until_ns = now_ns + self._settings.merge_ns
        durable.left_ns = now_ns
        durable.waits_until_ns = now_ns + self._settings.arrive_ns // 2
        self._moving[durable.number] = durable
        for _, frame in self._held.pop(durable.number, ()):
            self._send(durable, frame, False, True, now_ns)
        self._pump(durable)

    def on_stored(self, durable: Durable) -> None:
        self._pump(durable)

    def _pump(self, durable: Durable) -> None:
        """Forward the next part of what is kept."""
        if durable.is_forwarding:
            return
        for inbox in durable.inboxes:
            if inbox.cursor < inbox.stored or inbox.stored < inbox.end:
                if inbox.stored > inbox.cursor:
                    self._read(durable, inbox)
                return

    def _read(self, durable: Durable, inbox: Inbox) -> None:
        start, until = inbox.cursor, inbox.stored
        durable.is_forwarding = True

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            durable.is_forwarding = False
            if durable.number not in self._durables.all:
                return
            for entry in entries:
                if not inbox.is_acknowledged(entry.offset) and not self._is_passed(durable, inbox, entry.frame):
                    again = entry.frame.redelivered or inbox.was_shown(entry.offset)
                    frame = self._durables.handing.mortal(durable, inbox, entry, now_ns)
                    if frame is not None:  # what lay here too long does not live again elsewhere
                        self._send(durable, frame, again, False, now_ns)
            reached = entries[-1].offset + 1 if len(entries) == READ_BATCH else until
            inbox.open.clear()
            inbox.by_key.clear()
            inbox.parked.clear()
            inbox.front = max(reached, start)
            self._ledger.write(Reached(inbox.number, inbox.front))
            self._durables.charges.settle(durable)
            self._pump(durable)

        self._reader.read(start, READ_BATCH, found, inbox=inbox.number)

    def _is_passed(self, durable: Durable, inbox: Inbox, frame: EventFrame) -> bool:
        if inbox is not durable.live:
            return False
        stream = (frame.publisher, frame.incarnation, frame.lane_number)
        return inbox.is_below_floor(stream, (frame.timestamp, frame.sequence))

    def on_straggler(self, durable: Durable, frame: EventFrame, now_ns: int) -> None:
        """What still comes for a subscription that went elsewhere: unless it was published long after."""
        if durable.left_ns is None or frame.section.timestamp_ns <= durable.left_ns + STRAGGLER_NS:
            self._send(durable, frame, False, True, now_ns)

    def _send(self, durable: Durable, frame: EventFrame, redelivered: bool, straggler: bool, now_ns: int) -> None:
        assert durable.to is not None
        data = self._codec.encode(frame, 0)
        message = Backlog(durable.client_id, durable.name, data, redelivered, straggler)
        self._post.send(broker_id(durable.to), message, now_ns)
        for each in self._durables.observers:
            each.on_forwarded(durable, frame)

    def _keep_left(self, durable: Durable, now_ns: int) -> None:
        durable.left_ns = now_ns if durable.left_ns is None else durable.left_ns
        durable.until_ns = now_ns + self._settings.retention_ns
        self._moving[durable.number] = durable
        self._left[durable.number] = None
        if len(self._left) > MAX_LEFT:
            oldest = next(iter(self._left))
            self._finish(self._moving[oldest], now_ns)

    def _finish(self, durable: Durable, now_ns: int) -> None:
        self._moving.pop(durable.number, None)
        self._held.pop(durable.number, None)
        self._left.pop(durable.number, None)
        self._came_from.pop(durable.number, None)
        self._durables.remove(durable, now_ns)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        while self._aside and self._aside[0][0] <= now_ns:
            _, durable, offset, frame = self._aside.popleft()
            if durable.number not in self._durables.all:
                continue
            self._durables.take_aside(durable, offset)
            if self._durables.intake.is_known(durable, frame):
                continue
            if durable.is_here:
                self._durables.intake.add_moved(durable, frame, now_ns)
            else:
                remember(durable.sent_keys, first_key(frame), None)
                self._send(durable, frame, False, True, now_ns)
        if self._in_doubt:
            self._dispel(now_ns)
        for durable in list(self._moving.values()):
            if durable.withdraw_ns is not None and durable.withdraw_ns <= now_ns:
                self._durables.withdraw(durable, now_ns)
            if durable.until_ns is None or now_ns < durable.until_ns:
                continue
            if durable.number not in self._durables.all:  # its client has ended it
                del self._moving[durable.number]
                self._came_from.pop(durable.number, None)
                continue
            if durable.state is State.ARRIVING:
                self.open(durable, now_ns)  # nobody has answered: what comes later is late
            elif durable.state is State.OPEN:
                durable.until_ns = None
                self._came_from.pop(durable.number, None)
                del self._moving[durable.number]
                durable.live_keys.clear()
                durable.moved_keys.clear()
                self._durables.set_state(durable, State.HOME)
            elif durable.state is State.LEAVING:
                self._end(durable, now_ns)
            elif durable.state is State.LEFT:
                self._finish(durable, now_ns)

    def _end(self, durable: Durable, now_ns: int) -> None:
        if any(inbox.cursor < inbox.end for inbox in durable.inboxes) or (
            durable.waits and now_ns < durable.waits_until_ns
        ):
            durable.until_ns = now_ns + self._settings.merge_ns
            return
        assert durable.to is not None
        end = End(durable.client_id, durable.name, durable.version, hads(durable.last))
        self._post.send(broker_id(durable.to), end, now_ns)
        self._durables.set_state(durable, State.LEFT)
        self._keep_left(durable, now_ns)

    def next_wakeup(self) -> int | None:
        due = [at for each in self._moving.values() for at in (each.until_ns, each.withdraw_ns) if at is not None]
        due += [self._aside[0][0]] if self._aside else []
        return min(due, default=None)

    def check(self) -> None:
        for durable in self._moving.values():
            assert durable.state is not State.HOME
            is_gone = durable.number not in self._durables.all
            assert is_gone or durable.is_here or durable.to is not None
        for durable in self._durables.all.values():
            assert durable.state is State.HOME or durable.is_passing or durable.number in self._moving


def _move(durable: Durable, now_ns: int) -> Move:
    age_ns = max(0, now_ns - durable.read_ns) if durable.readers else None
    return Move(durable.client_id, durable.name, durable.version, age_ns)
