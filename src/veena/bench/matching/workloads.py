"""What the matching engines are measured with: profiles and events drawn from a seed, and the scan to compare with.

A workload draws the constraint of profile number i and an event; it also says how one constraint is tested on its own,
which is what a broker without an index does for each of its profiles. The same seed gives the same workload anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Any

from veena.bench.matching.xml import menu_document, menu_xpath, mixed_xpath, scan_xpath, view_xml
from veena.event import Event
from veena.matching.base.engine import Constraint

#: What a scan looks at: a part of the event, taken out once an event.
Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Workload:
    """Profiles and events for one engine."""

    engine: str
    name: str
    about: str
    #: The constraint of profile number `index`.
    constraint: Callable[[Random, int], Constraint]
    #: An event for this many profiles.
    event: Callable[[Random, int], Event]
    #: One constraint compiled on its own, and the part of an event that it takes.
    scan: Callable[[Constraint], Test]
    view: Callable[[Event], Any]
    #: How many profiles are scanned at most; beyond that the time is scaled. One XPath costs as much as 30 closures.
    scan_profiles_max: int = 100_000
    #: Constraint number n of a form that no other has, for languages in which that takes a compiler.
    novel: Callable[[int], Constraint] | None = None


TAGS = 10
#: The 30 shapes of the workload `sets30`, always the same.
_SHAPES = [tuple(sorted(Random(30 + n).sample(range(TAGS), 2 + n % 4))) for n in range(30)]


def _tags_of(random: Random, tags: tuple[int, ...] | list[int], values: int) -> str:
    return ",".join(f"t{tag}=v{random.randrange(values)}" for tag in tags)


def _any_tags(values: int) -> Callable[[Random, int], Constraint]:
    def draw(random: Random, _index: int) -> Constraint:
        return _tags_of(random, sorted(random.sample(range(TAGS), random.randint(2, 5))), values)

    return draw


def _tags_of_30_sets(random: Random, _index: int) -> Constraint:
    return _tags_of(random, random.choice(_SHAPES), 20)


def _tags_event(values: int) -> Callable[[Random, int], Event]:
    def draw(random: Random, _profiles: int) -> Event:
        return Event(tags={f"t{tag}": f"v{random.randrange(values)}" for tag in range(TAGS)})

    return draw


def scan_tags(constraint: Constraint) -> Test:
    """One closure, written out for the usual lengths: the fairest rival that plain Python has."""
    pairs = [tuple(pair.split("=", 1)) for pair in str(constraint).split(",")]
    if len(pairs) == 2:
        (a, u), (b, v) = pairs
        return lambda tags: tags.get(a) == u and tags.get(b) == v
    if len(pairs) == 3:
        (a, u), (b, v), (c, w) = pairs
        return lambda tags: tags.get(a) == u and tags.get(b) == v and tags.get(c) == w
    if len(pairs) == 4:
        (a, u), (b, v), (c, w), (d, x) = pairs
        return lambda tags: tags.get(a) == u and tags.get(b) == v and tags.get(c) == w and tags.get(d) == x
    (a, u), *rest = pairs
    return lambda tags: tags.get(a) == u and all(tags.get(tag) == value for tag, value in rest)


# --- selectors: five attributes between 0 and 1, one of symbols ---

RANGED = ("a", "b", "c", "d")


def _between(random: Random, name: str, width: float) -> str:
    low = random.uniform(0, 1 - width)
    return f"{name} BETWEEN {low:.6f} AND {low + width:.6f}"


def _between_anywhere(random: Random, name: str, chance: float) -> str:
    """A range that holds any value with the same chance, also those at the edges of 0 to 1."""
    width = chance / (1 - chance)
    low = random.uniform(-width, 1)
    return f"{name} BETWEEN {max(low, 0):.6f} AND {min(low + width, 1):.6f}"


def _equality_and_range(symbols: int, width: float) -> Callable[[Random, int], Constraint]:
    def draw(random: Random, _index: int) -> Constraint:
        return ("quotes", f"sym = 'S{random.randrange(symbols)}' AND {_between(random, 'a', width)}")

    return draw


def _four_ranges(random: Random, _index: int) -> Constraint:
    return ("quotes", " AND ".join(_between(random, name, 0.1) for name in RANGED))


def _one_percent_ranges(random: Random, _index: int) -> Constraint:
    return ("quotes", " AND ".join(_between_anywhere(random, name, 0.01**0.25) for name in RANGED))


def _mixed_selector(random: Random, index: int) -> Constraint:
    """Every second one with OR, LIKE, IN or a NULL test, in turn; the others equality and a range."""
    plain = _equality_and_range(1000, 0.1)(random, index)
    if index % 2:
        return plain
    one, other = (f"S{random.randrange(1000)}" for _ in range(2))
    ranged = _between(random, "b", 0.05)
    kind = index // 2 % 4
    if kind == 0:
        return ("quotes", f"(sym = '{one}' OR sym = '{other}') AND {ranged}")
    if kind == 1:
        return ("quotes", f"sym LIKE '{one[:3]}%' AND {ranged}")
    if kind == 2:
        return ("quotes", f"sym IN ('{one}', '{other}', 'T1') AND {ranged}")
    return ("quotes", f"note IS NOT NULL AND sym = '{one}' AND {ranged}")


def _novel_selector(number: int) -> Constraint:
    return ("quotes", f"x{number} = 'S1' AND y{number} BETWEEN 0.1 AND 0.2 AND (z{number} > 3 OR sym IS NULL)")


def _always_true(_random: Random, index: int) -> Constraint:
    return ("quotes", f"a >= -{index}")


def _quote(symbols: int) -> Callable[[Random, int], Event]:
    def draw(random: Random, _profiles: int) -> Event:
        properties: dict[str, Any] = {name: random.random() for name in RANGED}
        properties["sym"] = f"S{random.randrange(symbols)}"
        if random.random() < 0.5:
            properties["note"] = "n"
        return Event(topic="quotes", properties=properties)

    return draw


def scan_selector(constraint: Constraint) -> Test:
    from veena.matching.condition.closures import compile_condition
    from veena.matching.condition.selector_parser import parse_selector

    assert isinstance(constraint, tuple) and isinstance(constraint[1], str)
    return compile_condition(parse_selector(constraint[1]))


def scan_constraint(constraint: Constraint) -> Test:
    from veena.matching.condition.closures import compile_condition
    from veena.matching.condition.constraint_parser import parse_constraint

    return compile_condition(parse_constraint(str(constraint)))


def _trader(random: Random, _index: int) -> Constraint:
    low = random.uniform(0, 0.9)
    return f"sym == 'S{random.randrange(1000)}' and a >= {low:.6f} and a <= {low + 0.1:.6f}"


# --- topics ---


def _topic(_random: Random, index: int) -> Constraint:
    return f"topic/{index:010d}"


def _topic_event(random: Random, profiles: int) -> Event:
    return Event(topic=f"topic/{random.randrange(profiles):010d}")


def _equal_to(constraint: Constraint) -> Test:
    return lambda value: bool(value == constraint)


def _integer(_random: Random, index: int) -> Constraint:
    # Meetings are not numbered from zero: an odd multiplier spreads them over the four bytes, each once.
    return index * 2_654_435_761 % (1 << 32)


def _integer_event(random: Random, profiles: int) -> Event:
    return Event(integer=random.randrange(profiles) * 2_654_435_761 % (1 << 32))


def _selector(name: str, about: str, constraint: Callable[[Random, int], Constraint], symbols: int = 1000) -> Workload:
    return Workload(
        "selector", name, about, constraint, _quote(symbols), scan_selector, attrgetter("properties"),
        novel=_novel_selector,
    )  # fmt: skip


def _tags(name: str, about: str, constraint: Callable[[Random, int], Constraint], values: int = 20) -> Workload:
    return Workload("tags", name, about, constraint, _tags_event(values), scan_tags, attrgetter("tags"))


def _xpath(name: str, about: str, constraint: Callable[[Random, int], Constraint]) -> Workload:
    return Workload("xpath", name, about, constraint, menu_document, scan_xpath, view_xml, scan_profiles_max=2_000)


WORKLOADS: tuple[Workload, ...] = (
    Workload("integer", "unique", "a number each", _integer, _integer_event, _equal_to, attrgetter("integer")),
    Workload("topic", "unique", "a topic each", _topic, _topic_event, _equal_to, attrgetter("topic")),
    _tags("v20", "10 tags, 20 values, 2-5 constrained", _any_tags(20)),
    _tags("v4", "10 tags, 4 values, 2-5 constrained", _any_tags(4), 4),
    _tags("sets30", "as v20, with 30 sets of tags", _tags_of_30_sets),
    _selector("eq001", "equality + range, 0.01 %", _equality_and_range(1000, 0.1)),
    _selector("eq1", "equality + range, 1 %", _equality_and_range(20, 0.2), 20),
    _selector("rng001", "four ranges, 0.01 %", _four_ranges),
    _selector("u1", "four ranges, 1 % for every event", _one_percent_ranges),
    _selector("mixed", "half with OR, LIKE, IN, NULL tests", _mixed_selector),
    _selector("true", "always true", _always_true),
    Workload(
        "constraint", "eq001", "equality + range, 0.01 %", _trader, _quote(1000), scan_constraint,
        attrgetter("properties"),
    ),
    _xpath("menu", "/menu/softdrinks[price>K] and its kin", menu_xpath),
    _xpath("mixed", "mixed shapes", mixed_xpath),
)  # fmt: skip


def find(engine: str, name: str | None) -> list[Workload]:
    """The workloads of an engine, or the one of this name; raise ValueError naming what there is."""
    found = [workload for workload in WORKLOADS if workload.engine == engine and name in (None, workload.name)]
    if not found:
        known = ", ".join(f"{workload.engine} {workload.name}" for workload in WORKLOADS)
        raise ValueError(f"no workload {name or ''!r} for engine {engine!r}; there are: {known}")
    return found
