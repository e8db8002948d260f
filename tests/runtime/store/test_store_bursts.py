"""Bursts in the log: on disk they are the same rows as their events one by one."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.store_desk import CODEC, NOBODY, Desk
from veena.core.boundary.inputs_effects import Stored, StoreFailed
from veena.core.boundary.stored import Disk, Entries, Entry, Identity
from veena.core.wire.burst import MAX_RELIABLE, EventBurst
from veena.core.wire.codec import Decoder
from veena.event import Event, EventId
from veena.runtime.store.retention import MIN_BYTES, Retention

ORIGIN = (0, 0, 0, 1)


def _entries(offset: int, first: int, count: int) -> Entries:
    events = [
        Event(topic="quotes", body=b"y" * number, event_id=EventId("p", 9, 3, number), timestamp_ns=number)
        for number in range(first, first + count)
    ]
    data = b"".join(CODEC.encode_event(event, 0, reliable=True, origin=ORIGIN) for event in events)
    (burst,) = Decoder(CODEC).feed_bursts(data)
    assert isinstance(burst, EventBurst)
    return Entries(offset, burst, 1000 + offset, to_serve=2, served=2)


def _shown(entries: list[Entry]) -> list[tuple[int, int, bytes]]:
    return [(entry.offset, entry.accepted_ns, CODEC.encode(entry.frame, 0)) for entry in entries]


def test_a_burst_is_read_back_as_the_events_that_it_has(tmp_path: Path) -> None:
    """I5: what was accepted in a burst is there event by event, beside what came alone."""
    one, other = _entries(0, 1, MAX_RELIABLE), _entries(MAX_RELIABLE + 1, MAX_RELIABLE + 2, 3)
    end = MAX_RELIABLE + 4
    alone = Entry(MAX_RELIABLE, _entries(MAX_RELIABLE, MAX_RELIABLE + 1, 1).entries()[0].frame, 1000 + MAX_RELIABLE)
    expected = Disk(Identity("a", ORIGIN, 1))
    with Desk(tmp_path) as desk:
        desk.stored(Identity("a", ORIGIN, 1), one, alone)
        desk.stored(other)
        for write in (one, alone, other):
            expected.write(write)
        assert _shown(list(desk.read(0, 10_000).entries)) == _shown(expected.entries)
        assert desk.offsets(end - 5) == list(range(end - 5, end))
        produced = desk.store.history("p", "produced")
        assert [each.id.sequence for each in produced] == list(range(1, end + 1))
    with Desk(tmp_path) as desk:
        disk = desk.store.load(NOBODY)
        assert disk.next_offset == end
        assert _shown(disk.entries) == _shown(expected.entries), "no unit has told yet how far it is"


def test_a_burst_is_refused_where_the_file_is_full(tmp_path: Path) -> None:
    """As any event that is published: nine tenths are for those, and nothing of a burst is kept then."""
    with Desk(tmp_path, retention=Retention(10**18, MIN_BYTES)) as desk:
        desk.stored(Identity("a", ORIGIN, 1))
        offset = 0
        found = desk.write(_entries(0, 1, 200))
        while isinstance(found, Stored) and offset < 100_000:
            offset += 200
            found = desk.write(_entries(offset, offset + 1, 200))
        assert isinstance(found, StoreFailed)
        assert "still to be delivered" in found.reason
        assert desk.offsets()[-1] == offset - 1
