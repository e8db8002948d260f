"""A store with somebody who asks it and waits for its answers; and events to put into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from veena.core.boundary.inputs_effects import LogRead, Read, ReadFailed, Stored, StoreFailed
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.stored import Disk, Entry, Identity, Write
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId
from veena.runtime.store.store import Answer, Store

CODEC = EventCodec(4, 32)
NOBODY = Identity("somebody new", (0, 0, 0, 0), 0)
#: Long for a busy machine; nothing here takes a second.
PATIENCE = 60.0


class Desk:
    """Asks a store and collects what it answers."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        self.troubles: SimpleQueue[str | None] = SimpleQueue()
        self.store = Store(path, self._take, on_trouble=self.troubles.put, **options)
        self.ticket = 0

    def _take(self, answers: list[Answer]) -> None:
        for each in answers:
            self.answers.put(each)

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    def submit(self, writes: Sequence[Write]) -> int:
        self.ticket += 1
        self.store.submit(StoreEffect(self.ticket, tuple(writes)))
        return self.ticket

    def answer(self) -> Stored | StoreFailed:
        found = self.answers.get(timeout=PATIENCE)
        assert not isinstance(found, LogRead | ReadFailed)
        return found

    def write(self, *writes: Write) -> Stored | StoreFailed:
        """Write and wait for the answer."""
        ticket = self.submit(writes)
        found = self.answer()
        assert found.ticket == ticket
        return found

    def stored(self, *writes: Write) -> None:
        assert self.write(*writes) == Stored(self.ticket)

    def refused(self, *writes: Write) -> str:
        found = self.write(*writes)
        assert isinstance(found, StoreFailed)
        return found.reason

    def read(self, offset: int, limit: int = 1000, inbox: int = 0, since_ns: int = 0) -> LogRead:
        self.ticket += 1
        self.store.submit(Read(self.ticket, offset, limit, inbox, since_ns))
        found = self.answers.get(timeout=PATIENCE)
        assert isinstance(found, LogRead)
        assert found.ticket == self.ticket
        return found

    def offsets(self, offset: int = 0, inbox: int = 0, since_ns: int = 0) -> list[int]:
        return [entry.offset for entry in self.read(offset, 1_000_000, inbox, since_ns).entries]

    def trimmed(self) -> None:
        """Wait until nothing more can be given up."""
        before = -1
        while before != self.store.statistics().trimmed:
            before = self.store.statistics().trimmed
            self.store.trim()
            self.store.save()  # comes before the next round of giving up, so one round at least is over after two
            self.store.trim()
            self.store.save()
            self.store.save()


def frame(
    sequence: int = 0, *, publisher: str = "alice", to_serve: int = 0, body: bytes = b"x" * 100, reliable: bool = True
) -> EventFrame:
    event = Event(topic="t", body=body, event_id=EventId(publisher, 7, 1000, sequence), timestamp_ns=1)
    return CODEC.frame(event, reliable=reliable, origin=(0, 0, 0, 1), to_serve=to_serve)


def entry(offset: int, accepted_ns: int = 1, inboxes: tuple[int, ...] = (), **options: Any) -> Entry:
    return Entry(offset, frame(offset, **options), accepted_ns, inboxes)


def plain(disk: Disk) -> dict[str, object]:
    """A disk as values that can be compared: frames as their bytes."""
    return {
        "identity": disk.identity,
        "next_offset": disk.next_offset,
        "cursors": disk.cursors,
        "had": disk.had,
        "skips": list(disk.skips),
        "known": disk.known,
        "kept": [(key, CODEC.encode(each, 0)) for key, each in disk.kept.items()],
        "registered": disk.registered,
        "reached": disk.reached,
        "floors": disk.floors,
        "shelved": list(disk.shelved.items()),
        "attended_ns": disk.attended_ns,
        "entries": [bare(each) for each in disk.entries],
    }


def bare(given: Entry) -> tuple[int, bytes, int, tuple[int, ...]]:
    return (given.offset, CODEC.encode(given.frame, 0), given.accepted_ns, given.inboxes)
