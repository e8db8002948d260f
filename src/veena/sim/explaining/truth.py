"""What became of an event for a subscription that wanted it, from everything that a witness saw.

The truth is a list of findings, mostly one. They are looked for in this order, and the first that is true is told:

1. at the client's broker, what came of it first: DROPPED or EXPIRED in its queue, EXPIRED or HAD on arrival;
2. it waits there: WAITING, or EXPIRED when its life is over;
3. it came after the subscription had ended, or was held there until then: NOT_SUBSCRIBED;
4. a copy for the client's unit is on a link: WAITING. Nobody has sent one, and somebody has it to send: NO_ROUTE where
   it has no way, else WAITING. A life that is over makes both EXPIRED, at the moment at which it was over;
5. the last copy ended: EXPIRED (at the moment at which a router saw it), DROPPED, DEAD_LETTER; it went with a
   connection: DROPPED;
6. nobody who had it took the client's unit to want it: NOT_ACTIVE, at the broker nearest to the client, at the moment
   at which it came there or was stopped at the gate.

Who has sent a copy that came, and only awaits word of it, has nothing to send; he is named (WAITING) where nothing is
known of the copy. What would be 4, 5 or 6 is NOT_SUBSCRIBED unless it was so before the subscription ended. A durable
subscription does not end by leaving a broker: what lies in a log for it is KEPT, since it was written there, wherever
the subscription is; and for a member of a group an event is SHARED that lies in a log for the group.

More than one finding is true where several brokers have an event to send, or saw its life end: any of them may be
named. One time is not known: of a life that ended at a broker that died before it saw that, only from when on.
"""

from __future__ import annotations

from collections.abc import Sequence

from veena.address import Address, Unit, as_seen, format_address
from veena.core.boundary.explain import Reason
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.wire.event_id import EventKey
from veena.sim.clients.traffic import Publication
from veena.sim.explaining.evidence import Coming, Crossing, Ending
from veena.sim.explaining.question import Finding
from veena.sim.explaining.stays import Stood
from veena.sim.explaining.witness import WatchedWorld

_QUEUE = {
    "oldest": "slow consumer: the oldest is dropped",
    "disconnected": "slow consumer: its connection is closed",
    "left": "slow consumer: it left before it read it",
}
REFUSED = "a neighbour that takes nothing more now"
NO_WAY = "best effort: there was no way to the unit"
CAME_BACK = "best effort: it came back on its way"
NOT_THERE = "best effort: the client was not there, or did not read"


