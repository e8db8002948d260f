"""Whom the bytes are charged to that the store keeps for durable subscriptions, and what becomes of who has too many.

What is kept for a durable subscription is charged to its owner, never to the publisher: the user of the client that
made it, or that reads it; for a group, the user of the member that made it. Each subscription counts in full, also
where one entry of the log is for several.

An owner that has its share (`user_shares`) loses no access and holds up nobody: its subscriptions are *suspended*. For
a suspended subscription no more events are kept. Its cursor stays where it is, and what is kept can be read. The events
that were not kept are counted for ever, told to who reads it, and noted for explaining. First those are suspended for
which most is kept: one that is read goes on, up to an eighth above the share. A subscription goes on by itself when all
of it was read, or when half of its owner's share is free.

All durable subscriptions together have a part of the store as well (`UserShares.kept_bytes`). Beyond that nobody has
more than an equal part of it, so many users together do not fill the store either.

The charges are counted from what is on disk: a restart finds the same.

The invariant: what is charged to an owner is the sum of its subscriptions' meters, and all charges together are their
sum.

Rejected: refusing events to their publishers (one subscription that nobody reads would stop everybody), and deleting
the oldest (what was accepted and kept would be lost behind a client's back).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nlargest

from veena.core.boundary.clients import SubscriptionState
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.user_shares import UserTable
from veena.core.durable.cursor import Inbox
from veena.core.durable.statistics import UserCharge
from veena.core.durable.subscription import Durable
from veena.errors import RefusalCode

#: How often suspended subscriptions are looked at, and counts of missed events are written.
LOOK_NS = SECOND_NS
#: Such a part of a share is left to subscriptions that are read while others are not.
RESERVE = 8
#: Users that statistics name: those to whom most is charged.
MAX_NAMED = 20


@dataclass(slots=True)
class _Account:
    """One owner's."""

    bytes: int = 0
    #: Its subscriptions by number, those that have left and are still being sent included; and how many are here.
    durables: dict[int, Durable] = field(default_factory=dict)
    here: int = 0
    #: For how many of them anything is kept.
    filled: int = 0
    suspended: dict[int, Durable] = field(default_factory=dict)


