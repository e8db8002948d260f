"""What the durable subscriptions of a broker say of themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DurableStatistics:
    durables: int
    attached: int
    kept: int
    handed_over: int
    redelivered: int
    acknowledged: int
    expired: int
