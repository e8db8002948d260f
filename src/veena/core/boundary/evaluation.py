"""Inputs and Effects for constraints that cost more than a broker's loop may spend: they are evaluated outside of it.

The driver is a peer here as it is for the disk: `Evaluate(ticket)` out, `Evaluated(ticket)` in, in any order.
`inputs_effects` counts them among its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.matching.base.engine import Constraint
from veena.matching.base.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate a constraint on an event's document outside of the loop, and answer `Evaluated` with the ticket.

    Of all engines the one for XPath alone leaves anything open, and it looks at nothing but the document.
    """

    ticket: int
    engine: str
    constraint: Constraint
    document: str | bytes
    #: What may be spent on it.
    work: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What it came to, and the work that was spent."""

    ticket: int
    verdict: Verdict
    work: int = 0
