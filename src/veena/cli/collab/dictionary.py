"""`veena dictionary`: what events a collaboratory has, and whether a dictionary and its events are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from veena.services.dictionary.dictionary import Dictionary, EventType

app = typer.Typer(help="Event types of a collaboratory: show them, check a file of them.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
#: Faults that are shown; after so many the rest is counted only.
SHOWN = 20


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A dictionary: TOML, or JSON Schema (.json).", show_default=False)],
    events: Annotated[
        Path | None, typer.Option("--events", help="Check these events against it: a JSON object a line.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a dictionary and say what is wrong in it, or with sample events; exit code 1 when something is.

    An event is a line such as {"domain": "heat", "type": "Monitoring", "name": "state", "role": "application",
    "fields": {"state": "running"}, "qos": {"Priority": 5}}.
    """
    from veena.errors import ConfigError
    from veena.services.dictionary.dictionary import Dictionary
    from veena.services.dictionary.samples import check_samples

    faults: list[str] = []
    found: Dictionary | None = None
    count = refused = 0
    try:
        found = Dictionary.load(file)
        for fault in () if events is None else check_samples(found, events):
            count += 1
            refused += bool(fault)
            if fault and len(faults) < SHOWN:
                faults.append(fault)
    except ConfigError as error:
        faults.append(str(error))
    types = 0 if found is None else len(found.entries)
    if as_json:
        typer.echo(json.dumps({"entries": types, "events": count, "refused": refused, "faults": faults}))
    else:
        for fault in faults:
            typer.echo(fault, err=True)
        if refused > len(faults):
            typer.echo(f"and {refused - len(faults)} more", err=True)
        if found is not None:
            told = "" if events is None else f"; {events}: {count} events, {refused} refused"
            typer.echo(f"{file}: it can be used, {types} event types with those it extends{told}")
    if faults:
        raise typer.Exit(1)


@app.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="A dictionary; the standard one without it.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only this type, such as Steering.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the event types: who publishes them, their fields, their quality."""
    from veena.services.dictionary.dictionary import Dictionary

    found = Dictionary.standard() if file is None else Dictionary.load(file)
    if kind is not None and kind not in found.interactions:
        raise typer.BadParameter(f"{kind!r}: there are {', '.join(found.interactions)}", param_hint="--type")
    entries = [each for each in found.entries if kind in (None, each.type)]
    if as_json:
        typer.echo(json.dumps([_as_json(found, each) for each in entries], indent=2))
    else:
        _print(found, entries)


def _as_json(dictionary: Dictionary, entry: EventType) -> dict[str, Any]:
    fields = [
        {
            "name": each.name,
            "types": list(each.kinds),
            "required": each.required,
            "enum": list(each.enum),
            "minimum": each.minimum,
            "maximum": each.maximum,
            "maxLength": each.max_length,
            "description": each.description,
        }
        for each in entry.fields.values()
    ]
    return {
        "domain": entry.domain,
        "type": entry.type,
        "name": entry.name,
        "description": entry.description,
        "publishers": list(entry.publishers),
        "consumers": list(dictionary.interactions[entry.type].consumers),
        "guarded": dictionary.interactions[entry.type].is_guarded,
        "qos": dict(entry.qos),
        "open": entry.is_open,
        "fields": fields,
    }


def _print(dictionary: Dictionary, entries: list[EventType]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{len(entries)} event type{'' if len(entries) == 1 else 's'}", show_lines=True)
    table.add_column("event, who publishes it, its quality", no_wrap=True)
    table.add_column("fields, * mandatory", overflow="fold")
    for each in entries:
        domain = "" if each.domain == "*" else f"{each.domain}/"
        who = "by " + (" and ".join(f"{role}s" for role in each.publishers) or "nobody")
        guarded = ["guarded"] if dictionary.interactions[each.type].is_guarded else []
        quality = [f"{name} {value}" for name, value in each.qos.items()]
        said = "\n".join(escape(line) for line in (who, *guarded, *quality))
        table.add_row(f"[bold]{escape(f'{domain}{each.type}/{each.name}')}[/]\n{said}", escape(_fields(each)))
    Console(file=sys.stdout).print(table)


def _fields(entry: EventType) -> str:
    lines = [f"{each.name}{'*' if each.required else ''} {each.shown}" for each in entry.fields.values()]
    return "\n".join([*lines, *(["and others"] if entry.is_open else [])])


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="dictionary")
