"""Run the `veena` command in this process, as a shell would."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass

import typer

from veena import cli


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def veena(*arguments: str) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["veena", *arguments]
    cli.app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    cli.app.callback()(cli.options)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: object = 0
    except SystemExit as exit_:
        code = exit_.code
    finally:
        sys.argv = before
    return Outcome(code if isinstance(code, int) else 0 if code is None else 1, out.getvalue(), err.getvalue())
