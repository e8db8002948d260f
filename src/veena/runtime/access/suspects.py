"""Senders whose frame made a core raise an exception that nobody foresaw: each is refused for a time that doubles.

An honest sender may have met a fault of the broker, so it is not refused for good. A hostile one sends its frame again,
and each time costs everybody's connections, so the time grows. A sender is who can be told from others: a user and its
place, or the certificate of a broker. Where nobody proves anything, it is the name that it gave itself, and its place.

The table is bounded: the sender that was caught longest ago is forgotten first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Senders that are remembered.
MAX_SUSPECTS: Final = 4096
#: How long a sender is refused: the first time, and what doubling it leads to.
FIRST_S: Final = 5.0
LONGEST_S: Final = 1800.0
#: Without another exception for so long, after it was let in again, a sender is forgotten.
FORGET_S: Final = 7200.0


@dataclass(slots=True)
class _Suspect:
    times: int
    until: float


class Suspects:
    """The senders that one broker refuses for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: The one that was caught longest ago first.
        self._found: dict[str, _Suspect] = {}

    def caught(self, sender: str) -> float:
        """Its frame has made a core raise: how many seconds it is refused now."""
        now = self._clock()
        before = self._found.pop(sender, None)
        times = 1 if before is None or now - before.until > FORGET_S else before.times + 1
        refused_s = min(LONGEST_S, FIRST_S * 2.0 ** min(times - 1, 32))
        self._found[sender] = _Suspect(times, now + refused_s)
        if len(self._found) > MAX_SUSPECTS:
            del self._found[next(iter(self._found))]
        return refused_s

    def why_not(self, sender: str) -> str | None:
        """Why this sender is not let in now; None if it is."""
        found = self._found.get(sender)
        if found is None:
            return None
        left_s = found.until - self._clock()
        if left_s <= 0:
            return None
        return (
            f"a frame of {sender} has led to a failure of this broker, and is in its quarantine: come again in"
            f" {left_s:.0f} seconds, and tell the operator of the broker"
        )

    def refused(self) -> int:
        """How many senders are refused now."""
        now = self._clock()
        return sum(each.until > now for each in self._found.values())

    def __len__(self) -> int:
        return len(self._found)
