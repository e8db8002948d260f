"""The workers of simulated brokers: what costs more than a broker's loop may spend is evaluated here, after a while.

A worker takes its time, answers out of turn, and now and then ends before it has answered. It comes to the verdict that
a real one comes to. Its chance is its own, so that what else happens in a run does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from veena import matching
from veena.address import Address
from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.settings import MILLISECOND_NS
from veena.event import Event
from veena.matching.base.verdict import Verdict, evaluate

#: How long an evaluation takes: mostly little, sometimes as long as the largest.
TIMES_NS = ((1, 20), (1, 20), (20, 200), (200, 1500))
#: How often a worker ends before it has answered; never twice in a row over the same question, which would suspend a
#: subscription.
FAILS = 0.1

At = Callable[[int, Callable[[], None]], None]
Give = Callable[[Evaluated], None]


class Evaluator:
    """All workers of one world."""

    def __init__(self, seed: int, at: At) -> None:
        self._at = at
        self._chance = Random(f"evaluations of {seed}")
        #: What was evaluated, by the constraint in words (it may hold a mapping) and the document.
        self._known: dict[tuple[str, str | bytes], tuple[Verdict, int]] = {}
        #: The questions of each broker over which a worker has ended.
        self._failed: dict[tuple[Address, str, str | bytes], None] = {}
        #: How many questions were answered, and how many workers ended first.
        self.answered = self.failed = 0

    def evaluate(self, broker: Address, effect: Evaluate, now_ns: int, give: Give) -> None:
        """Answer a broker, which may have died until then."""
        low, high = self._chance.choice(TIMES_NS)
        after_ns = self._chance.randint(low, high) * MILLISECOND_NS
        question = (broker, repr(effect.constraint), effect.document)
        if self._chance.random() < FAILS and question not in self._failed:
            self._failed[question] = None
            self.failed += 1
            self._at(now_ns + after_ns, lambda: give(Evaluated(effect.ticket, Verdict.FAILED)))
            return
        self._failed.pop(question, None)
        self.answered += 1
        verdict, work = self._verdict(effect)
        self._at(now_ns + after_ns, lambda: give(Evaluated(effect.ticket, verdict, work)))

    def _verdict(self, effect: Evaluate) -> tuple[Verdict, int]:
        key = (f"{effect.engine} {effect.constraint!r}", effect.document)
        if key not in self._known:
            engine = matching.create(effect.engine)
            engine.add(0, effect.constraint, 1)
            self._known[key] = evaluate(engine, Event(xml=effect.document), effect.work)
        return self._known[key]
