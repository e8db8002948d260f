"""What one event costs a broker's core in CPU time, split by step, as a multiple of a dict look-up of the same run.

    python benchmarks/relay.py [--json] [--check] [--rounds 7]

Real brokers of `ges-22-linked` that know each other's wants; one of them is taken out and given what its driver would
give it: bytes of a read in, bytes for its neighbours out, the neighbours' acknowledgements as well. The cases:

- relay: a copy for a unit beyond; nothing is matched, the tail is not read. Reliable and best effort, one event a read
  and 32 a read, which is how they come when it matters;
- gate: a copy for the unit beyond a link of level 2: its wants are looked at before it crosses;
- enter: a copy for an own unit, from beyond: the interest map says who inside wants it;
- end: a copy for this broker itself: its clients are matched, the place is written;
- publish: accepted from a client, written, matched, sent.

The unit of measure is one look-up in a dict of 100,000 strings, in random order with freshly made strings (whose hash
is not known yet). `--check` exits with 1 when a relayed reliable event costs more than 40 of them at 32 a read. The
split comes from a second run that is looked at every few milliseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from veena.address import Address, Unit, link_level, shared
from veena.core.boundary.inputs_effects import (
    Arrived,
    ClientUp,
    Effect,
    Publish,
    Send,
    Store,
    Stored,
    Subscribe,
    Welcome,
)
from veena.core.broker import Broker
from veena.core.delivery.delivery import Ends
from veena.core.interest.gateway_filter import Beyond
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.subscriptions import Clients
from veena.core.links.link import Link
from veena.core.publishing.log import Origin
from veena.core.publishing.publishers import Publishers
from veena.core.routing.router import Router
from veena.core.wire import codec as wire
from veena.core.wire.control import done
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId
from veena.runtime.networks.file import load_network
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORK = Path(__file__).parent.parent / "networks" / "ges-22-linked.toml"
LOOK_UPS_MAX = 40.0
KEYS = 100_000
BODY = b"x" * 200
#: Topics that each broker's clients want, and how many there are.
WANTED, TOPICS = 100, 2000
EVENTS, EVENTS_AT_ONCE = 2048, 256
#: Events a read, when many come.
BATCH = 32
SESSION, PUBLISHER_SESSION = 1, 2
PUBLISHER = "publisher-18"
NOW_NS = 10_000_000_000

#: The split: a moment belongs to the innermost of these functions that is running.
SAMPLE_S, SAMPLES = 0.001, 500
STEPS: tuple[tuple[str, type, str], ...] = (
    ("order", Link, "arrive"),
    ("duties", Router, "arrived"),
    ("duties", Router, "on_done"),
    ("next hops", Router, "_forward"),
    ("copies out", Router, "_send"),
    ("copies out", Link, "send"),
    ("match", InterestMap, "destinations"),
    ("match", Clients, "matching"),
    ("match", Beyond, "wants"),
    ("read section", EventFrame, "event"),
    ("ends", Ends, "deliver"),
    ("origin", Publishers, "publish"),
    ("origin", Origin, "pump"),
    ("input", Broker, "handle"),
    ("wake-up", Broker, "next_wakeup"),
    ("end of input", Broker, "_flush"),
)


# --- the unit of measure ---


class LookUp:
    """One look-up in a dict of 100,000 strings, in random order, with strings whose hash is not known yet."""

    def __init__(self) -> None:
        self._table = {f"market/topic-{number}": number for number in range(KEYS)}
        self._chance = Random(1)

    def ns(self) -> float:
        table = self._table
        fresh = [f"market/topic-{number}" for number in self._chance.sample(range(KEYS), KEYS)]
        begin = time.process_time_ns()
        for text in fresh:
            table[text]
        return (time.process_time_ns() - begin) / KEYS


# --- the broker under test ---


@dataclass(slots=True)
class Bench:
    """One broker of a world at rest, its links, and the bytes that go in and out."""

    world: World
    broker: Broker
    codec: EventCodec
    decoder: wire.Decoder
    #: The next frame number that each link expects.
    numbers: dict[int, int]
    #: Of the client that publishes here.
    incarnation: int
    far_away: Address
    sequence: int = 0

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def next_number(self, link: int) -> int:
        self.numbers[link] += 1
        return self.numbers[link] - 1

    def frames(self, case: Case, topic: str) -> bytes:
        """The bytes of a read with new events."""
        ids = [EventId("publisher-17", 3, 1_700_000_000_000, self.next_sequence()) for _ in range(case.batch)]
        return b"".join(
            self.codec.encode_event(
                Event(topic=topic, body=BODY, event_id=each),
                self.next_number(case.link),
                reliable=case.reliable,
                origin=self.far_away,
                to_serve=case.to_serve,
            )
            for each in ids
        )

    def answers(self, effect: Effect) -> list[tuple[int, bytes]]:
        """The bytes with which a neighbour acknowledges the events that it was sent."""
        if not isinstance(effect, Send):
            return []
        numbers = [number for number, frame in effect.frames if isinstance(frame, EventFrame)]
        return [(effect.link, wire.encode(frame, self.next_number(effect.link))) for frame in done(numbers)]


def make_bench() -> Bench:
    network = load_network(NETWORK)
    world = World(network, 1, Options(wire=False, check=False))
    chance = Random(1)
    for number, address in enumerate(world.nodes):
        world.give(address, ClientUp(SESSION, f"client-{number}"))
        for subscription, topic in enumerate(chance.sample(range(TOPICS), WANTED)):
            world.give(address, Subscribe(SESSION, subscription, "topic", f"topic-{topic}", network.levels))
    world.run_until(NOW_NS)
    broker = max(world.live(), key=lambda each: len(each.statistics().links))
    codec = EventCodec(network.levels, network.fanout)
    numbers = {link.link: link.channel.received + 1 for link in broker.statistics().links}
    effects = settled(broker, broker.handle(ClientUp(PUBLISHER_SESSION, PUBLISHER), NOW_NS))
    incarnation = next(effect.incarnation for effect in effects if isinstance(effect, Welcome))
    far_away = min(world.nodes, key=lambda address: shared(address, broker.identity.address))
    return Bench(world, broker, codec, wire.Decoder(codec), numbers, incarnation, far_away)


# --- one round of a case ---


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    reliable: bool
    batch: int
    link: int
    to_serve: int
    topics: tuple[str, ...]


@dataclass(slots=True)
class Times:
    """Nanoseconds of the three parts of a round; the middle one is the broker itself."""

    decode: int = 0
    handle: int = 0
    encode: int = 0


def run(bench: Bench, case: Case) -> Times:
    """All events of a round and the acknowledgements that they cause.

    Some reads are decoded, then handled, then what came of them is encoded: the clock is read once for many events.
    """
    times = Times()
    for start in range(0, EVENTS, EVENTS_AT_ONCE):
        reads = range(start, start + EVENTS_AT_ONCE, case.batch)
        topics = [case.topics[at // case.batch % len(case.topics)] for at in reads]
        if case.name == "publish":
            effects = publish(bench, case, topics, times)
        else:
            effects = drive(bench, [(case.link, bench.frames(case, topic)) for topic in topics], times)
        if case.reliable:
            drive(bench, [answer for effect in effects for answer in bench.answers(effect)], times)
    return times


def drive(bench: Bench, reads: list[tuple[int, bytes]], times: Times) -> list[Effect]:
    """Reads of links: decode, handle, encode what comes of it."""
    clock, feed = time.process_time_ns, bench.decoder.feed
    handle, next_wakeup = bench.broker.handle, bench.broker.next_wakeup
    begin = clock()
    inputs = [Arrived(link, feed(data)) for link, data in reads]
    decoded = clock()
    effects: list[Effect] = []
    for given in inputs:
        effects += settled(bench.broker, handle(given, NOW_NS))
        next_wakeup()  # as every driver does after an input
    handled = clock()
    encode(bench, effects)
    times.encode += clock() - handled
    times.handle += handled - decoded
    times.decode += decoded - begin
    return effects


def publish(bench: Bench, case: Case, topics: list[str], times: Times) -> list[Effect]:
    """Events of a client: what came in was decoded by its session. The log is synced once for each batch."""
    batches: list[list[Publish]] = []
    for topic in topics:
        ids = [EventId(PUBLISHER, bench.incarnation, NOW_NS, bench.next_sequence()) for _ in range(case.batch)]
        events = [Event(topic=topic, body=BODY, event_id=each) for each in ids]
        batches.append([Publish(PUBLISHER_SESSION, bench.codec.frame(event, reliable=True)) for event in events])
    clock, handle = time.process_time_ns, bench.broker.handle
    begin = clock()
    effects: list[Effect] = []
    for batch in batches:
        made = [effect for given in batch for effect in handle(given, NOW_NS)]
        effects += settled(bench.broker, made)
        bench.broker.next_wakeup()
    handled = clock()
    encode(bench, effects)
    times.encode += clock() - handled
    times.handle += handled - begin
    return effects


def settled(broker: Broker, effects: list[Effect]) -> list[Effect]:
    """These effects and what follows when the disk has answered, until there is nothing more to write."""
    pending = [effect for effect in effects if type(effect) is Store]
    while pending:
        more = [effect for store in pending for effect in broker.handle(Stored(store.ticket), NOW_NS)]
        effects += more
        pending = [effect for effect in more if type(effect) is Store]
    return effects


def encode(bench: Bench, effects: list[Effect]) -> None:
    codec, out = bench.codec, []
    for effect in effects:
        if type(effect) is Send:
            for number, frame in effect.frames:
                if type(frame) is EventFrame:
                    out.append(codec.encode(frame, number))
                else:
                    out.append(wire.encode(frame, number))  # type: ignore[arg-type]


# --- the split ---


class Sampler:
    """Looks every few milliseconds of CPU time which step is being done; nothing is slowed down between two looks."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._steps = {getattr(owner, name).__code__: step for step, owner, name in STEPS}

    def __enter__(self) -> Sampler:
        self._before = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _look(self, _: int, frame: FrameType | None) -> None:
        while frame is not None:
            step = self._steps.get(frame.f_code)
            if step is not None:
                self.seen[step] += 1
                return
            frame = frame.f_back


