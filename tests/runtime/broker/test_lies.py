"""Real brokers and a neighbour that lies about another one, over sockets: when it is gone its lies have no effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.runtime.client_brokers import PATIENCE_S, QUICK, Site, nothing_more, run, text, until
from tests.runtime.raw_link import RawLink, link_to
from veena.address import Address
from veena.client import Subscription
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.interest import STANDING, Claim, Have, Interest, Mark, Row, Version

VICTIM: Address = (0, 0, 0, 0)
ROGUE: Address = (0, 0, 0, 31)
#: How far in the future the liar begins: as far as any broker believes.
AHEAD_NS = 50 * SECOND_NS
MICROSECOND_NS = 1000
LEASE_S = QUICK.lease_ns / SECOND_NS


@asynccontextmanager
async def three_in_a_row() -> AsyncIterator[list[Site]]:
    """The victim, the broker that the liar links to, and one where events are published."""
    async with Site(VICTIM) as one:
        two = Site((0, 0, 0, 1))
        two.neighbours = [one]
        async with two:
            three = Site((0, 0, 0, 2))
            three.neighbours = [two]
            async with three:
                sites = [one, two, three]
                for here in sites:
                    for there in sites:
                        unit = there.address
                        await until(lambda here=here, unit=unit: reaches(here, unit))
                yield sites


def reaches(site: Site, unit: Address) -> bool:
    return site.address == unit or unit in site.driver.reached


def version(ahead_ns: int) -> Version:
    wall_ns = time.time_ns() + ahead_ns
    return wall_ns // MILLISECOND_NS, VICTIM, wall_ns // MICROSECOND_NS


def heard(rogue: RawLink) -> list[Row]:
    """What the victim wants, as the liar hears it."""
    rows = [row for frame in rogue.frames if isinstance(frame, Interest) for row in frame.rows]
    wanted = {row.key: row for row in rows if row.unit == VICTIM and row.kind != STANDING and row.wanted}
    return list(wanted.values())


def wants_nothing(rows: list[Row], ahead_ns: int) -> Interest:
    at = version(ahead_ns)
    gone = [Row(VICTIM, row.key, at, False, row.kind, b"", row.scope) for row in rows]
    return Interest((*gone, Row(VICTIM, bytes(VICTIM), at, True, STANDING, b"", 0)))


def has_everything(ahead_ns: int) -> Have:
    """The victim's neighbour has heard whatever the victim will ever say."""
    teller = (0, 0, 0, 1)
    at = version(ahead_ns)
    return Have((Claim(teller, teller, at[2], 0, True, False, False, (Mark(VICTIM, (at[0], VICTIM, at[2])),)),))


async def gather(subscription: Subscription, found: list[str]) -> None:
    while True:
        found.append(text(await subscription.next(PATIENCE_S)))


def test_what_is_accepted_during_lies_arrives_once() -> None:
    """Twenty lies a second that a broker wants nothing: all 200 accepted events arrive within a lease of the last."""

    async def scenario() -> None:
        async with three_in_a_row() as (one, two, three), one.client("reader") as reader, three.client("pub") as writer:
            quotes = await reader.subscribe(topic="quotes")
            await writer.publish(topic="quotes", body=b"first", reliable=True)
            assert text(await quotes.next(10)) == "first"
            rogue = await link_to(two.url, ROGUE)
            rogue.answers = True
            await until(lambda: heard(rogue))
            rows, found = heard(rogue), list[str]()
            reading = asyncio.create_task(gather(quotes, found))
            for at in range(40):
                rogue.say(wants_nothing(rows, AHEAD_NS))
                await asyncio.sleep(0.01)
                for number in range(5 * at, 5 * at + 5):
                    await writer.publish(topic="quotes", body=str(number).encode(), reliable=True)
                await asyncio.sleep(0.03)
            told = one.driver.broker.profiles.contradictions.count
            rogue.stream.close("gone")
            await until(lambda: len(found) >= 200, LEASE_S + 10)
            reading.cancel()
            assert told > 0, "the lies were heard; for how long they were believed, `test_missed` decides"
            assert sorted(found, key=int) == [str(number) for number in range(200)]
            assert await nothing_more(quotes)

    run(scenario())


def test_thousands_of_huge_epochs_are_of_no_use() -> None:
    """16,384 frames of huge epochs and numbers; with the liar gone a new subscription gets everything."""

    async def scenario() -> None:
        async with three_in_a_row() as (one, two, three), one.client("reader") as reader, three.client("pub") as writer:
            rogue, said = await link_to(two.url, ROGUE), 0
            rogue.answers = True
            for at in range(16_384):
                if rogue.reason is not None:  # sent away: it comes again
                    rogue = await link_to(two.url, ROGUE, nonce=8 + at)
                    rogue.answers = True
                    said += 1
                step = AHEAD_NS + at * MILLISECOND_NS if at % 64 else (1 << 40) * at
                rogue.say(wants_nothing([], step), has_everything(min(step, AHEAD_NS)))
                if not at % 64:
                    await asyncio.sleep(0)
            rogue.stream.close("gone")
            await until(lambda: two.driver.statistics() and len(two.driver.statistics().links) == 2)
            quotes = await reader.subscribe(topic="quotes")
            for number in range(20):
                await writer.publish(topic="quotes", body=str(number).encode(), reliable=True)
            found = [text(await quotes.next(LEASE_S + 10)) for _ in range(20)]
            assert sorted(found, key=int) == [str(number) for number in range(20)]
            assert said > 0 and two.driver.broker.profiles.epochs.early > 0

    run(scenario())
