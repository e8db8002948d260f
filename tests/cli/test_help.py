"""What `--help` shows of every command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from veena.cli import app, nouns


def texts(command: Any, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from texts(below, f"{path} {name}")


def test_no_help_loses_a_word() -> None:
    """A name in square brackets is markup to what prints the help, and was left out of it."""
    nouns.register(app)
    found = dict(texts(typer.main.get_command(app), "veena"))
    assert "veena pki grant address" in found
    assert [path for path, text in found.items() if re.search(r"\[/?[a-z#@]", text)] == []
