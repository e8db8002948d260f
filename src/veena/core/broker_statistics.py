"""What a broker can say of itself: metrics, `status` and pictures are views of this."""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address
from veena.core.copies import CopyStatistics
from veena.core.discovery import DiscoveryStatistics
from veena.core.durable_statistics import DurableStatistics
from veena.core.ends import EndStatistics
from veena.core.hops import HopStatistics
from veena.core.link import LinkStatistics
from veena.core.origin_statistics import OriginStatistics
from veena.core.outlet import OutletStatistics
from veena.core.profiles import ProfileStatistics
from veena.core.quench import QuenchStatistics
from veena.core.router_statistics import RouterStatistics


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    address: Address
    incarnation: int
    vertices: int
    edges: int
    connections: int
    links: tuple[LinkStatistics, ...]
    hops: HopStatistics
    profiles: ProfileStatistics
    router: RouterStatistics
    origin: OriginStatistics
    copies: CopyStatistics
    ends: EndStatistics
    outlet: OutletStatistics
    quench: QuenchStatistics
    durables: DurableStatistics
    #: Records received, and those among them that told something new.
    records: int
    news: int
    discovery: DiscoveryStatistics
