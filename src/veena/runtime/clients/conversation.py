"""One client's conversation with its broker: greeting, rights, limits, and what it asks for.

    greeting --hello--> checking --welcome--> attached --farewell, fault, silence--> over

Nothing is read while a client's password is checked, while its user has used up a rate, while a part of the last read
waits for its turn (`pace`), or while it does not read what it is sent: so what waits for anybody is bounded, and the
transport slows down whoever causes it.

A fault costs a client its conversation, with a frame that says what was wrong; nobody else notices. What it may not do,
or what is wrong in itself (a constraint, an event), costs a refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from veena.address import Unit
from veena.core.boundary.clients import Unanswered
from veena.core.boundary.inputs_effects import AcceptedRun, ClientDown, ClientUp, Input, PublishRefused, Welcome
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.delivery.match_cache import Receivers
from veena.core.wire.burst import EventBurst
from veena.core.wire.client import (
    AskRequest,
    AskWatch,
    ClientHello,
    ClientWelcome,
    Farewell,
    TellAccepted,
    TellAdvertRefused,
    TellDenied,
    TellRedirect,
    TellRefused,
    TellUnanswered,
    had_of,
    runs_of,
    shown,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import MAX_RANGES, MAX_REASON, Frame
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import Place
from veena.core.wire.header import VERSION, VERSION_LOW, spoken
from veena.errors import AccessDenied, InvalidEvent, RefusalCode, RemoteProtocolError, VeenaError
from veena.event import EventId
from veena.runtime.access.access_events import AccessEvents, Action
from veena.runtime.access.limits import Limits, UserRates
from veena.runtime.access.log_ins import LogIns, proven_by
from veena.runtime.access.rights import Rights
from veena.runtime.access.users import Principal, Users
from veena.runtime.clients.gives import Gives, Tables
from veena.runtime.clients.pace import Pace, Turns
from veena.runtime.clients.reading import Reading
from veena.runtime.clients.staging import Incoming, Staging, payer
from veena.runtime.clients.subscription_table import Subscribed
from veena.runtime.clients.traffic import Traffic
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import Log
from veena.runtime.steps import Steps, kinds_of
from veena.runtime.supervision import once
from veena.runtime.transports.certificate import Revoked
from veena.runtime.transports.stream import Bytes, Stream

#: How long a client may take to say who it is, all of it.
HELLO_PATIENCE_S = 10.0
#: Silent for so many of its own heartbeats, a client is gone.
MISSED_HEARTBEATS = 3
#: A conversation that ends for one of these ends as it should: nobody need look into it.
ORDERLY = (RefusalCode.BYE, RefusalCode.CLOSING)

_NOTHING: Sequence[Frame | EventBurst] = ()


class House(Protocol):
    """The broker's client service, as far as one conversation and the handlers of its frames use it.

    `Conversations` is the one that runs; it makes conversations, so they cannot import it.
    """

    driver: Gives
    identity: Identity
    settings: Settings
    users: Users
    log_ins: LogIns
    clock: Callable[[], float]
    log: Log
    steps: Steps
    codec: EventCodec
    revoked: Revoked
    sessions: dict[int, Conversation]
    everybody: dict[int, Conversation]
    by_principal: dict[str, int]
    rates: UserRates
    turns: Turns
    elsewhere: tuple[str, ...] | None
    reports: dict[str, Callable[[], bytes]]
    label_of: Callable[[Unit], str | None]
    tables: Tables[Conversation] | None
    staging: Staging | None
    access: AccessEvents | None
    audit: AuditLog | None
    batches: bool
    attached: int
    refused: int
    at_fault: int
    lost: int

    def begin(self) -> None:
        """A read begins: what follows from it is written when it ends."""

    def finish(self) -> None:
        """A read has ended: write what follows from it."""

    def dirty(self, who: Conversation) -> None:
        """Something is to be written to this conversation."""

    def later(self, given: Input) -> None:
        """Give an input when the core is not at work."""

    def forget(self, who: Conversation) -> None:
        """A conversation is over."""

    def why_not_in(self, who: Conversation, principal: Principal) -> AccessDenied | None:
        """Why somebody who has shown to be this one is not let in all the same."""

    def deliver_burst(self, burst: EventBurst, receivers: Receivers) -> None:
        """Hand all events of a burst to these sessions."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a broker does with what an attached client sends: frames by their type, and events a read at a time."""

    of_frame: Mapping[type[Frame], Callable[[Conversation, Any], None]]
    publish_all: Callable[[Conversation, list[EventBurst]], None]
    #: Publishes a read that is like the one before it; returns how many events that was, 0 where it cannot.
    publish_again: Callable[[Conversation, Frame | EventBurst], int]


