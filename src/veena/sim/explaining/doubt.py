"""Where somebody who had an event is silent, or died with what it had noted last, an answer need only not be refuted.

Each reason has a condition that must hold, whatever those would have told who do not answer (`oracle`).
"""

from __future__ import annotations

from veena.address import Address, link_level
from veena.core.boundary.explain import Reason, Verdict
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.sim.clients.durable import DurableClients, DurableSubscription
from veena.sim.clients.traffic import Receipt, Traffic
from veena.sim.explaining.question import Question
from veena.sim.explaining.stays import Stood
from veena.sim.explaining.truth import Truth
from veena.sim.explaining.witness import WatchedWorld

#: Maps, duties and answers have followed what broke or healed after so long.
SETTLED_NS = 30 * SECOND_NS


class Doubt:
    """Refutes answers that cannot be."""

    def __init__(self, world: WatchedWorld, traffic: Traffic, durables: DurableClients) -> None:
        self._world = world
        self._traffic = traffic
        self._durables = durables

    def fault(
        self, question: Question, verdict: Verdict, wanted: list[Stood], acceptances: list[tuple[int, Address]]
    ) -> str | None:
        """What refutes an answer."""
        publication = question.publication
        now_ns, accepted_ns = self._world.now_ns, acceptances[0][0]
        reason = verdict.reason
        stands = any(each.ended_ns is None and not self._has_died(each) for each in wanted)
        settled = not self._world.is_disturbed(now_ns - SETTLED_NS, now_ns) and accepted_ns < now_ns - SETTLED_NS
        if reason is Reason.NOT_ACTIVE:
            return self._not_active(question, verdict, wanted, acceptances)
        if reason is Reason.NOT_SUBSCRIBED:
            return None if any(each.ended_ns is not None or self._has_died(each) for each in wanted) else "it stands"
        if reason is Reason.EXPIRED:
            ttl = publication.event.ttl
            # It lives from the moment at which its broker has it, not from when that one's disk has it.
            is_over = ttl is not None and verdict.at_ns >= publication.sent_ns + int(ttl * SECOND_NS) - MILLISECOND_NS
            return None if is_over else "its time to live was not over"
        if reason is Reason.KEPT:
            durable = any(each.durable and each.ended_ns is None for each in wanted)
            return None if durable and publication.reliable else "nothing keeps it"
        if reason is Reason.DROPPED:
            return self._dropped(question, verdict, wanted)
        if reason is Reason.HAD:
            return None if self._had(question, wanted, verdict.at_ns) else "no later event of its stream came before"
        if reason in (Reason.WAITING, Reason.NO_ROUTE):
            return self._under_way(question, verdict, wanted, stands, settled)
        return f"{reason.value} cannot be: somebody wanted it"

    def _has_died(self, stay: Stood) -> bool:
        """Whether the stay's broker has died under it."""
        return not stay.durable and any(each >= stay.begun_ns for each in self._world.crashes.get(stay.broker, ()))

    def _not_active(
        self, question: Question, verdict: Verdict, wanted: list[Stood], acceptances: list[tuple[int, Address]]
    ) -> str | None:
        accepted_ns, origins = acceptances[0][0], [origin for _, origin in acceptances]
        for each in wanted:
            if each.broker[: len(verdict.unit)] != verdict.unit:
                continue
            levels = self._world.levels.get((each.session, each.number), {})
            # Who is acknowledged up to the unit that holds both is promised every event from there.
            needed = 1 + max((link_level(each.broker, at) for at in origins if at != each.broker), default=0)
            known = min((at_ns for level, at_ns in levels.items() if level >= needed), default=None)
            if known is not None and known < accepted_ns and not each.durable:
                return f"it was acknowledged up to level {needed} at {known / SECOND_NS:.3f} s"
            if Truth(self._world, question.publication).was_sent(verdict.broker, verdict.unit):
                return f"broker {verdict.broker} did send it to {verdict.unit}"
            return None
        return f"nobody who wanted it is in {verdict.unit}"

    def _dropped(self, question: Question, verdict: Verdict, wanted: list[Stood]) -> str | None:
        if verdict.text.startswith("slow consumer"):
            slow = any(self._world.was_clogged(each.session, verdict.at_ns) for each in wanted)
            return None if slow else "the client read all the time"
        if question.publication.reliable:
            return "a reliable event is not dropped"
        if "was not there" in verdict.text:
            return None if any(each.durable for each in wanted) else "the subscription goes with its client"
        disturbed = self._world.is_disturbed(verdict.at_ns - SETTLED_NS, verdict.at_ns + SETTLED_NS)
        return None if disturbed else "nothing was broken then"

    def _had(self, question: Question, wanted: list[Stood], at_ns: int) -> bool:
        """Whether the order of its stream ruled it out: only where ways changed, or its client came back."""
        if not self._world.is_disturbed(at_ns - 2 * SETTLED_NS, at_ns):
            return False
        brokers = {each.broker for each in wanted}
        copies = [(each.at_ns, broker_of(self._traffic, each), each.id) for each in self._traffic.receipts]
        copies += [
            (*received(each, copy.at_ns), copy.id) for each in self._durables.history for copy in each.got.values()
        ]
        for got_ns, broker, event_id in copies:
            if got_ns <= at_ns and broker in brokers:
                for mine in question.publication.ids:
                    if event_id[:2] == mine[:2] and event_id[2:] >= mine[2:]:
                        return True
        return any(self._world.crashes.get(each) for each in brokers)

    def _under_way(
        self, question: Question, verdict: Verdict, wanted: list[Stood], stands: bool, settled: bool
    ) -> str | None:
        if not stands and not any(each.durable for each in wanted):
            return "the client has left"
        ttl = question.publication.event.ttl
        accepted_ns = min(
            self._world.accepted[each][0] for each in question.publication.ids if each in self._world.accepted
        )
        if ttl is not None and self._world.now_ns > accepted_ns + int(ttl * SECOND_NS) + SETTLED_NS:
            return "its time to live is over"
        if "does not read" in verdict.text:
            slow = any(self._world.was_clogged(each.session, self._world.now_ns) for each in wanted)
            slow = slow or any(self._world.was_clogged(each.session, question.asked_ns) for each in wanted)
            return None if slow else "the client reads"
        if not settled:
            return None
        if verdict.reason is Reason.NO_ROUTE:
            joined = self._world.oracle().is_whole() and all(
                self._world.nodes[each.broker].broker is not None for each in wanted
            )
            return "there is a way" if joined else None
        return "nothing is under way any more"


def broker_of(traffic: Traffic, receipt: Receipt) -> Address:
    """Where a client got an event."""
    history = traffic.population.history
    return next((each.broker for each in history if each.session == receipt.session), ())


def received(subscription: DurableSubscription, at_ns: int) -> tuple[int, Address]:
    """A durable subscription gets events where it attached last."""
    stays = [stay for stay in subscription.stays if stay.want.begun_ns <= at_ns]
    return at_ns, stays[-1].broker
