"""Load for a broker over plain sockets, whatever it speaks: closed loops, paced events, everything counted and checked.

One thread publishes and reads, so that what is measured is the broker. The messages of a run are drawn beforehand, a
pool of them with one size, and sent in turn; a thousand are made, and found again in what comes, by a few calls of
NumPy. The last sixteen bytes of every body are a mark and the message's number. Each receiver knows which messages of
the pool are due to it, and must get these, once and in order, and no other.

In a closed loop so many events and so many deliveries are under way at most: no broker is made to keep what nobody
reads. An event that nobody wants counts as dealt with when a later one arrives.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: Bytes of one read.
READ = 256 * 1024
#: Messages that are made at once.
CHUNK = 512
#: How long nothing may happen before a run counts as failed.
PATIENCE_S = 10.0
NUMBER = np.dtype(">u8")
#: What precedes the number at the end of a body. Its first byte is no UTF-8, and rare elsewhere in a frame.
MARK = b"\xf5VEENA\xf5\xf6"
MARK_SIZE = len(MARK)
#: Mark and number.
TAIL = MARK_SIZE + NUMBER.itemsize
_MARK = np.frombuffer(MARK, np.uint64)[0]

Make = Callable[[int, int], bytes]
Rows = NDArray[np.uint8]


def body(size: int) -> bytes:
    """A body with room for a number, which is 0."""
    return bytes(size - TAIL) + MARK + bytes(NUMBER.itemsize)


@dataclass(slots=True)
class Receiver:
    """Somebody who gets some of the messages."""

    socket: socket.socket
    #: Of a pool of `pool` messages those that are due, ascending; one that is due twice stands there twice.
    due: NDArray[np.int64]
    pool: int = 1
    #: Called with what came and where the marks are: an acknowledgement, where the protocol has one.
    answer: Callable[[Rows, NDArray[np.int64]], bytes] | None = None
    got: int = 0
    #: The number of the last message.
    last: int = -1
    rest: bytes = b""

    def take(self, data: bytes) -> int:
        """Check what came; how many messages it completed."""
        data = self.rest + data if self.rest else data
        found = np.frombuffer(data, np.uint8)
        marks = np.flatnonzero(found[: max(0, len(found) - TAIL + 1)] == MARK[0])
        if len(marks):
            eight = np.arange(TAIL, dtype=np.int64)
            tails = found[marks[:, None] + eight]
            is_mark = np.ascontiguousarray(tails[:, :MARK_SIZE]).view(np.uint64)[:, 0] == _MARK
            marks, tails = marks[is_mark], tails[is_mark]
        if not len(marks):
            self.rest = data
            return 0
        count = len(marks)
        self.rest = data[int(marks[-1]) + TAIL :]
        self._check(np.ascontiguousarray(tails[:, MARK_SIZE:]).view(NUMBER)[:, 0].astype(np.int64))
        if self.answer is not None:
            self.socket.sendall(self.answer(found, marks))
        return count

    def _check(self, numbers: NDArray[np.int64]) -> None:
        places = np.arange(self.got, self.got + len(numbers), dtype=np.int64)
        if not len(self.due):
            raise RuntimeError(f"message {numbers[0]} came to somebody to whom none is due")
        expected = self.due[places % len(self.due)] + places // len(self.due) * self.pool
        if not np.array_equal(numbers, expected):
            wrong = int(np.flatnonzero(numbers != expected)[0])
            raise RuntimeError(f"message {numbers[wrong]} came where {expected[wrong]} was expected")
        self.got += len(numbers)
        self.last = int(numbers[-1])

    def renew(self) -> None:
        """Expect the first message again."""
        self.got, self.last = 0, -1


@dataclass(frozen=True, slots=True)
class Rate:
    """What came of a closed loop."""

    events: int
    deliveries: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Deliveries."""
        return self.deliveries / self.seconds

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds


