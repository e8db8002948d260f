"""What a session has had otherwise: said by its client, handed to a session before it, or out of logs."""

from __future__ import annotations

import pytest

from tests.core.scripted_events import Host, delivered, event_copy, mates, peer
from tests.core.test_plain_way import READERS, Lone, frame_of, wants
from veena.core.boundary import ClientDown, Deliver
from veena.core.disk import EventKey, Stream
from veena.core.event_frame import EventFrame
from veena.core.flight import event_key
from veena.core.had_before import MAX_FORMERS, HadBefore

HEIR, OTHER, FORMER = 1, 2, -5


def here(sequence: int, **how: object) -> EventFrame:
    return event_copy(sequence, mates(0), **how)  # type: ignore[arg-type]


def keys(count: int, incarnation: int = 1) -> list[EventKey]:
    return [(b"p", incarnation, 7, sequence) for sequence in range(count)]


@pytest.mark.parametrize("alone", [True, False])
def test_an_heir_gets_what_it_has_not_had_and_late_what_its_past_overtook(alone: bool) -> None:
    """DUP-02, I3: 3 came out of a log; 2 is older than the past, 4 is new. Nobody else is concerned."""
    host = Host()
    up = peer(host, 1)
    host.reader(HEIR)
    if not alone:
        host.reader(OTHER)
    host.sync()
    third = here(3)
    stream: Stream = (third.publisher, third.incarnation, third.lane_number)
    host.events.ends.before.inherit(HEIR, FORMER, [event_key(third)], {stream: (third.timestamp, third.sequence)})
    effects = [*up.hand(here(2), third, here(4)), *host.sync()]
    got: dict[int, list[tuple[int, bool]]] = {}
    for effect in effects:
        if isinstance(effect, Deliver):
            for session, _ in effect.receivers:
                got.setdefault(session, []).append((effect.frame.sequence, effect.frame.late))
    assert got.pop(HEIR) == [(2, True), (4, False)]
    assert got == ({} if alone else {OTHER: [(2, False), (3, False), (4, False)]})


def test_an_heir_is_not_handed_the_original_of_what_came_as_a_repetition() -> None:
    """DUP-02: the log had it under another id; the original comes as any new event would."""
    host = Host()
    up = peer(host, 1)
    host.reader(HEIR)
    host.sync()
    host.events.ends.before.inherit(HEIR, FORMER, [event_key(here(3))], {})
    assert delivered([*up.hand(here(2), here(3), here(4)), *host.sync()]) == [2, 4]


@pytest.mark.parametrize("alone", [True, False])
def test_bursts_are_looked_at_where_an_heir_has_something_of_them(alone: bool) -> None:
    """Events that come together come to the same as one by one: 3 was had, and nothing before 5 is in its order."""
    lone = Lone()
    frames = [frame_of(lone, number, reliable=True) for number in range(1, 8)]
    for session in READERS:
        wants(lone, session, 1)
    fifth = frames[4]
    stream: Stream = (fifth.publisher, fifth.incarnation, fifth.lane_number)
    last = {stream: (fifth.timestamp, fifth.sequence)}
    lone.broker.events.ends.before.inherit(READERS[0], FORMER, [event_key(frames[2]), event_key(fifth)], last)
    lone.publish(frames, alone)
    got = {session: [each.sequence for each, _, _ in found] for session, found in lone.delivered.items()}
    everything = [1, 2, 3, 4, 5, 6, 7]
    assert got == {READERS[0]: [1, 2, 4, 6, 7], READERS[1]: everything, READERS[2]: everything}


def test_what_is_inherited_goes_with_the_session() -> None:
    host = Host()
    host.reader(HEIR)
    before = host.events.ends.before
    before.inherit(HEIR, FORMER, keys(3), {})
    assert before.ids == 3
    host.handle(ClientDown(HEIR), 0)
    assert before.ids == 0
    assert not before


def test_the_ids_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who inherited first loses first, and never who comes just now; whose events were had stays known."""
    monkeypatch.setattr("veena.core.had_before.MAX_IDS", 10)
    before = HadBefore()
    for session in (1, 2, 3):
        before.inherit(session, -session, keys(4, session), {("p", session, 0): (7, 3)})
    assert before.ids == 8
    nobody: frozenset[int] = frozenset()
    assert [before.has(session, (), (b"p", session, 7, 0), nobody) for session in (1, 2, 3)] == [False, True, True]
    assert before.has(1, (), None, frozenset([-1]))
    assert before.is_plain(1, ("p", 1, 0), (7, 0))
    before.inherit(2, -4, keys(12, 4), {})
    assert before.ids == 16, "the newest is held whole"
    assert before.has(2, (), (b"p", 2, 7, 0), nobody)
    for former in range(2 * MAX_FORMERS):
        before.inherit(2, -100 - former, (), {})
    assert [before.has(2, (), None, frozenset([each])) for each in (-4, -100 - MAX_FORMERS)] == [False, True]
    for session in (1, 2, 3):
        before.detach(session)
    assert before.ids == 0


def test_what_a_client_says_of_itself_is_told_apart_by_stream() -> None:
    """DUP-02: the last place of a stream, and single events that it had before their time."""
    before, stream = HadBefore(), ("p", 1, 0)
    before.attach(1, {stream: (7, 3)}, frozenset([(("q", 1, 0), (9, 9))]))
    nobody: frozenset[int] = frozenset()
    assert before.has(1, ((stream, (7, 3)),), None, nobody)
    assert not before.has(1, ((stream, (7, 4)),), None, nobody)
    assert before.has(1, ((("q", 1, 0), (9, 9)),), None, nobody)
    assert not before.has(1, ((("q", 1, 0), (9, 8)),), None, nobody)
    assert not before.has(2, ((stream, (7, 3)),), None, nobody)
    assert not before.is_plain(1, stream, (8, 0))
    assert before.is_plain(1, ("r", 1, 0), (8, 0))
