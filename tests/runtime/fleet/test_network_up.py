"""`veena network up`: a process a broker, all in reach of each other; whatever ends, nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import veena as command
from tests.runtime.processes import PATIENCE_S, Started, is_alive, until, veena

NETWORK = """
[network]
name = "five"
levels = 3

[[broker]]
address = "x.a.1"
[[broker]]
address = "x.a.2"
[[broker]]
address = "x.b.3"
[[broker]]
address = "x.b.4"
[[broker]]
address = "y.c.5"

[[link]]
between = ["x.a.1", "x.a.2"]
[[link]]
between = ["x.a.2", "x.b.3"]
transport = "ws"
[[link]]
between = ["x.b.3", "x.b.4"]
[[link]]
between = ["x.b.4", "x.a.1"]
[[link]]
between = ["y.c.5", "x.b.4"]
"""
TWO_LINKED = '[[link]]\nbetween = ["a", "b"]\n'
LABELS = ["x.a.1", "x.a.2", "x.b.3", "x.b.4", "y.c.5"]


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """What is written without a thought everybody may read, as it is for most users."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def pids(network: Started, labels: list[str]) -> dict[str, int]:
    """The brokers' lines, then the one that says that they are ready."""
    found = [network.told() for _ in labels]
    assert sorted(line["address"] for line in found) == labels
    assert all(set(line) == {"address", "pid", "url"} for line in found)
    assert len({line["url"] for line in found}) == len(labels)
    ready = network.told()
    assert ready["ready"] is True and ready["control"].endswith("control.json")
    return {line["address"]: line["pid"] for line in found}


@pytest.mark.usefixtures("usual_umask")
def test_five_brokers_up_killed_restarted_and_down(tmp_path: Path) -> None:
    """FLT-01: a broker that is killed is started again under its address; SIGINT stops all of them."""
    file, errors = tmp_path / "five.toml", tmp_path / "errors"
    file.write_text(NETWORK)
    arguments = ("network", "up", str(file), "--json", "--restart", "--data", str(tmp_path / "run"))
    with veena(*arguments, errors=errors) as network:
        running = pids(network, LABELS)
        os.kill(running["x.b.3"], signal.SIGKILL)
        again = network.told()
        assert again["address"] == "x.b.3" and again["pid"] != running["x.b.3"]
        assert "broker x.b.3 ended (signal 9)" in errors.read_text()
        log = tmp_path / "run" / "x.b.4" / "broker.log"
        until(lambda: log.read_text().count("unit in reach unit=0.1.0") > 1)  # its neighbour lost it, and has it again
        running["x.b.3"] = again["pid"]
        assert network.end(signal.SIGINT) == 0
        assert not any(map(is_alive, running.values()))
    assert "incarnation=2" in (tmp_path / "run" / "x.b.3" / "broker.log").read_text()
    files = [each for each in (tmp_path / "run").rglob("*") if each.is_file()]
    assert {"network.toml", "broker.toml", "broker.log", "veena.db"} <= {each.name for each in files}
    assert not [each for each in files if each.stat().st_mode & 0o077], "nobody else reads configurations and logs"


def test_no_broker_survives_the_death_of_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text('[network]\nlevels = 1\n[[broker]]\naddress = "a"\n[[broker]]\naddress = "b"\n' + TWO_LINKED)
    with veena("network", "up", str(file), "--json", "--data", str(tmp_path / "run")) as network:
        running = pids(network, ["a", "b"])
        network.process.kill()
        network.process.wait(PATIENCE_S)
        until(lambda: not any(map(is_alive, running.values())))


def test_a_broker_that_cannot_start_is_named(tmp_path: Path) -> None:
    file, errors = tmp_path / "two.toml", tmp_path / "errors"
    file.write_text(
        '[network]\nlevels = 1\n[[broker]]\naddress = "a"\n[[broker]]\naddress = "b"\nlisten = ["tcp://203.0.113.9:7"]\n'
        + TWO_LINKED
    )
    with veena("network", "up", str(file), "--json", "--data", str(tmp_path / "run"), errors=errors) as network:
        assert network.process.wait(PATIENCE_S) == 2
    told = errors.read_text()
    assert "b: did not start (exit code 2)" in told and "to other machines" in told


def test_what_cannot_be_run_here_is_said(tmp_path: Path) -> None:
    file = tmp_path / "n.toml"
    for transport, told in (("memory", "use one of tcp, ws"), ("udp", "there is no UDP transport")):
        file.write_text(NETWORK.replace('"ws"', f'"{transport}"'))
        outcome = command("network", "up", str(file))
        assert outcome.code == 2 and transport in outcome.err and told in " ".join(outcome.err.split()), outcome.err
    file.write_text(NETWORK.replace('[[link]]\nbetween = ["y.c.5", "x.b.4"]\n', ""))
    assert command("network", "up", str(file)).code == 2
