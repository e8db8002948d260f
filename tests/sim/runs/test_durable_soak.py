"""Durable, slow and roaming clients in random runs: what is drawn, what is judged, and that the judge is not blind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.tiers import few
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.delivery.session_queue import Outlet
from veena.core.durable.handover import Roaming
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable
from veena.core.wire.event import EventFrame
from veena.sim.judges.delivery import deadline_ns
from veena.sim.judges.durable import patience_ns
from veena.sim.runs.run import Report, run_seed
from veena.sim.world.options import Options


def absent(options: Options) -> Options:
    """Few others, so that the run is about those who come and go."""
    return replace(
        options, clients=2, durables=8, absences=24, devices=0, changes=0, events=100, clogs=0, check_every=10,
        wire=False,
    )  # fmt: skip


def fickle(options: Options) -> Options:
    """The same clients with second devices, and with other wishes under the same names."""
    return replace(absent(options), devices=24, changes=12)


def slow(options: Options) -> Options:
    return replace(options, clients=12, durables=0, absences=0, events=150, clogs=12, outlet=1)


def test_who_comes_and_goes_without_faults_gets_everything() -> None:
    """CLI-05, FLT-05: every durable subscription, once and in order; nothing late, and no copy without a reason."""
    reports = list(judged(Broker))
    for report in reports:
        assert report.is_sound, report.wrong
        assert report.durable_expected == report.durable_delivered
        assert report.durable_subscriptions in range(8, 30)
        assert report.late == 0
    assert sum(report.durable_expected or 0 for report in reports) > 200
    assert any(report.redelivered for report in reports)


@pytest.mark.parametrize("seed", few([3, 9, 16, 19, 24, 31]))
def test_who_comes_and_goes_through_faults_gets_everything(seed: int) -> None:
    """FLT-05, I5: seeds that once lost or repeated something."""
    report = run_seed(seed, "all", change=absent, brokers=8)
    assert report.is_sound, (report.broken, report.wrong)
    assert report.durable_expected


@pytest.mark.parametrize(("seed", "faults"), [(5, "none"), (9, "all")])
def test_devices_and_other_wishes_under_the_same_name(seed: int, faults: str) -> None:
    """CLI-02: on all devices together everything, on each nothing twice and in order; what was kept when a client asked
    for something else stays kept."""
    report = run_seed(seed, faults, change=fickle, brokers=6)
    assert report.is_sound, (report.broken, report.wrong)
    assert report.durable_expected


def test_who_does_not_read_is_told_what_it_missed() -> None:
    """FLT-09: what is missing is what clients were told of, and that is not nothing."""
    report = run_seed(5, "none", change=slow, brokers=6)
    assert report.is_sound, report.wrong
    assert report.slow_dropped


def test_there_is_time_for_an_absent_client_to_get_everything() -> None:
    """The judge's patience is within the run: nothing is missing because the run was over."""
    report = run_seed(2, "crash", change=absent, brokers=6)
    assert report.is_sound, report.wrong
    assert (report.durable_slowest_seconds or 0) < 40


# --- canaries ---


def planted(**bugs: Any) -> Any:
    """Brokers with other methods: by the name of the part and the method."""

    def make(*given: Any, **named: Any) -> Broker:
        broker = Broker(*given, **named)
        sessions = broker.events.sessions
        parts = {"durables": sessions.durables, "roaming": sessions.roaming, "handing": sessions.durables.handing}
        for place, bug in bugs.items():
            part, _, name = place.partition("_")
            setattr(parts[part], name, bug)
        return broker

    return make


def nothing(*given: object) -> None:
    """Does not do it."""


def judged(make: Any, faults: str = "none", seeds: tuple[int, ...] = (2, 3, 4)) -> Iterator[Report]:
    """The reports one by one: who finds a bug in the first needs no other."""
    return (run_seed(seed, faults, None, make, absent, brokers=8) for seed in seeds)


def test_a_home_that_forwards_nothing_is_caught() -> None:
    assert any(report.missing for report in judged(planted(roaming__pump=nothing)))


def test_a_home_that_never_lets_go_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wants stay told, and the new home waits for it in vain."""
    monkeypatch.setattr(Roaming, "_on_move", nothing)
    assert any(report.missing for report in judged(Broker))


def test_a_cursor_that_is_believed_too_soon_is_caught() -> None:
    """What waits in the log is passed over."""

    def impatient(durable: Durable, inbox: Any, entry: Any, now_ns: int) -> EventFrame | None:
        return None

    assert any(report.missing for report in judged(planted(handing_mortal=impatient)))


def test_a_home_that_does_not_know_what_it_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.core.durable.intake.remember", nothing)
    monkeypatch.setattr("veena.core.durable.redelivery.Handing._was_had", lambda *given: False)
    reports = judged(Broker, "all", (3, 9, 24))
    assert any(report.duplicates or report.broken for report in reports)


def test_another_wish_that_forgets_what_was_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    replaces = Durables._replace

    def forgetful(durables: Durables, durable: Durable, given: Any, now_ns: int) -> None:
        replaces(durables, durable, given, now_ns)
        for inbox in durable.inboxes:
            inbox.front = inbox.end
            inbox.open.clear()
            inbox.by_key.clear()

    monkeypatch.setattr(Durables, "_replace", forgetful)
    assert any(run_seed(seed, "none", change=fickle, brokers=6).missing for seed in range(1, 9))


def test_a_device_that_takes_the_others_with_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-02: the first device is attached, is handed nothing any more, and may not acknowledge what it has."""
    detach = Durables.detach

    def greedy(durables: Durables, session: int, subscription: int, now_ns: int) -> bool:
        durable = durables._readers.get((session, subscription))
        for other in list(durable.readers) if durable is not None else ():
            detach(durables, *other, now_ns)
        return durable is not None

    monkeypatch.setattr(Durables, "detach", greedy)
    reports = (run_seed(seed, "none", change=fickle, brokers=6) for seed in range(1, 9))
    report = next(report for report in reports if report.spurious)
    assert "to acknowledge for" in report.wrong[0]


def test_an_outlet_that_miscounts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-09: told too little is missing; told too much is as wrong."""
    clear = Outlet.clear

    def miscounted(by: int) -> Any:
        def told(outlet: Outlet, given: Any, now_ns: int) -> None:
            queue = outlet.clogged.get(given.session)
            if queue is not None and queue.dropped:
                queue.dropped = max(1, queue.dropped + by)
            clear(outlet, given, now_ns)

        return told

    monkeypatch.setattr(Outlet, "clear", miscounted(1000))
    report = run_seed(5, "none", change=slow, brokers=6)
    assert report.spurious
    assert "was told of" in report.wrong[-1]
    monkeypatch.setattr(Outlet, "clear", miscounted(-1000))
    report = run_seed(5, "none", change=slow, brokers=6)
    assert report.missing


def test_patience_is_a_matter_of_the_settings() -> None:
    """Two deadlines, a client's return, and what is set aside at two brokers."""
    settings = Settings()
    assert patience_ns(settings, deadline_ns(settings)) == 52 * SECOND_NS
