"""Who gets each event of a mixed burst: engines are asked once for all of its events.

A mixed burst (`wire.burst`) brings events of one stream whose matching sections differ. The sections are read in one
pass, in C code that holds every bound; what of an event nobody reads is not looked at again. By topic there are three
cases: nothing but its topic decides about an event, so that all events of the topic have the same receivers; or its
tags or properties decide, and then the engines that hold something for such events are asked with all of them at once;
or somebody elsewhere may want the event, or it is not plain (XML, addressees, a second publication, a clearance), and
then the long way deals with it.

The receivers found are those that `Decisions` finds for each event alone, and they are remembered as long as nothing
has changed (`state`): by topic, by section, and by the profiles that an event satisfies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from veena.core.boundary.session_id import is_brokers
from veena.core.delivery.match_cache import Receivers
from veena.core.interest.constraint import INTEGER, TAGS, TO, TOPIC, XPATH
from veena.core.interest.digest import Outlined
from veena.core.interest.eligibility import CLEARANCE, NEEDS, NEEDS_CPU
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.subscriptions import Clients
from veena.core.wire.burst import EventBurst
from veena.core.wire.control import ClientId
from veena.core.wire.header import DECODE_ERRORS
from veena.core.wire.section import MAX_HEADERS, MAX_PROPERTIES, MAX_TAGS, MAX_TO, Name, Original
from veena.event import MAX_PRIORITY, EventId
from veena.matching.simple.topic import MAX_TOPIC_LENGTH

#: Receivers that are remembered by topic, by section and by profiles: some 4 MiB at most each.
MAX_REMEMBERED = 4096
#: Profiles of which it is remembered whose they are: 20 MiB.
MAX_PAIRS = 1 << 16
#: For so many profiles the receivers are remembered: more seldom come again.
FEW = 2
#: Sections are looked up while at least one of so many is found.
LUCK = 8
#: Headers that decide who may have an event.
_DECIDING = frozenset((CLEARANCE, NEEDS, NEEDS_CPU))
#: Kinds that see nothing of an event without XML, integer and addressees; topics are looked up.
_BLIND = (INTEGER, XPATH, TO, TOPIC)
_Value = bool | int | float | str | None


class Outline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What engines see of an event without XML bytes, values of bytes and very long integers; it reads like `Event`."""

    topic: Annotated[str, Meta(max_length=MAX_TOPIC_LENGTH)] | None
    tags: Annotated[dict[Name, str], Meta(max_length=MAX_TAGS)] | None
    xml: str | None
    properties: Annotated[dict[Name, _Value], Meta(max_length=MAX_PROPERTIES)]
    headers: Annotated[dict[Name, _Value], Meta(max_length=MAX_HEADERS)]
    to: Annotated[tuple[ClientId, ...], Meta(max_length=MAX_TO)]
    original: Original | None = None

    integer: ClassVar[int | None] = None
    priority: ClassVar[int] = 0
    #: Nobody asks for these two, or the burst would not be dealt with here.
    timestamp_ns: ClassVar[int] = 0
    event_id: ClassVar[EventId | None] = None
    id: ClassVar[str | None] = None

    @property
    def tag_values(self) -> Mapping[str, str]:
        return self.tags or {}


def _decoder(of_priority: int) -> msgspec.msgpack.Decoder[Outline]:
    class OfPriority(Outline, frozen=True, array_like=True, gc=False):
        priority: ClassVar[int] = of_priority

    return msgspec.msgpack.Decoder(OfPriority)


_DECODERS = [_decoder(priority) for priority in range(MAX_PRIORITY + 1)]


