"""Who may do what in a domain: categories of clients, and the rules that they are in the brokers' users files (DIS-04).

A domain has its own users file, which its brokers read: there credentials are checked before anything else, and a
client of one domain is nobody in another (DIS-05). What an admitted client may publish and read is decided by the same
brokers, by rules on the types of events. This module writes these rules, from categories and the dictionary; it checks
nothing at run time, because a check that a client could leave out is none.

| category | may |
|---|---|
| `junior` | publish and read whatever clients may, but nothing guarded: monitoring and collaboration, no steering |
| `senior` | the same, and what is guarded: steering too |
| `application` | what applications may, and offer itself |
| `service` | all types, and look into everything: the services of a domain |

Categories of one's own stand in a file; a new type in the dictionary falls to the right categories by itself, by its
roles and by whether it is guarded (DIS-17). Whatever a rule does not allow is refused. Typed events are decided by the
category alone as long as it stands first among a user's roles, so another role, for topics, opens no side door.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from veena.errors import ConfigError
from veena.runtime.access.rights import Action, Rights, Rule
from veena.services.dictionary.dictionary import Dictionary

ENGINE: Final = "constraint"
#: What a category can be given beside types of events.
MORE: Final[tuple[Action, ...]] = tuple(each for each in get_args(Action) if each not in ("publish", "subscribe"))
MAX_FILE_BYTES = 1 << 20
MAX_CATEGORIES = 100
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Category(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of clients. Types that it does not list follow from the dictionary."""

    description: str = ""
    #: As what the dictionary sees it; `service` is everybody.
    role: Literal["client", "application", "service"] = "client"
    #: Whether it is trusted with guarded types.
    guarded: bool = False
    #: Types of events that it may publish and read, instead of those that its role has.
    publish: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    #: Other actions that brokers know, such as `query`.
    may: tuple[Action, ...] = ("query", "wide", "status")


STANDARD: Final[Mapping[str, Category]] = {
    "junior": Category(description="watches and discusses"),
    "senior": Category(description="steers too", guarded=True, may=("query", "wide", "status", "watch", "explain")),
    "application": Category(
        description="shows itself, obeys and answers",
        role="application",
        guarded=True,
        may=("query", "wide", "status", "advertise", "watch"),
    ),
    "service": Category(
        description="the services of a domain",
        role="service",
        guarded=True,
        may=("query", "wide", "status", "advertise", "watch", "explain", "everything"),
    ),
}


@dataclass(frozen=True, slots=True)
class Powers:
    """What clients of a category may do."""

    publish: tuple[str, ...]
    read: tuple[str, ...]
    may: tuple[str, ...]


