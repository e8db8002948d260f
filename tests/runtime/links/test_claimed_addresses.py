"""A link under another broker's address: the honest one stays, and a broker that was really restarted comes in."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.runtime.brokers import Place, converge
from tests.runtime.raw_link import link_to
from tests.runtime.streams import until
from veena.address import Address
from veena.core.links.link import LinkState

HERE: Address = (0, 0, 0, 0)
THERE: Address = (0, 0, 0, 1)


def test_nobody_closes_the_link_of_another_broker(caplog: pytest.LogCaptureFixture) -> None:
    """FLT-01: a stranger says it is the neighbour, started again; it used to close the neighbour's link and stay."""
    caplog.set_level(logging.INFO)

    async def run() -> None:
        here, there = Place(HERE, "veena://127.0.0.1:0"), Place(THERE, "veena://127.0.0.1:0")
        there.neighbours.append(here)
        try:
            for place in (here, there):
                await place.start()
            await converge([here, there])
            (before,) = here.running.statistics().links
            identity = there.running.broker.identity
            for at in (1, 1 << 40):
                stranger = await link_to(
                    here.url, THERE, name=identity.name, incarnation=identity.incarnation + at, nonce=at
                )
                await until(lambda stranger=stranger: stranger.reason is not None)  # type: ignore[misc]
                assert "answers over another link" in stranger.goodbyes()[0]
            (after,) = here.running.statistics().links
            assert after.connection == before.connection and after.state is LinkState.OPEN
        finally:
            for place in (here, there):
                await place.stop()

    asyncio.run(run())
    refused = [record.getMessage() for record in caplog.records if "link refused" in record.getMessage()]
    assert refused and any("denied" in str(record.__dict__) for record in caplog.records)


def test_a_broker_that_lost_its_power_comes_back_while_its_old_connection_stands() -> None:
    """FLT-02: the old connection says nothing any more, and no reset ever came; the new one waits and is let in."""

    async def run() -> None:
        here = Place(HERE, "veena://127.0.0.1:0")
        try:
            await here.start()
            old = await link_to(here.url, THERE, incarnation=1)
            await until(lambda: here.reaches([THERE]))
            new = await link_to(here.url, THERE, incarnation=2, nonce=8)
            new.answers = True
            await until(lambda: old.reason is not None)
            assert old.goodbyes() == ["this neighbour was started again"] and new.reason is None
            (link,) = here.running.statistics().links
            assert link.neighbour == THERE
            await until(lambda: here.running.statistics().links[0].state is LinkState.OPEN)
        finally:
            await here.stop()

    asyncio.run(run())
