"""The gateway propagation protocol: how what is known of connections spreads, and how it is corrected (GPP).

A connection is announced by both its ends under one id, passed on to every broker of its context and to nobody else: a
level-l connection never crosses a link of a higher level (GPP-02, GPP-06). Each broker keeps one record an id and
passes on what is new in it: the connection itself, finer names for its ends, a newer cost, its end. What is merged is
the same in whatever order it comes (`connection.merged`), and a new link begins with an exchange of everything that may
cross it (GPP-14), so that all brokers of a context come to hold the same.

A connection is up, and then down for good: re-establishing a link makes a new id. So there is nothing to count, no
version to compare between the two ends, and repeats are harmless (GPP-10). Two things are added to the printed rules:

- *A detour copy* (GPP-19) names a unit that the listener is in. It is kept, because its end and cost count, and passed
  on, because others may need it, but it makes no vertex, and the finer copy replaces it when it comes.
- *The dead cannot speak.* When a broker dies, its links to its own cluster are reported by its neighbours, but its
  gateway to another unit would stand for ever in the maps of those outside its cluster. So whoever sees, inside a unit
  of its own, that the inner end of a gateway is out of reach withdraws the gateway on its behalf (`reconcile`). Should
  the end be alive after all, it hears that its connection was withdrawn and makes a new one. What lies entirely out of
  reach is nobody's here to judge. It is forgotten in silence before the others could forget its end (`tombstone_ns`),
  and when something comes into reach again the neighbours are asked for everything (`Refresh`).
- *The risen disown.* When both ends of a connection die and come back, nobody was there to withdraw it. A broker that
  hears of a connection at itself which it does not have withdraws it. If everybody in a unit died, others still tell
  them of a connection of their unit, and nobody remembers whose it was. Who has one tells it to all of the unit by
  name, so one that is heard of from outside only belongs to another part of the unit. If nobody else speaks for the
  unit there is no such part (`others_speak`), and whoever is in the unit withdraws the connection.

Invariants: an id that was down is never up again; a record in the table lies in one of the host's contexts; the map
holds exactly the usable records.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from enum import Enum

from veena.address import FANOUTS, Address, Unit
from veena.core.topology.connection import NO_COST, check_record, is_fine, merged, rewritten
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import MAX_RECORDS, ConnectionRecord, Connections

#: Connections a broker will hear of: 8 levels of 64 units with 128 links each. More is an attack or a mistake: what
#: comes then is dropped, except the broker's own.
MAX_CONNECTIONS = 65_536


class _Verdict(Enum):
    """What is to be done about a connection that nobody answers for."""

    #: An inner end of a gateway of the host's own unit is dead: speak for it.
    WITHDRAW = "withdraw"
    #: The host itself is said to have it, and has not.
    DISOWN = "disown"
    #: Nobody here can know.
    FORGET = "forget"


class ConnectionTable:
    """All that one broker knows of connections, and what of it is still to be passed on."""

    def __init__(self, network: NetworkMap, fanout: int = FANOUTS[-1]) -> None:
        self._map = network
        self._fanout = fanout
        self._host: Address = network.host
        self._records: dict[int, ConnectionRecord] = {}
        #: Those that `check` has gone through: they do not change.
        self._checked: dict[int, ConnectionRecord] = {}
        #: When each connection that is down was learned to be, in that order.
        self._down_ns: dict[int, int] = {}
        #: Those of them that this broker withdrew.
        self._withdrawn: dict[int, None] = {}
        #: Ids to pass on, with the link that the news came from, or None when everybody has to hear it.
        self._news: dict[int, int | None] = {}
        #: Since when an end of a record has been out of reach.
        self._missing_ns: dict[int, int] = {}
        #: Counts changes of records, and how many of them the last judgement saw. Not the map's count: a suspected
        #: connection is out of the map already when its end is confirmed.
        self._changes = 0
        #: Copies that were not believed, or found no room.
        self.dropped = 0
        #: Something was forgotten because it was out of reach: others may hold it still, and will not tell unasked.
        self.has_forgotten = False
        #: Whether another part of an own unit may be alive: whoever hears its speakers answers.
        self.others_speak: Callable[[Unit, int], bool] = lambda unit, now_ns: True
        #: Whether a connection stands because another part of an own unit speaks: silence comes with time alone.
        self._relies_on_others = False
        self._judged_changes = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, connection_id: object) -> bool:
        return connection_id in self._records

    def record(self, connection_id: int) -> ConnectionRecord | None:
        return self._records.get(connection_id)

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> int | None:
        """Take in a copy; the level at which the map changed, or None."""
        known = self._records.get(record.id)
        if known is None:
            check_record(record, self._host, self._fanout)
            if len(self._records) >= MAX_CONNECTIONS and source is not None:
                self.dropped += 1
                return None
            new = record
        elif known == record:
            return None
        else:
            check_record(record, self._host, self._fanout)
            if record.level != known.level:
                # One of the two is a lie, and the bearer of this one is not to blame for either.
                self.dropped += 1
                return None
            new = merged(known, record, self._host)
            if new == known:
                return None
        self._records[record.id] = new
        self._changes += 1
        if not new.up and record.id not in self._down_ns:
            self._down_ns[record.id] = now_ns
            self._missing_ns.pop(record.id, None)
        self._news[record.id] = source if self._news.get(record.id, source) == source else None
        return self._map.apply(new)

    def withdraw(self, connection_id: int, now_ns: int) -> int | None:
        """This connection is over; the level at which the map changed."""
        known = self._records.get(connection_id)
        if known is None or not known.up:
            return None
        self._withdrawn[connection_id] = None
        return self.learn(_down(known), None, now_ns)

    def has_withdrawn(self, connection_id: int) -> bool:
        """Whether this broker itself said that the connection is over."""
        return connection_id in self._withdrawn

    def tell_again(self, connection_id: int, source: int | None) -> None:
        """Pass on a connection once more: it is signed now. The link that this came from knows."""
        if connection_id in self._records:
            self._news.setdefault(connection_id, source)

    def take_news(self) -> list[tuple[ConnectionRecord, int | None]]:
        """What is to be passed on since the last call, with the link that it came from."""
        news = [(self._records[i], source) for i, source in self._news.items() if i in self._records]
        self._news.clear()
        return news

    def copies(self, records: Iterable[ConnectionRecord], level: int, own_id: int | None) -> list[ConnectionRecord]:
        """The copies that may cross a link of this level. Of the link itself its other end knows all but the cost."""
        return [
            rewritten(record, self._host, level)
            for record in records
            if record.level >= level
            and (record.id != own_id or record.low_cost != NO_COST or record.high_cost != NO_COST)
        ]

    def frames(
        self, records: Iterable[ConnectionRecord], level: int, own_id: int | None, complete: bool = False
    ) -> list[Connections]:
        """As few frames as hold these copies; the last one of a full exchange says that it is complete."""
        copies = self.copies(records, level, own_id)
        starts = range(0, max(len(copies), int(complete)), MAX_RECORDS)
        return [
            Connections(tuple(copies[at : at + MAX_RECORDS]), complete and at + MAX_RECORDS >= len(copies))
            for at in starts
        ]

    def everything(self) -> Iterable[ConnectionRecord]:
        """For the exchange on a new link: what is down as well, so that the other side corrects itself."""
        return self._records.values()

    def reconcile(self, now_ns: int, patience_ns: int, forget_ns: int, held: Container[int]) -> list[int]:
        """Judge what has been out of reach for too long, or is not among the host's `held` connections though it
        should be; the levels at which the map changed."""
        self._judged_changes = self._changes
        self._relies_on_others = False
        reach = self._reach()
        others = self._other_parts(reach)
        changed: list[int | None] = []
        for record in list(self._records.values()):
            verdict = self._verdict(record, reach, others, held, now_ns) if record.up else None
            if verdict is None:
                self._missing_ns.pop(record.id, None)
                continue
            # A connection at the host needs only the time of a greeting: its own link may not be open yet.
            patience = {_Verdict.DISOWN: patience_ns // 4, _Verdict.FORGET: forget_ns}.get(verdict, patience_ns)
            if now_ns - self._missing_ns.setdefault(record.id, now_ns) < patience:
                continue
            if verdict is _Verdict.FORGET:
                del self._records[record.id], self._missing_ns[record.id]
                self._changes += 1
                self.has_forgotten = True
                changed.append(self._map.forget(record.id))
            else:
                changed.append(self.withdraw(record.id, now_ns))
        return [level for level in changed if level is not None]

    def _detour_ends(self, record: ConnectionRecord) -> tuple[Unit, Unit]:
        """Of a copy that names a unit of the host's: that unit, and the other end."""
        if self._host[: len(record.low)] == record.low and len(record.low) < len(self._host):
            return record.low, record.high
        return record.high, record.low

    def _other_parts(self, reach: dict[Unit, None]) -> list[Unit]:
        """The host's own units of which another part is alive: it has a link to something in reach."""
        detours = (self._detour_ends(r) for r in self._records.values() if r.up and not is_fine(r, self._host))
        return [own for own, far in detours if far in reach]

    def _verdict(
        self, record: ConnectionRecord, reach: dict[Unit, None], others: list[Unit], held: Container[int], now_ns: int
    ) -> _Verdict | None:
        coarsest = self._map.levels - record.level
        if not is_fine(record, self._host):
            own, far = self._detour_ends(record)
            # Another part of the host's own unit has it. While that part is seen to live, it can speak for itself.
            lives = far in reach or any(unit[: len(own)] == own for unit in others)
            lives = lives and self._has_another_part(own, record.level, now_ns)
            self._relies_on_others = self._relies_on_others or lives
            return None if lives else _Verdict.WITHDRAW
        if self._host in (record.low, record.high):
            return None if record.id in held else _Verdict.DISOWN
        gone = [end for end in (record.low, record.high) if end not in reach]
        if any(len(end) > coarsest for end in gone):
            return _Verdict.WITHDRAW
        return _Verdict.FORGET if len(gone) == 2 else None

    def _has_another_part(self, own: Unit, level: int, now_ns: int) -> bool:
        """Whether somebody else speaks for this unit of the host's, or for one around it up to a level: a part that is
        cut off further out is heard no more as a part of the smaller unit."""
        sizes = range(self._map.levels - level, len(own) + 1)
        return any(self.others_speak(own[:size], now_ns) for size in sizes)

    def _reach(self) -> dict[Unit, None]:
        """What can be reached over connections that are up, suspected and clogged ones included."""
        around: dict[Unit, list[Unit]] = {}
        for record in self._records.values():
            if record.up and is_fine(record, self._host):
                around.setdefault(record.low, []).append(record.high)
                around.setdefault(record.high, []).append(record.low)
        found: dict[Unit, None] = {self._host: None}
        frontier = [self._host]
        for unit in frontier:
            for other in around.get(unit, ()):
                if other not in found and len(other) <= len(unit):
                    found[other] = None
                    frontier.append(other)
        return found

    def was_given_up(self, broker: Address, since_ns: int) -> bool:
        """Whether some other broker of the cluster had a link to this one and has reported it down since then."""
        for connection_id in reversed(self._down_ns):
            if self._down_ns[connection_id] < since_ns:
                return False
            record = self._records[connection_id]
            ends = (record.low, record.high)
            if record.level == 0 and broker in ends and self._host not in ends:
                return True
        return False

    def expire(self, before_ns: int) -> None:
        """Forget what has been down since before then."""
        while self._down_ns:
            connection_id, since = next(iter(self._down_ns.items()))
            if since >= before_ns:
                return
            del self._down_ns[connection_id]
            self._withdrawn.pop(connection_id, None)
            self._records.pop(connection_id, None)

    def next_expiry(self, tombstone_ns: int) -> int | None:
        """When the oldest closed connection is forgotten."""
        return next(iter(self._down_ns.values())) + tombstone_ns + 1 if self._down_ns else None

    def needs_reconciling(self) -> bool:
        """Whether something changed since the last judgement, or one is pending."""
        return self._changes != self._judged_changes or bool(self._missing_ns) or self._relies_on_others

    def check(self) -> None:
        fresh = [record for record in self._records.values() if self._checked.get(record.id) is not record]
        for record in fresh:
            check_record(record, self._host)
        if fresh:
            self._checked = dict(self._records)
        for record in self._records.values():
            assert record.up or record.id in self._down_ns, "an end is remembered with its time"
        for connection_id in self._down_ns:
            assert not self._records[connection_id].up, "down is for good"


def _down(record: ConnectionRecord) -> ConnectionRecord:
    return ConnectionRecord(record.id, record.level, record.low, record.high, False, record.low_cost, record.high_cost)
