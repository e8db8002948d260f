"""Processes that are killed: what was accepted arrives once and in order all the same (I1, I5)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.runtime.processes import Started, veena
from tests.runtime.raw_client import attach
from tests.runtime.streams import until

CHAIN = """
[network]
name = "chain"
levels = 2
[[broker]]
address = "a.1"
[[broker]]
address = "b.2"
[[broker]]
address = "b.3"
[[link]]
between = ["a.1", "b.2"]
[[link]]
between = ["b.3", "b.2"]
"""
EVENTS, LAST = 600, 100


def test_brokers_that_are_killed_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """I1, FLT-01: `kill -9` of the only broker between two clusters while events pass, then of the one that has
    accepted some that cannot leave."""
    file = tmp_path / "chain.toml"
    file.write_text(CHAIN)
    with veena("network", "up", str(file), "--json", "--restart", "--data", str(tmp_path / "run")) as network:
        places = {line["address"]: line for line in (network.told() for _ in range(3))}
        assert network.told()["ready"]
        asyncio.run(_publish_while_killing(network, places))


async def _publish_while_killing(network: Started, places: dict[str, dict[str, Any]]) -> None:
    async def kill(*labels: str) -> None:
        for label in labels:
            os.kill(places[label]["pid"], signal.SIGKILL)
        for _ in labels:
            again = await asyncio.to_thread(network.told)
            places[again["address"]] = again

    reader = await attach(places["b.3"]["url"], "reader", levels=2)
    await reader.subscribe("quotes")
    writer = await attach(places["a.1"]["url"], "writer", levels=2)
    expected = [b"%d" % number for number in range(EVENTS + LAST)]
    for at, body in enumerate(expected[:EVENTS]):
        writer.publish("quotes", body)
        await asyncio.sleep(0)
        if at in (EVENTS // 3, 2 * EVENTS // 3):
            await reader.has(at // 2)
            await kill("b.2")
    await reader.has(EVENTS)
    # Accepted while there is no way to the reader, then the broker that accepted them dies as well.
    os.kill(places["b.2"]["pid"], signal.SIGSTOP)
    for body in expected[EVENTS:]:
        writer.publish("quotes", body)
    await until(lambda: writer.accepted() == len(expected))
    await kill("a.1", "b.2")
    await reader.has(len(expected))
    assert reader.bodies() == expected
    reader.stream.close("done")
    await until(lambda: reader.reason is not None and writer.reason is not None)
