"""The papers' latency experiment: its events, its cells, its numbers, its report, and one small live run."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tests.cli.command import veena
from veena import matching
from veena.bench import report_folder
from veena.bench.latency import papers as latency_papers
from veena.bench.latency import report as latency_report
from veena.bench.latency.cells import (
    COMMON,
    DECIDING,
    MATCH_RATES,
    REST,
    Cell,
    Latency,
    Tally,
    WrongCell,
    drawn_values,
    event,
    judge,
    number_of,
    per_second,
    profile,
    spearman,
    summed,
    values_of,
    wanted_values,
    wire_sizes,
)
from veena.bench.latency.experiment import QUICK, Plan, Row, crowd_places, hops_from, places
from veena.core.links.link import MAX_WAITING_BYTES, MAX_WAITING_EVENTS
from veena.core.wire.event import EventCodec
from veena.errors import ConfigError
from veena.runtime.networks.file import load_network

NETWORKS = Path(__file__).parents[3] / "networks"
ENVIRONMENT = latency_papers.our_environment(22, 102)


# --- events and who wants them ---


def test_six_pairs_of_which_the_fourth_decides() -> None:
    """EXP-04: three pairs are the same in all events and profiles, so an engine looks at four at least."""
    tags = event(7, 3, 50, 1).tag_values
    assert list(tags) == [*COMMON, DECIDING, *REST] and len(tags) == 6
    engine = matching.create("tags")
    for value in range(4):
        engine.add(value, profile(value), 1)
        pairs = dict(pair.split("=") for pair in profile(value).split(","))
        assert list(pairs) == list(tags) and {tag: pairs[tag] for tag in COMMON} == COMMON
    for value in range(4):
        assert engine.match(event(0, value, 50, 1)) == [value], "the fourth tag and nothing else tells them apart"
    engine.add(9, profile(0, flooding=True), 1)
    assert engine.match(event(0, 17, 50, 1)) == [9]
    assert len({str(event(number, 0, 50, 1).tags) for number in range(10)}) == 10, (
        "events are not alike at 100 % either"
    )


@pytest.mark.parametrize("match_percent", [*MATCH_RATES, 33])
def test_each_subscriber_wants_its_share_of_the_events(match_percent: int) -> None:
    """EXP-05: 100, 50, 33, 25, 10 and 5 %, within one per cent; AMB-49 has 5 in the sweep."""
    cell = Cell(match_percent, 100, 50)
    values, count = values_of(match_percent), cell.events(1.0)
    drawn = drawn_values(values, count, Random(1))
    assert len(drawn) == count >= 100
    for wanted in wanted_values(values, 101, Random(1)):
        got = [number for number, value in enumerate(drawn) if value == wanted]
        tally = judge(drawn, 0, wanted, got)
        assert not tally.faults(match_percent) and tally.delivered == len(got)
        assert abs(tally.share_min - match_percent) <= 1
    held = Counter(wanted_values(values, 101, Random(2)))
    assert max(held.values()) - min(held.values()) <= 1, "no value has more subscribers than others"


@pytest.mark.parametrize("size", [30, 50, 75, 350, 450, 500])
def test_the_size_is_the_one_on_the_wire(size: int) -> None:
    """EXP-07: the pairs and the body take so many bytes in the frame, whatever the value of the fourth tag."""
    codec = EventCodec(4, 32)
    content, frame = wire_sizes(size, codec, "publisher")
    assert content == size and frame > size
    assert {len(event(number, value, size, 1).body) for number in (0, 5, 10**9) for value in range(10)} == {size - 24}
    assert number_of(event(10**9, 19, size, 1).body) == 10**9


def test_pause_and_burst_give_the_rate() -> None:
    """EXP-06, EXP-07: from 1 to about 1,000 events a second; a pause is never shorter than a timer can be."""
    for rate in (1, 20, 100, 492, 952, 4000):
        burst, pause_s = Cell(100, rate, 50).pace()
        assert burst / pause_s == pytest.approx(rate) and pause_s >= 0.004
    assert [Cell(100, rate, 50).pace()[0] for rate in (1, 100, 492, 952)] == [1, 1, 2, 4]


def test_all_events_of_a_cell_may_wait_for_one_link() -> None:
    """EXP-05, EXP-14: whatever the rate, a queue takes all of them, so a network that is too slow drops none."""
    for match in MATCH_RATES:
        for size in (30, 75, 500):
            cell = Cell(match, 20_000, size)
            count, frame = cell.events(600.0), wire_sizes(size, EventCodec(4, 32), "publisher")[1]
            assert 0 < count <= MAX_WAITING_EVENTS and count * frame <= MAX_WAITING_BYTES
            assert count % values_of(match) == 0


def test_the_sweep_has_both_ends_and_every_printed_cell() -> None:
    """EXP-07, EXP-09..14: 30 and 500 bytes, 1 and 952 a second, and a cell for each that the paper prints."""
    cells = Plan().cells()
    assert len(set(cells)) == len(cells)
    sizes, rates = {cell.size for cell in cells}, {cell.per_second for cell in cells}
    assert {30, 500} <= sizes and {1, 952} <= rates
    assert {cell.match_percent for cell in cells} == set(MATCH_RATES)
    for printed in latency_papers.PRINTED:
        assert Cell(printed.match_percent, printed.per_second, printed.size) in cells
    assert [cell.group for cell in cells] == sorted(
        (cell.group for cell in cells), key=lambda group: (group[0], -group[1])
    )
    assert Plan().estimate_s() < 300 and QUICK.estimate_s() < 20
    both = replace(QUICK, flooding=True).cells()
    assert len(both) == 2 * len(QUICK.cells()) and sum(cell.flooding for cell in both) == len(QUICK.cells())


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(40, 1, 50), "match rate 40 %"),
        (Cell(0, 1, 50), "match rate 0 %"),
        (Cell(101, 1, 50), "match rate 101 %"),
        (Cell(50, 1, 29), "size 29: expected 30 to 500"),
        (Cell(50, 1, 501), "size 501"),
        (Cell(50, 0, 50), "rate 0:"),
        (Cell(50, math.nan, 50), "rate nan"),
    ],
)
def test_what_cannot_be_measured_is_said(cell: Cell, text: str) -> None:
    with pytest.raises(WrongCell, match=text):
        cell.check()


# --- where everybody is ---


def test_the_papers_clients_stand_where_the_papers_say() -> None:
    """EXP-01, EXP-17, AMB-13: 102 clients; nobody else at 22 and 10; nine brokers between; 21 measures on request."""
    network = load_network(NETWORKS / "ges-22.toml")
    publisher, measuring = places(network, None, ())
    crowd = crowd_places(network, publisher, measuring)
    assert len(network.brokers) == 22 and 1 + len(measuring) + len(crowd) == 102
    assert publisher.endswith(".22") and [label.rpartition(".")[2] for label in measuring] == ["10"]
    assert set(Counter(crowd).values()) == {5} and not {publisher, *measuring} & set(crowd) and len(set(crowd)) == 20
    assert hops_from(network, publisher)[measuring[0]] == 9
    assert places(network, None, ["21"])[1][0].endswith(".21")
    with pytest.raises(ConfigError, match="broker 99: there is no such broker"):
        places(network, "99", ())


def test_in_the_second_topology_three_measure() -> None:
    """EXP-18: subscribers at 10, 1 and 22, four, two and one brokers away; five others at every broker."""
    network = load_network(NETWORKS / "ges-22-linked.toml")
    publisher, measuring = places(network, None, ())
    hops = hops_from(network, publisher)
    assert [(label.rpartition(".")[2], hops[label]) for label in measuring] == [("10", 4), ("1", 2), ("22", 1)]
    crowd = Counter(crowd_places(network, publisher, measuring))
    assert len(crowd) == 22 and set(crowd.values()) == {5}


# --- numbers ---


def test_what_is_missing_repeated_or_unwanted_is_counted() -> None:
    """EXP-05: a share that is off is a fault, as is every delivery that is not as it should be."""
    values = [0, 1, 0, 1, 0, 1, 0, 1]
    assert judge(values, 100, 1, [101, 103, 105, 107]) == Tally(4, 4, 0, 0, 0, 50.0, 50.0)
    bad = judge(values, 100, 1, [103, 101, 101, 102, 99])
    assert (bad.missing, bad.duplicates, bad.out_of_order, bad.spurious) == (2, 1, 2, 2)
    assert [fault.split(" deliveries ")[-1] for fault in bad.faults(50)] == [
        "missing", "repeated", "out of order", "not wanted", "25.00 to 25.00 % came instead of 50 %",
    ]  # fmt: skip
    flooded = judge(values, 100, 1, range(100, 108), flooding=True)
    assert (flooded.expected, flooded.delivered, flooded.share_min) == (8, 8, 50.0)
    both = summed([bad, flooded])
    assert (both.expected, both.missing, both.share_min, both.share_max) == (12, 2, 25.0, 50.0)


def test_the_numbers_of_a_cell() -> None:
    """EXP-08, EXP-06: mean, variance, least, most and percentiles; rates come from the moments themselves."""
    found = Latency.of([float(number) for number in range(100, 0, -1)])
    assert found == Latency(50.5, 833.25, 1.0, 100.0, 50.0, 99.0)
    assert Latency.of([7.0]) == Latency(7.0, 0.0, 7.0, 7.0, 7.0, 7.0) and Latency.of([]) is None
    assert per_second([0, 10_000_000, 20_000_000, 40_000_000]) == pytest.approx(75)
    assert per_second([5]) == per_second([5, 5]) == 0


def test_spearman_ranks() -> None:
    """EXP-16: +1 for what rises in any way, -1 for what falls, equal values share a rank."""
    assert spearman([(1, 2), (2, 30), (3, 400)]) == pytest.approx(1)
    assert spearman([(1, 9), (2, 3), (3, 1)]) == pytest.approx(-1)
    assert spearman([(1, 1), (2, 1), (3, 2), (4, 1)]) == pytest.approx(0.2582, abs=1e-4)
    assert spearman([(1, 5), (2, 5)]) is None and spearman([(1, 1)]) is None


# --- the report ---


def _row(cell: Cell, mean: float, place: str = "10", hops: int = 9) -> Row:
    latency = Latency(mean, mean**2 / 10, mean / 2, mean * 3, mean, mean * 2)
    share = 100 / values_of(cell.match_percent)
    tally = Tally(1010, 1010, share_min=share, share_max=share)
    throughput = min(cell.per_second, 900.0)
    return Row(
        cell, place, hops, 100, 1, 10.0, cell.per_second, cell.size, cell.size + 112, 10, latency, throughput, tally
    )


def _papers_like(cell: Cell) -> float:
    return 10 + cell.per_second * cell.size * cell.match_percent / 1e6


def test_each_printed_cell_stands_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """EXP-09..13, EXP-02, AMB-16: the paper's numbers and machines next to ours, at the same match rate, rate, size."""
    rows = [_row(cell, _papers_like(cell)) for cell in Plan().cells()]
    for printed, row in latency_papers.beside(rows):
        assert (printed.match_percent, printed.per_second, printed.size) == (
            row.cell.match_percent, row.cell.per_second, row.cell.size,
        )  # fmt: skip
    assert len(latency_papers.beside(rows)) == len(latency_papers.PRINTED)
    near = latency_papers.nearest(latency_papers.PRINTED[1], [_row(Cell(100, rate, 500), 1.0) for rate in (20, 800)])
    assert near is not None and near.cell.per_second == 800
    latency_report.show(rows, ENVIRONMENT)
    shown = capsys.readouterr().out
    for text in ("391.9", "69,714", "133.8", "178.7", "480.8", "Ultra-5", "JDK 1.2.1", "CPython", "0 missing"):
        assert text in shown


