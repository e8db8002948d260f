"""The way of an event from where it was accepted towards one client's broker, followed in what brokers remember.

    accepted at O, for units --> sent to X --> taken at X, for the sub-units that want it --> ... --> taken at B, for B

At each broker there are two questions: did it take on a unit that the client's broker lies in (if not, it was not known
there that the client wants the event), and to whom did it send that duty. Where the way ends there is a fact that says
why (expired, dropped, stopped, a dead letter), or a duty that is open, or the copy is in flight: both ends of a link
remember it under the same connection.

The invariant: a way that goes on somewhere is never told as ended; a copy that may still come is "waiting" or has "no
route", whatever became of other copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from veena.address import Address, Unit, as_seen, format_address
from veena.core.boundary.explain import Hop, Reason, Verdict
from veena.core.messages.kinds import OpenDuty, Told
from veena.core.wire.event import EventFrame
from veena.core.wire.trace_facts import MOVED, Fact, Stay, What

_ENDS = {
    What.EXPIRED: Reason.EXPIRED,
    What.DROPPED: Reason.DROPPED,
    What.BURIED: Reason.DEAD_LETTER,
}
#: What keeps an event from following a durable subscription to where that has gone.
_FOLLOWS_NOT = (Reason.WAITING, Reason.NO_ROUTE, Reason.EXPIRED, Reason.DEAD_LETTER)
LEFT_UNREAD = "slow consumer: it left before it read it"


@dataclass(frozen=True, slots=True)
class Trail:
    """Everything that is known of one event."""

    parts: Mapping[Address, Told]
    frame: EventFrame
    silent: tuple[Unit, ...]
    now_ns: int


@dataclass(slots=True)
class _Leaves:
    """Where copies for the client's broker are, or ended."""

    flying: list[tuple[int, Address, Address]] = field(default_factory=list)
    stuck: list[tuple[Address, OpenDuty]] = field(default_factory=list)
    ended: list[tuple[Address, Fact]] = field(default_factory=list)
    unwanted: list[tuple[Address, int]] = field(default_factory=list)
    #: The same, found at a gate.
    stopped: list[tuple[Address, int]] = field(default_factory=list)
    #: Brokers that a copy for a unit came to which both they and the client are in, and that took it: they had to find
    #: out who in there wants the event. Others only pass it on; what they have no way for they do not take.
    reached: dict[Address, None] = field(default_factory=dict)
    lost: list[tuple[int, Address, Address]] = field(default_factory=list)
    unknown: list[tuple[Address, str]] = field(default_factory=list)


def follow(trail: Trail, broker: Address, stay: Stay, origin: Address) -> Verdict:
    """What became of a wanted event for a stay at this broker."""
    told = trail.parts[broker]
    ended_ns = stay.last_seen_ns or stay.ended_ns
    found = _at_end(trail, broker, stay, told)
    if found is not None:
        return found
    came_ns = _came(told, broker)
    if came_ns is not None:
        return _came_and(trail, broker, stay, told, came_ns)
    if any(part.records != "all" for part in (told, *(trail.parts[at] for at in _roots(trail.parts)))):
        return Verdict(Reason.UNKNOWN, 'it did not come, or it is not known: hops are remembered with records = "all"')
    found = _on_the_way(trail, broker)
    if found is None and origin not in trail.parts and (not ended_ns or stay.ending == MOVED):
        text = f"broker {format_address(origin)}, where it was accepted, does not answer"
        return Verdict(Reason.UNKNOWN, text, 0, origin)
    if found is not None and found.reason in _FOLLOWS_NOT and _has_moved(trail, stay):
        return found  # from there it follows, if it lives
    # What lay in a log was not sent any more when nobody wanted it: that leaves no fact.
    if ended_ns and (found is None or (found.reason is not Reason.UNKNOWN and _is_after(found, ended_ns))):
        return _left(trail, broker, stay, ended_ns)
    return found or _lost_track(trail, told, origin)


def _lost_track(trail: Trail, told: Told, origin: Address) -> Verdict:
    """Nothing is known to have ended its way, and nobody says that he has it."""
    if trail.frame.reliable and not told.gaps:
        text = "it is under way, and went on while one broker after the other was asked"
        return Verdict(Reason.WAITING, text, 0, origin)
    return Verdict(Reason.UNKNOWN, "where its way ended is not remembered", 0, origin)


def standing(parts: Mapping[Address, Told], kept: Stay) -> Address | None:
    """Where a durable subscription stands now."""
    for at, told in parts.items():
        for stay in told.stays:
            if stay.durable and not stay.ended_ns and (stay.kind, stay.payload) == (kept.kind, kept.payload):
                return at
    return None


