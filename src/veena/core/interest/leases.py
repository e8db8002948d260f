"""Whom this broker can vouch for: which units it knows, when each was heard of last, and which may want anything.

What a unit wants is believed only while its speaker is heard: every speaker gives a sign of life three times a lease
(`receipts`). Signs of life and wants come the same way in the same order, so who has heard a sign has everything that
was told before it. A broker that has heard nothing for a lease treats the unit as one that wants all; the unit, for its
part, waits for a lease and a margin and then no longer asks for that broker's acknowledgement. So one of the two always
covers a subscription, and a dead broker blocks nobody for longer than that (design §5).

A unit that is known but out of reach wants all too: its events are kept for it, for as long as it is known. It is
forgotten when no event is kept that long (`Settings.forget_wants_ns`); sooner, a unit that returns would miss some.
Which units are known outlives a restart: otherwise a broker that comes back would believe itself alone.

A broker that was never there before may come in while its own unit is out of its reach, and meet outsiders first. From
them it hears that others speak for its unit, and not who is in it: until somebody inside has told it everything, or
those others have been out of reach for as long as any unit that is then forgotten, it has not *met* its unit. It takes
nothing on for the unit, and nothing that it says or accepts counts for all of it. While nobody at all has told it
anything, that is so for every unit that it is in: what it would say of them would be as new as what others said first.

The invariant: a unit that is not doubted has told its wants completely, is in reach, and was heard within the lease.

Rejected: leases by the map alone (a process that stood still for a minute wakes up with a fine map and old wants).
"""

from __future__ import annotations

from veena.address import Unit
from veena.core.boundary.settings import Settings
from veena.core.interest.table import InterestTable
from veena.core.topology.network_map import NetworkMap


