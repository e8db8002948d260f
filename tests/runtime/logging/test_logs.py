"""Log lines: one a line whatever strangers send, and few when they send much."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from veena.runtime.logging.logs import NOISE_LINES, NOISE_WINDOW_S, LineStatistics, Log, LogFormat, configure


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    logger = logging.getLogger("veena")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers = before[0], before[1], before[2]


@pytest.mark.parametrize("form", ["plain", "json"])
def test_a_line_stays_a_line(form: LogFormat) -> None:
    out = io.StringIO()
    configure("info", form, out)
    Log().info("link down", link=3, reason='evil"\n2026-01-01 error forged')
    Log().debug("not shown")
    (line,) = out.getvalue().splitlines()
    if form == "json":
        told = json.loads(line)
        assert (told["what"], told["link"], told["level"]) == ("link down", 3, "info")
    else:
        assert "info    link down link=3 reason=" in line and "\\n" in line


def test_a_traceback_forges_no_line() -> None:
    """An exception may quote what somebody sent."""
    out = io.StringIO()
    configure("info", "plain", out)
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z info    forged\x1b[2J\r")
    except ValueError as error:
        Log().failure("a read failed", error)
    first, *rest = out.getvalue().splitlines()
    assert "error   a read failed" in first and any("Traceback" in line for line in rest)
    assert all(line.startswith("  ") for line in rest) and any("forged\\x1b[2J\\r" in line for line in rest)


def test_noise_is_bounded_and_counted() -> None:
    out = io.StringIO()
    configure("info", "plain", out)
    now = 100.0
    log = Log(clock=lambda: now)
    for _ in range(1000):
        log.noise("connection refused", peer="x")
    assert len(out.getvalue().splitlines()) == NOISE_LINES
    now += NOISE_WINDOW_S
    log.noise("connection refused", peer="y")
    lines = out.getvalue().splitlines()
    assert len(lines) == NOISE_LINES + 2 and f"left_out={1000 - NOISE_LINES}" in lines[-2]


def test_what_was_left_out_is_counted_at_once_and_told_at_the_end() -> None:
    out = io.StringIO()
    configure("info", "plain", out)
    log = Log()
    for _ in range(9):
        log.noise("connection refused", peer="x")
    log.noise("a client does not read", level=logging.DEBUG)
    assert log.statistics() == LineStatistics(NOISE_LINES, 9 - NOISE_LINES)
    log.end_noise()
    log.end_noise()
    lines = out.getvalue().splitlines()
    assert len(lines) == NOISE_LINES + 1 == log.statistics().written
    assert "connection refused left_out=4" in lines[-1]


def test_a_failure_says_where() -> None:
    out = io.StringIO()
    configure("info", "json", out)
    try:
        raise ValueError("broken")
    except ValueError as error:
        Log().failure("stops", error)
    assert "test_logs" in json.loads(out.getvalue())["trace"]
