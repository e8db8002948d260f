"""The portal reads the file that `veena pipeline analyze --follow` keeps, as that job writes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from veena.dashboard.pages.live_panel import NAME, LiveFile
from veena.spark.analyze import live as analyze_live


def write(directory: Path, rows: int, seconds: int = 10) -> None:
    """What the job leaves after some windows with four deliveries of 2 ms each."""
    known = analyze_live.Known(seconds, windows={})
    bins = [{"start": seconds * at, "bin": 108, "deliveries": 4, "sum_ms": 8.0, "sum_squares": 16.0, "max_ms": 2.0}
            for at in range(1, rows + 1)]  # fmt: skip
    assert known.add(1, bins)
    part = directory / "part"
    part.write_text(json.dumps(known.plain()))
    os.replace(part, directory / analyze_live.NAME)


def test_the_file_of_the_job_is_read_when_it_changes(tmp_path: Path) -> None:
    assert NAME == analyze_live.NAME
    live = LiveFile(tmp_path)
    found, told = live.look()
    assert found is None and "veena pipeline analyze --follow" in told

    write(tmp_path, 2)
    found, told = live.look()
    assert found is not None and told.startswith("windows of 10 s")
    assert [each.start.timestamp() for each in found.windows] == [10, 20]
    assert [each.deliveries_per_s for each in found.windows] == [0.4, 0.4]
    assert found.windows[0].latency_ms.p99 == 2.0
    assert live.look()[0] is found, "nothing is read twice"

    write(tmp_path, 3)
    found, _ = LiveFile(tmp_path / NAME).look()
    assert found is not None and len(found.windows) == 3
    assert live.look()[0] == found


def test_a_file_that_is_none_is_told_and_what_was_known_stays(tmp_path: Path) -> None:
    live = LiveFile(tmp_path)
    write(tmp_path, 1)
    before, _ = live.look()
    (tmp_path / "part").write_text('{"windows": 7}')
    os.replace(tmp_path / "part", tmp_path / NAME)
    found, told = live.look()
    assert found is before is not None and f"{tmp_path / NAME} cannot be read" in told
    write(tmp_path, 2)
    found, told = live.look()
    assert found is not None and len(found.windows) == 2 and told.startswith("windows of 10 s")
