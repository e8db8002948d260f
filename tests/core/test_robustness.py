"""What a broker does when peers, disks and streams misbehave: it loses a link, never its life or its map."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.scripted_peer import closed, hello, neighbour, sent, started
from tests.core.test_broker import THIRD, fresh
from tests.core.topology.test_network_map import FAR, NEAR, record
from veena.core.boundary.inputs_effects import Arrived, LinkUp, Store, Stored, StoreFailed
from veena.core.boundary.settings import SECOND_NS
from veena.core.links import channel
from veena.core.wire.control import ConnectionRecord, Hello
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options
from veena.sim.world.world import World


def test_a_unit_beyond_the_fan_out_is_refused() -> None:
    """BNM-01, TOP-07: no map has more vertices a level than the network's fan-out, whatever a peer invents."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    effects = peer.tell(ConnectionRecord(9, 3, NEAR, (50,), True, (0, 0), (0, 0)))
    assert len(closed(effects)) == 1
    assert broker.table.record(9) is None


def test_a_frame_is_taken_whole_or_not_at_all() -> None:
    """A rejected frame leaves the table untouched, also the records before the bad one."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    effects = peer.tell(record(9, NEAR, FAR), record(10, THIRD, NEAR))
    assert len(closed(effects)) == 1
    assert broker.table.record(9) is None


def test_a_peer_that_takes_nothing_is_closed_by_the_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; a full channel costs the peer its link, not the broker its life."""
    monkeypatch.setattr(channel, "WINDOW", 2)
    monkeypatch.setattr(channel, "MAX_WAITING", 1)
    broker = started()
    broker.handle(LinkUp(1, ordered=False), 0)
    broker.handle(Arrived(1, [(1, hello(NEAR))]), 0)
    ends: list[tuple[int, str]] = []
    for tenth in range(1, 60):
        now_ns = tenth * SECOND_NS // 10
        ends += closed(broker.tick(now_ns))
        if not ends:
            ends += closed(broker.handle(Arrived(1, [(1, hello(NEAR))]), now_ns))
    assert len(ends) == 1
    assert "has not taken" in ends[0][1]


def test_after_a_failed_disk_no_link_waits_for_ever() -> None:
    """UID-02: with the next link a broker tries again to store its identity; then it greets the peer, or says no."""
    for second in (Stored(2), StoreFailed(2, "disk full")):
        broker = fresh()
        (first,) = broker.tick(0)
        assert isinstance(first, Store)
        assert broker.handle(StoreFailed(1, "disk full"), 0) == []
        assert broker.handle(LinkUp(1, ordered=True), 0) == [replace(first, ticket=2)]
        effects = broker.handle(second, 0)
        assert [number for number, _ in closed(effects)] == ([] if isinstance(second, Stored) else [1])
        assert [type(frame) for frame in sent(effects)] == ([Hello] if isinstance(second, Stored) else [])


def test_a_short_stall_of_a_stream_keeps_its_order() -> None:
    """FLT-02: a silence that ends before it is confirmed costs no connection."""
    network = make_network("pair", ["S.C.c.1", "S.C.c.2"], [("S.C.c.1", "S.C.c.2")])
    world = World(network, 1, Options(delay_ns=7_000_000, jitter_ns=30_000_000))
    world.run_until(3 * SECOND_NS)
    before = world.links[0].session
    for _ in range(8):
        world.cut(world.links[0], silent=True)
        world.run_until(world.now_ns + 4 * SECOND_NS + 17_000_000)
        world.heal(world.links[0])
        world.run_until(world.now_ns + 3 * SECOND_NS)
    assert world.links[0].session is before
