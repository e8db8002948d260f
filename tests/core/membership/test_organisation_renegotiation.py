"""A merged unit renumbers its brokers and their clients (NOP-05, NOP-15)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.membership.organisation_world import fix_4, through_the_wire
from veena.address import Address, contains, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.admission import Admission
from veena.core.membership.join import Applicant
from veena.core.membership.protocol import Send
from veena.core.membership.renumbering import MAX_ALIASES, Readdressed, Renegotiation, RenegotiationEffect, Tell, rename
from veena.core.wire.membership import ClientRenumber, Renumber
from veena.errors import InvalidAddress, RemoteProtocolError

#: SC-10 with clusters v (0) and w (1) in the numbering of its own network, and its links.
MEMBERS: list[Address] = [(0, 0, cluster, number) for cluster in (0, 1) for number in (0, 1, 2)]
LINKS = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (2, 3)]


class Unit:
    """The brokers of a unit, the links between them, and a queue; names in it are the permanent ids 0, 1, 2, ..."""

    def __init__(self, members: list[Address], links: list[tuple[int, int]]) -> None:
        self.brokers = [Renegotiation(address, 32) for address in members]
        self.links = links
        #: How each broker knows each of its neighbours.
        self.known = [{other: members[other] for pair in links for other in pair if index in pair and other != index}
                      for index in range(len(members))]  # fmt: skip
        self.clients = [[f"client-{index}-{n}" for n in range(2)] for index in range(len(members))]
        self.homes = {client: members[index] for index, names in enumerate(self.clients) for client in names}
        self.queue: list[tuple[int, int, Renumber]] = []
        self.sent = 0

    def begin(self, spokesman: int, frame: Renumber, now_ns: int = 100) -> None:
        near = list(self.known[spokesman].values())
        self._effects(spokesman, self.brokers[spokesman].begin(frame, near, self.clients[spokesman], now_ns))

    def run(self, chance: random.Random, now_ns: int = 100) -> None:
        while self.queue:
            source, to, frame = self.queue.pop(chance.randrange(len(self.queue)))
            if source in self.known[to]:
                sender, near = self.known[to][source], list(self.known[to].values())
                self._effects(to, self.brokers[to].handle(frame, sender, near, self.clients[to], now_ns))

    def _effects(self, source: int, effects: list[RenegotiationEffect]) -> None:
        names = {address: other for other, address in self.known[source].items()}
        for effect in effects:
            if isinstance(effect, Send):
                frame = through_the_wire(effect.frame)
                assert isinstance(frame, Renumber)
                self.queue.append((source, names[effect.to], frame))
                self.sent += 1
            elif isinstance(effect, Readdressed):
                for other, address in self.known[source].items():
                    if contains(effect.old, address):
                        self.known[source][other] = rename(address, effect.old, effect.new)
            else:
                assert isinstance(effect.frame, ClientRenumber) and self.homes[effect.client] == effect.frame.old
                self.homes[effect.client] = effect.frame.new


def test_rename_replaces_the_prefix_only() -> None:
    """NOP-15: one component differs, or a prefix is added; the rest stays."""
    assert rename((0, 0, 1, 2), (0, 0), (1, 3)) == (1, 3, 1, 2)
    assert rename((7, 1, 2), (), (1,)) == (1, 7, 1, 2), "a network of three levels becomes part of one of four"
    assert rename((5, 1, 2), (5,), (1, 3)) == (1, 3, 1, 2)
    with pytest.raises(InvalidAddress, match=r"0\.1\.1 does not lie in 0\.0"):
        rename((0, 1, 1), (0, 0), (1, 3))


def test_nop_05_nop_15_merge_renumbers_brokers_and_clients() -> None:
    """NOP-04, NOP-05, NOP-15, NOP-16: SC-10 joins SSC-B through v.23; then everybody in it hears, once."""
    world, _, at = fix_4()
    guest = world.join(at[21], (2,), applicant=Applicant("broker-23", "unit-sc-10", 2, MEMBERS[1]))
    world.run()
    joined = world.joined(guest)
    unit = Unit(MEMBERS, LINKS)
    unit.begin(1, Renumber("broker-23", 1, joined.old, joined.new))
    unit.run(random.Random(0))
    for broker, before in zip(unit.brokers, MEMBERS, strict=True):
        assert broker.address == joined.new + before[2:]
        assert broker.address[2:] == before[2:], "only the part above the unit changes"
    for index, names in enumerate(unit.clients):
        for client in names:
            assert unit.homes[client] == unit.brokers[index].address
            assert unit.brokers[5].resolve(MEMBERS[index], learnt_ns=50) == unit.homes[client], (
                "the old identity leads there"
            )
    assert all(link_level(unit.brokers[a].address, unit.brokers[b].address) == link_level(MEMBERS[a], MEMBERS[b])
               for a, b in LINKS), "links inside the unit keep their level"  # fmt: skip
    assert not any(broker in world.brokers for broker in (broker.address for broker in unit.brokers))


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), size=st.integers(2, 40), extra=st.integers(0, 30))
def test_a_renumbering_reaches_all_and_ends(seed: int, size: int, extra: int) -> None:
    """NOP-05: in any connected unit and any order of messages, each broker renames once and passes it on once."""
    chance = random.Random(seed)
    members: list[Address] = [(4, index // 8, index % 8) for index in range(size)]
    links = [(chance.randrange(index), index) for index in range(1, size)]
    links += [
        pair for pair in ((chance.randrange(size), chance.randrange(size)) for _ in range(extra)) if pair[0] < pair[1]
    ]
    links = sorted(set(links))
    unit = Unit(members, links)
    unit.begin(chance.randrange(size), Renumber("s", 1, (4,), (2, 9), "larger"))
    unit.run(chance)
    assert [broker.address for broker in unit.brokers] == [(2, 9, *address[1:]) for address in members]
    assert unit.sent == 2 * len(links) - (size - 1), "to all neighbours but the one it came from"
    assert all(unit.homes[c] == unit.brokers[index].address for index, names in enumerate(unit.clients) for c in names)


def test_an_address_learnt_after_the_merge_means_what_it_says() -> None:
    """NOP-05: every network counts from 0, so the old number may belong to somebody else now."""
    broker = Renegotiation((0, 0, 0, 1), 32)
    broker.begin(Renumber("s", 1, (0, 0), (0, 3)), [], [], 100)
    assert broker.resolve((0, 0, 1, 1), learnt_ns=99) == (0, 3, 1, 1)
    assert broker.resolve((0, 0, 1, 1), learnt_ns=100) == (0, 0, 1, 1)
    broker.begin(Renumber("s", 2, (0, 3), (5, 0)), [], [], 200)
    assert broker.resolve((0, 0, 1, 1), learnt_ns=50) == (5, 0, 1, 1), "two merges, one after the other"
    assert broker.resolve((0, 3, 1, 1), learnt_ns=150) == (5, 0, 1, 1)


def test_a_client_that_comes_back_is_told() -> None:
    """NOP-05: it was away when its unit was merged."""
    broker = Renegotiation((0, 0, 0, 1), 32)
    broker.begin(Renumber("s", 1, (0, 0), (0, 3)), [], ["here"], 100)
    expected = ClientRenumber("away", (0, 0, 0, 1), (0, 3, 0, 1))
    assert broker.attached("away", (0, 0, 0, 1), 50) == [Tell("away", expected)]
    assert broker.attached("away", (0, 3, 0, 1), 150) == []


def test_a_member_whose_link_was_down_hears_it_when_it_is_back() -> None:
    broker = Renegotiation((0, 0, 0, 1), 32)
    news = Renumber("s", 1, (0, 0), (0, 3))
    broker.begin(news, [], [], 100)
    assert broker.greet((0, 0, 0, 2), linked_ns=60) == [Send((0, 0, 0, 2), news)]
    assert broker.greet((0, 0, 0, 2), linked_ns=None) == [], "a stranger with that number is of another unit"
    assert broker.greet((0, 3, 0, 2), linked_ns=60) == [], "it has heard"
    late = Renegotiation((0, 0, 0, 2), 32)
    assert Readdressed((0, 0), (0, 3), (0, 3, 0, 2)) in late.handle(news, (0, 0, 0, 1), [], [], 500)
    assert late.handle(news, (0, 0, 0, 1), [], [], 501) == [], "the second time it is no news"


def test_only_members_renumber_a_unit() -> None:
    broker = Renegotiation((0, 0, 0, 1), 32)
    with pytest.raises(RemoteProtocolError, match="only a broker of that unit"):
        broker.handle(Renumber("s", 1, (0, 0), (9, 9)), (0, 3, 0, 1), [], [], 0)
    with pytest.raises(RemoteProtocolError, match="40"):
        broker.handle(Renumber("s", 1, (0, 0), (0, 40)), (0, 0, 0, 2), [], [], 0)
    assert broker.handle(Renumber("s", 1, (7,), (8,)), (7, 0, 0, 1), [], [], 0) == [], "it is not about this broker"
    assert broker.address == (0, 0, 0, 1) and not broker._aliases


def test_aliases_are_bounded() -> None:
    broker = Renegotiation((0, 0), 32)
    for number in range(1, MAX_ALIASES + 10):
        broker.begin(Renumber("s", number, broker.address[:1], ((number + 1) % 32,)), [], [], number)
    assert len(broker._aliases) == MAX_ALIASES


def test_admission_goes_on_under_the_new_number() -> None:
    """NOP-15: the lower part of the address, and with it the registrar of the cluster, stays."""
    admission = Admission((0, 0, 0, 0), 32, ConnectionRules((4, 4, 4, 4)))
    assert admission.readdress((1, 3, 0, 0), 2, 1000) == []
    registrar = admission.registrar
    assert registrar.reserve((1, 3, 0), "u", "u", {}, 1001).identifier == 1, "in the unit's own clusters at once"
    assert registrar.reserve((1,), "u", "u", {}, 1001).identifier == -1, "around it another one may have been registrar"
