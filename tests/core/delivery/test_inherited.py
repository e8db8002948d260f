"""What a session has had otherwise: said by its client, or handed to a session of the broker's before it."""

from __future__ import annotations

import pytest

from tests.core.delivery.test_fast_path import READERS, Lone, frame_of, wants
from tests.core.scripted_events import EventPeer, Host, delivered, event_copy, mates, peer
from veena.core.boundary.inputs_effects import ClientDown, Deliver, Effect, Subscribe, Unsubscribe
from veena.core.delivery.inherited import Estate, HadBefore
from veena.core.wire.event import BACKLOG, LATE, REDELIVERED, EventFrame
from veena.core.wire.event_id import EventKey, event_key, ids_of

HEIR, OTHER, FORMER = 1, 2, -5
NOBODY: frozenset[int] = frozenset()
#: A place in a stream of somebody else.
EARLIER = ("other", 1, 0), (1, 1)


def here(sequence: int, **how: object) -> EventFrame:
    return event_copy(sequence, mates(0), **how)  # type: ignore[arg-type]


def estate(*frames: EventFrame, is_whole: bool = True) -> Estate:
    """What one hands down who was handed these."""
    keys: dict[EventKey, None] = dict.fromkeys(map(event_key, frames))
    return Estate(FORMER, (keys, {}), is_whole, dict(ids_of(frame)[0] for frame in frames), {})


def many(count: int, publisher: str, former: int) -> Estate:
    """An estate of so many ids."""
    keys: dict[EventKey, None] = {(publisher.encode(), 1, 7, sequence): None for sequence in range(count)}
    return Estate(former, (keys,), True, {(publisher, 1, 0): (7, count)}, {})


def end(*sessions: int) -> tuple[Host, EventPeer]:
    """A broker with readers of quotes, and the neighbour that events come from."""
    host = Host()
    up = peer(host, 1)
    for session in sessions:
        host.reader(session)
    host.sync()
    return host, up


