"""Statements that had to wait come in a few at a time, whatever for: no step has to deal with all."""

from __future__ import annotations

import pytest

from tests.core.scripted_peer import Peer, closed, hello, neighbour, started
from veena.address import Address
from veena.core.boundary.inputs_effects import ClockSet
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.interest.constraint import make_want
from veena.core.links.early import MAX_EARLY, MAX_EARLY_BYTES, MAX_WORK, EarlyFrames, work_of
from veena.core.trust.epochs import AHEAD_NS
from veena.core.wire.codec import encode
from veena.core.wire.control import Goodbye
from veena.core.wire.interest import MAX_DIGEST_BYTES, MAX_DIGESTS, MAX_ROWS, Digest, DigestPart, Interest, Row
from veena.errors import ClockDiffers

LIAR: Address = (0, 0, 0, 1)
#: What the wall clock shows when the core's shows 0.
NOON_NS = 1_760_000_000 * SECOND_NS
FRAMES = 5


def wants(ahead_ns: int) -> list[Interest]:
    """The longest frames of wants, of a time so far ahead."""
    epoch = (NOON_NS + ahead_ns) // MILLISECOND_NS
    found = [make_want("topic", f"t.{number}", 3) for number in range(FRAMES * MAX_ROWS)]
    rows = [
        Row(LIAR, want.key, (epoch, LIAR, number), True, want.kind, want.payload, 3)
        for number, want in enumerate(found, 1)
    ]
    return [Interest(tuple(rows[at : at + MAX_ROWS])) for at in range(0, len(rows), MAX_ROWS)]


def known(broker: Broker) -> int:
    return len(list(broker.profiles.table.rows(LIAR)))


def drained(broker: Broker, now_ns: int) -> None:
    """Let the timers of this moment ring until all has come in: no step takes more than a frame of the longest."""
    while known(broker) < FRAMES * MAX_ROWS:
        due_ns, before = broker.next_wakeup(), known(broker)
        assert due_ns is not None and due_ns <= now_ns, "the rest is due at once"
        broker.tick(now_ns)
        broker.check()
        assert 0 < known(broker) - before <= MAX_WORK


def clocked() -> Broker:
    broker = started()
    broker.handle(ClockSet(NOON_NS), 0)
    return broker


@pytest.mark.parametrize("is_clock_set", [False, True])
def test_what_waited_for_the_clock_comes_in_step_by_step(is_clock_set: bool) -> None:
    """Frames of wants of a minute and a second ahead: the clock gets there, or somebody sets it."""
    broker = clocked()
    liar = neighbour(broker, 1, LIAR)
    assert closed(liar.say(*wants(AHEAD_NS + SECOND_NS))) == []
    assert known(broker) == 0
    if is_clock_set:
        broker.handle(ClockSet(NOON_NS + 2 * SECOND_NS), 0)
        assert known(broker) == MAX_ROWS
        drained(broker, 0)
    else:
        drained(broker, SECOND_NS)


def test_what_a_claimant_said_comes_in_step_by_step() -> None:
    """Who has waited for an address says a lot: it is heard in order, and not all at once."""
    broker = clocked()
    old = neighbour(broker, 1, LIAR)
    again = Peer(broker, 2, LIAR, nonce=77)
    again.hello = hello(LIAR, nonce=77, incarnation=2)
    again.greet()
    again.say(*wants(0))
    old.say(Goodbye("off"))
    assert known(broker) == MAX_ROWS
    drained(broker, 0)


def test_links_take_turns() -> None:
    """One that has said a lot does not keep the others waiting."""
    early, (first, *rest) = EarlyFrames(), wants(0)
    for link in (1, 2):
        for frame in (first, *rest):
            early.hold(link, frame, 0)
    turns = []
    for _ in range(4):
        link = early.due(0)[0]
        turns.append(link)
        assert sum(work_of(frame) for frame in early.take(link, MAX_WORK, 0)) == MAX_WORK + 1
        early.check()
    assert turns == [1, 2, 1, 2]


def test_the_bytes_that_wait_are_bounded_as_their_number_is() -> None:
    """Frames of the longest digests wait until they are 8 MiB, and small ones until they are 256."""
    part = DigestPart(3, True, b"\xff\x0f" * (MAX_DIGEST_BYTES // 2))
    long = Interest((), tuple(Digest((0, 1), (number, LIAR, number), (part,)) for number in range(MAX_DIGESTS)))
    short = Interest(())
    for frame, most in ((long, MAX_EARLY_BYTES // len(encode(long, 0))), (short, MAX_EARLY)):
        early = EarlyFrames()
        for _ in range(most):
            early.hold(1, frame, 0)
        early.check()
        with pytest.raises(ClockDiffers, match=f"{most} frames of"):
            early.hold(1, frame)
        assert len(list(early.take(1, 1 << 30, 0))) == most
