"""Reading a broker's tables from a plain program: blocking, by ranges of offsets, as Arrow (design §7, §8).

    with LogClient("veena://127.0.0.1:7700") as log:
        ends = log.ends("events")
        for batch in log.read("events", ends.first, ends.next, columns=["id", "topic", "body"], selector="price > 10"):
            ...                                     # a pyarrow.RecordBatch
        log.commit("my-job", "events", ends.next)   # what is below may be given up, as far as this reader is concerned

A range says the same whenever it is read, as long as it is kept; so a read whose connection is lost is taken up where
it stood, over a new one. Rows that were given up meanwhile are never passed over in silence: `DataLost` names both ends
of the gap.

In `events`, offsets from 0 on are reliable events; those below 0 are events of best effort, -1 for the first (see
`tables`). One read is of one of the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from veena.address import Address, format_address
from veena.core.wire.control import Frame
from veena.core.wire.log_tables import (
    COLUMNS,
    DEFAULT_BLOCK_ROWS,
    MAX_BLOCK_ROWS,
    AskBrokers,
    AskLogAt,
    AskLogCommit,
    AskLogEnds,
    AskLogMore,
    AskLogRead,
    Table,
    TellBlock,
    TellBlockPart,
    TellBrokers,
    TellCommitted,
    TellGap,
    TellLogAt,
    TellLogEnds,
    padded,
)
from veena.errors import DataLost, LocalProtocolError, NotConnected, RemoteProtocolError, VeenaError
from veena.runtime.locator.client import locator_url
from veena.runtime.pki.recipients import Recipients
from veena.spark.log.blocks import Batches
from veena.spark.log.connection import Access, LogWire, locate, may_follow
from veena.spark.log.filters import Filter, as_tests
from veena.spark.log.tables import TABLES

__all__ = ["Access", "BrokerLog", "Ends", "Filter", "LogClient"]

#: Blocks that are on their way while one is used.
BLOCKS_AHEAD: Final = 4
#: Pause before a lost connection is dialled again: the first, and the longest.
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 2.0
#: Brokers of one network that are looked for.
MAX_BROKERS: Final = 4096
#: How long a broker that others have named may take to answer, when all are looked for.
LOOK_S: Final = 5.0

Answer = TypeVar("Answer", bound=Frame)
Done = TypeVar("Done")


class Ends(NamedTuple):
    """The rows of a table that a broker keeps: first <= offset < next."""

    first: int
    next: int
    #: Rows that were given up before some reader had committed them.
    lost: int
    #: Of `events`, how many of best effort were written, and from which on they are kept: their offsets are
    #: -1 - number, so that -passed_next <= offset < -passed_first.
    passed_first: int = 0
    passed_next: int = 0


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """A broker of the network: its permanent name, where it listens, its address."""

    name: str
    url: str
    address: Address

    @property
    def label(self) -> str:
        return format_address(self.address)


class LogClient:
    """One broker's tables. Not for several threads at once."""

    def __init__(
        self, url: str, access: Access | None = None, timeout: float = 30.0, led_by: Recipients | None = None
    ) -> None:
        """Connects when it is first used. A locator's URL (`veena+locator://`) leads to a broker that it names.

        `led_by` is for a URL that brokers have told: who may be told there who this reader is.
        """
        self._recipients = led_by or Recipients()
        self._is_given = led_by is None
        self.url = url
        self.access = access or Access()
        self._timeout = timeout
        self._wire: LogWire | None = None

    def __enter__(self) -> LogClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    @property
    def broker(self) -> BrokerLog:
        """Whose tables these are."""
        wire = self._retried(self._connected)
        return BrokerLog(wire.welcome.name, wire.url, wire.welcome.address)

    # --- questions ---

    def ends(self, table: str) -> Ends:
        """Which rows are there now."""
        name = _table(table)
        found = self._ask(lambda number: AskLogEnds(number, name), TellLogEnds)
        if table != "events":
            return Ends(found.first, found.next, found.lost)
        passed = self._ask(lambda number: AskLogEnds(number, "passed"), TellLogEnds)
        return Ends(found.first, found.next, found.lost, passed.first, passed.next)

    def offset_at(self, table: str, at_ns: int) -> int:
        """The first row that was written at this time (nanoseconds since 1970) or later; of events, a reliable one."""
        name = _table(table)
        return self._ask(lambda number: AskLogAt(number, name, max(at_ns, 0)), TellLogAt).offset

    def passed_at(self, at_ns: int) -> int:
        """The same for events of best effort: how many were written before that time (offset -1 - that)."""
        return self._ask(lambda number: AskLogAt(number, "passed", max(at_ns, 0)), TellLogAt).offset

    def commit(self, reader: str, table: str, offset: int) -> int:
        """This reader has every row below `offset` for good; how many were given up before it had them."""
        name, offset = _signed(_table(table), offset)
        return self._ask(lambda number: AskLogCommit(number, reader, name, offset), TellCommitted).lost

    def forget(self, reader: str, table: str) -> None:
        """This reader reads no more: nothing is kept for it."""
        name = _table(table)
        self._ask(lambda number: AskLogCommit(number, reader, name, 0, True), TellCommitted)

    def brokers(self) -> list[BrokerLog]:
        """Every broker that can be learned of from this one and answers: this one first, then the others by address."""
        found: dict[str, BrokerLog] = {}
        asked: dict[str, None] = {}
        waiting = [self]
        urls: list[str] = []
        while waiting or urls:
            client = (
                waiting.pop()
                if waiting
                else LogClient(urls.pop(), self.access, min(self._timeout, LOOK_S), self._recipients)
            )
            try:
                own = client.broker
                asked.update(dict.fromkeys((client.url, own.url)))
                if own.name in found or len(found) >= MAX_BROKERS:
                    continue
                told = client._ask(AskBrokers, TellBrokers).brokers
                found[own.name] = own
                asked.update(dict.fromkeys(told[0].urls if told else ()))
                for place in told[1:]:
                    usable = [url for url in place.urls if may_follow(self.url, url)]
                    if usable and asked.keys().isdisjoint(place.urls):
                        asked.update(dict.fromkeys(place.urls))
                        urls.append(usable[0])
            except NotConnected:
                if client is self:
                    raise
            finally:
                if client is not self:
                    client.close()
        own, *others = found.values()
        return [own, *sorted(others, key=lambda each: each.address)]

    # --- reading ---

    def read(
        self,
        table: str,
        start: int,
        end: int,
        *,
        columns: Sequence[str],
        topic: str | None = None,
        selector: str | None = None,
        filters: Sequence[Filter] = (),
        max_rows: int = DEFAULT_BLOCK_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows with start <= offset < end that pass, in batches of at most `max_rows` with exactly these columns.

        Raises DataLost when rows of the range are no longer kept, AccessDenied, Refused, NotConnected.
        """
        for name in columns:
            if name not in TABLES.get(table, {}):
                raise LocalProtocolError(f"column {name!r} of {table}: there are {', '.join(TABLES.get(table, ()))}")
        if start < 0 < end:
            raise LocalProtocolError(
                f"offsets {start} to {end}: read those below 0 (best effort) and those from 0 on each for themselves"
            )
        name, first = _signed(_table(table), start)
        if name == "passed":
            first, until = -end, -start
        else:
            until = end
        tests = as_tests(table, filters)
        if tests is None or first >= until:
            return
        yield from self._read(
            AskLogRead(
                0, name, first, until, (), topic or "", selector or "", tests, BLOCKS_AHEAD,
                min(max(max_rows, 1), MAX_BLOCK_ROWS),
            ),
            table,
            tuple(columns),
        )  # fmt: skip

    def _read(self, asked: AskLogRead, table: str, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        cursor, last_progress, pause = asked.start, time.monotonic(), RETRY_S
        while True:
            try:
                wire = self._connected()
                batches = Batches(table, columns, wire.welcome.name, asked.table == "passed")
                for block, data in self._blocks(wire, asked, cursor, batches.needed):
                    cursor, last_progress, pause = block.next, time.monotonic(), RETRY_S
                    if block.rows:
                        yield batches.batch(block.rows, block.sizes, data)
                        last_progress = time.monotonic()
                return
            except NotConnected:
                self.close()
                if time.monotonic() - last_progress > self._timeout:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, RETRY_S_MAX)

    def _blocks(
        self, wire: LogWire, asked: AskLogRead, start: int, columns: tuple[str, ...]
    ) -> Iterator[tuple[TellBlock, pa.Buffer]]:
        number = wire.open()
        is_over = False
        try:
            wire.send(
                AskLogRead(
                    number, asked.table, start, asked.end, columns, asked.topic, asked.selector, asked.tests,
                    asked.blocks, asked.max_rows, asked.max_bytes,
                )
            )  # fmt: skip
            while not is_over:
                frame = wire.wait(number)
                if isinstance(frame, TellGap):
                    is_over = True
                    raise _lost(wire.welcome.name, asked.table, frame)
                if not isinstance(frame, TellBlock):
                    raise RemoteProtocolError(f"{wire.url}: {type(frame).__name__} instead of a block")
                data = _gathered(wire, number, frame)
                is_over = frame.last
                if not is_over:
                    wire.send(AskLogMore(number))
                yield frame, data
        except VeenaError as error:
            is_over = True  # a refusal ended it, or there is nobody left to tell
            if isinstance(error, RemoteProtocolError):
                self.close()
            raise
        finally:
            if not is_over:
                try:
                    wire.send(AskLogMore(number, 0))
                except NotConnected:
                    self.close()
            wire.close_number(number)

    # --- the connection ---

    def _connected(self) -> LogWire:
        if self._wire is None:
            place = locator_url(self.url)
            is_given = self._is_given and place is None
            urls = [self.url] if place is None else locate(place, self.access, self._timeout, self._recipients)
            for at, url in enumerate(urls):
                try:
                    self._wire = LogWire(url, self.access, self._timeout, self._recipients, is_given)
                    break
                except NotConnected:
                    if at + 1 == len(urls):
                        raise
        assert self._wire is not None
        return self._wire

    def _retried(self, act: Callable[[], Done]) -> Done:
        """Once more over a new connection, where the old one was lost unnoticed."""
        was_open = self._wire is not None
        try:
            return act()
        except NotConnected:
            self.close()
            if not was_open:
                raise
            return act()

    def _ask(self, question: Callable[[int], Frame], kind: type[Answer]) -> Answer:
        return self._retried(lambda: self._connected().ask(question, kind))


def _table(table: str) -> Table:
    if table not in TABLES:
        raise LocalProtocolError(f"table {table!r}: there are {', '.join(TABLES)}")
    assert table in COLUMNS
    return table  # type: ignore[return-value]


def _signed(table: Table, offset: int) -> tuple[Table, int]:
    """An offset below 0 is one of the events of best effort, counted the other way."""
    if offset >= 0:
        return table, offset
    if table != "events":
        raise LocalProtocolError(f"offset {offset} of {table}: use 0 or more; only events of best effort are below 0")
    return "passed", -offset


def _gathered(wire: LogWire, number: int, first: TellBlock) -> pa.Buffer:
    """All bytes of a block, in one piece that Arrow likes."""
    size = sum(map(padded, first.sizes))
    whole = pa.allocate_buffer(size)
    view = memoryview(whole).cast("B")
    at = 0
    frame: TellBlock | TellBlockPart = first
    while True:
        part = frame.data
        if at + len(part) > size:
            raise RemoteProtocolError(f"{wire.url}: a block of {size} bytes that goes on")
        view[at : at + len(part)] = part
        at += len(part)
        if not frame.more:
            break
        following = wire.wait(number)
        if not isinstance(following, TellBlockPart):
            raise RemoteProtocolError(f"{wire.url}: {type(following).__name__} in the middle of a block")
        frame = following
    if at != size:
        raise RemoteProtocolError(f"{wire.url}: a block of {size} bytes that ends after {at}")
    return whole


def _lost(broker: str, table: str, gap: TellGap) -> DataLost:
    if table == "passed":
        return DataLost(broker, "events", -1 - gap.asked, -1 - gap.first)
    return DataLost(broker, table, gap.asked, gap.first)
