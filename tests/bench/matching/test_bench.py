"""The matching benchmark and experiment: what they print, that they judge, and that they compare like with like."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from veena.bench.matching import bars as matching_bars
from veena.bench.matching import experiment as experiment_matching
from veena.bench.matching.bars import BARS, shortfalls
from veena.bench.matching.cost_order import cost_order, out_of_order
from veena.bench.matching.measure import Effort, Result, WrongAnswer, measure
from veena.bench.matching.report import table
from veena.bench.matching.workloads import WORKLOADS, Workload, find
from veena.cli.lab import bench, experiment

FIELDS = [
    "engine", "workload", "profiles", "events", "match_rate", "us_per_event", "scan_us_per_event", "ratio_to_scan",
    "mask_us_per_event", "add_us", "remove_us", "bytes_per_profile", "build_s", "snapshot_ms",
    "load_ms",
]  # fmt: skip
TINY = Effort(events=4, passes=1, scan_events=1, changes=20)


def _app() -> typer.Typer:
    app = typer.Typer()
    bench.register(app)
    experiment.register(app)
    return app


def _ignore(_step: str) -> None:
    pass


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: f"{workload.engine}-{workload.name}")
def test_every_workload_runs_and_agrees_with_its_scan(workload: Workload) -> None:
    """MAT-02, MAT-03: `measure` compares the engine with the scan on the way and raises when they differ."""
    result = measure(workload, 200, TINY, _ignore)
    line = result.line()
    assert list(line)[: len(FIELDS)] == FIELDS
    assert line["profiles"] == 200 and line["bytes_per_profile"] > 0
    assert 0 <= line["match_rate"] <= 1


def test_a_wrong_answer_ends_the_run() -> None:
    (workload,) = find("topic", "unique")
    with pytest.raises(WrongAnswer, match="topic"):
        measure(replace(workload, scan=lambda _: lambda _: True), 50, TINY, _ignore)


def test_a_part_of_the_scan_is_scaled_and_said_so() -> None:
    (workload,) = find("tags", "v20")
    line = measure(replace(workload, scan_profiles_max=50), 200, TINY, _ignore).line()
    assert line["scan_profiles"] == 50
    assert line["ratio_to_scan"] == pytest.approx(line["scan_us_per_event"] / line["us_per_event"], rel=0.01)


def test_the_same_seed_draws_the_same_workload() -> None:
    for workload in WORKLOADS:
        one, other = ([workload.constraint(random, n) for n in range(20)] for random in (Random(1), Random(1)))
        assert one == other


def test_every_bar_has_a_workload() -> None:
    for bar in BARS:
        assert len(find(bar.engine, bar.workload)) == 1


def _result(**changes: object) -> Result:
    result = Result(
        engine="selector", workload="eq1", profiles=100_000, events=1, match_rate=0.01, us_per_event=30.0,
        scan_us_per_event=12_000.0, ratio_to_scan=400.0, mask_us_per_event=6.0, add_us=9.0, remove_us=9.0,
        bytes_per_profile=200.0, build_s=1.0, snapshot_ms=9.0, load_ms=9.0, scan_profiles=100_000,
    )  # fmt: skip
    return replace(result, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, None),
        ({"ratio_to_scan": 299.0}, "ratio to scan 299, at least 300"),
        ({"mask_us_per_event": 11.0}, "match / destinations 2.73, at least 3"),
        (
            {"workload": "eq001", "ratio_to_scan": 2e3, "mask_us_per_event": 37.0},
            "destinations / match 1.23, at most 1.2",
        ),
        ({"add_us": 31.0}, "us to add 31, at most 30"),
        ({"add_new_us": 101.0}, "us to add a new form 101, at most 100"),
        ({"bytes_per_profile": 401.0}, "bytes a profile 401, at most 400"),
        ({"engine": "topic", "workload": "unique", "dict_us_per_event": 9.0}, "dict look-ups 3.33, at most 3"),
    ],
)
def test_the_bars_judge(changes: dict[str, object], missed: str | None) -> None:
    found = shortfalls([_result(**changes)])
    assert [missed in line for line in found] == ([] if missed is None else [True])  # type: ignore[operator]


def test_growth_is_judged_over_a_tenth_of_the_size() -> None:
    small = _result(workload="eq001", ratio_to_scan=1e4, us_per_event=10.0)
    large = replace(small, profiles=1_000_000, us_per_event=41.0)
    assert shortfalls([small, large]) == [
        "selector eq001 1000000: growth over a tenth 4.1, at most 4 is the bar",
    ]
    assert shortfalls([small, replace(large, us_per_event=39.0)]) == []


def test_the_command_prints_a_line_a_run(tmp_path: Path) -> None:
    """`veena bench matching --engine E --workload W --profiles N --json`, and a plot beside it."""
    picture = tmp_path / "bench.png"
    options = ["--engine", "tags", "--profiles", "300", "--quick", "--json", "--plot", str(picture)]
    done = CliRunner().invoke(_app(), ["bench", "matching", *options])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["engine"], line["workload"], line["profiles"]) for line in lines] == [
        ("tags", "v20", 300), ("tags", "v4", 300), ("tags", "sets30", 300),
    ]  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_shows_a_table() -> None:
    options = ["--engine", "topic", "--workload", "unique", "--profiles", "300", "--quick"]
    done = CliRunner().invoke(_app(), ["bench", "matching", *options])
    assert done.exit_code == 0
    assert "topic" in done.stdout and "Python" in done.stdout


def test_the_widest_table_fits_80_columns() -> None:
    """Nothing is cut, whatever the sizes, and it says whether the garbage collector counts."""
    widest = _result(
        engine="constraint", workload="eq001", profiles=1_000_000, match_rate=1.0, us_per_event=3430.6,
        scan_us_per_event=9_876_543.2, ratio_to_scan=123_456.7, mask_us_per_event=1045.8, add_us=123.4,
        remove_us=117.5, bytes_per_profile=1234.5, dict_us_per_event=0.7, add_new_us=123.4, add_new_collected_us=234.5,
    )  # fmt: skip
    console = Console(width=80, record=True, file=StringIO())
    console.print(table([widest, _result(workload="mixed")]))
    shown = console.export_text()
    assert "\u2026" not in shown and max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "9.88M*" in shown and "123k" in shown and "3.43k" in shown
    assert "garbage collector off" in shown and "a new form 123 us to add, 234 with collector" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "topic", "--workload", "none"], "there are: integer unique"),
        (["--engine", "nope"], "--engine 'nope': expected one of integer, topic, tags, selector, constraint, xpath"),
        (["--all", "--engine", "nope"], "--engine 'nope': expected one of integer"),
        (["--workload", "v20"], "--workload needs --engine"),
        (["--check", "--quick"], "full sizes"),
    ],
)
def test_wrong_questions_are_answered_with_2(options: list[str], said: str) -> None:
    done = CliRunner().invoke(_app(), ["bench", "matching", *options])
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_missed_bar_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """No change takes less than no time."""
    monkeypatch.setattr(matching_bars, "CHANGE_US_MAX", 0.0)
    options = ["--engine", "topic", "--workload", "unique", "--profiles", "100", "--check"]
    done = CliRunner().invoke(_app(), ["bench", "matching", *options])
    assert done.exit_code == 1
    assert "topic unique 100: us to add" in done.stderr


def test_the_cost_order_is_reported() -> None:
    """MAT-04: all five engines of the papers, in their order; an inversion is named. The trader's has none."""
    measured = [name for name, _ in cost_order(events=20, passes=2)]
    assert measured == ["integer", "topic", "tags", "selector", "constraint", "xpath"]
    assert out_of_order([("selector", 2.0), ("constraint", 9.0), ("xpath", 3.0)]) == []
    assert out_of_order([("integer", 1.0), ("topic", 2.0), ("tags", 1.5)]) == ["tags at 1.5 us is below topic at 2 us"]
    assert out_of_order([("integer", 1.0), ("topic", 2.0)]) == []


def test_the_experiment_draws_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXP-30..36: six figures with their series, the machine, and what became of the claims."""
    tiny = experiment_matching.Scale(subscriptions=(100, 200), documents=(10, 20), events=3)
    monkeypatch.setattr(experiment_matching, "QUICK", tiny)
    done = CliRunner().invoke(_app(), ["experiment", "matching", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "matching.json").read_text())
    assert [figure["figure"] for figure in report["figures"]] == [5, 6, 7, 8, 9, 11]
    for figure in report["figures"]:
        assert all(len(curve) == 2 and min(curve) > 0 for curve in figure["us"].values())
        assert (tmp_path / f"figure-{figure['figure']:02d}.png").stat().st_size > 1_000
    assert len(report["figures"][2]["us"]) == 10
    assert "Python" in report["machine"]
    slowest = max(max(curve) for figure in report["figures"][:3] for curve in figure["us"].values())
    assert report["claims"]["below_a_millisecond"] is (slowest < 1_000), "the claim is judged by what was measured"
