"""How much of a log is kept: by age and by size, and never less than what somebody still has to get (design §7).

    open duties and durable cursors > size > readers outside (Spark) > age

What is old and has been read by everybody goes. Where the file is too large, the oldest goes whatever its age, and also
what a reader outside has not committed yet: such a gap is counted. What a unit or a durable subscription still needs
never goes; when that alone fills the file, publishers are refused (at `REFUSE_AT`) before it is full, so that what was
accepted before can still be delivered and acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from veena.errors import ConfigError

#: In percent of the bound: where the oldest is given up, and where nothing more is accepted from publishers.
TRIM_AT, REFUSE_AT = 80, 90
#: The same: what all durable subscriptions together may have kept unread. Less than where the oldest is given up, so
#: that there is room for what is published beside it.
KEPT_AT = 70
#: An empty file has some forty pages of tables; with less than this nothing could be kept.
MIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long events and records are kept when nobody needs them any more, and how large the file may be."""

    #: A day of what was published, for `since` and for whoever reads the log later.
    age_ns: int = 24 * 3600 * 1_000_000_000
    #: Twice what the core lets wait in the log.
    max_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        if self.age_ns < 0:
            raise ConfigError("settings", "store.age_ns", f"{self.age_ns}", "use 0 or more nanoseconds")
        if self.max_bytes < MIN_BYTES:
            raise ConfigError("settings", "store.max_bytes", f"{self.max_bytes}", f"use {MIN_BYTES} or more")


class Old(NamedTuple):
    """One of the oldest rows of a table."""

    offset: int
    accepted_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Need:
    """Who has not had everything: from where units and durables go on, and readers outside."""

    needed_from: int
    #: Also held so long: what tells a durable subscription that moves what it has had already.
    wanted_from: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything below this offset goes; `because` of which rule the last of it went."""

    below: int
    because: Literal["age", "size"] = "age"


def cut(oldest: Sequence[Old], used_bytes: int, need: Need, rules: Retention, now_ns: int) -> Cut | None:
    """What of the oldest rows, ascending, is to go; None for nothing."""
    too_old_ns = now_ns - rules.age_ns
    excess = used_bytes - rules.max_bytes * TRIM_AT // 100
    found: Cut | None = None
    for offset, accepted_ns, size in oldest:
        if offset >= need.needed_from:
            break
        if excess > 0:
            excess -= size
            found = Cut(offset + 1, "size")
        elif accepted_ns <= too_old_ns and offset < need.wanted_from:
            found = Cut(offset + 1)
        else:
            break
    return found


def refusal(used_bytes: int, is_published: bool, rules: Retention) -> str | None:
    """Why an entry cannot be taken, if it cannot. What is kept for others may fill the last tenth."""
    limit = rules.max_bytes * REFUSE_AT // 100 if is_published else rules.max_bytes
    if used_bytes < limit:
        return None
    return (
        f"more than {REFUSE_AT if is_published else 100} % of the {rules.max_bytes} bytes that it may have are in use,"
        " and what is in them is still to be delivered: let the clients that are behind catch up, delete durable"
        " subscriptions that nobody reads, or raise the store's max_bytes"
    )
