"""Events with a list of addressees: the engine that finds reachable clients by their ids (EVT-05, RTE-04, RTE-05).

An event that names client ids goes to those clients alone; profiles of every other kind are not asked about it. A
client that asked to be reachable is a want like any other, of kind `to`, whose constraint is the client's id: it
climbs, is handed down and stands in digests as a topic does. So mail finds a client wherever it is, without a directory
of clients, and finds it again where it came back after roaming: there the want is told anew, here it is withdrawn.

The engine is not in the public registry of engines: a subscription to somebody else's id would read their mail, so only
a broker makes these wants, from the id that a client attached under.

The invariant: an event is found for each addressee at most once, however often it names the id.
"""

from __future__ import annotations

from veena.errors import InvalidConstraint, InvalidEvent
from veena.event import Event, check_client_id
from veena.matching.base.engine import MATCHES, Constraint, Crowd
from veena.matching.base.exact import ExactEngine


class AddresseeEngine(ExactEngine[str]):
    """Profiles by client id, asked with the ids that an event names."""

    name = "to"

    def _check(self, constraint: Constraint) -> str:
        if not isinstance(constraint, str):
            raise InvalidConstraint(str(constraint), 0, f"expected a client id, found {type(constraint).__name__}")
        try:
            return check_client_id(constraint)
        except InvalidEvent as error:
            raise InvalidConstraint(constraint, 0, str(error)) from None

    def _value_of(self, event: Event) -> str | None:
        return event.to[0] if event.to else None

    def match(self, event: Event) -> list[int]:
        self._evaluations += len(event.to)
        found: dict[int, None] = {}
        for client_id in event.to:
            holder = self._holders.get(client_id)
            if isinstance(holder, Crowd):
                found.update(dict.fromkeys(holder.ids))
            elif holder is not None:
                found[holder] = None
        return sorted(found)

    def destinations(self, event: Event) -> int:
        self._evaluations += len(event.to)
        mask = 0
        for client_id in event.to:
            mask |= self._masks.get(client_id, 0)
        return mask

    def explain(self, profile_id: int, event: Event) -> str:
        wanted = self._values[profile_id]
        return MATCHES if wanted in event.to else f"failed: the event is not addressed to {wanted!r}"
