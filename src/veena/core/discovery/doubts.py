"""Advertisements about which the XPath of a query costs more than a slice may spend: the broker's worker judges them.

The asker pays: its user, or for a query of another broker that broker, has a budget of such work. What the worker
does not decide in time, or finds too much, stays undecided, and the answer says how many these are.

The invariant: each advertisement that was put here is matched, does not match, or is undecided, once.
"""

from __future__ import annotations

from collections.abc import Callable

from veena.address import Address
from veena.core.discovery.advertisement import document_of
from veena.core.interest.constraint import Want
from veena.core.wire.discovery import Advertisement
from veena.matching.base.verdict import Verdict

#: Advertisements of one search that are put to the worker; what is beyond that is undecided at once.
MAX_DOUBTS = 32

#: Evaluates a want on a document at the expense of a user, and says so while somebody waits (`delivery.evaluations`).
AskWorker = Callable[[str, Want, str | bytes, Callable[[Verdict, int], None], Callable[[], bool], int], None]


class Doubts:
    """Those of one search."""

    def __init__(self, ask: AskWorker, user: str, want: Want | None, is_live: Callable[[], bool]) -> None:
        self._ask, self._user, self._want = ask, user, want
        self._is_live = is_live
        self._asked = self._answered = 0
        self._is_closed = False
        self.undecided = 0
        self.matched: list[tuple[Address, Advertisement]] = []

    @property
    def is_open(self) -> bool:
        """Whether a verdict is waited for."""
        return self._answered < self._asked and self._is_live()

    def put(self, home: Address, advert: Advertisement, now_ns: int) -> None:
        """Have this one judged."""
        if self._asked >= MAX_DOUBTS:
            self.undecided += 1
            return
        self._asked += 1

        def then(verdict: Verdict, then_ns: int) -> None:
            self._answered += 1
            self.undecided += verdict is Verdict.TOO_MUCH
            if verdict is Verdict.TRUE:
                self.matched.append((home, advert))

        assert self._want is not None, "conditions are decided at once"
        self._ask(self._user, self._want, document_of(advert), then, self._is_waited_for, now_ns)

    def _is_waited_for(self) -> bool:
        return not self._is_closed and self._is_live()

    def close(self) -> int:
        """Wait no longer; how many are undecided."""
        self._is_closed = True
        return self.undecided + self._asked - self._answered
