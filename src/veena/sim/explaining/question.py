"""A question about an event and a client, and what is found to be true of it (`truth`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from veena.address import Address, Unit, format_address
from veena.core.boundary.explain import Reason, Verdict
from veena.core.boundary.settings import SECOND_NS
from veena.event import EventId
from veena.sim.clients.traffic import Publication
from veena.sim.explaining.stays import Name, Somebody


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason that is true, with everything about it that is certain."""

    reason: Reason
    at_ns: int | None = None
    broker: Address | None = None
    unit: Unit | None = None
    level: int | None = None
    words: str = ""
    #: Not before this time, where it is not known to the moment.
    earliest_ns: int = 0

    def agrees(self, verdict: Verdict) -> bool:
        return (
            self.reason is verdict.reason
            and self.at_ns in (None, verdict.at_ns)
            and self.broker in (None, verdict.broker)
            and self.unit in (None, verdict.unit)
            and self.level in (None, verdict.level)
            and self.words in verdict.text
            and self.earliest_ns <= verdict.at_ns
        )

    def __str__(self) -> str:
        at = "" if self.at_ns is None else f" at {self.at_ns / SECOND_NS:.3f} s"
        where = "" if self.broker is None else f" at broker {format_address(self.broker)}"
        unit = "" if self.unit is None else f" for {format_address(self.unit)}"
        return f"{self.reason.value}{at}{where}{unit}{' level ' + str(self.level) if self.level else ''} {self.words!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What became of this event for that client?"""

    publication: Publication
    client: Somebody
    asker: Address
    asked_ns: int
    #: Whether everybody alive was asked in the same moment, whatever links there are.
    at_once: bool
    #: The brokers that working links joined to the asker's then.
    around: frozenset[Address]
    #: Under which of its ids it was asked for; None for all.
    event_id: EventId | None = None
    #: What was true for each subscription since it was asked, as far as it was looked at.
    findings: dict[Name, dict[Finding, None]] = field(default_factory=dict)
    #: The same of the last look alone.
    latest: dict[Name, list[Finding]] = field(default_factory=dict)
    #: Where it waited for a way to which unit, since when.
    routeless: dict[Finding, None] = field(default_factory=dict)
    #: Who awaited word of a copy that had come.
    awaiting: dict[Finding, None] = field(default_factory=dict)
