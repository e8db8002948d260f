"""Second copies of what a broker looks after for absent units: I5 with `copies = 2`, when upstreams have forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.event_world import QUICK, Stage
from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    acknowledged,
    bit,
    copies,
    event_copy,
    frames,
    mate,
    mates,
    numbers,
    origin,
    patient,
    peer,
    publication,
    publish,
    sequences,
)
from tests.core.scripted_peer import closed
from veena.core.boundary.inputs_effects import LinkRoom
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.control import Done, Release
from veena.core.wire.event import ADOPTED, BACKLOG, COPY, EventFrame
from veena.event import Event
from veena.runtime.networks.file import make_network

TWO = patient(copies=2, takeover_ns=5 * SECOND_NS, absent_after_ns=5 * SECOND_NS)
#: The units that an event enters here, and the neighbour over whom it comes.
CLUSTER, OUTSIDE = (0, 0, 0), (0, 0, 1, 0)


def entered() -> tuple[Host, EventPeer]:
    """A broker whose mate 2 is absent and wants what came in."""
    host = Host(TWO)
    up, absent = peer(host, 1, OUTSIDE), peer(host, 2)
    absent.wants("quotes")
    absent.leave()
    host.sync()
    return host, up


def looked_after(sequence: int, mask: int) -> EventFrame:
    """A copy that mate 1 asks for, of an event of somebody else."""
    frame = event_copy(sequence, mask, origin=OUTSIDE)
    frame.flags |= COPY | BACKLOG
    return frame


def test_upstreams_wait_for_the_second_disk() -> None:
    """I5 with `copies = 2`: who sent it forgets it when it is logged for the absent, so two disks have it before."""
    host, up = entered()
    up.hand(event_copy(1, bit(CLUSTER)))
    first = up.first
    effects = host.run(0, 8 * SECOND_NS)
    ((number, copy),) = copies(effects, up.link)
    assert (copy.flags & (COPY | BACKLOG), copy.to_serve) == (COPY | BACKLOG, mates(2))
    assert acknowledged(effects, up.link) == []
    effects = up.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    assert acknowledged([*effects, *host.sync()], up.link) == [first]


def test_the_holder_is_told_when_the_absent_has_it() -> None:
    host, up = entered()
    up.hand(event_copy(1, bit(CLUSTER)))
    (number,) = numbers(host.run(0, 8 * SECOND_NS), up.link)
    up.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    host.sync()
    back = EventPeer(host, 9, mate(2), 9 * SECOND_NS, nonce=9)
    effects = [*back.greet(9 * SECOND_NS), *host.run(9 * SECOND_NS, 11 * SECOND_NS)]
    assert frames(effects, up.link, Release) == []
    (sent,) = (number for number, frame in copies(effects, back.link) if not frame.flags & COPY)
    effects = [*back.hand(Done(((sent, sent),)), now_ns=11 * SECOND_NS), *host.run(11 * SECOND_NS, 15 * SECOND_NS)]
    assert frames(effects, up.link, Release) == [Release((("p", 1, 1, 1),))]


def test_a_holder_sends_it_to_those_units_alone() -> None:
    """I2, I5: who looked after it is gone; others have had it from somebody else."""
    host, down, _ = origin(TWO)
    one = peer(host, 1)
    one.hand(looked_after(1, mates(2)), looked_after(2, mates(3)))
    host.sync()
    one.leave(SECOND_NS)
    effects = host.run(SECOND_NS, 8 * SECOND_NS)
    ((_, sent),) = copies(effects, down.link)
    assert (sent.sequence, sent.to_serve, sent.flags & (COPY | BACKLOG | ADOPTED)) == (1, mates(2), BACKLOG)
    assert sent.origin_address == OUTSIDE


def test_a_holder_elsewhere_sends_it_to_what_it_sees_of_them() -> None:
    """GPP-06, I5: of another cluster a broker knows the cluster; the way in may be another one by then."""
    asker, gate = (0, 0, 1, 0), (0, 0, 1, 1)
    host = Host(TWO)
    one, other = peer(host, 1, asker), peer(host, 2, gate)
    frame = event_copy(1, mates(1), origin=(0, 0, 2, 0))  # the asker's mate 1, in the asker's own vector
    frame.flags |= COPY | BACKLOG
    one.hand(frame)
    host.sync()
    one.leave(SECOND_NS)
    effects = host.run(SECOND_NS, 8 * SECOND_NS)
    ((_, sent),) = copies(effects, other.link)
    assert (sent.sequence, sent.to_serve) == (1, bit(gate[:3]))


def test_its_origin_and_who_looks_after_it_are_told_apart() -> None:
    """One event may be held for both, and is released by each for himself; and once for two units is not released
    until both have it."""
    host, _, _ = origin(TWO)
    one, outside = peer(host, 1), peer(host, 3, OUTSIDE)
    own = event_copy(1, 0, origin=OUTSIDE)
    own.flags |= COPY
    outside.hand(own)
    one.hand(looked_after(1, mates(2)), looked_after(1, mates(4)))
    host.sync()
    assert sorted(frame.to_serve for frame in host.kept.kept.values()) == [0, mates(2, 4)]
    release = Release((("p", 1, 1, 1),))
    outside.hand(release)
    host.sync()
    assert [frame.to_serve for frame in host.kept.kept.values()] == [mates(2, 4)]
    one.hand(release)
    host.sync()
    assert host.kept.kept == {}


def test_what_one_unit_has_is_released_though_another_is_absent() -> None:
    """`replica_sender`: an event that waits for a slow unit keeps no copy of later events for other units."""
    host, down, incarnation = origin(TWO)
    absent = peer(host, 3)
    absent.wants("alerts")
    host.sync()
    down.wants("quotes")
    ((number, _),) = copies(publish(host, 1, publication(1, incarnation, event=Event(topic="alerts"))), down.link)
    down.hand(Done(((number, number),)))  # and the absent never answers
    effects = publish(host, 1, publication(2, incarnation))
    ((number, _),) = copies(effects, down.link)
    (routed,) = numbers(down.hand(Done(((number, number),))), down.link)
    effects = [*down.hand(Done(((routed, routed),)), now_ns=SECOND_NS), *host.run(SECOND_NS, 5 * SECOND_NS)]
    assert frames(effects, down.link, Release) == [Release((("p", incarnation, 1, 2),))]


def test_a_copy_that_waits_for_room_is_not_taken_back() -> None:
    """DUP-06 is about what is on its way: when the absent is back its event goes straight to it, and the copy that
    waits for room on the holder's link is still what this log's answer hangs on."""
    host = Host(TWO)
    up, absent, holder = peer(host, 1, OUTSIDE), peer(host, 2), peer(host, 3)
    absent.wants("quotes")
    holder.wants("quotes")
    host.sync()
    absent.leave()
    host.sync()
    (sent,) = numbers(up.hand(event_copy(1, bit(CLUSTER))), holder.link)
    holder.hand(Done(((sent, sent),)))
    host.handle(LinkRoom(holder.link, 0), 0)
    host.run(0, 8 * SECOND_NS)
    back = EventPeer(host, 9, mate(2), 9 * SECOND_NS, nonce=9)
    back.greet(9 * SECOND_NS)
    effects = host.handle(LinkRoom(holder.link, 1 << 20), 9 * SECOND_NS)
    assert [frame.to_serve for _, frame in copies(effects, holder.link) if frame.flags & COPY] == [mates(2)]


def test_who_is_absent_does_not_hold_its_own_backlog() -> None:
    """Hard cases, slow broker: its link is open and it does not answer. Another one is asked, and nobody waits."""
    host = Host(TWO)
    up, slow, third = peer(host, 1, OUTSIDE), peer(host, 2), peer(host, 3)
    slow.wants("quotes")
    third.wants("alerts")
    host.sync()
    up.hand(event_copy(1, bit(CLUSTER)))
    effects = host.run(0, 8 * SECOND_NS)
    assert [frame for _, frame in copies(effects, slow.link) if frame.flags & COPY] == []
    (number,) = numbers(effects, third.link)
    effects = third.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    assert acknowledged([*effects, *host.sync()], up.link) == [up.first]


def test_a_holder_that_does_not_answer_is_passed_over() -> None:
    """Its disk or its place for copies may be full: what it does not keep, the next one does."""
    host, down, incarnation = origin(TWO)
    other = peer(host, 3)
    other.wants("alerts")
    ((_, copy),) = copies(publish(host, 1, publication(1, incarnation)), down.link)
    assert copy.flags & COPY
    effects = host.run(0, 4 * SECOND_NS)
    assert copies(effects, other.link) == []
    effects = host.run(4 * SECOND_NS, 8 * SECOND_NS)
    (number,) = numbers(effects, other.link)
    effects = other.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    assert accepted(effects) == [1]
    assert sequences(publish(host, 1, publication(2, incarnation), now_ns=9 * SECOND_NS), other.link) == [2]


def test_where_nobody_else_is_there_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that was full has room again: it has forgotten what it was asked for."""
    monkeypatch.setattr("veena.core.publishing.replica_holder.MAX_KEPT", 1)
    asker, holder, incarnation = origin(TWO)
    first = publish(asker, 1, publication(1, incarnation), publication(2, incarnation))
    one, two = numbers(first, holder.link)
    holder.hand(Done(((one, one),)))
    effects = asker.run(0, 8 * SECOND_NS)
    (again,) = (number for number, frame in copies(effects, holder.link) if frame.flags & COPY)
    assert again > two
    effects = holder.hand(Done(((again, again),)), now_ns=8 * SECOND_NS)
    assert accepted(effects) == [2]


