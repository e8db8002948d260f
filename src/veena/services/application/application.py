"""A running program on the mesh: its offer, its state, its numbers and fields, and what it does when it is steered.

    async with Application(client, "heat", parameters={"diffusivity": Parameter(0.1, low=0, high=0.25)}) as app:
        while await app.step():                       # between two steps: obeys, waits while paused; False when stopped
            ...
            app.publish_statistics(mean=...)
            app.publish_field(array)

(`veena.collab.application` is the same for a program without asyncio.)

An application is producer and consumer alike (DIS-16, COL-05): it publishes Monitoring events and subscribes to the
Steering events that name it (COL-02). It never waits for the network. What it says best effort is the newest only, at
most one of a kind in `period`; what must not be lost (each change of state, each record of who steered what) waits in
a bounded line while no broker is there. Who steers is the client that the brokers let in, never what an event says of
itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any

import msgspec
import numpy as np

from veena.client.client import Client
from veena.core.wire.header import DECODE_ERRORS, MAX_FRAME
from veena.errors import AccessDenied, InvalidEvent, NotConnected, Refused, VeenaError
from veena.event import Event, Value
from veena.runtime.broker.driver import steady_clock
from veena.services.application.desk import Answer, Command, Desk, Verb
from veena.services.application.parameters import MAX_NAME_LENGTH, Parameter, pack_views
from veena.services.dictionary.dictionary import Dictionary
from veena.services.structured import RELIABILITY, Scalar, StructuredEvent, check_name
from veena.services.trading.federation import ask_mesh
from veena.services.trading.messages import Question
from veena.services.trading.offers import Offer
from veena.services.trading.registry import OFFER_LEASE_S, Registry
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION
from veena.services.wording import quoted

#: Statistics and fields at most so often, and the state so often when it does not change.
PERIOD_S = 0.5
STATE_PERIOD_S = 2.0
LOCK_TIMEOUT_S = 120.0
#: Reliable events that wait for a broker; beyond that the oldest are given up and counted.
MAX_WAITING = 1024
#: Answers that are on their way at once.
MAX_ANSWERING = 256
#: How often to look whether another program of the name has gone.
LOOK_S = 0.5
#: How often to look whether another program has come to have the same name: a network that was parted is whole again.
ALONE_S = 15.0
#: How often to look whether all has been said when the program ends.
POLL_S = 0.005
#: How long the last words may take when the program ends.
GOODBYE_S = 2.0
#: A field has to fit into a frame, with its header.
MAX_FIELD_BYTES = MAX_FRAME - (64 << 10)
#: The values of a change of several parameters, in the remainder.
MAX_VALUES_BYTES = 64 << 10
VERBS: tuple[Verb, ...] = ("query", "change", "take", "release", "hand_over", "here")

logger = logging.getLogger("veena.services")
#: Names and whole numbers that events can carry: what is asked for is told to others, also when it is refused.
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_values = msgspec.json.Decoder(dict[_Name, bool | _Whole | float | str])


@dataclass(frozen=True, slots=True)
class ApplicationStatistics:
    steps: int
    state: str
    driver: str
    published: int
    commands: int
    #: Reliable events that were given up because no broker was there for too long.
    dropped: int
    #: Events that a broker, or the dictionary, did not take; and what was said of the last one.
    refused: int
    fault: str


class Application:
    """One program, as others see it."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        parameters: Mapping[str, Parameter] | None = None,
        category: str = "",
        properties: Mapping[str, Scalar] | None = None,
        dictionary: Dictionary | None = None,
        period: float = PERIOD_S,
        state_period: float = STATE_PERIOD_S,
        lock_timeout: float = LOCK_TIMEOUT_S,
    ) -> None:
        self.client = client
        self.name = check_name("domain_name", name)
        #: The wheel is not taken from a driver because somebody set the clock.
        self._now_ns = steady_clock()
        self.desk = Desk(parameters or {}, round(lock_timeout * 1e9), self._told)
        offered = {**({"category": category} if category else {}), "parameters": list(parameters or ())}
        self._properties: dict[str, Any] = {**(properties or {}), **offered}
        self._registry, self._resolver = Registry(client), Resolver(client)
        self._dictionary = dictionary or Dictionary.standard()
        self._period, self._state_period = max(0.0, period), max(0.01, state_period)
        self.steps = 0
        self._reliable: deque[StructuredEvent] = deque()
        #: The newest of each kind that is not sent yet, and when the next one of it is due.
        self._newest: dict[str, StructuredEvent] = {}
        self._due: dict[str, float] = {}
        self._transitions = self._published = self._commands = self._dropped = self._refused = 0
        self._fault = ""
        #: The last state that was told, and when; whether all that there was to tell has been.
        self._state_told, self._said_state = "", 0.0
        self._is_idle = False
        self._wake, self._news = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    # --- coming and going ---

    async def open(self) -> Application:
        """Be found, and be steered from now on."""
        self._loop = asyncio.get_running_loop()
        wanted = f"$domain_name == {quoted(self.name)} and $type_name == 'Steering'"
        deadline = time.monotonic() + OFFER_LEASE_S + GOODBYE_S
        while True:
            await self._wait_alone(deadline)
            commands = await self.client.subscribe(constraint=wanted, on_event=self._heard)
            await self._registry.export(APPLICATION, self.name, self._properties)
            # Of two that began at once at least the later one sees the other now. Whoever does steps back for a moment.
            if not await self._others(is_offered=True):
                break
            await self._registry.withdraw(self.name)
            await commands.close()
            await asyncio.sleep(2 * LOOK_S * random.random())
        self._sender = self._loop.create_task(self._send_all())
        self._watcher = self._loop.create_task(self._watch_alone())
        return self

    async def _watch_alone(self) -> None:
        """While there is another program of this name neither is steered: a command would reach both."""
        while True:
            await asyncio.sleep(ALONE_S)
            try:
                others = await self._others(is_offered=True)
            except VeenaError:
                continue  # the broker is away: nobody steers either
            was_closed = bool(self.desk.closed)
            self.desk.closed = ""
            if others:
                self.desk.closed = (
                    f"{self.name!r} runs twice, also as client {others[0].client!r} in network {others[0].network}:"
                    " end one of the two where it runs"
                )
            if bool(others) and not was_closed:
                logger.warning("application %s is not steered: %s", self.name, self.desk.closed)

    async def _wait_alone(self, deadline: float) -> None:
        """Two programs of one name would both obey, with a wheel each. The offer of one that died goes: wait for it."""
        while others := await self._others():
            if time.monotonic() > deadline:
                raise Refused(
                    f"application {self.name!r} runs already, as client {others[0].client!r} in network"
                    f" {others[0].network}: end it, or choose another name"
                )
            await asyncio.sleep(LOOK_S)

    async def _others(self, is_offered: bool = False) -> list[Offer]:
        """Offers of this name by others; once it is offered itself, a trader would not look beyond its own domain."""
        same = f"name == {quoted(self.name)}"
        try:
            if is_offered:
                found = await ask_mesh(self.client, Question("alone", APPLICATION, same), "system", GOODBYE_S)
            else:
                found = await self._resolver.find(same, properties=())
        except AccessDenied:
            return []  # who may not ask cannot know
        return [offer for offer in found.offers if offer.client != self.client.client_id]

    async def close(self) -> None:
        """Say what is left to say, and offer nothing any longer."""
        self.settle(self.desk.end())
        self._news.set()
        self._gather()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.gather(*self._answering)
                self._due.clear()
                self._is_idle = False
                while self.client.is_connected and not self._is_idle:
                    self._wake.set()
                    await asyncio.sleep(POLL_S)
                await self._registry.withdraw(self.name)
        except (TimeoutError, VeenaError) as error:
            logger.info("application %s could not say goodbye: %s", self.name, error)
        tasks = [task for task in (self._sender, self._watcher) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = None

    async def __aenter__(self) -> Application:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- the computation ---

    def __getitem__(self, name: str) -> Any:
        """A parameter's value now; it changes between two steps only."""
        return self.desk[name]

    async def step(self) -> bool:
        """Between two steps: obey, and wait while paused; False when the program is to end."""
        while True:
            self._news.clear()
            self.boundary()
            if not self.desk.is_paused or self.desk.is_stopped:
                await asyncio.sleep(0)
                return not self.desk.is_stopped
            await self._news.wait()

    def boundary(self) -> None:
        """Carry out what was asked for, in the thread of the computation."""
        done = self.desk.boundary(self._now_ns())
        if not (self.desk.is_paused or self.desk.is_stopped):
            self.steps += 1
        self.settle_later(done)
        if self.desk.has_news:
            self._wake_sender()

    def publish_statistics(self, *, step: int | None = None, **numbers: object) -> None:
        """Numbers of this step, as properties that constraints can ask for; the newest, at most every `period`."""
        fields = {name: _scalar(name, value) for name, value in numbers.items()}
        self._offer("statistics", {"step": self.steps if step is None else step, **fields})

    def publish_field(self, field: Any, *, step: int | None = None, name: str = "", **numbers: object) -> bool:
        """An array as binary, at most every `period`; whether it was taken. `name` tells fields of a program apart."""
        kind = f"field {name}"
        if time.monotonic() < self._due.get(kind, 0.0):
            return False
        array = np.ascontiguousarray(field)
        if array.dtype.hasobject or array.nbytes > MAX_FIELD_BYTES:
            reason = "its cells are objects" if array.dtype.hasobject else f"{array.nbytes} bytes"
            raise InvalidEvent(
                f"field {name!r} of {self.name!r}: {reason}; give numbers of at most {MAX_FIELD_BYTES} bytes together,"
                " such as every second cell: field[::2, ::2]"
            )
        fields: dict[str, Value] = {
            "step": self.steps if step is None else step,
            "dtype": array.dtype.str,
            "shape": "x".join(map(str, array.shape)),
            **({"field": name} if name else {}),
            **{each: _scalar(each, value) for each, value in numbers.items()},
        }
        self._offer("field", fields, array.tobytes(), kind)
        return True

    def show(self, name: str, value: Scalar) -> None:
        """Set a parameter oneself, such as a read-only one that shows what was found."""
        self.desk.show(name, value)

    def statistics(self) -> ApplicationStatistics:
        state, driver = self.desk.look(self._now_ns())
        return ApplicationStatistics(
            self.steps, state, driver, self._published, self._commands, self._dropped, self._refused, self._fault
        )

    # --- being steered ---

    def _heard(self, event: Event) -> None:
        assert event.event_id is not None
        self._commands += 1
        try:
            command = command_of(event)
        except InvalidEvent as error:
            self._answer(event, self.desk.refuse(str(error), self._now_ns()))
            return
        if command is None:
            return
        answer = self.desk.ask(command, self._now_ns())
        if answer is not None:
            self._answer(event, answer)
        self._wake.set()

    def settle_later(self, done: list[tuple[Command, Answer]]) -> None:
        """The same from any thread."""
        if done and self._loop is not None:
            self._loop.call_soon_threadsafe(self.settle, done)

    def settle(self, done: list[tuple[Command, Answer]]) -> None:
        """Answer what was carried out; in the loop's thread."""
        for command, answer in done:
            if command.event is not None:
                self._answer(command.event, answer)
        self._wake.set()

    def _answer(self, event: Event, answer: Answer) -> None:
        if len(self._answering) >= MAX_ANSWERING or not self.client.is_connected or "reply-to" not in event.headers:
            return  # who asked hears that nobody answered, and asks again
        task = asyncio.get_running_loop().create_task(self._reply(event, answer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, event: Event, answer: Answer) -> None:
        assert event.event_id is not None
        fields: dict[str, Value] = {
            "answer": answer.answer, "by": event.event_id.publisher, "command": event.id, "step": self.steps,
            "driver": answer.driver, "state": answer.state, **({"reason": answer.reason} if answer.reason else {}),
        }  # fmt: skip
        views = pack_views(tuple(answer.parameters.values())) if answer.parameters else b""
        structured = StructuredEvent(self.name, "Steering", "answer", fields, views)
        try:
            told = self._dictionary.check(structured, "application").to_event()
            await self.client.reply(event, body=told.body, properties=told.properties, headers=told.headers)
        except VeenaError as error:
            self._blame(error)

    # --- publishing ---

    def _told(self) -> None:
        """Something waits for the computation; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def _offer(self, name: str, fields: Mapping[str, Value], remainder: bytes = b"", kind: str = "") -> None:
        """Let this be sent when it is due, unless something newer of its kind comes before."""
        event = self._dictionary.check(StructuredEvent(self.name, "Monitoring", name, fields, remainder), "application")
        kind = kind or name
        self._newest[kind] = event
        now = time.monotonic()
        if now >= self._due.get(kind, 0.0):
            if kind.startswith("field"):
                self._due[kind] = now + self._period
            self._wake_sender()

    def _wake_sender(self) -> None:
        """From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def _gather(self) -> None:
        """Line up what happened at the desk."""
        now_ns = self._now_ns()
        states, records = self.desk.untold(now_ns)
        _, driver = self.desk.look(now_ns)
        for state in states:
            self._transitions += 1
            self._state_told = state
            self._line_up("state", self._state_fields(driver), {RELIABILITY: "reliable"})
        for record in records:
            self._line_up("record", {**record.fields(), "step": self.steps}, {})

    def _state_fields(self, driver: str) -> dict[str, Value]:
        """`number` counts the changes, so that who gets a repeated one late can tell."""
        return {"state": self._state_told, "step": self.steps, "driver": driver, "number": self._transitions}

    def _line_up(self, name: str, fields: Mapping[str, Value], qos: Mapping[str, Scalar]) -> None:
        event = self._allowed(StructuredEvent(self.name, "Monitoring", name, fields, qos=qos))
        if event is not None:
            self._reliable.append(event)
        if len(self._reliable) > MAX_WAITING:
            self._reliable.popleft()
            self._dropped += 1

    def _allowed(self, event: StructuredEvent) -> StructuredEvent | None:
        """What the dictionary makes of it; nothing, and a complaint, when it does not allow it."""
        try:
            return self._dictionary.check(event, "application")
        except InvalidEvent as error:
            self._blame(error)
            return None

    async def _send_all(self) -> None:
        while True:
            self._gather()
            while self._reliable:
                await self._send(self._reliable.popleft())
                self._said_state = time.monotonic()
            now = time.monotonic()
            if now >= self._said_state + self._state_period:
                self._said_state = now
                _, driver = self.desk.look(self._now_ns())
                event = self._allowed(StructuredEvent(self.name, "Monitoring", "state", self._state_fields(driver)))
                if event is not None:
                    await self._send(event)
            for kind in list(self._newest):
                if kind.startswith("field"):
                    await self._send(self._newest.pop(kind))
                elif now >= self._due.get(kind, 0.0):
                    self._due[kind] = now + self._period
                    await self._send(self._newest.pop(kind))
            await self._wait()

    async def _wait(self) -> None:
        """Until something is to be sent."""
        due = self._said_state + self._state_period
        for kind in list(self._newest):
            due = min(due, self._due.get(kind, 0.0))
        self._is_idle = not self._newest and not self._reliable
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _send(self, event: StructuredEvent) -> None:
        """Publish it; it waits here while no broker is there."""
        try:
            await self.client.publish_event(event.to_event(), reliable=event.is_reliable)
            self._published += 1
        except NotConnected as error:
            self._blame(error)
            raise  # the client gave up for good: nothing more will be sent
        except VeenaError as error:
            self._blame(error)

    def _blame(self, error: VeenaError) -> None:
        self._refused += 1
        if str(error) != self._fault:
            self._fault = str(error)
            logger.warning("application %s: %s", self.name, error)


def command_of(event: Event) -> Command | None:
    """The command that an event carries; None when it carries none. Raise InvalidEvent when it is no sound one."""
    assert event.event_id is not None
    found = StructuredEvent.from_event(event)
    if found.type != "Steering" or found.name not in VERBS:
        return None
    values: dict[str, Scalar] = {}
    name, value = found.fields.get("parameter"), found.fields.get("value")
    if isinstance(name, str) and isinstance(value, bool | int | float | str):
        values[check_name("parameter", name)] = value
    if found.name == "change" and found.remainder:
        if len(found.remainder) > MAX_VALUES_BYTES:
            raise InvalidEvent(f"a change of {len(found.remainder)} bytes: at most {MAX_VALUES_BYTES}")
        try:
            values = _values.decode(found.remainder)
        except DECODE_ERRORS as error:
            raise InvalidEvent(f'the values of a change: expected JSON such as {{"x": 1}} ({error})') from None
    to = found.fields.get("to")
    to = check_name("to", to) if isinstance(to, str) and to else ""
    return Command(found.name, event.event_id.publisher, values, to, event)


def _scalar(name: str, value: object) -> Value:
    """A number as Python has it; numpy's own are turned into these."""
    found = value.item() if isinstance(value, np.generic) else value
    if not isinstance(found, bool | int | float | str):
        raise InvalidEvent(f"statistic {name!r} is {value!r:.80}: expected a number, a truth or a text")
    return found
