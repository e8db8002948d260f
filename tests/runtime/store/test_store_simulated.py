"""Simulated networks whose brokers restart from real stores: what a store leaves out, nobody misses.

Every write of the simulated disks also goes to a store, which gives up at once whatever it may. A broker that is
started again gets what its store loads, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import Stage, cluster
from tests.core.publishing.test_adopted_streams import play_takeover
from tests.runtime.store.test_store_model import needed
from tests.runtime.store_desk import Desk, plain
from veena.address import Address, format_address
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.stored import Disk
from veena.runtime.store.retention import Retention
from veena.sim.runs.run import run_seed
from veena.sim.world import world as world_module
from veena.sim.world.options import Options
from veena.sim.world.world import World


class Stores:
    """A store for each simulated disk."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home = home
        self._desks: dict[int, Desk] = {}
        #: So that no disk's number is used again.
        self._disks: list[Disk] = []
        self.loaded = self.left_out = 0
        start, sync = World.start, world_module._sync

        def synced(disk: Disk, effect: StoreEffect) -> None:
            sync(disk, effect)
            desk = self._desk(disk)
            desk.stored(*effect.writes)

        def started(world: World, address: Address) -> None:
            node = world.nodes[address]
            if id(node.disk) in self._desks:
                node.disk = self._reopened(node.disk, address)
            start(world, address)

        monkeypatch.setattr(world_module, "_sync", synced)
        monkeypatch.setattr(World, "start", started)

    def _desk(self, disk: Disk) -> Desk:
        if id(disk) not in self._desks:
            self._disks.append(disk)
            self._desks[id(disk)] = self._open(self._home / str(len(self._disks)))
        return self._desks[id(disk)]

    @staticmethod
    def _open(path: Path) -> Desk:
        desk = Desk(path, retention=Retention(age_ns=0), history="none")
        desk.store._file.connection.execute("PRAGMA synchronous = OFF")  # no power cut here
        return desk

    def _reopened(self, disk: Disk, address: Address) -> Disk:
        """What a store loads after its process was killed; compare it with what the model needs."""
        desk = self._desks.pop(id(disk))
        desk.trimmed()
        desk.store.close()
        again = self._open(desk.store.path.parent)
        found = again.store.load(disk.identity)
        everything = len(disk.entries)
        # Below the cursors there is what was not trimmed yet.
        strictly = [replace(each, entries=needed(each, 0)) for each in (found, disk)]
        assert plain(strictly[0]) == plain(strictly[1]), format_address(address)
        assert not {each.offset for each in found.entries} - {each.offset for each in needed(disk)}
        self.loaded += 1
        self.left_out += everything - len(found.entries)
        self._disks.append(found)
        self._desks[id(found)] = again
        return found

    def close(self) -> None:
        for desk in self._desks.values():
            desk.store.close()


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_networks_that_crash_lose_nothing(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-01, FLT-05, GUA-02: crashes and durable clients that roam, on real files."""
    stores = Stores(tmp_path, monkeypatch)

    def quick(options: Options) -> Options:
        return replace(options, check=False)

    try:
        report = run_seed(seed, "crash", change=quick, events=40, brokers=5)
        assert report.is_sound, report
        assert report.expected
        assert stores.loaded
    finally:
        stores.close()


def test_a_home_that_is_killed_gives_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-05, DIS-06: what was acknowledged is gone from the store, what was not is there."""
    stores = Stores(tmp_path, monkeypatch)
    try:
        stage = Stage(cluster([(1, 2), (2, 3)]))
        reader = Reader(stage, "alice")
        reader.attach("1")
        publisher = stage.attach("3", "publisher")
        stage.wait()
        bodies = [f"{n}" for n in range(40)]
        for body in bodies[:20]:
            stage.publish(publisher, body)
        stage.wait()
        reader.read()
        reader.leave()
        for body in bodies[20:]:
            stage.publish(publisher, body)
        stage.wait()
        home = stage.addresses["1"]
        stage.world.crash(home, silent=True)
        stage.wait()
        stage.world.start(home)
        stage.wait()
        reader.attach("1")
        stage.wait()
        reader.read()
        assert reader.bodies == bodies
        assert stores.loaded == 1
        assert stores.left_out >= 20
    finally:
        stores.close()


def test_what_an_origin_brings_after_a_takeover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUP-08: how far a stream has certainly come is on disk, for streams too that began with the takeover."""
    stores = Stores(tmp_path, monkeypatch)
    try:
        wanted, got = play_takeover("restarts", monkeypatch)
        assert sorted(got) == sorted(wanted)
        assert stores.loaded == 2
    finally:
        stores.close()
