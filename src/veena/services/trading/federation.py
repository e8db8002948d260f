"""Where a trader looks: in one registry for all, or in its own domain first and then in linked ones (AMB-33, TRD-08).

The thesis has both: a central registry that every domain's registry service has a handle to, and a federation of
traders. Both are here behind one interface. The advertisements of the mesh are one database, so the central registry
is a question to the whole system (`Central`) and needs no server. The federation (`Federation`, the default) asks the
domain's own controllers, and only when nothing is there the traders that it is linked to, all at once.

Links may form cycles. A question carries the domains that had it, and an id: who had it already answers at once that
it has nothing to add, and it is passed on a bounded number of times. So every question ends, and each trader looks
once. A link that does not answer is named, and skipped for a while so that the next question does not wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from veena.address import format_address, level_name
from veena.client import Client
from veena.errors import Unanswered, VeenaError
from veena.services.trading.domains import domain_of
from veena.services.trading.messages import MAX_VISITED, Question, ask, merged
from veena.services.trading.offers import Found, columns_for, constraint_for, offer_of

#: Of the time that an asker gives, this share is passed on: the rest is for the way back.
SHARE = 0.8
#: Of that, the own domain gets this share before others are asked.
LOCAL_SHARE = 0.4
#: When some links have found offers, the others get so much more time.
SETTLE_S = 0.3
#: A link that did not answer in time is not asked again for so long.
RETRY_S = 5.0
#: Links of one trader: each is asked whenever nothing is found.
MAX_LINKS = 32


@dataclass(frozen=True, slots=True)
class BackEndStatistics:
    #: Questions that the own domain, or the central registry, could answer, and those passed on.
    answered_locally: int
    forwarded: int
    #: Questions to linked traders, and those that were not answered.
    link_asks: int
    link_failures: int


class BackEnd(Protocol):
    """Where offers are looked for."""

    async def find(self, question: Question) -> Found: ...
    def statistics(self) -> BackEndStatistics: ...


async def ask_mesh(client: Client, question: Question, realm: str, timeout: float) -> Found:
    """What the advertisements in a realm say."""
    columns = columns_for(question.properties)
    answer = await client.query(
        constraint=constraint_for(question.service_type, question.constraint, question.network),
        properties=columns, limit=question.limit, realm=realm, timeout=timeout,
    )  # fmt: skip
    found = [offer_of(row, columns) for row in answer.rows]
    offers = tuple(offer for offer in found if offer is not None)
    missing = tuple(f"unit {format_address(unit)}" for unit in answer.silent)
    return Found(offers, missing, truncated=answer.truncated or answer.matched > len(answer.rows))


def realm_of(client: Client, level: int | None = None) -> str:
    """The realm that is the client's domain."""
    address = client.broker
    assert address is not None, "an open client has a broker"
    size = len(address) - len(domain_of(address, level))
    return level_name(size) if 0 < size < len(address) else "system"


class Central:
    """One registry for all domains: a question to the whole system."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answered = 0

    async def find(self, question: Question) -> Found:
        found = await ask_mesh(self._client, question, "system", SHARE * question.deadline_ms / 1000)
        self._answered += 1
        return found

    def statistics(self) -> BackEndStatistics:
        return BackEndStatistics(self._answered, 0, 0, 0)


class Federation:
    """The own domain first, then the traders of linked domains."""

    def __init__(self, client: Client, names: Sequence[str], links: Sequence[str], level: int | None = None) -> None:
        self._client = client
        #: What this trader's domain is called: its name and its number.
        self._names = tuple(names)
        self.links = tuple(dict.fromkeys(link for link in links if link not in self._names))[:MAX_LINKS]
        self._level = level
        #: Links that did not answer, and until when they are left alone.
        self._suspects: dict[str, float] = {}
        self._answered = self._forwarded = self._asks = self._failures = 0

    async def find(self, question: Question) -> Found:
        began = time.monotonic()
        patience_s = SHARE * question.deadline_ms / 1000
        own = await ask_mesh(self._client, question, realm_of(self._client, self._level), LOCAL_SHARE * patience_s)
        links = [link for link in self.links if link not in question.visited] if question.hops else []
        if own.offers or not links:
            self._answered += bool(own.offers)
            return own
        self._forwarded += 1
        visited = (*question.visited, *self._names, *links)[-MAX_VISITED:]
        left_s = max(0.05, patience_s - (time.monotonic() - began))
        passed = replace(question, hops=question.hops - 1, visited=visited, deadline_ms=max(1, round(left_s * 1000)))
        parts, missing = await self._ask_links(links, passed, left_s)
        offers, cut = merged(parts, question.limit)
        told = [*own.missing, *missing, *(each for part in parts for each in part.missing)]
        truncated = cut or any(part.truncated for part in parts)
        return Found(offers, tuple(dict.fromkeys(told)), forwarded=True, truncated=truncated)

    async def _ask_links(self, links: list[str], question: Question, left_s: float) -> tuple[list[Found], list[str]]:
        """The answers of links, and who of them gave none."""
        now = time.monotonic()
        self._suspects = {link: until for link, until in self._suspects.items() if until > now}
        missing = [f"trader {link} (it did not answer lately)" for link in links if link in self._suspects]
        asked = {
            asyncio.create_task(ask(self._client, link, question)): link for link in links if link not in self._suspects
        }
        self._asks += len(asked)
        parts: list[Found] = []
        pending, until = set(asked), now + left_s
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=max(0.0, until - time.monotonic()), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                is_late = time.monotonic() - now > left_s / 2
                for task in sorted(done, key=asked.__getitem__):
                    self._take(task, asked[task], is_late, parts, missing)
                if any(part.offers for part in parts):
                    until = min(until, time.monotonic() + SETTLE_S)
        finally:
            for task in pending:
                task.cancel()
        missing += [self._suspect(link) for link in sorted(asked[task] for task in pending)]
        return parts, missing

    def _take(
        self, task: asyncio.Task[Found], link: str, is_late: bool, parts: list[Found], missing: list[str]
    ) -> None:
        """What became of a question to a link; a broker that finds nobody who wants it says so at once."""
        error = task.exception()
        if error is None:
            parts.append(task.result())
        elif isinstance(error, Unanswered) and is_late:
            missing.append(self._suspect(link))
        elif isinstance(error, VeenaError):
            self._failures += 1
            reason = "there is none" if isinstance(error, Unanswered) else str(error)
            missing.append(f"trader {link} ({reason})")
        else:
            raise error

    def _suspect(self, link: str) -> str:
        self._failures += 1
        self._suspects[link] = time.monotonic() + RETRY_S
        return f"trader {link} (no answer in time)"

    def statistics(self) -> BackEndStatistics:
        return BackEndStatistics(self._answered, self._forwarded, self._asks, self._failures)
