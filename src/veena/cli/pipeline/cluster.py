"""`veena cluster`: a Spark cluster on this machine, to try out what will run on a real one."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli import EXIT_BROKEN
from veena.errors import VeenaError

if TYPE_CHECKING:
    from veena.spark.launch.cluster import Cluster, Member

#: How often the members are looked at while the cluster is up.
_POLL_S = 0.5

app = typer.Typer(help="A Spark cluster on this machine.", no_args_is_help=True)


class _Stopped(Exception):
    """The user, or the system, wants this to end."""


@app.command()
def up(
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that run executors.")] = 2,
    cores: Annotated[int, typer.Option("--cores", min=1, help="Tasks at once in each.")] = 1,
    memory: Annotated[str, typer.Option("--memory", help="For the executors of each, as 1g.")] = "1g",
    data: Annotated[
        Path | None, typer.Option("--data", help="Keep logs and work here; a temporary directory without.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print a line of JSON a process, then {"ready": true, "master": URL}.')
    ] = False,
) -> None:
    """Start a standalone master and workers on loopback and stay until stopped (Ctrl-C stops all of them).

    Jobs of the same user run there with --master and the URL that is printed; others' are refused. With --json there is
    a line for every process that is up, {"name", "pid", "url", "page"}, then {"ready": true, "master": URL}.
    """
    from veena.spark.launch.cluster import Cluster

    directory = (data or Path(tempfile.mkdtemp(prefix="veena-cluster-"))).resolve()
    stopped = threading.Event()

    def stop(*_: object) -> None:
        if not stopped.is_set():
            stopped.set()
            raise _Stopped

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    is_broken = False
    cluster: Cluster | None = None
    try:
        with _voice(as_json, workers + 1) as say:
            cluster = Cluster(directory, workers=workers, cores=cores, memory=memory, on_up=say)
            cluster.start()
        _tell_ready(cluster, as_json)
        is_broken = _stay(cluster)
    except _Stopped:
        pass
    except VeenaError:
        is_broken = True
        raise
    finally:
        stopped.set()  # a second Ctrl-C must not cut the tidying short
        if cluster is not None:
            cluster.stop()
        if data is None and not is_broken:
            shutil.rmtree(directory, ignore_errors=True)
    raise typer.Exit(EXIT_BROKEN if is_broken else 0)


@contextmanager
def _voice(as_json: bool, count: int) -> Iterator[_Voice]:
    """Says what comes up: a line of JSON each, or a bar for people."""
    if as_json or not sys.stderr.isatty():
        yield _Voice(as_json)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("starting master and workers"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=count)
        yield _Voice(False, lambda: bar.advance(task))


class _Voice:
    def __init__(self, as_json: bool, advance: Callable[[], None] = lambda: None) -> None:
        self._as_json = as_json
        self._advance = advance

    def __call__(self, member: Member) -> None:
        self._advance()
        if self._as_json:
            told = {"name": member.name, "pid": member.pid, "url": member.url, "page": member.page}
            print(json.dumps(told), flush=True)


def _tell_ready(cluster: Cluster, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ready": True, "master": cluster.master_url}), flush=True)
        return
    print(f"Spark is up: {len(cluster.members) - 1} workers at {cluster.master_url}")
    print(f"  its page   {cluster.members[0].page}")
    print(f"  logs       {cluster.directory}")
    print(f"  submit     spark-submit --properties-file {cluster.secret} --load-spark-defaults job.py")
    print(f"  a job      veena pipeline scale --master {cluster.master_url}", flush=True)


def _stay(cluster: Cluster) -> bool:
    """Until a signal comes; True when the cluster broke before that."""
    import time

    while cluster.is_alive():
        for member in cluster.lost():
            print(f"veena: {member.name} ended; its log is {member.log}", file=sys.stderr, flush=True)
        time.sleep(_POLL_S)
    for member in cluster.lost():
        print(f"veena: {member.name} ended; its log is {member.log}", file=sys.stderr, flush=True)
    return True


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="cluster")
