"""One link: greeting, heartbeats, suspicion and load, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from tests.core.scripted_peer import HOST, Peer, closed, hello, neighbour, records, sent, started
from veena.address import Address
from veena.core.boundary.inputs_effects import Effect, LinkLoad, Send
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.links.link import GREETING_HEARTBEATS, Link, LinkState, connection_id
from veena.core.topology.connection import ABSENT, step
from veena.core.wire.control import Connections, Frame, Goodbye, Heartbeat, Hello, Received
from veena.core.wire.header import VERSION
from veena.errors import ConfigError, RemoteProtocolError

NEAR: Address = (0, 0, 0, 1)
SETTINGS = Settings()


def new_link(ordered: bool = True) -> Link:
    return Link(1, ordered, hello(HOST), SETTINGS, 0)


def wakeups(broker: Broker, until_ns: int) -> Iterator[tuple[int, list[Effect]]]:
    """Tick whenever the broker wants to, and say what came of it."""
    due, repeats = broker.next_wakeup(), 0
    while due is not None and due <= until_ns:
        yield due, broker.tick(due)
        last, due = due, broker.next_wakeup()
        repeats = repeats + 1 if due is not None and due <= last else 0
        assert repeats < 100, "a broker that wakes up again and again at one moment"


def only_link(broker: Broker) -> LinkState:
    return broker.statistics().links[0].state


# --- greeting ---


def test_a_link_greets_first_and_opens_with_the_peers_hello() -> None:
    """FLT-02: no connection before the Hello; level and neighbour from it."""
    link = new_link()
    assert [frame for _, frame in link.outbox] == [link.hello]
    assert (link.state, link.connection) == (LinkState.GREETING, None)
    link.check()
    link.greeted(hello((0, 1, 0, 0)))
    assert (link.state, link.neighbour, link.level) == (LinkState.OPEN, (0, 1, 0, 0), 2)
    link.check()


def changed(**fields: object) -> Hello:
    return msgspec.structs.replace(hello(NEAR), **fields)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            changed(version_low=VERSION + 1, version_high=VERSION + 2),
            f"wire versions {VERSION + 1} to {VERSION + 2}, this broker wire version {VERSION}: upgrade the older one",
        ),
        (
            changed(version_low=VERSION - 1, version_high=VERSION - 1),
            f"wire version {VERSION - 1}, this broker wire version {VERSION}: upgrade the older one",
        ),
        (changed(network="other"), "network 'other' with 4 levels of 32; this broker is of 'veena'"),
        (changed(levels=3, address=(0, 0, 1)), "with 3 levels of 32; this broker is of 'veena' with 4 levels"),
        (changed(fanout=64), "with 4 levels of 64; this broker is of 'veena' with 4 levels of 32"),
        (changed(address=HOST), "address 0.0.0.0 is this broker's own"),
    ],
)
def test_a_peer_of_another_network_is_refused(given: Hello, reason: str) -> None:
    """GPP-01: the refusal says what differs; nothing of it is kept."""
    link = new_link()
    with pytest.raises(RemoteProtocolError) as caught:
        link.greeted(given)
    assert reason in str(caught.value)
    assert (link.state, link.neighbour, link.connection) == (LinkState.GREETING, None, None)
    link.check()


def test_versions_need_only_overlap() -> None:
    link = new_link()
    link.greeted(changed(version_low=1, version_high=7))
    assert link.state is LinkState.OPEN


def test_both_ends_compute_one_connection_id() -> None:
    """GPP-10: the same from either side; another nonce, incarnation or neighbour is another connection."""
    mine, theirs = hello(HOST, nonce=1), hello(NEAR, nonce=2)
    assert connection_id(mine, theirs) == connection_id(theirs, mine)
    others = [
        connection_id(hello(HOST, nonce=3), theirs),
        connection_id(mine, hello(NEAR, nonce=3)),
        connection_id(mine, hello(NEAR, nonce=2, incarnation=2)),
        connection_id(hello(HOST, nonce=2), hello(NEAR, nonce=1)),
        connection_id(mine, hello((0, 0, 0, 2), nonce=2)),
    ]
    assert len({connection_id(mine, theirs), *others}) == 6


@pytest.mark.parametrize("frame", [Connections((), complete=True), Received(0)])
def test_nothing_comes_before_the_hello(frame: Frame) -> None:
    with pytest.raises(RemoteProtocolError, match="before Hello: greet first"):
        new_link().arrive(1, frame, 0)


def test_a_hello_that_was_overtaken_is_read_before_what_follows_it() -> None:
    """TRN-05: where frames overtake each other a Hello may come last, and everything behind it at once."""
    link = new_link(ordered=False)
    follows = Connections((), complete=True)
    assert link.arrive(2, follows, 0) == []
    assert link.arrive(1, hello(NEAR), 0) == [(1, hello(NEAR)), (2, follows)]
    broken = new_link(ordered=False)
    broken.arrive(2, hello(NEAR), 0)
    with pytest.raises(RemoteProtocolError, match="before Hello: greet first"):
        broken.arrive(1, follows, 0)


def test_only_acknowledgements_and_goodbyes_have_no_number() -> None:
    link = new_link()
    with pytest.raises(RemoteProtocolError, match="Hello without a frame number"):
        link.arrive(0, hello(NEAR), 0)
    assert link.arrive(0, Goodbye("bye"), 0) == [(0, Goodbye("bye"))]


def test_a_peer_that_never_greets_is_closed() -> None:
    """A half-open connection does not stay for ever, whatever else it sends."""
    broker = started()
    peer = Peer(broker, 1, NEAR)
    limit = GREETING_HEARTBEATS * SETTINGS.heartbeat_ns
    peer.say(Heartbeat(1, 0), now_ns=limit - 1)
    found = [(now_ns, closed(effects)) for now_ns, effects in wakeups(broker, 2 * limit) if closed(effects)]
    assert found == [(limit, [(1, "no Hello came")])]
    assert broker.statistics().links == ()


def test_an_unordered_link_acknowledges_what_it_read() -> None:
    """TRN-05: one acknowledgement behind what goes out, outside the sequence."""
    link = new_link(ordered=False)
    link.outbox.clear()
    assert link.arrive(1, hello(NEAR), 0) == [(1, hello(NEAR))]
    link.acknowledge()
    assert link.outbox == [(0, Received(1))]
    link.outbox.clear()
    link.acknowledge()
    assert link.outbox == []


# --- suspicion ---


def test_silence_is_suspected_then_confirmed() -> None:
    """FLT-02, SPR-08: suspected after three heartbeats, announced as absent at once, closed after a second time-out."""
    broker = started()
    third = neighbour(broker, 2, (0, 0, 0, 2))
    peer = neighbour(broker, 1, NEAR)
    history: list[tuple[int, LinkState]] = []
    announced: list[tuple[int, bool, int]] = []
    ended: list[tuple[int, str]] = []
    for now_ns, effects in wakeups(broker, 7 * SECOND_NS):
        state = next((s.state for s in broker.statistics().links if s.link == 1), LinkState.CLOSED)
        if not history or history[-1][1] is not state:
            history.append((now_ns, state))
        announced += [(now_ns, r.up, step(r)) for r in records(effects, 2) if r.id == peer.connection]
        ended += closed(effects)
        third.say(Heartbeat(now_ns, now_ns), now_ns=now_ns)
    assert history[0][1] is LinkState.OPEN
    assert history[1:] == [(3 * SECOND_NS, LinkState.SUSPECTED), (6 * SECOND_NS, LinkState.CLOSED)]
    assert announced == [(3 * SECOND_NS, True, ABSENT), (6 * SECOND_NS, False, ABSENT)]
    assert ended == [(1, "nothing was heard from it, or it did not answer, for too long")]


def test_hearing_again_clears_a_suspicion() -> None:
    """FLT-02, SPR-08: the absence is taken back at once, over the same connection."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    neighbour(broker, 2, (0, 0, 0, 2))
    last = [(now_ns, effects) for now_ns, effects in wakeups(broker, 4 * SECOND_NS)][-1]
    assert last[0] == 4 * SECOND_NS
    assert broker.hops.hop(NEAR) is None
    effects = peer.say(Heartbeat(5, 4 * SECOND_NS), now_ns=5 * SECOND_NS)
    assert [(r.id, r.up, step(r)) for r in records(effects, 2)] == [(peer.connection, True, 0)]
    assert only_link(broker) is LinkState.OPEN
    hop = broker.hops.hop(NEAR)
    assert hop is not None
    assert hop.connection == peer.connection


