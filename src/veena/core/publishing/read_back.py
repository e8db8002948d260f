"""Entries that were read back from the log: those that are alike go together, as they would have gone at first."""

from __future__ import annotations

from veena.core.boundary.stored import Entry
from veena.core.wire.burst import BurstReader, EventBurst
from veena.core.wire.event import EventCodec


def together(entries: list[Entry], codec: EventCodec) -> list[tuple[list[Entry], EventBurst | None]]:
    """The same entries in their order, in pieces: neighbours in the log for the same units whose events are alike, with
    their burst; any other by itself, without one."""
    reader = BurstReader(codec)
    pieces: list[tuple[list[Entry], EventBurst | None]] = []
    for neighbours in _neighbours(entries):
        if len(neighbours) == 1:
            pieces.append((neighbours, None))
            continue
        data = b"".join(codec.encode(entry.frame.copy(0, 0, entry.frame.ttl_ms), 0) for entry in neighbours)
        at = offset = 0
        while at < len(neighbours):
            frame = neighbours[at].frame
            burst = reader.read(data, offset, len(data), codec.header_size + len(frame.tail), frame.flags)
            piece = neighbours[at : at + burst.count]
            pieces.append((piece, burst if burst.count > 1 else None))
            at += burst.count
            offset += len(burst.data)
    return pieces


def _neighbours(entries: list[Entry]) -> list[list[Entry]]:
    """Entries at offsets that follow each other, for the same units and of the same age."""
    found: list[list[Entry]] = []
    for entry in entries:
        last = found[-1][-1] if found else None
        if (
            last is not None
            and entry.offset == last.offset + 1
            and entry.accepted_ns == last.accepted_ns
            and (entry.frame.to_serve, entry.frame.served) == (last.frame.to_serve, last.frame.served)
        ):
            found[-1].append(entry)
        else:
            found.append([entry])
    return found
