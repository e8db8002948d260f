"""Deliveries and their latency by window of time, as `veena pipeline analyze --follow` works them out on Spark.

The job keeps one small JSON file and replaces it as a whole; the page looks whether it has changed. So the portal needs
no Spark, and either can be started again without the other. What is in the file are sums over all clients: who may see
the brokers' traffic may see it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from nicegui import ui

from veena.dashboard.pages.frame import panel

NAME: Final = "live.json"
RATE_LINES: Final = ("deliveries",)
LATENCY_LINES: Final = ("p50", "p95", "p99")


class Latency(msgspec.Struct, frozen=True):
    p50: float
    p95: float
    p99: float


class Window(msgspec.Struct, frozen=True):
    start: datetime
    deliveries_per_s: float
    latency_ms: Latency


class Windows(msgspec.Struct, frozen=True):
    """The file; what else is in it is not shown."""

    updated: datetime
    window_s: int
    windows: tuple[Window, ...]


class LiveFile:
    """The file of a job, read again when it has changed; one for all pages."""

    def __init__(self, path: Path) -> None:
        self._path = path / NAME if path.suffix != ".json" else path
        self._mark: tuple[int, int] | None = None
        self._found: Windows | None = None
        self._trouble = ""

    def look(self) -> tuple[Windows | None, str]:
        """What is known, and what there is to say of it."""
        try:
            state = self._path.stat()
            mark = (state.st_mtime_ns, state.st_ino)
            if mark != self._mark:
                self._found, self._trouble = msgspec.json.decode(self._path.read_bytes(), type=Windows), ""
                self._mark = mark
        except FileNotFoundError:
            return (
                None,
                f"waiting for {self._path}: `veena pipeline analyze --follow --out {self._path.parent}` makes it",
            )
        except (OSError, msgspec.DecodeError) as error:
            self._trouble = f"{self._path} cannot be read: {error}"
        found = self._found
        if self._trouble or found is None:
            return found, self._trouble
        told = found.updated.astimezone().strftime("%H:%M:%S")
        return found, f"windows of {found.window_s} s, worked out at {told}"


class LivePanel:
    """The two charts of a page; `show` brings them up to date."""

    def __init__(self, live: LiveFile, line_chart: Any) -> None:
        self._live = live
        self._shown: Windows | None = None
        with ui.element("div").classes("panels"):
            with panel("Deliveries a second, by Spark"):
                self._rates = ui.echart(line_chart(RATE_LINES, "deliveries/s")).classes("chart")
            with panel("Latency of deliveries, by Spark"):
                self._latency = ui.echart(line_chart(LATENCY_LINES, "ms")).classes("chart")
        self._label = ui.label().classes("faint")

    def show(self) -> None:
        found, self._label.text = self._live.look()
        if found is None or found is self._shown:
            return
        self._shown = found
        times = [each.start.astimezone().strftime("%H:%M:%S") for each in found.windows]
        rates = [(each.deliveries_per_s,) for each in found.windows]
        latencies = [(each.latency_ms.p50, each.latency_ms.p95, each.latency_ms.p99) for each in found.windows]
        for chart, rows in ((self._rates, rates), (self._latency, latencies)):
            chart.options["xAxis"]["data"] = times
            for at, series in enumerate(chart.options["series"]):
                series["data"] = [round(row[at], 3) for row in rows]
            chart.update()
