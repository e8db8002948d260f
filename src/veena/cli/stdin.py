"""The lines of standard input as they come, for commands that also have a conversation to keep up."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

from veena.core.wire.header import MAX_FRAME
from veena.errors import InvalidEvent

#: Bytes of one read, and reads that wait for whoever takes the lines.
READ = 64 * 1024
READS_AHEAD = 4


def read_all() -> bytes:
    """All of standard input, once it is over."""
    try:
        return _standard_input().read()
    except OSError as error:
        raise InvalidEvent(f"standard input: {error.strerror}") from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:  # so Python has it when it was closed before the start
        raise InvalidEvent("standard input is closed; give the body as an argument")
    if sys.stdin.isatty():
        print("veena: reads what you type; Ctrl-D ends it", file=sys.stderr, flush=True)
    return sys.stdin.buffer


async def lines() -> AsyncIterator[list[bytes]]:
    """As many at once as a read brings, without their ends.

    A thread waits for them: meanwhile the client answers its broker, and Ctrl-C need not wait for the next line.
    """
    loop = asyncio.get_running_loop()
    reads: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(READS_AHEAD)

    source = _standard_input().fileno()

    def wait() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody wants more
            while room.acquire():
                try:
                    data: bytes | OSError = os.read(source, READ)
                except OSError as error:  # a directory, or a terminal that is gone
                    data = error
                loop.call_soon_threadsafe(reads.put_nowait, data)
                if not data or isinstance(data, OSError):
                    return

    threading.Thread(target=wait, name="standard input", daemon=True).start()
    rest = b""
    while data := await reads.get():
        if isinstance(data, OSError):
            raise InvalidEvent(f"standard input: {data.strerror}") from None
        room.release()
        *found, rest = (rest + data).split(b"\n")
        if found:
            yield [line.rstrip(b"\r") for line in found]
        if len(rest) > MAX_FRAME:
            raise InvalidEvent(f"standard input: a line of more than {MAX_FRAME} bytes, which no event can have")
    if rest:
        yield [rest.rstrip(b"\r")]
