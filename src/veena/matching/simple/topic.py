"""String topics, equal character by character (MAT-10).

`Sports` is not `sports`, and it does not cover `Sports/NBA`: there is no hierarchy, because a topic is also what keys
are given out for, and a subscriber of a wide topic would hold the keys of all narrow ones (MAT-11). A dict from the
topic to those who want it; see `exact`. Rejected: a trie of levels, which only wildcards would need.
"""

from __future__ import annotations

from veena.errors import InvalidConstraint
from veena.event import Event
from veena.matching.base.engine import Constraint, Crowd, check_text
from veena.matching.base.exact import ExactEngine

#: Longer than any name that a person or a programme would choose, and short enough for one wire header.
MAX_TOPIC_LENGTH = 1024


class TopicEngine(ExactEngine[str]):
    name = "topic"

    def _check(self, constraint: Constraint) -> str:
        return check_topic(constraint)

    def _value_of(self, event: Event) -> str | None:
        return event.topic

    def match(self, event: Event) -> list[int]:
        self._evaluations += 1
        holder = self._holders.get(event.topic)
        if holder is None:
            return []
        return holder.ids.copy() if isinstance(holder, Crowd) else [holder]

    def destinations(self, event: Event) -> int:
        self._evaluations += 1
        return self._masks.get(event.topic, 0)


def check_topic(constraint: Constraint) -> str:
    """The topic; raise InvalidConstraint when it is no text, empty or too long."""
    if not isinstance(constraint, str):
        raise InvalidConstraint(str(constraint), 0, f"expected a topic as text, found {type(constraint).__name__}")
    if not constraint:
        raise InvalidConstraint(constraint, 0, f"an empty topic; expected 1 to {MAX_TOPIC_LENGTH} characters")
    if len(constraint) > MAX_TOPIC_LENGTH:
        raise InvalidConstraint(
            constraint, MAX_TOPIC_LENGTH, f"{len(constraint)} characters; a topic has at most {MAX_TOPIC_LENGTH}"
        )
    check_text(constraint)
    return constraint


def covers(wide: Constraint, narrow: Constraint) -> bool:
    return check_topic(wide) == check_topic(narrow)
