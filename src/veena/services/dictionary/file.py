"""Event dictionaries as TOML files.

    extends = "standard"                  # what is built in; "nothing" to begin anew

    [type.Diagnostics]                    # a type of one's own; to be declared if not everybody may publish it
    publishers = ["application"]
    guarded = true                        # for trusted categories of clients alone, as Steering is

    [[event]]
    domain = "reservoir"                  # the application's name; every one when left out
    type = "Diagnostics"
    name = "leak"                         # "*": each event has a name of its own
    publishers = ["application"]          # those of the type when left out
    qos = { Priority = 8, Reliability = "reliable", Timeout = 60, Deadline = 2.5 }
    fields.well = { type = "text", required = true, maxLength = 40 }
    fields.rate = { type = "float", minimum = 0, maximum = 1000 }
    fields.kind = { type = "text", enum = ["oil", "gas"] }
    open = false                          # whether other fields are allowed

Types of fields are text, int, float (whole numbers too), bool, bytes and null, one or a list of them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from veena.errors import ConfigError
from veena.services.dictionary.entry import ANY, KINDS, EventType
from veena.services.dictionary.lines import toml_lines
from veena.services.dictionary.reader import MAX_ENTRIES, Entries, Reader
from veena.services.dictionary.schema import parse_schema

#: A dictionary is read by people.
MAX_FILE_BYTES = 1 << 20


def read_entries(path: Path) -> Entries:
    """Read a file: JSON Schema when its name ends in .json, else TOML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), "file", f"cannot be read: {error}", "check the path and its rights") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(str(path), "file", f"has {len(data)} bytes", f"at most {MAX_FILE_BYTES} are read")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "file", f"is no UTF-8 at byte {error.start}", "write it as UTF-8") from None
    return (parse_schema if path.suffix.lower() == ".json" else parse_toml)(text, str(path))


def parse_toml(text: str, file: str = "dictionary") -> Entries:
    """The entries of a TOML text; raise ConfigError naming line, place, value and remedy."""
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        line = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{file}:{line[1]}" if line else file, "syntax", str(error), "write it as TOML") from None
    return _TomlReader(file, toml_lines(text), {kind: kind for kind in KINDS}).read(raw)


class _TomlReader(Reader):
    def read(self, raw: dict[str, Any]) -> Entries:
        self.known(raw, "", ("extends", "type", "event"))
        events = raw.get("event", [])
        if not isinstance(events, list) or len(events) > MAX_ENTRIES:
            raise self.fault("event", "is no list, or too long", f"write [[event]], at most {MAX_ENTRIES} times")
        places = {f"event[{at}]": each for at, each in enumerate(events, 1)}
        entries = {place: self._entry(each, place) for place, each in places.items()}
        declared = tuple(place for place, each in places.items() if "publishers" in each)
        return self.entries(raw.get("extends", "standard"), "extends", raw.get("type", {}), "type", entries, declared)

    def _entry(self, given: Any, place: str) -> EventType:
        raw = self.table(given, place)
        self.known(raw, place, ("domain", "type", "name", "publishers", "qos", "fields", "open", "description"))
        for name in ("type", "name"):
            if name not in raw:
                raise self.fault(place, f"{name} is missing", f'write {name} = "..."')
        fields = self.table(raw.get("fields", {}), f"{place}.fields")
        required = [name for name, each in fields.items() if isinstance(each, dict) and each.get("required") is True]
        return EventType(
            self.name(raw.get("domain", ANY), f"{place}.domain"),
            self.name(raw["type"], f"{place}.type"),
            self.name(raw["name"], f"{place}.name"),
            self.fields(fields, f"{place}.fields", required, ("required",)),
            self.roles(raw, place, "publishers"),
            self.qos(raw.get("qos", {}), f"{place}.qos"),
            self.truth(raw, place, "open"),
            self.text(raw, place, "description"),
        )
