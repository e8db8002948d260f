"""A durable subscription that is new has no former home: nothing is waited for."""

from __future__ import annotations

import asyncio

import veena
from veena import testing

#: Far longer than the test waits: it can only pass without it.
NEVER_S = 600.0
PATIENCE_S = 30.0


def test_what_nobody_keeps_is_not_waited_for() -> None:
    """CLI-04: made before the sites have told each other what they keep, it opens as soon as they have."""

    async def scenario() -> None:
        async with testing.network({"a": 1, "b": 1}, settings={"store": {"arrive_s": NEVER_S}}) as network:
            here, there = network.urls
            async with veena.connect(here, client_id="r") as reader, veena.connect(there, client_id="w") as writer:
                wanted = await reader.subscribe(topic="t", durable="d")
                await writer.publish(topic="t", body=b"x", reliable=True)
                assert bytes((await wanted.next(PATIENCE_S)).body) == b"x"

    asyncio.run(scenario())
