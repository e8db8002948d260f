"""A member of a collaboratory: somebody who watches applications, steers them, and talks about it with others.

    async with veena.connect(url, client_id="alice") as client, Member(client, keep=True) as alice:
        heat = await alice.monitor("heat")                     # its states, statistics, fields and records
        await alice.take("heat")
        answer = await alice.change("heat", diffusivity=0.1)   # done, or refused with the reason
        await alice.say("heat", "look at the upper left")

It is a client of the mesh and needs no more than a broker. A member that is to keep what it wants while it is away
(`keep=True`) has durable subscriptions: what was published meanwhile waits, and comes once and in order wherever the
member appears again, in another domain too (DIS-06). Everything that it publishes is checked by the dictionary in a
client's role (DIC-10); whether it may publish it at all its broker decides, so a junior's steering is refused there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from hashlib import blake2b
from types import TracebackType

import msgspec

from veena.client.client import Client
from veena.client.subscription import Subscription
from veena.errors import AccessDenied, InvalidEvent, NotConnected, Unanswered, VeenaError
from veena.event import Event, Value
from veena.matching.condition.constraint_parser import parse_constraint
from veena.services.application.desk import Answer
from veena.services.application.parameters import STATE, ParameterView, unpack_views
from veena.services.application.steering_lock import PRESENT_S
from veena.services.dictionary.dictionary import Dictionary
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.member.chat import Talk
from veena.services.member.feed import Feed, is_honest
from veena.services.member.history import MAX_HISTORY, History
from veena.services.member.shadow import Shadowing
from veena.services.structured import RELIABILITY, Scalar, StructuredEvent, check_name
from veena.services.trading.federation import ask_mesh
from veena.services.trading.messages import Question
from veena.services.trading.offers import Offer
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION
from veena.services.wording import quoted

#: How long a command waits for its answer: an application answers a change after the step that it is in.
ANSWER_S = 10.0
#: How long it may take to find out whether a member may steer.
PROBE_S = 1.0
#: How long an application that answered may take to be found: its offer comes after it when its broker was lost.
FOUND_S = 2.0
LOOK_S = 0.1
#: Characters of a purpose that are kept as the name of a durable subscription.
MAX_NAME = 150
#: Feeds of one member.
MAX_FEEDS = 64
#: A domain name that no application has: to ask whether steering is allowed at all.
NOBODY = "?"

logger = logging.getLogger("veena.services")


class Member:
    """Somebody who takes part; over one client, which stays the caller's to open and close."""

    def __init__(
        self,
        client: Client,
        *,
        keep: bool = False,
        dictionary: Dictionary | None = None,
        history: int = MAX_HISTORY,
        timeout: float = ANSWER_S,
    ) -> None:
        """`keep`: what the member wants goes on being kept for it while it is away; its client has a name then."""
        self.client = client
        self.keep = keep
        self.timeout = timeout
        self._dictionary = dictionary or Dictionary.standard()
        self._history = History(history)
        self._resolver = Resolver(client)
        self._service = SubscriptionService(client)
        #: The feeds that the subscription service made.
        self._served: dict[Feed, Subscription] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._feeds: dict[str, Feed] = {}
        self._may_steer = False
        #: The applications that this member drives, as far as it was told.
        self._driving: dict[str, None] = {}
        self._staying: asyncio.Task[None] | None = None
        self.talk = Talk(self)
        self.shadowing = Shadowing(self)

    async def open(self) -> Member:
        """Find out what the broker allows."""
        try:
            await self._ask(self._steering(NOBODY, "query", {}), PROBE_S)
        except (Unanswered, AccessDenied) as error:
            self._may_steer = isinstance(error, Unanswered)
        return self

    async def close(self) -> None:
        """Go, and let go of every wheel; what is to be kept for the member is kept."""
        driving, self._driving = list(self._driving), {}
        staying, self._staying = self._staying, None
        if staying is not None:
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)
        try:
            for application in driving if self.client.is_connected else ():
                await self._ask(self._steering(application, "release", {}), PROBE_S)
        except (Unanswered, AccessDenied) as error:
            logger.info("member %s may still have a wheel: %s", self.client_id, error)
        try:
            await self.talk.close()
            await self.shadowing.close()
            for feed in list(self._feeds.values()):
                await feed.close()
            await self._service.close()
        except NotConnected as error:
            logger.info("member %s could not say goodbye: %s", self.client_id, error)

    async def __aenter__(self) -> Member:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        return self.client.client_id

    @property
    def may_steer(self) -> bool:
        """Whether the broker lets this member publish steering events; known when the member is open."""
        return self._may_steer

    def history(self) -> History:
        """What this member consumed and produced, in order (DIS-07)."""
        return self._history

    # --- watching ---

    async def applications(self, constraint: str = "") -> list[Offer]:
        """The applications that satisfy a constraint over their offers: in this domain, or else anywhere."""
        found = await self._resolver.find(constraint)
        for name in dict.fromkeys(offer.application for offer in found.offers):
            self._offers[name] = tuple(offer for offer in found.offers if offer.application == name)
        return list(found.offers)

    async def monitor(self, application: str, constraint: str = "") -> Feed:
        """The Monitoring events of an application, or those of them that satisfy a constraint."""
        parse_constraint(constraint)  # for itself, so that what is wrong has its place in what was given
        wanted = "$type_name == 'Monitoring'" + (f" and ({constraint})" if constraint.strip() else "")
        purpose = f"monitor {application}" + (f": {constraint}" if constraint.strip() else "")
        return await self.feed(purpose, wanted, application=application)

    async def subscribe(self, constraint: str, *, purpose: str = "") -> Feed:
        """Any structured events."""
        return await self.feed(purpose or f"want {constraint}", constraint)

    # --- steering ---

    async def parameters(self, application: str) -> dict[str, ParameterView]:
        """What of an application can be steered, with the values of now."""
        return dict((await self.query(application)).parameters)

    async def query(self, application: str) -> Answer:
        """The same with who drives, and the state."""
        return await self._command(application, "query", {})

    async def change(self, application: str, /, **values: Scalar) -> Answer:
        """Give parameters new values, all or none; they hold from the next step on."""
        if not values:
            raise InvalidEvent("nothing is to be changed: name parameters with their values, such as diffusivity=0.1")
        name, value = next(iter(values.items()))
        remainder = msgspec.json.encode(values) if len(values) > 1 else b""
        return await self._command(application, "change", {"parameter": name, "value": value}, remainder)

    async def take(self, application: str) -> Answer:
        """Take the wheel: one drives at a time."""
        return await self._command(application, "take", {})

    async def release(self, application: str) -> Answer:
        return await self._command(application, "release", {})

    async def hand_over(self, application: str, to: str) -> Answer:
        """Let another member drive, by its client id."""
        return await self._command(application, "hand_over", {"to": to})

    async def pause(self, application: str) -> Answer:
        return await self.change(application, **{STATE: "paused"})

    async def resume(self, application: str) -> Answer:
        return await self.change(application, **{STATE: "running"})

    async def stop(self, application: str) -> Answer:
        """End the program."""
        return await self.change(application, **{STATE: "stopped"})

    # --- talking (`chat`, `shadow`) ---

    async def say(self, room: str, text: str) -> str:
        """Say something to all in a room; an application's name is the room of those who work on it."""
        return await self.talk.say(room, text)

    async def annotate(self, application: str, text: str, x: float, y: float, step: int | None = None) -> str:
        """Put a note at a place of an application's picture, for all in its room."""
        return await self.talk.annotate(application, text, x, y, step)

    async def room(self, room: str) -> Feed:
        """Enter a room: its messages, annotations, and who comes and goes."""
        return await self.talk.enter(room)

    def present(self, room: str) -> list[str]:
        """Who is in a room that this member is in."""
        return self.talk.present(room)

    async def tell(self, other: str, text: str) -> str:
        """Say something to one other member."""
        return await self.talk.tell(other, text)

    async def conversation(self, other: str) -> Feed:
        """What one other member says to this one."""
        return await self.talk.conversation(other)

    async def show_view(self, to: tuple[str, ...] | None = None) -> None:
        """Let others look over the shoulder: everybody, or those named. Without that nobody can."""
        await self.shadowing.show(to)

    async def hide_view(self) -> None:
        await self.shadowing.hide()

    async def shadow(self, other: str) -> Feed:
        """Get what another member gets from now on, as far as this one may (COL-03)."""
        return await self.shadowing.follow(other)

    # --- for the parts of a member ---

    def feeds(self) -> tuple[Feed, ...]:
        """What this member is getting."""
        return tuple(self._feeds.values())

    async def publish(self, event: StructuredEvent) -> str:
        """Publish an event that the dictionary allows to clients."""
        checked = self._dictionary.check(event, "client")
        carried = checked.to_event()
        event_id = await self.client.publish_event(carried, reliable=checked.is_reliable)
        self._history.note_produced(carried, event_id)
        return event_id

    async def feed(
        self, purpose: str, constraint: str, *, application: str = "", is_shown: bool = True, by: tuple[str, ...] = ()
    ) -> Feed:
        """What there is for a purpose; the same one when it is asked for again.

        `is_shown`: whether it is a part of the view that others may follow; `by`: who alone may have published it.
        """
        known = self._feeds.get(purpose)
        if known is not None:
            return known
        if len(self._feeds) >= MAX_FEEDS:
            raise InvalidEvent(f"{MAX_FEEDS} feeds are open already: close some of them")
        whole = f"$domain_name == {quoted(application)} and {constraint}" if application else constraint
        feed = Feed(purpose, self._history, _from(by), self._closed)
        self._feeds[purpose] = feed
        try:
            if is_shown:
                await self.shadowing.add(purpose, whole)
            await feed.replace(await self._subscribed(feed, constraint, whole, application))
        except BaseException:
            await feed.close()
            raise
        return feed

    async def _subscribed(self, feed: Feed, constraint: str, whole: str, application: str) -> Subscription:
        """By the domain's subscription service where one application is meant, which may be far; else directly."""
        durable = _short(feed.purpose) if self.keep else False
        offers = await self._offer(application) if application else ()
        if len({offer.network for offer in offers}) != 1:
            return await self.client.subscribe(constraint=whole, durable=durable)
        found = self._served[feed] = await self._service.subscribe(offers[0], constraint, durable=durable)
        return found

    async def _closed(self, feed: Feed, for_good: bool) -> None:
        served = self._served.pop(feed, None)
        if served is not None:
            await self._service.unsubscribe(served, delete=for_good)
        if self._feeds.pop(feed.purpose, None) is not None:
            await self.shadowing.remove(feed.purpose)
            await self.talk.left(feed.purpose)

    async def _offer(self, application: str) -> tuple[Offer, ...]:
        """The offers of this name, as far as they are known; asked for when none is."""
        if application not in self._offers:
            await self.applications(f"name == {quoted(application)}")
        return self._offers.get(application, ())

    async def _command(self, application: str, verb: str, fields: dict[str, Value], remainder: bytes = b"") -> Answer:
        check_name("domain_name", application)
        try:
            told = await self._ask(self._steering(application, verb, fields, remainder), self.timeout)
        except AccessDenied:
            self._may_steer = False
            raise
        except Unanswered as error:
            remedy = "if this goes on, it is not there, or its step takes long"
            raise Unanswered(f"application {application!r}: {error}; {remedy}") from None
        await self._check_publisher(application, told)
        answer = _answer(told)
        self._driving.pop(application, None)
        if answer.driver == self.client_id:
            self._driving[application] = None
            if self._staying is None:
                self._staying = asyncio.get_running_loop().create_task(self._stay())
        return answer

    async def _stay(self) -> None:
        """Tell whom this member drives that it is still there, so that a wheel is free soon when it is not any more."""
        while True:
            await asyncio.sleep(PRESENT_S)
            for application in list(self._driving):
                try:
                    here = self._dictionary.check(self._steering(application, "here", {}), "client")
                    await self.client.publish_event(here.to_event())
                except NotConnected:
                    return
                except VeenaError as error:
                    logger.info("member %s could not tell %s that it is here: %s", self.client_id, application, error)

    def _steering(
        self, application: str, verb: str, fields: dict[str, Value], remainder: bytes = b""
    ) -> StructuredEvent:
        return StructuredEvent(application, "Steering", verb, {"by": self.client_id, **fields}, remainder)

    async def _ask(self, command: StructuredEvent, timeout: float) -> Event:
        """Send a command, and wait for what is answered. The answer is the receipt, so it goes best effort."""
        checked = self._dictionary.check(command, "client")
        event = StructuredEvent(
            checked.domain, checked.type, checked.name, checked.fields, checked.remainder,
            {**checked.qos, RELIABILITY: "best_effort"},
        ).to_event()  # fmt: skip
        told = await self.client.request(
            timeout=timeout, properties=event.properties, headers=event.headers, body=event.body,
            priority=event.priority,
        )  # fmt: skip
        answered = told.headers.get("command", told.properties.get("command"))
        if isinstance(answered, str) and answered.startswith(self.client_id + ":"):
            self._history.note_produced(event, answered)
        self._history.note_consumed(told)
        return told

    async def _check_publisher(self, application: str, told: Event) -> None:
        """Whoever got a command can answer it; only the one that offers the application speaks for it."""
        assert told.event_id is not None
        publisher, deadline = told.event_id.publisher, time.monotonic() + FOUND_S
        speakers = [offer.client for offer in self._offers.get(application, ())]
        while publisher not in speakers:
            # The whole mesh is asked: a command reaches further than the links of the domain's trader.
            question = Question("publisher", APPLICATION, f"name == {quoted(application)}")
            offers = (await ask_mesh(self.client, question, "system", FOUND_S)).offers
            speakers = [offer.client for offer in offers]
            if offers:
                self._offers[application] = offers
            if publisher not in speakers:
                if offers or time.monotonic() > deadline:
                    who = repr(speakers[0]) if offers else "nobody"
                    raise AccessDenied(f"{publisher!r} answered for application {application!r}, which {who} offers")
                await asyncio.sleep(LOOK_S)


def _from(publishers: tuple[str, ...]) -> Callable[[Event], bool]:
    """Whether one of these published an event; who did is what the brokers say, whatever the event says of itself."""
    return lambda event: (
        is_honest(event) and (not publishers or (event.event_id is not None and event.event_id.publisher in publishers))
    )


def _short(purpose: str) -> str:
    """The name under which brokers keep a subscription: the purpose, or of a long one its beginning and a digest."""
    if len(purpose) <= MAX_NAME:
        return purpose
    return f"{purpose[:MAX_NAME]} #{blake2b(purpose.encode(), digest_size=16).hexdigest()}"


def _answer(told: Event) -> Answer:
    fields = told.properties
    views = unpack_views(bytes(told.body)) if told.body else {}
    reason, driver, state = (str(fields.get(name) or "") for name in ("reason", "driver", "state"))
    return Answer("done" if fields.get("answer") == "done" else "refused", reason, driver, state, views)
