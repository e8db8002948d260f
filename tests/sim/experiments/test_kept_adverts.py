"""Advertisements on the disks of simulated brokers: crashes, lost brokers, and what was withdrawn meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from tests.core.small_networks import random_network
from tests.sim.experiments.test_discovery import ALL, CHECKED, names, twice_two
from tests.tiers import few
from veena.address import Address
from veena.core.boundary.discovery import Advertise, Answer, Withdraw
from veena.core.boundary.inputs_effects import ClientDown
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.stored import Disk
from veena.core.discovery.advertisement import ALIVE_NS
from veena.runtime.networks.file import make_network
from veena.sim.experiments.discovery import Trial

HOUR_S = 3600.0


def at(trial: Trial, label: str) -> Address:
    return trial.network.labels.unit(label)


def offer(trial: Trial, home: Address, name: str, lease_s: float = HOUR_S, scope: int = 4, number: int = 1) -> None:
    before = trial.advertised
    trial.world.give(home, Advertise(trial.sessions[home], name, scope, {"n": number}, lease_s=lease_s))
    trial.run(SECOND_NS // 20)
    assert trial.advertised == before + 1


def lose_client(trial: Trial, home: Address) -> None:
    trial.world.give(home, ClientDown(trial.sessions[home], lost=True))


def down(trial: Trial, homes: Sequence[Address]) -> None:
    for home in homes:
        trial.world.crash(home, silent=False)


def up(trial: Trial, homes: Sequence[Address]) -> None:
    """Start brokers again; the only client that comes is one that asks."""
    for home in homes:
        trial.world.start(home)
        trial.attach(home, f"asker-{trial.network.labels.label(home)}")


def watched(trial: Trial, asker: Address, seconds: int, realm: int = 4) -> list[Answer]:
    """What is answered, asked again and again."""
    answers = []
    for _ in range(seconds * 4):
        answers.append(trial.ask(asker, ALL, realm))
        trial.run(SECOND_NS // 4)
    return answers


def shown(answers: list[Answer]) -> set[str]:
    return {row.name for answer in answers for row in answer.rows}


@pytest.fixture
def trial() -> Trial:
    """Sixteen brokers, every unit with two gates."""
    return Trial(twice_two(), options=CHECKED)


def test_everything_is_found_when_all_brokers_were_down(trial: Trial) -> None:
    """DSC-01, TRD-05: a power cut; nobody who advertised is back, and every scope is as it was."""
    homes = list(trial.world.nodes)
    for home in homes:
        for scope in range(1, 5):
            offer(trial, home, f"{trial.network.labels.label(home)}-{scope}", scope=scope)
    trial.run(5 * SECOND_NS)
    asker = at(trial, "A.1.x.p")
    before = [names(trial.ask(asker, ALL, realm)) for realm in range(1, 5)]
    down(trial, homes)
    trial.run(20 * SECOND_NS)
    up(trial, homes)
    trial.run(30 * SECOND_NS)
    answers = [trial.ask(asker, ALL, realm) for realm in range(1, 5)]
    assert all(answer.complete for answer in answers)
    assert [names(answer) for answer in answers] == before and len(before[-1]) == 30
    trial.world.check()


def test_leases_go_on_while_a_broker_is_down(trial: Trial) -> None:
    """DSC-01: by the clock on the wall; of who was there the lease begins when the broker dies."""
    home, asker = at(trial, "A.1.x.p"), at(trial, "B.1.x.p")
    trial.attach(home, "gone")
    offer(trial, home, "gone", lease_s=60)
    lose_client(trial, home)
    trial.attach(home, "there")
    for name, lease_s in (("long", 60), ("short", 10)):
        offer(trial, home, name, lease_s)
    trial.run(50 * SECOND_NS)
    down(trial, [home])
    died_ns = trial.world.now_ns
    trial.run(20 * SECOND_NS)
    up(trial, [home])
    trial.run(15 * SECOND_NS)
    answer = trial.ask(asker, ALL, 4)
    assert names(answer) == ["long"] and answer.complete
    trial.world.run_until(died_ns + 59 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["long"]
    trial.world.run_until(died_ns + 61 * SECOND_NS + ALIVE_NS)
    assert names(trial.ask(asker, ALL, 4)) == []
    assert not [row for row in trial.world.nodes[home].disk.shelved.values() if row.advert.properties]


def test_a_client_that_is_back_takes_up_what_it_says_again(trial: Trial) -> None:
    """DSC-01: what it does not say again ends by its lease, though the client is there: it may have taken it back."""
    home, asker = at(trial, "A.1.x.p"), at(trial, "A.2.x.p")
    trial.attach(home, "rover")
    offer(trial, home, "camera", 30)
    offer(trial, home, "arm", 30)
    down(trial, [home])
    trial.run(5 * SECOND_NS)
    trial.world.start(home)
    trial.attach(home, "rover")
    offer(trial, home, "camera", 30)
    trial.run(10 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 3)) == ["arm", "camera"]
    trial.run(40 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 3)) == ["camera"]
    trial.world.give(home, Withdraw(trial.sessions[home], "camera"))
    trial.run(5 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 3)) == []


def test_a_broker_that_is_lost_for_good_loses_nothing(trial: Trial) -> None:
    """DSC-01, TRD-05: its controllers keep what it had for as long as its lease, over restarts of their own."""
    home, asker = at(trial, "A.2.y.p"), at(trial, "A.1.x.p")
    offer(trial, home, "hour")
    offer(trial, home, "minutes", 200)
    offer(trial, home, "here", scope=1)
    trial.run(5 * SECOND_NS)
    down(trial, [home])
    trial.run(90 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["hour", "minutes"], "longer than a silent home is a holding"
    assert names(trial.ask(at(trial, "A.2.y.q"), ALL, 1)) == ["here", "hour", "minutes"]
    others = [address for address in trial.world.nodes if address != home]
    down(trial, others)
    trial.run(10 * SECOND_NS)
    up(trial, others)
    trial.run(70 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["hour", "minutes"]
    assert names(trial.ask(at(trial, "A.2.y.q"), ALL, 1)) == ["here", "hour", "minutes"]
    trial.run(50 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["hour"]
    trial.world.check()


def test_a_home_that_is_back_says_what_is_left(trial: Trial) -> None:
    """DSC-01: what controllers kept in its name goes with its first word."""
    home, asker = at(trial, "A.2.y.p"), at(trial, "A.1.x.p")
    offer(trial, home, "stays")
    offer(trial, home, "goes")
    trial.run(5 * SECOND_NS)
    trial.world.give(home, Withdraw(trial.sessions[home], "goes"))
    trial.run(SECOND_NS // 100)  # synced, and told nobody
    down(trial, [home])
    trial.run(100 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["goes", "stays"], "as far as the controllers can know"
    up(trial, [home])
    trial.run(10 * SECOND_NS)
    answer = trial.ask(asker, ALL, 4)
    assert answer.complete and names(answer) == ["stays"]


def test_what_is_withdrawn_while_controllers_are_down_stays_withdrawn(trial: Trial) -> None:
    """TRD-05: their disks have it, and never show it again."""
    home, mate = at(trial, "A.1.x.q"), at(trial, "A.1.x.p")
    offer(trial, home, "withdrawn")
    offer(trial, home, "stands")
    trial.run(5 * SECOND_NS)
    controllers = [mate, at(trial, "A.1.y.p"), at(trial, "A.1.y.q"), at(trial, "A.2.x.p"), at(trial, "A.2.x.q")]
    down(trial, controllers)
    trial.run(SECOND_NS)
    trial.world.give(home, Withdraw(trial.sessions[home], "withdrawn"))
    trial.run(10 * SECOND_NS)
    up(trial, controllers)
    seen = [watched(trial, asker, 4, realm) for asker, realm in ((mate, 1), (mate, 2), (at(trial, "A.2.x.p"), 3))]
    assert all("withdrawn" not in shown(answers) for answers in seen)
    trial.run(10 * SECOND_NS)
    for realm in range(1, 5):
        answer = trial.ask(mate, ALL, realm)
        assert answer.complete and names(answer) == ["stands"]


@pytest.mark.parametrize("goodbye", [False, True])
def test_what_a_client_took_back_elsewhere_does_not_come_back(trial: Trial, goodbye: bool) -> None:
    """TRD-05, DSC-04: its broker was down; the client had moved, and takes it back there, or leaves."""
    old, new, asker = at(trial, "A.1.x.q"), at(trial, "A.2.y.p"), at(trial, "A.2.x.p")
    trial.attach(old, "rover")
    offer(trial, old, "camera", number=1)
    trial.run(5 * SECOND_NS)
    down(trial, [old])
    trial.attach(new, "rover")
    offer(trial, new, "camera", number=2)
    trial.run(5 * SECOND_NS)
    assert [row.values for row in trial.ask(asker, ALL, 3).rows] == [(2,)]
    session = trial.sessions[new]
    trial.world.give(new, ClientDown(session) if goodbye else Withdraw(session, "camera"))
    trial.run(5 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 3)) == [], "the copies of the old one are hidden too"
    up(trial, [old])
    assert shown(watched(trial, asker, 5, 3)) == set()
    down(trial, [new, asker])
    trial.run(2 * SECOND_NS)
    up(trial, [new, asker])
    assert shown(watched(trial, asker, 5, 3)) == set(), "who took it back remembers that"
    trial.attach(old, "rover")
    offer(trial, old, "camera", number=3)
    trial.run(5 * SECOND_NS)
    assert [row.values for row in trial.ask(asker, ALL, 3).rows] == [(3,)]
    trial.world.check()


def test_a_withdrawal_outlasts_what_had_a_longer_lease(trial: Trial) -> None:
    """TRD-05: what the client said at its second broker was for a shorter time than what it had said at its first."""
    old, new, asker = at(trial, "A.1.x.q"), at(trial, "A.2.y.p"), at(trial, "A.2.x.p")
    trial.attach(old, "rover")
    offer(trial, old, "camera", HOUR_S)
    trial.run(5 * SECOND_NS)
    down(trial, [old])
    trial.attach(new, "rover")
    offer(trial, new, "camera", 5)
    trial.run(5 * SECOND_NS)
    trial.world.give(new, Withdraw(trial.sessions[new], "camera"))
    trial.run(40 * SECOND_NS)
    up(trial, [old])
    assert shown(watched(trial, asker, 5, 3)) == set()
    trial.run(40 * SECOND_NS)
    answer = trial.ask(asker, ALL, 3)
    assert answer.complete and names(answer) == []


def test_the_only_controller_hears_others_before_it_shows_what_its_disk_has() -> None:
    """TRD-05: it was down when its client took back, at its neighbour, what it has on its own shelf."""
    trial = Trial(make_network("pair", ["x.p", "x.q"], [("x.p", "x.q")], 2), options=CHECKED)
    old, new = at(trial, "x.p"), at(trial, "x.q")
    trial.attach(old, "rover")
    for name in ("camera", "arm"):
        offer(trial, old, name, scope=2)
    down(trial, [old])
    trial.attach(new, "rover")
    offer(trial, new, "camera", scope=2)
    trial.world.give(new, Withdraw(trial.sessions[new], "camera"))
    trial.run(SECOND_NS)
    up(trial, [old])
    assert shown(watched(trial, old, 10, 1)) == {"arm"}
    down(trial, [new])
    down(trial, [old])
    up(trial, [old])
    answers = watched(trial, old, 20, 1)
    assert shown(answers) == {"arm"} and names(answers[-1]) == ["arm"], "the other one is lost: it is not waited for"


def test_a_second_device_keeps_what_the_first_takes_back(trial: Trial) -> None:
    """DSC-04: at a live broker the word of a client that is there counts."""
    one, other, asker = at(trial, "A.1.x.q"), at(trial, "A.2.y.p"), at(trial, "A.2.x.p")
    for number, home in enumerate((one, other)):
        trial.attach(home, "alice")
        offer(trial, home, "chat", number=number)
    trial.run(5 * SECOND_NS)
    assert [row.values for row in trial.ask(asker, ALL, 3).rows] == [(1,)]
    trial.world.give(other, ClientDown(trial.sessions[other]))
    trial.run(30 * SECOND_NS)  # until the other one is heard again
    assert [row.values for row in trial.ask(asker, ALL, 3).rows] == [(0,)]


def test_a_home_that_lost_its_disk_is_heard(trial: Trial) -> None:
    """DSC-01: it counts from the beginning again, below what the controllers have seen of it."""
    home, asker = at(trial, "A.1.x.q"), at(trial, "A.2.x.p")
    for name in ("before", "another"):
        offer(trial, home, name)
    trial.run(5 * SECOND_NS)
    down(trial, [home])
    node = trial.world.nodes[home]
    node.disk = Disk(replace(node.disk.identity, incarnation=0))
    trial.run(5 * SECOND_NS)
    up(trial, [home])
    offer(trial, home, "after")
    trial.run(15 * SECOND_NS)
    answer = trial.ask(asker, ALL, 4)
    assert answer.complete and names(answer) == ["after"]


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_whatever_crashes_the_word_that_was_answered_counts(seed: int) -> None:
    """DSC-01, TRD-05: offers made and withdrawn at random, brokers killed at random, no client ever back; at last the
    brokers have what was said last and nothing else."""
    chance = Random(seed)
    trial = Trial(random_network(chance, largest=8), seed, CHECKED)
    homes = list(trial.world.nodes)
    standing: dict[str, Address] = {}
    owner: dict[Address, int] = dict(trial.sessions)
    for step in range(30):
        home = chance.choice(homes)
        if trial.world.nodes[home].broker is None:
            up(trial, [home])
        elif chance.random() < 0.3:
            down(trial, [home])
            owner.pop(home, None)
        elif home in owner and standing and chance.random() < 0.4:
            name = chance.choice(sorted(standing))
            if standing[name] in owner and trial.world.nodes[standing[name]].broker is not None:
                trial.world.give(standing[name], Withdraw(owner[standing.pop(name)], name))
                trial.run(SECOND_NS // 20)
        elif home in owner:
            offer(trial, home, f"ad{step}")
            standing[f"ad{step}"] = home
        trial.run(chance.choice([0, SECOND_NS // 10, 3 * SECOND_NS]))
    up(trial, [home for home in homes if trial.world.nodes[home].broker is None])
    trial.run(70 * SECOND_NS)
    for home in homes:
        answer = trial.ask(home, ALL, 4)
        assert answer.complete and names(answer) == sorted(standing)
    trial.world.check()
