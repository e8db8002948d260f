"""What an adviser knows of a network at one moment, and what it proposes: plain values, for people and scripts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from veena.address import Address

Kind = Literal["broker", "roam", "publisher", "drop", "link"]

#: Clients of one place that are worth a broker, and the round trip from which on they are far from theirs.
MANY = 3
FAR_MS = 20.0
#: A link is slow from this round trip on, if it is also `SLOW_TIMES` the median of all links.
SLOW_LINK_MS = 100.0


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    label: str
    address: Address
    urls: tuple[str, ...]
    place: str = ""
    clients: int = 0

    def is_at(self, place: str) -> bool:
        """By its own word (`[broker] place`), or because a part of its label says so."""
        return slug(place) in {slug(part) for part in (self.place, *self.label.split(".")) if part}


@dataclass(frozen=True, slots=True)
class ClientFacts:
    id: str
    #: The label of the broker that it is attached to.
    broker: str
    place: str = ""
    #: The unit that is nearest to it, by the operator's word.
    region: str = ""
    ip: str = ""
    round_trip_ms: float | None = None
    bytes_out: int = 0
    published: int = 0
    subscriptions: int = 0
    durable: int = 0

    @property
    def where(self) -> str:
        """Its place, region or network; clients with the same are taken for neighbours."""
        return self.place or self.region or _network_of(self.ip)


@dataclass(frozen=True, slots=True)
class LinkFacts:
    a: str
    b: str
    round_trip_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Hearing:
    """Clients of a broker were handed so many copies of what a client of another one published."""

    publisher: str
    origin: str
    broker: str
    copies: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a network."""

    brokers: tuple[BrokerFacts, ...]
    clients: tuple[ClientFacts, ...] = ()
    links: tuple[LinkFacts, ...] = ()
    hearings: tuple[Hearing, ...] = ()
    #: Brokers that did not say anything, by URL, and why.
    silent: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is worth a proposal."""

    many: int = MANY
    far_ms: float = FAR_MS
    slow_link_ms: float = SLOW_LINK_MS


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something to be done, and why."""

    number: int
    kind: Kind
    title: str
    reason: str
    #: What people should know before they agree.
    note: str = ""
    place: str = ""
    #: The broker to go to: one to be started for `broker`, one that runs for `roam` and `publisher`.
    broker: str = ""
    #: What a new broker, or a new link, is linked with; the two ends of a link to be dropped.
    links: tuple[tuple[str, str], ...] = ()
    #: Who goes, by the broker where they are now.
    clients: Mapping[str, tuple[str, ...]] | None = None
    #: Over the long way, before and at best after.
    copies: tuple[int, int] | None = None
    bytes: tuple[int, int] | None = None
    #: The average number of hops between two brokers, before and after.
    pathlength: tuple[float, float] | None = None

    @property
    def client_count(self) -> int:
        return sum(map(len, (self.clients or {}).values()))

    @property
    def steps(self) -> tuple[str, ...]:
        """What would be done, in order."""
        if self.kind == "drop":
            return tuple(f"drop the link {a} - {b}" for a, b in self.links)
        if self.kind == "link":
            return tuple(f"{a} dials {b}" for a, b in self.links)
        start = [f"start {self.broker}, which dials {', '.join(b for _, b in self.links)}"] if self.links else []
        roams = [f"{len(ids)} of {home} roam to {self.broker}" for home, ids in (self.clients or {}).items()]
        return (*start, *roams)


def slug(place: str) -> str:
    """A place as a part of a label: `New York` is new-york."""
    return re.sub(r"[^\w]+", "-", place.casefold()).strip("-") or "place"


def _network_of(ip: str) -> str:
    """The network of a house or a campus; nothing for what is no address."""
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return ""
    return str(ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False))
