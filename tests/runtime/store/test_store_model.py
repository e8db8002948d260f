"""The store against its model: whatever is written, a restart finds what `Disk.write` says (FLT-05, FLT-07)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.store_desk import NOBODY, Desk, bare, entry, frame, plain
from veena.address import identifiers
from veena.core.boundary.inputs_effects import Stored
from veena.core.boundary.stored import (
    DOUBTFUL,
    Attended,
    Disk,
    Entry,
    Forgotten,
    Identity,
    Kept,
    Known,
    LastHad,
    Progress,
    Reached,
    Registered,
    Released,
    Shelved,
    Skip,
    Unshelved,
    Write,
)
from veena.core.wire.discovery import Advertisement
from veena.runtime.store.rows import inboxes_of
from veena.runtime.store.writer import GROUP_WRITES

HUGE = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
STREAMS = st.tuples(st.sampled_from(["a", "bé", "c\x00d"]), HUGE, st.integers(0, 5))
PLACES = st.tuples(HUGE, st.integers(0, 3))
KEYS = st.tuples(st.sampled_from([b"a", b"\xff"]), HUGE, HUGE, st.integers(0, 2))
BITS = st.sampled_from([1 << 0, 1 << 33, 1 << 127])
INBOXES = st.integers(1, 4)
ADDRESSES = st.tuples(*[st.integers(0, 31)] * 4)
CONSTRAINTS = st.sampled_from([5, "a.b", ("topic", "x > 1"), ("/a/b", {"n": "urn:x"})])
MASKS = st.sampled_from([0, 1, 1 << 33, 1 | 1 << 127])

HOMES = st.sampled_from([(), (0, 1, 2, 3)])
#: One without properties and document is a withdrawal.
ADVERTS = st.builds(
    Advertisement, st.sampled_from(["alice", "bé"]), st.sampled_from(["n", "m"]), st.integers(1, 4),
    st.sampled_from([0, 1, (1 << 63) - 1]), st.sampled_from([b"", b"\x81\xa1n\x01"]), st.sampled_from([b"", b"<a/>"]),
    st.booleans(),
    st.sampled_from([0, 60_000, (1 << 32) - 1]),
)  # fmt: skip

WRITES = st.one_of(
    st.builds(Identity, st.text(st.characters(codec="utf-8"), max_size=5), ADDRESSES, HUGE),
    st.builds(Progress, st.lists(st.tuples(BITS, st.integers(0, 20)), max_size=3).map(tuple)),
    st.builds(LastHad, STREAMS, PLACES),
    st.builds(Skip, STREAMS, PLACES),
    st.builds(Known, st.lists(ADDRESSES, max_size=3).map(tuple)),
    st.builds(Kept, KEYS, st.integers(0, 3).map(frame)),
    st.builds(Released, st.lists(KEYS, max_size=2).map(tuple)),
    st.builds(
        Registered, INBOXES, st.just("alice"), st.sampled_from(["n", "m"]), st.just("topic"), CONSTRAINTS,
        st.integers(1, 3), HUGE, st.lists(INBOXES, min_size=1, max_size=2, unique=True).map(tuple),
        st.sampled_from(["home", "open", "arriving", "leaving", "left"]), st.none() | ADDRESSES, st.integers(0, 4),
    ),
    st.builds(Reached, INBOXES, st.integers(0, 20), st.lists(st.tuples(STREAMS, PLACES), max_size=2).map(tuple)),
    st.builds(Forgotten, INBOXES),
    st.builds(Shelved, HOMES, ADVERTS, st.integers(0, 20)),
    st.builds(Unshelved, HOMES, st.sampled_from(["alice", "bé"]), st.sampled_from(["n", "m"])),
    st.builds(Attended, st.integers(1, 20)),
    st.tuples(st.integers(1, 3), MASKS, st.lists(INBOXES, max_size=2, unique=True), st.integers(0, 50)),
)  # fmt: skip


def made(drawn: list[list[object]]) -> list[list[Write]]:
    """Groups of writes that a core could write: offsets rise (a failed write leaves a gap), the known is forgotten."""
    offset = -1
    registered: dict[int, None] = {}
    groups: list[list[Write]] = []
    for group in drawn:
        writes: list[Write] = []
        for each in group:
            if isinstance(each, tuple):
                step, mask, inboxes, accepted_ns = each
                offset += step
                writes.append(entry(offset, accepted_ns, tuple(inboxes), to_serve=mask))
            elif isinstance(each, Forgotten) and each.number not in registered:
                continue
            else:
                if isinstance(each, Registered):
                    registered[each.number] = None
                elif isinstance(each, Forgotten):
                    del registered[each.number]
                writes.append(each)  # type: ignore[arg-type]
        groups.append(writes)
    return groups


def needed(model: Disk, doubtful: int = DOUBTFUL) -> list[Entry]:
    """The entries that a unit, or a durable subscription, still needs, with so many below that may come again."""

    def is_needed(each: Entry) -> bool:
        if any(each.offset >= model.cursors.get(1 << at, 0) for at in identifiers(each.frame.to_serve)):
            return True
        return any(
            inbox in each.inboxes
            and (durable.state in ("open", "arriving") or each.offset >= model.reached.get(inbox, 0) - doubtful)
            for durable in model.registered.values()
            for inbox in inboxes_of(durable)
        )

    return [each for each in model.entries if is_needed(each)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(WRITES, max_size=12), max_size=6), st.booleans())
def test_a_restart_finds_what_was_stored(drawn: list[list[object]], all_at_once: bool) -> None:
    """FLT-05, FLT-07: the file is the model, for one ticket a transaction and for many."""
    groups = made(drawn)
    model = Disk(NOBODY)
    for group in groups:
        for write in group:
            model.write(write)
    with TemporaryDirectory() as directory:
        with Desk(Path(directory)) as desk:
            for group in groups:
                if all_at_once:
                    desk.submit(group)
                else:
                    desk.stored(*group)
            if all_at_once:
                assert [desk.answer() for _ in groups] == [Stored(at + 1) for at in range(len(groups))]
            assert [bare(each) for each in desk.read(0).entries] == [bare(each) for each in model.entries]
        with Desk(Path(directory)) as desk:
            found = desk.store.load(NOBODY)
            model.entries = needed(model)
            assert plain(found) == plain(model)
            assert desk.store.check() == []


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(INBOXES, max_size=2, unique=True), st.integers(0, 20)),
        min_size=1,
        max_size=40,
    )
)
def test_reads_find_what_a_scan_finds(drawn: list[tuple[int, list[int], int]]) -> None:
    """GUA-02: by offset, by inbox and by time, also where the clock went back."""
    offset, entries = -1, []
    for step, inboxes, accepted_ns in drawn:
        offset += step
        entries.append(entry(offset, accepted_ns, tuple(inboxes)))
    with TemporaryDirectory() as directory, Desk(Path(directory)) as desk:
        desk.stored(*entries)
        for start, inbox, since_ns in product((0, 1, offset // 2, offset), range(3), range(22)):
            wanted = [
                each.offset
                for each in entries
                if each.offset >= start and (not inbox or inbox in each.inboxes) and each.accepted_ns >= since_ns
            ]
            limit = 1 + since_ns % 7
            found = desk.read(start, limit, inbox, since_ns)
            assert [each.offset for each in found.entries] == wanted[:limit]
            assert found.begins_ns == 0


def test_what_may_come_again_is_more_than_a_group() -> None:
    """I1: a crash may lose the answers for a whole group that was written; whoever asks must find it in the log."""
    assert DOUBTFUL > GROUP_WRITES
