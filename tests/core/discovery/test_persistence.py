"""Advertisements and the disk at one broker: who is told when, what is written, what comes back, who has copies."""

from __future__ import annotations

import pytest

from tests.core.discovery.advert_cases import advert, synced
from tests.core.discovery.test_service import MATE, PATIENT, answers, asked, offer, routed, say
from tests.core.scripted_peer import HOST, neighbour, started
from veena.address import Address
from veena.core.boundary.discovery import Advertise, Advertised, AdvertRefused, Withdraw
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, LinkDown, Store, Stored, StoreFailed
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Attended, Disk, Identity, Shelved, Unshelved
from veena.core.broker import Broker
from veena.core.discovery import home_registry as shelf
from veena.core.discovery import persistence as advert_keeping
from veena.core.discovery import store as advert_store
from veena.core.discovery.advertisement import ALIVE_NS, AdvertId, id_of, withdrawal
from veena.core.discovery.home_registry import OwnShelf
from veena.core.discovery.orphaned import Estate
from veena.core.discovery.store import AdvertStore
from veena.core.wire.discovery import Shelf, ShelfMark, ShelfRequest, Standing, StandingRequest


@pytest.fixture
def broker() -> Broker:
    made = started()
    made.handle(ClientUp(1, "alice"), 0)
    return made


def test_a_client_is_told_when_the_disk_was_asked(broker: Broker) -> None:
    """TRD-05: an advertisement stands for good when that is said; a disk that fails makes it no less an advertisement.
    A refusal of the same name does not overtake what was asked before it."""
    (first,) = offer(broker, "one", n=1)
    (second,) = offer(broker, "one", n=2)
    assert offer(broker, "one", scope=9, n=3) == []
    assert isinstance(first, Store) and isinstance(second, Store)
    assert broker.handle(Stored(first.ticket), 0) == [Advertised(1, "one")]
    told = broker.handle(StoreFailed(second.ticket, "the disk is full"), 0)
    assert [type(each) for each in told] == [Advertised, AdvertRefused]
    assert [row.values for row in answers(asked(broker))[0].rows] == [(2,)]
    assert [type(each) for each in offer(broker, "one", scope=9, n=3)] == [AdvertRefused]
    broker.check()


