"""Where an event is accepted: what is refused, when it counts as accepted, what the log is for, and the second copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    codes,
    copies,
    delivered,
    give,
    mate,
    mates,
    numbers,
    origin,
    patient,
    peer,
    publication,
    publish,
    refusals,
    sequences,
)
from veena.core.boundary.inputs_effects import (
    ClientDown,
    ClientRefused,
    ClientUp,
    DeadLetter,
    Deliver,
    Effect,
    Read,
    Stored,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Entry, Progress
from veena.core.publishing.dead_letters import DEAD_LETTERS
from veena.core.wire.control import Connections, Done
from veena.core.wire.event import EventCodec
from veena.errors import RefusalCode
from veena.event import Event, EventId

RETENTION_NS = 30 * SECOND_NS


# --- refusals ---


@pytest.mark.parametrize(
    ("publisher", "shift", "words"),
    [("q", 0, "expected publisher 'p'"), ("p", 1, "the incarnation"), ("p", -1, "the incarnation")],
)
def test_an_event_of_somebody_else(publisher: str, shift: int, words: str) -> None:
    """§9: the publisher id must be the client's; DUP-08: under the incarnation that it was given."""
    host, down, incarnation = origin()
    effects = publish(host, 1, publication(1, incarnation + shift, publisher=publisher))
    (reason,) = refusals(effects)
    assert words in reason and codes(effects) == [RefusalCode.INVALID]
    assert (accepted(effects), copies(effects, down.link), host.kept.entries) == ([], [], [])
    assert host.statistics().origin.refused == 1


def test_an_event_of_a_session_that_is_not_there() -> None:
    host, _, incarnation = origin()
    host.handle(ClientDown(1), 0)
    assert len(refusals(publish(host, 1, publication(1, incarnation)))) == 1


def test_ids_that_go_back() -> None:
    """DUP-03: within a lane each id is later than the one before; another lane has its own order."""
    host, _, incarnation = origin()
    urgent = Event(topic="quotes", priority=9)
    effects = publish(
        host,
        1,
        publication(5, incarnation),
        publication(5, incarnation),
        publication(4, incarnation),
        publication(3, incarnation, event=urgent),
        publication(2, incarnation, reliable=False),
        publication(6, incarnation),
    )
    assert accepted(effects) == [5, 3, 2, 6]
    assert codes(effects) == [RefusalCode.INVALID] * 2
    assert all("not later" in reason for reason in refusals(effects))


@pytest.mark.parametrize("field", ["to_serve", "served"])
def test_destinations_are_for_the_broker_to_compute(field: str) -> None:
    """ERP-02: the client adds no routing information."""
    host, _, incarnation = origin()
    frame = publication(1, incarnation)
    setattr(frame, field, mates(2))
    (reason,) = refusals(publish(host, 1, frame))
    assert "names units" in reason


def test_an_event_that_nobody_can_read() -> None:
    host, _, incarnation = origin()
    frame = publication(1, incarnation)
    frame.tail = bytes(frame.tail[: frame.publisher_length]) + b"\xff" * frame.matching_length
    effects = publish(host, 1, frame)
    assert (len(refusals(effects)), accepted(effects), host.kept.entries) == (1, [], [])


def test_a_client_that_is_refused_cannot_publish() -> None:
    """ClientRefused: nothing changed. So it is not welcomed, and has no incarnation."""
    host, _, _ = origin()
    effects = host.handle(ClientUp(7, "x" * 300), 0)
    assert [effect.session for effect in effects if isinstance(effect, ClientRefused)] == [7]
    assert [effect for effect in effects if isinstance(effect, Welcome)] == []


def test_a_session_number_that_is_in_use_keeps_its_publisher() -> None:
    host, _, incarnation = origin()
    effects = host.handle(ClientUp(1, "q"), 0)
    assert [effect.session for effect in effects if isinstance(effect, ClientRefused)] == [1]
    assert accepted(publish(host, 1, publication(1, incarnation))) == [1]


