"""One seed from beginning to end: draw the options, let it happen, heal, judge, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from veena.address import Address, Unit
from veena.core.broker import Broker
from veena.core.settings import SECOND_NS, Settings
from veena.errors import VeenaError
from veena.runtime.network_file import Network
from veena.sim.faults import heal_everything, plan_faults
from veena.sim.generate import generate
from veena.sim.options import Options, draw
from veena.sim.population import Population
from veena.sim.ways import way
from veena.sim.world import MakeBroker, World

#: Generated worlds of `sim run` without a network: small enough for a second, large enough for four levels.
SMALLEST, LARGEST = 5, 40
#: A newcomer's network is up within this virtual time.
START_NS = 20 * SECOND_NS
MAX_CLIENTS = 60
#: So many clients change their mind so often, until the faults end.
CHURN = 3
CHURN_NS = 5 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Report:
    """What `veena sim run --json` prints; None for what is not measured."""

    seed: int
    options: dict[str, Any]
    events: int | None
    expected: int | None
    delivered: int | None
    missing: int | None
    duplicates: int | None
    out_of_order: int | None
    late: int | None
    dropped: int | None
    expired: int | None
    wasted_units: int | None
    digest_false_positives: int | None
    link_crossings: int | None
    optimum_crossings: int | None
    flood_crossings: int | None
    crossings_per_link_max: int | None
    trace_hash: str
    brokers: int
    faults: tuple[str, ...]
    steps: int
    frames: int
    virtual_seconds: float
    clients: int
    #: How often a broker believed that a unit wants less, or more, than its clients do.
    interest_narrower: int
    interest_wider: int
    wrong_maps: tuple[str, ...]
    wrong_hops: tuple[str, ...]
    #: Whether ways were judged: they are where every unit hangs together in the end.
    hops_judged: bool
    broken: str | None

    @property
    def is_sound(self) -> bool:
        wrong = self.wrong_maps or self.wrong_hops or self.interest_narrower or self.interest_wider
        return not wrong and self.broken is None


def run_seed(
    seed: int,
    faults: str = "none",
    network: Network | None = None,
    make_broker: MakeBroker = Broker,
    change: Callable[[Options], Options] | None = None,
) -> Report:
    """Simulate one seed. `change` alters the drawn options, `make_broker` plants a bug: both are for tests."""
    chance = Random(seed)
    if network is None:
        network = generate(chance.randint(SMALLEST, LARGEST), seed=chance.getrandbits(32))
    options = draw(chance, faults, len(network.brokers))
    if change is not None:
        options = change(options)
    world = World(network, seed, options, make_broker=make_broker)
    plan = plan_faults(world) if options.fault_count else []
    population = Population(world, chance.randint(1, MAX_CLIENTS), chance)
    broken: str | None = None
    try:
        _play(world, population)
    except (AssertionError, VeenaError) as error:
        broken = f"{type(error).__name__}: {error}"
    label = network.labels.label
    judgement = population.judge() if broken is None else None
    return Report(
        seed=seed,
        options={"network": network.name, "brokers": len(network.brokers), **options.as_dict()},
        **dict.fromkeys(_NOT_MEASURED),
        trace_hash=world.trace_hash(),
        brokers=sum(1 for _ in world.live()),
        faults=tuple(f"{fault.at_ns / SECOND_NS:.3f} s: {fault.what}" for fault in plan),
        steps=world.counters.steps,
        frames=world.counters.frames,
        virtual_seconds=round(world.now_ns / SECOND_NS, 3),
        clients=len(population.clients),
        interest_narrower=judgement.narrower if judgement else 0,
        # What was wanted where nobody can be reached any more is kept for a while: wider, on purpose.
        interest_wider=judgement.wider if judgement and not options.permanent else 0,
        wrong_maps=() if broken else tuple(map(label, world.wrong_maps())),
        wrong_hops=() if broken else tuple(f"{label(a)} -> {label(u)}" for a, u in wrong_hops(world)),
        hops_judged=broken is None and world.oracle().is_whole(),
        broken=broken,
    )


_NOT_MEASURED = (
    "events", "expected", "delivered", "missing", "duplicates", "out_of_order", "late", "dropped", "expired",
    "wasted_units", "digest_false_positives", "link_crossings", "optimum_crossings", "flood_crossings",
    "crossings_per_link_max",
)  # fmt: skip


def _play(world: World, population: Population) -> None:
    """Faults, with clients that come and go, then healing, then time for every time-out to pass once."""
    end_ns = world.now_ns + START_NS + world.options.fault_time_ns
    while world.now_ns < end_ns:
        population.churn(CHURN)
        world.run_until(min(world.now_ns + CHURN_NS, end_ns))
    heal_everything(world)
    world.run_until(world.now_ns + SECOND_NS)
    population.attach()
    world.run_until(world.now_ns + settling_ns(world.settings))
    world.check()


def settling_ns(settings: Settings) -> int:
    """How long after the last fault every map is right: suspicion, confirmation, two reconciliations, a held cost."""
    patience = settings.suspect_after_ns + settings.confirm_after_ns + 2 * settings.reconcile_ns
    return max(patience, settings.cost_hold_ns) + 2 * settings.load_check_ns + 5 * SECOND_NS


def wrong_hops(world: World) -> list[tuple[Address, Unit]]:
    """Pairs of a broker and a unit in its map where following the next hops does not lead into the unit.

    Judged when every unit hangs together inside: a unit that has come apart has no path of its own (`Oracle.is_whole`).
    """
    if not world.oracle().is_whole():
        return []
    live = {broker.identity.address: broker for broker in world.live()}
    return [
        (address, unit)
        for address, broker in live.items()
        for unit in broker.map.vertices()
        if unit != address and way(live, address, unit)[-1][: len(unit)] != unit
    ]
