"""What a client asks and waits for: requests, queries, advertisements, and whether anybody wants its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from veena.address import Address, Unit
from veena.client.explain import PastQuestions
from veena.core.boundary.discovery import Scalar
from veena.core.sessions.requests import CORRELATION
from veena.core.wire.client import (
    AskAdvertise,
    FoundRow,
    TellAdvertised,
    TellAdvertRefused,
    TellAnswer,
    TellRefused,
    TellUnanswered,
    TellWanted,
)
from veena.core.wire.event import EventFrame
from veena.core.wire.header import DECODE_ERRORS
from veena.errors import NotConnected, RemoteProtocolError, TimedOut, Unanswered, VeenaError, refusal
from veena.event import Event

#: Rows of one answer that are gathered: more than any broker sends.
MAX_ROWS = 1 << 17
T = TypeVar("T")

_values = msgspec.msgpack.Decoder(tuple[bool | int | float | str | None, ...])
_properties = msgspec.msgpack.Decoder(dict[str, bool | int | float | str])


@dataclass(frozen=True, slots=True)
class Found:
    """One advertisement of an answer; what the query did not ask for is None."""

    client: str
    name: str
    home: Address
    values: tuple[Scalar | None, ...] | None = None
    properties: Mapping[str, Scalar] | None = None
    xml: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to a query: each advertisement once, in the order that was asked for, else by client and name."""

    columns: tuple[str, ...]
    rows: tuple[Found, ...]
    #: How many advertisements match, as far as units answered.
    matched: int
    #: Units whose advertisements are missing, because nobody in them answered in time.
    silent: tuple[Unit, ...]
    truncated: bool
    #: Advertisements on whose documents an XPath costs more than brokers spend on one: they may match or not. Name the
    #: elements on the way instead of `//` and `*`, or ask for less in a predicate.
    undecided: int = 0

    @property
    def complete(self) -> bool:
        return not self.silent and not self.truncated and not self.undecided

    def __iter__(self) -> Iterator[Found]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True, eq=False)
class _Request:
    future: asyncio.Future[list[Event]]
    waited_for: int
    answers: list[Event] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Query:
    future: asyncio.Future[QueryAnswer]
    rows: list[Found] = field(default_factory=list)


