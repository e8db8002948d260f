"""All actions by name, and running them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from veena.bench.steps.clients import CLIENT_ACTIONS
from veena.bench.steps.neighbours import NEIGHBOUR_ACTIONS
from veena.bench.steps.operators import OPERATOR_ACTIONS, with_users
from veena.bench.steps.questions import QUESTION_ACTIONS
from veena.bench.steps.stage import Action, Measured, Say, measure

ACTIONS: dict[str, Action] = {**CLIENT_ACTIONS, **QUESTION_ACTIONS, **NEIGHBOUR_ACTIONS, **OPERATOR_ACTIONS}


async def measure_all(names: Iterable[str], folder: Path, say: Say = lambda text: None) -> list[Measured]:
    """Measure these, one after the other."""
    found: list[Measured] = []
    for number, name in enumerate(names):
        settings = with_users if name in OPERATOR_ACTIONS else None
        measured = await measure(name, ACTIONS[name], folder / str(number), settings)
        say(f"{measured.longest_ms:7.1f} ms  {name}{f': {measured.fault}' if measured.fault else ''}")
        found.append(measured)
    return found
