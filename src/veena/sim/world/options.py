"""What one simulated run is made of: every number comes from the seed and is printed with the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Literal

from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.errors import ConfigError

MAX_CLIENTS = 60
MAX_PUBLISHERS = 8
MAX_DURABLES = 8
#: How often each durable client goes away, on average and at most; how often others do not read.
MOST_ABSENT = 4
#: How often a second device of each of them comes and reads beside it, and how often one asks for something else.
MOST_DEVICES = 2
MOST_CHANGES = 1
MOST_BATCHES = 12
MAX_CLOGS = 6
#: Groups that share a subscription, how often a member goes away, and clients that want their past as well.
MAX_GROUPS = 2
MOST_PARTINGS = 8
MAX_PASTS = 5
#: How often clocks are set in one run, at most.
MOST_CLOCKS = 12
#: Faults grow with the network up to this size: with more of them a run says no more and takes longer.
MOST_STRUCK = 80
#: In networks of up to this size invariants are asserted after every step that brings a broker more than heartbeats and
#: acknowledgements; in larger ones that takes most of the time.
ALWAYS_CHECKED = 16
CHECK_EVERY = 50
FAULTS = ("none", "links", "crash", "partition", "all")


@dataclass(frozen=True, slots=True)
class Options:
    """The conditions of a run. Times are virtual nanoseconds, chances are per frame."""

    faults: str = "none"
    #: Transports that keep order (TCP), or datagrams that may be lost, repeated and overtaken.
    ordered: bool = True
    delay_ns: int = MILLISECOND_NS
    jitter_ns: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    #: How many faults happen, and within which time.
    fault_count: int = 0
    fault_time_ns: int = 0
    #: Share of cuts, crashes and partitions that are for ever.
    permanent: float = 0.0
    #: What is published in all, by how many publishers, and how often one of them goes elsewhere.
    events: int = 0
    publishers: int = 0
    roams: int = 0
    #: How often a publisher sends many alike reliable events in one write, or several times behind each other.
    batches: int = 0
    clients: int = 0
    #: How many clients change their mind, leave or roam at a time.
    churn: int = 0
    #: Clients with durable subscriptions, and how often one of them goes away or does not read.
    durables: int = 0
    absences: int = 0
    #: How often a second device of such a client reads beside it, and how often one of them asks for something else
    #: under the same name.
    devices: int = 0
    changes: int = 0
    #: How often another client does not read, and what waits for it then.
    clogs: int = 0
    outlet: int = 4096
    #: Groups that share a subscription, and how often one of their members goes away.
    groups: int = 0
    partings: int = 0
    #: How many members of each group may not have all of its events; never the first one.
    denials: int = 0
    #: Brokers that ask to be let in meanwhile, through the registrars.
    guests: int = 0
    #: How often a link takes only few bytes a second for a while.
    narrow: int = 0
    #: How often the core of a broker raises over a frame, and is made anew.
    breaks: int = 0
    #: How often a wall clock is set during the run; from the first time on all are wrong.
    clocks: int = 0
    #: Whether brokers sign what crosses links between super-clusters; and how often one of them lies over such links.
    signed: bool = False
    liars: int = 0
    #: Clients that subscribe during the run, or after it, and want what was accepted since some time (`since`).
    pasts: int = 0
    #: Let many subscriptions cost more than brokers spend in their loops.
    costly: bool = False
    #: What brokers remember for those who ask what became of an event.
    records: Literal["off", "deliveries", "all"] = "off"
    #: Disks that an event is on before it is accepted.
    copies: int = 1
    #: Let brokers that dial each other be connected.
    dial: bool = True
    #: How long closed connections are remembered; half of it for what is out of reach.
    tombstone_ns: int = 3600 * SECOND_NS
    #: How long what waits for a way is kept.
    retention_ns: int = 3600 * SECOND_NS
    #: When somebody takes the place of a lost home; 0 for never.
    standby_ns: int = 0
    #: Let every frame pass through the wire format.
    wire: bool = True
    #: Let brokers assert their invariants, each after so many of its steps that are more than signs of life.
    check: bool = True
    check_every: int = 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def draw(chance: Random, faults: str, brokers: int, events: int | None = None) -> Options:
    """Options for a run with these faults."""
    if faults not in FAULTS:
        raise ConfigError("--faults", faults, "is no kind of fault", f"use one of {', '.join(FAULTS)}")
    clocks = fork(fork(chance)).randint(1, MOST_CLOCKS) if faults == "all" else 0
    batches = fork(fork(fork(chance))).randint(0, MOST_BATCHES) if faults == "all" else 0
    drawn_events = chance.choice((50, 150, 300))
    durables = chance.randint(0, MAX_DURABLES)
    options = Options(
        faults=faults,
        delay_ns=chance.randint(1, chance.choice((20, 20, 150))) * MILLISECOND_NS,
        jitter_ns=chance.randint(0, chance.choice((30, 30, 150))) * MILLISECOND_NS,
        events=drawn_events if events is None else events,
        publishers=chance.randint(1, MAX_PUBLISHERS),
        clients=chance.randint(1, MAX_CLIENTS),
        durables=durables,
        absences=chance.randint(0, MOST_ABSENT * durables),
        clogs=chance.randint(0, MAX_CLOGS),
        outlet=chance.choice((1, 4, 4096)),
        check_every=1 if brokers <= ALWAYS_CHECKED else CHECK_EVERY,
    )
    if faults == "none":
        return options
    others = fork(chance)
    groups = others.randint(0, MAX_GROUPS)
    lossy = faults in {"links", "all"} and chance.random() < 0.6
    return replace(
        options,
        ordered=not lossy,
        loss=chance.uniform(0.0, 0.1) if lossy else 0.0,
        duplication=chance.uniform(0.0, 0.1) if lossy else 0.0,
        fault_count=chance.randint(3, 6 + min(brokers, MOST_STRUCK) // 2),
        fault_time_ns=chance.randint(20, 60) * SECOND_NS,
        tombstone_ns=chance.choice((3600, 45)) * SECOND_NS,
        permanent=chance.choice((0.0, 0.0, 0.2, 0.6)),
        copies=chance.choice((1, 1, 2)),
        roams=chance.randint(0, 6),
        churn=chance.randint(0, 4),
        groups=groups,
        partings=others.randint(0, MOST_PARTINGS * groups),
        clocks=clocks,
        pasts=others.randint(0, MAX_PASTS),
        devices=others.randint(0, MOST_DEVICES * durables),
        changes=others.randint(0, MOST_CHANGES * durables),
        batches=batches,
    )


def fork(chance: Random) -> Random:
    """Another generator, of the same seed, that takes nothing from this one."""
    other = Random()
    other.setstate(chance.getstate())
    return Random(other.getrandbits(64))
