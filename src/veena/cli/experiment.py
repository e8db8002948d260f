"""`veena experiment`: the papers' experiments again, with figures and the numbers beside them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

experiment = typer.Typer(help="Run an experiment of the papers again.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(experiment, name="experiment")


@experiment.callback()
def nouns() -> None:
    """Run an experiment of the papers again; figures and a JSON file go into a directory."""


@experiment.command("matching")
def matching_command(
    out: Annotated[Path, typer.Option(help="Where the figures and matching.json go.")] = Path("experiment-matching"),
    quick: Annotated[bool, typer.Option(help="A few thousand subscriptions.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what matching.json holds.")] = False,
) -> None:
    """The cost of matching, 10,000 to 100,000 subscriptions: figures 5 to 9 and 11 of the NaradaBrokering paper."""
    from rich.console import Console
    from rich.progress import Progress

    from veena.bench import experiment_matching

    scale = experiment_matching.QUICK if quick else experiment_matching.Scale()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("matching", total=6)
        report = experiment_matching.run(
            out, scale, lambda step: progress.update(task, advance=1, description=f"{step} is drawn")
        )
    if as_json:
        print(json.dumps(report))
        return
    for name, value in report["claims"].items():
        print(f"{name}: {value if isinstance(value, bool) else f'{value:.3g}'}")
    print(f"figures and matching.json are in {out}")
