"""The hundred subscribers that are not measured, in a process of their own: `python -m veena.bench.latency.crowd`.

The papers had them on a machine of their own. Here they share the processors with everything else, so they must cost
little: events are found by the lengths of their frames, only their numbers are read, and all sockets are looked at some
fifty times a second, not once an event. Nothing of that is measured; that everything came is (`judge`).

Commands are JSON lines on standard input, each is answered by one on standard output; the end of the input ends this.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgspec

from veena.bench.latency.cells import NUMBER_BYTES, Tally, judge, summed
from veena.bench.load.client import Attached
from veena.core.wire.client import AskSubscribe, AskUnsubscribe, TellActive, TellRefused
from veena.core.wire.codec import Decoder
from veena.core.wire.control import Heartbeat
from veena.core.wire.header import EVENT, HEADER, HEADER_SIZE

#: Between two looks at all sockets.
REST_S = 0.02
READ = 256 * 1024
#: A third of what a broker takes for the silence of a dead client.
HEARTBEAT_S = 60.0


class Subscriber:
    """One client, its one subscription, and the numbers of the events that came."""

    def __init__(self, host: str, port: int, name: str) -> None:
        self._attached = Attached(host, port, name)
        self.socket = self._attached.socket
        self._decoder = Decoder(self._attached.codec)
        self._rest = b""
        self.is_active = False
        self.subscription = 0
        self.got: list[int] = []
        self.socket.settimeout(None)

    def want(self, constraint: str) -> None:
        """Want this from now on, and nothing else."""
        if self.subscription:
            self._attached.say(AskUnsubscribe(self.subscription))
        self.subscription += 1
        self.is_active = False
        self._attached.say(AskSubscribe(self.subscription, "tags", msgspec.msgpack.encode(constraint)))

    def beat(self) -> None:
        self._attached.say(Heartbeat(0, 0))

    def read(self) -> None:
        data = self.socket.recv(READ)
        if not data:
            raise RuntimeError(f"{self._attached.client_id}: the broker has closed the connection")
        data = self._rest + data
        at, end = 0, len(data)
        while end - at >= HEADER_SIZE:
            length, _, kind, _, _ = HEADER.unpack_from(data, at)
            if end - at < length:
                break
            if kind == EVENT:
                self.got.append(int.from_bytes(data[at + length - NUMBER_BYTES : at + length], "big"))
            else:
                self._hear(data[at : at + length])
            at += length
        self._rest = data[at:]

    def _hear(self, data: bytes) -> None:
        for _, frame in self._decoder.feed(data):
            if isinstance(frame, TellRefused):
                raise RuntimeError(f"{self._attached.client_id}: {frame.reason}")
            if isinstance(frame, TellActive) and frame.subscription == self.subscription:
                self.is_active |= frame.level == self._attached.welcome.levels


class Crowd:
    """All of them, and who gives them orders."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._subscribers: list[Subscriber] = []
        self._orders = b""
        self._is_over = False
        self._beat_at = time.monotonic() + HEARTBEAT_S

    def run(self) -> None:
        """Until the input ends."""
        while not self._is_over:
            self._look(None)
            while b"\n" in self._orders and not self._is_over:
                line, _, self._orders = self._orders.partition(b"\n")
                print(json.dumps(self._obey(json.loads(line))), flush=True)

    def _look(self, timeout: float | None) -> None:
        """Read what is there; wait for it when there is nothing."""
        if self._subscribers:
            time.sleep(REST_S)
        now = time.monotonic()
        for key, _ in self._selector.select(min(timeout or HEARTBEAT_S, HEARTBEAT_S)):
            if key.data is not None:
                key.data.read()
            elif data := os.read(sys.stdin.fileno(), READ):
                self._orders += data
            else:
                self._is_over = True
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            for each in self._subscribers:
                each.beat()

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "attach" in order:
            for host, port, name in order["attach"]:
                found = Subscriber(host, port, name)
                self._subscribers.append(found)
                self._selector.register(found.socket, selectors.EVENT_READ, found)
            return {"attached": len(self._subscribers)}
        if "want" in order:
            for each, constraint in zip(self._subscribers, order["want"], strict=True):
                each.want(constraint)
            self._until(lambda: all(each.is_active for each in self._subscribers), order["patience_s"])
            return {"active": sum(each.is_active for each in self._subscribers)}
        return asdict(self._judged(**order["collect"]))

    def _judged(self, values: list[int], first: int, wanted: list[int], flooding: bool, patience_s: float) -> Tally:
        """What came of a cell, when all came, or none comes any more."""
        due = [len(values) if flooding else values.count(value) for value in wanted]
        pairs = list(zip(self._subscribers, due, strict=True))
        self._until(lambda: all(len(each.got) >= count for each, count in pairs), patience_s)
        tallies = [
            judge(values, first, value, each.got, flooding=flooding)
            for each, value in zip(self._subscribers, wanted, strict=True)
        ]
        for each in self._subscribers:
            each.got.clear()
        return summed(tallies)

    def _until(self, is_done: Callable[[], bool], patience_s: float) -> None:
        """Go on reading; give up when nothing has come for so long."""
        seen, since = -1, time.monotonic()
        while not is_done() and not self._is_over and time.monotonic() - since < patience_s:
            self._look(REST_S)
            count = sum(len(each.got) + each.is_active for each in self._subscribers)
            if count != seen:
                seen, since = count, time.monotonic()


def main() -> int:
    # Ctrl-C reaches this process too; who started it ends it in order, by the end of its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Crowd().run()
    except (RuntimeError, OSError) as error:
        print(f"veena: a subscriber: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
