"""The `veena` command: one module a noun, each found and imported only when it is asked for."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from veena.errors import VeenaError

#: A command that found what it was told to look for broken exits with 1; one that was asked wrongly with 2.
EXIT_BROKEN = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="veena",
    help="A content-based event mesh: the right events at the right places.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from veena import __version__

        typer.echo(f"veena {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A content-based event mesh: the right events at the right places."""


def main() -> None:
    """Run the command; a VeenaError becomes one line on standard error and exit code 2."""
    from veena.cli import nouns

    nouns.register(app)
    try:
        app()
    except VeenaError as error:
        print(f"veena: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        sys.exit(EXIT_BROKEN)
