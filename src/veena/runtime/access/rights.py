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

Subscriptions of engines without topics are allowed or denied as such; events that such a subscription gets are then
tested by their own topic and type, so a denied topic is not read by way of another engine.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from veena.event import Event

Action = Literal[
    "publish", "subscribe", "wide", "everything", "advertise", "query", "watch", "explain", "status", "move", "log"
]  # fmt: skip
ACTIONS: tuple[str, ...] = get_args(Action)
#: Rules of one role, and answers that are remembered for one client.
MAX_RULES = 1000
MAX_REMEMBERED = 4096
TYPE = "type_name"


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
        return self.allows("subscribe", engine, event.topic, event_type(event))

    def why_not_read(self, event: Event, engine: str | None) -> str:
        """The rule by which an event is not handed to the client."""
        return self.deciding("subscribe", engine, event.topic, event_type(event))


def event_type(event: Event) -> str | None:
    """The type that the header names, with or without the sign that constraints put before it.

    An event may have both. Then it is the one with the sign, as for the engine `constraint`: were it the other one, an
    event of a denied type could be published under the name of an allowed one.
    """
    marked = "$" + TYPE
    kind = event.headers[marked] if marked in event.headers else event.headers.get(TYPE)
    return kind if isinstance(kind, str) else None


def engines_of(event: Event) -> list[str]:
    """The engines that look at an event by a field of their own; `constraint` where there is none."""
    present = {"integer": event.integer, "topic": event.topic, "tags": event.tags, "xpath": event.xml}
    return [engine for engine, value in present.items() if value is not None] or ["constraint"]
