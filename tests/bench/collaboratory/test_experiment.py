"""The experiments of the collaboratory on small scales: lines that delay and count, users near and far, a roam."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from veena.bench import report_folder
from veena.bench.collaboratory import experiment as collaboratory
from veena.bench.collaboratory import induced_roam
from veena.bench.collaboratory import report as collaboratory_report
from veena.bench.collaboratory.experiment import BODY, Scale
from veena.bench.collaboratory.line import Line
from veena.client import connect
from veena.services.adviser.live import Adviser

PATIENCE_S = 60.0
MARK = b"<mark>"


def test_a_line_delays_shares_its_rate_and_counts() -> None:
    """Two connections at once take as long as their bytes together; marks are counted wherever they are cut."""
    size, rate, delay_s = 50_000, 4e6, 0.05
    body = (MARK + b"x" * 994) * (size // 1000)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(size))
        writer.close()
        await writer.wait_closed()

    async def through(url: str) -> float:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        began = loop.time()
        writer.write(body[:3])
        writer.write(body[3:])
        assert await reader.readexactly(size) == body
        took = loop.time() - began
        writer.close()
        await writer.wait_closed()
        return took

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with asyncio.timeout(PATIENCE_S), server, Line(delay_s, rate, MARK) as line:
            url = await line.door(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            one = 2 * delay_s + size * 8 / rate
            # What connecting takes comes on top: there and back before the first byte is let through.
            assert await through(url) >= one
            assert max(await asyncio.gather(through(url), through(url))) >= one + size * 8 / rate
            assert line.copies == 3 * 2 * (size // 1000) and line.carried == 3 * 2 * size

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[collaboratory.Row]:
    lines = {"slow": (5.0, 1e6)}
    scale = Scale((8,), events=3, per_second=6.0)
    measured = collaboratory.measure(tmp_path_factory.mktemp("collaboratory"), scale, lambda text: None, lines)
    return asyncio.run(asyncio.wait_for(measured, PATIENCE_S))


def test_copies_over_the_line_are_as_many_as_users_or_one(rows: list[collaboratory.Row]) -> None:
    """EXP-40, FIX-30, AGG-01: eight users cost eight copies of each event, or one with aggregation."""
    assert [(row.clients, row.aggregated, row.copies) for row in rows] == [(8, False, 8), (8, True, 1)]
    assert not any(row.faults for row in rows)
    apart, together = rows
    assert apart.bytes > 6 * together.bytes > 6 * BODY
    # Eight copies take 130 ms of such a line, one takes 16; more than chance makes of it.
    assert apart.mean_ms > together.mean_ms and apart.line_ms > 3 * together.line_ms
    assert all(row.p95_ms >= row.mean_ms * 0.5 and row.mean_ms >= row.delay_ms for row in rows)


def test_the_picture_and_the_table_show_every_row(
    rows: list[collaboratory.Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    report_folder.prepare(out)
    collaboratory_report.draw(rows, out / "c.png")
    assert (out / "c.png").read_bytes().startswith(b"\x89PNG")
    collaboratory_report.show(rows)
    shown = capsys.readouterr().out
    assert "slow: 5 ms one way, 1 Mbit/s" in shown and shown.count(" yes ") == 1
    assert json.dumps([row.plain() for row in rows])


def test_an_induced_roam_leaves_one_copy_on_the_long_line(tmp_path: Path) -> None:
    """FIX-32, FUT-06, FUT-07, DUP-08: ten copies before, one after; no event lost or repeated."""
    measured = induced_roam.measure(
        tmp_path, lambda urls, operator: Adviser(urls, connect, operator), 6, lambda text: None, quick=True
    )
    outcome = asyncio.run(asyncio.wait_for(measured, PATIENCE_S))
    before, *_, after = outcome.phases
    assert (before.copies, after.copies) == (10, 1)
    assert before.bytes > 5 * after.bytes
    assert outcome.is_sound and outcome.clients == 10 and outcome.expected >= 10 * 12
    assert outcome.steps[-1].startswith("10 of 10 clients arrived at boston.1")
