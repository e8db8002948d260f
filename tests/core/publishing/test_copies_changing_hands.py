"""Second copies that go from one holder to another: the one that the broker counts on has it, and no other keeps it."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    asked,
    bit,
    event_copy,
    mate,
    origin,
    patient,
    peer,
    publication,
    publish,
    released,
)
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.control import Done
from veena.core.wire.event_id import event_key
from veena.sim.world.options import Options

TWO = patient(copies=2, takeover_ns=5 * SECOND_NS, absent_after_ns=5 * SECOND_NS)


def beside_the_dead() -> tuple[Host, EventPeer, EventPeer, int]:
    """A broker with two neighbours that can hold, and a third that wants everything and is gone."""
    host, first, incarnation = origin(TWO)
    second, dead = peer(host, 3), peer(host, 4)
    for each, topic in ((first, "x"), (second, "y"), (dead, "quotes")):
        each.wants(topic)
    host.sync()
    dead.leave()
    host.sync()
    return host, first, second, incarnation


def again(host: Host, number: int, now_ns: int) -> tuple[EventPeer, list[Effect]]:
    """A neighbour is back over a new connection."""
    back = EventPeer(host, 9, mate(number), now_ns, nonce=99)
    effects = [*back.greet(now_ns), *host.sync(now_ns)]
    back.wants("x", now_ns=now_ns)
    return back, effects


def test_of_two_answers_one_copy_stays() -> None:
    """I5: 2 holds it and is away for a moment; 3 is asked, is slow, and answers after 2 was asked again. One of the two
    is told to forget it, and the broker counts on the other."""
    host, first, second, incarnation = beside_the_dead()
    (number,) = asked(publish(host, 1, publication(1, incarnation)), first)
    assert accepted(first.hand(Done(((number, number),)))) == [1]
    (slow,) = asked([*first.leave(SECOND_NS), *host.sync()], second)
    back, effects = again(host, 2, 2 * SECOND_NS)
    (anew,) = asked([*effects, *host.run(2 * SECOND_NS, 9 * SECOND_NS)], back)
    effects = second.hand(Done(((slow, slow),)), now_ns=9 * SECOND_NS)
    effects += back.hand(Done(((anew, anew),)), now_ns=9 * SECOND_NS)
    effects += host.run(9 * SECOND_NS, 12 * SECOND_NS)
    assert (released(effects, back), released(effects, second)) == ([], [1])


def test_what_a_new_holder_has_no_room_for_is_asked_for_again() -> None:
    """I5: 2 holds three events and is lost. 3 has room for the last of them, and is asked for the others again."""
    host, first, second, incarnation = beside_the_dead()
    for sequence in (1, 2, 3):
        (number,) = asked(publish(host, 1, publication(sequence, incarnation)), first)
        first.hand(Done(((number, number),)))
    numbers = asked([*first.leave(SECOND_NS), *host.sync()], second)
    effects = second.hand(Done(((numbers[-1], numbers[-1]),)), now_ns=SECOND_NS)
    once_more = asked(effects, second)
    assert len(once_more) == 2
    second.hand(Done(((once_more[0], once_more[1]),)), now_ns=2 * SECOND_NS)
    assert asked(host.run(2 * SECOND_NS, 60 * SECOND_NS), second) == []


def test_a_former_holder_of_what_is_looked_after_is_told_when_it_is_back() -> None:
    """`replica_sender`: it is held elsewhere by then, and still looked after."""
    host = Host(TWO)
    up, absent = peer(host, 1, (0, 0, 1, 0)), peer(host, 2)
    absent.wants("quotes")
    absent.leave()
    host.sync()
    former, other = peer(host, 3), peer(host, 5)
    former.wants("y")
    other.wants("z")
    host.sync()
    up.hand(event_copy(1, bit((0, 0, 0))))
    (number,) = asked(host.run(0, 8 * SECOND_NS), former)
    former.hand(Done(((number, number),)), now_ns=8 * SECOND_NS)
    host.sync()
    (number,) = asked([*former.leave(9 * SECOND_NS), *host.sync(9 * SECOND_NS)], other)
    other.hand(Done(((number, number),)), now_ns=9 * SECOND_NS)
    host.run(9 * SECOND_NS, 11 * SECOND_NS)
    back, effects = again(host, 3, 12 * SECOND_NS)
    assert released([*effects, *host.run(12 * SECOND_NS, 20 * SECOND_NS)], back) == [1]


@pytest.mark.parametrize("seed", range(12))
def test_whoever_comes_and_goes_the_books_are_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """I5: 3 is dead, 1 and 2 hold for 0, and their links come and go. In the end everything is accepted; what 0 counts
    on is there, and nothing else, for no answer was on its way over a link that was cut."""
    monkeypatch.setattr("veena.core.publishing.replica_sender.MAX_FOR_ABSENT", 20)
    chance = Random(seed)
    options = Options(wire=False, dial=False)
    network = cluster([(0, 1), (0, 2), (1, 2), (0, 3)])
    stage = Stage(network, seed=seed, options=options, settings=Settings("small", copies=2))
    publisher = stage.attach("0", "p")
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.wait(SECOND_NS)
    published, down = 0, dict.fromkeys("12", False)
    for _ in range(14):
        for _ in range(chance.randrange(3)):
            stage.publish(publisher, f"e{published}")
            published += 1
        name = chance.choice("12")
        link = stage.link("0", name)
        if down[name]:
            stage.world.heal(link)
        else:
            stage.world.cut(link, silent=chance.random() < 0.3)
        down[name] = not down[name]
        stage.wait_ms(chance.choice((20, 200, 700, 1500, 3000)))
    for name in "12":
        if down[name]:
            stage.world.heal(stage.link("0", name))
    stage.wait(14 * SECOND_NS)
    assert len(stage.accepted) == published
    asker = stage.broker("0").events.copies
    held = {(holder, event_key(frame)) for holder, frame in asker._holders.values()}
    kept = {(stage.addresses[name], key) for name in "12" for key in stage.broker(name).events.kept_copies._kept}
    assert held == kept
