"""What a broker remembers: facts by event, stays by client, bounds, the disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.explain_world import AskingStage
from veena.core import journal as records_module
from veena.core.boundary.inputs_effects import Active, ClientDown, ClientUp, Deliver, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Noted
from veena.core.interest.constraint import make_want
from veena.core.journal import SIGN_NS, Records
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import event_key
from veena.core.wire.trace_facts import MAX_FACTS_OF_EVENT, MAX_STAYS_TOLD, MOVED, EventNote, What
from veena.errors import ConfigError
from veena.event import Event, EventId

HOST = (0, 0, 0, 1)
SETTINGS = Settings(records="all")
QUOTES = make_want("topic", "quotes", 4).asked
CODEC = EventCodec(SETTINGS.levels, SETTINGS.fanout)


def make_frame(number: int, publisher: str = "pub", original: tuple[int, int, int] | None = None) -> EventFrame:
    event = Event(topic="quotes", event_id=EventId(publisher, 1, number, 0), timestamp_ns=number, body=b"a body")
    return CODEC.frame(event, reliable=True, original=original)


def make_records(now_ns: int = 1) -> Records:
    return Records(HOST, SETTINGS, now_ns)


def test_facts_in_the_order_in_which_they_happened_without_the_body() -> None:
    records = make_records()
    frame = make_frame(7)
    records.note(frame, What.ACCEPTED, 10, units=(HOST,))
    records.note(frame, What.SENT, 11, units=((0, 0, 0, 2),), peer=(0, 0, 0, 2), connection=5)
    found = records.find(event_key(frame))
    assert found is not None
    assert [(fact.what, fact.at_ns) for fact in found.facts] == [(What.ACCEPTED, 10), (What.SENT, 11)]
    kept = CODEC.read(found.frame)
    assert (kept.id, kept.event().topic, bytes(kept.body)) == (frame.id, "quotes", b"")
    records.check()


def test_an_event_is_found_by_every_id_that_it_had() -> None:
    records = make_records()
    first, again = make_frame(7), make_frame(8, original=(1, 7, 0))
    records.note(again, What.TAKEN, 10)
    records.note(first, What.TAKEN, 11)
    assert records.find(event_key(first)) is records.find(event_key(again)) is not None
    assert records.statistics().events == 1
    records.check()


def test_what_brokers_write_to_each_other_is_not_remembered() -> None:
    records = make_records()
    records.note(make_frame(7, "~0.0.0.2"), What.TAKEN, 10)
    assert records.statistics().events == 0


def test_the_oldest_events_go_first_and_it_is_known_from_when_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_EVENTS", 3)
    records = make_records()
    frames = [make_frame(number) for number in range(5)]
    for number, frame in enumerate(frames):
        records.note(frame, What.TAKEN, 10 + number)
    assert [records.find(event_key(frame)) is None for frame in frames] == [True, True, False, False, False]
    assert records.since_ns == 11
    records.check()


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(CODEC.encode(make_frame(1), 0))
    monkeypatch.setattr(records_module, "MAX_BYTES", 2 * size)
    records = make_records()
    for number in range(10):
        records.note(make_frame(number), What.TAKEN, number)
    assert records.statistics().bytes <= 2 * size
    assert records.find(event_key(make_frame(9))) is not None
    records.check()


def test_facts_about_one_event_are_bounded() -> None:
    records = make_records()
    for number in range(MAX_FACTS_OF_EVENT + 10):
        records.note(make_frame(7), What.TAKEN, number)
    found = records.find(event_key(make_frame(7)))
    assert found is not None
    assert len(found.facts) == MAX_FACTS_OF_EVENT


def test_what_clients_got_goes_to_the_disk_however_many_there_are() -> None:
    """An audit counts deliveries: an event with more receivers than facts are remembered must not look as if lost."""
    records = make_records()
    sessions = range(1, MAX_FACTS_OF_EVENT + 11)
    for session in sessions:
        records.client(ClientUp(session, f"client {session}"), None, 1)
        records.note(make_frame(7), What.DELIVERED, 2, session=session)
    noted = [note.fact.client for note in taken(records, 3).notes if isinstance(note, EventNote)]
    assert noted == [f"client {session}" for session in sessions]


def test_a_stay_from_its_beginning_to_its_end() -> None:
    """ACT-05: with the times at which it was acknowledged up to each level."""
    records = make_records()
    records.client(ClientUp(5, "alice", attributes={"device": "pager"}), None, 10)
    records.client(Subscribe(5, 1, "topic", "quotes", 4), QUOTES, 11)
    records.active([Active(5, 1, 1)], 12)
    records.active([Active(5, 1, 3)], 13)
    records.active([Active(5, 1, 2)], 14)  # it never falls
    (stay,) = records.stays("alice")
    assert (stay.begun_ns, stay.ended_ns, stay.levels) == (11, 0, ((1, 12), (3, 13)))
    assert stay.attributes == {"device": "pager"}
    records.client(Unsubscribe(5, 1), None, 15)
    (stay,) = records.stays("alice")
    assert (stay.ended_ns, stay.ending) == (15, "unsubscribed")
    assert records.stays("bob") == ()
    records.check()


@pytest.mark.parametrize(("lost", "ending"), [(True, "lost"), (False, "left")])
def test_a_session_takes_its_stays_with_it(lost: bool, ending: str) -> None:
    records = make_records()
    records.client(ClientUp(5, "alice"), None, 10)
    for number in (1, 2):
        records.client(Subscribe(5, number, "topic", "quotes", 4), QUOTES, 11)
    records.client(ClientDown(5, lost), None, 20)
    assert [(stay.ended_ns, stay.ending) for stay in records.stays("alice")] == [(20, ending)] * 2
    assert records.statistics().standing == 0
    records.check()


def test_the_latest_stays_are_told_and_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_STAYS", MAX_STAYS_TOLD + 5)
    records = make_records()
    records.client(ClientUp(5, "alice"), None, 1)
    for number in range(1, MAX_STAYS_TOLD + 21):
        records.client(Subscribe(5, number, "topic", "quotes", 4), QUOTES, number)
    told = records.stays("alice")
    assert [stay.number for stay in told] == list(range(21, MAX_STAYS_TOLD + 21))
    assert records.statistics().stays == MAX_STAYS_TOLD + 5
    records.check()


def taken(records: Records, now_ns: int) -> Noted:
    noted = records.take([], now_ns)
    assert noted is not None
    return noted


def test_a_restart_knows_what_was_synced_and_who_was_cut_off_when() -> None:
    records = make_records(100)
    frame = make_frame(7)
    records.note(frame, What.TAKEN, 110)
    records.client(ClientUp(5, "alice"), None, 120)
    records.client(Subscribe(5, 1, "topic", "quotes", 4), QUOTES, 121)
    records.client(ClientUp(-1, "bob"), None, 122)
    records.client(Subscribe(-1, 1, "topic", "quotes", 4), QUOTES, 123)
    noted = [taken(records, 130)]
    assert records.take([], 131) is None
    again = make_records(200)
    again.restore(noted, 200)
    found = again.find(event_key(frame))
    assert found is not None
    assert [fact.at_ns for fact in found.facts] == [110]
    (stay,) = again.stays("alice")
    assert (stay.ended_ns, stay.last_seen_ns) == (200, 130)
    again.client(ClientUp(-1, "bob"), None, 201)
    again.client(Subscribe(-1, 1, "topic", "quotes", 4), QUOTES, 201)
    (kept,) = again.stays("bob")
    assert (kept.begun_ns, kept.ended_ns, kept.durable) == (123, 0, True)
    assert (again.since_ns, again.gaps) == (100, [(130, 200)])
    noted.append(taken(again, 210))
    third = make_records(300)
    third.restore(noted, 300)
    assert third.gaps == [(130, 200), (210, 300)]
    assert third.stays("alice")[0].last_seen_ns == 130
    third.check()


def test_a_durable_subscription_that_moved_has_ended_here() -> None:
    records = make_records()
    records.client(ClientUp(-1, "bob"), None, 10)
    records.client(Subscribe(-1, 1, "topic", "quotes", 4), QUOTES, 11)
    records.moved(-1, 20)
    (stay,) = records.stays("bob")
    assert (stay.ended_ns, stay.ending) == (20, MOVED)


def test_signs_of_life_while_there_are_clients() -> None:
    records = make_records(0)
    assert records.take([], 5 * SIGN_NS) is None
    records.client(ClientUp(5, "alice"), None, 5 * SIGN_NS)
    records.client(Subscribe(5, 1, "topic", "quotes", 4), QUOTES, 5 * SIGN_NS)
    taken(records, 5 * SIGN_NS)
    assert records.take([], 5 * SIGN_NS + 1) is None
    assert taken(records, 6 * SIGN_NS).notes == ()


def test_effects_of_one_input_are_noted_once() -> None:
    """A broker flushes again when something follows from what it sent."""
    records = make_records()
    records.client(ClientUp(5, "alice"), None, 1)
    effects = [Deliver(make_frame(7), ((5, (1,)),))]
    records.take(effects, 10)
    effects.append(Deliver(make_frame(8), ((5, (1,)),)))
    records.take(effects, 10)
    records.take([Deliver(make_frame(9), ((5, (1,)),)), Deliver(make_frame(10), ((5, (1,)),))], 11)
    for number in (7, 8, 9, 10):
        found = records.find(event_key(make_frame(number)))
        assert found is not None
        assert [(fact.what, fact.client) for fact in found.facts] == [(What.DELIVERED, "alice")]


def test_off_remembers_nothing_and_writes_nothing() -> None:
    stage = AskingStage(records="off")
    session = stage.reader("3", "reader")
    stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(100)
    assert stage.bodies[session] == ["x"]
    for broker in stage.world.live():
        assert broker.events.records.statistics().events == broker.events.records.statistics().stays == 0
        assert stage.world.nodes[broker.identity.address].disk.noted == []


def test_what_is_to_be_remembered_must_be_one_of_three() -> None:
    with pytest.raises(ConfigError, match='"deliveries"'):
        replace(SETTINGS, records="some")  # type: ignore[arg-type]


def test_what_leaves_the_log_for_nobody_is_noted() -> None:
    """EXP: what waited in the log for a unit that may have wanted anything is looked at again when there is a way."""
    stage = AskingStage()
    publisher = stage.attach("1", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.wait(8 * SECOND_NS)
    event = stage.publish(publisher, "for whoever is there")
    stage.wait(SECOND_NS)
    stage.world.start(stage.addresses["3"])
    stage.wait(8 * SECOND_NS)
    events, there = stage.broker("1").events, stage.addresses["3"]
    entry = next(each for each in stage.world.nodes[stage.addresses["1"]].disk.entries if each.frame.id == event)
    assert entry.frame.to_serve & events.router.bit(there), "it was out of reach, and might have wanted it"
    events.origin._read_back(entry, events.router.bit(there), stage.world.now_ns)
    record = events.records.find(event_key(entry.frame))
    assert record is not None
    last = record.facts[-1]
    assert (last.what, last.units, last.at_ns) == (What.STOPPED, (there,), stage.world.now_ns)
