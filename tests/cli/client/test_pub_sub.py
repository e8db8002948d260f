"""`veena pub`, `sub`, `advertise`, `query` against a broker that runs as a process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import veena as in_this_process
from tests.runtime.processes import Started
from tests.runtime.processes import veena as started
from veena.cli.plain import one_line, plain
from veena.client import connect


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def veena(*arguments: str, stdin: bytes = b"") -> Outcome:
    """Run a command as a shell does."""
    found = subprocess.run(
        [sys.executable, "-m", "veena.cli", *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )
    return Outcome(found.returncode, found.stdout.decode(), found.stderr.decode())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a log of its own."""
    data = tmp_path_factory.mktemp("data")
    with started("broker", "run", "--listen", "veena://127.0.0.1:0", "--data", str(data), "--json") as broker:
        told = broker.told()
        assert broker.told() == {"ready": True}
        yield told["url"]


def subscribed(subscriber: Started, url: str, topic: str) -> None:
    """Publish until the subscriber has the first event: then it is there."""
    for _ in range(100):
        veena("pub", "--url", url, "-t", topic, "-p", "n=0", "first")
        if not subscriber._lines.empty():
            break
    assert json.loads(subscriber.line())["body"] == "first"
    while not subscriber._lines.empty():
        subscriber.line()


def test_what_is_published_is_printed(url: str) -> None:
    """CLI-01, CLI-08: a selector, properties with their types, lines from standard input, JSON."""
    with started("sub", "--url", url, "-t", "quotes", "-s", "n >= 0", "--json") as subscriber:
        subscribed(subscriber, url, "quotes")
        veena("pub", "--url", url, "-t", "quotes", "-p", "n=-1", "not wanted")
        found = veena("pub", "--url", url, "-t", "quotes", "-p", "n=1.5", "-p", "s=x", "-r", "--json", "wanted")
        event = subscriber.told()
        while event["body"] == "first":  # of the tries before the subscription stood
            event = subscriber.told()
        assert event["body"] == "wanted"
        assert event["properties"] == {"n": 1.5, "s": "x"}
        assert event["id"] == json.loads(found.out)["id"]
        lines(url, "quotes", b"a\nb\nc\n")
        assert [subscriber.told()["body"] for _ in range(3)] == ["a", "b", "c"]


def lines(url: str, topic: str, text: bytes) -> Outcome:
    return veena("pub", "--url", url, "-t", topic, "-p", "n=1", "--lines", stdin=text)


def test_a_line_that_is_too_long_says_which_and_what_was_published(url: str) -> None:
    """The ids of the lines before it are printed all the same."""
    text = b"a\nb\n" + b"x" * (1 << 20) + b"\nd\n"
    found = veena("pub", "--url", url, "-t", "long", "--lines", "--json", stdin=text)
    assert found.code != 0
    assert "event 0 of" in found.err and "publish a reference instead" in found.err  # the first that came with it
    assert "2 events were published before" in found.err
    assert len([json.loads(line)["id"] for line in found.out.splitlines()]) == 2


