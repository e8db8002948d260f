"""An engine over the index: what `selector` and `constraint` share.

They differ in the language of the text, in what an event shows of itself, and in whether a topic stands before the
text; everything else is here. Texts are read by templates (a known shape costs a few microseconds), identical
constraints have one owner in the index, and both kinds of answer come from the same walk over the segments that an
event meets.

`destinations` walks in growing pieces and stops when every destination that the scope has is set (DST-07); formulas
are judged only for destinations that are not set yet (DST-04), and what the columns decide is so cheap that skipping
there would cost more than it saves.

The invariants: a scope exists exactly while it has a profile; it knows the owner of each text that it has, and counts
the destinations of its profiles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from veena.event import Event
from veena.matching.base.engine import (
    MATCHES,
    Constraint,
    DestinationCounts,
    Engine,
    Snapshot,
    Statistics,
    check_profile,
    check_snapshot,
    sealed,
)
from veena.matching.condition.closures import Check, compile_condition
from veena.matching.condition.explain import explain_condition
from veena.matching.condition.formula import Formula
from veena.matching.condition.tree import evaluate
from veena.matching.index.batch import Batch
from veena.matching.index.index import Index, Scope, recalled_rest
from veena.matching.index.profiles import SHARED, Profiles
from veena.matching.index.residual import Origin
from veena.matching.index.segments import SHORTEST_PIECE, Segment
from veena.matching.index.snapshot import read_index, write_index
from veena.matching.index.template import Language, shared_templates

SNAPSHOT_VERSION = 1

#: Constraints of one topic that an event is compared with one by one, by compiled closures: the index has a fixed
#: price, for an event alone and for a batch.
FEW_ALONE, FEW_OF_A_BATCH = 12, 4
#: Closures that an engine holds, a kilobyte each: those of topics that were asked for longest ago are made again.
MAX_CHECKS = 8192
#: Up to this many constraints of a topic the destinations of a batch are those of its matches: beyond it, what
#: `destinations` may skip of an event alone is worth more.
MANY = 8192

#: With this many matches for each destination, all 32 are among them nine times out of ten.
MATCHES_A_BIT = 6

Attributes = Mapping[str, object]


class Topic(Scope):
    """The profiles of one topic, or of all where there are no topics."""

    __slots__ = ("_checks", "_known", "_only", "name")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        #: The constraints as closures, by owner, once they were asked for.
        self._checks: dict[int, Check] | None = None
        #: The only owner, -1 for none; from the second one on there is a dict, by text. `texts` are the engine's.
        self._only = -1
        self._known: dict[str, int] | None = None

    def owner(self, text: str, texts: list[str]) -> int | None:
        """Who has this constraint."""
        if self._known is not None:
            return self._known.get(text)
        return self._only if self._only >= 0 and texts[self._only] == text else None

    def owners(self) -> list[int]:
        if self._known is not None:
            return list(self._known.values())
        return [] if self._only < 0 else [self._only]

    def __len__(self) -> int:
        """Distinct constraints."""
        return len(self._known) if self._known is not None else int(self._only >= 0)

    def admit(self, text: str, owner: int, texts: list[str]) -> None:
        if self._known is not None:
            self._known[text] = owner
        elif self._only < 0:
            self._only = owner
        else:
            self._known = {texts[self._only]: self._only, text: owner}
            self._only = -1

    def checks(self, texts: list[str], language: Language) -> dict[int, Check]:
        """The constraints as closures, by owner: of a topic that has a few."""
        checks = self._checks
        if checks is None:
            checks = self._checks = {}
        if len(checks) != len(self):
            for owner in self.owners():
                if owner not in checks:
                    checks[owner] = compile_condition(language.parse(texts[owner]))
        return checks

    def drop_checks(self) -> None:
        self._checks = None

    def dismiss(self, text: str) -> None:
        """One of the owners is gone."""
        gone = self._only if self._known is None else self._known[text]
        if self._checks is not None:
            self._checks.pop(gone, None)
        if self._known is None:
            self._only = -1
        else:
            del self._known[text]
            if not self._known:
                self._known = None

    def restore(self, owners: list[int], texts: list[str]) -> None:
        """Take the owners of a snapshot."""
        if len(owners) == 1:
            self._only = owners[0]
        elif owners:
            self._known = dict(zip(map(texts.__getitem__, owners), owners, strict=True))


class IndexedEngine(Engine):
    """An engine whose constraint is a text over attributes, perhaps under a topic."""

    language: ClassVar[Language]
    #: Stands in every text that names a field of the header.
    header_mark: ClassVar[str]

    def __init__(self) -> None:
        self._templates = shared_templates(self.language)
        self._index = Index(self._recall)
        self._profiles = Profiles()
        self._topics: dict[str, Topic] = {}
        #: By owner.
        self._texts: list[str] = []
        self._owner_topics: list[Topic] = []
        #: The topics that have closures, the one that got them longest ago first.
        self._compiled: dict[Topic, None] = {}
        #: Owners whose text may name a field of the header; without any, events show their properties only.
        self._header_readers = 0

    @abstractmethod
    def _split(self, constraint: Constraint) -> tuple[str, str]:
        """The topic, empty where there are none, and the text; raise InvalidConstraint."""

    @abstractmethod
    def _topic_of(self, event: Event) -> str | None:
        """The topic whose profiles an event is for; None for none."""

    @abstractmethod
    def _attributes(self, event: Event) -> Attributes:
        """What the texts can name: the properties, and the header."""

    def add(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        name, text = self._split(constraint)
        topic = self._topics.get(name)
        rows = None
        if topic is None or topic.owner(text, self._texts) is None:
            rows = self._templates.rows(text)
        if profile_id in self._profiles.owners:
            self.remove(profile_id)
            topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(name)
        topic.count(destination)
        owner = topic.owner(text, self._texts)
        if owner is not None:
            self._profiles.attach(profile_id, owner, destination, is_new=False)
            return
        owner = self._profiles.new_owner()
        topic.admit(text, owner, self._texts)
        self._profiles.attach(profile_id, owner, destination, is_new=True)
        if owner == len(self._texts):
            self._texts.append(text)
            self._owner_topics.append(topic)
        else:
            self._texts[owner] = text
            self._owner_topics[owner] = topic
        if rows is None:  # its only other holder was the profile that is replaced
            rows = self._templates.rows(text)
        self._index.place(owner, topic, rows, text)
        self._header_readers += self.header_mark in text

    def remove(self, profile_id: int) -> None:
        owner, destination, is_last = self._profiles.detach(profile_id)
        topic = self._owner_topics[owner]
        topic.discount(destination)
        if not is_last:
            self._index.loosen(owner)
            return
        self._index.withdraw(owner, topic)
        text = self._texts[owner]
        topic.dismiss(text)
        self._texts[owner] = ""
        self._header_readers -= self.header_mark in text
        if not len(topic):
            del self._topics[topic.name]
            self._compiled.pop(topic, None)

    def redirect(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        owner, before = self._profiles.redirect(profile_id, destination)
        topic = self._owner_topics[owner]
        if more := destination & ~before:
            topic.count(more)
        if less := before & ~destination:
            topic.discount(less)
            self._index.loosen(owner)

    def match(self, event: Event) -> list[int]:
        topic = self._topics.get(self._topic_of(event))  # type: ignore[arg-type]
        if topic is None:
            return []
        attributes = self._attributes(event) if self._header_readers else event.properties
        index = self._index
        if len(topic) <= FEW_ALONE:
            checks = self._checks_of(topic)
            index.steps += len(checks)
            return self._profiles.listed_few([owner for owner, check in checks.items() if check(attributes)])
        found: list[NDArray[np.int32]] = []
        index.see(attributes)
        try:
            for segment in index.met(topic, attributes):
                owners = index.owners(segment, attributes)
                if owners is not None:
                    found.append(owners)
        finally:
            index.forget()
        if not found:
            return []
        owners = found[0] if len(found) == 1 else np.concatenate(found)
        if index.has_spread:
            owners = _distinct(owners)
        return self._profiles.listed(owners)

    def match_batch(self, events: Sequence[Event]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in events]
        for topic, places in self._by_topic(events).items():
            shown = [self._attributes(events[at]) if self._header_readers else events[at].properties for at in places]
            for at, ids in zip(places, self._match_all(topic, shown), strict=True):
                found[at] = ids
        return found

    def destinations_batch(self, events: Sequence[Event]) -> list[int]:
        found = [0] * len(events)
        for topic, places in self._by_topic(events).items():
            if FEW_OF_A_BATCH < len(topic) <= MANY:
                shown = [
                    self._attributes(events[at]) if self._header_readers else events[at].properties for at in places
                ]
                masks = self._lead_all(topic, shown)
            else:
                masks = [self.destinations(events[at]) for at in places]
            for at, mask in zip(places, masks, strict=True):
                found[at] = mask
        return found

    def _checks_of(self, topic: Topic) -> dict[int, Check]:
        """The constraints of a topic that has a few, as closures."""
        checks = topic.checks(self._texts, self.language)
        if topic not in self._compiled:
            self._compiled[topic] = None
            if len(self._compiled) > MAX_CHECKS // FEW_ALONE:
                oldest = next(iter(self._compiled))
                del self._compiled[oldest]
                oldest.drop_checks()
        return checks

    def _by_topic(self, events: Sequence[Event]) -> dict[Topic, list[int]]:
        """The places of the events that are for the profiles of each topic."""
        topics, topic_of = self._topics, self._topic_of
        found: dict[Topic, list[int]] = {}
        for at, event in enumerate(events):
            topic = topics.get(topic_of(event))  # type: ignore[arg-type]
            if topic is not None:
                found.setdefault(topic, []).append(at)
        return found

    def _match_all(self, topic: Topic, shown: list[Attributes]) -> list[list[int]]:
        """For each of these events the ids of the profiles of its topic that it satisfies."""
        profiles = self._profiles
        if len(topic) <= FEW_OF_A_BATCH:
            checks = self._checks_of(topic)
            self._index.steps += len(checks) * len(shown)
            if len(checks) == 1:
                ((owner, check),) = checks.items()
                held = profiles.listed_few([owner])
                return [held if check(attributes) else [] for attributes in shown]
            return [
                profiles.listed_few([owner for owner, check in checks.items() if check(attributes)])
                for attributes in shown
            ]
        places, owners = Batch(self._index, shown).matches(topic)
        if self._index.has_spread and len(places):
            places, owners = _distinct_pairs(places, owners)
        return profiles.listed_each(places, owners, len(shown))

    def _lead_all(self, topic: Topic, shown: list[Attributes]) -> list[int]:
        """The same for destinations."""
        found = [0] * len(shown)
        places, owners = Batch(self._index, shown).matches(topic)
        if len(places):
            order = np.argsort(places, kind="stable")
            places, owners = places[order], owners[order]
            firsts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1]))).tolist()
            for start, end in zip(firsts, [*firsts[1:], len(places)], strict=True):
                found[int(places[start])] = self._profiles.union(owners[start:end], 0)
        return found

    def destinations(self, event: Event) -> int:
        topic = self._topics.get(self._topic_of(event))  # type: ignore[arg-type]
        if topic is None:
            return 0
        attributes = self._attributes(event) if self._header_readers else event.properties
        index, everything = self._index, topic.mask
        mask = 0
        if len(topic) <= FEW_ALONE:
            for owner, check in self._checks_of(topic).items():
                vector = self._profiles.vector(owner)
                if vector & ~mask:
                    index.steps += 1
                    if check(attributes):
                        mask |= vector
                        if mask == everything:
                            break
            return mask
        judged: list[Segment] = []
        index.see(attributes)
        try:
            for segment in index.met(topic, attributes):
                if segment.table.has_rest:
                    judged.append(segment)
                    continue
                mask = self._walk(segment, mask, everything)
                if mask == everything:
                    return mask
            for segment in judged:
                mask = self._judge(segment, attributes, mask, everything)
                if mask == everything:
                    return mask
        finally:
            index.forget()
        return mask

    def _walk(self, segment: Segment, mask: int, everything: int) -> int:
        """The mask with the destinations of a segment's true rows, or with enough of them to be everything."""
        index, profiles, owners, count = self._index, self._profiles, segment.page.owners, segment.count
        if segment.table.sides == 2 and count > SHORTEST_PIECE:
            mask |= self._common(segment, everything)
            if mask == everything:
                return mask
        start, piece = 0, segment.piece
        while start < count:
            end = min(count, start + piece)
            slots = index.candidates(segment, start, end)
            found = 0 if slots is None else len(slots)
            if slots is not None:
                mask = profiles.union(owners.take(slots), mask)
            if not start and count > SHORTEST_PIECE:
                segment.learn(end, found if mask == everything else 0, MATCHES_A_BIT * everything.bit_count())
            if mask == everything:
                break
            start, piece = end, 2 * piece
        return mask

    def _common(self, segment: Segment, everything: int) -> int:
        """Destinations that all values near the event's lead to; some or all of them."""
        feature = segment.table.features[0]
        low, high = self._index.features.low[feature], self._index.features.high[feature]
        if low != low:  # noqa: PLR0124 - NaN: the event has no such value
            return 0
        cells = segment.divided()
        cell = -1 if cells is None else cells.cell(low, high)
        if cells is None or cell < 0:
            return 0
        mask = cells.mask(cell)
        if mask is None:
            mask, owners = 0, segment.page.owners
            start, piece = 0, segment.piece
            while start < segment.count and mask != everything:
                end = min(segment.count, start + piece)
                slots = self._index.sure(segment, cells.ends(cell), start, end)
                mask = self._profiles.union(owners.take(slots), mask)
                start, piece = end, 2 * piece
            cells.learn(cell, mask, start, is_all=mask == everything)
        return mask

    def _judge(self, segment: Segment, attributes: Attributes, mask: int, everything: int) -> int:
        """As `_walk` where formulas decide: one by one, and only for destinations that are missing (DST-04)."""
        slots = self._index.candidates(segment, 0, segment.count)
        if slots is None:
            return mask
        profiles, rests = self._profiles, self._index.rests
        owners = segment.page.owners.take(slots)
        numbers = profiles.numbers.take(owners).tolist()
        asked = segment.page.rests.take(slots).tolist()
        verdicts = rests.verdicts
        # Numbers of destinations that are set; nobody iterates it.
        reached: set[int] = set()
        for owner, number, rest in zip(owners.tolist(), numbers, asked, strict=True):
            verdict = verdicts.get(rest)
            if verdict is False or number in reached:
                continue
            vector = profiles.vectors[number] if number != SHARED else profiles.crowds[owner].mask
            if not vector & ~mask:
                if number != SHARED:
                    reached.add(number)
            elif verdict or rests.holds(rest, attributes):
                mask |= vector
                if mask == everything:
                    break
        return mask

    def explain(self, profile_id: int, event: Event) -> str:
        owner = self._profiles.owners[profile_id]
        topic = self._owner_topics[owner].name
        found = self._topic_of(event)
        if found is None:
            return f"unknown: the event has no topic; the profile wants {topic!r}"
        if found != topic:
            return f"failed: topic is {found!r}, the profile wants {topic!r}"
        condition, attributes = self.language.parse(self._texts[owner]), self._attributes(event)
        return MATCHES if evaluate(condition, attributes) is True else explain_condition(condition, attributes)

    def snapshot(self) -> Snapshot:
        topics = list(self._topics.values())
        owner_topics = np.full(len(self._texts), -1, dtype=np.int32)
        for place, topic in enumerate(topics):
            owner_topics[topic.owners()] = place
        head: Snapshot = {
            "engine": self.name,
            "version": SNAPSHOT_VERSION,
            "header_readers": self._header_readers,
            "topics": [topic.name for topic in topics],
            "texts": self._texts.copy(),
            "owner_topics": owner_topics,
        }
        return sealed(head | self._profiles.write() | write_index(self._index, topics))

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Self:
        check_snapshot(snapshot, cls.name, SNAPSHOT_VERSION)
        engine = cls()
        texts = engine._texts = cast("list[str]", snapshot["texts"]).copy()
        engine._header_readers = cast("int", snapshot["header_readers"])
        engine._profiles.read(snapshot, len(texts))
        topics = [Topic(name) for name in cast("list[str]", snapshot["topics"])]
        engine._topics = {topic.name: topic for topic in topics}
        places = cast("NDArray[np.int32]", snapshot["owner_topics"])
        # Owners that are free have the place -1, and belong to a topic that nobody asks for.
        engine._owner_topics = [*map([*topics, Topic("")].__getitem__, places.tolist())]
        order = np.argsort(places, kind="stable")
        starts = np.searchsorted(places[order], np.arange(len(topics) + 1))
        for place, topic in enumerate(topics):
            topic.restore(order[starts[place] : starts[place + 1]].tolist(), texts)
        _count_reach(topics, places, snapshot)
        read_index(engine._index, topics, snapshot, len(texts))
        return engine

    def statistics(self) -> Statistics:
        index = self._index
        return Statistics(
            self.name,
            len(self._profiles),
            sum(map(len, self._topics.values())),
            index.steps + index.rests.evaluations,
            {
                "topics": len(self._topics),
                "tables": len(index.tables),
                "bitmaps": sum(table.bitmaps for table in index.tables.values()),
                "formulas": len(index.rests),
            },
        )

    def __len__(self) -> int:
        return len(self._profiles)

    def _recall(self, origin: Origin) -> tuple[Formula, ...]:
        text, number, variant = origin
        return recalled_rest(self._templates.rows(text)[number], variant)


def _count_reach(topics: list[Topic], places: NDArray[np.int32], snapshot: Snapshot) -> None:
    """Count the destinations of each topic, all profiles with one destination at once."""
    vectors = cast("list[int]", snapshot["destinations"])
    held = cast("NDArray[np.int32]", snapshot["owners"])
    numbers = cast("NDArray[np.int32]", snapshot["destination_numbers"])
    pairs, counts = np.unique(places[held].astype(np.int64) * len(vectors) + numbers, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        place, number = divmod(pair, len(vectors))
        counted = DestinationCounts()
        counted.mask = vectors[number]
        if count > 1:
            counted.planes = [vectors[number] if count >> power & 1 else 0 for power in range(count.bit_length())]
        topics[place].count_all(counted)


def _distinct_pairs(
    places: NDArray[np.int64], owners: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    pairs = np.unique((places << 32) | owners)
    return pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.int32)


def _distinct(owners: NDArray[np.int32]) -> NDArray[np.int32]:
    ordered = np.sort(owners)
    kept = np.empty(len(ordered), dtype=np.bool_)
    kept[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]