def _has_moved(trail: Trail, stay: Stay) -> bool:
    """Whether a durable subscription stands elsewhere, and what comes to where it was follows it."""
    return stay.ending == MOVED and trail.frame.reliable and standing(trail.parts, stay) is not None


def _is_after(found: Verdict, ended_ns: int) -> bool:
    return found.reason in (Reason.WAITING, Reason.NO_ROUTE) or found.at_ns >= ended_ns


def _left(trail: Trail, broker: Address, stay: Stay, ended_ns: int) -> Verdict:
    home = standing(trail.parts, stay) if _has_moved(trail, stay) else None
    if home is not None:
        text = f"the durable subscription went to broker {format_address(home)}: it follows it there"
        return Verdict(Reason.WAITING, text, ended_ns, home, unit=home)
    text = f"the subscription at broker {format_address(broker)} ended before the event came: {stay.ending}"
    return Verdict(Reason.NOT_SUBSCRIBED, text, ended_ns, broker, unit=broker)


# --- at the client's broker ---


def _at_end(trail: Trail, broker: Address, stay: Stay, told: Told) -> Verdict | None:
    """What the client's broker itself remembers of the event and this stay."""
    withheld: Fact | None = None
    for fact in told.facts:
        if stay.ended_ns and fact.at_ns > stay.ended_ns:
            break
        if fact.at_ns < stay.begun_ns or (fact.what is What.HAD and withheld is not None):
            continue  # a second copy of what waits for the client says nothing of the first
        if fact.session == stay.session and fact.session:
            if fact.what is What.WITHHELD:
                withheld = fact
            elif fact.what is What.KEPT and stay.ended_ns:
                return _left(trail, broker, stay, stay.ended_ns)  # what was kept for it is gone, or has followed it
            elif fact.what in (What.DROPPED, What.EXPIRED, What.HAD):
                reason = Reason.HAD if fact.what is What.HAD else _ENDS[fact.what]
                return Verdict(
                    reason,
                    fact.text or _words(reason),
                    fact.at_ns,
                    broker,
                    way=path_to(trail.parts, broker, fact.at_ns),
                )
        elif fact.what is What.HAD and not fact.client:
            return Verdict(Reason.HAD, _words(Reason.HAD), fact.at_ns, broker)
        elif fact.what is What.EXPIRED and broker in fact.units:
            return Verdict(Reason.EXPIRED, _words(Reason.EXPIRED), fact.at_ns, broker)
    if withheld is None:
        return None
    if stay.ended_ns:
        return Verdict(Reason.DROPPED, LEFT_UNREAD, stay.ended_ns, broker)
    if withheld.until_ns and withheld.until_ns <= trail.now_ns:
        return Verdict(Reason.EXPIRED, "its time to live was over before the client read", withheld.until_ns, broker)
    text = withheld.text or "it waits at the client's broker: the client does not read"
    return Verdict(Reason.WAITING, text, withheld.at_ns, broker)


def _words(reason: Reason) -> str:
    if reason is Reason.HAD:
        return "the client had it, or a later one of its stream, before it came"
    return "its time to live was over"


def _came(told: Told, broker: Address) -> int | None:
    """When the event came to the client's broker, for its clients."""
    times = [fact.at_ns for fact in told.facts if fact.what in (What.TAKEN, What.ACCEPTED) and broker in fact.units]
    return min(times, default=None)


def _came_and(trail: Trail, broker: Address, stay: Stay, told: Told, came_ns: int) -> Verdict:
    ended_ns = stay.last_seen_ns or stay.ended_ns
    if stay.ended_ns and came_ns >= ended_ns:
        return _left(trail, broker, stay, ended_ns)
    if any(duty.waits_for == "here" for duty in told.open):
        return Verdict(Reason.WAITING, "it waits at the client's broker for what came before it", came_ns, broker)
    if ended_ns and _is_owed(told, broker, ended_ns):
        return _left(trail, broker, stay, ended_ns)
    return Verdict(
        Reason.UNKNOWN, f"it came to broker {format_address(broker)}, which does not know more", came_ns, broker
    )


def _is_owed(told: Told, broker: Address, ended_ns: int) -> bool:
    """Whether an event that came while a stay stood was to be handed over later.

    It came again after that, or it was held for what others had kept for this broker while it was absent.
    """
    return any(
        (fact.what is What.TAKEN and fact.at_ns >= ended_ns)
        or (fact.what is What.WITHHELD and broker in fact.units and fact.at_ns <= ended_ns)
        for fact in told.facts
    )


# --- on the way ---