class Truth:
    """What a witness knows of one event."""

    def __init__(self, world: WatchedWorld, publication: Publication) -> None:
        self._world = world
        self._publication = publication
        self.keys: list[EventKey] = [(each.publisher.encode(), *each[1:]) for each in publication.ids]
        self.comings = [each for key in self.keys for each in world.comings.get(key, ())]
        self.crossings = [each for key in self.keys for each in world.crossings.get(key, ())]
        self.logged = [each for key in self.keys for each in world.logged.get(key, ())]
        #: It came out of logs: of those who keep it for absent brokers, or in the place of one that is gone as well.
        self.comings += [each for key in self.keys for each in world.read.get(key, ())]

    def of(self, stay: Stood, accepted: Sequence[int]) -> list[Finding]:
        """What became of it for a subscription that wanted it and has not got it; it was accepted at these times."""
        world, keys = self._world, self.keys
        if stay.group:
            return self._shared(stay.group)
        if any((stay.session, key) in world.handed or (stay.session, key) in world.denied for key in keys):
            return []  # delivered, or denied
        ended_ns = self.ended_ns(stay)
        is_kept = stay.durable and self._publication.reliable and ended_ns is None
        found = (self.kept(stay) if is_kept else []) or self._at_end(stay) or self._waits(stay)
        if found:
            return found
        came = [each for each in self.comings if each.broker == stay.broker and stay.broker in each.units]
        left = Finding(Reason.NOT_SUBSCRIBED, None, stay.broker, stay.broker)
        if came:
            held = [each for each in came if each.is_held]
            if ended_ns is not None:
                return [left]
            if is_kept:
                follows = [Finding(Reason.WAITING, words="follows it there")] if len(stay.later) > 1 else []
                return [Finding(Reason.HAD, None, stay.broker), Finding(Reason.WAITING, None, stay.broker), *follows]
            return self.mortal([Finding(Reason.WAITING, None, stay.broker)], accepted) if held else []
        found = self._under_way(stay.broker)
        if found:
            if ended_ns is not None:
                return [left]
            alive = self.mortal(found, accepted)
            # A life that is over is over for every copy, and the first who sees it says so.
            return found if alive == found else alive + self._expired(stay.broker)
        found = self._ended(stay.broker)
        if all(each.reason is Reason.NOT_ACTIVE for each in found):
            found = self.mortal(self.awaiting(stay.broker, found), accepted) or found
        if ended_ns is not None:
            return [each for each in found if each.at_ns is not None and each.at_ns < ended_ns] or [left]
        return found

    def _shared(self, group: str) -> list[Finding]:
        """It is for one member of a group where it lies in the log for the group."""
        kept = [each for each in self.logged if group in each.keepers]
        return [Finding(Reason.SHARED, each.at_ns, each.broker, words=group) for each in kept]

    def was_sent(self, sender: Address, unit: Unit) -> bool:
        """Whether a broker ever sent a copy on for this unit."""
        return any(each.sender == sender and unit in each.units for each in self.crossings)

    def ended_ns(self, stay: Stood) -> int | None:
        """When a subscription ended; that of a broker that died ended then."""
        died = (
            [] if stay.durable else [each for each in self._world.crashes.get(stay.broker, ()) if each >= stay.begun_ns]
        )
        ends = [*died, *([] if stay.ended_ns is None else [stay.ended_ns])]
        return min(ends, default=None)

    # --- at the client's broker ---

    def _at_end(self, stay: Stood) -> list[Finding]:
        """What came of it there while the subscription stood, the first of it."""
        world, broker, found = self._world, stay.broker, []
        ended_ns = self.ended_ns(stay)
        for key in self.keys:
            for release in world.releases.get((stay.session, key), ()):
                if release.why == "expired":
                    found.append(Finding(Reason.EXPIRED, release.at_ns, broker))
                else:
                    # When a broker died it is not known to the moment when its clients were cut off.
                    at_ns = None if world.has_crashed(broker, release.at_ns, release.at_ns) else release.at_ns
                    found.append(Finding(Reason.DROPPED, at_ns, broker, words=_QUEUE[release.why]))
            for each in (*world.comings.get(key, ()), *world.read.get(key, ())):
                is_mine = each.broker == broker and broker in each.units and each.at_ns >= stay.begun_ns
                # Who is cut off for not reading misses the event of that moment for this reason.
                last_ns = ended_ns if ended_ns is None or stay.session not in world.given_up_ns else ended_ns + 1
                if is_mine and (last_ns is None or each.at_ns < last_ns):
                    found += self._on_arrival(stay, key, each)
        return sorted(found, key=lambda each: each.at_ns or 0)[:1]

    def _on_arrival(self, stay: Stood, key: EventKey, coming: Coming) -> list[Finding]:
        world, at_ns = self._world, coming.at_ns
        if any((stay.session, each) in world.releases for each in self.keys) or self._is_queued(stay):
            return []
        deadline_ns = coming.deadline_ns
        if coming.is_held and deadline_ns is not None and deadline_ns <= world.now_ns:
            ended = [each for each in world.expired.get(key, ()) if each.broker == stay.broker in each.units]
            seen = [Finding(Reason.EXPIRED, each.at_ns, stay.broker) for each in ended[:1]]
            return seen or [Finding(Reason.EXPIRED, None, stay.broker, earliest_ns=deadline_ns)]
        if deadline_ns is not None and deadline_ns <= at_ns:
            return [Finding(Reason.EXPIRED, at_ns, stay.broker)]
        if stay.durable:
            if self._publication.reliable:
                return []
            if self._was_had(coming, key):
                return [Finding(Reason.HAD, at_ns, stay.broker)]
            return [Finding(Reason.DROPPED, at_ns, stay.broker, words=NOT_THERE)]
        if coming.is_held:
            return []  # it is handed over later, or expires until then
        if world.was_clogged(stay.session, at_ns) and not self._was_had(coming, key):
            given_up_ns = world.given_up_ns.get(stay.session)
            why = "disconnected" if given_up_ns is not None and given_up_ns <= at_ns else "oldest"
            return [Finding(Reason.DROPPED, at_ns, stay.broker, words=_QUEUE[why])]
        return [Finding(Reason.HAD, at_ns, stay.broker)]

    def _was_had(self, coming: Coming, key: EventKey) -> bool:
        """Whether a later event of its stream had come to the broker before."""
        return any(
            other[:2] == key[:2] and other[2:] > key[2:]
            for other, comings in self._world.comings.items()
            for each in comings
            if (each.broker, each.lane) == (coming.broker, coming.lane)
            and each.broker in each.units
            and each.at_ns < coming.at_ns
        )

    def _is_queued(self, stay: Stood) -> bool:
        queue = self._world.queues.get(stay.broker, {}).get(stay.session, {})
        return any(key in queue for key in self.keys)

    def _waits(self, stay: Stood) -> list[Finding]:
        queue = self._world.queues.get(stay.broker, {}).get(stay.session, {})
        for key in self.keys:
            if key in queue:
                deadline_ns = queue[key]
                if deadline_ns is not None and deadline_ns <= self._world.now_ns:
                    return [Finding(Reason.EXPIRED, deadline_ns, stay.broker)]
                return [Finding(Reason.WAITING, None, stay.broker, words="the client does not read")]
        return []

    def kept(self, stay: Stood) -> list[Finding]:
        """A durable subscription has it in a log, there or where it went, until it is read or its life is over."""
        kept = [each for each in self.logged if stay.client in each.keepers]
        over = [each.deadline_ns for each in kept if each.deadline_ns is not None]
        if over and min(over) <= self._world.now_ns:
            return [Finding(Reason.EXPIRED, at_ns, words="its time to live was over before") for at_ns in over]
        homes = dict.fromkeys((*stay.later, *(each.broker for each in kept)))
        homes = {home: None for home in homes if self._stands_at(home, stay)} or homes
        found = [Finding(Reason.KEPT, each.at_ns, home, words="lies in the log") for home in homes for each in kept]
        return [*found, Finding(Reason.WAITING, words="follows it there")] if found else []

    def _stands_at(self, home: Address, stay: Stood) -> bool:
        """Whether a broker is the home of a durable subscription, as far as one can tell: who is down may be."""
        broker = self._world.nodes[home].broker
        return broker is None or any(
            (each.client_id, each.constraint) == (stay.client, stay.wish.constraint)
            for each in broker.events.sessions.durables.here.values()
        )

    # --- on the way ---

    def flights(self, broker: Address, since_ns: int) -> list[Finding]:
        """Copies for the client's broker that were on a link at some time since then."""
        return [
            self._flight(each, broker)
            for each in self.crossings
            if is_for(each.units, broker) and (each.came_ns is None or each.came_ns >= since_ns)
        ] + [
            Finding(Reason.WAITING, each.at_ns, broker, words="it waits at the client's broker for what came before")
            for each in self.comings
            if each.broker == broker and each.at_ns >= since_ns and self._publication.reliable
        ]

    def endings(self, broker: Address, since_ns: int) -> list[Finding]:
        """Copies for the client's broker that ended since then, whatever became of others."""
        buried = [each for key in self.keys for each in self._world.buried.get(key, ()) if is_for(each.units, broker)]
        found = [Finding(Reason.DEAD_LETTER, each.at_ns, each.broker, as_seen(each.broker, broker)) for each in buried]
        return [each for each in (*found, *self._expired(broker)) if each.at_ns is not None and each.at_ns >= since_ns]

    def _under_way(self, broker: Address) -> list[Finding]:
        """Where copies for the client's broker are that may still come."""
        flying = [each for each in self.crossings if is_for(each.units, broker) and self._world.is_in_flight(each)]
        held = [each for each in self._all_held(broker) if not self._awaits_word(each, broker)]
        waiting = [each for each in held if each.reason is Reason.WAITING]
        if flying:
            last_ns = max(each.at_ns for each in flying)
            found = [self._flight(each, broker) for each in flying if each.at_ns == last_ns]
            # What nobody waits for may still come, but whoever has it to send has it.
            return found + (waiting if any(self._is_owed(each, broker) for each in flying) else held)
        return [each for each in held if each.reason is Reason.NO_ROUTE] or waiting

    def _all_held(self, broker: Address) -> list[Finding]:
        return [each for at in self._world.live() for each in self._held(at.identity.address, broker)]

    def _is_owed(self, crossing: Crossing, broker: Address) -> bool:
        """Whether the sender of a copy waits for word that it came, and will not send another now."""
        if not self._publication.reliable:
            return True
        held = [each for each in self._all_held(broker) if each.broker == crossing.sender]
        return any(each.reason is Reason.WAITING and each.words != REFUSED for each in held)

    def _awaits_word(self, held: Finding, broker: Address) -> bool:
        """Whether a broker that has a duty has done it: its copy came, and only the word of that has not."""
        return (
            held.reason is Reason.WAITING
            and held.words != REFUSED
            and any(
                each.sender == held.broker
                and is_for(each.units, broker)
                and each.came_ns is not None
                and not self._was_refused(each, broker)
                and self._world.is_connected(each)
                for each in self.crossings
            )
        )

    def awaiting(self, broker: Address, unwanted: Sequence[Finding] = ()) -> list[Finding]:
        """Who awaits word of a copy, and of what became of it in that unit nothing is known."""
        return [
            each
            for each in self._all_held(broker)
            if self._awaits_word(each, broker)
            and not any(each.unit and other.broker and is_for((each.unit,), other.broker) for other in unwanted)
        ]

    def _flight(self, crossing: Crossing, broker: Address) -> Finding:
        sender, receiver = format_address(crossing.sender), format_address(crossing.receiver)
        words = f"from broker {sender} to {receiver}"
        return Finding(Reason.WAITING, crossing.at_ns, crossing.sender, as_seen(crossing.sender, broker), words=words)

    def _held(self, at: Address, broker: Address | None) -> list[Finding]:
        """What a broker has still to send towards the client's, or at all."""
        router, origin = self._world.broker(at).events.router, self._world.broker(at).events.origin
        units: dict[Unit, int] = {}
        refused: dict[Unit, None] = {}
        for key in self.keys:
            for unit, peer, since_ns, is_refused in router.open_units(key):
                units[unit] = since_ns
                if peer is not None and is_refused:
                    refused[unit] = None
        for each in self.logged:
            for unit in each.units if each.broker == at else ():
                if origin.is_parked(router.bit(unit), each.lane, each.offset):
                    units.setdefault(unit, 0)
        if broker is not None:
            units = {unit: since_ns for unit, since_ns in units.items() if is_for((unit,), broker)}
        found = []
        for unit, since_ns in units.items():
            if unit in refused:
                found.append(Finding(Reason.WAITING, None, at, unit, words=REFUSED))
            elif unit == at or router.has_hop(router.bit(unit)):
                found.append(Finding(Reason.WAITING, None, at, None if unit == at else unit))
            else:
                since = self._world.lost_ns.get((at, unit), since_ns or None) if self._world.sees_routers else None
                found.append(Finding(Reason.NO_ROUTE, since, at, unit))
        return found

    def routeless(self) -> list[Finding]:
        """Where it waits for a way, to whichever unit."""
        found = [each for at in self._world.live() for each in self._held(at.identity.address, None)]
        return [each for each in found if each.reason is Reason.NO_ROUTE]

    def mortal(self, found: list[Finding], accepted: Sequence[int]) -> list[Finding]:
        """What waits and has outlived its time expired when that was over, whoever has seen it."""
        ttl = self._publication.event.ttl
        if ttl is None:
            return found
        # A copy carries its time to live in whole milliseconds.
        ends = [at_ns + max(1, round(ttl * 1000)) * MILLISECOND_NS for at_ns in accepted]
        if min(ends) > self._world.now_ns:
            return found
        return [Finding(Reason.EXPIRED, end_ns, each.broker) for each in found for end_ns in ends]

    def _ended(self, broker: Address) -> list[Finding]:
        """Where the last copy ended; or nobody took the client's unit to want it."""
        world, ended = self._world, []
        for coming in self.comings:
            for unit in coming.units:
                if is_for((unit,), broker) and not self._was_sent(coming, unit, broker):
                    ended += self._stopped(coming, unit, broker)
        for key in self.keys:
            ended += [
                Finding(Reason.DEAD_LETTER, each.at_ns, each.broker, as_seen(each.broker, broker))
                for each in world.buried.get(key, ())
                if is_for(each.units, broker)
            ]
        final = [each for each in ended if each.reason is not Reason.NOT_ACTIVE]
        if final and self._publication.reliable and all(each.reason is Reason.EXPIRED for each in final):
            return [*self._expired(broker), *self._unwanted_before(broker, final, ended)]
        if final:
            last_ns = max(each.at_ns or 0 for each in final)
            return [each for each in final if (each.at_ns or 0) == last_ns]
        lost = [each for each in self.crossings if is_for(each.units, broker) and each.came_ns is None]
        if lost and not self._publication.reliable:
            last = max(lost, key=lambda each: each.at_ns)
            words = f"lost between broker {format_address(last.sender)} and {format_address(last.receiver)}"
            return [Finding(Reason.DROPPED, last.at_ns, last.sender, as_seen(last.sender, broker), words=words)]
        return self._unwanted(broker, ended)

    def _unwanted_before(
        self, broker: Address, expired: Sequence[Finding], stopped: Sequence[Finding]
    ) -> list[Finding]:
        """Where an earlier copy ended, nearer to the client than each that expired: that is as true of the event."""
        return [
            each
            for each in self._unwanted(broker, stopped)
            if each.broker is not None
            and each.at_ns is not None
            and all(
                other.broker is not None
                and shared(each.broker, broker) > shared(other.broker, broker)
                and each.at_ns <= (other.at_ns or 0)
                for other in expired
            )
        ]

    def _expired(self, broker: Address) -> list[Finding]:
        """Where its life ended on the way, to the moment.

        Whoever has sent a reliable event on waits for word that it came, and sees its life end as well.
        """
        ended = [each for key in self.keys for each in self._world.expired.get(key, ())]
        return [
            Finding(Reason.EXPIRED, each.at_ns, each.broker, as_seen(each.broker, broker))
            for each in ended
            if is_for(each.units, broker)
        ]

    def _was_sent(self, coming: Coming, unit: Unit, broker: Address) -> bool:
        """Whether a copy went on; a reliable one that did not arrive, or was refused there, was still to be sent."""
        sent = [
            each
            for each in self.crossings
            if each.sender == coming.broker and unit in each.units and each.at_ns >= coming.at_ns
        ]
        if self._publication.reliable:
            sent = [each for each in sent if each.came_ns is not None and not self._was_refused(each, broker)]
        return bool(sent)

    def _was_refused(self, crossing: Crossing, broker: Address) -> bool:
        """Whether one who had to pass a copy on had no way, or one who had to enter its own unit had met nobody there;
        who has to find out who wants it lets it wait."""
        units = [unit for unit in crossing.units if is_for((unit,), broker)]
        return any(
            each.crossing is crossing and unit in (*each.wayless, *each.refused)
            for each in self.comings
            for unit in units
        )

    def _stopped(self, coming: Coming, unit: Unit, broker: Address) -> list[Finding]:
        """A broker had it to send and did not."""
        at_ns, at = coming.at_ns, coming.broker
        if unit == at:
            return []
        seen = [each for each in self._expired(broker) if each.broker == at]
        seen += [self._not_active(at, broker, each.at_ns) for each in self._stops(broker) if each.broker == at]
        if seen:
            return seen
        deadline_ns = coming.deadline_ns
        if deadline_ns is not None and deadline_ns <= (self._world.now_ns if self._publication.reliable else at_ns):
            # The broker died before it saw that.
            return [Finding(Reason.EXPIRED, None, at, unit, earliest_ns=deadline_ns - MILLISECOND_NS)]
        if self._publication.reliable:
            return [self._not_active(at, broker, None)]
        if unit in coming.wayless:
            return [Finding(Reason.DROPPED, at_ns, at, unit, words=NO_WAY)]
        return [Finding(Reason.DROPPED, at_ns, at, unit, words=CAME_BACK)]

    def _stops(self, broker: Address) -> list[Ending]:
        """Where it was found at a gate that the client's unit, beyond it, does not want it."""
        stopped = [each for key in self.keys for each in self._world.stopped.get(key, ())]
        return [each for each in stopped if is_for(each.units, broker)]

    def _unwanted(self, broker: Address, stopped: Sequence[Finding]) -> list[Finding]:
        on_way = [each for each in self.comings if self._concerns(each, broker)]
        nearest = max((shared(each.broker, broker) for each in on_way), default=0)
        found = [each for each in stopped if each.broker is not None and shared(each.broker, broker) == nearest]
        for at in dict.fromkeys(each.broker for each in on_way if shared(each.broker, broker) == nearest):
            mine = [each for each in self.comings if each.broker == at]
            if not any(is_for(each.units, broker) for each in mine):
                first = min(mine, key=lambda each: each.at_ns)
                found.append(self._not_active(at, broker, first.at_ns))
        return found

    def _concerns(self, coming: Coming, broker: Address) -> bool:
        """Whether a broker had to find out if the client's unit wants it: where it was accepted, or sent for it."""
        if coming.crossing is None:
            return not coming.is_adopted
        return is_for([unit for unit in coming.crossing.units if unit not in coming.refused], broker)

    def _not_active(self, at: Address, broker: Address, at_ns: int | None) -> Finding:
        unit = as_seen(at, broker)
        return Finding(Reason.NOT_ACTIVE, at_ns, at, unit, len(broker) - len(unit) + 1, "not active at level")


def is_for(units: Sequence[Unit], broker: Address) -> bool:
    return any(broker[: len(unit)] == unit for unit in units)


def shared(one: Address, other: Address) -> int:
    return next((size for size, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
