"""A stream of bytes between two processes, whatever carries it: the seam between transports and those who speak.

A transport (TCP, TLS, WebSocket, in-process) makes a `Stream` and calls its listener with whatever a read brought, as
it came: one call a read, synchronously, so that everything that follows from a read is written before the next one.
The listener decides what the bytes mean. Writes are taken whole and never block; a stream that does not get rid of
them says so once (`clogged`) and once more when it is free again (`cleared`), and whoever writes is to heed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from veena.runtime.transports.certificate import Certificate
from veena.runtime.transports.strangers import Stranger

Bytes = bytes | bytearray | memoryview
#: Why a stream is over that its other end closed without giving a reason.
CLOSED = "closed by the peer"


class Stream(Protocol):
    """The way to the other end."""

    #: What is known of the other end, for logs and rules: its address, and its name if it has proved one (TLS).
    peer: str
    ip: str
    proven: str | None
    #: Of what it has proved it by; None without a certificate.
    certificate: Certificate | None
    #: Set while it is not known who speaks, where others made the connection; whoever finds out says so.
    stranger: Stranger | None

    def write(self, parts: Sequence[Bytes]) -> None:
        """Send all of this, in order. After `close` it is dropped."""

    def close(self, reason: str) -> None:
        """Send what was written, then end. The listener's `closed` follows."""

    def abort(self, reason: str) -> None:
        """End at once."""

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not on their way yet."""

    @property
    def untaken(self) -> int:
        """Bytes that were written and that the other end's machine has not taken, as far as this one can tell."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read again."""


class Listener(Protocol):
    """Who listens to a stream."""

    def received(self, data: Bytes) -> None:
        """What one read brought. It may keep the bytes: they are not used again."""

    def closed(self, reason: str) -> None:
        """The stream is over; nothing more comes. Called once."""

    def clogged(self) -> None:
        """More is waiting to be sent than should be."""

    def cleared(self) -> None:
        """There is room again."""