def test_a_peer_that_speaks_but_does_not_answer_is_suspected() -> None:
    """FLT-03: a crowded link or a slow process; then closed, because the suspicion lasts."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    states: list[tuple[int, LinkState]] = []
    for now_ns, effects in wakeups(broker, 9 * SECOND_NS):
        if closed(effects):
            states.append((now_ns, LinkState.CLOSED))
            break
        peer.say(Heartbeat(now_ns, 0), now_ns=now_ns)
        states.append((now_ns, only_link(broker)))
    suspected = [now_ns for now_ns, state in states if state is LinkState.SUSPECTED]
    assert suspected[0] == SECOND_NS + SETTINGS.answer_within_ns
    assert states[-1] == (suspected[0] + SETTINGS.confirm_after_ns, LinkState.CLOSED)


def test_an_answer_to_an_older_heartbeat_is_none() -> None:
    """FLT-03: what was echoed before the oldest unanswered heartbeat says nothing about it."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    for now_ns, _ in wakeups(broker, 5 * SECOND_NS):
        peer.say(Heartbeat(now_ns, SECOND_NS - 1), now_ns=now_ns)
    assert only_link(broker) is LinkState.SUSPECTED


def test_answers_keep_a_link_open_and_measure_the_round_trip() -> None:
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    for now_ns, effects in wakeups(broker, 30 * SECOND_NS):
        beats = [
            frame
            for effect in effects
            if isinstance(effect, Send)
            for _, frame in effect.frames
            if isinstance(frame, Heartbeat)
        ]
        for beat in beats:
            later = now_ns + 20 * MILLISECOND_NS
            peer.say(Heartbeat(later, beat.sent_ns), now_ns=later)
    assert only_link(broker) is LinkState.OPEN
    assert broker.statistics().links[0].round_trip_ns == 20 * MILLISECOND_NS


