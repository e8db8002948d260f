"""What is kept for one durable subscription: a cursor in the log, and what of it was handed over and not acknowledged.

Entries of the log name the inboxes that they are for. An inbox needs no list of them: below `cursor` everything is
acknowledged, from `front` on nothing was handed over, and in between exactly the entries in `open` are not
acknowledged. So the memory of an inbox is bounded by `WINDOW` and `MAX_PARKED`, however long its client stays away.

A client may read with several devices. Each reads for itself, from the cursor on; an event that one of them has
acknowledged is not handed to the others any more.

The invariant: cursor <= every open offset < front <= end, and no reader is beyond the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veena.core.wire.event_id import EventKey, Place, Stream
from veena.matching.base.verdict import Verdict

#: Events handed over and not acknowledged; more stay in the log.
WINDOW = 1024
#: Events beside these that were handed back, because nobody who is there may have them (`group_denials`).
MAX_PARKED = 4096
#: What the store takes for a kept event beside its bytes.
ENTRY_BYTES = 160
#: A mark of a meter is so many bytes, or such a part of all that it counts, after the one before.
MARK_BYTES = 64 << 10
MARKS = 256


class Meter:
    """How many bytes are kept for one inbox.

    The disk keeps everything from the cursor on, so an event is counted until the cursor has passed it, acknowledged or
    not. A mark every so many bytes says how much was before it: the count is too high by less than a mark's bytes, and
    right where the inbox is empty.
    """

    __slots__ = ("_marks", "_total")

    def __init__(self) -> None:
        self._total = 0
        #: (offset, bytes of everything before it), ascending; what is before the first one is kept no more.
        self._marks: deque[tuple[int, int]] = deque()

    @property
    def bytes(self) -> int:
        return self._total - self._marks[0][1] if self._marks else 0

    def add(self, offset: int, size: int) -> None:
        """An event is kept."""
        marks, total = self._marks, self._total
        if not marks or total - marks[-1][1] >= max(MARK_BYTES, (total - marks[0][1]) // MARKS):
            marks.append((offset, total))
        self._total += size

    def release(self, cursor: int, end: int) -> int:
        """What is below the cursor is kept no more; how many bytes that frees."""
        marks = self._marks
        if not marks:
            return 0
        before = marks[0][1]
        if cursor >= end:
            marks.clear()
            return self._total - before
        while len(marks) > 1 and marks[1][0] <= cursor:
            marks.popleft()
        return marks[0][1] - before


@dataclass(slots=True)
class Reader:
    """One attached session and where it is."""

    session: int
    subscription: int
    #: Which inbox it reads, and from where.
    inbox: int
    next: int
    #: The last places that it had before it attached: what comes from before them is late.
    had: dict[Stream, Place] = field(default_factory=dict)
    #: What it had before: nothing of that is handed to it again.
    skips: frozenset[tuple[Stream, Place]] = frozenset()
    #: Its application acknowledges: it may have got what it does not skip.
    is_manual: bool = False
    #: By publisher and lane, the latest two incarnations of which such an application had something, the last first.
    latest: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    #: Of one that waits for its past: the last place of each stream of which it had something under another id.
    originals: dict[Stream, Place] = field(default_factory=dict)
    is_reading: bool = False
    #: It waits until it is evaluated whether it wants the event at `next`: what stands for that question.
    question: object | None = None
    #: What came of the last one: the offset, and the verdict.
    verdict: tuple[int, Verdict] | None = None

    def presents(self, had: Mapping[Stream, Place], skips: frozenset[tuple[Stream, Place]], is_manual: bool) -> None:
        """What it says of itself when it attaches."""
        self.had, self.skips, self.is_manual = dict(had), skips, is_manual
        for publisher, incarnation, lane in had if is_manual else ():
            known = self.latest.get((publisher, lane), [])
            self.latest[publisher, lane] = sorted([*known, incarnation], reverse=True)[:2]

    def is_past(self, is_late: bool, stream: Stream, place: Place) -> bool:
        """Whether an event is out of its order for this reader, whether it was marked before or not."""
        return is_late or place <= self.had.get(stream, (-1, -1))

    def follows(self, ids: Sequence[tuple[Stream, Place]]) -> bool:
        """Note an event that is handed over; whether it is in its order. What came by itself may be older than what the
        past gave, where it is older than the past that was asked for."""
        stream, place = ids[0]
        for original, at in ids[1:]:
            self.originals[original] = max(at, self.originals.get(original, at))
        last = self.had.get(stream, (-1, -1))
        self.had[stream] = max(place, last)
        return place > last

    def may_have_got(self, ids: Sequence[tuple[Stream, Place]]) -> bool:
        """Whether an application that acknowledges may have got an event before it attached, and not acknowledged it:
        under one of these ids, its own and the one that it had first, or as a repetition under another incarnation.

        That cannot be told from an event that was overtaken, nor what a publisher repeated from what it did not: where
        something of a later incarnation was had than the event's first, it is marked.
        """
        if not self.is_manual:
            return False
        if any(place <= self.had.get(stream, (-1, -1)) for stream, place in ids):
            return True
        (publisher, own, lane), first = ids[0][0], ids[-1][0][1]
        return any(first < each != own for each in self.latest.get((publisher, lane), ()))


class Inbox:
    """One inbox; `number` is what entries of the log name it by."""

    __slots__ = (
        "by_key", "end", "floor", "front", "is_closed", "meter", "number", "open", "parked", "shown", "stored"
    )  # fmt: skip

    def __init__(self, number: int, cursor: int, end: int) -> None:
        self.number = number
        #: Nothing was handed over from here on.
        self.front = cursor
        #: One above the last entry, and above the last one that is on disk.
        self.end = self.stored = end
        #: Entries below this may have been handed over by a former life.
        self.shown = end
        self.open: dict[int, EventKey] = {}
        self.by_key: dict[EventKey, int] = {}
        #: Of these, what nobody who is there may have: it takes no room.
        self.parked: dict[EventKey, None] = {}
        #: Nothing more will come.
        self.is_closed = False
        #: Entries up to these places came, or will come, by another inbox.
        self.floor: dict[Stream, Place] = {}
        self.meter = Meter()

    @property
    def cursor(self) -> int:
        return next(iter(self.open), self.front)

    @property
    def has_room(self) -> bool:
        return len(self.open) - len(self.parked) < WINDOW

    def is_acknowledged(self, offset: int) -> bool:
        return offset < self.front and offset not in self.open

    def was_shown(self, offset: int) -> bool:
        """Whether an entry may have been handed to somebody before, in this life or a former one."""
        return offset < self.front or offset < self.shown

    def is_below_floor(self, stream: Stream, place: Place) -> bool:
        return bool(self.floor) and place <= self.floor.get(stream, (-1, -1))

    def pass_over(self, offset: int) -> None:
        """An entry needs nobody's acknowledgement."""
        self.front = max(self.front, offset + 1)

    def hand(self, offset: int, key: EventKey) -> bool:
        """An entry is handed over; whether it may have been before."""
        again = self.was_shown(offset)
        if offset >= self.front:
            self.front = offset + 1
            self.open[offset] = key
            self.by_key[key] = offset
        return again

    def acknowledge(self, key: EventKey) -> bool:
        """Somebody has it for good; False when it was not open."""
        offset = self.by_key.pop(key, None)
        if offset is None:
            return False
        del self.open[offset]
        self.parked.pop(key, None)
        return True

    def park(self, key: EventKey) -> None:
        """Nobody who is there may have an open entry; where too many are parked, one more takes room."""
        if key in self.by_key and len(self.parked) < MAX_PARKED:
            self.parked[key] = None

    def check(self) -> None:
        offsets = list(self.open)
        assert offsets == sorted(offsets)
        assert not offsets or offsets[-1] < self.front
        assert self.stored <= self.end
        assert len(self.by_key) == len(self.open) <= WINDOW + MAX_PARKED
        assert self.parked.keys() <= self.by_key.keys()
        assert len(self.parked) <= MAX_PARKED