class Charges:
    """One broker's."""

    def __init__(self, users: UserTable, tell: Callable[[Durable], None], save: Callable[[Durable], None]) -> None:
        self._users = users
        #: Called when a subscription is suspended, or goes on.
        self._tell = tell
        self._save = save
        self._accounts: dict[str, _Account] = {}
        #: Charged to all together, and to how many.
        self.bytes = 0
        self._filled = 0
        self._suspended = 0
        #: Since the start.
        self.missed = 0
        self._unsaved: dict[int, Durable] = {}
        self._look_ns: int | None = None

    # --- subscriptions ---

    def enter(self, durable: Durable) -> None:
        """A subscription is here from now on, with what is kept for it."""
        account = self._accounts.setdefault(durable.owner, _Account())
        account.durables[durable.number] = durable
        account.here += durable.is_here
        self._add(account, durable, sum(inbox.meter.bytes for inbox in durable.all_inboxes()))

    def left(self, durable: Durable) -> None:
        """A subscription went elsewhere; what is kept here is being sent after it."""
        self._accounts[durable.owner].here -= 1
        self._go_on(self._accounts[durable.owner], durable)

    def remove(self, durable: Durable, was_here: bool) -> None:
        """A subscription is no more."""
        account = self._accounts[durable.owner]
        self._go_on(account, durable)
        self._add(account, durable, -durable.charged)
        account.here -= was_here
        del account.durables[durable.number]
        self._unsaved.pop(durable.number, None)
        if not account.durables:
            del self._accounts[durable.owner]

    def give_to(self, durable: Durable, owner: str) -> None:
        """Somebody else reads a subscription from now on."""
        if owner != durable.owner:
            was_suspended = durable.is_suspended
            self.remove(durable, durable.is_here)
            durable.owner = owner
            self.enter(durable)
            if was_suspended:
                account = self._accounts[owner]
                self._mark(account, durable)
                self._review(owner, account)

    def why_not_another(self, owner: str) -> str | None:
        """Why a user may not make one more durable subscription, if so."""
        account, share = self._accounts.get(owner), self._users.share(owner)
        if account is None or account.here < share.durables:
            return None
        return (
            f"user {owner!r} has {account.here} durable subscriptions here, of at most {share.durables}: delete those"
            " that nobody reads, or ask for a larger limit `durables`"
        )

    # --- what is kept ---

    def has_room(self, durable: Durable, size: int) -> bool:
        """Whether an event is kept for a subscription; where it is not, that is counted and told."""
        if durable.is_passing:
            return True
        if not durable.is_suspended:
            account = self._accounts[durable.owner]
            limit = self._limit(account, durable.owner)
            if account.bytes + size <= limit or not account.bytes:
                return True
            is_read = durable.charged * account.filled < account.bytes
            if is_read and account.bytes + size <= limit + limit // RESERVE:
                return True
            self._miss(durable)
            self._suspend(account, durable)
            return False
        self._miss(durable)
        return False

    def has_room_for_moved(self, durable: Durable, size: int) -> bool:
        """The same for an event that was kept at another broker before: twice the share, so that what was kept within
        a share there is kept on here."""
        if durable.is_passing:
            return True
        account = self._accounts[durable.owner]
        if account.bytes + size <= 2 * self._limit(account, durable.owner):
            return True
        self._miss(durable)
        return False

    def kept(self, durable: Durable, inbox: Inbox, offset: int, size: int) -> None:
        """An event is kept for an inbox of a subscription."""
        if not durable.is_passing:
            inbox.meter.add(offset, size)
            self._add(self._accounts[durable.owner], durable, size)

    def settle(self, durable: Durable) -> None:
        """More of a subscription was read."""
        freed = 0
        for inbox in durable.all_inboxes():
            freed += inbox.meter.release(inbox.cursor, inbox.end)
        account = self._accounts.get(durable.owner)
        if freed and account is not None and durable.number in account.durables:
            self._add(account, durable, -freed)
            if account.suspended:
                self._review(durable.owner, account)

    def reason(self, durable: Durable) -> str:
        """Why a subscription is suspended, and what its owner can do."""
        account = self._accounts[durable.owner]
        limit = self._limit(account, durable.owner)
        return (
            f"durable subscription {durable.name!r} is suspended, no more is kept for it: {account.bytes} bytes wait"
            f" here for the durable subscriptions of user {durable.owner!r}, of at most {limit}; read it, delete those"
            " that nobody reads, or ask for a larger limit `store_share`"
        )

    def state_now(self, durable: Durable, session: int, subscription: int) -> SubscriptionState:
        """What a session that reads a subscription is told when that changes."""
        if durable.rests:
            return SubscriptionState(session, subscription, durable.missed, RefusalCode.WORK, durable.rests)
        if durable.is_suspended:
            return SubscriptionState(session, subscription, durable.missed, RefusalCode.LIMIT, self.reason(durable))
        return SubscriptionState(session, subscription, durable.missed)

    def state(self, durable: Durable, session: int, subscription: int) -> SubscriptionState | None:
        """What it is told when it begins to read; None where there is nothing to tell."""
        is_told = durable.is_suspended or durable.missed or durable.rests
        return self.state_now(durable, session, subscription) if is_told else None

    def _limit(self, account: _Account, owner: str) -> int:
        limit, most = self._users.share(owner).store_bytes, self._users.shares.kept_bytes
        return min(limit, most // max(1, self._filled)) if self.bytes >= most else limit

    def _add(self, account: _Account, durable: Durable, size: int) -> None:
        was_filled = account.bytes > 0
        account.filled += (durable.charged + size > 0) - (durable.charged > 0)
        durable.charged += size
        account.bytes += size
        self.bytes += size
        self._filled += (account.bytes > 0) - was_filled

    def _miss(self, durable: Durable) -> None:
        durable.missed += 1
        self.missed += 1
        self._unsaved[durable.number] = durable

    def _suspend(self, account: _Account, durable: Durable) -> None:
        self._mark(account, durable)
        self._save(durable)
        self._tell(durable)

    def _mark(self, account: _Account, durable: Durable) -> None:
        durable.is_suspended = True
        account.suspended[durable.number] = durable
        self._suspended += 1

    def _go_on(self, account: _Account, durable: Durable) -> None:
        if durable.is_suspended:
            durable.is_suspended = False
            del account.suspended[durable.number]
            self._suspended -= 1

    def _review(self, owner: str, account: _Account) -> None:
        """Let those go on for which there is room again."""
        limit = self._limit(account, owner)
        for durable in list(account.suspended.values()):
            if 2 * account.bytes <= limit or (not durable.charged and account.bytes < limit + limit // RESERVE):
                self._go_on(account, durable)
                self._save(durable)
                self._tell(durable)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        if self._look_ns is None or now_ns < self._look_ns:
            return
        self._look_ns = None
        unsaved, self._unsaved = self._unsaved, {}
        for durable in unsaved.values():
            self._save(durable)
        for owner, account in list(self._accounts.items()) if self._suspended else ():
            if account.suspended:
                self._review(owner, account)

    def flush(self, now_ns: int) -> None:
        """The end of an input: look again in a while, if there is anything to look at."""
        if self._look_ns is None and (self._suspended or self._unsaved):
            self._look_ns = now_ns + LOOK_NS

    def next_wakeup(self) -> int | None:
        return self._look_ns

    def statistics(self) -> tuple[int, tuple[UserCharge, ...]]:
        """How many subscriptions are suspended, and the users to whom most is charged."""
        most = nlargest(MAX_NAMED, self._accounts.items(), key=lambda each: each[1].bytes)
        return self._suspended, tuple(
            UserCharge(
                owner,
                account.bytes,
                self._limit(account, owner),
                account.here,
                len(account.suspended),
                sum(durable.missed for durable in account.durables.values()),
            )
            for owner, account in most
        )

    def check(self) -> None:
        assert self.bytes == sum(account.bytes for account in self._accounts.values())
        assert self._filled == sum(account.bytes > 0 for account in self._accounts.values())
        assert self._suspended == sum(len(account.suspended) for account in self._accounts.values())
        for owner, account in self._accounts.items():
            assert account.bytes == sum(durable.charged for durable in account.durables.values())
            assert account.filled == sum(durable.charged > 0 for durable in account.durables.values())
            assert account.here == sum(durable.is_here for durable in account.durables.values())
            for durable in account.durables.values():
                assert durable.owner == owner
                assert durable.charged == sum(inbox.meter.bytes for inbox in durable.all_inboxes())
                assert durable.is_suspended is (durable.number in account.suspended)
