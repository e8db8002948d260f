"""When a unit's next batch is told: soon after a change in a quiet time, else when the interval is over (design §5).

Changes are gathered so that a thousand subscriptions cost a batch a level and interval, not a thousand. To wait for the
whole interval before every batch would do that too, but a lone subscription would then wait for all intervals on its
way up, and again for those of the claims that come back: twice 0.9 s on four levels, where nobody else has anything to
tell. So the first change after an interval of silence is told after a moment that gathers what comes with it; whatever
follows waits until the interval since that batch is over.

The invariant: between two batches lies an interval, between the first change and its batch at most one. What a batch
had no room for follows at once (`speaker`).
"""

from __future__ import annotations

#: The moment, as a part of the interval: the clients of one program come within it.
MOMENTS = 10


class Pace:
    """Of one unit and one kind of batches."""

    __slots__ = ("_interval_ns", "_rested_ns", "due_ns")

    def __init__(self, interval_ns: int, now_ns: int) -> None:
        """Begins as if something had just been told: much changes when an office is taken."""
        self._interval_ns = interval_ns
        self._rested_ns = now_ns
        #: When the next batch is due, if there is anything to tell.
        self.due_ns: int | None = None

    def stir(self, now_ns: int) -> None:
        """Something has to be told."""
        self._be_due(max(now_ns + self._interval_ns // MOMENTS, self._rested_ns + self._interval_ns))

    def wait(self, now_ns: int) -> None:
        """Look again when an interval is over, whether something has to be told."""
        self._be_due(now_ns + self._interval_ns)

    def _be_due(self, due_ns: int) -> None:
        if self.due_ns is None or due_ns < self.due_ns:
            self.due_ns = due_ns

    def is_due(self, now_ns: int) -> bool:
        return self.due_ns is not None and now_ns >= self.due_ns

    def reviewed(self) -> None:
        """It was looked at what has to be told."""
        self.due_ns = None

    def rest(self, now_ns: int) -> None:
        """A batch was told, or it took so much to find that there is none that the next look has to wait as well."""
        self._rested_ns = now_ns
