"""A relay's duties, seen from its neighbours: what it passes on, when it answers, what it does when its hops change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.scripted_events import (
    EventPeer,
    Host,
    acknowledged,
    bit,
    copies,
    delivered,
    event_copy,
    frames,
    mate,
    mates,
    numbers,
    patient,
    peer,
    publication,
    publish,
    relay,
    sequences,
)
from tests.core.scripted_peer import closed
from veena.core.boundary.inputs_effects import LinkRoom, Send
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.topology.connection import ABSENT
from veena.core.wire.control import AntiEvent, Connections, Done, Frame, Refused
from veena.event import Event

# --- copies ---


def test_one_copy_a_hop() -> None:
    """Rule 3: destinations are grouped by hop; each copy names its own alone."""
    host, up, down = relay(4, 5)
    other = peer(host, 3)
    other.links_to(6)
    effects = up.hand(event_copy(1, mates(4, 5, 6)))
    assert [frame.to_serve for _, frame in copies(effects, down.link)] == [mates(4, 5)]
    assert [frame.to_serve for _, frame in copies(effects, other.link)] == [mates(6)]
    assert copies(effects, up.link) == []
    assert acknowledged(effects, up.link) == []
    assert host.statistics().router.copies_out == 2


def test_a_copy_is_the_same_bytes() -> None:
    """EVT-03: id, origin and tail travel as they came."""
    _, up, down = relay(4)
    given = event_copy(1, mates(4))
    ((_, sent),) = copies(up.hand(given), down.link)
    assert sent.tail is given.tail
    assert (sent.id, sent.origin, sent.flags) == (given.id, given.origin, given.flags)


def test_the_trace_names_both_ends_of_the_link() -> None:
    """ERP-03, ERP-04, ERP-07: where it has been is added to, and where it is still to go is none of it."""
    _, up, down = relay(4)
    ((_, sent),) = copies(up.hand(event_copy(1, mates(4), served=mates(1, 9))), down.link)
    assert sent.served == mates(0, 1, 2, 9)
    assert not sent.served & sent.to_serve


def test_acknowledged_when_everything_below_has_it() -> None:
    """Rule 6: its clients here, the disk, and everybody behind 2; not one of them less."""
    host, up, down = relay(4, 5)
    host.reader(1)
    effects = up.hand(event_copy(1, mates(0, 4, 5)))
    assert delivered(effects) == [1]
    assert acknowledged(effects, up.link) == []
    (number,) = numbers(effects, down.link)
    effects = down.hand(Done(((number, number),)))
    assert acknowledged(effects, up.link) == [], "the disk does not know yet what the clients have had"
    assert acknowledged(host.sync(), up.link) == [up.first]
    assert len(host.events.router.duties) == 0


def test_nobody_here_and_nothing_behind() -> None:
    """What serves nobody is answered at once."""
    host, up, _ = relay()
    effects = up.hand(event_copy(1, mates(0)))
    assert acknowledged(effects, up.link) == [up.first]
    assert (host.statistics().router.in_vain, delivered(effects)) == (1, [])


def test_a_second_copy_with_other_duties_is_served() -> None:
    """Rule 4, ERP-10, DUP-09 (which is false): an event that climbs past a broker and comes back for others there."""
    host, up, down = relay(4, 5)
    other = peer(host, 3)
    first = up.hand(event_copy(1, mates(4)))
    second = other.hand(event_copy(1, mates(4, 5)))
    assert [frame.to_serve for _, frame in copies(first, down.link)] == [mates(4)]
    assert [frame.to_serve for _, frame in copies(second, down.link)] == [mates(5)], "only what was not taken before"
    assert host.statistics().router.repeated == 1
    (one,), (two,) = numbers(first, down.link), numbers(second, down.link)
    effects = down.hand(Done(((two, two),)))
    assert acknowledged(effects, other.link) == [], "4 is still open"
    effects = down.hand(Done(((one, one),)))
    assert acknowledged(effects, up.link) == [up.first]
    assert acknowledged(effects, other.link) == [other.first]


def test_several_upstreams_wait_for_one_duty() -> None:
    """Rule 4: a duty taken but not done is acknowledged when it is done, to everybody who claims it."""
    host, up, down = relay(4)
    other = peer(host, 3)
    first = up.hand(event_copy(1, mates(4)))
    again = [*up.hand(event_copy(1, mates(4))), *other.hand(event_copy(1, mates(4)))]
    assert copies(again, down.link) == []
    assert acknowledged(again, up.link) == acknowledged(again, other.link) == []
    (number,) = numbers(first, down.link)
    effects = down.hand(Done(((number, number),)))
    assert acknowledged(effects, up.link) == [up.number - 1, up.number]
    assert acknowledged(effects, other.link) == [other.number]


def test_a_done_duty_is_forgotten_and_taken_again() -> None:
    """Rule 6: a relay judges by duties alone; what comes again goes again, and ends at the end."""
    host, up, down = relay(4)
    for _ in range(2):
        (number,) = numbers(up.hand(event_copy(1, mates(4))), down.link)
        assert acknowledged(down.hand(Done(((number, number),))), up.link) == [up.first]
        assert len(host.events.router.duties) == 0


def test_a_duty_that_is_done_while_others_are_open() -> None:
    """Rule 4: the part of an event that is done is answered at once, though its flight is not over."""
    host, up, down = relay(4)
    other = peer(host, 3)
    other.links_to(6)
    effects = up.hand(event_copy(1, mates(4, 6)))
    (number,) = numbers(effects, down.link)
    assert acknowledged(down.hand(Done(((number, number),))), up.link) == []
    late = other.hand(event_copy(1, mates(4)))
    assert acknowledged(late, other.link) == [other.first]
    assert copies(late, down.link) == []


def test_done_speaks_of_ranges_with_exceptions() -> None:
    """DUP-10: one frame a read in both directions; what a range claims beyond what was sent is nothing."""
    host, up, down = relay(4)
    effects = up.hand(*(event_copy(number, mates(4)) for number in range(1, 7)))
    sent = numbers(effects, down.link)
    assert sequences(effects, down.link) == [1, 2, 3, 4, 5, 6]
    assert len([effect for effect in effects if isinstance(effect, Send) and effect.link == down.link]) == 1
    effects = down.hand(Done(((sent[0], sent[0] + 4),), (bytes([0b00110]),)))
    assert acknowledged(effects, up.link) == [up.first, up.first + 3, up.first + 4]
    assert len(frames(effects, up.link, Done)) == 1
    assert [flight.frame.sequence for flight in host.events.router.duties.flights()] == [2, 3, 6]
    effects = down.hand(Done(((0, 1 << 40),)))
    assert acknowledged(effects, up.link) == [up.first + 1, up.first + 2, up.first + 5]
    assert down.hand(Done(((0, 1 << 40),))) == [], "and once is enough"


def test_entering_a_unit() -> None:
    """Rule 1, ERP-05: a copy for this cluster is for those of its brokers that want it; unknown is wanted."""
    host, one, two = relay()
    three = peer(host, 3)
    one.wants("quotes")
    two.wants("news")
    gate = peer(host, 8, (0, 0, 1, 0))
    effects = gate.hand(event_copy(1, bit((0, 0, 0)), origin=(0, 0, 1, 0)))
    assert [frame.to_serve for _, frame in copies(effects, one.link)] == [mates(1)]
    assert copies(effects, two.link) == []
    assert [frame.to_serve for _, frame in copies(effects, three.link)] == [mates(3)]
    assert copies(effects, gate.link) == [], "ERP-08: not back to where it comes from"
    assert host.statistics().router.expanded == 1


def test_units_below_the_level_of_a_link_cost_the_link() -> None:
    """DST-09, ERP-09: bits of brokers mean nothing outside their cluster."""
    host, up, _ = relay(4)
    gate = peer(host, 8, (0, 0, 1, 0))
    effects = gate.hand(event_copy(1, bit((0, 0, 0)) | mates(4)))
    assert [(link, "below level 1" in reason) for link, reason in closed(effects)] == [(gate.link, True)]
    assert len(host.events.router.duties) == 0
    assert copies(up.hand(event_copy(2, mates(4))), 2) != [], "nobody else suffers"


def test_lower_levels_are_stripped_on_the_way_up() -> None:
    """DST-09, ERP-09: a copy that leaves the cluster carries clusters and above, in both vectors."""
    host, up, _ = relay()
    gate = peer(host, 8, (0, 0, 1, 0))
    effects = up.hand(event_copy(1, bit((0, 0, 1)) | bit((0, 1)), served=mates(1, 9)))
    ((_, sent),) = copies(effects, gate.link)
    assert sent.to_serve == bit((0, 0, 1))
    assert sent.served == bit((0, 0, 0)) | bit((0, 0, 1))
    assert frames(effects, up.link, Refused) == [Refused(((0, 1),))], "there is no way to that super-cluster"
    assert host.statistics().router.refused == 1


def test_an_event_with_a_broken_section() -> None:
    """Its publisher's fault: nobody can match it, so it is done; the relay that passed it on keeps its link."""
    host, up, down = relay(4)
    host.reader(1)
    good = event_copy(1, mates(0, 4))
    bad = good.copy(good.to_serve, 0, good.ttl_ms)
    size = bad.publisher_length
    bad.tail = bytes(good.tail[:size]) + b"\xff" * bad.matching_length + bytes(good.body)
    effects = up.hand(bad)
    assert (closed(effects), delivered(effects)) == ([], [])
    ((number, sent),) = copies(effects, down.link)
    assert sent.to_serve == mates(4), "a relay does not read what it passes on"
    assert acknowledged(down.hand(Done(((number, number),))), up.link) == [up.first]
    gate = peer(host, 8, (0, 0, 1, 0))
    inside = bad.copy(bit((0, 0, 0)), 0, bad.ttl_ms)
    effects = gate.hand(inside)
    assert (closed(effects), acknowledged(effects, gate.link)) == ([], [gate.first])


