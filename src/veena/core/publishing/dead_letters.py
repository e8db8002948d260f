"""Dead letters: what is published about an event that was given up for some units."""

from __future__ import annotations

from veena.address import Address, Unit
from veena.core.interest.eligibility import CLEARANCE, OF_TO, OF_TOPIC, OF_TYPE, type_named
from veena.core.wire.event import EventFrame
from veena.errors import InvalidEvent
from veena.event import Event, EventId, Value

#: Where events go that could not be delivered in time.
DEAD_LETTERS = "veena.dead-letters"
#: How much of the names of an event's receivers a letter bears.
MAX_OF_TO = 1024


def dead_letter(
    frame: EventFrame, units: tuple[Unit, ...], reason: str, host: Address, incarnation: int, number: int, now_ns: int
) -> Event:
    """The letter number so much of a broker: for these units the event was given up.

    It bears topic, type, clearance and receivers of its event: who may not read that gets no letter of it either
    (`eligibility`, `runtime.access.rights`). Of an event that cannot be read it holds no body.
    """
    headers: dict[str, Value] = {"reason": reason, "event": str(frame.id)}
    body = b""
    try:
        section = frame.section
    except InvalidEvent:
        pass
    else:
        body = bytes(frame.body)
        of = {
            OF_TOPIC: section.topic,
            OF_TYPE: type_named(section.headers),
            OF_TO: ",".join(section.to)[:MAX_OF_TO] or None,
            CLEARANCE: section.headers.get(CLEARANCE),
        }
        headers |= {name: value for name, value in of.items() if value is not None}
    return Event(
        topic=DEAD_LETTERS,
        headers=headers,
        properties={"units": ",".join(".".join(map(str, unit)) for unit in units)},
        body=body,
        event_id=EventId(f"{DEAD_LETTERS}.{'.'.join(map(str, host))}", incarnation, now_ns, number),
        timestamp_ns=now_ns,
    )
