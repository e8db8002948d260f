"""Who gives the identifiers of a unit, and keeps two requests in flight from getting the same one.

The intuition: a number is given by one broker, so that broker alone has to remember what it gave. A gift is a
*reservation*: it ends when the map shows the identifier in use, when it is given back, or when its time is over. The
invariant: no identifier is reserved twice, none is reserved that the map shows, and a unit (by its permanent id) has at
most one reservation in an enclosing unit, held by one spokesman (NOP-14). Requirements: NOP-14, NOP-16, NOP-19.

The registrar changes when the lowest broker leaves or a lower one joins; the new one cannot know what the old one had
reserved, and one that was restarted does not know it either. So a broker that *becomes* registrar waits until
everything reserved before has either appeared in its map or lapsed; until then it asks for patience. A unit that is cut
in two has two registrars: a clash shows when it heals.

Rejected: agreement by a quorum. Joins are rare and a wait of a minute after a loss of the lowest broker hurts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from veena.address import Address, Unit, format_address
from veena.core.membership.protocol import Send, lowest_free, registrar_hop
from veena.core.wire.membership import (
    MAX_REGISTRAR_HOPS,
    IdentifierRelease,
    IdentifierReply,
    IdentifierRequest,
    SpokesmanReply,
    SpokesmanRequest,
)  # fmt: skip
from veena.errors import RemoteProtocolError

RegistrarFrame = IdentifierRequest | IdentifierRelease | SpokesmanRequest

#: How long a broker keeps a gateway free: longer than a join may take (joining.JOIN_NS), so no grant lapses on the way.
SLOT_HOLD_NS = 60_000_000_000
#: How long an identifier stays reserved: the gateway's time, then as long as a map may take to tell of the newcomer.
IDENTIFIER_HOLD_NS = 300_000_000_000
#: How long a new registrar waits: whatever the old one gave, even a little after, is claimed by then or never will be.
QUIET_NS = 2 * SLOT_HOLD_NS
#: Reservations at one registrar: a fan-out of 64 in each of 8 enclosing units is all that there can be.
MAX_IDENTIFIERS = 512


@dataclass(frozen=True, slots=True)
class Reservation:
    identifier: int
    requester: str
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """An identifier, or -1 with the reason; no time to retry when the unit is full, which waiting does not cure."""

    identifier: int
    reason: str = ""
    retry_ns: int = 0


class Registrar:
    """The reservations of the units whose registrar this broker is."""

    def __init__(self, address: Address, fanout: int, joined_ns: int | None, unit_level: int = 0) -> None:
        self.address = address
        self.fanout = fanout
        self._reserved: dict[tuple[Unit, str], Reservation] = {}
        #: For each enclosing unit: from when on this broker may give identifiers, None while another one does.
        self._tenure: dict[Unit, int | None] = {}
        #: Who may ask for a unit that encloses this broker to be added elsewhere, and until when (NOP-14).
        self._spokesmen: dict[Unit, tuple[str, int]] = {}
        #: A broker that comes to an existing network may be the lowest of a unit at once, and waits like any new
        #: registrar; in units that came with it, which have at least this many identifiers, nobody was before it.
        self._own_length = 0 if joined_ns is None else len(address) - unit_level
        self._joined_ns = joined_ns or 0

    def observe(self, taken: Mapping[Unit, int], now_ns: int) -> None:
        """Note whose registrar this broker is, and forget what the map shows or time has ended."""
        for length in range(len(self.address)):
            unit = self.address[:length]
            mine = registrar_hop(self.address, unit, taken) == self.address
            if not mine:
                self._tenure[unit] = None
            elif unit not in self._tenure:
                self._tenure[unit] = 0 if length >= self._own_length else self._joined_ns + QUIET_NS
            elif self._tenure[unit] is None:
                self._tenure[unit] = now_ns + QUIET_NS
        self._reserved = {
            key: held
            for key, held in self._reserved.items()
            if held.deadline_ns > now_ns and not taken.get(key[0], 0) >> held.identifier & 1
        }

    def handle(self, frame: RegistrarFrame, taken: Mapping[Unit, int], now_ns: int) -> list[Send]:
        """Serve a frame for the registrar of a unit, or pass it one step on towards that broker."""
        unit = frame.unit if isinstance(frame, SpokesmanRequest) else frame.enclosing
        for place in (self.address, frame.contact):
            if len(place) != len(self.address) or place[: len(unit)] != unit or len(unit) == len(place):
                raise RemoteProtocolError(
                    f"{type(frame).__name__} for unit {format_address(unit) or 'the network'}: {format_address(place)}"
                    " is no broker inside of it"
                )
        hop = registrar_hop(self.address, unit, taken)
        if hop != self.address:
            # Beyond the limit two maps disagree and the frame would circle: the contact's time-out ends it.
            return [Send(hop, replace(frame, hops=frame.hops + 1))] if frame.hops < MAX_REGISTRAR_HOPS else []
        if isinstance(frame, IdentifierRelease):
            self.release(unit, frame.unit, frame.requester)
            return []
        if isinstance(frame, SpokesmanRequest):
            return [Send(frame.contact, self._let_speak(frame, now_ns))]
        verdict = self.reserve(unit, frame.unit, frame.requester, taken, now_ns)
        retry_ms = -(-verdict.retry_ns // 1_000_000)
        reply = IdentifierReply(frame.requester, frame.number, verdict.identifier, verdict.reason, retry_ms)
        return [Send(frame.contact, reply)]

    def _let_speak(self, frame: SpokesmanRequest, now_ns: int) -> SpokesmanReply:
        holder, until_ns = self._spokesmen.get(frame.unit, ("", 0))
        if holder not in ("", frame.requester) and until_ns > now_ns:
            retry_ms = -((now_ns - until_ns) // 1_000_000)
            return SpokesmanReply(frame.requester, frame.number, False, f"{holder} speaks for this unit now", retry_ms)
        self._spokesmen[frame.unit] = (frame.requester, now_ns + SLOT_HOLD_NS)
        return SpokesmanReply(frame.requester, frame.number, True)

    def reserve(self, enclosing: Unit, unit: str, requester: str, taken: Mapping[Unit, int], now_ns: int) -> Verdict:
        """The lowest free identifier of `enclosing` for this unit; asking again gives the same one."""
        self.observe(taken, now_ns)
        since_ns = self._tenure.get(enclosing)
        assert since_ns is not None, "only the registrar is asked to reserve"
        held = self._reserved.get((enclosing, unit))
        if held is not None and held.requester != requester:
            reason = "another broker of the same unit is asking already: one node speaks for a unit"
            return Verdict(-1, reason, held.deadline_ns - now_ns)
        if now_ns < since_ns:
            return Verdict(-1, "the registrar has just changed: ask again later", since_ns - now_ns)
        if held is None and len(self._reserved) >= MAX_IDENTIFIERS:
            return Verdict(-1, "too many set-ups at once: ask again later", SLOT_HOLD_NS)
        identifier = held.identifier if held is not None else lowest_free(self._in_use(enclosing, taken), self.fanout)
        if identifier < 0:
            return Verdict(-1, f"the unit holds {self.fanout} sub-units already")
        self._reserved[enclosing, unit] = Reservation(identifier, requester, now_ns + IDENTIFIER_HOLD_NS)
        return Verdict(identifier)

    def release(self, enclosing: Unit, unit: str, requester: str) -> None:
        held = self._reserved.get((enclosing, unit))
        if held is not None and held.requester == requester:
            del self._reserved[enclosing, unit]

    def _in_use(self, enclosing: Unit, taken: Mapping[Unit, int]) -> int:
        vector = taken.get(enclosing, 0) | 1 << self.address[len(enclosing)]
        for (unit, _), held in self._reserved.items():
            if unit == enclosing:
                vector |= 1 << held.identifier
        return vector

    def count(self) -> int:
        return len(self._reserved)

    def next_deadline(self) -> int | None:
        return min((held.deadline_ns for held in self._reserved.values()), default=None)

    def readdress(self, address: Address, unit_level: int, now_ns: int) -> None:
        """The broker's unit of that level was merged: what was reserved under the old numbers leads nowhere now."""
        self.address = address
        self._own_length = len(address) - unit_level
        self._joined_ns = now_ns
        self._reserved.clear()
        self._tenure.clear()
        self._spokesmen.clear()

    def check(self) -> None:
        given: list[tuple[Unit, int]] = [(unit, held.identifier) for (unit, _), held in self._reserved.items()]
        assert len(set(given)) == len(given), f"an identifier was reserved twice: {given}"
        assert len(given) <= MAX_IDENTIFIERS