# --- best effort ---


def test_best_effort_is_passed_on_and_forgotten() -> None:
    host, up, down = relay(4)
    host.reader(1)
    effects = up.hand(event_copy(1, mates(0, 4), reliable=False))
    assert (delivered(effects), sequences(effects, down.link)) == ([1], [1])
    assert frames(effects, up.link, Done) == []
    assert (len(host.events.router.duties), host.stores) == (0, [])


def test_best_effort_that_comes_back_is_stopped() -> None:
    """ERP-08, ERP-14: where maps differ for a moment, the trace ends it; a reliable one waits instead."""
    host, up, down = relay(4)
    effects = up.hand(event_copy(1, mates(4), reliable=False, served=mates(1, 2, 0)))
    assert copies(effects, down.link) == []
    assert host.statistics().router.dropped == 1
    effects = up.hand(event_copy(2, mates(4), served=mates(1, 2, 0)))
    assert sequences(effects, down.link) == [2], "design: the trace chooses nothing for reliable events"


def test_best_effort_without_a_way_is_dropped() -> None:
    host, up, _ = relay()
    effects = up.hand(event_copy(1, mates(4), reliable=False))
    assert frames(effects, up.link, Refused, Done) == []
    assert host.statistics().router.dropped == 1


# --- hops that change ---


