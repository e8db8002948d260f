"""The clients' side of a broker's runtime: everybody who is attached, and what the core tells them.

    stream --> Conversation.received --> inputs --> driver.give --> core
    core --> effects --> Conversations.tell --> frames, gathered by conversation --> one write each

Two rules make it fast. An event becomes bytes once, whoever gets it; and whatever follows from one read, of a client or
of a link, is one write for each receiver. What a conversation decides for itself stands in `conversation`.

A core must not be given an input while it tells of another one; what comes up then (a stream is clogged, a session is
to be closed) is given in the next turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from veena.address import Unit
from veena.core.boundary.clients import (
    AskRoom,
    CaughtUp,
    CloseSession,
    Dropped,
    Pause,
    SubscriptionState,
    Unanswered,
    Wanted,
)
from veena.core.boundary.clients import Resume as ResumeEffect
from veena.core.boundary.discovery import Advertised, AdvertRefused, Answer, QueryRefused
from veena.core.boundary.explain import Denied
from veena.core.boundary.inputs_effects import (
    Accepted,
    AcceptedRun,
    Active,
    ClientDown,
    ClientRefused,
    Deliver,
    DeliverBurst,
    DeliverMixed,
    Input,
    PublishRefused,
    ToClient,
    Welcome,
)
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Identity
from veena.core.delivery.match_cache import Receivers
from veena.core.wire.burst import EventBurst
from veena.core.wire.client import (
    MAX_URLS,
    Matched,
    Resume,
    TellActive,
    TellAdvertised,
    TellCaughtUp,
    TellDropped,
    TellRedirect,
    TellState,
    TellWanted,
)
from veena.core.wire.client import Pause as PauseFrame
from veena.core.wire.codec import encode
from veena.core.wire.control import MAX_REASON
from veena.core.wire.event import (
    COPY_BELOW,
    LATE,
    PRIORITY_MASK,
    REDELIVERED,
    RELIABLE,
    EventCodec,
    EventFrame,
)
from veena.errors import AccessDenied, LocalProtocolError, RefusalCode
from veena.runtime.access.access_events import AccessEvents
from veena.runtime.access.limits import UserRates
from veena.runtime.access.log_ins import NO_LOG_INS, LogIns, LogInStatistics
from veena.runtime.access.users import Principal, Users
from veena.runtime.clients.conversation import Conversation
from veena.runtime.clients.explain import TELLS
from veena.runtime.clients.gives import Gives, Tables
from veena.runtime.clients.pace import Turns
from veena.runtime.clients.requests import REQUESTS, answer_frames
from veena.runtime.clients.revocation import why_over, why_unreadable
from veena.runtime.clients.staging import Staging
from veena.runtime.clients.traffic import SAMPLED, Audience
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import Log
from veena.runtime.steps import Steps, kinds_of
from veena.runtime.supervision import tell_loop
from veena.runtime.transports.certificate import NONE_REVOKED
from veena.runtime.transports.senders import Sender
from veena.runtime.transports.stream import Bytes, Listener, Stream

#: How often somebody looks for clients that are gone without a word.
CHECK_S = 1.0
#: Conversations of one broker, those that have not said who they are included.
MAX_CONVERSATIONS = 1 << 17
#: Inputs that one step gives to the core: a thousand clients may go at once.
INPUTS = 256
#: Conversations that are written to in one step, and bytes: some 10 ms, most of them in the kernel.
WRITES = 500
WRITE_BYTES = 8 << 20
#: Subscriptions that one frame tells of what they missed: any more might be longer than a control frame.
MAX_MISSED = 1 << 15
_DELIVERED_FLAGS = RELIABLE | REDELIVERED | LATE | PRIORITY_MASK

logger = logging.getLogger("veena.clients")


@dataclass(frozen=True, slots=True)
class ConversationStatistics:
    #: Attached, and those that have not said who they are or are being checked.
    clients: int
    greeting: int
    #: Since the start: attached, refused at the door, closed for what they sent, gone without a word.
    attached: int
    refused: int
    at_fault: int
    lost: int
    #: Events handed to clients, and withheld from them because they may not read them.
    delivered: int
    withheld: int
    #: Who came in and what was refused: as often as others were told of it, and as often as that was too much.
    access_told: int = 0
    access_untold: int = 0
    #: How often a user's reading had to wait for a rate: of events, of bytes, of control frames.
    slowed_events: int = 0
    slowed_bytes: int = 0
    slowed_control: int = 0
    log_ins: LogInStatistics = NO_LOG_INS


@lru_cache(maxsize=1024)
def _matched(subscriptions: tuple[int, ...]) -> bytes:
    return encode(Matched(subscriptions), 0)


class Conversations:
    """All clients of one broker."""

    def __init__(
        self,
        driver: Gives,
        identity: Identity,
        settings: Settings,
        users: Users | None = None,
        clock: Callable[[], float] = time.monotonic,
        log: Log | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.driver = driver
        self.identity = identity
        self.settings = settings
        self.users = users or Users()
        self.clock = clock
        #: What clients can cause at will is told, but not as often as they cause it.
        self.log = log or Log(logger)
        self.steps = steps or Steps(self.log)
        self.log_ins = LogIns(self.log, clock, lambda: self.access)
        self.codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        #: The certificates that are good no more.
        self.revoked = NONE_REVOKED
        #: How many connections there may be, all together.
        self.places: Callable[[], int] = lambda: MAX_CONVERSATIONS
        #: Why a sender is refused for now, if so.
        self.why_refused: Callable[[str], str | None] = lambda sender: None
        #: By session; and all, those that have none yet included.
        self.sessions: dict[int, Conversation] = {}
        self.everybody: dict[int, Conversation] = {}
        #: Sessions by the name of who was let in.
        self.by_principal: dict[str, int] = {}
        self.rates, self.turns = UserRates(), Turns(clock)
        #: Where clients are sent instead, while this broker is being emptied.
        self.elsewhere: tuple[str, ...] | None = None
        #: What this broker says of itself when asked, as JSON; and the names of units, where there is a network file.
        self.reports: dict[str, Callable[[], bytes]] = {}
        self.label_of: Callable[[Unit], str | None] = lambda unit: None
        #: What readers outside are shown of the store.
        self.tables: Tables[Conversation] | None = None
        #: What clients stage before it is published.
        self.staging: Staging | None = None
        #: Who tells others who came in and who was refused, if anybody.
        self.access: AccessEvents | None = None
        #: Where every decision about access is written down, if anywhere.
        self.audit: AuditLog | None = None
        self.audience = Audience()
        #: Those that have ended, until the core knows it.
        self._leaving: dict[int, Conversation] = {}
        self._next = self._depth = 0
        self._dirty: list[Conversation] = []
        self._later: list[Input] = []
        self._closed = ""  # why nobody can attach now; empty when all is well
        self._is_scheduled = self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        #: Whether events may be given to the driver in batches: not while records are made of each.
        self.batches = True
        self.attached = self.refused = self.at_fault = self.lost = 0
        self._delivered = self._withheld = self._handed = 0
        self._tellers = self._make_tellers()

    def _make_tellers(self) -> dict[type[Any], Callable[[Conversation, Any], None]]:
        """What is said to a client, by what the core tells of it."""
        return {
            Welcome: Conversation.welcomed,
            Accepted: lambda who, effect: who.accepted_event(effect.id),
            AcceptedRun: Conversation.accepted_run,
            PublishRefused: Conversation.denied,
            ClientRefused: self._refused,
            Active: lambda who, effect: who.say(TellActive(effect.subscription, effect.level)),
            CloseSession: lambda who, effect: who.end(RefusalCode.SLOW, effect.reason),
            AskRoom: lambda who, effect: who.reading.ask_room(),
            Dropped: _tell_dropped,
            SubscriptionState: lambda who, effect: who.say(
                TellState(
                    effect.subscription, effect.missed, effect.why or RefusalCode.BYE, effect.reason[:MAX_REASON]
                )
            ),
            Pause: lambda who, effect: who.say(PauseFrame(effect.reason[:MAX_REASON])),
            ResumeEffect: lambda who, effect: who.say(Resume()),
            Wanted: lambda who, effect: who.say(TellWanted(effect.number, effect.wanted)),
            Unanswered: Conversation.unanswered,
            CaughtUp: lambda who, effect: who.say(
                TellCaughtUp(effect.subscription, effect.silent, effect.gone_ns)
            ),
            Advertised: lambda who, effect: who.say(TellAdvertised(effect.name)),
            AdvertRefused: lambda who, effect: who.refuse_advert(effect.name, effect.why, effect.reason),
            Answer: lambda who, effect: who.say(*answer_frames(effect)),
            QueryRefused: lambda who, effect: who.refuse(effect.number, effect.why, effect.reason),
            **TELLS,
        }  # fmt: skip

    # --- the driver's side ---

    def accept(self, stream: Stream, data: Bytes) -> Listener:
        """A client has connected, and these are its first bytes."""
        self._next += 1
        found = Conversation(self, REQUESTS, stream, self._next)
        if self._closed:
            found.end(RefusalCode.STARTING, self._closed)
            return found
        if len(self.everybody) >= MAX_CONVERSATIONS:
            found.end(RefusalCode.LIMIT, f"this broker has {MAX_CONVERSATIONS} clients: try another one")
            return found
        self.everybody[found.key] = found
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)
        if data:
            found.received(data)
        return found

    def tell(self, effects: Sequence[ToClient]) -> None:
        """What follows from one input."""
        self._depth += 1
        sessions, tellers = self.sessions, self._tellers
        try:
            for effect in effects:
                if type(effect) is DeliverBurst:
                    self.deliver_burst(effect.burst, effect.receivers)
                    continue
                if type(effect) is DeliverMixed:
                    self._deliver_mixed(effect)
                    continue
                if type(effect) is Deliver:
                    self._deliver(effect)
                    continue
                who = sessions.get(getattr(effect, "session", 0))
                if who is not None:
                    try:
                        tellers[type(effect)](who, effect)
                    except Exception as error:  # what one client cannot be told costs nobody else
                        self._failed(who, f"telling a client of {type(effect).__name__} failed", error)
                elif type(effect) is Welcome and self.access is not None and effect.session == self.access.session:
                    self.access.welcomed(effect)
        finally:
            if self._depth > 1:
                self._depth -= 1  # it follows from a read, at whose end everything is written
            else:
                self.finish()

    def _failed(self, who: Conversation, what: str, error: Exception) -> None:
        """Something went wrong with one conversation that nobody foresaw: it is over, and the others go on."""
        tell_loop(what, error)
        who.end(RefusalCode.CLOSING, "the broker failed to serve this connection: attach again")

    def drain(self, urls: Sequence[str], reason: str = "this broker stops") -> None:
        """Send everybody elsewhere, now and from now on."""
        self.elsewhere = tuple(urls[:MAX_URLS])
        self._dismiss(iter(list(self.everybody.values())), reason)

    def _dismiss(self, left: Iterator[Conversation], reason: str) -> None:
        """Tell some of these to go, and the rest in the next turn of the loop."""
        some = list(islice(left, WRITES))
        if not some:
            return
        with self.steps.step("sending away", "clients"):
            self.begin()
            for who in some:
                if not self.elsewhere:
                    who.end(RefusalCode.CLOSING, reason)
                elif who.session:
                    who.say(TellRedirect(self.elsewhere, reason[:MAX_REASON]))
            self.finish()
        asyncio.get_running_loop().call_soon(self._dismiss, left, reason)

    def break_all(self, reason: str, culprit: int, why: str) -> None:
        """End every conversation and begin none until `open`; `why` is for the session of the culprit."""
        self._closed = reason
        if self.access is not None:
            self.access.wait()
        for who in list(self.everybody.values()):
            if culprit and who.session == culprit:
                who.note("session ended", code=RefusalCode.QUARANTINED, reason=why)
                who.end(RefusalCode.QUARANTINED, why, lost=True)
            else:
                who.end(RefusalCode.STARTING, reason, lost=True)
        self._later.clear()
        self._leaving.clear()

    def open(self) -> None:
        """There is a core again that clients can attach to."""
        self._closed = ""

    def why_not_in(self, who: Conversation, principal: Principal) -> AccessDenied | None:
        """Why somebody who has shown to be this one is not let in all the same."""
        gone = self.revoked.why_not(who.stream.certificate, time.time())
        if gone is not None:
            return AccessDenied(gone)
        refused = self.why_refused(self._sender_of(who, principal.name).name)
        if refused is not None:
            return AccessDenied(refused, code=RefusalCode.QUARANTINED)
        count = self.by_principal.get(principal.name, 0)
        most = principal.limits.connections
        if not self.users.is_open:  # nobody keeps all others out
            most = min(most, self.places() - self.places() // 4)
        if count >= most:
            reason = f"{principal.name!r} has {count} connections already, of at most {most}: close one first"
            return AccessDenied(reason, code=RefusalCode.LIMIT)
        return None

    def sender(self, session: int) -> tuple[Sender, Conversation] | None:
        """Who speaks in a session, as far as the core may still be at work for it; None without one."""
        who = self.sessions.get(session) or self._leaving.get(session)
        if who is None:
            return None
        return self._sender_of(who, who.principal_name), who

    def _sender_of(self, who: Conversation, user: str) -> Sender:
        """Where nobody proves anything, a client is who it says it is."""
        told = f"client {who.client_id!r}" if self.users.is_open else f"user {user!r}"
        return Sender.of(who.stream, told)

    def close(self, reason: str = "this broker stops") -> None:
        """Say goodbye to everybody."""
        for who in list(self.everybody.values()):
            who.end(RefusalCode.CLOSING, reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.log_ins.close()

    def statistics(self) -> ConversationStatistics:
        slowed = self.rates.slowed
        return ConversationStatistics(
            len(self.sessions),
            len(self.everybody) - len(self.sessions),
            self.attached,
            self.refused,
            self.at_fault,
            self.lost,
            self._delivered,
            self._withheld,
            0 if self.access is None else self.access.told,
            0 if self.access is None else self.access.untold,
            slowed["events"],
            slowed["bytes"],
            slowed["control"],
            self.log_ins.statistics(),
        )

    # --- events ---

    def _deliver(self, effect: Deliver) -> None:
        frame = effect.frame
        parts: tuple[bytes | memoryview, ...] = ()
        sessions = self.sessions
        for session, found in effect.receivers:
            who = sessions.get(session)
            if who is None:
                continue
            numbers = found if who.rights is None else self._readable(who, frame, found)
            if numbers is None:
                continue
            if not parts:
                parts = self._parts(frame)
            if not who.parts:
                self._dirty.append(who)
            if numbers != who.matched:
                who.matched = numbers
                who.parts.append(_matched(numbers))
            who.parts += parts
            self._delivered += 1
        self._handed += 1
        if not self._handed % SAMPLED:
            self.audience.sample(frame, len(effect.receivers))

    def deliver_burst(self, burst: EventBurst, receivers: Receivers) -> None:
        """All of it or nothing: what decides whether a client may read it is the same in all of its events."""
        data, sessions, dirty = burst.data, self.sessions, self._dirty
        for session, found in receivers:
            who = sessions.get(session)
            if who is None:
                continue
            numbers = found if who.rights is None else self._readable(who, burst.first, found)
            if numbers is None:
                continue
            if not who.parts:
                dirty.append(who)
            if numbers != who.matched:
                who.matched = numbers
                who.parts.append(_matched(numbers))
            who.parts.append(data)
            self._delivered += burst.count
        self._handed += 1
        if not self._handed % SAMPLED:
            self.audience.sample(burst.first, burst.count * len(receivers))

    def _deliver_mixed(self, effect: DeliverMixed) -> None:
        burst, sessions, dirty = effect.burst, self.sessions, self._dirty
        data, ends = burst.data, burst.ends
        assert ends is not None
        copies = 0
        for receivers, start, end in effect.pieces:
            part = data[ends[start - 1] if start else 0 : ends[end - 1]]
            for session, numbers in receivers:
                who = sessions.get(session)
                if who is None:
                    continue
                if who.rights is not None:
                    for frame in burst.part(start, end).frames():
                        self._deliver(Deliver(frame, ((session, numbers),)))
                    continue
                if not who.parts:
                    dirty.append(who)
                if numbers is not who.matched and numbers != who.matched:
                    who.matched = numbers
                    who.parts.append(_matched(numbers))
                who.parts.append(part)
                copies += end - start
        self._delivered += copies
        self._handed += 1
        if not self._handed % SAMPLED:
            self.audience.sample(burst.first, copies)

    def _parts(self, frame: EventFrame) -> tuple[bytes | memoryview, ...]:
        """An event as bytes, for everybody: a short one in one piece."""
        header = self.codec.header(
            frame, 0, to_serve=0, served=0, ttl_ms=frame.ttl_ms, flags=frame.flags & _DELIVERED_FLAGS
        )
        tail = frame.tail
        return (header + tail,) if len(tail) < COPY_BELOW else (header, tail)

    def _readable(self, who: Conversation, frame: EventFrame, numbers: tuple[int, ...]) -> tuple[int, ...] | None:
        """Those of a client's subscriptions that may get an event; None when it must not have it at all."""
        readable = who.readable(frame, numbers)
        if readable == numbers:
            return numbers
        self._withheld += 1
        is_recorded = readable is None and self.settings.records != "off"
        # A durable subscription must not wait for an event that it never gets; a group has it for another member.
        kept = tuple(each for each in numbers if each not in (readable or ()) and who.subscriptions.is_kept(each))
        if is_recorded or kept:
            rule = why_unreadable(who, frame, numbers) if is_recorded else ""
            self.later(Denied(who.session, frame, rule, kept, readable is not None))
        return readable

    def _refused(self, who: Conversation, effect: ClientRefused) -> None:
        if effect.subscription is None:
            is_full = effect.why is RefusalCode.LIMIT  # another broker may have room
            who.end(effect.why if is_full else RefusalCode.PROTOCOL, effect.reason)
            return
        who.subscription_refused(effect.subscription, effect.why, effect.reason)

    # --- the conversations' side ---

    def begin(self) -> None:
        """A read is dealt with: what follows from it is written at its end."""
        self._depth += 1

    def finish(self) -> None:
        """Write; what comes up while that is done is written too. What one step has no time for waits for the next."""
        if self._depth == 1 and self._dirty:
            self._write_some()
        self._depth -= 1
        if self._later and not self._depth:
            self._schedule()

    def _write_some(self) -> None:
        writes, size = WRITES, WRITE_BYTES
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for at, who in enumerate(dirty):
                if writes <= 0 or size <= 0:
                    self._dirty = dirty[at:] + self._dirty
                    if not self._is_writing:
                        self._is_writing = True
                        asyncio.get_running_loop().call_soon(self._write_on)
                    return
                writes -= 1
                try:
                    size -= who.write_out()
                except Exception as error:  # the others are to be written to as well
                    self._failed(who, "writing to a client failed", error)

    def _write_on(self) -> None:
        """Write what the last step had no time for."""
        self._is_writing = False
        with self.steps.step("writing", "clients"):
            self.begin()
            self.finish()

    def dirty(self, who: Conversation) -> None:
        """Something is to be written to it."""
        self._dirty.append(who)
        if not self._depth:
            self.begin()
            self.finish()

    def later(self, given: Input) -> None:
        """Give an input when the core is not at work."""
        self._later.append(given)
        if not self._depth:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._give_later)

    def _give_later(self) -> None:
        self._is_scheduled = False
        inputs, self._later = self._later[:INPUTS], self._later[INPUTS:]
        with self.steps.step(f"{len(inputs)} that came up: {kinds_of(inputs)}", "clients"):
            self.begin()
            for given in inputs:
                try:
                    self.driver.give(given)
                except LocalProtocolError as error:  # those behind it count all the same
                    tell_loop(f"{type(given).__name__} was refused by the core", error)
                if isinstance(given, ClientDown):
                    self._leaving.pop(given.session, None)
            self.finish()

    def forget(self, who: Conversation) -> None:
        self.everybody.pop(who.key, None)
        if self.tables is not None:
            self.tables.left(who)
        if self.sessions.pop(who.session, None) is not None:
            self._leaving[who.session] = who
            self.rates.leave(who.principal_name, self.clock())
            left = self.by_principal[who.principal_name] - 1
            if left:
                self.by_principal[who.principal_name] = left
            else:
                del self.by_principal[who.principal_name]

    def _look(self) -> None:
        """End what is silent for too long."""
        self._timer = None
        if self.everybody:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)
        with self.steps.step("a look at who is silent", "clients"):
            self._look_at_all(self.clock())

    def _look_at_all(self, now: float) -> None:
        for who in list(self.everybody.values()):
            try:
                self._look_at(who, now)
            except Exception as error:  # the others are to be looked at as well
                self._failed(who, "looking after a client failed", error)

    def _look_at(self, who: Conversation, now: float) -> None:
        over = why_over(who)
        if over is None:
            who.look(now)
        else:
            who.note("session ended", code=RefusalCode.DENIED, reason=over)
            who.end(RefusalCode.DENIED, over)


def _tell_dropped(who: Conversation, effect: Dropped) -> None:
    """How many events were dropped, and how many of each subscription: in frames of moderate size."""
    for first in range(0, len(effect.missed) or 1, MAX_MISSED):
        who.say(TellDropped(0 if first else effect.count, effect.missed[first : first + MAX_MISSED]))
