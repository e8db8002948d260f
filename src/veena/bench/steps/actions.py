"""All actions by name, and running them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from veena.bench.steps.clients import CLIENT_ACTIONS
from veena.bench.steps.stage import Action, Measured, Say, measure

ACTIONS: dict[str, Action] = {**CLIENT_ACTIONS}


async def measure_all(names: Iterable[str], folder: Path, say: Say = lambda text: None) -> list[Measured]:
    """Measure these, one after the other."""
    found: list[Measured] = []
    for number, name in enumerate(names):
        say(name)
        found.append(await measure(name, ACTIONS[name], folder / str(number)))
    return found
