"""`veena advise` on a network of processes: looks, proposes, starts a broker, and its clients roam to it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import veena as command
from tests.runtime.processes import Started, until
from tests.runtime.processes import veena as started
from veena import blocking
from veena.errors import ConfigError, NotConnected, Refused
from veena.runtime.fleet.control import FleetControl

NETWORK = """
[network]
name = "fix-32"
levels = 2

[[broker]]
address = "syracuse.1"
[[broker]]
address = "rochester.1"

[[link]]
between = ["rochester.1", "syracuse.1"]
"""
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    process: Started
    urls: dict[str, str]
    control: Path


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("advise")
    file = directory / "fix-32.toml"
    file.write_text(NETWORK)
    with started("network", "up", str(file), "--json", "--data", str(directory / "run")) as process:
        urls = {line["address"]: line["url"] for line in (process.told() for _ in range(2))}
        control = Path(process.told()["control"])
        assert stat.S_IMODE(os.stat(control).st_mode) == 0o600, "only its user may change the network"
        yield Running(process, urls, control)
        process.end()
        assert not control.exists()


def advise(network: Running, *arguments: str) -> Any:
    return command("advise", "--url", network.urls["rochester.1"], "--far-ms", "0", *arguments)


def test_the_fleet_grows_a_broker_and_clients_roam_to_it(network: Running) -> None:
    """FUT-06, FUT-07, GUA-11, FUT-10, FIX-32: what is proposed is carried out, and nothing is lost or comes twice."""
    with ExitStack() as stack:
        boston = [
            stack.enter_context(
                blocking.connect(network.urls["syracuse.1"], client_id=f"b{n}", attributes={"place": "Boston"})
            )
            for n in range(3)
        ]
        wants = [client.subscribe(topic="weather", durable=True, wait=PATIENCE_S) for client in boston]
        source = stack.enter_context(blocking.connect(network.urls["rochester.1"], client_id="source"))
        source.publish(topic="weather", body=b"1", reliable=True)
        home = boston[0].broker

        (line,) = advise(network, "--json").out.splitlines()
        found = json.loads(line)
        assert (found["kind"], found["broker"], found["links"]) == ("broker", "boston.1", [["boston.1", "syracuse.1"]])
        assert sorted(found["clients"]["syracuse.1"]) == ["b0", "b1", "b2"] and found["copies"] == [3, 1]
        shown = advise(network)
        assert shown.code == 0 and "A broker in Boston" in shown.out and "2 brokers, 4 clients, 1 link" in shown.out
        alone = advise(network, "--carry-out", "1")
        assert alone.code != 0 and "--control" not in alone.out and "start boston.1 yourself" in alone.err
        assert advise(network, "--carry-out", "7").code != 0

        done = advise(network, "--carry-out", "1", "--control", str(network.control), "--json")
        assert done.code == 0, done.err
        steps = [json.loads(step)["step"] for step in done.out.splitlines()]
        assert [step.split(" within")[0] for step in steps[1:]] == [
            "3 clients of syracuse.1 were sent to boston.1",
            "3 of 3 clients arrived at boston.1",
        ]
        added = network.process.told()
        assert added["address"] == "boston.1" and added["url"] in steps[0]
        network.urls["boston.1"] = added["url"]
        until(lambda: all(client.broker not in (None, home) for client in boston))
        source.publish(topic="weather", body=b"2", reliable=True)
        assert [[bytes(want.next(PATIENCE_S).body) for _ in range(2)] for want in wants] == [[b"1", b"2"]] * 3
        assert not any(want.take() for want in wants)
        again = advise(network)
        assert "3 brokers, 4 clients, 2 links: nothing to propose" in again.out, "and all know its name"


def test_links_come_and_go_while_brokers_run(network: Running) -> None:
    """FUT-09, GUA-11, FUT-10: a link more, a link less; none without which the network would fall apart."""
    control = FleetControl(network.control)
    if "boston.1" not in network.urls:
        network.urls["boston.1"] = asyncio.run(control.add_broker("boston.1", ("syracuse.1",)))

    def links() -> set[str]:
        with blocking.connect(network.urls["boston.1"]) as client:
            return {link["to"] for link in client.topology()["links"]}

    async def change() -> None:
        await control.change_link("link", ("boston.1", "rochester.1"))
        await control.change_link("drop", ("boston.1", "syracuse.1"))
        with pytest.raises(Refused, match="no level-1 link"):
            await control.change_link("drop", ("boston.1", "rochester.1"))
        with pytest.raises(Refused, match="is there already"):
            await control.change_link("link", ("rochester.1", "boston.1"))
        with pytest.raises(Refused, match="does not exist"):
            await control.change_link("drop", ("boston.1", "paris.1"))

    asyncio.run(change())
    until(lambda: links() == {"rochester.1"})


def test_wrong_questions_change_nothing(network: Running, tmp_path: Path) -> None:
    told = json.loads(network.control.read_text())

    async def ask(**changed: Any) -> None:
        file = tmp_path / "control.json"
        file.write_text(json.dumps({**told, **changed}))
        await FleetControl(file).add_broker("x.1", ("syracuse.1",))

    with pytest.raises(Refused, match="wrong token"):
        asyncio.run(ask(token="0" * 32))
    with pytest.raises(NotConnected, match="is `veena network up` still running"):
        asyncio.run(ask(port=9))
    with pytest.raises(ConfigError, match=r"control\.json that a running"):
        FleetControl(tmp_path / "none.json")
    control = FleetControl(network.control)
    for label, neighbours, why in (
        ("syracuse.1", ("rochester.1",), "runs already"),
        ("paris.1", (), "has no links"),
        ("paris.1", ("rome.1",), "does not exist"),
        ("paris", ("syracuse.1",), "this network has 2 levels"),
    ):
        with pytest.raises(Refused, match=why):
            asyncio.run(control.add_broker(label, neighbours))
    with pytest.raises(Refused, match="not a question"):
        asyncio.run(control._ask({"stop": True}, 5.0))


def test_a_broker_that_cannot_start_is_taken_back(network: Running) -> None:
    store = network.control.parent / "rome.1" / "store"
    store.parent.mkdir()
    store.write_text("no directory")
    before = (network.control.parent / "network.toml").read_text()
    with pytest.raises(Refused, match=r"rome\.1: does not reach all others"):
        asyncio.run(FleetControl(network.control).add_broker("rome.1", ("syracuse.1",)))
    assert (network.control.parent / "network.toml").read_text() == before
