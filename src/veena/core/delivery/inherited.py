"""What sessions have had otherwise than by the end of an event's way: before they came, or as another session.

A client that attaches says what it has had, by the last place of each stream, and which later ones it skips.

    subscribe since T --> session -5, the broker's own: the past, and what comes (`durable.replay`)
                      --> session 49, its client's

What -5 was handed by itself, `delivery` knows as handed to -5; what came out of logs `delivery` has not seen. A
publisher that roams may repeat an event of either kind under another id long after that, and a broker that looked after
one for somebody absent may bring it. So the client's subscription inherits what it has had, by the ids that events had
first. Others of the same client have not had it. What it has not had may still be older than the last event of its
stream that it got: then it is handed over with the mark `late`.

At most `MAX_IDS` ids are held, but the newest subscription's are in any case. Those that inherited first lose theirs:
then what is not later than the last of its stream is handed over as late and redelivered, since it may have been had.
The last places are bounded by `MAX_PLACES` in the same way; who loses these is an ordinary subscription.

The invariant: what is held for a subscription, it was handed, or its client says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from veena.core.boundary.inputs_effects import Had
from veena.core.wire.event import LATE, REDELIVERED
from veena.core.wire.event_id import EventKey, Place, Stream

#: Ids, and places of streams, that are held for all subscriptions: about 60 MiB each.
MAX_IDS = 200_000
MAX_PLACES = 200_000
_NEVER: Place = (-1, -1)

#: The places of an event: its own, and that of its original where it is a repetition, or its own again.
Ids = tuple[tuple[Stream, Place], tuple[Stream, Place]]
#: The subscriptions of each session that an event satisfies.
Found = dict[int, list[int]]
#: A session and one of its subscriptions.
Key = tuple[int, int]


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

    def count(self) -> tuple[int, int]:
        """How many ids, and how many places."""
        return sum(map(len, self.ids)), len(self.last) + len(self.originals)

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
        #: By session and subscription.
        self.heirs: dict[int, dict[int, Estate]] = {}
        #: How many ids and places they hold, who inherited first at the front.
        self._ids: dict[Key, int] = {}
        self._places: dict[Key, int] = {}
        self.ids = self.places = 0
        #: The sessions that they go on for, and up to where any of them may have had something of a stream.
        self._formers: dict[int, None] = {}
        self._concerned: dict[Stream, Place] = {}

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
        self._formers[estate.former] = None
        self._note(estate)
        key, (ids, places) = (session, subscription), estate.count()
        while self._ids and self.ids > MAX_IDS - ids:
            self._forget_ids(next(iter(self._ids)))
        while self._places and self.places > MAX_PLACES - places:
            self.unsubscribe(*next(iter(self._places)))
        self._ids[key], self._places[key] = ids, places
        self.ids, self.places = self.ids + ids, self.places + places
        if len(self._concerned) > 2 * MAX_PLACES:  # most of it is of subscriptions that are gone
            self._concerned.clear()
            for each in self._places:
                self._note(self.heirs[each[0]][each[1]])

    def _note(self, estate: Estate) -> None:
        for part in (estate.last, estate.originals):
            for stream, place in part.items():
                self._concerned[stream] = max(place, self._concerned.get(stream, place))

    def _forget_ids(self, key: Key) -> None:
        estate = self.heirs[key[0]][key[1]]
        estate.ids, estate.is_whole = (), False
        self.ids -= self._ids.pop(key)

    def unsubscribe(self, session: int, subscription: int) -> None:
        """It is over, or an ordinary one from now on."""
        estate = self.heirs.get(session, {}).pop(subscription, None)
        if estate is None:
            return
        key = (session, subscription)
        self.ids -= self._ids.pop(key, 0)
        self.places -= self._places.pop(key)
        del self._formers[estate.former]
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

    def has_heirs(self, ids: Ids, handed: frozenset[int]) -> bool:
        """Whether somebody may have inherited an event, or a later one, that these sessions were handed."""
        if not self.heirs:
            return False
        return self.concerns(*ids[0]) or self.concerns(*ids[1]) or any(each in self._formers for each in handed)

    def without_had(self, found: Found, first: EventKey, handed: frozenset[int]) -> Found:
        """Who is left when subscriptions go that have had an event."""
        left: Found = {}
        for session, numbers in found.items():
            estates = self.heirs.get(session)
            if estates is None or not numbers:  # what is addressed to a client satisfies no subscription
                left[session] = numbers
                continue
            new = [each for each in numbers if each not in estates or not estates[each].has(first, handed)]
            if new:
                left[session] = new
        return left

    def by_mark(self, found: Found, ids: Ids) -> dict[int, Found]:
        """The same by the marks that an event needs."""
        marked: dict[int, Found] = {0: {}}
        for session, numbers in found.items():
            estates = self.heirs.get(session)
            if estates is None or not numbers:
                marked[0][session] = numbers
                continue
            for each in numbers:
                mark = estates[each].mark(ids) if each in estates else 0
                marked.setdefault(mark, {}).setdefault(session, []).append(each)
        return marked
