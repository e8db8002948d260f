"""Quotas of constraints as applications and operators meet them: real brokers, real sockets."""

from __future__ import annotations

import asyncio

import pytest

import veena
import veena.testing
from tests.runtime.client_brokers import PATIENCE_S, run, text, until
from tests.runtime.wording import Wording
from veena.errors import RefusalCode, Refused
from veena.runtime.broker.metrics import exposition
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config


def test_a_client_is_told_why_and_what_was_there_goes_on(wording: Wording) -> None:
    """The reason names limit, value and remedy; room that is made can be used."""

    async def scenario() -> None:
        text_of = '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[limits]\nbroker_constraints = 2\n'
        node = Node(parse_config(text_of))
        await node.start()
        try:
            async with veena.connect(node.urls[0], client_id="alice") as alice:
                quotes, news = await alice.subscribe(topic="quotes"), await alice.subscribe(topic="news")
                with pytest.raises(Refused) as told:
                    await alice.subscribe(topic="weather")
                assert told.value.code is RefusalCode.LIMIT
                for part in ("topic 'weather'", "broker_constraints = 2", "end other subscriptions", "[limits]"):
                    assert part in str(told.value) or not wording.is_plain
                with pytest.raises(Refused, match=wording.of("broker_constraints = 2")):
                    await alice.subscribe(topic="weather", durable="kept")
                dear = await alice.subscribe(topic="quotes", selector="price > 10")
                await alice.publish(topic="quotes", properties={"price": 12}, body=b"dear", reliable=True)
                assert [text(await each.next(PATIENCE_S)) for each in (quotes, dear)] == ["dear", "dear"]
                assert "veena_subscriptions_over_quota_total 2.0" in exposition(node.statistics()).decode()
                for told_of in ("veena_constraints_told", "veena_unit_constraints_told"):
                    # A broker alone gathers for a moment what it will tell.
                    await until(lambda row=f"\n{told_of} 2.0\n": row in exposition(node.statistics()).decode())
                await news.close()
                weather = await alice.subscribe(topic="weather")
                await alice.publish(topic="weather", body=b"rain", reliable=True)
                assert text(await weather.next(PATIENCE_S)) == "rain"
        finally:
            await node.stop()

    run(scenario())


def test_a_cluster_is_full_for_all_its_brokers() -> None:
    """What another broker of it has is there to be shared, and nothing else."""

    async def scenario() -> None:
        settings = {"limits": {"unit_constraints": 2}}
        async with (
            veena.testing.network(brokers=2, settings=settings) as net,
            veena.connect(net.url("a.1")) as alice,
            veena.connect(net.url("a.2")) as bob,
        ):
            await asyncio.gather(alice.subscribe(topic="quotes"), alice.subscribe(topic="news"))
            with pytest.raises(Refused, match=r"unit_constraints = 2 distinct constraints of this cluster"):
                await bob.subscribe(topic="weather")
            shared = await bob.subscribe(topic="quotes")
            near = await bob.subscribe(topic="weather", scope="cluster")
            await alice.publish(topic="quotes", body=b"1", reliable=True)
            await alice.publish(topic="weather", body=b"2", reliable=True)
            assert [text(await each.next(PATIENCE_S)) for each in (shared, near)] == ["1", "2"]

    run(scenario())
