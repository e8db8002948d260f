"""Durable subscriptions that follow their client where that is hard: what a random soak found, one case each."""

from __future__ import annotations

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import QUICK, Stage, cluster
from tests.sim.clients.test_durable import publish, two_sites
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import Subscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.durable.subscription import State
from veena.core.messages.kinds import Backlog
from veena.core.wire.event import EventCodec
from veena.core.wire.event_id import ids_of
from veena.event import Event
from veena.sim.world.narrow_links import limit


def state_at(stage: Stage, name: str) -> list[State]:
    return [durable.state for durable in stage.broker(name).events.sessions.durables.all.values()]


def wait_for_state(stage: Stage, name: str, state: State) -> None:
    for _ in range(1000):
        if state in state_at(stage, name):
            return
        stage.wait_ms(10)
    raise AssertionError(f"{name} is {state_at(stage, name)}, not {state}")


def moved(to: str = "z1", **reader: bool) -> tuple[Stage, Reader, int]:
    """A reader that went from w1 to another site, and a publisher."""
    stage = Stage(two_sites(), options=QUICK)
    found = Reader(stage, "alice", **reader)  # type: ignore[arg-type]
    found.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    found.leave()
    found.attach(to)
    return stage, found, publisher


def test_what_is_deleted_before_it_has_moved_is_gone_everywhere() -> None:
    """CLI-05: a client ends its subscription at Y, which has not asked X for anything yet."""
    stage, reader, publisher = moved()
    reader.forget()
    stage.wait(10 * SECOND_NS)
    publish(stage, publisher, 0, 3)
    stage.wait()
    assert reader.read() == []
    assert [broker.statistics().durables.durables for broker in stage.world.live()] == [0] * 8
    assert [broker.profiles.statistics().subscriptions for broker in stage.world.live()] == [0] * 8


def test_what_comes_to_the_former_home_for_others_does_not_overtake() -> None:
    """I3: after X withdrew it sees some of the events because of another client; they go where they belong."""
    stage, reader, publisher = moved()
    other = stage.attach("w1", "bob")
    stage.world.give(stage.addresses["w1"], Subscribe(other, 1, "selector", ("quotes", "n > 5"), 4))
    wait_for_state(stage, "w1", State.LEAVING)
    stage.wait_ms(400)
    for n in range(10):
        stage.publish(publisher, f"{n}", Event(topic="quotes", properties={"n": n}))
    stage.wait_ms(200)
    assert state_at(stage, "w1") == [State.LEAVING], "they came while it was leaving"
    assert stage.bodies[other] == ["6", "7", "8", "9"]
    stage.wait(15 * SECOND_NS)
    assert reader.read() == [f"{n}" for n in range(10)]
    assert not any(frame.late for frame in reader.frames)


def test_what_is_not_on_disk_yet_when_the_client_leaves_is_forwarded() -> None:
    """FLT-05: one event, a few milliseconds before X hears that the client is elsewhere."""

    def moving() -> tuple[Stage, Reader, int]:
        stage = Stage(cluster([(1, 2), (2, 3)]))
        reader = Reader(stage, "alice")
        reader.attach("1")
        publisher = stage.attach("2", "publisher")
        stage.wait()
        reader.leave()
        reader.attach("3")
        return stage, reader, publisher

    stage, _, _ = moving()
    begun_ns = stage.world.now_ns
    while state_at(stage, "1") != [State.LEAVING]:
        stage.wait_ms(1)
    heard_ns = stage.world.now_ns
    for early_ms in range(1, 12):
        stage, reader, publisher = moving()
        stage.wait(heard_ns - begun_ns - early_ms * MILLISECOND_NS)
        sent = publish(stage, publisher, 0, 1)
        stage.wait(8 * SECOND_NS)
        assert reader.read() == sent
        assert state_at(stage, "1") == [State.LEFT]


