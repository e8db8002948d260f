"""Structured events: header (fixed and variable) and body (filterable and remainder), carried by ordinary events.

| part | what it is | where it travels |
|---|---|---|
| fixed header (DIC-03) | `domain`, the application's name (DIC-04), `type`, `name` | headers `domain_name`, `type_name`, `event_name` |
| variable header (DIC-07) | `qos`: Priority, Reliability, Timeout, Deadline | headers of these names; Priority and Timeout also as the event's priority and ttl |
| filterable body (DIC-08) | `fields`, what constraints see beside the fixed header | properties |
| remainder body (DIC-09) | any bytes | body |

There is no topic: the engine `constraint` looks at them. `headers` are all others, such as those of a request.

A broker and a constraint read the fixed header under its name with a `$` before it where an event has that, and under
the plain name where not. So does `from_event`: who looks at the type of an event, be it for access, for matching or in
an application, sees one type.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from veena.errors import InvalidEvent
from veena.event import DEFAULT_PRIORITY, MAX_PRIORITY, Event, Value

Scalar = bool | int | float | str

DOMAIN: Final = "domain_name"
TYPE: Final = "type_name"
NAME: Final = "event_name"
FIXED: Final = (DOMAIN, TYPE, NAME)
PRIORITY: Final = "Priority"
RELIABILITY: Final = "Reliability"
TIMEOUT: Final = "Timeout"
DEADLINE: Final = "Deadline"
QOS: Final = (PRIORITY, RELIABILITY, TIMEOUT, DEADLINE)
RELIABILITIES: Final = ("reliable", "best_effort")
#: A name in the fixed header is a label, not a text.
MAX_NAME = 255
#: Ten years: longer is for ever, which is no time-out.
MAX_SECONDS = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class StructuredEvent:
    """One structured event (DIC-02)."""

    domain: str
    type: str
    name: str
    #: The filterable body.
    fields: Mapping[str, Value] = field(default_factory=dict)
    remainder: bytes = b""
    #: The variable header.
    qos: Mapping[str, Scalar] = field(default_factory=dict)
    #: Other headers, such as those that tie an answer to its question.
    headers: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for header, value in zip(FIXED, (self.domain, self.type, self.name), strict=True):
            check_name(header, value)
        check_qos(self.qos, self.label)
        for header in self.headers:
            if header.removeprefix("$") in FIXED or header in QOS:
                raise InvalidEvent(
                    f"event {self.label}: header {header!r} is a part of its own; give it as domain, type, name or qos"
                )

    @property
    def label(self) -> str:
        """`heat/Monitoring/state`: how messages call it."""
        return f"{self.domain}/{self.type}/{self.name}"

    @property
    def is_reliable(self) -> bool:
        """Whether it is to be published as reliable."""
        return self.qos.get(RELIABILITY) == "reliable"

    def to_event(self) -> Event:
        """The event that carries it; publish it with `reliable=structured.is_reliable`."""
        timeout = self.qos.get(TIMEOUT)
        return Event(
            properties=dict(self.fields),
            headers={DOMAIN: self.domain, TYPE: self.type, NAME: self.name, **self.qos, **self.headers},
            body=self.remainder,
            priority=int(self.qos.get(PRIORITY, DEFAULT_PRIORITY)),
            ttl=None if timeout is None else float(timeout),
        )

    @classmethod
    def from_event(cls, event: Event) -> StructuredEvent:
        """The structured event that an event carries; raise InvalidEvent when it carries none (DIC-03)."""
        domain, kind, name = (check_name(header, fixed_header(event, header)) for header in FIXED)
        qos: dict[str, Scalar] = {}
        others: dict[str, Value] = {}
        for header, value in event.headers.items():
            if header in QOS:
                if value is None or isinstance(value, bytes):
                    raise InvalidEvent(f"event {domain}/{kind}/{name}: {header} is {value!r:.80}; expected a scalar")
                qos[header] = value
            elif header.removeprefix("$") not in FIXED:
                others[header] = value
        return cls(domain, kind, name, dict(event.properties), bytes(event.body), qos, others)


def is_structured(event: Event) -> bool:
    """Whether an event has the whole fixed header."""
    return all(isinstance(fixed_header(event, header), str) for header in FIXED)


def fixed_header(event: Event, header: str) -> Value:
    """A part of the fixed header as constraints and rules of access see it; None when it is not there."""
    marked = "$" + header
    return event.headers[marked] if marked in event.headers else event.headers.get(header)


def is_past_deadline(event: Event, now_ns: int) -> bool:
    """Whether it comes later than its Deadline, seconds after it was published, wants it (QOS-02)."""
    deadline = event.headers.get(DEADLINE)
    if isinstance(deadline, bool) or not isinstance(deadline, int | float):
        return False
    return now_ns - event.timestamp_ns > deadline * 1e9


def check_name(header: str, value: object) -> str:
    """A name of the fixed header; raise InvalidEvent when it is none."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        found = "is missing" if value is None else f"is {value!r:.80}"
        raise InvalidEvent(f"{header} {found}; every structured event has one of 1 to {MAX_NAME} printable characters")
    return value


def check_qos(qos: Mapping[str, Scalar], label: str) -> None:
    """Raise InvalidEvent unless every name and value of the variable header is one that is obeyed."""
    for name, value in qos.items():
        match name:
            case "Priority":
                is_right = type(value) is int and 0 <= value <= MAX_PRIORITY
                expected = f"a whole number from 0 (lowest) to {MAX_PRIORITY} (highest)"
            case "Reliability":
                is_right = value in RELIABILITIES
                expected = " or ".join(RELIABILITIES)
            case "Timeout" | "Deadline":
                is_right = isinstance(value, int | float) and value is not True and 0 < value <= MAX_SECONDS
                expected = f"seconds above 0, at most {MAX_SECONDS}"
            case _:
                raise InvalidEvent(f"event {label}: quality {name!r} is not known; there are {', '.join(QOS)}")
        if not is_right:
            raise InvalidEvent(f"event {label}: {name} is {value!r:.80}; expected {expected}")
