"""A client's life: attaching, being heard, being cut off, attaching again, here or elsewhere (CLI-04, CLI-05).

One task keeps the client attached. It dials the brokers that it knows, one after the other, and waits longer after each
round in vain; a broker may send it elsewhere. Whatever the application has asked for is asked for again at each new
broker, together with what the client has had before, so that nothing is missed that is kept and nothing comes twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from veena.client.broker_list import Places
from veena.client.connection import Connection, Redirected
from veena.client.memory import Memory
from veena.client.outbox import Outbox
from veena.client.questions import Questions
from veena.client.subscription import Subscription
from veena.core.wire.client import (
    Acknowledged,
    AskForget,
    AskSubscribe,
    AskUnsubscribe,
    AskUnwatch,
    AskWatch,
    ClientHello,
    ClientWelcome,
    Farewell,
    Matched,
    Pause,
    Resume,
    TellAccepted,
    TellActive,
    TellAdvertised,
    TellAdvertRefused,
    TellAnswer,
    TellCaughtUp,
    TellDenied,
    TellDropped,
    TellRedirect,
    TellRefused,
    TellState,
    TellUnanswered,
    TellWanted,
)
from veena.core.wire.codec import Numbered
from veena.core.wire.control import MAX_IDS, Frame, Goodbye, Heartbeat
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import ids_of
from veena.core.wire.explain import TellExplained, TellMoved, TellReport, TellTraced
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.errors import AccessDenied, NotConnected, RefusalCode, RemoteProtocolError, VeenaError, refusal
from veena.event import EventId
from veena.runtime.transports.registry import Secrets

#: Waiting before the next round over all brokers: at first, and at most; chance spreads those cut off together.
BACK_OFF_S, MAX_BACK_OFF_S = 0.05, 5.0
#: A connection that lasts no longer than this counts as one more in vain.
SHORT_LIFE_S = 1.0
#: How long one broker may take to let the client in.
GREETING_S = 10.0
#: Redirections without ever being let in: then the brokers are sending clients round in circles.
MAX_REDIRECTIONS = 8
#: A subscription with a past asks again, after its connection was lost, for what was accepted so long before.
OVERLAP_NS = 10 * 10**9
_sorted = msgspec.msgpack.Encoder(order="sorted")

logger = logging.getLogger("veena.client")


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the client says of itself whenever it attaches."""

    client_id: str
    user: str
    password: str
    token: str
    reachable: bool
    attributes: tuple[tuple[str, str], ...]
    slow: Any
    heartbeat_ms: int
    software: str


