"""A merged unit gets its new number: every broker in it, then their clients, and nobody's letters are lost.

When a unit joins, only the part of the addresses above it changes; what its members are called inside stays (NOP-15).
So the news is one pair of prefixes. It floods the unit along its own links: each broker passes it on once, renames
itself, and tells its clients their new logical address (NOP-05). Permanent broker ids, client ids, logs and profiles do
not change: addresses only route.

Old addresses live on in questions that are still to be answered. They are resolved by a short list of past renamings,
and by *when* the address was learnt: before the merge the old prefix can only have meant this unit, afterwards it may
mean another one, because every network starts counting at 0.

The invariant: a broker applies each renaming at most once and in the order of arrival, and `resolve` of an address
learnt before it gives what `rename` gave its owner. Requirements: NOP-04, NOP-05, NOP-15, NOP-16 (the GES paper,
sections 3.1 and 3.1.2).

Rejected: one alias a client. A unit of 32 clusters has a hundred thousand clients and one prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veena.address import Address, Unit, check_unit, contains, format_address
from veena.core.membership.protocol import Send
from veena.core.wire.membership import ClientRenumber, Renumber
from veena.errors import InvalidAddress, RemoteProtocolError

#: Renamings that a broker remembers. A unit merges a few times in its life; the oldest is forgotten first.
MAX_ALIASES = 64


def rename(address: Unit, old: Unit, new: Unit) -> Unit:
    """The address with its prefix replaced; what lies below the prefix stays (NOP-15)."""
    if not contains(old, address):
        raise InvalidAddress(
            f"address {format_address(address)} does not lie in {format_address(old)}: cannot rename it"
        )
    return new + address[len(old) :]


@dataclass(frozen=True, slots=True)
class Readdressed:
    """This broker, and with it every link and map entry under `old`, is under `new` from here on."""

    old: Unit
    new: Unit
    address: Address
    #: The network it is part of now; empty when that stays.
    network: str = ""


@dataclass(frozen=True, slots=True)
class Tell:
    """A frame for a client of this broker."""

    client: str
    frame: ClientRenumber


@dataclass(frozen=True, slots=True)
class Alias:
    old: Unit
    new: Unit
    #: Addresses learnt before this time may be meant in the old way.
    since_ns: int
    frame: Renumber


RenegotiationEffect = Send | Readdressed | Tell


class Renegotiation:
    """One a broker. Effects are in the order in which they must happen: links still have their old names in `Send`."""

    def __init__(self, address: Address, fanout: int) -> None:
        self.address = address
        self.fanout = fanout
        #: Oldest first; keyed by the set-up that led to it.
        self._aliases: dict[tuple[str, int], Alias] = {}

    def begin(
        self, frame: Renumber, neighbours: Iterable[Address], clients: Iterable[str], now_ns: int
    ) -> list[RenegotiationEffect]:
        """At the spokesman, once its set-up was granted."""
        return self._apply(frame, (), neighbours, clients, now_ns)

    def handle(
        self, frame: Renumber, sender: Address, neighbours: Iterable[Address], clients: Iterable[str], now_ns: int
    ) -> list[RenegotiationEffect]:
        """At a member: pass the news on, take the new address, tell the clients. The second time it is no news.

        `sender` is the address under which this broker knows the peer; for one that comes back renamed, the last one
        it had here. So no broker of the larger network can renumber a unit that happens to have a number like the old.
        """
        if not frame.old or (not frame.network and len(frame.new) != len(frame.old)):
            raise RemoteProtocolError(
                f"renumbering {format_address(frame.old) or 'everything'} to {format_address(frame.new)}: a unit keeps"
                " its level unless it becomes part of another network"
            )
        if (frame.requester, frame.number) not in self._aliases and not contains(frame.old, sender):
            raise RemoteProtocolError(
                f"{format_address(sender)} renumbers {format_address(frame.old)}: only a broker of that unit may"
            )
        return self._apply(frame, sender, neighbours, clients, now_ns)

    def greet(self, peer: Address, linked_ns: int | None) -> list[Send]:
        """A link comes up: a member that missed the news, because its link was down, hears it now.

        `linked_ns` is when this broker last had a link with that permanent broker id, None for never: only an old
        acquaintance can be meant, a stranger under the old prefix belongs to another unit.
        """
        if linked_ns is None:
            return []
        missed = (alias for alias in self._aliases.values() if linked_ns <= alias.since_ns)
        return [Send(peer, alias.frame) for alias in missed if contains(alias.old, peer)][:1]

    def resolve(self, address: Address, learnt_ns: int = 0) -> Address:
        """Where an address that was learnt at that time leads now."""
        for alias in self._aliases.values():
            if learnt_ns < alias.since_ns and contains(alias.old, address):
                address = rename(address, alias.old, alias.new)
        return address

    def attached(self, client: str, home: Address, learnt_ns: int = 0) -> list[Tell]:
        """A client comes (back) and says which address it believes to have."""
        now = self.resolve(home, learnt_ns)
        return [] if now == home else [Tell(client, ClientRenumber(client, home, now))]

    def _apply(
        self, frame: Renumber, sender: Address, neighbours: Iterable[Address], clients: Iterable[str], now_ns: int
    ) -> list[RenegotiationEffect]:
        key = frame.requester, frame.number
        if key in self._aliases or not contains(frame.old, self.address):
            return []
        address = rename(self.address, frame.old, frame.new)
        try:
            check_unit(address, self.fanout)
        except InvalidAddress as error:
            raise RemoteProtocolError(f"renumbering to {format_address(frame.new)}: {error}") from None
        while len(self._aliases) >= MAX_ALIASES:
            del self._aliases[next(iter(self._aliases))]
        self._aliases[key] = Alias(frame.old, frame.new, now_ns, frame)
        effects: list[RenegotiationEffect] = [
            Send(neighbour, frame) for neighbour in neighbours if neighbour != sender and contains(frame.old, neighbour)
        ]
        before, self.address = self.address, address
        effects.append(Readdressed(frame.old, frame.new, address, frame.network))
        effects += [Tell(client, ClientRenumber(client, before, address)) for client in clients]
        return effects
