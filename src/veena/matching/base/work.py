"""Work that is counted: what evaluating constraints may cost in one step, and on one event.

Time depends on the machine and its load; work does not. An engine says what an evaluation visits at most before it
begins, and the meter says whether that is within what is left. What is not has to be decided elsewhere: a broker on
the way takes it for wanted, the broker of the subscriber evaluates it outside of its loop.

The unit is one node that libxml2 visits, 5 to 40 ns; what Python visits counts as `PYTHON_WORK` of these.

The invariant: `spent` never exceeds the limit by more than what was begun without asking (one walk over a document).
"""

from __future__ import annotations

#: One element that Python code looks at.
PYTHON_WORK = 20
#: One event: 5 to 15 ms at worst.
EVENT_WORK = 400_000
#: One step, of however many events: below 50 ms also where several parts look at its events.
STEP_WORK = 1_000_000
#: One constraint on one event: not one expression may take what all others could be answered with.
EVALUATION_WORK = 100_000
#: One constraint on one event, evaluated by itself outside of a broker's loop: 0.3 to 2 s. What costs more is not
#: evaluated anywhere.
OUTSIDE_WORK = 50_000_000
#: What explain says of an evaluation that is not within the budget of an event.
TOO_MUCH = "evaluating it on this document costs more than is spent on one event at once"
#: What nobody bounds.
UNLIMITED = 1 << 62


class OverBudget(Exception):
    """There is more to do than is left to spend."""


class Meter:
    """What may be spent; `begin` for each step, `event` for each event of it."""

    __slots__ = ("_event_end", "_step_end", "document", "evaluation", "spent")

    def __init__(self, evaluation: int = EVALUATION_WORK) -> None:
        #: All work so far.
        self.spent = 0
        self.evaluation = evaluation
        #: What it costs to search the document of this event once, without Python looking at its nodes.
        self.document = 0
        self._step_end = self._event_end = UNLIMITED

    def begin(self) -> None:
        """A new step, with its first event."""
        self._step_end = self.spent + STEP_WORK
        self.event()

    def event(self) -> None:
        """The next event of this step."""
        self._event_end = min(self.spent + EVENT_WORK, self._step_end)

    def take(self, work: int) -> None:
        """Spend this, which has to be done in any case; raise OverBudget if it was more than is left."""
        self.spent += work
        if self.spent > self._event_end:
            raise OverBudget

    def affords(self, work: int) -> bool:
        """Spend this on one evaluation if it is within what is left."""
        if work > self.evaluation or self.spent + work > self._event_end:
            return False
        self.spent += work
        return True


def unlimited() -> Meter:
    """A meter that counts and bounds nothing."""
    return Meter(UNLIMITED)
