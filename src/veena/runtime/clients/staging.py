"""Batches that many clients publish together: staged part by part, published by one write, and only once.

    AskStage --> Staged --> disk                                      parts that nobody sees
    AskPublish --> BatchPublished --> disk --> staging_release        the whole batch, in the order of its parts
    AskAbandon, silence for `patience_ns` --> PartsDropped --> disk

Everything is answered when the disk has it, so a client that goes on by the answers never has more here than it should.
What was published is remembered by query and number of the batch: each question may come again, after a crash of the
client or of this broker, and changes nothing the second time. Whose query it is belongs to its name: nobody stages into
or publishes the batch of another user.

The ids of a batch are fixed when it is published (`core.publishing.batch_release`): the incarnation is that of the
session that published the query's first batch, which nobody else has; stamps ascend from batch to batch, whatever the
clock does.

What is held in memory is one small object a part and a query, both bounded; rows are on disk alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from veena.core.boundary.staging import BatchPublished, PartsDropped, QueriesForgotten, Staged
from veena.core.boundary.stored import Write
from veena.core.wire.staging import AskAbandon, AskPublish, AskStage, TellPublished, TellStaged
from veena.errors import RefusalCode, StoreError
from veena.runtime.logging.logs import Log
from veena.runtime.store.staging import PartRow, QueryRow

#: Parts that wait at once: four batches of as many tasks as one can have.
MAX_WAITING_PARTS = 65_536
#: Of these, those of one user.
MAX_PARTS_OF_USER = MAX_WAITING_PARTS // 4
#: Queries whose last batch is remembered, some 300 bytes each.
MAX_QUERIES = 100_000
#: Rows of one batch: a sequence number has 32 bits.
MAX_BATCH_ROWS = (1 << 32) - 1
#: For so long after its last batch a query may come back and is known.
REMEMBER_NS = 30 * 86_400 * 1_000_000_000
#: How often somebody looks for what is too old; more often where the patience is short.
LOOK_S = 60.0
#: Questions that wait for one about the same query.
MAX_BEHIND = 64

#: What is told to who asked: a frame, or why not.
Refusal = tuple[RefusalCode, str]
Then = Callable[[TellStaged | TellPublished | Refusal], None]


class Keeps(Protocol):
    """The store, as far as staging writes to it."""

    def keep(self, *writes: Write) -> Future[None]: ...


@dataclass(slots=True, eq=False)
class Part:
    """What one attempt of one task staged."""

    row: PartRow
    #: Rows that came, and those of them that are synced.
    rows: int
    synced: int
    bytes: int
    at_ns: int
    writing: int = 0
    #: Why it cannot be published: the disk did not take some of it.
    failed: str | None = None
    #: Its batch is being published.
    is_going: bool = False
    #: Who asked for rows that are being written already.
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StagingStatistics:
    """Parts and bytes that wait, batches and rows since the start."""

    parts: int
    bytes: int
    max_bytes: int
    queries: int
    #: Parts of published batches that are not in the log yet.
    releasing: int
    staged_rows: int
    published: int
    #: Batches that came again after they were published.
    repeated: int
    released_rows: int
    expired: int
    #: Why nothing is released at the moment.
    held: str


def payer(owner: str, publisher: str) -> str:
    """Whose share what is staged counts for: where nobody shows who they are, the client id stands for the user."""
    return owner or publisher


class Incoming:
    """The events behind an AskStage, as far as they have come."""

    __slots__ = ("ask", "data", "left", "refused", "size")

    def __init__(self, ask: AskStage, refused: Refusal | None) -> None:
        self.ask = ask
        self.left = ask.rows
        self.data: list[bytes | memoryview] = []
        #: Bytes that room is taken for.
        self.size = 0
        self.refused = refused

    def abandon(self, staging: Staging | None, user: str) -> None:
        """Give back the room of what has come: it will not be kept."""
        if staging is not None:
            staging.give_room(user, self.size)
        self.data, self.size = [], 0


class Staging:
    """What is staged at one broker."""

    def __init__(
        self,
        store: Keeps,
        parts: list[PartRow],
        queries: list[QueryRow],
        *,
        max_bytes: int,
        patience_ns: int,
        log: Log | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._log = log or Log()
        self._now_ns = now_ns
        self._patience_ns = patience_ns
        self.max_bytes = max_bytes
        #: Called with the parts of a batch that was published, in order.
        self.on_published: Callable[[list[Part]], None] = lambda parts: None
        #: What is not published, by owner and query, then by batch and name.
        self._parts: dict[tuple[str, str], dict[tuple[int, bytes], Part]] = {}
        self._part_count = 0
        self._queries = {(each.owner, each.query): each for each in queries}
        #: Questions that wait until a batch of their query is published.
        self._behind: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._next_part = max((row.part for row in parts), default=0) + 1
        self._next_turn = max((row.turn for row in parts), default=0) + 1
        self._last_stamp = max((each.stamp for each in queries), default=0)
        #: Bytes that are on disk, on their way there, or coming in.
        self.used = 0
        #: The same by user, and how many parts each has that are not published.
        self._used_of: Counter[str] = Counter()
        self._parts_of: Counter[str] = Counter()
        for row in parts:
            self._take(payer(row.owner, row.publisher), row.bytes)
        self.releasing = self.released_rows = 0
        self.held = ""
        self._staged_rows = self._published = self._repeated = self._expired = 0
        self._timer: asyncio.TimerHandle | None = None
        #: Parts of batches that were published in a former life, in their order.
        self.unreleased: list[Part] = []
        for row in parts:
            part = Part(row, row.rows, row.rows, row.bytes, row.at_ns)
            if row.turn:
                self.unreleased.append(part)
            else:
                self._add(part)

    def start(self) -> None:
        """Look for what is too old from now on."""
        self._timer = asyncio.get_running_loop().call_later(min(LOOK_S, self._patience_ns / 4e9), self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- room ---

    def take_room(self, user: str, size: int, share: float) -> Refusal | None:
        """Reserve room for bytes that come in from a user who may have this part of all; why not, if there is none."""
        has, most = self._used_of[user], int(self.max_bytes * share)
        if self.used + size <= self.max_bytes and has + size <= most:
            self._take(user, size)
            return None
        if has + size > most:
            told = f"user {user!r} has {has} bytes staged here, of at most {most}"
            if not self.releasing:
                return RefusalCode.LIMIT, f"{told}: publish smaller batches, or ask for a larger limit `staged_share`"
        else:
            told = f"{self.used} bytes are staged here, of at most {self.max_bytes}"
        if self.releasing:
            return RefusalCode.BUSY, f"{told}; batches that were published are on their way out: try again in a moment"
        return RefusalCode.LIMIT, f"{told}: publish smaller batches, or raise [store] staged_bytes"

    def give_room(self, user: str, size: int) -> None:
        self._take(user, -size)

    def _take(self, user: str, size: int) -> None:
        self.used += size
        self._used_of[user] += size
        if not self._used_of[user]:
            del self._used_of[user]

    # --- staging ---

    def stage(self, owner: str, publisher: str, ask: AskStage, data: bytes, then: Then) -> None:
        """Keep rows whose room is taken; their events were checked."""
        query, user = self._queries.get((owner, ask.query)), payer(owner, publisher)
        if query is not None and ask.batch <= query.batch:
            self.give_room(user, len(data))
            then(TellStaged(ask.number, 0, known=True))
            return
        part = self._part(owner, ask.query, ask.batch, ask.part)
        refused = self._why_not_stage(part, owner, publisher, ask)
        if refused is not None:
            self.give_room(user, len(data))
            then(refused)
            return
        if part is not None and ask.first < part.rows:  # it came before, and its answer was lost
            self.give_room(user, len(data))
            answer = partial(self._again, part, ask, then)
            part.waiting.append(answer) if part.writing else answer()
            return
        now_ns = self._now_ns()
        if part is None:
            row = PartRow(
                self._next_part, owner, publisher, ask.query, ask.batch, ask.part, now_ns, 0, 0, 0, 0, 0, 0
            )  # fmt: skip
            self._next_part += 1
            part = Part(row, 0, 0, 0, now_ns)
            self._add(part)
        part.rows += ask.rows
        part.bytes += len(data)
        part.at_ns = now_ns
        part.writing += 1
        row = part.row
        staged = Staged(
            row.part, owner, publisher, ask.query, ask.batch, ask.part, now_ns, ask.first, ask.rows, data
        )  # fmt: skip
        self._write((staged,), partial(self._staged, part, ask, then))

    def _why_not_stage(self, part: Part | None, owner: str, publisher: str, ask: AskStage) -> Refusal | None:
        name = f"part {ask.part.hex()} of batch {ask.batch} of query {ask.query!r}"
        if part is None:
            if ask.first:
                return RefusalCode.INVALID, f"{name}: rows before {ask.first} are not here (any more); stage it anew"
            user = payer(owner, publisher)
            if self._parts_of[user] >= MAX_PARTS_OF_USER:
                told = f"user {user!r} has {self._parts_of[user]} parts that wait here"
                return RefusalCode.LIMIT, f"{told}, of at most {MAX_PARTS_OF_USER}: publish or abandon some"
            if self._part_count >= MAX_WAITING_PARTS:
                return RefusalCode.LIMIT, f"{self._part_count} parts wait here already: publish or abandon some"
            return None
        if part.failed is not None:
            return RefusalCode.STORE, f"{name}: the disk did not take all of it ({part.failed}); stage it anew"
        if part.is_going:
            return RefusalCode.INVALID, f"{name}: its batch is being published; nothing can be added to it"
        if part.row.publisher != publisher:
            return (
                RefusalCode.INVALID,
                f"{name} was staged by client {part.row.publisher!r}: stage a part as one client",
            )
        if ask.first > part.rows:
            return RefusalCode.INVALID, f"{name}: rows {part.rows} to {ask.first - 1} are missing; stage them first"
        return None

    def _again(self, part: Part, ask: AskStage, then: Then) -> None:
        then(TellStaged(ask.number, part.synced) if part.failed is None else (RefusalCode.STORE, part.failed))

    def _staged(self, part: Part, ask: AskStage, then: Then, failed: str | None) -> None:
        part.writing -= 1
        if failed is None:
            part.synced += ask.rows
            self._staged_rows += ask.rows
            then(TellStaged(ask.number, part.synced))
        else:
            part.failed = failed
            then((RefusalCode.STORE, failed))
        if not part.writing:
            waiting, part.waiting = part.waiting, []
            for answer in waiting:
                answer()

    # --- publishing ---

    def publish(self, owner: str, publisher: str, incarnation: int, ask: AskPublish, then: Then) -> None:
        """Make a batch public, if it is not."""
        key = (owner, ask.query)
        if key in self._behind:
            if len(self._behind[key]) >= MAX_BEHIND:
                then((RefusalCode.BUSY, f"query {ask.query!r} is being published already: try again in a moment"))
            else:
                self._behind[key].append(partial(self.publish, owner, publisher, incarnation, ask, then))
            return
        query = self._queries.get(key)
        if query is not None and ask.batch <= query.batch:
            self._repeated += 1
            self._drop(self._leftovers(owner, ask.query, ask.batch))
            then(TellPublished(ask.number, query.batch))
            return
        if query is None and len(self._queries) >= MAX_QUERIES:
            then((RefusalCode.LIMIT, f"{MAX_QUERIES} queries published here of late: give jobs that go on one name"))
            return
        found = self._found(owner, publisher, ask)
        if not isinstance(found, list):
            then(found)
            return
        sequence, turns = 0, []
        for part in found:
            part.is_going = True
            turns.append((part.row.part, sequence))
            sequence += part.rows
        self._last_stamp = max(self._now_ns(), self._last_stamp + 1)
        if query is not None and query.publisher == publisher:
            incarnation = query.incarnation
        published = BatchPublished(
            owner, ask.query, ask.batch, publisher, incarnation, self._last_stamp, self._next_turn, self._now_ns(),
            ask.lasting, tuple(turns),
        )  # fmt: skip
        self._next_turn += 1
        self._behind[key] = []
        self._write((published,), partial(self._done, ask, published, found, then))

    def _found(self, owner: str, publisher: str, ask: AskPublish) -> list[Part] | Refusal:
        """The parts of a batch, all of them on disk."""
        found: list[Part] = []
        rows = 0
        batch = f"batch {ask.batch} of query {ask.query!r}"
        names = dict(ask.parts)
        if len(names) != len(ask.parts):
            return RefusalCode.INVALID, f"{batch}: a part is named twice; name each once"
        for name, expected in names.items():
            part = self._part(owner, ask.query, ask.batch, name)
            if part is None:
                return RefusalCode.INVALID, f"{batch}: part {name.hex()} is not here (any more); run the batch again"
            if part.row.publisher != publisher:
                told = f"{batch}: part {name.hex()} was staged by client {part.row.publisher!r}"
                return RefusalCode.INVALID, f"{told}; publish it as that client"
            if part.failed is not None or part.synced != part.rows or part.rows != expected:
                told = f"{batch}: part {name.hex()} has {part.synced} rows on disk, not {expected}"
                return RefusalCode.INVALID, f"{told}; run the batch again"
            rows += part.rows
            found.append(part)
        if rows > MAX_BATCH_ROWS:
            return RefusalCode.LIMIT, f"{batch} has {rows} rows, of at most {MAX_BATCH_ROWS}: make smaller batches"
        return found

    def _done(
        self, ask: AskPublish, published: BatchPublished, parts: list[Part], then: Then, failed: str | None
    ) -> None:
        key = (published.owner, published.query)
        behind = self._behind.pop(key)
        if failed is None:
            self._published += 1
            self._queries[key] = QueryRow(
                published.owner, published.query, published.publisher, published.incarnation, published.batch,
                published.stamp, published.at_ns, published.lasting,
            )  # fmt: skip
            for part, (_, sequence) in zip(parts, published.parts, strict=True):
                row = part.row
                part.row = PartRow(
                    row.part, row.owner, row.publisher, row.query, row.batch, row.name, row.at_ns, part.rows,
                    part.bytes, published.turn, published.incarnation, published.stamp, sequence,
                )  # fmt: skip
                self._remove(part)
            self._drop(self._leftovers(published.owner, published.query, published.batch))
            self.on_published(parts)
            then(TellPublished(ask.number, published.batch, sum(part.rows for part in parts)))
        else:
            for part in parts:
                part.is_going = False
            then((RefusalCode.STORE, failed))
        for again in behind:
            again()

    def abandon(self, owner: str, ask: AskAbandon, then: Then) -> None:
        """Forget what is staged for a batch."""
        parts = self._leftovers(owner, ask.query, ask.batch, ask.batch)
        told = TellPublished(ask.number, self.last_batch(owner, ask.query))
        self._drop(parts, lambda failed: then(told if failed is None else (RefusalCode.STORE, failed)))

    def last_batch(self, owner: str, query: str) -> int:
        found = self._queries.get((owner, query))
        return -1 if found is None else found.batch

    def _part(self, owner: str, query: str, batch: int, name: bytes) -> Part | None:
        return self._parts.get((owner, query), {}).get((batch, name))

    def _add(self, part: Part) -> None:
        self._parts.setdefault((part.row.owner, part.row.query), {})[part.row.batch, part.row.name] = part
        self._part_count += 1
        self._parts_of[payer(part.row.owner, part.row.publisher)] += 1

    def _remove(self, part: Part) -> None:
        key = (part.row.owner, part.row.query)
        found = self._parts[key]
        del found[part.row.batch, part.row.name]
        if not found:
            del self._parts[key]
        self._part_count -= 1
        user = payer(part.row.owner, part.row.publisher)
        self._parts_of[user] -= 1
        if not self._parts_of[user]:
            del self._parts_of[user]

    # --- what is not needed ---

    def _leftovers(self, owner: str, query: str, last: int, first: int = 0) -> list[Part]:
        """Parts of batches up to this one that nobody publishes any more."""
        found = self._parts.get((owner, query), {})
        return [part for (batch, _), part in found.items() if first <= batch <= last and not part.is_going]

    def _drop(self, parts: list[Part], then: Callable[[str | None], None] = lambda failed: None) -> None:
        for part in parts:
            self._remove(part)

        def dropped(failed: str | None) -> None:
            # Where the disk failed they lie there until the next start, and are in nobody's way but for their bytes.
            for part in parts if failed is None else ():
                self.give_room(payer(part.row.owner, part.row.publisher), part.bytes)
            then(failed)

        if parts:
            self._write((PartsDropped(tuple(part.row.part for part in parts)),), dropped)
        else:
            then(None)

    def _look(self) -> None:
        """Drop what was staged long ago, and forget queries that nobody has used for long."""
        self.start()
        now_ns = self._now_ns()
        old = [
            part
            for parts in self._parts.values()
            for part in parts.values()
            if part.at_ns < now_ns - self._patience_ns and not part.writing and not part.is_going
        ]
        if old:
            self._expired += len(old)
            self._log.info("staged rows that nobody published are dropped", parts=len(old))
            self._drop(old)
        unused = [
            key
            for key, each in self._queries.items()
            if each.used_ns < now_ns - (REMEMBER_NS if each.lasting else self._patience_ns) and key not in self._behind
        ]
        for key in unused:
            del self._queries[key]
        if unused:
            self._write((QueriesForgotten(tuple(unused)),), lambda failed: None)

    def released(self, part: Part, rows: int, size: int) -> None:
        """Rows of a published part are in the log."""
        part.bytes -= size
        self.give_room(payer(part.row.owner, part.row.publisher), size)
        self.released_rows += rows

    def emptied(self, part: Part) -> None:
        """A published part has no rows: they were damaged, and given up by hand."""
        self._write((PartsDropped((part.row.part,)),), lambda failed: None)

    def statistics(self) -> StagingStatistics:
        return StagingStatistics(
            self._part_count,
            self.used,
            self.max_bytes,
            len(self._queries),
            self.releasing,
            self._staged_rows,
            self._published,
            self._repeated,
            self.released_rows,
            self._expired,
            self.held,
        )

    def _write(self, writes: tuple[Write, ...], then: Callable[[str | None], None]) -> None:
        """Write and go on in this loop when it is synced, with the reason if it is not."""
        loop = asyncio.get_running_loop()

        def written(future: Future[None]) -> None:
            error = future.exception()
            reason = None if error is None else error.reason if isinstance(error, StoreError) else str(error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(then, reason)

        try:
            self._store.keep(*writes).add_done_callback(written)
        except StoreError as error:
            loop.call_soon(then, error.reason)