def test_a_disk_that_does_not_keep_up_is_not_given_more(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: who advertises faster than the disk writes is told to wait."""
    monkeypatch.setattr(advert_keeping, "MAX_WAITING_BYTES", 100)
    first = [*offer(broker, "one", n=1), *offer(broker, "two", n=2)]
    (refused,) = offer(broker, "three", n=3)
    assert isinstance(refused, AdvertRefused) and "wait for this broker's disk" in refused.reason
    synced(broker, first)
    assert synced(broker, offer(broker, "three", n=3)) == [Advertised(1, "three")]


@pytest.mark.parametrize(("given", "own"), [(ClientDown(1), 0), (ClientDown(1, dismissed=True), 1)])
def test_a_broker_that_stops_keeps_what_its_clients_did_not_take_back(
    broker: Broker, given: ClientDown, own: int
) -> None:
    """DSC-01: a goodbye of the client is its own word, one of the broker is not."""
    offer(broker, "one", n=1)
    broker.handle(given, 0)
    assert broker.statistics().discovery.own == own
    broker.check()


def test_what_would_not_outlive_a_restart_is_not_written(broker: Broker) -> None:
    """DSC-01: a lease that is over before a broker could be back costs no disk."""
    given = Advertise(1, "brief", 4, {"n": 1}, lease_s=0.5)
    assert broker.handle(given, 0) == [Advertised(1, "brief")]
    assert broker.handle(Withdraw(1, "brief"), 0) == [Advertised(1, "brief")]
    assert broker.discovery.next_wakeup() is None
    broker.check()


def test_a_deputy_holds_what_the_only_controller_holds() -> None:
    """DSC-01, TOP-17: it asks the others of its cluster as the controller does; without the controller it is elected,
    and answers at once."""
    broker = started(MATE, PATIENT)
    controller = neighbour(broker, 1, HOST)
    broker.handle(ClientUp(1, "alice"), 0)
    assert (HOST, StandingRequest(HOST, MATE)) in routed(broker.tick(SECOND_NS))
    told = Standing(HOST, HOST, MATE, 1, 1, 0, (ShelfMark(HOST, (7,) * 3, 0),))
    assert routed(say(controller, told, now_ns=SECOND_NS)) == [(HOST, ShelfRequest(1, 0, MATE))]
    say(controller, Shelf(1, 0, 7, 7, (advert("a", {"n": 1}),)), now_ns=SECOND_NS)
    broker.handle(LinkDown(1, "lost"), 2 * SECOND_NS)
    (answer,) = answers(asked(broker, now_ns=2 * SECOND_NS))
    assert [row.name for row in answer.rows] == ["a"] and answer.silent == (HOST,)
    broker.check()


def restarted(disk: Disk, now_ns: int) -> Broker:
    """A broker that finds this, with somebody who asks."""
    broker = Broker(Identity("host", HOST, 2), Settings(), lambda _: 7, now_ns, disk=disk)
    broker.handle(ClientUp(1, "user"), now_ns)
    broker.check()
    return broker


def test_a_broker_takes_up_what_has_not_ended() -> None:
    """DSC-01, TRD-05: the lease counts from when the client left, or from when the broker may have died at the latest;
    what is of no use is removed from the disk."""
    left, there = advert("left", {"n": 1}), advert("there", {"n": 2})
    disk = Disk(Identity("host", HOST, 1))
    for write in (Shelved((), left, 30 * SECOND_NS), Shelved((), there), Attended(50 * SECOND_NS)):
        disk.write(write)
    disk.write(Shelved((0, 0), advert("elsewhere", {"n": 3})))
    last_ns = 110 * SECOND_NS + ALIVE_NS
    assert [row.name for row in answers(asked(restarted(disk, 89 * SECOND_NS)))[0].rows] == ["left", "there"]
    assert [row.name for row in answers(asked(restarted(disk, 90 * SECOND_NS)))[0].rows] == ["there"]
    assert [row.name for row in answers(asked(restarted(disk, last_ns - 1)))[0].rows] == ["there"]
    late = Broker(Identity("host", HOST, 2), Settings(), lambda _: 7, last_ns, disk=disk)
    (store,) = [each for each in late.tick(last_ns) if isinstance(each, Store)]
    gone = [each for each in store.writes if isinstance(each, Unshelved)]
    assert [each.name for each in gone] == ["left", "there", "elsewhere"]
    late.check()


def test_a_clock_that_was_set_back_makes_no_lease_longer() -> None:
    """DSC-01: a broker that is back before it died, by its clock, gives what the lease says from now on."""
    disk = Disk(Identity("host", HOST, 1))
    disk.write(Shelved((), advert("there", {"n": 1})))
    disk.write(Attended(1000 * SECOND_NS))
    broker = restarted(disk, SECOND_NS)
    assert broker.discovery.shelf.next_wakeup() == 61 * SECOND_NS


def test_a_broker_with_rows_notes_that_it_lives(broker: Broker) -> None:
    """DSC-01: every few seconds, and not at all without any."""
    synced(broker, offer(broker, "one", n=1))
    (store,) = [each for each in broker.tick(ALIVE_NS) if isinstance(each, Store)]
    assert store.writes == (Attended(ALIVE_NS),)
    assert not [each for each in broker.tick(ALIVE_NS + SECOND_NS) if isinstance(each, Store)]
    broker.handle(Withdraw(1, "one"), ALIVE_NS + SECOND_NS)
    broker.tick(80 * SECOND_NS)
    assert not [each for each in broker.tick(90 * SECOND_NS) if isinstance(each, Store)]
    broker.check()


def test_withdrawals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of a shelf, and of a controller the one that would end first, make room."""
    monkeypatch.setattr(shelf, "MAX_WITHDRAWN", 2)
    monkeypatch.setattr(advert_store, "MAX_WITHDRAWN", 2)
    own, held = OwnShelf(4, 0), AdvertStore()
    for number in range(4):
        given = advert(f"ad{number}", {"n": number})
        own.put(given, 60.0)
        own.withdraw(id_of(given), 5)
        held.bury(MATE, withdrawal(given, 5 + number), 5)
        own.check()
        held.check()
    assert [each.name for each in own.page(1, 0).withdrawn] == ["ad2", "ad3"]
    assert [key[1] for key in held.ids(MATE)] == ["ad2", "ad3"]


def test_a_withdrawal_is_not_forgotten_for_another_that_comes_again_and_again() -> None:
    """DSC-01: withdrawals count that are held, not all that ever were."""
    held, given, busy = AdvertStore(), advert("offer", {"n": 1}), withdrawal(advert("busy", {"n": 1}), 6)
    held.bury(MATE, withdrawal(given, 5), 5)
    for _ in range(2 * advert_store.MAX_WITHDRAWN):
        held.bury((0, 0, 0, 2), busy, 6)
    assert held.is_withdrawn(given, 0) and len(held._withdrawn_ends) <= 2 * advert_store.MAX_WITHDRAWN
    held.expire(held.next_wakeup() or 0)
    assert not held.is_withdrawn(given, 0) and held.ids((0, 0, 0, 2)) == [id_of(busy)]
    held.check()


class Asked(AdvertStore):
    """Notes whose advertisements are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.homes: list[Address] = []

    def ids(self, home: Address) -> list[AdvertId]:
        self.homes.append(home)
        return super().ids(home)


@pytest.mark.replaces
def test_a_tick_at_which_nothing_ends_lists_nothing() -> None:
    """DSC-01: a home that is away may have left thousands."""
    held = Asked()
    estate = Estate(held)
    held.put(MATE, advert("offer", {"n": 1}))
    held.bury((0, 0, 0, 2), withdrawal(advert("gone", {"n": 1}), 0), 0)
    for home in (MATE, (0, 0, 0, 2), (0, 0, 0, 3)):
        estate.inherit(home, 0, 0)
    held.homes.clear()
    estate.expire(1)
    assert not held.homes and MATE in estate and (0, 0, 0, 2) in estate and (0, 0, 0, 3) not in estate


def test_a_home_that_flaps_leaves_no_ends_behind() -> None:
    """DSC-01: ends are kept for who is away now."""
    held = AdvertStore()
    estate = Estate(held)
    for flap in range(20):
        for number in range(10):
            held.put(MATE, advert(f"ad{number}", {"n": number}))
        estate.inherit(MATE, flap, flap)
        if flap < 19:
            estate.settle(MATE)
    assert len(estate._ends) < 100 and len(held) == 10
    estate.expire(60 * SECOND_NS + 18)
    assert len(held) == 10 and MATE in estate
    estate.expire(60 * SECOND_NS + 19)
    assert not len(held) and MATE not in estate
    held.check()
    estate.check()


def test_who_is_away_makes_room_for_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: copies of lost homes go first, of who is away longest before others."""
    monkeypatch.setattr(advert_store, "MAX_HELD", 3)
    held = AdvertStore()
    estate = Estate(held)
    for number, home in enumerate((MATE, (0, 0, 0, 2))):
        held.put(home, advert(f"ad{number}", {"n": number}))
        estate.inherit(home, SECOND_NS + number, 2 * SECOND_NS)
    page = (advert("a", {"n": 1}), advert("b", {"n": 1}))
    assert estate.make_room(page) and MATE not in estate and (0, 0, 0, 2) in estate
    assert len(held) == 1 and not estate.make_room((*page, *page))
    held.check()
    estate.check()
