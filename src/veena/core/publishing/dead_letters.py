"""Events that could not be delivered in time: each is published again, under a topic of its own, with the reason."""

from __future__ import annotations

from veena.address import Address, Unit
from veena.core.wire.event import EventFrame
from veena.event import Event, EventId

#: Where events go that could not be delivered in time.
DEAD_LETTERS = "veena.dead-letters"


def dead_letter(
    frame: EventFrame, units: tuple[Unit, ...], reason: str, host: Address, incarnation: int, number: int, now_ns: int
) -> Event:
    """The letter number so much of a broker: for these units the event was given up."""
    return Event(
        topic=DEAD_LETTERS,
        headers={"reason": reason, "event": str(frame.id)},
        properties={"units": ",".join(".".join(map(str, unit)) for unit in units)},
        body=bytes(frame.body),
        event_id=EventId(f"{DEAD_LETTERS}.{'.'.join(map(str, host))}", incarnation, now_ns, number),
        timestamp_ns=now_ns,
    )
