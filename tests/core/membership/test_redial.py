"""Contacts and dialling: who tells whom of whom, who dials whom and when, and what a hostile neighbour can do to it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_peer import HOST, Peer, closed, neighbour, sent
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import Dial, Effect, Granted, LinkDown, LinkUp, Stored
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.links.link import connection_id
from veena.core.membership.redial import FIRST_PAUSE_NS, LATER, LONGEST_PAUSE_NS, MAX_DIALLERS, MAX_TRIES, is_url
from veena.core.topology.connection import STEP_COSTS, establish
from veena.core.wire.codec import encode
from veena.core.wire.control import MAX_GRANT, MAX_URL, Heartbeat, Hello
from veena.core.wire.header import VERSION
from veena.core.wire.interest import MAX_COUNT
from veena.core.wire.membership import MAX_CONTACTS, MAX_STATEMENTS, Contacts, Place, Statement
from veena.errors import LocalProtocolError
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options

MATE: Address = (0, 0, 0, 1)
OTHER: Address = (0, 0, 0, 2)
BESIDE: Address = (0, 0, 1, 0)
AFTER_NS = Settings().dial_after_ns


def listening(address: Address = HOST, listen: tuple[str, ...] = ("tcp://host:1",), incarnation: int = 1) -> Broker:
    """A broker that says where it listens; its identity is on disk."""
    nonces = iter(range(100, 10_000))
    broker = Broker(Identity("host", address, incarnation), Settings(), lambda _: next(nonces), 0, listen)
    broker.tick(0)
    broker.handle(Stored(1), 0)
    return broker


def about(unit: Unit, *addresses: Address, number: int = 1, teller: Address | None = None) -> Statement:
    brokers = addresses or ((*unit, *(0,) * (4 - len(unit))),)
    places = tuple(Place(address, (f"tcp://{'.'.join(map(str, address))}:7",)) for address in brokers)
    return Statement(unit, number, teller or brokers[0], places)


def told(effects: list[Effect], link: int | None = None) -> list[Statement]:
    return [each for frame in sent(effects, link) if isinstance(frame, Contacts) for each in frame.statements]


def dials(effects: list[Effect]) -> list[Address]:
    return [effect.address for effect in effects if isinstance(effect, Dial)]


def pass_time(broker: Broker, begin_ns: int, end_ns: int) -> list[tuple[int, Effect]]:
    """Wake the broker whenever it asks for it."""
    effects: list[tuple[int, Effect]] = []
    now_ns = begin_ns
    while (due := broker.next_wakeup()) is not None and due <= end_ns:
        now_ns = max(due, now_ns + 1)
        effects += [(now_ns, effect) for effect in broker.tick(now_ns)]
        broker.check()
    return effects


def dialled(effects: list[tuple[int, Effect]]) -> list[tuple[int, Address]]:
    return [(at_ns, effect.address) for at_ns, effect in effects if isinstance(effect, Dial)]


# --- telling ---


def test_a_new_link_begins_with_what_may_cross_it() -> None:
    """GPP-06: where a broker listens stays in its cluster; of a cluster one hears in the super-cluster."""
    broker = listening()
    mate = neighbour(broker, 1, MATE)
    mate.say(Contacts((about(OTHER), about((0, 0, 1), (0, 0, 1, 4)), about((0, 3)), about((5,)))))
    for link, (address, expected) in enumerate(
        [
            ((0, 0, 0, 3), [HOST, OTHER, (0, 0, 1), (0, 3), (5,)]),
            (BESIDE, [(0, 0, 1), (0, 3), (5,)]),
            ((0, 1, 0, 0), [(0, 3), (5,)]),
            ((1, 0, 0, 0), [(5,)]),
        ],
        2,
    ):
        peer = Peer(broker, link, address, nonce=link)
        assert [each.unit for each in told(peer.greet(), link)] == expected


def test_news_is_passed_on_once_and_not_back() -> None:
    broker = listening()
    one, two = neighbour(broker, 1, MATE), neighbour(broker, 2, OTHER)
    first, second = about((0, 0, 0, 9), number=1), about((0, 0, 0, 9), number=2)
    assert told(one.say(Contacts((first,)))) == [first]
    assert told(one.say(Contacts((first,)))) == []
    assert told(two.say(Contacts((first,)))) == []
    assert told(two.say(Contacts((second,))), 1) == [second]
    assert told(one.say(Contacts((first,)))) == [], "an older one is no news"


def test_who_does_not_listen_tells_nothing() -> None:
    """And a listen address that no peer would take is not told: it would cost the link."""
    for listen in ((), ("nonsense",), ("tcp:with space",)):
        broker = listening(listen=listen)
        peer = Peer(broker, 1, MATE)
        assert told(peer.greet()) == []
        assert [effect for _, effect in pass_time(broker, 0, 3 * SECOND_NS) if told([effect])] == []


def test_a_broker_goes_on_from_what_an_earlier_life_told() -> None:
    """UID-02: a restart counts on; a broker that lost its disk counts on from what others remember."""
    assert listening(incarnation=7).contacts.statement(HOST) == Statement(
        HOST, 7, HOST, (Place(HOST, ("tcp://host:1",)),)
    )
    broker = listening()
    mate = neighbour(broker, 1, MATE)
    mate.say(Contacts((about(HOST, number=20),)))
    again = {each.unit: each for _, effect in pass_time(broker, 0, SECOND_NS) for each in told([effect])}[HOST]
    assert (again.number, again.places[0].listen) == (21, ("tcp://host:1",))


def test_four_contacts_of_a_unit_from_as_many_parts_as_possible() -> None:
    """The speaker of each unit tells the enclosing one; what is told of a level-l unit is known beside it only."""
    brokers = [f"S.{sc}.{c}.{n}" for sc in "AB" for c in "cd" for n in range(5)]
    links = [(f"S.{sc}.{c}.0", f"S.{sc}.{c}.{n}") for sc in "AB" for c in "cd" for n in range(1, 5)]
    links += [("S.A.c.0", "S.A.d.0"), ("S.B.c.0", "S.B.d.0"), ("S.A.d.1", "S.B.c.1")]
    stage = Stage(make_network("two", brokers, links), options=Options(), settling_ns=6 * SECOND_NS)
    book = stage.world.broker((0, 0, 0, 3)).contacts
    assert [place.address for place in book.places((0, 0, 1))] == [(0, 0, 1, n) for n in range(MAX_CONTACTS)]
    assert [place.address for place in book.places((0, 1))] == [(0, 1, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1), (0, 1, 1, 1)]
    assert book.places((0, 0, 0, 4)) == (Place((0, 0, 0, 4), ("sim:0.0.0.4",)),)
    assert book.statement((0, 1, 0)) is None and book.statement((0, 0, 1, 0)) is None
    for host in ((0, 0, 0, 0), (0, 0, 1, 4)):
        other = stage.world.broker(host).contacts
        assert other.statement((0, 1)) == book.statement((0, 1)), "all of a context hold the same"


def test_contacts_follow_the_living() -> None:
    """A dead broker is no contact of its unit any more; nothing is told while nothing changes."""
    brokers = [f"S.C.{c}.{n}" for c in "cd" for n in range(5)]
    links = [(f"S.C.{c}.{n}", f"S.C.{c}.{m}") for c in "cd" for n in range(5) for m in range(n)]
    network = make_network("two", brokers, [*links, ("S.C.c.0", "S.C.d.0"), ("S.C.c.2", "S.C.d.2")])
    stage = Stage(network, options=Options())
    stage.wait(3 * SECOND_NS)
    book = stage.world.broker((0, 0, 1, 4)).contacts
    before = book.statement((0, 0, 0))
    stage.wait(10 * SECOND_NS)
    assert book.statement((0, 0, 0)) is before
    stage.world.crash((0, 0, 0, 0), silent=False)
    stage.wait(5 * SECOND_NS)
    assert [place.address for place in book.places((0, 0, 0))] == [(0, 0, 0, n) for n in range(1, 5)]


def test_speakers_of_two_parts_do_not_outbid_each_other() -> None:
    """Each tells its own part when that changes; the last word stands, and one statement holds when they meet."""
    brokers = [*(f"S.C.a.{n}" for n in range(5)), "S.C.b.5", "S.C.b.6"]
    links = [(f"S.C.a.{n}", f"S.C.a.{n + 1}") for n in range(4)]
    links += [("S.C.a.0", "S.C.b.5"), ("S.C.a.4", "S.C.b.6"), ("S.C.b.5", "S.C.b.6")]
    stage = Stage(make_network("apart", brokers, links), options=Options(dial=False))
    middle = [stage.link("1", "2"), stage.link("2", "3")]
    for link in middle:
        stage.world.cut(link, silent=False)
    stage.wait(30 * SECOND_NS)
    number = max(stage.broker(name).contacts.statement((0, 0, 0)).number for name in "04")  # type: ignore[union-attr]
    stage.wait(30 * SECOND_NS)
    for name in "0456":
        statement = stage.broker(name).contacts.statement((0, 0, 0))
        assert statement is not None and statement.number <= number + 1
    for link in middle:
        stage.world.heal(link)
    stage.wait(30 * SECOND_NS)
    assert len({stage.broker(name).contacts.statement((0, 0, 0)) for name in "0123456"}) == 1
    assert [place.address[3] for place in stage.broker("6").contacts.places((0, 0, 0))] == [0, 1, 2, 3]


# --- hostile ---


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (about((0, 1, 0)), "must not be told to"),
        (about((0, 0, 1, 0)), "must not be told to"),
        (Statement((0, 0, 0, 0, 0), 1, MATE, (Place(MATE, ("tcp://x:1",)),)), "must not be told to"),
        (about(OTHER, MATE), "no broker of it"),
        (about((0, 3), (0, 3, 0, 63)), "no broker of it"),
        (about((0, 0, 1), (0, 0, 1)), "no broker of it"),
        (about((0, 0, 1), teller=MATE), "no broker of it"),
        (about((0, 0, 1), BESIDE, BESIDE), "twice"),
        (about(OTHER, number=MAX_COUNT + 1), "nobody counts so far"),
        (Statement(OTHER, 1, OTHER, (Place(OTHER),)), "expected transport:address"),
        *(
            (Statement(OTHER, 1, OTHER, (Place(OTHER, (url,)),)), "expected transport:address")
            for url in ("x", "tcp:", ":7", "tcp://a b:1", "tcp://\n", "TCP://a:1", "tcp://ü:1", "a" * 17 + ":1")
        ),
    ],
)
def test_a_lie_costs_its_bearer_the_link_and_nothing_else(statement: Statement, reason: str) -> None:
    """A frame is taken whole or not at all; other links stay, and nothing of it is passed on."""
    broker = listening()
    liar, other = neighbour(broker, 1, MATE), neighbour(broker, 2, OTHER)
    before = broker.contacts.changes
    effects = liar.say(Contacts((about((0, 0, 0, 9)), statement)))
    assert [(link, reason in why) for link, why in closed(effects)] == [(1, True)]
    assert told(effects) == [] and broker.contacts.changes == before
    assert other.say(Contacts((about((0, 0, 0, 9)),))) is not None
    assert broker.contacts.statement((0, 0, 0, 9)) is not None
    broker.check()


@pytest.mark.parametrize(
    ("address", "unit"), [(BESIDE, HOST), (BESIDE, OTHER), ((0, 1, 0, 0), (0, 0, 1)), ((1, 0, 0, 0), (0, 1))]
)
def test_a_statement_does_not_cross_a_higher_link(address: Address, unit: Unit) -> None:
    broker = listening()
    peer = neighbour(broker, 1, address)
    ((link, reason),) = closed(peer.say(Contacts((about(unit),))))
    assert link == 1 and "must not cross a link of level" in reason


def test_bounds_are_the_wires() -> None:
    """Too many contacts, statements or characters are refused before anybody reads them."""
    crowd = about((0, 0, 1), *((0, 0, 1, n) for n in range(MAX_CONTACTS + 1)))
    long = Statement(OTHER, 1, OTHER, (Place(OTHER, ("tcp:" + "x" * MAX_URL,)),))
    for bad in (Contacts((crowd,)), Contacts((long,)), Contacts((about(OTHER),) * (MAX_STATEMENTS + 1))):
        with pytest.raises(LocalProtocolError):
            encode(bad, 1)
    url = "tcp:" + "x" * (MAX_URL - 4)
    worst = Statement(
        (0, 0, 1), 1, BESIDE, tuple(Place((0, 0, 1, n), (url,) * 4, bytes(MAX_GRANT)) for n in range(MAX_CONTACTS))
    )
    assert encode(Contacts((worst,) * MAX_STATEMENTS), 1)
    assert is_url(url) and not is_url(url + "x")


def test_a_number_that_nobody_counted_to_is_not_believed() -> None:
    """And costs nobody a link: who passes it on may know less."""
    broker = listening()
    mate = neighbour(broker, 1, MATE)
    mate.say(Contacts((about(OTHER),)))
    effects = mate.say(Contacts((about(OTHER, number=MAX_COUNT),)))
    assert closed(effects) == [] and broker.contacts.dropped == 1
    assert broker.contacts.statement(OTHER) == about(OTHER)


def test_grants_go_with_places() -> None:
    """SEC: what others told of a broker goes on as it came, and whoever dials judges it."""
    broker = listening()
    mate, gone = neighbour(broker, 1, MATE), neighbour(broker, 2, OTHER)
    granted = Statement(OTHER, 1, OTHER, (Place(OTHER, ("tcp://x:1",), b"granted"),))
    assert told(gone.say(Contacts((granted,))), 1) == [granted]
    broker.handle(LinkDown(2, "gone"), 0)
    effects = [effect for _, effect in keep_alive(broker, mate, 30 * SECOND_NS) if isinstance(effect, Dial)]
    assert effects and set(effects) == {Dial(OTHER, ("tcp://x:1",), b"granted")}


def test_a_new_grant_is_told() -> None:
    """SEC: the old one ends some day; with the new one neither the process nor a link has to."""
    broker = listening()
    neighbour(broker, 1, MATE)
    pass_time(broker, 0, SECOND_NS)
    broker.handle(Granted(b"new"), SECOND_NS)
    news = told([effect for _, effect in pass_time(broker, SECOND_NS, 2 * SECOND_NS)], 1)
    assert HOST in [statement.unit for statement in news]
    assert all(statement.places == (Place(HOST, ("tcp://host:1",), b"new"),) for statement in news)
    hellos = sent(broker.handle(LinkUp(2, True), 2 * SECOND_NS), 2)
    assert [frame.grant for frame in hellos if isinstance(frame, Hello)] == [b"new"]


# --- dialling ---


def lost_mate(address: Address = HOST, gone: Address = OTHER) -> tuple[Broker, Peer]:
    """A broker with a neighbour that stays, whose link to another was lost at time 0."""
    broker = listening(address)
    stays, goes = neighbour(broker, 1, MATE), neighbour(broker, 2, gone)
    goes.say(Contacts((about(gone),)))
    broker.handle(LinkDown(2, "gone"), 0)
    return broker, stays


def keep_alive(broker: Broker, peer: Peer, end_ns: int) -> list[tuple[int, Effect]]:
    """Let time pass while a neighbour gives signs of life."""
    effects: list[tuple[int, Effect]] = []
    for now_ns in range(0, end_ns + 1, SECOND_NS // 2):
        effects += pass_time(broker, now_ns - SECOND_NS // 2, now_ns)
        effects += [(now_ns, effect) for effect in peer.say(Heartbeat(now_ns, now_ns), now_ns=now_ns)]
    assert not any(closed([effect]) for _, effect in effects)
    return effects


def test_a_unit_out_of_reach_is_dialled_with_growing_pauses() -> None:
    """After suspicion and confirmation; the pause doubles from 5 to 60 seconds."""
    broker, mate = lost_mate()
    tries = dialled(keep_alive(broker, mate, 200 * SECOND_NS))
    assert {address for _, address in tries} == {OTHER}
    assert tries[0][0] == AFTER_NS
    pauses = [(later - earlier) // SECOND_NS for (earlier, _), (later, _) in pairwise(tries)]
    assert pauses == [5, 10, 20, 40, 60]
    assert (FIRST_PAUSE_NS, LONGEST_PAUSE_NS) == (5 * SECOND_NS, 60 * SECOND_NS)


def test_a_dead_unit_is_not_dialled_for_ever() -> None:
    broker = listening()
    gone = neighbour(broker, 1, OTHER)
    gone.say(Contacts((about(OTHER),)))
    broker.handle(LinkDown(1, "gone"), 0)
    tries = dialled(pass_time(broker, 0, 7200 * SECOND_NS))
    assert 20 < len(tries) <= MAX_TRIES
    assert tries[-1][0] < 2400 * SECOND_NS


def test_the_lowest_dials_and_others_only_later() -> None:
    """One dialler is enough; should it not succeed, the next ones try, and no more than three."""
    for number in range(1, 6):
        host: Address = (0, 0, 0, number)
        broker = listening(host)
        lower = [neighbour(broker, 10 + n, (0, 0, 0, n)) for n in range(number)]
        gone = neighbour(broker, 1, (0, 0, 0, 9))
        gone.say(Contacts((about((0, 0, 0, 9)),)))
        broker.handle(LinkDown(1, "gone"), 0)
        assert broker.dialler.next_wakeup() == (AFTER_NS * (1 + LATER * number) if number < MAX_DIALLERS else None), (
            f"{len(lower)} in reach are lower"
        )


def test_the_higher_side_waits_a_little() -> None:
    broker = listening((0, 0, 0, 5))
    gone = neighbour(broker, 1, OTHER)
    gone.say(Contacts((about(OTHER),)))
    broker.handle(LinkDown(1, "gone"), 0)
    assert broker.dialler.next_wakeup() == AFTER_NS + FIRST_PAUSE_NS


def test_who_is_heard_of_by_a_detour_comes_first() -> None:
    """The other part of the own cluster speaks through the neighbouring cluster: its brokers live."""
    broker = listening()
    beside, mate = neighbour(broker, 1, BESIDE), neighbour(broker, 2, MATE)
    dead, alive = OTHER, (0, 0, 0, 3)
    mate.say(Contacts((about(dead), about(alive), about(MATE))))
    records = [(MATE, dead), (dead, alive)]
    mate.tell(*(establish(one, other, 0, 50 + at) for at, (one, other) in enumerate(records)))
    assert alive in broker.map.reachable()
    broker.handle(LinkDown(2, "gone"), 0)
    beside.say(Contacts((about((0, 0, 0), alive, number=9),)))
    assert dialled(pass_time(broker, 0, AFTER_NS))[0] == (AFTER_NS, alive)


def test_nobody_is_dialled_who_was_never_in_reach_or_is() -> None:
    """Units never known: nothing, whatever is told of them."""
    broker, mate = lost_mate()
    mate.say(Contacts((about((0, 0, 0, 7)), about((0, 0, 3)), about((9,)))))
    assert {address for _, address in dialled(keep_alive(broker, mate, 60 * SECOND_NS))} == {OTHER}
    back = Peer(broker, 3, OTHER, 60 * SECOND_NS, nonce=77)
    back.greet(60 * SECOND_NS)
    assert broker.dialler.next_wakeup() is None


def test_contacts_are_tried_in_turn_and_not_over_a_link_that_exists() -> None:
    broker = listening()
    beside = neighbour(broker, 1, BESIDE)
    beside.say(Contacts((about((0, 0, 1), BESIDE, (0, 0, 1, 1), (0, 0, 1, 2)),)))
    broker.handle(LinkDown(1, "gone"), 0)
    tries = [address[3] for _, address in dialled(pass_time(broker, 0, 60 * SECOND_NS))]
    assert tries == [0, 1, 2, 0]


def test_a_dialled_link_is_announced_one_step_dearer() -> None:
    """LCM-03: it is left as soon as a proper one is back; the end that dialled says so at once."""
    broker = listening()
    effects = broker.handle(LinkUp(1, ordered=True, dialled=True), 0)
    (hello,) = (frame for frame in sent(effects) if isinstance(frame, Hello))
    peer = Peer.__new__(Peer)
    peer.broker, peer.link, peer.address, peer.number = broker, 1, OTHER, 0
    peer.hello = Hello(VERSION, VERSION, "veena", 4, 32, OTHER, 1, 9, 1000)
    peer.connection = connection_id(hello, peer.hello)
    peer.greet()
    assert [(edge.b, edge.cost) for edge in broker.map.edges()] == [(OTHER, STEP_COSTS[1])]
    neighbour(broker, 2, OTHER)
    assert [(edge.b, edge.cost, edge.links) for edge in broker.map.edges()] == [(OTHER, 0, 2)]
    hop = broker.hops.hop(OTHER)
    assert hop is not None and hop.connection != peer.connection


def test_a_cluster_that_is_whole_dials_nobody() -> None:
    stage = Stage(cluster([(1, 2), (2, 3), (3, 1)]))
    stage.wait(60 * SECOND_NS)
    assert stage.world.counters.dials == 0
