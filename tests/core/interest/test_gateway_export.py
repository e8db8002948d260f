"""What a gatekeeper tells beyond its links, and when a want counts as confirmed there."""

from __future__ import annotations

import random
from collections import deque

import pytest

from tests.core.scripted_peer import HOST, hello
from veena import Event
from veena.address import Address, Unit
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import make_want
from veena.core.interest.gateway_export import MAX_LOST, MAX_UNCONFIRMED, STEADY_NS, Settlement
from veena.core.interest.gateway_filter import FAR_LEASE_NS, Beyond
from veena.core.interest.table import InterestTable, mark_key
from veena.core.links.link import Link
from veena.core.topology.network_map import NetworkMap
from veena.core.wire import codec as wire
from veena.core.wire.control import Frame
from veena.core.wire.header import MAX_CONTROL_FRAME
from veena.core.wire.interest import COMPLETE, MORE, STANDING, UNKNOWN, FarDigest, FarHave, FarInterest, FarWant, Row

SYSTEM = 4

CLUSTER, SISTER = (0, 0, 1), (0, 0, 0)
SPEAKER = (0, 0, 1, 0)


class Gate:
    """The far end of links, without a network around it: what is heard is what a test tells."""

    def __init__(self) -> None:
        self.map = NetworkMap(HOST)
        self.table = InterestTable(HOST)
        self.beyond = Beyond(self.map, self.table)
        self.links: dict[int, Link] = {}
        self.now_ns = 0
        self.number = 0
        self._learn(Row(SISTER, mark_key(HOST), (1, HOST, 1), True, STANDING, b"", 0))

    def _learn(self, row: Row) -> None:
        news = self.table.learn(row, None, self.now_ns)
        assert news is not None
        self.beyond.heard(*news)

    def hear(
        self, topic: str, wanted: bool = True, scope: int = SYSTEM, unit: Unit = CLUSTER
    ) -> tuple[int, Address, int]:
        """A row and its mark; the version of the mark."""
        want = make_want("topic", topic, scope)
        self.number += 2
        payload = want.payload if wanted else b""
        self._learn(Row(unit, want.key, (1, SPEAKER, self.number - 1), wanted, want.kind, payload, scope))
        self._learn(Row(unit, mark_key(SPEAKER), (1, SPEAKER, self.number), True, STANDING, b"", 0))
        return (1, SPEAKER, self.number)

    def open(self, address: Address = (0, 1, 0, 0)) -> Link:
        number = len(self.links) + 1
        link = Link(number, True, hello(HOST, nonce=number), Settings(), self.now_ns)
        link.greeted(hello(address, nonce=100 + number))
        link.outbox.clear()
        self.links[number] = link
        self.beyond.opened(link, self.now_ns)
        return link

    def exact(self, address: Address = (0, 1, 0, 0)) -> Link:
        """A link whose snapshot was sent."""
        link = self.open(address)
        self.flush()
        self.pass_time(STEADY_NS)
        assert self.said(link)[-1].state == COMPLETE
        return link

    def pass_time(self, ns: int) -> None:
        self.now_ns += ns
        self.beyond.tick(self.now_ns)
        self.flush()

    def flush(self) -> None:
        self.beyond.flush(self.now_ns)
        self.beyond.check()

    def said(self, link: Link) -> list[FarInterest]:
        frames = [frame for _, frame in link.outbox if isinstance(frame, FarInterest)]
        link.outbox.clear()
        return frames

    def confirm(self, link: Link, number: int) -> None:
        self.beyond.handle(link, FarHave(number), self.now_ns)

    def is_settled(self, version: tuple[int, Address, int]) -> bool:
        return self.beyond.is_settled(CLUSTER, version)


def test_without_gates_everything_is_settled() -> None:
    gate = Gate()
    assert gate.is_settled(gate.hear("quotes"))
    gate.flush()
    assert gate.beyond.next_wakeup() is None
    gate.open((0, 0, 1, 1))
    assert gate.is_settled(gate.hear("news")), "a link inside the super-cluster is no gate"