def test_no_incarnation_is_given_twice() -> None:
    """DUP-08: on each roam and reconnection another one, at this broker and at others, even in one instant."""
    one, other = Host(now_ns=SECOND_NS), Host(now_ns=SECOND_NS, address=mate(1))
    given = [one.attach(session, "p", SECOND_NS) for session in range(1, 50)]
    given += [other.attach(session, "p", SECOND_NS) for session in range(1, 50)]
    assert len(set(given)) == len(given)
    assert given[:49] == sorted(given[:49])
    again = Host(disk=one.kept, now_ns=2 * SECOND_NS)
    assert again.attach(1, "p", 2 * SECOND_NS) > given[48]


# --- acceptance ---


def test_accepted_means_synced() -> None:
    """I5: until the disk has answered nothing is said to anybody: neither to the publisher nor to clients or links."""
    host, down, incarnation = origin()
    host.reader(2)
    effects = give(host, publication(1, incarnation))
    assert (accepted(effects), copies(effects, down.link), delivered(effects)) == ([], [], [])
    (store,) = host.stores
    (entry,) = [write for write in store.writes if isinstance(write, Entry)]
    assert (entry.offset, entry.frame.sequence, entry.frame.to_serve) == (0, 1, mates(0, 2))
    effects = host.sync()
    assert (accepted(effects), sequences(effects, down.link), delivered(effects)) == ([1], [1], [1])


def test_the_broker_adds_where_it_was_published() -> None:
    """ERP-02: the client's frame has no origin and no trace; the first copy has both."""
    host, down, incarnation = origin()
    frame = publication(1, incarnation)
    assert (frame.origin_address, frame.served) == (None, 0)
    ((_, sent),) = copies(publish(host, 1, frame), down.link)
    assert sent.origin_address == host.identity.address
    assert sent.served == mates(0, 2)
    assert sent.to_serve == mates(2)


def test_a_disk_that_fails() -> None:
    """I5: refused with the disk's reason, and routed nowhere; what is published later is taken."""
    host, down, incarnation = origin()
    give(host, publication(1, incarnation))
    give(host, publication(2, incarnation))
    effects = host.fail("no space left")
    (reason,) = refusals(effects)
    assert "no space left" in reason and codes(effects) == [RefusalCode.STORE]
    assert copies(effects, down.link) == []
    effects = host.sync()
    assert (accepted(effects), sequences(effects, down.link)) == ([2], [2])
    assert [entry.frame.sequence for entry in host.kept.entries] == [2]
    assert (host.statistics().origin.accepted, host.statistics().origin.refused) == (1, 1)


def test_events_are_accepted_in_the_order_in_which_they_came() -> None:
    host, down, incarnation = origin()
    for number in (1, 2, 3):
        give(host, publication(number, incarnation))
    effects = host.sync()
    assert (accepted(effects), sequences(effects, down.link)) == ([1, 2, 3], [1, 2, 3])


def test_best_effort_does_not_wait() -> None:
    """§6: best-effort events skip log and acknowledgements."""
    host, down, incarnation = origin()
    effects = give(host, publication(1, incarnation, reliable=False))
    assert (accepted(effects), sequences(effects, down.link)) == ([1], [1])
    assert (host.stores, len(host.events.router.duties)) == ([], 0)


def test_what_nobody_wants_goes_nowhere() -> None:
    """EVT-06: zero clients, no error, and by the interest map no link is crossed."""
    host, down, incarnation = origin()
    down.wants("news")
    effects = publish(host, 1, publication(1, incarnation))
    assert (accepted(effects), copies(effects, down.link)) == ([1], [])
    assert len(host.events.router.duties) == 0


def test_a_publisher_is_told_to_wait_when_too_much_is_open() -> None:
    """Settings.max_open: refused with the reason; taken again when something was delivered."""
    host, down, incarnation = origin(Settings(max_open=2))
    effects = publish(host, 1, *(publication(number, incarnation) for number in (1, 2, 3)))
    assert accepted(effects) == [1, 2]
    assert codes(effects) == [RefusalCode.BUSY]
    assert accepted(publish(host, 1, publication(4, incarnation, reliable=False))) == [4]
    sent = numbers(effects, down.link)
    down.hand(Done(((sent[0], sent[0]),)))
    assert accepted(publish(host, 1, publication(5, incarnation))) == [5]


# --- the log ---


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of four, read back two at a time."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 4)
    monkeypatch.setattr("veena.core.publishing.log.READ_BATCH", 2)


