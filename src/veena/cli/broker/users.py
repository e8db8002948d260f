"""`veena users`: what stands in a users file for passwords and tokens, and whether such a file is right."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Who may attach: make what a users file needs, and check it.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def password(as_json: JsonOption = False) -> None:
    """Ask for a password, or read it from standard input, and print what stands for it in the file."""
    from veena.runtime.access.users import hash_password

    if sys.stdin.isatty():
        given = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise typer.BadParameter("the password is empty: give at least one character", param_hint="standard input")
    found = hash_password(given)
    typer.echo(json.dumps({"password": found}) if as_json else f'password = "{found}"')


@app.command()
def token(
    days: Annotated[
        float | None, typer.Option("--days", min=0, help="How long it is good; for ever if this is left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token for a program: the token, which is shown only now, and what stands for it in the file."""
    from veena.runtime.access.users import digest_of, new_token

    made = new_token()
    until = None if days is None else (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    if as_json:
        typer.echo(json.dumps({"token": made, "digest": digest_of(made), **({"until": until} if until else {})}))
    else:
        typer.echo(f"token for the program, shown only now:\n{made}\n\nfor the users file:", err=True)
        digest = f'"{digest_of(made)}"'
        typer.echo(f"tokens = [{digest if until is None else f'{{ digest = {digest}, until = {until} }}'}]")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="A users file.", show_default=False)]) -> None:
    """Read a users file as a broker does, and say what is wrong in it."""
    from veena.runtime.access.users import load_users

    load_users(file)
    typer.echo(f"{file}: it can be used")


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The user who is to go.", show_default=False)],
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="A broker's file; its users file is changed, and the broker told. Repeat."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A users file, where no broker runs here.")] = None,
) -> None:
    """End a user's sessions at once, and let nobody in by that name: writes `revoked = true` into the users file.

    With --config the broker that runs with that file reads it again before this returns. With --file alone, send
    SIGHUP to every broker that uses the file.
    """
    from veena.runtime.access.revoke import revoke_user
    from veena.runtime.broker.running import reload_running
    from veena.runtime.config.reader import load_config

    found = [load_config(each) for each in config or ()]
    paths = {path.resolve() for each in found if (path := each.path(each.tables.auth.users_file)) is not None}
    if file is not None:
        paths.add(file.resolve())
    if not paths:
        raise typer.BadParameter("no users file is named: give --config with [auth] users_file, or --file")
    for path in sorted(paths):
        is_new = revoke_user(path, name)
        typer.echo(f"{path}: user {name!r} is revoked" + ("" if is_new else " already"))
    for given, each in zip(config or (), found, strict=True):
        store = each.path(each.tables.store.path)
        pid = None if store is None else reload_running(store)
        if pid is not None:
            typer.echo(f"{given}: the broker (process {pid}) has ended the sessions of {name!r}")
        else:
            why = "keeps no [store] path, so it cannot be found" if store is None else "does not run"
            typer.echo(f"{given}: the broker {why}" + (": send it SIGHUP" if store is None else ""))
    if not found:
        typer.echo("send SIGHUP to the brokers that use it")


@app.command()
def categories(
    names: Annotated[list[str] | None, typer.Argument(help="Only these categories.", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Categories of your own, each a table category.NAME.")
    ] = None,
    dictionary: Annotated[Path | None, typer.Option("--dictionary", help="An event dictionary of your own.")] = None,
    roles: Annotated[bool, typer.Option("--roles", help="Print the roles for the brokers' users file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what categories of clients of a collaboratory may do, or write their roles for a users file."""
    from veena.services.dictionary.dictionary import Dictionary
    from veena.services.domain.categories import AccessControl

    access = AccessControl.load(file, None if dictionary is None else Dictionary.load(dictionary))
    chosen = names or list(access.categories)
    if roles:
        typer.echo(access.roles_toml(chosen), nl=False)
        return
    powers = {name: access.powers(name) for name in chosen}
    if as_json:
        shown = {name: {"publish": p.publish, "read": p.read, "may": p.may} for name, p in powers.items()}
        typer.echo(json.dumps(shown, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("category", "publishes", "reads", "may also", show_lines=True)
    for name, each in powers.items():
        table.add_row(name, *("\n".join(column) for column in (each.publish, each.read)), ", ".join(each.may))
    Console(file=sys.stdout).print(table)


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="users")
