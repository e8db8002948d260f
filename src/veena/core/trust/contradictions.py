"""What others said in this broker's name, or for a unit that it speaks for, and how long ago: somebody lies.

Rows inside a cluster bear no signature: a neighbour can say that a broker does not want what it wants. The one who is
lied about hears it as everybody does, and answers at once with a higher version (`speaker`). But meanwhile origins have
accepted events that are for it, and have sent them to others only. So a lie is noted here with the time since when.
When nothing of the kind was heard for a third of a lease, what was accepted meanwhile is asked for (`durable.missed`).

What is in the host's name and is news to its own table, it has not said in this life. What an earlier life said has
numbers below this life's, and an epoch from before it: that is no lie. Another speaker of the same unit is believed
while offices may just have changed hands, which is for a lease after the map changed.

A subscription that is younger than an event must not be given it. So the beginnings of young subscriptions are held for
as far back as may be asked.

The invariant: between a lie and the time when it is dealt with, every subscription that began since a lease before the
lie has its beginning here.
"""

from __future__ import annotations

from veena.core.boundary.settings import Settings

#: Young subscriptions that are known one by one: a few hundred bytes each. Of more, the first ones count as old.
MAX_YOUNG = 1024

#: A session, and the number of a subscription in it.
Key = tuple[int, int]


class Contradictions:
    """One a broker."""

    def __init__(self, settings: Settings) -> None:
        #: A lie that is over for so long is followed by no other one of the same liar.
        self._quiet_ns = settings.lease_ns // 3
        #: Others may have heard a lie so much earlier: whom they hear later than that they send everything (`leases`).
        self.margin_ns = settings.lease_ns
        #: By level of the unit: when the first lie was heard that is not dealt with, and the last one.
        self._open: dict[int, tuple[int, int]] = {}
        self._young: dict[Key, int] = {}
        self.count = 0

    def heard(self, level: int, now_ns: int) -> None:
        """Somebody said of the host's unit of this level what its speaker has not said."""
        self.count += 1
        self._open[level] = (self._open.get(level, (now_ns, now_ns))[0], now_ns)

    def subscribed(self, session: int, subscription: int, now_ns: int) -> None:
        """A subscription begins now."""
        while self._young:
            key, begun_ns = next(iter(self._young.items()))
            if self._is_needed(begun_ns, now_ns) and len(self._young) < MAX_YOUNG:
                break
            del self._young[key]
        self._young.pop((session, subscription), None)
        self._young[session, subscription] = now_ns

    def _is_needed(self, begun_ns: int, now_ns: int) -> bool:
        since_ns = min((first for first, _ in self._open.values()), default=now_ns)
        # Once more as long for the answers.
        return begun_ns >= since_ns - 3 * self.margin_ns

    def had_begun(self, session: int, subscription: int, at_ns: int) -> bool:
        """Whether a subscription was there at that time."""
        return self._young.get((session, subscription), at_ns) <= at_ns

    def take(self, now_ns: int) -> list[tuple[int, int]]:
        """The lies that are over: level of the unit, and since when somebody may have believed it."""
        over = [level for level, (_, last) in self._open.items() if now_ns >= last + self._quiet_ns]
        return [(level, self._open.pop(level)[0] - self.margin_ns) for level in over]

    def next_wakeup(self) -> int | None:
        return min((last + self._quiet_ns for _, last in self._open.values()), default=None)

    def check(self) -> None:
        assert len(self._young) <= MAX_YOUNG
        assert all(first <= last for first, last in self._open.values())