def test_a_release_does_not_overtake_what_is_asked_again_under_its_key() -> None:
    """One event for two units, one after the other: what is served of the first must not drop the second's copy."""
    host, up = entered()
    up.hand(event_copy(1, bit(CLUSTER)))
    (number,) = numbers(host.run(0, 8 * SECOND_NS), up.link)
    up.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    host.sync()
    asked = host.events.copies
    asked.look(lambda unit, synced: 1, 1, 0)
    again = event_copy(1, mates(3))
    again.flags |= BACKLOG
    asked.ask(99, again, 8 * SECOND_NS)
    effects = host.run(8 * SECOND_NS, 10 * SECOND_NS)
    assert [frame.to_serve for _, frame in copies(effects, up.link)] == [mates(3)]
    assert frames(effects, up.link, Release) == []


@pytest.mark.parametrize("how", ["no origin", "best effort", "nobody", "broken", "not printable", "no text"])
def test_a_copy_that_could_never_be_published_costs_the_link(how: str) -> None:
    """Trust: it would fail when it is published, at this broker and after each of its starts."""
    host, _, _ = origin(TWO)
    one = peer(host, 1)
    frame = looked_after(1, 0 if how == "nobody" else mates(2))
    if how == "no origin":
        frame = event_copy(1, mates(2), origin=None)
    elif how == "best effort":
        frame = event_copy(1, mates(2), origin=OUTSIDE, reliable=False)
    elif how == "broken":
        frame.matching_length = 3
    elif how in ("not printable", "no text"):
        frame.tail = (b"\0" if how == "not printable" else b"\xff") + bytes(frame.tail[1:])
    frame.flags |= COPY | BACKLOG
    ((link, why),) = closed(one.hand(frame))
    assert (link, len(host.events.kept_copies)) == (one.link, 0)
    assert "could never be published" in why
    host.sync()
    host.run(0, 3 * SECOND_NS)
    assert host.kept.kept == {}


