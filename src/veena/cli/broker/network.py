"""`veena network`: a network file as running brokers on this machine."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.completion import toml_files
from veena.errors import VeenaError

if TYPE_CHECKING:
    from rich.progress import Progress

    from veena.runtime.fleet.fleet import Fleet, Member

app = typer.Typer(help="A whole network on this machine.", no_args_is_help=True)


@app.command()
def up(
    file: Annotated[Path, typer.Argument(help="A network file.", autocompletion=toml_files)],
    as_json: Annotated[
        bool, typer.Option("--json", help='Print a line of JSON a broker, then {"ready": true}.')
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Start a broker that dies again.")] = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="Keep logs and stores here; a temporary directory without.")
    ] = None,
    records: Annotated[
        str, typer.Option("--records", help="What `trace` and `explain` can be told: off, deliveries or all.")
    ] = "off",
    copies: Annotated[
        int, typer.Option("--copies", min=1, max=2, help="Disks that an event is on before it is accepted: 1 or 2.")
    ] = 1,
) -> None:
    """Start a process for every broker of a network file and stay until stopped (Ctrl-C stops all of them).

    Ports are picked where the file gives none. With --json there is a line for every broker that listens,
    {"address", "pid", "url"}, then {"ready": true, "control": FILE} when each is in reach of all others.
    """
    from veena.runtime.broker.process import run
    from veena.runtime.fleet.fleet import Fleet
    from veena.runtime.networks.file import load_network

    if records not in ("off", "deliveries", "all"):
        raise typer.BadParameter(f"--records {records}: use off, deliveries or all")
    network = load_network(file, connected=True)
    directory = data or Path(tempfile.mkdtemp(prefix=f"veena-{network.name}-"))
    say = _Voice(as_json, directory)

    async def stay() -> int:
        fleet = Fleet(
            network, directory, restart=restart, records=records, copies=copies, on_up=say.up, on_exit=say.gone
        )
        try:
            return await _until_stopped(fleet, say)
        finally:
            await fleet.stop()

    try:
        code = run(stay())
    except VeenaError:
        with suppress(OSError):
            directory.rmdir()  # nothing was written: there is nothing to look at
        raise
    if data is None and not say.losses:  # after a failure the logs are of use
        shutil.rmtree(directory, ignore_errors=True)
    raise typer.Exit(code)


async def _until_stopped(fleet: Fleet, say: _Voice) -> int:
    """Start, tell, and wait for a signal, or until no broker is left; meanwhile brokers may be added."""
    from veena.runtime.fleet.control import ControlServer

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    told = loop.create_task(stopped.wait())
    start = loop.create_task(fleet.start())
    say.begin(len(fleet.members))
    await asyncio.wait({told, start}, return_when=asyncio.FIRST_COMPLETED)
    say.end()
    if not start.done():
        start.cancel()
        with suppress(asyncio.CancelledError):
            await start
        return 0
    start.result()
    gone = loop.create_task(fleet.wait_all_gone())
    async with ControlServer(fleet) as control:
        say.ready(fleet, control)
        await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
    return EXIT_BROKEN if gone.done() and not stopped.is_set() else 0


class _Voice:
    """What is printed, for people or for scripts."""

    def __init__(self, as_json: bool, directory: Path) -> None:
        self._as_json = as_json
        self._directory = directory
        self._progress: Progress | None = None
        self._advance: Callable[[], None] = lambda: None
        #: Brokers that ended without being told to.
        self.losses = 0
        self._is_ready = False

    def begin(self, count: int) -> None:
        if self._as_json or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("starting brokers"), BarColumn(), MofNCompleteColumn())
        progress = self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.start()
        task = progress.add_task("", total=count)
        self._advance = lambda: progress.advance(task)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._advance = lambda: None

    def up(self, member: Member) -> None:
        self._advance()
        if self._as_json:
            print(json.dumps({"address": member.label, "pid": member.pid, "url": member.url}), flush=True)
        elif self._is_ready:
            how = "was started again" if member.starts > 1 else f"was added at {member.url}"
            print(f"{member.label} {how}, pid {member.pid}", flush=True)

    def gone(self, member: Member, code: int) -> None:
        self.losses += 1
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        print(f"veena: broker {member.label} ended ({how}); its log is {member.log}", file=sys.stderr, flush=True)

    def ready(self, fleet: Fleet, control: Path) -> None:
        self._is_ready = True
        if self._as_json:
            print(json.dumps({"ready": True, "control": str(control)}), flush=True)
            return
        from rich.console import Console
        from rich.table import Table

        table = Table("broker", "url", "pid")
        for member in fleet.members:
            table.add_row(member.label, member.url, str(member.pid))
        Console().print(table)
        print(f"all {len(fleet.members)} brokers are in reach of each other; logs and stores are in {self._directory}")
        print(f"{control} lets `veena advise` add brokers and links; Ctrl-C stops all of them", flush=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="network")
