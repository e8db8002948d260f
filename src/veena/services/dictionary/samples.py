"""Sample events as text, a JSON object a line, against a dictionary.

{"domain": "heat", "type": "Monitoring", "name": "state", "role": "application", "fields": {"state": "running"}}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from veena.errors import ConfigError, InvalidEvent
from veena.services.dictionary.dictionary import Dictionary
from veena.services.dictionary.entry import Role
from veena.services.structured import StructuredEvent

#: The filterable body of an event as text; what is larger belongs into the remainder, which is not checked.
MAX_LINE = 1 << 20


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line."""

    domain: str
    type: str
    name: str
    #: As whom it is published.
    role: Role
    fields: dict[str, bool | int | float | str | None] = {}
    qos: dict[str, bool | int | float | str] = {}


_decoder = msgspec.json.Decoder(Sample)


def check_samples(dictionary: Dictionary, path: Path) -> Iterator[str]:
    """For each event of a file what is wrong with it, with its line; empty when nothing is."""
    try:
        with path.open("rb") as lines:
            number = 0
            while line := lines.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    remedy = "give each event a line of its own"
                    raise ConfigError(f"{path}:{number}", "line", f"has more than {MAX_LINE} bytes", remedy)
                if line.strip():
                    fault = _fault(dictionary, line)
                    yield f"{path}:{number}: {fault}" if fault else ""
    except OSError as error:
        raise ConfigError(str(path), "file", f"cannot be read: {error}", "check the path and its rights") from None


def _fault(dictionary: Dictionary, line: bytes) -> str:
    try:
        given = _decoder.decode(line)
        event = StructuredEvent(given.domain, given.type, given.name, given.fields, qos=given.qos)
        dictionary.check(event, given.role)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"{error}; write an object with domain, type, name, role, fields and, if you like, qos"
    except InvalidEvent as error:
        return str(error)
    return ""
