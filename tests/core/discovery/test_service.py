"""Discovery at one broker: what clients are told, what its neighbours are asked, and what a hostile one can do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tests.core.discovery.advert_cases import advert, synced
from tests.core.scripted_peer import HOST, Peer, closed, neighbour, sent, started
from veena.address import Address, Unit
from veena.core.boundary.discovery import (
    Advertise,
    Advertised,
    AdvertRefused,
    Answer,
    FoundAdvert,
    Query,
    QueryRefused,
    Scalar,
    Withdraw,
)
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Effect, Input
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.discovery import controller as office
from veena.core.discovery import open_queries as questions
from veena.core.wire.codec import disclose, enclose
from veena.core.wire.control import MAX_HOPS, Frame, Routed
from veena.core.wire.discovery import (
    Ask,
    Found,
    FoundRow,
    QueryPart,
    Removal,
    Shelf,
    ShelfMark,
    ShelfRequest,
    Standing,
    StandingRequest,
)
from veena.errors import RefusalCode

MATE: Address = (0, 0, 0, 1)
SELECT = "SELECT n FROM adverts"
#: A neighbour that says nothing but what a test tells it to is not suspected.
PATIENT = Settings(
    heartbeat_ns=100 * SECOND_NS,
    suspect_after_ns=200 * SECOND_NS,
    confirm_after_ns=SECOND_NS,
    reconcile_ns=500 * SECOND_NS,
    lease_ns=300 * SECOND_NS,
)


def routed(effects: list[Effect]) -> list[tuple[Unit, Frame]]:
    """The frames of discovery that go out, with their goals."""
    return [(each.to, disclose(each.kind, each.payload)) for each in sent(effects) if isinstance(each, Routed)]


def say(peer: Peer, frame: Frame, origin: Address | None = None, now_ns: int = 0) -> list[Effect]:
    kind, payload = enclose(frame)
    goal = peer.broker.identity.address
    return peer.say(Routed(goal, origin or peer.address, MAX_HOPS, kind, payload), now_ns=now_ns)


def offer(broker: Broker, name: str, scope: int = 4, now_ns: int = 0, **properties: Scalar) -> list[Effect]:
    return broker.handle(Advertise(1, name, scope, properties), now_ns)


def answers(effects: list[Effect]) -> list[Answer]:
    return [each for each in effects if isinstance(each, Answer)]


def asked(broker: Broker, text: str = SELECT, realm: int = 1, now_ns: int = 0, **more: object) -> list[Effect]:
    return broker.handle(Query(1, 1, "sql", text, realm, **more), now_ns)  # type: ignore[arg-type]


@pytest.fixture
def broker() -> Broker:
    made = started()
    made.handle(ClientUp(1, "alice"), 0)
    return made


def with_mate() -> tuple[Broker, Peer]:
    """A broker that controls its cluster, with one neighbour in it."""
    broker = started()
    peer = neighbour(broker, 1, MATE)
    broker.handle(ClientUp(1, "alice"), 0)
    return broker, peer


def marked(version: int, home: Address = MATE) -> Standing:
    return Standing(home, home, HOST, 1, 1, 0, (ShelfMark(home, (version,) * 3, 0),))


def test_a_lone_broker_answers_by_itself(broker: Broker) -> None:
    """DSC-02: every unit of the realm is the broker's own."""
    assert synced(broker, offer(broker, "one", n=1)) == [Advertised(1, "one")]
    offer(broker, "two", n=2, scope=1)
    for realm in range(1, 5):
        (answer,) = answers(asked(broker, f"{SELECT} ORDER BY n DESC", realm))
        assert answer.complete and answer.matched == 2 and answer.columns == ("n",)
        assert answer.rows == (
            FoundAdvert("alice", "two", HOST, values=(2,)),
            FoundAdvert("alice", "one", HOST, values=(1,)),
        )
    broker.check()


