"""The tree that `veena trace` draws: every broker once, and nothing that happened left out."""

from __future__ import annotations

import pytest

from veena.cli.client.trace import _show, after, clock, remarks
from veena.client.explain import TraceAnswer
from veena.core.boundary.explain import Handed, Happened, Hop
from veena.event import EventId

MS = 1_000_000
BEGIN = 1_700_000_000_123_456_000
ONE, TWO, THREE, FOUR = (0, 0), (0, 1), (1, 0), (1, 1)
LABELS = {ONE: "a.1", TWO: "a.2", THREE: "b.3", FOUR: "b.4", (1,): "b"}
ID = EventId("alice", 1, BEGIN, 0)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def answer(
    hops: tuple[Hop, ...] = (), handed: tuple[Handed, ...] = (), happened: tuple[Happened, ...] = (), begin: int = BEGIN
) -> TraceAnswer:
    return TraceAnswer(ONE if begin else (), begin, (), {"all": 4}, LABELS, hops, handed, happened)


def lines(capsys: pytest.CaptureFixture[str], given: TraceAnswer, most: int | None = None) -> list[str]:
    _show(ID, given, most)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def hop(sender: tuple[int, ...], receiver: tuple[int, ...], sent: int, entered: int | None) -> Hop:
    return Hop(sender, receiver, ((1,),), BEGIN + sent * MS, 0 if entered is None else BEGIN + entered * MS)


def test_what_was_sent_again_and_what_did_not_come(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker stands where the event came first; a second copy and a lost one are lines of their own."""
    hops = (hop(ONE, TWO, 0, 1), hop(TWO, THREE, 1, 2), hop(ONE, TWO, 5, 6), hop(THREE, FOUR, 7, None))
    handed = (Handed(THREE, "bob [x]", 3, (1, 2), BEGIN + 3 * MS),)
    happened = (Happened(THREE, "dropped", BEGIN + 8 * MS, "", (FOUR,), "best effort: no room"),)
    assert lines(capsys, answer(hops, handed, happened)) == [
        "event alice:1:1700000000123456000:0, accepted 2023-11-14 22:13:20.123456 UTC",
        "└── a.1  accepted",
        "    ├── level 0 to a.2  sent +0.00 ms, entered +1.00 ms  for b",
        "    │   └── level 1 to b.3  sent +1.00 ms, entered +2.00 ms  for b",
        "    │       ├── bob [x] got it +3.00 ms  for subscription 1, 2",
        "    │       ├── dropped for b.4 (best effort: no room) +8.00 ms",
        "    │       └── level 0 to b.4  sent +7.00 ms, not known to have come  for b",
        "    └── level 0 to a.2  sent +5.00 ms, entered +6.00 ms  (it had come before)  for b",
        "1 deliveries, 3 brokers, 4 hops (3 at level 0, 1 at level 1)",
    ]


def test_without_hops_every_broker_that_knows_something_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`records = "deliveries"`: two ends and nothing between; a circle in what is remembered ends."""
    handed = tuple(Handed(FOUR, f"client-{at}", at, (), BEGIN + at * MS) for at in range(1, 4))
    assert lines(capsys, answer(handed=handed), most=2) == [
        "event alice:1:1700000000123456000:0, accepted 2023-11-14 22:13:20.123456 UTC",
        "├── a.1  accepted",
        "└── b.4  from its log, or the way to it is not remembered",
        "    ├── client-1 got it +1.00 ms",
        "    ├── client-2 got it +2.00 ms",
        "    └── and 1 more clients; --all shows them",
        "3 deliveries, 1 brokers, 0 hops",
    ]
    circle = (hop(THREE, FOUR, 1, 2), hop(FOUR, THREE, 3, 4))
    drawn = lines(capsys, answer(circle, begin=0))
    assert sum("level 0 to" in line for line in drawn) == 2 and drawn[0] == f"event {ID}"


def test_times_and_what_is_missing() -> None:
    assert clock(1) == "1970-01-01 00:00:00.000000 UTC"
    assert after(BEGIN + 90 * 10**9, BEGIN) == "+90.0 s"
    assert after(BEGIN - MS, BEGIN) == "-1.00 ms"
    assert after(BEGIN, 0) == clock(BEGIN)
    partly = TraceAnswer(ONE, BEGIN, ((1,),), {"off": 1, "deliveries": 2, "all": 3}, LABELS, (), (), ())
    told = list(remarks(partly, needs_hops=True))
    assert told[0].startswith("no answer in time from b:") and "--timeout" in told[0]
    assert told[1].startswith('1 of 6 brokers remember nothing (records = "off"). Switch it on')
    assert told[2].startswith('2 of 6 brokers remember no hops (records = "deliveries")')
    assert len(list(remarks(partly, needs_hops=False))) == 2
