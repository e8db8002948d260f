"""The aggregation service of a domain: one aggregated subscription for each remote domain (AGG-01..07, DIS-15).

Members tell it what they want of applications in other domains; it subscribes to the disjunction, and the members
subscribe for themselves. To the mesh these are subscriptions like any other. The members' are covered by the aggregate,
so by the mesh's own rule only that one is told outside: one consumer at the remote side, n at the local one. An event
crosses once and is matched again here against each member's own constraint (AGG-02). Nothing is published again, so
whatever the mesh promises (once, in order, also to who was away) still holds.

The aggregate is changed make-before-break: the new one is acknowledged before the old one goes. What comes while a
change is on its way waits for it, and all of that is the next change together. Should the service die, its subscription
lingers, goes, and the members' own constraints climb by themselves: the price is a few wants more.
Members tell their interest again from time to time, so that a service that is new, or a second one, has them all.

The subscriptions are held by a client of their own whose device is `none`: it is sent no events, it only wants them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType

from veena.client import Client, Subscription
from veena.client.companion import companion
from veena.core.interest.eligibility import NO_DEVICE
from veena.errors import VeenaError
from veena.event import Event
from veena.services.domain.aggregate import Aggregate, Change
from veena.services.domain.aggregation_messages import LEASE_S, SUBSCRIBE, UNSUBSCRIBE, Interest, Joined, read_interest
from veena.services.trading.federation import realm_of
from veena.services.trading.messages import MESSAGING
from veena.services.trading.registry import network_of

#: Applications, and domains that they are in, whose interests one service aggregates.
MAX_APPLICATIONS = 4096
MAX_DOMAINS = 512
#: Interests of one client, so that nobody fills the service alone, and questions that are answered at once; who hears
#: no answer subscribes by itself, which is what it would have got.
MAX_OF_CLIENT = 256
MAX_OPEN = 256
#: How often leases are looked at.
SWEEP_S = 2.0

#: An application and a member that wants something of it.
Key = tuple[str, str]
logger = logging.getLogger("veena.services")


@dataclass(slots=True)
class _Held:
    """The aggregate of one remote domain and what stands for it in the mesh."""

    aggregate: Aggregate = field(default_factory=Aggregate)
    #: Members and when their leases end.
    leases: dict[Key, float] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class AggregateStatistics:
    #: The remote domain, and its applications that something is wanted of.
    network: int
    applications: tuple[str, ...]
    members: int
    #: Different constraints of the members, those that the aggregate consists of, and the texts that tell it.
    distinct: int
    told: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AggregationStatistics:
    network: int
    aggregates: tuple[AggregateStatistics, ...]
    #: Interests that came, were covered already, changed an aggregate; and that ended, by word or by lease.
    interests: int
    covered: int
    changed: int
    removed: int
    expired: int
    refused: int


class AggregationService:
    """One instance; several in a domain hold the same aggregates, and the mesh tells them once."""

    def __init__(self, client: Client, *, level: int | None = None, lease: float = LEASE_S) -> None:
        self._client = client
        self._level = level
        self._lease_s = lease
        self.network = network_of(client, level)
        self._holder: Client | None = None
        self._held: dict[int, _Held] = {}
        self._requests: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: How many interests each client has here.
        self._of_client: Counter[str] = Counter()
        self._interests = self._covered = self._changes = self._removed = self._expired = self._refused = 0

    async def start(self) -> None:
        self._holder = await companion(self._client, "aggregates", {"device": NO_DEVICE}).open()
        self._requests = await self._client.subscribe(
            constraint=f"$type_name == '{MESSAGING}' and $domain_name == '{self.network}' and "
            f"$event_name in ('{SUBSCRIBE}', '{UNSUBSCRIBE}')",
            scope=realm_of(self._client, self._level),
            on_event=self._on_request,
        )
        self._spawn(self._sweep())

    async def stop(self) -> None:
        if self._requests is not None:
            await self._requests.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._holder is not None:
            await self._holder.close()

    async def __aenter__(self) -> AggregationService:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- members ---

    async def join(self, interest: Interest) -> Joined:
        """A member wants this of a remote application; returns when the aggregate that has it is acknowledged."""
        self._interests += 1
        held = self._held.get(interest.network) or _Held()
        key = (interest.application, interest.member)
        self._check_room(interest, held)
        client, is_new = _client_of(interest.member), key not in held.aggregate
        if is_new and self._of_client[client] >= MAX_OF_CLIENT:
            raise VeenaError(f"{client!r} has {MAX_OF_CLIENT} interests here: end some of them")
        change = held.aggregate.add(interest.application, interest.member, interest.constraint)
        self._held[interest.network] = held
        self._of_client[client] += is_new
        held.leases[key] = time.monotonic() + self._lease_s
        self._changes += change is not None
        self._covered += change is None
        await self._settle(held)
        return Joined(len(held.aggregate), len(held.aggregate.texts), change is not None)

    def _check_room(self, interest: Interest, held: _Held) -> None:
        if interest.network not in self._held and len(self._held) >= MAX_DOMAINS:
            raise VeenaError(f"{MAX_DOMAINS} domains are aggregated here: no more are taken")
        if interest.application in held.aggregate.applications:
            return
        if sum(len(each.aggregate.applications) for each in self._held.values()) >= MAX_APPLICATIONS:
            raise VeenaError(f"{MAX_APPLICATIONS} applications are aggregated here: no more are taken")

    async def leave(self, interest: Interest) -> Joined:
        """A member wants nothing more of it."""
        held = self._held.get(interest.network)
        key = (interest.application, interest.member)
        if held is None or key not in held.aggregate:
            return Joined(0 if held is None else len(held.aggregate), 0, False)
        self._removed += 1
        change = self._remove(held, key)
        await self._settle(held)
        self._forget()
        return Joined(len(held.aggregate), len(held.aggregate.texts), change is not None)

    def _remove(self, held: _Held, key: Key) -> Change | None:
        held.leases.pop(key, None)
        application, member = key
        client = _client_of(member)
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]
        return held.aggregate.remove(application, member)

    async def _settle(self, held: _Held) -> None:
        """Make what the mesh is told equal to the aggregate: the new texts first, then away with the old ones."""
        assert self._holder is not None, "the service has been started"
        async with held.lock:
            # As it is now: what changes meanwhile is settled by who waits for the lock.
            texts = held.aggregate.texts
            for text in texts:
                if text not in held.subscriptions:
                    held.subscriptions[text] = await self._holder.subscribe(constraint=text)
            for text in [text for text in held.subscriptions if text not in texts]:
                await held.subscriptions.pop(text).close()

    def _forget(self) -> None:
        for network, held in list(self._held.items()):
            if not len(held.aggregate) and not held.subscriptions and not held.lock.locked():
                del self._held[network]

    async def _sweep(self) -> None:
        """End what nobody has told again."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self._lease_s / 2))
            now = time.monotonic()
            for held in list(self._held.values()):
                gone = [key for key, until in held.leases.items() if until < now]
                if gone:
                    try:
                        for key in gone:
                            self._remove(held, key)
                            self._expired += 1
                        await self._settle(held)
                    except VeenaError as error:
                        logger.info("an aggregate of domain %d is not settled: %s", self.network, error)
            self._forget()

    # --- requests ---

    def _on_request(self, event: Event) -> None:
        if len(self._tasks) > MAX_OPEN:
            self._refused += 1
            return
        self._spawn(self._answer(event))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, event: Event) -> None:
        try:
            try:
                interest = read_interest(event)
                ends = event.headers.get("event_name") == UNSUBSCRIBE
                done = await (self.leave(interest) if ends else self.join(interest))
            except VeenaError as error:
                self._refused += 1
                await self._client.reply(event, properties={"error": str(error)[:1024]})
            else:
                await self._client.reply(
                    event, properties={"members": done.members, "texts": done.texts, "changed": done.changed}
                )
        except VeenaError as error:
            logger.info("the aggregation service of domain %d could not answer: %s", self.network, error)

    def statistics(self) -> AggregationStatistics:
        aggregates = tuple(
            AggregateStatistics(
                network, held.aggregate.applications, len(held.aggregate), held.aggregate.distinct, held.aggregate.told,
                held.aggregate.texts,
            )
            for network, held in sorted(self._held.items())
        )  # fmt: skip
        return AggregationStatistics(
            self.network, aggregates, self._interests, self._covered, self._changes, self._removed, self._expired,
            self._refused,
        )  # fmt: skip


def _client_of(member: str) -> str:
    """A member is a client's id, `#` and a number of its own."""
    return member.rpartition("#")[0]
