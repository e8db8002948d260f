"""What a broker can say of itself: metrics, `status` and pictures are views of this."""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address
from veena.core.delivery.delivery import EndStatistics
from veena.core.delivery.evaluations import EvaluationStatistics
from veena.core.delivery.held_streams import HeldStatistics
from veena.core.delivery.session_queue import OutletStatistics
from veena.core.discovery.service import DiscoveryStatistics
from veena.core.durable.statistics import DurableStatistics
from veena.core.interest.service import ProfileStatistics
from veena.core.links.link import LinkStatistics
from veena.core.publishing.pending import OriginStatistics
from veena.core.publishing.replica_sender import CopyStatistics
from veena.core.routing.router import RouterStatistics
from veena.core.sessions.quench import QuenchStatistics
from veena.core.signing import SignatureStatistics
from veena.core.topology.next_hops import HopStatistics


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
    #: What is evaluated outside of the loop, and what waits for that.
    evaluations: EvaluationStatistics
    held: HeldStatistics
    #: Records received, and those among them that told something new.
    records: int
    news: int
    signatures: SignatureStatistics
    discovery: DiscoveryStatistics