class Leases:
    """Known units, and how fresh what they said is."""

    def __init__(
        self,
        network: NetworkMap,
        table: InterestTable,
        settings: Settings,
        known: tuple[Unit, ...],
        now_ns: int,
        is_newcomer: bool = False,
    ) -> None:
        self._map = network
        self._table = table
        self._lease_ns = settings.lease_ns
        self._forget_ns = settings.forget_wants_ns
        #: After so long nobody waits for a unit any more: its own lease of us has run out before. The margin is for
        #: signs of life that were under way.
        self.patience_ns = settings.lease_ns + settings.lease_ns // 3
        #: Until then a broker that knows nobody may simply not have met its neighbours. One that came into a network
        #: is never alone: somebody let it in.
        self._alone_from_ns = now_ns + settings.suspect_after_ns
        self._is_newcomer = is_newcomer
        self._known: dict[Unit, None] = {unit: None for unit in known if self._is_vertex(unit)}
        #: Since when a known unit is out of reach.
        self._left_ns: dict[Unit, int] = dict.fromkeys(self._known, now_ns)
        #: When a unit that nobody waited for came back, for a while: what happened meanwhile is told after that.
        self._returned_ns: dict[Unit, int] = {}
        self._heard_ns: dict[Unit, int] = {}
        #: The lowest level of a link over which everything was told: whoever is beyond it has met the units above.
        self._met = min([network.levels, *map(network.level, self._known), *self._kept_levels(known)])
        #: Since when others are heard to speak for an own unit that was not met, by level.
        self._unmet_ns: dict[int, int] = {}
        self._is_new = False
        self._map_version = -1
        self._doubted: tuple[Unit, ...] = ()
        #: When the answer has to be found anew; None for at once.
        self._good_until_ns: int | None = None
        self._spoken = -1
        #: What `standing` said last, and at which count of changes; below 0 where it passes with time.
        self._standing: tuple[tuple[Unit, ...], bool] = ((), False)
        self._standing_since = -1
        #: Counts what can change the circle of those who must acknowledge.
        self.changes = 0
        self.sync(now_ns)

    def _is_vertex(self, unit: Unit) -> bool:
        host = self._map.host
        return 0 < len(unit) <= len(host) and unit[:-1] == host[: len(unit) - 1] and unit != host[: len(unit)]

    def _kept_levels(self, known: tuple[Unit, ...]) -> list[int]:
        """An own unit among those that were known in a former life was met then (`take_known`)."""
        host = self._map.host
        return [self._map.level(unit) - 1 for unit in known if len(unit) < len(host) and unit == host[: len(unit)]]

    def told_everything(self, level: int) -> None:
        """A neighbour over a link of this level has told everything that it knows."""
        if level < self._met:
            self._met = level
            self.changes += 1
            for above in [each for each in self._unmet_ns if each > level]:
                del self._unmet_ns[above]

    def heard_of_others(self, level: int, now_ns: int) -> None:
        """Somebody else speaks, or spoke, for the host's own unit of this level."""
        if 0 < level <= self._met and level not in self._unmet_ns:
            self._unmet_ns[level] = now_ns
            self.changes += 1

    def has_met(self, level: int, now_ns: int) -> bool:
        """Whether this broker can know who is in its own unit of this level.

        Over a link from beside a larger unit nothing is heard of the smaller ones: if others are in that one, they may
        be in these.
        """
        heard = (self._unmet_ns.get(each) for each in (level, max(level, self._met)))
        return not self._is_stranger and all(s is None or now_ns >= s + self._forget_ns for s in heard)

    @property
    def _is_stranger(self) -> bool:
        """Whether this broker was let into a network and has met nobody of it: every unit that it is in has others."""
        return self._is_newcomer and self._met == self._map.levels

    def may_enter(self, level: int, now_ns: int) -> bool:
        """Whether this broker can serve its own unit of this level: it can know who is in that one, and in its smaller
        units, which an event that enters the larger one enters too. Over a link from beside a smaller one it meets the
        larger first."""
        smaller = (unmet for unmet in self._unmet_ns if unmet <= level)
        return self.has_met(level, now_ns) and all(self.has_met(each, now_ns) for each in smaller)

    def may_be_alone_from(self) -> int | None:
        """From when on this broker can say who must hear of a subscription: 0 for always, None for not before others
        have told it everything."""
        if self._is_stranger:
            return None
        return 0 if self._known else self._alone_from_ns

    def has_met_all(self, now_ns: int) -> bool:
        return not self._is_stranger and all(self.has_met(level, now_ns) for level in self._unmet_ns)

    def known(self) -> list[Unit]:
        return list(self._known)

    def siblings(self, level: int) -> list[Unit]:
        """The known units beside the host's own one of this level."""
        size = self._map.levels - level
        return [unit for unit in self._known if len(unit) == size]

    def take_known(self) -> tuple[Unit, ...] | None:
        """All known units, if there are others than when this was asked last; with them own units that were met and in
        which nobody else is left."""
        if not self._is_new:
            return None
        self._is_new = False
        lowest = min(map(self._map.level, self._known), default=self._map.levels)
        alone = [self._map.own(level) for level in range(self._met + 1, min(lowest + 1, self._map.levels))]
        return tuple(sorted([*self._known, *alone]))

    def sync(self, now_ns: int) -> None:
        """Look at the map if it has changed."""
        if self._map.version == self._map_version:
            return
        self._map_version = self._map.version
        self._good_until_ns = None
        self.changes += 1
        reach = self._map.reachable()
        for unit in reach:
            if unit != self._map.host:
                self._note(unit)
                left = self._left_ns.pop(unit, None)
                if left is not None and now_ns >= left + self.patience_ns:
                    self._returned_ns[unit] = now_ns
        for unit in self._known:
            if unit not in reach:
                self._left_ns.setdefault(unit, now_ns)

    def note(self, unit: Unit, now_ns: int) -> None:
        """Somebody told something about a unit."""
        if unit not in self._known and self._is_vertex(unit):
            self._note(unit)
            if unit not in self._map.reachable():
                self._left_ns[unit] = now_ns

    def _note(self, unit: Unit) -> None:
        if unit not in self._known:
            self._known[unit] = None
            self._is_new = True
            self._good_until_ns = None
            self.changes += 1

    def heard(self, unit: Unit, at_ns: int, now_ns: int) -> None:
        """A speaker of the unit gave a sign of life then."""
        if at_ns > self._heard_ns.get(unit, at_ns - 1) and self._is_vertex(unit):
            self.note(unit, now_ns)
            self._heard_ns[unit] = at_ns
            if unit in self._doubted:
                self._good_until_ns = None

    def doubted(self, now_ns: int) -> tuple[Unit, ...]:
        """The units that may want anything. Asked for every event: it is found anew only when something happened."""
        self.sync(now_ns)
        if self._spoken != self._table.spoken:
            self._spoken = self._table.spoken
            self._good_until_ns = None
        if self._good_until_ns is None or now_ns >= self._good_until_ns:
            fresh = {unit: self._heard_ns[unit] for unit in self._known if self._is_fresh(unit, now_ns)}
            self._doubted = tuple(unit for unit in self._known if unit not in fresh)
            self._good_until_ns = min(fresh.values(), default=now_ns) + self._lease_ns
        return self._doubted

    def standing(self, now_ns: int) -> tuple[tuple[Unit, ...], bool]:
        """`doubted` and `has_met_all` by one look at what they depend on: the same object while nothing has changed."""
        if (
            self._standing_since != self.changes
            or self._map.version != self._map_version
            or self._spoken != self._table.spoken
            or self._good_until_ns is None
            or now_ns >= self._good_until_ns
            or self._standing[0] is not self._doubted
        ):
            self._standing = (self.doubted(now_ns), self.has_met_all(now_ns))
            self._standing_since = -1 if self._unmet_ns else self.changes
        return self._standing

    def _is_fresh(self, unit: Unit, now_ns: int) -> bool:
        heard = self._heard_ns.get(unit)
        return (
            heard is not None
            and now_ns < heard + self._lease_ns
            and unit not in self._left_ns
            and self._table.has_spoken(unit)
        )

    def is_out(self, unit: Unit) -> bool:
        """Whether a known unit is out of reach."""
        return unit in self._left_ns

    def has_lost(self, level: int, now_ns: int) -> bool:
        """Whether a unit beside the host's own one of this level is out of reach, or came back just now: it may have
        spoken to others, and what it said is not heard here."""
        size = self._map.levels - level
        return any(len(unit) == size for unit in self._left_ns) or any(
            len(unit) == size for unit in self._returned(now_ns)
        )

    def _returned(self, now_ns: int) -> dict[Unit, int]:
        since = now_ns - self._lease_ns // 3
        for unit in [unit for unit, returned in self._returned_ns.items() if returned <= since]:
            del self._returned_ns[unit]
        return self._returned_ns

    def must_acknowledge(self, unit: Unit, now_ns: int) -> bool:
        """Whether its word is needed: it is in reach, or was until a short time ago."""
        left = self._left_ns.get(unit)
        return left is None or now_ns < left + self.patience_ns

    def knows_all(self, level: int, now_ns: int) -> bool:
        """Whether all parts of the host's own unit of this level have said what they want, as far as one has to wait
        for them: who speaks for the unit before that would tell less than the truth."""
        parts = [unit for unit in self.siblings(level - 1) if self.must_acknowledge(unit, now_ns)]
        doubted = self.doubted(now_ns)
        own = self._map.own(level - 1)
        if not self.has_met(level, now_ns):
            return False
        if any(self._map.level(unit) < level for unit in self._returned(now_ns)):
            return False
        return (level == 1 or self._table.has_spoken(own)) and all(
            self._table.has_spoken(unit) and (unit in self._left_ns or unit not in doubted) for unit in parts
        )

    def next_release(self, now_ns: int) -> int | None:
        """When the next unit that is gone need no longer acknowledge."""
        ends = (left + self.patience_ns for left in self._left_ns.values())
        return min((end for end in ends if end > now_ns), default=None)

    def gone_since(self, before_ns: int) -> list[Unit]:
        """The units that have been out of reach since then or longer."""
        return [unit for unit, left in self._left_ns.items() if left <= before_ns]

    def oldest_departure(self) -> int | None:
        return min(self._left_ns.values(), default=None)

    def forget(self, unit: Unit) -> None:
        """This unit is out of reach for good."""
        del self._known[unit], self._left_ns[unit]
        self._heard_ns.pop(unit, None)
        self._returned_ns.pop(unit, None)
        self._is_new = True
        self._good_until_ns = None
        self.changes += 1

    def check(self) -> None:
        for unit in (*self._left_ns, *self._heard_ns):
            assert unit in self._known
        if self._map.version == self._map_version:
            if self._good_until_ns is not None and self._spoken == self._table.spoken:
                last_ns = self._good_until_ns - 1  # until then the answer that is kept must be the right one
                assert self._doubted == tuple(unit for unit in self._known if not self._is_fresh(unit, last_ns))
                assert self.standing(last_ns) == (self._doubted, self.has_met_all(last_ns))
            reach = self._map.reachable()
            for unit in self._known:
                assert (unit in reach) != (unit in self._left_ns), "a known unit is in reach, or it left"
