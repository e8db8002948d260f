"""What was noted for explaining survives a restart, is bounded, and stands as rows in the tables for audits."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.store_desk import CODEC, NOBODY, PATIENCE, Desk, entry, frame
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import LastHad, Noted, Write
from veena.core.interest.constraint import make_want
from veena.core.journal import Records
from veena.core.wire.event_id import EventKey
from veena.core.wire.trace_facts import ClientNote, EventNote, Fact, Note, Stay, StayNote, What
from veena.runtime.store import writer as store_writer
from veena.runtime.store.file import FILE_NAME, connect
from veena.runtime.store.repair import faults, repair
from veena.runtime.store.retention import Retention
from veena.runtime.store.schema import MIGRATIONS, migrate
from veena.runtime.store.trace import read_notes

SECOND = 1_000_000_000
WANT = make_want("selector", ("quotes", "price > 10"), 4)
HOST, PEER, FAR = (0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0)


def key(number: int) -> EventKey:
    return (b"alice", 7, 1000, number)


def event(number: int, fact: Fact, is_first: bool = False) -> EventNote:
    return EventNote(key(number), key(number), fact, CODEC.encode(frame(number), 0) if is_first else b"")


def stay(begun_ns: int, **more: Any) -> Stay:
    return Stay("bob", more.pop("session", 7), 1, WANT.kind, WANT.payload, WANT.scope, begun_ns, **more)


def keep(desk: Desk, *writes: Write) -> None:
    """Write and wait until it is on disk: notes that come alone are answered before that."""
    desk.stored(*writes)
    desk.store.save()


def table(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(connect(path / FILE_NAME, read_only=True)) as connection:
        return connection.execute(query).fetchall()


def test_a_restart_remembers_events_subscriptions_and_gaps(tmp_path: Path) -> None:
    """FLT-05: two lives, the second knows what the first noted, from when to when it was away, and who was attached."""
    began = Noted(10, 10, (StayNote(stay(10)), StayNote(stay(10, session=-3, durable=True))))
    accepted = Noted(10, 20, (event(1, Fact(20, What.ACCEPTED, (PEER,), offset=0), is_first=True),))
    delivered = event(1, Fact(30, What.DELIVERED, client="bob", session=7, subscriptions=(1,)))
    sign = Noted(10, 40, ())
    with Desk(tmp_path, records="all") as desk:
        desk.store.load(NOBODY)
        keep(desk, began)
        keep(desk, accepted, Noted(10, 30, (delivered,)), entry(0))
        keep(desk, sign)
    with Desk(tmp_path, records="all") as desk:
        noted = desk.store.load(NOBODY).noted
    records = Records((0, 0, 0, 0), Settings(records="all"), 100)
    records.restore(noted, 100)
    found = records.find(key(1))
    assert found is not None
    assert [fact.what for fact in found.facts] == [What.ACCEPTED, What.DELIVERED]
    assert CODEC.read(found.frame).id == frame(1).id
    lost, kept = sorted(records.stays("bob"), key=lambda each: -each.session)
    assert (lost.ended_ns, lost.last_seen_ns, lost.ending) == (100, 40, "its broker was started again")
    assert not kept.ended_ns and kept.durable
    assert records.gaps == [(40, 100)]
    records.check()


def test_nothing_is_read_back_where_records_are_off(tmp_path: Path) -> None:
    with Desk(tmp_path, records="all") as desk:
        keep(desk, Noted(10, 20, (event(1, Fact(20, What.ACCEPTED), is_first=True),)))
        assert desk.store.load(NOBODY).noted
    with Desk(tmp_path, records="off") as desk:
        assert desk.store.load(NOBODY).noted == []


def test_facts_are_rows_for_audits(tmp_path: Path) -> None:
    """Design §7: a row an event and moment with its clients, a row a hop, a row a change of a subscription."""
    notes: tuple[Note, ...] = (
        StayNote(stay(10)),
        StayNote(stay(10, levels=((1, 12), (3, 14)))),
        event(1, Fact(20, What.TAKEN, (PEER, FAR), peer=PEER, connection=5), is_first=True),
        event(1, Fact(21, What.SENT, (FAR[:2],), peer=FAR, connection=6)),
        event(1, Fact(22, What.DELIVERED, client="bob", session=7)),
        event(1, Fact(22, What.DELIVERED, client="carol", session=8)),
        event(1, Fact(23, What.DELIVERED, client="bob", session=7, text="redelivered")),
        StayNote(stay(10, ended_ns=30, ending="left", group="workers", attributes={"device": "pda"})),
    )
    with Desk(tmp_path, records="all") as desk:
        desk.store.load(NOBODY)
        keep(desk, Noted(10, 30, notes))
        assert desk.store.delivered(frame(1).id) == [(22, ("bob", "carol")), (23, ("bob",))]
    deliveries = table(tmp_path, "SELECT at_ns, publisher, sequence, clients, mark FROM deliveries ORDER BY number")
    assert [(*row[:3], msgspec.msgpack.decode(row[3]), row[4]) for row in deliveries] == [
        (22, "alice", 1, ["bob", "carol"], ""),
        (23, "alice", 1, ["bob"], "redelivered"),
    ]
    assert table(tmp_path, "SELECT at_ns, came_from, went_to, level, units FROM hops") == [
        (21, "0.0.0.1", "0.1.0.0", 2, "0.1")
    ]
    profiles = table(
        tmp_path, "SELECT client_id, session, change, engine, level, shared, attributes, ending FROM profiles"
    )
    assert [row[:5] for row in profiles] == [
        ("", 0, "started", "", 0),
        ("bob", 7, "added", "selector", 0),
        ("bob", 7, "active", "selector", 3),
        ("bob", 7, "removed", "selector", 0),
    ]
    assert msgspec.msgpack.decode(profiles[0][6]) == {"address": "0.0.0.0", "records": "all", "history": "reliable"}
    assert (profiles[3][5], msgspec.msgpack.decode(profiles[3][6]), profiles[3][7]) == (
        "workers", {"device": "pda"}, "left",
    )  # fmt: skip


def test_what_was_not_handed_over_is_told_with_the_reason(tmp_path: Path) -> None:
    """What an audit needs to tell what was lost from what was not to be delivered."""
    here = (HOST,)
    notes: tuple[Note, ...] = (
        ClientNote(11, "bob", 7, True),
        event(1, Fact(20, What.TAKEN, here, peer=PEER), is_first=True),
        event(1, Fact(20, What.HAD, client="bob", session=7)),
        event(2, Fact(21, What.TAKEN, here, peer=PEER), is_first=True),
        event(3, Fact(22, What.TAKEN, here, peer=PEER), is_first=True),
        event(3, Fact(22, What.HAD)),
        event(4, Fact(23, What.WITHHELD, client="bob", session=7), is_first=True),
        event(4, Fact(24, What.DROPPED, client="bob", session=7)),
        event(5, Fact(25, What.HAD, client="bob", session=-7), is_first=True),
        event(6, Fact(26, What.ACCEPTED, here), is_first=True),
        StayNote(stay(10, ended_ns=30, ending="left")),
        ClientNote(31, "bob", 7, False, "left"),
        event(7, Fact(32, What.ACCEPTED, here), is_first=True),
    )
    with Desk(tmp_path, records="all") as desk:
        desk.store.load(NOBODY)
        keep(desk, Noted(10, 40, notes))
        assert desk.store.history("bob", "consumed") == []
    deliveries = table(tmp_path, "SELECT at_ns, sequence, clients, mark FROM deliveries ORDER BY at_ns")
    assert [(*row[:2], msgspec.msgpack.decode(row[2]), row[3]) for row in deliveries] == [
        (20, 1, ["bob"], "had"),
        (20, 1, [], "came"),
        (21, 2, [], "came"),
        (23, 4, ["bob"], "withheld"),
        (24, 4, ["bob"], "dropped"),
        (32, 7, [], "came"),
    ]
    sessions = table(
        tmp_path, "SELECT at_ns, client_id, change, ending FROM profiles WHERE engine = '' AND session = 7"
    )
    assert sessions == [(11, "bob", "attached", ""), (31, "bob", "detached", "left")]


def test_with_deliveries_alone_there_are_no_hops_in_the_tables(tmp_path: Path) -> None:
    with Desk(tmp_path, records="deliveries") as desk:
        desk.store.load(NOBODY)
        facts = (Fact(21, What.SENT, peer=FAR), Fact(22, What.DELIVERED, client="bob"))
        keep(desk, Noted(10, 30, tuple(event(1, fact, is_first=True) for fact in facts)))
    assert len(table(tmp_path, "SELECT * FROM deliveries")) == 1
    assert table(tmp_path, "SELECT * FROM hops") == []


def test_notes_alone_are_answered_at_once_and_not_synced(tmp_path: Path) -> None:
    """GUA-02: nobody waits for them; they go along with what is synced next, or by themselves after a moment."""
    with Desk(tmp_path, records="all") as desk:

        def mode() -> int:
            return int(desk.store._file.connection.execute("PRAGMA synchronous").fetchone()[0])

        desk.stored(entry(0), Noted(1, 1, ()))
        assert (mode(), desk.store.statistics().commits) == (2, 1)
        for at in range(2, 50):
            desk.stored(Noted(1, at, (event(at, Fact(at, What.ACCEPTED), is_first=True),)))
        until = time.monotonic() + PATIENCE
        while table(tmp_path, "SELECT COUNT(*) FROM notes") < [(48,)]:
            assert time.monotonic() < until
        assert mode() == 1
        desk.stored(entry(1), Noted(1, 60, ()))
        assert mode() == 2


def test_notes_are_told_in_the_order_of_time(tmp_path: Path) -> None:
    """Those that came alone may reach the disk before older ones that came with events."""
    with Desk(tmp_path, records="all") as desk:
        keep(desk, entry(0))
        for at in (3, 1, 2):
            keep(desk, Noted(1, at, (event(at, Fact(at, What.ACCEPTED), is_first=True),)))
        noted = desk.store.load(NOBODY).noted
    assert [each.at_ns for each in noted if each.notes] == [1, 2, 3]


def test_retention_bounds_notes_and_ended_subscriptions(tmp_path: Path) -> None:
    clock = [0]
    with Desk(tmp_path, records="all", retention=Retention(age_ns=100), now_ns=lambda: clock[0]) as desk:
        for at in range(5):
            keep(desk, Noted(1, at, (event(at, Fact(at, What.ACCEPTED), is_first=True),)))
        ended, stands = stay(1, ended_ns=5), stay(2, session=-3, durable=True)
        keep(desk, Noted(1, 6, (StayNote(ended), StayNote(stands))))
        clock[0] = 1000
        keep(desk, Noted(1, 990, (event(9, Fact(990, What.ACCEPTED), is_first=True),)))
        desk.trimmed()
        noted = desk.store.load(NOBODY).noted
    notes = [note for each in noted for note in each.notes]
    assert [note.key for note in notes if isinstance(note, EventNote)] == [key(9)]
    assert [note.stay for note in notes if isinstance(note, StayNote)] == [stands]
    assert noted[0].life_ns == 990, "what was before that is not known any more"


def test_a_start_reads_no_more_than_its_bounds(tmp_path: Path) -> None:
    with Desk(tmp_path, records="all") as desk:
        for at in range(10):
            keep(desk, Noted(1, at, (event(at, Fact(at, What.ACCEPTED), is_first=True),)))
    with closing(connect(tmp_path / FILE_NAME, read_only=True)) as connection:
        newest = [note.key for each in read_notes(connection, most=3) for note in each.notes]  # type: ignore[union-attr]
        one = read_notes(connection, most_bytes=len(CODEC.encode(frame(1), 0)) + 80)
    assert newest == [key(7), key(8), key(9)]
    assert sum(len(each.notes) for each in one) == 1


def test_a_damaged_note_is_left_out_found_and_repaired(tmp_path: Path) -> None:
    """FLT-07: a broker starts without it; `faults` names it and `repair` gives it up alone."""
    with Desk(tmp_path, records="all") as desk:
        for at in range(3):
            keep(desk, Noted(1, at, (event(at, Fact(at, What.ACCEPTED), is_first=True),)))
    with closing(connect(tmp_path / FILE_NAME, read_only=False)) as connection:
        connection.execute("UPDATE notes SET checksum = checksum + 1 WHERE number = 1")
    assert faults(tmp_path) == ["notes 1: the checksum is wrong"]
    with Desk(tmp_path, records="all") as desk:
        notes = [note for each in desk.store.load(NOBODY).noted for note in each.notes]
    assert [note.key for note in notes if isinstance(note, EventNote)] == [key(0), key(2)]
    assert repair(tmp_path) == ["notes 1 was given up"]
    assert faults(tmp_path) == []


def test_too_many_notes_are_given_up_and_their_ticket_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk costs memory of events, never their delivery: what came along is stored."""
    monkeypatch.setattr(store_writer, "MAX_NOTES", 3)
    with Desk(tmp_path, records="all") as desk:
        notes = tuple(event(at, Fact(at, What.ACCEPTED), is_first=True) for at in range(3))
        keep(desk, Noted(1, 2, notes), entry(0))
        assert desk.offsets() == [0] and desk.store.load(NOBODY).noted == []
        assert desk.store.statistics().records_lost == 4
        keep(desk, Noted(1, 2, notes))
        assert desk.store.load(NOBODY).noted == []
        assert desk.store.statistics().records_lost == 8
        keep(desk, Noted(1, 3, notes[:2]))
        assert len(desk.store.load(NOBODY).noted) == 2
    lost = table(tmp_path, "SELECT attributes FROM profiles WHERE change = 'lost' ORDER BY number")
    assert sum(int(msgspec.msgpack.decode(told)["records"]) for (told,) in lost) == 8


