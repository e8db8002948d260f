"""Post: what brokers write to each other, as events of their own.

A roaming client's backlog, a question to every broker of a unit, the members of a shared subscription: all of that must
arrive once and in order, through crashes and outages. Events do. So a broker publishes such a message as a reliable
event whose addressee is a place (`addresses`), in its own name; the log keeps it, the router finds the way, and the
end hands it to whoever deals with that kind of message instead of to a client.

What a handler writes to disk goes out under the same ticket as the place of the message in its stream, so a message is
dealt with exactly once even by a broker that crashes while it does so. A handler must not fail: a message that makes no
sense any more is dropped.

The invariant: messages from one broker to another are dealt with in the order in which they were posted, but for those
that lay in a backlog while the receiver was absent and come behind later ones: while one is dealt with, `is_late`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from veena.address import Address
from veena.core.messages.addresses import broker_id
from veena.core.messages.kinds import TAGS, Message, decode_message, encode_message
from veena.core.wire.event import EventFrame
from veena.errors import InvalidEvent
from veena.event import DEFAULT_PRIORITY, Event, IdGenerator

#: The header that holds the tag of the message (`post_messages.TAGS`), for whoever reads a log.
KIND = "veena"


class Publishes(Protocol):
    """What takes a broker's own events (`publishing.log`)."""

    def post(self, event: Event, reliable: bool, now_ns: int) -> None: ...

    def new_incarnation(self, now_ns: int) -> int: ...


Handler = Callable[..., None]


class Post:
    """One a broker."""

    def __init__(self, host: Address, publishes: Publishes) -> None:
        self._host = host
        self._publishes = publishes
        self._ids: IdGenerator | None = None
        self._handlers: dict[type[Message], Handler] = {}
        self.sent = 0
        self.received = 0
        #: Messages that could not be read, or that nobody here deals with.
        self.unread = 0
        #: Messages that were too long.
        self.unsent = 0
        #: Whether later messages of its sender came before the one that is dealt with now.
        self.is_late = False

    def deals_with(self, kind: type[Message], handler: Handler) -> None:
        """Let `handler(message, origin, now_ns)` deal with messages of this kind."""
        self._handlers[kind] = handler

    def send(
        self, to: str, message: Message, now_ns: int, *, reliable: bool = True, priority: int = DEFAULT_PRIORITY
    ) -> None:
        """Write to a broker, to all of a unit, or to wherever a client's subscriptions are kept."""
        if self._ids is None:
            self._ids = IdGenerator(broker_id(self._host), self._publishes.new_incarnation(now_ns))
        self.sent += 1
        event = Event(
            to=(to,),
            headers={KIND: TAGS[type(message)]},
            body=encode_message(message),
            priority=priority,
            event_id=self._ids.next(now_ns),
            timestamp_ns=now_ns,
        )
        try:
            self._publishes.post(event, reliable, now_ns)
        except InvalidEvent:  # too long, which the bounds of `kinds` are to prevent: nobody must fail over that
            self.unsent += 1

    def arrived(self, frame: EventFrame, now_ns: int) -> None:
        """A message for this broker."""
        self.received += 1
        try:
            message = decode_message(frame.body)
        except (msgspec.MsgspecError, ValueError):
            self.unread += 1
            return
        handler = self._handlers.get(type(message))
        if handler is None:
            self.unread += 1
        else:
            self.is_late = frame.late
            handler(message, frame.origin_address or self._host, now_ns)
