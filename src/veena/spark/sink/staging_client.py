"""Publishing a batch from many plain programs at once, all of it or nothing, and once: blocking (`core.wire.staging`).

    with StageClient("veena://127.0.0.1:7700", Access(client_id="loader")) as client:
        part = client.part("nightly", batch=7)              # in every task: a part of its own
        part.add(Event(topic="quotes", body=b"..."))
        staged = part.finish()                              # on the broker's disk; nobody sees it yet
        client.publish("nightly", 7, [staged])              # in one place: the whole batch, unless it was published

Every question may be asked again: a connection that is lost, or a broker that is killed and comes back, is waited for
up to `timeout` seconds and then asked once more; what it has already it says so. All of a batch goes to one broker, and
a batch that is tried again must go to the same one: it alone knows what it has published.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from veena.core.wire.codec import encode
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec
from veena.core.wire.staging import (
    MAX_PARTS,
    AskAbandon,
    AskPublish,
    AskPublished,
    AskStage,
    TellPublished,
    TellStaged,
)
from veena.errors import LocalProtocolError, NotConnected, RemoteProtocolError, VeenaError
from veena.event import Event, EventId
from veena.spark.log.connection import Access, LogWire

#: Rows and bytes of one chunk: one write to the broker's disk, large enough that its sync costs little.
CHUNK_ROWS: Final = 1000
CHUNK_BYTES: Final = 1 << 20
#: Chunks that are on their way while the next is made.
CHUNKS_AHEAD: Final = 4
#: Pause before a broker that does not answer is asked again: the first, and the longest.
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 2.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part that is on the broker's disk."""

    name: bytes
    rows: int
    #: Its batch was published before: nothing of it was staged.
    known: bool = False


class Published(NamedTuple):
    """The last batch of a query that is published, and how many rows of it were published now: none the second time."""

    batch: int
    rows: int


class _Chunk(NamedTuple):
    first: int
    rows: int
    data: bytes


class StageClient:
    """One connection to the broker that stages. Not for several threads at once."""

    def __init__(self, url: str, access: Access, timeout: float = 30.0) -> None:
        """All who stage parts of one batch, and who publishes it, have the same `access.client_id`."""
        if not access.client_id:
            access = replace(access, client_id=f"{access.user or 'spark'}/sink")
        self.url = url
        self.access = access
        self._timeout = timeout
        self._wire: LogWire | None = None
        self._codec: EventCodec | None = None

    def __enter__(self) -> StageClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    # --- what is asked ---

    def part(self, query: str, batch: int) -> Part:
        """Begin a part of a batch, under a name that nobody has."""
        return Part(self, query, batch, uuid.uuid4().bytes)

    def publish(self, query: str, batch: int, parts: Sequence[StagedPart], *, lasting: bool = True) -> Published:
        """Make the batch of these parts public, in this order; a batch that was published stays as it is.

        `lasting` when batches of that query may come again for weeks; otherwise its name is forgotten within hours.
        """
        named = tuple((part.name, part.rows) for part in parts if part.rows)
        if len(named) > MAX_PARTS:
            raise LocalProtocolError(f"a batch of {len(named)} parts: at most {MAX_PARTS}; use coalesce() before")
        told = self._ask(lambda number: AskPublish(number, query, batch, named, lasting))
        return Published(told.batch, told.rows)

    def abandon(self, query: str, batch: int) -> None:
        """Forget what is staged for a batch and was not published."""
        self._ask(lambda number: AskAbandon(number, query, batch))

    def published(self, query: str) -> int:
        """The last batch of a query that was published, -1 for none."""
        return self._ask(lambda number: AskPublished(number, query)).batch

    def _ask(self, question: Callable[[int], Frame]) -> TellPublished:
        return self.retried(lambda: self.connected().ask(question, TellPublished))

    # --- the connection ---

    def connected(self) -> LogWire:
        if self._wire is None:
            self._wire = LogWire(self.url, self.access, self._timeout)
        return self._wire

    @property
    def codec(self) -> EventCodec:
        if self._codec is None:
            welcome = self.retried(self.connected).welcome
            self._codec = EventCodec(welcome.levels, welcome.fanout, welcome.max_frame)
        return self._codec

    @property
    def broker(self) -> str:
        """The permanent name of the broker."""
        return self.retried(self.connected).welcome.name

    def retried(self, act: Callable[[], Answer]) -> Answer:
        """Do it until the broker answers; raise NotConnected when it has not for `timeout` seconds."""
        deadline, pause = time.monotonic() + self._timeout, RETRY_S
        while True:
            try:
                return act()
            except NotConnected:
                self.close()
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, RETRY_S_MAX)


class Part:
    """What one task stages."""

    def __init__(self, client: StageClient, query: str, batch: int, name: bytes) -> None:
        self._client = client
        self._query = query
        self._batch = batch
        self.name = name
        self.rows = 0
        #: The batch was published before: whatever is added goes nowhere.
        self.is_known = False
        self._gathered: list[bytes] = []
        self._size = 0
        #: Chunks that are not known to be on disk, oldest first.
        self._open: deque[_Chunk] = deque()
        #: The connection over which they went, and their numbers there.
        self._wire: LogWire | None = None
        self._numbers: deque[int] = deque()

    def add(self, event: Event, *, reliable: bool = True) -> None:
        """One row more; InvalidEvent for what must not be published."""
        if self.is_known:
            return
        codec = self._client.codec
        placeholder = EventId(self._client.access.client_id, 0, 0, self.rows)
        data = codec.encode(codec.frame(event, reliable=reliable, event_id=placeholder), 0)
        self.rows += 1
        self._gathered.append(data)
        self._size += len(data)
        if len(self._gathered) >= CHUNK_ROWS or self._size >= CHUNK_BYTES:
            self._flush()

    def finish(self) -> StagedPart:
        """Wait until all rows are on the broker's disk."""
        if self._gathered:
            self._flush()
        while self._open and not self.is_known:
            self._client.retried(self._settle)
        return StagedPart(self.name, 0 if self.is_known else self.rows, self.is_known)

    def _flush(self) -> None:
        data, self._gathered, self._size = self._gathered, [], 0
        self._open.append(_Chunk(self.rows - len(data), len(data), b"".join(data)))
        self._client.retried(self._send)
        while len(self._open) > CHUNKS_AHEAD and not self.is_known:
            self._client.retried(self._settle)

    def _send(self) -> None:
        """Send what has not gone over this connection yet."""
        wire = self._client.connected()
        if wire is not self._wire:
            self._wire, self._numbers = wire, deque()
        for at in range(len(self._numbers), len(self._open)):
            chunk = self._open[at]
            number = wire.open()
            ask = AskStage(number, self._query, self._batch, self.name, chunk.first, chunk.rows)
            wire.send_bytes(encode(ask, 0) + chunk.data)
            self._numbers.append(number)

    def _settle(self) -> None:
        """Wait for the answer to the oldest chunk."""
        self._send()
        assert self._wire is not None
        try:
            frame = self._wire.wait(self._numbers[0])
        except NotConnected:
            self._wire = None
            raise
        except VeenaError:
            self._open.clear()
            raise
        if not isinstance(frame, TellStaged):
            raise RemoteProtocolError(f"{self._wire.url}: {type(frame).__name__} instead of TellStaged")
        self._wire.close_number(self._numbers.popleft())
        self._open.popleft()
        if frame.known:
            self.is_known = True
            self._gathered.clear()
            self._open.clear()
