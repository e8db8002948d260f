"""Brokers that lie to other super-clusters: with signatures nobody believes them, without them it is soon over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tiers import slow
from veena.core.boundary.signing import Fault, Signing
from veena.core.broker import Broker
from veena.core.wire.signatures import Credential, Signature
from veena.sim.runs.run import run_seed
from veena.sim.world.options import Options

BROKERS = 24
LIARS = 8


def unchecked(options: Options) -> Options:
    """The same run for those who look at its faults and trace alone."""
    return replace(options, check=False)


@pytest.mark.parametrize(("seed", "faults"), [(1, "none"), slow((3, "none")), (5, "links"), slow((8, "crash"))])
def test_nobody_believes_a_liar_where_all_sign(seed: int, faults: str) -> None:
    """Forgers with keys of their own, and relays that alter what they pass on."""
    report = run_seed(seed, faults, brokers=BROKERS, signed=True, liars=LIARS)
    assert report.is_sound, (report.wrong, report.false_statements, report.broken)
    assert sum("statements" in fault for fault in report.faults) == LIARS
    assert not report.false_statements


@pytest.mark.parametrize("seed", [2, 4])
def test_what_a_forger_said_is_over_when_it_has_stopped(seed: int) -> None:
    """Where nobody signs everything accepted and kept is delivered, and what is known of others is right again."""
    report = run_seed(seed, "none", brokers=BROKERS, liars=LIARS)
    assert report.is_sound, (report.wrong, report.broken)
    assert sum("forges" in fault for fault in report.faults) == LIARS


def test_liars_change_nothing_else_of_a_seed() -> None:
    """The other faults of a seed are drawn as if there were no liars; and so is everything without both options."""
    plain, lied = (
        run_seed(6, "links", brokers=BROKERS, events=20, liars=liars, change=unchecked) for liars in (0, LIARS)
    )
    assert [fault for fault in lied.faults if "statements" not in fault] == list(plain.faults)
    assert plain.trace_hash != lied.trace_hash


def test_signed_runs_repeat() -> None:
    one, other = (run_seed(2, "none", brokers=8, signed=True) for _ in range(2))
    assert one.trace_hash == other.trace_hash and one.is_sound


class Gullible:
    """Believes whatever has a signature."""

    def why_not(self, credential: Credential, signature: Signature, statement: bytes, wall_ns: int) -> Fault | None:
        return None


def trusting(*arguments: Any, **named: Any) -> Broker:
    named["signing"] = Signing(named["signing"].signer, Gullible())
    return Broker(*arguments, **named)


def test_the_judge_finds_what_nobody_has_signed() -> None:
    """A planted bug: brokers that do not look at signatures believe the liars, and the run says so. Who lies without a
    signature, or with one in its own name, loses its link before that: in some seeds no lie comes further."""
    reports = (
        run_seed(seed, "none", make_broker=trusting, brokers=BROKERS, signed=True, liars=LIARS) for seed in (2, 1, 4)
    )
    assert any(report.false_statements and not report.is_sound for report in reports)
