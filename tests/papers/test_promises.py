"""Promises of the papers about what is not needed: routers, groups, limits, detours of profiles, another language."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.small_networks import follow
from tests.runtime.processes import veena as command
from veena import blocking
from veena.address import Address
from veena.core.boundary.inputs_effects import PublishBatch
from veena.core.delivery.match_cache import MAX_DECISIONS
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.event import EventCodec
from veena.core.wire.interest import Interest
from veena.event import Event, EventId
from veena.runtime.access.limits import Limits
from veena.sim.world.network import Delivery
from veena.sim.world.options import Options

ROOT = Path(__file__).parents[2]
#: Clients, and so 2 ** CLIENTS sets of them.
CLIENTS = 13


@pytest.mark.parametrize("seed", range(6))
def test_a_change_of_wants_comes_first_by_the_best_hops(seed: int) -> None:
    """PPP-12: whoever has to know hears it from the neighbour on the path that the routing cache gives.

    Everybody in the context has to know, so a change goes over all links there; what comes second is no news.
    """
    chance = Random(seed)
    links = [(chance.randrange(number), number) for number in range(1, 9)]
    links += [(a, b) for a, b in (sorted(chance.sample(range(9), 2)) for _ in range(5)) if (a, b) not in links]
    stage = Stage(cluster(list(dict.fromkeys(links))), options=Options(wire=False, jitter_ns=0))
    heard_from: dict[Address, Address] = {}

    def hear(delivery: Delivery) -> None:
        if any(isinstance(frame, Interest) and frame.rows for _, frame in delivery.frames):
            heard_from.setdefault(delivery.to, delivery.session.link.other(delivery.to))

    stage.world.on_delivery = hear
    source = str(chance.randrange(9))
    stage.subscribe(source, "new to everybody")
    stage.wait()
    start, hops = stage.addresses[source], {broker.identity.address: broker.hops for broker in stage.world.live()}
    for address in stage.addresses.values():
        if address == start:
            continue
        way = [address]
        while way[-1] != start:
            way.append(heard_from[way[-1]])
        best = follow(hops, start, address)
        # Of two paths that are equally short either may be the faster one.
        assert len(way) == len(best) and best[-1] == address


def footprint(thing: object) -> int:
    """Bytes of everything that it refers to."""
    apart = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
    seen: set[int] = set()
    pending: list[Any] = [thing]
    size = 0
    while pending:
        found = pending.pop()
        if id(found) not in seen and not isinstance(found, apart):
            seen.add(id(found))
            size += sys.getsizeof(found)
            pending.extend(gc.get_referents(found))
    return size


def test_memory_does_not_depend_on_the_sets_of_recipients() -> None:
    """GUA-14: 13 clients, and an event for each of the 8,192 sets of them: no groups are made for any."""
    stage = Stage(cluster([(0, 1)]), options=Options(wire=False, check=False))
    clients = [
        stage.subscribe("0", ("quotes", f"bits LIKE '{'_' * number}1%'"), engine="selector")
        for number in range(CLIENTS)
    ]
    publisher = stage.attach("0", "publisher")
    stage.wait()
    broker, codec = stage.broker("0"), EventCodec(4, 32)
    sizes: list[int] = []
    sets = list(range(1 << CLIENTS))
    Random(14).shuffle(sets)
    got = 0
    for number, recipients in enumerate(sets):
        bits = format(recipients, f"0{CLIENTS}b")
        event_id = EventId("publisher", stage.incarnation(publisher), 1, number)
        frame = codec.frame(Event(topic="quotes", properties={"bits": bits}, event_id=event_id), origin=(0, 0, 0, 0))
        (burst,) = Decoder(codec).feed_bursts(codec.encode(frame, 0))
        assert isinstance(burst, EventBurst)
        effects = broker.handle(PublishBatch(publisher, [burst]), stage.world.now_ns)
        got += sum(len(getattr(effect, "receivers", ())) for effect in effects)
        if number in (MAX_DECISIONS - 1, 2 * MAX_DECISIONS - 1):
            sizes.append(footprint(broker))
    assert len(clients) == CLIENTS
    assert got == CLIENTS << (CLIENTS - 1), "everybody is in half of the sets"
    assert len(sets) == 2 * MAX_DECISIONS
    assert sizes[1] < 1.05 * sizes[0], "what is remembered of the last events is bounded, and all there is"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="asks Linux which sockets a process has")
def test_only_ordinary_sockets_are_used(tmp_path: Path) -> None:
    """GUA-10: links and clients use TCP, the only transport between processes today, and ask nothing of routers."""
    network = tmp_path / "two.toml"
    network.write_text(
        '[network]\nname = "two"\n[[broker]]\naddress = "S.C.c.1"\n[[broker]]\naddress = "S.C.c.2"\n'
        '[[link]]\nbetween = ["S.C.c.1", "S.C.c.2"]\n'
    )
    with command("network", "up", str(network), "--data", str(tmp_path / "data"), "--json") as started:
        brokers = [started.told(), started.told()]
        assert started.told()["ready"]
        with blocking.connect(brokers[0]["url"]) as reader, blocking.connect(brokers[1]["url"]) as writer:
            wanted = reader.subscribe(topic="t")
            writer.publish(topic="t", body=b"hello")
            assert wanted.next(timeout=30).body == b"hello"
            for broker in brokers:
                kinds = sockets_of(broker["pid"])
                assert set(kinds) <= {"tcp", "tcp6", "unix"}
                assert kinds["tcp"] >= 3, "a door, a link and a client"


def sockets_of(pid: int) -> dict[str, int]:
    """How many sockets of each protocol a process has; `?` for what no table of the kernel lists."""
    tables: dict[str, str] = {}
    for kind, column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("raw", 9), ("raw6", 9), ("unix", 6)):
        table = Path(f"/proc/{pid}/net/{kind}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            tables[line.split()[column]] = kind
    found: dict[str, int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = str(entry.readlink())
        if target.startswith("socket:["):
            kind = tables.get(target.removeprefix("socket:[").removesuffix("]"), "?")
            found[kind] = found.get(kind, 0) + 1
    return found


def test_clients_are_not_held_to_rates_contents_or_numbers() -> None:
    """GUA-09: by default there is no limit on how much a client says, nor on what; the bounds that there are keep what
    waits for one of them from filling a broker, and each can be raised."""
    limits = Limits()
    assert limits.events_per_second == limits.bytes_per_second == 0, "no rate"
    highest = Limits(
        control_per_second=0,
        subscriptions=limits.subscriptions,
        connections=1 << 20,
        unaccepted=1 << 20,
        queue_bytes=64 << 20,
    )
    assert highest.faults() == []


def test_everything_is_written_in_python() -> None:
    """ORD-01: this is CPython, and there is no source of another language that would be compiled or run on a JVM."""
    assert sys.implementation.name == "cpython"
    kept = (
        path
        for name in ("src", "tests", "benchmarks", "examples", "tools", "docs")
        for path in (ROOT / name).rglob("*")
    )
    foreign = {".java", ".scala", ".kt", ".groovy", ".clj", ".jar", ".class", ".c", ".cpp", ".rs", ".go", ".pyx"}
    assert [path for path in kept if path.suffix in foreign] == []
