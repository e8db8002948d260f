"""`veena broker`: it starts, tells, reloads, drains, and says by its exit code why it ended."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.command import veena as command
from tests.runtime.processes import PATIENCE_S, Started, until, veena

LOOPBACK = "veena://127.0.0.1:0"


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until_ready(http: str) -> None:
    until(lambda: page(f"{http}/readyz")[0] == 200)


def test_a_broker_without_a_file_runs_until_it_is_stopped() -> None:
    with veena("broker", "run", "--listen", LOOPBACK, "--json") as broker:
        told = broker.told()
        assert told["address"] == "0.0.0.0" and told["pid"] == broker.process.pid
        assert told["url"].startswith("veena://127.0.0.1:") and not told["url"].endswith(":0")
        assert broker.told() == {"ready": True}
        assert broker.end(signal.SIGTERM) == 0


def test_the_incarnation_counts_up_across_kill_9(tmp_path: Path) -> None:
    """FLT-01: what a broker must not forget is on disk before it speaks."""
    config = tmp_path / "b.toml"
    config.write_text(
        '[broker]\nlisten = ["veena://127.0.0.1:0"]\n[store]\npath = "data"\n[http]\nlisten = "127.0.0.1:0"\n'
    )
    seen: list[int] = []
    for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT):
        with veena("broker", "run", "--config", str(config)) as broker:
            http = broker.line().split()[-1]
            until_ready(http)
            seen.append(json.loads(page(f"{http}/statusz")[1])["broker"]["incarnation"])
            assert broker.end(how) == (0 if how == signal.SIGINT else -signal.SIGKILL)
    assert seen == [1, 2, 3]


def test_monitoring_pages(tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text('[broker]\nname = "m"\nlisten = ["veena://127.0.0.1:0"]\n[http]\nlisten = "127.0.0.1:0"\n')
    with veena("broker", "run", "--config", str(config)) as broker:
        http = broker.line().split()[-1]
        assert page(f"{http}/healthz") == (200, "ok\n")
        until_ready(http)
        status = json.loads(page(f"{http}/statusz")[1])
        assert (
            status["name"] == "m" and status["broker"]["address"] == [0, 0, 0, 0] and status["store"]["trouble"] is None
        )
        metrics = page(f"{http}/metrics")[1]
        assert 'veena_broker_info{address="0.0.0.0"' in metrics
        assert "# TYPE veena_events_accepted_total counter" in metrics and "veena_links_open 0.0" in metrics
        assert page(f"{http}/nothing")[0] == 404
        host, _, port = http.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(b"DELETE /statusz HTTP/1.1\r\n\r\n")
            assert b"405" in raw.recv(100)
        with socket.create_connection((host, int(port))) as raw:
            answer = b""
            with suppress(ConnectionError):  # it hangs up before it has read all of that
                raw.sendall(b"x" * 100_000)
                answer = raw.recv(100)
            assert b"200" not in answer
        assert page(f"{http}/healthz")[0] == 200


def test_sighup_takes_over_what_may_change(tmp_path: Path) -> None:
    config, errors = tmp_path / "b.toml", tmp_path / "log"
    text = '[broker]\nlisten = ["veena://127.0.0.1:0"]\n'
    config.write_text(text)
    with veena("broker", "run", "--config", str(config), errors=errors) as broker:
        broker.line()
        config.write_text(text + 'name = "other"\n[log]\nlevel = "debug"\nformat = "json"\n[limits]\nconnections = 7\n')
        broker.process.send_signal(signal.SIGHUP)
        until(lambda: "configuration read again" in errors.read_text())
        told = json.loads(errors.read_text().splitlines()[-1])
        assert told["taken"] == "[limits] connections, [log] level, [log] format"
        assert told["needs_restart"] == "[broker] name"
        config.write_text("[broker\n")
        broker.process.send_signal(signal.SIGHUP)
        until(lambda: "it has faults" in errors.read_text())
        assert broker.end() == 0


def test_it_ends_with_who_started_it() -> None:
    with veena("broker", "run", "--listen", LOOPBACK, "--until-stdin-closes", stdin=subprocess.PIPE) as broker:
        broker.line()
        assert broker.process.stdin is not None
        broker.process.stdin.close()
        assert broker.process.wait(PATIENCE_S) == 0


def refused(*arguments: str, errors: Path) -> tuple[int, str]:
    started = Started("broker", "run", *arguments, errors=errors)
    return started.process.wait(PATIENCE_S), errors.read_text()


def test_exit_codes_say_what_is_wrong(tmp_path: Path) -> None:
    errors = tmp_path / "log"
    code, told = refused("--listen", "veena://0.0.0.0:0", errors=errors)
    assert code == 2 and "to other machines without TLS" in told and "Traceback" not in told
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, told = refused("--listen", f"veena://127.0.0.1:{taken.getsockname()[1]}", errors=errors)
        assert code == 2 and "cannot be listened on" in told
    (tmp_path / "data").write_bytes(b"this is no database, and was not meant to be one" * 100)
    code, told = refused("--listen", LOOPBACK, "--data", str(tmp_path / "data"), errors=errors)
    assert code == 3 and "Traceback" not in told


def test_a_store_belongs_to_one_broker(tmp_path: Path) -> None:
    config, errors = tmp_path / "b.toml", tmp_path / "log"
    text = '[broker]\nlisten = ["veena://127.0.0.1:0"]\nname = "{}"\n[store]\npath = "data"\n'
    config.write_text(text.format("one"))
    with veena("broker", "run", "--config", str(config), "--json") as broker:
        broker.told()
        assert broker.end() == 0
    config.write_text(text.format("other"))
    code, told = refused("--config", str(config), errors=errors)
    assert code == 2 and "belongs to broker 'one', not to 'other'" in told


def test_check_lists_every_fault(tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text('[broker]\nnam = "x"\n\n[log]\nlevel = "loud"\n')
    outcome = command("broker", "check", "--config", str(config))
    assert outcome.code == 1 and "line 2" in outcome.out and "line 5" in outcome.out and "2 faults" in outcome.out
    outcome = command("broker", "check", "--config", str(config), "--json")
    assert len(json.loads(outcome.out)["faults"]) == 2 and not json.loads(outcome.out)["ok"]
    config.write_text("")
    assert command("broker", "check", "--config", str(config)).code == 0


@pytest.mark.parametrize("verb", ["run", "check"])
def test_help_is_there(verb: str) -> None:
    assert "--config" in command("broker", verb, "--help").out
