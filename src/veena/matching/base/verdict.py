"""What evaluating one constraint on one event by itself comes to: the same wherever it is done.

A broker's index leaves open what would cost more than its share of a step (`work`). That is evaluated alone, outside of
the broker's loop, with a budget of its own. The budget counts work, so that a broker's worker, the simulator and Spark
come to the same verdict; only `FAILED` depends on the machine.
"""

from __future__ import annotations

from enum import Enum

from veena.event import Event
from veena.matching.base.engine import Engine
from veena.matching.base.work import OUTSIDE_WORK, Meter


class Verdict(Enum):
    """What an evaluation came to; the values are bytes between a broker and its worker."""

    #: The event satisfies the constraint, or does not.
    TRUE = 1
    FALSE = 2
    #: It would cost more than is spent on one evaluation: nobody knows.
    TOO_MUCH = 3
    #: Whoever evaluated it was ended, or has ended, before it was done.
    FAILED = 4


def evaluate(engine: Engine, event: Event, work: int = OUTSIDE_WORK) -> tuple[Verdict, int]:
    """The verdict of an engine that holds one profile, and the work that it took."""
    meter = Meter(work)
    matched, undecided = engine.match_within(event, meter)
    verdict = Verdict.TRUE if matched else Verdict.TOO_MUCH if undecided else Verdict.FALSE
    return verdict, meter.spent
