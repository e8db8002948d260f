"""One seed from beginning to end: draw the options, let it happen, heal, judge, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from veena.address import Address, Unit
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.broker import Broker
from veena.errors import ConfigError
from veena.runtime.networks.file import Network
from veena.sim.clients.durable import DurableClients
from veena.sim.clients.groups import GroupClients
from veena.sim.clients.population import Population
from veena.sim.clients.replay import PastClients
from veena.sim.clients.second_devices import SecondDevices
from veena.sim.clients.slow import SlowClients
from veena.sim.clients.traffic import Traffic
from veena.sim.judges.crossings import Crossings
from veena.sim.judges.delivery import NAMED, Judge, deadline_ns
from veena.sim.judges.durable import DurableJudge, patience_ns
from veena.sim.judges.groups import GroupJudge, group_patience_ns
from veena.sim.judges.replay import PastJudge, past_patience_ns
from veena.sim.networks.generate import generate
from veena.sim.runs.faults import (
    Fault,
    heal_everything,
    plan_breaks,
    plan_clocks,
    plan_faults,
    plan_narrow_links,
)
from veena.sim.runs.liars import false_statements, plan_liars
from veena.sim.runs.newcomers import Guests
from veena.sim.world.options import Options, draw, fork
from veena.sim.world.routes import way
from veena.sim.world.world import MakeBroker, World

#: Sizes of generated worlds and how often each is drawn: most are small, so that there can be many of them.
SIZES = (((22, 60), 80), ((60, 120), 16), ((120, 300), 4))
#: A newcomer's network is up within this virtual time.
START_NS = 20 * SECOND_NS
#: How long events are published in a run without faults; otherwise for as long as there are faults.
QUIET_TIME_NS = 20 * SECOND_NS
#: What may wait for a client in a costly world.
COSTLY_OUTLET = 4096
#: Clients change their mind so often, until the faults end.
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
    #: Brokers that asked to be let in and were; and addresses that were given to two of them.
    joined: int
    #: Cores that raised an exception over a frame, and were made anew.
    renewals: int
    #: Evaluations outside of brokers' loops, and workers that ended before they had answered.
    evaluated: int
    workers_lost: int
    clashes: tuple[str, ...]
    faults: tuple[str, ...]
    steps: int
    frames: int
    virtual_seconds: float
    clients: int
    #: How often a broker believed that a unit wants less, or more, than its clients do.
    interest_narrower: int
    interest_wider: int
    #: What brokers of a network that signs believed of other units, though nobody of these has signed it.
    false_statements: tuple[str, ...]
    wrong_maps: tuple[str, ...]
    wrong_hops: tuple[str, ...]
    #: Whether ways were judged: they are where every unit hangs together in the end.
    hops_judged: bool
    broken: str | None

    #: Events that went to somebody who did not want them, or were changed on the way.
    spurious: int | None
    #: Reliable events that a publisher could not get rid of.
    unaccepted: int | None
    #: Subscriptions that should have been acknowledged for their scope and were not.
    unacknowledged: int | None
    #: Seconds from the end of the faults, or from acceptance, to the last delivery that was owed.
    slowest_seconds: float | None
    #: Durable subscriptions, what they were entitled to and got (counted above as well), and the slowest of it.
    durable_subscriptions: int | None
    durable_expected: int | None
    durable_delivered: int | None
    durable_slowest_seconds: float | None
    #: The same of groups that share a subscription, each event for one of them.
    group_expected: int | None
    group_delivered: int | None
    group_slowest_seconds: float | None
    #: The same of clients that subscribed with `since`; and what of it was accepted before they came.
    past_expected: int | None
    past_delivered: int | None
    #: Second copies, marked as such, of what a client had not acknowledged for good.
    redelivered: int | None
    #: Reliable events that clients which did not read were told to have missed.
    slow_dropped: int | None
    #: Deliveries that are owed no more, each with its reason; and the first of those that went wrong.
    excused: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        wrong = self.wrong_maps or self.wrong_hops or self.interest_narrower or self.interest_wider
        lost = (
            self.missing
            or self.duplicates
            or self.out_of_order
            or self.spurious
            or self.unaccepted
            or self.unacknowledged
        )
        is_quiet = self.options["faults"] == "none" and not self.options["liars"]
        astray = is_quiet and self.wasted_units != self.digest_false_positives
        wrong = wrong or self.false_statements
        return not wrong and not lost and not astray and not self.clashes and self.broken is None


def run_seed(
    seed: int,
    faults: str = "none",
    network: Network | None = None,
    make_broker: MakeBroker = Broker,
    change: Callable[[Options], Options] | None = None,
    *,
    events: int | None = None,
    brokers: int | None = None,
    guests: int = 0,
    narrow: int = 0,
    breaks: int = 0,
    liars: int = 0,
    signed: bool = False,
    costly: bool = False,
) -> Report:
    """Simulate one seed; `events` and `brokers` override how many it draws, `guests` ask to be let in meanwhile, links
    are `narrow` for a while so often, and a core `breaks` so often; many subscriptions are `costly`. Brokers with links
    between super-clusters are `liars` so often; if `signed`, all sign what crosses these links.

    `change` alters the drawn options, `make_broker` plants a bug: both are for tests.
    """
    chance = Random(seed)
    size = draw_size(chance)
    network_seed = chance.getrandbits(32)
    if network is None:
        network = generate(size if brokers is None else brokers, seed=network_seed)
    if not network.links and (narrow or faults in {"links", "all"}):
        option, value = ("--narrow", str(narrow)) if narrow else ("--faults", faults)
        raise ConfigError(option, value, "strikes links, and this network has none", "use two brokers or more")
    drawn = draw(chance, faults, len(network.brokers), events)
    options = replace(drawn, guests=guests, narrow=narrow, breaks=breaks, costly=costly)
    if costly:  # what waits for evaluations is within the bound, beyond which a subscription is suspended
        options = replace(options, outlet=COSTLY_OUTLET)
    options = replace(options, liars=liars, signed=signed)
    if change is not None:
        options = change(options)
    play = Play(World(network, seed, options, make_broker=make_broker), chance)
    broken: str | None = None
    try:
        play.run()
    except Exception as error:  # whatever it is: a broker must not fall over
        broken = f"{type(error).__name__}: {error}"
    return _report(seed, play, broken)


def draw_size(chance: Random) -> int:
    (sizes,) = chance.choices([bounds for bounds, _ in SIZES], [weight for _, weight in SIZES])
    return chance.randint(*sizes)


class Play:
    """What happens in one run, from the first broker's start to the end of all patience."""

    def __init__(self, world: World, chance: Random) -> None:
        options = world.options
        self.world = world
        self.healed_ns = 0
        #: What brokers believed of other units that nobody of these has said.
        self.false: list[str] = []
        self.crossings = Crossings(lambda: world.now_ns, world.network.fanout)
        world.on_crossing = self.crossings.note
        self.plan = plan_faults(world) if options.fault_count else []
        self.population = Population(world, options.clients, chance)
        self.traffic = Traffic(world, self.population, options.publishers, chance)
        # With faults everything happens at once; without, events come when everybody knows what everybody wants.
        begin_ns = world.now_ns + (2 * SECOND_NS if self.plan else START_NS)
        self.end_ns = world.now_ns + START_NS + (options.fault_time_ns or QUIET_TIME_NS)
        self.traffic.plan(options.events, begin_ns, self.end_ns, [fault.at_ns for fault in self.plan])
        self.durables = DurableClients(world, self.traffic, options.durables, chance)
        self.durables.plan(options.absences, begin_ns, self.end_ns)
        SlowClients(world, self.population, chance).plan(options.clogs, begin_ns, self.end_ns)
        roaming = self.traffic.plan_roaming(options.roams, begin_ns, self.end_ns)
        self.plan = sorted(self.plan + [Fault(*each) for each in roaming], key=lambda fault: fault.at_ns)
        others = fork(chance)
        self.groups = GroupClients(world, self.traffic, options.groups, others)
        self.groups.plan(options.partings, begin_ns, self.end_ns)
        self.begin_ns = begin_ns
        self.pasts = PastClients(world, self.traffic, options.pasts, others)
        self.pasts.plan(begin_ns, self.end_ns)
        minds = fork(others)
        self.durables.plan_changes(options.changes, begin_ns, self.end_ns, minds)
        self.devices = SecondDevices(world, self.traffic, self.durables, minds)
        self.devices.plan(options.devices, begin_ns, self.end_ns)
        self.guests = Guests(world, self.traffic, options.guests, fork(minds))
        self.plan += self.guests.plan(begin_ns, self.end_ns)
        struck = [fault.at_ns for fault in self.plan]
        # A worker that evaluates some events a second would fall behind, and what waits for 30 s is given up.
        batches = 0 if options.costly else options.batches
        self.traffic.plan_batches(batches, begin_ns, self.end_ns, struck, fork(fork(minds)))
        self.plan += plan_narrow_links(world, options.narrow, fork(fork(minds)), (begin_ns, self.end_ns))
        self.plan += plan_breaks(world, options.breaks, fork(fork(fork(fork(minds)))), (begin_ns, self.end_ns))
        if options.clocks:
            clocks = fork(fork(fork(minds)))
            self.plan += plan_clocks(world, options.clocks, clocks, (world.now_ns + SECOND_NS, self.end_ns))
        if options.liars:
            lies = fork(fork(fork(fork(fork(minds)))))
            times_ns = (begin_ns, self.end_ns - world.settings.lease_ns)
            self.plan += plan_liars(world, options.liars, lies, times_ns, self.false)
        self.plan.sort(key=lambda fault: fault.at_ns)

    def run(self) -> None:
        """Faults, with clients that come and go, then healing, then time for every time-out to pass once."""
        world = self.world
        self.traffic.pulse()
        for part in (self.durables, self.groups, self.pasts, self.devices):
            part.pulse()
        while world.now_ns < self.end_ns:
            if world.options.churn:
                self.population.churn(world.options.churn)
            world.run_until(min(world.now_ns + CHURN_NS, self.end_ns))
        heal_everything(world)
        self.healed_ns = world.now_ns
        self.durables.gather()
        self.groups.gather()
        self.pasts.gather(self.begin_ns)
        self.false += false_statements(world)
        world.run_until(world.now_ns + self._settled_ns())
        world.check()
        self.false += false_statements(world)

    def _settled_ns(self) -> int:
        """How long after the last fault everything is as it should be, and everybody has what it was promised."""
        settings, deadline = self.world.settings, deadline_ns(self.world.settings)
        due = [settling_ns(settings)]
        has_losses = self.world.options.permanent > 0
        due += [patience_ns(settings, deadline, has_losses) + SECOND_NS] if self.durables.clients else []
        due += [group_patience_ns(settings, deadline) + SECOND_NS] if self.groups.groups else []
        due += [past_patience_ns(settings, deadline) + SECOND_NS] if self.pasts.clients else []
        return max(due)


