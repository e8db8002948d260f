"""Brokers with planted bugs: a simulator that does not catch them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from veena.core.broker import Broker
from veena.core.connection import is_fine
from veena.core.dissemination import ConnectionTable
from veena.core.frames import ConnectionRecord


class SilentLoss(ConnectionTable):
    """Tells nobody that a connection is over."""

    def withdraw(self, connection_id: int, now_ns: int) -> int | None:
        return None


class NoExchange(ConnectionTable):
    """Begins a new link without telling what it knows."""

    def everything(self) -> Iterable[ConnectionRecord]:
        return ()


class NoDetours(ConnectionTable):
    """Drops detour copies instead of keeping them and passing them on."""

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> int | None:
        return super().learn(record, source, now_ns) if is_fine(record, self._host) else None


class NoReconciling(ConnectionTable):
    """Never speaks for the dead."""

    def reconcile(self, now_ns: int, patience_ns: int, forget_ns: int, held: Container[int]) -> list[int]:
        return []


class SecretCost(ConnectionTable):
    """Does not tell a link's cost to its other end."""

    def copies(self, records: Iterable[ConnectionRecord], level: int, own_id: int | None) -> list[ConnectionRecord]:
        return super().copies([record for record in records if record.id != own_id], level, own_id)


class FirstName(ConnectionTable):
    """Recognises a repeat by its id alone, as the printed rules have it: the first copy's names stay."""

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> int | None:
        known = self._records.get(record.id)
        return None if known is not None and record.up == known.up else super().learn(record, source, now_ns)


def with_table(table: type[ConnectionTable]) -> Callable[..., Broker]:
    """Brokers that keep such a table."""

    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.table = table(broker.map)
        return broker

    return make
