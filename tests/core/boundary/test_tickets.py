"""Tickets of the disk: one an input, answered once; what cannot be refused to anybody is written until it is there."""

from __future__ import annotations

import pytest

from veena.core.boundary.stored import Known, LastHad
from veena.core.boundary.tickets import Ledger
from veena.errors import LocalProtocolError

PLACE = LastHad(("publisher", 1, 3), (1, 1))


def test_one_ticket_an_input_answered_once() -> None:
    ledger = Ledger()
    done: list[int] = []
    ledger.write(PLACE, done.append)
    ledger.write(Known(()))
    (store,) = ledger.flush()
    assert store.writes == (PLACE, Known(()))
    assert ledger.flush() == []
    ledger.stored(store.ticket, 7)
    assert done == [7]
    with pytest.raises(LocalProtocolError, match="answered before"):
        ledger.stored(store.ticket, 8)


def test_a_failure_is_told_to_who_can_refuse() -> None:
    ledger = Ledger()
    told: list[str] = []
    ledger.write(PLACE, lambda now_ns: told.append("done"), lambda reason, now_ns: told.append(reason))
    (store,) = ledger.flush()
    ledger.failed(store.ticket, "disk full", 1)
    ledger.write_again()
    assert told == ["disk full"]
    assert ledger.flush() == [], "it is not written again"


def test_a_stubborn_write_is_tried_until_the_disk_takes_it() -> None:
    """I5: what was taken on for others is not lost because the disk was full for a while."""
    ledger = Ledger()
    done: list[int] = []
    ledger.write(PLACE, done.append, stubborn=True)
    for _ in range(3):
        (store,) = ledger.flush()
        assert store.writes == (PLACE,)
        ledger.failed(store.ticket, "disk full", 1)
        assert ledger.flush() == [], "not before it is asked to"
        ledger.write_again()
    (store,) = ledger.flush()
    ledger.stored(store.ticket, 9)
    assert done == [9]
    ledger.write_again()
    assert ledger.flush() == []
