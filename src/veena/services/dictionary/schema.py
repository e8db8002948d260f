"""Event dictionaries as JSON Schema files (2020-12): one schema an event type, which describes its filterable body.

    {
      "$schema": "https://json-schema.org/draft/2020-12/schema",
      "x-extends": "standard",
      "x-types": {"Diagnostics": {"publishers": ["application"]}},
      "$defs": {
        "reservoir/Diagnostics/leak": {
          "type": "object",
          "x-publishers": ["application"],
          "x-qos": {"Priority": 8},
          "properties": {"rate": {"type": "number", "minimum": 0}, "well": {"type": "string", "maxLength": 40}},
          "required": ["well"],
          "additionalProperties": false
        }
      }
    }

A schema's name is domain/type/name. What JSON Schema has no word for begins with `x-`, which other readers of schemas
pass over; so a program in any language can check its events with the same file. As everywhere in JSON Schema, fields
that are not named are allowed unless `additionalProperties` is false. A keyword that is not obeyed here is refused, by
its name: a rule that somebody wrote must not be passed over in silence.
"""

from __future__ import annotations

import json
from typing import Any, Final

from veena.errors import ConfigError
from veena.services.dictionary.entry import EventType
from veena.services.dictionary.lines import json_lines
from veena.services.dictionary.reader import MAX_ENTRIES, Entries, Reader

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: The names that JSON Schema has for what a field may hold. Bytes are for the remainder: JSON has none.
KINDS: Final = {"string": "text", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
#: domain/type/name
PARTS = 3


def parse_schema(text: str, file: str = "dictionary") -> Entries:
    """The entries of a JSON Schema text; raise ConfigError naming line, place, value and remedy."""
    try:
        raw = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}", "syntax", error.msg, "write it as JSON") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(file, "syntax", str(error), "write it as JSON") from None
    return _SchemaReader(file, json_lines(text), KINDS).read(raw)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise ValueError(f"the name {twice!r:.80} stands twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


class _SchemaReader(Reader):
    def read(self, given: Any) -> Entries:
        raw = self.table(given, "file")
        self.known(raw, "", ("$schema", "$id", "title", "description", "$comment", "x-extends", "x-types", "$defs"))
        if raw.get("$schema", DIALECT) != DIALECT:
            raise self.fault("$schema", f"is {raw['$schema']!r:.80}", f"write {DIALECT}")
        schemas = self.table(raw.get("$defs", {}), "$defs")
        if len(schemas) > MAX_ENTRIES:
            raise self.fault("$defs", f"has {len(schemas)} entries", f"at most {MAX_ENTRIES}")
        entries = {f"$defs.{name}": self._entry(name, each, f"$defs.{name}") for name, each in schemas.items()}
        declared = tuple(f"$defs.{name}" for name, each in schemas.items() if "x-publishers" in each)
        extends, types = raw.get("x-extends", "standard"), raw.get("x-types", {})
        return self.entries(extends, "x-extends", types, "x-types", entries, declared)

    def _entry(self, label: str, given: Any, place: str) -> EventType:
        raw = self.table(given, place)
        known = ("type", "properties", "required", "additionalProperties", "title", "description", "$comment")
        self.known(raw, place, (*known, "x-publishers", "x-qos"))
        parts = label.split("/")
        if len(parts) != PARTS:
            raise self.fault(place, f"{label!r:.80} is no domain/type/name", "write for example heat/Monitoring/leak")
        if raw.get("type", "object") != "object":
            raise self.fault(f"{place}.type", f"is {raw['type']!r:.80}", "write object: a body has named fields")
        properties = self.table(raw.get("properties", {}), f"{place}.properties")
        return EventType(
            self.name(parts[0], place),
            self.name(parts[1], place),
            self.name(parts[2], place),
            self.fields(properties, f"{place}.properties", self._required(raw, place), ("title", "$comment")),
            self.roles(raw, place, "x-publishers"),
            self.qos(raw.get("x-qos", {}), f"{place}.x-qos"),
            self.truth(raw, place, "additionalProperties", True),
            self.text(raw, place, "description") or self.text(raw, place, "title"),
        )

    def _required(self, raw: dict[str, Any], place: str) -> list[str]:
        required, properties = raw.get("required", []), raw.get("properties", {})
        if not isinstance(required, list):
            raise self.fault(f"{place}.required", f"is {required!r:.80}", "write a list of names of properties")
        for name in required:
            if not isinstance(name, str) or name not in properties:
                raise self.fault(f"{place}.required", f"names {name!r:.80}", "describe it in properties, or drop it")
        return required
