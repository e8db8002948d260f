"""What one user may take of a broker, and how its rates are held: by buckets of tokens that all its sessions share.

A user that is too fast is not refused: its broker reads nothing more from it until there are tokens again, and the
transport slows it down. So nothing is lost, and others do not notice. Who attaches more often gets no more: the buckets
belong to the user. Where nobody shows who they are, the client id stands for the user.

Three things are counted: events, bytes (of events and of all other frames), and the work that control frames cause
(`clients.pace` says how much each is). Rejected: a bucket for each connection, which 20 connections multiply by 20.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from veena.core.boundary.user_shares import UserShare
from veena.core.discovery.home_registry import MAX_ON_SHELF
from veena.core.durable.registry import MAX_DURABLES
from veena.core.wire.header import DEFAULT_MAX_FRAME, MAX_FRAME

#: Units of control work a second that a user may cause: 2,000 subscriptions made or ended, or 20,000 acknowledgements
#: of 256 events. A broker spends a tenth of its time on so many; no application in this project asks a tenth of it.
DEFAULT_CONTROL = 20_000
#: Users whose buckets are remembered after their last session: the one that left longest ago is forgotten first.
MAX_ABSENT = 10_000
#: How much a bucket holds, in seconds: a batch that was gathered while a client was busy is no offence.
BURST_S = 2.0


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one user; a rate of 0 is none."""

    #: Events and bytes a second, over a few seconds; a burst of twice that is let through.
    events_per_second: int = 0
    bytes_per_second: int = 0
    #: What is asked beside events: subscriptions, acknowledgements, questions, reads. See `clients.pace`.
    control_per_second: int = DEFAULT_CONTROL
    subscriptions: int = 65_536
    #: The longest frame; the network's own limit holds as well.
    max_frame: int = DEFAULT_MAX_FRAME
    #: At once, of one user.
    connections: int = 4096
    #: Reliable events that were sent and are not accepted yet.
    unaccepted: int = 4096
    #: Bytes on their way to a client that does not read, after which its connection is closed.
    queue_bytes: int = 48 << 20
    #: The part of the store's bytes that its durable subscriptions may have kept unread, and how many it may have.
    store_share: float = 0.25
    durables: int = 10_000
    #: Advertisements, over all of its client ids.
    offers: int = 8192
    #: The part of `[store] staged_bytes` that it may have staged and not published.
    staged_share: float = 0.5

    def faults(self) -> list[str]:
        """What cannot be: for whoever reads them from a file."""
        found = [
            f"{name} = {getattr(self, name)}: use 0 or more"
            for name in ("events_per_second", "bytes_per_second", "control_per_second")
            if getattr(self, name) < 0
        ]
        for name, most in (
            ("subscriptions", 65_536),
            ("max_frame", MAX_FRAME),
            ("connections", 1 << 20),
            ("unaccepted", 1 << 20),
            ("queue_bytes", 64 << 20),
            ("durables", MAX_DURABLES),
            ("offers", MAX_ON_SHELF),
        ):
            if not 1 <= getattr(self, name) <= most:
                found.append(f"{name} = {getattr(self, name)}: use 1 to {most}")
        parts = ((name, getattr(self, name)) for name in ("store_share", "staged_share"))
        found += [
            f"{name} = {part}: use a part above 0 and up to 1, such as 0.25"
            for name, part in parts
            if not 0 < part <= 1
        ]
        return found

    def share(self, store_bytes: int) -> UserShare:
        """What one user may have of a store of this size."""
        return UserShare(int(store_bytes * self.store_share), self.durables, self.offers)


class Bucket:
    """Tokens that come at a steady rate; what is taken beyond them has to be waited for."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = BURST_S * rate
        self._at = now

    def take(self, count: int, now: float) -> float:
        """Take so many; how many seconds to wait before the next ones."""
        self._tokens = min(BURST_S * self._rate, self._tokens + (now - self._at) * self._rate) - count
        self._at = now
        return -self._tokens / self._rate if self._tokens < 0 else 0.0

    def is_full(self, now: float) -> bool:
        """Whether nothing is left of what was taken."""
        return self._tokens + (now - self._at) * self._rate >= BURST_S * self._rate


class Rates:
    """What one user may still send: a bucket for each of its rates, shared by all its sessions."""

    __slots__ = ("_buckets", "_limits", "_slowed", "sessions")

    def __init__(self, limits: Limits, slowed: Counter[str], now: float) -> None:
        self.sessions = 0
        self._slowed = slowed
        self._limits = limits
        self._buckets = self._fill(limits, now)

    @staticmethod
    def _fill(limits: Limits, now: float) -> dict[str, Bucket]:
        rates = {
            "events": limits.events_per_second,
            "bytes": limits.bytes_per_second,
            "control": limits.control_per_second,
        }
        return {kind: Bucket(rate, now) for kind, rate in rates.items() if rate}

    def hold_to(self, limits: Limits, now: float) -> None:
        """The user's limits may be others than they were."""
        if limits != self._limits:
            self._limits = limits
            self._buckets = self._fill(limits, now)

    @property
    def counts_all(self) -> bool:
        """Whether events take tokens, and not control frames alone."""
        return "events" in self._buckets or "bytes" in self._buckets

    def take(self, events: int, size: int, control: int, now: float) -> tuple[float, str]:
        """Take tokens for a read; how many seconds to wait before the next one, and which rate makes it wait."""
        longest, why = 0.0, ""
        for kind, count in (("events", events), ("bytes", size), ("control", control)):
            bucket = self._buckets.get(kind)
            wait = 0.0 if bucket is None else bucket.take(count, now)
            if wait > longest:
                longest, why = wait, kind
        if why:
            self._slowed[why] += 1
        return longest, why

    def is_full(self, now: float) -> bool:
        """Whether a new object would allow no more than this one."""
        return all(bucket.is_full(now) for bucket in self._buckets.values())


class UserRates:
    """The rates of all users of one broker, for as long as they are attached or owe tokens."""

    def __init__(self) -> None:
        self._present: dict[str, Rates] = {}
        #: Who left longest ago comes first.
        self._absent: dict[str, Rates] = {}
        #: How often somebody was made to wait, by the rate that did it.
        self.slowed: Counter[str] = Counter()

    def enter(self, user: str, limits: Limits, now: float) -> Rates:
        """A session of a user begins."""
        found = self._present.get(user) or self._absent.pop(user, None) or Rates(limits, self.slowed, now)
        found.hold_to(limits, now)
        found.sessions += 1
        self._present[user] = found
        return found

    def leave(self, user: str, now: float) -> None:
        """A session of a user has ended. Who owes tokens owes them when it comes back."""
        found = self._present[user]
        found.sessions -= 1
        if found.sessions:
            return
        del self._present[user]
        for name in [name for name, rates in self._first_absent() if rates.is_full(now)]:
            del self._absent[name]
        if not found.is_full(now):
            self._absent[user] = found
            if len(self._absent) > MAX_ABSENT:
                del self._absent[next(iter(self._absent))]

    def _first_absent(self) -> list[tuple[str, Rates]]:
        """Those who left longest ago, as many as one departure looks at."""
        return [item for item, _ in zip(self._absent.items(), range(8), strict=False)]