def test_a_peers_report_confirms_a_suspicion() -> None:
    """FLT-02: nobody else reaches it either, so the second time-out is not waited for."""
    broker = started()
    third = neighbour(broker, 2, (0, 0, 0, 2))
    peer = neighbour(broker, 1, NEAR)
    other = broker.table.record(third.connection)
    assert other is not None
    theirs = msgspec.structs.replace(other, id=77, low=NEAR, high=third.address)
    third.tell(theirs)
    for now_ns, _ in wakeups(broker, 3 * SECOND_NS):
        third.say(Heartbeat(now_ns, now_ns), now_ns=now_ns)
    assert {s.link: s.state for s in broker.statistics().links} == {2: LinkState.OPEN, 1: LinkState.SUSPECTED}
    effects = third.tell(msgspec.structs.replace(theirs, up=False), now_ns=4 * SECOND_NS)
    assert closed(effects) == [(1, "nobody hears it any more")]
    assert [r.id for r in records(effects, 2) if not r.up] == [peer.connection]


def test_an_old_connection_of_ones_own_confirms_nothing() -> None:
    """FLT-02: a link that was lost once and made again gets its second time-out like any other."""
    broker = started()
    first = neighbour(broker, 1, NEAR)
    first.say(Goodbye("restart"))
    neighbour(broker, 2, NEAR)
    ends = [now_ns for now_ns, effects in wakeups(broker, 9 * SECOND_NS) if closed(effects)]
    assert ends == [SETTINGS.suspect_after_ns + SETTINGS.confirm_after_ns]