@pytest.mark.usefixtures("narrow")
def test_a_window_and_the_log_behind_it() -> None:
    """§6: a bounded window a unit; what is beyond stays in the log and is read back, in order."""
    host, down, incarnation = origin()
    effects = publish(host, 1, *(publication(number, incarnation) for number in range(1, 11)))
    assert accepted(effects) == list(range(1, 11))
    assert sequences(effects, down.link) == [1, 2, 3, 4]
    assert [effect for effect in effects if isinstance(effect, Read)] == []
    assert host.statistics().origin.parked == 1
    sent = numbers(effects, down.link)
    assert [e for e in down.hand(Done(((sent[0], sent[0]),))) if isinstance(e, Read)] == [], "three of four are open"
    effects = down.hand(Done(((sent[1], sent[1]),)))
    assert [(e.offset, e.limit) for e in effects if isinstance(e, Read)] == [(4, 2)]
    effects = host.read_back(effects)
    assert sequences(effects, down.link) == [5, 6]
    got = [1, 2, 3, 4, 5, 6]
    for _ in range(10):
        effects = down.hand(Done(((0, 1 << 20),)))
        while any(isinstance(effect, Read) for effect in effects):
            effects = host.read_back(effects)
            got += sequences(effects, down.link)
    assert got == list(range(1, 11))
    assert (host.statistics().origin.parked, host.statistics().origin.open) == (0, 0)
    assert sequences(publish(host, 1, publication(11, incarnation)), down.link) == [11]


@pytest.mark.usefixtures("narrow")
def test_what_is_published_while_the_log_is_read_waits_its_turn() -> None:
    """Rule 5: nothing newer overtakes what is parked."""
    host, down, incarnation = origin()
    effects = publish(host, 1, *(publication(number, incarnation) for number in range(1, 7)))
    sent = numbers(effects, down.link)
    effects = down.hand(Done(((sent[0], sent[-1]),)))
    assert sequences(publish(host, 1, publication(7, incarnation)), down.link) == []
    effects = host.read_back(effects)
    assert sequences(effects, down.link) == [5, 6]
    assert sequences(host.read_back(effects), down.link) == [7]


@pytest.mark.usefixtures("narrow")
def test_a_slow_unit_holds_up_no_other() -> None:
    """§6: a cursor and a window a unit; the clients here and 3 get everything while 2 stands still."""
    host, down, incarnation = origin()
    quick = peer(host, 3)
    host.reader(2)
    got: list[int] = []
    here: list[int] = []
    for number in range(1, 11):
        effects = publish(host, 1, publication(number, incarnation))
        here += delivered(effects)
        got += sequences(effects, quick.link)
        quick.hand(Done(((0, 1 << 20),)))
        assert len(sequences(effects, down.link)) == (number <= 4)
    assert got == here == list(range(1, 11))


def restarted(host: Host) -> tuple[Host, EventPeer, list[Effect]]:
    """The same broker after a crash, with the neighbour 2 again, and what it sends then."""
    again = Host(host.settings, host.kept, SECOND_NS)
    down = EventPeer(again, 2, mate(2), SECOND_NS, nonce=2002)
    effects = down.greet(SECOND_NS)
    effects += down.say(Connections((), complete=True), now_ns=SECOND_NS)
    effects += again.sync(SECOND_NS)
    effects += again.tick(2 * SECOND_NS)
    return again, down, effects


def test_a_broker_that_was_there_before_waits_for_what_others_want() -> None:
    """§5: it accepts publishers after its snapshot; before that it would not know whom to send to."""
    host, _, _ = origin()
    again = Host(host.settings, host.kept, SECOND_NS)
    incarnation = again.attach(1, "p", SECOND_NS)
    effects = publish(again, 1, publication(1, incarnation), now_ns=SECOND_NS)
    assert codes(effects) == [RefusalCode.STARTING]
    down = EventPeer(again, 2, mate(2), SECOND_NS, nonce=2002)
    down.greet(SECOND_NS)
    assert len(refusals(publish(again, 1, publication(2, incarnation), now_ns=SECOND_NS))) == 1
    down.say(Connections((), complete=True), now_ns=SECOND_NS)
    assert accepted(publish(again, 1, publication(3, incarnation), now_ns=SECOND_NS)) == [3]


