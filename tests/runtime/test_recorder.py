"""Records: each delivery, hop and change of profiles that crosses the boundary is in the store, once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.runtime.brokers import Place, converge
from tests.runtime.streams import until
from veena.core.boundary import ClientDown, Subscribe, Unsubscribe
from veena.runtime.recorder import Recorder
from veena.runtime.store_records import Delivery, Hop, Passed, ProfileChange, Record

ALL: tuple[type[Record], ...] = (Delivery, Hop, ProfileChange, Passed)


def test_the_way_of_events_is_recorded() -> None:
    """UID, RTE: who was given what, over which links, and who wanted what then."""
    kept: dict[int, list[Record]] = {0: [], 1: [], 2: []}

    async def run() -> None:
        made = [Place((0, 0, 0, at), f"memory://record-{at}") for at in range(3)]
        made[1].neighbours.append(made[0])
        made[2].neighbours.append(made[1])
        for at, place in enumerate(made):
            driver = await place.start()
            driver.recorder = Recorder(place.address, ALL, kept[at].extend)
        try:
            await converge(made)
            await made[2].subscribe("quotes")
            publish = await made[0].publisher()
            publish("quotes", b"reliable")
            publish("quotes", b"fast", reliable=False)
            await until(lambda: len(made[2].heard.bodies()) == 2)
            made[2].running.give(Unsubscribe(1, 1))
            made[2].running.give(ClientDown(1))
        finally:
            for place in made:
                await place.stop()

    asyncio.run(run())
    reader = "reader-(0, 0, 0, 2)-1"
    delivered = [record for record in kept[2] if isinstance(record, Delivery)]
    assert [record.clients for record in delivered] == [(reader,), (reader,)]
    ids = {record.id for record in delivered}
    ways = {at: [record for record in kept[at] if isinstance(record, Hop)] for at in kept}
    assert {(hop.came_from, hop.went_to, hop.level) for hop in ways[0]} == {(None, (0, 0, 0, 1), 0)}
    assert {(hop.came_from, hop.went_to, hop.level) for hop in ways[1]} == {((0, 0, 0, 0), (0, 0, 0, 2), 0)}
    assert not ways[2] and {hop.id for hop in (*ways[0], *ways[1])} == ids
    changes = [record for record in kept[2] if isinstance(record, ProfileChange)]
    assert [(record.client_id, record.change, record.constraint) for record in changes] == [
        (reader, "added", "quotes"),
        (reader, "removed", "quotes"),
    ]
    assert len([record for record in kept[0] if isinstance(record, Passed)]) == 1


def test_what_was_refused_or_is_not_kept_is_not_recorded() -> None:
    kept: list[Record] = []

    async def run() -> None:
        place = Place((0, 0, 0, 0), "memory://record-alone")
        driver = await place.start()
        try:
            driver.recorder = Recorder(place.address, (ProfileChange,), kept.extend)
            await place.subscribe("quotes")
            publish = await place.publisher()
            publish("quotes", b"x", reliable=False)
            assert [type(record) for record in kept] == [ProfileChange]
            driver.give(Subscribe(1, 2, "selector", ("quotes", "price >"), 1))
            assert len(kept) == 1, "a constraint that is refused is no change"
            wanted = Subscribe(1, 3, "topic", "menus", 1)
            driver.give(wanted)
            driver.give(replace(wanted, subscription=4, durable="menus"))
            driver.give(ClientDown(1, lost=True))
            gone = [record for record in kept if isinstance(record, ProfileChange) and record.change == "removed"]
            assert [record.subscription for record in gone] == [1, 3], "a durable one stays"
        finally:
            await place.stop()

    asyncio.run(run())