def test_what_was_overtaken_elsewhere_is_not_lost() -> None:
    """CLI-05: X keeps 0 and is cut off, Y goes on without it and hands over 1, the client comes back to X."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    reader.leave()
    publish(stage, publisher, 0, 1)
    stage.wait()
    stage.world.cut(stage.link("w0", "w1"), silent=False)
    stage.wait_ms(100)
    reader.attach("z1")
    stage.wait(6 * SECOND_NS)
    publish(stage, publisher, 1, 1)
    stage.wait(2 * SECOND_NS)
    assert reader.read() == ["1"]
    reader.leave()
    stage.world.heal(stage.link("w0", "w1"))
    reader.attach("w1")
    stage.wait(30 * SECOND_NS)
    assert reader.read() == ["0"]
    assert [frame.late for frame in reader.frames] == [False, True]
    assert not any(frame.redelivered for frame in reader.frames)


def test_what_was_overtaken_before_the_client_moved_is_not_taken_for_had() -> None:
    """CLI-05: X never had 0, only 1, which is where Y begins; 0 comes to Y late, and nobody else has it."""
    stage = Stage(two_sites(), options=QUICK)
    publisher = stage.attach("x0", "publisher")
    other = stage.subscribe("z1")
    stage.wait()
    publish(stage, publisher, 0, 1)
    stage.wait()
    reader = Reader(stage, "alice")
    reader.attach("w1")
    stage.wait()
    publish(stage, publisher, 1, 1)
    stage.wait()
    assert reader.read() == ["1"]
    reader.leave()
    reader.attach("z1")
    wait_for_state(stage, "w1", State.LEFT)
    stage.wait()
    durables = stage.broker("z1").events.sessions.durables
    (durable,) = durables.here.values()
    zero, one = stage.frames[other]
    assert durable.live.is_below_floor(*ids_of(zero)[0])
    assert durables.intake.keep(one, [durable.session], stage.world.now_ns) == [], "had at X"
    assert durables.intake.keep(zero.late_copy(), [durable.session], stage.world.now_ns) == [(reader.session, 1)]
    assert list(durable.last.items()) == [ids_of(one)[0]], "the next home begins where this one was, not at a late one"


def test_a_home_knows_what_it_kept_itself() -> None:
    """DUP-02: the client was elsewhere for a moment; what was kept there meanwhile was kept here too."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", ack="manual", remembers=False)
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    reader.leave()
    stage.world.cut(stage.link("w0", "w1"), silent=False)
    stage.wait_ms(100)
    reader.attach("z1")
    stage.wait(6 * SECOND_NS)
    reader.leave()
    reader.attach("w1")
    sent = publish(stage, publisher, 0, 3)
    stage.wait(2 * SECOND_NS)
    assert reader.read() == [], "w1 is cut off"
    stage.world.heal(stage.link("w0", "w1"))
    stage.wait(30 * SECOND_NS)
    assert reader.read() == sent
    assert state_at(stage, "z1") == [State.LEFT]


def test_a_straggler_that_was_sent_on_may_come_back() -> None:
    """FLT-05: X sent it after the client, to Y, which is down; the client is with X again when Y sends it back."""
    stage = Stage(cluster([(1, 2), (1, 3), (1, 4)]))
    reader = Reader(stage, "alice")
    reader.attach("2")
    stage.subscribe("2")
    publisher = stage.attach("4", "publisher")
    stage.wait()
    reader.leave()
    reader.attach("3")
    wait_for_state(stage, "2", State.LEFT)
    reader.leave()
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.wait_ms(100)
    sent = publish(stage, publisher, 0, 2)
    stage.wait_ms(100)
    stage.world.crash(stage.addresses["4"], silent=False)
    reader.attach("2")
    stage.wait(20 * SECOND_NS)
    stage.world.start(stage.addresses["3"])
    wait_for_state(stage, "3", State.LEAVING)
    stage.world.start(stage.addresses["4"])
    stage.wait(20 * SECOND_NS)
    assert reader.read() == sent


def test_a_straggler_that_comes_back_goes_on_to_where_the_client_is_now() -> None:
    """FLT-05: the client was with X again and has gone on to Z when Y sends X back what X had sent it long before."""
    stage = Stage(cluster([(1, 2), (1, 3), (1, 4), (1, 5)]))
    reader = Reader(stage, "alice")
    reader.attach("2")
    stage.subscribe("2")
    publisher = stage.attach("4", "publisher")
    stage.wait()
    reader.leave()
    reader.attach("3")
    wait_for_state(stage, "2", State.LEFT)
    reader.leave()
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.wait_ms(100)
    sent = publish(stage, publisher, 0, 2)
    stage.wait_ms(100)
    stage.world.crash(stage.addresses["4"], silent=False)
    for place in ("2", "5"):
        reader.attach(place)
        stage.wait(20 * SECOND_NS)
        assert reader.read() == []
        if place == "2":
            reader.leave()
    assert state_at(stage, "2") == [State.LEFT, State.LEFT]
    stage.world.start(stage.addresses["3"])
    stage.wait(20 * SECOND_NS)
    assert reader.read() == sent


