"""Who steers: one driver at a time, with hand-over, time-out and a record of who steered what.

Two who steer one simulation at once undo each other's work and understand nothing. So there is one wheel an
application. Who takes it has it until it is released, handed over, or its driver is silent for `timeout_ns`: a driver
that fell asleep must not stop all others. A program that drives for somebody says again and again that it is there
(`stay`); when it stops saying so for `absent_ns` it has died or was cut off, and the wheel is free that much earlier.
Who never says so (a client of one's own making) is given the whole time. Both ends are noticed when anybody looks;
nothing needs a timer. Who handed it to somebody that does not answer (a name with a slip of the pen) may take it back.

Everything may be said twice: who has the wheel may take it again, who has none may release it, and the same hand-over
again is done. So a command that is repeated because its answer was lost does no harm.

The invariant: at every moment at most one has it, and each change of hands stands in the records, in order.

Rejected: a queue of those who wait for the wheel. People talk to each other about whose turn it is; a queue would hand
the wheel to somebody who has gone for lunch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from veena.services.structured import Scalar

Action = Literal["take", "release", "hand_over", "change", "expire", "depart"]
#: Two minutes without a sign of the driver.
TIMEOUT_NS = 120 * 10**9
#: How often a driver's program says that it is there, and after what silence it has gone: two may get lost.
PRESENT_S = 10.0
ABSENT_NS = 30 * 10**9
#: What is kept of the past here; the whole of it is in the events that are made of the records.
MAX_RECORDS = 1000
#: A value in a record is to be read by people.
MAX_VALUE_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Record:
    """Something that was asked for or happened at the wheel."""

    #: 1, 2, 3, ...: where it stands among all records of this lock.
    number: int
    at_ns: int
    action: Action
    by: str
    is_granted: bool
    #: Who drives afterwards; empty when nobody does.
    driver: str
    reason: str = ""
    parameter: str = ""
    value: Scalar | None = None

    def fields(self) -> dict[str, Scalar]:
        """The filterable body of the event Monitoring/record that tells of it."""
        told: dict[str, Scalar] = {
            "number": self.number,
            "at": self.at_ns,
            "action": self.action,
            "by": self.by,
            "answer": "done" if self.is_granted else "refused",
            "driver": self.driver,
        }
        if self.reason:
            told["reason"] = self.reason
        if self.parameter:
            told["parameter"] = self.parameter
        if self.value is not None:
            told["value"] = self.value
        return told


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a wish; when it is refused, `reason` says why and what to do."""

    is_granted: bool
    #: Who drives afterwards.
    driver: str | None
    reason: str = ""


