"""Structured events: the four parts, on the way through real brokers too."""

from __future__ import annotations

import asyncio

import pytest

import veena.testing
from veena.client import connect
from veena.errors import InvalidAddress, InvalidEvent
from veena.event import Event
from veena.matching.engines.constraint import constraint_attributes
from veena.runtime.access.rights import event_type
from veena.services.structured import StructuredEvent, fixed_header, is_past_deadline, is_structured
from veena.services.trading.domains import domain_level, domain_of, network_number, unit_of

WHOLE = StructuredEvent(
    "heat",
    "Monitoring",
    "state",
    {"state": "running", "step": 7, "mean": 0.5, "is_done": False, "note": None},
    b"\x00\x01" * 8,
    {"Priority": 5, "Reliability": "reliable", "Timeout": 2.5, "Deadline": 1},
    {"trial": 3},
)


def test_four_parts_make_a_round_trip() -> None:
    """DIC-02: fixed and variable header, filterable and remainder body, each where it belongs."""
    event = WHOLE.to_event()
    assert event.headers["domain_name"] == "heat" and event.headers["Priority"] == 5
    assert (event.properties, event.body, event.topic) == (WHOLE.fields, WHOLE.remainder, None)
    assert StructuredEvent.from_event(event) == WHOLE
    assert is_structured(event) and not is_structured(Event(topic="x"))


def test_quality_becomes_the_events_own() -> None:
    """DIC-07, QOS-01, QOS-02: what the variable header says is obeyed, not only carried."""
    event = WHOLE.to_event()
    assert (event.priority, event.ttl, WHOLE.is_reliable) == (5, 2.5, True)
    plain = StructuredEvent("heat", "Monitoring", "state")
    assert (plain.to_event().priority, plain.to_event().ttl, plain.is_reliable) == (4, None, False)
    assert not is_past_deadline(event, event.timestamp_ns + 10**9)
    assert is_past_deadline(event, event.timestamp_ns + 10**9 + 1)
    assert not is_past_deadline(plain.to_event(), 1 << 62), "no deadline is never past"


@pytest.mark.parametrize("missing", ["domain_name", "type_name", "event_name"])
def test_the_fixed_header_is_mandatory(missing: str) -> None:
    """DIC-03: domain, type and name, or it is no structured event; the message says which is missing."""
    headers = {"domain_name": "heat", "type_name": "Monitoring", "event_name": "state"}
    del headers[missing]
    with pytest.raises(InvalidEvent, match=f"{missing} is missing"):
        StructuredEvent.from_event(Event(headers=headers))
    with pytest.raises(InvalidEvent, match=missing):
        StructuredEvent.from_event(Event(headers={**headers, missing: 7}))


@pytest.mark.parametrize(
    ("qos", "message"),
    [
        ({"Priority": 10}, "Priority is 10; expected a whole number from 0"),
        ({"Priority": True}, "Priority is True"),
        ({"Reliability": "maybe"}, "Reliability is 'maybe'; expected reliable or best_effort"),
        ({"Timeout": 0}, "Timeout is 0; expected seconds above 0"),
        ({"Deadline": float("nan")}, "Deadline is nan"),
        ({"Timeout": float("inf")}, "Timeout is inf"),
        ({"Speed": 3}, "quality 'Speed' is not known; there are Priority, Reliability, Timeout, Deadline"),
    ],
)
def test_quality_that_cannot_be_obeyed_is_refused(qos: dict[str, int], message: str) -> None:
    """DIC-07: name, value and what is expected."""
    with pytest.raises(InvalidEvent, match=message):
        StructuredEvent("heat", "Monitoring", "state", qos=qos)


def test_parts_cannot_be_smuggled_in_as_other_headers() -> None:
    for header in ("type_name", "$type_name", "Priority"):
        with pytest.raises(InvalidEvent, match="is a part of its own"):
            StructuredEvent("heat", "Monitoring", "state", headers={header: "Steering"})
    with pytest.raises(InvalidEvent, match="expected a scalar"):
        StructuredEvent.from_event(Event(headers={**WHOLE.to_event().headers, "Priority": None}))


@pytest.mark.parametrize("headers", [{"type_name": "A", "$type_name": "B"}, {"$type_name": "B"}, {"type_name": "B"}])
def test_everybody_sees_one_type(headers: dict[str, str]) -> None:
    """SEC-05: rules of access, constraints and applications read the type of an event from the same place."""
    event = Event(headers={"domain_name": "heat", "event_name": "x", **headers})
    seen = {event_type(event), constraint_attributes(event)["$type_name"], fixed_header(event, "type_name")}
    assert seen == {StructuredEvent.from_event(event).type} == {"B"}


def test_constraints_see_the_filterable_body_and_the_remainder_arrives_whole() -> None:
    """DIC-08, DIC-09: a megabyte arrives unchanged, and a constraint that names what is only in it finds nothing."""
    remainder = bytes(range(250)) * 4000

    async def scenario() -> None:
        async with veena.testing.broker() as url, connect(url, client_id="heat") as application, connect(url) as client:
            wanted = await client.subscribe(constraint="$domain_name == 'heat' and step > 3 and exist step")
            hidden = await client.subscribe(constraint="$type_name == 'Monitoring' and exist secret")
            sent = StructuredEvent(
                "heat", "Monitoring", "field", {"step": 4}, b"secret=1 " + remainder, {"Priority": 8}
            )
            await application.publish_event(sent.to_event(), reliable=True)
            found = await wanted.next(timeout=20)
            assert StructuredEvent.from_event(found) == sent
            assert found.priority == 8
            second = StructuredEvent("heat", "Monitoring", "state", {"secret": 1})
            await application.publish_event(second.to_event(), reliable=True)
            assert StructuredEvent.from_event(await hidden.next(timeout=20)) == second, "the first was not for it"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_domains_are_super_clusters_and_have_numbers() -> None:
    """DIS-08: each broker, and so each client, lies in exactly one domain; its number tells local from remote."""
    assert domain_of((0, 1, 2, 6)) == (0, 1) and domain_of((0, 1, 9, 0)) == (0, 1)
    assert network_number((0, 1)) == 1 and network_number((3, 1)) == 0x0301
    assert domain_of((0, 1, 2, 6), level=3) == (0,)
    for number, unit in ((0x0301, (3, 1)), (1, (0, 1)), (1, (1,))):
        assert unit_of(number, len(unit)) == unit and network_number(unit) == number


@pytest.mark.parametrize(("levels", "level"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2)])
def test_small_networks_have_domains_too(levels: int, level: int) -> None:
    """DIS-08: with fewer levels a domain is the highest unit below the whole system."""
    assert domain_level(levels) == level
    assert domain_of(tuple(range(levels))) == tuple(range(levels - level))


def test_places_that_are_none() -> None:
    with pytest.raises(InvalidAddress, match="lies in no domain"):
        domain_of(())
    with pytest.raises(InvalidAddress, match=r"level 2 of a domain: broker 0\.1 has units of level 0 to 1"):
        domain_of((0, 1), 2)
    for number, length in ((256, 1), (0, 0), (-1, 2)):
        with pytest.raises(InvalidAddress, match=f"network number {number}"):
            unit_of(number, length)
    for unit in ((256,), ()):
        with pytest.raises(InvalidAddress, match="expected"):
            network_number(unit)
