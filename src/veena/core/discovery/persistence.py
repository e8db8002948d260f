"""Which advertisements are on disk: all that this broker holds and that outlive a restart (DSC-01, TRD-05).

Own advertisements and the copies of its units are written alike, one row each, with the withdrawals; those with so
short a lease that they end before a broker could be back are not (`KEPT_LEASE_MS`). Rows of one input are one ticket
with whatever else the input wrote, so advertising costs no sync of its own where others are under way, and events cost
nothing. A client is told that its advertisement stands, or is withdrawn, when the disk has said so; where the disk
fails it is told all the same, because it does stand, and the store writes it when it can.

A restart takes up every row whose lease has not ended, by the wall clock. Of a client, or a home, that was there when
the broker was killed nobody knows when exactly that was; so a broker with rows notes every few seconds that it lives
(`Attended`, unsynced), and the lease counts from the latest time at which it may have died.

Nothing comes back that was taken back meanwhile: own ones are orphans (`home_registry`), copies are doubted
(`orphaned`), withdrawals are rows like others and come back too, and counts of a new life are above those of all lives
before, so that every controller asks for all that is left.

The invariant: `_rows` is what the disk has, or will have when its tickets are answered.

Rejected: writing only at home (a home that is lost while its controllers restart would be lost with its offers), and
writing a renewed lease into each row (a write a row and minute, for nothing that one time does not say).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from veena.address import Address
from veena.core.boundary.discovery import Advertised, AdvertRefused
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.stored import Attended, Disk, ShelfKey, Shelved, Unshelved
from veena.core.boundary.tickets import Ledger, Then
from veena.core.discovery.advertisement import (
    ALIVE_NS,
    KEPT_LEASE_MS,
    AdvertId,
    check_advert,
    check_withdrawal,
    end_of,
    is_withdrawal,
    withdrawn_until,
)
from veena.core.discovery.home_registry import OwnShelf, weight
from veena.core.discovery.orphaned import Estate
from veena.core.discovery.store import AdvertStore
from veena.errors import LocalProtocolError, RefusalCode, RemoteProtocolError

#: Advertisements that wait for the disk: beyond this clients are refused. All that a few clients may have, at once.
MAX_WAITING_BYTES = 64 << 20


class AdvertKeeper:
    """The rows of one broker."""

    def __init__(
        self, host: Address, store: AdvertStore, shelf: OwnShelf, estate: Estate, ledger: Ledger, effects: list[Effect]
    ) -> None:
        self._host = host
        self._store = store
        self._shelf = shelf
        self._estate = estate
        self._ledger = ledger
        self.replies = Replies(effects)
        self._rows: dict[ShelfKey, Shelved] = {}
        self._attended_ns: int | None = None
        self._waiting_bytes = 0

    def check_room(self) -> None:
        """Raise LocalProtocolError while the disk does not keep up with what is advertised here."""
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise LocalProtocolError(
                f"{self._waiting_bytes} bytes of advertisements wait for this broker's disk: advertise again later",
                code=RefusalCode.BUSY,
            )

    def restore(self, disk: Disk, patience_ns: int, now_ns: int) -> None:
        """Take up what a former life left; copies of others are doubted for as long as the patience."""
        died_ns = min(now_ns, disk.attended_ns + ALIVE_NS)
        away: dict[Address, int] = {}
        for key, held in disk.shelved.items():
            self._rows[key] = held
            home, advert = held.home or self._host, held.advert
            self._store.touched[home, (advert.client, advert.name)] = None
            end_ns = end_of(advert, held.left_ns or died_ns)
            if is_withdrawal(advert):
                end_ns = withdrawn_until(advert, now_ns)
            # A broker that has moved is no controller of its old neighbours; what it had from itself is its own now.
            is_foreign = bool(held.home) and (len(home) != len(self._host) or home == self._host)
            if end_ns <= now_ns or is_foreign or not self._is_sound(held):
                continue
            if not held.home:
                advert = self._shelf.restore(advert, end_ns)
            else:
                away[home] = max(held.left_ns, away.get(home, 0))
            if is_withdrawal(advert):
                self._store.bury(home, advert, now_ns)
            else:
                self._store.put(home, advert)
        for home, left_ns in away.items():
            self._estate.restore(home, left_ns, died_ns, now_ns + patience_ns)

    def _is_sound(self, held: Shelved) -> bool:
        """Whether it is what could have come over a link: a disk may be of another version, or damaged."""
        try:
            check = check_withdrawal if is_withdrawal(held.advert) else check_advert
            check(held.advert, len(self._host))
        except RemoteProtocolError:
            return False
        return True

    def _row(self, home: Address, key: AdvertId) -> Shelved | None:
        """What the disk is to have of it."""
        advert = self._store.held(home, key)
        if advert is None or advert.lease_ms < KEPT_LEASE_MS:
            return None
        advert = replace(advert, is_orphan=False) if advert.is_orphan else advert
        if home != self._host:
            return Shelved(home, advert, 0 if is_withdrawal(advert) else self._estate.left_ns(home))
        return Shelved((), advert, 0 if is_withdrawal(advert) else self._shelf.left_ns(key))

    def flush(self, now_ns: int) -> None:
        """Write what has changed; who asked for it is answered when that is on disk."""
        due_ns = self.next_wakeup()
        if not self._store.touched and not self.replies.has_news and (due_ns is None or now_ns < due_ns):
            return
        changed: list[Shelved | Unshelved] = []
        for home, key in self._store.touched:
            row, place = self._row(home, key), (() if home == self._host else home, *key)
            if row == self._rows.get(place):
                continue
            if row is None:
                del self._rows[place]
                changed.append(Unshelved(*place))
            else:
                self._rows[place] = row
                changed.append(row)
        self._store.touched.clear()
        for write in changed[:-1]:
            self._ledger.write(write)
        answered = self.replies.wait()
        if not changed:
            answered(now_ns)
        else:
            size = sum(weight(each.advert) for each in changed if isinstance(each, Shelved))
            self._waiting_bytes += size

            def written(at_ns: int) -> None:
                self._waiting_bytes -= size
                answered(at_ns)

            self._ledger.write(changed[-1], written, lambda reason, at_ns: written(at_ns))
        if self._rows and (self._attended_ns is None or now_ns >= self._attended_ns + ALIVE_NS):
            self._attended_ns = now_ns
            self._ledger.write(Attended(now_ns))

    def next_wakeup(self) -> int | None:
        return None if self._attended_ns is None or not self._rows else self._attended_ns + ALIVE_NS

    def check(self) -> None:
        assert not self._store.touched, "what has changed is written with the input that changed it"
        for place, row in self._rows.items():
            assert place == (row.home, row.advert.client, row.advert.name)
            assert row == self._row(row.home or self._host, place[1:]), "the disk has what is held"


@dataclass(slots=True)
class _Reply:
    """What a client will be told."""

    told: Advertised | AdvertRefused
    is_ready: bool = False


class Replies:
    """What clients are told of their advertisements: of each name in the order in which it was asked."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        #: Those of the present input.
        self._fresh: list[_Reply] = []
        #: By session and name, all that are not told yet.
        self._waiting: dict[tuple[int, str], deque[_Reply]] = {}

    def tell(self, told: Advertised | AdvertRefused) -> None:
        """To be told when what the present input changed is on disk."""
        self._fresh.append(_Reply(told))

    @property
    def has_news(self) -> bool:
        return bool(self._fresh)

    def wait(self) -> Then:
        """What tells those of the present input, once it is called."""
        ready, self._fresh = self._fresh, []
        for reply in ready:
            self._waiting.setdefault((reply.told.session, reply.told.name), deque()).append(reply)

        def answered(now_ns: int) -> None:
            for reply in ready:
                reply.is_ready = True
                name = (reply.told.session, reply.told.name)
                waiting = self._waiting.get(name, deque())
                while waiting and waiting[0].is_ready:
                    self._effects.append(waiting.popleft().told)
                if not waiting:
                    self._waiting.pop(name, None)

        return answered

    def close_session(self, session: int) -> None:
        for name in [name for name in self._waiting if name[0] == session]:
            del self._waiting[name]
