"""The adviser of a network that runs: asks its brokers, proposes, and does what it is told to.

Every broker is asked who is attached to it, whom they hear, and how its links are; brokers tell where others listen, so
one URL leads to all of them. Carrying out is one step after the other, each told when it is done, and each of them safe
by itself: a broker that was started and has no clients yet is a broker like any other, and clients that were sent and
did not arrive are where they were.

Brokers and links can be changed where somebody runs the brokers: `Operator` is what that takes, and the fleet of
`veena network up` is one. Without an operator clients can still be sent to brokers that run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from veena.address import format_address
from veena.client import Client
from veena.client.client import CONNECT_S
from veena.errors import LocalProtocolError, NotConnected, TimedOut, VeenaError
from veena.services.adviser.facts import (
    BrokerFacts,
    ClientFacts,
    Hearing,
    Limits,
    LinkFacts,
    Proposal,
    Snapshot,
)
from veena.services.adviser.rules import advise

#: Brokers that are asked in one look, and how many at once.
MAX_ASKED = 256
AT_ONCE = 16
ANSWER_S = 5.0
#: How long clients may take to arrive where they were sent, and how often somebody looks.
ARRIVAL_S = 30.0
LOOK_S = 0.1

#: A client of the broker at this URL, not connected yet.
Dial = Callable[[str], AbstractAsyncContextManager[Client]]
Report = dict[str, Any]


class Operator(Protocol):
    """Who can start brokers and change links."""

    async def add_broker(self, label: str, neighbours: tuple[str, ...]) -> str:
        """Start a broker that dials these; where it listens."""

    async def change_link(self, what: Literal["link", "drop"], ends: tuple[str, str]) -> None:
        """Add a link, or take it away."""


class Adviser:
    """Looks at one network."""

    def __init__(
        self, urls: Sequence[str], dial: Dial, operator: Operator | None = None, limits: Limits | None = None
    ) -> None:
        self._urls = tuple(urls)
        self._dial = dial
        self._operator = operator
        self.limits = limits
        self._snapshot = Snapshot(())

    @property
    def can_carry_out(self) -> bool:
        """Whether brokers and links can be changed; clients can be sent to others in any case."""
        return self._operator is not None

    async def proposals(self) -> tuple[Proposal, ...]:
        """Look, and say what to do."""
        return advise(await self.look(), self.limits)

    # --- looking ---

    async def look(self) -> Snapshot:
        """What all brokers say that can be reached; raise NotConnected when there is none."""
        reports: dict[tuple[int, ...], tuple[Report, Report]] = {}
        silent: dict[str, str] = {}
        own: set[str] = set()
        turn = asyncio.Semaphore(AT_ONCE)

        async def ask(url: str) -> None:
            try:
                async with turn, asyncio.timeout(CONNECT_S + 2 * ANSWER_S), self._dial(url) as client:
                    own.add(client.client_id)
                    if client.broker not in reports:
                        found = await client.clients(timeout=ANSWER_S), await client.topology(timeout=ANSWER_S)
                        reports[tuple(found[0]["address"])] = found
            except (VeenaError, TimeoutError) as error:
                silent[url] = str(error) or f"{url} lets clients in, but does not answer"

        known: dict[str, None] = {}
        todo = list(dict.fromkeys(self._urls))
        while todo and len(known) < MAX_ASKED:
            known.update(dict.fromkeys(todo))
            await asyncio.gather(*map(ask, todo))
            told = (urls[0] for report, _ in reports.values() for urls in report["brokers"] if urls)
            reached = {url for report, _ in reports.values() for url in report["urls"]}
            todo = [url for url in dict.fromkeys(told) if url not in known and url not in reached]
            todo = todo[: MAX_ASKED - len(known)]
        if not reports:
            raise NotConnected("; ".join(silent.values()) or f"no broker answers at {', '.join(self._urls)}")
        self._snapshot = snapshot_of(reports.values(), own, silent)
        return self._snapshot

    # --- doing ---

    def carry_out(self, proposal: object, url: str = "") -> AsyncIterator[str]:
        """Do what was proposed by the last look; each step in words when it is done.

        `url` is a broker that was started by hand for a proposal of one.
        """
        if not isinstance(proposal, Proposal):
            raise LocalProtocolError(f"{proposal!r:.80} is no proposal: name one that proposals() gave")
        return self._links(proposal) if proposal.kind in ("link", "drop") else self._roam(proposal, url)

    async def _links(self, proposal: Proposal) -> AsyncIterator[str]:
        operator = self._needed(f"change the links yourself: {'; '.join(proposal.steps)}")
        for ends in proposal.links:
            what: Literal["link", "drop"] = "drop" if proposal.kind == "drop" else "link"
            await operator.change_link(what, ends)
            yield f"the link {ends[0]} - {ends[1]} is {'dropped' if what == 'drop' else 'there'}"

    async def _roam(self, proposal: Proposal, url: str) -> AsyncIterator[str]:
        target = url
        if not target and proposal.kind == "broker":
            operator = self._needed(f"start {proposal.broker} yourself and name its URL")
            target = await operator.add_broker(proposal.broker, tuple(b for _, b in proposal.links))
            yield f"{proposal.broker} runs at {target}, in reach of all others"
        target = target or self._url_of(proposal.broker)
        going = proposal.clients or {}
        sent: list[str] = []
        for home, clients in going.items():
            async with self._dial(self._url_of(home)) as client:
                answer = await client.send_away(clients, target, reason=proposal.title)
            sent += answer.sent
            gone = f"; {len(answer.absent)} are not there any more" if answer.absent else ""
            yield f"{len(answer.sent)} clients of {home} were sent to {proposal.broker}{gone}"
        began = time.monotonic()
        arrived = await self._wait_arrived(target, sent)
        yield f"{arrived} of {len(sent)} clients arrived at {proposal.broker} within {time.monotonic() - began:.1f} s"

    async def _wait_arrived(self, url: str, clients: Sequence[str]) -> int:
        """How many of them are at a broker, all of them or after a while."""
        wanted = set(clients)
        deadline = time.monotonic() + ARRIVAL_S
        async with self._dial(url) as client:
            while True:
                report = await client.clients(timeout=ANSWER_S)
                here = wanted.intersection(each["id"] for each in report["clients"])
                if len(here) == len(wanted) or time.monotonic() > deadline:
                    return len(here)
                await asyncio.sleep(LOOK_S)

    def _needed(self, instead: str) -> Operator:
        if self._operator is None:
            remedy = "name the control.json of a running `veena network up`, or"
            raise LocalProtocolError(f"nobody is here who starts brokers and changes links: {remedy} {instead}")
        return self._operator

    def _url_of(self, label: str) -> str:
        found = next((broker for broker in self._snapshot.brokers if broker.label == label), None)
        if found is None or not found.urls:
            raise TimedOut(f"broker {label} was not there at the last look: look again")
        return found.urls[0]


def snapshot_of(
    reports: Iterable[tuple[Report, Report]], own: set[str], silent: Mapping[str, str] | None = None
) -> Snapshot:
    """What brokers said (`Client.clients` and `Client.topology`), without the clients that asked."""
    found = list(reports)
    # A broker whose network file is older knows others by their numbers alone.
    names = {format_address(tuple(told["address"])): told["broker"] for told, _ in found}
    brokers = [
        BrokerFacts(
            told["broker"], tuple(told["address"]), tuple(told["urls"]), told["place"],
            told["total"] - sum(each["id"] in own for each in told["clients"]),
        )
        for told, _ in found
    ]  # fmt: skip
    clients = [
        ClientFacts(
            each["id"], told["broker"], each["place"], each["region"] or "", each["ip"], each["round_trip_ms"],
            each["bytes_out"], each["published"], each["subscriptions"], each["durable"],
        )
        for told, _ in found
        for each in told["clients"]
        if each["id"] not in own
    ]  # fmt: skip
    links: dict[tuple[str, str], LinkFacts] = {}
    for told, view in found:
        for link in view["links"]:
            other = names.get(link["to"], link["to"])
            pair = (min(told["broker"], other), max(told["broker"], other))
            before = links.get(pair)
            if before is None or before.round_trip_ms is None:
                links[pair] = LinkFacts(*pair, link["round_trip_ms"])
    hearings = [
        Hearing(each["publisher"], names.get(each["origin"], each["origin"]), told["broker"], each["copies"])
        for told, _ in found
        for each in told["heard"]
    ]
    return Snapshot(tuple(brokers), tuple(clients), tuple(links.values()), tuple(hearings), silent or None)
