"""The cost of one stored constraint against one event, engine by engine: integer, string, tags, SQL, XPath (MAT-04).

The trader's constraints are measured with them, and have no place in the order: the papers do not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

from veena import matching
from veena.bench.matching.measure import per_event_us
from veena.event import Event
from veena.matching.base.engine import Constraint

MENU = "<menu><softdrinks><name>cola</name><price>2.50</price></softdrinks></menu>"

#: Engine, its one constraint, and a new event that satisfies it: new, so that no hash of a text is remembered.
SINGLE: tuple[tuple[str, Constraint, Callable[[int], Event]], ...] = (
    ("integer", 1234, lambda _: Event(integer=1234)),
    ("topic", "sports/soccer/uefa/2004", lambda _: Event(topic="".join(["sports/soccer/", "uefa/2004"]))),
    ("tags", "Make=Ford,Model=*,Color=Red", lambda n: Event(tags={"Make": "Ford", "Model": f"M{n}", "Color": "Red"})),
    (
        "selector",
        ("quotes", "sym LIKE 'IB%' AND price > 10"),
        lambda n: Event(topic="quotes", properties={"price": 12.5 + n, "sym": "IBM"}),
    ),
    (
        "constraint",
        "'IB' ~ sym and price > 10",
        lambda n: Event(topic="quotes", properties={"price": 12.5 + n, "sym": "IBM"}),
    ),
    ("xpath", "/menu/softdrinks[price>1.80]", lambda _: Event(xml=MENU)),
)


#: Outside the order of the papers.
UNORDERED = "constraint"


def cost_order(events: int = 1_000, passes: int = 15) -> list[tuple[str, float]]:
    """(engine, median microseconds an event), in the order that the papers expect to be the order of cost."""
    engines = []
    for name, constraint, event in SINGLE:
        engine = matching.create(name)
        engine.add(0, constraint, 1)
        engines.append((name, engine, event, [0.0] * passes))
    for number in range(passes):
        for _, engine, event, times in engines:
            times[number] = per_event_us(engine.match, [event(index) for index in range(events)])
    return [(name, median(times)) for name, _, _, times in engines]


def out_of_order(costs: list[tuple[str, float]]) -> list[str]:
    """The places where a later engine was cheaper than the one before."""
    return [
        f"{cheaper} at {low:.3g} us is below {dearer} at {high:.3g} us"
        for (dearer, high), (cheaper, low) in pairwise([cost for cost in costs if cost[0] != UNORDERED])
        if low < high
    ]
