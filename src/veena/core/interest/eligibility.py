"""Whether a client may have, and can use, an event: its device and its clearances (PRF-03).

A client states attributes when it attaches:

    device        the class of its device, such as `pager` or `desktop`
    capabilities  what the device can do, separated by commas, such as `text,video`
    cpu           how fast it is, as a number
    clearances    the labels it is cleared for, separated by commas

and an event states in its headers what it asks for:

    needs         capabilities, separated by commas: a client that lacks one of them is passed over
    needs_cpu     a number: a client with a slower device is passed over
    clearance     one label: a client that was not given it is passed over

What a device can do is the client's own word, there to spare it what it cannot show. A client that says nothing of its
device is sent everything, a class of `DEVICES` stands for its capabilities, and a list of capabilities is taken as it
is. The device `none` shows nothing: such a client is sent no event at all, and what it wants is told like anybody's, so
that others' wants are covered by it (AGG-01). A clearance is the other way round: who has none gets nothing that asks
for one. Labels have no order; a client that is cleared for `secret` and `public` lists both. Whoever attaches clients
must vouch for their clearances.

The invariant: attributes widen nothing and narrow nothing in what is told to other brokers. They are tested at the end
only, so that a profile is the same want on every device, and what climbs does not grow with the number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from veena.errors import LocalProtocolError
from veena.event import Event, Value

#: The devices of the papers and what each can do; a class that is not here can do everything unless it lists less.
DEVICES: dict[str, frozenset[str]] = {
    "pager": frozenset(("text",)),
    "phone": frozenset(("text", "audio")),
    "handheld": frozenset(("text", "audio", "image")),
    "desktop": frozenset(("text", "audio", "image", "video")),
}
#: The device of a client that speaks for others and takes no events.
NO_DEVICE = "none"
#: Attributes of one client and characters of one: a description, not a document.
MAX_ATTRIBUTES = 32
MAX_ATTRIBUTE_LENGTH = 1024

NEEDS, NEEDS_CPU, CLEARANCE = "needs", "needs_cpu", "clearance"
#: The header that holds the type of an event.
TYPE = "type_name"
#: Headers of a dead letter: topic and type of its event, and for whom that was, if it named its receivers.
OF_TOPIC, OF_TYPE, OF_TO = "of_topic", "of_type", "of_to"


class Restriction(NamedTuple):
    """What decides who may have an event: rules of access and clearances look at nothing else of it."""

    topic: str | None
    type_name: str | None
    clearance: str | None
    #: What a dead letter says of its event.
    of: tuple[str | None, ...]


def restriction_of(topic: str | None, headers: Mapping[str, Value]) -> Restriction:
    """The restriction of an event with this topic and these headers."""
    of = tuple(None if headers.get(name) is None else str(headers[name]) for name in (OF_TOPIC, OF_TYPE, OF_TO))
    clearance = headers.get(CLEARANCE)
    return Restriction(topic, type_named(headers), None if clearance is None else str(clearance).strip(), of)


def type_named(headers: Mapping[str, Value]) -> str | None:
    """The type that the headers name, with or without the sign that constraints put before it.

    An event may have both. Then it is the one with the sign, as for the engine `constraint`: were it the other one, an
    event of a denied type could be published under the name of an allowed one.
    """
    marked = "$" + TYPE
    kind = headers[marked] if marked in headers else headers.get(TYPE)
    return kind if isinstance(kind, str) else None


class Fitness:
    """What one client can use and may have."""

    __slots__ = ("_capabilities", "_clearances", "_cpu", "_takes")

    def __init__(self, attributes: Mapping[str, str]) -> None:
        """Raise LocalProtocolError for attributes that say nothing useful."""
        if len(attributes) > MAX_ATTRIBUTES:
            raise LocalProtocolError(f"{len(attributes)} attributes: a client has at most {MAX_ATTRIBUTES}")
        for name, value in attributes.items():
            if not isinstance(name, str) or not isinstance(value, str) or len(name + value) > MAX_ATTRIBUTE_LENGTH:
                raise LocalProtocolError(
                    f"attribute {str(name)[:80]!r}: expected a name and a text, {MAX_ATTRIBUTE_LENGTH} characters"
                )
        self._takes = attributes.get("device") != NO_DEVICE
        listed = attributes.get("capabilities")
        #: None when nothing is known against the device.
        self._capabilities = DEVICES.get(attributes.get("device", "")) if listed is None else _labels(listed)
        self._clearances = _labels(attributes.get("clearances", ""))
        self._cpu = _speed(attributes["cpu"]) if "cpu" in attributes else None

    @property
    def takes_events(self) -> bool:
        """Whether it can use an event that asks for nothing special."""
        return self._takes

    def suits(self, event: Event) -> bool:
        """Whether the event can be used here and may be had."""
        headers = event.headers
        if not headers or not self._takes:
            return self._takes
        if not self.is_cleared(headers):
            return False
        needs = headers.get(NEEDS)
        if needs is not None and self._capabilities is not None and not _labels(str(needs)) <= self._capabilities:
            return False
        return self._cpu is None or self._cpu >= _asked_speed(headers.get(NEEDS_CPU))

    def is_cleared(self, headers: Mapping[str, Value]) -> bool:
        """Whether the client was given the clearance that an event with these headers asks for."""
        clearance = headers.get(CLEARANCE)
        return clearance is None or str(clearance).strip() in self._clearances


def _labels(text: str) -> frozenset[str]:
    return frozenset(label.strip() for label in text.split(",") if label.strip())


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0.0 <= speed < float("inf"):
        raise LocalProtocolError(f"attribute 'cpu' {text[:80]!r}: expected a number from 0 up, such as 500")
    return speed


def _asked_speed(value: Value) -> float:
    """What an event asks for; what is no number asks for nothing, since events come from anybody."""
    if isinstance(value, bool | bytes) or value is None:
        return 0.0
    try:
        return float(value)
    except (ValueError, OverflowError):
        return 0.0