class AccessControl:
    """The categories of one domain."""

    def __init__(self, categories: Mapping[str, Category] | None = None, dictionary: Dictionary | None = None) -> None:
        """`categories` come in addition to the standard ones, or replace those of the same name."""
        self.dictionary = dictionary or Dictionary.standard()
        self.categories: Mapping[str, Category] = {**STANDARD, **(categories or {})}
        for name, category in self.categories.items():
            self._check(name, category)

    @classmethod
    def load(cls, path: Path | str | None, dictionary: Dictionary | None = None) -> AccessControl:
        """The categories of a file with tables `[category.NAME]`; the standard ones without one."""
        return cls(None if path is None else _read(Path(path)), dictionary)

    def rules(self, name: str) -> tuple[Rule, ...]:
        """The rules of a category, as its role in a users file has them."""
        category = self._category(name)
        types = [Rule(allow="publish", type=kind) for kind in self._types(category, "publish")]
        types += [Rule(allow="subscribe", type=kind) for kind in self._types(category, "read")]
        closed = (
            # Any type that is not allowed above, also by roles that come after this one.
            Rule(deny=("publish", "subscribe"), type="*"),
            # What a constraint finds is tested by its type again when it is handed over.
            Rule(allow="subscribe", engine=ENGINE),
        )
        return (*types, *closed, *((Rule(allow=category.may),) if category.may else ()))

    def powers(self, name: str) -> Powers:
        """What a category may do: the types that brokers with its rules let pass."""
        rights = Rights(self.rules(name))
        types = self.dictionary.interactions
        return Powers(
            tuple(kind for kind in types if rights.allows("publish", ENGINE, None, kind)),
            tuple(kind for kind in types if rights.allows("subscribe", ENGINE, None, kind)),
            tuple(action for action in MORE if rights.allows(action)),
        )

    def roles_toml(self, names: Iterable[str] | None = None) -> str:
        """The tables `[role.NAME]` of a users file, for these categories or all."""
        tables = []
        for name in self.categories if names is None else names:
            rules = "\n".join(f"  {_toml(rule)}," for rule in self.rules(name))
            tables.append(f"[role.{name}]\nrules = [\n{rules}\n]\n")
        return "\n".join(tables)

    def users_toml(self, users: Mapping[str, tuple[str, str]]) -> str:
        """A whole users file: for each user its category, and what stands for its password or token there."""
        tables = []
        for name, (category, secret) in users.items():
            self._category(category)
            is_token = secret.startswith("sha256:")
            way_in = f"tokens = {json.dumps([secret])}" if is_token else f"password = {json.dumps(secret)}"
            tables.append(f"[user.{json.dumps(name)}]\n{way_in}\nroles = [{json.dumps(category)}]\n")
        return "\n".join([*tables, self.roles_toml(dict.fromkeys(category for category, _ in users.values()))])

    def _types(self, category: Category, verb: Literal["publish", "read"]) -> tuple[str, ...]:
        listed = category.publish if verb == "publish" else category.read
        if listed is not None:
            return listed
        found = []
        for each in self.dictionary.interactions.values():
            roles: tuple[str, ...] = each.publishers if verb == "publish" else each.consumers
            if (category.guarded or not each.is_guarded) and (category.role == "service" or category.role in roles):
                found.append(each.name)
        return tuple(found)

    def _category(self, name: str) -> Category:
        found = self.categories.get(name)
        if found is None:
            remedy = f"there are {', '.join(self.categories)}"
            raise ConfigError("categories", f"category {name!r:.80}", "is not known", remedy)
        return found

    def _check(self, name: str, category: Category) -> None:
        where = f"category.{name}"
        if not _NAME.fullmatch(name):
            raise ConfigError("categories", where, "is no name", "use 1 to 64 letters, digits, _ and -")
        known = self.dictionary.interactions
        for verb, listed in (("publish", category.publish), ("read", category.read)):
            for kind in listed or ():
                if kind not in known:
                    remedy = f"the dictionary has {', '.join(known)}: correct it, or add the type there"
                    raise ConfigError("categories", f"{where}.{verb}", f"type {kind!r:.80} is not known", remedy)
        for action in category.may:
            if action not in MORE:
                remedy = f"there are {', '.join(MORE)}; types of events go into publish and read"
                raise ConfigError("categories", f"{where}.may", f"action {action!r:.80} is not known", remedy)


def _read(path: Path) -> dict[str, Category]:
    file = str(path)
    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(file, "file", f"has {len(data)} bytes", f"at most {MAX_FILE_BYTES} are read")
        raw: dict[str, Any] = tomllib.loads(data.decode())
        found = msgspec.convert(raw, dict[Literal["category"], dict[str, Category]]).get("category", {})
    except OSError as error:
        raise ConfigError(file, "file", f"cannot be read: {error}", "check the path and its rights") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(file, "syntax", str(error), "write it as TOML, in UTF-8") from None
    except msgspec.ValidationError as error:
        remedy = "write [category.NAME] with description, role, guarded, publish, read, may"
        raise ConfigError(file, "category", str(error), remedy) from None
    if len(found) > MAX_CATEGORIES:
        raise ConfigError(file, "category", f"{len(found)} categories", f"at most {MAX_CATEGORIES}")
    return found


def _toml(rule: Rule) -> str:
    """A rule as an inline table; texts of JSON are texts of TOML."""
    shown = {key: getattr(rule, key) for key in ("allow", "deny", "engine", "type")}
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in shown.items() if value) + " }"