def test_what_lay_too_long_does_not_live_again_elsewhere() -> None:
    """QOS: a time to live goes on in the log; what is left of it goes with an event that follows its client."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    reader.leave()
    for body, ttl in (("short", 4.0), ("long", 60.0), ("ever", None)):
        stage.publish(publisher, body, Event(topic="quotes", ttl=ttl))
    stage.wait(5 * SECOND_NS)
    reader.attach("z1")
    stage.wait(20 * SECOND_NS)
    assert reader.read() == ["long", "ever"]
    assert reader.frames[0].ttl_ms < 55_000


def test_what_a_crashed_home_had_handed_over_is_marked_when_it_moves() -> None:
    """CLI-07: nobody knows after a crash whether it was handed over; whoever gets it is warned."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", ack="manual", remembers=False)
    reader.acknowledges = False
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 3)
    stage.wait()
    assert reader.read() == sent
    stage.world.crash(stage.addresses["w1"], silent=False)
    stage.wait()
    stage.world.start(stage.addresses["w1"])
    reader.attach("z1")
    stage.wait(20 * SECOND_NS)
    assert reader.read() == sent
    assert all(frame.redelivered for frame in stage.frames[reader.session])


def unacknowledged(stage: Stage, reader: Reader) -> list[str]:
    """What a reader gets and does not acknowledge; its library knows that it came."""
    reader.acknowledges = False
    for frame in stage.frames[reader.session]:
        stream, place = (frame.publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        reader.had[stream] = max(place, reader.had.get(stream, place))
    return reader.read()


def test_what_was_not_acknowledged_is_marked_when_it_comes_to_the_next_home_by_itself() -> None:
    """CLI-07: X is silent, so only the client can tell Y that its application may have got the event."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", ack="manual")
    reader.attach("w1")
    other = Reader(stage, "bob")
    other.attach("z1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["z1"], silent=False)
    stage.wait()
    publish(stage, publisher, 0, 1)
    stage.wait()
    assert reader.read() == ["0"], "acknowledged"
    publish(stage, publisher, 1, 2)
    stage.wait()
    assert unacknowledged(stage, reader) == ["1", "2"]
    stage.world.crash(stage.addresses["w1"], silent=False)
    stage.wait()
    publish(stage, publisher, 3, 1)
    stage.world.start(stage.addresses["z1"])
    reader.attach("z1")
    other.attach("z1")
    stage.wait(10 * SECOND_NS)
    assert other.read() == ["0", "1", "2", "3"], "what comes to Y for somebody else comes to all who want it"
    assert reader.read() == ["1", "2", "3"]
    assert [frame.redelivered for frame in stage.frames[reader.session]] == [True, True, False]
    stage.world.start(stage.addresses["w1"])
    stage.wait(30 * SECOND_NS)
    assert state_at(stage, "w1") == [State.LEFT]
    assert reader.read() == [], "X has nothing to add"


def test_what_was_not_acknowledged_is_marked_under_its_next_id() -> None:
    """CLI-07, DUP-08: got at X, which is silent now, and repeated by its publisher when the client is with Y."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", ack="manual")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    first = stage.publish(publisher, "once")
    stage.wait()
    assert unacknowledged(stage, reader) == ["once"]
    stage.world.crash(stage.addresses["w1"], silent=False)
    stage.wait()
    reader.attach("z1")
    stage.wait(10 * SECOND_NS)
    stage.leave(publisher)
    publisher = stage.attach("y0", "publisher")
    stage.publish(publisher, "once", original=(first.incarnation, first.timestamp, first.sequence))
    stage.publish(publisher, "more")
    stage.wait()
    assert reader.read() == ["once", "more"]
    assert [frame.redelivered for frame in stage.frames[reader.session]] == [True, False]


