"""What one client may take of a broker, and how its rate is held: by a bucket of tokens.

A client that is too fast is not refused: its broker reads nothing more from it until there are tokens again, and the
transport slows it down. So nothing is lost, and others do not notice.
"""

from __future__ import annotations

import msgspec

from veena.core.wire.header import DEFAULT_MAX_FRAME, MAX_FRAME


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one client; a rate of 0 is none."""

    #: Events and bytes a second, over a few seconds; a burst of twice that is let through.
    events_per_second: int = 0
    bytes_per_second: int = 0
    subscriptions: int = 65_536
    #: The longest frame; the network's own limit holds as well.
    max_frame: int = DEFAULT_MAX_FRAME
    #: At once, of one user.
    connections: int = 4096
    #: Reliable events that were sent and are not accepted yet.
    unaccepted: int = 4096
    #: Bytes on their way to a client that does not read, after which its connection is closed.
    queue_bytes: int = 48 << 20

    def faults(self) -> list[str]:
        """What cannot be: for whoever reads them from a file."""
        found = [
            f"{name} = {getattr(self, name)}: use 0 or more"
            for name in ("events_per_second", "bytes_per_second")
            if getattr(self, name) < 0
        ]
        for name, most in (
            ("subscriptions", 65_536),
            ("max_frame", MAX_FRAME),
            ("connections", 1 << 20),
            ("unaccepted", 1 << 20),
            ("queue_bytes", 64 << 20),
        ):
            if not 1 <= getattr(self, name) <= most:
                found.append(f"{name} = {getattr(self, name)}: use 1 to {most}")
        return found

    def buckets(self, now: float) -> tuple[Bucket | None, Bucket | None]:
        """For events, and for bytes; None for a rate that has no limit."""
        events, size = self.events_per_second, self.bytes_per_second
        return Bucket(events, now) if events else None, Bucket(size, now) if size else None


class Bucket:
    """Tokens that come at a steady rate; what is taken beyond them has to be waited for."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        #: Two seconds' worth: a batch that was gathered while a client was busy is no offence.
        self._tokens = 2.0 * rate
        self._at = now

    def take(self, count: int, now: float) -> float:
        """Take so many; how many seconds to wait before the next ones."""
        self._tokens = min(2.0 * self._rate, self._tokens + (now - self._at) * self._rate) - count
        self._at = now
        return -self._tokens / self._rate if self._tokens < 0 else 0.0
