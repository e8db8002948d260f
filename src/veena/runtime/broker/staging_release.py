"""From published batches to the log: chunk by chunk, in order, one at a time (`core.publishing.batch_release`).

Rows are read from the disk when it is their turn, so a batch of a gigabyte costs the memory of one chunk. Where the
core cannot take more at the moment, as it could not from any publisher, the chunk waits and is given again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from veena.core.boundary.inputs_effects import Input
from veena.core.boundary.staging import ReleaseStaged, StagedHeld, StagedReleased, StageEffect
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import HEADER
from veena.errors import VeenaError
from veena.runtime.broker.driver import Driver
from veena.runtime.clients.staging import Part, Staging
from veena.runtime.logging.logs import Log
from veena.runtime.store.faults import explained
from veena.runtime.store.staging import Chunk, PartRow, StagingQuery
from veena.runtime.store.store import Store
from veena.runtime.supervision import Supervisor

#: Before a chunk that could not be taken is given again: at first, and at most.
AGAIN_S, AGAIN_S_MAX = 0.02, 1.0


class Releaser:
    """The one who releases what is published at one broker; it owns `query`."""

    def __init__(
        self,
        staging: Staging,
        query: StagingQuery,
        codec: EventCodec,
        give: Callable[[Input], None],
        log: Log,
        supervisor: Supervisor,
    ) -> None:
        self.staging = self._staging = staging
        self._query = query
        self._codec = codec
        self._give = give
        self._log = log
        self._supervisor = supervisor
        self._queue: deque[Part] = deque(staging.unreleased)
        self._something = asyncio.Event()
        self._answer: asyncio.Future[StageEffect] | None = None
        self._reading = ThreadPoolExecutor(1, "veena-staging")
        self._task: asyncio.Task[None] | None = None
        staging.unreleased = []
        staging.on_published = self._published
        staging.releasing = len(self._queue)

    def start(self) -> None:
        self._staging.start()
        if self._queue:
            self._something.set()
        self._task = self._supervisor.task("publishing of staged batches", self._run)

    async def stop(self) -> None:
        """End where it is: what is not in the log is still staged."""
        self._staging.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._reading.shutdown)
        self._query.close()

    def heard(self, effect: StageEffect) -> None:
        """What became of a chunk that the core was given."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(effect)

    def _published(self, parts: list[Part]) -> None:
        self._queue += parts
        self._staging.releasing = len(self._queue)
        self._something.set()

    async def _run(self) -> None:
        while True:
            self._something.clear()
            while self._queue:
                await self._release(self._queue[0])
                self._queue.popleft()
                self._staging.releasing = len(self._queue)
            await self._something.wait()

    async def _release(self, part: Part) -> None:
        """All that is left of a part."""
        loop = asyncio.get_running_loop()
        delay = AGAIN_S
        while True:
            try:
                chunk = await loop.run_in_executor(self._reading, self._query.chunk, part.row.part)
                if chunk is None:
                    self._staging.emptied(part)
                    return
                frames = frames_of(self._codec, part.row, chunk)
            except sqlite3.Error as error:
                self._staging.held = f"the disk does not give back what was staged: {error}"
                await asyncio.sleep(AGAIN_S_MAX)
                continue
            except VeenaError as error:
                # A damaged row must not keep those behind it; `veena broker check` shows it, and can give it up.
                self._log.error("staged rows cannot be read and are left where they are", reason=str(error))
                return
            effect = await self._offer(ReleaseStaged(part.row.part, chunk.first, chunk.last, frames))
            if isinstance(effect, StagedReleased):
                self._staging.released(part, chunk.rows, len(chunk.data))
                self._staging.held, delay = "", AGAIN_S
                if chunk.last:
                    return
            elif isinstance(effect, StagedHeld):
                self._staging.held = effect.reason
                await asyncio.sleep(delay)
                delay = min(2 * delay, AGAIN_S_MAX)

    async def _offer(self, given: ReleaseStaged) -> StageEffect:
        self._answer = asyncio.get_running_loop().create_future()
        self._give(given)
        return await self._answer


async def open_staging(
    store: Store, driver: Driver, codec: EventCodec, *, max_bytes: int, patience_ns: int, log: Log
) -> Releaser:
    """What a broker stages, with what its disk has of it."""

    def read() -> tuple[StagingQuery, Staging]:
        query = StagingQuery(store.path)
        try:
            found = query.parts(), query.queries()
        except sqlite3.Error as error:
            query.close()
            raise explained(error, store.path) from error
        return query, Staging(store, *found, max_bytes=max_bytes, patience_ns=patience_ns, log=log)

    query, staging = await asyncio.to_thread(read)
    releaser = Releaser(staging, query, codec, driver.give, log, driver.supervisor)
    driver.on_staged = releaser.heard
    return releaser


def frames_of(codec: EventCodec, part: PartRow, chunk: Chunk) -> tuple[EventFrame, ...]:
    """The events of a chunk, with the ids that they have for good."""
    found: list[EventFrame] = []
    offset, sequence = 0, part.sequence + chunk.first
    while offset < len(chunk.data):
        length, _, _, flags, _ = HEADER.unpack_from(chunk.data, offset)
        frame = codec.decode(chunk.data, offset, length, flags)
        frame.incarnation, frame.timestamp, frame.sequence = part.incarnation, part.stamp, sequence
        found.append(frame)
        offset += length
        sequence += 1
    return tuple(found)
