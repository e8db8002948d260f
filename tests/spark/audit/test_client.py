"""One client's promises against what it was handed, without Spark: every rule, and an oracle on random histories."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from veena.spark.audit.client import FOREVER, Findings, Matched, Promise, Row, Stay, judge
from veena.spark.audit.verdict import ON_THE_WAY_US, READING_US, Verdict, verdict

STAY = Stay(1, "york", "1.0.1", 3, begun=10, active=20, ended=None)
EVENT = Matched(1, "pub:1:0:1", "pub:1:0:1", 100, True, None, "0.0.0", "pub", 1, 4, (0, 1))


def event(number: int, at: int = 100, **more: object) -> Matched:
    name = f"pub:1:0:{number}"
    return EVENT._replace(id=name, first=name, at=at, place=(0, number), **more)  # type: ignore[arg-type]


def row(number: int, at: int = 150, mark: str = "", broker: str = "york", first: str | None = None) -> Row:
    name = f"pub:1:0:{number}"
    return Row(name, first or name, at, at, broker, mark)


def open_of(found: Findings) -> Promise:
    (promise,) = found.open
    return promise


def test_a_promise_is_kept_or_open() -> None:
    """I1: acknowledged for its scope before the event was accepted."""
    kept = judge("bob", [STAY], [event(1)], [row(1)])
    assert (kept.promised, kept.kept, kept.open) == (1, 1, [])
    lost = judge("bob", [STAY], [event(1)], [])
    assert (lost.promised, lost.kept, open_of(lost).event.id) == (1, 0, "pub:1:0:1")


def test_what_is_allowed_and_not_promised() -> None:
    """Between added and acknowledged, after the end of acceptance, of best effort, and of the past (`since`)."""
    for stay, matched in (
        (replace(STAY, active=None), event(1)),
        (replace(STAY, active=100), event(1)),
        (replace(STAY, begun=120, active=130), event(1)),
        (STAY, event(1, reliable=False)),
    ):
        for rows in ([], [row(1)]):
            found = judge("bob", [stay], [matched], rows)
            assert (found.promised, found.open, found.spurious) == (0, [], [])


def test_what_must_not_be_handed_over() -> None:
    """Nothing that matches, another broker, before the beginning, after the end, out of scope, an unfit device."""
    assert judge("bob", [STAY], [], [row(1)]).spurious == [(row(1), "")]
    for stay in (
        replace(STAY, broker="rome"), replace(STAY, begun=151), replace(STAY, ended=149), replace(STAY, scope=1),
    ):  # fmt: skip
        (spurious,) = judge("bob", [stay], [event(1)], [row(1)]).spurious
        assert spurious[1]
    unfit = judge("bob", [STAY], [event(1, needs={"clearance": "secret"})], [row(1)])
    assert unfit.spurious and not unfit.promised
    cleared = replace(STAY, attributes={"clearances": "secret"})
    assert judge("bob", [cleared], [event(1, needs={"clearance": "secret"})], [row(1)]).kept == 1


def test_once_and_what_was_taken_back() -> None:
    twice = judge("bob", [STAY], [event(1)], [row(1), row(1, 160)])
    assert [(first, len(rows), extra) for first, rows, extra in twice.duplicates] == [("pub:1:0:1", 2, 1)]
    again = judge("bob", [STAY], [event(1)], [row(1), row(1, 160, "redelivered")])
    assert (again.duplicates, again.redelivered) == ([], 1)
    denied = judge("bob", [STAY], [event(1)], [row(1), row(1, 151, "denied")])
    assert (denied.kept, open_of(denied).told) == (0, "denied")


def test_an_event_that_was_published_again_is_the_same_event() -> None:
    """DUP-02: under a new id, which names the first, it is handed over once."""
    first, second = event(1), event(7)._replace(first="pub:1:0:1", incarnation=2)
    assert judge("bob", [STAY], [first, second], [row(7, first="pub:1:0:1")]).kept == 1
    both = judge("bob", [STAY], [first, second], [row(1), row(7, 160, first="pub:1:0:1")])
    assert len(both.duplicates) == 1


def test_order_within_a_stream() -> None:
    events = [event(1), event(2), event(3)._replace(lane=5)]
    found = judge("bob", [STAY], events, [row(3, 149), row(2, 150), row(1, 151)])
    assert [(each.id, after) for each, after in found.disordered] == [("pub:1:0:1", "pub:1:0:2")]
    late = judge("bob", [STAY], events, [row(2, 150), row(1, 151, "late")])
    assert (late.disordered, late.late) == ([], 1)


def test_each_durable_subscription_is_a_queue_of_its_own() -> None:
    """I1: what was kept for one may come behind what another was handed at once, but never behind its own."""
    stays = [replace(STAY, profile_id=profile, durable=True) for profile in (1, 2)]
    mine, others = event(1)._replace(profile_id=1), event(2)._replace(profile_id=2)
    rows = [row(2, 150), row(1, 151)]
    assert judge("bob", stays, [mine, others], rows).disordered == []
    plain = judge("bob", [replace(stay, durable=False) for stay in stays], [mine, others], rows)
    assert [each.id for each, _ in plain.disordered] == ["pub:1:0:1"]
    same = judge("bob", stays, [mine, others._replace(profile_id=1)], rows)
    assert [each.id for each, _ in same.disordered] == ["pub:1:0:1"]
    either = [mine, others, others._replace(profile_id=1)]
    assert judge("bob", stays, either, rows).disordered == [], "the later one may have come through the second"
    behind = [event(2)._replace(profile_id=1), event(3)._replace(profile_id=2), mine, mine._replace(profile_id=2)]
    assert len(judge("bob", stays, behind, [row(2, 150), row(3, 151), row(1, 152)]).disordered) == 1


def test_an_event_comes_once_through_each_durable_subscription_that_wants_it() -> None:
    """I1: two of them that are behind are read to one after the other; a third row is one too many."""
    stays = [replace(STAY, profile_id=profile, durable=True) for profile in (1, 2)]
    both = [event(1)._replace(profile_id=profile) for profile in (1, 2)]
    rows = [row(1, 150), row(1, 151), row(1, 152)]

    def extra(stays: list[Stay], matched: list[Matched], rows: list[Row]) -> list[int]:
        return [count for _, _, count in judge("bob", stays, matched, rows).duplicates]

    assert extra(stays, both, rows[:2]) == []
    assert extra(stays, both, rows) == [1]
    assert extra(stays, both[:1], rows[:2]) == [1], "the other one does not want it"
    assert extra([replace(stay, durable=False) for stay in stays], both, rows[:2]) == [1], "these are one queue"
    assert extra([stays[0], replace(stays[1], durable=False)], both, rows[:2]) == []
    assert extra([stays[0], replace(stays[1], begun=200)], both, rows[:2]) == [1], "the other one began later"


def test_a_group_is_promised_what_one_member_gets() -> None:
    group = replace(STAY, durable=True, shared="~shared/w/1")
    assert judge("~shared/w/1", [group], [event(1)], []).promised == 1
    member = judge("dan", [replace(STAY, shared="~shared/w/1")], [event(1)], [row(1)])
    assert (member.promised, member.shared, member.spurious) == (0, [("~shared/w/1", "pub:1:0:1", True)], [])
    own = judge("dan", [replace(STAY, shared="~shared/w/1"), STAY], [event(1)], [row(1)])
    assert own.shared == [("~shared/w/1", "pub:1:0:1", False)]


# --- what became of a promise that was not kept ---


def promise(stay: Stay = STAY, **more: object) -> Promise:
    return Promise(event(1, **more), stay, "", None)  # type: ignore[arg-type]


def said(of: Promise, came: int | None = None, sent: int | None = None, until: int = FOREVER) -> Verdict:
    return verdict(of, came, sent, until)[0]


def test_a_promise_of_a_subscription_that_stands() -> None:
    assert said(promise()) is Verdict.MISSING
    assert said(promise(), came=120) is Verdict.MISSING
    assert said(promise(), until=99) is Verdict.WAITING
    assert said(promise(ttl_ms=1)) is Verdict.EXPIRED
    assert said(promise(ttl_ms=1), came=1101) is Verdict.EXPIRED
    assert said(promise(ttl_ms=1), came=1099) is Verdict.MISSING
    for mark, expected in (("had", Verdict.HAD), ("dropped", Verdict.DROPPED), ("withheld", Verdict.DROPPED)):
        assert said(replace(promise(), told=mark)) is expected


def test_a_promise_of_a_subscription_that_ended() -> None:
    """Only its own broker's clock can tell whether the event came before the end."""
    left = replace(STAY, ended=200)
    assert said(promise(left), came=199) is Verdict.MISSING
    assert said(promise(left), came=200) is Verdict.ENDED
    assert said(promise(left)) is Verdict.ENDED
    assert said(promise(left), sent=150) is Verdict.MISSING
    assert said(promise(left), sent=250) is Verdict.ENDED
    assert said(promise(replace(left, ended=101 + ON_THE_WAY_US))) is Verdict.MISSING
    assert said(promise(left, origin="1.0.1")) is Verdict.MISSING
    assert said(replace(promise(left), overtaken_by="pub:1:0:2")) is Verdict.MISSING