def test_a_want_is_settled_when_the_other_ends_have_confirmed_it() -> None:
    """I1: the near gatekeeper must not act on less than what is acknowledged."""
    gate = Gate()
    one, other = gate.exact(), gate.exact((0, 2, 0, 0))
    before = gate.hear("news", scope=2)
    gate.flush()
    assert gate.said(one) == [] and gate.is_settled(before), "what is not told need not be confirmed"
    version = gate.hear("quotes")
    assert not gate.is_settled(version), "before it is told"
    gate.flush()
    (frame,) = gate.said(one)
    assert frame.added == (FarWant(1, make_want("topic", "quotes", 4).payload, 4),)
    assert not gate.is_settled(version) and gate.is_settled(before)
    gate.confirm(one, frame.number)
    assert not gate.is_settled(version)
    gate.confirm(other, gate.said(other)[-1].number)
    assert gate.is_settled(version)


def test_a_snapshot_need_not_be_confirmed() -> None:
    """Until it has come the other end wants all."""
    gate = Gate()
    version = gate.hear("quotes")
    link = gate.open()
    gate.flush()
    assert gate.said(link) == [], "not before everything was known for a while"
    assert gate.beyond.next_wakeup() == STEADY_NS
    late = gate.hear("news")
    gate.flush()
    assert gate.is_settled(late)
    gate.pass_time(STEADY_NS)
    first, last = gate.said(link)
    assert (first.begins, first.state, last.begins, last.state) == (True, MORE, False, COMPLETE)
    assert len(last.added) == 2
    assert gate.is_settled(version) and gate.is_settled(late)


def test_an_end_that_acts_on_less_is_waited_for_though_it_was_told_unknown() -> None:
    """UNKNOWN and a new snapshot are under way; the other end may still act on the first one."""
    gate = Gate()
    link = gate.exact()
    gate.table.doubted = lambda now_ns: (CLUSTER,)
    gate.pass_time(1)
    (unknown,) = gate.said(link)
    assert unknown.state == UNKNOWN and unknown.begins
    version = gate.hear("quotes")
    gate.flush()
    assert gate.said(link) == [] and not gate.is_settled(version)
    gate.table.doubted = lambda now_ns: ()
    gate.flush()
    gate.pass_time(1)
    gate.pass_time(STEADY_NS)
    snapshot = gate.said(link)
    assert snapshot[-1].state == COMPLETE
    assert not gate.is_settled(version)
    gate.confirm(link, unknown.number)
    assert not gate.is_settled(version)
    gate.confirm(link, snapshot[-1].number)
    assert gate.is_settled(version)


