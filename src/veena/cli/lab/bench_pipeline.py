"""What `veena bench pipeline` measures, and how it shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from veena.spark.bench.suite import Figure

#: Engine, workload, profiles, events.
LOADS = (
    ("integer", "unique", 100_000, 1_000_000),
    ("topic", "unique", 100_000, 1_000_000),
    ("tags", "sets30", 100_000, 1_000_000),
    ("selector", "eq001", 100_000, 100_000),
    ("selector", "mixed", 100_000, 100_000),
    ("constraint", "eq001", 100_000, 100_000),
    ("xpath", "menu", 100_000, 100_000),
)
#: One of each kind for --quick: joined, cheap, indexed, dear.
QUICK_LOADS = (("topic", "unique"), ("tags", "sets30"), ("selector", "mixed"), ("xpath", "menu"))


def table(figures: list[Figure]) -> Table:
    """Narrow enough for 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from veena.bench.matching.report import compact, machine

    shown = Table(title=machine(), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column, justify in (("", "left"), ("ratio", "right"), ("bar", "right"), ("", "left")):
        shown.add_column(column, justify=justify)  # type: ignore[arg-type]
    for figure in figures:
        bar = "" if figure.bar is None else f"{figure.bar:g}"
        rates = [
            f"{name.removesuffix('_events_s').removesuffix('_rows_s').replace('_', ' ')} {compact(value)}/s"
            for name, value in figure.detail.items()
            if name.endswith("_s") and name != "cold_s"
        ]
        if "overhead_us" in figure.detail:
            detail = figure.detail
            rates.append(f"{detail['overhead_us']:.1f} us more a row, engine {detail['engine_us']:.1f} us")
            if "java_us" in detail:
                rates.append(f"processors: Java {detail['java_us']:.1f} us, Python {detail['python_us']:.1f} us")
        if "looked_at" in figure.detail:
            rates.append(f"looked at {figure.detail['looked_at']:,}, sent {figure.detail['sent']:,}")
        if "processes_ratio" in figure.detail:
            rates.append(f"plain processes {figure.detail['processes_ratio']:.2f} x")
        mark = "" if figure.bar is None else " short" if figure.is_short else " met"
        shown.add_row(f"{figure.section} {figure.name}", f"{figure.ratio:.2f}", bar + mark, ", ".join(rates))
    return shown
