"""How many distinct constraints of one broker, and of one unit, may climb: the rest are refused where they are made.

A want of a broker is a row at every broker of its cluster, and one of its cluster a row at every broker of the
super-cluster: what one client subscribes to takes memory everywhere. A client's subscriptions are bounded by its broker
(`runtime.access.limits`), but a broker has many clients and a unit many brokers. So there is a quota of wants that a
broker tells, and one of wants that a unit tells: its cluster, as its speaker told them, and its super-cluster, counted
as the distinct wants that the clusters of it told for more than the super-cluster. Above that there are digests, which
are bounded anyway.

A subscription is refused when it would make one want more be told and the quota is used up; nothing changes then. What
makes no difference is always let in: a want that the broker has, also one that lingers after a lost connection; one
that a wider want of the broker covers; one that covers others, which are told no longer; and, for a unit, one that the
unit tells, or that its cluster tells for more, or whose topic its cluster tells as a whole. That a wider want of
another broker covers it in any other way is seen by the cluster's speaker alone: elsewhere it may be refused, though
the unit would not tell it.

A want climbs as far as its scope: one for the cluster counts for its broker, and not for its cluster. The narrowest
scope is the cluster, so every want counts for its broker. Clients that can be written to, and homes of durable
subscriptions, are told as wants too and take their places; to attach is never refused for it, since connections are
bounded.

What was accepted stays accepted:
- When a covering want goes, those that it covered climb, however many: nobody loses what was acknowledged. So a broker
  may tell more than its quota, and then lets nothing more in.
- What a broker finds on its disk when it starts, and what it keeps in another one's place, is let in.
- A durable subscription follows its client: if another broker has told that it keeps something for that client, it is
  let in here. That is known of a client and not of each subscription, so such a client can go beyond the quota with new
  ones, as far as its own limits and those of a broker's durable subscriptions reach.
- Another constraint under the name of a durable subscription takes the place of the one before.
- A plain subscription ends with its session, and a while after a lost connection its want is gone: after that it is a
  new one, here or elsewhere.

A unit's rows come a moment after the subscriptions. Where a quota is near, what this broker let in and the unit has not
told yet is counted too, for as long as that takes; what others let in meanwhile is not known here. So concurrent
subscriptions at several brokers may exceed a unit's quota, by as many as are made within that moment. Who goes makes
room in his broker at once, in a unit when its speaker has withdrawn the want.

The invariant: counts are kept, and no subscription looks at all rows: `_distinct` is the number of wants that some
cluster of the super-cluster tells for more than it. What is let in and not told is looked for once, when the rows of a
unit and everything that the broker tells could come to the quota, and kept up from then on: a list of it all the time
would be a hundred bytes for each want of a busy morning, and the memory is not given back.

Rejected: to refuse rows of a neighbour that is over its quota. Who does not keep a row must let everything through, and
a link that is closed for it takes honest clients down with it. And to ask the unit's speaker before a subscription is
let in: nothing could be subscribed while he is out of reach.
"""

from __future__ import annotations

from veena.address import Unit
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import FORMER, SELECTOR, TOPIC, Want, key_of, unreadable
from veena.core.interest.digest import DIGEST_LEVEL
from veena.core.interest.speaker import Speakers
from veena.core.interest.table import InterestTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import Row
from veena.errors import LocalProtocolError, RefusalCode

#: A want that its unit has not told after so long is covered there, or the speaker is out of reach.
SETTLED_NS = 10 * SECOND_NS
#: Of a constraint, in a refusal.
MAX_SHOWN = 80

UNITS = ("broker", "cluster", "super-cluster")


