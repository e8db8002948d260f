"""`veena pipeline analyze --follow` as a user runs it: brokers that come and go, windows as lines, a quiet end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import veena.blocking
import veena.testing
from tests.runtime import processes
from veena.dashboard.pages.live_panel import LiveFile

SETTINGS = {"store": {"records": "deliveries"}}
ROUND = 20


def test_a_network_is_followed_over_the_death_of_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delivery is counted once, and the portal reads what is written."""
    monkeypatch.setattr(processes, "PATIENCE_S", 300.0)  # starting Java and two streams on a busy machine
    errors, out = tmp_path / "errors", tmp_path / "live"
    with (
        veena.testing.network(brokers=2, settings=SETTINGS) as net,
        veena.blocking.connect(net.url("a.1"), client_id="bob") as bob,
        processes.veena(
            *("pipeline", "analyze", "--follow", "--json", "--url", net.url("a.1"), "--out", str(out)),
            *("--window", "1 hour", "--master", "local[2]", "--memory", "1g"),
            errors=errors,
        ) as following,
    ):
        wanted = bob.subscribe(topic="t")
        # It begins at the end of the logs, which is fixed with its first batch.
        processes.until((out / "live-checkpoint" / "offsets" / "0").exists)
        net.kill("a.2")
        publish(net.url("a.1"), ROUND)
        net.restart("a.2")
        publish(net.url("a.2"), ROUND)
        for _ in range(2 * ROUND):
            wanted.next(timeout=60)
        while (counted := sum_of(following.told())) < 2 * ROUND:
            pass
        assert counted == 2 * ROUND
        code = following.end(signal.SIGINT)
    said = errors.read_text()
    assert code == 0 and "Traceback" not in said and "\tat " not in said, said
    found, _ = LiveFile(out).look()
    assert found is not None and sum(each.deliveries_per_s for each in found.windows) * 3600 == pytest.approx(2 * ROUND)


def publish(url: str, count: int) -> None:
    with veena.blocking.connect(url) as client:
        for _ in range(count):
            client.publish(topic="t", body=b"b", reliable=True)


def sum_of(told: dict[str, Any]) -> int:
    return sum(window["deliveries"] for window in told["windows"])
