"""How commands behave in a shell: signals, streams that are closed or full, files that are not there, narrow tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import veena as in_this_process
from tests.runtime.processes import Started, until
from tests.runtime.processes import veena as started
from veena import blocking
from veena import testing as for_tests
from veena.errors import InvalidConstraint, NotConnected
from veena.runtime.access.users import hash_password

CERTIFICATES = Path(__file__).parents[1] / "runtime" / "certificates"
FULL = Path("/dev/full")
USERS = """
[user.alice]
password = "{password}"
roles = ["trader"]
[role.trader]
rules = [{{ deny = "publish", topic = "quotes.internal.*" }}, {{ allow = "publish", topic = "quotes.*" }}]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("data")
    with started("broker", "run", "--listen", "veena://127.0.0.1:0", "--data", str(data), "--json") as broker:
        yield broker.told()["url"]


def in_a_shell(redirection: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was said on standard error."""
    script = f'exec "$@" {redirection}'
    found = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "veena.cli", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return found.returncode, found.stderr.decode()


def clients(url: str) -> int:
    found: int = json.loads(in_this_process("status", url, "--json").out)["clients"]
    return found


def attached(url: str, command: Started) -> None:
    until(lambda: command.process.poll() is not None or clients(url) > 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_offer_goes_with_its_command_however_that_is_told_to_stop(url: str, number: int) -> None:
    with started("advertise", "printer", "--url", url, "-p", "ppm=20") as offer:
        wanted = ("query", "SELECT ppm FROM adverts", "--url", url, "--json")
        until(lambda: "printer" in in_this_process(*wanted).out)
        assert offer.end(number) == 0
        assert json.loads(in_this_process(*wanted).out)["matched"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_to_be_stopped_is_success_only_for_what_has_no_other_end(url: str, number: int) -> None:
    for arguments, code in (((), 0), (("--count", "3"), 128 + number)):
        with started("sub", "--url", url, "-t", "silence", *arguments) as subscriber:
            attached(url, subscriber)
            assert subscriber.end(number) == code
        until(lambda: clients(url) == 0)


def test_a_signal_that_was_ignored_before_stays_ignored(url: str) -> None:
    """`nohup veena sub ...` goes on when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with started("sub", "--url", url, "-t", "nohup", "--count", "1", "--json") as subscriber:
            attached(url, subscriber)
            subscriber.process.send_signal(signal.SIGHUP)
            with blocking.connect(url) as client:
                sample = client.subscribe(topic="nohup")
                while subscriber._lines.empty() and subscriber.process.poll() is None:
                    client.publish(topic="nohup", body=b"still there")
                    sample.next(20)
            assert subscriber.told()["body"] == "still there"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [("status",), ("status", "--json"), ("pub", "-t", "a", "--json", "x")])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(url: str, arguments: tuple[str, ...]) -> None:
    where = (url,) if arguments[0] == "status" else ("--url", url)
    code, said = in_a_shell(f">{FULL}", *arguments, *where)
    assert (code, said) == (1, "veena: input or output: No space left on device\n")


