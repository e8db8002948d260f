"""Quench: publishers are told whether anybody may want what they would publish (SYS-01).

A publisher shows an event like those that it would publish, and is told at once, and whenever that changes, whether it
is wanted: by a client of this broker, or by a unit around it as far as the interest map knows. Wanted or not, nothing
more: who wants it, how many and where stays unsaid. The answer errs in one direction only, as the interest map does: a
unit that has not spoken, or whose digest lets such an event through, counts as wanting it.

Watched events are asked about again only when something changed: a want here, a row or digest of a unit, the circle of
units that may want anything. Changes are gathered for a moment, and `CHUNK` events are asked about at a time, so that a
storm of subscriptions costs a bounded share of the broker's time and events are not held up by it. That is also when
watches of sessions that are over go.

The invariant: when nothing has changed for a moment, the last answer of every watch is what the interest map and the
clients say.

Rejected: handing subscriptions to publishers, as Elvin does (a producer's state grows with the whole system's, and
everybody would see what others want).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from veena.address import Address
from veena.core.boundary.clients import AskWanted, Unwatch, Wanted
from veena.core.boundary.inputs_effects import ClientRefused, Effect
from veena.core.boundary.settings import Settings
from veena.core.boundary.user_shares import Tally
from veena.core.interest.service import Profiles
from veena.errors import InvalidEvent, LocalProtocolError, RefusalCode
from veena.event import Event

#: Events that one session and one broker watch, and how long what engines see of one may be: 64 MiB in all.
MAX_WATCHES_OF_SESSION = 256
MAX_WATCHES = 4096
MAX_WATCHES_OF_USER = MAX_WATCHES // 4
MAX_SECTION = 16 << 10
#: Watches that are asked about at a time.
CHUNK = 256

#: A session and a number of its own.
Key = tuple[int, int]
#: What an answer depends on, as counts of changes.
State = tuple[int, int, bool, tuple[Address, ...]]


@dataclass(frozen=True, slots=True)
class QuenchStatistics:
    watches: int
    wanted: int
    #: Questions to the interest map since the start.
    asked: int


class Quench:
    """The watches of one broker's publishers."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        effects: list[Effect],
        user_of: Callable[[int], str],
    ) -> None:
        self._host = host
        self._user_of = user_of
        #: The user of each session that watches, and how many events all of its sessions do.
        self._users: dict[int, str] = {}
        self._of_user = Tally(MAX_WATCHES, MAX_WATCHES_OF_USER)
        self._profiles = profiles
        self._pause_ns = settings.batch_ns[0]
        self._effects = effects
        self._events: dict[Key, Event] = {}
        self._answers: dict[Key, bool] = {}
        self._of_session: dict[int, dict[int, None]] = {}
        self._state: State | None = None
        #: Watches to ask about again, and from when on.
        self._due: deque[Key] = deque()
        self._due_ns: int | None = None
        self._asked = 0

    @property
    def is_watched(self) -> bool:
        return bool(self._events)

    def ask(self, given: AskWanted, now_ns: int) -> None:
        """Begin a watch and answer, or say why not. A number that is in use is given to the new event."""
        key = (given.session, given.number)
        try:
            event = self._event(given, key)
        except (InvalidEvent, LocalProtocolError) as error:
            self._effects.append(ClientRefused(given.session, None, error.code, f"watch {given.number}: {error}"))
            return
        if not self._events:
            self._state = self._present(now_ns)
        if key not in self._events:
            user = self._users.setdefault(given.session, self._user_of(given.session))
            self._of_user.add(user)
        self._events[key] = event
        self._of_session.setdefault(given.session, {})[given.number] = None
        self._answers[key] = self._is_wanted(event, now_ns)
        self._effects.append(Wanted(*key, self._answers[key]))

    def _event(self, given: AskWanted, key: Key) -> Event:
        numbers = self._of_session.get(given.session, {})
        if given.session not in self._profiles.clients:
            raise LocalProtocolError(f"session {given.session} is not open")
        if key not in self._events and (len(numbers) >= MAX_WATCHES_OF_SESSION or len(self._events) >= MAX_WATCHES):
            raise LocalProtocolError(
                f"this session watches {len(numbers)} events, its broker {len(self._events)}: at most"
                f" {MAX_WATCHES_OF_SESSION} and {MAX_WATCHES}; unwatch some",
                code=RefusalCode.LIMIT,
            )
        if key not in self._events:
            self._of_user.admit(self._user_of(given.session), "one more watched event")
        if given.frame.matching_length > MAX_SECTION:
            raise InvalidEvent(
                f"{given.frame.matching_length} bytes of what engines see: at most {MAX_SECTION} of a watched event"
            )
        return replace(given.frame.event(), body=b"")

    def watched(self, session: int) -> list[tuple[int, Event]]:
        """What a session watches, by its numbers."""
        return [(number, self._events[session, number]) for number in self._of_session.get(session, ())]

    def unwatch(self, given: Unwatch, now_ns: int) -> None:
        self._forget(given.session, given.number)

    def _forget(self, session: int, number: int) -> None:
        numbers = self._of_session.get(session, {})
        if numbers.pop(number, 0) is None:
            del self._events[session, number], self._answers[session, number]
            self._of_user.add(self._users[session], -1)
            if not numbers:
                del self._of_session[session], self._users[session]

    # --- changes ---

    def look(self, now_ns: int) -> None:
        """Whether something changed on which answers depend: then they are found anew after a moment."""
        state = self._present(now_ns)
        if state != self._state:
            self._state = state
            self._due = deque(self._events)
            if self._due_ns is None:
                self._due_ns = now_ns + self._pause_ns

    def _present(self, now_ns: int) -> State:
        profiles = self._profiles
        doubted = profiles.leases.doubted(now_ns)
        return profiles.interest.changes, profiles.clients.changes, profiles.is_ready(now_ns), doubted

    def tick(self, now_ns: int) -> None:
        """Ask about some of the watches whose answer may have changed."""
        if self._due_ns is None or now_ns < self._due_ns:
            return
        for _ in range(min(CHUNK, len(self._due))):
            key = self._due.popleft()
            event = self._events.get(key)
            if event is None:
                continue  # it is no longer watched
            if key[0] not in self._profiles.clients:
                self._forget(*key)
                continue
            wanted = self._is_wanted(event, now_ns)
            if wanted != self._answers[key]:
                self._answers[key] = wanted
                self._effects.append(Wanted(*key, wanted))
        self._due_ns = now_ns if self._due else None

    def _is_wanted(self, event: Event, now_ns: int) -> bool:
        self._asked += 1
        profiles = self._profiles
        return (
            not profiles.is_ready(now_ns)
            or bool(profiles.interest.destinations(event, self._host, now_ns))
            or bool(profiles.clients.matching(event, self._host))
        )

    def next_wakeup(self) -> int | None:
        return self._due_ns

    def statistics(self) -> QuenchStatistics:
        return QuenchStatistics(len(self._events), sum(self._answers.values()), self._asked)

    def check(self) -> None:
        assert self._events.keys() == self._answers.keys()
        assert len(self._events) == sum(map(len, self._of_session.values())) <= MAX_WATCHES
        assert self._of_user.count == len(self._events) and self._users.keys() == self._of_session.keys()
        assert self._due_ns is not None or not self._due
