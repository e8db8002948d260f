"""A broker that comes in while its own unit is out of its reach: what it must not believe, promise or take on."""

from __future__ import annotations

from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    acknowledged,
    bit,
    copies,
    event_copy,
    frames,
    mate,
    mates,
    peer,
    publication,
    publish,
    refusals,
)
from tests.core.scripted_peer import HOST
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import Active, ClientUp, Effect, Stored, Subscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.interest.constraint import make_want
from veena.core.interest.table import mark_key
from veena.core.wire.control import Connections, Held, Open, Refused
from veena.core.wire.interest import STANDING, Digest, Interest, Row

CLUSTER: Unit = HOST[:3]
OUTSIDER: Address = (0, 0, 1, 0)


def tell_wants(teller: EventPeer, unit: Unit, speaker: Address, *topics: str) -> list[Effect]:
    """Tell what a unit wants, as this speaker of it said, and that this is everything."""
    wants = [make_want("topic", topic, 4) for topic in topics]
    rows = [
        Row(unit, want.key, (1, speaker, number), True, want.kind, want.payload, want.scope)
        for number, want in enumerate(wants, 1)
    ]
    mark = Row(unit, mark_key(speaker), (1, speaker, len(rows) + 1), True, STANDING, b"", 0)
    return [*teller.say(Interest((*rows, mark))), *teller.say(Connections((), complete=True))]


def newcomer(settings: Settings | None = None) -> tuple[Host, EventPeer]:
    """A broker that has heard of its cluster from outside only: broker 1 of it wants quotes, or knows somebody who
    does."""
    host = Host(settings)
    outsider = peer(host, 7, OUTSIDER)
    tell_wants(outsider, CLUSTER, mate(1), "quotes")
    host.sync()
    return host, outsider


def test_a_newcomer_takes_nothing_on_for_a_unit_that_it_has_not_met() -> None:
    """I1: it knows that others are in its cluster and not who: were it to enter the cluster, only itself would be
    served, and the origin would believe that everybody is."""
    host, outsider = newcomer()
    effects = outsider.hand(event_copy(1, bit(CLUSTER), origin=OUTSIDER))
    assert frames(effects, outsider.link, Refused) == [Refused((CLUSTER,))]
    effects = outsider.hand(Held((CLUSTER,)))
    assert frames(effects, outsider.link, Open) == []
    inside = peer(host, 1)
    assert frames(inside.links_to(2), outsider.link, Open) == [], "the neighbour may still know of others"
    effects = tell_wants(inside, mate(2), mate(2), "quotes")
    assert frames(effects, outsider.link, Open) == [Open((CLUSTER,))]
    effects = outsider.hand(event_copy(1, bit(CLUSTER), origin=OUTSIDER))
    ((_, sent),) = copies(effects, inside.link)
    assert sent.to_serve & mates(2)
    assert acknowledged(effects, outsider.link) == []


def test_a_newcomer_takes_nothing_on_for_a_unit_around_one_that_it_has_not_met() -> None:
    """I1: over a link from beside its super-cluster it meets the super-super-cluster first; what enters that one enters
    the super-cluster too, and there it would find nobody but itself."""
    host = Host()
    beside, outsider = peer(host, 6, (0, 1, 0, 0)), peer(host, 7, (1, 0, 0, 0))
    larger, own = HOST[:1], HOST[:2]
    digests = tuple(Digest(unit, (1, mate(1), 1), ()) for unit in (larger, own))
    beside.say(Interest((), digests))
    beside.say(Connections((), complete=True))
    host.sync()
    assert host.profiles.leases.has_met(3, 0)
    effects = outsider.hand(event_copy(1, bit(larger), origin=(1, 0, 0, 0)))
    assert frames(effects, outsider.link, Refused) == [Refused((larger,))]
    outsider.hand(Held((larger,)))
    effects = tell_wants(peer(host, 1), mate(2), mate(2), "quotes")
    assert frames(effects, outsider.link, Open) == [Open((larger,))]


def test_a_newcomer_accepts_nothing_before_it_has_met_its_units() -> None:
    """Design §5, "a joining broker accepts publishers after its snapshot": one from outside tells nothing of its
    cluster."""
    host, _ = newcomer()
    incarnation = host.attach(1, "p")
    assert len(refusals(publish(host, 1, publication(1, incarnation)))) == 1
    tell_wants(peer(host, 1), mate(2), mate(2), "quotes")
    assert accepted(publish(host, 1, publication(2, incarnation))) == [2]


def test_a_newcomer_promises_nothing_before_it_has_met_its_units() -> None:
    """ACT-02: nobody in its cluster has heard of its subscription, although it knows of nobody who should."""
    host, _ = newcomer()
    host.attach(1, "reader")
    host.handle(Subscribe(1, 1, "topic", "quotes", 1), 0)
    host.run(0, 4 * SECOND_NS)
    assert host.profiles.state(1, 1) == (0, 0)
    alone = Host()
    alone.attach(1, "reader")
    alone.handle(Subscribe(1, 1, "topic", "quotes", 1), 0)
    alone.run(0, 4 * SECOND_NS)
    assert alone.profiles.state(1, 1) == (0, 1), "a cluster of which nobody else ever spoke is its own"


