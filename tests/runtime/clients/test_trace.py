"""Trace and explain on live networks: real brokers, real sockets, a crash in between (design §7, §9)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import veena as command
from tests.runtime.client_brokers import QUICK, Site, bodies, run
from tests.runtime.processes import Started, until, veena
from tests.runtime.wording import Wording
from veena import blocking
from veena.core.boundary.explain import Reason
from veena.errors import AccessDenied, InvalidEvent, LocalProtocolError
from veena.runtime.access.users import hash_password, parse_users
from veena.runtime.store.file import FILE_NAME

NETWORK = """
[network]
name = "four"
levels = 3

[[broker]]
address = "x.a.1"
[[broker]]
address = "x.a.2"
[[broker]]
address = "x.b.3"
[[broker]]
address = "x.b.4"

[[link]]
between = ["x.a.1", "x.a.2"]
[[link]]
between = ["x.a.2", "x.b.3"]
[[link]]
between = ["x.b.3", "x.b.4"]
"""
LABELS = ["x.a.1", "x.a.2", "x.b.3", "x.b.4"]
WAY = [("x.a.1", "x.a.2", 0), ("x.a.2", "x.b.3", 1), ("x.b.3", "x.b.4", 0)]


@dataclass
class Network:
    process: Started
    directory: Path
    urls: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    def hear(self) -> None:
        told = self.process.told()
        self.urls[told["address"]], self.pids[told["address"]] = told["url"], told["pid"]

    def client(self, at: str, client_id: str) -> blocking.Client:
        return blocking.connect(self.urls[at], client_id=client_id)

    def rows(self, at: str, table: str) -> int:
        with closing(sqlite3.connect(self.directory / at / "store" / FILE_NAME)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Four brokers of two clusters in a line, each a process, that remember everything."""
    directory = tmp_path_factory.mktemp("four")
    file = directory / "four.toml"
    file.write_text(NETWORK)
    up = ("network", "up", str(file), "--json", "--restart", "--records", "all", "--data", str(directory / "run"))
    with veena(*up) as started:
        found = Network(started, directory / "run")
        for _ in LABELS:
            found.hear()
        assert started.told()["ready"]
        yield found


