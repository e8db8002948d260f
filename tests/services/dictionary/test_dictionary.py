"""The event dictionary: what may be published, by whom, and what is said about what may not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from veena.errors import InvalidEvent
from veena.event import Value
from veena.matching.engines.constraint import ConstraintEngine
from veena.services.dictionary.dictionary import Dictionary, Role
from veena.services.structured import StructuredEvent

STANDARD = Dictionary.standard()
OWN = """
[type.Diagnostics]
publishers = ["application"]
guarded = true

[[event]]
domain = "reservoir"
type = "Diagnostics"
name = "leak"
qos = { Priority = 8, Reliability = "reliable", Timeout = 60, Deadline = 2.5 }
fields.well = { type = "text", required = true, maxLength = 4 }
fields.rate = { type = "float", minimum = 0, maximum = 1000 }
fields.kind = { type = "text", enum = ["oil", "gas"] }
fields.count = { type = "int" }
fields.stage = { enum = [1, "two", false] }
fields.mark = { type = ["bytes", "null"], maxLength = 3 }

[[event]]
type = "Weather"
name = "*"
fields.wind = { type = "float" }

[[event]]
domain = "reservoir"
type = "Monitoring"
name = "state"
fields.state = { type = "text", enum = ["pumping"], required = true }
"""


@pytest.fixture(name="own", scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> Dictionary:
    file = tmp_path_factory.mktemp("dictionary") / "own.toml"
    file.write_text(OWN)
    return Dictionary.load(file)


def leak(**fields: Value) -> StructuredEvent:
    return StructuredEvent("reservoir", "Diagnostics", "leak", {"well": "w1", **fields})


def test_the_standard_dictionary_has_the_interactions_and_the_systems_own_types() -> None:
    """DIC-05, DIC-11: three interactions; login, authorise, publish and subscribe of the system itself."""
    names = {(each.type, each.name) for each in STANDARD.entries}
    assert set(STANDARD.interactions) == {"Monitoring", "Steering", "Collaboration", "Access", "Messaging"}
    for place in (
        ("Monitoring", "state"), ("Monitoring", "statistics"), ("Monitoring", "field"), ("Monitoring", "record"),
        ("Steering", "query"), ("Steering", "change"), ("Steering", "take"), ("Steering", "release"),
        ("Steering", "hand_over"), ("Steering", "here"), ("Steering", "answer"), ("Collaboration", "message"),
        ("Collaboration", "annotation"), ("Collaboration", "presence"), ("Collaboration", "view"),
        ("Access", "login"), ("Access", "authorise"), ("Access", "refused"), ("Messaging", "publish"),
        ("Messaging", "unpublish"), ("Messaging", "subscribe"), ("Messaging", "unsubscribe"), ("Messaging", "resolve"),
    ):  # fmt: skip
        assert place in names


@pytest.mark.parametrize(
    ("role", "kind", "name", "fields"),
    [
        ("client", "Monitoring", "state", {"state": "running"}),
        ("application", "Collaboration", "message", {"room": "r", "by": "a", "text": "hi"}),
        ("application", "Steering", "change", {"by": "a", "parameter": "p", "value": 1}),
        ("client", "Steering", "answer", {"answer": "done"}),
        ("client", "Access", "authorise", {"by": "a", "category": "senior"}),
    ],
)
def test_roles(role: Role, kind: str, name: str, fields: dict[str, Value]) -> None:
    """DIC-10: an application publishes no Collaboration, a client no Monitoring; the other role may."""
    event = StructuredEvent("heat", kind, name, fields)
    with pytest.raises(InvalidEvent, match=rf"event heat/{kind}/{name}: it was given by an? {role}, but .* publish"):
        STANDARD.check(event, role)
    assert STANDARD.check(event, "client" if role == "application" else "application").fields == fields


def test_question_and_answer_are_of_one_type() -> None:
    """DIC-12: types follow the interaction, not the direction."""
    query = STANDARD.check(StructuredEvent("heat", "Steering", "query", {"by": "sue"}), "client")
    answer = STANDARD.check(StructuredEvent("heat", "Steering", "answer", {"answer": "done"}), "application")
    assert query.type == answer.type == "Steering"


def test_unknown_types_and_names_are_refused_with_those_that_there_are() -> None:
    """DIC-01, DIC-05."""
    with pytest.raises(InvalidEvent, match=r"type_name 'Gossip' is not in the dictionary; it has Monitoring, Steering"):
        STANDARD.check(StructuredEvent("heat", "Gossip", "x"), "client")
    with pytest.raises(InvalidEvent, match=r"event_name 'stop' is not in the dictionary; type Steering has query, ch"):
        STANDARD.check(StructuredEvent("heat", "Steering", "stop"), "client")
    with pytest.raises(InvalidEvent, match=r"type_name 'leak'"):
        STANDARD.entry("reservoir", "leak", "x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": -1}, "event reservoir/Diagnostics/leak: field 'rate' is -1; expected at least 0"),
        ({"rate": 1000.5}, "field 'rate' is 1000.5; expected at most 1000"),
        ({"rate": float("nan")}, "field 'rate' is nan; expected at least 0"),
        ({"rate": True}, "field 'rate' is True; expected float"),
        ({"count": 1.0}, "field 'count' is 1.0; expected int"),
        ({"kind": "water"}, "field 'kind' is 'water'; expected one of 'oil', 'gas'"),
        ({"stage": 0}, "field 'stage' is 0; expected one of 1, 'two', False"),
        ({"well": "w12345"}, "field 'well' is 'w12345'; it has 6 characters, at most 4 fit: put what is large into"),
        ({"mark": b"1234"}, "field 'mark' is b'1234'; it has 4 bytes"),
        ({"mark": "x"}, "field 'mark' is 'x'; expected bytes or null"),
        ({"well": None}, "field 'well' is None; expected text"),
        ({"depth": 3}, "field 'depth' = 3 is not in the dictionary; it has well, rate, kind, count, stage, mark: drop"),
    ],
)
def test_what_is_refused_is_named(own: Dictionary, fields: dict[str, Value], message: str) -> None:
    """DIC-01: type, field, value and what to do."""
    with pytest.raises(InvalidEvent) as caught:
        own.check(leak(**fields), "application")
    assert message in str(caught.value)


def test_what_is_right_passes(own: Dictionary) -> None:
    for fields in ({}, {"rate": 0}, {"rate": 1000.0, "kind": "gas"}, {"stage": 1.0}, {"stage": False}, {"mark": None}):
        assert own.check(leak(**fields), "application").fields == {"well": "w1", **fields}


def test_a_mandatory_field_is_asked_for_by_name() -> None:
    """DIC-01: a missing field."""
    with pytest.raises(InvalidEvent, match=r"event heat/Steering/change: field 'value' is missing; give it text or"):
        STANDARD.check(StructuredEvent("heat", "Steering", "change", {"by": "a", "parameter": "p"}), "client")


def test_quality_is_the_entrys_unless_the_event_says_otherwise(own: Dictionary) -> None:
    """DIC-07, QOS-01, QOS-03."""
    event = own.check(leak(), "application")
    assert event.qos == {"Priority": 8, "Reliability": "reliable", "Timeout": 60, "Deadline": 2.5}
    assert (event.is_reliable, event.to_event().priority, event.to_event().ttl) == (True, 8, 60.0)
    urgent = StructuredEvent("reservoir", "Diagnostics", "leak", {"well": "w1"}, qos={"Priority": 9})
    assert own.check(urgent, "application").qos["Priority"] == 9


def test_a_new_type_is_an_entry_alone(own: Dictionary) -> None:
    """DIS-17, DIC-06: Diagnostics and Weather are known nowhere in the code; a Weather event has a name of its own."""
    code = [path.read_text() for path in Path(__file__).parents[3].joinpath("src/veena").rglob("*.py")]
    assert not any("Weather" in text for text in code)
    assert own.check(leak(), "application").type == "Diagnostics"
    for name in ("gust-17", "gust-18"):
        for role in ("application", "client"):
            own.check(StructuredEvent("buoy", "Weather", name, {"wind": 3}), role)
    assert own.interactions["Diagnostics"].is_guarded and not own.interactions["Weather"].is_guarded


def test_the_closest_entry_counts(own: Dictionary) -> None:
    """DIC-04: an application narrows a standard type for itself; others keep theirs."""
    for domain, state in (("reservoir", "pumping"), ("heat", "running")):
        own.check(StructuredEvent(domain, "Monitoring", "state", {"state": state}), "application")
    with pytest.raises(InvalidEvent, match="expected one of 'pumping'"):
        own.check(StructuredEvent("reservoir", "Monitoring", "state", {"state": "running"}), "application")


def test_fields_are_bounded_where_others_are_allowed_too() -> None:
    many: dict[str, Value] = {f"f{n}": n for n in range(65)}
    with pytest.raises(InvalidEvent, match="65 fields; at most 64"):
        STANDARD.check(StructuredEvent("heat", "Monitoring", "statistics", many), "application")
    wrong: Any = {"all": [1, 2]}
    with pytest.raises(InvalidEvent, match=r"field 'all' is \[1, 2\]; expected text or int .*, found list"):
        STANDARD.check(StructuredEvent("heat", "Monitoring", "statistics", wrong), "application")
    with pytest.raises(InvalidEvent, match=r"field 'log' is .* at most 4096 fit"):
        STANDARD.check(StructuredEvent("heat", "Monitoring", "statistics", {"log": "x" * 5000}), "application")


def test_each_stage_stands_alone() -> None:
    """DIS-18, DIS-19: gather, format, filter, disseminate; each of the four components is a module of its own."""
    gathered: dict[str, Value] = {"state": "paused", "step": 9}
    formatted = STANDARD.check(StructuredEvent("heat", "Monitoring", "state", gathered), "application").to_event()
    engine = ConstraintEngine()
    engine.add(1, "$type_name == 'Monitoring' and step > 5", 10)
    engine.add(2, "$type_name == 'Monitoring' and step > 9", 20)
    assert engine.match(formatted) == [1]
    components = {
        "type of information": "veena.services.dictionary.dictionary",
        "publish and discover": "veena.services.trading.registry",
        "specify interest": "veena.services.domain.subscriptions",
        "match and disseminate": "veena.matching.engines.constraint",
    }
    assert all(importlib.util.find_spec(module) for module in components.values())
