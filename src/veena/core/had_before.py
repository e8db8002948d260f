"""What sessions have had otherwise than by the end of an event's way: before they came, as another, or out of logs.

A client that attaches says what it has had, by the last place of each stream, and which later ones it skips.

    subscribe since T --> session -5, the broker's own: the past, and what comes (`past`) --> session 49, its client's

What -5 was handed by itself, `ends` knows as handed to -5; what came out of logs `ends` has not seen. A publisher that
roams may repeat an event of either kind under another id long after that, and a broker that looked after one for
somebody absent may bring it. So the session that goes on inherits whose events it has had, and their ids. What it has
not had may still be older than the last event of its stream that came from a log: then it is handed over with a mark.

At most `MAX_IDS` such ids are held; beyond that the sessions that inherited first lose theirs, and may get again what
is repeated as late as that.

The invariant: what is held for a session, it was handed, or its client says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from veena.core.boundary import Had
from veena.core.disk import EventKey, Place, Stream

#: Ids that are held for all sessions: about 60 MiB.
MAX_IDS = 200_000
#: Sessions that one session goes on for: subscriptions whose past was read lately.
MAX_FORMERS = 256
_NEVER: Place = (-1, -1)


@dataclass(slots=True)
class _Before:
    """What one session has had."""

    #: What its client said, and the streams in that.
    had: Had = field(default_factory=dict)
    skips: frozenset[tuple[Stream, Place]] = frozenset()
    presented: frozenset[Stream] = frozenset()
    formers: tuple[int, ...] = ()
    #: The ids that inherited events had first; the last of them by publisher and incarnation.
    ids: dict[EventKey, None] = field(default_factory=dict)
    firsts: dict[tuple[bytes, int], Place] = field(default_factory=dict)
    #: The last event out of a log by stream.
    last: dict[Stream, Place] = field(default_factory=dict)


class HadBefore:
    """What the sessions of one broker have had otherwise."""

    def __init__(self) -> None:
        #: Who inherited last comes last.
        self._sessions: dict[int, _Before] = {}
        #: How many ids are held.
        self.ids = 0

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def attach(self, session: int, had: Had, skips: frozenset[tuple[Stream, Place]]) -> None:
        """What a client says it has had before, and which of it under a later id."""
        self.detach(session)
        self._sessions[session] = _Before(had, skips, frozenset(had) | {stream for stream, _ in skips})

    def inherit(self, session: int, former: int, ids: Iterable[EventKey], last: Mapping[Stream, Place]) -> None:
        """A session goes on for a former one, which has had these, the last out of a log of each stream among them."""
        before = self._sessions.pop(session, None) or _Before()
        self._sessions[session] = before
        before.formers = (*before.formers, former)[-MAX_FORMERS:]
        self.ids -= len(before.ids)
        for each in ids:
            before.ids[each] = None
            publisher, place = each[:2], each[2:]
            before.firsts[publisher] = max(place, before.firsts.get(publisher, place))
        self.ids += len(before.ids)
        for stream, place in last.items():
            before.last[stream] = max(place, before.last.get(stream, place))
        self._bound(session)

    def _bound(self, newest: int) -> None:
        for session, before in self._sessions.items():
            if self.ids <= MAX_IDS or session == newest:
                return
            self.ids -= len(before.ids)
            before.ids, before.firsts, before.last = {}, {}, {}

    def detach(self, session: int) -> None:
        before = self._sessions.pop(session, None)
        if before is not None:
            self.ids -= len(before.ids)

    def has(
        self, session: int, ids: tuple[tuple[Stream, Place], ...], first: EventKey | None, handed: frozenset[int]
    ) -> bool:
        """Whether a session has had an event: by its places, the id that it had first, and who was handed it here."""
        before = self._sessions.get(session)
        if before is None:
            return False
        if first in before.ids or not handed.isdisjoint(before.formers):
            return True
        return any(place <= before.had.get(stream, _NEVER) or (stream, place) in before.skips for stream, place in ids)

    def is_overtaken(self, session: int, stream: Stream, place: Place) -> bool:
        """Whether a session has had a later event of a stream out of a log."""
        before = self._sessions.get(session)
        return before is not None and place <= before.last.get(stream, _NEVER)

    def is_plain(self, session: int, stream: Stream, place: Place) -> bool:
        """Whether events of a stream from a place on are certainly new to a session."""
        before = self._sessions.get(session)
        if before is None:
            return True
        if stream in before.presented:
            return False
        first = before.firsts.get((stream[0].encode(), stream[1]), _NEVER) if before.firsts else _NEVER
        return place > max(first, before.last.get(stream, _NEVER))
