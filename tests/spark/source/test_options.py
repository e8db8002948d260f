"""The options of format("veena"): what is taken, and that everything wrong is named with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from veena.errors import ConfigError
from veena.spark.log.tables import TABLES
from veena.spark.source.options import OPTIONS, parse

URL = {"url": "veena://127.0.0.1:7700"}


def test_what_is_left_out_has_sensible_values() -> None:
    options = parse(URL)
    assert options.urls == ("veena://127.0.0.1:7700",)
    assert (options.table, options.columns) == ("events", tuple(TABLES["events"]))
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert options.fail_on_data_loss and not options.push_filters and not options.named_only
    assert options.rows_per_batch is None and options.reader is None


def test_names_are_taken_in_any_case_and_load_names_the_brokers() -> None:
    options = parse(
        {
            "PATH": "veena://a:1, veenas://b:2,veena+locator://c:3",
            "startingoffsets": '{"a": 5, "b": {"log": 7, "passed": 2}}',
            "ENDINGOFFSETS": "1970-01-01T00:00:01.5Z",
            "failondataloss": "FALSE",
            "columns": "id, topic",
            "maxRowsPerBatch": "10",
            "brokers": "named",
        }
    )
    assert options.urls == ("veena://a:1", "veenas://b:2", "veena+locator://c:3")
    assert options.starting == {"a": 5, "b": {"log": 7, "passed": 2}}
    assert options.ending == 1_500_000_000
    assert options.columns == ("id", "topic")
    assert (options.rows_per_batch, options.fail_on_data_loss, options.named_only) == (10, False, True)


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert parse({**URL, "startingOffsets": "1970-01-02"}).starting == 86_400 * 10**9
    assert parse({**URL, "startingOffsets": "1970-01-01T01:00:00+01:00"}).starting == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"option url = '': no broker is named; set it, such as"),
        ({"url": "http://a:1"}, r"option url = 'http://a:1': .*unknown scheme 'http'.*; write veena://"),
        ({"url": ",".join(f"veena://a:{n}" for n in range(300))}, r"300 brokers; name at most 256"),
        ({**URL, "path": "veena://b:1"}, r"option url = .*given by option and by load"),
        ({**URL, "table": "event"}, r"option table = 'event': there is no such table; use one of events, deliveries"),
        ({**URL, "topics": "a"}, r"option topics = 'a': there is no such option for reading; did you mean topic\?"),
        ({**URL, "xyzzy": "a"}, r"option xyzzy = 'a'.*there are url, table"),
        (
            {**URL, "columns": "id,nonsense"},
            r"option columns = 'id,nonsense': events has no nonsense; choose from broker",
        ),
        ({**URL, "columns": "id,id"}, r"name each column once"),
        ({**URL, "topic": ""}, r"option topic = '': a topic has at least one character"),
        ({**URL, "table": "hops", "topic": "a"}, r"option topic = 'a': only events have it, not hops"),
        ({**URL, "selector": "price >"}, r"option selector = 'price >': .*position.*; see docs/SELECTORS.md"),
        (
            {**URL, "startingOffsets": "yesterday"},
            r"startingOffsets = 'yesterday': it says no place .*; use earliest, latest",
        ),
        ({**URL, "endingOffsets": "earliest"}, r"endingOffsets = 'earliest': it says no place in a log; use latest"),
        ({**URL, "startingOffsets": '{"a": -1}'}, r"the offset of broker a is a whole number from 0, not -1; write"),
        ({**URL, "startingOffsets": '{"a": {"old": 1}}'}, r"broker a has no log 'old'"),
        ({**URL, "startingOffsets": '{"a"'}, r"option startingOffsets = '\{\"a\"'.*write"),
        (
            {**URL, "maxRowsPerBatch": "0"},
            r"option maxRowsPerBatch = '0': it is no count of rows; write a whole number",
        ),
        ({**URL, "rowsPerTask": "1e6"}, r"option rowsPerTask = '1e6'"),
        ({**URL, "failOnDataLoss": "maybe"}, r"failOnDataLoss = 'maybe': it is neither; write true or false"),
        ({**URL, "retrySeconds": "nan"}, r"option retrySeconds = 'nan': it is no time; write seconds from 0"),
        ({**URL, "keyFile": "k"}, r"option keyFile = 'k': a key without its certificate; set certFile too"),
        ({**URL, "password": "hush"}, r"option password = \*\*\*: a password without a user; set user too"),
        ({**URL, "reader": "r" * 65}, r"option reader = 'r+': 65 characters; name it in 1 to 64"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_a_remedy(given: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(given)


def test_secrets_are_not_shown() -> None:
    options = parse({**URL, "user": "alice", "password": "hush", "token": "sesame"})
    assert "hush" not in repr(options) and "sesame" not in repr(options)
    assert (options.access.user, options.access.password) == ("alice", "hush")


def test_every_option_says_what_it_is_for() -> None:
    assert all(OPTIONS.values())
