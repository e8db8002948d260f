"""The matching figures of the NaradaBrokering paper, drawn again with our engines (EXP-30..36).

The paper let a stand-alone process match single events against 10,000 to 100,000 subscriptions and took the time to
retrieve every one that matches. So does this, engine by engine: the subscriptions grow in ten steps, and at each step
the median of passes over new events counts, in CPU time. The paper's own curves are lost but for a few numbers, which
stand in the captions; its machine was a 1 GHz processor with Java 1.4, so the shapes compare, not the heights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time_ns
from typing import Any

from veena import matching
from veena.bench.matching.measure import DESTINATIONS, Say, per_event_us
from veena.bench.matching.report import machine, pyplot
from veena.bench.matching.xml import DISHES, menu_document, menu_xpath
from veena.event import Event
from veena.matching.base.engine import Constraint, Engine

TAG_PAIRS = (5, 10, 15, 20, 25)
TOPIC_SIZES = (16, 32)
PASSES = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    subscriptions: tuple[int, ...] = tuple(range(10_000, 100_001, 10_000))
    #: The paper stored XML events and asked for those that satisfy a query.
    documents: tuple[int, ...] = tuple(range(1_000, 10_001, 1_000))
    #: In each of the passes at each size.
    events: int = 50


QUICK = Scale(subscriptions=(1_000, 2_000, 4_000), documents=(100, 200, 400), events=10)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: curves over one axis."""

    number: int
    title: str
    caption: str
    x_label: str
    x: tuple[int, ...]
    #: Name -> microseconds at each x.
    curves: dict[str, list[float]] = field(default_factory=dict)
    #: Name -> what else was counted at each x.
    counts: dict[str, list[float]] = field(default_factory=dict)


