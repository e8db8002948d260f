"""The matching engines: which profiles an event satisfies, and where it must go for that.

An engine is one module and one line in `ENGINES`. The line names the module and its class; the module also has
`covers(wide, narrow)`, which is true only when every event that satisfies `narrow` satisfies `wide`, and
`cover_form(constraint)`, by which `covering.index` finds those that are worth this question. Engines are
imported when they are first asked for: a broker that never sees XML never loads lxml.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from veena.errors import VeenaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from veena.matching.base.engine import Constraint, Engine, Snapshot
    from veena.matching.covering.form import Form
    from veena.matching.engines.compiled import CompiledCondition
    from veena.matching.xpath.engine import CompiledXPath

#: Name of the engine -> `module:class`. Ordered by the cost of one constraint against one event (MAT-04).
ENGINES: dict[str, str] = {
    "integer": "veena.matching.simple.integer:IntegerEngine",
    "topic": "veena.matching.simple.topic:TopicEngine",
    "tags": "veena.matching.tags.engine:TagsEngine",
    "selector": "veena.matching.engines.selector:SelectorEngine",
    "constraint": "veena.matching.engines.constraint:ConstraintEngine",
    "xpath": "veena.matching.xpath.engine:XPathEngine",
}


class UnknownEngine(VeenaError, ValueError):
    """No engine has this name."""


def names() -> tuple[str, ...]:
    """The names of all engines, the cheapest first."""
    return tuple(ENGINES)


def register(name: str, where: str) -> None:
    """Add an engine of your own; `where` is `package.module:Class`. A name that is taken is refused."""
    module, colon, class_name = where.partition(":")
    if not colon or not module or not class_name:
        raise ValueError(f"engine {name!r} at {where!r}: expected package.module:Class")
    if ENGINES.get(name, where) != where:
        raise ValueError(f"engine {name!r} is {ENGINES[name]} already; choose another name")
    ENGINES[name] = where


def create(name: str) -> Engine:
    """An empty engine."""
    return _engine_class(name)()


def from_snapshot(snapshot: Snapshot) -> Engine:
    """The engine that a snapshot was taken of; raise ValueError when it is none, or not whole."""
    if not isinstance(snapshot, dict):
        raise ValueError(f"a snapshot is a dict of columns, found {type(snapshot).__name__}")
    return _engine_class(str(snapshot.get("engine"))).from_snapshot(snapshot)


def covers(engine_name: str, wide: Constraint, narrow: Constraint) -> bool:
    """Whether every event that satisfies `narrow` surely satisfies `wide`; False when in doubt, never wrongly True."""
    return bool(_module(engine_name).covers(wide, narrow))


def cover_form(engine_name: str, constraint: Constraint) -> Form:
    """What of a constraint is compared with others of its engine (of its topic, where it has one) in an index."""
    found: Form = _module(engine_name).cover_form(constraint)
    return found


def compile_selector(text: str) -> CompiledCondition:
    """A selector on its own: `compile_selector("price > 10").matches({"price": 12})`."""
    from veena.matching.engines import compiled

    return compiled.compile_selector(text)


def compile_constraint(text: str) -> CompiledCondition:
    """A constraint of the Trader language on its own, as `compile_selector`."""
    from veena.matching.engines import compiled

    return compiled.compile_constraint(text)


def compile_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> CompiledXPath:
    """An XPath on its own: `compile_xpath("/a/b[. > 1]").matches("<a><b>2</b></a>")`."""
    from veena.matching.xpath import engine as xpath

    return xpath.compile_xpath(text, namespaces)


@lru_cache(maxsize=64)
def _module(name: str) -> ModuleType:
    if name not in ENGINES:
        raise UnknownEngine(f"matching engine {name!r}: expected one of {', '.join(ENGINES)}")
    return importlib.import_module(ENGINES[name].partition(":")[0])


def _engine_class(name: str) -> type[Engine]:
    return cast("type[Engine]", getattr(_module(name), ENGINES[name].partition(":")[2]))
