"""When something may be told: at once after a quiet time, and at most once an interval under load (design §11).

A change that comes alone goes out with the input that brought it: who waits for it waits for the way alone. Changes
that come in numbers are gathered, so that what many of them cost is shared: there is an allowance of `AT_ONCE` tellings
in a row, and it grows by one each *interval*, here three halves of what the settings say. So fewer go out under load
than if each first change were held back for the time of the settings, and whoever subscribes to a few things in turn
does not wait.

The invariant: in any time t no more than AT_ONCE + t / interval are told.
"""

from __future__ import annotations

from typing import Final

#: So many go out in a row.
AT_ONCE: Final = 6


class Pace:
    """The allowance of one who tells."""

    __slots__ = ("_full_ns", "_gather_ns", "_interval_ns")

    def __init__(self, gather_ns: int) -> None:
        self._gather_ns = gather_ns
        self._interval_ns = gather_ns + gather_ns // 2
        #: From when on the allowance is whole.
        self._full_ns = 0

    def next_ns(self, now_ns: int) -> int:
        """When what is known now may be told."""
        return max(now_ns, self._full_ns - (AT_ONCE - 1) * self._interval_ns)

    def later_ns(self, now_ns: int) -> int:
        """When to look at what is better gathered: it is not urgent, or is about to change again."""
        return max(now_ns + self._gather_ns, self.next_ns(now_ns))

    def told(self, now_ns: int) -> None:
        """Something was told now."""
        self._full_ns = max(now_ns, self._full_ns) + self._interval_ns
