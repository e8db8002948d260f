"""Options of the whole test suite."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scripts in tests/scenarios print, and the bytes of tests/bytes.txt, as expected",
    )


# How long an example takes is the machine's business: a busy one is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Under `nohup`, or in the background of a script, a process ignores these, and so would every command that tests start
# and interrupt. A handler is not inherited as being ignored is.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)