@pytest.fixture(scope="module")
def event(network: Network) -> str:
    """Published at one end of the network; wanted at the other by bob, and not by carol."""
    with (
        network.client("x.a.1", "alice") as alice,
        network.client("x.b.4", "bob") as bob,
        network.client("x.b.3", "carol") as carol,
    ):
        quotes = bob.subscribe(topic="quotes", selector="price > 10")
        carol.subscribe(topic="quotes", selector="price > 100 AND sym = 'IBM'")
        found = alice.publish(topic="quotes", properties={"price": 12.5, "sym": "IBM"}, body=b"secret", reliable=True)
        assert quotes.next(20).id == found
        return str(found)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not broken where they are compared."""
    monkeypatch.setenv("COLUMNS", "160")


def cli(*arguments: str) -> tuple[int, str, str]:
    found = command(*arguments)
    return found.code, found.out, found.err


def test_the_way_of_an_event_is_a_tree_of_hops(network: Network, event: str) -> None:
    """RTE, UID: every hop with its level and times, and who got it; whichever broker is asked."""
    with network.client("x.b.3", "asker") as asker:
        answer = asker.trace(event)
        assert [(*map(answer.label, (hop.sender, hop.receiver)), len(hop.units)) for hop in answer.hops] == [
            (*hop[:2], 1) for hop in WAY
        ]
        times = [answer.accepted_ns, *(time for hop in answer.hops for time in (hop.sent_ns, hop.entered_ns))]
        # Each broker has a clock of its own: on one machine they differ by less than it takes to start one.
        assert times[0] <= times[1] and all(times)
        assert [(one.client_id, answer.label(one.broker)) for one in answer.handed] == [("bob", "x.b.4")]
        assert not answer.silent and answer.heard == {"all": 4}
    code, out, _ = cli("trace", event, "--url", network.urls["x.a.2"])
    assert code == 0
    lines = [line.lstrip("│├└─ ") for line in out.splitlines()]
    assert lines[0].startswith(f"event {event}, accepted ")
    assert lines[1] == "x.a.1  accepted"
    assert [line.split("  ")[0] for line in lines[2:5]] == [f"level {level} to {to}" for _, to, level in WAY]
    assert lines[5].startswith("bob got it +")
    assert "1 deliveries, 4 brokers, 3 hops (2 at level 0, 1 at level 1)" in out
    code, out, _ = cli("trace", event, "--url", network.urls["x.a.2"], "--json")
    told = json.loads(out)
    assert code == 0 and told["known"] and told["origin"] == "x.a.1"
    assert [(hop["from"], hop["to"], hop["level"]) for hop in told["hops"]] == WAY
    assert [each["client"] for each in told["delivered"]] == ["bob"]


def test_who_got_it_and_who_did_not_and_why(network: Network, event: str) -> None:
    """A client that got it: when, where, by which hops; one that did not: the term of its selector that failed."""
    with network.client("x.a.1", "asker") as asker:
        got = asker.explain(event, "bob")
        assert got.is_delivered and got.label(got.broker) == "x.b.4"
        assert [(got.label(hop.sender), got.label(hop.receiver)) for hop in got.way] == [hop[:2] for hop in WAY]
        missed = asker.explain(event, "carol")
        assert missed.reason is Reason.NOT_MATCHED
        assert "price > 100 is false: price = 12.5" in missed.text
        assert asker.explain(event, "stranger").reason is Reason.NOT_SUBSCRIBED
    code, out, _ = cli("explain", event, "bob", "--url", network.urls["x.b.3"])
    assert code == 0 and "delivered: handed to session" in out
    assert "x.b.4 (0.1.1)" in out and "the way" in out
    code, out, _ = cli("explain", event, "carol", "--url", network.urls["x.b.3"], "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["reason"], told["broker"]) == ("not-matched", "x.b.3")
    assert told["subscriptions"] == [1]


def test_an_event_that_outlived_its_time(network: Network) -> None:
    """FLT-05: kept for a durable subscription whose client does not come in time."""
    with network.client("x.b.4", "erin") as erin:
        erin.subscribe(topic="offers", durable="offers")
    with network.client("x.a.1", "shop") as shop:
        offer = shop.publish(topic="offers", ttl=0.5, reliable=True)
        seen: dict[str, Any] = {}

        def is_over() -> bool:
            found = shop.explain(offer, "erin")
            seen[found.reason.value] = found
            return found.reason is Reason.EXPIRED

        until(is_over)
        assert seen["expired"].label(seen["expired"].broker) == "x.b.4"
        assert "time to live was over before erin read it" in seen["expired"].text
        assert seen.keys() <= {"expired", "kept", "waiting"}
        what = [(each.what, each.client_id) for each in shop.trace(offer).happened]
        assert ("kept", "erin") in what


def test_what_is_known_survives_the_death_of_brokers(network: Network) -> None:
    """FLT-05: both ends are killed; after their restart the answers are the same, and say who was attached."""
    with network.client("x.a.1", "anna") as anna, network.client("x.b.4", "ben") as ben:
        news = ben.subscribe(topic="news")
        before = (network.rows("x.a.1", "hops"), network.rows("x.b.4", "deliveries"))
        event = anna.publish(topic="news", reliable=True)
        assert news.next(20).id == event
        first = anna.explain(event, "ben")
        assert first.is_delivered
        # Nothing waits for notes, so what a crash at this very moment would lose is waited for here.
        until(lambda: network.rows("x.a.1", "hops") > before[0] and network.rows("x.b.4", "deliveries") > before[1])
        assert network.rows("x.b.4", "profiles")
        for label in ("x.a.1", "x.b.4"):
            os.kill(network.pids[label], signal.SIGKILL)
        for _ in range(2):
            network.hear()
    with network.client("x.a.2", "asker") as asker:
        until(lambda: not asker.explain(event, "ben").silent)
        again = asker.explain(event, "ben")
        assert again.is_delivered
        assert (again.at_ns, again.broker, again.way, again.accepted_ns) == (
            first.at_ns, first.broker, first.way, first.accepted_ns,
        )  # fmt: skip
        # What was not known to be done before the crash was sent again; nobody was handed it twice.
        answer = asker.trace(event)
        assert answer.hops[:3] == first.way
        assert [one.client_id for one in answer.handed] == ["ben"]


def test_questions_that_make_no_sense(network: Network, event: str) -> None:
    with network.client("x.a.1", "asker") as asker:
        with pytest.raises(InvalidEvent, match="expected client:incarnation"):
            asker.trace("yesterday's")
        with pytest.raises(InvalidEvent, match="client id ''"):
            asker.explain(event, "")
        with pytest.raises(LocalProtocolError, match="timeout 61: expected up to 60 seconds"):
            asker.trace(event, timeout=61)
        unknown = asker.trace("nobody:1:2:3")
        assert not (unknown.origin or unknown.hops or unknown.handed)
    url = network.urls["x.a.1"]
    code, out, _ = cli("trace", "nobody:1:2:3", "--url", url)
    assert code == 1 and "nobody who answered remembers nobody:1:2:3" in out
    code, _, err = cli("explain", "yesterday's", "bob", "--url", url)
    assert code == 2 and "expected client:incarnation:timestamp:sequence" in err


# --- rights, and brokers that remember nothing ---

USERS = """
[user.alice]
password = "{0}"
roles = ["trader"]
[user.boss]
password = "{0}"
roles = ["boss"]
[user.auditor]
password = "{0}"
roles = ["auditor"]

