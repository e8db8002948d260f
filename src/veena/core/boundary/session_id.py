"""The number of a session says whose session it is.

    0 and above     a client's: its driver has counted connections
    below 0         the broker's own: it wants, or reads, something in the name of somebody who may be away

A broker has three kinds of its own. Each durable subscription has one, in which its constraint is announced; its number
is that of the subscription, negated. The home of a client or group has one, and so has the reader of a group: they take
numbers from the same counter, so no two sessions of a broker share one. The last kind is the broker itself.

The numbers stand in traces, on disks and in messages between brokers, so the encoding is fixed. Rejected: a class with
a kind and a number, since sessions are the keys of the hottest tables.
"""

from __future__ import annotations

from typing import NewType

#: A session's number where it has just been made; a plain number that came from elsewhere is as good.
SessionId = NewType("SessionId", int)

#: The receiver of what is addressed to the broker itself: below every number that a broker ever counts to.
BROKER_ITSELF = SessionId(-(1 << 62))


def is_clients(session: int) -> bool:
    """Whether a session is a client's."""
    return session >= 0


def is_brokers(session: int) -> bool:
    """Whether a session is the broker's own."""
    return session < 0


def brokers_session(number: int) -> SessionId:
    """The session of the broker's own that has this number of its counter."""
    return SessionId(-number)


def durable_session(number: int) -> SessionId:
    """The session in which a durable subscription is announced."""
    return SessionId(-number)


def durable_number(session: int) -> int:
    """The number of the durable subscription that is announced in a session; no subscription has it if none is."""
    return -session