def test_a_lost_connection_blocks_until_its_other_end_has_noticed() -> None:
    """The other end acts on what it has until its lease is over, and it may not know that the link is gone."""
    gate = Gate()
    link = gate.exact()
    known = gate.hear("quotes")
    gate.flush()
    gate.confirm(link, gate.said(link)[-1].number)
    assert link.connection is not None
    gate.beyond.closed(link.connection, gate.now_ns)
    version = gate.hear("news")
    gate.flush()
    assert gate.is_settled(known) and not gate.is_settled(version)
    again = gate.exact()
    gate.pass_time(FAR_LEASE_NS - STEADY_NS)
    assert not gate.is_settled(version), "a new connection says nothing of the old one"
    gate.pass_time(FAR_LEASE_NS // 8)
    assert gate.is_settled(version)
    assert again.connection != link.connection


def test_after_a_restart_links_of_the_earlier_life_are_waited_for() -> None:
    gate = Gate()
    gate.beyond.restarted(gate.now_ns)
    version = gate.hear("quotes")
    gate.flush()
    assert not gate.is_settled(version)
    due = gate.beyond.next_wakeup()
    assert due is not None and due > FAR_LEASE_NS
    gate.pass_time(due)
    assert gate.is_settled(version)


def test_additions_come_before_withdrawals_and_one_want_crosses_once() -> None:
    """AGG-01: three clusters want the same, it is told once, and withdrawn with the last."""
    gate = Gate()
    link = gate.exact()
    gate.hear("quotes")
    gate.hear("quotes", unit=(0, 0, 2))
    gate.flush()
    (frame,) = gate.said(link)
    assert len(frame.added) == 1
    gate.hear("quotes", wanted=False)
    gate.flush()
    assert gate.said(link) == []
    gate.hear("quotes", wanted=False, unit=(0, 0, 2))
    gate.hear("news")
    gate.flush()
    (frame,) = gate.said(link)
    assert len(frame.added) == len(frame.removed) == 1


def test_large_batches_are_cut_into_frames() -> None:
    gate = Gate()
    link = gate.exact()
    topics = [f"topic-{number}" for number in range(3000)]
    for topic in topics:
        gate.hear(topic)
    gate.flush()
    frames = gate.said(link)
    assert [frame.state for frame in frames] == [MORE] * (len(frames) - 1) + [COMPLETE]
    assert sum(len(frame.added) for frame in frames) == 3000
    for topic in topics:
        gate.hear(topic, wanted=False)
    gate.flush()
    frames = gate.said(link)
    assert len(frames) == 3 and sum(len(frame.removed) for frame in frames) == 3000
    for frame in frames:
        assert len(wire.encode(frame, 1)) < MAX_CONTROL_FRAME


def test_a_settlement_is_bounded() -> None:
    """What is not told apart any more is confirmed together, later rather than sooner."""
    settlement = Settlement()
    for number in range(1, 2 * MAX_UNCONFIRMED):
        settlement.heard(CLUSTER, (1, SPEAKER, number))
        settlement.next_number()
        settlement.close_batch()
        settlement.check()
    settlement.settle([5])
    assert settlement.is_settled(CLUSTER, (1, SPEAKER, 5))
    assert not settlement.is_settled(CLUSTER, (1, SPEAKER, 6))
    assert settlement.is_settled(CLUSTER, (0, SPEAKER, 99)), "an earlier epoch"
    assert settlement.is_settled(CLUSTER, (9, HOST, 99)), "another speaker"
    for number in range(3 * MAX_LOST):
        settlement.lose(100 + number, number)
    settlement.settle([])
    assert not settlement.is_settled(CLUSTER, (1, SPEAKER, 6))
    settlement.expire(99 + 3 * MAX_LOST)
    settlement.settle([])
    assert settlement.is_settled(CLUSTER, (1, SPEAKER, 2 * MAX_UNCONFIRMED))


# --- both ends, and everything that can go wrong between them ---

NEAR: Address = (0, 1, 0, 0)
TOPICS = tuple(f"topic-{number}" for number in range(6))


class Pair:
    """A far and a near gatekeeper with connections that delay, stall and break, each end noticing when it likes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.far = Gate()
        self.near = Beyond(NetworkMap(NEAR), InterestTable(NEAR))
        self.far_links: dict[int, Link] = {}
        self.near_links: dict[int, Link] = {}
        #: Under way on each connection, towards the near end and towards the far one.
        self.ahead: dict[int, deque[Frame | int]] = {}
        self.back: dict[int, deque[Frame | int]] = {}
        self.nonce = 0
        #: Topics that are wanted, with the version that told it; those that once were settled.
        self.wanted: dict[str, tuple[int, Address, int]] = {}
        self.acknowledged: dict[str, None] = {}
        self.stopped = 0

    def connect(self) -> None:
        self.nonce += 1
        mine, theirs = hello(HOST, nonce=self.nonce), hello(NEAR, nonce=1000 + self.nonce)
        far, near = (Link(self.nonce, True, each, Settings(), self.far.now_ns) for each in (mine, theirs))
        far.greeted(theirs)
        near.greeted(mine)
        assert far.connection is not None and far.connection == near.connection
        far.outbox.clear()
        near.outbox.clear()
        self.far_links[far.connection], self.near_links[far.connection] = far, near
        self.ahead[far.connection], self.back[far.connection] = deque(), deque()
        self.far.beyond.opened(far, self.far.now_ns)
        self.near.opened(near, self.far.now_ns)

    def step(self) -> None:
        action = self.chance.choice((self.want, self.want, self.doubt, self.lose, self.carry, self.carry, self.carry))
        action()
        self.far.flush()
        for links, ways in ((self.far_links, self.ahead), (self.near_links, self.back)):
            for number, link in links.items():
                ways[number].extend(frame for _, frame in link.outbox if isinstance(frame, Frame))
                link.outbox.clear()
        self.far.pass_time(self.chance.choice((0, 10**6, 10**8, SECOND_NS // 2, SECOND_NS)))
        for number in self.near_links:
            if self.chance.random() < 0.5:
                self.back[number].append(self.far.now_ns)  # a heartbeat, with the time when it was sent
        self.judge()

    def want(self) -> None:
        topic = self.chance.choice(TOPICS)
        if topic in self.wanted:
            del self.wanted[topic]
            self.acknowledged.pop(topic, None)
            self.far.hear(topic, wanted=False)
        else:
            self.wanted[topic] = self.far.hear(topic)

    def doubt(self) -> None:
        doubted = self.chance.random() < 0.3
        self.far.table.doubted = lambda now_ns: (CLUSTER,) if doubted else ()

    def lose(self) -> None:
        """One end notices the end of a connection, or a new one is made."""
        if len(self.far_links) < 2:
            self.connect()
        elif self.chance.random() < 0.4:
            links, end = self.chance.choice(((self.far_links, self.far.beyond), (self.near_links, self.near)))
            if links:
                number = self.chance.choice(sorted(links))
                del links[number]
                end.closed(number, self.far.now_ns)

    def carry(self) -> None:
        """Let some of what is under way arrive; what comes to a closed end is gone."""
        for number in list(self.ahead):
            for _ in range(self.chance.choice((0, 1, 5))):
                if self.ahead[number]:
                    self.arrive_near(number, self.ahead[number].popleft())
                if self.back[number]:
                    self.arrive_far(number, self.back[number].popleft())

    def arrive_near(self, number: int, item: Frame | int) -> None:
        link = self.near_links.get(number)
        if link is not None and isinstance(item, int):
            link.answered_ns = max(link.answered_ns, item)
        elif link is not None and isinstance(item, FarInterest | FarDigest):
            self.near.handle(link, item, self.far.now_ns)

    def arrive_far(self, number: int, item: Frame | int) -> None:
        link = self.far_links.get(number)
        if link is not None and isinstance(item, int):
            self.ahead[number].append(item)
        elif link is not None and isinstance(item, FarHave):
            self.far.beyond.handle(link, item, self.far.now_ns)

    def judge(self) -> None:
        for topic, version in self.wanted.items():
            if self.far.is_settled(version):
                self.acknowledged[topic] = None
        for number in self.near_links:
            for topic in TOPICS:
                passes = self.near.wants(number, Event(topic=topic), NEAR, self.far.now_ns)
                assert passes or topic not in self.acknowledged, f"{topic} was acknowledged and is stopped"
                self.stopped += not passes


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_what_is_acknowledged_is_never_stopped(first: int) -> None:
    """I1, whatever happens to the connections, and in whatever order the two ends notice."""
    stopped = acknowledged = 0
    for seed in range(first, first + 20):
        pair = Pair(seed)
        pair.connect()
        for _ in range(150):
            pair.step()
            acknowledged += len(pair.acknowledged)
        stopped += pair.stopped
    assert stopped > 500 and acknowledged > 500
