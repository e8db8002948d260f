"""One table for all offices of a broker, against plain dicts (PPP-05)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veena.address import Unit
from veena.core.boundary.inputs_effects import ClientUp, Subscribe, Unsubscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.interest.activation import MAX_JUDGED
from veena.core.interest.announced import Due, OwnWants
from veena.core.interest.constraint import Want, make_want
from veena.core.interest.digest import DIGEST_LEVEL, make_parts
from veena.core.interest.service import Profiles
from veena.core.interest.speaker import MAX_BATCH, MAX_STALE_NS, MAX_SURPLUS, SMALL_DIGEST
from veena.core.interest.subscriptions import Clients, Numbered
from veena.core.interest.table import InterestTable, pair_of
from veena.core.messages.pace import AT_ONCE
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import MAX_COUNT, Interest, Row, Version

HOST = (0, 0, 0, 0)
LEVELS = 4
WANTS = [make_want("topic", f"topic-{number}", LEVELS) for number in range(6)]
STEPS = st.tuples(
    st.sampled_from(("open", "close", "appoint", "dismiss", "tell", "untell", "take")),
    st.integers(0, DIGEST_LEVEL),
    st.sampled_from(WANTS),
    st.integers(1, 3),
)


class Model:
    """The same, said in plain dicts."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.due: list[dict[bytes, None]] = [{} for _ in range(DIGEST_LEVEL + 1)]
        self.told: list[dict[bytes, Version]] = [{} for _ in range(DIGEST_LEVEL)]
        self.digested: dict[bytes, None] = {}

    def step(self, own: OwnWants, what: str, level: int, want: Want, number: int) -> None:
        is_open = level in self.open
        if what == "open" and not is_open:
            self.open.add(level)
            own.open(level)
        elif what == "close" and is_open:
            self.open.remove(level)
            self.due[level].clear()
            if level == DIGEST_LEVEL:
                self.digested.clear()
            own.close(level)
        elif what == "appoint" and is_open:
            self.due[level][want.key] = None
            own.appoint(want, level)
        elif what == "dismiss" and want.key in self.due[level]:
            del self.due[level][want.key]
            own.dismiss(want.key, level)
        elif what == "tell" and level < DIGEST_LEVEL:
            self.told[level][want.key] = (1, HOST, number)
            own.tell(want, level, (1, HOST, number))
        elif what == "untell" and level < DIGEST_LEVEL:
            self.told[level].pop(want.key, None)
            own.untell(want.key, level)
        elif what == "take" and DIGEST_LEVEL in self.open:
            fresh = own.take_untold(3)
            assert {each.key for each in fresh} <= self.due[DIGEST_LEVEL].keys()
            self.digested.update(dict.fromkeys(each.key for each in fresh))

    def compare(self, own: OwnWants) -> None:
        own.check()
        for level, due in enumerate(self.due):
            assert {want.key for want in own.due(level)} == due.keys()
            assert own.due_count(level) == len(due) == len(Due(own, level))
        for level, told in enumerate(self.told):
            assert {want.key: version for want, version in own.rows(level)} == told
            assert [own.version(want.key, level) for want in WANTS] == [told.get(want.key) for want in WANTS]
            if level in self.open:
                assert {want.key for want in own.untold(level)} == self.due[level].keys() - told.keys()
                assert {want.key for want, _ in own.unfounded(level)} == told.keys() - self.due[level].keys()
        assert self.due[DIGEST_LEVEL].keys() - self.digested.keys() <= {w.key for w in own.untold(DIGEST_LEVEL)}
        missing = self.digested.keys() - self.due[DIGEST_LEVEL].keys()
        assert not missing or own.surplus, "a digest knows that it holds too much"


@given(st.lists(STEPS, max_size=40))
def test_one_table_says_what_six_would(steps: list[tuple[str, int, Want, int]]) -> None:
    """PPP-05: an office tells differences, so these are what is kept."""
    own, other, model = OwnWants(), OwnWants(), Model()
    for what, level, want, number in steps:
        model.step(own, what, level, want, number)
        other.tell(want, 0, (1, HOST, 1))  # a want that stands in another broker's table stands here by itself
        model.compare(own)
        other.check()


