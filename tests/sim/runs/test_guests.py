"""Brokers that ask the registrars for a place while everything else goes wrong, and what the judge makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.command import veena
from tests.tiers import few
from veena.address import Unit
from veena.core.broker import Broker
from veena.core.membership.registrar import Registrar, Verdict
from veena.sim.runs.run import Report, run_seed
from veena.sim.world.options import Options

#: Small enough for a few seconds a run.
SMALL = 9


def sparing(options: Options) -> Options:
    return replace(options, check_every=20, wire=False)


def run(seed: int, make_broker: Any = Broker, guests: int = 6) -> Report:
    return run_seed(seed, "all", None, make_broker, sparing, brokers=SMALL, guests=guests)


@pytest.mark.parametrize("seed", few([10, 12, 17, 24]))
def test_newcomers_come_in_through_the_registrars_while_everything_fails(seed: int) -> None:
    """NOP-03, NOP-19, GUA-11, FLT-01, I1: they are given places of their own, clients and a publisher come to them,
    some of them crash, leave or are lost; everybody has what was promised, every map is right."""
    report = run(seed)
    assert report.is_sound, (report.broken, report.clashes, report.wrong, report.wrong_maps)
    assert report.joined > 0
    told = " ".join(report.faults)
    assert "asks to be let in" in told
    assert "has its place at" in told


def test_without_guests_a_seed_is_what_it_was() -> None:
    """Guests take nothing from the chance of others: nothing else is drawn differently."""
    plain, visited = (
        run_seed(10, "all", change=lambda drawn: replace(drawn, check=False), brokers=6, events=60, guests=count)
        for count in (0, 2)
    )
    assert plain.joined == 0
    assert [fault for fault in visited.faults if fault in plain.faults] == list(plain.faults)


class Careless(Registrar):
    """Gives the lowest numbers, whoever has them."""

    def reserve(self, enclosing: Unit, unit: str, requester: str, taken: Mapping[Unit, int], now_ns: int) -> Verdict:
        return super().reserve(enclosing, unit, requester, {}, now_ns)


def test_an_address_that_is_given_twice_is_found() -> None:
    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.reception.membership._admission.registrar.__class__ = Careless
        return broker

    report = run(10, make)
    assert report.clashes
    assert not report.is_sound


@pytest.mark.slow
def test_a_founder_that_comes_while_a_guest_is_let_in_clashes_with_nobody() -> None:
    """The guest was promised the place before anybody could have heard of the founder; it asks for another."""
    report = run_seed(36, "all", None, Broker, sparing, guests=3)
    assert report.is_sound, report.clashes
    assert report.joined == 3


def test_the_command_takes_guests() -> None:
    found = veena("sim", "run", "--seed", "10", "--brokers", "4", "--events", "20", "--faults", "all", "--guests", "1")
    assert found.code == 0
    assert "guest-0 asks to be let in" in " ".join(found.out.split())
