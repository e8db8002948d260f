"""The store: a broker's log and all else that it must not forget, in one SQLite file (design §7, FLT-05, FLT-07).

It is the peer that the core talks to with `Store` and `Read` (`core.boundary.stored`). Writing is one thread with group
commit (`writer`), reading is another one, so that whoever reads back never waits for a sync. Answers come on
those threads: give an `answer` that hands them to the loop, such as

    Store(path, lambda answers: loop.call_soon_threadsafe(take, answers))

A read that the disk does not answer is tried again, never answered with less than there is: the core would take that
for the end of the log. A read that fails for another reason, such as a number that SQLite cannot compare, is answered
with `ReadFailed`: no single question stops the reading.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS
from veena.core.boundary.inputs_effects import LogRead, Read, ReadFailed, Stored, StoreFailed
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.stored import Disk, Identity, Noted, Write
from veena.core.wire.event import EventCodec
from veena.core.wire.header import MAX_LINK_FRAME
from veena.errors import StoreError
from veena.event import EventId
from veena.runtime.store.audit_records import History, Record, Records, RecordWriter, kept_records
from veena.runtime.store.audit_rows import Auditor
from veena.runtime.store.faults import explained
from veena.runtime.store.file import open_file
from veena.runtime.store.query import MAX_HISTORY, Past, StoreQuery
from veena.runtime.store.repair import faults
from veena.runtime.store.retention import Retention
from veena.runtime.store.trim import Trimmer
from veena.runtime.store.writer import OnTrouble, Writer
from veena.runtime.supervision import Supervisor, shown

#: What the core is given.
Answer = Stored | StoreFailed | LogRead | ReadFailed
#: A file of a gigabyte is looked through in some seconds; a start should not take longer than that.
CHECK_SECONDS = 10.0
#: Before a read that failed is tried again.
RETRY_SECONDS = 1.0
#: Twice the core's default retention: for so long the places of quiet streams are remembered.
REMEMBER_NS = 2 * 3600 * 1_000_000_000
DEFAULT_RETENTION = Retention()
#: What SQLite says of a question that is wrong in itself: asking again does not help.
_OF_THE_READ = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError, sqlite3.NotSupportedError)


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """How a store is doing; `trouble` is None while all is well."""

    stored: int
    failed: int
    commits: int
    waiting: int
    reads: int
    next_offset: int
    needed_from: int
    trimmed: int
    used_bytes: int
    max_bytes: int
    records_lost: int
    #: Reader outside -> (committed offset, entries that were given up before it had them).
    readers: dict[str, tuple[int, int]]
    trouble: str | None


class Store:
    """The store of one broker."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[list[Answer]], None],
        *,
        levels: int = DEFAULT_LEVELS,
        fanout: int = DEFAULT_FANOUT,
        retention: Retention = DEFAULT_RETENTION,
        remember_ns: int = REMEMBER_NS,
        records: Records = "off",
        history: History = "reliable",
        on_trouble: OnTrouble = lambda told: None,
        now_ns: Callable[[], int] = time.time_ns,
        check_seconds: float = CHECK_SECONDS,
        supervisor: Supervisor | None = None,
    ) -> None:
        """Open the file (a directory or a file; made if it is not there), or raise StoreError."""
        #: The records that these settings ask for: who makes one of another kind makes it in vain.
        self.keeps = kept_records(records, history)
        self._notes_kept = records != "off"
        self._now_ns = now_ns
        self._settings = {"records": records, "history": history}
        self._auditor = Auditor(self.keeps)
        self._codec = EventCodec(levels, fanout, MAX_LINK_FRAME)
        self._give = answer
        self._on_trouble = on_trouble
        self._rules = retention
        self._supervisor = supervisor or Supervisor()
        self._file = open_file(path, check_seconds)
        query: StoreQuery | None = None
        try:
            _check_network(self._file.connection, self.path, levels, fanout)
            query = self._query = StoreQuery(self.path, self._codec)
            self._standing = query.standing()
        except (sqlite3.Error, StoreError) as error:
            if query is not None:
                query.close()
            self._file.close()
            raise explained(error, self.path) from error
        record_writer = RecordWriter(
            self._codec, self._standing, history != "none", self._auditor.rows, self._auditor.lost
        )
        self._trimmer = Trimmer(self._standing, retention, history != "none", remember_ns)
        self._writer = Writer(
            self._file, self._codec, self._standing, record_writer, self._trimmer, retention, self._answered,
            self._say, now_ns, self._supervisor,
        )  # fmt: skip
        self._own: dict[int, Future[None]] = {}
        self._own_number = 0
        self._wanted: deque[Read] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._reads = 0
        self._read_trouble: str | None = None
        self._writer.start()
        self._reader = self._supervisor.thread("veena-store-reader", self._run_reads)

    @property
    def path(self) -> Path:
        """The file itself."""
        return self._file.path

    @property
    def is_checked(self) -> bool:
        """Whether the check at the start came to its end in its time; `check` looks at everything."""
        return self._file.is_checked

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what the core asks for ---

    def load(self, default: Identity) -> Disk:
        """What a restart finds; `default` is who a broker is that was never here. Not for the loop.

        A core that is made anew finds the same in a store that is open: everything that was submitted before is written
        first, and nothing may be submitted meanwhile. Raises StoreError where the disk does not take it.
        """
        is_used = self._writer.is_used
        if is_used:
            self.save()
        with closing(StoreQuery(self.path, self._codec)) as query:
            try:
                standing = query.standing() if is_used else self._standing
                disk = query.load(standing, default, notes=self._notes_kept)
                self._standing.last_for_units = standing.last_for_units  # known for certain now
            except sqlite3.Error as error:
                raise explained(error, self.path) from error
        self.record(self._auditor.begins(disk.identity.address, self._now_ns(), self._settings))
        return disk

    def submit(self, effect: StoreEffect | Read) -> None:
        """Take an effect of the core; its answer comes by `answer`."""
        self._check_open()
        if isinstance(effect, StoreEffect):
            noted = [write for write in effect.writes if type(write) is Noted]
            if noted and len(noted) == len(effect.writes) and self._writer.stored:
                # Nobody waits for these: they go along with what comes next, like records. The first answer of all
                # says that the disk knows who this broker is, so it is not given for notes.
                self._writer.note(noted)
                self._hand([Stored(effect.ticket)])
            else:
                self._writer.submit(effect.ticket, effect.writes)
        else:
            with self._changed:
                self._wanted.append(effect)
                self._changed.notify()

    def save(self, *writes: Write) -> None:
        """Write at once and wait for the sync, as at a start for the new incarnation; raise StoreError."""
        self.keep(*writes).result()

    def keep(self, *writes: Write) -> Future[None]:
        """The same without waiting: done when it is synced, on the writer's thread, or failed with StoreError."""
        self._check_open()
        with self._changed:
            self._own_number -= 1
            number = self._own_number
            future = self._own[number] = Future[None]()
        self._writer.submit(number, writes)
        return future

    def _answered(self, answers: list[Stored | StoreFailed]) -> None:
        told: list[Answer] = []
        for each in answers:
            if each.ticket >= 0:
                told.append(each)
                continue
            future = self._own.pop(each.ticket)
            if isinstance(each, Stored):
                future.set_result(None)
            else:
                future.set_exception(StoreError(str(self.path), f"not written: {each.reason}", "then start again"))
        if told:
            self._hand(told)

    def _check_open(self) -> None:
        if self._is_closing:
            raise StoreError(str(self.path), "it is closed", "open it again")

    def _hand(self, answers: list[Answer]) -> None:
        with suppress(RuntimeError):  # the loop that waited is closed: nobody is left to be told
            self._give(answers)

    def _say(self, told: str | None) -> None:
        with suppress(RuntimeError):  # as above
            self._on_trouble(told)

    # --- records ---

    def record(self, records: Sequence[Record]) -> None:
        """Keep those of these that the settings ask for; nobody waits for it."""
        kept = [each for each in records if isinstance(each, self.keeps)]
        if kept:
            self._writer.record(kept)

    def history(
        self, client_id: str, kind: Literal["consumed", "produced"], since_ns: int = 0, limit: int = MAX_HISTORY
    ) -> list[Past]:
        """What a client was handed here, or published here, oldest first (DIS-07). Reads the disk: not for the loop."""
        with closing(StoreQuery(self.path, self._codec)) as query:
            return query.history(client_id, kind, since_ns, limit)

    def delivered(self, event_id: EventId) -> list[tuple[int, tuple[str, ...]]]:
        """When an event was handed to which clients here. Reads the disk: not for the loop."""
        with closing(StoreQuery(self.path, self._codec)) as query:
            return query.delivered(event_id)

    # --- who reads the log from outside ---

    def commit_reader(self, name: str, offset: int) -> None:
        """A reader outside has everything below this offset: age alone takes nothing from it that is above."""
        self._writer.commit_reader(name, offset)

    def forget_reader(self, name: str) -> None:
        """It reads no more."""
        self._writer.commit_reader(name, None)

    def has_records(self, table: str) -> bool:
        """Whether anything was ever written to this table of records."""
        return self._standing.next_number.get(table, 0) > 0

    # --- care ---

    def trim(self) -> None:
        """Give up now what retention allows, rather than within the next seconds."""
        self._writer.trim()

    def check(self) -> list[str]:
        """Everything that is wrong with the file; may take long. Reads the disk: not for the loop."""
        return faults(self.path)

    def statistics(self) -> StoreStatistics:
        standing, writer = self._standing, self._writer
        return StoreStatistics(
            writer.stored,
            writer.failed,
            writer.commits,
            writer.waiting,
            self._reads,
            standing.next_offset,
            self._trimmer.needed_from,
            self._trimmer.trimmed,
            writer.used_bytes,
            self._rules.max_bytes,
            writer.records_lost,
            {name: (committed, standing.lost.get(name, 0)) for name, committed in list(standing.readers.items())},
            writer.trouble or self._read_trouble,
        )

    def close(self) -> None:
        """Write and answer what waits, then let the file go. Reads that wait are not answered any more."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            self._changed.notify()
        self._writer.close()
        self._reader.end()
        self._query.close()
        self._file.close()

    # --- the reading thread ---

    def _run_reads(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._is_closing:
                    self._changed.wait()
                if self._is_closing:
                    return
                wanted = self._wanted.popleft()
            found = self._read(wanted)
            if found is not None:
                self._reads += 1
                self._hand([found])

    def _read(self, wanted: Read) -> LogRead | ReadFailed | None:
        """Read until it can be read; None when the store closes before."""
        while True:
            try:
                entries, begins_ns = self._query.entries(wanted.offset, wanted.limit, wanted.inbox, wanted.since_ns)
            except _OF_THE_READ as error:
                return self._failed(wanted, error)
            except (sqlite3.Error, StoreError) as error:
                self._query.reset()
                told = str(explained(error, self.path))
                if told != self._read_trouble:
                    self._read_trouble = told
                    self._say(told)
                with self._changed:
                    if self._is_closing or self._changed.wait_for(lambda: self._is_closing, RETRY_SECONDS):
                        return None
                continue
            except Exception as error:  # whatever it is, it is about this read alone
                return self._failed(wanted, error)
            if self._read_trouble is not None:
                self._read_trouble = None
                self._say(self._writer.trouble)
            return LogRead(wanted.ticket, entries, begins_ns)

    def _failed(self, wanted: Read, error: Exception) -> ReadFailed:
        self._query.reset()
        self._supervisor.failed("a read of the log failed", error)
        return ReadFailed(wanted.ticket, shown(error))


def _check_network(connection: sqlite3.Connection, path: Path, levels: int, fanout: int) -> None:
    """The frames in a store have the layout of their network."""
    for name, value in (("levels", levels), ("fanout", fanout)):
        connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
        found = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
        if found != value:
            raise StoreError(
                str(path),
                f"made for a network with {name} = {found}, not {value}",
                f"set {name} = {found} again, or give another path to begin with an empty log",
            )