def test_a_line_is_published_when_it_comes(url: str) -> None:
    """CLI-01: standard input may be a program that says something now and then."""
    command = [sys.executable, "-m", "veena.cli", "pub", "--url", url, "-t", "slow", "--lines", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as slow:
        assert slow.stdin is not None and slow.stdout is not None
        for line in (b"one\n", b"two\nthree\r\n"):
            slow.stdin.write(line)
            slow.stdin.flush()
            for _ in range(line.count(b"\n")):
                assert "id" in json.loads(slow.stdout.readline())
        slow.stdin.write(b"four")
        slow.stdin.close()
        assert "id" in json.loads(slow.stdout.readline())
        assert slow.stdout.readline() == b""
    assert slow.returncode == 0


def test_a_durable_subscription_keeps_what_comes(url: str) -> None:
    """FLT-05, CLI-07, GUA-08: subscribe, go, publish, come back."""
    wanted = ("sub", "--url", url, "-t", "kept", "--durable", "mine", "--client-id", "alice")
    assert veena(*wanted, "--timeout", "0.5").code == 0
    lines(url, "kept", b"1\n2\n3\n")  # best effort: not kept
    for body in ("4", "5"):
        veena("pub", "--url", url, "-t", "kept", "-r", body)
    found = veena(*wanted, "--count", "2", "--timeout", "20", "--body")
    assert found.out.split() == ["4", "5"]
    assert veena(*wanted, "--timeout", "0.5", "--body").out == "", "they are acknowledged"


def test_the_past(url: str) -> None:
    """`--since`: what was published before, reliably."""
    for body in ("1", "2"):
        veena("pub", "--url", url, "-t", "past", "-r", body)
    found = veena("sub", "--url", url, "-t", "past", "--since", "1h", "--count", "2", "--timeout", "20", "--body")
    assert found.out.split() == ["1", "2"]


def test_too_few_events_is_a_failure(url: str) -> None:
    found = veena("sub", "--url", url, "-t", "silence", "--count", "1", "--timeout", "0.3")
    assert found.code == 1
    assert "0 of 1 events came within 0.3 s" in found.err


def test_offers_are_found(url: str, tmp_path: Path) -> None:
    """DSC: by SQL and by XPath, while they stand."""
    document = tmp_path / "heat.xml"
    document.write_text("<sim><cells>100</cells></sim>")
    offer = ("advertise", "heat", "--url", url, "--client-id", "solver", "-p", "cells=100", "--xml", str(document))
    with started(*offer):
        for _ in range(100):
            found = veena("query", "SELECT cells FROM adverts WHERE cells > 10", "--url", url, "--json")
            if "solver" in found.out:
                break
        rows = [json.loads(line) for line in found.out.splitlines()]
        assert rows == [
            {"client": "solver", "name": "heat", "cells": 100},
            {"matched": 1, "undecided": 0, "silent": [], "complete": True},
        ]
        assert "solver" in veena("query", "--xpath", "/sim[cells > 99]", "--url", url).out
        named = veena("query", "SELECT name, cells FROM adverts WHERE name = 'heat'", "--url", url)
        assert named.out.count("heat") == 1 and "100" in named.out, "a name is shown once"
        assert "solver" in veena("query", "--constraint", "cells in (100, 200)", "--url", url).out
        assert "solver" not in veena("query", "--xpath", "/sim[cells > 100]", "--url", url).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sub", "-t", "a", "-s", "price >"), "position"),
        (("sub",), "name one of topic"),
        (("pub", "-t", "a", "-p", "price", "x"), "expected name=value"),
        (("sub", "-t", "a", "--since", "yesterday"), "--since 'yesterday'"),
        (("query", "SELECT FROM"), "name of a column"),
        (("query", "--constraint", "cells = 1"), "write == for equal (at position 6"),
        (("sub", "-t", "a", "--durable", "x"), "client_id"),
        (("sub", "-t", "a", "--scope", "planet"), "expected one of cluster"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_exit_code_2(url: str, arguments: tuple[str, ...], said: str) -> None:
    found = in_this_process(*arguments, "--url", url)
    assert found.code == 2
    assert said in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_no_broker_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.client.client.CONNECT_S", 1.0)
    found = in_this_process("pub", "-t", "a", "x", "--url", "veena://127.0.0.1:1")
    assert found.code == 2
    assert "127.0.0.1:1" in found.err


EVIL = "\x1b[2J\x1b]0;owned\x07\r\n\u202e[red]x[/red][/]"


def test_nothing_that_others_write_is_obeyed_by_a_terminal(url: str) -> None:
    """Escapes that clear the screen, lines that look like others, markup that fails: all is shown as it was sent."""

    async def offer_and_publish(subscriber: Started) -> None:
        async with connect(url) as client:
            await client.advertise("offer", properties={"kind": EVIL})
            for _ in range(100):
                await client.publish(topic="evil", properties={"n": EVIL}, body=EVIL.encode())
                if not subscriber._lines.empty():
                    break
                await asyncio.sleep(0.1)
            found = await asyncio.to_thread(veena, "query", "--url", url, "SELECT kind FROM adverts")
        shown = "".join(each for each in found.out if each.isalnum() or each in "[]\\")
        assert found.code == 0 and "\\x1b[2J" in shown and "[red]x[red][]" in shown, found
        assert "\x1b" not in found.out and "\u202e" not in found.out

    with started("sub", "--url", url, "-t", "evil", "--count", "1") as subscriber:
        asyncio.run(offer_and_publish(subscriber))
        line = subscriber.line()
        assert line.removesuffix("\n").isprintable() and "\\x1b[2J" in line and "[red]x[/red][/]" in line
        assert subscriber.process.wait(60) == 0 and subscriber._lines.empty()


@pytest.mark.parametrize("text", ["plain", "with [brackets]", "ü 😀"])
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert plain(text) == one_line(text) == text
