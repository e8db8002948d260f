"""Epochs, numbers and serials follow the clock: nobody can use them up, and wrong clocks are diagnosed."""

from __future__ import annotations

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.liars import Liar
from veena.core.boundary.settings import SECOND_NS
from veena.core.trust.epochs import AHEAD_NS, FREE, WAIT_NS, Epochs, first_number
from veena.core.wire.interest import Interest, Row, Version
from veena.errors import ClockDiffers, RefusalCode

NOON_NS = 1_760_000_000 * SECOND_NS
WHO = (0, 0, 0, 1)


def frame(version: Version) -> Interest:
    return Interest((Row(WHO, b"key", version, False, 1, b"", 1),))


def test_an_epoch_is_the_time_or_above_what_was_said() -> None:
    epochs = Epochs(NOON_NS)
    assert epochs.epoch(0, 0) == NOON_NS // 1_000_000
    assert epochs.epoch(NOON_NS // 1_000_000 + 5, 0) == NOON_NS // 1_000_000 + 6


@pytest.mark.parametrize("is_number", [False, True])
def test_a_minute_ahead_is_believed_and_another_waited_for(is_number: bool) -> None:
    epochs = Epochs(NOON_NS)

    def ahead(ahead_ns: int) -> Interest:
        time_ns = NOON_NS + ahead_ns
        return frame((1, WHO, time_ns // 1000) if is_number else (time_ns // 1_000_000, WHO, 1))

    assert epochs.wait_for(ahead(-AHEAD_NS), 0) == 0
    assert epochs.wait_for(ahead(AHEAD_NS), 0) == 0 and epochs.early == 0
    assert epochs.wait_for(ahead(AHEAD_NS + SECOND_NS), 0) == SECOND_NS
    assert epochs.wait_for(ahead(AHEAD_NS + WAIT_NS), 0) == WAIT_NS
    with pytest.raises(ClockDiffers, match="121 s ahead of this broker's clock") as error:
        epochs.wait_for(ahead(AHEAD_NS + WAIT_NS + SECOND_NS), 0)
    assert error.value.code is RefusalCode.CLOCK and epochs.early == 3


def test_numbers_of_every_life_are_below_those_that_are_times() -> None:
    assert first_number(1) < first_number(2) < first_number(1 << 40) < FREE < NOON_NS // 1000
    assert Epochs(NOON_NS).is_credible((1, WHO, first_number(1 << 40)), 0)


def reader_and_writer(found: Stage) -> tuple[int, int]:
    return found.subscribe("0"), found.attach("2", "publisher")


def test_a_broker_whose_clock_is_wrong_is_not_cut_out() -> None:
    """Its clock is an hour behind, or a minute and a half ahead, from a start on; when it is set, all is as it was."""
    for clock_ns in (-3600 * SECOND_NS, 90 * SECOND_NS, 3600 * SECOND_NS):
        found = Stage(cluster([(0, 1), (1, 2), (0, 2)]))
        address = found.addresses["1"]
        found.world.set_clock(address, clock_ns)
        found.world.crash(address, silent=False)
        found.wait(SECOND_NS)
        found.world.start(address)
        found.wait(5 * SECOND_NS)
        reader, publisher = reader_and_writer(found)
        found.wait(25 * SECOND_NS)
        found.publish(publisher, "others go on")
        found.wait(SECOND_NS)
        assert found.bodies[reader] == ["others go on"]
        found.world.set_clock(address, 0)
        found.wait(30 * SECOND_NS)
        here, there = found.subscribe("1"), found.attach("1", "writer")
        found.wait(25 * SECOND_NS)
        found.publish(publisher, "to it")
        found.publish(there, "from it")
        found.wait(2 * SECOND_NS)
        assert sorted(found.bodies[here]) == ["from it", "to it"]
        assert sorted(found.bodies[reader]) == ["from it", "others go on", "to it"]


def test_a_serial_in_anothers_name_is_counted_on_from() -> None:
    """Claims in the name of a broker that it did not make: it claims anew, above them."""
    found = Stage(cluster([(0, 1), (1, 2)]))
    reader, publisher = reader_and_writer(found)
    found.wait()
    liar, name = Liar(found, "1"), found.addresses["2"]
    found.wait_ms(500)
    liar.say(liar.has_everything(name, found.addresses["0"], found.addresses["0"]), liar.resigns(name))
    found.wait(SECOND_NS)
    record = found.broker("0").profiles.claims.record(name, name)
    assert record is not None and not record.last and found.broker("2").profiles.claimant.forged > 0
    marks, table = record.marks, found.broker("2").profiles.table
    assert marks[found.addresses["0"]] == table.marks(found.addresses["0"])
    liar.leave()
    found.wait(SECOND_NS)
    found.publish(publisher, "still there")
    found.wait(SECOND_NS)
    assert found.bodies[reader] == ["still there"]