def test_open_duties_follow_the_hop_in_order() -> None:
    """Rule 5, DUP-05: by lane, publisher and id, before anything newer; whichever way gets through counts."""
    host, up, down = relay(4)
    other = peer(host, 3)
    urgent = Event(topic="quotes", priority=9)
    effects = up.hand(
        event_copy(1, mates(4)),
        event_copy(2, mates(4)),
        event_copy(5, mates(4), event=urgent),
        event_copy(3, mates(4), publisher="o"),
    )
    old = numbers(effects, down.link)
    other.links_to(4)
    effects = down.hand(
        replace_cost(down, 4),  # the way behind 2 is absent now
        event_copy(4, mates(4)),
    )
    assert sequences(effects, other.link) == [3, 1, 2, 5, 4]
    assert host.statistics().router.sent_again == 4
    new = numbers(effects, other.link)
    assert acknowledged(down.hand(Done(((old[0], old[0]),))), up.link) == [up.first]
    effects = other.hand(Done(((new[0], new[-1]),)))
    assert acknowledged(effects, up.link) == [up.first + 1, up.first + 2, up.first + 3]


def replace_cost(of: EventPeer, number: int) -> Frame:
    """News that a connection behind a peer is absent."""
    return Connections((of.connection_to(number, step=ABSENT),), complete=False)


def test_only_the_duties_whose_hop_changed_go_again() -> None:
    """Rule 5: of a copy for two units only that goes again which moved; the answer to the old copy counts for both."""
    host, up, down = relay(4, 5)
    other = peer(host, 3)
    other.links_to(4)
    (number,) = numbers(up.hand(event_copy(1, mates(4, 5))), down.link)
    effects = down.hand(replace_cost(down, 4))
    ((again, sent),) = copies(effects, other.link)
    assert sent.to_serve == mates(4)
    assert acknowledged(down.hand(Done(((number, number),))), up.link) == [up.first]
    assert acknowledged(other.hand(Done(((again, again),))), up.link) == []
    assert len(host.events.router.duties) == 0