def test_an_original_is_marked_that_comes_after_its_unacknowledged_repetition() -> None:
    """CLI-07, DUP-08: got at X under its second id; X is silent now, and Y gets what went to others under the first."""
    stage = Stage(two_sites(), options=QUICK)
    reader, other = Reader(stage, "alice", ack="manual"), Reader(stage, "bob")
    reader.attach("w1")
    other.attach("z1")
    roaming = stage.attach("x0", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["z1"], silent=False)
    stage.world.crash(stage.addresses["w1"], silent=False)
    stage.wait()
    first = stage.publish(roaming, "once")
    stage.leave(roaming)
    stage.wait()
    stage.world.crash(stage.addresses["x0"], silent=False)
    stage.world.start(stage.addresses["w1"])
    reader.attach("w1")
    roaming = stage.attach("w0", "publisher")
    stage.wait(10 * SECOND_NS)
    stage.publish(roaming, "once", original=(first.incarnation, first.timestamp, first.sequence))
    stage.wait()
    assert unacknowledged(stage, reader) == ["once"]
    stage.world.crash(stage.addresses["w1"], silent=False)
    stage.world.start(stage.addresses["x0"])
    stage.world.start(stage.addresses["z1"])
    reader.attach("z1")
    other.attach("z1")
    stage.publish(roaming, "more")
    stage.wait(20 * SECOND_NS)
    assert sorted(other.read()) == ["more", "once"]
    assert sorted(reader.read()) == ["more", "once"]
    assert [frame.redelivered for frame in stage.frames[reader.session] if bytes(frame.body) == b"once"] == [True]


def test_what_a_roaming_publisher_repeats_is_known_at_the_next_home() -> None:
    """DUP-08: had at X under its first id, repeated under another one when the client is with Y."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", ack="manual", remembers=False)
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    first = stage.publish(publisher, "once")
    stage.wait()
    assert reader.read() == ["once"]
    reader.leave()
    reader.attach("z1")
    stage.wait(10 * SECOND_NS)
    stage.leave(publisher)
    publisher = stage.attach("y0", "publisher")
    stage.publish(publisher, "once", original=(first.incarnation, first.timestamp, first.sequence))
    stage.publish(publisher, "more")
    stage.wait()
    assert reader.read() == ["more"]


def test_who_does_not_read_is_handed_everything_later() -> None:
    """FLT-09: a durable subscription of a session that is clogged stays in the log."""
    stage = Stage(cluster([(1, 2)]))
    reader = Reader(stage, "alice")
    reader.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    stage.world.give(stage.addresses["1"], SessionClogged(reader.session))
    sent = publish(stage, publisher, 0, 50)
    stage.wait()
    assert reader.read() == []
    stage.world.give(stage.addresses["1"], SessionClear(reader.session))
    stage.wait()
    assert reader.read() == sent
    assert stage.broker("1").statistics().outlet.dropped == 0


def test_what_came_by_itself_is_marked_where_the_former_home_did_not_end() -> None:
    """I3, CLI-05: of 0, 1 and 2 X forwards the last alone, since another device has acknowledged the others there, and
    then it is silent. At Y all three came by themselves."""
    stage, reader, publisher = moved()
    stage.world.cut(stage.link("w0", "w1"), silent=False)
    stage.wait_ms(2500)
    publish(stage, publisher, 0, 3)
    stage.wait_ms(500)
    assert reader.read() == [] and state_at(stage, "z1") == [State.ARRIVING]
    node = stage.world.nodes[stage.addresses["z1"]]
    (last,) = [entry.frame for entry in node.disk.entries if bytes(entry.frame.body) == b"2"]
    forwarded = Backlog("alice", "mine", EventCodec(stage.network.levels, stage.network.fanout).encode(last, 0))
    stage.broker("z1").events.sessions.roaming.take_in(forwarded, stage.world.now_ns)
    stage.wait(15 * SECOND_NS)
    assert reader.read() == ["2", "0", "1"]
    assert [frame.late for frame in reader.frames] == [False, True, True]


@pytest.mark.parametrize("ahead_s", [-2, 0, 2, 60])
@pytest.mark.parametrize("slow", [("z0", "z1"), ("y0", "z0")])
def test_what_waits_on_its_way_while_the_client_moves_is_not_lost(slow: tuple[str, str], ahead_s: int) -> None:
    """I1, CLI-05: a link carries less than is published. Wants and their acknowledgements pass the events that wait, so
    X withdraws before they come, and where they enter its units nobody wants them any more."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("z1", "publisher")
    stage.wait(20 * SECOND_NS)  # units that came into reach count as new no more
    limit(stage.world, stage.link(*slow), 4_000)
    sent = [f"{n}" for n in range(600)]
    for body in sent:
        stage.publish(publisher, body, ahead_ns=ahead_s * SECOND_NS)
    stage.wait_ms(100)
    reader.leave()
    reader.attach("y0")
    wait_for_state(stage, "w1", State.LEFT)
    stage.wait(6 * SECOND_NS)
    assert stage.broker("w0").profiles.interest.former == 1, "it has withdrawn"
    assert len(reader.read()) < 400, "many are under way"
    limit(stage.world, stage.link(*slow), None)
    stage.wait(20 * SECOND_NS)
    sent += publish(stage, publisher, 600, 3)
    stage.wait(10 * SECOND_NS)
    reader.read()
    assert sorted(reader.bodies, key=int) == sent
    assert not any(frame.redelivered for frame in reader.frames)


