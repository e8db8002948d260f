"""What one person sees of an application: its newest field, statistics, state and records, and the talk about it.

One for all pages of the person, so that two pages do not take events from each other. Everything is bounded; a page
that was closed a while ago costs nothing but its subscriptions, until the person signs out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from veena.dashboard.pictures.field import FieldPicture, field_picture
from veena.dashboard.sessions.collaboratory import Feed, Member
from veena.errors import InvalidEvent, NotConnected, VeenaError
from veena.event import Event

MAX_STATISTICS = 300
MAX_MESSAGES = 200
MAX_RECORDS = 200
MAX_ANNOTATIONS = 50
#: Statistics of one application that are drawn.
MAX_NUMBERS = 8
#: An application that said nothing for so long is not there, or in a long step.
SILENT_S = 15.0
AGAIN_S = 2.0

logger = logging.getLogger("veena.dashboard")


@dataclass(frozen=True, slots=True)
class Message:
    at_ns: int
    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Annotation:
    by: str
    text: str
    x: float
    y: float
    step: int | None


@dataclass(slots=True, eq=False)
class Watching:
    """One application, as one person sees it."""

    application: str
    member: Member
    state: str = ""
    driver: str = ""
    step: int = 0
    picture: FieldPicture | None = None
    #: Why the newest field cannot be shown.
    fault: str = ""
    statistics: deque[tuple[int, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=MAX_STATISTICS))
    records: deque[Message] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    messages: deque[Message] = field(default_factory=lambda: deque(maxlen=MAX_MESSAGES))
    annotations: deque[Annotation] = field(default_factory=lambda: deque(maxlen=MAX_ANNOTATIONS))
    #: Each grows when something of its kind has come.
    fields_seen: int = 0
    statistics_seen: int = 0
    records_seen: int = 0
    talk_seen: int = 0
    heard_at: float = 0.0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _feeds: list[Feed] = field(default_factory=list)

    def start(self) -> Watching:
        loop = asyncio.get_running_loop()
        monitor, room = (lambda: self.member.monitor(self.application)), (lambda: self.member.room(self.application))
        self._tasks = [
            loop.create_task(self._take(monitor, self._monitored)),
            loop.create_task(self._take(room, self._talked)),
        ]
        return self

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for feed in self._feeds:
            with suppress(VeenaError):
                await feed.close()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self.heard_at > SILENT_S

    async def _take(self, begin: Callable[[], Awaitable[Feed]], hear: Callable[[Event], None]) -> None:
        while True:
            try:
                feed = await begin()
                if feed not in self._feeds:
                    self._feeds.append(feed)
                while True:
                    hear(await feed.next())
            except NotConnected:
                await asyncio.sleep(AGAIN_S)
            except VeenaError as error:
                self.fault = str(error)
                await asyncio.sleep(AGAIN_S)

    # --- monitoring ---

    def _monitored(self, event: Event) -> None:
        self.heard_at = time.monotonic()
        fields = event.properties
        step = fields.get("step")
        if isinstance(step, int):
            self.step = step
        match event.headers.get("event_name"):
            case "state":
                self.state = str(fields.get("state", ""))
                self.driver = str(fields.get("driver", ""))
            case "statistics":
                numbers = {
                    name: float(value)
                    for name, value in fields.items()
                    if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
                }
                self.statistics.append((self.step, dict(list(numbers.items())[:MAX_NUMBERS])))
                self.statistics_seen += 1
            case "field":
                self._field(event)
            case "record":
                self.records.append(Message(_now_ns(), str(fields.get("by", "")), record_text(event)))
                self.records_seen += 1

    def _field(self, event: Event) -> None:
        fields = event.properties
        try:
            self.picture = field_picture(str(fields.get("dtype")), str(fields.get("shape")), bytes(event.body))
            self.fault = ""
        except InvalidEvent as error:
            self.fault = str(error)
        self.fields_seen += 1

    # --- talk ---

    def _talked(self, event: Event) -> None:
        fields = event.properties
        by, text = _by(event), str(fields.get("text", ""))
        match event.headers.get("event_name"):
            case "message":
                self.messages.append(Message(_now_ns(), by, text))
            case "annotation":
                x, y, step = fields.get("x"), fields.get("y"), fields.get("step")
                if isinstance(x, int | float) and isinstance(y, int | float):
                    at = step if isinstance(step, int) else None
                    self.annotations.append(Annotation(by, text, float(x), float(y), at))
        self.talk_seen += 1


def _by(event: Event) -> str:
    """Who said it, by the brokers' word."""
    return str(event.properties.get("by", "")) if event.event_id is None else event.event_id.publisher


def _now_ns() -> int:
    return time.time_ns()


def record_text(event: Event) -> str:
    """What somebody did at the wheel, such as `steer diffusivity = 0.2`."""
    told = event.properties
    words = str(told.get("action", ""))
    if told.get("parameter"):
        words += f" {told['parameter']!s} = {told.get('value')!s}"
    if told.get("answer") == "refused":
        words += f", refused: {told.get('reason', '')!s}"
    return words


def short(client_id: str) -> str:
    """A person's name out of a client id of the portal's."""
    return client_id.partition("/")[0]
