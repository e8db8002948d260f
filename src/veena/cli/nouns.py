"""The modules of the command line's nouns, in the order in which `veena --help` shows them.

Each module has `register(app)`; what a command needs is imported inside it, so that `veena --help` starts fast.
"""

from __future__ import annotations

import importlib

import typer

MODULES: tuple[str, ...] = (
    "demo.demo", "broker.broker", "broker.network", "broker.users", "broker.pki", "collab.dictionary", "client.pub_sub",
    "client.discovery", "collab.trader", "collab.services", "broker.locate", "broker.status",
    "broker.topology", "client.trace", "client.explain", "broker.advise", "collab.dashboard",
    "pipeline.group", "pipeline.cluster", "lab.sim", "lab.bench", "lab.experiment",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    for module in MODULES:
        importlib.import_module(f"veena.cli.{module}").register(app)
