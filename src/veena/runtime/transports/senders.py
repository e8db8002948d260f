"""Who sends over a connection, for those who have to tell senders apart."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from veena.runtime.transports.stream import Stream


@dataclass(frozen=True, slots=True)
class Sender:
    """The other end of one connection. Connections of the same sender have the same `name`."""

    name: str
    peer: str
    proven: str | None
    transport: str

    @classmethod
    def of(cls, stream: Stream, who: str, *, is_placed: bool = True) -> Sender:
        """`is_placed`: whether `who` means somebody else at another place."""
        name = f"{who} at {place_of(stream.ip) or 'this machine'}" if is_placed else who
        return cls(name, stream.peer, stream.proven, type(stream).__name__)


def place_of(ip: str) -> str:
    """Whose address it is: an IPv6 address counts by the part that its owner cannot choose."""
    try:
        found = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return ip
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found), 64), strict=False).network_address)
    return ip