def test_a_promise_of_a_subscription_whose_broker_died() -> None:
    """What had come just before may have died with it; what it had on record may not."""
    died = replace(STAY, ended=50_000_000, is_crashed=True)
    assert said(promise(died)) is Verdict.ENDED
    assert said(promise(died), came=49_999_999) is Verdict.MISSING
    assert said(promise(died), came=60_000_000) is Verdict.ENDED
    assert said(promise(died), sent=45_000_000) is Verdict.ENDED
    assert said(promise(died), sent=1_000_000) is Verdict.MISSING
    assert said(promise(died, origin="1.0.1")) is Verdict.ENDED


def test_what_is_kept_waits_for_its_client() -> None:
    kept = replace(STAY, durable=True)
    assert said(promise(kept), came=120) is Verdict.WAITING
    for attached, expected in (
        ((110, 130), Verdict.MISSING), ((10, 119), Verdict.WAITING), ((130, 140), Verdict.WAITING),
        ((130, 130 + READING_US), Verdict.MISSING), ((130, FOREVER), Verdict.MISSING),
    ):  # fmt: skip
        assert said(replace(promise(kept), attached=(attached,)), came=120) is expected
    assert said(promise(kept)) is Verdict.MISSING


def test_a_durable_subscription_ends_where_it_was_kept_last() -> None:
    here, there = replace(STAY, durable=True, ended=120), replace(STAY, durable=True, broker="rome", begun=110)
    found = open_of(judge("bob", [here, there], [event(1)], [], [(5, 90), (130, FOREVER)]))
    assert (found.stay.ended, found.homes, found.attached) == (None, ("york", "rome"), ((130, FOREVER),))