def test_throughput_is_shown_at_match_100_alone() -> None:
    """EXP-15, EXP-14: and its peak is held against the publish rate, where it saturates."""
    rows = [_row(Cell(match, rate, 75), 1.0) for match in (100, 50) for rate in (492, 952, 4000)]
    assert [row.plain()["throughput"] for row in rows] == [492, 900, 900, None, None, None]
    found = latency_papers.saturation(rows)
    assert found is not None and (found.peak, found.rate, found.fastest_asked) == (900, 952, 4000)
    assert found.ratio == pytest.approx(900 / 952)
    assert latency_papers.saturation(rows[3:]) is None


def test_trends_are_signs_within_series() -> None:
    """EXP-16, EXP-19, EXP-21: over rate, size, match rate and hops with all else fixed; flooding by its two ends."""
    grid = Plan(extra=())
    rows = [_row(cell, _papers_like(cell)) for cell in grid.cells()]
    found = {(trend.of, trend.over): trend for trend in latency_papers.trends(rows)}
    for of in ("mean latency", "median latency", "variance"):
        for over in ("rate", "size", "match rate"):
            trend = found[of, over]
            assert trend.rho == pytest.approx(1) and trend.rising == trend.groups > 10
    assert len(found) == 9, "nobody is at another distance, and nothing floods"
    far = [_row(cell, hops * 2.0, str(hops), hops) for cell in grid.cells() for hops in (4, 2, 1)]
    by_hops = next(trend for trend in latency_papers.trends(far) if trend.over == "hops")
    assert by_hops.rho == pytest.approx(1) and by_hops.groups == len(grid.cells())
    cells = [Cell(match, 100, 50, flooding=True) for match in (100, 50, 25, 10)]
    flooded = [_row(cell, mean) for cell, mean in zip(cells, (5.0, 5.2, 5.1, 4.0), strict=True)]
    assert latency_papers.rise([*rows, *flooded], flooding=True) == pytest.approx(1.25)
    assert latency_papers.rise(rows, flooding=True) is None
    steep = latency_papers.rise(rows, flooding=False)
    assert steep is not None and steep > 1