# --- load ---


def load_history(loads: dict[int, float], until_s: int) -> list[tuple[int, int]]:
    """(second, announced step) of a link whose peer always answers, loaded as told."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    found: list[tuple[int, int]] = []
    for second in range(1, until_s):
        now_ns = second * SECOND_NS
        if second in loads:
            broker.handle(LinkLoad(1, loads[second]), now_ns)
        broker.tick(now_ns)
        peer.say(Heartbeat(now_ns, now_ns), now_ns=now_ns)
        known = broker.table.record(peer.connection)
        assert known is not None
        if step(known) != (found[-1][1] if found else 0):
            found.append((second, step(known)))
    return found


def test_overload_raises_the_cost_at_the_next_check_and_takes_it_back() -> None:
    """LCM-03: a check every few seconds; the first change at once, the next not before the hold is over."""
    assert load_history({6: 0.75}, 60) == [(10, 1)]
    assert load_history({6: 0.95}, 60) == [(10, 2)]
    assert load_history({6: 0.95, 12: 0.0}, 60) == [(10, 2), (40, 0)]
    assert load_history({6: 0.75, 12: 0.95}, 60) == [(10, 1), (40, 2)]
    assert load_history({6: 0.95, 12: 0.0, 20: 0.95}, 60) == [(10, 2)], "what passes within the hold is not announced"


def test_a_load_near_a_threshold_announces_nothing() -> None:
    """LCM-03: a step is left only well below where it was taken."""
    assert load_history({1: 0.69}, 60) == []
    assert load_history({1: 0.72, 12: 0.69, 50: 0.72, 80: 0.55}, 120) == [(5, 1)]
    assert load_history({1: 0.72, 12: 0.45}, 60) == [(5, 1), (35, 0)]
    assert load_history({1: 0.95, 12: 0.75}, 60) == [(5, 2)]
    assert load_history({1: 0.95, 12: 0.65}, 60) == [(5, 2), (35, 1)]


def test_a_cost_is_told_over_the_link_itself_too() -> None:
    """LCM-03, BNM-09: the other end must know as well, and under its own coarse names can."""
    broker = started()
    peer = neighbour(broker, 1, (0, 1, 0, 0))
    broker.handle(LinkLoad(1, 0.95), SECOND_NS)
    peer.say(Heartbeat(1, 0), now_ns=4 * SECOND_NS)
    effects = broker.tick(5 * SECOND_NS)
    assert [(r.id, r.low, r.high, r.low_cost) for r in records(effects, 1)] == [
        (peer.connection, (0, 0), (0, 1), (1, 2))
    ]
    assert sent(broker.tick(5 * SECOND_NS + 1)) == []


@pytest.mark.parametrize(
    ("fields", "entry"),
    [
        ({"levels": 0}, "levels"),
        ({"levels": 9}, "levels"),
        ({"fanout": 33}, "fanout"),
        ({"heartbeat_ns": 0}, "suspect_after_ns"),
        ({"suspect_after_ns": SECOND_NS}, "suspect_after_ns"),
        ({"reconcile_ns": 5 * SECOND_NS}, "reconcile_ns"),
        ({"tombstone_ns": 30 * SECOND_NS}, "tombstone_ns"),
    ],
)
def test_impatient_settings_are_refused(fields: dict[str, int], entry: str) -> None:
    """FLT-02: time-outs that contradict each other are an error of configuration, named by their entry."""
    with pytest.raises(ConfigError) as caught:
        replace(SETTINGS, **fields)  # type: ignore[arg-type]
    assert caught.value.entry == entry