def run(out: Path, scale: Scale, say: Say) -> dict[str, Any]:
    """Measure, write `matching.json` and a PNG a figure into `out`, and return what was written."""
    pyplot()  # better to hear of a missing package now than after minutes of measuring
    out.mkdir(parents=True, exist_ok=True)
    figures = []
    for make in (_integer, _string, _tags, _selector_and_xpath, _destinations, _stored_documents):
        figure = make(scale)
        say(f"figure {figure.number}")
        _draw(figure, out / f"figure-{figure.number:02d}.png")
        figures.append(figure)
    report = {"machine": machine(), "figures": [_plain(figure) for figure in figures], "claims": _claims(figures)}
    (out / "matching.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def _integer(scale: Scale) -> Figure:
    figure = Figure(5, "Matching integer topics", "The paper's cheapest engine.", "subscriptions", scale.subscriptions)
    figure.curves["integer"] = _growing(
        "integer", scale, lambda _, n: n * 2_654_435_761 % (1 << 32),
        lambda random, n: Event(integer=random.randrange(n) * 2_654_435_761 % (1 << 32)),
    )["match"]  # fmt: skip
    return figure


def _string(scale: Scale) -> Figure:
    caption = "The paper: about 1 us more when the topic is twice as long."
    figure = Figure(6, "Matching string topics", caption, "subscriptions", scale.subscriptions)
    for size in TOPIC_SIZES:

        def constraint(_random: Random, number: int, size: int = size) -> Constraint:
            return f"{number:0{size}d}"

        def event(random: Random, stored: int, size: int = size) -> Event:
            return Event(topic=f"{random.randrange(stored):0{size}d}")

        figure.curves[f"{size} bytes"] = _growing("topic", scale, constraint, event)["match"]
    return figure


def _tags(scale: Scale) -> Figure:
    """MAT-33, AMB-27: equality only, and again with a `*` in every third place, in three ways."""
    caption = (
        "The paper: no variation from 5 to 25 pairs; dearer than strings. Broken lines: a third of the pairs are *."
    )
    figure = Figure(7, "Matching tag=value pairs", caption, "subscriptions", scale.subscriptions)
    for free in (False, True):
        for pairs in TAG_PAIRS:

            def constraint(_random: Random, number: int, pairs: int = pairs, free: bool = free) -> Constraint:
                return ",".join(
                    f"t{tag}={'*' if free and (number + tag) % 3 == 1 else _value(number, tag)}" for tag in range(pairs)
                )

            def event(random: Random, stored: int, pairs: int = pairs) -> Event:
                number = random.randrange(stored)
                return Event(tags={f"t{tag}": _value(number, tag) for tag in range(pairs)})

            figure.curves[f"{pairs} pairs{', * in a third' if free else ''}"] = _growing(
                "tags", scale, constraint, event
            )["match"]
    return figure


def _value(number: int, tag: int) -> str:
    """The value of a tag in subscription `number` and in the events that satisfy it: one of 20, without a pattern."""
    return f"v{number * (2 * tag + 2_654_435_761) % 4_294_967_291 // 7 % 20}"


def _selector_and_xpath(scale: Scale) -> Figure:
    caption = "Comparable queries on the same items. The paper: one XPath match takes about 3 ms."
    figure = Figure(8, "SQL selectors on properties and XPath on XML", caption, "subscriptions", scale.subscriptions)

    def selector(random: Random, _n: int) -> Constraint:
        return ("menu", f"dish = '{random.choice(DISHES)}' AND price > {random.uniform(9.5, 20):.4f}")

    def item(random: Random, _n: int) -> Event:
        properties: dict[str, Any] = {"dish": random.choice(DISHES), "price": random.uniform(0, 10)}
        return Event(topic="menu", properties=properties)

    figure.curves["SQL selector"] = _growing("selector", scale, selector, item)["match"]
    figure.curves["XPath"] = _growing("xpath", scale, menu_xpath, menu_document)["match"]
    return figure


def _destinations(scale: Scale) -> Figure:
    """EXP-33, EXP-34, DST-06: all profiles match, spread evenly over 32 destinations."""
    caption = (
        "All match, evenly over 32 destinations; with the skip of covered destinations and without. The paper with it:"
        " 120-170 ms at all sizes."
    )
    figure = Figure(9, "The skip of covered destinations", caption, "subscriptions", scale.subscriptions)
    xpath = _growing("xpath", scale, lambda _, n: f"/menu/*[price>-{n + 1}]", menu_document)
    selector = _growing(
        "selector", scale, lambda _, n: ("menu", f"price > -{n + 1}"),
        lambda random, _: Event(topic="menu", properties={"price": random.random()}),
    )  # fmt: skip
    for name, times in (("XPath", xpath), ("SQL selector", selector)):
        figure.curves[f"{name}, every profile"] = times["match"]
        figure.curves[f"{name}, destinations"] = times["destinations"]
        figure.counts[f"{name}, evaluations for destinations"] = times["evaluations"]
    return figure


def _stored_documents(scale: Scale) -> Figure:
    """EXP-35: one query over N stored XML events; a narrow one and one that most satisfy."""
    figure = Figure(11, "An XPath query over stored XML events", "The paper's unit is lost.", "events", scale.documents)
    random = Random(11)
    stored = [str(menu_document(random, 0).xml) for _ in range(scale.documents[-1])]
    for name, text in (("narrow", "/menu/softdrinks[price>9.9]"), ("wide", "/menu/softdrinks[price>1.80]")):
        query = matching.compile_xpath(text)
        times, matches = [], []
        for size in scale.documents:
            started = thread_time_ns()
            found = sum(query.matches(document) for document in stored[:size])
            times.append((thread_time_ns() - started) / 1e3)
            matches.append(float(found))
        figure.curves[f"{name}: {text}"] = times
        figure.counts[f"{name}: events found"] = matches
    return figure


def _growing(
    engine_name: str,
    scale: Scale,
    constraint: Callable[[Random, int], Constraint],
    event: Callable[[Random, int], Event],
) -> dict[str, list[float]]:
    """Microseconds an event of both modes while the subscriptions grow, and the evaluations of the second mode."""
    random = Random(5)
    engine = matching.create(engine_name)
    times: dict[str, list[float]] = {"match": [], "destinations": [], "evaluations": []}
    stored = 0
    for size in scale.subscriptions:
        for number in range(stored, size):
            engine.add(number, constraint(random, number), 1 << number % DESTINATIONS)
        stored = size
        batches = [[event(random, size) for _ in range(scale.events)] for _ in range(PASSES)]
        times["match"].append(median(per_event_us(engine.match, batch) for batch in batches))
        times["evaluations"].append(_evaluations(engine, batches[0][0]))
        times["destinations"].append(median(per_event_us(engine.destinations, batch) for batch in batches))
    return times


def _evaluations(engine: Engine, event: Event) -> float:
    before = engine.statistics().evaluations
    engine.destinations(event)
    return float(engine.statistics().evaluations - before)


def _claims(figures: list[Figure]) -> dict[str, float | bool]:
    """What the paper claims and a run can confirm: EXP-33's flat curve, EXP-36's millisecond."""
    by_number = {figure.number: figure.curves for figure in figures}
    slowest = max(max(curve) for number in (5, 6, 7) for curve in by_number[number].values())
    skipped = by_number[9]["XPath, destinations"]
    every = by_number[9]["XPath, every profile"]
    return {
        "slowest_of_integer_string_tags_us": slowest,
        "below_a_millisecond": slowest < 1_000,
        "xpath_with_skip_max_over_min": max(skipped) / min(skipped),
        "xpath_without_skip_max_over_min": max(every) / min(every),
    }


def _plain(figure: Figure) -> dict[str, Any]:
    rounded = {name: [float(f"{value:.4g}") for value in curve] for name, curve in figure.curves.items()}
    return {
        "figure": figure.number, "title": figure.title, "caption": figure.caption, "x_label": figure.x_label,
        "x": list(figure.x), "us": rounded, "counts": figure.counts,
    }  # fmt: skip


def _draw(figure: Figure, file: Path) -> None:
    plt = pyplot()
    drawing, axes = plt.subplots(figsize=(8, 5.5))
    for name, curve in figure.curves.items():
        style = "--" if "*" in name or "every" in name else "-"
        axes.plot(figure.x, curve, style, marker="o", markersize=3, label=name)
    values = [value for curve in figure.curves.values() for value in curve]
    if max(values) > 20 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.4 * max(values))
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel("microseconds")
    axes.set_title(f"{figure.title} (figure {figure.number} of the paper)")
    axes.legend(fontsize=7, ncols=2, loc="upper left")
    drawing.text(0.01, 0.01, f"{figure.caption}\n{machine()}", fontsize=7)
    drawing.tight_layout(rect=(0, 0.06, 1, 1))
    drawing.savefig(file, dpi=120)
    plt.close(drawing)
