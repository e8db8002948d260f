"""Why a client got an event or did not: a pure function of what brokers remember (`journal`) and answered (`query`).

One reason is told, found in this order:

1. it was handed to the client: DELIVERED. A rule forbade it when it came to that: DENIED. It lies in the log for a
   durable subscription that stands: KEPT, or EXPIRED when its life is over;
2. otherwise every subscription of the client is looked at, and the one counts that the event came nearest to:
   it did not stand when the event was accepted (NOT_SUBSCRIBED) < it is not satisfied (NOT_MATCHED) < the origin is out
   of its scope (OUT_OF_SCOPE) < the device or clearances do not suit (UNFIT) < the event was wanted;
3. for a wanted event its way is followed (`path`), from where it was accepted to the client's broker: it was not
   known yet on the way that the client wants it (NOT_ACTIVE), it came and was HAD, EXPIRED, DROPPED, it came after the
   client had left (NOT_SUBSCRIBED again, with the time), it is a DEAD_LETTER, has NO_ROUTE, or is WAITING;
4. nobody who answered remembers what would decide it: UNKNOWN, and why.

So "not matched" is told where scope would have ruled it out as well: a client that asks wants to know first whether it
asked for such events at all. Times of several brokers are compared; clocks that differ move what lies between them.

The invariant: DELIVERED and KEPT rest on a fact of one broker and stay true whoever is silent; every other reason is
the truth as far as those know who answered, and the answer names the silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from veena.address import Address, Unit, format_address
from veena.core.boundary.explain import Handed, Happened, Hop, Reason, Verdict
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.explain.path import Trail, follow, hops_of, path_to, standing
from veena.core.interest.constraint import KINDS, TO, create_engine
from veena.core.interest.eligibility import Fitness
from veena.core.messages.kinds import Told
from veena.core.wire.event import NO_TTL, EventFrame
from veena.core.wire.trace_facts import MOVED, SUSPENDED, UNSATISFIED, Stay, What
from veena.errors import InvalidConstraint, InvalidEvent
from veena.event import Event
from veena.matching.base.engine import MATCHES, Constraint
from veena.matching.base.work import TOO_MUCH

#: How near an event came, for the choice among a client's subscriptions.
NEARNESS = {
    Reason.NOT_SUBSCRIBED: 0,
    Reason.NOT_MATCHED: 1,
    Reason.OUT_OF_SCOPE: 2,
    Reason.UNFIT: 3,
    Reason.NOT_ACTIVE: 4,
}
LEFT = 4
UNDECIDED = 5
WANTED = 6
#: Facts that a trace shows as hops and deliveries.
ON_THE_WAY = (What.ACCEPTED, What.TAKEN, What.SENT, What.DELIVERED)

_constraints: msgspec.msgpack.Decoder[Constraint] = msgspec.msgpack.Decoder(
    int | str | tuple[str, str | dict[str, str]]
)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """When and where the event was accepted; an origin that does not answer is known from the frame."""

    at_ns: int
    origin: Address


def judge(
    parts: Mapping[Address, Told], frame: EventFrame | None, client: str, silent: tuple[Unit, ...], now_ns: int
) -> Verdict:
    """The verdict from what each broker told; `frame` is the event without its body."""
    handed = handed_to(parts, client)
    if handed:
        return _delivered(parts, handed[0])
    accepted = acceptances(parts, frame)
    if frame is None or not accepted:
        return Verdict(Reason.UNKNOWN, f"nobody who answered remembers that this event was accepted{_told_by(parts)}")
    try:
        event = frame.event()
    except InvalidEvent as error:
        return Verdict(Reason.UNKNOWN, f"the event cannot be read: {error}")
    first = accepted[0]
    found = _denied(parts, client) or _kept(parts, client, now_ns)
    if found is None:
        trail = Trail(parts, frame, silent, now_ns)
        stays = [(broker, stay) for broker, told in parts.items() for stay in told.stays if _counts(stay, event)]
        verdicts = [
            _of_stay(trail, broker, stay, acceptance, event, client)
            for acceptance in accepted
            for broker, stay in sorted(stays, key=lambda each: each[1].begun_ns)
        ]
        found = max(verdicts, key=_nearness) if verdicts else _unheard_of(parts, event, client, silent)
    return replace(found, accepted_ns=first.at_ns, origin=first.origin)


def acceptances(parts: Mapping[Address, Told], frame: EventFrame | None) -> list[Acceptance]:
    """Where the event was accepted, the earliest first: more than once when its publisher had to repeat it."""
    facts = [(fact, at) for at, told in parts.items() for fact in told.facts]
    found = [Acceptance(fact.at_ns, at) for fact, at in facts if fact.what is What.ACCEPTED]
    if not found and frame is not None and frame.origin_address is not None and facts:
        # The publisher wrote this time: it may lie before 1970.
        found = [Acceptance(max(0, frame.section.timestamp_ns), frame.origin_address)]
    return sorted(found, key=lambda each: each.at_ns)


def handed_to(parts: Mapping[Address, Told], client: str | None = None) -> list[Handed]:
    """Who was handed the event, the earliest first; whom a rule forbade it then was not."""
    found: list[Handed] = []
    for at, told in parts.items():
        for fact in told.facts:
            if fact.what is What.DELIVERED and client in (None, fact.client):
                found.append(Handed(at, fact.client, fact.session, fact.subscriptions, fact.at_ns))
            elif fact.what is What.DENIED:
                last = [each for each in found if (each.broker, each.session) == (at, fact.session)][-1:]
                found = [each for each in found if each not in last]
    return sorted(found, key=lambda each: each.at_ns)


def all_hops(parts: Mapping[Address, Told]) -> list[Hop]:
    """Every hop, in the order of time."""
    hops = [hop for at, told in parts.items() for hop in hops_of(parts, at, told)]
    return sorted(hops, key=lambda hop: (hop.sent_ns, hop.sender, hop.receiver))


def happenings(parts: Mapping[Address, Told]) -> list[Happened]:
    """Everything that became of the event beside hops and deliveries, in the order of time."""
    found = [
        Happened(at, fact.what.value, fact.at_ns, fact.client, fact.units, fact.text)
        for at, told in parts.items()
        for fact in told.facts
        if fact.what not in ON_THE_WAY
    ]
    return sorted(found, key=lambda each: (each.at_ns, each.broker))


# --- what is certain ---


def _delivered(parts: Mapping[Address, Told], handed: Handed) -> Verdict:
    first = next(iter(acceptances(parts, None)), Acceptance(0, ()))
    return Verdict(
        Reason.DELIVERED,
        f"handed to session {handed.session} at broker {format_address(handed.broker)}",
        handed.at_ns,
        handed.broker,
        subscriptions=handed.subscriptions,
        way=path_to(parts, handed.broker, handed.at_ns),
        accepted_ns=first.at_ns,
        origin=first.origin,
    )


def _kept(parts: Mapping[Address, Told], client: str, now_ns: int) -> Verdict | None:
    """It was put into the log for a durable subscription, and that stands, there or where it went."""
    for at, told in parts.items():
        for fact in reversed(told.facts):
            if fact.what is not What.KEPT or fact.client != client:
                continue
            here = next((stay for stay in reversed(told.stays) if stay.session == fact.session), None)
            home = None if here is None else standing(parts, here)
            others = [each for each in told.facts if each.session == fact.session]
            if home is None or any(each.text == UNSATISFIED for each in others):
                continue
            if fact.until_ns and fact.until_ns <= now_ns:
                text = f"its time to live was over before {client} read it at broker {format_address(home)}"
                return Verdict(Reason.EXPIRED, text, fact.until_ns, home)
            text = f"it lies in the log of broker {format_address(home)} for the durable subscription {fact.text!r}"
            text += "".join(f"; {each.text}" for each in others[-1:] if each.what is What.WITHHELD and each.text)
            return Verdict(Reason.KEPT, text, fact.at_ns, home, way=path_to(parts, at, fact.at_ns))
    return None


def _denied(parts: Mapping[Address, Told], client: str) -> Verdict | None:
    for at, told in parts.items():
        for fact in told.facts:
            if fact.what is What.DENIED and fact.client == client:
                return Verdict(
                    Reason.DENIED, f"denied: {fact.text}", fact.at_ns, at, way=path_to(parts, at, fact.at_ns)
                )
    return None


# --- one subscription ---


def _counts(stay: Stay, event: Event) -> bool:
    """Whether a stay could have got such an event: who is named gets what is addressed, and nothing else does."""
    return (stay.kind == TO) is bool(event.to)


def _nearness(verdict: Verdict) -> int:
    if verdict.reason is Reason.NOT_SUBSCRIBED and verdict.unit:
        return LEFT  # it was wanted, and came too late
    if verdict.reason is Reason.UNKNOWN:
        return UNDECIDED  # what is known of another one of its subscriptions that wanted it says more
    return NEARNESS.get(verdict.reason, WANTED)


def _of_stay(trail: Trail, broker: Address, stay: Stay, accepted: Acceptance, event: Event, client: str) -> Verdict:
    # Of a broker that died it is known when its clients were there last, not when they were cut off.
    ended_ns = stay.last_seen_ns or stay.ended_ns
    number = (stay.number,)
    where = format_address(broker)
    if stay.begun_ns > accepted.at_ns:
        text = f"{client} subscribed at broker {where} only after the event was accepted"
        return Verdict(Reason.NOT_SUBSCRIBED, text, stay.begun_ns, broker, subscriptions=number)
    term = _term(stay, event)
    if term is None and any(
        fact.session == stay.session and fact.text == UNSATISFIED for fact in trail.parts[broker].facts
    ):
        term = UNSATISFIED
    if ended_ns and ended_ns <= accepted.at_ns and _went_out_of_sight(trail, stay, accepted):
        if term is not None:
            return Verdict(Reason.NOT_MATCHED, term, stay.begun_ns, broker, subscriptions=number)
        text = f"the durable subscription went from broker {where} to one that does not answer or is gone"
        return Verdict(Reason.UNKNOWN, text, ended_ns, broker, subscriptions=number)
    if ended_ns and ended_ns <= accepted.at_ns:
        text = f"the subscription at broker {where} had ended before the event was accepted: {stay.ending}"
        unit = broker if stay.ending == SUSPENDED and term is None else ()
        return Verdict(Reason.NOT_SUBSCRIBED, text, ended_ns, broker, unit, subscriptions=number)
    if term is not None:
        return Verdict(Reason.NOT_MATCHED, term, stay.begun_ns, broker, subscriptions=number)
    size = len(broker) - stay.scope
    if accepted.origin[:size] != broker[:size]:
        text = f"it was published at {format_address(accepted.origin)}, outside {format_address(broker[:size])}"
        return Verdict(Reason.OUT_OF_SCOPE, text, stay.begun_ns, broker, broker[:size], stay.scope, number)
    if not Fitness(stay.attributes).suits(event):
        text = "the client's device cannot use it, or it is not cleared for it: see the event's headers"
        return Verdict(Reason.UNFIT, text, stay.begun_ns, broker, subscriptions=number)
    if stay.group:
        return replace(_shared(trail.parts, stay.group), subscriptions=number)
    found = follow(trail, broker, stay, accepted.origin)
    return replace(_mortal(trail, found, accepted), subscriptions=number)


def _went_out_of_sight(trail: Trail, stay: Stay, accepted: Acceptance) -> bool:
    """Whether a durable subscription is kept elsewhere, and nobody who answered knows where it was then."""
    if stay.ending != MOVED:
        return False
    return not any(
        other.durable
        and (other.kind, other.payload) == (stay.kind, stay.payload)
        and stay.ended_ns <= (other.ended_ns or trail.now_ns)
        and other.begun_ns <= accepted.at_ns
        and other is not stay
        for told in trail.parts.values()
        for other in told.stays
    )


def _shared(parts: Mapping[Address, Told], group: str) -> Verdict:
    """A member of a group did not get it: whether the group did."""
    for at, told in parts.items():
        for fact in told.facts:
            if fact.what is What.KEPT and fact.client == group:
                buried = next((each for each in told.facts if each.what is What.BURIED and at in each.units), None)
                if buried is not None:
                    return Verdict(Reason.DEAD_LETTER, buried.text, buried.at_ns, at, at)
                text = (
                    f"it is for one member of {group}, kept at broker {format_address(at)}: another one got it or will"
                )
                return Verdict(Reason.SHARED, text, fact.at_ns, at)
    return Verdict(Reason.UNKNOWN, f"the client shares a subscription: ask what became of the event for {group}")


def _mortal(trail: Trail, found: Verdict, accepted: Acceptance) -> Verdict:
    """What waits and has outlived its time is expired, whether or not somebody has noticed."""
    ttl_ms = trail.frame.ttl_ms
    if found.reason not in (Reason.WAITING, Reason.NO_ROUTE) or ttl_ms == NO_TTL:
        return found
    until_ns = _read_ns(trail.parts, accepted) + ttl_ms * MILLISECOND_NS
    if until_ns > trail.now_ns:
        return found
    return replace(found, reason=Reason.EXPIRED, text="its time to live was over on the way", at_ns=until_ns)


def _read_ns(parts: Mapping[Address, Told], accepted: Acceptance) -> int:
    """Since when the time to live runs that the frame tells: where it came from another broker, since it was there."""
    if any(fact.what is What.ACCEPTED for told in parts.values() for fact in told.facts):
        return accepted.at_ns
    return next((told.facts[0].at_ns for told in parts.values() if told.frame and told.facts), accepted.at_ns)


def _term(stay: Stay, event: Event) -> str | None:
    """The first term that failed or was unknown; None when all hold."""
    try:
        constraint = _constraints.decode(stay.payload)
        engine = create_engine(stay.kind)
        engine.add(0, constraint, 0)
        if stay.kind == TO:
            return None if engine.match(event) else "failed: the event is addressed to others"
        found = engine.explain(0, event)
    except (InvalidConstraint, IndexError, msgspec.MsgspecError):
        return "failed: the constraint cannot be read here"
    # What costs too much here was evaluated by the client's broker, or is going to be.
    return None if found in (MATCHES, f"unknown: {TOO_MUCH}") else f"{KINDS[stay.kind]}: {found}"


def _unheard_of(parts: Mapping[Address, Told], event: Event, client: str, silent: tuple[Unit, ...]) -> Verdict:
    """Nobody remembers that the client wanted anything of the kind."""
    if event.to and client not in event.to:
        return Verdict(Reason.NOT_MATCHED, "failed: the event is addressed to others")
    blind = [at for at, told in parts.items() if told.records == "off"]
    if silent or blind:
        waits = _waits_for_silent(parts, silent)
        return replace(waits, text=f"nobody who answered knows client {client}{_told_by(parts)}{waits.text}")
    return Verdict(Reason.NOT_SUBSCRIBED, f"{client} wanted nothing of this kind anywhere")


def _waits_for_silent(parts: Mapping[Address, Told], silent: tuple[Unit, ...]) -> Verdict:
    """The event may wait for a way to where the client is: for a silent unit."""
    for at, told in parts.items():
        for duty in told.open:
            if duty.waits_for == "route" and duty.unit in silent:
                text = f"; for {format_address(duty.unit)}, which is silent, it waits at broker {format_address(at)}"
                return Verdict(Reason.UNKNOWN, text, duty.since_ns, at, duty.unit)
    return Verdict(Reason.UNKNOWN, "")


def _told_by(parts: Mapping[Address, Told]) -> str:
    blind = sum(told.records == "off" for told in parts.values())
    return f"; at {blind} of {len(parts)} brokers records are off" if blind else ""
