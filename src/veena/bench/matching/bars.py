"""What the engines have to show, as ratios measured side by side: the rows that `--all` runs and `--check` checks."""

from __future__ import annotations

from dataclasses import dataclass

from veena.bench.matching.measure import Result

#: `destinations` may do less work than `match`, never much more.
MASK_SLOWER_MAX = 1.2
CHANGE_US_MAX = 30.0
ADD_NEW_US_MAX = 100.0
BYTES_MAX = {"selector": 400.0, "tags": 800.0}
DICT_LOOK_UPS_MAX = 3.0
#: Changes and memory are promised up to this size.
CHANGE_PROFILES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: at this size at least this many times as fast as a scan, `destinations` this many times as `match`."""

    engine: str
    workload: str
    profiles: int
    ratio_min: float | None = None
    mask_speedup_min: float | None = None
    #: At most this many times as slow as the same workload at a tenth of the size.
    growth_max: float | None = None


BARS: tuple[Bar, ...] = (
    Bar("integer", "unique", 1_000_000),
    Bar("topic", "unique", 1_000_000),
    Bar("tags", "v20", 100_000, ratio_min=200),
    Bar("tags", "v4", 100_000, mask_speedup_min=10),
    Bar("tags", "sets30", 100_000),
    Bar("tags", "sets30", 1_000_000, ratio_min=1_500),
    Bar("selector", "eq001", 100_000, ratio_min=1_000),
    Bar("selector", "eq001", 1_000_000, growth_max=4),
    Bar("selector", "eq1", 100_000, ratio_min=300, mask_speedup_min=3),
    Bar("selector", "rng001", 100_000, ratio_min=250),
    Bar("selector", "u1", 100_000, ratio_min=80, mask_speedup_min=3),
    Bar("selector", "mixed", 100_000, ratio_min=20),
    Bar("selector", "true", 100_000, mask_speedup_min=10),
    Bar("constraint", "eq001", 100_000),
    Bar("xpath", "menu", 100_000, ratio_min=500),
    Bar("xpath", "mixed", 10_000, ratio_min=40),
)


def shortfalls(results: list[Result]) -> list[str]:
    """What a run misses, a line each; empty when all bars that it reached are cleared."""
    found: list[str] = []
    for result in results:
        found += _promises(result)
        for bar in BARS:
            if (bar.engine, bar.workload, bar.profiles) == (result.engine, result.workload, result.profiles):
                found += _row(bar, result, results)
    return found


def _promises(result: Result) -> list[str]:
    """What holds for every engine and workload."""
    limits = [("destinations / match", result.mask_us_per_event / result.us_per_event, MASK_SLOWER_MAX)]
    if result.dict_us_per_event is not None:
        limits.append(("dict look-ups", result.us_per_event / result.dict_us_per_event, DICT_LOOK_UPS_MAX))
    if result.profiles <= CHANGE_PROFILES_MAX:
        limits.append(("us to add", result.add_us, CHANGE_US_MAX))
        limits.append(("us to remove", result.remove_us, CHANGE_US_MAX))
        if result.add_new_us is not None:
            limits.append(("us to add a new form", result.add_new_us, ADD_NEW_US_MAX))
        if result.engine in BYTES_MAX:
            limits.append(("bytes a profile", result.bytes_per_profile, BYTES_MAX[result.engine]))
    return [_missed(result, what, value, "at most", limit) for what, value, limit in limits if value > limit]


def _row(bar: Bar, result: Result, results: list[Result]) -> list[str]:
    found = []
    if bar.ratio_min is not None and result.ratio_to_scan < bar.ratio_min:
        found.append(_missed(result, "ratio to scan", result.ratio_to_scan, "at least", bar.ratio_min))
    speedup = result.us_per_event / result.mask_us_per_event
    if bar.mask_speedup_min is not None and speedup < bar.mask_speedup_min:
        found.append(_missed(result, "match / destinations", speedup, "at least", bar.mask_speedup_min))
    for smaller in results:
        if bar.growth_max is not None and smaller.engine == result.engine and smaller.workload == result.workload:
            growth = result.us_per_event / smaller.us_per_event
            if smaller.profiles * 10 == result.profiles and growth > bar.growth_max:
                found.append(_missed(result, "growth over a tenth", growth, "at most", bar.growth_max))
    return found


def _missed(result: Result, what: str, value: float, word: str, limit: float) -> str:
    return f"{result.engine} {result.workload} {result.profiles}: {what} {value:.3g}, {word} {limit:g} is the bar"
