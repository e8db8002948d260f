"""A broker that knows what CPU time it took: for measurements (`benchmarks/interest.py`).

It is here, and not with those who measure, because a class of compiled sources has no subclasses outside of them.
"""

from __future__ import annotations

import time

from veena.core.boundary.inputs_effects import Effect, Input
from veena.core.broker import Broker


class TimedBroker(Broker):
    """The real one, timed."""

    cpu_ns: int = 0

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        begin = time.thread_time_ns()
        effects = super().handle(given, now_ns)
        self.cpu_ns += time.thread_time_ns() - begin
        return effects

    def tick(self, now_ns: int) -> list[Effect]:
        begin = time.thread_time_ns()
        effects = super().tick(now_ns)
        self.cpu_ns += time.thread_time_ns() - begin
        return effects
