"""Which events a reader gets: those that it asked for, of those that it may read.

Whatever depends on the matching section alone is decided once for each different section of a block, and remembered
over blocks where sections are short: a million events on a hundred topics cost a hundred decisions. Selectors are
compiled by the engines' own parser and see what the engine shows them, so a verdict here is a broker's (ORD-04).

Read rights are those of a delivery: some engine's subscription must be allowed to get the event. What is addressed to
somebody else (`to`) is shown only to who may read the whole log (`log`). What asks for a clearance is shown to who has
it, where users have clearances (PRF-03); where there are no users, anybody could claim any.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veena.core.interest.constraint import SUBSCRIBED
from veena.core.interest.eligibility import Fitness
from veena.core.wire.event import PRIORITY_MASK, PRIORITY_SHIFT, RELIABLE, EventCodec
from veena.core.wire.log_tables import LogTest
from veena.core.wire.section import TIME_OFFSET, TIME_SIZE, Section, decode_section
from veena.errors import InvalidEvent, RemoteProtocolError
from veena.event import Event
from veena.matching import compile_selector
from veena.matching.engines.compiled import CompiledCondition
from veena.matching.engines.selector import selector_attributes
from veena.runtime.access.rights import Rights
from veena.runtime.export.events import EventRows, gather

#: Verdicts that one read remembers, and the longest section that is worth it.
MAX_REMEMBERED: Final = 1 << 14
MAX_KEY: Final = 512
#: What a selector may name that differs from event to event; then nothing is remembered.
HEADER_MARK: Final = "JMS"

Mask = NDArray[np.bool_]
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
#: Columns of numbers that can be tested.
_NUMBERS: dict[str, Callable[[EventRows], NDArray[Any]]] = {
    "offset": lambda rows: rows.offsets,
    "at": lambda rows: rows.at,
    "incarnation": lambda rows: rows.headers["incarnation"].astype(np.int64),
    "stamp": lambda rows: rows.headers["stamp"].astype(np.int64),
    "sequence": lambda rows: rows.headers["sequence"].astype(np.int64),
    "ttl": lambda rows: rows.headers["ttl"].astype(np.int64),
    "published": EventRows.published,
    "reliable": lambda rows: (rows.headers["flags"] & RELIABLE).astype(np.int64),
    "priority": lambda rows: ((rows.headers["flags"] & PRIORITY_MASK) >> PRIORITY_SHIFT).astype(np.int64),
}
_TEXTS = ("publisher", "topic")
#: Columns of events that a read can test.
TESTED: Final = (*_NUMBERS, *_TEXTS)


class Sieve:
    """The tests of one read; used by one thread at a time."""

    def __init__(
        self,
        codec: EventCodec,
        topic: str = "",
        selector: str = "",
        tests: Sequence[LogTest] = (),
        rights: Rights | None = None,
        client_id: str = "",
        clearances: Sequence[str] | None = None,
    ) -> None:
        """Raises InvalidConstraint for a selector that is none."""
        self._codec = codec
        self._topic = topic.encode() if topic else None
        self._selector = compile_selector(selector) if selector.strip() else None
        self._is_lasting = HEADER_MARK not in selector
        self._numbers = [test for test in tests if test.column in _NUMBERS]
        self._texts = [test for test in tests if test.column in _TEXTS]
        self._rights = rights
        self._client_id = client_id
        self._fitness = None if clearances is None else Fitness({"clearances": ",".join(clearances)})
        self._known: dict[bytes, bool] = {}

    def __call__(self, rows: EventRows) -> EventRows:
        """The rows that pass."""
        for test in self._numbers:
            if len(rows):
                rows = rows.where(_tested(_NUMBERS[test.column](rows), test))
        for test in self._texts:
            if len(rows) and test.column == "publisher":
                rows = rows.where(self._publishers(rows, test))
            elif len(rows):
                rows = rows.where(self._topics(rows, test))
        if len(rows) and self._topic is not None:
            rows = rows.where(_has_topic(rows, self._topic))
        if len(rows) and (self._rights is not None or self._fitness is not None):
            rows = rows.where(self._decided(rows, b"r", self._may_read))
        if len(rows) and self._selector is not None:
            rows = rows.where(self._decided(rows, b"s", self._selected) if self._is_lasting else self._one_by_one(rows))
        return rows

    @staticmethod
    def _publishers(rows: EventRows, test: LogTest) -> Mask:
        ends = (rows.publishers + rows.publisher_lengths).tolist()
        found = [rows.data[start:end] for start, end in zip(rows.publishers.tolist(), ends, strict=True)]
        verdicts = {each: _passes(each, test) for each in dict.fromkeys(found)}
        return np.fromiter((verdicts[each] for each in found), bool, len(found))

    @staticmethod
    def _topics(rows: EventRows, test: LogTest) -> Mask:
        starts, lengths = rows.topics()
        data = rows.data
        found = [
            None if length < 0 else data[start : start + length]
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        verdicts = {each: each is not None and _passes(each, test) for each in dict.fromkeys(found)}
        return np.fromiter((verdicts[each] for each in found), bool, len(found))

    def _decided(self, rows: EventRows, kind: bytes, decide: Callable[[bytes], bool]) -> Mask:
        """By the matching section, once for each that is different."""
        sections, codes = rows.distinct_sections()
        verdicts = np.fromiter((self._remembered(kind + each, decide, each) for each in sections), bool, len(sections))
        return np.asarray(verdicts[codes], bool)

    def _one_by_one(self, rows: EventRows) -> Mask:
        """For a selector that looks at what differs from event to event."""
        mask = np.zeros(len(rows), bool)
        for at in range(len(rows)):
            try:
                event = self._codec.read(_frame(rows, at)).event()
            except (InvalidEvent, RemoteProtocolError):
                continue
            mask[at] = self._compiled.matches(selector_attributes(event))
        return mask

    def _selected(self, section: bytes) -> bool:
        """Without the names of the header a selector sees the properties alone."""
        return self._compiled.matches(_read(section).properties)

    @property
    def _compiled(self) -> CompiledCondition:
        assert self._selector is not None
        return self._selector

    def _remembered(self, key: bytes, decide: Callable[[bytes], bool], section: bytes) -> bool:
        known = self._known.get(key)
        if known is None:
            try:
                known = decide(section)
            except InvalidEvent:
                known = False
            if len(key) <= MAX_KEY:
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                self._known[key] = known
        return known

    def _may_read(self, section: bytes) -> bool:
        found = _read(section)
        event = Event(topic=found.topic, headers=found.headers, to=found.to)
        if self._fitness is not None and not self._fitness.suits(event):
            return False
        if self._rights is None:
            return True
        if event.to and self._client_id not in event.to and not self._rights.allows("log"):
            return False
        return any(self._rights.may_read(event, engine) for engine in SUBSCRIBED)


def _frame(rows: EventRows, at: int) -> bytes:
    start = int(rows.starts[at])
    return rows.data[start : start + int(rows.headers["length"][at])]


def _read(section: bytes) -> Section:
    """What a section without its time says."""
    return decode_section(section[:TIME_OFFSET] + bytes(TIME_SIZE) + section[TIME_OFFSET:])


def _has_topic(rows: EventRows, topic: bytes) -> Mask:
    starts, lengths = rows.topics()
    mask: Mask = np.asarray(lengths == len(topic), bool)
    found = starts[mask]
    if len(found) and topic:
        same = gather(rows.data, found, np.dtype((np.void, len(topic)))).view(np.uint8).reshape(len(found), -1)
        mask[mask] = (same == np.frombuffer(topic, np.uint8)).all(axis=1)
    return mask


def _tested(values: NDArray[Any], test: LogTest) -> Mask:
    if test.how == "in":
        return np.isin(values, np.array(test.numbers, np.int64))
    return np.asarray(_COMPARE[test.how](values, test.numbers[0]), bool)


def _passes(value: bytes, test: LogTest) -> bool:
    """Texts compare as their bytes in UTF-8 do, which is as Spark compares them."""
    given = [text.encode() for text in test.texts]
    if test.how == "in":
        return value in given
    return bool(_COMPARE[test.how](value, given[0]))
