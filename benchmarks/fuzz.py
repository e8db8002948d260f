"""Attack every door of a broker by chance, with an honest client beside it, and judge what that client noticed.

    python benchmarks/fuzz.py [--seconds 60] [--door client ...] [--rate 1000] [--seed 1] [--json]

For each door the attacker has so many seconds, then honest traffic of as many frames and bytes a second has its place
for as long. `configuration` reads changed configurations and network files. What each run sends first lies in
`benchmarks/corpus`. `link-unbounded` is the door for links of a broker that takes any number of short ones. Exit code 1
when a broker ended or had a traceback, or the honest client missed an event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from veena.bench.fuzzing.trial import CONFIGURATION, DOORS, MOST_TIMES, Fuzzing, Trial
from veena.bench.progress import progress

CORPUS = Path(__file__).with_name("corpus")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each attack and each honest load lasts")
    parser.add_argument("--door", nargs="+", choices=(*DOORS, CONFIGURATION), default=(*DOORS, CONFIGURATION))
    parser.add_argument("--rate", type=float, default=1000.0, help="frames a second at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    trials: list[Trial] = []
    texts = None
    with progress() as say, tempfile.TemporaryDirectory() as temporary:
        fuzzing = Fuzzing(Path(temporary), CORPUS, given.seconds, rate=given.rate, seed=given.seed, say=say)
        for door in given.door:
            if door == CONFIGURATION:
                texts = fuzzing.configurations()
            else:
                trials.append(asyncio.run(fuzzing.door(door)))
    if given.as_json:
        told = None if texts is None else msgspec.to_builtins(texts)
        print(json.dumps({"doors": [trial.as_dict() for trial in trials], "configuration": told}))
    else:
        _show(trials)
        if texts is not None:
            print(
                f"configurations: {texts.texts} read, {texts.refused} refused, {len(texts.failures)} failures;"
                f" the longest took {texts.longest_s:.3f} s"
            )
            print("\n".join(texts.failures[:5]), end="")
    return 0 if all(trial.is_sound for trial in trials) and not (texts and texts.failures) else 1


def _show(trials: list[Trial]) -> None:
    table = Table("door", "frames/s", "events", "missing", "twice", "p99 ms", "honest", "times", "MiB")
    for trial in trials:
        attack, honest = trial.attack, trial.honest
        table.add_row(
            trial.door, f"{attack.sent.frames / trial.seconds:.0f}", str(attack.events + honest.events),
            str(attack.missing + honest.missing), str(attack.twice + honest.twice),
            f"{attack.p99_ms:.1f}", f"{honest.p99_ms:.1f}", f"{trial.times:.2f}", f"{trial.memory_mib:.0f}",
        )  # fmt: skip
    Console().print(table)
    for trial in trials:
        if trial.exit_code is not None:
            print(f"{trial.door}: the broker ended with exit code {trial.exit_code}")
        for line in trial.alarms[:5]:
            print(f"{trial.door}: {line}")
        if trial.is_slow:
            print(f"{trial.door}: the honest client waited {trial.times:.1f} times as long, more than {MOST_TIMES:g}")


if __name__ == "__main__":
    sys.exit(main())
