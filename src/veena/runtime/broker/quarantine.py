"""The quarantine: frames whose handling raised an exception that nobody foresaw, as files for who mends the broker.

Each file is JSON: time, sender, transport, kind of input, the frames in hex, the exception and its traceback. The
broker encodes the frames again from what it has read; the secrets of a greeting are left out. The directory has mode
0700 and a file 0600, since frames may hold what only their receivers may read. Count and bytes are bounded: the oldest
file goes first. A file is whole or not there: the broker writes it under another name and renames it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from veena.runtime.store.file import FILE_NAME

#: The directory, beside the store.
NAME: Final = "quarantine"
#: Files at once, and their bytes.
MAX_FILES: Final = 64
MAX_BYTES: Final = 32 << 20
#: Bytes of frames, and characters of a traceback, that one file has: the rest is left out, and said to be.
MAX_FRAME_BYTES: Final = 4 << 20
MAX_TRACE: Final = 32 << 10
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Caught:
    """What one file tells."""

    #: Nanoseconds since 1970.
    at_ns: int
    broker: str
    incarnation: int
    #: Who is refused for it.
    sender: str
    #: The other end of the connection, and what was proved of it.
    peer: str
    proven: str | None
    transport: str
    input: str
    #: Frames as hexadecimal digits; and the bytes that there were, where that was too much.
    frames: str
    frame_bytes: int
    error: str
    trace: str


class Quarantine:
    """The quarantine of one broker. Writes the disk: not for the loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, caught: Caught) -> Path:
        """Write a file, and give up the oldest where there are too many; raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        path = self.directory / f"{caught.at_ns:020d}{_SUFFIX}"
        data = json.dumps(asdict(caught), indent=1).encode() + b"\n"
        self._make_room(len(data))
        temporary = path.with_suffix(".new")
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        return path

    def _make_room(self, size: int) -> None:
        for leftover in self.directory.glob("*.new"):
            leftover.unlink(missing_ok=True)
        there = [(path, path.stat().st_size) for path in _files(self.directory)]
        total = sum(found for _, found in there)
        while there and (len(there) >= MAX_FILES or total + size > MAX_BYTES):
            path, found = there.pop(0)
            path.unlink(missing_ok=True)
            total -= found

    def count(self) -> int:
        """How many files there are."""
        return sum(1 for _ in _files(self.directory))


def quarantine_of(store: Path) -> Path:
    """Where the broker with this store has its quarantine: beside the file, in a directory of its own."""
    return store.parent / NAME if store.name == FILE_NAME else store.with_name(f"{store.name}.{NAME}")


def kept(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The files of a quarantine with what they tell, the oldest first; one that cannot be read says why."""
    for path in _files(directory):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            found = {"error": f"cannot be read: {error}"}
        yield path, found


def hex_of(data: bytes) -> str:
    """Frames as a file has them."""
    return data[:MAX_FRAME_BYTES].hex()


def when(at_ns: int) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns / 1e9))


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
