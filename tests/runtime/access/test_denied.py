"""An event that a rule of access keeps from a client: its broker remembers which rule, and `explain` says so."""

from __future__ import annotations

from dataclasses import replace

from tests.runtime.client_brokers import QUICK, Site, bodies, run, until
from veena.client import Client, Subscription
from veena.core.boundary.explain import Reason, Verdict
from veena.core.wire.trace_facts import What
from veena.event import EventId
from veena.runtime.access.rights import Rights, Rule
from veena.runtime.access.users import hash_password, parse_users

USERS = """
[user.alice]
password = "{password}"
roles = ["desk"]

[user.boss]
password = "{password}"
roles = ["all"]

[role.desk]
rules = [
  {{ deny = "subscribe", topic = "quotes.secret.*" }},
  {{ allow = "subscribe" }},
]

[role.all]
rules = [{{ allow = "*" }}]
"""
RULE = "denied: rule 1: deny subscribe topic quotes.secret.*"


def verdict(site: Site, event_id: EventId, client: str = "alice") -> Verdict:
    """What this broker, which is alone, says of an event and a client."""
    explainer, now_ns = site.driver.broker.events.explainer, site.driver.now_ns()
    told = explainer.answer(((event_id.publisher.encode(), *event_id[1:]),), client)
    return explainer.combine({site.address: told}, client, (), now_ns)


def is_denied(site: Site, event_id: EventId) -> bool:
    record = site.driver.broker.events.records.find((event_id.publisher.encode(), *event_id[1:]))
    return record is not None and any(fact.what is What.DENIED for fact in record.facts)


async def publish_two(boss: Client, cars: Subscription) -> tuple[EventId, EventId]:
    secret = await boss.publish(topic="quotes.secret.x", tags="Make=Ford", body=b"secret", reliable=True)
    shown = await boss.publish(topic="quotes.ibm", tags="Make=Ford", body=b"open", reliable=True)
    assert await bodies(cars, 1) == ["open"]
    return EventId.parse(secret), EventId.parse(shown)


def test_who_may_not_read_an_event_is_told_by_which_rule() -> None:
    """SEC, explain: what the rules of access withhold is denied, not delivered; what they allow is delivered."""
    users = parse_users(USERS.format(password=hash_password("open sesame")))

    async def scenario() -> None:
        async with (
            Site(users=users, settings=replace(QUICK, records="deliveries")) as site,
            site.client("alice", user="alice", password="open sesame") as alice,
            site.client("boss", user="boss", password="open sesame") as boss,
        ):
            secret, shown = await publish_two(boss, await alice.subscribe(tags="Make=Ford", scope="cluster"))
            await until(lambda: is_denied(site, secret))
            found = verdict(site, secret)
            assert (found.reason, found.text, found.broker) == (Reason.DENIED, RULE, site.address)
            assert verdict(site, shown).reason is Reason.DELIVERED

    run(scenario())


def test_a_durable_subscription_is_told_the_rule_as_well() -> None:
    """SEC, DUR: what is kept in the log and then withheld by a rule does not count as kept for ever."""
    users = parse_users(USERS.format(password=hash_password("open sesame")))

    async def scenario() -> None:
        async with (
            Site(users=users, settings=replace(QUICK, records="deliveries")) as site,
            site.client("alice", user="alice", password="open sesame") as alice,
            site.client("boss", user="boss", password="open sesame") as boss,
        ):
            wanted = await alice.subscribe(tags="Make=Ford", scope="cluster", durable="cars")
            secret, shown = await publish_two(boss, wanted)
            await until(lambda: is_denied(site, secret))
            assert verdict(site, secret).reason is Reason.DENIED
            assert verdict(site, secret).text == RULE
            assert verdict(site, shown).reason is Reason.DELIVERED

    run(scenario())


def test_rules_in_words() -> None:
    """SEC: the rule that decides is named with its number; without one it is said that nothing allows it."""
    rights = Rights((Rule(deny=("publish", "subscribe"), engine="tags", type="Report"), Rule(allow="*", topic="a.*")))
    assert (
        rights.deciding("publish", "tags", None, "Report") == "rule 1: deny publish, subscribe engine tags type Report"
    )
    assert rights.deciding("watch", None, "a.b") == "rule 2: allow * topic a.*"
    assert rights.deciding("watch", None, "b") == "no rule allows watch"
