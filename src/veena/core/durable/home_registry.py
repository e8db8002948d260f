"""Where a client's durable subscriptions are kept: told to everybody, so that they are found from wherever it goes.

A client that attaches elsewhere, and a member of a group (`groups`), are to find the home. So the home is a want of its
own, for what is addressed to it, and it takes as long as any other to be heard everywhere. What a subscription asks for
may be known long before: somebody else here wants the same, and it is acknowledged at once. Were that told, a client
could go on to a broker that believes that nothing is kept for it, and a group could come into being a second time.

The invariant: a durable subscription is said to be acknowledged up to a level when everybody there has heard both what
it asks for and where it is kept.

Rejected: asking everybody in scope at each first subscription whether they keep something (`replay` does so for logs,
and a broker that is absent makes it wait).
"""

from __future__ import annotations

from collections.abc import Callable

from veena.address import Address
from veena.core.boundary.inputs_effects import ClientDown, ClientUp
from veena.core.durable.subscription import Durable
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.service import Profiles
from veena.core.interest.subscriptions import REACH
from veena.core.messages.addresses import home_id
from veena.event import Event


class Homes:
    """The clients and groups for whom one broker keeps something."""

    def __init__(self, profiles: Profiles, new_session: Callable[[], int]) -> None:
        self._profiles = profiles
        self._new_session = new_session
        #: By client: the session in which its home is told.
        self._sessions: dict[str, int] = {}
        #: By that session: what is kept.
        self._kept: dict[int, dict[int, Durable]] = {}

    def keep(self, durable: Durable, now_ns: int) -> None:
        """Be found by those where its client attaches next."""
        session = self._sessions.get(durable.client_id)
        if session is None:
            session = self._sessions[durable.client_id] = self._new_session()
            self._kept[session] = {}
            self._profiles.client(ClientUp(session, home_id(durable.client_id), reachable=True), now_ns)
        self._kept[session][durable.number] = durable

    def leave(self, durable: Durable, now_ns: int) -> None:
        """It is not kept here any more."""
        session = self._sessions.get(durable.client_id, 0)
        kept = self._kept.get(session, {})
        if kept.pop(durable.number, None) is not None and not kept:
            del self._sessions[durable.client_id], self._kept[session]
            self._profiles.client(ClientDown(session), now_ns)

    def of(self, session: int) -> list[Durable]:
        """What is kept at the home that is told in a session."""
        return list(self._kept.get(session, {}).values())

    def rises(self, durable: Durable) -> bool:
        """Whether a subscription is acknowledged further than it was when this was asked last."""
        level = self._level(durable.session, durable.subscription)
        if not durable.is_passing:
            level = min(level, self._level(self._sessions.get(durable.client_id, 0), REACH))
        has_risen = level > durable.level
        durable.level = max(level, durable.level)
        return has_risen

    def _level(self, session: int, subscription: int) -> int:
        state = self._profiles.state(session, subscription)
        return 0 if state is None else state[1]


class OtherHomes:
    """What other brokers announce: for which clients and groups they keep durable subscriptions."""

    def __init__(self, interest: InterestMap, host: Address) -> None:
        self._interest = interest
        self._host = host

    def may_exist(self, client_id: str, now_ns: int) -> bool:
        """Whether another broker keeps something for this client or group, or may yet announce that it does."""
        return bool(self._interest.destinations(Event(to=(home_id(client_id),)), self._host, now_ns))

    def is_announced(self, client_id: str) -> bool:
        """Whether another broker has announced that it keeps something for this client or group."""
        return self._interest.has_told(Event(to=(home_id(client_id),)))
