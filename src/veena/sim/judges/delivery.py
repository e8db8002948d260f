"""The judge of a run: who was entitled to which event, and who got it.

Entitled is a client whose subscription matched, was acknowledged for its scope when the event was accepted, and lasted
until delivery or the end (I1). Whatever of that is not delivered within the deadline after the last fault healed is
missing. Nothing is excused but what lay, still owed, on as many lost disks as there are copies and on no other
(`lost_disks`), what is cut off for ever, and what was never accepted because its broker has no neighbour left to hold a
second copy, or to tell it who wants what; all are named. What has a time to live has expired only if that was over
before it was due. The judge knows clients, topology and disks, never a broker's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veena import matching
from veena.address import Address, Unit, shared
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.event import Event
from veena.matching.base.engine import Engine
from veena.sim.clients.population import WITHDRAWN_NS, Client, Subscription
from veena.sim.clients.traffic import Publication, Receipt, Traffic
from veena.sim.judges.crossings import Crossings
from veena.sim.judges.lost_disks import LostDisks
from veena.sim.world.world import World

#: Faults that are told in full; the rest is counted.
NAMED = 20


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of the events."""

    events: int
    expected: int
    delivered: int
    missing: tuple[str, ...]
    duplicates: tuple[str, ...]
    out_of_order: tuple[str, ...]
    late: int
    dropped: int
    expired: int
    #: Never to be delivered, and why.
    excused: tuple[str, ...]
    #: Reliable events that no broker took although it could have.
    unaccepted: tuple[str, ...]
    #: Subscriptions that were not acknowledged for their scope although everything had healed.
    unacknowledged: tuple[str, ...]
    #: Handed to somebody who did not want it, or changed, or refused what must not be.
    spurious: tuple[str, ...]
    #: How long after the faults, and after its acceptance, the last entitled client got its event.
    slowest_s: float
    #: Reliable events that a client which did not read was told to have missed.
    slow_dropped: int = 0


def deadline_ns(settings: Settings) -> int:
    """How long after the last fault everything is delivered: 3 x (heartbeat + batch interval) x levels."""
    return 3 * (settings.heartbeat_ns + max(settings.batch_ns)) * settings.levels


