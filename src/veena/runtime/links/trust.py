"""Whose links are taken: a broker is believed what it says of the network, so not everybody may be one.

As long as nobody has to prove who it is (a broker that only this machine reaches, or `open_links`), anybody may. As
soon as clients have to, a link that others make needs a certificate whose name is listed: a client's certificate, or no
certificate at all, must not be a way around the rights of clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from veena.runtime.transports.stream import Stream


@dataclass(frozen=True, slots=True)
class Trust:
    """Who may be a neighbour."""

    #: Names of certificates; `*` stands for any characters.
    certificates: tuple[str, ...] = ()
    anybody: bool = True

    def why_not(self, stream: Stream) -> str | None:
        """Why this stream must not become a link; None if it may."""
        if self.anybody:
            return None
        if stream.proven is None:
            return "brokers show a certificate here: dial veenas:// or wss:// with [tls] certificate and key"
        if not any(fnmatchcase(stream.proven, pattern) for pattern in self.certificates):
            return (
                f"certificate {stream.proven!r} is no broker's: list it in [links] certificates of the broker you dial"
            )
        return None
