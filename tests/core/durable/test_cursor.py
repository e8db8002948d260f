"""The cursor of a durable subscription against a model that keeps every entry (FLT-05, CLI-07)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from veena.core.durable.cursor import MARK_BYTES, MARKS, WINDOW, Inbox, Meter, Reader
from veena.core.wire.event_id import EventKey

STREAM = ("p", 1, 4)


def key(offset: int) -> EventKey:
    return (b"p", 1, 0, offset)


class InboxMachine(RuleBasedStateMachine):
    """Entries come, with offsets of other inboxes between them; a reader takes them in order, somebody acknowledges."""

    offsets: Bundle[int] = Bundle("offsets")

    @initialize(start=st.integers(0, 5), gap=st.integers(0, 3))
    def begin(self, start: int, gap: int) -> None:
        self.inbox = Inbox(7, start, start + gap)
        self.former = start + gap
        self.next = start
        self.entries: list[int] = []
        self.acknowledged: set[int] = set()
        self.handed: set[int] = set()

    @rule(target=offsets, gap=st.integers(0, 3))
    def come(self, gap: int) -> int:
        offset = self.inbox.end + gap
        self.inbox.end = self.inbox.stored = offset + 1
        self.entries.append(offset)
        return offset

    def waiting(self) -> list[int]:
        return [offset for offset in self.entries if offset >= self.next]

    @precondition(lambda self: self.waiting() and self.inbox.has_room)
    @rule(is_needed=st.booleans())
    def hand(self, is_needed: bool) -> None:
        offset = self.waiting()[0]
        self.next = offset + 1
        if is_needed:
            assert self.inbox.hand(offset, key(offset)) is (offset < self.former)
            self.handed.add(offset)
        else:
            self.inbox.pass_over(offset)
            self.acknowledged.add(offset)

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def hand_again(self, data: st.DataObject) -> None:
        """A second device, or the same one once more: what is open stays open."""
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        if not self.inbox.is_acknowledged(offset):
            before = dict(self.inbox.open)
            assert self.inbox.hand(offset, key(offset))
            assert self.inbox.open == before

    @rule(offset=offsets)
    def acknowledge(self, offset: int) -> None:
        is_open = offset in self.handed and offset not in self.acknowledged
        assert self.inbox.acknowledge(key(offset)) is is_open
        if is_open:
            self.acknowledged.add(offset)

    @invariant()
    def below_the_cursor_all_is_acknowledged(self) -> None:
        if not hasattr(self, "inbox"):
            return
        self.inbox.check()
        is_open = [offset for offset in self.entries if offset in self.handed and offset not in self.acknowledged]
        assert list(self.inbox.open) == is_open
        assert self.inbox.cursor == min(is_open, default=self.inbox.front)
        assert all(offset in self.acknowledged for offset in self.entries if offset < self.inbox.cursor)
        for offset in self.entries:
            assert self.inbox.is_acknowledged(offset) is (offset in self.acknowledged)
            assert self.inbox.was_shown(offset) is (offset < max(self.next, self.former) or offset < self.inbox.front)


TestInbox = InboxMachine.TestCase
TestInbox.settings = settings(max_examples=60, stateful_step_count=40)


def test_the_window_is_bounded() -> None:
    """QOS: what is handed over and not acknowledged is bounded, and room comes with acknowledgements."""
    inbox = Inbox(1, 0, 0)
    room: list[bool] = []
    for offset in range(WINDOW):
        room.append(inbox.has_room)
        inbox.hand(offset, key(offset))
    assert all(room)
    room = [inbox.has_room]
    inbox.acknowledge(key(3))
    assert [*room, inbox.has_room] == [False, True]
    assert inbox.cursor == 0


def test_a_floor_is_one_of_its_stream() -> None:
    """CLI-04: up to the floor of its stream an event came by another inbox; of other streams nothing is said."""
    inbox = Inbox(1, 0, 0)
    assert not inbox.is_below_floor(STREAM, (5, 0))
    inbox.floor = {STREAM: (5, 2)}
    assert inbox.is_below_floor(STREAM, (5, 2))
    assert not inbox.is_below_floor(STREAM, (5, 3))
    assert not inbox.is_below_floor(("p", 2, 4), (5, 0))


def test_what_a_reader_had_makes_earlier_places_late() -> None:
    """CLI-05: out of order is what is not after the last place that the client has had, or was marked before."""
    reader = Reader(1, 1, 1, 0, had={STREAM: (5, 2)})
    assert reader.is_past(False, STREAM, (5, 2))
    assert not reader.is_past(False, STREAM, (5, 3))
    assert reader.is_past(True, STREAM, (5, 3))
    assert not reader.is_past(False, ("q", 1, 4), (1, 0))


def test_what_an_application_may_have_got_under_another_incarnation() -> None:
    """CLI-07, DUP-08: a repetition goes before its original, or another repetition does; what is plainly new is not
    taken for one, nor what the publisher repeats under the incarnation of which something was had."""
    reader = Reader(1, 1, 1, 0)
    had = {("p", 5, 4): (10, 0), ("p", 3, 4): (6, 0), ("p", 2, 4): (1, 0), ("q", 9, 4): (1, 0)}
    new, first = (("p", 5, 4), (11, 0)), (("p", 4, 4), (7, 0))
    reader.presents(had, frozenset(), True)
    assert not reader.may_have_got((new,)), "later than all that was had"
    assert reader.may_have_got((first,)), "it may have come as a repetition in 5"
    assert not reader.may_have_got((new, first)), "in 5 it has not come yet, in 4 neither"
    assert reader.may_have_got(((("p", 6, 4), (1, 0)), first)), "repeated twice, perhaps had in 5"
    assert reader.may_have_got((new, (("p", 3, 4), (6, 0)))), "had under its first id"
    assert not reader.may_have_got(((("p", 6, 4), (1, 0)),)), "of a later life"
    assert not reader.may_have_got(((("p", 4, 1), (7, 0)),)), "another lane"
    reader.presents(had, frozenset(), False)
    assert not reader.may_have_got((first,)), "its library acknowledges, and shows all that it got"


@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 3)), max_size=60))
def test_a_meter_says_what_is_kept_from_the_cursor_on(steps: list[tuple[int, int]]) -> None:
    """FLT-09: never too little, and by less than one mark too much; nothing where the inbox is empty."""
    meter, sizes, cursor, freed = Meter(), [], 0, 0
    for size, read in steps:
        sizes.append(size)
        meter.add(len(sizes) - 1, size)
        cursor = min(cursor + read, len(sizes))
        freed += meter.release(cursor, len(sizes))
        kept = sum(sizes[cursor:])
        assert meter.bytes == sum(sizes) - freed
        assert kept <= meter.bytes < kept + max(MARK_BYTES, sum(sizes) // MARKS) + max(sizes)
        assert kept or not meter.bytes
