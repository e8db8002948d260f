"""The oracle of explanations: what became of an event for a client, from everything that a witness saw.

For a pair it says which reasons are right. Most have exactly one: a receipt means DELIVERED, with its time and broker;
without one the client's subscriptions that stood at acceptance decide between NOT_SUBSCRIBED, NOT_MATCHED (with the
engine's words) and OUT_OF_SCOPE. Where somebody wanted it, each reason has a condition of its own that must hold by the
evidence. More than one is right only where the evidence is a matter of moments: a broker that died took the last notes
with it, or a copy that is on its way when the question is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veena.address import Address, link_level
from veena.core.explain_boundary import Explained, Reason, Verdict
from veena.core.settings import MILLISECOND_NS, SECOND_NS
from veena.core.want import KINDS, make_want
from veena.event import Event
from veena.matching.engine import Engine
from veena.sim.durable_clients import DurableClient, DurableClients, DurableSubscription
from veena.sim.population import Client, Wish
from veena.sim.traffic import Publication, Receipt, Traffic
from veena.sim.witness import WatchedWorld

#: What a broker noted within this time before it died may not have reached its disk; and how long before its death it
#: gave its last sign of life.
FORGOTTEN_NS = SECOND_NS
SIGN_NS = 2_500 * MILLISECOND_NS
#: Maps, duties and answers have followed what broke or healed after so long.
SETTLED_NS = 30 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Stood:
    """A subscription as the witness saw it."""

    wish: Wish
    engine: Engine
    broker: Address
    session: int
    number: int
    begun_ns: int
    #: None while it stands.
    ended_ns: int | None
    durable: bool = False

    def matches(self, event: Event) -> bool:
        return bool(self.engine.match(event))

    def in_scope(self, origin: Address) -> bool:
        size = len(origin) - self.wish.scope
        return origin[:size] == self.broker[:size]


@dataclass(frozen=True, slots=True)
class Question:
    publication: Publication
    client: Client | DurableClient
    asker: Address
    asked_ns: int
    #: The brokers that working links joined to the asker's then.
    around: frozenset[Address]


class ExplainOracle:
    """Judges answers when they come."""

    def __init__(self, world: WatchedWorld, traffic: Traffic, durables: DurableClients) -> None:
        self._world = world
        self._traffic = traffic
        self._durables = durables

    def judge(self, question: Question, answer: Explained) -> str | None:
        """What is wrong with an answer; None when it is right."""
        fault = self._silence(question, answer)
        if fault is not None:
            return fault
        verdict = answer.verdict
        got = self._got(question)
        if verdict.reason is Reason.DELIVERED:
            return self._delivered(verdict, got)
        around = question.around & self.around(question.asker)
        known = [
            (at_ns, broker)
            for at_ns, broker in got
            if self._is_visible(broker, answer) and broker in around and at_ns < question.asked_ns
        ]
        if known and not any(self._may_have_forgotten(each[1], each[0]) for each in known):
            return f"it was handed over at {known[0][0] / SECOND_NS:.3f} s"
        return self._not_delivered(question, answer)

    # --- receipts ---

    def _got(self, question: Question) -> list[tuple[int, Address]]:
        """When and where the client got it."""
        if isinstance(question.client, DurableClient):
            subscriptions = [each for each in self._durables.history if each.client is question.client]
            got = [each for each in subscriptions if question.publication in each.got]
            return sorted(_received(each, each.got[question.publication].at_ns) for each in got)
        found: list[Receipt] = [
            each
            for each in self._traffic.receipts
            if each.client is question.client and each.publication is question.publication
        ]
        return [(each.at_ns, self._broker_of(each)) for each in found]

    def _broker_of(self, receipt: Receipt) -> Address:
        history = self._traffic.population.history
        return next((each.broker for each in history if each.session == receipt.session), ())

    def _delivered(self, verdict: Verdict, got: list[tuple[int, Address]]) -> str | None:
        if not got:
            return "it was never handed over"
        for at_ns, broker in got:
            if at_ns == verdict.at_ns and broker == verdict.broker:
                return None
        return f"it was handed over at {[at_ns for at_ns, _ in got]}, not at {verdict.at_ns}"

    # --- who is silent ---

    def _is_visible(self, broker: Address, answer: Explained) -> bool:
        if broker and self._world.nodes[broker].broker is None:
            return False
        return not any(broker[: len(unit)] == unit for unit in answer.silent)

    def _is_told(self, stay: Stood, question: Question, answer: Explained) -> bool:
        """Whether who answered knows of a stay: it was there when the question came, and its broker still is.

        A broker that never had a link is known to nobody: it does not answer, and it is not missed.
        """
        if stay.begun_ns >= question.asked_ns or not self._is_visible(stay.broker, answer):
            return False
        return stay.broker in question.around and stay.broker in self.around(question.asker)

    def around(self, asker: Address) -> frozenset[Address]:
        """The brokers that working links join to this one now."""
        live = [address for address, node in self._world.nodes.items() if node.broker is not None]
        oracle = self._world.oracle()
        return frozenset(each for each in live if asker in live and oracle.are_joined(asker, each, ()))

    def _silence(self, question: Question, answer: Explained) -> str | None:
        """A unit may be silent when one of its brokers is down, or something happened of late."""
        if self._world.is_disturbed(question.asked_ns - SETTLED_NS, self._world.now_ns):
            return None
        if any(link.slowness != 1 for link in self._world.links):
            return None
        oracle = self._world.oracle()
        if not oracle.is_whole():
            return None
        for unit in answer.silent:
            members = [node for address, node in self._world.nodes.items() if address[: len(unit)] == unit]
            if members and all(node.broker is not None for node in members):
                return f"unit {unit} is named as silent, and nothing was wrong with it"
        return None

    def _may_have_forgotten(self, broker: Address, at_ns: int) -> bool:
        """Whether a broker died so soon after a time that its notes of it may be lost, or its disk is."""
        lost = self._world.nodes[broker].lost
        return lost or self._world.has_crashed(broker, at_ns, at_ns + FORGOTTEN_NS)

    # --- everything else ---

    def _not_delivered(self, question: Question, answer: Explained) -> str | None:
        acceptances = self._acceptances(question, answer)
        reason = answer.verdict.reason
        if not acceptances:
            return None if reason is Reason.UNKNOWN else "it was never accepted"
        if any(at_ns >= question.asked_ns for at_ns, _ in acceptances) and reason is Reason.UNKNOWN:
            return None
        stays = self._stays(question)
        surely = [each for each in stays if self._is_told(each, question, answer)]
        perhaps = [each for each in stays if not any(each.broker[: len(unit)] == unit for unit in answer.silent)]
        faults = [
            self._by_stays(question, answer, chosen, acceptances)
            for told in (surely, perhaps)
            for chosen in self._choices(told, acceptances[0][0])
        ]
        return None if None in faults else faults[0]

    def _acceptances(self, question: Question, answer: Explained) -> list[tuple[int, Address]]:
        """When and where it was accepted, as far as somebody who answered can know."""
        found = [self._world.accepted[each] for each in question.publication.ids if each in self._world.accepted]
        return sorted(found)

    def _choices(self, stays: Sequence[Stood], at_ns: int) -> list[list[Stood]]:
        """The stays that stood then; with and without those of which nobody can know it to the moment."""
        surely = [each for each in stays if each.begun_ns <= at_ns and self._surely_stood(each, at_ns)]
        perhaps = [each for each in stays if each.begun_ns <= at_ns and self._perhaps_stood(each, at_ns)]
        return [surely, perhaps]

    def _surely_stood(self, stay: Stood, at_ns: int) -> bool:
        return (stay.ended_ns is None or at_ns < stay.ended_ns) and not self._is_blurred(stay, at_ns)

    def _perhaps_stood(self, stay: Stood, at_ns: int) -> bool:
        return stay.ended_ns is None or at_ns < stay.ended_ns or self._is_blurred(stay, at_ns)

    def _is_blurred(self, stay: Stood, at_ns: int) -> bool:
        """Whether the stay's broker died around that time, or so soon after it began that it is forgotten."""
        if stay.durable:
            return self._may_have_forgotten(stay.broker, stay.begun_ns)
        crashes = self._world.crashes.get(stay.broker, ())
        end_ns = self._world.now_ns if stay.ended_ns is None else stay.ended_ns
        died = any(stay.begun_ns <= each <= end_ns and at_ns >= each - SIGN_NS for each in crashes)
        return died or self._may_have_forgotten(stay.broker, stay.begun_ns)

    def _by_stays(
        self, question: Question, answer: Explained, stood: list[Stood], acceptances: list[tuple[int, Address]]
    ) -> str | None:
        verdict, event = answer.verdict, question.publication.event
        reason = verdict.reason
        matching = [each for each in stood if each.matches(event)]
        wanted = [each for each in matching if any(each.in_scope(origin) for _, origin in acceptances)]
        if wanted:
            return self._wanted(question, answer, wanted, acceptances)
        if reason is Reason.UNKNOWN and self._may_be_unknown(question, answer, acceptances):
            return None
        right = Reason.OUT_OF_SCOPE if matching else Reason.NOT_MATCHED if stood else Reason.NOT_SUBSCRIBED
        if reason is not right:
            return f"right is {right.value}"
        if right is Reason.NOT_MATCHED and verdict.text not in [_term(each, event) for each in stood]:
            return f"the term is none of {[_term(each, event) for each in stood]}"
        return None

    def _wanted(
        self, question: Question, answer: Explained, wanted: list[Stood], acceptances: list[tuple[int, Address]]
    ) -> str | None:
        """Somebody wanted it and did not get it: each reason has its condition."""
        verdict, publication = answer.verdict, question.publication
        now_ns, accepted_ns = self._world.now_ns, acceptances[0][0]
        reason = verdict.reason
        stands = any(each.ended_ns is None and not self._has_died(each) for each in wanted)
        settled = not self._world.is_disturbed(now_ns - SETTLED_NS, now_ns) and accepted_ns < now_ns - SETTLED_NS
        if reason is Reason.UNKNOWN:
            return None if self._may_be_unknown(question, answer, acceptances) else "nothing was lost: it can be known"
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

    def _may_be_unknown(self, question: Question, answer: Explained, acceptances: list[tuple[int, Address]]) -> bool:
        """Whether those who would know are silent, have died since, or have lost their disks.

        That is where it was accepted, where the client was, or the broker that the answer names.
        """

        def may_miss(broker: Address, at_ns: int) -> bool:
            return not self._is_visible(broker, answer) or self._may_have_forgotten(broker, at_ns)

        stays = self._stays(question)
        if all(may_miss(origin, at_ns) for at_ns, origin in acceptances):
            return True
        if not any(self._is_told(each, question, answer) for each in stays):
            return True
        if any(each.durable and not self._is_visible(each.broker, answer) for each in stays):
            return True  # it may have gone there
        named = answer.verdict.broker
        if named:
            since_ns = acceptances[0][0] - SIGN_NS
            return may_miss(named, since_ns) or self._world.has_crashed(named, since_ns, self._world.now_ns)
        return False

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
            if any(self._world.was_sent(id_, verdict.broker, verdict.unit) for id_ in question.publication.ids):
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
        copies = [(each.at_ns, self._broker_of(each), each.id) for each in self._traffic.receipts]
        copies += [
            (*_received(each, copy.at_ns), copy.id) for each in self._durables.history for copy in each.got.values()
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

    # --- stays ---

    def _stays(self, question: Question) -> list[Stood]:
        client = question.client
        if isinstance(client, Client):
            return [
                Stood(each.wish, each.engine, each.broker, each.session, each.number, each.begun_ns, each.ended_ns)
                for each in self._traffic.population.history
                if each.client is client
            ]
        return [
            Stood(
                each.wish, each.engine, stay.broker, stay.want.session, stay.want.number, stay.want.begun_ns,
                each.deleted_ns, True,
            )
            for each in self._durables.history
            if each.client is client
            for stay in each.stays
        ]  # fmt: skip


def _received(subscription: DurableSubscription, at_ns: int) -> tuple[int, Address]:
    """A durable subscription gets events where it attached last."""
    stays = [stay for stay in subscription.stays if stay.want.begun_ns <= at_ns]
    return at_ns, stays[-1].broker


def _term(stay: Stood, event: Event) -> str:
    kind = make_want(*stay.wish).kind  # an empty selector is stored as its topic
    if KINDS[kind] != stay.wish.engine:
        from veena import matching

        engine = matching.create(KINDS[kind])
        engine.add(1, make_want(*stay.wish).constraint, 1)
        return f"{KINDS[kind]}: {engine.explain(1, event)}"
    return f"{KINDS[kind]}: {stay.engine.explain(1, event)}"
