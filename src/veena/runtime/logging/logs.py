"""What a broker says of itself: one line an occurrence, for people or as JSON, and bounded where strangers cause it.

A line is a sentence that is always the same and the fields that differ: `link up link=3 peer=127.0.0.1:7701`. Text that
came from outside is quoted, so that it cannot pretend to be a line. `noise` is for what anybody out there can cause as
often as he likes: a few lines of each kind in a while, and how many were left out with the next one or at the end.
What was written and what was left out is counted at once.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

LogFormat = Literal["plain", "json"]
#: Lines of one kind of noise within a window; enough to see what it is.
NOISE_LINES = 5
NOISE_WINDOW_S = 10.0
#: Texts from outside are cut here.
MAX_FIELD = 300

_PLAIN = re.compile(r"[\w.,:/@+\[\]%~-]+")
Field = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """How much a broker has said."""

    written: int
    #: Occurrences of noise without a line of their own.
    left_out: int


class Log:
    """The voice of one broker in one process."""

    def __init__(self, logger: logging.Logger | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger or logging.getLogger("veena.broker")
        self._clock = clock
        #: By kind of noise: the start of its window, the lines in it, their level.
        self._noise: dict[str, tuple[float, int, int]] = {}
        self._written = self._left_out = 0

    def debug(self, what: str, **fields: Field) -> None:
        self._say(logging.DEBUG, what, fields)

    def info(self, what: str, **fields: Field) -> None:
        self._say(logging.INFO, what, fields)

    def warning(self, what: str, **fields: Field) -> None:
        self._say(logging.WARNING, what, fields)

    def error(self, what: str, **fields: Field) -> None:
        self._say(logging.ERROR, what, fields)

    def failure(self, what: str, error: BaseException) -> None:
        """Something that must not happen: with where it happened."""
        self._written += 1
        self._logger.error(what, exc_info=error, extra={"fields": {"error": str(error)}})

    def noise(self, what: str, *, level: int = logging.WARNING, **fields: Field) -> None:
        """What others can cause at will; the kinds are the sentences that this code has."""
        now = self._clock()
        start, lines, _ = self._noise.get(what, (now, 0, level))
        if now - start >= NOISE_WINDOW_S:
            self._tell_left_out(what, level, lines)
            start, lines = now, 0
        self._noise[what] = (start, lines + 1, level)
        if lines < NOISE_LINES:
            self._say(level, what, fields)
        elif self._logger.isEnabledFor(level):
            self._left_out += 1

    def end_noise(self) -> None:
        """Say what was left out and not told yet: nothing more will come."""
        for what, (_, lines, level) in self._noise.items():
            self._tell_left_out(what, level, lines)
        self._noise.clear()

    def statistics(self) -> LineStatistics:
        return LineStatistics(self._written, self._left_out)

    def _tell_left_out(self, what: str, level: int, lines: int) -> None:
        if lines > NOISE_LINES:
            self._say(level, what, {"left_out": lines - NOISE_LINES})

    def _say(self, level: int, what: str, fields: dict[str, Field]) -> None:
        if self._logger.isEnabledFor(level):
            self._written += 1
            self._logger.log(level, what, extra={"fields": fields})


class _Lines(logging.Formatter):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._is_json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Field] = getattr(record, "fields", {})
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            line = {"time": when, "level": record.levelname.lower(), "what": record.getMessage(), **fields}
            return json.dumps({**line, "trace": trace} if trace else line)
        told = "".join(f" {key}={_shown(value)}" for key, value in fields.items())
        return f"{when} {record.levelname.lower():7} {record.getMessage()}{told}" + _indented(trace)


def configure(level: str = "info", form: LogFormat = "plain", stream: TextIO | None = None) -> logging.Logger:
    """Send everything that Veena says to this stream, standard error by default; callable again to change it."""
    logger = logging.getLogger("veena")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(form))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(level.upper())
    return logger


def _shown(value: Field) -> str:
    text = str(value)
    if len(text) > MAX_FIELD:
        text = text[:MAX_FIELD] + "..."
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _indented(trace: str) -> str:
    """The lines of a traceback, none of which can pretend to be one of the log: texts from outside may be in it."""
    shown = ("".join(each if each.isprintable() else repr(each)[1:-1] for each in line) for line in trace.split("\n"))
    return "".join(f"\n  {line}" for line in shown) if trace else ""


def memory_bytes() -> int:
    """How much memory is resident now; where the system tells only the highest value so far, that one."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
