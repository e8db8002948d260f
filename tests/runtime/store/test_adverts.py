"""Advertisements in the store: restarts, older files, damage, a disk that fails; and a real broker that is killed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import veena.testing
from tests.core.discovery.advert_cases import advert
from tests.runtime.store.test_store_simulated import Stores
from tests.runtime.store_desk import NOBODY, Desk, entry
from veena.client import Client, connect
from veena.core.boundary.inputs_effects import Stored
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.stored import Attended, Disk, Shelved, Unshelved
from veena.core.discovery.advertisement import withdrawal
from veena.runtime.networks.file import make_network
from veena.runtime.store.file import FILE_NAME
from veena.runtime.store.repair import faults, repair
from veena.runtime.store.schema import MIGRATIONS, migrate
from veena.sim.experiments.discovery import Service, Trial, Wish

HOME = (0, 1, 2, 3)
PATIENCE_S = 30.0
OWN = Shelved((), advert("own", {"n": 1}, now_ns=5), left_ns=7)
COPY = Shelved(HOME, advert("copy", {"n": 2}, "<a/>", now_ns=6))


def rows(disk: Disk) -> list[Shelved]:
    return list(disk.shelved.values())


def test_a_restart_finds_what_is_advertised(tmp_path: Path) -> None:
    """DSC-01, TRD-05: own ones and copies, with withdrawals, and when the broker lived."""
    gone = Shelved(HOME, withdrawal(COPY.advert, 9))
    with Desk(tmp_path) as desk:
        desk.stored(OWN, COPY, Attended(10))
        desk.stored(Shelved((), advert("brief", {"n": 3})))
        desk.stored(Unshelved((), "alice", "brief"), gone, Attended(11))
    with Desk(tmp_path) as desk:
        found = desk.store.load(NOBODY)
        assert rows(found) == [OWN, gone] and found.attended_ns == 11
        assert desk.store.check() == []


def test_a_file_of_the_third_version_becomes_one_of_this(tmp_path: Path) -> None:
    """FLT-07: what it had is read on, and advertisements go into it."""
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path, MIGRATIONS[:3])
        connection.execute("INSERT INTO identity VALUES (1, 'old', '0.1.2.3', 8)")
        connection.execute("INSERT INTO meta VALUES ('levels', 4), ('fanout', 32)")
    assert faults(tmp_path) == []
    with Desk(tmp_path) as desk:
        found = desk.store.load(NOBODY)
        assert (found.identity.name, found.identity.incarnation, found.shelved, found.attended_ns) == ("old", 8, {}, 0)
        desk.stored(entry(0), OWN, Attended(3))
    with Desk(tmp_path) as desk:
        found = desk.store.load(NOBODY)
        assert rows(found) == [OWN] and found.attended_ns == 3 and found.identity.name == "old"
        assert desk.offsets() == [0]


def test_a_damaged_advertisement_is_named_and_left_out(tmp_path: Path) -> None:
    """FLT-07: an offer is not worth a broker: it starts without it."""
    with Desk(tmp_path) as desk:
        desk.stored(OWN, COPY)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("UPDATE adverts SET advert = zeroblob(length(advert)) WHERE name = 'own'")
        connection.commit()
    assert faults(tmp_path) == ["adverts 1: the checksum is wrong"]
    with Desk(tmp_path) as desk:
        assert rows(desk.store.load(NOBODY)) == [COPY]
    assert repair(tmp_path) == ["adverts 1 was given up"] and faults(tmp_path) == []


def test_what_the_disk_did_not_take_is_written_when_it_does(tmp_path: Path) -> None:
    """FLT-05: a broker goes on with what is advertised, so the latest of it is owed to the disk."""
    with Desk(tmp_path) as desk:
        desk.stored(OWN, Shelved((), advert("old", {"n": 1})))
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
            desk.store._file.connection.execute("PRAGMA busy_timeout = 1")
            other.execute("BEGIN IMMEDIATE")
            assert "lock" in desk.refused(COPY, Unshelved((), "alice", "old"))
            other.execute("ROLLBACK")
        assert desk.write() == Stored(desk.ticket)
        assert rows(desk.store.load(NOBODY)) == [OWN, COPY]


def test_signs_of_life_wait_for_no_sync(tmp_path: Path) -> None:
    """A broker at rest notes that it lives, without a sync."""
    with Desk(tmp_path) as desk:
        desk.stored(OWN)
        desk.stored(Attended(20))
        assert desk.store._file.connection.execute("PRAGMA synchronous").fetchone() == (1,)
        desk.stored(COPY, Attended(30))
        assert desk.store._file.connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_simulated_brokers_restart_from_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DSC-01: what the store loads is what the model has, and is found."""
    stores = Stores(tmp_path, monkeypatch)
    try:
        trial = Trial(make_network("three", ["x.p", "x.q", "y.r"], [("x.p", "x.q"), ("x.q", "y.r")], 2))
        homes = list(trial.world.nodes)
        trial.advertise([Service(home, "", f"ad{at}", 2, {"n": at}, "<a/>") for at, home in enumerate(homes)])
        trial.run(5 * SECOND_NS)
        for home in homes:
            trial.world.crash(home, silent=False)
        for home in homes:
            trial.world.start(home)
        trial.attach(homes[0], "user")
        trial.run(10 * SECOND_NS)
        answer = trial.ask(homes[0], Wish("sql", "n >= 0", "n"), 2)
        assert answer.complete and [row.values for row in answer.rows] == [(0,), (1,), (2,)]
        assert stores.loaded == 3
    finally:
        stores.close()


async def found(user: Client, *expected: str) -> None:
    """Wait until these are found and nothing else."""
    end = time.monotonic() + PATIENCE_S
    while sorted(row.name for row in (await user.query(sql="SELECT n FROM adverts")).rows) != sorted(expected):
        assert time.monotonic() < end


@pytest.mark.timeout(90)
def test_a_broker_that_is_killed_answers_when_it_is_back() -> None:
    """DSC-01, TRD-05: before any client is back; what was withdrawn is gone, and so is what ended meanwhile. One that
    was stopped in good order does no less."""

    async def main() -> None:
        async with veena.testing.network({"paris": 1}, processes=True) as net:
            url = net.url("paris.1")
            async with connect(url, client_id="application") as application:
                for name, lease in (("kept", 600.0), ("withdrawn", 600.0), ("brief", 1.0), ("never", 0.0)):
                    await application.advertise(name, properties={"n": 1}, lease=lease)
                await application.withdraw("withdrawn")
                await net.kill("paris.1")
            await net.restart("paris.1")
            async with connect(url, client_id="user") as user:
                answer = await user.query(sql="SELECT n FROM adverts")
                assert {"kept"} <= {row.name for row in answer.rows} <= {"kept", "brief"} and answer.complete
                await found(user, "kept")
                async with connect(url, client_id="application") as application:
                    await application.advertise("second", properties={"n": 1}, lease=600.0)
                    await net.stop("paris.1")
            await net.restart("paris.1")
            async with connect(url, client_id="user") as user:
                await found(user, "kept", "second")
                async with connect(url, client_id="application") as application:
                    await application.withdraw("kept")
                    await application.withdraw("second")
                    await found(user)
                    await net.kill("paris.1")
            await net.restart("paris.1")
            async with connect(url, client_id="user") as user:
                await found(user)

    asyncio.run(asyncio.wait_for(main(), 80))
