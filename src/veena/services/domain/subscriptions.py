"""The subscription service: a user subscribes to an application, wherever it is (DIS-14, DIS-15, DIS-22).

Whether the application is local follows from comparing its network number with the user's own (TRD-03). A local one is
subscribed to inside the domain, and nothing is told outside (DIS-14). For a remote one the domain's aggregation service
is told first; the user's own subscription is covered by the aggregate then and stays in the domain too (DIS-15). Where
no such service runs, the subscription goes its way alone, and gets the same events.

A subscription that is durable follows its client from domain to domain, so it reaches the whole system from the start.
One that is not is made again by the client wherever it attaches. When that is in another domain, what was local becomes
remote and reaches as far, and the new domain's aggregation service is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from veena.client import Client, Subscription
from veena.errors import AccessDenied, InvalidEvent, Refused, Unanswered, VeenaError
from veena.event import Event
from veena.services.domain.aggregate import either, within
from veena.services.domain.aggregation_messages import LEASE_S, SUBSCRIBE, UNSUBSCRIBE, Interest, tell
from veena.services.trading.federation import realm_of
from veena.services.trading.offers import Offer
from veena.services.trading.registry import network_of

Callback = Callable[[Event], Awaitable[None] | None]
logger = logging.getLogger("veena.services")


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    local: int
    remote: int
    #: Remote ones that an aggregation service knows of.
    aggregated: int


@dataclass(slots=True)
class _Remote:
    interest: Interest
    subscription: Subscription | None = None
    is_aggregated: bool = False


class SubscriptionService:
    """The subscriptions of one client to applications."""

    def __init__(self, client: Client, *, level: int | None = None, lease: float = LEASE_S) -> None:
        self._client = client
        self._level = level
        self._renew_s = lease / 3
        #: The number of the domain that it was in last.
        self._domain: int | None = None if client.broker is None else network_of(client, level)
        self._local: dict[int, tuple[Subscription, Interest]] = {}
        self._remote: dict[int, _Remote] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._made = 0
        client.on_attached(self._attached)

    async def subscribe(
        self,
        offer: Offer,
        constraint: str | Sequence[str] = "",
        *,
        durable: bool | str | None = None,
        callback: Callback | None = None,
    ) -> Subscription:
        """Want the events of an application that satisfy a constraint, or one of several, each of them once.

        With `callback` it is called with each. Raises InvalidConstraint with the position of what is wrong.
        """
        wanted = constraint if isinstance(constraint, str) else either(constraint)
        text = within(offer.application, wanted)
        self._made += 1
        member = f"{self._client.client_id}#{self._made}"
        interest = Interest(member, offer.network, offer.application, wanted)
        if self.is_local(offer):
            scope = "system" if durable else realm_of(self._client, self._level)
            found = await self._client.subscribe(
                constraint=text, durable=durable or False, scope=scope, on_event=callback
            )
            self._local = {number: each for number, each in self._local.items() if not each[0].is_closed}
            self._local[found.number] = (found, interest)
            return found
        remote = _Remote(interest)
        await self._join(remote)
        try:
            found = await self._client.subscribe(constraint=text, durable=durable or False, on_event=callback)
        except BaseException:
            await self._leave(remote)
            raise
        remote.subscription = found
        self._remote[found.number] = remote
        self._renew_soon()
        return found

    def _renew_soon(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def unsubscribe(self, subscription: Subscription, *, delete: bool = False) -> None:
        """Want them no longer; a durable subscription goes on being kept unless it is deleted."""
        remote = self._remote.pop(subscription.number, None)
        if remote is None and self._local.pop(subscription.number, None) is None:
            raise InvalidEvent(f"subscription {subscription.number} was not made by this service: close it yourself")
        await (subscription.delete() if delete else subscription.close())
        if remote is not None:
            await self._leave(remote)

    async def close(self) -> None:
        """Tell the aggregation service that its members are gone; the subscriptions are the caller's."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        remotes, self._remote = list(self._remote.values()), {}
        for remote in remotes:
            await self._leave(remote)

    def is_local(self, offer: Offer) -> bool:
        return offer.network == network_of(self._client, self._level)

    def statistics(self) -> SubscriptionStatistics:
        aggregated = sum(remote.is_aggregated for remote in self._remote.values())
        return SubscriptionStatistics(len(self._local), len(self._remote), aggregated)

    def _attached(self) -> None:
        """In another domain what was local is so no longer, and somebody else aggregates."""
        here = network_of(self._client, self._level)
        for number, (subscription, interest) in list(self._local.items()):
            if interest.network != here:
                del self._local[number]
                self._remote[number] = _Remote(interest, subscription)
                if not subscription.durable:
                    subscription.rescope(0)
        if self._remote and here != self._domain:
            if self._renewing is not None:
                self._renewing.cancel()
            self._renewing = asyncio.get_running_loop().create_task(self._renew(0.0))
        self._domain = here

    async def _join(self, remote: _Remote) -> None:
        here = network_of(self._client, self._level)
        if remote.interest.network == here:
            remote.is_aggregated = False
            return
        try:
            await tell(self._client, here, SUBSCRIBE, remote.interest)
            remote.is_aggregated = True
        except (Unanswered, AccessDenied, Refused) as error:
            remote.is_aggregated = False
            logger.debug("no aggregate for %s: %s", remote.interest.application, error)

    async def _leave(self, remote: _Remote) -> None:
        if not remote.is_aggregated or not self._client.is_connected:
            return
        remote.is_aggregated = False
        try:
            await tell(self._client, network_of(self._client, self._level), UNSUBSCRIBE, remote.interest, 1.0)
        except VeenaError as error:
            logger.debug("the aggregate hears of the end of a lease: %s", error)

    async def _renew(self, first_s: float | None = None) -> None:
        """Tell the interests again before their leases end, also to a service that is new or of another domain."""
        wait_s = self._renew_s if first_s is None else first_s
        while self._remote:
            await asyncio.sleep(wait_s)
            wait_s = self._renew_s
            for number, remote in list(self._remote.items()):
                try:
                    if remote.subscription is None or not remote.subscription.is_closed:
                        await self._join(remote)
                    elif self._remote.pop(number, None) is not None:
                        await self._leave(remote)
                except VeenaError as error:
                    logger.debug("not renewed: %s", error)
