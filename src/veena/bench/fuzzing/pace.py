"""How fast a sender sends, and how much it has sent."""

from __future__ import annotations

import time
from typing import Final

#: A sender sleeps when it is ahead by so much, so that it does not sleep a thousand times a second.
AHEAD_S: Final = 0.002


class Pace:
    """Frames at this rate, for so long; `sent` is called once a frame."""

    def __init__(self, frames_per_second: float, seconds: float) -> None:
        self._interval = 1 / max(frames_per_second, 0.1)
        self._seconds = seconds
        self.begin()
        self.frames = self.bytes = self.connections = 0

    def begin(self) -> None:
        """Let the time begin now: who sends is ready."""
        self._begin = time.monotonic()
        self._end = self._begin + self._seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def sent(self, size: int) -> None:
        """Count a frame, and wait until the next one is due."""
        self.frames += 1
        self.bytes += size
        ahead = self._begin + self.frames * self._interval - time.monotonic()
        if ahead > AHEAD_S:
            time.sleep(min(ahead, max(0.0, self._end - time.monotonic())))

    def report(self) -> dict[str, int]:
        return {"frames": self.frames, "bytes": self.bytes, "connections": self.connections}
