"""The adviser's rules: places with many far clients, publishers far from their audience, slow links, useful links."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from veena.cli.broker import advise as command
from veena.runtime.networks.file import make_network
from veena.runtime.networks.statistics import graph_of, is_connected, pathlength
from veena.services.adviser import facts as adviser_facts
from veena.services.adviser.facts import BrokerFacts, ClientFacts, Hearing, Limits, LinkFacts, Proposal, Snapshot
from veena.services.adviser.live import snapshot_of
from veena.services.adviser.rules import MIN_COPIES, advise, new_label

SYRACUSE = BrokerFacts("syracuse.1", (0, 0), ("veena://syracuse:7700",), "Syracuse")
ROCHESTER = BrokerFacts("rochester.1", (1, 0), ("veena://rochester:7700",), "Rochester")


def people(place: str, count: int, round_trip_ms: float | None, broker: str = "syracuse.1") -> tuple[ClientFacts, ...]:
    return tuple(
        ClientFacts(f"{place}-{n}", broker, place, "", "10.0.0.1", round_trip_ms, 1000 + n, 0, 1, 1)
        for n in range(count)
    )


def fix_32() -> Snapshot:
    """Ten clients in Boston, one in Houston, five in Albany, which is near."""
    clients = people("Boston", 10, 80.0) + people("Houston", 1, 120.0) + people("Albany", 5, 4.0)
    return Snapshot((SYRACUSE, ROCHESTER), clients, (LinkFacts("rochester.1", "syracuse.1", 5.0),))


def test_ten_clients_in_boston_are_worth_a_broker_there() -> None:
    """FIX-32, FUT-06: ten copies of an event go from Syracuse to Boston; a broker in Boston makes it one."""
    (found,) = advise(fix_32())
    assert (found.number, found.kind, found.place, found.broker) == (1, "broker", "Boston", "boston.1")
    assert found.links == (("boston.1", "syracuse.1"),), "it dials the broker where its clients are now"
    assert found.clients == {"syracuse.1": tuple(f"Boston-{n}" for n in range(10))}, "FUT-07: these are to roam"
    assert found.copies == (10, 1) and found.bytes == (sum(range(1000, 1010)), 1009)
    assert "10 clients in Boston are at syracuse.1, 80 ms away" in found.reason and not found.note
    assert found.steps == ("start boston.1, which dials syracuse.1", "10 of syracuse.1 roam to boston.1")


def test_a_broker_that_is_there_already_is_used() -> None:
    boston = BrokerFacts("boston.1", (2, 0), ("veena://boston:7700",), clients=3)
    busy = replace(boston, label="boston.2", address=(2, 1), clients=900)
    everywhere = replace(fix_32(), brokers=(SYRACUSE, ROCHESTER, busy, boston), links=())
    (found, *_) = advise(everywhere)
    assert (found.kind, found.broker, found.links) == ("roam", "boston.1", ()), "its label says where it is"
    by_region = tuple(replace(each, place="", region="boston") for each in fix_32().clients)
    (found, *_) = advise(replace(everywhere, clients=by_region))
    assert (found.kind, found.broker) == ("roam", "boston.1"), "or the operator's regions do"


def test_few_near_or_unmeasured_clients_are_left_alone() -> None:
    few = Snapshot((SYRACUSE,), people("Boston", 2, 80.0) + people("Albany", 9, 4.0))
    assert advise(few) == ()
    assert [each.place for each in advise(few, Limits(many=2))] == ["Boston"]
    assert [each.place for each in advise(few, Limits(far_ms=2.0))] == ["Albany"]
    unmeasured = Snapshot((SYRACUSE,), people("Boston", 3, None) + people("Syracuse", 3, None))
    assert [each.place for each in advise(unmeasured)] == ["Boston"], "what both say of themselves will do"
    assert advise(Snapshot((replace(SYRACUSE, place=""),), people("Boston", 3, None))) == ()
    slow_but_there = Snapshot((SYRACUSE,), people("Syracuse", 9, 80.0))
    assert advise(slow_but_there) == (), "another broker in Syracuse would be no nearer"


def test_clients_that_say_nothing_are_neighbours_by_their_network() -> None:
    ips = ["10.2.3.4", "10.2.3.5", "10.2.3.6", "10.9.9.9", "memory"]
    clients = tuple(ClientFacts(ip, "syracuse.1", ip=ip, round_trip_ms=90.0, subscriptions=1) for ip in ips)
    (found,) = advise(Snapshot((SYRACUSE,), clients))
    assert found.place == "10.2.3.0/24" and found.client_count == 3 and found.broker == "10-2-3-0-24.1"
    assert "3 of them have subscriptions that are not durable" in found.note


def test_a_publisher_goes_where_its_audience_is() -> None:
    """FUT-07: publishers too may be induced to roam to where many interested clients are."""
    source = ClientFacts("source", "syracuse.1", round_trip_ms=1.0, published=100)
    heard = (Hearing("source", "syracuse.1", "rochester.1", 640), Hearing("source", "syracuse.1", "syracuse.1", 160))
    (found,) = advise(Snapshot((SYRACUSE, ROCHESTER), (source,), (), heard))
    assert (found.kind, found.broker, found.clients) == ("publisher", "rochester.1", {"syracuse.1": ("source",)})
    assert "80%" in found.reason
    at_home = (Hearing("source", "syracuse.1", "syracuse.1", 640), heard[0])
    few = (replace(heard[0], copies=MIN_COPIES - 1),)
    gone = (replace(heard[0], publisher="nobody"),)
    assert all(advise(Snapshot((SYRACUSE, ROCHESTER), (source,), (), each)) == () for each in (at_home, few, gone))


def chain(size: int, slow: dict[int, float] | None = None) -> Snapshot:
    names = [f"a.{number}" for number in range(size)]
    brokers = tuple(BrokerFacts(name, (0, at), ()) for at, name in enumerate(names))
    trips = slow or {}
    links = (LinkFacts(*pair, trips.get(at, 2.0)) for at, pair in enumerate(itertools.pairwise(names)))
    return Snapshot(brokers, (), tuple(links))


def with_links(snapshot: Snapshot, found: tuple[Proposal, ...]) -> Snapshot:
    return replace(snapshot, links=(*snapshot.links, *(LinkFacts(*each.links[0], 2.0) for each in found)))


def test_links_make_a_small_world_of_a_chain() -> None:
    """FUT-09: proposals that are carried out bring a chain of 32 to 2 log2(32) or less, and leave it whole."""
    seen = chain(32)
    for _ in range(10):
        found = advise(seen)
        if not found:
            break
        assert {each.kind for each in found} == {"link"}
        assert all(each.pathlength is not None and each.pathlength[1] < each.pathlength[0] for each in found)
        seen = with_links(seen, found)
    labels = [broker.label for broker in seen.brokers]
    graph = graph_of(make_network("better", labels, [(link.a, link.b) for link in seen.links], levels=2))
    assert is_connected(graph) and pathlength(graph) <= math.log2(32) < 2 * math.log2(32)


def test_a_slow_link_is_dropped_only_where_the_network_holds() -> None:
    """FUT-09: find slow links, drop them."""
    ring = replace(chain(4), links=(*chain(4).links, LinkFacts("a.0", "a.3", 900.0)))
    assert [(each.kind, each.links) for each in advise(ring)] == [("drop", (("a.0", "a.3"),))]
    assert "900 ms" in advise(ring)[0].reason
    assert advise(chain(4, {1: 900.0})) == (), "the only way, and nothing faster can be promised"
    assert advise(replace(ring, silent={"veena://x": "no answer"})) == (), "who was not seen may hold it together"
    unseen = replace(ring, links=(*ring.links, LinkFacts("a.0", "z.9", 1.0)))
    assert advise(unseen) == ()


def test_labels_of_new_brokers() -> None:
    assert new_label("x.y.syracuse.1", "New York", set()) == "x.y.new-york.1"
    assert new_label("syracuse.1", "Boston", {"boston.1", "syracuse.1"}) == "boston.2"
    assert new_label("syracuse", "Boston", {"boston"}) == "boston-1" and new_label("s", "?", set()) == "place"


def test_what_brokers_report_becomes_a_snapshot() -> None:
    """A broker whose network file is older knows a new one by its numbers: it is the same broker."""
    client = {
        "id": "c", "place": "Boston", "region": None, "ip": "10.0.0.1", "round_trip_ms": 3.5, "bytes_out": 1,
        "published": 2, "subscriptions": 3, "durable": 1,
    }  # fmt: skip
    heard = [{"publisher": "c", "origin": "1.0", "copies": 16}]
    old = {"broker": "a.1", "address": [0, 0], "urls": ["u"], "place": "", "total": 2, "heard": heard}
    new = {"broker": "boston.1", "address": [1, 0], "urls": ["v"], "place": "", "total": 0, "heard": []}
    asker = {**client, "id": "asker"}
    views = ({"links": [{"to": "1.0", "round_trip_ms": None}]}, {"links": [{"to": "a.1", "round_trip_ms": 7.0}]})
    found = snapshot_of(
        [({**old, "clients": [client, asker]}, views[0]), ({**new, "clients": []}, views[1])], {"asker"}
    )
    assert [broker.clients for broker in found.brokers] == [1, 0]
    assert [each.id for each in found.clients] == ["c"]
    assert found.links == (LinkFacts("a.1", "boston.1", 7.0),)
    assert found.hearings == (Hearing("c", "boston.1", "a.1", 16),)


def test_the_command_has_the_advisers_defaults() -> None:
    own = (adviser_facts.MANY, adviser_facts.FAR_MS, adviser_facts.SLOW_LINK_MS)
    assert own == (command.MANY, command.FAR_MS, command.SLOW_LINK_MS)
