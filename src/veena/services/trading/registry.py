"""The registry of a domain, as applications see it: offers are exported and withdrawn (DIS-02, DIS-11, TRD-05).

There is no table anywhere but in the mesh. An offer is an advertisement of the application's own client: it stands, on
disk, at the client's broker and at the controllers of all units around it, so that neither the loss of one broker nor a
restart of all loses an offer; it goes when the client withdraws it or leaves, and when the client is lost, after a
short lease. A client that attaches elsewhere, because its broker died, advertises again by itself. Should that be in
another domain, the network number in its offers is another one too, and the registry says them anew.

Rejected: a registry process with a database. It would be one more thing to lose, and it would remember who is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veena.client import Client
from veena.errors import InvalidEvent, VeenaError
from veena.services.structured import check_name
from veena.services.trading.domains import domain_of, network_number
from veena.services.trading.offers import Offer, advertised, make_offer
from veena.services.trading.service_types import NETWORK, ServiceTypes

#: How long an offer stands when its application was lost: enough to attach elsewhere, short for who looks for it.
OFFER_LEASE_S = 10.0


@dataclass(frozen=True, slots=True)
class RegistryStatistics:
    offers: int
    exported: int
    withdrawn: int
    #: Offers that were said anew because the client came to another domain.
    moved: int


def network_of(client: Client, level: int | None = None) -> int:
    """The number of the domain that a client is in."""
    address = client.broker
    if address is None:
        raise InvalidEvent("this client was never attached to a broker: it is in no domain yet")
    return network_number(domain_of(address, level))


class Registry:
    """The offers of one client."""

    def __init__(self, client: Client, types: ServiceTypes | None = None, *, level: int | None = None) -> None:
        self.client = client
        self.types = types or ServiceTypes.standard()
        self._level = level
        #: By name: type, properties as given, lease, and the domain in which it was said.
        self._standing: dict[str, tuple[str, dict[str, Any], float, int]] = {}
        self._moving: asyncio.Task[None] | None = None
        self._exported = self._withdrawn = self._moved = 0
        client.on_attached(self._attached)

    async def export(
        self, service_type: str, name: str, properties: Mapping[str, Any] | None = None, *, lease: float = OFFER_LEASE_S
    ) -> Offer:
        """Offer a service under a name; `name` and `network` are filled in. Raise InvalidEvent naming the property.

        Exporting a name again replaces the offer.
        """
        check_name("name", name)
        network = network_of(self.client, self._level)
        given = {"name": name, **(properties or {})}
        if given["name"] != name:
            raise InvalidEvent(f"name {given['name']!r:.80} of offer {name!r}: an offer has one name; leave it out")
        if given.get(NETWORK, network) != network:
            raise InvalidEvent(
                f"network {given[NETWORK]!r} of offer {name!r}: this client is in {network}; leave it out"
            )
        given[NETWORK] = network
        self.types.check(service_type, given)
        offer = make_offer(service_type, name, network, given, self.client.client_id)
        await self.client.advertise(name, properties=advertised(offer, self.types.line(service_type)), lease=lease)
        self._standing[name] = (service_type, dict(properties or {}), lease, network)
        self._exported += 1
        return offer

    async def withdraw(self, name: str) -> None:
        """Offer it no longer."""
        if self._standing.pop(name, None) is None:
            raise InvalidEvent(f"offer {name!r:.80}: this client has none of that name; it has {list(self._standing)}")
        self._withdrawn += 1
        await self.client.withdraw(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of this client's offers."""
        return tuple(self._standing)

    def statistics(self) -> RegistryStatistics:
        return RegistryStatistics(len(self._standing), self._exported, self._withdrawn, self._moved)

    def _attached(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
        self._moving = asyncio.get_running_loop().create_task(self._say_anew())

    async def _say_anew(self) -> None:
        """Offers of another domain are said with the number of this one."""
        for name, (service_type, properties, lease, said_in) in list(self._standing.items()):
            try:
                if said_in != network_of(self.client, self._level):
                    given = {key: value for key, value in properties.items() if key != NETWORK}
                    await self.export(service_type, name, given, lease=lease)
                    self._moved += 1
            except VeenaError:
                return  # the connection is gone again, or the client is closed: the next attachment tries anew
