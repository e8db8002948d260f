"""A disk that fails: publishers are refused in words, nothing that was accepted is lost, and it goes on by itself."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.runtime.store_desk import NOBODY, PATIENCE, Desk, entry
from veena.core.boundary.inputs_effects import LogRead, Read, Stored, StoreFailed
from veena.core.boundary.stored import Entry, Forgotten, Identity, Known, LastHad, Progress, Reached, Registered
from veena.errors import StoreError
from veena.runtime.store.file import FILE_NAME
from veena.runtime.store.repair import faults, repair
from veena.runtime.store.schema import SCHEMA_VERSION

UNPRIVILEGED = 65534
DURABLE = Registered(1, "alice", "n", "topic", "t", 1, 1, (1,), "home")


def opened(path: Path) -> StoreError:
    """What opening says."""
    with pytest.raises(StoreError) as caught:
        Desk(path)
    assert caught.value.file.endswith((".db", FILE_NAME))
    assert caught.value.file in str(caught.value)
    assert caught.value.remedy in str(caught.value)
    return caught.value


@contextmanager
def small_disk(desk: Desk, pages: int) -> Iterator[None]:
    """No more pages than these, until it is over."""
    connection = desk.store._file.connection
    before = connection.execute("PRAGMA max_page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA max_page_count = {before}")


def filled(desk: Desk, first: int) -> tuple[int, str]:
    """Write until the disk is full: the offset that was refused, and why."""
    at = first
    while isinstance(found := desk.write(entry(at, to_serve=1, body=b"y" * 3000)), Stored):
        at += 1
    return at, found.reason


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """FLT-07: nothing accepted is lost, nothing refused is there, and no restart is needed."""
    with Desk(tmp_path) as desk:
        desk.stored(entry(0, to_serve=1))
        with small_disk(desk, 80):
            refused, reason = filled(desk, 1)
            assert "the disk is full" in reason and "free some space" in reason and FILE_NAME in reason
            assert desk.troubles.get(timeout=PATIENCE) == reason == desk.store.statistics().trouble
            assert desk.offsets() == list(range(refused)), "what was accepted can be read"
        desk.stored(entry(refused + 1, to_serve=1))
        assert desk.troubles.get(timeout=PATIENCE) is None
        assert desk.store.statistics().trouble is None
    with Desk(tmp_path) as desk:
        assert [each.offset for each in desk.store.load(NOBODY).entries] == [*range(refused), refused + 1]


def test_the_end_of_a_trouble_is_noticed_when_nobody_writes(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        with small_disk(desk, 80):
            filled(desk, 0)
            assert desk.troubles.get(timeout=PATIENCE) is not None
        assert desk.troubles.get(timeout=PATIENCE) is None


def test_one_bad_write_takes_nobody_else_with_it(tmp_path: Path) -> None:
    """Tickets of one transaction are answered one by one when it fails, in their order."""
    with Desk(tmp_path) as desk:
        bad = Entry(1, entry(1).frame, 1, ("no number",))  # type: ignore[arg-type]
        for writes in ((entry(0),), (bad, LastHad(("a", 1, 3), (1, 1))), (entry(2),)):
            desk.submit(writes)
        answers = [desk.answer() for _ in range(3)]
        assert [type(each) for each in answers] == [Stored, StoreFailed, Stored]
        assert [each.ticket for each in answers] == [1, 2, 3]
        assert desk.offsets() == [0, 2]
        assert desk.store.load(NOBODY).had == {}, "a ticket is kept whole or not at all"


def test_state_that_a_full_disk_did_not_take_is_written_later(tmp_path: Path) -> None:
    """The core goes on with it in memory; after a restart it must be there."""
    with Desk(tmp_path) as desk:
        desk.stored(Registered(2, "bob", "n", "topic", "t", 1, 1, (2,), "home"), Reached(2, 0))
        with small_disk(desk, 60):
            refused, _ = filled(desk, 0)
            floor = ((("p", 1, 3), (1, 1)), (("p", 1, 4), (1, 1)))
            many = Known(tuple((a, b, c) for a in range(32) for b in range(32) for c in range(8)))
            assert "full" in desk.refused(DURABLE, Reached(1, 5, floor[:1]), Reached(1, 6, floor[1:]), many)
            assert "full" in desk.refused(
                Progress(((1, 3), (2, 4))), Forgotten(2), Identity("me", (0, 0, 0, 1), 7), many
            )
            assert "full" in desk.refused(Progress(((1, 5),)), LastHad(("a", 1, 3), (1, 1)), many)
        desk.stored(Known(((1,),)))
        assert desk.store.statistics().failed == 4
    with Desk(tmp_path) as desk:
        found = desk.store.load(NOBODY)
        assert found.registered == {1: DURABLE}
        assert found.reached == {1: 6}
        assert found.floors == {1: dict(floor)}
        assert found.cursors == {1: 5, 2: 4}
        assert found.identity == Identity("me", (0, 0, 0, 1), 7)
        assert found.known == ((1,),)
        assert found.had == {}
        assert found.next_offset == refused


LIMITED = """
import resource, sys
from pathlib import Path
from tests.runtime.store_desk import Desk, entry
from veena.core.boundary.inputs_effects import Stored
with Desk(Path(sys.argv[1])) as desk:
    desk.stored(entry(0, to_serve=1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    at = 1
    while isinstance(found := desk.write(entry(at, to_serve=1, body=b"y" * 3000)), Stored):
        at += 1
    assert "quota" in found.reason, found
    assert desk.offsets() == list(range(at))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    desk.stored(entry(at + 1, to_serve=1))
    print(at)
"""


def test_a_disk_that_breaks_off_a_write_is_survived(tmp_path: Path) -> None:
    """FLT-07: the system itself refuses to write on, in the middle of a transaction."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    ran = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    refused = int(ran.stdout)
    with Desk(tmp_path) as desk:
        assert desk.offsets() == [*range(refused), refused + 1]
        assert desk.store.check() == []


@contextmanager
def unprivileged() -> Iterator[None]:
    """Rights of files mean nothing to root."""
    if os.geteuid() == 0:
        os.seteuid(UNPRIVILEGED)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


def test_a_place_that_cannot_be_written_to_is_refused_at_the_start() -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        with Desk(directory):
            pass
        for path in (*directory.iterdir(), directory):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with unprivileged():
            error = opened(directory)
        assert "denied" in error.reason.lower()
        assert "write" in error.remedy
    finally:
        directory.chmod(0o700)
        shutil.rmtree(directory)


def test_two_brokers_cannot_have_one_store(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        error = opened(tmp_path)
        assert f"process {os.getpid()}" in error.reason
        assert "stop that broker" in error.remedy
        desk.stored(entry(0))
    with Desk(tmp_path) as desk:
        assert desk.offsets() == [0]


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.db"
    text.write_text("buy milk" * 1000)
    assert "no store of Veena" in opened(text).reason
    assert text.read_text() == "buy milk" * 1000
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE songs (name)")
    before = other.read_bytes()
    assert "another program" in opened(other).reason
    assert other.read_bytes() == before


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(entry(0))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    error = opened(tmp_path)
    assert f"version {SCHEMA_VERSION + 1}" in error.reason
    assert "newer Veena" in error.remedy


def test_a_store_of_another_layout_is_refused(tmp_path: Path) -> None:
    with Desk(tmp_path, levels=4):
        pass
    with pytest.raises(StoreError, match="made for a network with levels = 4, not 3"):
        Desk(tmp_path, levels=3)


def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.stored(*(entry(at, body=b"y" * 500) for at in range(200)))
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    for page in range(len(data) // 4096 - 20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    error = opened(tmp_path)
    assert "damaged" in error.reason
    assert faults(tmp_path)
    assert "restore a backup" in error.remedy
    header = bytearray(data)
    header[:16] = b"\x00" * 16
    path.write_bytes(header)
    assert "no store of Veena" in opened(tmp_path).reason
    assert "no store of Veena" in faults(tmp_path)[0]


def test_a_bit_that_turned_over_in_an_event_is_noticed(tmp_path: Path) -> None:
    """SQLite sees nothing wrong, the checksum does. It is never handed over, nor taken for the end of the log."""
    with Desk(tmp_path) as desk:
        desk.stored(entry(0, to_serve=1), entry(1, to_serve=1, body=b"MARK" * 20), entry(2, to_serve=1))
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"MARKMARK", b"MARKMaRK", 1))
    with Desk(tmp_path) as desk:
        with pytest.raises(StoreError, match="event at offset 1 is damaged"):
            desk.store.load(NOBODY)
        assert desk.store.check() == ["log 1: the checksum is wrong"]
        desk.store.submit(Read(1, 0, 10))
        told = desk.troubles.get(timeout=PATIENCE)
        assert told is not None and "event at offset 1" in told
        assert desk.store.statistics().trouble == told
        assert desk.answers.empty()
    assert repair(tmp_path) == ["log 1 was given up"]
    assert faults(tmp_path) == repair(tmp_path) == []
    with Desk(tmp_path) as desk:
        assert [each.offset for each in desk.store.load(NOBODY).entries] == [0, 2]


def test_a_torn_write_ahead_log_loses_only_what_was_torn(tmp_path: Path) -> None:
    """A write that the power cut broke off: the transactions before it are whole."""
    with Desk(tmp_path / "live") as desk:
        for at in range(5):
            desk.stored(entry(at, to_serve=1), LastHad(("a", 1, 3), (at, 0)))
        path = desk.store.path
        wal = path.with_name(path.name + "-wal")
        frame_size = 24 + 4096
        whole = (wal.stat().st_size - 32) // frame_size
        for torn in (1, frame_size // 2, 2 * frame_size + 7):
            copy = tmp_path / f"torn-{torn}"
            copy.mkdir()
            shutil.copy(path, copy / FILE_NAME)
            (copy / f"{FILE_NAME}-wal").write_bytes(wal.read_bytes()[: 32 + whole * frame_size - torn])
            with Desk(copy) as other:
                found = other.store.load(NOBODY)
                offsets = [each.offset for each in found.entries]
                assert offsets == list(range(len(offsets)))
                assert len(offsets) in (3, 4)
                assert found.had == {("a", 1, 3): (offsets[-1], 0)}, "both of a transaction or none"
                assert other.store.check() == []


def test_what_is_broken_for_good_is_not_written_to_any_more(tmp_path: Path) -> None:
    """A file that is damaged under a running broker: every publisher is told, from then on."""
    with Desk(tmp_path) as desk:
        desk.stored(*(entry(at, body=b"y" * 500) for at in range(200)))
        connection = desk.store._file.connection
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = desk.store.path.stat().st_size
        with open(desk.store.path, "r+b") as file:
            for page in range(1, size // 4096):
                file.seek(page * 4096)
                file.write(struct.pack(">Q", 0xFFFFFFFFFFFFFFFF))
        connection.execute("PRAGMA shrink_memory")
        reason = desk.refused(entry(200))
        assert "damaged" in reason
        assert desk.refused(entry(201)) == reason


def test_reads_do_not_wait_for_writes(tmp_path: Path) -> None:
    """A transaction of another program holds the writer up; what is there can be read meanwhile."""
    with Desk(tmp_path) as desk:
        desk.stored(entry(0))
        with closing(sqlite3.connect(desk.store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            desk.submit([entry(1)])
            desk.ticket += 1
            desk.store.submit(Read(desk.ticket, 0, 10))
            found = desk.answers.get(timeout=PATIENCE)
            assert isinstance(found, LogRead) and len(found.entries) == 1
            other.execute("COMMIT")
        assert isinstance(desk.answer(), Stored)
