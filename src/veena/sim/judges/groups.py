"""The judge of shared subscriptions: of what was accepted once a group was acknowledged, one member got each event.

A group with a name is kept until somebody ends it, whoever of its members is there: entitled it is to every reliable
event that matches and was accepted after the first time that a member was told that the group is acknowledged. It has
it when one of them has acknowledged it: who went with it before that does not count, another one must get it. One copy
is for one member. Others are no fault where they bear the mark: its holder left, or was not heard of, also when it only
could not be heard: then the copy without the mark may even come last. In a run without faults nobody gets what a member
has acknowledged, marked or not.

Excused is what was kept on a disk that is lost, at a broker where a member ever was (the home is one of them), and what
had to cross a unit that is in pieces for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.durable.groups import GONE_NS, JOIN_NS
from veena.sim.clients.groups import Group, GroupClients
from veena.sim.clients.traffic import Publication, Traffic
from veena.sim.judges.durable import around, patience_ns
from veena.sim.world.world import World


@dataclass(frozen=True, slots=True)
class GroupDeliveries:
    """What became of the events that groups were entitled to."""

    expected: int
    delivered: int
    missing: tuple[str, ...]
    duplicates: tuple[str, ...]
    #: Second copies with a mark.
    redelivered: int
    expired: int
    excused: tuple[str, ...]
    unacknowledged: tuple[str, ...]
    slowest_s: float


def group_patience_ns(settings: Settings, deadline_ns: int) -> int:
    """How long after the last fault a group has everything: as with other durable subscriptions; and a member that is
    gone is missed, and what it had goes to others."""
    return patience_ns(settings, deadline_ns) + GONE_NS + JOIN_NS


class GroupJudge:
    """Judges the groups of one world when it has settled."""

    def __init__(self, world: World, traffic: Traffic, clients: GroupClients, healed_ns: int, deadline_ns: int) -> None:
        self._world = world
        self._traffic = traffic
        self._clients = clients
        self._healed_ns = healed_ns
        self._patience_ns = group_patience_ns(world.settings, deadline_ns)
        self._broken = world.oracle().broken_units()
        self._label = world.network.labels.label

    def deliveries(self) -> GroupDeliveries:
        expected = delivered = expired = 0
        slowest_ns = 0
        missing: list[str] = []
        excused: list[str] = []
        for publication in self._traffic.publications:
            for group in self._clients.groups:
                if not self._is_entitled(publication, group):
                    continue
                done = [copy for copy in group.got.get(publication, ()) if copy.is_acknowledged]
                due_ns = max(self._healed_ns, publication.accepted_ns or 0)
                took_ns = done[0].at_ns - due_ns if done else None
                if took_ns is not None and took_ns <= self._patience_ns:
                    expected, delivered = expected + 1, delivered + 1
                    slowest_ns = max(slowest_ns, took_ns)
                elif not done and publication.may_expire(due_ns + self._patience_ns):
                    expired += 1
                else:
                    what = self._told(publication, group, took_ns)
                    excuse = self._excuse(publication, group)
                    if excuse is None:
                        expected += 1
                        missing.append(what)
                    else:
                        excused.append(f"{what}: {excuse}")
        twice, redelivered = self._twice()
        return GroupDeliveries(
            expected, delivered, tuple(missing), twice, redelivered, expired, tuple(excused), self._unacknowledged(),
            slowest_ns / SECOND_NS,
        )  # fmt: skip

    def _is_entitled(self, publication: Publication, group: Group) -> bool:
        accepted_ns, active_ns = publication.accepted_ns, group.active_ns
        if not publication.reliable or accepted_ns is None or active_ns is None or active_ns >= accepted_ns:
            return False
        return bool(group.engine.match(publication.event))

    def _twice(self) -> tuple[tuple[str, ...], int]:
        """Copies that should not have been, and how many more with a good reason."""
        duplicates: list[str] = []
        redelivered = 0
        is_calm = self._world.options.faults == "none"
        for group in self._clients.groups:
            for publication, copies in group.got.items():
                if publication.accepted_ns is None or publication.accepted_ns <= (group.active_ns or 0):
                    continue  # before the group was acknowledged there may have been two homes
                plain = sum(not copy.redelivered for copy in copies)
                for first, second in pairwise(copies):
                    if plain <= 1 and not (is_calm and first.is_acknowledged):
                        redelivered += 1
                    else:
                        duplicates.append(
                            f"{second.member} got {second.id} at {second.at_ns / SECOND_NS:.3f} s"
                            f"{' redelivered' if second.redelivered else ''} after {first.member} at"
                            f" {first.at_ns / SECOND_NS:.3f} s{' (acknowledged)' if first.is_acknowledged else ''}"
                        )
        return tuple(duplicates), redelivered

    def _told(self, publication: Publication, group: Group, took_ns: int | None) -> str:
        had = [f"{copy.member} at {copy.at_ns / SECOND_NS:.3f} s" for copy in group.got.get(publication, ())]
        without = f"was with {', '.join(had)}, and then with nobody" if had else "never came"
        members = ", ".join(f"{each.name} at {self._label(each.broker)}" for each in group.members)
        return (
            f"{publication.ids[-1]} from {self._label(publication.origin)} at"
            f" {(publication.accepted_ns or 0) / SECOND_NS:.3f} s to {group.name} ({members})"
            f" {without if took_ns is None else f'came {took_ns / SECOND_NS:.1f} s late'}"
        )

    def _excuse(self, publication: Publication, group: Group) -> str | None:
        """Why nobody could have delivered this; None when somebody should have."""
        lost = [broker for broker in group.places if self._world.nodes[broker].lost]
        if lost:
            return f"its home may be lost ({', '.join(map(self._label, lost))})"
        unit = around([publication.origin, *group.places])
        if any(broken[: len(unit)] == unit for broken in self._broken):
            return "a unit on the way is in pieces for ever"
        origin = publication.origin
        if self._world.nodes[origin].lost:
            cluster = [node for address, node in self._world.nodes.items() if address[:-1] == origin[:-1]]
            if sum(node.lost for node in cluster) >= self._world.settings.copies or len(cluster) == 1:
                return "it lay on disks that are lost at its origin"
        return None

    def _unacknowledged(self) -> tuple[str, ...]:
        if self._world.options.permanent:
            return ()  # who is lost for good is waited for until its lease has ended
        return tuple(
            f"{member.name} at {self._label(member.broker)} was never told that {group.wish} is acknowledged"
            for group in self._clients.groups
            for member in group.members
            if not member.is_active
        )
