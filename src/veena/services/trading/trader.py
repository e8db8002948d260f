"""The trader of a domain: it answers questions for offers, its own domain's first (TRD-06, TRD-08, FUT-14).

It is a client of the mesh like any other and has no state worth keeping: offers are the mesh's advertisements, so
several instances of one trader may run. Each of them answers, the asker takes the first answer, and any of them may be
lost without anybody waiting. After the answer the asker has the channel's reference and needs no trader: events pass it
by, and its counters show that (TRD-07).

A question may come more than once: by the instances of the trader before, which pass on the very same question and get
the very same answer; or by another way round a cycle, and then only the own domain is looked into, since whoever sent
it the first time waits for the rest. So nothing is passed on twice, and no two wait for each other.

Rejected: a group of which one member gets each question. A group is kept at one broker, whose loss takes minutes to be
believed; and questions would wait there for a trader that does not come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from msgspec.structs import replace

from veena.client import Client, Subscription
from veena.errors import InvalidEvent, Refused, VeenaError
from veena.event import Event
from veena.services.structured import NAME, check_name
from veena.services.trading.federation import BackEnd, Central, Federation, ask_mesh
from veena.services.trading.messages import (
    CLAIM,
    MESSAGING,
    RESOLVE,
    Question,
    claim,
    encode_error,
    encode_found,
    read_question,
)
from veena.services.trading.offers import Found
from veena.services.trading.registry import Registry, network_of
from veena.services.trading.service_types import NETWORK, TRADER, ServiceTypes
from veena.services.wording import quoted

#: Questions that are being answered at once; more are told to ask again.
MAX_OPEN = 256
#: How long a trader looks for another domain of its name when it starts.
CHECK_S = 1.0
#: Ids of questions that are remembered, so that one that comes by another way is not passed on again.
MAX_SEEN = 4096
#: Answers that are kept for the other instances of who asked, until the question is over.
MAX_KEPT = 256

logger = logging.getLogger("veena.services")


@dataclass(frozen=True, slots=True)
class TraderStatistics:
    name: str
    network: int
    links: tuple[str, ...]
    #: Questions that came, those found in the own domain, those passed on, and those that came a second time.
    asked: int
    answered_locally: int
    forwarded: int
    repeated: int
    refused: int
    #: Questions to linked traders, and those that were not answered.
    link_asks: int
    link_failures: int


class Trader:
    """One instance of a domain's trader; `async with Trader(client, "rome", links=["paris"])`."""

    def __init__(
        self,
        client: Client,
        name: str = "",
        *,
        links: Sequence[str] = (),
        types: ServiceTypes | None = None,
        back_end: Literal["federation", "central"] = "federation",
        level: int | None = None,
    ) -> None:
        if back_end not in ("federation", "central"):
            raise InvalidEvent(f"back end {back_end!r}: use 'federation' or 'central'")
        self._client = client
        self._types = types or ServiceTypes.standard()
        self._level = level
        self._links = tuple(check_name("link", link) for link in links)
        self._kind = back_end
        self.network = network_of(client, level)
        self.name = check_name("domain", name) if name else str(self.network)
        names = tuple(dict.fromkeys((self.name, str(self.network))))
        self._back_end: BackEnd = (
            Central(client) if back_end == "central" else Federation(client, names, self._links, level)
        )
        self._registry = Registry(client, level=level)
        self._questions: Subscription | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._seen: dict[str, None] = {}
        self._kept: dict[tuple[str, tuple[str, ...]], asyncio.Future[Found]] = {}
        self._asked = self._repeated = self._refused = 0

    async def start(self) -> None:
        """Answer questions from now on; raise Refused where another domain has this name already.

        An offer takes a moment to be known, so traders of the name are asked too. It looks twice: before it says
        anything, and when all brokers know that it takes questions. Of two that start at once at least one is refused.
        """
        await self._check_name()
        try:
            await self._stand()
            await self._check_name()
        except BaseException:
            await self.stop()
            raise

    async def _stand(self) -> None:
        """Take questions, and offer that."""
        name = quoted(self.name)
        self._questions = await self._client.subscribe(
            constraint=f"$type_name == '{MESSAGING}' and ($event_name == '{RESOLVE}' and "
            f"$domain_name in ({name}, '{self.network}') or "
            f"$event_name == '{CLAIM}' and $domain_name == {name} and network != {self.network})",
            on_event=self._on_question,
        )
        await self._registry.export(TRADER, f"trader-{self.name}"[:255], {"domain": self.name})

    async def _check_name(self) -> None:
        """Two domains of one name would answer for each other."""
        others = f"domain == {quoted(self.name)} and network != {self.network}"
        found = await ask_mesh(self._client, Question("name", TRADER, others), "system", CHECK_S)
        other = found.offers[0].network if found.offers else await claim(self._client, self.name, self.network, CHECK_S)
        if other is not None:
            raise Refused(
                f"domain {self.name!r}: a trader of network {other} has this name already, and this one is in network "
                f"{self.network}: choose another name"
            )

    async def stop(self) -> None:
        if self._questions is not None:
            await self._questions.close()
        work: list[asyncio.Future[Any]] = [*self._open, *self._kept.values()]
        self._kept.clear()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        for name in self._registry.names:
            if self._client.is_connected:
                await self._registry.withdraw(name)

    async def __aenter__(self) -> Trader:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _on_question(self, event: Event) -> None:
        is_claim = event.headers.get(NAME) == CLAIM
        self._asked += not is_claim
        if (
            len(self._open) > 2 * MAX_OPEN
        ):  # so many that not even all refusals can be said: askers do not wait for ever
            self._refused += 1
            return
        task = asyncio.get_running_loop().create_task(self._answer_claim(event) if is_claim else self._answer(event))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _answer_claim(self, event: Event) -> None:
        try:
            await self._client.reply(event, properties={NETWORK: self.network})
        except VeenaError as error:
            logger.info("trader %s could not say that it has its name: %s", self.name, error)

    async def _answer(self, event: Event) -> None:
        try:
            try:
                body = encode_found(self.name, await self.find(read_question(event)))
            except VeenaError as error:
                self._refused += 1
                body = encode_error(self.name, error)
            await self._client.reply(event, body=body)
        except VeenaError as error:
            logger.info("trader %s could not answer %s: %s", self.name, event.id, error)

    async def find(self, question: Question) -> Found:
        """What this trader answers; raise InvalidConstraint with the position of what is wrong."""
        if len(self._open) > MAX_OPEN:
            raise InvalidEvent(f"{MAX_OPEN} questions are being answered: ask again later")
        self._types.check_constraint(question.service_type, question.constraint)
        key = (question.id, question.visited)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = asyncio.ensure_future(self._find_once(question))
            kept.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may be gone
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            asyncio.get_running_loop().call_later(question.deadline_ms / 1000, self._kept.pop, key, None)
        else:
            self._repeated += 1
        return await asyncio.shield(kept)

    async def _find_once(self, question: Question) -> Found:
        if question.id in self._seen:
            self._repeated += 1
            return await self._back_end.find(replace(question, hops=0))
        self._seen[question.id] = None
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return await self._back_end.find(question)

    def statistics(self) -> TraderStatistics:
        found = self._back_end.statistics()
        return TraderStatistics(
            self.name,
            self.network,
            self._links,
            self._asked,
            found.answered_locally,
            found.forwarded,
            self._repeated,
            self._refused,
            found.link_asks,
            found.link_failures,
        )
