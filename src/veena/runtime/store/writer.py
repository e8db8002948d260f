"""The writing side of a store: one thread, and one transaction for everything that waits when it begins.

While one commit is synced the next ones gather; so a slow disk makes larger transactions, not a longer queue. Tickets
are answered in their order, after the sync. A transaction that fails is tried again ticket by ticket, so that one bad
write, or one that is too large for what is left of the disk, takes nobody else with it.

Of a ticket that failed nothing is kept but the latest *state* (who the broker is, how far everybody is, which durable
subscriptions there are, what is advertised): the core goes on with that in memory whatever the disk does, so it goes
along with the next transaction that succeeds. Events never do: their publishers were told that they were not taken.

An exception that ends the thread ends the broker: what the last transaction left cannot be known here, but it is whole
on the disk. Whoever waits is answered `StoreFailed`.

The invariant: what was answered `Stored` is synced, whole; what was answered `StoreFailed` left no event. Notes alone
(`Noted`) and signs of life (`Attended`) are not synced: nobody waits for them.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from veena.core.boundary.inputs_effects import Stored, StoreFailed
from veena.core.boundary.staging import Staged
from veena.core.boundary.stored import (
    Entries,
    Entry,
    Forgotten,
    Identity,
    Kept,
    Known,
    Noted,
    Progress,
    Reached,
    Registered,
    ShelfKey,
    Shelved,
    Unshelved,
    Write,
)
from veena.core.wire.event import BACKLOG, EventCodec
from veena.runtime.store.audit_records import Record, RecordWriter
from veena.runtime.store.faults import explained, is_final
from veena.runtime.store.file import StoreFile
from veena.runtime.store.positions import Standing
from veena.runtime.store.retention import TRIM_AT, Retention, refusal
from veena.runtime.store.rows import STATE, UNSYNCED, Batch
from veena.runtime.store.trim import ROWS, Trimmer, used_bytes
from veena.runtime.supervision import Supervisor, WatchedThread, shown

#: One transaction: enough to make the sync cheap, little enough to be done in tens of milliseconds.
GROUP_WRITES = 10_000
GROUP_BYTES = 16 << 20
#: What waits for the disk; the core holds back its publishers long before.
MAX_WAITING = 200_000
MAX_WAITING_BYTES = 512 << 20
MAX_RECORDS = 100_000
#: Notes that wait for the disk: beyond this they are given up and counted, whatever they came along with.
MAX_NOTES = 500_000
#: How long records wait for a transaction to go along with, and notes: what a crash loses of these at most. So short
#: that hardly an answer is lost, so long that a busy broker writes many at once.
RECORD_SECONDS = 0.5
NOTE_SECONDS = 0.02
TRIM_SECONDS = 5.0
#: How often a disk that failed is tried when nobody writes.
RETRY_SECONDS = 1.0
#: After so many tickets in a row that the disk did not take, the rest of a group is not tried.
MAX_TRIES = 3
#: The size of the file is asked for after so many bytes.
MEASURE_BYTES = 256 << 10

Answer = Stored | StoreFailed
#: Something that went wrong, in words for a log; None when it is over.
OnTrouble = Callable[[str | None], None]


@dataclass(slots=True)
class Ticket:
    """Writes that wait; `refused` when they came too many at once."""

    number: int
    writes: Sequence[Write]
    size: int
    refused: str | None = None
    #: What was noted for explaining, with the signs of life.
    notes: int = 0


class Writer:
    """The thread that writes one file."""

    def __init__(
        self,
        file: StoreFile,
        codec: EventCodec,
        standing: Standing,
        records: RecordWriter,
        trimmer: Trimmer,
        rules: Retention,
        answer: Callable[[list[Answer]], None],
        on_trouble: OnTrouble,
        now_ns: Callable[[], int],
        supervisor: Supervisor,
    ) -> None:
        self._file = file
        self._connection = file.connection
        self._codec = codec
        self._standing = standing
        self._record_writer = records
        self._trimmer = trimmer
        self._rules = rules
        self._answer = answer
        self._on_trouble = on_trouble
        self._now_ns = now_ns
        self._supervisor = supervisor
        self._changed = threading.Condition()
        self._waiting: list[Ticket] = []
        self._waiting_bytes = 0
        self._records: list[Record] = []
        self._waiting_notes = 0
        self._readers: dict[str, int | None] = {}
        #: Of these what a transaction that failed leaves to the next one.
        self._late_readers: dict[str, int | None] = {}
        self._is_closing = False
        #: The latest state that failed transactions leave to the next one, by what it is about.
        self._owed: dict[tuple[str, int | ShelfKey], Write] = {}
        #: Why nothing can be written any more; and why the thread has ended, if it has.
        self._dead: str | None = None
        self._ended: str | None = None
        self.trouble: str | None = None
        self.used_bytes = used_bytes(file.connection)
        self._unmeasured = 0
        #: How much the last transaction had: no less must go than comes.
        self._last_writes = 0
        self._is_synced = True
        self.commits = self.stored = self.failed = self.records_lost = self._lost_told = 0
        self._flush_at = self._trim_at = time.monotonic() + TRIM_SECONDS
        self._thread: WatchedThread | None = None
        #: Whether anything was ever submitted.
        self.is_used = False

    def start(self) -> None:
        self._thread = self._supervisor.thread("veena-store-writer", self._run, is_vital=True)

    # --- from other threads ---

    def submit(self, number: int, writes: Sequence[Write]) -> None:
        size = notes = 0
        for write in writes:
            if type(write) is Entry or type(write) is Kept:
                size += len(write.frame.tail)
            elif type(write) is Entries:
                size += len(write.burst.data)
            elif type(write) is Staged:
                size += len(write.data)
            elif type(write) is Noted:
                notes += 1 + len(write.notes)
        ticket = Ticket(number, writes, size, notes=notes)
        self.is_used = True
        with self._changed:
            if notes and self._waiting_notes + notes > MAX_NOTES:
                writes = ticket.writes = [write for write in writes if type(write) is not Noted]
                self.records_lost += notes
                ticket.notes = 0
            if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
                ticket.refused = (
                    f"{len(self._waiting)} writes of {self._waiting_bytes} bytes wait for the disk already: it is too"
                    " slow for what is published here"
                )
                ticket.writes, ticket.size = [write for write in writes if isinstance(write, STATE)], 0
            ended = self._ended
            if ended is None:
                self._waiting.append(ticket)
                self._waiting_bytes += ticket.size
                self._waiting_notes += ticket.notes
                self._changed.notify()
        if ended is not None:
            self._tell([StoreFailed(number, ended)])

    def record(self, records: Sequence[Record]) -> None:
        with self._changed:
            room = max(0, MAX_RECORDS - len(self._records))
            if not self._records:
                self._flush_at = time.monotonic() + RECORD_SECONDS
                self._changed.notify()
            self._records += records[:room]
            self.records_lost += max(0, len(records) - room)

    def note(self, noted: Sequence[Noted]) -> None:
        """Keep notes that came alone, in their order with those that come with tickets."""
        count = sum(1 + len(each.notes) for each in noted)
        with self._changed:
            if self._waiting_notes + count > MAX_NOTES:
                self.records_lost += count
                return
            if not self._waiting_notes or not self._records:
                due = time.monotonic() + NOTE_SECONDS
                self._flush_at = min(self._flush_at, due) if self._records else due
                self._changed.notify()
            self._records += noted
            self._waiting_notes += count

    def commit_reader(self, name: str, offset: int | None) -> None:
        with self._changed:
            self._readers[name] = offset
            self._changed.notify()

    def trim(self) -> None:
        """Look for what can go now, not at the next turn."""
        with self._changed:
            self._trim_at = 0.0
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.end()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._write_on()
        except BaseException as error:
            self._end(error)
            raise

    def _end(self, error: BaseException) -> None:
        """Nothing is written any more: say so to all who wait, and to all who come."""
        reason = f"the thread that writes was ended by {shown(error)}: start the broker again"
        with self._changed:
            self._dead = self._ended = reason
            waiting, self._waiting = self._waiting, []
        with suppress(Exception):  # they may be what has failed
            self._set_trouble(reason)
            self._tell([StoreFailed(ticket.number, reason) for ticket in waiting])

    def _write_on(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    due = min(self._trim_at, self._flush_at) if self._records else self._trim_at
                    self._changed.wait(max(0.0, due - time.monotonic()))
                group = self._take()
                records, self._records = self._records, []
                self._waiting_notes -= sum(1 + len(each.notes) for each in records if type(each) is Noted)
                readers, self._readers = self._readers, {}
                is_over = self._is_closing and not self._waiting
            self._commit(group, records, readers)
            is_time = time.monotonic() >= self._trim_at
            if (is_time or is_over) and (self._owed or self._late_readers or self.trouble is not None):
                self._try([], [], self._late_readers)
            if is_over:
                return
            if is_time:
                self._trim()

    def _is_due(self) -> bool:
        now = time.monotonic()
        return (
            bool(self._waiting)
            or bool(self._readers)
            or self._is_closing
            or now >= self._trim_at
            or (bool(self._records) and now >= self._flush_at)
        )

    def _take(self) -> list[Ticket]:
        """As many of those who wait as one transaction should have."""
        writes = size = at = 0
        while at < len(self._waiting) and writes < GROUP_WRITES and size < GROUP_BYTES:
            writes += len(self._waiting[at].writes)
            size += self._waiting[at].size
            at += 1
        self._last_writes = writes
        group, self._waiting = self._waiting[:at], self._waiting[at:]
        self._waiting_bytes -= size
        self._waiting_notes -= sum(ticket.notes for ticket in group)
        return group

    def _commit(self, group: list[Ticket], records: list[Record], readers: dict[str, int | None]) -> None:
        if not (group or records or readers):
            return
        readers = {**self._late_readers, **readers}
        error = self._try(group, records, readers)
        if error is None:
            self._tell([self._answer_to(ticket, None) for ticket in group])
            return
        # Whatever is wrong with the disk is not made better by records.
        self.records_lost += len(records)
        self._late_readers = readers
        answers: list[Answer] = []
        in_row = 0
        for ticket in group:
            if (len(group) > 1 or records or readers) and in_row < MAX_TRIES and self._dead is None:
                error = self._try([ticket], [], {})
                in_row = 0 if error is None else in_row + 1
            if error is not None:
                self._owe(ticket.writes)
            answers.append(self._answer_to(ticket, error))
        self._tell(answers)

    def _answer_to(self, ticket: Ticket, error: str | None) -> Answer:
        reason = error or ticket.refused
        if reason is None:
            return Stored(ticket.number)
        return StoreFailed(ticket.number, reason)

    def _tell(self, answers: list[Answer]) -> None:
        failed = sum(type(each) is StoreFailed for each in answers)
        self.failed += failed
        self.stored += len(answers) - failed
        if answers:
            self._answer(answers)

    def _try(self, group: list[Ticket], records: list[Record], readers: dict[str, int | None]) -> str | None:
        """One transaction; why it failed, if it did."""
        if self._dead is not None:
            return self._dead
        try:
            batch = Batch(self._codec, self._standing)
            for owed in self._owed.values():
                batch.add(owed)
            is_synced = bool(self._owed or self.trouble)
            is_full = refusal(self.used_bytes, True, self._rules) is not None
            for ticket in group:
                if is_full and ticket.refused is None:
                    ticket.refused = self._refusal(ticket)
                is_synced = is_synced or not ticket.writes
                for write in ticket.writes:
                    if type(write) is Noted and is_full:
                        self.records_lost += 1 + len(write.notes)  # what is left is for events
                    elif ticket.refused is None or isinstance(write, STATE):
                        batch.add(write)
                        is_synced = is_synced or type(write) not in UNSYNCED
            if is_full:
                self.records_lost += sum(1 + len(each.notes) for each in records if type(each) is Noted)
                records = [each for each in records if type(each) is not Noted]
            lost = self.records_lost
            if lost > self._lost_told and not is_full:
                records = [*records, *self._record_writer.lost(lost - self._lost_told, self._now_ns())]
            self._transaction(batch, [*records, *batch.noted], readers, is_synced)
            self._lost_told = self._lost_told if is_full else lost
        except Exception as error:  # the thread must live on: whoever waits is told what happened
            return self._failed(error)
        self._owed.clear()
        self._late_readers = {} if readers else self._late_readers
        self.commits += 1
        self._measure(batch.size)
        if self.used_bytes > self._rules.max_bytes * TRIM_AT // 100:
            self._trim_at = min(self._trim_at, time.monotonic() + TRIM_SECONDS / 10)
        full = refusal(self.used_bytes, True, self._rules)
        self._set_trouble(None if full is None else f"store {self._file.path}: {full}")
        return None

    def _measure(self, added: int) -> None:
        """How full the file is: asked for now and then, estimated in between."""
        self._unmeasured += added
        self.used_bytes += added
        if self._unmeasured >= MEASURE_BYTES or self.trouble is not None:
            self._unmeasured = 0
            self.used_bytes = used_bytes(self._connection)

    def _refusal(self, ticket: Ticket) -> str | None:
        """Whether there is no room in the file for the events of a ticket, by the rules."""
        if not ticket.size:
            return None
        is_published = any(
            isinstance(write, Entries | Staged)
            or (isinstance(write, Entry) and not write.inboxes and not write.frame.flags & BACKLOG)
            for write in ticket.writes
        )
        return refusal(self.used_bytes, is_published, self._rules)

    def _transaction(
        self, batch: Batch, records: Sequence[Record], readers: dict[str, int | None], is_synced: bool
    ) -> None:
        connection, standing = self._connection, self._standing
        self._set_synced(is_synced)
        connection.execute("BEGIN IMMEDIATE")
        batch.run(connection, self._now_ns())
        if self.trouble is not None:  # so that its end is noticed even if nobody writes
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('tried_ns', ?)", (self._now_ns(),))
        self._record_writer.published(connection, batch.published)
        following = self._record_writer.write(connection, records) if records else {}
        for name, offset in readers.items():
            if offset is None:
                connection.execute("DELETE FROM readers WHERE name = ?", (name,))
            else:
                row = (name, offset, standing.lost.get(name, 0))
                connection.execute("INSERT OR REPLACE INTO readers VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")
        batch.committed()
        standing.next_number.update(following)
        for name, offset in readers.items():
            if offset is None:
                standing.readers.pop(name, None)
                standing.lost.pop(name, None)
            else:
                standing.readers[name] = offset
                standing.lost.setdefault(name, 0)

    def _set_synced(self, is_synced: bool) -> None:
        """Whether the next commits are synced."""
        if is_synced != self._is_synced:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            self._is_synced = is_synced

    def _failed(self, error: Exception) -> str:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as worse:
            error = worse
        self._record_writer.failed()
        told = explained(error, self._file.path)
        if is_final(error):
            self._dead = str(told)
        self._set_trouble(str(told))
        self._trim_at = min(self._trim_at, time.monotonic() + RETRY_SECONDS)
        return str(told)

    def _set_trouble(self, told: str | None) -> None:
        if told != self.trouble:
            self.trouble = told
            self._on_trouble(told)

    def _owe(self, writes: Sequence[Write]) -> None:
        """Remember the state in these for the next transaction, the latest of each."""
        for write in writes:
            if isinstance(write, Progress):
                for bit, cursor in write.cursors:
                    self._owed["cursor", bit] = Progress(((bit, cursor),))
            elif isinstance(write, Reached):
                before = self._owed.pop(("inbox", write.inbox), None)
                floor = dict(before.floor if isinstance(before, Reached) else ()) | dict(write.floor)
                self._owed["inbox", write.inbox] = Reached(write.inbox, write.cursor, tuple(floor.items()))
            elif isinstance(write, Registered | Forgotten):
                self._owed.pop(("durable", write.number), None)
                self._owed["durable", write.number] = write
            elif isinstance(write, Shelved):
                self._owed["advert", (write.home, write.advert.client, write.advert.name)] = write
            elif isinstance(write, Unshelved):
                self._owed["advert", (write.home, write.client, write.name)] = write
            elif isinstance(write, Identity | Known):
                self._owed[type(write).__name__, 0] = write

    def _trim(self) -> None:
        self._trim_at = time.monotonic() + (TRIM_SECONDS if self.trouble is None else RETRY_SECONDS)
        if self._dead is not None:
            return
        lost = dict(self._standing.lost)
        try:
            self._set_synced(False)
            self._connection.execute("BEGIN IMMEDIATE")
            if self._trimmer.run(self._connection, self._now_ns(), max(ROWS, 2 * self._last_writes)):
                self._trim_at = 0.0
            self._connection.execute("COMMIT")
            self.used_bytes = used_bytes(self._connection)
        except Exception as error:  # the thread must live on: it is tried again
            self._standing.lost.update(lost)
            self._failed(error)
            self._trim_at = time.monotonic() + RETRY_SECONDS