def test_what_nobody_can_read_is_looked_after_on_one_disk() -> None:
    """A publisher's id that is no text: a holder would close the link over it."""
    host, up = entered()
    bad = event_copy(1, bit(CLUSTER))
    up.hand(event_copy(2, bit(CLUSTER)))
    bad.tail = b"\xff" + bytes(bad.tail[1:])
    up.hand(bad)
    effects = host.run(0, 8 * SECOND_NS)
    assert sequences(effects, up.link) == [2]


def test_copies_for_the_absent_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long absence must not stop its cluster: beyond the bound the oldest is given up, and one disk has it."""
    monkeypatch.setattr("veena.core.publishing.replica_sender.MAX_FOR_ABSENT", 2)
    host, up = entered()
    for number in (1, 2, 3):
        up.hand(event_copy(number, bit(CLUSTER)))
    effects = host.run(0, 8 * SECOND_NS)
    assert sequences(effects, up.link) == [1, 2, 3]
    one, *_, three = numbers(effects, up.link)
    answered = acknowledged(up.hand(Done(((one, three),)), now_ns=8 * SECOND_NS) + host.sync(), up.link)
    assert len(answered) == 3
    effects = host.run(8 * SECOND_NS, 22 * SECOND_NS)
    assert frames(effects, up.link, Release) == [Release((("p", 1, 1, 1),))]
    assert host.statistics().copies.given_up == 1


def test_the_loss_of_who_looked_after_it() -> None:
    """I5 with `copies = 2`: b1 lets events into b for b2, which is cut off, and is lost for good. When b2 is back, by
    another way, it gets them."""
    names = ["S.C.a.a1", "S.C.a.a2", "S.C.b.b1", "S.C.b.b2"]
    links = [("S.C.a.a1", "S.C.a.a2"), ("S.C.a.a1", "S.C.b.b1"), ("S.C.b.b1", "S.C.b.b2"), ("S.C.a.a2", "S.C.b.b2")]
    options = replace(QUICK, dial=False)  # or the two would find each other before that
    network = make_network("looked-after", names, links)
    stage = Stage(network, options=options, settings=Settings("looked-after", copies=2))
    reader = stage.subscribe("b2")
    publisher = stage.attach("a1", "publisher")
    stage.wait()
    for pair in (("b1", "b2"), ("a2", "b2")):
        stage.world.cut(stage.link(*pair), silent=False)
    stage.wait_ms(100)
    for body in ("e0", "e1", "e2"):
        stage.publish(publisher, body)
    stage.wait(8 * SECOND_NS)
    assert stage.broker("a1").events.origin.statistics().open == 0, "the origin has been told that all is done"
    stage.world.crash(stage.addresses["b1"], silent=False)
    stage.wait(10 * SECOND_NS)
    stage.world.heal(stage.link("a2", "b2"))
    stage.wait(20 * SECOND_NS)
    assert stage.bodies[reader] == ["e0", "e1", "e2"]
