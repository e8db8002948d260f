"""Second copies: with `copies = 2` an accepted event survives the loss of any one disk, and is not given twice."""

from __future__ import annotations

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    acknowledged,
    bit,
    copies,
    delivered,
    event_copy,
    frames,
    give,
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
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Kept, Released
from veena.core.wire.control import Done, Release
from veena.core.wire.event import ADOPTED, COPY, EventFrame
from veena.core.wire.event_id import event_key

RETENTION_NS = 30 * SECOND_NS


TWO = patient(copies=2, takeover_ns=5 * SECOND_NS)


def test_acceptance_waits_for_the_second_disk() -> None:
    """I5 with `copies = 2`: both disks have it, whichever answers first, before anything is said or routed."""
    for disk_first in (True, False):
        host, down, incarnation = origin(TWO)
        effects = give(host, publication(1, incarnation))
        ((number, copy),) = copies(effects, down.link)
        assert copy.flags & COPY
        assert copy.to_serve == 0
        if disk_first:
            assert accepted(host.sync()) == []
            effects = down.hand(Done(((number, number),)))
        else:
            assert accepted(down.hand(Done(((number, number),)))) == []
            effects = host.sync()
        assert accepted(effects) == [1]
        ((_, routed),) = copies(effects, down.link)
        assert (routed.flags & COPY, routed.to_serve) == (0, mates(2))


def test_nothing_is_accepted_without_a_second_disk() -> None:
    """`replica_sender`: the invariant; the first neighbour that comes is asked."""
    host = Host(TWO)
    incarnation = host.attach(1, "p")
    assert accepted(publish(host, 1, publication(1, incarnation), publication(2, incarnation))) == []
    down = EventPeer(host, 2, mate(2), nonce=2)
    effects = down.greet()
    assert [(frame.sequence, bool(frame.flags & COPY)) for _, frame in copies(effects, 2)] == [(1, True), (2, True)]
    sent = numbers(effects, 2)
    effects = [*down.hand(Done(((sent[0], sent[1]),))), *host.sync()]  # the log has them for the newcomer too, before
    assert accepted(effects) == [1, 2]


def test_a_holder_that_is_lost_before_it_answers() -> None:
    """`replica_sender`: the next neighbour is asked, in order; acceptance stays in order."""
    host, down, incarnation = origin(TWO)
    other = peer(host, 3)
    effects = publish(host, 1, publication(1, incarnation), publication(2, incarnation))
    assert (sequences(effects, down.link), copies(effects, other.link)) == ([1, 2], [])
    effects = down.leave()
    assert sequences(effects, other.link) == [1, 2]
    one, two = numbers(effects, other.link)
    effects = other.hand(Done(((two, two),)))
    assert accepted(effects) == [], "1 came first"
    (again,) = numbers(effects, other.link)
    assert again > two > one, "there was no room for it before 2, so it is asked for again"
    assert accepted(other.hand(Done(((again, again),)))) == [1, 2]


def test_a_neighbour_of_the_cluster_is_asked_first() -> None:
    host = Host(TWO)
    gate, near = peer(host, 1, (0, 0, 1, 0)), peer(host, 2, mate(5))
    incarnation = host.attach(1, "p")
    effects = publish(host, 1, publication(1, incarnation))
    assert (copies(effects, gate.link), sequences(effects, near.link)) == ([], [1])


def test_a_holder_is_kept_while_it_can_be() -> None:
    """`replica_sender`: a neighbour that comes later is no reason to give everything away again."""
    host, down, incarnation = origin(TWO)
    publish(host, 1, publication(1, incarnation))
    lower = peer(host, 9, mate(1))
    effects = publish(host, 1, publication(2, incarnation))
    assert ([n for n, frame in copies(effects, lower.link) if frame.flags & COPY], sequences(effects, down.link)) == (
        [],
        [2],
    )


