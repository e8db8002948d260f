"""`veena pipeline`: whatever handles events in bulk, on Spark. One module a verb, `cli/pipeline/VERB.py`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from veena.cli.connection import password_of
from veena.errors import PipelineError

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


class OneLine(TyperGroup):
    """The edge at which failures of Spark, Java and the disk become one line, for every verb."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.filename is None:
                raise
            raise PipelineError(f"{error.filename}: {error.strerror}") from error
        except Exception as error:
            if not _is_of_spark(error):
                raise
            from veena.spark.launch.failures import reason

            raise PipelineError(f"Spark stopped: {reason(str(error))}") from error


def _is_of_spark(error: Exception) -> bool:
    """Asked without importing Spark: what was not imported did not raise it."""
    names = (("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"))
    kinds = tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
    return isinstance(error, kinds)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Events in bulk, on Spark: archive, match, audit, analyse, replay.", no_args_is_help=True, cls=OneLine
    )
    for verb in VERBS:
        if importlib.util.find_spec(f"veena.cli.pipeline.{verb}") is not None:
            importlib.import_module(f"veena.cli.pipeline.{verb}").register(group)
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


def reading_options(url: list[str] | None, user: str, ca: Path | None) -> dict[str, str]:
    """The options of `format("veena")` that say where to read and as whom."""
    from veena.client.client import DEFAULT_URL

    given = {
        "url": ",".join(url or [DEFAULT_URL]),
        "user": user,
        "password": password_of(user),
        "token": os.environ.get("VEENA_TOKEN", ""),
        "caFile": "" if ca is None else str(ca.absolute()),
    }
    return {name: value for name, value in given.items() if value}


def check_there(archive: Path) -> None:
    """Refuse an archive that is not there before Spark takes its seconds to start."""
    from veena.spark.archive.archive import directory_of, existing

    if not directory_of(archive).is_dir():
        existing(archive)
