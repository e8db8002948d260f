"""The engine `selector`: a topic, and an SQL-92 selector over the event's properties and header (MAT-20..22).

The topic is looked up first, and the selectors of other topics are never touched; an empty selector leaves the topic
alone to decide (MAT-21). The header fields of JMS that a selector may name come from the event itself where it has
them (priority, time stamp, id) and from its headers of the same name otherwise; a property cannot stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from veena.errors import InvalidConstraint
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.matching.condition.cover import FORMULAS_KEPT, MAX_TEXT
from veena.matching.condition.cover import covers as formula_covers
from veena.matching.condition.formula import Formula
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.covering.form import Form
from veena.matching.index.cover_form import form_of
from veena.matching.index.engine import IndexedEngine
from veena.matching.index.template import SELECTOR, shared_templates
from veena.matching.simple.topic import check_topic

#: Header fields that an event has among its headers, if at all.
_FROM_HEADERS = ("JMSCorrelationID", "JMSType", "JMSDeliveryMode")


class SelectorEngine(IndexedEngine):
    name = "selector"
    language = SELECTOR
    header_mark = "JMS"

    def _split(self, constraint: Constraint) -> tuple[str, str]:
        return check_selector(constraint)

    def concerns(self, topic: str | None) -> bool:
        return topic in self._topics

    def _topic_of(self, event: Event) -> str | None:
        return event.topic

    def _attributes(self, event: Event) -> Mapping[str, object]:
        return selector_attributes(event)


def selector_attributes(event: Event) -> dict[str, object]:
    """What a selector sees of an event: its properties, and the header under the names of JMS."""
    attributes: dict[str, object] = dict(event.properties)
    headers = event.headers
    for name in _FROM_HEADERS:
        attributes[name] = headers.get(name)
    attributes["JMSPriority"] = event.priority
    attributes["JMSTimestamp"] = event.timestamp_ns // 1_000_000
    attributes["JMSMessageID"] = None if event.id is None else f"ID:{event.id}"
    return attributes


def check_selector(constraint: Constraint) -> tuple[str, str]:
    """The topic and the text of the selector; raise InvalidConstraint when there are no such two."""
    if not isinstance(constraint, tuple) or len(constraint) != 2 or not isinstance(constraint[1], str):
        raise InvalidConstraint(
            str(constraint), 0, "expected a pair (topic, selector), for example ('quotes', 'price > 10')"
        )
    return check_topic(constraint[0]), constraint[1]


def covers(wide: Constraint, narrow: Constraint) -> bool:
    """Whether every event that satisfies `narrow` surely satisfies `wide`."""
    wide_topic, wide_text = check_selector(wide)
    narrow_topic, narrow_text = check_selector(narrow)
    if wide_topic != narrow_topic:
        return False
    if max(len(wide_text), len(narrow_text)) > MAX_TEXT:
        return wide_text == narrow_text
    return formula_covers(_formula(wide_text), _formula(narrow_text))


@lru_cache(maxsize=FORMULAS_KEPT)
def _formula(text: str) -> Formula:
    return normal_form(parse_selector(text))


def cover_form(constraint: Constraint) -> Form:
    """What of it is compared with others of its topic; raise InvalidConstraint."""
    return form_of(check_selector(constraint)[1], shared_templates(SELECTOR))
