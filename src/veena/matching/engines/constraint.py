"""The engine `constraint`: the Trader Constraint Language over an event's filterable part (TRD-06, TRD-09, DIC-08).

A constraint sees the event's properties, which are the filterable body, and the fixed header `$domain_name`,
`$type_name` and `$event_name`, which stand among the event's headers with or without the `$`. The remainder body is
never looked at, so a constraint that names something in it never matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from veena.errors import InvalidConstraint
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.cover import FORMULAS_KEPT, MAX_TEXT
from veena.matching.condition.cover import covers as formula_covers
from veena.matching.condition.formula import Formula
from veena.matching.condition.normal_form import normal_form
from veena.matching.covering.form import Form
from veena.matching.index.cover_form import form_of
from veena.matching.index.engine import IndexedEngine
from veena.matching.index.template import CONSTRAINT, shared_templates

#: The fixed header as constraints name it, and the event's header that holds it.
_FIXED_HEADER = {"$domain_name": "domain_name", "$type_name": "type_name", "$event_name": "event_name"}


class ConstraintEngine(IndexedEngine):
    name = "constraint"
    language = CONSTRAINT
    header_mark = "$"

    def _split(self, constraint: Constraint) -> tuple[str, str]:
        return "", check_constraint(constraint)

    def _topic_of(self, event: Event) -> str | None:
        return ""

    def _attributes(self, event: Event) -> Mapping[str, object]:
        return constraint_attributes(event)


def constraint_attributes(event: Event) -> dict[str, object]:
    """What a constraint sees of an event."""
    attributes: dict[str, object] = dict(event.properties)
    headers = event.headers
    for name, header in _FIXED_HEADER.items():
        attributes[name] = headers[name] if name in headers else headers.get(header)
    return attributes


def check_constraint(constraint: Constraint) -> str:
    """The text; raise InvalidConstraint when it is none."""
    if not isinstance(constraint, str):
        raise InvalidConstraint(str(constraint), 0, f"expected a constraint as text, found {type(constraint).__name__}")
    return constraint


def covers(wide: Constraint, narrow: Constraint) -> bool:
    """Whether every event that satisfies `narrow` surely satisfies `wide`."""
    wide_text, narrow_text = check_constraint(wide), check_constraint(narrow)
    if max(len(wide_text), len(narrow_text)) > MAX_TEXT:
        return wide_text == narrow_text
    return formula_covers(_formula(wide_text), _formula(narrow_text))


@lru_cache(maxsize=FORMULAS_KEPT)
def _formula(text: str) -> Formula:
    return normal_form(parse_constraint(text))


def cover_form(constraint: Constraint) -> Form:
    """What of it is compared; raise InvalidConstraint."""
    return form_of(check_constraint(constraint), shared_templates(CONSTRAINT))
