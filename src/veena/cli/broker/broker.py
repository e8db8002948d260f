"""`veena broker`: run one broker, or look at its configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.completion import toml_files
from veena.cli.plain import one_line, plain
from veena.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from veena.runtime.broker.node import Node

app = typer.Typer(help="One broker: run it, or check its configuration.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The broker's TOML file; defaults without.", autocompletion=toml_files),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

EXIT_CODES = (
    "Exit codes: 0 stopped as told; 2 the configuration cannot be used or a port is taken; 3 the store cannot be used;"
    " 70 the broker has broken its own rules and no new core helps; 75 it was given another address."
)


@app.command(epilog=EXIT_CODES)
def run(
    config: ConfigOption = None,
    listen: Annotated[
        list[str] | None, typer.Option("--listen", help="Listen here instead, such as veena://127.0.0.1:7700.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Keep the log in this directory instead.")] = None,
    as_json: JsonOption = False,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
) -> None:
    """Run a broker until it is stopped (Ctrl-C, SIGTERM); SIGHUP reads the configuration again.

    Without a file it listens on loopback and keeps nothing beyond its life.
    """
    from veena.runtime.broker import process
    from veena.runtime.config.reader import load_config
    from veena.runtime.logging.logs import configure

    changes: dict[str, dict[str, Any]] = {}
    if listen:
        changes["broker"] = {"listen": listen}
    if data is not None:
        changes["store"] = {"path": str(data.absolute())}
    found = load_config(config, changes)
    configure(found.tables.log.level, found.tables.log.format)

    def say_listening(node: Node) -> None:
        from veena.runtime.broker.node import ready_line

        if as_json:
            print(ready_line(node), flush=True)
        else:
            where = ", ".join((*node.urls, *([] if node.http_url is None else [node.http_url])))
            print(f"broker {node.config.name} listens on {where}", flush=True)

    def say_ready(node: Node) -> None:
        if as_json:
            print(json.dumps({"ready": True}), flush=True)

    serving = process.serve(found, lambda: load_config(config, changes), say_listening, say_ready, until_stdin_closes)
    try:
        code = process.run(serving)
    except StoreError as error:
        print(f"veena: {error}", file=sys.stderr)
        raise typer.Exit(process.EXIT_STORE) from None
    raise typer.Exit(code)


@app.command()
def check(
    config: ConfigOption = None,
    data: Annotated[Path | None, typer.Option("--data", help="Look at the store in this directory instead.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Give up events of the store that are damaged, and nothing else.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every fault of a configuration with its line, and of the store it names; exit code 1 when there is any.

    The store may be in use while it is looked at; for --repair its broker has to be stopped.
    """
    faults, path = _configured(config, data)
    repaired: list[str] = []
    if path is not None and not faults:
        repaired, faults = _look_at_store(path, repair)
    if as_json:
        listed = [
            {"file": each.file, "entry": each.entry, "reason": each.reason, "remedy": each.remedy} for each in faults
        ]
        store = None if path is None else str(path)
        typer.echo(json.dumps({"ok": not faults, "faults": listed, "store": store, "repaired": repaired}))
    else:
        for line in (*repaired, *map(str, faults)):
            typer.echo(line)
        sound = "the configuration is sound" if path is None else f"the configuration and the store {path} are sound"
        typer.echo(f"{len(faults)} fault{'' if len(faults) == 1 else 's'}" if faults else sound)
    if faults:
        raise typer.Exit(EXIT_BROKEN)


@app.command()
def quarantine(
    config: ConfigOption = None,
    data: Annotated[Path | None, typer.Option("--data", help="Look beside the store in this directory.")] = None,
    show: Annotated[
        int | None, typer.Option("--show", min=1, help="Print this one of the list: its frames and the traceback.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the frames over which the broker's core raised what nobody foresaw, the oldest first.

    Each is a file beside the store. Please report them; they may hold what only the receivers of an event may read.
    """
    from veena.runtime.broker.quarantine import kept, quarantine_of, when

    faults, path = _configured(config, data)
    if faults:
        raise faults[0]
    found = [] if path is None else list(kept(quarantine_of(path)))
    if show is not None:
        if show > len(found):
            raise ConfigError("--show", str(show), f"there are {len(found)} files", "give a number of the list")
        file, told = found[show - 1]
        fields = {"file": str(file), **told}
        lines = [f"{name}: {value}" for name, value in fields.items()]
        typer.echo(json.dumps(fields) if as_json else plain("\n".join(lines)))
    elif as_json:
        typer.echo(json.dumps([{"file": str(file), **told} for file, told in found]))
    else:
        for at, (file, told) in enumerate(found, 1):
            what = f"{file}: {told['error']}"
            if "at_ns" in told:
                by = f"{told['input']} of {told['sender']}, {told['frame_bytes']} bytes"
                what = f"{when(told['at_ns'])}  {by}: {told['error']}"
            typer.echo(one_line(f"{at}  {what}"))
        if not found:
            typer.echo("the quarantine is empty")


def _configured(config: Path | None, data: Path | None) -> tuple[list[ConfigError], Path | None]:
    """What is wrong with a configuration, and the store that it names, if there is one."""
    from veena.runtime.config.reader import load_config
    from veena.runtime.config.schema import ConfigFaults
    from veena.runtime.store.file import store_path

    try:
        found = load_config(config, {} if data is None else {"store": {"path": str(data.absolute())}})
        found.secrets()
    except ConfigFaults as error:
        return error.faults, None
    except ConfigError as error:
        return [error], None
    named = found.path(found.tables.store.path)
    if named is None or not store_path(named).exists():
        if data is not None:
            raise ConfigError("--data", str(data), "holds no store", "name the directory that a broker was given")
        return [], None
    return [], store_path(named)


def _look_at_store(path: Path, repair: bool) -> tuple[list[str], list[ConfigError]]:
    """What was given up, and what is wrong with the store then."""
    from veena.runtime.store.repair import look
    from veena.runtime.store.repair import repair as give_up

    repaired: list[str] = []
    found: list[StoreError] = []
    try:
        repaired = give_up(path) if repair else []
        found = look(path)
    except StoreError as error:
        found = [error]
    return repaired, [ConfigError(each.file, "store", each.reason, each.remedy) for each in found]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="broker")
