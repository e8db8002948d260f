"""`veena users`: what stands in a users file for passwords and tokens, and whether such a file is right."""

from __future__ import annotations

import json
import sys
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
def token(as_json: JsonOption = False) -> None:
    """Make a token for a program: the token, which is shown only now, and what stands for it in the file."""
    from veena.runtime.access.users import digest_of, new_token

    made = new_token()
    if as_json:
        typer.echo(json.dumps({"token": made, "digest": digest_of(made)}))
    else:
        typer.echo(f"token for the program, shown only now:\n{made}\n\nfor the users file:", err=True)
        typer.echo(f'tokens = ["{digest_of(made)}"]')


@app.command()
def check(file: Annotated[Path, typer.Argument(help="A users file.", show_default=False)]) -> None:
    """Read a users file as a broker does, and say what is wrong in it."""
    from veena.runtime.access.users import load_users

    load_users(file)
    typer.echo(f"{file}: it can be used")


@app.command()
def categories(
    names: Annotated[list[str] | None, typer.Argument(help="Only these categories.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Categories of your own: [category.NAME].")] = None,
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