class Quota:
    """What one broker and its units tell, counted; who may add to it."""

    def __init__(self, network: NetworkMap, settings: Settings, table: InterestTable, speakers: Speakers) -> None:
        self._levels = network.levels
        self._table = table
        self._speakers = speakers
        self._units = range(1, min(DIGEST_LEVEL + 1, network.levels))
        self._most = (settings.max_broker_constraints, *(settings.max_unit_constraints for _ in self._units))
        self._cluster = network.own(1) if network.levels > 1 else None
        #: By level of a unit whose quota is near: wants of this broker that the unit should tell and has not, with the
        #: time until when that is waited for, ascending.
        self._coming: dict[int, dict[bytes, int]] = {}
        #: Wants that some cluster tells for more than the super-cluster, and how many rows each cluster has of these.
        self._distinct = 0
        self._tellers: dict[Unit, int] = {}
        self.refused = 0

    def admit(self, want: Want, leaving: Want | None, now_ns: int) -> None:
        """Raise LocalProtocolError if a subscription to this must not be made; `leaving` is what goes in exchange."""
        self._draw_near(now_ns)
        if not self._full(want.scope):
            return
        if unreadable(want.kind, want.payload) is not None:
            return  # its engine says what is wrong
        self.tick(now_ns)
        own = self._speakers.own.wants
        found = own.displaced(want)
        if found is None:
            return
        displaced = [each for each in found if not each.kind & FORMER]
        if leaving is not None and leaving.key in own.told and own.count(leaving) == 1:
            displaced.append(leaving)
        for level in self._full(want.scope):
            if not (self._makes_room(level, displaced) or (level > 0 and self._has(level, want, True))):
                self.refused += 1
                raise LocalProtocolError(self._reason(level, want), code=RefusalCode.LIMIT)

    def _draw_near(self, now_ns: int) -> None:
        """Look for what the units have not told yet, where that may matter now."""
        for level in self._units:
            if level not in self._coming and self._at_most(level) >= self._most[level]:
                self._coming[level] = {}
                for want in self._speakers.own.wants.told.values():
                    self._await(level, want, now_ns)

    def _at_most(self, level: int) -> int:
        """As many as a unit tells when everything of this broker has come to it and is covered by nothing."""
        return self._rows(level) + self._told(0)

    def _full(self, scope: int) -> list[int]:
        """The levels whose quota is used up, as far as a want of this scope climbs."""
        return [level for level, most in enumerate(self._most) if scope > level and self._told(level) >= most]

    def _told(self, level: int) -> int:
        if level == 0:  # what a durable subscription left behind keeps nobody from subscribing
            return len(self._speakers.own.wants.told) - self._table.own.former_count(0)
        return self._rows(level) + len(self._coming.get(level, ()))

    def _rows(self, level: int) -> int:
        own = self._table.own
        return own.row_count(1) - own.former_rows(1) if level == 1 else self._distinct

    def _makes_room(self, level: int, displaced: list[Want]) -> bool:
        """Whether the broker, or a unit, tells one of these, which it will not any longer."""
        if level == 0:
            return bool(displaced)
        coming = self._coming.get(level, {})
        return any(want.key in coming or self._tells(level, want.key) for want in displaced)

    def _has(self, level: int, want: Want, compares: bool) -> bool:
        """Whether a unit would tell no more with this want than without it, as far as that is known here.

        What counts of a super-cluster are rows of its clusters: what the own cluster does not tell is none of them."""
        if self._tells(level, want.key) or any(self._tells(1, key) for key in _wider(want, self._levels)):
            return True
        cover = self._speakers.cover(1) if compares else None
        return cover is not None and cover.displaced(want) != []

    def _tells(self, level: int, key: bytes) -> bool:
        if level == 1:
            return self._table.own.version(key, 1) is not None
        return self._is_told(key)

    def _is_told(self, key: bytes, but: Unit | None = None) -> bool:
        """Whether a cluster tells this, other than one."""
        for unit in self._tellers:
            kept = self._table.kept(unit, key) if unit != but else None
            if kept is not None and kept.stands:
                return True
        return False

    def _reason(self, level: int, want: Want) -> str:
        name = "unit_constraints" if level else "broker_constraints"
        shown = repr(want.constraint)
        shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 3] + "..."
        return (
            f"{want.engine} {shown} would be one more than {name} = {self._most[level]} distinct constraints of this"
            f" {UNITS[level]}: end other subscriptions, use one that others have or a wider one instead of several,"
            f" narrow its scope, or have {name} raised under [limits]"
        )

    # --- counting ---

    def added(self, want: Want, now_ns: int) -> None:
        """The broker tells this from now on."""
        for level in self._coming if not want.kind & FORMER else ():
            self._await(level, want, now_ns)

    def _await(self, level: int, want: Want, now_ns: int) -> None:
        coming = self._coming[level]
        # To compare it with all others is worth it where it decides who is let in next.
        compares = self._told(level) >= self._most[level]
        if want.scope > level and want.key not in coming and not self._has(level, want, compares):
            coming[want.key] = now_ns + SETTLED_NS

    def removed(self, want: Want) -> None:
        """One who wanted this is gone."""
        if any(self._coming.values()) and want not in self._speakers.own.wants:
            for level in self._coming:
                self._settle(level, want.key)

    def _settle(self, level: int, key: bytes) -> None:
        """A want is not waited for any more."""
        coming = self._coming[level]
        if coming.pop(key, None) is not None and not coming:
            self._coming[level] = {}  # an emptied dict keeps the room of all that were in it

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row of some unit changed, in the table too."""
        row = after if after is not None and after.wanted else before
        if row is None or not row.wanted or row.kind & FORMER or len(row.unit) != self._levels - 1:
            return  # a mark, or what a durable subscription left behind
        stood, stands = before is not None and before.wanted, after is not None and after.wanted
        if stands:
            for level in self._coming:
                if level > 1 or row.unit == self._cluster:
                    self._settle(level, row.key)
        if stood != stands and row.scope > DIGEST_LEVEL:
            change = 1 if stands else -1
            if not self._is_told(row.key, row.unit):
                self._distinct += change
            rows = self._tellers[row.unit] = self._tellers.get(row.unit, 0) + change
            if not rows:
                del self._tellers[row.unit]

    def tick(self, now_ns: int) -> None:
        """What a unit has not told for so long is not waited for any more; nor is anything where the quota is far."""
        for level in list(self._coming):
            if self._at_most(level) < self._most[level] // 2:
                del self._coming[level]
                continue
            coming = self._coming[level]
            if coming and next(iter(coming.values())) <= now_ns:
                self._coming[level] = {key: until_ns for key, until_ns in coming.items() if until_ns > now_ns}

    def climbing(self) -> tuple[int, ...]:
        """How many wants are told of the broker, of its cluster and of its super-cluster, as far as they have such."""
        return tuple(map(self._told, range(len(self._most))))

    def check(self) -> None:
        told = {unit: [row.key for row in self._wide(unit)] for unit in self._table.units()}
        assert {unit: len(keys) for unit, keys in told.items() if keys} == self._tellers
        assert self._distinct == len(dict.fromkeys(key for keys in told.values() for key in keys))
        for level, coming in self._coming.items():
            assert not any(self._tells(level, key) for key in coming), "what a unit tells is not waited for"

    def _wide(self, unit: Unit) -> list[Row]:
        """What a cluster tells for more than the super-cluster."""
        if len(unit) != self._levels - 1:
            return []
        return [row for row in self._table.rows(unit) if row.scope > DIGEST_LEVEL and not row.kind & FORMER]


def _wider(want: Want, levels: int) -> list[bytes]:
    """The keys of others that cover a want, as far as they follow from it: the same for more, a selector's topic."""
    found = [key_of(want.kind, want.payload, scope) for scope in range(want.scope + 1, levels + 1)]
    if want.kind == SELECTOR:
        found += [key_of(TOPIC, want.bucket, scope) for scope in range(want.scope, levels + 1)]
    return found