def test_what_came_to_the_former_home_after_it_left_is_handed_over_though_later_ones_were_had_there() -> None:
    """I1, CLI-05: X had 1 and 2, and 0 came there out of a backlog when it had left. All three came to Y by themselves,
    where X is believed to have had everything up to the last that it had; but not what it forwards after that."""
    stage, reader, publisher = moved()
    stage.world.cut(stage.link("w0", "w1"), silent=False)
    stage.wait_ms(2500)
    publish(stage, publisher, 0, 3)
    stage.wait_ms(500)
    assert state_at(stage, "z1") == [State.ARRIVING]
    entries = stage.world.nodes[stage.addresses["z1"]].disk.entries
    first, _, last = [entry.frame for entry in entries if bytes(entry.frame.body) in (b"0", b"1", b"2")]
    frame = EventCodec(stage.network.levels, stage.network.fanout).encode(first.late_copy(), 0)
    sessions = stage.broker("z1").events.sessions
    (durable,) = sessions.durables.all.values()
    sessions.roaming.take_in(Backlog("alice", "mine", frame, straggler=True), stage.world.now_ns)
    had = {ids_of(last)[0][0]: ids_of(last)[0][1]}
    sessions.roaming.open(durable, stage.world.now_ns, had)
    stage.wait_ms(500)
    assert reader.read() == ["0"]


def test_an_old_home_wants_old_events_alone_and_not_for_ever() -> None:
    """CLI-05, I2: new events cross no link for its sake, and after the retention it wants nothing at all."""
    stage = Stage(two_sites(), options=QUICK, settings=Settings(retention_ns=60 * SECOND_NS))
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    reader.leave()
    reader.attach("z1")
    wait_for_state(stage, "w1", State.LEFT)
    stage.wait(20 * SECOND_NS)
    assert [stage.broker(name).profiles.interest.former for name in ("w0", "x0", "x1")] == [1, 1, 1]
    stage.publish(publisher, "new")
    stage.wait()
    assert reader.read() == ["new"]
    assert [there for _, there in stage.hops_of("new")] == ["x1", "y1", "y0", "z0", "z1"]
    stage.wait(60 * SECOND_NS)
    assert [broker.profiles.interest.former for broker in stage.world.live()] == [0] * 8
    assert [broker.profiles.statistics().subscriptions for broker in stage.world.live()] == [0] * 7 + [1]


def test_the_device_that_came_last_keeps_the_subscription_where_another_clock_is_ahead() -> None:
    """Two devices of one client: the first one goes on to a broker whose clock is behind that of the other's."""
    stage = Stage(two_sites(), options=QUICK)
    ahead = stage.addresses["w1"]
    stage.world.set_clock(ahead, 20 * SECOND_NS)
    stage.world.crash(ahead, silent=False)
    stage.world.start(ahead)
    first, second = Reader(stage, "alice", knows_home=False), Reader(stage, "alice", knows_home=False)
    publisher = stage.attach("x0", "publisher")
    first.attach("w1")
    stage.wait()
    second.attach("w1")
    stage.wait_ms(500)
    first.leave()
    first.attach("z1")
    stage.wait(10 * SECOND_NS)
    assert state_at(stage, "w1") in ([State.LEFT], []), "w1 let it go, though its clock is ahead"
    bodies = [f"{n}" for n in range(5)]
    for body in bodies:
        stage.publish(publisher, body)
    stage.wait()
    assert first.read() == bodies
