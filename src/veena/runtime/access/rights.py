"""What a client may do: rules that allow or deny an action, read from top to bottom, the first that fits decides.

A rule names actions and may narrow them to an engine, to topics (one, or all that begin with something: `quotes.*`)
and to types of events (the header `type_name`). What no rule fits is denied.

| action | what it is about |
|---|---|
| `publish` | an event's topic, its type and the engines that will look at it |
| `subscribe` | a subscription's engine and topic; and each event again when it is handed over |
| `wide` | a scope or a realm above the cluster |
| `everything` | a constraint that any structured event might satisfy |
| `advertise`, `query` | advertisements |
| `watch` | asking whether anybody wants an event |
| `explain` | asking which way an event went, and what became of it for other clients; only of events that may be read |
| `status` | asking how a broker is doing and what it knows of the network |
| `move` | sending clients of a broker to another one; `status` says which there are |
| `log` | reading who got and wanted what, and events addressed to others, in bulk; committing what was read |

A dead letter is read by those who may read its event: by topic and type of that, too.

Subscriptions of engines without topics are allowed or denied as such; events that such a subscription gets are then
tested by their own topic and type, so a denied topic is not read by way of another engine.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from veena.core.interest.constraint import SUBSCRIBED
from veena.core.interest.eligibility import OF_TO, OF_TOPIC, OF_TYPE, type_named
from veena.core.publishing.dead_letters import DEAD_LETTERS
from veena.event import Event, Value

Action = Literal[
    "publish", "subscribe", "wide", "everything", "advertise", "query", "watch", "explain", "status", "move", "log"
]  # fmt: skip
ACTIONS: tuple[str, ...] = get_args(Action)
#: Rules of one role, and answers that are remembered for one client.
MAX_RULES = 1000
MAX_REMEMBERED = 4096


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule; it has either `allow` or `deny`."""

    allow: Action | Literal["*"] | tuple[Action, ...] = ()
    deny: Action | Literal["*"] | tuple[Action, ...] = ()
    engine: str | None = None
    topic: str | None = None
    type: str | None = None

    @property
    def actions(self) -> tuple[str, ...]:
        named = self.allow or self.deny
        if isinstance(named, str):
            return ACTIONS if named == "*" else (named,)
        return named

    def fits(self, action: str, engine: str | None, topic: str | None, kind: str | None) -> bool:
        return (
            action in self.actions
            and (self.engine is None or self.engine == engine)
            and _fits(self.topic, topic)
            and _fits(self.type, kind)
        )


def _fits(pattern: str | None, text: str | None) -> bool:
    if pattern is None:
        return True
    if text is None:
        return False
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


class Rights:
    """The rules of one client."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._known: dict[tuple[str, str | None, str | None, str | None], bool] = {}

    def allows(
        self, action: Action, engine: str | None = None, topic: str | None = None, kind: str | None = None
    ) -> bool:
        asked = (action, engine, topic, kind)
        known = self._known.get(asked)
        if known is None:
            known = next((bool(rule.allow) for rule in self.rules if rule.fits(*asked)), False)
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[asked] = known
        return known

    def deciding(
        self, action: Action, engine: str | None = None, topic: str | None = None, kind: str | None = None
    ) -> str:
        """The rule that decides, in words."""
        for number, rule in enumerate(self.rules, 1):
            if rule.fits(action, engine, topic, kind):
                named = {"engine": rule.engine, "topic": rule.topic, "type": rule.type}
                words = [f"{name} {value}" for name, value in named.items() if value is not None]
                named_actions = rule.allow or rule.deny
                actions = named_actions if isinstance(named_actions, str) else ", ".join(named_actions)
                return f"rule {number}: {' '.join(('allow' if rule.allow else 'deny', actions, *words))}"
        return f"no rule allows {action}"

    def may_publish(self, event: Event) -> bool:
        """Whether the client may publish it, as far as each engine that will look at it is concerned."""
        kind = event_type(event)
        return all(self.allows("publish", engine, event.topic, kind) for engine in engines_of(event))

    def why_not_publish(self, event: Event) -> str:
        """What of an event may not be published, and by which rule."""
        kind = event_type(event)
        what = "it" if event.topic is None else f"to topic {event.topic!r}"
        if kind is not None:
            what = f"events of type {kind!r}" + ("" if event.topic is None else f" {what}")
        for engine in engines_of(event):
            if not self.allows("publish", engine, event.topic, kind):
                return f"{what} ({self.deciding('publish', engine, event.topic, kind)})"
        return what

    def may_read(self, event: Event, engine: str | None) -> bool:
        """Whether an event may be handed to the client, for a subscription of that engine."""
        if not self.allows("subscribe", engine, event.topic, event_type(event)):
            return False
        return event.topic != DEAD_LETTERS or self._of_letter(event)[0]

    def _of_letter(self, event: Event) -> tuple[bool, str]:
        """Whether the client may read the event of a dead letter, and the rule that decides: by any engine, as in
        bulk; what was addressed to somebody only who may read such events in bulk."""
        topic, kind = _text(event.headers.get(OF_TOPIC)), _text(event.headers.get(OF_TYPE))
        if OF_TO in event.headers and not self.allows("log"):
            return False, self.deciding("log")
        found = next((engine for engine in SUBSCRIBED if self.allows("subscribe", engine, topic, kind)), "topic")
        return self.allows("subscribe", found, topic, kind), self.deciding("subscribe", found, topic, kind)

    def why_not_read(self, event: Event, engine: str | None) -> str:
        """The rule by which an event is not handed to the client."""
        if event.topic == DEAD_LETTERS and self.allows("subscribe", engine, event.topic, event_type(event)):
            return f"{self._of_letter(event)[1]} (for the event of this dead letter)"
        return self.deciding("subscribe", engine, event.topic, event_type(event))


def event_type(event: Event) -> str | None:
    """The type that the header names."""
    return type_named(event.headers)


def _text(value: Value) -> str | None:
    return None if value is None else str(value)


def engines_of(event: Event) -> list[str]:
    """The engines that look at an event by a field of their own; `constraint` where there is none."""
    present = {"integer": event.integer, "topic": event.topic, "tags": event.tags, "xpath": event.xml}
    return [engine for engine, value in present.items() if value is not None] or ["constraint"]
