"""What a broker notices of its clients without being asked: how far away they are, and who hears whom.

Round trips come from heartbeats, bytes from reads and writes, a counter each. Who hears whom is sampled: of every
sixteen hand-overs one is noted, with the publisher, the broker that accepted the event and how many clients here got
it. So a publisher whose audience is elsewhere can be found (FUT-07), at a cost that no event notices.

Rejected: counting each delivery by publisher (a dictionary in the hot path for what an adviser looks at once a day),
and reading it from the log (`records` is off by default, and adds up what is long over).
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address
from veena.core.wire.event import EventFrame
from veena.errors import InvalidEvent

#: One hand-over of so many is noted; a power of two.
SAMPLED = 16
#: Publishers that are remembered; the one that was noted longest ago gives way.
MAX_PUBLISHERS = 1024
#: Of a round trip that is longer than the one before so much is believed: a busy moment is no distance.
GROWTH = 1 / 8
#: Nothing alive takes longer: a client that echoes what it was never sent is not believed.
LONGEST_S = 60.0


@dataclass(slots=True)
class Traffic:
    """What went over one client's connection."""

    bytes_in: int = 0
    bytes_out: int = 0
    #: Events that came from it.
    published: int = 0
    round_trip_s: float | None = None

    def measured(self, seconds: float) -> None:
        if not 0 <= seconds <= LONGEST_S:
            return
        before = self.round_trip_s
        if before is None or seconds < before:
            self.round_trip_s = seconds
        else:
            self.round_trip_s = before + GROWTH * (seconds - before)


@dataclass(frozen=True, slots=True)
class Heard:
    """A publisher that clients of this broker hear, and how many copies they were handed, about."""

    publisher: str
    origin: Address | None
    copies: int


class Audience:
    """Whom the clients of one broker hear."""

    def __init__(self) -> None:
        #: The one noted longest ago first.
        self._copies: dict[tuple[str, bytes], int] = {}

    def sample(self, frame: EventFrame, copies: int) -> None:
        """Events like this one were handed over, so many copies of them: it stands for the others between samples."""
        try:
            key = (frame.publisher, frame.origin)
        except InvalidEvent:
            return
        self._copies[key] = self._copies.pop(key, 0) + SAMPLED * copies
        if len(self._copies) > MAX_PUBLISHERS:
            del self._copies[next(iter(self._copies))]

    def heard(self) -> list[Heard]:
        return [
            Heard(publisher, None if origin[0] == 0xFF else tuple(origin), copies)
            for (publisher, origin), copies in self._copies.items()
        ]
