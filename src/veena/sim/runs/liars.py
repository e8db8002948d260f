"""Brokers that lie over links between super-clusters for a while, drawn from the seed, and what may come of it.

Where the network signs, nothing: no broker believes anything of a large unit that the unit's own brokers have not
signed. Where it does not, what a forger said is over at the latest a lease after it has stopped: the lies end a lease
before everything heals, and from then on a run is judged as any other. What an alterer passed on there stays until the
unit says something new, since it has the version of the truth; so relays alter nothing in networks that do not sign.

The liars have a generator of their own, so that the other faults of a seed are the same with them and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from veena.address import Address, format_address, link_level
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.trust.proof_store import ProofStore
from veena.core.trust.signatures import SIGNED_LEVEL, Statements, folding_hash
from veena.sim.runs.faults import Fault
from veena.sim.world.lying import Lying
from veena.sim.world.world import World

#: How often a forger says something, and how long a liar lies.
PAUSE_NS = 100 * MILLISECOND_NS
SHORTEST_NS = 500 * MILLISECOND_NS
LONGEST_NS = 15 * SECOND_NS
#: How often it is looked at what others believe meanwhile, and how much of that is told.
LOOK_NS = SECOND_NS
MAX_FALSE = 20


def plan_liars(world: World, count: int, chance: Random, times_ns: tuple[int, int], false: list[str]) -> list[Fault]:
    """Let brokers with links to other super-clusters lie so many times, all of it within this time; `false` gets what
    others believe of it meanwhile though nobody has signed it."""
    found: list[Fault] = []
    places = list(dict.fromkeys(end for link in world.links for end in (link.a, link.b) if is_far(link.a, link.b)))
    begin_ns, end_ns = times_ns
    if not places or end_ns - begin_ns < SHORTEST_NS:
        return found
    for _ in range(count):
        address, alters = chance.choice(places), chance.random() < 0.4 and world.ring is not None
        lasts = chance.randint(SHORTEST_NS, min(LONGEST_NS, end_ns - begin_ns))
        at_ns = chance.randint(begin_ns, end_ns - lasts)
        lying = Lying(
            address,
            Random(chance.getrandbits(64)),
            alters,
            Statements(world.settings.network, len(address)),
            world.ring,
        )
        for look_ns in range(at_ns, at_ns + lasts + LOOK_NS, LOOK_NS):
            world.at(look_ns, lambda: _look(world, false))
        world.at(at_ns, lambda lying=lying, until_ns=at_ns + lasts: _lie(world, lying, until_ns))  # type: ignore[misc]
        how = "passes on altered statements" if alters else "forges statements"
        name = world.network.labels.label(address)
        found.append(Fault(at_ns, f"{name} {how} for {lasts / SECOND_NS:.1f} s"))
    return found


def _look(world: World, false: list[str]) -> None:
    if len(false) < MAX_FALSE:
        false += islice(false_statements(world), MAX_FALSE)


def is_far(one: Address, other: Address) -> bool:
    """Whether a link joins two super-clusters."""
    return link_level(one, other) >= SIGNED_LEVEL


def _lie(world: World, lying: Lying, until_ns: int) -> None:
    node = world.nodes.get(lying.address)
    if node is None or (node.lying is not None and node.lying is not lying):
        return  # it moved, or lies already
    if world.now_ns >= until_ns:
        node.lying = None
        return
    node.lying = lying
    world.at(min(until_ns, world.now_ns + PAUSE_NS), lambda: _lie(world, lying, until_ns))
    if not lying.alters and node.broker is not None:
        for link in list(node.broker.exchange.neighbours.values()):
            if link.level >= SIGNED_LEVEL:
                for frame in lying.forge(node.broker, link, node.time(world.now_ns)):
                    link.send(frame, node.time(world.now_ns))
        world.flush(lying.address)


def false_statements(world: World) -> Iterator[str]:
    """What brokers believe of large units, and nobody of these has signed; liars lie about units of others alone."""
    if world.ring is None:
        return
    for broker in world.live():
        yield from _false_digests(world, broker)
        yield from _false_connections(world, broker)


def _false_digests(world: World, broker: Broker) -> Iterator[str]:
    host, store, ring = broker.identity.address, _store(broker), world.ring
    assert ring is not None
    statements = Statements(world.settings.network, len(host))
    for unit, digest in broker.profiles.table.digests.items():
        if digest.version[1] == host:
            continue
        proof = store.digest(unit, digest.version)
        scopes = [part.scope for part in digest.parts]
        what = f"{format_address(host)} believes a digest of {format_address(unit)}"
        if proof is None:
            yield f"{what} without a signature"
            continue
        signer = proof.signature.signer
        statement = statements.digest(signer, unit, digest.version, scopes, proof.foldings)
        if not ring.has_signed(signer, statement):
            yield f"{what} that {format_address(signer)} has not signed"
        for part, hashes in zip(digest.parts, proof.foldings, strict=True):
            if folding_hash(part.signed) not in hashes:
                yield f"{what} that is no folding of what was signed"


def _false_connections(world: World, broker: Broker) -> Iterator[str]:
    host, store, ring = broker.identity.address, _store(broker), world.ring
    assert ring is not None
    statements = Statements(world.settings.network, len(host))
    for record in broker.table.everything():
        units = statements.coarsest(record)
        if record.level < SIGNED_LEVEL or any(host[: len(unit)] == unit for unit in units):
            continue  # the host's own unit is believed without a signature
        what = f"{format_address(host)} believes a connection of {' and '.join(map(format_address, units))}"
        kept = store.connection(record.id)
        for end in (0, 1):
            found = kept.ends[end]
            if found is None:
                yield f"{what} without the signature of an end"
            elif not ring.has_signed(found[1].signer, statements.end(found[1].signer, record, end)):
                yield f"{what} that an end has not signed"
        down = kept.down
        if not record.up and (
            down is None or not ring.has_signed(down.signer, statements.withdrawal(down.signer, record))
        ):
            yield f"{what} to be over, which nobody has signed"


def _store(broker: Broker) -> ProofStore:
    return broker.exchange.statements.store
