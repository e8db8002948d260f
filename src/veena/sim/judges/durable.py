"""The judge of durable subscriptions: everything that was accepted after their first acknowledgement, once, in order.

A durable subscription for the whole system is entitled to every reliable event that matches it and was accepted between
the first time that it was acknowledged for its scope, at whatever broker, and its end, whether its client was there or
not, and wherever. Where it asks for something else under the same name it is entitled to what was kept for it before,
and to what was accepted since the new wish was acknowledged. Excused is only what lay for it on as many lost disks as
there are copies (`lost_disks`), what had to cross a unit that is in pieces for ever, and what a former home keeps
because two losses for good keep the present one from being acknowledged (`acknowledgement`): of brokers, or of a way
into a part of a unit, which looks the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address, Unit, shared
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.sim.clients.durable import DurableClients, DurableSubscription
from veena.sim.clients.population import AWAY_NS
from veena.sim.clients.traffic import Publication, Traffic
from veena.sim.judges.lost_disks import LostDisks
from veena.sim.world.world import World


@dataclass(frozen=True, slots=True)
class DurableDeliveries:
    """What became of the events that durable subscriptions were entitled to."""

    expected: int
    delivered: int
    missing: tuple[str, ...]
    expired: int
    excused: tuple[str, ...]
    unacknowledged: tuple[str, ...]
    slowest_s: float


def patience_ns(settings: Settings, deadline_ns: int, has_losses: bool = False) -> int:
    """How long after the last fault a durable subscription has everything.

    Its client comes back; its wish is acknowledged (one deadline); then it asks for what is kept elsewhere, which comes
    as events do (another); what may also come by itself is set aside on the way, at two brokers at most. Where brokers
    are lost for good, another one has to take their place first, and to be heard: nobody waits for the lost any more
    when its lease has ended.
    """
    found = AWAY_NS[1] + 2 * deadline_ns + 2 * (settings.arrive_ns + settings.merge_ns)
    confirmed_ns = settings.suspect_after_ns + settings.confirm_after_ns
    return found + (
        confirmed_ns + settings.standby_ns + 2 * settings.lease_ns if has_losses and settings.standby_ns else 0
    )


class DurableJudge:
    """Judges the durable subscriptions of one world when it has settled."""

    def __init__(
        self, world: World, traffic: Traffic, clients: DurableClients, healed_ns: int, deadline_ns: int
    ) -> None:
        self._world = world
        self._traffic = traffic
        self._clients = clients
        self._healed_ns = healed_ns
        self._deadline_ns = deadline_ns
        self._broken = world.oracle().broken_units()
        self._label = world.network.labels.label
        self._lost = LostDisks(world)

    def deliveries(self) -> DurableDeliveries:
        expected = delivered = expired = 0
        slowest_ns = 0
        missing: list[str] = []
        excused: list[str] = []
        patience = patience_ns(self._world.settings, self._deadline_ns, self._world.options.permanent > 0)
        for publication in self._traffic.publications:
            for each in self._clients.history:
                if not self._is_entitled(publication, each):
                    continue
                copy = each.got.get(publication)
                due_ns = max(self._healed_ns, publication.accepted_ns or 0)
                took_ns = None if copy is None else copy.at_ns - due_ns
                if took_ns is not None and took_ns <= patience:
                    expected, delivered = expected + 1, delivered + 1
                    slowest_ns = max(slowest_ns, took_ns)
                elif copy is None and publication.may_expire(due_ns + patience):
                    expired += 1
                else:
                    what = self._told(publication, each, took_ns)
                    excuse = self._excuse(publication, each)
                    if excuse is None:
                        expected += 1
                        missing.append(what)
                    else:
                        excused.append(f"{what}: {excuse}")
        return DurableDeliveries(
            expected, delivered, tuple(missing), expired, tuple(excused), self._unacknowledged(), slowest_ns / SECOND_NS
        )

    def _is_entitled(self, publication: Publication, each: DurableSubscription) -> bool:
        accepted_ns = publication.accepted_ns
        if not publication.reliable or accepted_ns is None:
            return False
        if each.deleted_ns is not None and publication not in each.got:
            return False
        if publication in each.owed:
            return True
        is_promised = each.active_ns is not None and each.active_ns < accepted_ns
        return is_promised and bool(each.engine.match(publication.event))

    def _told(self, publication: Publication, each: DurableSubscription, took_ns: int | None) -> str:
        accepted_ns = publication.accepted_ns or 0
        stays = ", ".join(
            f"{self._label(stay.broker)} {stay.want.begun_ns / SECOND_NS:.1f} s"
            f" ({'never' if stay.active_ns is None else f'{stay.active_ns / SECOND_NS:.1f}'})"
            for stay in each.stays
        )
        return (
            f"{publication.ids[-1]} from {self._label(publication.origin)} at {accepted_ns / SECOND_NS:.3f} s"
            f" to {each}, which was at {stays}"
            f" {'never came' if took_ns is None else f'came {took_ns / SECOND_NS:.1f} s late'}"
        )

    def _excuse(self, publication: Publication, each: DurableSubscription) -> str | None:
        """Why nobody could have delivered this; None when somebody should have."""
        homes = self._homes(publication, each)
        gone = [broker for broker in homes if self._world.nodes[broker].lost]
        if gone and not self._world.settings.standby_ns:
            return f"it was kept on a disk that is lost ({', '.join(map(self._label, gone))}), and nobody stood by"
        lost = dict.fromkeys(self._lost.keeping(publication.ids, (each.client.name, each.name)))
        for home in homes:
            lost |= dict.fromkeys(self._lost.holding_for(publication.ids, home))
        if len(lost) >= self._world.settings.copies:
            return f"it was kept on disks that are lost ({', '.join(map(self._label, lost))})"
        losses = sum(node.lost for node in self._world.nodes.values()) + len(self._broken)
        if each.stays[-1].active_ns is None and losses >= 2:
            return f"it is kept until its new home is acknowledged, which waits for who is lost in {losses} places"
        whole = around([publication.origin, *homes])
        if any(unit[: len(whole)] == whole for unit in self._broken):
            return "a unit on the way is in pieces for ever"
        origin = publication.origin
        if self._world.nodes[origin].lost:
            cluster = [node for address, node in self._world.nodes.items() if address[:-1] == origin[:-1]]
            if sum(node.lost for node in cluster) >= self._world.settings.copies or len(cluster) == 1:
                return "it lay on disks that are lost at its origin"
        return None

    def _homes(self, publication: Publication, each: DurableSubscription) -> list[Address]:
        """Where the subscription was acknowledged last when the event was accepted, and everywhere after that."""
        accepted_ns = publication.accepted_ns or 0
        first = max(
            number
            for number, stay in enumerate(each.stays)
            if number == 0 or (stay.active_ns is not None and stay.active_ns < accepted_ns)
        )
        return [stay.broker for stay in each.stays[first:]]

    def _unacknowledged(self) -> tuple[str, ...]:
        if self._world.options.permanent:
            return ()  # who is lost for good is waited for until its lease has ended
        return tuple(
            f"{each} at {self._label(each.stays[-1].broker)} was never told that {each.wish} is acknowledged"
            for each in self._clients.history
            if each.deleted_ns is None and each.stays and each.stays[-1].active_ns is None
        )


def around(places: list[Address]) -> Unit:
    """The smallest unit that all of these are in."""
    first = places[0]
    return first[: min((shared(first, place) for place in places), default=0)]
