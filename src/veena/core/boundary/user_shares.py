"""What one user may have a broker keep: bytes of its store, durable subscriptions, advertisements.

A broker tells its core who the user of each session is (`ClientUp.user`) and what each user may have (`UserShares`,
when it starts and whenever that changes). Where nobody shows who they are, the client id stands for the user. What is
found on a disk of before, or comes from another broker, belongs to the user that the client id begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from veena.errors import LocalProtocolError, RefusalCode

#: What the ids begin with that only brokers make: a group has no client of its own.
_INTERNAL = "~"
#: More than anybody can have.
NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class UserShare:
    """What one user may have, over all of its sessions and client ids."""

    #: Bytes that the store keeps because the user's durable subscriptions have not read them.
    store_bytes: int = NO_LIMIT
    #: Durable subscriptions, and groups that the user made.
    durables: int = NO_LIMIT
    #: Advertisements.
    offers: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class UserShares:
    """An input: what users may have from now on."""

    default: UserShare = UserShare()
    #: Those that may have something else.
    users: Mapping[str, UserShare] = field(default_factory=dict)
    #: Bytes that the store keeps for all durable subscriptions together: beyond that no user has more than an equal
    #: part of them.
    kept_bytes: int = NO_LIMIT


def user_of_client(client_id: str) -> str:
    """Whose a client id is, where nobody has said it."""
    return client_id if client_id.startswith(_INTERNAL) else client_id.partition("/")[0]


class UserTable:
    """The users of a broker's sessions, and what each may have."""

    def __init__(self) -> None:
        self.shares = UserShares()
        self._sessions: dict[int, str] = {}

    def came(self, session: int, user: str) -> None:
        """A session begins."""
        self._sessions[session] = user

    def left(self, session: int) -> None:
        self._sessions.pop(session, None)

    def of(self, session: int, client_id: str) -> str:
        """The user of a session; one of the broker's own has none, and its client id decides."""
        return self._sessions.get(session) or user_of_client(client_id)

    def share(self, user: str) -> UserShare:
        return self.shares.users.get(user, self.shares.default)


class Tally:
    """How many things of one kind there are, in all and of each user, and how many there may be.

    The invariant: users who have none are not remembered.
    """

    def __init__(self, most: int, most_of_user: int) -> None:
        self._most, self._most_of_user = most, most_of_user
        self._counts: dict[str, int] = {}
        self.count = 0

    def admit(self, user: str, what: str, count: int = 1) -> None:
        """Raise LocalProtocolError when there is no room for so many more; `what` begins its text."""
        has = self._counts.get(user, 0)
        if self.count + count > self._most or has + count > self._most_of_user:
            reason = (
                f"{what}: this broker has {self.count} of at most {self._most}, and {has} of at most"
                f" {self._most_of_user} are of user {user!r}; end some, or wait for some to end"
            )
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)

    def add(self, user: str, count: int = 1) -> None:
        """A user has so many more, or fewer by a count below 0."""
        left = self._counts.pop(user, 0) + count
        assert left >= 0, "nobody has fewer than none"
        if left:
            self._counts[user] = left
        self.count += count
