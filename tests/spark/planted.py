"""Faults planted in what a network recorded (`audited`): what an audit must find, each with its name."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

from tests.spark.audited import JOBS, ORDERS, QUOTES
from tests.spark.stored import Rows
from veena.core.wire.section import encode_section
from veena.event import Event
from veena.runtime.store.schema import unsigned

Tables = dict[str, Rows]


class Planting:
    """Breaks a copy of what was recorded, and notes what an audit must say."""

    def __init__(self, recorded: Tables) -> None:
        self.tables = copy.deepcopy(recorded)
        self.expected: list[tuple[str, str, str | None]] = []
        self.by_topic: dict[str, list[dict[str, Any]]] = {}
        for row in sorted(self.tables["events"], key=lambda row: int(row["sequence"])):
            self.by_topic.setdefault(row["topic"], []).append(row)

    def event(self, topic: str, number: int) -> str:
        return str(self.by_topic[topic][number]["id"])

    def delivery(self, event: str, client: str) -> dict[str, Any]:
        return next(row for row in self.tables["deliveries"] if row["id"] == event and client in row["clients"])

    def lose(self, event: str, client: str, *, whole: bool) -> None:
        """The row goes, or the client out of it."""
        row = self.delivery(event, client)
        if whole:
            self.tables["deliveries"].remove(row)
        else:
            row["clients"] = [each for each in row["clients"] if each != client]
        self.expected.append(("missing", event, client))

    def lose_hops(self, event: str, to: str) -> None:
        self.tables["hops"] = [row for row in self.tables["hops"] if (row["id"], row["went_to"]) != (event, to)]

    def double(self, event: str, client: str, other: str | None = None, broker: str | None = None) -> None:
        row = dict(self.delivery(event, client))
        row["broker"] = broker or row["broker"]
        row.update(offset=row["offset"] + 10_000, at=row["at"] + timedelta(milliseconds=1), clients=[other or client])
        self.tables["deliveries"].append(row)

    def invent(self, event: str, like: str, client: str) -> None:
        row = self.delivery(event, like)
        row["clients"] = [*row["clients"], client]
        self.expected.append(("spurious", event, client))

    def swap(self, one: str, other: str, client: str) -> None:
        first, second = self.delivery(one, client), self.delivery(other, client)
        first["at"], second["at"] = second["at"], first["at"]
        self.expected.append(("out_of_order", one, client))

    def repeat(self, topic: str, number: int) -> None:
        """No fault: the publisher moved before it heard that its event was accepted, and published it again."""
        row = dict(self.by_topic[topic][number])
        original = (unsigned(row["incarnation"]), unsigned(row["stamp"]), row["sequence"])
        section = encode_section(Event(topic=topic, properties={"price": number}), original)
        name = f"pub:{original[0] + 1}:{original[1]}:{original[2]}"
        row.update(id=name, incarnation=row["incarnation"] + 1, offset=row["offset"] + 10_000, section=section)
        self.tables["events"].append(row)

    def stray(self, event: str, went_to: str, level: int, units: list[str]) -> None:
        row = dict(next(row for row in self.tables["hops"] if row["id"] == event))
        row.update(offset=row["offset"] + 10_000, went_to=went_to, level=level, units=units)
        self.tables["hops"].append(row)


def with_every_fault(recorded: Tables) -> Planting:
    """Missing, twice, spurious, out of order, to two of a group, into a unit that nobody asked for."""
    plant = Planting(recorded)
    plant.lose(plant.event("quotes", 13), "bob", whole=True)
    plant.lose(plant.event("quotes", QUOTES - 1), "ann", whole=False)
    plant.lose(plant.event("quotes", 20), "bob", whole=True)
    plant.lose_hops(plant.event("quotes", 20), "1.0.1")
    plant.lose(plant.event("orders", ORDERS - 1), "cyn", whole=False)
    plant.lose(plant.event("quotes", 2), "gus", whole=True)
    plant.double(plant.event("quotes", 3), "ann")
    plant.expected.append(("duplicate", plant.event("quotes", 3), "ann"))
    plant.invent(plant.event("quotes", 5), "ann", "cyn")
    plant.invent(plant.event("quotes", 6), "ann", "zoe")
    plant.invent(plant.event("quotes", QUOTES - 2), "ann", "gus")
    plant.swap(plant.event("quotes", 7), plant.event("quotes", 8), "ann")
    job = plant.event("jobs", JOBS - 1)
    takers = [each for row in plant.tables["deliveries"] if row["id"] == job for each in row["clients"]]
    taker, other, broker = ("dan", "eve", "us.york.2") if takers == ["dan"] else ("eve", "dan", "us.york.1")
    plant.double(job, taker, other, broker)
    group = next(row["client_id"] for row in plant.tables["profiles"] if row["client_id"].startswith("~shared/"))
    plant.expected.append(("duplicate", job, group))
    plant.stray(plant.event("quotes", 4), "0.1.0", 1, ["0.1"])
    plant.expected.append(("wasted", plant.event("quotes", 4), None))
    plant.stray(plant.event("quotes", 5), "1.0.1", 2, ["1"])
    plant.repeat("quotes", 10)
    return plant