def test_an_advertisement_is_replaced_and_withdrawn(broker: Broker) -> None:
    synced(broker, offer(broker, "one", n=1))
    synced(broker, offer(broker, "one", n=2))
    assert [row.values for row in answers(asked(broker))[0].rows] == [(2,)]
    assert synced(broker, broker.handle(Withdraw(1, "one"), 0)) == [Advertised(1, "one")]
    assert answers(asked(broker))[0].rows == ()
    (refused,) = broker.handle(Withdraw(1, "one"), 0)
    assert isinstance(refused, AdvertRefused) and "no advertisement 'one'" in refused.reason
    broker.check()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Advertise(9, "x", 1, {"a": 1}), "session 9 is not open"),
        (Advertise(1, "x", 5, {"a": 1}), "scope 5"),
        (Query(9, 1, "sql", SELECT, 1), "session 9 is not open"),
        (Query(1, 1, "sql", "SELECT", 1), "position 6"),
        (Query(1, 1, "xpath", "/a[", 1), "position"),
        (Query(1, 1, "sql", SELECT, 0), "realm 0"),
        (Query(1, 1, "sql", SELECT, 5), "realm 5"),
        (Query(1, 1, "sql", SELECT, 1, deadline_ms=0), "deadline 0"),
        (Query(1, 1, "prolog", SELECT, 1), "language 'prolog'"),  # type: ignore[arg-type]
        (Query(1, 1, "xpath", "/a", 1, namespaces={f"p{n}": "u" for n in range(33)}), "33 namespaces"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(broker: Broker, given: Input, words: str) -> None:
    (refused,) = broker.handle(given, 0)
    assert isinstance(refused, AdvertRefused | QueryRefused)
    assert words in refused.reason
    assert broker.statistics().discovery.own == broker.statistics().discovery.open_queries == 0
    broker.check()


def test_leases_follow_the_client(broker: Broker) -> None:
    """DSC-01: two sessions of one client; the last one to go takes its advertisements along, or starts their lease."""
    broker.handle(ClientUp(2, "alice"), 0)
    offer(broker, "one", n=1)
    broker.handle(ClientDown(1), 0)
    assert broker.statistics().discovery.own == 1
    broker.handle(ClientDown(2, lost=True), 0)
    due = broker.discovery.shelf.next_wakeup()
    assert due == 60 * SECOND_NS
    broker.tick(due)
    assert broker.statistics().discovery.own == broker.statistics().discovery.held == 0
    broker.handle(ClientUp(1, "alice"), due)
    offer(broker, "one", n=1)
    broker.handle(ClientDown(1), due)
    assert broker.statistics().discovery.own == 0
    broker.check()


def test_a_controller_asks_for_what_is_told_and_holds_it() -> None:
    """DSC-01: told a number, it asks the home, page by page, and finds what came."""
    broker, peer = with_mate()
    assert routed(broker.tick(SECOND_NS)) == [(MATE, StandingRequest(MATE, HOST))]
    assert answers(asked(broker, now_ns=SECOND_NS))[0].silent == (MATE,)
    assert routed(say(peer, marked(7), now_ns=SECOND_NS)) == [(MATE, ShelfRequest(1, 0, HOST))]
    assert answers(asked(broker, now_ns=SECOND_NS))[0].silent == (MATE,)
    first = Shelf(1, 0, 5, 7, (advert("a", {"n": 1}), advert("b", {"n": 2})))
    assert routed(say(peer, first, now_ns=SECOND_NS)) == [(MATE, ShelfRequest(1, 5, HOST))]
    say(peer, Shelf(1, 5, 7, 7, (advert("c", {"n": 3}),), (Removal("alice", "a"),)), now_ns=SECOND_NS)
    (answer,) = answers(asked(broker, now_ns=SECOND_NS))
    assert answer.complete and [row.name for row in answer.rows] == ["b", "c"]
    assert routed(say(peer, marked(7), now_ns=SECOND_NS)) == []
    broker.check()


def held() -> tuple[Broker, Peer]:
    """A controller that holds one advertisement of its mate."""
    broker, peer = with_mate()
    say(peer, marked(7))
    say(peer, Shelf(1, 0, 7, 7, (advert("a", {"n": 1}),)))
    assert broker.statistics().discovery.held == 1
    return broker, peer


def test_a_round_without_a_home_ends_what_it_had() -> None:
    broker, peer = held()
    say(peer, Standing(MATE, MATE, HOST, 2, 1, 0, ()))
    assert broker.statistics().discovery.held == 0
    broker.check()


def test_a_home_that_is_not_heard_is_forgotten_with_its_lease() -> None:
    """DSC-01: when a broker dies its advertisements go with the lease, and it is named from then on."""
    broker, _ = held()
    now = broker.discovery.office.lease_ns - 1
    (answer,) = answers(asked(broker, now_ns=now))
    assert answer.complete and answer.matched == 1
    broker.tick(now + office.RETRY_NS + broker.discovery.office.round_ns)
    (answer,) = answers(asked(broker, now_ns=now + 2 * broker.discovery.office.round_ns))
    assert answer.matched == 0 and answer.silent == (MATE,)


def test_a_page_that_does_not_come_is_asked_for_again() -> None:
    broker, peer = with_mate()
    say(peer, marked(7))
    again = routed(broker.tick(office.RETRY_NS))
    assert (MATE, ShelfRequest(1, 0, HOST)) in again


def test_a_broker_answers_for_its_own_shelf() -> None:
    """DSC-03: a controller of level 2 is given what reaches that far; whoever is outside the unit is given nothing."""
    broker, peer = with_mate()
    offer(broker, "near", scope=1, n=1)
    offer(broker, "far", scope=2, n=2)
    ((to, page),) = routed(say(peer, ShelfRequest(2, 0, (0, 0, 0, 1))))
    assert to == MATE and isinstance(page, Shelf)
    assert [each.name for each in page.adverts] == ["far"]
    assert routed(say(peer, ShelfRequest(2, 0, (0, 1, 0, 0)))) == []
    assert routed(say(peer, ShelfRequest(0, 0, MATE))) == []
    ((to, told),) = routed(say(peer, StandingRequest(HOST, MATE)))
    assert isinstance(told, Standing) and (told.marks[0].home, told.parts) == (HOST, 1)
    assert routed(say(peer, StandingRequest(HOST, (0, 0, 1, 0)))) == []


def test_changes_are_told_soon_and_everything_every_round() -> None:
    """DSC-01: from a broker that controls nothing, to the controller of its cluster and its deputy."""
    third: Address = (0, 0, 0, 2)
    broker = started(third, PATIENT)
    for link, other in ((1, HOST), (2, MATE)):
        neighbour(broker, link, other)
    broker.handle(ClientUp(1, "alice"), 0)
    broker.tick(SECOND_NS)
    offer(broker, "one", now_ns=SECOND_NS, n=1)
    news = routed(broker.tick(SECOND_NS + 50 * MILLISECOND_NS))
    assert [to for to, _ in news] == [HOST, MATE]
    for _, told in news:
        assert isinstance(told, Standing) and told.parts == 0 and [mark.home for mark in told.marks] == [third]
    rounds = [frame for _, frame in routed(broker.tick(SECOND_NS + broker.discovery.office.round_ns))]
    assert [isinstance(frame, Standing) and frame.parts for frame in rounds] == [1, 1]


def test_a_scope_hides_an_advertisement_from_askers_beyond_it() -> None:
    """DSC-03: whatever the question says, the controller tests where asker and home are."""
    broker, peer = held()
    for scope in (1, 2, 4):
        offer(broker, f"scope{scope}", scope=scope, n=scope)
    ask = Ask(MATE, 5, (QueryPart(HOST[:3], 1, 4),), True, SELECT, (), True, 1)

    def found_by(asker: Address) -> list[str]:
        return [
            row.name
            for _, frame in routed(say(peer, replace(ask, asker=asker)))
            if isinstance(frame, Found)
            for row in frame.rows
        ]

    assert found_by(MATE) == ["a", "scope1", "scope2", "scope4"]
    peer_outside = neighbour(broker, 2, (0, 1, 0, 0))
    assert peer_outside.address == (0, 1, 0, 0)
    assert found_by((0, 1, 0, 0)) == ["a", "scope4"]


def test_a_constraint_is_asked_and_answered() -> None:
    """TRD-06: to a controller and back, with the chosen properties; who knows no constraints takes it for a bad SELECT
    and stays silent, so that the asker is told what is missing."""
    broker, peer = held()
    offer(broker, "oil", n=1, network=128)
    part = (QueryPart(HOST[:3], 1, 4),)
    ask = Ask(MATE, 5, part, True, "n == 1 and network == 128", (), True, 1, True, ("network",))
    ((_, found),) = routed(say(peer, ask))
    assert isinstance(found, Found)
    assert [(row.name, row.values) for row in found.rows] == [("oil", b"\x91\xcc\x80")]
    assert not routed(say(peer, replace(ask, is_constraint=False, columns=())))


def open_query(**more: object) -> tuple[Broker, Peer, Ask]:
    """A broker that asked the controller of its cluster."""
    broker = started(MATE)
    peer = neighbour(broker, 1, HOST)
    broker.handle(ClientUp(1, "alice"), 0)
    ((to, ask),) = routed(asked(broker, **more))  # type: ignore[arg-type]
    assert to == HOST and isinstance(ask, Ask) and ask.asker == MATE
    return broker, peer, ask


def row(name: str, home: Address = HOST, values: bytes = b"\x91\x01") -> FoundRow:
    return FoundRow("bob", name, home, 1, b"", values)


def test_an_answer_of_several_pages_is_whole_when_all_have_come() -> None:
    """DSC-05: pages in any order; one that comes twice counts once."""
    broker, peer, ask = open_query()
    second = Found(ask.number, HOST[:3], 1, 2, 2, (row("b"),))
    assert answers(say(peer, second)) == []
    assert answers(say(peer, second)) == []
    (answer,) = answers(say(peer, Found(ask.number, HOST[:3], 0, 2, 2, (row("a"),))))
    assert answer.complete and [each.name for each in answer.rows] == ["a", "b"]
    assert answers(say(peer, second)) == []
    broker.check()


def test_who_does_not_answer_by_the_deadline_is_named() -> None:
    """DSC-02: the answer comes in time, and says what it lacks."""
    broker, _, _ = open_query(deadline_ms=500)
    assert broker.discovery.next_wakeup() == 500 * MILLISECOND_NS
    assert answers(broker.tick(499 * MILLISECOND_NS)) == []
    (answer,) = answers(broker.tick(500 * MILLISECOND_NS))
    assert answer.silent == (HOST[:3],) and not answer.complete and answer.rows == ()
    assert broker.statistics().discovery.open_queries == 0


def test_an_answer_says_when_it_is_not_all() -> None:
    _, peer, ask = open_query()
    (answer,) = answers(say(peer, Found(ask.number, HOST[:3], 0, 1, 7, (row("a"),))))
    assert answer.truncated and not answer.complete and answer.matched == 7
    _, peer, ask = open_query(text=f"{SELECT} LIMIT 1")
    (answer,) = answers(say(peer, Found(ask.number, HOST[:3], 0, 1, 7, (row("a"),))))
    assert answer.complete and answer.matched == 7 and len(answer.rows) == 1


def test_open_queries_are_bounded_and_go_with_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MAX_OPEN_OF_USER", 2)
    broker, _, _ = open_query()
    (refused,) = asked(broker)
    assert isinstance(refused, QueryRefused) and "open already" in refused.reason
    broker.handle(Query(1, 2, "sql", SELECT, 1), 0)
    (refused,) = broker.handle(Query(1, 3, "sql", SELECT, 1), 0)
    assert isinstance(refused, QueryRefused) and refused.why is RefusalCode.LIMIT
    assert "2 of at most 2 are of user 'alice'" in refused.reason
    broker.handle(ClientDown(1), 0)
    assert broker.statistics().discovery.open_queries == 0
    broker.check()


GOOD = Found(1, HOST[:3], 0, 1, 1, (row("a"),))


@pytest.mark.parametrize(
    ("frame", "origin"),
    [
        (GOOD, (0, 0, 1, 0)),
        (replace(GOOD, number=9), HOST),
        (replace(GOOD, unit=(0, 0)), HOST),
        (replace(GOOD, page=1), HOST),
        (replace(GOOD, silent=((0, 1),)), HOST),
        (replace(GOOD, rows=(row("a", (0, 0, 1, 0)),)), HOST),
        (replace(GOOD, rows=(row("a", (0, 0, 0)),)), HOST),
        (replace(GOOD, rows=(row("a", values=b""),)), HOST),
        (replace(GOOD, rows=(row("a", values=b"\x92\x01\x01"),)), HOST),
        (replace(GOOD, rows=(row("b"), row("a", values=b"\xc1"))), HOST),
    ],
)
def test_an_answer_to_nothing_that_was_asked_changes_nothing(frame: Found, origin: Address) -> None:
    """The neighbour that passed it on is innocent: no link is closed, and the true answer still counts."""
    broker, peer, ask = open_query()
    assert ask.number == 1
    effects = say(peer, frame, origin)
    assert closed(effects) == [] and answers(effects) == []
    (answer,) = answers(say(peer, GOOD))
    assert [each.name for each in answer.rows] == ["a"]
    broker.check()


def mark(versions: tuple[int, ...] = (9, 9, 9), home: Address = MATE, age_ms: int = 0) -> ShelfMark:
    return ShelfMark(home, versions, age_ms)


@pytest.mark.parametrize(
    "frame",
    [
        Standing((0, 0, 1, 0), (0, 0, 1, 0), HOST, 2, 1, 0),
        Standing((0, 1), (0, 1, 0, 0), HOST, 2, 1, 0),
        Standing((1,), (1, 0, 0, 0), HOST, 2, 1, 0),
        Standing(MATE, (0, 0, 0, 2), HOST, 2, 1, 0),
        Standing(MATE, MATE, (0, 0, 1), 2, 1, 0),
        Standing(MATE, MATE, HOST, 2, 1 << 20, 0),
        Standing(MATE, MATE, HOST, 2, 1, 0, (mark(home=(0, 0, 0, 2)),)),
        Standing(MATE, MATE, HOST, 2, 1, 0, (mark((9,)),)),
        Standing(MATE, MATE, HOST, 2, 1, 0, (mark((1 << 63, 1, 1)),)),
        Standing(MATE, MATE, HOST, 2, 1, 0, (), ((0, 0, 0, 2),)),
        Standing(MATE, MATE, HOST, 2, 2, 1),
        Shelf(1, 0, 9, 9, (advert("x", {"n": 1}),)),
        StandingRequest((0, 0, 1), MATE),
        ShelfRequest(3, 0, (1, 0, 0, 0)),
        Ask((0, 0, 0), 1, (QueryPart(HOST[:3], 1, 1),), True, SELECT, (), True),
        Ask(MATE, 1, (QueryPart((1,), 4, 4),), True, SELECT, (), True),
        Ask(MATE, 1, (QueryPart(HOST[:3], 1, 1),), True, "SELECT", (), True),
        Ask(MATE, 1, (QueryPart(HOST[:3], 1, 1),), True, SELECT, (), True, 200),
    ],
)
def test_a_frame_that_breaks_the_rules_changes_nothing(frame: Frame) -> None:
    """DSC-03: about other units, in others' names, unasked, or unreadable."""
    broker, peer = held()
    before = broker.statistics().discovery
    effects = say(peer, frame)
    assert closed(effects) == [] and routed(effects) == []
    assert broker.statistics().discovery == before
    (answer,) = answers(asked(broker))
    assert answer.complete and [each.name for each in answer.rows] == ["a"]
    broker.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"since": 3},
        {"up_to": 9, "latest": 8},
        {"level": 2},
        {"adverts": (replace(advert("x", {"n": 1}), properties=b"\xc1"),)},
        {"adverts": (advert("x", {"n": 1}), replace(advert("y", {"n": 1}), scope=9))},
    ],
)
def test_a_bad_page_is_not_taken_in_part(changes: Mapping[str, object]) -> None:
    broker, peer = with_mate()
    say(peer, marked(7))
    page = Shelf(1, 0, 7, 7, (advert("x", {"n": 1}),))
    assert closed(say(peer, replace(page, **changes))) == []
    assert broker.statistics().discovery.held == 0
    assert closed(say(peer, page, origin=(0, 0, 0, 2))) == []
    assert broker.statistics().discovery.held == 0
    say(peer, page)
    assert broker.statistics().discovery.held == 1
    broker.check()