@dataclass(slots=True)
class Load:
    """One publisher and its receivers; `make(first, count)` gives so many messages, numbered from the first on."""

    publisher: socket.socket
    make: Make
    receivers: list[Receiver]
    sent: int = 0
    delivered: int = 0
    #: Events that are dealt with: everything up to the last one that came.
    done: int = 0
    _unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    #: Deliveries of the first messages of the pool, by their count.
    _sums: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def __post_init__(self) -> None:
        pool = self.receivers[0].pool
        counts = np.zeros(pool, np.int64)
        for receiver in self.receivers:
            counts += np.bincount(receiver.due, minlength=pool)
        self._sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        if not self._sums[-1]:
            raise RuntimeError("nothing is due to anybody")

    def due(self, events: int) -> int:
        """Deliveries of the first so many events."""
        rounds, rest = divmod(events, len(self._sums) - 1)
        return int(rounds * self._sums[-1] + self._sums[rest])

    def closed_loop(self, seconds: float, window: int, warm: int = 0, deliveries: int | None = None) -> Rate:
        """As fast as it goes, for so long; then everything that is under way is waited for.

        At most `window` events and so many deliveries are under way.
        """
        self._set_up()
        most = window if deliveries is None else deliveries
        each = max(float(self._sums[-1]) / (len(self._sums) - 1), 1e-9)
        poll, owners = self._poll()
        begin = heard = time.perf_counter()
        base, base_done, is_warm, is_over = 0, 0, False, False
        writes = True
        while True:
            now = time.perf_counter()
            if not is_warm and self.done >= warm:
                is_warm, begin, base, base_done = True, now, self.delivered, self.done
            is_over = is_over or (is_warm and now - begin >= seconds)
            if is_over and not self._unsent and self.delivered == self.due(self.sent):
                return Rate(self.done - base_done, self.delivered - base, now - begin)
            if now - heard > PATIENCE_S:
                due = self.due(self.sent)
                raise RuntimeError(f"{due - self.delivered} of {due} deliveries are missing")
            if not self._unsent and not is_over:
                free = (most - (self.due(self.sent) - self.delivered)) / each
                room = int(min(free, window - (self.sent - self.done)))
                if room > 0:
                    self._make(min(CHUNK, room))
            if self._unsent and writes:
                writes = self._write()
            events = select.POLLIN | (select.POLLOUT if self._unsent and not writes else 0)
            poll.modify(self.publisher, events)
            for fd, event in poll.poll(0 if self._unsent and writes else 100):
                writes = writes or bool(event & select.POLLOUT)
                if event & ~select.POLLOUT:
                    self._read(owners, fd)
                    heard = now

    def paced(self, per_second: int, count: int, warm: int) -> list[float]:
        """One message after another at a steady pace; microseconds from the call that sends it to its arrival."""
        self._set_up()
        poll, owners = self._poll()
        took: list[float] = []
        sent_at: list[float] = []
        begin = time.perf_counter()
        while self.delivered < count + warm:
            now = time.perf_counter()
            due = begin + self.sent / per_second
            if self.sent < count + warm and now >= due:
                self._make(1)
                sent_at.append(time.perf_counter())
                self.publisher.sendall(self._unsent)
                self._unsent = memoryview(b"")
                continue
            if now - begin > PATIENCE_S + (count + warm) / per_second:
                raise RuntimeError(f"{self.sent - self.delivered} messages did not come")
            wait = max(0.0, due - now) * 1000 if self.sent < count + warm else 100
            # A poll sleeps whole milliseconds: the last one is spent looking.
            for fd, _ in poll.poll(max(0, int(wait) - 1)):
                before = self.delivered
                self._read(owners, fd)
                arrived = time.perf_counter()
                took += [(arrived - sent_at[number]) * 1e6 for number in range(before, self.delivered)]
        return took[warm:]

    def close(self) -> None:
        for each in (self.publisher, *(receiver.socket for receiver in self.receivers)):
            each.close()

    # --- sockets ---

    def _set_up(self) -> None:
        for each in (self.publisher, *(receiver.socket for receiver in self.receivers)):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _poll(self) -> tuple[select.poll, dict[int, Receiver]]:
        poll = select.poll()
        poll.register(self.publisher, select.POLLIN)
        for receiver in self.receivers:
            poll.register(receiver.socket, select.POLLIN)
        return poll, {receiver.socket.fileno(): receiver for receiver in self.receivers}

    def _make(self, count: int) -> None:
        self._unsent = memoryview(self.make(self.sent, count))
        self.sent += count

    def _write(self) -> bool:
        """Whether the socket may take more."""
        try:
            self._unsent = self._unsent[self.publisher.send(self._unsent) :]
        except BlockingIOError:
            return False
        return not self._unsent

    def _read(self, owners: dict[int, Receiver], fd: int) -> None:
        receiver = owners.get(fd)
        try:
            data = (self.publisher if receiver is None else receiver.socket).recv(READ)
        except BlockingIOError:
            return
        if not data:
            raise RuntimeError("the broker has closed a connection")
        if receiver is not None:
            self.delivered += receiver.take(data)
            self.done = max(self.done, receiver.last + 1)


def numbered(pool: list[bytes], at: int, sequence_at: int | None = None) -> Make:
    """Messages of a pool, in turn: the number at `at` (eight bytes), and a sequence of four where there is one."""
    sizes = {len(message) for message in pool}
    if len(sizes) != 1:
        raise RuntimeError(f"messages of one pool have {min(sizes)} to {max(sizes)} bytes: expected one size")
    rows = np.frombuffer(b"".join(pool), np.uint8).reshape(len(pool), -1)

    def make(first: int, count: int) -> bytes:
        numbers = np.arange(first, first + count, dtype=np.uint64)
        found = rows[numbers % np.uint64(len(pool))]
        found[:, at : at + 8] = numbers.astype(NUMBER).view(np.uint8).reshape(count, 8)
        if sequence_at is not None:
            sequences = (numbers + np.uint64(1)).astype(">u4").view(np.uint8).reshape(count, 4)
            found[:, sequence_at : sequence_at + 4] = sequences
        data: bytes = found.tobytes()
        return data

    return make


def everything(pool: int) -> NDArray[np.int64]:
    """What is due to somebody who gets every message."""
    return np.arange(pool, dtype=np.int64)


def percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(np.array(values), percent))
