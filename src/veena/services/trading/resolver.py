"""The resolver: a user asks which applications there are, and gets references to their channels (DIS-13, TRD-06).

It asks the trader of the client's own domain. Where none runs, which the broker says at once, it asks the mesh itself:
first the domain, then, when nothing is there, the whole system. So a user needs a broker and nothing more, and traders
are what adds links, types and policy.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from veena.client import Client
from veena.core.wire.header import explain
from veena.errors import AccessDenied, InvalidEvent, Unanswered
from veena.services.trading.federation import SHARE, ask_mesh, realm_of
from veena.services.trading.messages import DEFAULT_HOPS, DEFAULT_LIMIT, Question, ask
from veena.services.trading.offers import Found, Offer
from veena.services.trading.registry import network_of
from veena.services.trading.service_types import APPLICATION, ServiceTypes

__all__ = ["Found", "Offer", "Resolver", "ResolverStatistics"]

#: How long an answer is waited for; of that a trader gets this share, for the mesh can be asked without one.
RESOLVE_S = 2.0
TRADER_SHARE = 0.5
#: A trader that did not answer is not asked again for so long.
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class ResolverStatistics:
    asked: int
    #: Answers of a trader, and questions that the mesh was asked because none answered.
    by_trader: int
    by_mesh: int
    forwarded: int


class Resolver:
    """Finds offers for one client."""

    def __init__(self, client: Client, types: ServiceTypes | None = None, *, level: int | None = None) -> None:
        self._client = client
        self._types = types or ServiceTypes.standard()
        self._level = level
        #: Before this no trader is asked.
        self._retry_s = 0.0
        self._asked = self._by_trader = self._by_mesh = self._forwarded = 0

    async def find(
        self,
        constraint: str = "",
        *,
        service_type: str = APPLICATION,
        domain: int | None = None,
        properties: Sequence[str] | None = None,
        limit: int = DEFAULT_LIMIT,
        hops: int = DEFAULT_HOPS,
        timeout: float = RESOLVE_S,
    ) -> Found:
        """The offers of a type that satisfy a constraint, those in the domain of a network number if one is given.

        Each has the `properties` that are named, or all. Raises InvalidConstraint with the position of what is wrong.
        """
        self._types.check_constraint(service_type, constraint)
        chosen = None if properties is None else tuple(properties)
        question = Question(
            uuid.uuid4().hex, service_type, constraint, domain, chosen, limit, hops, (), max(1, round(timeout * 1000))
        )
        try:
            msgspec.convert(msgspec.to_builtins(question), Question)
        except msgspec.ValidationError as error:
            raise InvalidEvent(f"a question for offers: {explain(error, Question)}") from None
        self._asked += 1
        found = await self._ask_trader(question)
        if found is None:
            found = await self._ask_mesh(question, timeout)
            self._by_mesh += 1
        else:
            self._by_trader += 1
        self._forwarded += found.forwarded
        return found

    async def _ask_trader(self, question: Question) -> Found | None:
        """What the domain's trader says; None where there is none, or none that answers."""
        began = time.monotonic()
        if began < self._retry_s:
            return None
        try:
            asked = structs.replace(question, deadline_ms=max(1, round(TRADER_SHARE * question.deadline_ms)))
            return await ask(self._client, str(network_of(self._client, self._level)), asked)
        except Unanswered:
            if time.monotonic() - began >= TRADER_SHARE * question.deadline_ms / 1000:
                self._retry_s = time.monotonic() + RETRY_S
        except AccessDenied:
            self._retry_s = time.monotonic() + RETRY_S
        return None

    async def _ask_mesh(self, question: Question, timeout: float) -> Found:
        realm = realm_of(self._client, self._level)
        found = await ask_mesh(self._client, question, realm, SHARE * timeout)
        if found.offers or realm == "system":
            return found
        return replace(await ask_mesh(self._client, question, "system", timeout), forwarded=True)

    def statistics(self) -> ResolverStatistics:
        return ResolverStatistics(self._asked, self._by_trader, self._by_mesh, self._forwarded)
