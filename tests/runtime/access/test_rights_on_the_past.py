"""Clearances and rights on what was kept: out of the past, after a move, as a dead letter; and on quench (PRF-03)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.runtime.access.test_denied import is_denied, verdict
from tests.runtime.access.test_rights_of_members import USERS, as_user, sites
from tests.runtime.client_brokers import PATIENCE_S, QUICK, bodies, nothing_more, run, until
from tests.runtime.wording import Wording
from veena.client import Client
from veena.core.boundary.explain import Reason
from veena.core.boundary.settings import SECOND_NS
from veena.errors import AccessDenied
from veena.event import Event, EventId
from veena.runtime.access.rights import Rights, Rule
from veena.runtime.access.users import parse_users
from veena.runtime.clients.revocation import judge_all

#: Boss and honest are cleared, mallory is not.
CLEARED = USERS
for name in ("honest", "boss"):
    CLEARED = CLEARED.replace(f"[user.{name}]", f"[user.{name}]\nclearances = ['top']")
#: Later honest is not cleared any more.
UNCLEARED = CLEARED.replace("[user.honest]\nclearances = ['top']", "[user.honest]")
HOUR = timedelta(hours=1)


async def publish_two(boss: Client) -> tuple[str, str]:
    """An event that asks for a clearance, and one that does not."""
    found = [
        await boss.publish(topic="quotes", headers=headers, body=body, reliable=True)
        for headers, body in (({"clearance": "top"}, b"cleared"), ({}, b"open"))
    ]
    return found[0], found[1]


@pytest.mark.parametrize("durable", [False, "mine"], ids=["plain", "durable"])
def test_who_has_no_clearance_gets_nothing_out_of_the_past_that_asks_for_one(durable: str | bool) -> None:
    """The attack: what was withheld when it was published was read afterwards with `since`."""

    async def scenario() -> None:
        async with (
            sites(parse_users(CLEARED), 1, replace(QUICK, records="deliveries")) as (site,),
            as_user(site, "boss") as boss,
            as_user(site, "honest") as honest,
            as_user(site, "mallory") as mallory,
        ):
            cleared, _ = await publish_two(boss)
            hers = await mallory.subscribe(topic="quotes", since=HOUR, durable=durable, wait=PATIENCE_S)
            his = await honest.subscribe(topic="quotes", since=HOUR, durable=durable, wait=PATIENCE_S)
            assert await bodies(his, 2) == ["cleared", "open"]
            assert await bodies(hers, 1) == ["open"]
            assert is_denied(site, EventId.parse(cleared))
            found = verdict(site, EventId.parse(cleared), "mallory")
            assert (found.reason, "clearance" in found.text) == (Reason.DENIED, True)
            assert site.driver.statistics().durables.denied == 1
            assert await nothing_more(hers)

    run(scenario())


def test_a_clearance_that_was_taken_away_counts_for_what_is_kept_and_moves() -> None:
    """The attack: have an event kept while one is cleared, and read it at another broker when one is not any more."""

    async def scenario() -> None:
        async with sites(parse_users(CLEARED), 2) as (one, two), as_user(one, "boss") as boss:
            await publish_two(boss)
            elsewhere = one.driver.broker.events.sessions.elsewhere
            await until(lambda: not elsewhere.may_exist("honest", one.driver.now_ns()))
            async with as_user(one, "honest") as honest:
                mine = await honest.subscribe(topic="quotes", since=HOUR, durable="mine", ack="manual", wait=PATIENCE_S)
                assert await bodies(mine, 2) == ["cleared", "open"]
            for site in (one, two):
                site.clients.users = parse_users(UNCLEARED)
            async with as_user(two, "honest") as honest:
                mine = await honest.subscribe(topic="quotes", durable="mine", wait=PATIENCE_S)
                assert await bodies(mine, 1) == ["open"]
                assert await nothing_more(mine)
                assert two.driver.statistics().durables.denied == 1

    run(scenario())


def test_topics_are_denied_out_of_the_past_as_well() -> None:
    async def scenario() -> None:
        async with (
            sites(parse_users(USERS), 1) as (site,),
            as_user(site, "boss") as boss,
            as_user(site, "mallory") as mallory,
        ):
            for topic in ("secret.plans", "open"):
                await boss.publish(topic=topic, tags="kind=work", body=topic.encode(), reliable=True)
            for durable in (False, "mine"):
                hers = await mallory.subscribe(tags="kind=work", since=HOUR, durable=durable, wait=PATIENCE_S)
                assert await bodies(hers, 1) == ["open"]
            durables = site.driver.statistics
            await until(lambda: durables().durables.denied == 1)
            assert durables().durables.acknowledged >= 1

    run(scenario())


def test_a_dead_letter_is_for_those_who_may_read_its_event() -> None:
    """The attack: read the bodies of denied topics, and of events that ask for a clearance, among the dead letters."""

    lost = [
        Event(topic="secret.plans", tags="kind=work", body=b"topic"),
        Event(topic="quotes", tags="kind=work", headers={"clearance": "top"}, body=b"clearance"),
        Event(topic="open", tags="kind=work", headers={"type_name": "Report"}, body=b"open"),
    ]

    async def scenario() -> None:
        async with (
            sites(parse_users(CLEARED), 2, replace(QUICK, retention_ns=SECOND_NS)) as (one, two),
            as_user(one, "boss") as boss,
            as_user(one, "honest") as honest,
            as_user(one, "mallory") as mallory,
        ):
            his = await honest.subscribe(topic="veena.dead-letters", wait=PATIENCE_S)
            hers = await mallory.subscribe(topic="veena.dead-letters", wait=PATIENCE_S)
            async with as_user(two, "boss") as away:
                await away.subscribe(tags="kind=work", wait=PATIENCE_S)
                await two.kill()
                for event in lost:
                    await boss.publish_event(event, reliable=True)
            assert await bodies(his, 3) == ["topic", "clearance", "open"]
            letter = await hers.next(PATIENCE_S)
            of = [letter.headers[name] for name in ("of_topic", "of_type")]
            assert (bytes(letter.body), of) == (b"open", ["open", "Report"])

    run(scenario())


def test_rules_for_the_event_of_a_dead_letter() -> None:
    """By topic, by type, and for what was addressed to somebody; a letter of before they were kept is judged alone."""
    rights = Rights((Rule(deny="*", topic="secret.*"), Rule(deny="*", type="Salary"), Rule(allow="subscribe")))

    def may(**headers: str) -> bool:
        return rights.may_read(Event(topic="veena.dead-letters", headers=headers), "topic")

    assert may() and may(of_topic="open", of_type="Report")
    assert not may(of_topic="secret.a")
    assert not may(of_topic="open", of_type="Salary")
    assert not may(of_to="alice")
    letter = Event(topic="veena.dead-letters", headers={"of_topic": "secret.a"})
    assert rights.why_not_read(letter, "topic").startswith("rule 1: deny * topic secret.*")
    few = Rights((Rule(allow="subscribe", topic="veena.dead-letters"),))
    assert not few.may_read(letter, "topic")
    assert few.why_not_read(letter, "topic").startswith("no rule allows subscribe")


def test_who_may_not_publish_on_a_topic_does_not_learn_whether_it_is_wanted(wording: Wording) -> None:
    """The attack: watch a denied topic, to learn whether somebody subscribes to it."""
    text = USERS.replace('{ deny = "subscribe", topic', '{ deny = "publish", topic')
    narrowed = text.replace('{ allow = "*" }]', '{ deny = "publish", topic = "open" }, { allow = "*" }]', 1)
    assert narrowed != text

    async def scenario() -> None:
        async with (
            sites(parse_users(text), 1) as (site,),
            as_user(site, "honest") as honest,
            as_user(site, "mallory") as mallory,
        ):
            await honest.subscribe(topic="secret.plans", wait=PATIENCE_S)
            with pytest.raises(AccessDenied, match=wording.of("do not allow to publish to topic 'secret.plans'")):
                await mallory.watch(Event(topic="secret.plans"))
            watch = await mallory.watch(Event(topic="open"), wait=PATIENCE_S)
            assert watch.wanted is False
            site.clients.users = parse_users(narrowed)
            judge_all(site.clients, lambda stream: None)
            with pytest.raises(AccessDenied):
                await watch.changed(PATIENCE_S)
            assert site.driver.statistics().quench.watches == 0

    run(scenario())