def test_the_same_neighbour_over_a_new_connection() -> None:
    """Rule 5: everything that is open goes again over it, in order, before what is newer."""
    host = Host()
    down = peer(host, 2)
    host.attach(1, "p")
    incarnation = host.attach(2, "p")
    effects = publish(host, 2, *(publication(number, incarnation) for number in (1, 2, 3)))
    sent = numbers(effects, down.link)
    assert sequences(effects, down.link) == [1, 2, 3]
    down.hand(Done(((sent[1], sent[1]),)))
    assert copies(down.leave(), 2) == []
    assert sequences(publish(host, 2, publication(4, incarnation)), 2) == []
    again = EventPeer(host, 7, mate(2), nonce=77)
    effects = again.greet()
    assert sequences(effects, 7) == [1, 3, 4]
    assert sequences(publish(host, 2, publication(5, incarnation)), 7) == [5]


def test_an_upstream_that_goes_takes_its_claims_with_it() -> None:
    """Rule 6: what only it asked for is forgotten; it will send it again, here or elsewhere."""
    host, up, down = relay(4)
    other = peer(host, 3)
    first = numbers(up.hand(event_copy(1, mates(4)), event_copy(2, mates(4))), down.link)
    other.hand(event_copy(2, mates(4)))
    up.leave()
    assert [flight.frame.sequence for flight in host.events.router.duties.flights()] == [2]
    effects = down.hand(Done(((first[0], first[-1]),)))
    assert acknowledged(effects, other.link) == [other.first]


def test_a_waiting_copy_is_taken_back() -> None:
    """DUP-06, FUT-12: what waits for room on a link is taken back when its hop changes, all of it for that unit: the
    copy and what cancels it have met."""
    host, up, down = relay(4, 5)
    other = peer(host, 3)
    other.links_to(4)
    host.handle(LinkRoom(down.link, 0), 0)
    effects = up.hand(*(event_copy(n, units) for n, units in enumerate((mates(4), mates(4, 5), mates(5)), 1)))
    assert copies(effects, down.link) == []
    effects = down.hand(replace_cost(down, 4))
    assert [(frame.sequence, frame.to_serve) for _, frame in copies(effects, other.link)] == [
        (1, mates(4)),
        (2, mates(4)),
    ]
    assert host.statistics().router.taken_back == 2
    sent = copies(host.handle(LinkRoom(down.link, None), 0), down.link)
    assert [(frame.sequence, frame.to_serve) for _, frame in sent] == [(2, mates(5)), (3, mates(5))]
    first = sent[0][0]
    assert [number for number, _ in sent] == [first, first + 1], "what was taken back has left no gap"
    answered = down.hand(Done(((first, first + 1),)))
    assert acknowledged(answered, up.link) == [up.first + 2], "of the second copy one half is still on its way"


def test_an_anti_event_for_what_was_delivered_changes_nothing() -> None:
    """DUP-06: copies already delivered are unaffected."""
    host, up, _ = relay()
    host.reader(1)
    assert delivered(up.hand(event_copy(1, mates(0)))) == [1]
    host.sync()
    assert up.hand(AntiEvent(((up.first, up.first),))) == []
    assert delivered(up.hand(event_copy(1, mates(0)))) == []


def test_what_this_log_keeps_for_an_absent_broker_is_answered() -> None:
    """Hard cases, slow or dead broker: once the entry broker has logged for it no upstream waits, nor one that sends
    again; otherwise a broker that left for ever would hold up its cluster."""
    host = Host(patient(absent_after_ns=5 * SECOND_NS))
    up, mate_of_ours = peer(host, 1, (0, 0, 1, 0)), peer(host, 2)
    mate_of_ours.wants("quotes")
    mate_of_ours.leave()
    host.sync()
    entering = event_copy(1, bit((0, 0, 0)))
    assert acknowledged(up.hand(entering), up.link) == []
    first = up.first
    again = event_copy(1, bit((0, 0, 0)))
    assert acknowledged(up.hand(again, now_ns=SECOND_NS), up.link) == [], "not before it is logged"
    effects = host.run(SECOND_NS, 8 * SECOND_NS)
    assert acknowledged(effects, up.link) == [first, first + 1]
    assert acknowledged(
        up.hand(entering.copy(entering.to_serve, 0, entering.ttl_ms), now_ns=9 * SECOND_NS), up.link
    ) == [up.first]
    assert [entry.frame.to_serve for entry in host.kept.entries] == [mates(2)]


