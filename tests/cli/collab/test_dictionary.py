"""`veena dictionary` and `veena users categories`: what is shown, what is checked, and the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import veena
from veena.errors import ConfigError
from veena.runtime.access.users import parse_users
from veena.services.dictionary.dictionary import Dictionary
from veena.services.dictionary.samples import check_samples

DOCUMENT = Path(__file__).parents[3] / "docs" / "COLLABORATORY.md"


def block(language: str, begins: str) -> str:
    """A block of the document, so that what stands there is what is tried here."""
    for found in re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE):
        if begins in found:
            return str(found)
    raise AssertionError(f"{DOCUMENT}: no block of {language} has {begins!r}")


@pytest.fixture(name="toml")
def _toml(tmp_path: Path) -> Path:
    (tmp_path / "reservoir.toml").write_text(block("toml", "[type.Diagnostics]"))
    return tmp_path / "reservoir.toml"


def test_both_files_of_the_document_are_right_and_the_same(toml: Path) -> None:
    """DIC-01, DIS-17: a new type from a file alone, as TOML or as JSON Schema."""
    schema = toml.with_suffix(".json")
    schema.write_text(block("json", '"$schema"'))
    for file in (toml, schema):
        found = veena("dictionary", "check", str(file))
        assert (found.code, found.err) == (0, "")
        assert found.out == f"{file}: it can be used, 24 event types with those it extends\n"
    one, other = (Dictionary.load(file).entry("reservoir", "Diagnostics", "leak") for file in (toml, schema))
    assert one == other


def test_a_wrong_dictionary_ends_with_1_and_its_line(toml: Path) -> None:
    """DIC-01: file, line, place, and what to write instead."""
    toml.write_text(toml.read_text().replace("maximum", "most"))
    found = veena("dictionary", "check", str(toml))
    line = toml.read_text().splitlines().index(next(row for row in toml.read_text().splitlines() if "most" in row)) + 1
    assert found.code == 1 and found.out == ""
    assert found.err.startswith(f"{toml}:{line}: event[1].fields.rate.most: is not known; what can stand here is type,")
    told = json.loads(veena("dictionary", "check", str(toml), "--json").out)
    assert told["faults"] == [found.err.strip()]


def test_sample_events_are_checked(toml: Path) -> None:
    """DIC-01, DIC-10: each line of the document's sample is judged, with its number."""
    samples = toml.with_name("samples.jsonl")
    samples.write_text(block("json", '"role": "application"') + "\nno event\n")
    found = veena("dictionary", "check", str(toml), "--events", str(samples))
    assert found.code == 1 and f"{samples}: 4 events, 3 refused" in found.out
    faults = found.err.splitlines()
    assert [fault.removeprefix(f"{samples}:")[:2] for fault in faults] == ["2:", "3:", "5:"]
    assert "field 'rate' is -1; expected at least 0" in faults[0] and "given by a client" in faults[1]
    assert "write an object with domain" in faults[2]
    dictionary = Dictionary.load(toml)
    samples.write_text(samples.read_text().splitlines()[0])
    assert list(check_samples(dictionary, samples)) == [""]
    samples.write_text("x" * (1 << 20) + "y")
    with pytest.raises(ConfigError, match="has more than 1048576 bytes"):
        list(check_samples(dictionary, samples))
    with pytest.raises(ConfigError, match="cannot be read"):
        list(check_samples(dictionary, samples.with_name("missing")))


def test_many_faults_are_counted(toml: Path) -> None:
    samples = toml.with_name("samples.jsonl")
    samples.write_text("no event\n" * 30)
    found = veena("dictionary", "check", str(toml), "--events", str(samples))
    assert len(found.err.splitlines()) == 21 and found.err.endswith("and 10 more\n")


def test_show(toml: Path) -> None:
    """DIC-01: what there is, for people and for scripts."""
    shown = veena("dictionary", "show", str(toml), "--type", "Diagnostics").out
    for words in ("reservoir/Diagnostics/leak", "by applications", "Priority 8", "well* text(40)", "oil | gas"):
        assert words in shown
    rows = json.loads(veena("dictionary", "show", "--json").out)
    assert len(rows) == len(Dictionary.standard().entries)
    change = next(row for row in rows if (row["type"], row["name"]) == ("Steering", "change"))
    assert change["publishers"] == ["client"] and change["guarded"] and change["qos"]["Reliability"] == "reliable"
    assert [field["name"] for field in change["fields"] if field["required"]] == ["by", "parameter", "value"]
    assert "there are Monitoring" in veena("dictionary", "show", "--type", "Gossip").err


def test_categories(toml: Path) -> None:
    """DIS-04, DIS-17: what a junior may do, also with types of one's own, and the roles for the brokers' users file."""
    categories = toml.with_name("categories.toml")
    categories.write_text(block("toml", "[category.reviewer]"))
    options = ("--dictionary", str(toml), "--file", str(categories))
    powers = json.loads(veena("users", "categories", "--json", *options).out)
    assert "Diagnostics" in powers["junior"]["read"] and "Steering" not in powers["junior"]["publish"]
    assert "Steering" in powers["senior"]["publish"] and "Steering" in powers["reviewer"]["read"]
    roles = veena("users", "categories", "junior", "senior", "--roles").out
    parse_users(roles + '[user.ann]\nroles = ["junior"]\n')
    assert "[role.application]" not in roles
    assert "Collaboration" in veena("users", "categories", "junior").out
    found = veena("users", "categories", "boss")
    assert found.code == 2 and "there are junior, senior" in found.err
