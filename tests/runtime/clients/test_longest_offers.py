"""Offers as long as any may be are found by whatever names their columns: real brokers and sockets."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.client_brokers import run, two_sites
from veena.core.wire.discovery import MAX_ADVERT_NAME, MAX_ADVERT_PROPERTIES
from veena.event import MAX_CLIENT_ID_LENGTH

FACE = "\N{GRINNING FACE}"


@pytest.mark.parametrize("is_far", [False, True], ids=["here", "far"])
def test_the_longest_offer_is_found_by_all_of_its_columns(is_far: bool) -> None:
    """One offer by one client had the broker of whoever asked for its columns tell nothing to anybody any more."""
    name, text = FACE * MAX_ADVERT_NAME, "x" * (MAX_ADVERT_PROPERTIES - 14)

    async def scenario() -> None:
        async with two_sites() as (one, other):
            home = one if is_far else other
            async with home.client(FACE * MAX_CLIENT_ID_LENGTH) as owner, other.client("asker") as asker:
                await owner.advertise(name, properties={"p": text}, scope="cluster")
                sql = "SELECT p, client, name, home FROM adverts ORDER BY p, client, name, home"
                async with asyncio.timeout(20):
                    while not (answer := await asker.query(sql=sql, realm="cluster", timeout=5)).rows:
                        pass
                (row,) = answer.rows
                assert row.values is not None and row.values[:3] == (text, owner.client_id, name)
                assert len(one.driver.statistics().links) == len(other.driver.statistics().links) == 1

    run(scenario())