def test_a_restart_sends_what_was_not_served() -> None:
    """I5: an accepted event survives `kill -9` of the broker that accepted it; in order, under its own id."""
    host, down, incarnation = origin()
    effects = publish(host, 1, *(publication(number, incarnation) for number in (1, 2, 3)))
    ids = [frame.id for _, frame in copies(effects, down.link)]
    host, down, effects = restarted(host)
    found = [frame.id for _, frame in copies(host.read_back(effects, 2 * SECOND_NS), down.link)]
    assert found == ids
    incarnation = host.attach(1, "p", 2 * SECOND_NS)
    assert sequences(publish(host, 1, publication(9, incarnation), now_ns=2 * SECOND_NS), down.link) == [9]


def test_a_restart_reads_from_the_cursors() -> None:
    """§6: what a unit has is not sent to it again after a crash, once its cursor is on disk."""
    host, down, incarnation = origin()
    effects = publish(host, 1, *(publication(number, incarnation) for number in (1, 2, 3)))
    sent = numbers(effects, down.link)
    down.hand(Done(((sent[0], sent[1]),)))
    host.tick(2 * SECOND_NS)
    (progress,) = [write for store in host.stores for write in store.writes if isinstance(write, Progress)]
    assert dict(progress.cursors)[mates(2)] == 2
    host.sync(2 * SECOND_NS)
    host, down, effects = restarted(host)
    assert sequences(host.read_back(effects, 2 * SECOND_NS), down.link) == [3]