def test_frames_of_discovery_have_no_place_on_a_link_by_themselves() -> None:
    _, peer = with_mate()
    assert "no place" in closed(peer.say(GOOD))[0][1]


def test_a_large_answer_is_cut_and_says_so(broker: Broker) -> None:
    """DSC-05: one unit sends 2 MiB; how many match is told, and ids alone fit."""
    for number in range(40):
        broker.handle(Advertise(1, f"ad{number:02}", 1, {"n": number}, f"<a>{'x' * 60_000}</a>"), 0)
    pieces = answers(asked(broker, "SELECT * FROM adverts"))
    while pieces[-1].more:
        pieces += answers(broker.tick(broker.discovery.next_wakeup() or 0))
    assert pieces[-1].truncated and pieces[-1].matched == 40
    rows = [row for piece in pieces for row in piece.rows]
    assert [row.name for row in rows] == [f"ad{number:02}" for number in range(len(rows))]
    assert 30 <= len(rows) < 40
    (answer,) = answers(asked(broker, "SELECT * FROM adverts", full=False))
    assert answer.complete and len(answer.rows) == 40
    (answer,) = answers(asked(broker, "SELECT * FROM adverts ORDER BY n DESC LIMIT 3"))
    assert answer.complete and answer.matched == 40 and answer.rows[0].name == "ad39"


def test_a_full_store_names_what_it_could_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: the home stays named as one whose advertisements are missing."""
    from veena.core.discovery import store as advert_store

    monkeypatch.setattr(advert_store, "MAX_HELD", 1)
    broker, peer = with_mate()
    say(peer, marked(7))
    say(peer, Shelf(1, 0, 7, 7, (advert("x", {"n": 1}), advert("y", {"n": 1}))))
    (answer,) = answers(asked(broker))
    assert answer.rows == () and answer.silent == (MATE,)
    broker.check()
