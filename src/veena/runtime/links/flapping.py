"""Links that come and go: how many short ones a broker takes from one source (flap damping).

Each link that comes up costs a broker more than its neighbour pays for it: maps change, everything that the broker
knows is told, and what is open for the units behind it goes out again. So a neighbour that dials again at once, over
and over, could keep a broker busy with nothing else. A link that ends within `GOOD_LIFE_S` of its beginning is a short
one. A source may make `BURST` of them at once, and then so many a second as the configuration says. Beyond that the
broker refuses the next before it reads the greeting.

A source is who the certificate of the peer proves. A peer without one counts by the place that it comes from, and all
of this machine is one place: it may give any address and any name. So neighbours of one place that prove nothing share
what that place may make.

An honest neighbour does not notice: after a short link it waits, each time twice as long (`links.Retry`).

The invariant: a source that makes no link for a while may make some again; at most `MAX_SOURCES` are remembered, and
the one whose short link ended longest ago goes first.

Rejected: counting only links that ended by a fault (a clean end costs this broker as much); counting by the address
that the peer gives (it gives another one the next time).
"""

from __future__ import annotations

from typing import Final

#: A link that lived so long was a good one.
GOOD_LIFE_S: Final = 10.0
#: Short links that a source may make at once, and by default a second after that.
BURST: Final = 64
DEFAULT_PER_S: Final = 8.0
MAX_SOURCES: Final = 4096


class ShortLinks:
    """The short links of one broker's neighbours; times are seconds of any clock that does not go back."""

    def __init__(self, per_s: float = DEFAULT_PER_S) -> None:
        self._per_s = per_s
        #: When a source has made up for its short links; the one whose last ended longest ago first.
        self._even: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._even)

    def ended(self, source: str, lived_s: float, now: float) -> None:
        """A link that this source has made is over, after so long."""
        if lived_s >= GOOD_LIFE_S:
            return
        self._even[source] = max(now, self._even.pop(source, now)) + 1 / self._per_s
        if len(self._even) > MAX_SOURCES:
            del self._even[next(iter(self._even))]

    def why_not(self, source: str, now: float) -> str | None:
        """Why no link of this source is taken now; None if one is."""
        wait_s = self._even.get(source, now) - now - BURST / self._per_s
        if wait_s <= 0:
            return None
        return (
            f"too many links of {source} ended within {GOOD_LIFE_S:.0f} seconds of their beginning: come again in"
            f" {max(wait_s, 0.1):.1f} seconds, or raise short_links_per_s in [links]"
        )