def test_the_holder_may_forget_what_is_served() -> None:
    """`replica_sender`: Release when every unit has it, and not before."""
    host, down, incarnation = origin(TWO)
    ((number, _),) = copies(publish(host, 1, publication(1, incarnation)), down.link)
    effects = down.hand(Done(((number, number),)))
    (routed,) = numbers(effects, down.link)
    assert frames(host.tick(SECOND_NS), down.link, Release) == []
    effects = down.hand(Done(((routed, routed),)), now_ns=SECOND_NS)
    effects += host.run(SECOND_NS, 5 * SECOND_NS)
    assert frames(effects, down.link, Release) == [Release((("p", incarnation, 1, 1),))]


def kept_copy(sequence: int, at: int = 1) -> EventFrame:
    """A second copy of an event of another broker."""
    frame = event_copy(sequence, 0, origin=mate(at))
    frame.flags |= COPY
    return frame


def test_a_holder_answers_when_its_disk_has_it() -> None:
    """I5: the second copy is on a disk, too; it is not routed and not delivered."""
    host, down, _ = origin(TWO)
    host.reader(2)
    one = peer(host, 1)
    frame = kept_copy(1)
    effects = one.hand(frame)
    assert (acknowledged(effects, one.link), copies(effects, down.link), delivered(effects)) == ([], [], [])
    assert [type(write) for store in host.stores for write in store.writes if isinstance(write, Kept)] == [Kept]
    effects = host.sync()
    assert acknowledged(effects, one.link) == [one.first]
    assert list(host.kept.kept) == [event_key(frame)]
    assert one.hand(Release((("p", 1, 1, 1),)))[-1].writes == (Released((event_key(frame),)),)  # type: ignore[union-attr]
    host.sync()
    assert host.kept.kept == {}


def test_a_holder_publishes_for_an_origin_that_is_gone() -> None:
    """I5 with `copies = 2`: after `takeover_ns`, in order, under the old id and origin; after a restart too."""
    host, down, _ = origin(TWO)
    host.reader(2)
    one = peer(host, 1)
    one.hand(kept_copy(1), kept_copy(2))
    host.sync()
    one.leave(SECOND_NS)
    effects = host.run(SECOND_NS, 5 * SECOND_NS)
    assert (copies(effects, down.link), delivered(effects)) == ([], [])
    effects = host.run(5 * SECOND_NS, 8 * SECOND_NS)
    assert (sequences(effects, down.link), delivered(effects)) == ([1, 2], [1, 2])
    assert {frame.origin_address for _, frame in copies(effects, down.link)} == {mate(1)}
    assert {frame.flags & (COPY | ADOPTED) for _, frame in copies(effects, down.link)} == {ADOPTED}
    assert host.kept.kept == {}
    assert [entry.frame.sequence for entry in host.kept.entries] == [1, 2], "it is in this log now"


def test_a_kept_copy_grows_old() -> None:
    """QOS-02: the time to live runs while a holder keeps the event; over, nobody gets it."""
    host, down, _ = origin(TWO)
    host.reader(2)
    one = peer(host, 1)
    short, long = kept_copy(1), kept_copy(2)
    short.ttl_ms, long.ttl_ms = 3000, 60_000
    one.hand(short, long)
    host.sync()
    one.leave(SECOND_NS)
    effects = host.run(SECOND_NS, 9 * SECOND_NS)
    assert (sequences(effects, down.link), delivered(effects)) == ([2], [2])
    ((_, sent),) = copies(effects, down.link)
    assert 50_000 < sent.ttl_ms < 56_000


def test_a_holder_in_another_cluster_publishes_too() -> None:
    """I5: the origin is lost and its cluster lives on, seen from here through another gate. Who wants it in the cluster
    within a scope that ends there is not told here: so it goes there in any case."""
    lost, gate = (0, 0, 1, 0), (0, 0, 1, 1)
    host = Host(TWO)
    one, other = peer(host, 1, lost), peer(host, 2, gate)
    other.wants(unit=gate[:3])
    frame = event_copy(1, 0, origin=lost)
    frame.flags |= COPY
    one.hand(frame)
    host.sync()
    effects = host.run(0, 10 * SECOND_NS)
    assert sequences(effects, other.link) == [], "its origin lives"
    one.leave(10 * SECOND_NS)
    effects = host.run(10 * SECOND_NS, 17 * SECOND_NS)
    ((_, sent),) = copies(effects, other.link)
    assert (sent.sequence, sent.to_serve, sent.origin_address) == (1, bit(gate[:3]), lost)