def test_what_this_log_keeps_does_not_answer_who_sent_it_back() -> None:
    """Rules 2 and 4: while maps differ a duty comes back to where it was found. Were this log's word passed on to the
    neighbour, that one's acknowledgement would end the log's own claim, and nobody would have the event."""
    host = Host(patient(absent_after_ns=5 * SECOND_NS))
    up, hop = peer(host, 1, (0, 0, 1, 0)), peer(host, 2)
    hop.wants("quotes")
    (sent,) = numbers(up.hand(event_copy(1, bit((0, 0, 0)))), hop.link)
    first = up.first
    back = event_copy(1, mates(2))
    assert acknowledged(hop.hand(back, now_ns=SECOND_NS), hop.link) == []
    effects = host.run(SECOND_NS, 8 * SECOND_NS)
    assert acknowledged(effects, up.link) == [first], "who had it found here need not wait"
    assert acknowledged(effects, hop.link) == [], "who named it might wait for this very broker"
    again = hop.hand(event_copy(1, mates(2)), now_ns=9 * SECOND_NS)
    assert acknowledged(again, hop.link) == [], "not either when it comes after that"
    assert [entry.frame.to_serve for entry in host.kept.entries] == [mates(2)]
    done = hop.hand(Done(((sent, sent),)), now_ns=9 * SECOND_NS)
    assert len(acknowledged(done, hop.link)) == 2, "once it is done everybody hears of it"


# --- time to live ---


def test_the_time_to_live_runs_while_an_event_waits() -> None:
    """Hard cases, TTL: remaining milliseconds, less at every hop; over means done."""
    host, up, down = relay(4)
    other = peer(host, 3)
    mortal = Event(topic="quotes", ttl=0.1)
    effects = up.hand(event_copy(1, mates(4), event=mortal), event_copy(2, mates(4), event=replace(mortal, ttl=1.0)))
    assert [frame.ttl_ms for _, frame in copies(effects, down.link)] == [100, 1000]
    other.links_to(4)
    effects = down.hand(replace_cost(down, 4), now_ns=150 * MILLISECOND_NS)
    assert [(frame.sequence, frame.ttl_ms) for _, frame in copies(effects, other.link)] == [(2, 850)]
    assert acknowledged(effects, up.link) == [up.first]
    assert host.statistics().router.expired == 1


@pytest.mark.parametrize("reliable", [True, False])
def test_what_arrives_expired_is_done(reliable: bool) -> None:
    """EventFrame.ttl_ms: at 0 the event has expired and its duty is done; clients do not get it."""
    host, up, down = relay(4)
    host.reader(1)
    expired = event_copy(1, mates(0, 4), reliable=reliable)
    expired.ttl_ms = 0
    effects = up.hand(expired)
    assert copies(effects, down.link) == []
    assert acknowledged([*effects, *host.sync()], up.link) == ([up.first] if reliable else [])
    assert delivered(effects) == []


def test_an_event_that_comes_again_and_again_costs_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds: every copy waits for an answer; a peer that repeats one for ever is no upstream."""
    monkeypatch.setattr("veena.core.routing.router.MAX_CLAIMS", 3)
    host, up, _ = relay(4)
    assert closed(up.hand(*(event_copy(1, mates(4)) for _ in range(3)))) == []
    ((link, why),) = closed(up.hand(event_copy(1, mates(4))))
    assert (link, len(host.events.router.duties)) == (up.link, 0)
    assert "comes again and again" in why


def test_a_relay_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds: large events fill a relay before many do."""
    monkeypatch.setattr("veena.core.routing.router.MAX_FLIGHT_BYTES", 2 * len(event_copy(1, 0).tail))
    host, up, down = relay(4)
    effects = up.hand(*(event_copy(number, mates(4)) for number in (1, 2, 3)))
    assert sequences(effects, down.link) == [1, 2]
    (refused,) = frames(effects, up.link, Refused)
    assert refused == Refused((mate(4),), up.first + 2)
    down.hand(Done(((1, 1 << 40),)))
    assert host.events.router.duties.bytes == 0