def test_who_is_told_of_a_larger_unit_alone_promises_nothing_in_the_smaller_ones() -> None:
    """ACT-02, I1: a neighbour beside its super-cluster says that others are in that, and cannot know who is in its
    cluster. Whoever publishes there has not heard of its subscription."""
    host = Host()
    beside = peer(host, 6, (0, 1, 0, 0))
    beside.say(Interest((), (Digest(HOST[:2], (1, mate(1), 1), ()),)))
    beside.say(Connections((), complete=True))
    host.sync()
    assert not host.profiles.leases.has_met(1, 0)
    assert not host.profiles.leases.may_enter(1, 0)
    host.attach(1, "reader")
    host.handle(Subscribe(1, 1, "topic", "quotes", 1), 0)
    host.run(0, 4 * SECOND_NS)
    assert host.profiles.state(1, 1) == (0, 0)
    host.profiles.leases.told_everything(0)
    assert host.profiles.leases.has_met(1, 0)
    assert host.profiles.leases.may_enter(1, 0)


def test_others_who_never_come_are_given_up() -> None:
    """FLT: like every unit that is out of reach for longer than events are kept; a dead cluster does not silence a
    live broker."""
    settings = Settings(retention_ns=50 * SECOND_NS, tombstone_ns=100 * SECOND_NS)
    host, _ = newcomer(settings)
    leases = host.profiles.leases
    assert not leases.has_met(1, 50 * SECOND_NS - 1)
    assert leases.has_met(1, 50 * SECOND_NS)


def test_a_unit_that_was_met_stays_met() -> None:
    """A broker that outlived its cluster and is started again hears of others from outside: it knows who they were."""
    host, _ = newcomer(Settings(retention_ns=50 * SECOND_NS, tombstone_ns=100 * SECOND_NS))
    inside = peer(host, 1)
    inside.say(Connections((), complete=True))
    inside.leave()
    host.sync()
    host.run(0, 60 * SECOND_NS)
    assert mate(1) not in host.kept.known, "it is forgotten"
    again = Host(Settings(), host.kept, 60 * SECOND_NS)
    tell_wants(peer(again, 7, OUTSIDER, 60 * SECOND_NS), CLUSTER, mate(1), "quotes")
    assert again.profiles.leases.has_met(1, 60 * SECOND_NS)
    assert again.profiles.is_ready(60 * SECOND_NS)


def test_who_came_into_a_network_is_never_alone() -> None:
    """ACT-02: a broker that begins a network acknowledges to itself; one that was let in waits for those who are there,
    however long they cannot be heard."""
    news: list[list[Effect]] = []
    for joined_ns in (None, 0):
        nonces = iter(range(100, 200))
        broker = Broker(Identity("host", HOST, 1), Settings(), lambda _, n=nonces: next(n), 0, joined_ns=joined_ns)  # type: ignore[misc]
        broker.tick(0)
        broker.handle(Stored(1), 0)
        broker.handle(ClientUp(1, "reader"), 0)
        broker.handle(Subscribe(1, 1, "topic", "quotes", 4), 0)
        effects: list[Effect] = []
        for second in range(1, 60):
            effects += broker.tick(second * SECOND_NS)
        news.append([effect for effect in effects if isinstance(effect, Active)])
    assert news == [[Active(1, 1, level) for level in (1, 2, 3, 4)], []]


def test_who_has_met_nobody_of_its_network_speaks_for_none_of_its_units() -> None:
    """I1: a newcomer that is cut off from the start would say that its super-cluster wants what its own clients want.
    That would be as new as what others said first, and heard instead of it as soon as links are up."""
    said: list[list[int]] = []
    for joined_ns in (None, 0):
        nonces = iter(range(100, 200))
        broker = Broker(Identity("host", HOST, 1), Settings(), lambda _, n=nonces: next(n), 0, joined_ns=joined_ns)  # type: ignore[misc]
        broker.tick(0)
        broker.handle(Stored(1), 0)
        broker.handle(ClientUp(1, "reader"), 0)
        broker.handle(Subscribe(1, 1, "topic", "quotes", 4), 0)
        for second in range(1, 20):
            broker.tick(second * SECOND_NS)
        table = broker.profiles.table
        said.append([level for level in range(4) if table.has_spoken(HOST[: 4 - level])])
    assert said == [[0, 1, 2, 3], [0]]


def test_who_has_met_nobody_enters_no_unit_for_others() -> None:
    """I1: what comes over its first link, before it is told anything, is not for itself alone."""
    nonces = iter(range(100, 200))
    broker = Broker(Identity("host", HOST, 1), Settings(), lambda _: next(nonces), 0, joined_ns=0)
    leases = broker.profiles.leases
    assert not any(leases.may_enter(level, 0) or leases.has_met(level, 0) for level in (1, 2, 3))
    leases.told_everything(0)
    assert all(leases.may_enter(level, 0) and leases.has_met(level, 0) for level in (1, 2, 3))