class Watch:
    """Whether anybody wants events like the one that was shown (quench)."""

    def __init__(self, questions: Questions, number: int, sample: Event) -> None:
        self._questions = questions
        self.number = number
        self.sample = sample
        #: None until the broker has said.
        self.wanted: bool | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._error: VeenaError | None = None

    async def changed(self, timeout: float | None = None) -> bool:
        """Wait for the next time that the answer changes; the answer."""
        self._check_open()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise TimedOut(f"nothing changed for watch {self.number} within {timeout} seconds") from None
        self._check_open()
        return bool(self.wanted)

    def _check_open(self) -> None:
        # A method of its own: between two tests in one, the compiler takes the first one's word for it.
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        self._questions.unwatch(self)
        self.ended(NotConnected(f"watch {self.number} is closed"))

    def told(self, wanted: bool) -> None:
        if wanted is not self.wanted:
            self.wanted = wanted
            self._wake()

    def ended(self, error: VeenaError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class Questions:
    """What one client waits for."""

    def __init__(self) -> None:
        self._requests: dict[int, _Request] = {}
        self._queries: dict[int, _Query] = {}
        self._adverts: dict[str, deque[asyncio.Future[None]]] = {}
        self.watches: dict[int, Watch] = {}
        #: What stands at the broker, to be said again at the next one.
        self.standing: dict[str, AskAdvertise] = {}
        #: Questions about the past of events and about the broker.
        self.past = PastQuestions()
        #: Called with the number of a watch that is over.
        self.on_unwatch = _nothing

    # --- asking ---

    def request(self, number: int, answers: int) -> asyncio.Future[list[Event]]:
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(future, answers)
        return future

    def query(self, number: int) -> asyncio.Future[QueryAnswer]:
        future: asyncio.Future[QueryAnswer] = asyncio.get_running_loop().create_future()
        self._queries[number] = _Query(future)
        return future

    def advert(self, name: str) -> asyncio.Future[None]:
        """The next word on an advertisement; answers come in the order of what was asked."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._adverts.setdefault(name, deque()).append(future)
        return future

    def unwatch(self, watch: Watch) -> None:
        if self.watches.pop(watch.number, None) is not None:
            self.on_unwatch(watch.number)

    # --- hearing ---

    def hear_reply(self, frame: EventFrame, reply_to: str) -> bool:
        """Whether an event answers a request of this client."""
        section = frame.section
        number = section.headers.get(CORRELATION)
        found = self._requests.get(number) if isinstance(number, int) and reply_to in section.to else None
        if found is None:
            return reply_to in section.to  # too late: of no use to anybody
        found.answers.append(frame.event())
        if len(found.answers) >= found.waited_for:
            assert isinstance(number, int)
            del self._requests[number]
            _resolve(found.future, found.answers)
        return True

    def hear_unanswered(self, frame: TellUnanswered) -> None:
        found = self._requests.pop(frame.number, None)
        if found is None:
            return
        if found.answers:
            _resolve(found.future, found.answers)
        else:
            _fail(found.future, Unanswered(f"request {frame.number}: {frame.reason}", code=frame.why))

    def hear_answer(self, frame: TellAnswer) -> None:
        found = self._queries.get(frame.number)
        if found is None:
            return
        found.rows += map(_found, frame.rows)
        if len(found.rows) > MAX_ROWS:
            raise RemoteProtocolError(f"answer to query {frame.number} of more than {MAX_ROWS} rows")
        if not frame.more:
            del self._queries[frame.number]
            rows = tuple(found.rows)
            answer = QueryAnswer(frame.columns, rows, frame.matched, frame.silent, frame.truncated, frame.undecided)
            _resolve(found.future, answer)

    def hear_advert(self, frame: TellAdvertised | TellAdvertRefused) -> None:
        waiting = self._adverts.get(frame.name)
        if waiting is None:
            return
        future = waiting.popleft()
        if not waiting:
            del self._adverts[frame.name]
        if isinstance(frame, TellAdvertised):
            _resolve(future, None)
        else:
            _fail(future, refusal(frame.why, frame.reason))

    def hear_refused(self, frame: TellRefused) -> None:
        error = refusal(frame.why, frame.reason)
        request = self._requests.pop(frame.number, None)
        if request is not None:
            _fail(request.future, error)
        query = self._queries.pop(frame.number, None)
        if query is not None:
            _fail(query.future, error)
        self.past.hear_refused(frame.number, error)
        watch = self.watches.pop(frame.number, None)
        if watch is not None:
            watch.ended(error)

    def hear_wanted(self, frame: TellWanted) -> None:
        watch = self.watches.get(frame.number)
        if watch is not None:
            watch.told(frame.wanted)

    def detached(self, reason: str) -> None:
        """The connection is gone, and with it what was asked over it."""
        for request in self._requests.values():
            if request.answers:
                _resolve(request.future, request.answers)
            else:
                _fail(request.future, Unanswered(f"the connection was lost ({reason}): ask again"))
        for query in self._queries.values():
            _fail(query.future, NotConnected(f"the connection was lost ({reason}): ask again"))
        for waiting in self._adverts.values():
            for future in waiting:
                _fail(future, NotConnected(f"the connection was lost ({reason})"))
        self.past.detached(reason)
        self._requests.clear()
        self._queries.clear()
        self._adverts.clear()

    def close(self, error: VeenaError) -> None:
        self.detached(str(error))
        for watch in self.watches.values():
            watch.ended(error)
        self.watches.clear()


def _nothing(number: int) -> None: ...


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: VeenaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # who waited may have gone


def _found(row: FoundRow) -> Found:
    try:
        values = _values.decode(row.values) if row.values else None
        properties = _properties.decode(row.properties) if row.properties else None
        xml = (str(row.xml, "utf-8") if row.is_text else row.xml) if row.xml else None
    except DECODE_ERRORS as error:
        raise RemoteProtocolError(f"advertisement {row.name!r} of an answer: {error}") from None
    return Found(row.client, row.name, row.home, values, properties, xml)
