"""Whose a session is, by its number."""

import re
from pathlib import Path

from veena.core.boundary.session_id import (
    BROKER_ITSELF,
    brokers_session,
    durable_number,
    durable_session,
    is_brokers,
    is_clients,
)

SOURCES = Path(__file__).parents[3] / "src" / "veena"
#: A session's number taken for its kind, and a subscription's for its session's.
BARE = re.compile(r"session\w*(\[\d\])* *(<|>|<=|>=) *0\b|(?<![\w)\]] )-(durable\.number|session\b|each\.session)")


def test_every_session_is_either_a_clients_or_the_brokers_own() -> None:
    for session in (0, 1, 1 << 40):
        assert is_clients(session) and not is_brokers(session)
    for session in (durable_session(1), brokers_session(1 << 40), BROKER_ITSELF):
        assert is_brokers(session) and not is_clients(session)


def test_the_numbers_are_those_that_disks_hold() -> None:
    assert (durable_session(7), brokers_session(8), BROKER_ITSELF) == (-7, -8, -4611686018427387904)
    assert durable_number(durable_session(7)) == 7


def test_nobody_else_reads_the_kind_out_of_the_number() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{at}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "session_id.py"
        for at, line in enumerate(path.read_text().splitlines(), 1)
        if BARE.search(line)
    }
    assert not found
    assert (
        BARE.search("if session < 0:") and BARE.search("all.get(-durable.number)") and BARE.search("each.session >= 0")
    )
