"""A broker's tables for readers outside: who reads what, how much of it is on its way, what is counted (design §7, §8).

    conversation --> LogService (loop) --> jobs --> threads, a connection each --> frames --> loop --> conversation

A read is served a block at a time, in turn with all other reads, and only while its reader has room for blocks: so many
readers share the threads fairly, and one that stops costs nothing but its entry here. The loop only hands finished
bytes to the stream. Live delivery therefore goes on while somebody reads.

Rights: `events` needs none by itself, every event is tested as at its delivery (`export.row_filter`). The other tables
say who wanted and got what, so they need `log`, as does committing, which decides what the broker keeps.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from veena.core.wire.codec import encode
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec
from veena.core.wire.header import MAX_LINK_FRAME
from veena.core.wire.log_tables import (
    COLUMNS,
    AskBrokers,
    AskLogAt,
    AskLogCommit,
    AskLogEnds,
    AskLogMore,
    AskLogRead,
    BrokerPlace,
    LogTest,
    TellBrokers,
    TellCommitted,
    TellGap,
    TellLogAt,
    TellLogEnds,
)
from veena.errors import InvalidConstraint, RefusalCode, StoreError
from veena.runtime.clients.conversation import Conversation
from veena.runtime.export.columns import block_frames
from veena.runtime.export.reader import Gap, LogReading, Wanted
from veena.runtime.export.row_filter import TESTED, Sieve
from veena.runtime.logging.logs import Log
from veena.runtime.store.audit_records import Delivery, Hop, ProfileChange
from veena.runtime.store.faults import explained
from veena.runtime.store.positions import reader_name, table_of_reader
from veena.runtime.store.store import Store
from veena.runtime.supervision import Supervisor, WatchedThread

#: Two, so that a long block of one reader does not hold up a short question of another. More gain nothing: they share
#: the interpreter's lock.
THREADS: Final = 2
#: Reads that are open at once, of everybody and of one conversation.
MAX_READS: Final = 128
MAX_READS_EACH: Final = 16
#: The same of one user, over all of its connections.
MAX_READS_OF_USER: Final = 64
#: Bytes that wait for a reader to take them, above which no block is made for it: so a reader that does not read holds
#: this and one block for each thread, whatever it asked for.
ROOM_BYTES: Final = 1 << 20
#: Questions of one conversation that wait for a thread.
MAX_QUESTIONS_EACH: Final = 64
#: The same of one user, over all of its connections.
MAX_QUESTIONS_OF_USER: Final = 256
#: A read that nobody has asked on for so long gives up its place when it is needed.
IDLE_S: Final = 60.0
#: Readers that are counted by name; the rest are counted together.
MAX_COUNTED: Final = 256
OTHERS: Final = "(others)"
#: Readers whose place is remembered: each holds up retention.
MAX_READERS: Final = 1000

_EVENTS: Final = ("events", "passed")
_RECORDS: Final = {"deliveries": Delivery, "hops": Hop, "profiles": ProfileChange}


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """What one reader got since the start."""

    blocks: int = 0
    rows_looked: int = 0
    rows_sent: int = 0
    bytes_sent: int = 0

    def plus(self, blocks: int, looked: int, sent: int, size: int) -> ReaderStatistics:
        return ReaderStatistics(
            self.blocks + blocks, self.rows_looked + looked, self.rows_sent + sent, self.bytes_sent + size
        )


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """How much is read from outside."""

    #: Reads that are open now.
    reads: int
    total: ReaderStatistics
    #: By the first part of the reader's client id.
    readers: dict[str, ReaderStatistics]
    #: Reads that met a gap, and that failed for the disk.
    gaps: int
    failed: int


@dataclass(slots=True, eq=False)
class _Read:
    """A range that somebody reads."""

    who: Conversation
    number: int
    wanted: Wanted
    cursor: int
    end: int
    credit: int
    asked_at: float
    is_busy: bool = False
    is_over: bool = False


@dataclass(slots=True)
class _Reader:
    """What one conversation has open."""

    reads: dict[int, _Read] = field(default_factory=dict)
    questions: int = 0


class _Job(NamedTuple):
    """Work for a thread, and what to do on the loop when it cannot be done."""

    #: On a thread; what it returns is called on the loop.
    run: Callable[[LogReading], Callable[[], None]]
    failed: Callable[[Exception], None]


class LogService:
    """The tables of one broker. Everything but the jobs is done on the loop."""

    def __init__(
        self,
        store: Store,
        codec: EventCodec,
        places: Callable[[], Sequence[BrokerPlace]] = lambda: (),
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._store = store
        self._codec = EventCodec(codec.levels, codec.fanout, MAX_LINK_FRAME)
        self._places = places
        self._log = log or Log()
        self._clock = clock
        self._supervisor = supervisor or Supervisor(self._log.failure)
        self._readers: dict[int, _Reader] = {}
        self._reads: dict[_Read, None] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[WatchedThread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._total = ReaderStatistics()
        #: Questions of each user that wait for a thread.
        self._asked: Counter[str] = Counter()
        self._counted: dict[str, ReaderStatistics] = {}
        self._gaps = self._failed = 0

    # --- what readers ask ---

    def ends(self, who: Conversation, frame: AskLogEnds) -> None:
        if self._may_see(who, frame.number, frame.table):
            readers = self._store.statistics().readers
            records = None if frame.table == "events" else frame.table
            lost = sum(lost for name, (_, lost) in readers.items() if table_of_reader(name) == records)

            def job(reading: LogReading) -> bytes:
                first, following = reading.ends(frame.table)
                return encode(TellLogEnds(frame.number, first, following, lost), 0)

            self._question(who, frame.number, job)

    def offset_at(self, who: Conversation, frame: AskLogAt) -> None:
        if self._may_see(who, frame.number, frame.table):
            answer = lambda reading: encode(TellLogAt(frame.number, reading.offset_at(frame.table, frame.at_ns)), 0)  # noqa: E731
            self._question(who, frame.number, answer)

    def read(self, who: Conversation, frame: AskLogRead) -> None:
        if not self._may_see(who, frame.number, frame.table):
            return
        reader = self._reader(who)
        fault = _fault(frame)
        if fault is not None or frame.number in reader.reads:
            who.refuse(
                frame.number, RefusalCode.INVALID, fault or f"read {frame.number} is open already: use another number"
            )
            return
        if len(reader.reads) >= MAX_READS_EACH:
            who.refuse(
                frame.number, RefusalCode.LIMIT, f"{len(reader.reads)} reads of this client are open: end one first"
            )
            return
        mine = sum(each.who.principal_name == who.principal_name for each in self._reads)
        if mine >= MAX_READS_OF_USER:
            reason = f"{mine} reads of user {who.principal_name!r} are open here: end one first"
            who.refuse(frame.number, RefusalCode.LIMIT, reason)
            return
        if not self._has_room():
            who.refuse(frame.number, RefusalCode.BUSY, f"{len(self._reads)} reads are open here: ask again in a moment")
            return
        try:
            sieve = Sieve(
                self._codec, frame.topic, frame.selector, frame.tests, who.rights, who.client_id, who.clearances
            )
        except InvalidConstraint as error:
            who.refuse(frame.number, RefusalCode.INVALID, f"selector of read {frame.number}: {error}")
            return
        wanted = Wanted(frame.table, frame.columns, sieve, frame.tests, frame.max_rows, frame.max_bytes)
        read = _Read(who, frame.number, wanted, frame.start, frame.end, frame.blocks, self._clock())
        reader.reads[frame.number] = read
        self._reads[read] = None
        self._go_on(read)

    def more(self, who: Conversation, frame: AskLogMore) -> None:
        read = self._reader(who).reads.get(frame.number)
        if read is None:  # it ended while this was on its way
            return
        if not frame.blocks:
            self._over(read)
            return
        read.credit = min(read.credit + frame.blocks, 1 << 16)
        read.asked_at = self._clock()
        self._go_on(read)

    def commit(self, who: Conversation, frame: AskLogCommit) -> None:
        if who.rights is not None and not who.rights.allows("log"):
            reason = f"the rights of {who.principal_name!r} do not allow to say what is kept of the log: allow 'log'"
            who.refuse(frame.number, RefusalCode.DENIED, reason)
            return
        name = frame.reader if frame.table == "events" else reader_name(frame.table, frame.reader)
        if frame.table == "events" and table_of_reader(name) is not None:
            reason = f"reader {name!r}: names that begin like that are a table's own; choose another"
            who.refuse(frame.number, RefusalCode.INVALID, reason)
            return
        readers = self._store.statistics().readers
        if frame.over:
            self._store.forget_reader(name)
        elif name not in readers and len(readers) >= MAX_READERS:
            reason = f"{len(readers)} readers have committed already: end one that reads no more"
            who.refuse(frame.number, RefusalCode.LIMIT, reason)
            return
        else:
            self._store.commit_reader(name, frame.offset)
        who.say(TellCommitted(frame.number, readers.get(name, (0, 0))[1]))

    def brokers(self, who: Conversation, frame: AskBrokers) -> None:
        who.say(TellBrokers(frame.number, tuple(self._places())))

    def ask(self, who: Conversation, frame: Any) -> None:
        """Deal with a reader's question."""
        READER_ASKS[type(frame)](self, who, frame)

    def is_reading(self, who: Conversation) -> bool:
        """Whether blocks may be on their way to it."""
        reader = self._readers.get(who.key)
        return reader is not None and bool(reader.reads)

    def cleared(self, who: Conversation) -> None:
        """A conversation has room again."""
        reader = self._readers.get(who.key)
        for read in list(reader.reads.values()) if reader is not None else ():
            self._go_on(read)

    def left(self, who: Conversation) -> None:
        """A conversation is over, and whatever it read."""
        reader = self._readers.pop(who.key, None)
        for read in list(reader.reads.values()) if reader is not None else ():
            self._over(read)

    def judged(self, who: Conversation) -> None:
        """The rights of a reader changed: what it reads it has to ask for again."""
        reader = self._readers.get(who.key)
        for read in list(reader.reads.values()) if reader is not None else ():
            self._over(read)
            who.refuse(read.number, RefusalCode.BUSY, f"the rights of {who.principal_name!r} changed: read on")

    # --- whether ---

    def _may_see(self, who: Conversation, number: int, table: str) -> bool:
        if table in _EVENTS:
            return True
        if who.rights is not None and not who.rights.allows("log"):
            reason = f"the rights of {who.principal_name!r} do not allow to read {table}, which tell of all clients"
            who.refuse(number, RefusalCode.DENIED, f"{reason}: allow 'log'")
            return False
        if _RECORDS[table] not in self._store.keeps and not self._store.has_records(table):
            needed = '"deliveries" or "all"' if table == "deliveries" else '"all"'
            reason = f"this broker keeps no {table}: set records = {needed} in [store] of its configuration"
            who.refuse(number, RefusalCode.INVALID, f"{reason}, then start it again")
            return False
        return True

    def _has_room(self) -> bool:
        """Whether one more read can be opened; who has not asked on for longest has to go for it."""
        if len(self._reads) < MAX_READS:
            return True
        oldest = min(self._reads, key=lambda read: read.asked_at)
        if oldest.credit or self._clock() - oldest.asked_at < IDLE_S:
            return False
        oldest.who.refuse(
            oldest.number, RefusalCode.BUSY, f"nothing more was asked of this read for {IDLE_S:g} seconds: read on"
        )
        self._over(oldest)
        return True

    def _reader(self, who: Conversation) -> _Reader:
        return self._readers.setdefault(who.key, _Reader())

    # --- jobs ---

    def _question(self, who: Conversation, number: int, answer: Callable[[LogReading], bytes]) -> None:
        reader, user = self._reader(who), who.principal_name
        if self._asked[user] >= MAX_QUESTIONS_OF_USER:
            reason = f"{self._asked[user]} questions of user {user!r} wait for an answer: wait for some of them"
            who.refuse(number, RefusalCode.LIMIT, reason)
            return
        if reader.questions >= MAX_QUESTIONS_EACH:
            who.refuse(
                number, RefusalCode.LIMIT, f"{reader.questions} questions wait for an answer: wait for some of them"
            )
            return
        reader.questions += 1
        self._asked[user] += 1

        def done() -> None:
            reader.questions -= 1
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user]

        def run(reading: LogReading) -> Callable[[], None]:
            data = answer(reading)
            return lambda: told(data)

        def told(data: bytes) -> None:
            done()
            who.say_bytes([data])

        def failed(error: Exception) -> None:
            done()
            self._fail(who, number, error)

        self._submit(_Job(run, failed))

    def _go_on(self, read: _Read) -> None:
        if read.credit and not read.is_busy and not read.is_over and read.who.stream.waiting <= ROOM_BYTES:
            read.is_busy = True
            self._submit(
                _Job(lambda reading: self._next_block(reading, read), lambda error: self._read_failed(read, error))
            )

    def _next_block(self, reading: LogReading, read: _Read) -> Callable[[], None]:
        """On a thread."""
        if read.is_over:
            return lambda: None
        found = reading.block(read.wanted, read.cursor, read.end)
        if isinstance(found, Gap):
            return lambda: self._met_gap(read, found)
        frames = block_frames(read.number, found)
        size = sum(map(len, frames))

        def told() -> None:
            read.is_busy = False
            read.cursor = found.next
            read.credit -= 1
            if read.is_over:
                return
            self._count(read.who.client_id, found.looked, found.rows, size)
            read.who.say_bytes(frames)
            if found.last:
                self._over(read)
            else:
                self._go_on(read)

        return told

    def _met_gap(self, read: _Read, gap: Gap) -> None:
        if not read.is_over:
            self._gaps += 1
            read.who.say(TellGap(read.number, gap.asked, gap.first))
            self._over(read)

    def _read_failed(self, read: _Read, error: Exception) -> None:
        if not read.is_over:
            self._fail(read.who, read.number, error)
            self._over(read)

    def _fail(self, who: Conversation, number: int, error: Exception) -> None:
        self._failed += 1
        if isinstance(error, StoreError | sqlite3.Error | OSError):
            who.refuse(number, RefusalCode.STORE, str(explained(error, self._store.path)))
        else:
            self._log.failure("a reader's question failed", error)
            who.refuse(number, RefusalCode.STORE, f"the broker failed to read it ({type(error).__name__}): see its log")

    def _over(self, read: _Read) -> None:
        read.is_over = True
        self._reads.pop(read, None)
        reader = self._readers.get(read.who.key)
        if reader is not None:
            reader.reads.pop(read.number, None)

    # --- threads ---

    def _submit(self, job: _Job) -> None:
        if self._is_closed:
            return
        if not self._threads:
            self._loop = asyncio.get_running_loop()
            self._threads = [self._supervisor.thread(f"veena-log-{number}", self._run) for number in range(THREADS)]
        self._jobs.put(job)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        reading: LogReading | None = None
        try:
            while True:
                job = self._jobs.get()
                if job is None or self._is_closed:
                    return
                try:
                    if reading is None:
                        reading = LogReading(self._store.path, self._codec)
                    told = job.run(reading)
                except Exception as error:  # the thread must live on: whoever waits is told what happened
                    told = partial(job.failed, error)
                    if reading is not None:
                        reading.close()
                        reading = None
                with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                    loop.call_soon_threadsafe(told)
        finally:
            if reading is not None:
                reading.close()

    def close(self) -> None:
        """Answer nobody any more. Waits for the threads: not for the loop."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.end()

    # --- counting ---

    def _count(self, client_id: str, looked: int, sent: int, size: int) -> None:
        self._total = self._total.plus(1, looked, sent, size)
        name = client_id.partition("/")[0]
        if name not in self._counted and len(self._counted) >= MAX_COUNTED:
            name = OTHERS
        self._counted[name] = self._counted.get(name, ReaderStatistics()).plus(1, looked, sent, size)

    def statistics(self) -> LogStatistics:
        return LogStatistics(len(self._reads), self._total, dict(self._counted), self._gaps, self._failed)


def _fault(frame: AskLogRead) -> str | None:
    """What is wrong with a read in itself."""
    known = COLUMNS[frame.table]
    for name in frame.columns:
        if name not in known:
            return f"column {name!r} of {frame.table}: there are {', '.join(known)}"
    if len(set(frame.columns)) != len(frame.columns):
        return f"columns {', '.join(frame.columns)}: name each once"
    if frame.start > frame.end:
        return f"range {frame.start} to {frame.end}: the end lies before the start"
    if frame.table not in _EVENTS and (frame.topic or frame.selector):
        return f"topic and selector are tests of events, not of {frame.table}: leave them out"
    tested = TESTED if frame.table in _EVENTS else tuple(known)
    return next((fault for test in frame.tests if (fault := _test_fault(frame.table, test, tested))), None)


def _test_fault(table: str, test: LogTest, tested: Sequence[str]) -> str | None:
    if test.column not in tested:
        return f"test of column {test.column!r} of {table}: those that can be tested are {', '.join(tested)}"
    is_number = COLUMNS[table].get(test.column, "number") == "number"
    if not (test.numbers if is_number else test.texts) or (test.texts if is_number else test.numbers):
        return f"test of column {test.column!r}: give {'numbers' if is_number else 'texts'}, and nothing else"
    return None


READER_ASKS: Final[dict[type[Frame], Callable[[LogService, Conversation, Any], None]]] = {
    AskLogEnds: LogService.ends,
    AskLogAt: LogService.offset_at,
    AskLogRead: LogService.read,
    AskLogMore: LogService.more,
    AskLogCommit: LogService.commit,
    AskBrokers: LogService.brokers,
}