class Judge:
    """Judges one world when it has settled."""

    def __init__(self, world: World, traffic: Traffic, healed_ns: int) -> None:
        self._world = world
        self._traffic = traffic
        self._healed_ns = healed_ns
        self._history = traffic.population.history
        self._engines = _engines(self._history)
        self._broken = world.oracle().broken_units()
        self._label = world.network.labels.label
        self._lost = LostDisks(world)
        self._first: dict[tuple[Publication, Client], Receipt] = {}
        self._twice: list[str] = []
        for receipt in traffic.receipts:
            pair = (receipt.publication, receipt.client)
            before = self._first.setdefault(pair, receipt)
            if before is not receipt:
                self._twice.append(f"{receipt.client.name} got {before.id} and then {receipt.id}")

    def wanting(self, event: Event) -> list[Subscription]:
        """Every subscription, whenever it was, that matches the event."""
        found = sorted(place for engine in self._engines.values() for place in engine.match(event))
        return [self._history[place] for place in found]

    def _others(self, event: Event) -> list[Subscription]:
        """The same of durable subscriptions, where they were kept."""
        return [each for each in self._traffic.population.others if each.engine.match(event)]

    def deliveries(self) -> Deliveries:
        expected = delivered = dropped = expired = 0
        slowest_ns = 0
        missing: list[str] = []
        excused: list[str] = []
        slow: dict[Client, list[str]] = {}
        for publication in self._traffic.publications:
            for client in self._entitled(publication):
                receipt = self._first.get((publication, client))
                due_ns = max(self._healed_ns, publication.accepted_ns or 0)
                took_ns = None if receipt is None else receipt.at_ns - due_ns
                if not publication.reliable:
                    dropped += receipt is None
                elif took_ns is not None and took_ns <= deadline_ns(self._world.settings):
                    expected, delivered = expected + 1, delivered + 1
                    slowest_ns = max(slowest_ns, took_ns)
                elif receipt is None and publication.may_expire(due_ns + deadline_ns(self._world.settings)):
                    expired += 1
                else:
                    what = self._told(publication, client, took_ns)
                    excuse = self._excuse(publication, client)
                    if excuse is not None:
                        excused.append(f"{what}: {excuse}")
                    elif receipt is None and self._traffic.dropped[client.session]:
                        slow.setdefault(client, []).append(what)
                    else:
                        expected += 1
                        missing.append(what)
        slow_dropped, faults = self._slow(slow, missing)
        return Deliveries(
            sum(publication.accepted_ns is not None for publication in self._traffic.publications),
            expected,
            delivered,
            tuple(missing),
            tuple(self._twice),
            tuple(self._traffic.out_of_order),
            sum(receipt.late for receipt in self._traffic.receipts),
            dropped,
            expired,
            (*excused, *self._unaccepted(stranded=True)),
            tuple(self._unaccepted(stranded=False)),
            tuple(self._unacknowledged()),
            (*self._traffic.faults, *faults),
            slowest_ns / SECOND_NS,
            slow_dropped,
        )

    def _slow(self, slow: dict[Client, list[str]], missing: list[str]) -> tuple[int, list[str]]:
        """Hold what clients that did not read were told to have missed against what they did not get.

        What was promised and did not come is at most that number, and that is at most what was for them and did not
        come, promised or not, reliable or not: best effort, before the acknowledgement, expired.
        """
        found = 0
        faults: list[str] = []
        for client, what in slow.items():
            if len(what) <= self._traffic.dropped[client.session]:
                found += len(what)
            else:
                missing += what
        for client in self._traffic.population.clients:
            told = self._traffic.dropped[client.session] if client.session else 0
            most = self._not_got(client) if told else 0
            if told > most:
                faults.append(f"{client.name} was told of {told} events that it missed, and missed {most}")
        return found, faults

    def _not_got(self, client: Client) -> int:
        """How many events that match what a client wants, or wanted before in its session, it did not get."""
        wanted = [each for each in self._history if each.session == client.session]
        return sum(
            (publication, client) not in self._first
            and any(each.matches(publication.event, publication.origin) for each in wanted)
            for publication in self._traffic.publications
            if publication.origin
        )

    def _entitled(self, publication: Publication) -> list[Client]:
        """The clients that were promised this event."""
        accepted_ns = publication.accepted_ns
        if accepted_ns is None:
            return []
        clients: dict[Client, None] = {}
        for each in self.wanting(publication.event):
            size = len(publication.origin) - each.wish.scope
            if (
                each.active_ns is not None
                and each.active_ns < accepted_ns
                and publication.origin[:size] == each.broker[:size]
                and (each.ended_ns is None or self._got(publication, each))
            ):
                clients[each.client] = None
        return list(clients)

    def _got(self, publication: Publication, subscription: Subscription) -> bool:
        receipt = self._first.get((publication, subscription.client))
        return receipt is not None and receipt.at_ns <= (subscription.ended_ns or receipt.at_ns)

    def _told(self, publication: Publication, client: Client, took_ns: int | None) -> str:
        accepted_ns = publication.accepted_ns or 0
        return (
            f"{publication.ids[-1]} from {self._label(publication.origin)} at {accepted_ns / SECOND_NS:.3f} s"
            f" to {client.name} at {self._label(client.broker)}"
            f" {'never came' if took_ns is None else f'came {took_ns / SECOND_NS:.1f} s late'}"
        )

    def _excuse(self, publication: Publication, client: Client) -> str | None:
        """Why nobody could have delivered this; None when somebody should have."""
        lost = self._lost.owing(publication.ids, client.broker)
        places = self._lost.surviving(publication.ids, client.broker)
        if len(lost) >= self._world.settings.copies and not places:
            return f"it lay on disks that are lost ({', '.join(map(self._label, lost))}) and on no other"
        if all(self._is_cut_off(place, client.broker) for place in places or [publication.origin]):
            return "a unit on the way is in pieces for ever"
        return None

    def _is_cut_off(self, place: Address, client: Address) -> bool:
        around = place[: shared(place, client)]
        return any(unit[: len(around)] == around for unit in self._broken)

    def _unaccepted(self, stranded: bool) -> list[str]:
        """What publishers still hold, at brokers that could accept it or at stranded ones."""
        return [
            f"{publisher.name} at {self._label(publisher.broker)} still holds"
            f" {publication.ids[-1] if publication.ids else 'one that it could not send'}"
            f"{': no other disk is left for its copy, or nobody who knows its unit' if stranded else ''}"
            for publisher in self._traffic.publishers
            if self._is_stranded(publisher.broker) is stranded
            for publication in publisher.waiting
        ]

    def _is_stranded(self, broker: Address) -> bool:
        """Whether a broker may accept nothing any more: it needs two disks and has no neighbour (`copies`), or there is
        nobody to tell it who wants what: it came late and none of its unit is with it, or it is alone (`leases`)."""
        node = self._world.nodes[broker]
        links = (link for link in self._world.links_of(broker) if not link.cut)
        alive = [link.other(broker) for link in links if self._world.nodes[link.other(broker)].broker is not None]
        if not alive:
            return self._world.settings.copies == 2 or node.disk.identity.incarnation > 1 or node.joined_ns is not None
        own = [broker[:size] for size in range(1, len(broker))]
        return node.joined_ns is not None and any(
            any(other != broker and _is_in(other, unit) for other in self._world.nodes)
            and not any(_is_in(other, unit) for other in alive)
            for unit in own
        )

    def _unacknowledged(self) -> list[str]:
        if self._world.options.permanent:
            return []  # who is lost for good is waited for until its lease has ended
        latest_ns = self._world.now_ns - deadline_ns(self._world.settings)
        return [
            f"{each.client.name} at {self._label(each.broker)} was never told that {each.wish} is acknowledged"
            for each in self._history
            if each.ended_ns is None and each.active_ns is None and each.begun_ns <= latest_ns
        ]

    # --- where events went ---

    def wasted_units(self, crossings: Crossings) -> tuple[int, int]:
        """Units entered in vain, by the clients' truth; and entries that only digests explain, by the copies."""
        wasted = by_digest = 0
        for publication in self._traffic.publications:
            if self._is_changing(publication):
                continue  # who has not heard of it yet sends it where nobody wants it any more
            wanted_ns: dict[Unit, int] = {}
            for each in self._wanting_since(publication):
                for size in range(1, len(each.broker) + 1):
                    unit = each.broker[:size]
                    wanted_ns[unit] = min(wanted_ns.get(unit, each.begun_ns), each.begun_ns)
            for event_id in publication.ids:
                wasted += len(crossings.wasted(event_id, wanted_ns))
                by_digest += len(crossings.false_positives(event_id, wanted_ns))
        return wasted, by_digest

    def _is_changing(self, publication: Publication) -> bool:
        """Whether somebody has just ceased to want it."""
        ends_ns = [each.ended_ns for each in self.wanting(publication.event) if each.ended_ns is not None]
        ends_ns += [each.ended_ns - WITHDRAWN_NS for each in self._others(publication.event) if each.ended_ns]
        return any(end_ns - SECOND_NS <= publication.sent_ns <= end_ns + WITHDRAWN_NS for end_ns in ends_ns)

    def _wanting_since(self, publication: Publication) -> list[Subscription]:
        """Who wanted it at any time since it was published."""
        size = len(publication.origin)
        return [
            each
            for each in (*self.wanting(publication.event), *self._others(publication.event))
            if (each.ended_ns is None or each.ended_ns >= publication.sent_ns)
            and publication.origin[: size - each.wish.scope] == each.broker[: size - each.wish.scope]
        ]

    def compared(self) -> tuple[int, int]:
        """What the optimum and what flooding would have cost for the same events: a world without faults."""
        from veena.sim.networks.baselines import Baselines

        baselines = Baselines(self._world.network)
        optimum = flood = 0
        for publication in self._traffic.publications:
            if publication.accepted_ns is not None:
                terminals = sorted({each.broker for each in self._wanting_since(publication)})
                optimum += baselines.optimum(publication.origin, terminals)
                flood += baselines.flood(publication.origin)
        return optimum, flood


def _is_in(address: Address, unit: Unit) -> bool:
    return address[: len(unit)] == unit


def _engines(history: Sequence[Subscription]) -> dict[str, Engine]:
    engines: dict[str, Engine] = {}
    for place, each in enumerate(history):
        engine = engines.setdefault(each.wish.engine, matching.create(each.wish.engine))
        engine.add(place, each.wish.constraint, 0)
    return engines
