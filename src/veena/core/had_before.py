"""What sessions have had otherwise than by the end of an event's way: before they came, or as another session.

A client that attaches says what it has had, by the last place of each stream, and which later ones it skips.

    subscribe since T --> session -5, the broker's own: the past, and what comes (`past`) --> session 49, its client's

What -5 was handed by itself, `ends` knows as handed to -5; what came out of logs `ends` has not seen. A publisher that
roams may repeat an event of either kind under another id long after that, and a broker that looked after one for
somebody absent may bring it. So the client's subscription inherits what it has had, by the ids that events had first.
Others of the same client have not had it. What it has not had may still be older than the last event of its stream that
it got: then it is handed over with the mark `late`.

So many ids are held as `MAX_IDS` says, but for the newest subscription's. Those that inherited first lose theirs: then
what is not later than the last of its stream is handed over as late and redelivered, since it may have been had.

The invariant: what is held for a subscription, it was handed, or its client says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from veena.core.boundary import Had
from veena.core.disk import EventKey, Place, Stream
from veena.core.event_frame import LATE, REDELIVERED

#: Ids and streams that are held for all subscriptions: about 60 MiB.
MAX_IDS = 200_000
_NEVER: Place = (-1, -1)

#: The places of an event: its own, and that of its original where it is a repetition, or its own again.
Ids = tuple[tuple[Stream, Place], tuple[Stream, Place]]
#: The subscriptions of each session that an event satisfies.
Found = dict[int, list[int]]


@dataclass(slots=True)
class Estate:
    """What one subscription inherits."""

    #: The session that has had it.
    former: int
    #: The ids that its events had first, in parts; all of them, if nothing was forgotten.
    ids: tuple[Collection[EventKey], ...]
    is_whole: bool
    #: The last of each stream; and of streams of which a repetition was had.
    last: Mapping[Stream, Place]
    originals: Mapping[Stream, Place]

    @property
    def size(self) -> int:
        return sum(map(len, self.ids)) + len(self.last) + len(self.originals)

    def has(self, first: EventKey, handed: frozenset[int]) -> bool:
        return self.former in handed or any(first in part for part in self.ids)

    def mark(self, ids: Ids) -> int:
        """How an event that it is not known to have is marked for it."""
        (stream, place), (first, original) = ids
        is_past = place <= self.last.get(stream, _NEVER)
        if self.is_whole:
            return LATE if is_past else 0
        before = max(self.last.get(first, _NEVER), self.originals.get(first, _NEVER))
        return LATE | REDELIVERED if is_past or original <= before else 0


class HadBefore:
    """What the sessions of one broker have had otherwise."""

    def __init__(self) -> None:
        self.said: dict[int, tuple[Had, frozenset[tuple[Stream, Place]]]] = {}
        #: The streams in that.
        self.presented: dict[int, frozenset[Stream]] = {}
        #: By session and subscription, who inherited last at the end.
        self.heirs: dict[int, dict[int, Estate]] = {}
        self._order: dict[tuple[int, int], None] = {}
        #: Up to where any of them may have had something of a stream.
        self._concerned: dict[Stream, Place] = {}
        self.size = 0

    # --- what clients say ---

    def attach(self, session: int, had: Had, skips: frozenset[tuple[Stream, Place]]) -> None:
        """What a client says it has had before, and which of it under a later id."""
        self.said[session] = (had, skips)
        self.presented[session] = frozenset(had) | {stream for stream, _ in skips}

    def is_new_to(self, session: int, ids: Ids) -> bool:
        """Whether a client did not say when it attached that it has had an event, under any of its ids."""
        had, skips = self.said[session]
        return all(place > had.get(stream, _NEVER) and (stream, place) not in skips for stream, place in ids)

    # --- heirs ---

    def inherit(self, session: int, subscription: int, estate: Estate) -> None:
        self.unsubscribe(session, subscription)
        self.heirs.setdefault(session, {})[subscription] = estate
        self._order[session, subscription] = None
        self.size += estate.size
        self._note(estate)
        self._bound()
        if len(self._concerned) > 2 * MAX_IDS:  # most of it is of subscriptions that are gone
            self._concerned.clear()
            for key in self._order:
                self._note(self.heirs[key[0]][key[1]])

    def _note(self, estate: Estate) -> None:
        for part in (estate.last, estate.originals):
            for stream, place in part.items():
                self._concerned[stream] = max(place, self._concerned.get(stream, place))

    def _bound(self) -> None:
        for each in self._older():
            self.size -= each.size
            each.ids, each.is_whole = (), False
            self.size += each.size
        for each in self._older():
            self.size -= each.size
            each.last, each.originals = {}, {}

    def _older(self) -> Iterator[Estate]:
        """All but the newest while there is too much, the oldest first."""
        for session, subscription in list(self._order)[:-1] if self.size > MAX_IDS else ():
            if self.size <= MAX_IDS:
                return
            yield self.heirs[session][subscription]

    def unsubscribe(self, session: int, subscription: int) -> None:
        estate = self.heirs.get(session, {}).pop(subscription, None)
        if estate is None:
            return
        self.size -= estate.size
        del self._order[session, subscription]
        if not self.heirs[session]:
            del self.heirs[session]
        if not self.heirs:
            self._concerned.clear()

    def detach(self, session: int) -> None:
        self.said.pop(session, None)
        self.presented.pop(session, None)
        for subscription in list(self.heirs.get(session, ())):
            self.unsubscribe(session, subscription)

    def concerns(self, stream: Stream, place: Place) -> bool:
        """Whether somebody may have inherited something of a stream that is not before a place."""
        return place <= self._concerned.get(stream, _NEVER)

    def without_had(self, found: Found, first: EventKey, handed: frozenset[int]) -> Found:
        """Who is left when subscriptions go that have had an event."""
        left = dict(found)
        for session, estates in self._heirs_among(found):
            numbers = [each for each in found[session] if each not in estates or not estates[each].has(first, handed)]
            if numbers or not found[session]:  # what is addressed to a client satisfies no subscription
                left[session] = numbers
            else:
                del left[session]
        return left

    def _heirs_among(self, found: Found) -> list[tuple[int, dict[int, Estate]]]:
        return [(session, self.heirs[session]) for session in found if session in self.heirs]

    def by_mark(self, found: Found, ids: Ids) -> dict[int, Found]:
        """The same by the marks that an event needs."""
        sorted_: dict[int, Found] = {0: dict(found)}
        for session, estates in self._heirs_among(found):
            mark = 0
            for each in found[session]:
                mark |= estates[each].mark(ids) if each in estates else 0
            if mark:
                sorted_.setdefault(mark, {})[session] = sorted_[0].pop(session)
        return sorted_