@given(st.lists(st.tuples(st.booleans(), st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1))), max_size=80))
def test_numbers_in_a_row_and_others(steps: list[tuple[bool, int]]) -> None:
    """PRF-06: a client numbers its subscriptions as it likes."""
    found, model = Numbered(), dict[int, Want]()
    for more, number in steps:
        if more and number not in model:
            found[number] = model[number] = WANTS[number % len(WANTS)]
        elif not more and number in model:
            assert found.pop(number) is model.pop(number)
        found.check()
        assert dict(found.items()) == model and len(found) == len(model)
        assert (number in found) == (number in model)


def test_a_far_number_takes_no_room() -> None:
    found = Numbered()
    for number in (2**32 - 1, 5_000_000, 1, 0):
        found[number] = WANTS[0]
    assert [number for number, _ in found.items()] == [0, 1, 2**32 - 1, 5_000_000]


class Counted(int):
    """A number that notes how often it is compared."""

    times = 0

    def __le__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) <= other


def test_a_row_grows_without_a_look_at_all_others() -> None:
    """PRF-06: a client with many numbers far away pays for those that the row takes in, not for all at each one."""
    found, model = Numbered(), dict[int, Want]()
    far = [Counted(2**31 + number) for number in range(200)]
    for number in (*far, *range(30, 60)):
        found[number] = model[number] = WANTS[number % len(WANTS)]
    Counted.times = 0
    for number in (*range(30), *range(60, 90)):
        found[number] = model[number] = WANTS[number % len(WANTS)]
        found.check()
    assert list(found.items()) == [*((number, model[number]) for number in range(90)), *((n, model[n]) for n in far)]
    assert Counted.times < len(far)


def alone(count: int) -> Profiles:
    """A broker without a network, a client of which wants so many topics, all told."""
    profiles = Profiles(NetworkMap(HOST), Settings(), 0)
    profiles.map_changed(0)
    profiles.client(ClientUp(1, "many"), 0)
    for number in range(count):
        refused = profiles.client(Subscribe(1, number, "topic", f"sensors.0.{number}", LEVELS), 0)
        assert not refused
    settle(profiles, 0)
    return profiles


def settle(profiles: Profiles, start: int) -> None:
    for turn in range(1, 40):
        now_ns = start + turn * SECOND_NS // 8
        turn_over(profiles, now_ns)


def turn_over(profiles: Profiles, now_ns: int) -> None:
    """Everything that is due, in as many steps as it takes."""
    steps = 0
    while steps == 0 or ((due := profiles.next_wakeup()) is not None and due <= now_ns):
        profiles.tick(now_ns)
        profiles.news()
        profiles.active(now_ns)
        steps += 1
        assert steps < 1000


def test_equal_wants_are_one_object() -> None:
    own = OwnWants()
    clients = Clients(HOST, own.share)
    clients.open(1, "one")
    first = clients.subscribe(1, 1, "topic", "news", LEVELS)
    own.open(0)
    own.appoint(first, 0)
    assert clients.subscribe(1, 2, "topic", "news", LEVELS) is first


