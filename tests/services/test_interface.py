"""What the thesis asks of an event service as a whole: its eight needs, its interface, its two CORBA services."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import veena.testing
from tests.test_trace import trace
from veena.client import connect
from veena.errors import InvalidConstraint, InvalidEvent
from veena.services.dictionary.dictionary import Dictionary
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.registry import Registry
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION, Mode, PropertyType, ServiceType, ServiceTypes

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = (ROOT / "docs" / "COLLABORATORY.md").read_text(encoding="utf-8")
PATIENCE_S = 20.0
#: The eight, as the thesis names them.
NEEDS = [
    "publishing and discovery", "subscription", "access control", "authentication and security",
    "persistence and archive", "quality of service", "efficient dissemination", "scalability",
]  # fmt: skip
#: What an interface has to cover.
CALLS = [
    "publish", "unpublish", "resolve", "subscribe", "unsubscribe", "aggregate", "authenticate", "push", "pull",
]  # fmt: skip


def table_under(heading: str) -> Iterator[list[str]]:
    """The rows of the first table under a heading of the document, without its head."""
    section = DOCUMENT.split(f"\n### {heading}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None
    for line in rows[0].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_each_of_the_eight_needs_has_tests_that_speak_for_it() -> None:
    """DIS-01: the document says which requirements each of them became, and tests cite all of these."""
    known = list(trace.rows_of(trace.read_requirements()))
    cited = trace.read_citations(ROOT, known)
    needs = {row[0]: list(trace.cited_ids(row[1], known)) for row in table_under("The eight needs")}
    assert list(needs) == NEEDS
    for need, identifiers in needs.items():
        assert identifiers, need
        for identifier in identifiers:
            assert identifier in cited, f"{need}: no test cites {identifier}"


def test_the_documented_interface_is_there_and_covers_all_of_it() -> None:
    """DIS-24: every call that the document names is there and says what it does, and none is missing."""
    rows = list(table_under("The interface"))
    assert [row[0] for row in rows] == CALLS
    for what, calls, *_ in rows:
        names = re.findall(r"`([\w.]+)`", calls)
        assert names, what
        for name in names:
            module, kind, call = name.rsplit(".", 2)
            found = getattr(getattr(importlib.import_module(f"veena.{module}"), kind), call)
            assert callable(found) and inspect.getdoc(found), f"{what}: {name} says nothing of itself"


def test_the_trading_and_the_notification_service_have_counterparts() -> None:
    """DIS-20: what CORBA's interfaces do, one after the other, through one broker and without an ORB."""

    async def main() -> None:
        async with (
            veena.testing.broker() as url,
            connect(url) as supplier,
            connect(url) as push_consumer,
            connect(url) as pull_consumer,
        ):
            # CosTrading: the repository of service types, Register (export, withdraw), Lookup (query).
            types = ServiceTypes.standard()
            types.add(
                ServiceType("CFD", base=APPLICATION, properties=(PropertyType("cells", ("int",), Mode.MANDATORY),))
            )
            register, lookup = Registry(supplier, types), Resolver(push_consumer, types)
            with pytest.raises(InvalidEvent, match="cells"):
                await register.export("CFD", "wing", {})
            offer = await register.export("CFD", "wing", {"cells": 4096})
            while not (found := await lookup.find("cells > 1000", service_type="CFD", properties=["cells"])).offers:
                await asyncio.sleep(0.01)
            assert found.offers[0].properties == {"cells": 4096} and found.offers[0].reference == offer.reference
            with pytest.raises(InvalidConstraint):
                await lookup.find("cells >", service_type="CFD")

            # CosNotification: structured events, filters at the consumers' proxies, push and pull, quality of service.
            pushed: list[object] = []
            service = SubscriptionService(push_consumer)
            by_push = await service.subscribe(
                offer, ["step > 2", "step < 1"], callback=lambda event: pushed.append(event.properties["step"])
            )
            by_pull = await SubscriptionService(pull_consumer).subscribe(offer, "step > 2")
            dictionary = Dictionary.standard()
            for step in range(5):
                event = StructuredEvent("wing", "Monitoring", "statistics", {"step": step}, qos={"Priority": 7})
                await supplier.publish_event(dictionary.check(event, "application").to_event(), reliable=True)
            pulled = [(await by_pull.next(PATIENCE_S)) for _ in range(2)]
            assert [event.properties["step"] for event in pulled] == [3, 4] and pulled[0].priority == 7
            assert by_pull.poll() is None, "try_pull"
            while len(pushed) < 3:
                await asyncio.sleep(0.01)
            assert pushed == [0, 3, 4]
            await service.unsubscribe(by_push)

            await register.withdraw("wing")
            while (await lookup.find("", service_type="CFD")).offers:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 60))
