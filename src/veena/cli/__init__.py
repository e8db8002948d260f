"""The `veena` command: one module a noun in the rooms here, each found and imported only when it is asked for."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from veena.cli.plain import plain
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
        from veena.cli.build import described

        typer.echo(f"veena {__version__}, {described()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A content-based event mesh: the right events at the right places."""


def main() -> None:
    """Run the command; what is wrong with the question, a file or the output is one line on standard error."""
    from veena.cli import nouns

    nouns.register(app)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk shows here, not after the exit code is chosen
    except VeenaError as error:
        print(f"veena: {plain(str(error))}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:
        _drop_output()
        sys.exit(EXIT_BROKEN)
    except OSError as error:
        if error.strerror is None:
            raise  # not the system's word, so a fault of ours
        print(f"veena: {error.filename or 'input or output'}: {error.strerror}", file=sys.stderr)
        _drop_output()
        sys.exit(EXIT_BROKEN if error.filename is None else EXIT_USAGE)


def _drop_output() -> None:
    """What could not be written is not tried once more at the end of the process."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
