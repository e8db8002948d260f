"""The quarantine: files that only their owner reads, bounded in number and bytes."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

from veena.runtime.broker import quarantine
from veena.runtime.broker.quarantine import MAX_BYTES, MAX_FILES, MAX_FRAME_BYTES, Caught, Quarantine, hex_of, kept

CAUGHT = Caught(1, "b", 1, "somebody", "127.0.0.1:1", None, "TcpStream", "Arrived", "00", 1, "KeyError", "Traceback")


def test_the_oldest_goes_first(tmp_path: Path) -> None:
    there = Quarantine(tmp_path / "quarantine")
    for at_ns in range(MAX_FILES + 3):
        there.keep(replace(CAUGHT, at_ns=at_ns))
    found = [told["at_ns"] for _, told in kept(there.directory)]
    assert found == list(range(3, MAX_FILES + 3)) and there.count() == MAX_FILES
    large = hex_of(bytes(MAX_FRAME_BYTES + 1))
    assert len(large) == 2 * MAX_FRAME_BYTES
    for at_ns in range(1000, 1006):
        there.keep(replace(CAUGHT, at_ns=at_ns, frames=large))
    sizes = [path.stat().st_size for path in there.directory.iterdir()]
    assert sum(sizes) <= MAX_BYTES and len(sizes) < MAX_FILES
    assert [told["at_ns"] for _, told in kept(there.directory)][-3:] == [1003, 1004, 1005]


def test_nobody_else_reads_it_whatever_was_there(tmp_path: Path) -> None:
    """SEC: the mode is set before the first byte, a planted link is not followed, and what is no JSON is told."""
    directory = tmp_path / "quarantine"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    elsewhere = tmp_path / "elsewhere"
    (directory / f"{1:020d}.new").symlink_to(elsewhere)
    (directory / f"{0:020d}.json").write_text("{")
    path = Quarantine(directory).keep(CAUGHT)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not elsewhere.exists()
    (_, damaged), (_, whole) = kept(directory)
    assert damaged["error"].startswith("cannot be read") and whole["sender"] == "somebody"
    assert quarantine.quarantine_of(tmp_path / "veena.db") == directory
    assert quarantine.quarantine_of(tmp_path / "one.db") == tmp_path / "one.db.quarantine"