def split(bench: Bench, case: Case, handle_ns: float) -> dict[str, float]:
    """Nanoseconds an event of each step inside `handle`."""
    with Sampler() as sampler:
        while sampler.seen.total() < SAMPLES:
            run(bench, case)
    return {
        step: handle_ns * sampler.seen[step] / sampler.seen.total()
        for step in dict.fromkeys(step for step, _, _ in STEPS)
        if sampler.seen[step]
    }


def measure(bench: Bench, chosen: list[Case], rounds: int) -> tuple[float, list[dict[str, Any]]]:
    """A look-up's nanoseconds, and a row for each case. Cases and look-ups take turns: a busy machine hits all."""
    look_up, units = LookUp(), []
    found: dict[Case, list[Times]] = {case: [] for case in chosen}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for _ in progress.track(range(rounds + 1), description="rounds"):
            units.append(look_up.ns())
            for case, times in found.items():
                times.append(run(bench, case))
    rows = []
    for case, times in found.items():
        decode_ns, handle_ns, encode_ns = (
            median(getattr(each, part) for each in times[1:]) / EVENTS for part in ("decode", "handle", "encode")
        )
        sums = [(each.decode + each.handle + each.encode) / EVENTS for each in times]
        rows.append(
            {
                "case": case.name,
                "reliable": case.reliable,
                "events_a_read": case.batch,
                "ns": decode_ns + handle_ns + encode_ns,
                "look_ups": median(total / unit for total, unit in zip(sums[1:], units[1:], strict=True)),
                "ns_by_step": {"decode": decode_ns, **split(bench, case, handle_ns), "encode": encode_ns},
            }
        )
    return median(units[1:]), rows


