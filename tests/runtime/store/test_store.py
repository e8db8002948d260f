"""The store as a broker uses it: tickets, reads, restarts, a kill in the middle, records and history, migration."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.runtime.store_desk import NOBODY, PATIENCE, Desk, entry, frame
from veena.core.boundary.inputs_effects import Read, Stored, StoreFailed
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.stored import Identity, Known, LastHad, Progress
from veena.errors import ConfigError, StoreError
from veena.event import EventId
from veena.runtime.store import writer as store_writer
from veena.runtime.store.audit_records import BLOCK, Delivery, Hop, Passed, ProfileChange, Record
from veena.runtime.store.file import FILE_NAME, connect
from veena.runtime.store.retention import Retention
from veena.runtime.store.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, migrate
from veena.runtime.store.store import Store


def event_id(sequence: int, publisher: str = "alice") -> EventId:
    return EventId(publisher, 7, 1000, sequence)


# --- tickets ---


def test_tickets_are_answered_in_their_order_and_share_transactions(tmp_path: Path) -> None:
    """I5: while one commit is synced the next ones gather."""
    with Desk(tmp_path) as desk:
        with closing(sqlite3.connect(desk.store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the disk is busy for a while
            for at in range(500):
                desk.submit([entry(at)])
            other.execute("COMMIT")
        assert [desk.answer() for _ in range(500)] == [Stored(at) for at in range(1, 501)]
        assert desk.store.statistics().commits < 100
        assert desk.offsets() == list(range(500))


def test_a_large_ticket_is_one_transaction(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(*(entry(at, to_serve=at % 3) for at in range(1234)))
        assert desk.offsets() == list(range(1234))
        assert desk.store.statistics().commits == 1


def test_a_new_store_is_empty_and_belongs_to_its_user_alone(tmp_path: Path) -> None:
    with Desk(tmp_path / "deep" / "down") as desk:
        disk = desk.store.load(NOBODY)
        assert (disk.identity, disk.entries, disk.next_offset) == (NOBODY, [], 0)
        assert desk.store.path == tmp_path / "deep" / "down" / FILE_NAME
        assert stat.S_IMODE(desk.store.path.stat().st_mode) == 0o600
        assert desk.store.is_checked
    with Desk(tmp_path / "mine.db") as desk:
        assert desk.store.path == tmp_path / "mine.db"


def test_save_waits_for_the_sync(tmp_path: Path) -> None:
    me = Identity("me", (0, 1, 2, 3), 5)
    with Desk(tmp_path) as desk:
        desk.store.save(me, Known(((1,), (0, 2))))
        assert desk.store.load(NOBODY).identity == me
        with pytest.raises(StoreError, match="not written"):
            desk.store.save(Identity("me", (0, 1, 2, 3), "no number"))  # type: ignore[arg-type]
        assert desk.answers.empty()


def test_too_much_at_once_is_refused_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-09: what waits for the disk is bounded; state is never dropped for it."""
    monkeypatch.setattr(store_writer, "MAX_WAITING", 2)
    with Desk(tmp_path) as desk:
        with closing(sqlite3.connect(desk.store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for at in range(20):
                desk.submit([entry(at), Progress(((1, at),))])
            other.execute("COMMIT")
        answers = [desk.answer() for _ in range(20)]
        assert [each.ticket for each in answers] == list(range(1, 21))
        refused = [each for each in answers if isinstance(each, StoreFailed)]
        assert len(refused) >= 15
        assert "too slow" in refused[0].reason
        assert len(desk.offsets()) == 20 - len(refused)
        assert desk.store.load(NOBODY).cursors == {1: 19}


def test_closing_answers_what_waits(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    desk = Desk(tmp_path)
    assert len(set(threading.enumerate()) - others) >= 2
    for at in range(100):
        desk.submit([entry(at)])
    desk.store.close()
    desk.store.close()
    assert [desk.answer() for _ in range(100)] == [Stored(at) for at in range(1, 101)]
    assert set(threading.enumerate()) <= others
    assert not (tmp_path / f"{FILE_NAME}-wal").exists()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(entry(0))
    with pytest.raises(StoreError, match="it is closed"):
        desk.store.save()
    with pytest.raises(StoreError, match="it is closed"):
        desk.store.submit(Read(1, 0, 1))


def test_a_loop_that_is_closed_stops_nobody(tmp_path: Path) -> None:
    """A broker that goes down does not wait for answers; what it wrote is there."""

    def closed(told: object) -> None:
        raise RuntimeError("Event loop is closed")

    with Store(tmp_path, closed, on_trouble=closed) as store:
        store.submit(StoreEffect(1, (entry(0),)))
        store.submit(StoreEffect(2, (entry(0),)))  # fails: the offset is taken
        store.submit(Read(1, 0, 10))
        store.save(LastHad(("a", 1, 3), (1, 1)))
    with Desk(tmp_path) as desk:
        assert desk.offsets() == [0]
        assert desk.store.load(NOBODY).had == {("a", 1, 3): (1, 1)}


def test_many_threads_may_ask(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        lock, offsets = threading.Lock(), iter(range(1000))

        def publish() -> None:
            for _ in range(50):
                with lock:
                    at = next(offsets)
                    desk.store.submit(StoreEffect(at, (entry(at), LastHad(("a", 1, 3), (at, 0)))))

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [desk.answer().ticket for _ in range(200)] == list(range(200))
        assert desk.store.load(NOBODY).had == {("a", 1, 3): (199, 0)}


# --- a kill in the middle ---

VICTIM = """
import sys
from pathlib import Path
from tests.runtime.store_desk import NOBODY, entry
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.stored import LastHad
from veena.runtime.store.store import Store
def answered(answers):
    sys.stdout.write("".join(f"{each.ticket}\\n" for each in answers))
    sys.stdout.flush()
store = Store(Path(sys.argv[1]), answered)
at = store.load(NOBODY).next_offset
while True:
    while store.statistics().waiting > 50:
        pass
    store.submit(StoreEffect(at, (entry(at, to_serve=1), LastHad(("a", 1, 3), (at, 0)))))
    at += 1
"""


def test_everything_that_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """FLT-01, GUA-02: kill -9 in the middle of commits, again and again; nothing is torn, nothing answered is gone."""
    answered = -1
    for round_number in range(4):
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        for _ in range(40 * round_number + 5):
            answered = int(victim.stdout.readline())
        victim.kill()
        rest = victim.stdout.read()
        victim.wait()
        victim.stdout.close()
        complete = rest[: rest.rfind("\n") + 1].split()
        answered = int(complete[-1]) if complete else answered
        with Desk(tmp_path) as desk:
            disk = desk.store.load(NOBODY)
            assert [each.offset for each in disk.entries] == list(range(disk.next_offset))
            assert disk.next_offset > answered
            assert disk.had == {("a", 1, 3): (disk.next_offset - 1, 0)}
            assert desk.store.check() == []
    assert answered > 100


# --- records and history ---


def test_history_of_a_client_both_ways(tmp_path: Path) -> None:
    """DIS-07: what a client consumed and what it produced, in order, over restarts."""
    with Desk(tmp_path, records="deliveries", history="all") as desk:
        for at in range(0, 3 * BLOCK, 2):
            desk.submit([entry(at, at, publisher="alice"), entry(at + 1, at + 1, publisher="bob", to_serve=1)])
            desk.store.record([
                Delivery(at, event_id(at), ("carol", "dave") if at % 100 == 0 else ("dave",)),
                Passed(at, frame(10_000 + at, publisher="alice", reliable=False)),
            ])  # fmt: skip
        for _ in range(0, 3 * BLOCK, 2):
            assert isinstance(desk.answer(), Stored)
        desk.stored(entry(3 * BLOCK, 5, inboxes=(1,), publisher="alice"))
        produced = desk.store.history("alice", "produced")
        assert [each.at_ns for each in produced] == [at for at in range(0, 3 * BLOCK, 2) for _ in range(2)]
        assert [each.id for each in produced[::2]] == [event_id(at) for at in range(0, 3 * BLOCK, 2)]
        consumed = desk.store.history("carol", "consumed")
        assert [each.id for each in consumed] == [event_id(at) for at in range(0, 3 * BLOCK, 100)]
    with Desk(tmp_path) as desk:
        assert desk.store.history("carol", "consumed") == consumed
        late = desk.store.history("dave", "consumed", since_ns=501, limit=3)
        assert [each.at_ns for each in late] == [502, 504, 506]
        assert desk.store.history("bob", "consumed") == []
        assert [each.at_ns for each in desk.store.history("bob", "produced", limit=2)] == [1, 3]
        assert desk.store.delivered(event_id(200)) == [(200, ("carol", "dave"))]


@pytest.mark.parametrize(
    ("records", "history", "tables"),
    [
        ("off", "reliable", ()),
        ("deliveries", "reliable", ("deliveries",)),
        ("all", "reliable", ("deliveries", "hops", "profiles")),
        ("off", "all", ("passed",)),
    ],
)
def test_settings_say_what_is_recorded(tmp_path: Path, records: str, history: str, tables: tuple[str, ...]) -> None:
    rows: list[Record] = [
        Delivery(1, event_id(1), ("bob",)),
        Hop(1, event_id(1), None, (0, 0, 0, 2), 0),
        Hop(2, event_id(1), (0, 0, 0, 1), (0, 1, 0, 2), 2),
        ProfileChange(1, "bob", 1, "added", "selector", ("t", "x > 1"), 2),
        Passed(1, frame(1, reliable=False)),
    ]
    with Desk(tmp_path, records=records, history=history) as desk:
        desk.store.record(rows)
        desk.store.record(rows)
    with closing(connect(tmp_path / FILE_NAME, read_only=True)) as connection:
        found = {
            table: [row[0] for row in connection.execute(f"SELECT number FROM {table} ORDER BY number")]
            for table in ("deliveries", "hops", "profiles", "passed")
        }
    expected = {"deliveries": [0, 1], "hops": [0, 1, 2, 3], "profiles": [0, 1], "passed": [0, 1]}
    assert found == {table: numbers if table in tables else [] for table, numbers in expected.items()}


def test_records_are_written_though_no_ticket_comes(tmp_path: Path) -> None:
    with Desk(tmp_path, records="all") as desk:
        desk.store.record([Delivery(5, event_id(1), ("bob",))])
        until = time.monotonic() + PATIENCE
        while not desk.store.history("bob", "consumed"):
            assert time.monotonic() < until
        assert desk.store.statistics().records_lost == 0


def test_only_what_somebody_waits_for_is_synced(tmp_path: Path) -> None:
    """GUA-02: records alone are not; whatever is answered `Stored` is, also after them."""
    with Desk(tmp_path, records="all") as desk:

        def mode() -> int:
            return int(desk.store._file.connection.execute("PRAGMA synchronous").fetchone()[0])

        for at in range(2):
            desk.stored(entry(at))
            assert mode() == 2
            desk.store.record([Delivery(at, event_id(at), ("bob",))])
            until = time.monotonic() + PATIENCE
            while len(desk.store.history("bob", "consumed")) <= at:
                assert time.monotonic() < until
            assert mode() == 1


def test_too_many_records_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "MAX_RECORDS", 10)
    with Desk(tmp_path, records="all") as desk:
        desk.store.record([Delivery(at, event_id(at), ("bob",)) for at in range(25)])
        desk.store.save()
        assert desk.store.statistics().records_lost == 15
        assert len(desk.store.history("bob", "consumed")) == 10


def test_records_go_by_age_and_their_numbers_go_on(tmp_path: Path) -> None:
    clock = [0]
    with Desk(tmp_path, records="all", retention=Retention(age_ns=100), now_ns=lambda: clock[0]) as desk:
        desk.store.record([Delivery(at, event_id(at), ("bob",)) for at in range(300)])
        clock[0] = 1000
        desk.trimmed()
        assert desk.store.history("bob", "consumed") == []
    with Desk(tmp_path, records="all") as desk:
        desk.store.record([Delivery(2000, event_id(1), ("bob",))])
    with closing(connect(tmp_path / FILE_NAME, read_only=True)) as connection:
        assert connection.execute("SELECT number FROM deliveries").fetchall() == [(300,)]


@pytest.mark.parametrize("options", [{"records": "some"}, {"history": "best"}])
def test_settings_that_do_not_exist(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options.values()))):
        Desk(tmp_path, **options)
    assert os.listdir(tmp_path) == []


# --- migration ---


def test_a_file_of_version_0_becomes_the_newest(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with Desk(tmp_path) as desk:
        desk.stored(entry(0))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (1,)


def test_migrations_follow_each_other_and_keep_what_is_there(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(entry(0, accepted_ns=5))
        path = desk.store.path
    later = (
        *MIGRATIONS,
        ("ALTER TABLE log ADD COLUMN size INTEGER", "UPDATE log SET size = length(frame)"),
        ("CREATE TABLE tariffs (name)",),
    )
    with closing(connect(path)) as connection:
        assert migrate(connection, path, later) == SCHEMA_VERSION
        assert connection.execute("SELECT accepted_ns, size > 100 FROM log").fetchall() == [(5, 1)]
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 2,)
        assert migrate(connection, path, later) == SCHEMA_VERSION + 2
    with pytest.raises(StoreError, match="newer Veena"):
        Desk(tmp_path)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(entry(0))
        path = desk.store.path
    broken = (*MIGRATIONS, ("CREATE TABLE tariffs (name)", "UPDATE nowhere SET x = 1"))
    with closing(connect(path)) as connection, pytest.raises(StoreError, match="nothing was changed"):
        migrate(connection, path, broken)
    with Desk(tmp_path) as desk:
        assert desk.offsets() == [0]


def test_versions_only_ever_grow() -> None:
    assert SCHEMA_VERSION == len(MIGRATIONS) >= 1
    assert all(before != after for before, after in pairwise(MIGRATIONS))
