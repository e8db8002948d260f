"""The services of a domain in one process: registry, resolver, subscription, aggregation, access (DIS-10, AMB-31).

Users and applications find the services by the number of the domain that their broker is in, so nobody configures an
address. Without them everything still works, by the mesh alone: what they add are links to other domains, aggregates,
and one place to look at. Several instances may run in a domain, and any may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from veena.client import Client
from veena.errors import Refused
from veena.services.domain.access_service import AccessService, AccessStatistics
from veena.services.domain.aggregation import AggregationService, AggregationStatistics
from veena.services.domain.categories import AccessControl
from veena.services.domain.subscriptions import SubscriptionService, SubscriptionStatistics
from veena.services.trading.registry import Registry, RegistryStatistics, network_of
from veena.services.trading.resolver import Resolver, ResolverStatistics
from veena.services.trading.service_types import ServiceTypes
from veena.services.trading.trader import Trader, TraderStatistics


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    name: str
    network: int
    registry: RegistryStatistics
    resolver: ResolverStatistics
    subscriptions: SubscriptionStatistics
    aggregation: AggregationStatistics
    access: AccessStatistics
    trader: TraderStatistics


class DomainServices:
    """The five services of the domain that an open client is in; `async with DomainServices(client, "rome")`."""

    def __init__(
        self,
        client: Client,
        name: str = "",
        *,
        links: Sequence[str] = (),
        types: ServiceTypes | None = None,
        access: AccessControl | None = None,
        back_end: Literal["federation", "central"] = "federation",
        level: int | None = None,
    ) -> None:
        types = types or ServiceTypes.standard()
        self._client = client
        self._level = level
        self.network = network_of(client, level)
        self.registry = Registry(client, types, level=level)
        self.resolver = Resolver(client, types, level=level)
        self.subscriptions = SubscriptionService(client, level=level)
        self.aggregation = AggregationService(client, level=level)
        self.access = AccessService(client, access, level=level)
        #: What answers for the registry.
        self.trader = Trader(client, name, links=links, types=types, back_end=back_end, level=level)
        self.name = self.trader.name
        self._stack = AsyncExitStack()
        self._moved = asyncio.Event()
        client.on_attached(self._attached)

    async def __aenter__(self) -> DomainServices:
        try:
            await self._stack.enter_async_context(self.aggregation)
            await self._stack.enter_async_context(self.access)
            await self._stack.enter_async_context(self.trader)
        except BaseException:
            await self._stack.aclose()
            raise
        self._stack.push_async_callback(self.subscriptions.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _attached(self) -> None:
        if network_of(self._client, self._level) != self.network:
            self._moved.set()

    async def wait_moved(self) -> None:
        """Wait until the client is in another domain: these services are of no use there. Raises Refused."""
        await self._moved.wait()
        now = network_of(self._client, self._level)
        raise Refused(
            f"the services of domain {self.network} were let in by a broker of domain {now}: give them brokers of one "
            "domain only"
        )

    def statistics(self) -> DomainStatistics:
        return DomainStatistics(
            self.name,
            self.network,
            self.registry.statistics(),
            self.resolver.statistics(),
            self.subscriptions.statistics(),
            self.aggregation.statistics(),
            self.access.statistics(),
            self.trader.statistics(),
        )