def test_a_fault_is_named_once_with_its_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = _row(Cell(50, 100, 50), 5.0)
    bad = replace(good, tally=Tally(100, 97, share_min=48.5, share_max=50.0))
    rows = [good, bad, replace(bad, place="1", hops=2, latency=None)]
    faults = latency_papers.faults(rows)
    assert len(faults) == 2 and faults[0] == "match rate 50 %, 100/s of 50 bytes: 3 of 100 deliveries missing"
    latency_report.show(rows, ENVIRONMENT)
    assert "3 of 100 deliveries missing" in capsys.readouterr().out
    report_folder.prepare(tmp_path / "a" / "b")
    files = latency_report.write(rows, ENVIRONMENT, tmp_path / "a" / "b")
    assert [file.name for file in files] == ["latency.json", "latency.png", "throughput.png", "hops.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files[1:])
    assert json.loads(files[0].read_text())["faults"] == faults


# --- live ---


def test_a_small_network_is_measured_live(tmp_path: Path) -> None:
    """EXP-03, EXP-05..08, EXP-02: real brokers and clients; everything comes, at the share that each one wants."""
    network = tmp_path / "three.toml"
    labels = ("S.C.a.1", "S.C.a.2", "S.C.b.3")
    text = '[network]\nname = "three"\nlevels = 4\nfanout = 32\n'
    text += "".join(f'[[broker]]\naddress = "{label}"\n' for label in labels)
    text += "".join(f'[[link]]\nbetween = ["{one}", "{other}"]\n' for one, other in pairwise(labels))
    network.write_text(text)
    asked = ["--network", str(network), "--seconds", "0.2", "--size", "30", "--size", "200", "--rate", "400"]
    asked += ["--match", "100", "--match", "25", "--measure", "3", "--measure", "1", "--flooding", "--json"]
    found = veena("experiment", "latency", *asked, "--out", str(tmp_path / "out"))
    assert found.code == 0, found.err
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [(row["at"], row["hops"]) for row in rows] == [("3", 3), ("1", 1)] * 8
    cells = {(row["match_percent"], row["size"], row["flooding"]) for row in rows}
    assert cells == {(match, size, flooded) for match in (100, 25) for size in (30, 200) for flooded in (False, True)}
    for row in rows:
        assert row["missing"] == row["duplicates"] == row["out_of_order"] == row["spurious"] == 0
        assert row["share_percent"] == [row["match_percent"]] * 2
        assert row["received"] == row["events"] * row["match_percent"] // 100
        # 15 subscribers at three brokers, and two that measure.
        wanted = row["events"] if row["flooding"] else row["received"]
        assert row["delivered"] == row["expected"] == 17 * wanted
        assert 0 < row["latency_ms"]["min"] <= row["latency_ms"]["p50"] <= row["latency_ms"]["p99"]
        assert row["latency_ms"]["p99"] <= row["latency_ms"]["max"] and row["per_second"] > 0
        assert (row["throughput"] is None) == (row["match_percent"] < 100)
    report = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert report["cells"] == rows and not report["faults"]
    assert report["environment"].keys() == {"ours", "papers"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--match", "40"), "match rate 40 %"),
        (("--size", "20"), "size 20: expected 30 to 500 bytes"),
        (("--rate", "0"), "rate 0: expected 0.5 to 20000"),
        (("--measure", "99"), "broker 99: there is no such broker"),
        (("--network", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_wrong_options_are_named_before_anything_starts(options: tuple[str, ...], text: str) -> None:
    found = veena("experiment", "latency", *options)
    assert found.code == 2 and text in found.err