def got(effects: list[Effect]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By session and subscription: sequences with their marks."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for effect in effects:
        if isinstance(effect, Deliver):
            for session, numbers in effect.receivers:
                for number in numbers:
                    marks = effect.frame.flags & (LATE | REDELIVERED)
                    found.setdefault((session, number), []).append((effect.frame.sequence, marks))
    return found


@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_an_heir_gets_what_it_has_not_had_and_late_what_its_past_overtook(others: tuple[int, ...]) -> None:
    """DUP-02, I3: 3 came out of a log; 2 is older than the past, 4 is new. Nobody else is concerned."""
    host, up = end(HEIR, *others)
    host.events.ends.before.inherit(HEIR, 1, estate(here(3)))
    found = got([*up.hand(here(2), here(3), here(4)), *host.sync()])
    assert found.pop((HEIR, 1)) == [(2, LATE), (4, 0)]
    assert found == {(session, 1): [(2, 0), (3, 0), (4, 0)] for session in others}


def test_another_subscription_of_the_same_session_has_not_had_it() -> None:
    """I1, I3: 3 came out of a log to the second subscription alone; a backlog brings it, and 2, for the first."""
    host, up = end(HEIR)
    host.handle(Subscribe(HEIR, 2, "topic", "quotes", 4), 0)
    host.events.ends.before.inherit(HEIR, 2, estate(here(3)))
    frames = [here(2), here(3), here(4)]
    for each in frames[:2]:
        each.flags |= BACKLOG
    found = got([*up.hand(*frames), *host.sync()])
    assert found == {(HEIR, 1): [(2, 0), (3, 0), (4, 0)], (HEIR, 2): [(2, LATE), (4, 0)]}


def test_an_heir_is_not_handed_the_original_of_what_came_as_a_repetition() -> None:
    """DUP-02: the log had it under another id; the original comes as any new event would."""
    host, up = end(HEIR)
    third = here(3)
    stream, place = ids_of(third)[0]
    handed_down = Estate(
        FORMER, ({event_key(third): None},), True, {(stream[0], 9, stream[2]): (1, 1)}, {stream: place}
    )
    host.events.ends.before.inherit(HEIR, 1, handed_down)
    assert got([*up.hand(here(2), here(3), here(4)), *host.sync()]) == {(HEIR, 1): [(2, 0), (4, 0)]}


def test_what_may_have_been_had_is_handed_over_and_says_so() -> None:
    """Not all ids are known: nothing is lost for that, and what is not later than the last is marked."""
    host, up = end(HEIR)
    host.events.ends.before.inherit(HEIR, 1, estate(here(3), is_whole=False))
    again = LATE | REDELIVERED
    assert got([*up.hand(here(2), here(3), here(4)), *host.sync()]) == {(HEIR, 1): [(2, again), (4, 0)]}
    (heir,) = host.events.ends.before.heirs[HEIR].values()
    repetition, original = ids_of(here(1, incarnation=9))[0], ids_of(here(2))[0]
    assert heir.mark((repetition, original)) == again


@pytest.mark.parametrize("alone", [True, False])
def test_bursts_are_looked_at_where_an_heir_has_something_of_them(alone: bool) -> None:
    """Events that come together come to the same as one by one: 3 and 5 were had, what is before 5 is late."""
    lone = Lone()
    frames = [frame_of(lone, number, reliable=True) for number in range(1, 8)]
    for session in READERS:
        wants(lone, session, 1)
    lone.broker.events.ends.before.inherit(READERS[0], 1, estate(frames[2], frames[4]))
    lone.publish(frames, alone)
    found = {session: [each.sequence for each, _, _ in those] for session, those in lone.delivered.items()}
    everything = [1, 2, 3, 4, 5, 6, 7]
    assert found == {READERS[0]: [1, 2, 4, 6, 7], READERS[1]: everything, READERS[2]: everything}


@pytest.mark.parametrize("given", [ClientDown(HEIR), Unsubscribe(HEIR, 1)])
def test_what_is_inherited_goes_with_the_subscription(given: ClientDown | Unsubscribe) -> None:
    host, up = end(HEIR)
    before = host.events.ends.before
    before.inherit(HEIR, 1, estate(here(3)))
    assert (before.ids, before.places) == (1, 1)
    assert before.concerns(*ids_of(here(3))[0])
    host.handle(given, 0)
    assert (before.ids, before.places) == (0, 0)
    assert not before.heirs
    assert not before.concerns(*ids_of(here(3))[0])
    assert delivered([*up.hand(here(3)), *host.sync()]) == []


def test_the_ids_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who inherited first loses first, and never who comes just now, also of one session. Places stay."""
    monkeypatch.setattr("veena.core.delivery.inherited.MAX_IDS", 8)
    before = HadBefore()
    for number, publisher in enumerate("abc"):
        before.inherit(1, number, many(3, publisher, -number))
    assert (before.ids, before.places) == (6, 3)
    estates = before.heirs[1]
    assert [estates[at].has((name.encode(), 1, 7, 0), NOBODY) for at, name in enumerate("abc")] == [False, True, True]
    assert estates[0].has((b"a", 1, 7, 0), frozenset([0])), "whose events were had stays known"
    before.inherit(2, 0, many(12, "d", -3))
    assert (before.ids, before.places) == (12, 4), "the newest is held whole"
    stream = ("a", 1, 0)
    assert estates[0].mark(((stream, (7, 1)), (stream, (7, 1)))) == LATE | REDELIVERED
    for session in (1, 2):
        before.detach(session)
    assert (before.ids, before.places) == (0, 0)


def test_the_places_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that inherited long ago are ordinary ones; the streams of those who are gone are forgotten."""
    monkeypatch.setattr("veena.core.delivery.inherited.MAX_PLACES", 10)
    before = HadBefore()
    for number in range(1000):
        before.inherit(number % 100, number, many(2, f"p{number}", -number))
        assert before.concerns((f"p{number}", 1, 0), (7, 0))
        assert before.has_heirs((EARLIER, EARLIER), frozenset([-number]))
        assert (before.ids, before.places) == (2 * min(number + 1, 10), min(number + 1, 10))
    assert sum(before.concerns((f"p{number}", 1, 0), (7, 0)) for number in range(1000)) <= 20
    assert not before.has_heirs((EARLIER, EARLIER), frozenset([-1]))


def test_nobody_looks_for_heirs_of_what_nobody_inherited() -> None:
    """It costs nothing where streams go on after what was had."""
    before = HadBefore()
    before.inherit(1, 1, many(3, "p", FORMER))
    stream = ("p", 1, 0)
    assert before.has_heirs(((stream, (7, 3)), (stream, (7, 3))), NOBODY)
    assert not before.has_heirs(((stream, (7, 4)), (stream, (7, 4))), NOBODY)
    assert before.has_heirs((EARLIER, (stream, (7, 2))), NOBODY), "a repetition"
    assert before.has_heirs((EARLIER, EARLIER), frozenset([3, FORMER]))
    assert not before.has_heirs((EARLIER, EARLIER), frozenset([3]))


def test_what_is_addressed_to_a_client_is_not_inherited() -> None:
    """It satisfies no subscription: whatever these have had, it goes to the client."""
    before, stream = HadBefore(), ("p", 1, 0)
    before.inherit(1, 1, many(3, "p", FORMER))
    ids = ((stream, (7, 2)), (stream, (7, 2)))
    assert before.without_had({1: []}, (b"p", 1, 7, 2), frozenset([FORMER])) == {1: []}
    assert before.by_mark({1: []}, ids) == {0: {1: []}}


def test_what_a_client_says_of_itself_is_told_apart_by_stream() -> None:
    """DUP-02: the last place of a stream, and single events that it had before their time."""
    before, stream, other = HadBefore(), ("p", 1, 0), ("q", 1, 0)
    before.attach(1, {stream: (7, 3)}, frozenset([(other, (9, 9))]))

    def is_new(*where: tuple[tuple[str, int, int], tuple[int, int]]) -> bool:
        return before.is_new_to(1, (where[0], where[-1]))

    assert not is_new((stream, (7, 3)))
    assert is_new((stream, (7, 4)))
    assert not is_new((("p", 2, 0), (8, 1)), (stream, (7, 3)))
    assert not is_new((other, (9, 9)))
    assert is_new((other, (9, 8)))