class Conversation:
    """A client, from its first byte to its last."""

    def __init__(self, house: House, handlers: Handlers, stream: Stream, key: int) -> None:
        self.house = house
        self._handlers = handlers
        self.key = key
        #: 0 until the core knows the client.
        self.session: int = 0
        self.principal: Principal | None = None
        self.principal_name = self.category = ""
        self.rights: Rights | None = None
        #: The labels that it is cleared for; None where nobody vouches for anybody.
        self.clearances: tuple[str, ...] | None = None
        #: What is to be written, and the subscriptions of the last event that was.
        self.parts: list[Bytes] = []
        self.matched: tuple[int, ...] | None = None
        self.stream = stream
        self.limits = Limits()
        self._decoder = Decoder(max_frame=house.settings.max_frame)
        self._hello: ClientHello | None = None
        self._heard = house.clock()
        self._patience = HELLO_PATIENCE_S
        #: Why nothing is read now.
        self._holds: set[str] = set()
        self._pace = Pace()
        self.subscriptions = Subscribed()
        #: What went over its connection, and how far away it is.
        self.traffic = Traffic()
        self.reading = Reading(stream, self.traffic, house.driver.give, lambda: bool(self.parts) and not self._is_over)
        #: What its last read was like, if that was best-effort events alone, all alike, which it may publish.
        self.usual: EventFrame | None = None
        self.heeded: Frame | None = None  # The control frame that is dealt with now.
        #: What the next event frame is: a request, or a question whether it is wanted.
        self.about: AskRequest | AskWatch | None = None
        #: The events to be staged that are coming in.
        self.incoming: Incoming | None = None
        self.chunks = 0
        #: What its events have in common.
        self.incarnation = 0
        self.unaccepted: dict[Place, None] = {}
        self._accepted: list[Place] = []
        self._checking: asyncio.Task[None] | None = None
        self._is_over = False

    # --- the stream's side ---

    def received(self, data: Bytes) -> None:
        if self._is_over:
            return
        self.traffic.bytes_in += len(data)
        if "rate" in self._holds:  # it was read before the transport could stop
            self._pace.late += data
        else:
            self._deal(data if isinstance(data, bytes) else bytes(data))

    def _deal(self, data: bytes) -> None:
        """Deal with a read, and before it with what waits of the last one, as far as its turn goes."""
        house, pace = self.house, self._pace
        is_step = house.steps.begin()
        house.begin()
        frames = _NOTHING
        try:
            frames = self._decoder.feed_bursts(data) if data else _NOTHING
            is_alone = len(frames) == 1 and not pace.rest
            events = self._handlers.publish_again(self, frames[0]) if is_alone else 0
            if not events:
                frames = pace.turn(frames)
                events = self._take(frames)
            if frames and not self._is_over:
                self._heard = house.clock()
                self.traffic.published += events
                self._wait_if_fast(events, len(data))
        except VeenaError as error:
            house.at_fault += 1
            self.end(RefusalCode.PROTOCOL, error.reply if isinstance(error, RemoteProtocolError) else str(error))
        finally:
            house.finish()
            if is_step:
                house.steps.end(lambda: (kinds_of(frames), self.name))

    def _take(self, frames: Sequence[Frame | EventBurst]) -> int:
        """What one read brought, in its order; how many events were among it."""
        events = 0
        bursts: list[EventBurst] = []
        for frame in frames:
            if type(frame) is EventBurst:
                events += frame.count
                bursts.append(frame)
                continue
            if bursts:
                self._handlers.publish_all(self, bursts)
                bursts = []
            assert isinstance(frame, Frame)
            self.usual = None
            self._heed(frame)
            if self.has_ended():
                return events
        if bursts:
            self._handlers.publish_all(self, bursts)
        return events

    def closed(self, reason: str) -> None:
        if not self._is_over:
            self._leave(lost=True, reason=reason)

    def clogged(self) -> None:
        """It does not read: what it asks is not read either, so that its answers do not pile up."""
        untaken = self.reading.begin(self.house.clock())
        if self.house.tables is None or not self.house.tables.is_reading(self):  # blocks are larger than what may wait
            self.house.log.noise("a client does not read", level=logging.INFO, client=self.name, waiting=untaken)
        self._hold("clogged")
        self.reading.clog("stream")

    def cleared(self) -> None:
        self._release("clogged")
        self.reading.unclog("stream")
        if self.house.tables is not None:
            self.house.tables.cleared(self)

    def look(self, now: float) -> None:
        """End it if it has been silent for too long."""
        if self._is_over:
            return
        if "clogged" in self._holds:
            self._look_whether_it_reads(now)
        elif not self._holds and now - self._heard > self._patience:
            self._lose(f"nothing came for {self._patience:g} seconds")
            self.stream.abort("silent")

    def _look_whether_it_reads(self, now: float) -> None:
        """End it if nothing was taken for `slow_s`. What was written can be read, with the reason behind it, until the
        stream's own patience is over."""
        reason = self.reading.why_over(now, self.house.settings.slow_ns / SECOND_NS)
        if reason is not None:
            self._lose(reason)
        elif self.stream.waiting > self.limits.queue_bytes:
            self._lose(f"{self.stream.waiting} bytes wait for it, which does not read")
            self.stream.abort("it does not read")

    def _lose(self, reason: str) -> None:
        self.house.lost += 1
        self.end(RefusalCode.SLOW, reason, lost=True)

    def has_ended(self) -> bool:
        return self._is_over

    # --- the beginning ---

    def _heed(self, frame: Frame) -> None:
        handler = self._handlers.of_frame.get(type(frame))
        self.heeded = frame
        if self.session:
            if handler is None:
                raise RemoteProtocolError(f"{type(frame).__name__} has no place in a client's conversation")
            handler(self, frame)
        elif type(frame) is ClientHello and self._hello is None:
            self._greet(frame)
        else:
            raise RemoteProtocolError(f"{type(frame).__name__} before the welcome: send a ClientHello and wait")
        self.heeded = None

    def _greet(self, hello: ClientHello) -> None:
        self._hello = hello
        if not hello.version_low <= VERSION or not hello.version_high >= VERSION_LOW:
            raise RemoteProtocolError(
                f"the client speaks {spoken(hello.version_low, hello.version_high)}, this broker"
                f" {spoken(VERSION_LOW, VERSION)}: upgrade the older one"
            )
        house = self.house
        if house.elsewhere is not None:
            if house.elsewhere:
                self.say(TellRedirect(house.elsewhere, "this broker stops"))
            self.end(RefusalCode.CLOSING, "this broker stops: go to another one")
        elif house.users.is_open:
            try:
                self._attach(house.log_ins.anybody(house.users, hello, self.stream, "ClientHello"))
            except AccessDenied as error:
                house.refused += 1
                self.end(error.code, str(error))
        else:
            self._hold("checking")
            self._checking = once("a log-in", self._check(hello), lambda: self.end(RefusalCode.BUSY, "try again"))

    async def _check(self, hello: ClientHello) -> None:
        try:
            principal = await self.house.log_ins.admit(lambda: self.house.users, hello, self.stream, "ClientHello")
        except AccessDenied as error:
            self.house.refused += 1
            self.end(error.code, str(error))
            return
        if self._is_over:
            return
        with self.house.steps.step("ClientHello", self.name):
            self.house.begin()
            try:
                self._attach(principal)
            except VeenaError as error:
                self.end(RefusalCode.PROTOCOL, str(error))
            finally:
                self.house.finish()
        self._release("checking")

    def _attach(self, principal: Principal) -> None:
        house, hello, limits = self.house, self._hello, principal.limits
        assert hello is not None
        self.limits = limits
        if (error := house.why_not_in(self, principal)) is not None:
            house.refused += 1
            house.log_ins.refused(house.users, hello, self.stream, "ClientHello", error)
            self.end(error.code, str(error))
            return
        self.principal, self.principal_name, self.category = principal, principal.name, principal.category
        self.rights, self.clearances = principal.rights, principal.clearances
        self._patience = MISSED_HEARTBEATS * hello.heartbeat_ms / 1000
        self._heard = now = house.clock()
        if self._decoder.buffered:
            raise RemoteProtocolError("half a frame behind the ClientHello: wait for the welcome")
        longest = min(limits.max_frame, house.settings.max_frame)
        self._decoder = Decoder(EventCodec(house.settings.levels, house.settings.fanout, longest), longest)
        self.session = self.reading.session = house.driver.new_session()
        house.sessions[self.session] = self
        house.by_principal[principal.name] = house.by_principal.get(principal.name, 0) + 1
        self._pace.rates = house.rates.enter(principal.name, limits, now)
        attributes = dict(hello.attributes)
        if principal.clearances is not None:
            attributes["clearances"] = ",".join(principal.clearances)
        house.driver.give(
            ClientUp(
                self.session, hello.client_id, had_of(hello.had), frozenset(shown(hello.skips)), hello.reachable,
                attributes, hello.slow, principal.name,
            )
        )  # fmt: skip

    def judged(self, principal: Principal) -> None:
        """What the client is and may do is this from now on."""
        if self._pace.rates is not None:
            self._pace.rates.hold_to(principal.limits, self.house.clock())
        self.principal, self.rights, self.limits = principal, principal.rights, principal.limits
        self.category = principal.category
        self.usual = None  # the next read is judged anew

    def welcomed(self, effect: Welcome) -> None:
        house, settings = self.house, self.house.settings
        house.attached += 1
        if house.access is not None:
            house.access.came_in(self.client_id, self.principal_name, self.category)
        self.note("log-in")
        self.incarnation = effect.incarnation
        self.say(
            ClientWelcome(
                VERSION,
                effect.incarnation,
                effect.reply_to,
                settings.network,
                settings.levels,
                settings.fanout,  # type: ignore[arg-type]
                min(self.limits.max_frame, settings.max_frame),
                house.identity.address,
                house.identity.name,
                self.limits.subscriptions,
                self.limits.events_per_second,
                self.limits.unaccepted,
            )
        )

    # --- the end ---

    def end(self, why: RefusalCode, reason: str, lost: bool = False) -> None:
        """Close the conversation and say why."""
        if self._is_over:
            return
        if why not in ORDERLY:
            self.house.log.noise("a conversation is ended", client=self.name, why=why, reason=reason)
        self.write_out()
        self.stream.write((encode(Farewell(why, reason[:MAX_REASON]), 0),))
        self._leave(lost, reason, dismissed=why is RefusalCode.CLOSING)
        self.stream.close(reason)

    def _leave(self, lost: bool, reason: str, dismissed: bool = False) -> None:
        self._is_over = True
        self.reading.session = 0
        self.parts.clear()
        if self.incoming is not None:
            self.incoming.abandon(self.house.staging, payer(self.owner, self.client_id))
            self.incoming = None
        if self._checking is not None and self._checking is not asyncio.current_task():
            self._checking.cancel()
        self.house.forget(self)
        if self.session:
            self.house.log.debug("a client is gone", client=self.name, reason=reason)
            self.house.later(ClientDown(self.session, lost, dismissed))

    @property
    def client_id(self) -> str:
        return "" if self._hello is None else self._hello.client_id

    @property
    def owner(self) -> str:
        """Whose batches it stages: where nobody shows who they are, there is one owner."""
        return "" if self.house.users.is_open and self.stream.certificate is None else self.principal_name

    @property
    def name(self) -> str:
        who = "?"
        if self._hello is not None:
            shown = self.house.log_ins.shown(self.house.users, self._hello, proven_by(self.stream))[0]
            who = repr(self.client_id if self.session else shown)
        return f"{who} at {self.stream.peer}"

    @property
    def hello(self) -> ClientHello | None:
        """What it said of itself; None before that."""
        return self._hello

    # --- writing ---

    def say(self, *frames: Frame) -> None:
        """Let these be written with everything else."""
        was_clean = not self.parts
        self.parts += [encode(frame, 0) for frame in frames]
        if was_clean:
            self.house.dirty(self)

    def say_bytes(self, parts: Sequence[Bytes]) -> None:
        """The same for frames that are bytes already."""
        if self._is_over:
            return
        was_clean = not self.parts
        self.parts += parts
        if was_clean:
            self.house.dirty(self)

    def write_out(self) -> int:
        """Write what was gathered, at once; how many bytes that was."""
        if self._is_over:
            return 0
        if self._accepted:
            runs = runs_of(sorted(self._accepted))
            self._accepted = []
            self.parts += [
                encode(TellAccepted(tuple(runs[at : at + MAX_RANGES])), 0) for at in range(0, len(runs), MAX_RANGES)
            ]
        if self.parts:
            parts, self.parts = self.parts, []
            size = sum(map(len, parts))
            self.traffic.bytes_out += size
            self.stream.write(parts)
            return size
        return 0

    # --- what the core says of what the client asked ---

    def give(self, given: Input) -> None:
        self.house.driver.give(given)

    def accepted_event(self, event_id: EventId) -> None:
        place = (event_id.timestamp, event_id.sequence)
        if self.unaccepted.pop(place, 0) is None:  # only reliable events are waited for
            self._accepted.append(place)
            if len(self._accepted) == 1:
                self.house.dirty(self)

    def accepted_run(self, effect: AcceptedRun) -> None:
        was_empty = not self._accepted
        for sequence in range(effect.first, effect.last + 1):
            place = (effect.timestamp, sequence)
            if self.unaccepted.pop(place, 0) is None:
                self._accepted.append(place)
        if was_empty and self._accepted:
            self.house.dirty(self)

    def denied(self, effect: PublishRefused) -> None:
        self.unaccepted.pop((effect.id.timestamp, effect.id.sequence), None)
        self.refuse_event(effect.id.timestamp, effect.id.sequence, effect.why, effect.reason)

    def refuse_event(self, timestamp: int, sequence: int, why: RefusalCode, reason: str) -> None:
        self.house.log.noise("an event is refused", client=self.name, why=why, reason=reason)
        if why is RefusalCode.DENIED:
            self._tell_refused("publish", reason)
        self.say(TellDenied(timestamp, sequence, why, reason[:MAX_REASON]))

    def refuse(self, number: int, why: RefusalCode, reason: str) -> None:
        self.house.log.noise("a wish is refused", client=self.name, why=why, reason=reason)
        if why is RefusalCode.DENIED:
            self._tell_refused("ask", reason)
        self.say(TellRefused(number, why, reason[:MAX_REASON]))

    def note(self, kind: str, **fields: str | int | None) -> None:
        """Write down a decision about this client, where that is done."""
        if self.house.audit is not None:
            who = {"user": self.principal_name, "client": self.client_id, "address": self.stream.peer}
            self.house.audit.note(kind, **who, **fields)

    def _tell_refused(self, action: Action, reason: str) -> None:
        self.note("right refused", action=action, code=RefusalCode.DENIED, reason=reason)
        if self.house.access is not None:
            self.house.access.refused(self.client_id, self.principal_name, action, reason)

    def refuse_advert(self, name: str, why: RefusalCode, reason: str) -> None:
        if why is RefusalCode.DENIED:
            self._tell_refused("ask", reason)
        self.say(TellAdvertRefused(name, why, reason[:MAX_REASON]))

    def unanswered(self, effect: Unanswered) -> None:
        self.say(TellUnanswered(effect.number, effect.answers, effect.why, effect.reason[:MAX_REASON]))

    def subscription_refused(self, number: int, why: RefusalCode, reason: str) -> None:
        """The subscription was not made, or another broker has it now."""
        self.subscriptions.discard(number)
        self.refuse(number, why, reason)

    def readable(self, frame: EventFrame, numbers: tuple[int, ...]) -> tuple[int, ...] | None:
        """Those of its subscriptions that may get an event; None when the client must not have it at all."""
        assert self.rights is not None
        try:
            event = frame.event()
        except InvalidEvent:
            return None
        if not numbers:  # addressed to the client itself
            return numbers
        engine = self.subscriptions.engine
        found = tuple(each for each in numbers if self.rights.may_read(event, engine(each)))
        return found or None

    # --- holding back ---

    def _hold(self, why: str) -> None:
        if not self._holds:
            self.stream.pause()
        self._holds.add(why)

    def _release(self, why: str) -> None:
        if why in self._holds:
            self._holds.discard(why)
            if self._holds or self._is_over:
                return
            self._heard = self.house.clock()
            if self._pace.waits:
                self._deal(self._pace.take_late())
            if not self._holds and not self._is_over:
                self.stream.resume()

    def _wait_if_fast(self, events: int, size: int) -> None:
        """Read no more where the user has used up a rate, or where a part of this read waits for its turn."""
        wait, rate = self._pace.wait_s(events, size, self.house.clock())
        if wait is not None:
            if rate:
                self.house.log.noise("a user is slowed down", level=logging.INFO, client=self.name, rate=rate)
            self._hold("rate")
            loop = asyncio.get_running_loop()
            if wait:
                loop.call_later(wait, self._release, "rate")
            else:
                self.house.turns.ask(lambda: self._release("rate"), loop.call_soon)
