"""The judge of subscriptions with a past: what was accepted since the time asked for, joined to what came, once each.

A client that stays is entitled to every reliable event that matches and was accepted after it was acknowledged for its
scope, as any other; and to what was accepted before, from the time on that it asked for, by every origin that could
answer. Which those are is certain when everything has healed: who comes then is entitled to the log of every broker
that lives, but for units that it is told were silent. While there are faults a broker may be away just when it is
asked; what of the past does not come then is excused, and only gaps between the past and what comes are judged, and
repeats, and the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import as_seen, shared
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.sim.clients.replay import PastClient, PastClients, is_silent
from veena.sim.clients.traffic import Publication, Traffic
from veena.sim.world.world import World


@dataclass(frozen=True, slots=True)
class PastDeliveries:
    """What became of the events that clients with a past were entitled to."""

    expected: int
    delivered: int
    #: How many of those that were delivered were accepted before the client came.
    past: int
    missing: tuple[str, ...]
    expired: int
    excused: tuple[str, ...]
    unacknowledged: tuple[str, ...]


def past_patience_ns(settings: Settings, deadline_ns: int) -> int:
    """How long after the last fault such a client has everything: it is acknowledged, asks, and waits twice at most."""
    return 2 * deadline_ns + 4 * settings.arrive_ns


class PastJudge:
    """Judges the clients with a past of one world when it has settled."""

    def __init__(self, world: World, traffic: Traffic, clients: PastClients, healed_ns: int, deadline_ns: int) -> None:
        self._world = world
        self._traffic = traffic
        self._clients = clients
        self._healed_ns = healed_ns
        self._patience_ns = past_patience_ns(world.settings, deadline_ns)
        self._broken = world.oracle().broken_units()
        self._label = world.network.labels.label

    def deliveries(self) -> PastDeliveries:
        expected = delivered = past = expired = 0
        missing: list[str] = []
        excused: list[str] = []
        for publication in self._traffic.publications:
            for client in self._clients.clients:
                if not self._is_entitled(publication, client):
                    continue
                got = client.got.get(publication)
                due_ns = max(self._healed_ns, publication.accepted_ns or 0, client.begun_ns) + self._patience_ns
                if got is not None and got[1] <= due_ns:
                    expected, delivered = expected + 1, delivered + 1
                    past += (publication.accepted_ns or 0) < client.begun_ns
                elif got is None and publication.may_expire(due_ns):
                    expired += 1
                else:
                    what = self._told(publication, client)
                    excuse = self._excuse(publication, client)
                    if excuse is None:
                        expected += 1
                        missing.append(what)
                    else:
                        excused.append(f"{what}: {excuse}")
        return PastDeliveries(
            expected, delivered, past, tuple(missing), expired, tuple(excused), self._unacknowledged()
        )

    def _is_entitled(self, publication: Publication, client: PastClient) -> bool:
        if not publication.reliable or publication.accepted_ns is None or not client.begun_ns:
            return False
        if client.ended_ns is not None and publication not in client.got:
            return False
        # Its origin goes by its own clock.
        is_since = publication.sent_ns + publication.ahead_ns >= client.since_ns
        return is_since and bool(client.engine.match(publication.event))

    def _told(self, publication: Publication, client: PastClient) -> str:
        return (
            f"{publication.ids[-1]} from {self._label(publication.origin)} at"
            f" {(publication.accepted_ns or 0) / SECOND_NS:.3f} s to {client.name} at {self._label(client.broker)},"
            f" there since {client.begun_ns / SECOND_NS:.3f} s, acknowledged"
            f" {'never' if client.active_ns is None else f'{client.active_ns / SECOND_NS:.3f} s'}, which wants"
            f" everything since {client.since_ns / SECOND_NS:.3f} s,"
            f" {'never came' if publication not in client.got else 'came late'}"
        )

    def _excuse(self, publication: Publication, client: PastClient) -> str | None:
        """Why nobody could have delivered this; None when somebody should have."""
        origin, accepted_ns = publication.origin, publication.accepted_ns or 0
        is_past = client.active_ns is None or accepted_ns <= client.active_ns
        if is_past and client.begun_ns < self._healed_ns and self._world.options.faults != "none":
            return "its origin may have been away when it was asked"
        if is_past and origin != client.broker and is_silent(client, as_seen(client.broker, origin)):
            return "its origin did not answer, and the client was told"
        if self._world.nodes[origin].lost:
            cluster = [node for address, node in self._world.nodes.items() if address[:-1] == origin[:-1]]
            if is_past or sum(node.lost for node in cluster) >= self._world.settings.copies or len(cluster) == 1:
                return "its origin is lost"
        around = origin[: shared(origin, client.broker)]
        if any(unit[: len(around)] == around for unit in self._broken):
            return "a unit on the way is in pieces for ever"
        return None

    def _unacknowledged(self) -> tuple[str, ...]:
        """Who stayed to the end and was not told that it has its past."""
        return tuple(
            f"{client.name} at {self._label(client.broker)} was never told that it has its past"
            for client in self._clients.clients
            if client.session and client.caught_up is None
        )
