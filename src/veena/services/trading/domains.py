"""Domains: which unit of the network is a place of its own, and its number.

A domain is a team's place: producers and consumers that are near each other (DIS-08). By default it is a super-cluster;
in a network with fewer levels the highest unit below the whole system. Which domain a client belongs to follows from
the broker that it is attached to, so whether an application is local or remote is decided by comparing two numbers.
"""

from __future__ import annotations

from veena.address import MAX_LEVELS, Address, Unit, format_address
from veena.errors import InvalidAddress

#: A super-cluster: broker 0, cluster 1, super-cluster 2.
DOMAIN_LEVEL = 2
#: One identifier of a unit in its number; the largest fan-out is 64.
BITS = 8


def network_number(unit: Unit) -> int:
    """The unit as one number, 8 bits an identifier, the highest first: unit 1.2 is 0x0102.

    It tells domains apart because all domains of a network are of one level, so their paths have one length.
    """
    if not 1 <= len(unit) <= MAX_LEVELS:
        raise InvalidAddress(f"unit {format_address(unit)!r} has {len(unit)} parts; expected 1 to {MAX_LEVELS}")
    number = 0
    for identifier in unit:
        if not 0 <= identifier < 1 << BITS:
            raise InvalidAddress(f"identifier {identifier} of unit {format_address(unit)!r}: expected 0 to 255")
        number = number << BITS | identifier
    return number


def unit_of(number: int, length: int) -> Unit:
    """The unit that a network number stands for, where domains have paths of so many identifiers."""
    if not 1 <= length <= MAX_LEVELS or not 0 <= number < 1 << BITS * length:
        raise InvalidAddress(f"network number {number}: no unit with a path of {length} identifiers has it")
    return tuple(number >> BITS * at & (1 << BITS) - 1 for at in reversed(range(length)))


def domain_level(levels: int) -> int:
    """The level of a domain in a network with so many levels: a super-cluster, or the highest unit there is."""
    return max(0, min(DOMAIN_LEVEL, levels - 1))


def domain_of(address: Address, level: int | None = None) -> Unit:
    """The domain that a broker lies in; `level` where domains are not super-clusters."""
    if not address:
        raise InvalidAddress("an empty address lies in no domain: give a broker's address, such as 0.1.2.6")
    chosen = domain_level(len(address)) if level is None else level
    if not 0 <= chosen < len(address):
        raise InvalidAddress(
            f"level {chosen} of a domain: broker {format_address(address)} has units of level 0 to {len(address) - 1}"
        )
    return address[: len(address) - chosen]
