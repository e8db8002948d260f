"""How much clients present of what they have had before: bounded for each user, since a broker remembers it.

A client that attaches, or reads a durable subscription again, presents the last event of each stream that it has had,
and events that it skips. One frame of that is bounded (`wire.client`), but a user may have thousands of sessions and
subscriptions.

The invariant: what a session or subscription presented is counted until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from veena.core.boundary.inputs_effects import ClientUp, Subscribe
from veena.core.boundary.user_shares import Tally
from veena.core.wire.event_id import Stream

#: Bytes that one user may have a broker remember, and all users: some 250,000 streams with short names a user.
MAX_BYTES_OF_USER = 64 << 20
MAX_BYTES = 16 * MAX_BYTES_OF_USER
#: What one place takes beside the publisher's id.
PLACE_BYTES = 200
#: Stands for the session itself among the numbers of its subscriptions.
_SESSION = -1


class Presented:
    """What the clients of one broker presented."""

    def __init__(self) -> None:
        self._of_user = Tally(MAX_BYTES, MAX_BYTES_OF_USER)
        #: By session: its user, and the bytes of its subscriptions and of the session itself.
        self._sessions: dict[int, tuple[str, dict[int, int]]] = {}

    @property
    def bytes(self) -> int:
        return self._of_user.count

    def hold(self, user: str, given: ClientUp | Subscribe) -> None:
        """A client presents this; raise LocalProtocolError where that is too much for its user."""
        size = _size(given.had) + _size(stream for stream, _ in given.skips)
        if not size:
            return
        number = _SESSION if isinstance(given, ClientUp) else given.subscription
        what = "what this session" if isinstance(given, ClientUp) else f"what subscription {number}"
        self._of_user.admit(user, f"{what} has had before, in bytes", size)
        self._of_user.add(user, size)
        held = self._sessions.setdefault(given.session, (user, {}))[1]
        held[number] = held.get(number, 0) + size

    def release(self, session: int, number: int) -> None:
        """A subscription has ended."""
        if session not in self._sessions:
            return
        user, held = self._sessions[session]
        self._of_user.add(user, -held.pop(number, 0))
        if not held:
            del self._sessions[session]

    def left(self, session: int) -> None:
        """A session has ended."""
        for number in list(self._sessions.get(session, ("", {}))[1]):
            self.release(session, number)


def _size(streams: Iterable[Stream]) -> int:
    return sum(PLACE_BYTES + len(publisher) for publisher, _, _ in streams)
