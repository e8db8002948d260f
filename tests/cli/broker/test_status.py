"""`veena status`, `veena topology live` and `veena broker check` on brokers that run as processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import veena
from tests.runtime.processes import Started, until
from tests.runtime.processes import veena as started
from veena import __version__, blocking
from veena.errors import Refused
from veena.runtime.store.file import FILE_NAME

NETWORK = """
[network]
name = "three"
levels = 2

[[broker]]
address = "c.1"
[[broker]]
address = "c.2"
[[broker]]
address = "d.3"

[[link]]
between = ["c.1", "c.2"]
[[link]]
between = ["c.2", "d.3"]
"""


@dataclass
class Network:
    process: Started
    file: Path
    urls: dict[str, str]
    pids: dict[str, int]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not broken where they are compared."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    directory = tmp_path_factory.mktemp("three")
    file = directory / "three.toml"
    file.write_text(NETWORK)
    with started("network", "up", str(file), "--json", "--data", str(directory / "run")) as process:
        told = [process.told() for _ in range(3)]
        assert process.told()["ready"]
        urls, pids = ({line["address"]: line[what] for line in told} for what in ("url", "pid"))
        yield Network(process, directory / "run" / "network.toml", urls, pids)


def test_a_row_for_every_broker(network: Network) -> None:
    """Who is attached, what is wanted, what came and went, as JSON and as a table."""
    with (
        blocking.connect(network.urls["d.3"], client_id="bob") as bob,
        blocking.connect(network.urls["c.1"], client_id="alice") as alice,
    ):
        quotes = bob.subscribe(topic="quotes")
        alice.publish(topic="quotes", reliable=True)
        quotes.next(20)
        found = veena("status", "--network", str(network.file), "--json")
    assert found.code == 0
    rows = {row["address"]: row for row in map(json.loads, found.out.splitlines())}
    assert list(rows) == ["c.1", "c.2", "d.3"]
    assert {row["version"] for row in rows.values()} == {__version__}
    assert [rows[label]["clients"] for label in rows] == [1, 0, 1], "who asks is not counted"
    assert [rows[label]["links"] for label in rows] == [1, 2, 1]
    assert [rows[label]["subscriptions"] for label in rows] == [0, 0, 1]
    assert (rows["c.1"]["accepted"], rows["d.3"]["delivered"]) == (1, 1)
    assert all(row["log_bytes"] > 0 and row["memory_bytes"] > 1 << 20 and row["uptime_s"] > 0 for row in rows.values())
    table = veena("status", network.urls["c.1"], network.urls["d.3"]).out
    assert "three" in table and "c.1" in table and "d.3" in table and "c.2" not in table


def test_watching_tells_rates(network: Network) -> None:
    url = network.urls["c.1"]
    found = veena("status", url, "--watch", "--every", "0.1", "--rounds", "2", "--json")
    first, second = map(json.loads, found.out.splitlines())
    assert found.code == 0
    assert first["rates"] is None and second["rates"] == {"events_in": 0.0, "events_out": 0.0}
    table = veena("status", url, "--watch", "--every", "0.1", "--rounds", "2")
    assert table.code == 0 and "(0/s)" in table.out


def test_a_broker_that_does_not_answer_has_a_row_that_says_why(network: Network) -> None:
    found = veena(
        "status", network.urls["c.1"], "veena://127.0.0.1:1", "http://127.0.0.1:1", "--timeout", "1", "--json"
    )
    assert found.code == 1
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert "error" not in rows[0] and "127.0.0.1:1" in rows[1]["error"]
    assert "name the [http] listen place of a broker" in rows[2]["error"]
    assert "127.0.0.1:1" in veena("status", "veena://127.0.0.1:1", "--timeout", "0.2").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "gopher://127.0.0.1:1"), "gopher"),
        (("topology", "live", "gopher://127.0.0.1:1"), "gopher"),
        (("topology", "live", "veena://127.0.0.1:1", "--timeout", "0.2"), "127.0.0.1:1"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    found = veena(*arguments)
    assert found.code == 2 and said in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_a_network_file_without_places_is_refused(network: Network) -> None:
    found = veena("status", "--network", str(network.file.parents[1] / "three.toml"))
    assert found.code == 2
    assert "broker c.1: says not where it listens; name the network.toml that" in found.err


def test_the_map_of_a_running_broker(network: Network) -> None:
    """BNM-07, SPR-03: the same form as `topology show`, with what its links measure."""
    url = network.urls["c.2"]
    until(
        lambda: all(link["round_trip_ms"] for link in json.loads(veena("topology", "live", url, "--json").out)["links"])
    )
    view = json.loads(veena("topology", "live", url, "--json").out)
    shown = json.loads(veena("topology", "show", str(network.file), "--at", "c.2", "--json").out)
    assert {key: view[key] for key in shown} == shown
    links = [(link["to"], link["level"], link["state"], link["suspected"], link["cost"]) for link in view["links"]]
    assert links == [("c.1", 0, "open", False, 0), ("d.3", 1, "open", False, 1)]
    assert view["absent"] == []
    found = veena("topology", "live", url)
    assert found.code == 0
    assert "the links of c.2" in found.out and "the map at c.2" in found.out and "ways to units" in found.out


def test_a_link_that_is_silent_is_shown_as_suspected(network: Network) -> None:
    """FLT-02: its broker is stopped, not dead."""
    os.kill(network.pids["d.3"], signal.SIGSTOP)
    try:
        seen: list[dict[str, object]] = []

        def is_suspected() -> bool:
            view = json.loads(veena("topology", "live", network.urls["c.2"], "--json").out)
            seen[:] = [link for link in view["links"] if link["suspected"]]
            return bool(seen)

        until(is_suspected)
        assert (seen[0]["to"], seen[0]["cost"]) == ("d.3", None)
        assert json.loads(veena("status", network.urls["c.2"], "--json").out)["links"] == 1
    finally:
        os.kill(network.pids["d.3"], signal.SIGCONT)


def test_check_looks_at_the_store_and_repairs_it(tmp_path: Path) -> None:
    """FLT-07: what is damaged is named with the remedy; the remedy gives up that and nothing else."""
    config, data = tmp_path / "b.toml", tmp_path / "data"
    config.write_text(
        '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[store]\npath = "data"\n[http]\nlisten = "127.0.0.1:0"\n'
    )
    with started("broker", "run", "--config", str(config)) as broker:
        listens = broker.line().split()
        url, http = listens[-2].rstrip(","), listens[-1]
        with blocking.connect(url, client_id="alice") as alice:
            for body in (b"1", b"2", b"3"):
                alice.publish(topic="quotes", body=body, reliable=True)
        told = json.loads(veena("status", http, "--json").out)
        assert (told["accepted"], told["log_events"]) == (3, 3)
        assert veena("broker", "check", "--config", str(config)).code == 0, "while it runs"
        refused = veena("broker", "check", "--config", str(config), "--repair")
        assert refused.code == 1 and "stop that broker" in refused.out
        assert broker.end() == 0
    with closing(sqlite3.connect(data / FILE_NAME)) as connection:
        connection.execute("UPDATE log SET checksum = checksum + 1 WHERE offset = 1")
        connection.commit()
    found = veena("broker", "check", "--config", str(config))
    assert found.code == 1 and "log 1: the checksum is wrong" in found.out and "--repair" in found.out
    found = veena("broker", "check", "--data", str(data), "--repair", "--json")
    assert found.code == 0
    assert json.loads(found.out)["repaired"] == ["log 1 was given up"]
    assert json.loads(veena("broker", "check", "--config", str(config), "--json").out)["ok"]
    assert "holds no store" in veena("broker", "check", "--data", str(tmp_path / "nowhere")).err


def test_a_quota_is_checked_and_what_it_refused_is_shown(tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    text = '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[limits]\nbroker_constraints = {}\n'
    config.write_text(text.format(0))
    found = veena("broker", "check", "--config", str(config))
    assert found.code == 1 and "line 4, [limits] broker_constraints: is 0" in found.out + found.err
    config.write_text(text.format(1))
    assert veena("broker", "check", "--config", str(config)).code == 0
    with started("broker", "run", "--config", str(config)) as broker:
        url = broker.line().split()[-1]
        with blocking.connect(url, client_id="alice") as alice:
            alice.subscribe(topic="quotes")
            assert "!" not in veena("status", url).out.split("subs:")[0]
            with pytest.raises(Refused, match="broker_constraints = 1"):
                alice.subscribe(topic="news")
            told = json.loads(veena("status", url, "--json").out)
            assert (told["subscriptions"], told["told"], told["over_quota"]) == (1, [1, 1, 1], 1)
            assert "1 -1!" in veena("status", url).out
        assert broker.end() == 0
