"""The nouns of the command line, in the order in which `veena --help` shows them.

Each module has `register(app)`; what a command needs is imported inside it, so that `veena --help` starts fast.
"""

from __future__ import annotations

import importlib

import typer

NOUNS: tuple[str, ...] = (
    "demo", "broker", "network", "users", "dictionary", "messages", "find", "trader", "services", "locate",
    "status", "topology", "trace", "explain", "advise", "dashboard", "pipeline", "cluster", "sim", "bench",
    "experiment",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    for noun in NOUNS:
        importlib.import_module(f"veena.cli.{noun}").register(app)