@pytest.mark.parametrize("lines", [(), ("--lines",)])
def test_closed_input_is_one_line_and_exit_code_2(url: str, lines: tuple[str, ...]) -> None:
    code, said = in_a_shell("<&-", "pub", "--url", url, "-t", "a", *lines)
    assert (code, said) == (2, "veena: standard input is closed; give the body as an argument\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pub", "-t", "a", "--xml", "nowhere.xml", "x"), "veena: nowhere.xml: No such file or directory"),
        (("advertise", "a", "--xml", "nowhere.xml"), "veena: nowhere.xml: No such file or directory"),
        (("pub", "-t", "a", "--url", "tls://127.0.0.1:1", "--ca", "no.pem", "x"), "--ca no.pem: cannot be read"),
        (("pub", "-t", "a", "--url", "wss://127.0.0.1:1", "--ca", __file__, "x"), "holds no certificate; name a PEM"),
        (("locate", "veenas+locator://127.0.0.1:1", "--ca", "no.pem"), "--ca no.pem: cannot be read"),
        (("status", "https://127.0.0.1:1", "--ca", "no.pem"), "--ca no.pem: cannot be read"),
        (("pub", "hello"), "nobody can ask for this event: give it a --topic"),
        (("pub", "-t", "a", "--lines", "hello"), "leave out the body and --count"),
        (("sub",), "veena: name one of topic, tags, integer, xpath and constraint\n"),
        (("sub", "-t", "a", "--xpath", "/b"), "xpath and constraint, not topic and xpath\n"),
        (("sub", "--xpath", "/m:a", "--namespace", "m"), "--namespace: expected prefix=URI"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(
    url: str, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEENA_URL", url)
    found = in_this_process(*arguments)
    assert said in found.err + found.out
    assert found.code == (1 if arguments[0] == "status" else 2)
    assert "Traceback" not in found.err and len((found.err + found.out).strip().splitlines()) == 1


def test_a_password_that_nobody_can_be_asked_for(url: str) -> None:
    """A job without a terminal is told what to set."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VEENA_")}
    found = subprocess.run(
        [sys.executable, "-m", "veena.cli", "pub", "--url", url, "-t", "a", "--user", "alice", "x"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, env=environment, start_new_session=True,
    )  # fmt: skip
    assert found.returncode == 2
    assert found.stderr == b"veena: --user alice: nobody can be asked for the password; set VEENA_PASSWORD\n"


def test_prefixes_of_an_xpath(url: str) -> None:
    wanted = ("--xpath", "/m:menu[m:price > 1]", "--namespace", "m=urn:menu")
    with started("sub", "--url", url, *wanted, "--count", "1", "--json") as subscriber:
        with blocking.connect(url) as client:
            while subscriber._lines.empty() and subscriber.process.poll() is None:
                client.publish(xml='<menu xmlns="urn:menu"><price>2</price></menu>')
                client.flush()
        assert "urn:menu" in subscriber.told()["xml"]


def test_an_event_that_was_refused_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a best-effort event, but who publishes from a shell learns that it was not taken."""
    users = tmp_path / "users.toml"
    users.write_text(USERS.format(password=hash_password("open sesame")))
    monkeypatch.setenv("VEENA_PASSWORD", "open sesame")
    with for_tests.network(brokers=1, processes=True, settings={"auth": {"users_file": str(users)}}) as net:
        where = ("--url", net.urls[0], "--user", "alice")
        assert in_this_process("pub", *where, "-t", "quotes.a", "x").code == 0
        found = in_this_process("pub", *where, "-t", "quotes.internal.a", "--count", "3", "x")
        assert found.code == 1 and "3 of 3 events were refused" in found.err
        with blocking.connect(net.urls[0], user="alice", password="open sesame") as alice:
            alice.publish(topic="quotes.internal.a")
            alice.publish(topic="quotes.a")
            alice.flush()
            assert alice.statistics().denied == 1


def test_a_port_that_speaks_otherwise_is_not_silent(url: str) -> None:
    for scheme in ("veenas", "ws"):
        place = url.replace("veena://", f"{scheme}://")
        hung_up = pytest.raises(NotConnected, match="it hung up without a word: is it a broker")
        with hung_up as caught, blocking.connect(place, timeout=2.0):
            pass
        assert str(caught.value).count(place) == 1


def test_answers_can_be_gone_through(url: str) -> None:
    with blocking.connect(url, client_id="solver") as solver:
        solver.advertise("heat", properties={"cells": 100})
        answer = solver.query(sql="SELECT cells FROM adverts WHERE cells > 10")
        assert len(answer) == 1 and [found.values for found in answer] == [(100,)]
        with pytest.raises(InvalidConstraint) as caught:
            solver.subscribe()
        assert str(caught.value) == "name one of topic, tags, integer, xpath and constraint"


def test_a_table_is_whole_where_it_is_not_shown_on_a_terminal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no width: no column is cut, and why a broker did not answer can be read."""
    monkeypatch.delenv("COLUMNS", raising=False)
    found = in_this_process("status", url, "veena://127.0.0.1:1", "--timeout", "0.5")
    assert found.code == 1
    for column in ("broker", "version", "clients", "profiles", "waiting", "memory"):
        assert f" {column} " in found.out
    assert "0.0.0.0" in found.out and "…" not in found.out
    assert "veena://127.0.0.1:1: no broker let this client in" in found.out


def test_who_waits_for_events_is_told_that_the_broker_is_away(tmp_path: Path) -> None:
    """And goes on when it is back (CLI-03)."""
    said = tmp_path / "said"
    command = ("broker", "run", "--data", str(tmp_path / "data"), "--json", "--listen")
    with started(*command, "veena://127.0.0.1:0") as broker:
        place: str = broker.told()["url"]
        with started("sub", "--url", place, "-t", "a", "--count", "1", "--json", errors=said) as subscriber:
            attached(place, subscriber)
            broker.end()
            until(lambda: f"veena: the connection to {place} is over" in said.read_text())
            with started(*command, place) as again:
                again.told()
                until(lambda: f"veena: attached again, to {place}" in said.read_text())
                with blocking.connect(place) as client:
                    while subscriber._lines.empty() and subscriber.process.poll() is None:
                        client.publish(topic="a", body=b"at last")
                        client.flush()
                assert subscriber.told()["body"] == "at last"


@pytest.mark.parametrize("lines", [(), ("--lines",)])
def test_who_types_the_body_is_told_so(url: str, lines: tuple[str, ...]) -> None:
    """Without a body the command waits for one: at a terminal that must not look like a hang."""
    keyboard, terminal = os.openpty()
    command = [sys.executable, "-m", "veena.cli", "pub", "--url", url, "-t", "typed", "--json", *lines]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as typed:
        os.close(terminal)
        assert typed.stdout is not None and typed.stderr is not None
        assert typed.stderr.readline() == b"veena: reads what you type; Ctrl-D ends it\n"
        os.write(keyboard, b"hello\n\x04")
        assert "id" in json.loads(typed.stdout.readline())
        assert typed.wait(60) == 0
    os.close(keyboard)


def test_a_certificate_is_shown_to_a_broker_that_asks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutual TLS: without it nobody is let in."""
    config = tmp_path / "broker.toml"
    config.write_text(
        '[broker]\nlisten = ["veenas://127.0.0.1:0"]\n'
        f'[tls]\ncertificate = "{CERTIFICATES}/broker.pem"\nkey = "{CERTIFICATES}/broker.key"\n'
        f'authority = "{CERTIFICATES}/authority.pem"\nclients = "required"\n'
    )
    with started("broker", "run", "--config", str(config), "--json") as broker:
        place: str = broker.told()["url"]
        asked = ("status", place, "--ca", str(CERTIFICATES / "authority.pem"), "--timeout")
        assert in_this_process(*asked, "0.5").code == 1
        monkeypatch.setenv("VEENA_CERTIFICATE", str(CERTIFICATES / "broker.pem"))
        monkeypatch.setenv("VEENA_KEY", str(CERTIFICATES / "broker.key"))
        assert in_this_process(*asked, "30").code == 0
        monkeypatch.setenv("VEENA_KEY", str(CERTIFICATES / "stranger.key"))
        said = in_this_process(*asked, "0.5").out
        assert "do not belong together; name PEM files" in said
