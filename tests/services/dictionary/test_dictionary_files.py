"""Dictionary files: TOML and JSON Schema, which say the same, and what is said about a wrong one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services.dictionary.test_dictionary import OWN
from veena.errors import ConfigError, InvalidEvent
from veena.event import Value
from veena.services.dictionary.dictionary import Dictionary
from veena.services.dictionary.file import parse_toml
from veena.services.dictionary.schema import parse_schema
from veena.services.structured import StructuredEvent

SCHEMA = """{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "A reservoir",
  "x-types": {
    "Diagnostics": {"publishers": ["application"], "guarded": true}
  },
  "$defs": {
    "reservoir/Diagnostics/leak": {
      "type": "object",
      "x-qos": {"Priority": 8, "Reliability": "reliable", "Timeout": 60, "Deadline": 2.5},
      "properties": {
        "well": {"type": "string", "maxLength": 4},
        "rate": {"type": "number", "minimum": 0, "maximum": 1000},
        "kind": {"type": "string", "enum": ["oil", "gas"]},
        "count": {"type": "integer"}
      },
      "required": ["well"],
      "additionalProperties": false
    },
    "*/Weather/*": {
      "properties": {"wind": {"type": ["number", "null"]}}
    }
  }
}
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_json_schema_is_really_read(tmp_path: Path) -> None:
    """DIC-01: the same event type in both forms is the same entry; types, required, enum, range and length count."""
    schema = Dictionary.load(written(tmp_path, "own.json", SCHEMA))
    toml = Dictionary.load(written(tmp_path, "own.toml", OWN))
    one, other = (each.entry("reservoir", "Diagnostics", "leak") for each in (schema, toml))
    assert (one.publishers, one.qos, one.is_open) == (other.publishers, other.qos, other.is_open)
    assert one.fields == {name: other.fields[name] for name in one.fields}
    assert schema.interactions["Diagnostics"].is_guarded
    wrong: tuple[tuple[dict[str, Value], str], ...] = (
        ({"rate": 1}, "'well' is missing"),
        ({"well": "w", "rate": 2000}, "at most 1000"),
        ({"well": "w", "kind": "x"}, "one of 'oil', 'gas'"),
        ({"well": "wellwell"}, "at most 4 fit"),
        ({"well": "w", "count": 1.5}, "expected int"),
        ({"well": "w", "depth": 1}, "'depth' = 1 is not in the dictionary"),
    )
    for fields, message in wrong:
        with pytest.raises(InvalidEvent, match=message):
            schema.check(StructuredEvent("reservoir", "Diagnostics", "leak", fields), "application")
    right: tuple[dict[str, Value], ...] = ({"wind": None}, {"wind": 3}, {"other": "allowed, as JSON Schema has it"})
    for fields in right:
        schema.check(StructuredEvent("buoy", "Weather", "gust", fields), "client")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('"minimum": 0,', '"exclusiveMinimum": 0,', 13, "rate.exclusiveMinimum: is not known; what can stand here is"),
        ('"additionalProperties": false', '"oneOf": []', 18, "leak.oneOf: is not known"),
        ('"title"', '"$ref"', 3, "$ref: is not known"),
        ('["well"]', '["wel"]', 17, "required: names 'wel'; describe it in properties"),
        ('"*/Weather/*"', '"Weather/*"', 20, "'Weather/*' is no domain/type/name"),
        ('"*/Weather/*"', '"*/Weather/g*"', 20, "has a * in it"),
        ('"type": "integer"', '"type": "int"', 15, "count.type: is 'int'; write one or more of string, integer"),
        ('"type": "object"', '"type": "array"', 9, "write object"),
        ('["application"]', '["everybody"]', 5, "write a list of application and client"),
        ("2020-12", "2019-09", 2, "write https://json-schema.org/draft/2020-12/schema"),
        ('"Priority": 8', '"Priority": 80', 10, "Priority is 80; expected a whole number"),
        ('"minimum": 0,', '"minimum": 0', 13, "syntax"),
        ('"minimum": 0,', '"minimum": "0",', 13, "minimum: is '0'; write a finite number"),
        ('"minimum": 0,', '"minimum": 0, "description": 3,', 13, "write a text"),
    ],
)
def test_faults_of_a_schema_have_a_line_and_a_remedy(old: str, new: str, line: int, message: str) -> None:
    """DIC-01: a keyword that is not obeyed is refused by its name, not passed over."""
    assert old in SCHEMA
    with pytest.raises(ConfigError) as caught:
        Dictionary.standard().extended(parse_schema(SCHEMA.replace(old, new), "own.json"))
    assert str(caught.value).startswith(f"own.json:{line}: ") and message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("minimum = 0, maximum", "minimum = 2000, maximum", 12, "rate.minimum: is 2000, above maximum 1000"),
        ("minimum = 0, maximum", "least = 0, maximum", 12, "rate.least: is not known; what can stand here is type"),
        ('name = "leak"', "", 6, "event[1]: name is missing"),
        ('name = "leak"', "name = 7", 9, "event[1].name: name is 7"),
        ('name = "*"', 'name = "*"\npublishers = ["nobody"]', 21, "event[2].publishers: is ['nobody']"),
        (
            'name = "state"',
            'name = "state"\npublishers = ["client"]',
            27,
            "'client' does not publish Monitoring events",
        ),
        ('type = "int"', 'type = "integer"', 14, "count.type: is 'integer'; write one or more of text, int"),
        ("Priority = 8", "Hurry = 8", 10, "qos.Hurry: quality 'Hurry' is not known"),
        ('[1, "two", false]', "[]", 15, "enum: is no list, empty or too long"),
        ('["oil", "gas"]', '["oil", 3]', 13, "enum: holds 3; list values of type text"),
        ("maxLength = 4", "maxLength = 0", 11, "maxLength: is 0; write a number from 1"),
        ("required = true, maxLength", "required = 1, maxLength", 11, "required: is 1; write true or false"),
        ("guarded = true", "guarded = 1", 4, "type.Diagnostics.guarded: is 1"),
        ("guarded = true", "secret = 1", 4, "type.Diagnostics.secret: is not known"),
        (
            'domain = "reservoir"\ntype = "Mon',
            'domain = "*"\nname = "x"\ntype = "Mon',
            27,
            "syntax: Cannot overwrite a value",
        ),
        (
            'type = "Weather"\nname = "*"',
            'type = "Diagnostics"\nname = "leak"\ndomain = "reservoir"',
            18,
            "twice; join",
        ),
    ],
)
def test_faults_of_a_toml_file_have_a_line_and_a_remedy(old: str, new: str, line: int, message: str) -> None:
    """DIC-01."""
    assert old in OWN
    with pytest.raises(ConfigError) as caught:
        Dictionary.standard().extended(parse_toml(OWN.replace(old, new, 1), "own.toml"))
    assert str(caught.value).startswith(f"own.toml:{line}: ") and message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.toml", b"\xff", "is no UTF-8 at byte 0"),
        ("a.toml", b"extends = 'all'", "a.toml:1: extends: is 'all'; write one of 'standard', 'nothing'"),
        ("a.toml", b"event = 3", "is no list"),
        ("a.toml", b"event = [3]", "event[1]: is 3; write a table"),
        ("a.toml", b"x = " + b"[" * 5000, "syntax"),
        ("a.toml", b"x = " + b"9" * 5000, "syntax"),
        ("a.toml", b"[[event]]\ntype='T'\nname='n'\nqos.Timeout = " + b"9" * 400, "Timeout is 9999"),
        ("a.json", b'{"x": ' + b"9" * 5000 + b"}", "syntax"),
        ("a.toml", b"#" * (1 << 20) + b"#", "at most 1048576 are read"),
        ("a.json", b"[]", "file: is []"),
        ("a.json", b'{"title": 1, "title": 2}', "the name 'title' stands twice"),
        ("a.json", b'{"$defs": {"a/b/c": {"properties": {"x": {"minimum": NaN}}}}}', "NaN is no number of JSON"),
        ("a.json", b"[" * 100_000, "syntax"),
        ("a.json", b'{"$defs": {"a/b/c": 7}}', "$defs.a/b/c: is 7; write a table"),
    ],
)
def test_files_that_are_no_dictionary(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        Dictionary.load(tmp_path / name)
    assert message in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        Dictionary.load(tmp_path / "missing.toml")


def test_counts_are_bounded(tmp_path: Path) -> None:
    entry = "[[event]]\ntype='T'\nname='n{}'\n"
    for text, message in (
        ("".join(entry.format(n) for n in range(1001)), "at most 1000"),
        ("".join(entry.format(n) for n in range(990)), r"10\d\d entries; at most 1000"),
        ("".join(f"[type.T{n}]\n" for n in range(101)), "at most 100"),
        (entry.format(0) + "".join(f"fields.f{n}={{}}\n" for n in range(65)), "has 65 fields; at most 64"),
    ):
        with pytest.raises(ConfigError, match=message):
            Dictionary.load(written(tmp_path, "many.toml", text))


def test_large_bounds_are_bounds(tmp_path: Path) -> None:
    text = (
        "[[event]]\ntype='T'\nname='n'\nfields.x = { type = 'float', minimum = -" + "9" * 400 + ", maximum = 1e300 }\n"
    )
    dictionary = Dictionary.load(written(tmp_path, "own.toml", text))
    assert dictionary.check(StructuredEvent("a", "T", "n", {"x": -1e308}), "client").fields == {"x": -1e308}
    with pytest.raises(InvalidEvent, match="at most 1e"):
        dictionary.check(StructuredEvent("a", "T", "n", {"x": 1e308}), "client")


def test_beginning_anew(tmp_path: Path) -> None:
    text = 'extends = "nothing"\n[[event]]\ntype = "Only"\nname = "this"\n'
    assert [each.label for each in Dictionary.load(written(tmp_path, "own.toml", text)).entries] == ["*/Only/this"]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "string", "a/b/c", "client", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["$defs", "a/b/c", "properties", "type", "required", "x-qos", "enum", "x-types", "maxLength"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
def test_no_schema_breaks_the_reader(value: Any) -> None:
    """Whatever stands there: a dictionary, or an error of ours."""
    for given_value in (
        value,
        {"$defs": value},
        {"$defs": {"a/b/c": value}},
        {"$defs": {"a/b/c": {"properties": value}}},
    ):
        with suppress(ConfigError):
            found = Dictionary.standard().extended(parse_schema(json.dumps(given_value, indent=1)))
            assert len(found.entries) >= len(Dictionary.standard().entries)
