"""Discovery between real brokers: answers beside one database's, realms, silent units, leases, faults."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.cli.command import veena
from tests.core.small_networks import random_network
from tests.tiers import few
from veena.address import Address, Unit, contains
from veena.core.boundary.discovery import Answer, Query, Withdraw
from veena.core.boundary.inputs_effects import ClientDown
from veena.core.boundary.settings import SECOND_NS
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.experiments.discovery import (
    Database,
    Service,
    Trial,
    Wish,
    draw_services,
    draw_wishes,
    is_visible,
    measure,
    rows_of,
)
from veena.sim.world.dialling import Partition
from veena.sim.world.options import Options

NETWORKS = Path(__file__).parents[3] / "networks"
CHECKED = Options(wire=True, check=True, check_every=25)
ALL = Wish("sql", "n >= 0", "n")


def load(name: str) -> Network:
    return load_network(NETWORKS / f"{name}.toml")


def service(trial: Trial, home: Address, name: str, scope: int, number: int = 1) -> Service:
    client = f"client-{trial.network.labels.label(home)}"
    return Service(home, client, name, scope, {"n": number}, f"<s><n>{number}</n></s>")


def names(answer: Answer) -> list[str]:
    return sorted(row.name for row in answer.rows)


#: Two super-super-clusters of two super-clusters of two clusters of two brokers, every unit with two gates.
def twice_two() -> Network:
    paths = [f"{a}.{b}.{c}.{d}" for a in "AB" for b in "12" for c in "xy" for d in "pq"]
    links = [(f"{unit}.p", f"{unit}.q") for unit in dict.fromkeys(path[:-2] for path in paths)]
    for a in "AB":
        links += [(f"{a}.{b}.x.{d}", f"{a}.{b}.y.{d}") for b in "12" for d in "pq"]
        links += [(f"{a}.1.{c}.p", f"{a}.2.{c}.q") for c in "xy"]
    links += [("A.1.x.p", "B.1.y.q"), ("A.2.y.q", "B.2.x.p")]
    return make_network("twice-two", paths, links, 4)


@pytest.fixture(scope="module")
def ges_22() -> tuple[Trial, list[Service]]:
    """Four hundred services, asked for by many tests and changed by none."""
    trial = Trial(load("ges-22-linked"), options=CHECKED)
    services = draw_services(trial.network, 400, Random(3))
    trial.advertise(services)
    trial.run(5 * SECOND_NS)
    return trial, services


@pytest.mark.parametrize("language", ["sql", "xpath"])
def test_an_answer_is_that_of_one_database(ges_22: tuple[Trial, list[Service]], language: str) -> None:
    """DSC-04, DSC-02, DSC-03: every form of query, every realm, from anywhere; none twice, none beyond its scope."""
    trial, services = ges_22
    database, chance = Database(services), Random(5)
    for wish in draw_wishes("sql" if language == "sql" else "xpath", 12, chance):
        for realm in range(1, 5):
            asker = chance.choice(trial.network.brokers).address
            answer = trial.ask(asker, wish, realm)
            assert answer.complete
            assert rows_of(answer) == database.answer(wish, asker, realm)


def test_ids_alone_are_the_same_advertisements(ges_22: tuple[Trial, list[Service]]) -> None:
    """DSC-05: without the advertisements the answer is smaller, not shorter."""
    trial, _ = ges_22
    asker = trial.network.brokers[0].address
    wish = Wish("xpath", "/service[price < 30]")
    whole, ids = trial.ask(asker, wish, 4), trial.ask(asker, wish, 4, full=False)
    assert [(row.client, row.name) for row in ids.rows] == [(row.client, row.name) for row in whole.rows]
    assert all(row.xml is not None for row in whole.rows) and all(row.xml is None for row in ids.rows)
    assert len(ids.rows) > 20


def test_a_query_never_leaves_its_realm(ges_22: tuple[Trial, list[Service]]) -> None:
    """DSC-03: no broker outside the realm sees a frame of it."""
    trial, _ = ges_22
    for broker in trial.network.brokers:
        for realm in (1, 2, 3):
            trial.asked.clear()
            trial.ask(broker.address, Wish("sql", "price < 5"), realm)
            home: Unit = broker.address[: 4 - realm]
            assert all(contains(home, address) for address in trial.asked)


def test_an_advertisement_stands_up_the_controller_chain() -> None:
    """PRF-12, DSC-01, DSC-02: at its broker and the controllers of its units, where profiles are too; found
    from another super-cluster, once."""
    trial = Trial(load("ges-22"), options=CHECKED)
    by_label = {broker.label.rsplit(".", 1)[-1]: broker.address for broker in trial.network.brokers}
    home = by_label["21"]
    trial.advertise([service(trial, home, "everywhere", 4), service(trial, home, "here", 1)])
    trial.run(5 * SECOND_NS)
    for broker in trial.world.live():
        host, office = broker.identity.address, broker.discovery.office
        levels = [level for level in range(1, 4) if office.controls(level) and contains(host[: 4 - level], home)]
        expected = 2 if host == home or 1 in levels else 1 if levels else 0
        assert broker.discovery.store.of(home) == expected
    outside = next(address for address in by_label.values() if address[:2] != home[:2])
    answer = trial.ask(outside, ALL, 4)
    assert names(answer) == ["everywhere"] and answer.rows[0].home == home
    trial.world.check()


def test_each_advertisement_is_answered_once_by_however_many_controllers() -> None:
    """DSC-02, DSC-03: two gates to every unit, advertisements of every scope."""
    trial = Trial(twice_two(), options=CHECKED)
    services = [
        service(trial, broker.address, f"{broker.label}-{scope}", scope, scope)
        for broker in trial.network.brokers
        for scope in range(1, 5)
    ]
    trial.advertise(services)
    trial.run(5 * SECOND_NS)
    for broker in trial.network.brokers:
        for realm in range(1, 5):
            answer = trial.ask(broker.address, ALL, realm)
            assert answer.complete
            visible = sorted(each.name for each in services if is_visible(each, broker.address, realm))
            assert names(answer) == visible


def cut_off(trial: Trial, unit: Unit, silent: bool) -> None:
    """No link and no dialling leads out of the unit."""
    inside = frozenset(address for address in trial.world.nodes if contains(unit, address))
    trial.world.partitions.append(Partition(inside))
    for link in trial.world.links:
        if contains(unit, link.a) != contains(unit, link.b):
            trial.world.cut(link, silent)


def heal(trial: Trial) -> None:
    trial.world.partitions.clear()
    for link in trial.world.links:
        trial.world.heal(link)


def test_units_that_cannot_answer_are_named() -> None:
    """DSC-02: by the deadline when nobody knows yet, at once when they are known to be out of reach."""
    trial = Trial(twice_two(), options=CHECKED)
    near, far = trial.network.labels.unit("A.1.x.p"), trial.network.labels.unit("B.2.y.q")
    trial.advertise([service(trial, near, "near", 4), service(trial, far, "far", 4)])
    trial.run(5 * SECOND_NS)
    assert names(trial.ask(near, ALL, 4)) == ["far", "near"]
    other = far[:1]
    cut_off(trial, other, silent=True)
    answer = trial.ask(near, ALL, 4)
    assert names(answer) == ["near"] and answer.silent == (other,)
    trial.run(30 * SECOND_NS)
    began = trial.world.now_ns
    answer = trial.ask(near, ALL, 4)
    assert names(answer) == ["near"] and answer.silent == (other,)
    assert trial.world.now_ns - began < SECOND_NS
    heal(trial)
    trial.run(30 * SECOND_NS)
    answer = trial.ask(near, ALL, 4)
    assert answer.complete and names(answer) == ["far", "near"]


def test_a_part_that_falls_silent_is_answered_for_until_its_lease_ends() -> None:
    """DSC-02: controllers hold what a lost cluster had; then they name it instead."""
    trial = Trial(twice_two(), options=CHECKED)
    near, far = trial.network.labels.unit("A.1.x.p"), trial.network.labels.unit("A.2.y.p")
    trial.advertise([service(trial, near, "near", 4), service(trial, far, "far", 4)])
    trial.run(5 * SECOND_NS)
    lost = far[:3]
    cut_off(trial, lost, silent=False)
    trial.run(10 * SECOND_NS)
    assert names(trial.ask(near, ALL, 3)) == ["far", "near"]
    trial.run(60 * SECOND_NS)
    answer = trial.ask(near, ALL, 3)
    assert names(answer) == ["near"] and answer.silent == (lost,)
    heal(trial)
    trial.run(30 * SECOND_NS)
    answer = trial.ask(near, ALL, 3)
    assert answer.complete and names(answer) == ["far", "near"]


def test_advertisements_go_with_goodbye_withdrawal_and_lease() -> None:
    """DSC-01: and controllers hear of it within their intervals."""
    trial = Trial(twice_two(), options=CHECKED)
    at = {name: trial.network.labels.unit(path) for name, path in (("bye", "A.1.x.p"), ("lost", "A.2.y.q"))}
    at |= {"withdrawn": trial.network.labels.unit("B.1.x.p"), "dead": trial.network.labels.unit("B.2.x.q")}
    asker = trial.network.labels.unit("B.2.y.p")
    trial.advertise([service(trial, home, name, 4) for name, home in at.items()])
    trial.run(5 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == sorted(at)
    trial.world.give(at["bye"], ClientDown(trial.sessions[at["bye"]]))
    trial.world.give(at["lost"], ClientDown(trial.sessions[at["lost"]], lost=True))
    trial.world.give(at["withdrawn"], Withdraw(trial.sessions[at["withdrawn"]], "withdrawn"))
    trial.world.crash(at["dead"], silent=False)
    trial.run(5 * SECOND_NS)
    assert names(trial.ask(asker, ALL, 4)) == ["dead", "lost"]
    trial.run(70 * SECOND_NS)
    answer = trial.ask(asker, ALL, 4)
    assert names(answer) == [] and answer.silent == (at["dead"],)


@pytest.mark.parametrize("silent", [False, True])
def test_a_controller_dies_and_another_takes_its_place(silent: bool) -> None:
    """DSC-01, DSC-02: every broker of the middle in turn; who starts again holds everything again."""
    trial = Trial(twice_two(), options=CHECKED)
    asker = trial.network.labels.unit("B.1.x.p")
    homes = [broker.address for broker in trial.network.brokers]
    services = [service(trial, home, f"ad-{trial.network.labels.label(home)}", 4) for home in homes]
    trial.advertise(services)
    trial.run(5 * SECOND_NS)
    for label in ("A.1.x.p", "A.2.y.q"):
        dead = trial.network.labels.unit(label)
        trial.world.crash(dead, silent)
        trial.run(15 * SECOND_NS)
        answer = trial.ask(asker, ALL, 4)
        assert set(names(answer)) >= {each.name for each in services if each.home != dead}
        trial.world.start(dead)
        trial.attach(dead, f"client-{label}")
        trial.advertise([each for each in services if each.home == dead])
        trial.run(15 * SECOND_NS)
        answer = trial.ask(asker, ALL, 4)
        assert answer.complete and names(answer) == sorted(each.name for each in services)


def test_a_client_that_moves_is_found_once_at_its_new_broker() -> None:
    """DSC-04: its old broker still holds what it left there."""
    trial = Trial(twice_two(), options=CHECKED)
    old, new = trial.network.labels.unit("A.1.x.q"), trial.network.labels.unit("A.2.y.p")
    asker = trial.network.labels.unit("B.1.x.p")
    trial.attach(old, "rover")
    trial.advertise([Service(old, "rover", "camera", 4, {"n": 1}, "<s/>")])
    trial.run(5 * SECOND_NS)
    trial.world.give(old, ClientDown(trial.sessions[old], lost=True))
    trial.attach(new, "rover")
    trial.advertise([Service(new, "rover", "camera", 4, {"n": 2}, "<s/>")])
    trial.run(5 * SECOND_NS)
    (row,) = trial.ask(asker, ALL, 4).rows
    assert (row.home, row.values) == (new, (2,))


def revive(trial: Trial, services: dict[str, Service], home: Address) -> None:
    """Start a broker that is down; its client comes back to it and advertises again."""
    if trial.world.nodes[home].broker is None:
        trial.world.start(home)
        trial.attach(home, f"client-{trial.network.labels.label(home)}")
        trial.advertise([each for each in services.values() if each.home == home])


def shaken(trial: Trial, services: dict[str, Service], chance: Random) -> None:
    """One thing goes wrong, or changes."""
    world, brokers = trial.world, trial.network.brokers
    kind = chance.randrange(7)
    if kind == 0:
        world.cut(chance.choice(world.links), silent=chance.random() < 0.5)
    elif kind == 1:
        world.heal(chance.choice(world.links))
    elif kind == 2:
        world.bounce(chance.choice(world.links))
    elif kind == 3:
        home = chance.choice(brokers).address
        if world.nodes[home].broker is not None:
            name = f"ad{chance.randrange(12)}-{trial.network.labels.label(home)}"
            services[name] = service(trial, home, name, chance.randint(1, 4), chance.randrange(50))
            trial.advertise([services[name]])
    elif kind == 4:
        home = chance.choice(brokers).address
        if world.nodes[home].broker is not None:
            world.crash(home, silent=chance.random() < 0.5)
    elif kind == 5:
        revive(trial, services, chance.choice(brokers).address)
    else:
        home = chance.choice(brokers).address
        if world.nodes[home].broker is not None:
            for name in [name for name, each in services.items() if each.home == home]:
                world.give(home, Withdraw(trial.sessions[home], name))
                del services[name]


@pytest.mark.parametrize("seed", few(range(4)))
def test_after_any_faults_everything_is_found_again(seed: int) -> None:
    """DSC-02, DSC-04: links cut and bounced, brokers crashed, shelves changed meanwhile; then the network is whole."""
    chance = Random(seed)
    trial = Trial(random_network(chance, largest=10), seed, CHECKED)
    services: dict[str, Service] = {}
    for _ in range(25):
        shaken(trial, services, chance)
        trial.run(chance.choice([0, SECOND_NS // 10, 3 * SECOND_NS]))
    heal(trial)
    for broker in trial.network.brokers:
        revive(trial, services, broker.address)
    trial.run(70 * SECOND_NS)
    for broker in trial.network.brokers:
        realm = chance.randint(1, 4)
        answer = trial.ask(broker.address, ALL, realm)
        assert answer.complete, answer.silent
        assert names(answer) == sorted(
            each.name for each in services.values() if is_visible(each, broker.address, realm)
        )
    trial.world.check()


@pytest.mark.parametrize("seed", few(range(200, 204)))
def test_while_things_fail_an_answer_is_whole_or_says_what_it_lacks(seed: int) -> None:
    """DSC-02, DSC-03: nothing twice or beyond its scope, and a whole answer lacks nothing but the latest changes."""
    chance = Random(seed)
    trial = Trial(random_network(chance, largest=10), seed, CHECKED)
    services: dict[str, Service] = {}
    changed_ns: dict[Address, int] = {}
    ever: dict[str, list[Service]] = {}
    asked = 0
    for _ in range(30):
        before = dict(services)
        shaken(trial, services, chance)
        for name, each in services.items():
            if before.get(name) is not each or trial.world.nodes[each.home].broker is None:
                changed_ns[each.home] = trial.world.now_ns
                ever.setdefault(name, []).append(each)
        trial.run(chance.choice([0, SECOND_NS // 10, 3 * SECOND_NS]))
        asker = chance.choice(trial.network.brokers).address
        if trial.world.nodes[asker].broker is None:
            continue
        realm = chance.randint(1, 4)
        answer = trial.ask(asker, ALL, realm)
        asked += 1
        assert len(set(names(answer))) == len(answer.rows)
        assert all(any(is_visible(each, asker, realm) for each in ever[row.name]) for row in answer.rows)
        if answer.complete:
            # A silent cut is noticed after suspicion and confirmation, three seconds each.
            known_ns = trial.world.now_ns - 8 * SECOND_NS
            visible = {each.name for each in services.values() if is_visible(each, asker, realm)}
            lost = [name for name in visible - set(names(answer)) if changed_ns[services[name].home] < known_ns]
            assert lost == []
    assert asked > 5


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace() -> str:
        trial = Trial(load("fix-1"), 7, Options(wire=True))
        trial.advertise(draw_services(trial.network, 30, Random(1)))
        trial.run(2 * SECOND_NS)
        asker = trial.network.brokers[0].address
        trial.world.give(asker, Query(trial.sessions[asker], 1, "sql", "SELECT * FROM adverts", 1))
        trial.run(SECOND_NS)
        return trial.world.trace_hash()

    assert trace() == trace()


def test_fewer_messages_than_a_flood_that_finds_as_much() -> None:
    """IOP-04, SYS-14: on ges-78, beside floods of three ranges; every answer that of the database."""
    lines, upkeep = measure(load("ges-78"), 300, 5)
    assert [fault for line in lines for fault in line.faults] == []
    assert len(lines) == 8
    for line in lines:
        assert line.evaluated < line.visible / 2
        everywhere = max(line.floods)
        assert line.flood_found[everywhere] == line.found and line.messages < line.floods[everywhere]
        for ttl, cost in line.floods.items() if line.realm == 4 else ():
            assert line.flood_found[ttl] < line.found or line.messages < cost
    assert upkeep.climb > 0 and upkeep.held_max < 300


def test_the_experiment_prints_its_numbers() -> None:
    """IOP-04: as a table and for scripts."""
    arguments = ("--network", str(NETWORKS / "fix-1.toml"), "--adverts", "40", "--queries", "2", "--check")
    report = json.loads(veena("experiment", "discovery", *arguments, "--json").out)
    assert {row["wrong"] for row in report["queries"]} == {row["escaped"] for row in report["queries"]} == {0}
    assert set(report["upkeep"]) == {"climb", "idle_per_s", "held_max"}
    shown = veena("experiment", "discovery", *arguments)
    assert shown.code == 0 and "TTL 7" in shown.out and "40 advertisements" in shown.out