class Session:
    """One client."""

    def __init__(self, urls: Sequence[str], greeting: Greeting, secrets: Secrets, reconnect: bool) -> None:
        self._places = Places(urls, greeting, secrets)
        self._greeting = greeting
        self._secrets = secrets
        self._reconnects = reconnect
        self.outbox = Outbox(greeting.client_id)
        self.questions = Questions()
        self.questions.on_unwatch = lambda number: self.send(AskUnwatch(number))
        self.subscriptions: dict[int, Subscription] = {}
        self.inbox = Subscription(self, 0, "to", greeting.client_id, 0)
        self.connection: Connection | None = None
        self.welcome: ClientWelcome | None = None
        self.connections = 0
        #: Events that brokers dropped because this client did not read.
        self.dropped = 0
        self._last_denial: RefusalCode | None = None
        #: Called when a broker has let the client in.
        self.on_attached: list[Callable[[], None]] = []
        #: Why no broker could be reached, by its URL.
        self.faults: dict[str, str] = {}
        #: The code of the last broker that refused the client; None where none has since the client was attached.
        self._refused: RefusalCode | None = None
        #: What the subscriptions have had that go with their session.
        self._memory = Memory()
        self._elsewhere: tuple[str, ...] = ()
        self._is_moving = False
        self._targets: list[Subscription] = []
        self._is_addressed = True
        self._crowded: dict[int, None] = {}
        self._acks: dict[int, list[EventId]] = {}
        self._next_number = 0
        self._attached = asyncio.Event()
        self._error: VeenaError | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost_ns = 0
        #: How long the last connection lasted, and how long to wait before the next one if that was not long.
        self._lived_s = SHORT_LIFE_S
        self._delay_s = BACK_OFF_S

    @property
    def levels(self) -> int:
        return 1 if self.welcome is None else self.welcome.levels

    @property
    def is_attached(self) -> bool:
        return self._attached.is_set()

    def new_number(self) -> int:
        self._next_number += 1
        return self._next_number

    # --- attaching ---

    async def start(self, timeout: float) -> None:
        """Attach for the first time; raise NotConnected when no broker answers in time, or what it says instead."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        await self.wait_attached(timeout)

    async def wait_attached(self, timeout: float | None) -> None:
        waiting = asyncio.ensure_future(self._attached.wait())
        assert self._keeper is not None
        try:
            await asyncio.wait({waiting, self._keeper}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._error is not None:
            raise self._error
        if not self._attached.is_set():
            told = "; ".join(self.faults.values()) or ", ".join(self._places.urls)
            raise NotConnected(f"no broker let this client in within {timeout} seconds: {told}", code=self._refused)

    async def _keep(self) -> None:
        try:
            while True:
                await self._attach_somewhere()
                assert self.connection is not None
                began = time.monotonic()
                reason = await self.connection.wait_closed()
                if self._error is not None:
                    return  # the broker's last word was final
                self._lived_s = time.monotonic() - began
                if self._lived_s >= SHORT_LIFE_S:
                    self._delay_s = BACK_OFF_S
                self._detached(reason)
                if not self._reconnects and not self._is_moving:
                    raise NotConnected(f"the connection is gone: {reason}")
                self._is_moving = False
        except VeenaError as error:
            logger.debug("client %s gives up: %s", self._greeting.client_id, error)
            self._end(error)

    async def _attach_somewhere(self) -> None:
        redirections = 0
        if self._lived_s < SHORT_LIFE_S:
            await self._back_off()
        while True:
            told, self._elsewhere = self._elsewhere, ()
            for url in await self._places.round(told, self.faults):
                try:
                    await self._attach(url)
                except Redirected as redirected:
                    redirections += 1
                    self.faults[url] = f"{url}: {redirected}"
                    if redirections <= MAX_REDIRECTIONS:
                        self._elsewhere = redirected.urls
                        break
                except NotConnected as error:
                    self.faults[url] = str(error)
                    self._refused = error.code or self._refused
                else:
                    self.faults.clear()
                    self._refused = None
                    return
            if self._elsewhere:
                continue
            await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._delay_s * (0.5 + random.random()))
        self._delay_s = min(2 * self._delay_s, MAX_BACK_OFF_S)

    async def _attach(self, url: str) -> None:
        connection = Connection(url, self._hello(), self._heard)
        welcome = await connection.open(self._secrets, GREETING_S, self._places.judge)
        connection.on_room = self.outbox.wake
        self.connection, self.welcome = connection, welcome
        self.connections += 1
        if self.connections > 1:
            logger.info("attached again, to %s", url)
        self._targets, self._is_addressed = [], True
        for subscription in self.subscriptions.values():
            self._say_subscription(subscription)
        if self._crowded:
            connection.send(Pause())
        connection.send(*self.questions.standing.values())
        for watch in self.questions.watches.values():
            self._say_watch_later(watch.number)
        self.outbox.attached(connection, welcome)
        self._attached.set()
        self._places.attached(url)
        for callback in self.on_attached:
            callback()

    def _say_watch_later(self, number: int) -> None:
        watch = self.questions.watches[number]
        asyncio.get_running_loop().call_soon(self.say_watch, number, watch.sample)

    def say_watch(self, number: int, sample: Any) -> None:
        if self.connection is not None and self.is_attached and number in self.questions.watches:
            self.outbox.send_sample(sample, AskWatch(number))

    def _hello(self) -> ClientHello:
        for subscription in (*self.subscriptions.values(), self.inbox):
            if subscription.memory is None:
                for frame in subscription.queued():
                    self._memory.remember(ids_of(frame)[1:])
        greeting = self._greeting
        return ClientHello(
            VERSION_LOW,
            VERSION,
            greeting.client_id,
            greeting.user,
            greeting.password,
            greeting.token,
            self._memory.lasts(),
            self._memory.shown(),
            greeting.reachable,
            greeting.attributes,
            greeting.slow,
            greeting.heartbeat_ms,
            greeting.software,
        )

    def _detached(self, reason: str) -> None:
        self._attached.clear()
        if self.connection is not None:
            logger.info("the connection to %s is over: %s", self.connection.url, reason)
            if self.connection.round_trip_s is not None:
                self._places.measured(self.connection.url, self.connection.round_trip_s)
        self.connection = None
        self._lost_ns = time.time_ns()
        self._acks.clear()
        self.outbox.detached()
        self.questions.detached(reason)
        for subscription in self.subscriptions.values():
            subscription.detached()

    # --- subscriptions ---

    def add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.number] = subscription
        if self.is_attached:
            self._say_subscription(subscription)

    def _say_subscription(self, each: Subscription) -> None:
        assert self.connection is not None and self.welcome is not None
        since_ns = each.since_ns
        if since_ns and each.is_caught_up:
            since_ns = max(since_ns, self._lost_ns - OVERLAP_NS)
        memory = each.memory if each.durable and not each.group else None
        each.is_sent = True
        self.connection.send(
            AskSubscribe(
                each.number,
                each.engine,
                _sorted.encode(each.constraint),
                each.reach,
                each.durable,
                each.ack_mode,
                () if memory is None else memory.lasts(),
                () if memory is None else memory.shown(),
                each.home or (),
                since_ns,
                each.group,
            )
        )
        if each.durable:
            each.home = self.welcome.address

    def rescope(self, who: Subscription) -> None:
        """A subscription reaches further, or less far, than before: it is made anew at the broker."""
        if who.number in self.subscriptions and self.is_attached:
            who.detached()
            self.send(AskUnsubscribe(who.number))
            self._say_subscription(who)

    async def leave(self, who: Subscription, for_good: bool) -> None:
        """A subscription is over; a durable one is kept unless it is for good."""
        if self._error is not None:
            return
        if for_good and who.durable:
            await self.wait_attached(GREETING_S)  # else it would go on being kept
        if self.subscriptions.pop(who.number, None) is None:
            return
        self._flush_acks()
        if who.is_sent:
            is_ended = for_good and who.durable and not who.group
            self.send(AskForget(who.number) if is_ended else AskUnsubscribe(who.number))

    def crowded(self, who: Subscription, is_crowded: bool) -> None:
        """An application does not take its events, or takes them again."""
        before = bool(self._crowded)
        if is_crowded:
            self._crowded[who.number] = None
        else:
            self._crowded.pop(who.number, None)
        if before != bool(self._crowded):
            self.send(Pause() if self._crowded else Resume())

    def acknowledge(self, who: Subscription, ids: Sequence[EventId]) -> None:
        """Tell the broker at the end of this turn that the application has these."""
        if not self.is_attached:
            return  # what it has is shown when it attaches
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._flush_acks)
        found = self._acks.setdefault(who.number, [])
        found += ids

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, {}
        if self.connection is not None:
            for number, ids in acks.items():
                for at in range(0, len(ids), MAX_IDS):
                    self.connection.send(Acknowledged(number, tuple(ids[at : at + MAX_IDS])))

    def send(self, *frames: Frame) -> None:
        """Tell the broker, if there is one; what outlives a connection is told when the client attaches."""
        if self.connection is not None and self.is_attached:
            self.connection.send(*frames)

    # --- hearing ---

    def _heard(self, frames: list[Numbered]) -> None:
        for _, frame in frames:
            if type(frame) is EventFrame:
                self._heard_event(frame)
            else:
                handler = _HANDLERS.get(type(frame))  # type: ignore[arg-type]
                if handler is None:
                    raise RemoteProtocolError(f"{type(frame).__name__} has no place in a client's conversation")
                handler(self, frame)

    def _heard_event(self, frame: EventFrame) -> None:
        is_plain = self._is_addressed
        for subscription in self._targets:
            subscription.put(frame)
            is_plain = is_plain or subscription.memory is None
        if self._is_addressed:
            assert self.welcome is not None
            if not self.questions.hear_reply(frame, self.welcome.reply_to):
                self.inbox.put(frame)
        if is_plain:
            self._memory.pass_by(frame)

    def _heard_matched(self, frame: Matched) -> None:
        found = map(self.subscriptions.get, frame.subscriptions)
        self._targets = [each for each in found if each is not None]
        self._is_addressed = not frame.subscriptions

    def _heard_active(self, frame: TellActive) -> None:
        found = self.subscriptions.get(frame.subscription)
        if found is not None:
            found.state = frame.level
            found.changed()

    def _heard_caught_up(self, frame: TellCaughtUp) -> None:
        found = self.subscriptions.get(frame.subscription)
        if found is not None:
            found.is_caught_up, found.silent, found.gone_ns = True, frame.silent, frame.gone_ns
            found.changed()

    def _heard_state(self, frame: TellState) -> None:
        found = self.subscriptions.get(frame.subscription)
        if found is not None:
            found.suspension = None if frame.why is RefusalCode.BYE else refusal(frame.why, frame.reason)
            found.not_kept = frame.missed
            found.changed()
            if frame.why is RefusalCode.BYE and not frame.missed:
                logger.info("%r is suspended no more", found)
            elif frame.why is RefusalCode.BYE:
                logger.warning("%d events were not kept for %r", frame.missed, found)
            else:
                logger.warning("%s", frame.reason)

    def _heard_refused(self, frame: TellRefused) -> None:
        found = self.subscriptions.pop(frame.number, None)
        if found is None:
            self.questions.hear_refused(frame)
        else:
            found.ended(refusal(frame.why, frame.reason))

    def _heard_denied(self, frame: TellDenied) -> None:
        if not self.outbox.hear_denied(frame.timestamp, frame.sequence, frame.why, frame.reason):
            if frame.why is not self._last_denial:  # logged once; `statistics().denied` counts them
                logger.warning("a best-effort event was not accepted (%s): %s", frame.why, frame.reason)
            self._last_denial = frame.why

    def _heard_dropped(self, frame: TellDropped) -> None:
        self.dropped += frame.count
        for number, count in frame.missed:
            found = self.subscriptions.get(number) if number else self.inbox
            if found is not None:
                found.missed(count)
        logger.warning("%d events were dropped: this client did not read fast enough", frame.count)

    def _heard_heartbeat(self, frame: Heartbeat) -> None:
        if self.connection is not None:
            self.connection.heard_heartbeat(frame)

    def _heard_redirect(self, frame: TellRedirect) -> None:
        if self.connection is None:  # as in `_heard_farewell`
            raise RemoteProtocolError("the broker sent this client elsewhere behind its welcome")
        logger.info("sent to %s: %s", ", ".join(frame.urls), frame.reason)
        self._go(frame.urls, "sent elsewhere")

    def move(self, urls: Sequence[str]) -> None:
        """Go to one of these brokers, now and whenever the connection is lost."""
        self._places.replace(urls)
        self._attached.clear()
        if self.connection is not None:
            self._go(tuple(urls), "moved")

    def _go(self, urls: tuple[str, ...], reason: str) -> None:
        assert self.connection is not None
        self._elsewhere, self._is_moving = urls, True
        self._flush_acks()
        self.connection.close(Farewell(RefusalCode.BYE, "going elsewhere"), reason)

    def _heard_farewell(self, frame: Farewell | Goodbye) -> None:
        connection = self.connection
        if connection is None:  # the welcome has come, but `_attach` has not dealt with it yet
            raise RemoteProtocolError(f"the broker ended the conversation with its welcome: {frame.reason}")
        if isinstance(frame, Farewell) and frame.why is RefusalCode.DENIED:
            self._end(AccessDenied(frame.reason))
        connection.close(None, frame.reason)

    # --- the end ---

    async def close(self) -> None:
        """Say goodbye and end everything."""
        keeper, connection = self._keeper, self.connection
        if keeper is not None:
            keeper.cancel()
        if connection is not None:
            self._flush_acks()
            connection.close(Farewell(RefusalCode.BYE, "done"), "closed")
            await connection.wait_closed()
        if keeper is not None:
            await asyncio.gather(keeper, return_exceptions=True)
        self._end(NotConnected("this client is closed"))

    def _end(self, error: VeenaError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._attached.clear()
        self.connection = None
        self.outbox.close(error)
        self.questions.close(error)
        is_closed = isinstance(error, NotConnected) and self._keeper is not None and self._keeper.done()
        for subscription in (*self.subscriptions.values(), self.inbox):
            subscription.ended(None if is_closed else error)


_HANDLERS: dict[type[Frame], Callable[[Session, Any], None]] = {
    Matched: Session._heard_matched,
    TellAccepted: lambda session, frame: session.outbox.hear_accepted(frame.runs),
    TellDenied: Session._heard_denied,
    TellActive: Session._heard_active,
    TellRefused: Session._heard_refused,
    TellDropped: Session._heard_dropped,
    TellCaughtUp: Session._heard_caught_up,
    TellState: Session._heard_state,
    Pause: lambda session, frame: session.outbox.pause(frame.reason),
    Resume: lambda session, frame: session.outbox.resume(),
    TellUnanswered: lambda session, frame: session.questions.hear_unanswered(frame),
    TellAdvertised: lambda session, frame: session.questions.hear_advert(frame),
    TellAdvertRefused: lambda session, frame: session.questions.hear_advert(frame),
    TellAnswer: lambda session, frame: session.questions.hear_answer(frame),
    TellWanted: lambda session, frame: session.questions.hear_wanted(frame),
    TellTraced: lambda session, frame: session.questions.past.hear_traced(frame),
    TellExplained: lambda session, frame: session.questions.past.hear_explained(frame),
    TellReport: lambda session, frame: session.questions.past.hear_report(frame),
    TellMoved: lambda session, frame: session.questions.past.hear_moved(frame),
    TellRedirect: Session._heard_redirect,
    Heartbeat: Session._heard_heartbeat,
    Farewell: Session._heard_farewell,
    Goodbye: Session._heard_farewell,
}
