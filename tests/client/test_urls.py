"""Where a client connects: one URL, a list, or a text with commas, in Python and on the command line."""

from __future__ import annotations

import json
import re

import pytest

import veena
from tests.cli.command import veena as command
from tests.client.test_blocking import broker
from tests.runtime.client_brokers import Site, run
from veena import blocking
from veena.errors import ConfigError
from veena.runtime.transports.url import parse_url, split_urls

DEAD, DEAD_TOO = "veena://127.0.0.1:1", "veena://127.0.0.1:2"
EMPTY = ["", "  ", ",", f"{DEAD},", f",{DEAD}", f"{DEAD},,{DEAD_TOO}", f"{DEAD}, ,{DEAD_TOO}"]


def test_urls_separated_by_commas_are_tried_in_turn() -> None:
    """CLI-04: as of a list, the first broker that answers is taken; blanks around commas mean nothing."""

    async def scenario() -> None:
        async with Site() as site:
            for given in (f"{DEAD},{site.url}", f" {DEAD} ,\t{site.url}\n", [f"{DEAD} , {DEAD_TOO}", site.url]):
                async with veena.connect(given) as client:
                    assert client.is_connected

    run(scenario())


def test_a_client_without_async_takes_them_as_well() -> None:
    with broker() as site, blocking.connect(f"{DEAD}, {site.url}") as client:
        assert client.is_connected


@pytest.mark.parametrize("given", EMPTY)
def test_an_empty_part_is_an_error_that_says_what_to_write(given: str) -> None:
    for connect in (veena.connect, blocking.connect):
        with pytest.raises(ConfigError, match=r"has an empty part.*veena://one:7700,veena://two:7700"):
            connect(given)


def test_where_one_url_is_meant_a_comma_is_part_of_none() -> None:
    """It was taken for a part of the host's name, which then nobody knew."""
    with pytest.raises(ConfigError, match="is no scheme://host:port"):
        parse_url(f"{DEAD},{DEAD_TOO}")
    assert split_urls(DEAD) == (DEAD,) and split_urls([]) == ()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ([DEAD, DEAD_TOO], None),
        ([f"{DEAD},{DEAD_TOO}"], None),
        ([f"{DEAD} , {DEAD_TOO}"], None),
        ([], f"{DEAD} {DEAD_TOO}"),
        ([], f" {DEAD} ,{DEAD_TOO} "),
    ],
)
def test_commands_and_the_environment_take_them_as_well(
    arguments: list[str], environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment is not None:
        monkeypatch.setenv("VEENA_URL", environment)
    found = command("status", "--json", "--timeout", "0.2", *arguments)
    assert [json.loads(line)["url"] for line in found.out.splitlines()] == [DEAD, DEAD_TOO] and found.code == 1


def test_commands_refuse_an_empty_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["status", f"{DEAD},,{DEAD_TOO}"], ["pub", "--url", f"{DEAD},", "--topic", "x", "body"]):
        found = command(*arguments)
        assert found.code == 2 and "has an empty part" in re.sub(r"\W*\n\W*", " ", found.err)
    monkeypatch.setenv("VEENA_URL", f"{DEAD},,{DEAD_TOO}")
    assert "has an empty part" in re.sub(r"\W*\n\W*", " ", command("sub", "--topic", "x").err)
