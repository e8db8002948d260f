"""Lies for the oracle of explanations: answers that are nearly right. One that it believes shows what it does not see.

Beside every right answer the oracle is told what is nearly the same and wrong. Where somebody who may know something is
silent or cut off, or died with what it had noted last, it is not tempted: there it can only refute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from veena.core.boundary.explain import Explained, Reason, Verdict
from veena.sim.clients.durable import DurableClients
from veena.sim.clients.traffic import Traffic
from veena.sim.explaining.oracle import ExplainOracle
from veena.sim.explaining.question import Question
from veena.sim.explaining.witness import WatchedWorld


class TemptedOracle(ExplainOracle):
    """An oracle that is told lies beside answers that are right."""

    def __init__(self, world: WatchedWorld, traffic: Traffic, durables: DurableClients) -> None:
        super().__init__(world, traffic, durables)
        self.lies: Counter[str] = Counter()
        self.believed: Counter[str] = Counter()

    def judge(self, question: Question, answer: Explained) -> str | None:
        fault = super().judge(question, answer)
        agreement = self.agreement
        if fault is None and self.sees_all(question, answer):
            homes = [stay.broker for stay in self._stays(question)]
            for name, lie in lies(answer.verdict, question.asked_ns):
                if lie.reason is Reason.KEPT and lie.broker != answer.verdict.broker and lie.broker in homes:
                    continue  # while it moves it stands at both, and this is no lie
                self.lies[name] += 1
                believed = super().judge(question, replace(answer, verdict=lie)) is None
                self.believed[name] += believed
        self.agreement = agreement
        return fault


def lies(verdict: Verdict, asked_ns: int) -> Iterator[tuple[str, Verdict]]:
    """What is nearly the same as an answer that is right, and wrong."""
    reason, text = verdict.reason, verdict.text
    if reason is Reason.NOT_ACTIVE:
        yield "the next level", replace(verdict, level=verdict.level + 1)
        yield "the unit above", replace(verdict, unit=verdict.unit[:-1])
    elif reason is Reason.NOT_MATCHED:
        yield "another term", replace(verdict, text=text + " and more")
        yield "out of scope for not matched", replace(verdict, reason=Reason.OUT_OF_SCOPE)
    elif reason is Reason.DROPPED:
        yield "expired for dropped", replace(verdict, reason=Reason.EXPIRED)
        yield "another policy", replace(verdict, text="best effort: nobody cared")
    elif reason is Reason.EXPIRED:
        yield "dropped for expired", replace(verdict, reason=Reason.DROPPED)
        yield "expired a moment later", replace(verdict, at_ns=verdict.at_ns + 1)
        if verdict.at_ns > verdict.accepted_ns:
            yield "expired before its time", replace(verdict, at_ns=verdict.accepted_ns)
    elif reason is Reason.DENIED:
        yield "another rule", replace(verdict, text="denied: rule 2: deny *")
    elif reason is Reason.DELIVERED:
        yield "a moment later", replace(verdict, at_ns=verdict.at_ns + 1)
        if verdict.way:
            first = replace(verdict.way[0], receiver=verdict.way[0].sender)
            yield "another hop", replace(verdict, way=(first, *verdict.way[1:]))
        if verdict.way and verdict.at_ns < asked_ns:
            yield "no way", replace(verdict, way=())
    elif reason is Reason.NO_ROUTE:
        yield "waiting for no route", replace(verdict, reason=Reason.WAITING)
        yield "since another time", replace(verdict, at_ns=verdict.at_ns - 1)
    elif reason is Reason.WAITING:
        yield "no route for waiting", replace(verdict, reason=Reason.NO_ROUTE)
    elif reason is Reason.SHARED:
        yield "another group", replace(verdict, text="it is for one member of ~shared/others")
    elif reason is Reason.KEPT:
        yield "kept since another time", replace(verdict, at_ns=verdict.at_ns + 1)
        yield "kept elsewhere", replace(verdict, broker=(*verdict.broker[:-1], verdict.broker[-1] + 1))
    elif reason is Reason.DEAD_LETTER:
        yield "expired for a dead letter", replace(verdict, reason=Reason.EXPIRED)
    if reason not in (Reason.UNKNOWN, Reason.WAITING, Reason.NO_ROUTE) and verdict.accepted_ns < asked_ns:
        yield "unknown for known", replace(verdict, reason=Reason.UNKNOWN, broker=(), text="nobody knows")