def _on_the_way(trail: Trail, broker: Address) -> Verdict | None:
    leaves = _Leaves()
    frontier = _roots(trail.parts)
    for at in frontier:  # it grows
        _look(trail, at, broker, leaves, frontier)
    if leaves.flying:
        at_ns, sender, receiver = max(leaves.flying)
        text = f"it is on its way from broker {format_address(sender)} to {format_address(receiver)}"
        return Verdict(Reason.WAITING, text, at_ns, sender, as_seen(sender, broker))
    if leaves.stuck:
        return _stuck(leaves.stuck)
    # Who keeps it for others has no part in this.
    unwanted = [each for each in leaves.unwanted if each[0] in leaves.reached or _accepted(trail.parts[each[0]])]
    unwanted += leaves.stopped
    ended = [each for each in leaves.ended if not _went_on(each, unwanted, broker)]
    if ended:
        at, fact = max(ended, key=lambda each: each[1].at_ns)
        if fact.what is What.EXPIRED:  # a life that is over is over for every copy: the first who saw it
            at, fact = min((each for each in ended if each[1].what is What.EXPIRED), key=lambda each: each[1].at_ns)
        reason = _ENDS[fact.what]
        return Verdict(reason, fact.text or _words(reason), fact.at_ns, at, as_seen(at, broker))
    if leaves.lost:
        at_ns, sender, receiver = max(leaves.lost)
        text = f"best effort: it was lost between broker {format_address(sender)} and {format_address(receiver)}"
        return Verdict(Reason.DROPPED, text, at_ns, sender, as_seen(sender, broker))
    if leaves.unknown:
        at, text = leaves.unknown[-1]
        return Verdict(Reason.UNKNOWN, text, 0, at)
    owing = _unanswered(trail, frontier, broker)
    if owing is not None and not any(_shared(at, broker) >= len(owing.unit) for at, _ in unwanted):
        return owing
    return _unwanted(unwanted, broker) if unwanted else None


def _went_on(ended: tuple[Address, Fact], unwanted: list[tuple[Address, int]], broker: Address) -> bool:
    """Whether a life only ended for one who waited for word of a copy: nobody wanted that, nearer to the client."""
    at, fact = ended
    return fact.what is What.EXPIRED and any(
        _shared(other, broker) > _shared(at, broker) and at_ns <= fact.at_ns for other, at_ns in unwanted
    )


def _accepted(told: Told) -> bool:
    return any(fact.what is What.ACCEPTED for fact in told.facts)


def _unanswered(trail: Trail, frontier: list[Address], broker: Address) -> Verdict | None:
    """Somebody who sent it on, the nearest, is not told yet that it came: it goes again when that way has ended."""
    owing = [(at, duty) for at in frontier for duty in trail.parts[at].open if _is_for((duty.unit,), broker)]
    if not owing:
        return None
    at, duty = max(owing, key=lambda each: len(each[1].unit))
    text = f"broker {format_address(at)} waits for word from {format_address(duty.peer)}"
    return Verdict(Reason.WAITING, text, duty.since_ns, at, duty.unit)


def _look(trail: Trail, at: Address, broker: Address, leaves: _Leaves, frontier: list[Address]) -> None:
    """One broker that had the event: what it did for the client's broker."""
    told = trail.parts[at]
    has_taken = False
    for fact in told.facts:
        if not _is_for(fact.units, broker):
            continue
        if fact.what in (What.ACCEPTED, What.LOGGED, What.TAKEN):
            has_taken = True
        elif fact.what in _ENDS:
            leaves.ended.append((at, fact))
        elif fact.what is What.STOPPED:
            leaves.stopped.append((at, fact.at_ns))
        elif fact.what is What.SENT:
            _look_after(trail, at, broker, fact, leaves, frontier)
    if not has_taken:
        taken = [fact.at_ns for fact in told.facts if fact.what in (What.ACCEPTED, What.TAKEN)]
        leaves.unwanted.append((at, min(taken, default=0)))
    for duty in told.open:
        if duty.waits_for != "neighbour" and _is_for((duty.unit,), broker):
            leaves.stuck.append((at, duty))


def _look_after(
    trail: Trail, at: Address, broker: Address, sent: Fact, leaves: _Leaves, frontier: list[Address]
) -> None:
    """A copy that was sent on: it was taken on beyond the link, is in flight, or is lost."""
    told, beyond = trail.parts[at], trail.parts.get(sent.peer)
    taken = None if beyond is None else _taken(told, beyond, sent)
    if beyond is not None and taken is not None:
        is_inside = any(_is_for((unit,), broker) and _is_for((unit,), sent.peer) for unit in sent.units)
        if is_inside and sent.peer in taken.units:  # otherwise it had to refuse that unit: it had met nobody there
            leaves.reached[sent.peer] = None
        if sent.peer not in frontier:
            frontier.append(sent.peer)
        return
    is_open = any(duty.waits_for == "neighbour" and duty.peer == sent.peer for duty in told.open)
    if trail.frame.reliable:
        if is_open and sent.connection not in told.closed:
            leaves.flying.append((sent.at_ns, at, sent.peer))
            return
        if beyond is not None:
            return  # it was sent again another way
    if beyond is None:
        leaves.unknown.append((sent.peer, f"broker {format_address(sent.peer)}, which it was sent to, does not answer"))
    elif sent.connection not in told.closed:
        leaves.flying.append((sent.at_ns, at, sent.peer))
    elif any(start <= sent.at_ns <= end for start, end in beyond.gaps):
        text = f"broker {format_address(sent.peer)}, which it was sent to, was started again and has forgotten"
        leaves.unknown.append((sent.peer, text))
    else:
        leaves.lost.append((sent.at_ns, at, sent.peer))


