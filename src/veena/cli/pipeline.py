"""`veena pipeline`: whatever handles events in bulk, on Spark. One module a verb, `cli/pipeline_VERB.py`."""

from __future__ import annotations

import importlib
import importlib.util
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Annotated, Any

import typer

#: In the order in which `veena pipeline --help` shows them.
VERBS: tuple[str, ...] = ("archive", "match", "audit", "analyze", "replay", "scale", "history")

#: The options that every verb has.
MasterOption = Annotated[
    str, typer.Option("--master", help="Where Spark runs: local[*], spark://HOST:PORT, yarn, k8s://..., sc://...")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", help="Heap of Spark, as 2g; by default a quarter of the machine, 8g at most.")
]
UiPortOption = Annotated[
    int | None, typer.Option("--ui-port", min=0, max=65535, help="Show Spark's own web page on this port.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Events in bulk, on Spark: archive, match, audit, analyse, replay.", no_args_is_help=True)
    for verb in VERBS:
        if importlib.util.find_spec(f"veena.cli.pipeline_{verb}") is not None:
            importlib.import_module(f"veena.cli.pipeline_{verb}").register(group)
    app.add_typer(group, name="pipeline")


@contextmanager
def ended_by_signals(over: Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `over` meanwhile: what is under way ends in good order."""
    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda *_: over.set())
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
