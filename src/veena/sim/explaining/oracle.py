"""The oracle of explanations: whether an answer about an event and a client is right, by what a witness saw.

Most answers have exactly one truth. A receipt means DELIVERED, with its time, its broker and every hop of its way; a
rule that forbade it means DENIED. Otherwise the client's subscriptions that stood at acceptance decide between
NOT_SUBSCRIBED, NOT_MATCHED (with the engine's words), OUT_OF_SCOPE and UNFIT, in this order, the last that is true.
Where somebody wanted it the answer must agree with a finding (`truth`) of some moment between question and
answer, in everything that is certain of it.

Three things make more than one answer right. Of a broker that died it is not known to the moment until when its clients
were there, so both are tried. That a durable subscription was deleted is known where it was kept last: at its former
homes it may count as standing a while longer, and longer yet where one of its later homes is out of sight. And where
somebody who had the event is silent, or died with what it had noted last, an answer need only not be refuted
(`doubt`); how often that was so is counted (`agreement`).

UNKNOWN is right when those who would know are silent or cut off, died since or lost their disks, and for a member of a
group when nobody who answers keeps the event for the group; it is wrong when the client's broker answered and had seen
itself what became of the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from veena.address import Address, Unit
from veena.core.boundary.explain import Explained, Reason, Verdict
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.sim.clients.durable import DurableClient, DurableClients
from veena.sim.clients.groups import Member
from veena.sim.clients.traffic import Receipt, Traffic
from veena.sim.explaining.doubt import SETTLED_NS, Doubt, broker_of, received
from veena.sim.explaining.question import Finding, Question
from veena.sim.explaining.stays import Stood, stays_of
from veena.sim.explaining.truth import Truth, is_for
from veena.sim.explaining.witness import WatchedWorld

#: What a broker noted within this time before it died may not have reached its disk; and how long before its death it
#: gave its last sign of life.
FORGOTTEN_NS = SECOND_NS
SIGN_NS = 2_500 * MILLISECOND_NS
#: Nobody had an event when he was asked: it came to each after that, or had gone on before.
MOVED_ON = "went on while one broker after the other was asked"


class ExplainOracle:
    """Judges answers when they come."""

    def __init__(self, world: WatchedWorld, traffic: Traffic, durables: DurableClients) -> None:
        self._world = world
        self._traffic = traffic
        self._durables = durables
        self._doubt = Doubt(world, traffic, durables)
        #: How the last answer about a wanted event was found to be right: it agrees with a finding in everything, or it
        #: is only not refuted, because somebody who knew it is silent or has died.
        self.agreement: Literal["", "exact", "plausible"] = ""
        self._is_out_of_sight: Callable[[Address], bool] = lambda broker: False

    def look(self, question: Question) -> None:
        """Find out what is true now, for every subscription that wanted the event."""
        acceptances = self._acceptances(question)
        if not acceptances:
            return
        truth = Truth(self._world, question.publication)
        event = question.publication.event
        question.routeless.update(dict.fromkeys(truth.routeless()))
        for stay in self._stays(question):
            if stay.matches(event) and stay.fits(event) and any(stay.in_scope(origin) for _, origin in acceptances):
                times = [at_ns for at_ns, _ in acceptances]
                found = truth.of(stay, times)
                if stay.ended_ns is not None and len(stay.later) > 1:
                    found += truth.of(replace(stay, ended_ns=stay.ended_ns + SETTLED_NS), times)
                question.findings.setdefault(stay.name, {}).update(dict.fromkeys(found))
                question.latest[stay.name] = found
                question.awaiting.update(dict.fromkeys(truth.awaiting(stay.broker)))

    def judge(self, question: Question, answer: Explained) -> str | None:
        """What is wrong with an answer; None when it is right."""
        self.look(question)
        self.agreement = ""
        around = self._asked(question)
        self._is_out_of_sight = lambda broker: broker not in around or not self._is_visible(broker, answer)
        fault = self._silence(question, answer)
        if fault is not None:
            return fault
        verdict = answer.verdict
        got = self._got(question)
        if verdict.reason is Reason.DELIVERED:
            return self._delivered(verdict, got) or self._way(question, verdict, answer)
        known = [
            (at_ns, broker)
            for at_ns, broker in got
            if self._is_visible(broker, answer) and broker in around and at_ns < question.asked_ns
        ]
        if known and not any(self._may_have_forgotten(each[1], each[0]) for each in known):
            return f"it was handed over at {known[0][0] / SECOND_NS:.3f} s"
        denied = self._denials(question)
        if verdict.reason is Reason.DENIED:
            return None if any(each.agrees(verdict) for each in denied) else f"denied is {denied or 'nothing'}"
        for each in denied:
            assert each.broker is not None and each.at_ns is not None
            is_known = (
                each.broker in around and self._is_visible(each.broker, answer) and each.at_ns < question.asked_ns
            )
            if is_known and not self._may_have_forgotten(each.broker, each.at_ns):
                return f"it was {each}"
        return self._not_delivered(question, answer)

    def _denials(self, question: Question) -> list[Finding]:
        """When and by which rule the client was not given it."""
        truth = Truth(self._world, question.publication)
        found = {stay.session: stay.broker for stay in self._stays(question)}
        denied = self._world.denied
        return [
            Finding(Reason.DENIED, denied[session, key][0], broker, words=denied[session, key][1])
            for session, broker in found.items()
            for key in truth.keys
            if (session, key) in denied
        ]

    # --- receipts ---

    def _got(self, question: Question) -> list[tuple[int, Address]]:
        """When and where the client got it."""
        if isinstance(question.client, DurableClient):
            subscriptions = [each for each in self._durables.history if each.client is question.client]
            got = [each for each in subscriptions if question.publication in each.got]
            return sorted(received(each, each.got[question.publication].at_ns) for each in got)
        if isinstance(question.client, Member):
            return self._handed(question)
        found: list[Receipt] = [
            each
            for each in self._traffic.receipts
            if each.client is question.client and each.publication is question.publication
        ]
        return [(each.at_ns, broker_of(self._traffic, each)) for each in found]

    def _handed(self, question: Question) -> list[tuple[int, Address]]:
        """The same of a member of a group, by what its broker said."""
        keys, handed = Truth(self._world, question.publication).keys, self._world.handed
        sessions = {stay.session: stay.broker for stay in self._stays(question)}
        pairs = [(session, key) for session in sessions for key in keys if (session, key) in handed]
        return sorted((handed[pair], sessions[pair[0]]) for pair in pairs)

    def _delivered(self, verdict: Verdict, got: list[tuple[int, Address]]) -> str | None:
        if not got:
            return "it was never handed over"
        for at_ns, broker in got:
            if at_ns == verdict.at_ns and broker == verdict.broker:
                return None
        return f"it was handed over at {[at_ns for at_ns, _ in got]}, not at {verdict.at_ns}"

    def _way(self, question: Question, verdict: Verdict, answer: Explained) -> str | None:
        """Whether it came by these hops: copies that crossed then, one after the other, from where it was accepted."""
        truth = Truth(self._world, question.publication)
        if not verdict.way and isinstance(question.client, DurableClient | Member):
            mine = [each for each in truth.crossings if each.receiver == verdict.broker]
            came = [each.came_ns for each in mine if is_for(each.units, verdict.broker)]
            # What was kept elsewhere follows a durable subscription, or comes to a member, in letters of its brokers.
            if not any(at_ns is not None and at_ns <= verdict.at_ns for at_ns in came):
                return None
        crossed = {(each.sender, each.receiver, each.at_ns, each.came_ns, each.units) for each in truth.crossings}
        for hop in verdict.way:
            if (hop.sender, hop.receiver, hop.sent_ns, hop.entered_ns, hop.units) not in crossed:
                return f"no copy went from {hop.sender} to {hop.receiver} at {hop.sent_ns / SECOND_NS:.3f} s"
        roots = [each.broker for each in truth.comings if each.crossing is None]
        ends = [*(hop.sender for hop in verdict.way), verdict.broker]
        if ends[1:] != [hop.receiver for hop in verdict.way]:
            return "the hops of its way do not join"
        times = [*(at_ns for hop in verdict.way for at_ns in (hop.sent_ns, hop.entered_ns)), verdict.at_ns]
        if times != sorted(times):
            return "the hops of its way come before each other"
        if ends[0] in roots or self.is_blurred(question, answer):
            return None
        begun_ns = verdict.way[0].sent_ns if verdict.way else verdict.at_ns
        for each in truth.crossings:
            has_come = each.receiver == ends[0] and each.came_ns is not None and each.came_ns <= begun_ns
            if has_come and each.at_ns >= question.asked_ns:
                return None  # it went on while one after the other was asked: who answered first had not sent it yet
        return f"its way does not begin where it was accepted: {ends}"

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
        return stay.broker in self._asked(question)

    def _asked(self, question: Question) -> frozenset[Address]:
        """The brokers that the question surely came to, and whose answer came back."""
        return question.around if question.at_once else question.around & self.around(question.asker)

    def around(self, asker: Address) -> frozenset[Address]:
        """The brokers that working links join to this one now, and that somebody in each of their units has met."""
        live = [address for address, node in self._world.nodes.items() if node.broker is not None]
        oracle = self._world.oracle()
        joined = [each for each in live if asker in live and oracle.are_joined(asker, each, ())]
        known = {each: frozenset(self._world.broker(each).profiles.all_known()) for each in joined}
        return frozenset(each for each in joined if each == asker or self._is_met(each, known))

    def _is_met(self, broker: Address, known: dict[Address, frozenset[Unit]]) -> bool:
        """Whether others around it know each unit that a broker is in: who is known to nobody is not missed."""
        for size in range(1, len(broker) + 1):
            others = [at for at in known if at[: size - 1] == broker[: size - 1] and at[:size] != broker[:size]]
            if others and not any(broker[:size] in known[at] for at in others):
                return False
        return True

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
        acceptances = self._acceptances(question)
        reason = answer.verdict.reason
        if not acceptances:
            return None if reason is Reason.UNKNOWN else "it was never accepted"
        if reason is Reason.UNKNOWN and self._is_unheard_of(question):
            return None
        if reason is Reason.UNKNOWN and any(at_ns >= question.asked_ns for at_ns, _ in acceptances):
            comings = Truth(self._world, question.publication).comings
            seen = [
                each for each in comings if each.at_ns < question.asked_ns and not self._is_out_of_sight(each.broker)
            ]
            if all(self._may_have_forgotten(each.broker, each.at_ns) for each in seen):
                return None
        stays = self._stays(question)
        if self._is_kept(question, stays, answer.verdict):
            self.agreement = "exact"
            return None
        surely = [each for each in stays if self._is_told(each, question, answer)]
        perhaps = [each for each in stays if not any(each.broker[: len(unit)] == unit for unit in answer.silent)]
        faults = [
            self._by_stays(question, answer, chosen, acceptances)
            for told in (surely, perhaps)
            for chosen in self._choices(told, acceptances[0][0])
        ]
        return None if None in faults else "; or ".join(dict.fromkeys(each for each in faults if each is not None))

    def _is_kept(self, question: Question, stays: list[Stood], verdict: Verdict) -> bool:
        """Whether it lies, or lay until its life was over, in a log for a durable subscription that stands.

        That may be younger than the event, which was long under way.
        """
        truth = Truth(self._world, question.publication)
        standing = [each for each in stays if each.durable and each.ended_ns is None]
        kept = [each for stay in standing for each in truth.kept(stay)] if question.publication.reliable else []
        return verdict.reason in (Reason.KEPT, Reason.EXPIRED) and any(each.agrees(verdict) for each in kept)

    def _is_unheard_of(self, question: Question) -> bool:
        """Whether it was asked for under an id that no broker took: its publisher was refused, and sent it again under
        another one, which tells the first and not those between."""
        asked, (first, *_) = question.event_id, question.publication.ids
        if asked is None or asked == first:
            return False
        key, world = (asked.publisher.encode(), *asked[1:]), self._world
        return not (asked in world.accepted or any(each.get(key) for each in (world.comings, world.logged, world.read)))

    def _acceptances(self, question: Question) -> list[tuple[int, Address]]:
        """When and where it was accepted, as far as somebody who answered can know."""
        found = [self._world.accepted[each] for each in question.publication.ids if each in self._world.accepted]
        if not found:
            # Its broker died before it could say so, and sends it all the same when it is back.
            truth = Truth(self._world, question.publication)
            sent = [each.broker for each in truth.comings if each.is_adopted]
            found = [(each.at_ns, each.broker) for each in truth.logged if each.broker in sent and each.units]
        return sorted(found)

    def _choices(self, stays: Sequence[Stood], at_ns: int) -> list[list[Stood]]:
        """The stays that stood then; with and without those of which nobody can know it to the moment."""
        surely = [each for each in stays if each.begun_ns <= at_ns and self._surely_stood(each, at_ns)]
        perhaps = [each for each in stays if each.begun_ns <= at_ns and self._perhaps_stood(each, at_ns)]
        return [surely, perhaps]

    def _surely_stood(self, stay: Stood, at_ns: int) -> bool:
        return (stay.ended_ns is None or at_ns < stay.ended_ns) and not self._is_blurred(stay, at_ns)

    def _perhaps_stood(self, stay: Stood, at_ns: int) -> bool:
        if stay.ended_ns is None or at_ns < stay.ended_ns or self._is_blurred(stay, at_ns):
            return True
        # That a durable one was deleted is known where it was kept last, and a while later where it was before.
        if len(stay.later) > 1 and at_ns < stay.ended_ns + SETTLED_NS:
            return True
        return any(self._is_out_of_sight(each) for each in stay.later)

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
        near = [each for each in matching if any(each.in_scope(origin) for _, origin in acceptances)]
        wanted = [each for each in near if each.fits(event)]
        if reason is Reason.UNKNOWN and verdict.unit and verdict.unit in answer.silent:
            fault = self._waits(question, verdict)
            if fault is not None:
                return fault
        if wanted and wanted[0].group:
            return self._shared(question, answer, wanted)
        if wanted:
            return self._wanted(question, answer, wanted, acceptances)
        if reason is Reason.UNKNOWN and self._may_be_unknown(question, answer, acceptances):
            return None
        right = Reason.NOT_MATCHED if stood else Reason.NOT_SUBSCRIBED
        if matching:
            right = Reason.UNFIT if near else Reason.OUT_OF_SCOPE
        if reason is not right:
            return f"right is {right.value}"
        if right is Reason.NOT_MATCHED and verdict.text not in [each.term(event) for each in stood]:
            return f"the term is none of {[each.term(event) for each in stood]}"
        return None

    def _waits(self, question: Question, verdict: Verdict) -> str | None:
        """That it waits for a silent unit may be told to those who ask for somebody whom nobody knows who answered."""
        as_told = replace(verdict, reason=Reason.NO_ROUTE)
        if any(each.agrees(as_told) for each in question.routeless):
            return None
        return f"it does not wait there; it waits at {'; '.join(map(str, question.routeless)) or 'no broker'}"

    def _shared(self, question: Question, answer: Explained, wanted: list[Stood]) -> str | None:
        """A member of a group did not get it. Who keeps it for the group says so; else the group is to be asked for."""
        verdict = answer.verdict
        found = [each for stay in wanted for each in question.findings.get(stay.name, ())]
        if any(each.agrees(verdict) for each in found):
            self.agreement = "exact"
            return None
        known = [
            each
            for each in found
            if each.broker is not None
            and each.at_ns is not None
            and each.at_ns < question.asked_ns
            and not self._is_out_of_sight(each.broker)
            and not self._may_have_forgotten(each.broker, each.at_ns)
        ]
        if verdict.reason is Reason.UNKNOWN and not known:
            self.agreement = "exact"
            return None
        return f"true is {'; '.join(map(str, known)) or 'that nobody keeps it for the group'}"

    def _wanted(
        self, question: Question, answer: Explained, wanted: list[Stood], acceptances: list[tuple[int, Address]]
    ) -> str | None:
        """Somebody wanted it and did not get it."""
        verdict = answer.verdict
        found = [each for stay in wanted for each in question.findings.get(stay.name, ())]
        truth = Truth(self._world, question.publication)
        flights = [each for stay in wanted for each in truth.flights(stay.broker, question.asked_ns)]
        if flights:  # who passed it on, or saw the end of another copy, may have answered after who got it
            found += question.awaiting
            found += [each for stay in wanted for each in truth.endings(stay.broker, question.asked_ns)]
        found += [*flights, *truth.mortal(flights, [at_ns for at_ns, _ in acceptances])]
        is_moving = any(each.reason in (Reason.WAITING, Reason.NO_ROUTE) for each in found)
        has_moved_on = verdict.reason is Reason.WAITING and is_moving and MOVED_ON in verdict.text
        if has_moved_on or any(each.agrees(verdict) for each in found):
            self.agreement = "exact"
            return None
        if verdict.reason is Reason.UNKNOWN:
            knew = [each for stay in wanted for each in self._known_there(question, answer, stay)]
            if knew:
                return f"it is known: {'; '.join(map(str, knew))}"
        if verdict.reason is Reason.UNKNOWN:
            can_be = self._may_be_unknown(question, answer, acceptances)
            fault = None if can_be else "nothing was lost: it can be known"
        else:
            fault = self._doubt.fault(question, verdict, wanted, acceptances)
            if fault is None and not self.is_blurred(question, answer):
                fault = "not so"
        if fault is None:
            self.agreement = self.agreement or "plausible"
            return None
        return f"{fault}; true is {'; '.join(map(str, found)) or 'nothing that is known'}"

    def _known_there(self, question: Question, answer: Explained, stay: Stood) -> list[Finding]:
        """What the client's broker, which answered, saw with its own eyes before it was asked.

        What became of a best-effort event at a place that a durable subscription had left says nothing of the place
        where its client was.
        """
        around = self._asked(question)
        if stay.broker not in around or not self._is_told(stay, question, answer):
            return []
        later = [each.begun_ns for each in self._stays(question) if each.durable and each.begun_ns > stay.begun_ns]
        left_ns = None if question.publication.reliable or not stay.durable else min(later, default=None)
        # It may lie in the log of a former home, which is not the one that stands.
        kept = Truth(self._world, question.publication).logged
        logs = [each.broker for each in kept if stay.client in each.keepers]
        return [
            each
            for each in question.latest.get(stay.name, ())
            if each.broker == stay.broker
            and each.at_ns is not None
            and each.at_ns < question.asked_ns
            and (left_ns is None or each.at_ns < left_ns)
            and (each.reason is not Reason.KEPT or stay.broker in logs)
            and not self._may_have_forgotten(stay.broker, each.at_ns)
        ]

    def is_blurred(self, question: Question, answer: Explained) -> bool:
        """Whether somebody who had the event is silent, or may have forgotten it."""
        world = self._world
        truth = Truth(world, question.publication)
        seen = [(each.broker, each.at_ns) for each in truth.comings]
        seen += [(end, each.at_ns) for each in truth.crossings for end in (each.sender, each.receiver)]
        return any(not self._is_visible(at, answer) or self._may_have_forgotten(at, at_ns) for at, at_ns in seen)

    def sees_all(self, question: Question, answer: Explained) -> bool:
        """Whether everybody who could know something answered, and has forgotten nothing."""
        if answer.silent or self.is_blurred(question, answer):
            return False
        brokers = [stay.broker for stay in self._stays(question)]
        truth = Truth(self._world, question.publication)
        brokers += [each.broker for each in truth.logged] + [each.broker for each in truth.comings]
        brokers += [end for each in truth.crossings for end in (each.sender, each.receiver)]
        choices = [self._choices(self._stays(question), at_ns) for at_ns, _ in self._acceptances(question)]
        is_certain = all(surely == perhaps for surely, perhaps in choices)
        return is_certain and not any(map(self._is_out_of_sight, brokers))

    def _may_be_unknown(self, question: Question, answer: Explained, acceptances: list[tuple[int, Address]]) -> bool:
        """Whether those who would know are silent, have died since, or have lost their disks.

        That is where it was accepted, where the client was, or the broker that the answer names.
        """

        def may_miss(broker: Address, at_ns: int) -> bool:
            return self._is_out_of_sight(broker) or self._may_have_forgotten(broker, at_ns)

        stays = self._stays(question)
        if all(may_miss(origin, at_ns) for at_ns, origin in acceptances):
            return True
        if answer.silent and not any(self._is_told(each, question, answer) for each in stays):
            return True
        if any(each.durable and not self._is_visible(each.broker, answer) for each in stays):
            return True  # it may have gone there
        named = answer.verdict.broker
        if named:
            since_ns = acceptances[0][0] - SIGN_NS
            return may_miss(named, since_ns) or self._world.has_crashed(named, since_ns, self._world.now_ns)
        return False

    def _stays(self, question: Question) -> list[Stood]:
        return stays_of(question.client, self._world, self._traffic, self._durables)