def _stuck(stuck: list[tuple[Address, OpenDuty]]) -> Verdict:
    routeless = [each for each in stuck if each[1].waits_for == "route"]
    at, duty = max(routeless or stuck, key=lambda each: each[1].since_ns)
    unit, where = format_address(duty.unit), format_address(at)
    if routeless:
        return Verdict(Reason.NO_ROUTE, f"broker {where} has no way to {unit}", duty.since_ns, at, duty.unit)
    why = "its turn: much is under way" if duty.waits_for == "window" else "a neighbour that takes nothing more now"
    return Verdict(Reason.WAITING, f"at broker {where} it waits for {why}", duty.since_ns, at, duty.unit)


def _unwanted(unwanted: list[tuple[Address, int]], broker: Address) -> Verdict:
    """It came nearest where the broker shares most with the client's."""
    at, at_ns = max(unwanted, key=lambda each: (_shared(each[0], broker), each[1]))
    unit = as_seen(at, broker)
    level = len(broker) - len(unit) + 1
    text = f"not active at level {level}: broker {format_address(at)} did not know that {format_address(unit)} wants it"
    return Verdict(Reason.NOT_ACTIVE, text, at_ns, at, unit, level)


def _shared(one: Address, other: Address) -> int:
    return next((size for size, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def _is_for(units: tuple[Unit, ...], broker: Address) -> bool:
    return any(broker[: len(unit)] == unit for unit in units)


def _roots(parts: Mapping[Address, Told]) -> list[Address]:
    """Where the event entered the network, or came out of a log."""
    return [at for at, told in parts.items() if any(map(is_root, told.facts))]


def is_root(fact: Fact) -> bool:
    """Whether an event came by this from a client or out of a log, not from a neighbour."""
    return fact.what in (What.ACCEPTED, What.LOGGED) or (fact.what is What.TAKEN and not fact.connection)


def _taken(told: Told, beyond: Told, sent: Fact) -> Fact | None:
    """How what was sent was taken on at the other end of the link.

    Copies of one event that go over one connection, for other units each, come in the order in which they were sent.
    """
    copies = [fact for fact in told.facts if fact.what is What.SENT and fact.connection == sent.connection]
    taken = [fact for fact in beyond.facts if fact.what is What.TAKEN and fact.connection == sent.connection]
    place = next(place for place, fact in enumerate(copies) if fact is sent)
    return taken[place] if place < len(taken) else None


# --- hops ---


def hops_of(parts: Mapping[Address, Told], at: Address, told: Told) -> Iterator[Hop]:
    for fact in told.facts:
        if fact.what is What.SENT:
            beyond = parts.get(fact.peer)
            taken = None if beyond is None else _taken(told, beyond, fact)
            yield Hop(at, fact.peer, fact.units, fact.at_ns, 0 if taken is None else taken.at_ns)


def path_to(parts: Mapping[Address, Told], broker: Address, until_ns: int) -> tuple[Hop, ...]:
    """The hops by which the event had first come to a broker at a time; empty where they are not remembered.

    To each broker by the first hop that it came by, by that broker's own clock: clocks differ.
    """
    roots = dict.fromkeys(_roots(parts))
    first: dict[Address, Hop] = {}
    for at, told in parts.items():
        for hop in hops_of(parts, at, told):
            has_come = hop.entered_ns and (hop.receiver != broker or hop.entered_ns <= until_ns)
            if has_come and _is_for(hop.units, broker) and hop.receiver not in roots:
                before = first.get(hop.receiver)
                if before is None or hop.entered_ns < before.entered_ns:
                    first[hop.receiver] = hop
    way: list[Hop] = []
    at, before_ns = broker, until_ns
    while at not in roots:
        last = first.get(at)
        # Who answered before it passed it on does not tell of the copy by which it came in time.
        if last is None or last.entered_ns > before_ns or len(way) > len(parts):
            return ()
        way.append(last)
        at, before_ns = last.sender, last.sent_ns
    return tuple(reversed(way))
