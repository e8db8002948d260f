"""Rates and latencies as they change, and brokers with what they have to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.dashboard.pages.frame import LOOK_S, Frame, Note, panel
from veena.dashboard.pages.live_panel import LiveFile, LivePanel
from veena.dashboard.sessions.observer import Observer, Reading

#: Letters and lines of charts: to be read on light and on dark.
CHART_INK = "#7a8794"
COLUMNS: tuple[tuple[str, str], ...] = (
    ("broker", "Broker"), ("clients", "Clients"), ("subscriptions", "Subscriptions"), ("durable", "Durable"),
    ("profiles", "Profiles"), ("in", "Events in/s"), ("out", "Events out/s"), ("clogged", "Slow clients"),
    ("waiting", "Waiting"), ("waiting_bytes", "Waiting bytes"), ("dropped", "Dropped"),
    ("disconnected", "Disconnected"), ("log", "Log"), ("memory", "Memory"), ("up", "Up"), ("version", "Version"),
)  # fmt: skip


def columns(named: tuple[tuple[str, str], ...]) -> list[dict[Any, Any]]:
    return [
        {"name": name, "label": label, "field": name, "align": "left" if not at else "right", "sortable": True}
        for at, (name, label) in enumerate(named)
    ]


def register(frame: Frame, live: LiveFile | None = None) -> None:
    @ui.page("/traffic", response_timeout=15)
    async def traffic(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Traffic"):
            _build(person.observer, live)
        return None


def _build(observer: Observer, live: LiveFile | None) -> None:
    note = Note()
    with ui.element("div").classes("panels"):
        with panel("Events a second"):
            rates = ui.echart(line_chart(("in", "out"), "events/s")).classes("chart")
        with panel("Round trips"):
            trips = ui.echart(line_chart(("to the broker", "links, median", "links, worst"), "ms")).classes("chart")
    by_spark = None if live is None else LivePanel(live, line_chart)
    with panel("Brokers"):
        table = ui.table(columns=columns(COLUMNS), rows=[], row_key="broker", pagination=15)
        table.props("flat dense")
        silent = ui.label().classes("faint")
    seen = {"version": -1}

    def show() -> None:
        observer.want()
        if observer.denied:
            note.say(observer.denied, "warn")
        elif by_spark is not None:
            by_spark.show()
        if observer.version == seen["version"]:
            return
        seen["version"] = observer.version
        readings = list(observer.readings)
        _fill(rates, readings, lambda each: (each.events_in, each.events_out))
        _fill(trips, readings, lambda each: (each.to_broker_ms, each.link_median_ms, each.link_worst_ms))
        table.rows = observer.rows()
        silent.text = "; ".join(f"{label} does not answer: {reason}" for label, reason in observer.silent())

    show()
    ui.timer(LOOK_S, show)


def line_chart(names: tuple[str, ...], unit: str) -> dict[str, Any]:
    """Lines over time, or over steps."""
    return {
        "animation": False,
        "textStyle": {"color": CHART_INK},
        "grid": {"left": 8, "right": 12, "top": 36, "bottom": 8, "containLabel": True},
        "legend": {"top": 0, "textStyle": {"color": CHART_INK}, "data": list(names)},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "category", "boundaryGap": False, "data": [], "axisLabel": {"color": CHART_INK}},
        "yAxis": {"type": "value", "name": unit, "scale": True, "splitLine": {"lineStyle": {"color": "#7a879444"}}},
        "series": [{"name": name, "type": "line", "showSymbol": False, "data": []} for name in names],
    }


def _fill(chart: ui.echart, readings: list[Reading], values: Any) -> None:
    chart.options["xAxis"]["data"] = [datetime.fromtimestamp(each.at).strftime("%H:%M:%S") for each in readings]
    rows = [values(each) for each in readings]
    for at, series in enumerate(chart.options["series"]):
        series["data"] = [None if row[at] is None else round(row[at], 2) for row in rows]
    chart.update()