def test_an_origin_that_is_back_in_time_is_left_alone() -> None:
    host, down, _ = origin(TWO)
    one = peer(host, 1)
    one.hand(kept_copy(1))
    host.sync()
    one.leave(SECOND_NS)
    host.run(SECOND_NS, 4 * SECOND_NS)
    EventPeer(host, 9, mate(1), 4 * SECOND_NS, nonce=9).greet(4 * SECOND_NS)
    effects = host.run(4 * SECOND_NS, 20 * SECOND_NS)
    assert copies(effects, down.link) == []
    assert len(host.kept.kept) == 1


def test_a_release_that_was_lost_does_not_publish_old_events_again() -> None:
    """§6: an origin never sends again what is older than R, ends forget after 2 R. A copy whose Release was lost with
    its connection must not be published when its origin is lost much later: its clients would get it twice."""
    settings = patient(copies=2, takeover_ns=5 * SECOND_NS, retention_ns=RETENTION_NS)
    host, down, _ = origin(settings)
    one = peer(host, 1)
    one.hand(kept_copy(1))
    host.sync()
    host.run(0, 3 * RETENTION_NS)
    one.leave(3 * RETENTION_NS)
    effects = host.run(3 * RETENTION_NS, 4 * RETENTION_NS)
    assert sequences(effects, down.link) == []


def world_of_two_copies() -> Stage:
    """0 publishes; 1 and 2 can hold; 3 listens, behind 1 and 2."""
    network = cluster([(0, 1), (0, 2), (1, 3), (2, 3), (1, 2)])
    return Stage(network, settings=Settings("small", copies=2, takeover_ns=5 * SECOND_NS))


def test_the_loss_of_the_accepting_disk() -> None:
    """I5 with `copies = 2`: 0 accepts, and is gone for good before anybody was sent anything."""
    stage = world_of_two_copies()
    reader = stage.subscribe("3")
    stage.wait()
    publisher = stage.attach("0", "p")
    for other in ("1", "2"):
        stage.world.cut(stage.link(other, "3"), silent=True)
    for body in ("e0", "e1"):
        stage.publish(publisher, body)
    stage.wait_ms(200)
    assert len(stage.accepted) == 2
    stage.world.crash(stage.addresses["0"], silent=False)
    for other in ("1", "2"):
        stage.world.heal(stage.link(other, "3"))
    stage.wait(20 * SECOND_NS)
    assert stage.bodies[reader] == ["e0", "e1"]


def test_two_holders_of_one_publisher() -> None:
    """I5 with `copies = 2`: e0 is held by 1, e1 by 2, because 0 lost its link to 1 in between. When 0 is lost, the two
    publish without knowing of each other: whichever comes first, the other one must not be taken for had."""
    stage = world_of_two_copies()
    reader = stage.subscribe("3")
    stage.wait()
    publisher = stage.attach("0", "p")
    stage.world.cut(stage.link("1", "3"), silent=False)
    stage.world.cut(stage.link("2", "3"), silent=False)
    stage.wait(SECOND_NS)
    stage.publish(publisher, "e0")
    stage.wait_ms(200)
    stage.world.cut(stage.link("0", "1"), silent=False)
    stage.wait_ms(200)
    stage.publish(publisher, "e1")
    stage.wait_ms(200)
    assert len(stage.accepted) == 2
    assert all(len(stage.broker(name).events.kept_copies) for name in ("1", "2")), "both hold something"
    stage.world.crash(stage.addresses["0"], silent=False)
    stage.wait_ms(100)
    # 3 hears 2 first, and 1 long after it.
    stage.world.heal(stage.link("2", "3"))
    stage.world.cut(stage.link("1", "2"), silent=False)
    stage.wait(15 * SECOND_NS)
    stage.world.heal(stage.link("1", "3"))
    stage.wait(20 * SECOND_NS)
    assert sorted(stage.bodies[reader]) == ["e0", "e1"]


