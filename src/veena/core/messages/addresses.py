"""Addressees that name a place: a broker, everybody in a unit, or one conversation at a broker.

An event's `to` usually names clients, wherever they are (`interest.recipient_engine`). Brokers also write to each other
(`mailbox`) and hand replies to whoever asked. These ids hold the place itself, so nobody has to want them: the unit to
serve next follows from the address, level by level, as a letter's does.

    ~0.1.2.6          the broker there
    ~0.1/*            every broker of that unit; ~/* of the whole system
    ~0.1.2.6/!5f3a    the conversation there with this mark: a reply (`requests`)
    ~home/alice       not a place: wherever alice's durable subscriptions are kept; an id that is wanted like any other
    ~long-home/6f1e...  the same for a client whose id is too long to stand behind `~home/`

Every id that begins with `~` is a broker's to use. Of clients only replies may bear one: their mark cannot be guessed.

The invariant: `vector` has the bit of the one unit that the place lies in, or for everybody in a unit the bits of all
units of it; never the host's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from veena.address import MAX_LEVELS, Address, Unit, as_seen, format_address
from veena.event import MAX_CLIENT_ID_LENGTH

#: What the ids begin with that only brokers make.
INTERNAL = "~"
#: Ids of groups begin with this (`durable.groups`).
GROUP = "~shared/"
EVERYBODY = "*"
MARK = "!"
_HOME = "~home/"
_LONG_HOME = "~long-home/"
#: Places that are remembered as read.
READ_CACHE = 1 << 14


class Place(NamedTuple):
    """A unit, and who is meant there: nobody but the broker (""), everybody (EVERYBODY), or a conversation's mark."""

    unit: Unit
    who: str


def broker_id(address: Address) -> str:
    return INTERNAL + format_address(address)


def everybody_id(unit: Unit) -> str:
    return f"{INTERNAL}{format_address(unit)}/{EVERYBODY}"


def reply_id(address: Address, mark: str) -> str:
    return f"{INTERNAL}{format_address(address)}/{MARK}{mark}"


def home_id(client_id: str) -> str:
    """Where a client's durable subscriptions are kept: an id as long as a client's may be, however long that one is."""
    if len(client_id) <= MAX_CLIENT_ID_LENGTH - len(_HOME):
        return _HOME + client_id
    return _LONG_HOME + blake2b(client_id.encode(), digest_size=32).hexdigest()


@lru_cache(maxsize=READ_CACHE)
def place_of(addressee: str) -> Place | None:
    """The place that an id names; None for a client's."""
    if not addressee.startswith(INTERNAL):
        return None
    path, slash, who = addressee[1:].partition("/")
    parts = path.split(".") if path else []
    if len(parts) > MAX_LEVELS or not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
        return None
    if (slash and who != EVERYBODY and not who.startswith(MARK)) or (not parts and who != EVERYBODY):
        return None
    return Place(tuple(map(int, parts)), who)


def is_internal(addressee: str) -> bool:
    """Whether only brokers may write to this id: a reply is the exception."""
    if not addressee.startswith(INTERNAL):
        return False
    place = place_of(addressee)
    return place is None or not place.who.startswith(MARK)


def is_here(place: Place, host: Address) -> bool:
    """Whether the host is the place, or in it."""
    if place.who == EVERYBODY:
        return host[: len(place.unit)] == place.unit
    return place.unit == host


def vector(
    addressees: Iterable[str],
    host: Address,
    fanout: int,
    bit: Callable[[Unit], int],
    vertices: Callable[[], Iterable[Unit]],
) -> tuple[int, bool]:
    """The units to serve for the places among these, and whether there is anybody else among them."""
    found = 0
    others = False
    for addressee in addressees:
        place = place_of(addressee)
        if place is None:
            others = True
        elif place.who == EVERYBODY and host[: len(place.unit)] == place.unit:
            for unit in vertices():
                if len(unit) > len(place.unit) and unit != host:
                    found |= bit(unit)
        elif place.unit != host[: len(place.unit)] and max(place.unit) < fanout and len(place.unit) <= len(host):
            found |= bit(as_seen(host, place.unit))
    return found, others