# --- an oracle ---

TIMES = st.integers(0, 12)
STAYS = st.builds(
    lambda begun, wait, last, broker, scope: Stay(
        1, broker, {"york": "1.0", "rome": "0.1"}[broker], scope, begun,
        None if wait is None else begun + wait, None if last is None else begun + last,
    ),
    TIMES, st.none() | st.integers(0, 4), st.none() | st.integers(1, 8), st.sampled_from(["york", "rome"]),
    st.integers(1, 2),
)  # fmt: skip
EVENTS = st.builds(
    lambda at, reliable, origin: (at, reliable, origin), TIMES, st.booleans(), st.sampled_from(["0.0", "0.1", "1.1"])
)
ROWS = st.builds(
    lambda number, at, mark, broker: (number, at, mark, broker), st.integers(0, 3), st.integers(0, 16),
    st.sampled_from(["", "", "late", "redelivered", "had"]), st.sampled_from(["york", "rome"]),
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(STAYS, max_size=3), st.lists(EVENTS, max_size=4), st.lists(ROWS, max_size=8))
def test_the_judge_agrees_with_an_oracle(
    stays: list[Stay], events: list[tuple[int, bool, str]], handed: list[tuple[int, int, str, str]]
) -> None:
    """I1 on random histories of one client, word by word: sets of triples instead of the judge's tables."""
    matched = [event(number, at, reliable=r, origin=o) for number, (at, r, o) in enumerate(events)]
    rows = [
        row(number, at, mark, broker)._replace(offset=offset)
        for offset, (number, at, mark, broker) in enumerate(handed)
    ]
    found = judge("bob", stays, matched, rows)
    promised, got, spurious, extra = set(), set(), 0, 0
    for each in matched:
        covered = [s for s in stays if s.scope == 2 or (s.address or "").split(".")[0] == each.origin.split(".")[0]]
        if each.reliable and any(
            s.active is not None and s.active < each.at and (s.ended is None or s.ended >= each.at) for s in covered
        ):
            promised.add(each.id)
        given_out = [r for r in rows if r.id == each.id and r.mark != "had"]
        if given_out:
            got.add(each.id)
        extra += max(0, sum(r.mark != "redelivered" for r in given_out) - 1)
        for r in given_out:
            spurious += not any(
                s.broker == r.broker and (s.begun or 0) <= r.at and (s.ended is None or r.at <= s.ended)
                for s in covered
            )
    strangers = [r for r in rows if r.mark != "had" and r.id not in {each.id for each in matched}]
    assert found.promised == len(promised)
    assert {each.event.id for each in found.open} == promised - got
    assert sum(each[2] for each in found.duplicates if each[0] in {m.id for m in matched}) == extra
    assert len(found.spurious) == spurious + len(strangers)
    order = [
        r for r in sorted(rows, key=lambda r: (r.at, r.offset)) if r.mark == "" and r.id in {m.id for m in matched}
    ]
    lanes = {each.id: (each.lane, each.place) for each in matched}
    firsts = [r for at, r in enumerate(order) if r.id not in {before.id for before in order[:at]}]
    behind = [
        r.id
        for at, r in enumerate(firsts)
        if any(lanes[b.id][0] == lanes[r.id][0] and lanes[b.id][1] > lanes[r.id][1] for b in firsts[:at])
    ]
    assert sorted(each.id for each, _ in found.disordered) == sorted(behind)