def test_a_unit_that_is_served_at_once_has_a_cursor_too() -> None:
    """§6: a cursor per map vertex. A unit that always answers within a second has nothing open when cursors are
    written; without one, a restart would send it the whole log again."""
    host, down, incarnation = origin()
    for number in range(1, 6):
        effects = publish(host, 1, publication(number, incarnation), now_ns=number * SECOND_NS)
        down.hand(Done(((0, 1 << 20),)), now_ns=number * SECOND_NS)
        host.tick(number * SECOND_NS + SECOND_NS // 2)
        host.sync(number * SECOND_NS)
    host.tick(7 * SECOND_NS)
    host.sync(7 * SECOND_NS)
    host, down, effects = restarted(host)
    assert sequences(host.read_back(effects, 2 * SECOND_NS), down.link) == []


def test_the_clients_of_a_former_life_are_gone() -> None:
    """What was for clients here is not handed to others who come later."""
    host, _, incarnation = origin()
    publish(host, 1, publication(1, incarnation))
    host, _, effects = restarted(host)
    host.reader(5, now_ns=2 * SECOND_NS)
    assert delivered(host.read_back(effects, 2 * SECOND_NS)) == []


# --- what cannot be delivered ---


def test_what_outlives_its_retention_is_a_dead_letter() -> None:
    """§6: named in an effect, published to the dead-letter topic with the reason, and never sent again."""
    host, down, incarnation = origin(patient(retention_ns=RETENTION_NS))
    host.reader(2, DEAD_LETTERS)
    effects = publish(host, 1, publication(1, incarnation), publication(2, incarnation, reliable=False))
    assert sequences(effects, down.link) == [1, 2]
    assert [e for e in host.run(0, RETENTION_NS) if isinstance(e, DeadLetter)] == []
    effects = host.tick(RETENTION_NS + SECOND_NS)
    (letter,) = [effect for effect in effects if isinstance(effect, DeadLetter)]
    assert (letter.id, letter.units) == (EventId("p", incarnation, 1, 1), (mate(2),))
    assert "retention of 30 s" in letter.reason
    (deliver,) = [effect for effect in effects if isinstance(effect, Deliver)]
    event = deliver.frame.event()
    assert (event.topic, event.headers["event"], event.headers["reason"]) == (
        DEAD_LETTERS,
        str(letter.id),
        letter.reason,
    )
    assert bytes(event.body) == b"e1"
    assert (event.headers["of_topic"], "clearance" in event.headers) == ("quotes", False)
    assert (host.statistics().origin.dead_letters, host.statistics().origin.open) == (1, 0)
    again = EventPeer(host, 7, mate(2), RETENTION_NS + 2 * SECOND_NS, nonce=77)
    assert sequences(again.greet(RETENTION_NS + 2 * SECOND_NS), 7) == []


def test_an_event_as_long_as_any_is_a_dead_letter_without_its_body() -> None:
    """With what a letter says of it, it would be too long: the broker ended over that."""
    settings = replace(patient(retention_ns=RETENTION_NS), max_frame=1024)
    host, _, incarnation = origin(settings)
    host.reader(2, DEAD_LETTERS)
    codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
    event = Event(topic="quotes", body=bytes(900), event_id=EventId("p", incarnation, 1, 1))
    publish(host, 1, codec.frame(event, reliable=True))
    assert len(codec.encode(host.kept.entries[0].frame, 0)) > 1000
    effects = [*host.run(0, RETENTION_NS), *host.tick(RETENTION_NS + SECOND_NS)]
    (letter,) = [effect.frame.event() for effect in effects if isinstance(effect, Deliver)]
    assert (letter.topic, letter.headers["of_topic"], bytes(letter.body)) == (DEAD_LETTERS, "quotes", b"")


def test_what_lies_in_the_log_for_a_unit_that_never_returns() -> None:
    """§6: what outlives its retention goes to the dead letters, also while nobody can read it back."""
    host, _, incarnation = origin(patient(retention_ns=RETENTION_NS))
    publish(host, 1, publication(1, incarnation))
    again = Host(host.settings, host.kept, SECOND_NS)
    effects = again.run(SECOND_NS, 3 * RETENTION_NS)
    assert [effect.id.sequence for effect in effects if isinstance(effect, DeadLetter)] == [1]


def test_a_time_to_live_ends_in_the_log_too() -> None:
    """TTL: an event that waited for a way is not sent when its time is over, and is no dead letter either."""
    host, down, incarnation = origin()
    publish(host, 1, publication(1, incarnation, event=Event(topic="quotes", ttl=1.0)))
    down.leave(SECOND_NS // 2)
    again = EventPeer(host, 7, mate(2), 2 * SECOND_NS, nonce=77)
    effects = again.greet(2 * SECOND_NS)
    assert (sequences(effects, 7), host.statistics().origin.open) == ([], 0)
    assert host.statistics().origin.dead_letters == 0


def test_a_unit_out_of_reach_is_known_for_as_long_as_events_are_kept_for_it() -> None:
    """I1, §6: connections are forgotten sooner; were the wants, too, what is published then would never reach it."""
    hour = 3600 * SECOND_NS
    settings = Settings(tombstone_ns=40 * SECOND_NS, retention_ns=hour)
    host, down, incarnation = origin(settings)
    down.wants("quotes")
    down.leave(SECOND_NS)
    host.sync(SECOND_NS)
    host.run(SECOND_NS, 60 * SECOND_NS)
    assert down.address not in host.map.reachable()
    assert accepted(publish(host, 1, publication(1, incarnation), now_ns=60 * SECOND_NS)) == [1]
    back = EventPeer(host, 9, down.address, 61 * SECOND_NS, nonce=9)
    assert sequences(back.greet(61 * SECOND_NS), back.link) == [1]
    back.leave(62 * SECOND_NS)
    host.run(62 * SECOND_NS, 62 * SECOND_NS + hour)
    assert host.profiles.leases.known() == [], "and forgotten then"


def test_who_wants_it_when_it_is_accepted_gets_it() -> None:
    """I1: 3 came to want it, and knows that this broker has heard of that, while the event was on its way to the disk.
    The log has it for 3 too before it is accepted: a restart sends it to 3 as well."""
    host, down, incarnation = origin()
    down.links_to(3)
    down.wants("news")
    down.wants("news", unit=mate(3))
    host.sync()
    give(host, publication(1, incarnation))
    down.wants("quotes", unit=mate(3))
    first = host.stores.pop(0)
    for write in first.writes:
        host.kept.write(write)
    effects = host.handle(Stored(first.ticket), 0)
    assert accepted(effects) == []
    effects = host.sync()
    assert accepted(effects) == [1]
    assert copies(effects, down.link)[0][1].to_serve == mates(3)
    assert [entry.frame.to_serve for entry in host.kept.entries] == [mates(0), mates(3)]
