"""What the durable subscriptions of a broker say of themselves, in all and by user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserCharge:
    """What one user has this broker keep."""

    user: str
    kept_bytes: int
    #: How much of that it may have at the moment.
    share_bytes: int
    durables: int
    suspended: int
    #: Events that were not kept for its subscriptions, as far as these are still there.
    missed: int


@dataclass(frozen=True, slots=True)
class DurableStatistics:
    """What the durable subscriptions of a broker say of themselves."""

    durables: int
    attached: int
    kept: int
    handed_over: int
    redelivered: int
    acknowledged: int
    expired: int
    #: Passed over, because the owner may not read it; acknowledged events include these.
    denied: int = 0
    #: Of groups: given back by members that may not read it, and events that no member there may read.
    handed_back: int = 0
    parked: int = 0
    #: Bytes that wait for durable subscriptions to read them, subscriptions for which no more is kept, and events that
    #: were not kept for those since the start.
    kept_bytes: int = 0
    suspended: int = 0
    missed: int = 0
    #: To whom most is charged (`charges`).
    users: tuple[UserCharge, ...] = ()
