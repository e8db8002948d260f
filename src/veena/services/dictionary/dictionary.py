"""The event dictionary: which types of events a collaboratory has, and what each contains (DIC-01, DIS-17).

It is data, not code: a TOML file (`file`) or a JSON Schema file (`schema`), read by who publishes
and by who wants to know what can be asked for. A new type of information is an entry; brokers, matching and services
stay as they are, because to them it is an event with headers and properties like any other.

An event is checked by its publisher, before it goes out. The mesh carries what it is given: whether a client may
publish a type at all is the broker's decision (`domain.categories`); whether the event is well made is the
dictionary's.

An entry is found by domain, type and name; an entry for every domain, or for every name, stands in where there is no
closer one. So an application can narrow a standard type for itself, and give each event a name of its own (DIC-06).

Rejected: brokers that check. Every broker of every site would need every application's dictionary, and a new type of
information a change at all of them, which is what DIS-17 rules out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

from veena.errors import ConfigError, InvalidEvent
from veena.services.dictionary.entry import ANY, EventType, Field, Interaction, Role
from veena.services.dictionary.file import parse_toml, read_entries
from veena.services.dictionary.reader import MAX_ENTRIES, Entries
from veena.services.structured import StructuredEvent

__all__ = ["Dictionary", "EventType", "Field", "Interaction", "Role"]

#: Names that a message lists at most.
SHOWN = 12


class Dictionary:
    """The types of events that there are."""

    def __init__(self, interactions: Iterable[Interaction], entries: Iterable[EventType]) -> None:
        self._interactions = {each.name: each for each in interactions}
        self._entries = {(each.domain, each.type, each.name): each for each in entries}

    @classmethod
    def standard(cls) -> Dictionary:
        """The built-in types."""
        return _standard()

    @classmethod
    def load(cls, path: Path | str) -> Dictionary:
        """Read a dictionary from a TOML or JSON Schema file; raise ConfigError naming line, entry and remedy."""
        return cls.standard().extended(read_entries(Path(path)))

    def extended(self, found: Entries) -> Dictionary:
        """This dictionary with the entries of a file, which replace those of the same domain, type and name."""
        base = self if found.extends == "standard" else Dictionary((), ())
        interactions = {**base._interactions, **{each.name: each for each in found.interactions}}
        entries = dict(base._entries)
        for place, given in found.entries.items():
            known = interactions.get(given.type)
            if known is None:
                interactions[given.type] = known = Interaction(given.type)
            entries[given.domain, given.type, given.name] = _with_publishers(given, known, place, found)
        if len(entries) > MAX_ENTRIES:
            raise ConfigError(found.file, "event", f"{len(entries)} entries", f"at most {MAX_ENTRIES}: split it")
        return Dictionary(interactions.values(), entries.values())

    # --- what there is ---

    @property
    def interactions(self) -> Mapping[str, Interaction]:
        """The types of events by their names: Monitoring, Steering, ..."""
        return dict(self._interactions)

    @property
    def entries(self) -> tuple[EventType, ...]:
        return tuple(self._entries.values())

    def entry(self, domain: str, type: str, name: str) -> EventType:  # noqa: A002 (the fixed header calls it so)
        """The closest entry; raise InvalidEvent naming what is not known."""
        for place in ((domain, type, name), (ANY, type, name), (domain, type, ANY), (ANY, type, ANY)):
            found = self._entries.get(place)
            if found is not None:
                return found
        label = f"event {domain}/{type}/{name}"
        if type not in self._interactions:
            raise InvalidEvent(
                f"{label}: type_name {type!r} is not in the dictionary; it has {_listed(self._interactions)}:"
                " correct it, or add an entry for it to the dictionary's file"
            )
        names = dict.fromkeys(each.name for each in self.entries if each.type == type and each.domain in (domain, ANY))
        raise InvalidEvent(
            f"{label}: event_name {name!r} is not in the dictionary; type {type} has {_listed(names) or 'none'} for"
            f" {domain}: correct it, or add an entry for it to the dictionary's file"
        )

    # --- what may be published ---

    def check(self, event: StructuredEvent, role: Role) -> StructuredEvent:
        """The event with its entry's quality filled in; raise InvalidEvent naming type, field, value and remedy."""
        entry = self.entry(event.domain, event.type, event.name)
        if role not in entry.publishers:
            who = " and ".join(f"{each}s" for each in entry.publishers) or "nobody"
            raise InvalidEvent(
                f"event {event.label}: it was given by {_a(role)}, but such events are published by {who};"
                " publish another type, or as one of these"
            )
        entry.check(event.fields, event.label)
        return replace(event, qos={**entry.qos, **event.qos}) if entry.qos else event


def _with_publishers(given: EventType, known: Interaction, place: str, found: Entries) -> EventType:
    """An entry without publishers of its own has those of its type; it cannot have more (DIC-10)."""
    if place not in found.with_publishers:
        return replace(given, publishers=known.publishers)
    for role in given.publishers:
        if role not in known.publishers:
            raise found.fault(
                f"{place}.{'x-publishers' if place.startswith('$') else 'publishers'}",
                f"{role!r} does not publish {given.type} events",
                f"use {', '.join(known.publishers) or 'none'}, or declare the type's publishers as [type.{given.type}]",
            )
    return given


def _a(role: Role) -> str:
    return "an application" if role == "application" else "a client"


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


@lru_cache(maxsize=1)
def _standard() -> Dictionary:
    text = resources.files("veena.services").joinpath("standard.toml").read_text(encoding="utf-8")
    return Dictionary((), ()).extended(parse_toml(text, "standard.toml"))
