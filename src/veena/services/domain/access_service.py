"""The access service of a domain: it tells what each client that comes in may do (DIS-04, DIS-10, DIC-11).

Brokers check credentials and rights, and tell who came in (`Access/login`, where `[auth] tell` is set). They know a
user's category as a name, and rules; what these mean in the dictionary's words the service knows, and publishes as
`Access/authorise`: the types of events that the client may publish and read. Nobody has to wait for it, and nothing
depends on it: it is the record of who could do what, beside that of who did (`Monitoring/record`).

A word of a broker is one that a broker published: who else may publish the type could tell of itself what it likes.
Several services in a domain share the work, so that each client is told of once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from veena.client import Client, Subscription
from veena.errors import VeenaError
from veena.event import Event
from veena.runtime.access.access_events import PUBLISHER, TYPE
from veena.services.domain.categories import AccessControl
from veena.services.structured import StructuredEvent
from veena.services.trading.federation import realm_of
from veena.services.trading.registry import network_of

LOGIN: Final = "login"
AUTHORISE: Final = "authorise"
logger = logging.getLogger("veena.services")


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    #: Clients that came in; those whose category is one of the domain's, and that were told of.
    logins: int
    authorised: int


class AccessService:
    """One instance, over the client of the domain's services."""

    def __init__(self, client: Client, control: AccessControl | None = None, *, level: int | None = None) -> None:
        self._client = client
        self._level = level
        self.control = control or AccessControl()
        self._logins: Subscription | None = None
        self._heard = self._authorised = 0

    async def start(self) -> None:
        network = network_of(self._client, self._level)
        self._logins = await self._client.subscribe(
            constraint=f"$type_name == '{TYPE}' and $event_name == '{LOGIN}'",
            scope=realm_of(self._client, self._level),
            group=f"access of domain {network}",
            on_event=self._came_in,
        )

    async def stop(self) -> None:
        if self._logins is not None:
            await self._logins.close()

    async def __aenter__(self) -> AccessService:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _came_in(self, event: Event) -> None:
        assert event.event_id is not None
        if not event.event_id.publisher.startswith(PUBLISHER):
            return
        self._heard += 1
        by, category, user = (event.properties.get(name) for name in ("by", "category", "user"))
        if not isinstance(by, str) or not isinstance(category, str) or category not in self.control.categories:
            return
        powers = self.control.powers(category)
        fields = {
            "by": by, "category": category, "publish": ", ".join(powers.publish), "read": ", ".join(powers.read),
            **({"user": user} if isinstance(user, str) else {}),
        }  # fmt: skip
        told = StructuredEvent(str(network_of(self._client, self._level)), TYPE, AUTHORISE, fields)
        try:
            checked = self.control.dictionary.check(told, "application")
            await self._client.publish_event(checked.to_event(), reliable=checked.is_reliable)
            self._authorised += 1
        except VeenaError as error:
            logger.info("what %s may do could not be told: %s", by, error)

    def statistics(self) -> AccessStatistics:
        return AccessStatistics(self._heard, self._authorised)