def test_a_full_store_takes_events_before_notes(tmp_path: Path) -> None:
    """Design §7: what is left is for what has to be delivered."""
    rules = Retention(max_bytes=1 << 20)
    with Desk(tmp_path, records="all", retention=rules) as desk:
        keep(desk, *(entry(at, to_serve=1, body=b"x" * 10_000) for at in range(95)))
        keep(desk, Noted(1, 2, (event(1, Fact(2, What.ACCEPTED), is_first=True),)), LastHad(("a", 1, 0), (2, 3)))
        assert desk.store.load(NOBODY).noted == []
        assert desk.store.load(NOBODY).had == {("a", 1, 0): (2, 3)}
        assert desk.store.statistics().records_lost == 2


def test_a_file_of_the_first_version_becomes_one_of_this(tmp_path: Path) -> None:
    """FLT-07: what it had recorded is read on, and notes go into it."""
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path, MIGRATIONS[:1])
        row = (0, 5, "alice", 7, 1000, 1, msgspec.msgpack.encode(("bob",)))
        connection.execute("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    assert faults(tmp_path) == []
    with Desk(tmp_path, records="all") as desk:
        desk.store.load(NOBODY)
        keep(desk, Noted(10, 20, (event(1, Fact(20, What.DELIVERED, client="carol"), is_first=True),)))
        assert desk.store.delivered(frame(1).id) == [(5, ("bob",)), (20, ("carol",))]
