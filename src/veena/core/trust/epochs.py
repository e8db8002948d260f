"""The numbers by which the later statement wins: epochs, versions and serials follow the wall clock (design §14).

A statement about a unit has an epoch, and the highest epoch wins. If epochs could be counted up at will, one liar would
count to the end of the range, and nobody could contradict him ever after. So an epoch is the time in milliseconds since
1970, or one more than the highest that was accepted; and a broker takes no epoch that is more than `AHEAD_NS` ahead of
its own clock. Whoever lies can use up a minute of the future and no more: the next epoch of the honest speaker is above
it, and when the liar is gone the clock passes what he said.

The numbers that a speaker counts through all its lives, and the serials of claims, begin at its incarnation. Where
somebody used one in its name, it counts on from there; so they too must not run away. Below `FREE` a number is one
that was counted; above, it is a time in microseconds since 1970, and bound by the clock as epochs are.

Clocks of honest brokers differ. What is ahead by more than `AHEAD_NS` is not thrown away: a row that is missing below a
mark would make the receiver say that it has what it has not. It waits, with everything behind it on its link, until
the clock gets there. The leases of what is not heard meanwhile run out, and those units are sent everything. A link
over which more than `WAIT_NS` would have to be waited is closed, with a reason that names the difference: one of the
two clocks is wrong. It comes back when the clock is set.

The wall clock is an input (`ClockSet`): the difference from the time that the core is given, which never steps.

Rejected: smaller jumps instead of a clock (a liar needs longer, and a newcomer believes whoever tells it first); to
take the lower of two clocks as the truth (a broker whose clock stands still would hold up its whole cluster).
"""

from __future__ import annotations

from collections.abc import Iterable

from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.interest import Claim, Interest, Version
from veena.errors import ClockDiffers

#: So far ahead of its own clock a broker believes a statement: clocks without any care are this far apart.
AHEAD_NS = 60 * SECOND_NS
#: So long a statement from further ahead is waited for; beyond that somebody's clock is wrong.
WAIT_NS = 60 * SECOND_NS
#: How many lives of a broker have numbers of their own: one every hour for 29 years.
MAX_LIVES = 1 << 18
LIFE_BITS = 32
#: Numbers that are counted lie below; what is above is a time, in microseconds, and such times have been since 2005.
FREE = 1 << 50
MICROSECOND_NS = 1000


def first_number(incarnation: int) -> int:
    """What a broker counts from in one of its lives: above all that it counted in those before."""
    return min(incarnation, MAX_LIVES - 1) << LIFE_BITS


class Epochs:
    """The wall clock of one broker, and what follows from it for what others say."""

    def __init__(self, offset_ns: int = 0) -> None:
        #: What the wall clock shows beyond the time that the core is given.
        self.offset_ns = offset_ns
        #: Statements from ahead of this clock that had to wait, or cost their link; and how far the last one was ahead.
        self.early = 0
        self.ahead_ns = 0

    def wall_ns(self, now_ns: int) -> int:
        return max(0, now_ns + self.offset_ns)

    def epoch(self, latest: int, now_ns: int) -> int:
        """The epoch that contradicts everything up to the latest."""
        return max(self.wall_ns(now_ns) // MILLISECOND_NS, latest + 1)

    def ahead(self, version: Version, now_ns: int) -> int:
        """How far a version is ahead of this clock, in nanoseconds; below 0 for the past."""
        epoch, _, number = version
        wall_ns = self.wall_ns(now_ns)
        return max(epoch * MILLISECOND_NS - wall_ns, number_ns(number) - wall_ns)

    def is_credible(self, version: Version, now_ns: int) -> bool:
        """Whether this clock lets a version be believed."""
        return self.ahead(version, now_ns) <= AHEAD_NS

    def wait_for(self, frame: Interest, now_ns: int) -> int:
        """How long what a frame says must wait, in nanoseconds; raises ClockDiffers where that is too long."""
        versions = [*(row.version for row in frame.rows), *(digest.version for digest in frame.digests)]
        return self._wait(max((self.ahead(each, now_ns) for each in versions), default=0), "wants", now_ns)

    def wait_for_claims(self, claims: Iterable[Claim], now_ns: int) -> int:
        """The same of claims, by their serials."""
        latest = max((number_ns(claim.serial) for claim in claims), default=0)
        return self._wait(latest - self.wall_ns(now_ns), "claims", now_ns)

    def _wait(self, ahead_ns: int, what: str, now_ns: int) -> int:
        wait_ns = ahead_ns - AHEAD_NS
        if wait_ns <= 0:
            return 0
        self.early += 1
        self.ahead_ns = ahead_ns
        if wait_ns > WAIT_NS:
            raise ClockDiffers(
                f"{what} of a time that is {ahead_ns // SECOND_NS} s ahead of this broker's clock, and at most"
                f" {AHEAD_NS // SECOND_NS} s are believed: set the clocks of both brokers (NTP)"
            )
        return wait_ns


def number_ns(number: int) -> int:
    """The time that a number stands for; 0 for one that was counted."""
    return number * MICROSECOND_NS if number > FREE else 0
