"""`veena broker`: run one broker, or look at its configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli import EXIT_BROKEN
from veena.errors import StoreError

if TYPE_CHECKING:
    from veena.runtime.node import Node

app = typer.Typer(help="One broker: run it, or check its configuration.", no_args_is_help=True)

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="The broker's TOML file; defaults without.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

EXIT_CODES = (
    "Exit codes: 0 stopped as told; 2 the configuration cannot be used or a port is taken; 3 the store cannot be used;"
    " 70 the broker has broken its own rules and stopped; 75 it was given another address."
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
    from veena.runtime import process
    from veena.runtime.config_file import load_config
    from veena.runtime.logs import configure

    changes: dict[str, dict[str, Any]] = {}
    if listen:
        changes["broker"] = {"listen": listen}
    if data is not None:
        changes["store"] = {"path": str(data.absolute())}
    found = load_config(config, changes)
    configure(found.tables.log.level, found.tables.log.format)

    def say_listening(node: Node) -> None:
        from veena.runtime.node import ready_line

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
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every fault of a configuration with its line; exit code 1 when there is any."""
    from veena.errors import ConfigError
    from veena.runtime.config import ConfigFaults
    from veena.runtime.config_file import load_config

    faults: list[ConfigError] = []
    try:
        load_config(config).secrets()
    except ConfigFaults as error:
        faults = error.faults
    except ConfigError as error:
        faults = [error]
    if as_json:
        listed = [
            {"file": each.file, "entry": each.entry, "reason": each.reason, "remedy": each.remedy} for each in faults
        ]
        typer.echo(json.dumps({"ok": not faults, "faults": listed}))
    else:
        for fault in faults:
            typer.echo(str(fault))
        typer.echo(f"{len(faults)} fault{'' if len(faults) == 1 else 's'}" if faults else "the configuration is sound")
    if faults:
        raise typer.Exit(EXIT_BROKEN)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="broker")
