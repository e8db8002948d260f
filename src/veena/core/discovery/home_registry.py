"""A broker's own shelf: the advertisements of its clients, and how others come to have what is on it (DSC-01, DSC-03).

The home of an advertisement is the broker whose client made it, and the home alone changes it. Each change has the next
number of the home's count, which goes on through all its lives; so "everything after number n" is a question that needs
no memory of who asked before. A page of the answer covers all changes from one number to another, and the next question
goes on from there. Of what is gone the shelf remembers the last few; who knows the shelf only from before that, or from
an earlier life, is given all of it.

An advertisement stands while its client is attached. After a lost connection it stays for its own lease, and the client
that comes back and advertises again takes it over; with a goodbye it goes at once. One that a former life of this
broker left on disk is an *orphan*: it stays for what is left of its lease, and only its client's saying it again makes
it more than that, because what the client took back elsewhere meanwhile it will not say again.

What a client takes back, by its word or its goodbye, leaves a withdrawal for as long as the lease was: a broker that
was down at that time may still have an older one of the same id, and must not bring it back (`service` compares).

The invariant: applying the pages from 0 to the latest number gives what is on the shelf for controllers of that level;
`versions[l - 1]` is the number of the last change that controllers of level l must hear of.

Rejected: tombstones with versions for every advertisement that ever was (they have to be kept by everybody, for ever; a
withdrawal ends with the lease of what it took back), and pushing changes without being asked (a lost frame would have
to be noticed by somebody).
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush

from msgspec.structs import replace

from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.boundary.user_shares import user_of_client
from veena.core.discovery.advertisement import (
    KEPT_LEASE_MS,
    AdvertId,
    id_of,
    is_withdrawal,
    withdrawal,
    withdrawn_until,
)
from veena.core.wire.discovery import MAX_PAGE_BYTES, MAX_PAGE_ITEMS, Advertisement, Removal, Shelf
from veena.errors import LocalProtocolError, RefusalCode

#: Advertisements of one client, and of all clients of one broker.
MAX_OF_CLIENT = 4096
MAX_ON_SHELF = 1 << 16
#: Removals that are remembered: a controller that asks every few seconds misses fewer.
MAX_REMOVALS = 4096
#: Withdrawals that are remembered: those of one client that takes back everything.
MAX_WITHDRAWN = MAX_OF_CLIENT
#: Ends of what has gone before that may stand in a queue in any case; more than there are others, and it is made anew.
FEW = 64


class OwnShelf:
    """The advertisements of one broker's clients."""

    def __init__(self, levels: int, first_number: int) -> None:
        self._levels = levels
        #: The number of the last change, in this life or before.
        self.latest = first_number
        #: Who asks from below this is given everything.
        self._floor = first_number
        #: By id, with the number of its last change, in ascending order of that.
        self._adverts: dict[AdvertId, tuple[int, Advertisement]] = {}
        #: What is gone, or no longer for that level: number, id, and the highest level that knew it.
        self._removals: deque[tuple[int, AdvertId, int]] = deque()
        #: What was taken back, as `_adverts`, with the end of each.
        self._withdrawn: dict[AdvertId, tuple[int, Advertisement, int]] = {}
        self._versions = [0] * max(levels - 1, 1)
        #: How long each stays without its client.
        self._leases_ns: dict[AdvertId, int] = {}
        self._of_client: dict[str, dict[AdvertId, None]] = {}
        #: The user of each, and how many each user has.
        self._users: dict[AdvertId, str] = {}
        self._of_user: Counter[str] = Counter()
        #: When an advertisement without a client ends; one whose client came back is in here no more.
        self._ends_ns: dict[AdvertId, int] = {}
        self._queue: list[tuple[int, AdvertId]] = []
        self._withdrawn_ends: list[tuple[int, AdvertId]] = []

    def __len__(self) -> int:
        return len(self._adverts)

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(self._versions)

    def put(
        self, advert: Advertisement, lease_s: float, user: str = "", most: int = MAX_ON_SHELF
    ) -> Advertisement | None:
        """Place or replace an advertisement of a user who may have so many; the one before."""
        key = id_of(advert)
        if self._users.get(key) != user and self._of_user[user] >= most:
            reason = (
                f"user {user!r} has {self._of_user[user]} advertisements here, of at most {most}: withdraw some, or ask"
                " for a larger limit `offers`"
            )
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        owned = self._of_client.get(advert.client, {})
        if key not in owned and len(owned) >= MAX_OF_CLIENT:
            reason = f"{advert.client} has {MAX_OF_CLIENT} advertisements here: withdraw some"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        if key not in self._adverts and len(self._adverts) >= MAX_ON_SHELF:
            reason = f"this broker has {MAX_ON_SHELF} advertisements: try another one"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        self._of_client.setdefault(advert.client, {})[key] = None
        self._give_to(key, user)
        self._withdrawn.pop(key, None)
        before = self._adverts.pop(key, None)
        self._count(advert.scope)
        if before is not None and before[1].scope > advert.scope:
            self._note_removal(key, before[1].scope)
        self._adverts[key] = (self.latest, advert)
        self._leases_ns[key] = int(lease_s * SECOND_NS)
        self._ends_ns.pop(key, None)
        return None if before is None else before[1]

    def _give_to(self, key: AdvertId, user: str | None) -> None:
        """An advertisement is this user's from now on; None: nobody's."""
        before = self._users.pop(key, None)
        if before is not None:
            self._of_user[before] -= 1
            if not self._of_user[before]:
                del self._of_user[before]
        if user is not None:
            self._users[key] = user
            self._of_user[user] += 1

    def remove(self, key: AdvertId) -> Advertisement | None:
        """Take an advertisement off; what it was."""
        found = self._adverts.pop(key, None)
        if found is None:
            return None
        owned = self._of_client[key[0]]
        del owned[key], self._leases_ns[key]
        self._give_to(key, None)
        if not owned:
            del self._of_client[key[0]]
        self._ends_ns.pop(key, None)
        self._count(found[1].scope)
        self._note_removal(key, found[1].scope)
        return found[1]

    def withdraw(self, key: AdvertId, now_ns: int) -> tuple[Advertisement, Advertisement | None] | None:
        """Its client takes an advertisement back: what it was, and what stands in its place for a while."""
        found = self.remove(key)
        if found is None:
            return None
        if found.lease_ms < KEPT_LEASE_MS:
            return found, None
        gone = withdrawal(found, now_ns)
        self._bury(key, gone, withdrawn_until(gone, now_ns))
        return found, gone

    def _bury(self, key: AdvertId, gone: Advertisement, end_ns: int) -> None:
        self._withdrawn[key] = (self.latest, gone, end_ns)
        heappush(self._withdrawn_ends, (end_ns, key))
        if len(self._withdrawn) > MAX_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]
        if len(self._withdrawn_ends) > 2 * len(self._withdrawn) + FEW:
            self._withdrawn_ends = sorted((end, each) for each, (_, _, end) in self._withdrawn.items())

    def restore(self, advert: Advertisement, end_ns: int) -> Advertisement:
        """What a former life left stands until then; as it stands now."""
        key = id_of(advert)
        self._count(advert.scope)
        if is_withdrawal(advert):
            self._bury(key, advert, end_ns)
            return advert
        advert = replace(advert, is_orphan=True)
        self._of_client.setdefault(advert.client, {})[key] = None
        self._give_to(key, user_of_client(advert.client))
        self._adverts[key] = (self.latest, advert)
        self._leases_ns[key] = advert.lease_ms * MILLISECOND_NS
        self._ends_ns[key] = end_ns
        heappush(self._queue, (end_ns, key))
        return advert

    def ids(self, client: str) -> list[AdvertId]:
        return list(self._of_client.get(client, ()))

    def left_ns(self, key: AdvertId) -> int:
        """Since when the client of an advertisement is away; 0 while it is there."""
        return self._ends_ns[key] - self._leases_ns[key] if key in self._ends_ns else 0

    def client_came(self, client: str) -> None:
        """A session of the client is open: what it left behind in this life stands again without an end."""
        for key in self._of_client.get(client, ()):
            if not self._adverts[key][1].is_orphan:
                self._ends_ns.pop(key, None)

    def client_left(self, client: str, lost: bool, now_ns: int) -> list[tuple[Advertisement, Advertisement | None]]:
        """The last session of a client is closed; what is gone with it at once, as `withdraw` says it."""
        gone: list[tuple[Advertisement, Advertisement | None]] = []
        for key in self.ids(client):
            if not lost or not self._leases_ns[key]:
                found = self.withdraw(key, now_ns)
                assert found is not None
                gone.append(found)
            elif key not in self._ends_ns:
                self._ends_ns[key] = now_ns + self._leases_ns[key]
                heappush(self._queue, (self._ends_ns[key], key))
        if len(self._queue) > 2 * len(self._ends_ns) + FEW:
            self._queue = sorted((end_ns, key) for key, end_ns in self._ends_ns.items())
        return gone

    def expire(self, now_ns: int) -> list[Advertisement]:
        """What stood without its client for as long as its lease."""
        gone: list[Advertisement] = []
        while self._queue and self._queue[0][0] <= now_ns:
            end_ns, key = heappop(self._queue)
            if self._ends_ns.get(key) == end_ns:
                found = self.remove(key)
                assert found is not None
                gone.append(found)
        while self._withdrawn_ends and self._withdrawn_ends[0][0] <= now_ns:
            end_ns, key = heappop(self._withdrawn_ends)
            if key in self._withdrawn and self._withdrawn[key][2] <= end_ns:
                del self._withdrawn[key]
        return gone

    def next_wakeup(self) -> int | None:
        while self._queue and self._ends_ns.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        due = [queue[0][0] for queue in (self._queue, self._withdrawn_ends) if queue]
        return min(due, default=None)

    def _count(self, scope: int) -> None:
        self.latest += 1
        for level in range(1, min(scope, len(self._versions)) + 1):
            self._versions[level - 1] = self.latest

    def _note_removal(self, key: AdvertId, scope: int) -> None:
        for level in range(1, min(scope, len(self._versions)) + 1):
            self._versions[level - 1] = self.latest
        self._removals.append((self.latest, key, scope))
        if len(self._removals) > MAX_REMOVALS:
            self._floor = self._removals.popleft()[0]

    def page(self, level: int, since: int) -> Shelf:
        """What controllers of this level have to hear after that number, as much as fits one frame."""
        if since < self._floor or since > self.latest:
            since = 0
        # Changes of both kinds by number; an advertisement that narrowed its scope is both under one number.
        removed = [(number, key) for number, key, scope in self._removals if number > since > 0 and scope >= level]
        changed = [
            (number, advert) for number, advert in self._adverts.values() if number > since and advert.scope >= level
        ]
        gone = [
            (number, advert)
            for number, advert, _ in self._withdrawn.values()
            if number > since and advert.scope >= level
        ]
        numbers = [[each[0] for each in removed], [each[0] for each in changed], [each[0] for each in gone]]
        items = sorted((number, kind, at) for kind in range(3) for at, number in enumerate(numbers[kind]))
        taken: list[tuple[int, int, int]] = []
        size = 0
        for item in items:
            _, kind, at = item
            size += _name_weight(removed[at][1]) if kind == 0 else weight((changed if kind == 1 else gone)[at][1])
            if taken and (size > MAX_PAGE_BYTES or len(taken) >= MAX_PAGE_ITEMS) and item[0] > taken[-1][0]:
                break
            taken.append(item)
        up_to = taken[-1][0] if len(taken) < len(items) else self.latest
        return Shelf(
            level,
            since,
            up_to,
            self.latest,
            tuple(changed[at][1] for _, kind, at in taken if kind == 1),
            tuple(Removal(*removed[at][1]) for _, kind, at in taken if kind == 0),
            tuple(gone[at][1] for _, kind, at in taken if kind == 2),
        )

    def adverts(self) -> list[Advertisement]:
        return [advert for _, advert in self._adverts.values()]

    def check(self) -> None:
        numbers = [number for number, _ in self._adverts.values()]
        assert numbers == sorted(numbers) and all(number <= self.latest for number in numbers)
        assert len(self._adverts) == len(self._leases_ns) == sum(map(len, self._of_client.values()))
        assert self._users.keys() == self._adverts.keys() and self._of_user == Counter(self._users.values())
        assert all(key in self._adverts for key in self._ends_ns)
        assert not any(key in self._adverts for key in self._withdrawn) and len(self._withdrawn) <= MAX_WITHDRAWN
        assert len(self._removals) <= MAX_REMOVALS and max(self._versions) <= self.latest


def weight(advert: Advertisement) -> int:
    """About how many bytes it takes in a frame."""
    return _name_weight(id_of(advert)) + len(advert.properties) + len(advert.xml)


def _name_weight(key: AdvertId) -> int:
    return 64 + 2 * (len(key[0]) + len(key[1]))