def _report(seed: int, play: Play, broken: str | None) -> Report:
    world, label = play.world, play.world.network.labels.label
    options, network = world.options, world.network
    judgement = play.population.judge() if broken is None else None
    return Report(
        seed=seed,
        options={"network": network.name, "brokers": len(network.brokers), **options.as_dict()},
        **_traffic_fields(play, broken),
        trace_hash=world.trace_hash(),
        brokers=sum(1 for _ in world.live()),
        joined=play.guests.joined,
        renewals=world.counters.renewals,
        evaluated=world.evaluator.answered,
        workers_lost=world.evaluator.failed,
        clashes=tuple(play.guests.clashes),
        faults=tuple(f"{fault.at_ns / SECOND_NS:.3f} s: {fault.what}" for fault in (*play.plan, *play.guests.fates)),
        steps=world.counters.steps,
        frames=world.counters.frames,
        virtual_seconds=round(world.now_ns / SECOND_NS, 3),
        clients=len(play.population.clients),
        interest_narrower=judgement.narrower if judgement else 0,
        # What was wanted where nobody can be reached any more is kept for a while, and what costs too much on the way
        # is taken for wanted: wider, on purpose.
        interest_wider=judgement.wider if judgement and not options.permanent and not options.costly else 0,
        false_statements=tuple(play.false),
        wrong_maps=() if broken else tuple(map(label, world.wrong_maps())),
        wrong_hops=() if broken else tuple(f"{label(a)} -> {label(u)}" for a, u in wrong_hops(world)),
        hops_judged=broken is None and world.oracle().is_whole(),
        broken=broken,
    )


