"""The clients of one broker: their sessions, what each subscribed to, and which of them an event is for.

A client may have several subscriptions; together they are its profile, and an event that satisfies any of them is for
it once (PRF-01, PRF-06). Subscriptions go when they are cancelled or when the session ends (PRF-07). What the broker
tells others is the distinct wants, counted (`cover_set`).

The invariant: the engines hold exactly the subscriptions of open sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veena import matching
from veena.address import Address
from veena.core.want import Want, make_want
from veena.errors import LocalProtocolError
from veena.event import Event
from veena.matching.engine import Constraint, Engine

#: Sessions of one broker, and subscriptions of one session: bounds, not limits of the design (CLI-09).
MAX_SESSIONS = 1 << 20
MAX_SUBSCRIPTIONS = 1 << 16


@dataclass(slots=True)
class Session:
    """One client's conversation with the broker."""

    client_id: str
    #: Subscription number -> profile id and want.
    subscriptions: dict[int, tuple[int, Want]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    sessions: int
    subscriptions: int


class Clients:
    """Sessions and the engines that match events to them."""

    def __init__(self, host: Address) -> None:
        self._host = host
        self._sessions: dict[int, Session] = {}
        self._engines: dict[tuple[int, int], Engine] = {}
        #: Profile id -> session and subscription.
        self._profiles: dict[int, tuple[int, int]] = {}
        self._next_profile = 0

    def open(self, session: int, client_id: str) -> None:
        if session in self._sessions:
            raise LocalProtocolError(f"session {session} is open already: give each conversation a number of its own")
        if len(self._sessions) >= MAX_SESSIONS:
            raise LocalProtocolError(f"this broker has {MAX_SESSIONS} sessions: try another one")
        self._sessions[session] = Session(client_id)

    def close(self, session: int) -> list[Want]:
        """End a session; the wants that it had."""
        found = self._sessions.get(session)
        if found is None:
            return []
        wants = [self.unsubscribe(session, subscription) for subscription in list(found.subscriptions)]
        del self._sessions[session]
        return wants

    def subscribe(self, session: int, subscription: int, engine: str, constraint: Constraint, scope: int) -> Want:
        """Store a subscription; raise InvalidConstraint, or LocalProtocolError where the numbers are wrong."""
        found = self._sessions.get(session)
        if found is None:
            raise LocalProtocolError(f"session {session} is not open")
        if subscription in found.subscriptions or len(found.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise LocalProtocolError(
                f"subscription {subscription} of {found.client_id}: the number is in use, or the client has"
                f" {MAX_SUBSCRIPTIONS} already"
            )
        levels = len(self._host)
        if not 1 <= scope <= levels:
            raise LocalProtocolError(f"scope {scope}: expected 1 (the cluster) to {levels} (the whole system)")
        want = make_want(engine, constraint, scope)
        slot = (want.kind, want.scope)
        if slot not in self._engines:
            self._engines[slot] = matching.create(want.engine)
        self._engines[slot].add(self._next_profile, want.constraint, 0)  # raises for what cannot be read
        found.subscriptions[subscription] = (self._next_profile, want)
        self._profiles[self._next_profile] = (session, subscription)
        self._next_profile += 1
        return want

    def unsubscribe(self, session: int, subscription: int) -> Want:
        """Drop a subscription; raise LocalProtocolError if there is none."""
        found = self._sessions.get(session)
        if found is None or subscription not in found.subscriptions:
            raise LocalProtocolError(f"session {session} has no subscription {subscription}")
        profile, want = found.subscriptions.pop(subscription)
        self._engines[want.kind, want.scope].remove(profile)
        del self._profiles[profile]
        return want

    def matching(self, event: Event, origin: Address) -> dict[int, list[int]]:
        """The sessions that an event published at `origin` is for, each with its matching subscriptions."""
        found: dict[int, list[int]] = {}
        for (_, scope), engine in self._engines.items():
            size = len(self._host) - scope
            if origin[:size] == self._host[:size]:
                for profile in engine.match(event):
                    session, subscription = self._profiles[profile]
                    found.setdefault(session, []).append(subscription)
        return {session: sorted(found[session]) for session in sorted(found)}

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(len(self._sessions), len(self._profiles))

    def check(self) -> None:
        assert len(self._profiles) == sum(len(found.subscriptions) for found in self._sessions.values())
        assert len(self._profiles) == sum(map(len, self._engines.values()))