class _Pairs(dict[int, tuple[int, tuple[int, ...]]]):
    """Of a profile its session and its subscription; KeyError where there is more to know about the session."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def __missing__(self, profile: int) -> tuple[int, tuple[int, ...]]:
        receivers = self._clients.receivers((profile,))
        if not receivers or is_brokers(receivers[0][0]):
            raise KeyError(profile)
        if len(self) >= MAX_PAIRS:
            self.clear()
        self[profile] = receivers[0]
        return receivers[0]


class _Varies:
    """Stands for receivers that depend on more than the topic."""


_VARIES = _Varies()
#: Of events and the units that may want them: the units for which copies have to leave.
Gates = Callable[[Sequence[int], Sequence[Outlined], int], list[int]]
_Found = Receivers | None


class MixedBursts:
    """One a broker."""

    def __init__(self, clients: Clients, interest: InterestMap, gates: Gates) -> None:
        self._clients = clients
        self._interest = interest
        self._gates = gates
        self._state: object = None
        self._by_topic: dict[str | None, _Found | _Varies] = {}
        self._by_section: dict[int, dict[bytes, _Found]] = {}
        self._by_profiles: dict[tuple[int, ...], _Found] = {}
        self._pairs = _Pairs(clients)
        #: The profiles that a topic alone satisfies.
        self._of_topic: dict[str | None, list[int]] = {}
        self._luck = MAX_REMEMBERED
        #: Whether something of the present burst may have been wanted elsewhere.
        self._has_asked_gates = False

    def receivers(self, burst: EventBurst, state: object, now_ns: int) -> list[_Found]:
        """For each event who gets it; None where the long way has to deal with it."""
        assert burst.sections is not None
        if state != self._state:
            self._state = state
            for remembered in (self._by_topic, self._by_section, self._by_profiles, self._of_topic, self._pairs):
                remembered.clear()
            self._luck = MAX_REMEMBERED
        priority = burst.like.priority
        self._has_asked_gates = False
        if self._luck <= 0:
            self._luck += LUCK  # now and then it is tried again
            return self._decide(burst.sections, priority, now_ns)
        known = self._by_section.setdefault(priority, {})
        found: list[Any] = list(map(known.get, burst.sections, (_VARIES,) * burst.count))
        unknown = [at for at, each in enumerate(found) if each is _VARIES]
        self._luck = min(self._luck + LUCK * (burst.count - len(unknown)) - len(unknown), MAX_REMEMBERED)
        if unknown:
            asked = [burst.sections[at] for at in unknown]
            if len(known) + len(asked) > MAX_REMEMBERED:
                known.clear()
            for at, section, each in zip(unknown, asked, self._decide(asked, priority, now_ns), strict=True):
                found[at] = each
                if not self._has_asked_gates:  # what is wanted beyond them may change at any time
                    known[section] = each
        return found

    def _decide(self, sections: list[bytes], priority: int, now_ns: int) -> list[_Found]:
        decode, by_topic = _DECODERS[priority].decode, self._by_topic
        has_tags = self._has_tags
        found: list[_Found] = [None] * len(sections)
        varying: list[int] = []
        outlines: list[Outline] = []
        for at, section in enumerate(sections):
            try:
                outline = decode(section)
            except DECODE_ERRORS:
                continue
            if outline.headers and not _DECIDING.isdisjoint(outline.headers):
                continue
            if outline.xml is not None or outline.to or outline.original is not None:
                continue
            topic = outline.topic
            if topic in by_topic:
                known = by_topic[topic]
            else:
                if len(by_topic) >= MAX_REMEMBERED:
                    by_topic.clear()
                    self._of_topic.clear()
                known = by_topic[topic] = self._by_topic_alone(topic, now_ns)
            if known is _VARIES or (has_tags and outline.tags and known is not None):
                varying.append(at)
                outlines.append(outline)
            else:
                found[at] = known  # type: ignore[assignment]
        if outlines:
            for at, each in zip(varying, self._ask(outlines, now_ns), strict=True):
                found[at] = each
        return found

    @property
    def _has_tags(self) -> bool:
        of_tags = (engine for kind, engine in (*self._clients.engines(), *self._interest.engines()) if kind == TAGS)
        return self._interest.attributes.tags or any(map(len, of_tags))

    def _by_topic_alone(self, topic: str | None, now_ns: int) -> _Found | _Varies:
        if self._interest.certain(topic, now_ns):
            return _VARIES  # somebody elsewhere may want them: the gates are asked each time
        if self._interest.attributes.names is None or self._interest.attributes.names:
            return _VARIES
        for kind, engine in (*self._clients.engines(), *self._interest.engines()):
            if kind not in _BLIND and kind != TAGS and engine.concerns(topic):
                return _VARIES
        return self._receivers_of(tuple(self._profiles_of(topic)))

    def _profiles_of(self, topic: str | None) -> list[int]:
        found = self._of_topic.get(topic)
        if found is None:
            outline = Outline(topic, None, None, {}, {}, ())
            found = self._of_topic[topic] = [
                profile
                for kind, engine in self._clients.engines()
                if kind == TOPIC
                for profile in engine.match(outline)  # type: ignore[arg-type]
            ]
        return found

    def _ask(self, outlines: list[Outline], now_ns: int) -> list[_Found]:
        """Ask every engine that may have something for these events."""
        topics = dict.fromkeys(outline.topic for outline in outlines)
        wanted = self._interest.wanted_batch(outlines, topics, now_ns)
        certain = {topic: self._interest.certain(topic, now_ns) for topic in topics}
        if any(certain.values()):
            wanted = [
                certain[outline.topic] | (0 if wanted is None else wanted[at]) for at, outline in enumerate(outlines)
            ]
        if wanted is not None:
            wanted = self._gates(wanted, outlines, now_ns)
            self._has_asked_gates = True
        answers: list[list[list[int]]] = []
        for kind, engine in self._clients.engines():
            if kind not in _BLIND and len(engine) and any(map(engine.concerns, topics)):
                answers.append(engine.match_batch(outlines))  # type: ignore[arg-type]
        has_base = any(self._profiles_of(topic) for topic in topics)
        found: list[_Found] = []
        known = self._by_profiles
        for at, outline in enumerate(outlines):
            if wanted is not None and wanted[at]:
                found.append(None)
                continue
            profiles = answers[0][at] if answers else []
            for answer in answers[1:]:
                profiles = profiles + answer[at]
            if has_base:
                profiles = profiles + self._profiles_of(outline.topic)
            if len(profiles) > FEW and len(answers) == 1 and not has_base:
                found.append(self._those_of(profiles))
                continue
            key = tuple(profiles)
            found.append(known[key] if key in known else self._receivers_of(key))
        return found

    def _those_of(self, profiles: list[int]) -> _Found:
        """The same for many profiles of one or several engines, most of them of a session each."""
        try:
            found = dict(map(self._pairs.__getitem__, profiles))
        except KeyError:
            return self._receivers_of(tuple(profiles))
        if len(found) == len(profiles):
            return tuple(found.items())
        found.clear()
        for profile in profiles:  # those of a session stand together, in order
            session, number = self._pairs[profile]
            found[session] = found[session] + number if session in found else number
        return tuple(found.items())

    def _receivers_of(self, profiles: tuple[int, ...]) -> _Found:
        """Who has these profiles; None where that is a broker itself, which keeps events."""
        if len(self._by_profiles) >= MAX_REMEMBERED:
            self._by_profiles.clear()
        receivers: _Found = self._clients.receivers(profiles)
        if receivers and is_brokers(receivers[0][0]):
            receivers = None
        self._by_profiles[profiles] = receivers
        return receivers