def cases(bench: Bench) -> list[Case]:
    broker, host = bench.broker, bench.broker.identity.address
    interest = broker.profiles.interest
    links = {link.connection: link for link in broker.statistics().links}
    levels = {link.link: link_level(host, link.neighbour) for link in links.values() if link.neighbour is not None}
    upstream = next(link for link, level in levels.items() if level == 0)
    #: A unit by the level of the link that leads to it.
    beyond: dict[int, Unit] = {}
    for unit in broker.map.reachable():
        hop = broker.hops.hop(unit) if unit != host else None
        if hop is not None and links[hop.connection].link != upstream:
            beyond.setdefault(link_level(host, hop.neighbour), unit)
    topics = tuple(f"topic-{number}" for number in range(0, TOPICS, 37))
    found = [
        Case("relay", reliable, batch, upstream, interest.bit(beyond[0]), topics)
        for reliable in (True, False)
        for batch in (1, BATCH)
    ]
    gates = [(level, link) for link, level in levels.items() if level > 1]
    if gates:
        level, link = gates[0]
        found.append(Case("gate", True, BATCH, upstream, interest.bit(beyond[level]), topics))
        found.append(Case("enter", True, BATCH, link, interest.bit(broker.map.own(level)), topics))
    found.append(Case("end", True, BATCH, upstream, interest.bit(host), topics))
    found.append(Case("publish", True, BATCH, 0, 0, topics))
    return found


def show(unit_ns: float, rows: list[dict[str, Any]]) -> None:
    console = Console(width=max(150, Console().width))
    steps = list(dict.fromkeys(step for row in rows for step in row["ns_by_step"]))
    table = Table(title=f"microseconds an event; a dict look-up takes {unit_ns:.0f} ns")
    for name in ("case", "reliable", "a read", "look-ups", "sum", *steps):
        table.add_column(name, justify="left" if name == "case" else "right")
    for row in rows:
        table.add_row(
            row["case"],
            "yes" if row["reliable"] else "no",
            f"{row['events_a_read']}",
            f"{row['look_ups']:.1f}",
            f"{row['ns'] / 1000:.2f}",
            *(f"{row['ns_by_step'][step] / 1000:.2f}" if step in row["ns_by_step"] else "" for step in steps),
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    bench = make_bench()
    unit_ns, rows = measure(bench, cases(bench), arguments.rounds)
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "look_up_ns": unit_ns, "rows": rows}))
    else:
        show(unit_ns, rows)
    relayed = next(r for r in rows if r["case"] == "relay" and r["reliable"] and r["events_a_read"] == BATCH)
    too_dear = relayed["look_ups"] > LOOK_UPS_MAX
    if too_dear:
        print(f"a relayed event costs {relayed['look_ups']:.1f} look-ups; at most {LOOK_UPS_MAX:.0f}", file=sys.stderr)
    return int(arguments.check and too_dear)


if __name__ == "__main__":
    sys.exit(main())
