"""Whose turn it is to have something evaluated, and at whose expense."""

from __future__ import annotations

from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import SECOND_NS
from veena.core.delivery.evaluations import BURST, Evaluations
from veena.core.interest.constraint import make_want
from veena.matching.base.verdict import Verdict
from veena.matching.base.work import OUTSIDE_WORK

MANY = 40
SHARED = "//b[. = 1][//b]"


class Stand:
    """Evaluations, a worker that answers when it is told to, and who has got a verdict."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.evaluations = Evaluations(self.effects)
        self.told: list[str] = []
        self.left: set[str] = set()

    def ask(self, user: str, text: str, name: str) -> None:
        want = make_want("xpath", (text, {}), 1)
        self.evaluations.ask(
            user, want, "<b/>", lambda *_: self.told.append(name), lambda: name not in self.left, now_ns=0
        )
        self.evaluations.check()

    def answer(self, now_ns: int = 0, verdict: Verdict = Verdict.TRUE, work: int = OUTSIDE_WORK) -> str:
        """The worker has done what it was given first: which expression that was."""
        (asked, *rest) = [effect for effect in self.effects if isinstance(effect, Evaluate)]
        self.effects[:] = rest
        self.evaluations.on_evaluated(Evaluated(asked.ticket, verdict, work), now_ns)
        self.evaluations.check()
        assert isinstance(asked.constraint, tuple)
        return asked.constraint[0]


def test_nobody_waits_behind_what_another_asked_for_first() -> None:
    """One user asks for a lot, at last for what another one wants, too: that one has a turn of its own."""
    stand = Stand()
    for number in range(MANY):
        stand.ask("mallory", f"//b[. = -{number}][//b]", f"mallory {number}")
    stand.ask("mallory", SHARED, "mallory")
    stand.ask("honest", SHARED, "honest")
    done = [stand.answer() for _ in range(4)]
    assert "honest" in stand.told
    assert "mallory" in stand.told, "it is evaluated once, for both"
    assert done.count(SHARED) == 1
    while any(isinstance(effect, Evaluate) for effect in stand.effects):
        assert stand.answer(work=0) != SHARED


def test_nobody_waits_until_another_has_paid_back() -> None:
    """One user has spent its budget: what it shares with another is evaluated at the other's expense."""
    stand = Stand()
    for number in range(BURST // OUTSIDE_WORK + 2):
        stand.ask("mallory", f"//b[. = -{number}][//b]", f"mallory {number}")
    while any(isinstance(effect, Evaluate) for effect in stand.effects):
        stand.answer()
    stand.ask("mallory", SHARED, "mallory")
    assert not stand.effects, "it has to wait"
    stand.ask("honest", SHARED, "honest")
    assert stand.answer() == SHARED
    assert stand.told[-2:] == ["mallory", "honest"]
    assert stand.evaluations.waiting("mallory") == 1
    stand.evaluations.tick(100 * SECOND_NS)
    assert stand.answer() != SHARED, "it was evaluated once"
    assert not stand.effects


def test_what_failed_is_begun_again_for_all_who_wait() -> None:
    """Also for who asked while it was under way; each gets one verdict, the payer pays for the failures."""
    stand = Stand()
    stand.ask("mallory", SHARED, "mallory")
    stand.ask("honest", SHARED, "honest")
    assert stand.answer(verdict=Verdict.FAILED) == SHARED
    stand.left.add("mallory")
    assert stand.answer() == SHARED
    assert stand.told == ["honest"]
    assert not stand.effects


def test_what_nobody_waits_for_any_more_is_forgotten_wherever_it_waits() -> None:
    stand = Stand()
    for number in range(MANY):
        stand.ask("mallory", f"//b[. = -{number}][//b]", f"mallory {number}")
        stand.ask("honest", f"//b[. = -{number}][//b]", f"honest {number}")
    stand.left |= {f"{user} {number}" for user in ("mallory", "honest") for number in range(MANY)}
    for user in ("mallory", "honest"):
        stand.evaluations.drop_dead(user)
        stand.evaluations.check()
    assert stand.evaluations.waiting("mallory") == stand.evaluations.waiting("honest") == 0