def test_more_than_a_batch_is_told_in_parts_and_marked_once() -> None:
    """PPP-05: no mark stands between the parts of one telling, for it would say that the first is all."""
    count = 2 * MAX_BATCH + MAX_BATCH // 2
    profiles = Profiles(NetworkMap(HOST), Settings(), 0)
    profiles.map_changed(0)
    profiles.client(ClientUp(1, "many"), 0)
    for number in range(count):
        profiles.client(Subscribe(1, number, "topic", f"sensors.0.{number}", LEVELS), 0)
    turn, spoken = 0, []
    while len(list(profiles.table.rows(HOST))) < count:
        turn += 1
        assert turn < 100
        profiles.tick(turn * SECOND_NS // 8)
        spoken.append((profiles.table.own.row_count(0), profiles.table.has_spoken(HOST)))
    assert list(dict(spoken)) == [MAX_BATCH, 2 * MAX_BATCH, count], "its cluster tells in between"
    assert [marked for rows, marked in dict(spoken).items() if rows] == [False, False, True]
    profiles.table.check()


def test_what_a_digest_tells_together_is_acknowledged_in_parts() -> None:
    """ACT-05: a hundred thousand wants that rise by one digest keep nobody waiting, and none of them is left behind."""
    count = 2 * MAX_JUDGED + 100
    profiles = Profiles(NetworkMap(HOST), Settings(), 0)
    profiles.map_changed(0)
    profiles.client(ClientUp(1, "many"), 0)
    for number in range(count):
        profiles.client(Subscribe(1, number, "topic", f"sensors.0.{number}", LEVELS), 0)
    now, turns, risen = 0, 0, list[tuple[int, int]]()
    while len(profiles.acknowledgements):
        due, turns = profiles.next_wakeup(), turns + 1
        assert due is not None and turns < 1000
        now = max(now, due)
        profiles.tick(now)
        found = [(each.subscription, each.level) for each in profiles.active(now)]
        for level in range(DIGEST_LEVEL + 1, LEVELS + 1):
            assert sum(each == level for _, each in found) <= MAX_JUDGED
        risen += found
    assert sorted(risen) == [(number, level) for number in range(count) for level in range(1, LEVELS + 1)]


def test_a_large_digest_is_made_anew_when_much_has_gone() -> None:
    """PPP-06: until then it lets through more than it need, never less."""
    count = SMALL_DIGEST + 1000
    profiles = alone(count)
    unit, now = HOST[: LEVELS - DIGEST_LEVEL], 100 * SECOND_NS
    whole = profiles.table.digest(unit)
    assert whole is not None
    profiles.client(Subscribe(1, count, "topic", "one more", LEVELS), now)
    settle(profiles, now)
    told = profiles.table.digest(unit)
    assert told is not None and told.parts == tuple(make_parts(profiles.table.own.due(DIGEST_LEVEL)))
    precise = []
    for start, stop in ((0, 10), (10, count // MAX_SURPLUS), (count // MAX_SURPLUS, count // MAX_SURPLUS + 10)):
        for number in range(start, stop):
            profiles.client(Unsubscribe(1, number), now)
        now += 20 * SECOND_NS
        settle(profiles, now)
        digest = profiles.table.digest(unit)
        assert digest is not None
        precise.append(digest.parts == tuple(make_parts(profiles.table.own.due(DIGEST_LEVEL))))
    assert precise == [False, True, False]
    assert profiles.speakers.next_wakeup() is not None
    settle(profiles, now + MAX_STALE_NS)
    digest = profiles.table.digest(unit)
    assert digest is not None and digest.parts == tuple(make_parts(profiles.table.own.due(DIGEST_LEVEL)))
    assert not profiles.table.own.surplus


def test_a_large_digest_is_made_anew_once_a_minute_however_steady_the_loss() -> None:
    """PPP-06: after a quiet minute the first loss makes it anew, and not every other one behind it."""
    count = SMALL_DIGEST + 100
    profiles, start, left_out = alone(count), 2 * MAX_STALE_NS, [0]
    own = profiles.table.own
    for turn in range(60):
        profiles.client(Unsubscribe(1, turn), start + turn * SECOND_NS // 8)
        turn_over(profiles, start + turn * SECOND_NS // 8)
        left_out.append(count - own.due_count(DIGEST_LEVEL) - own.surplus)
    assert sum(after != before for before, after in itertools.pairwise(left_out)) == 1


def told_by(profiles: Profiles, unit: Unit, version: Version, topic: str, now_ns: int) -> Want:
    """A neighbour says that somebody told this want of an own unit."""
    want = make_want("topic", topic, LEVELS)
    row = Row(unit, want.key, version, True, want.kind, want.payload, want.scope)
    profiles.handle(Interest((row,)), 1, 0, now_ns)
    return want


@pytest.mark.parametrize("topic", ["sensors.0.0", "nobody wants it"])
def test_a_number_that_the_host_has_not_reached_gets_no_endless_marks(topic: str) -> None:
    """PPP-05, ACT: what stands in the host's name under it is told anew or taken back; then one mark is behind all."""
    profiles, marks = alone(1), []
    latest = profiles.table.latest(HOST)
    assert latest is not None
    told_by(profiles, HOST, (latest[0] + 1, HOST, MAX_COUNT), topic, 10 * SECOND_NS)
    for start in (10, 20):
        settle(profiles, start * SECOND_NS)
        marks.append(dict(profiles.table.marks(HOST)))
    assert marks[0] == marks[1]
    (row,) = profiles.table.rows(HOST)
    assert pair_of(row.version) <= marks[0][HOST]
    profiles.check()


def test_what_a_lost_speaker_left_without_a_mark_is_looked_for_once() -> None:
    """PPP-05: what is wanted here is told anew, what is not as soon as it is; who has nothing left is forgotten."""
    profiles, cluster, other = alone(1), HOST[:3], (0, 0, 0, 1)
    profiles.snapshot_taken(0)
    latest = profiles.table.latest(cluster)
    assert latest is not None
    for number, topic in enumerate(("sensors.0.0", "later")):
        told_by(profiles, cluster, (latest[0] + 1, other, 7 + number), topic, 10 * SECOND_NS)
    settle(profiles, 10 * SECOND_NS)
    assert {row.version[1] for row in profiles.table.rows(cluster)} == {HOST, other}
    profiles.client(Subscribe(1, 1, "topic", "later", LEVELS), 20 * SECOND_NS)
    settle(profiles, 20 * SECOND_NS)
    mark = profiles.table.marks(cluster)[HOST]
    assert [row.version[1] for row in profiles.table.rows(cluster)] == [HOST, HOST]
    assert all(pair_of(row.version) <= mark for row in profiles.table.rows(cluster))
    assert list(profiles.table.tellers(cluster)) == [HOST]
    profiles.check()


@pytest.mark.parametrize("is_brief", [False, True])
def test_a_want_that_went_leaves_nothing_with_the_speakers(is_brief: bool) -> None:
    """PPP-05: what is not told as a row, or went before the cluster told it, need not be withdrawn."""
    profiles, cluster, now = alone(1), HOST[:3], 10 * SECOND_NS
    for number in range(1, 5):
        loads = 3 * AT_ONCE
        before = 1 + loads * number
        for load in range(loads * number, loads * (number + 1)):  # until both levels gather, the upper one for longer
            profiles.client(Subscribe(1, 100 + load, "topic", f"load.{load}", LEVELS), now)
            while len(list(profiles.table.rows(HOST))) < 2 + load - loads:
                now += MILLISECOND_NS
                profiles.tick(now)
        profiles.client(Subscribe(1, number, "topic", f"reply.{number}", LEVELS), now)
        if not is_brief:
            settle(profiles, now)
            now += 10 * SECOND_NS
        for count in (before + 1, before):
            while len(list(profiles.table.rows(HOST))) != count:
                now += MILLISECOND_NS
                profiles.tick(now)
            assert not is_brief or len(list(profiles.table.rows(cluster))) == before
            profiles.client(Unsubscribe(1, number), now)
        settle(profiles, now)
        now += 10 * SECOND_NS
    assert [len(speaker._gone) for speaker in profiles.speakers._speaking.values()] == [0] * LEVELS


def test_a_want_that_several_units_tell_is_one_object() -> None:
    """PPP-05: it stands in many tables, of which none changes it; what a table changes is its own."""
    want = make_want("topic", "quotes", LEVELS)
    tables = [InterestTable(HOST), InterestTable((0, 0, 0, 1))]
    for table in tables:
        for number in range(2, 5):
            speaker = (0, 0, 0, number)
            row = Row(speaker, want.key, (1, speaker, 1), True, want.kind, want.payload, want.scope)
            assert table.learn(row, None, 0) is not None
    kept = [table.kept((0, 0, 0, number), want.key) for table in tables for number in range(2, 5)]
    assert len({id(each.want) for each in kept if each is not None}) == 1
    shared = tables[0].want(next(tables[0].rows((0, 0, 0, 2))))
    before = shared.stand
    tables[0].own.open(0)
    tables[0].own.appoint(shared, 0)
    assert tables[0].own.is_due(want.key, 0) and not tables[1].own.is_due(want.key, 0)
    assert shared.stand == before
    for table in tables:
        table.check()