def test_a_wrong_takeover_gives_nothing_twice() -> None:
    """`replica_sender`: a cut link and a lost disk look alike from outside; both send, ends drop what they have had."""
    stage = world_of_two_copies()
    reader = stage.subscribe("3")
    stage.wait()
    publisher = stage.attach("0", "p")
    for other in ("1", "2"):
        stage.world.cut(stage.link(other, "3"), silent=True)
    for body in ("e0", "e1"):
        stage.publish(publisher, body)
    stage.wait_ms(200)
    for other in ("1", "2"):
        stage.world.cut(stage.link("0", other), silent=False)
        stage.world.heal(stage.link(other, "3"))
    stage.wait(15 * SECOND_NS)
    assert stage.bodies[reader] == ["e0", "e1"], "the holder has taken over"
    for other in ("1", "2"):
        stage.world.heal(stage.link("0", other))
    stage.publish(publisher, "e2")
    stage.wait(15 * SECOND_NS)
    assert stage.bodies[reader] == ["e0", "e1", "e2"]
    assert stage.is_idle()


def test_a_holder_that_was_only_suspected_is_asked_again() -> None:
    """I5 with `copies = 2`: the only neighbour is silent for a while, and what is published meanwhile finds nobody to
    ask. It comes back over the same connection, nothing opens or closes: what waits is sent to it all the same, or
    this broker would never accept anything again."""
    stage = Stage(cluster([(0, 1)]), settings=Settings("small", copies=2))
    reader = stage.subscribe("1")
    stage.wait()
    publisher = stage.attach("0", "p")
    link = stage.link("0", "1")
    session = link.session
    stage.world.cut(link, silent=True)
    stage.wait_ms(4500)
    stage.publish(publisher, "e0")
    stage.wait_ms(500)
    stage.world.heal(link)
    stage.wait(5 * SECOND_NS)
    assert link.session is session, "suspected, and cleared"
    stage.publish(publisher, "e1")
    stage.wait(5 * SECOND_NS)
    assert len(stage.accepted) == 2
    assert stage.bodies[reader] == ["e0", "e1"]


# --- peers that overreach ---


def test_a_copy_of_somebody_elses_event_costs_the_link() -> None:
    """Trust: an origin asks for its own events; a neighbour cannot fill this disk in others' names."""
    host, down, _ = origin(TWO)
    ((link, why),) = closed(down.hand(kept_copy(1, at=5)))
    assert (link, len(host.events.kept_copies)) == (down.link, 0)
    assert "an origin asks for its own" in why


def test_only_the_origin_releases_its_copies() -> None:
    host, down, _ = origin(TWO)
    other = peer(host, 3)
    down.hand(kept_copy(1, at=2))
    host.sync()
    release = Release((("p", 1, 1, 1),))
    other.hand(release)
    assert len(host.events.kept_copies) == 1
    down.hand(release)
    assert len(host.events.kept_copies) == 0


def test_copies_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is not answered, so nothing is accepted that only one disk has."""
    size = len(kept_copy(1).tail)
    monkeypatch.setattr("veena.core.publishing.replica_holder.MAX_KEPT_BYTES", 2 * size)
    host, down, _ = origin(TWO)
    effects = down.hand(*(kept_copy(number, at=2) for number in (1, 2, 3)))
    first = down.first
    assert acknowledged(effects + host.sync(), down.link) == [first, first + 1]
    assert len(host.events.kept_copies) == 2
    down.hand(Release((("p", 1, 1, 1),)))
    down.hand(kept_copy(3, at=2))
    assert acknowledged(host.sync(), down.link) == [down.first]