[role.trader]
rules = [{{ allow = ["publish", "subscribe", "wide"], topic = "quotes.*" }}, {{ allow = "wide" }}]
[role.boss]
rules = [{{ allow = "*" }}]
[role.auditor]
rules = [{{ allow = "subscribe", topic = "quotes.*" }}, {{ allow = ["explain", "status"] }}]
"""


def test_rights_are_tested_on_the_question_and_on_the_event(wording: Wording) -> None:
    """SEC, design §9: read rights hold for trace and explain; what became of an event for oneself may be asked."""

    async def scenario() -> None:
        users = parse_users(USERS.format(hash_password("open sesame")))
        settings = replace(QUICK, records="all")
        async with (
            Site(users=users, settings=settings) as site,
            site.client("alice", user="alice", password="open sesame") as alice,
            site.client("boss", user="boss", password="open sesame") as boss,
            site.client("auditor", user="auditor", password="open sesame") as auditor,
        ):
            quotes = await alice.subscribe(topic="quotes.ibm")
            open_one = await boss.publish(topic="quotes.ibm", body=b"open", reliable=True)
            secret = await boss.publish(topic="plans", body=b"secret", reliable=True)
            assert await bodies(quotes, 1) == ["open"]
            assert (await alice.explain(open_one, "alice")).is_delivered
            with pytest.raises(AccessDenied, match=wording.of("for other clients: allow 'explain'")):
                await alice.explain(open_one, "boss")
            with pytest.raises(AccessDenied, match=wording.of("which way events went")):
                await alice.trace(open_one)
            with pytest.raises(AccessDenied, match=wording.of("do not allow to read this event")):
                await alice.explain(secret, "alice")
            assert (await auditor.explain(open_one, "alice")).is_delivered
            assert (await auditor.trace(open_one)).handed
            with pytest.raises(AccessDenied, match=wording.of("do not allow to read this event")):
                await auditor.trace(secret)
            assert (await boss.explain(secret, "alice")).reason is Reason.NOT_MATCHED
            with pytest.raises(AccessDenied, match=wording.of("allow 'status'")):
                await alice.status()

    run(scenario())


def test_a_broker_that_remembers_nothing_says_so_and_how_to_change_it(tmp_path: Path) -> None:
    with veena("broker", "run", "--listen", "veena://127.0.0.1:0", "--data", str(tmp_path), "--json") as broker:
        url = broker.told()["url"]
        with blocking.connect(url, client_id="alice") as alice:
            event = str(alice.publish(topic="quotes", reliable=True))
            found = alice.explain(event, "bob")
            assert found.reason is Reason.UNKNOWN and found.heard == {"off": 1}
        code, out, err = cli("explain", event, "bob", "--url", url)
        assert code == 1
        assert "unknown: nobody who answered remembers that this event was accepted" in " ".join(out.split())
        assert "by its id, alice published it" in " ".join(out.replace("│", " ").split())
        assert 'records = "all" under [store]' in err
        code, out, err = cli("trace", event, "--url", url)
        assert code == 1 and f"nobody who answered remembers {event}" in out
        assert '1 of 1 brokers remember nothing (records = "off")' in err
