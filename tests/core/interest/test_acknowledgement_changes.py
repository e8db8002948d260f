"""Subscriptions are acknowledged although what stands for them changes on the way (ACT)."""

from __future__ import annotations

import pytest

from tests.core.interest.test_activation import SYSTEM, Listening
from veena.core.boundary.inputs_effects import ClientUp, Subscribe, Unsubscribe
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import Network, make_network


def three() -> Network:
    """Two clusters in one super-cluster, and a third in another."""
    links = [("S.C.a.1", "S.C.a.2"), ("S.C.a.2", "S.C.b.3"), ("S.C.a.2", "S.D.c.4")]
    return make_network("three", ["S.C.a.1", "S.C.a.2", "S.C.b.3", "S.D.c.4"], links)


@pytest.mark.parametrize(("lost", "before"), [("S.C.b.3", [1]), ("S.D.c.4", [1, 2])])
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (("topic", "q"), ("selector", ("q", "price > 3"))),
        (("xpath", "/menu/drink[price > 0]"), ("xpath", "/menu/drink[price > 1]")),
        (("constraint", "price > 0"), ("constraint", "price > 5 and sym == 's1'")),
        (("tags", "make=Ford,colour=*"), ("tags", "make=Ford,colour=red")),
    ],
)
def test_a_wider_want_may_go_before_all_have_heard_of_it(
    wide: tuple[str, Constraint], narrow: tuple[str, Constraint], lost: str, before: list[int]
) -> None:
    """AGG-07: the narrow want is told when the wide one goes, and is then what the rest has to hear of."""
    listening = Listening(three())
    a1 = listening.at("S.C.a.1")
    listening.world.crash(listening.at(lost), silent=True)
    for session, want in ((1, wide), (2, narrow)):
        listening.world.give(a1, ClientUp(session, f"client-{session}"))
        listening.world.give(a1, Subscribe(session, 1, *want, SYSTEM))
        listening.run(6)  # until the gatekeeper no longer waits for the confirmation of one who is lost beyond its link
    assert listening.levels(a1, 2) == before
    listening.world.give(a1, Unsubscribe(1, 1))
    listening.run(2)
    listening.world.start(listening.at(lost))
    listening.run(20)
    assert listening.levels(a1, 2) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (("constraint", "price > 0"), ("constraint", "price > 5 and sym == 's1'")),
        (("tags", "make=Ford,colour=*"), ("tags", "make=Ford,colour=red")),
    ],
)
def test_a_wider_want_may_come_while_others_still_have_to_hear(
    wide: tuple[str, Constraint], narrow: tuple[str, Constraint]
) -> None:
    """AGG-07: the narrow one waits for a digest that has it; the next one has the wide want of another cluster."""
    listening = Listening(three())
    a1 = listening.at("S.C.a.1")
    for session, at, want in ((1, a1, narrow), (2, listening.at("S.C.b.3"), wide)):
        listening.world.give(at, ClientUp(session, f"client-{session}"))
        listening.world.give(at, Subscribe(session, 1, *want, SYSTEM))
    listening.run(6)
    assert listening.levels(a1, 1) == [1, 2, 3, 4]
