"""Load for a broker over plain sockets, whatever it speaks: closed loops, paced events, everything counted and checked.

One thread publishes and reads, so that what is measured is the broker. All messages of a run have one size, so a
thousand of them are made, and compared with what should have come, by a few calls of NumPy. The first eight bytes of a
message's body are its number; a receiver must get every number, once and in order.

In a closed loop at most `window` deliveries are under way: no broker is made to keep what nobody reads.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

#: Bytes of one read.
READ = 256 * 1024
#: Messages that are made at once.
CHUNK = 512
#: How long nothing may happen before a run counts as failed.
PATIENCE_S = 10.0
NUMBER = np.dtype(">u8")

Make = Callable[[int, int], bytes]


@dataclass(slots=True)
class Receiver:
    """Somebody who gets every message: of `size` bytes each, with the number at `at`."""

    socket: socket.socket
    size: int
    at: int
    #: Called with the messages of a read, as rows of bytes: an acknowledgement, where the protocol has one.
    answer: Callable[[np.ndarray], bytes] | None = None
    #: Says how many bytes come before the first message, or -1 while it cannot.
    begin: Callable[[bytes], int] | None = None
    #: What a broker may say between two messages, to be passed over.
    noise: bytes = b""
    got: int = 0
    rest: bytes = b""

    def take(self, data: bytes) -> int:
        """Check what came; how many messages it completed."""
        data = self.rest + data if self.rest else data
        if self.noise and self.noise in data:
            data = data.replace(self.noise, b"")
        if self.begin is not None:
            skipped = self.begin(data)
            if skipped < 0:
                self.rest = data
                return 0
            self.begin, data = None, data[skipped:]
        count = len(data) // self.size
        self.rest = data[count * self.size :]
        if not count:
            return 0
        rows = np.frombuffer(data, np.uint8, count * self.size).reshape(count, self.size)
        numbers = np.ascontiguousarray(rows[:, self.at : self.at + NUMBER.itemsize]).view(NUMBER)[:, 0]
        if not np.array_equal(numbers, np.arange(self.got, self.got + count, dtype=np.uint64)):
            wrong = next(i for i, number in enumerate(numbers) if number != self.got + i)
            raise RuntimeError(f"message {numbers[wrong]} came where {self.got + wrong} was expected")
        self.got += count
        if self.answer is not None:
            self.socket.sendall(self.answer(rows))
        return count


@dataclass(frozen=True, slots=True)
class Rate:
    """What came of a closed loop."""

    deliveries: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.deliveries / self.seconds


@dataclass(slots=True)
class Load:
    """One publisher and its receivers; `make(first, count)` gives so many messages, numbered from the first on."""

    publisher: socket.socket
    make: Make
    receivers: list[Receiver]
    sent: int = 0
    delivered: int = 0
    _unsent: memoryview = field(default_factory=lambda: memoryview(b""))

    def closed_loop(self, seconds: float, window: int, warm: int = 0) -> Rate:
        """As fast as it goes, for so long; then everything that is under way is waited for."""
        self._set_up()
        each = len(self.receivers)
        poll, owners = self._poll()
        begin = start = time.perf_counter()
        base, is_warm, is_over = 0, False, False
        writes = True
        while True:
            now = time.perf_counter()
            if not is_warm and self.delivered >= warm * each:
                is_warm, begin, base = True, now, self.delivered
            is_over = is_over or (is_warm and now - begin >= seconds)
            if is_over and not self._unsent and self.delivered == self.sent * each:
                return Rate(self.delivered - base, now - begin)
            if now - start > PATIENCE_S + seconds:
                raise RuntimeError(f"{self.sent * each - self.delivered} of {self.sent * each} deliveries are missing")
            room = 0 if is_over else (window - (self.sent * each - self.delivered)) // each
            if not self._unsent and room > 0:
                self._make(min(CHUNK, room))
            if self._unsent and writes:
                writes = self._write()
            events = select.POLLIN | (select.POLLOUT if self._unsent and not writes else 0)
            poll.modify(self.publisher, events)
            for fd, event in poll.poll(0 if self._unsent and writes else 100):
                writes = writes or bool(event & select.POLLOUT)
                if event & ~select.POLLOUT:
                    self._read(owners, fd)

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


def numbered(template: bytes, at: int, sequence_at: int | None = None) -> Make:
    """Messages made of a template: the number at `at` (eight bytes), and a sequence of four where there is one."""
    rows = np.tile(np.frombuffer(template, np.uint8), (CHUNK, 1))

    def make(first: int, count: int) -> bytes:
        numbers = np.arange(first, first + count, dtype=np.uint64)
        rows[:count, at : at + 8] = numbers.astype(NUMBER).view(np.uint8).reshape(count, 8)
        if sequence_at is not None:
            sequences = (numbers + 1).astype(">u4").view(np.uint8).reshape(count, 4)
            rows[:count, sequence_at : sequence_at + 4] = sequences
        return rows[:count].tobytes()

    return make


def percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(np.array(values), percent))
