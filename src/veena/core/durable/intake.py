"""What of the events that come is kept for durable subscriptions: each once, in which inbox, and who has it at once.

An event may come more than once: by itself, from the subscription's former home (`handover`) and from logs (`replay`).
Until everything has come from there, a subscription has an inbox for each of the two ways. What a former home is
believed to have sent, or will send, is left to it: that is below the floor of the live inbox. Best-effort events are
not kept: they are for those who are attached.

The invariant: an event is put into the inboxes of one subscription once, as far as its ids are remembered; what comes
behind a later one of its stream is put there as late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from veena.core.boundary.session_id import durable_number
from veena.core.delivery.session_queue import Outlet
from veena.core.durable.charges import Charges
from veena.core.durable.cursor import Inbox, Reader
from veena.core.durable.redelivery import Handing
from veena.core.durable.subscription import (
    MAX_REMEMBERED,
    Durable,
    DurableObserver,
    Key,
    State,
    remember,
    size_of,
)
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import EventKey, Place, Stream, first_key, ids_of, stream_of


class KeepsEvents(Protocol):
    """The log (`publishing.log`)."""

    def keep(self, frame: EventFrame, inboxes: tuple[int, ...], now_ns: int) -> int: ...

    @property
    def next_offset(self) -> int: ...


class Intake:
    """One a broker."""

    def __init__(
        self,
        durables: Mapping[int, Durable],
        here: Mapping[Key, Durable],
        named: Callable[[Key], list[Durable]],
        log: KeepsEvents,
        outlet: Outlet,
        charges: Charges,
        handing: Handing,
        was_handed: Callable[[tuple[Stream, Place], int], bool],
        observers: Sequence[DurableObserver],
    ) -> None:
        self._durables, self._here, self._named = durables, here, named
        self._log = log
        self._outlet = outlet
        self._charges = charges
        self._handing = handing
        #: Whether an event (by its first id) was handed lately to a session.
        self._was_handed = was_handed
        self._observers = observers
        #: Events that came by themselves and were kept, in all.
        self.kept = 0

    def keep(self, frame: EventFrame, sessions: Iterable[int], now_ns: int) -> list[tuple[int, int]]:
        """A reliable event satisfies these: keep it; the sessions and subscriptions that are handed it at once."""
        found = [self._durables[number] for number in map(durable_number, sessions) if number in self._durables]
        key = first_key(frame)
        kept = [durable for durable in found if durable.is_here and key not in durable.live_keys]
        for durable in found:
            if not durable.is_here and durable.key not in self._here and not self._was_sent(durable, key):
                remember(durable.sent_keys, key, None)
                for each in self._observers:
                    each.on_straggler(durable, frame, now_ns)
        kept = [durable for durable in kept if self._charges.has_room(durable, size_of(frame))]
        stream, place = stream_of(frame), (frame.timestamp, frame.sequence)
        # A straggler from a former home may have gone before it.
        overtaken = [
            each
            for each in kept
            if not frame.late and each.state is not State.ARRIVING and place < each.last.get(stream, place)
        ]
        for reader in self._put(overtaken, late := frame.late_copy(), now_ns) if overtaken else ():
            self._handing.deliver(reader, late, now_ns)
        readers = self._put([each for each in kept if each not in overtaken], frame, now_ns)
        return [(reader.session, reader.subscription) for reader in readers]

    def _put(self, kept: list[Durable], frame: EventFrame, now_ns: int) -> list[Reader]:
        """Put an event into the log for these; who is to be handed it at once."""
        if not kept:
            return []
        key, size = first_key(frame), size_of(frame)
        offset = self._log.keep(frame, tuple(durable.number for durable in kept), now_ns)
        self._tell_kept(kept, frame, now_ns)
        self.kept += len(kept)
        stream, place = stream_of(frame), (frame.timestamp, frame.sequence)
        readers: list[Reader] = []
        for durable in kept:
            inbox = durable.live
            before, inbox.end = inbox.end, offset + 1
            self._charges.kept(durable, inbox, offset, size)
            durable.last[stream] = max(place, durable.last.pop(stream, place))
            if len(durable.last) > MAX_REMEMBERED:
                del durable.last[next(iter(durable.last))]
            if durable.state is not State.HOME:
                remember(durable.live_keys, key, frame.late)
            if durable.state is State.ARRIVING:
                durable.first.setdefault(stream, place)
            readers += self._handing.added(durable, inbox, before, offset, frame, now_ns)
        return readers

    def _tell_kept(self, kept: list[Durable], frame: EventFrame, now_ns: int) -> None:
        for each in self._observers:
            each.on_kept(kept, frame, now_ns)

    def show(self, frame: EventFrame, sessions: Iterable[int]) -> list[tuple[int, int]]:
        """Who is attached to these, for a best-effort event, and has not had it where it was before."""
        stream, place = stream_of(frame), (frame.timestamp, frame.sequence)
        return [
            key
            for number in map(durable_number, sessions)
            if number in self._durables
            for key, reader in self._durables[number].readers.items()
            if not self._outlet.is_clogged(key[0]) and place > reader.had.get(stream, (-1, -1))
        ]

    # --- what was kept elsewhere ---

    def add_moved(self, durable: Durable, frame: EventFrame, now_ns: int) -> None:
        """An event that was kept elsewhere came."""
        key, stream, place = first_key(frame), stream_of(frame), (frame.timestamp, frame.sequence)
        if key in durable.moved_keys:
            return
        if durable.state is State.ARRIVING:
            inbox, last, before = durable.inboxes[0], durable.moved_last, (-1, -1)
            remember(durable.moved_keys, key, None)
        elif self._is_live(durable, key, frame):
            return
        else:
            inbox, last = durable.live, durable.last
            before = max(inbox.floor.get(stream, (-1, -1)), durable.moved_last.get(stream, (-1, -1)))
        if not self._charges.has_room_for_moved(durable, size_of(frame)):
            return
        if place <= max(before, last.get(stream, (-1, -1))):
            frame = frame.late_copy()
        if durable.state is not State.ARRIVING:
            remember(durable.live_keys, key, frame.late)
        last[stream] = max(place, last.get(stream, place))
        self.enter(durable, inbox, frame, now_ns)

    def enter(self, durable: Durable, inbox: Inbox, frame: EventFrame, now_ns: int) -> None:
        """Keep an event in one inbox, at its end."""
        inbox.end = 1 + self._log.keep(frame, (inbox.number,), now_ns)
        self._charges.kept(durable, inbox, inbox.end - 1, size_of(frame))
        self._tell_kept([durable], frame, now_ns)

    def is_known(self, durable: Durable, frame: EventFrame) -> bool:
        """Whether an event was kept here for a subscription, now or when it was here before; where it is not here any
        more, also whether it was sent on. What was sent on when it was here before may be what comes back now."""
        key = first_key(frame)
        if any(self._is_live(each, key, frame) or key in each.moved_keys for each in self._named(durable.key)):
            return True
        return not durable.is_here and (key in durable.live_keys or key in durable.sent_keys)

    def _was_sent(self, durable: Durable, key: EventKey) -> bool:
        return key in durable.live_keys or any(key in each.sent_keys for each in self._named(durable.key))

    def _is_live(self, durable: Durable, key: EventKey, frame: EventFrame) -> bool:
        """Whether an event came by itself and is handed over: below the floor it is left to the former home."""
        is_late = durable.live_keys.get(key)
        if is_late is None:
            is_late = frame.late
            if not (durable.is_here and self._was_handed(ids_of(frame)[-1], durable.session)):
                return False
        return is_late or not durable.is_below_floor(frame)