class SteeringLock:
    """The wheel of one application."""

    def __init__(
        self, timeout_ns: int = TIMEOUT_NS, max_records: int = MAX_RECORDS, absent_ns: int = ABSENT_NS
    ) -> None:
        if timeout_ns <= 0:
            raise ValueError(f"timeout_ns {timeout_ns}: expected nanoseconds above 0")
        self._timeout_ns, self._absent_ns = timeout_ns, absent_ns
        self._driver: str | None = None
        #: When the driver was last heard of; it means nothing without a driver.
        self._heard_ns = 0
        #: When the driver's program last said that it is there; None when this one never did.
        self._present_ns: int | None = None
        #: The last hand-over, so that the same one again is no fault.
        self._handed: tuple[str, str] | None = None
        #: Whether the driver did anything itself since it was given the wheel.
        self._is_confirmed = True
        self._records: deque[Record] = deque(maxlen=max_records)
        self._untold: deque[Record] = deque(maxlen=max_records)
        self._number = 0

    # --- whose it is ---

    def driver(self, now_ns: int) -> str | None:
        """Who drives now."""
        if self._driver is not None and now_ns - self._heard_ns >= self._timeout_ns:
            self._free(now_ns, "expire", f"nothing was heard of {self._driver!r} for {self._timeout_ns / 1e9:g} s")
        elif self._present_ns is not None and now_ns - max(self._present_ns, self._heard_ns) >= self._absent_ns:
            self._free(
                now_ns, "depart", f"the program of {self._driver!r} has gone: silent for {self._absent_ns / 1e9:g} s"
            )
        return self._driver

    def _free(self, now_ns: int, action: Action, reason: str) -> None:
        """The driver has the wheel no longer, without having said so."""
        gone, self._driver, self._handed, self._present_ns = self._driver or "", None, None, None
        self._note(now_ns, action, gone, True, reason)

    def remaining_ns(self, now_ns: int) -> int | None:
        """How long the driver may stay silent; None when nobody drives."""
        return None if self.driver(now_ns) is None else self._heard_ns + self._timeout_ns - now_ns

    def touch(self, who: str, now_ns: int) -> None:
        """Something was heard of a client: if it drives, its time begins anew."""
        if self.driver(now_ns) == who:
            self._heard_ns, self._is_confirmed = max(self._heard_ns, now_ns), True

    def stay(self, who: str, now_ns: int) -> None:
        """A client's program is still there, whether or not anybody sits before it: that is no sign of the driver."""
        if self.driver(now_ns) == who:
            self._present_ns = now_ns

    # --- what clients ask for ---

    def take(self, who: str, now_ns: int) -> Outcome:
        """Take the wheel; granted when it is free, one's own, or handed to somebody who has not touched it yet."""
        driver = self.driver(now_ns)
        if driver == who:
            self.touch(who, now_ns)
            return Outcome(True, who)
        if driver is not None and (self._is_confirmed or self._handed != (who, driver)):
            return self._refuse(now_ns, "take", who, self._held(driver, now_ns))
        self._driver, self._heard_ns, self._handed, self._is_confirmed = who, now_ns, None, True
        self._present_ns = None
        return self._grant(now_ns, "take", who)

    def release(self, who: str, now_ns: int) -> Outcome:
        """Let go; nothing is to be done when one does not drive and nobody else does."""
        driver = self.driver(now_ns)
        if driver is None or (driver != who and self._handed == (who, driver)):
            return Outcome(True, driver)
        if driver != who:
            return self._refuse(now_ns, "release", who, f"{driver!r} drives, not {who!r}: only the driver lets go")
        self._driver = self._handed = self._present_ns = None
        return self._grant(now_ns, "release", who)

    def hand_over(self, who: str, to: str, now_ns: int) -> Outcome:
        """Give the wheel to another client, whose time begins now."""
        driver = self.driver(now_ns)
        if driver == to and (who == to or self._handed == (who, to)):
            self.touch(who, now_ns)
            return Outcome(True, to)
        if driver != who:
            reason = "nobody drives: take the wheel first" if driver is None else self._held(driver, now_ns)
            return self._refuse(now_ns, "hand_over", who, reason)
        self._driver, self._heard_ns, self._handed, self._is_confirmed = to, now_ns, (who, to), False
        self._present_ns = None
        return self._grant(now_ns, "hand_over", who)

    def steer(self, who: str, parameter: str, value: Scalar, now_ns: int) -> Outcome:
        """Ask whether a client may change a parameter now; it is written down either way."""
        driver = self.driver(now_ns)
        shown = value[:MAX_VALUE_LENGTH] if isinstance(value, str) else value
        if driver == who:
            self.touch(who, now_ns)
            return self._grant(now_ns, "change", who, parameter, shown)
        reason = "nobody drives: take the wheel first" if driver is None else self._held(driver, now_ns)
        return self._refuse(now_ns, "change", who, reason, parameter, shown)

    # --- what happened ---

    @property
    def records(self) -> tuple[Record, ...]:
        """The last records, oldest first."""
        return tuple(self._records)

    def untold(self) -> list[Record]:
        """The records since this was asked last, oldest first: each is to be published once."""
        told = list(self._untold)
        self._untold.clear()
        return told

    def _held(self, driver: str, now_ns: int) -> str:
        left = (self._heard_ns + self._timeout_ns - now_ns) / 1e9
        return f"{driver!r} drives: ask for a hand-over, or wait; the wheel is free after {left:.0f} s of silence"

    def _grant(
        self, now_ns: int, action: Action, who: str, parameter: str = "", value: Scalar | None = None
    ) -> Outcome:
        self._note(now_ns, action, who, True, "", parameter, value)
        return Outcome(True, self._driver)

    def _refuse(
        self, now_ns: int, action: Action, who: str, reason: str, parameter: str = "", value: Scalar | None = None
    ) -> Outcome:
        self._note(now_ns, action, who, False, reason, parameter, value)
        return Outcome(False, self._driver, reason)

    def _note(
        self,
        now_ns: int,
        action: Action,
        who: str,
        is_granted: bool,
        reason: str,
        parameter: str = "",
        value: Scalar | None = None,
    ) -> None:
        self._number += 1
        record = Record(self._number, now_ns, action, who, is_granted, self._driver or "", reason, parameter, value)
        self._records.append(record)
        self._untold.append(record)