def _traffic_fields(play: Play, broken: str | None) -> dict[str, Any]:
    """The fields of the report that are about events; None for what this run cannot tell."""
    if broken is not None:
        return {**dict.fromkeys(_TRAFFIC), "excused": (), "wrong": ()}
    world, healed_ns, deadline = play.world, play.healed_ns, deadline_ns(play.world.settings)
    judge = Judge(world, play.traffic, healed_ns)
    found = judge.deliveries()
    kept = DurableJudge(world, play.traffic, play.durables, healed_ns, deadline).deliveries()
    dealt = GroupJudge(world, play.traffic, play.groups, healed_ns, deadline).deliveries()
    asked = PastJudge(world, play.traffic, play.pasts, healed_ns, deadline).deliveries()
    parts = (found, kept, dealt, asked)
    missing = [what for part in parts for what in part.missing]
    unacknowledged = [what for part in parts for what in part.unacknowledged]
    duplicates = [*found.duplicates, *play.durables.duplicates, *dealt.duplicates, *play.pasts.duplicates]
    wasted, by_digest = judge.wasted_units(play.crossings)
    optimum, flood = judge.compared() if world.options.faults == "none" else (None, None)
    wrong = [*missing, *duplicates, *found.out_of_order, *found.spurious, *found.unaccepted, *unacknowledged]
    return {
        "events": found.events,
        "expected": sum(part.expected for part in parts),
        "delivered": sum(part.delivered for part in parts),
        "missing": len(missing),
        "duplicates": len(duplicates),
        "out_of_order": len(found.out_of_order),
        "late": found.late + play.durables.late + play.pasts.late,
        "dropped": found.dropped,
        "expired": sum(part.expired for part in parts),
        "wasted_units": wasted,
        "digest_false_positives": by_digest,
        "link_crossings": play.crossings.total(),
        "optimum_crossings": optimum,
        "flood_crossings": flood,
        "crossings_per_link_max": play.crossings.link_max(),
        "spurious": len(found.spurious),
        "unaccepted": len(found.unaccepted),
        "unacknowledged": len(unacknowledged),
        "slowest_seconds": round(found.slowest_s, 3),
        "durable_subscriptions": len(play.durables.history),
        "durable_expected": kept.expected,
        "durable_delivered": kept.delivered,
        "durable_slowest_seconds": round(kept.slowest_s, 3),
        "group_expected": dealt.expected,
        "group_delivered": dealt.delivered,
        "group_slowest_seconds": round(dealt.slowest_s, 3),
        "past_expected": asked.expected,
        "past_delivered": asked.past,
        "redelivered": play.durables.redelivered + dealt.redelivered,
        "slow_dropped": found.slow_dropped,
        "excused": tuple(what for part in parts for what in part.excused),
        "wrong": tuple(wrong[:NAMED]),
    }


_TRAFFIC = (
    "events", "expected", "delivered", "missing", "duplicates", "out_of_order", "late", "dropped", "expired",
    "wasted_units", "digest_false_positives", "link_crossings", "optimum_crossings", "flood_crossings",
    "crossings_per_link_max", "spurious", "unaccepted", "unacknowledged",
    "slowest_seconds", "durable_subscriptions", "durable_expected", "durable_delivered", "durable_slowest_seconds",
    "group_expected", "group_delivered", "group_slowest_seconds", "past_expected", "past_delivered",
    "redelivered", "slow_dropped",
)  # fmt: skip


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
