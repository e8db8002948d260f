"""Where brokers listen and are dialled, as URLs: which transport, which host and port.

`veena://` and `tcp://` are TCP, `veenas://` and `tls://` the same inside TLS, `ws://` and `wss://` WebSocket, and
`memory://name` a place inside this process.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from veena.errors import ConfigError

DEFAULT_PORT = 7700
#: A URL is a host, a port and little else.
MAX_URL_LENGTH = 512

Carrier = Literal["tcp", "ws", "memory"]
#: What a scheme is carried by, and whether inside TLS.
SCHEMES: dict[str, tuple[Carrier, bool]] = {
    "veena": ("tcp", False),
    "tcp": ("tcp", False),
    "veenas": ("tcp", True),
    "tls": ("tcp", True),
    "ws": ("ws", False),
    "wss": ("ws", True),
    "memory": ("memory", False),
}
_URL = re.compile(r"([a-z]+)://(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]?#,]+)(?::([0-9]{1,5}))?(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class Url:
    """One place to listen or to dial."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def carrier(self) -> Carrier:
        return SCHEMES[self.scheme][0]

    @property
    def is_secure(self) -> bool:
        return SCHEMES[self.scheme][1]

    @property
    def is_local(self) -> bool:
        """Whether nobody beyond this machine can reach it."""
        return self.carrier == "memory" or is_loopback(self.host)

    def with_port(self, port: int) -> Url:
        return replace(self, port=port)

    def __str__(self) -> str:
        if self.carrier == "memory":
            return f"{self.scheme}://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_url(text: str) -> Url:
    """Read a URL; raise ConfigError for what is none."""
    found = _URL.fullmatch(text) if len(text) <= MAX_URL_LENGTH else None
    if found is None:
        raise ConfigError("url", repr(text[:80]), "is no scheme://host:port", "write it as veena://127.0.0.1:7700")
    scheme, host, port, path = found.groups()
    if scheme not in SCHEMES:
        remedy = f"use one of {', '.join(f'{each}://' for each in SCHEMES)}"
        raise ConfigError("url", repr(text), f"has the unknown scheme {scheme!r}", remedy)
    if port is not None and int(port) > 65535:
        raise ConfigError("url", repr(text), f"has port {port}", "use 0 to 65535; 0 picks a free one")
    if path and SCHEMES[scheme][0] != "ws" and path != "/":
        raise ConfigError("url", repr(text), f"has the path {path!r}", "leave it out: only ws:// and wss:// have one")
    is_placed = SCHEMES[scheme][0] != "memory"
    path = path if path and SCHEMES[scheme][0] == "ws" else ""
    return Url(scheme, host.strip("[]"), int(port) if port else DEFAULT_PORT if is_placed else 0, path)


def split_urls(given: str | Iterable[str]) -> tuple[str, ...]:
    """The URLs of a list, or of a text that separates them by commas; ConfigError where a part is empty."""
    texts = (given,) if isinstance(given, str) else given
    found = tuple(part.strip() for text in texts for part in text.split(","))
    if "" in found:
        shown = given if isinstance(given, str) else ", ".join(map(repr, given))
        remedy = "write one URL between two commas, and no comma at the ends: veena://one:7700,veena://two:7700"
        raise ConfigError("url", repr(shown[:80]), "has an empty part", remedy)
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that host. A name other than localhost may mean anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
