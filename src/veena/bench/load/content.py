"""What a broker is loaded with: rows of events and interests, drawn from a seed, whatever the broker speaks.

A row says which events are sent in turn and what each client wants of them. Which events are due to whom is worked out
here from the numbers that were drawn, never by an engine: a broker that matches wrongly fails the run. All events of a
row have texts and numbers of one width, so that their frames have one size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from veena.bench.load.generator import body, everything
from veena.event import Event, Value
from veena.matching.base.engine import Constraint

TOPIC = "bench"
BODY = 100
#: Different events of a row: far more than any cache of a broker has room for.
POOL = 20_000
#: Documents are longer.
DOCUMENTS = 5_000
TOPICS = 1_000
#: Clients that share the selectors, tags and XPaths.
CLIENTS = 100
#: Values of each text or number that is compared for equality: 1 % of the events have each.
VALUES = 100
#: The prices of a range: 1 % of them.
PRICES, RANGE = 100.0, 1.0
TAGS = ("Make", "Model", "Color", "Year", "Dealer")
#: Values of a tag; two of the tags are named: 1 % of the events have both.
TAG_VALUES = 10

Want = tuple[str, Constraint]
Due = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """Events in turn, and what each client wants."""

    name: str
    about: str
    events: list[Event]
    wants: list[list[Want]]
    #: Of each client and each of its wants, which events of the pool match it, ascending.
    matching: list[list[Due]]

    @property
    def constraints(self) -> int:
        return sum(map(len, self.wants))

    @property
    def matches(self) -> float:
        """Constraints that match an event, on average."""
        return sum(len(due) for client in self.matching for due in client) / len(self.events)

    def due(self, number: int, once: bool = True) -> Due:
        """What is due to a client: each event `once`, or once for each of its constraints that match it."""
        together = np.concatenate(self.matching[number])
        return np.unique(together) if once else np.sort(together)


@dataclass(frozen=True, slots=True)
class Quotes:
    """Five varying properties, and the numbers that they were drawn from."""

    events: list[Event]
    price: NDArray[np.float64]
    sym: NDArray[np.int64]
    venue: NDArray[np.int64]


def quotes(count: int = POOL, seed: int = 1) -> Quotes:
    chance = Random(seed)
    price, sym, venue, events = [], [], [], []
    for _ in range(count):
        price.append(round(chance.uniform(10, 10 + PRICES), 4))
        sym.append(chance.randrange(VALUES))
        venue.append(chance.randrange(VALUES))
        properties: dict[str, Value] = {
            "price": price[-1],
            "sym": symbol(sym[-1]),
            "venue": venue_number(venue[-1]),
            "qty": chance.randrange(1_000, 60_000),
            "spread": chance.random(),
        }
        events.append(Event(topic=TOPIC, properties=properties, body=body(BODY)))
    return Quotes(events, np.array(price), np.array(sym), np.array(venue))


def symbol(number: int) -> str:
    return f"S{number:02}"


def venue_number(number: int) -> int:
    return 300 + number


def alike() -> Row:
    return _for_one("alike", "equal headers, one topic", [Event(topic=TOPIC, body=body(BODY))], [("topic", TOPIC)])


def topics() -> Row:
    names = [f"{TOPIC}.{number:04}" for number in range(TOPICS)]
    events = [Event(topic=name, body=body(BODY)) for name in names]
    wants: list[Want] = [("topic", name) for name in names]
    matching = [[np.array([number], np.int64) for number in range(TOPICS)]]
    return Row("topics", f"{TOPICS:,} topics in turn, all subscribed", events, [wants], matching)


def varying() -> Row:
    return _for_one("varying", "five varying properties, to a topic subscriber", quotes().events, [("topic", TOPIC)])


def selector() -> Row:
    drawn = quotes()
    limit = 10 + PRICES / 10
    due = np.flatnonzero(drawn.price < limit)
    wants: list[Want] = [("selector", (TOPIC, f"price < {limit:g}"))]
    return Row("selector", "the same events, one selector takes 10 %", drawn.events, [wants], [[due]])


def selectors(count: int, name: str = "") -> Row:
    """Half ranges of prices, half symbols and venues; each takes 1 %."""
    drawn = quotes()
    chance = Random(2)
    order = np.argsort(drawn.price)
    ascending = drawn.price[order]
    by_symbol = [np.flatnonzero(drawn.sym == value) for value in range(VALUES)]
    by_venue = [np.flatnonzero(drawn.venue == value) for value in range(VALUES)]
    wants: list[list[Want]] = [[] for _ in range(CLIENTS)]
    matching: list[list[Due]] = [[] for _ in range(CLIENTS)]
    for number in range(count):
        if number % 2:
            low = round(chance.uniform(10, 10 + PRICES - RANGE), 4)
            high = round(low + RANGE, 4)
            text = f"price BETWEEN {low:.4f} AND {high:.4f}"
            first, last = np.searchsorted(ascending, low, "left"), np.searchsorted(ascending, high, "right")
            due = np.sort(order[first:last])
        else:
            value = chance.randrange(VALUES)
            is_symbol = number % 4 == 0
            text = f"sym = '{symbol(value)}'" if is_symbol else f"venue = {venue_number(value)}"
            due = by_symbol[value] if is_symbol else by_venue[value]
        wants[number // 2 % CLIENTS].append(("selector", (TOPIC, text)))
        matching[number // 2 % CLIENTS].append(due)
    about = f"{count:,} selectors of {CLIENTS} clients, 1 % each"
    return Row(name or f"selectors-{count}", about, drawn.events, wants, matching)


def tags(count: int = 1_000) -> Row:
    """Two of five tags are named, the others may have any value."""
    chance = Random(3)
    drawn = np.array([[chance.randrange(TAG_VALUES) for _ in TAGS] for _ in range(POOL)])
    events = [
        Event(tags={tag: f"{tag}{value}" for tag, value in zip(TAGS, row, strict=True)}, body=body(BODY))
        for row in drawn.tolist()
    ]

    def draw() -> tuple[Want, Due]:
        named = dict.fromkeys(TAGS, "*")
        is_due = np.ones(POOL, bool)
        for place in chance.sample(range(len(TAGS)), 2):
            value = chance.randrange(TAG_VALUES)
            named[TAGS[place]] = f"{TAGS[place]}{value}"
            is_due &= drawn[:, place] == value
        return ("tags", ",".join(f"{tag}={value}" for tag, value in named.items())), np.flatnonzero(is_due)

    return _spread("tags", f"{count:,} tag profiles of {CLIENTS} clients, 1 % each", events, count, draw)


def xpaths(count: int = 1_000) -> Row:
    """Half attributes that are equal, half ranges."""
    chance = Random(4)
    skus = np.array([chance.randrange(VALUES) for _ in range(DOCUMENTS)])
    prices = np.array([round(chance.uniform(10, 99), 2) for _ in range(DOCUMENTS)])
    width = 0.89
    documents = [
        f'<order no="{number:06}"><item sku="{symbol(int(sku))}" price="{price:05.2f}"/><note>as ordered</note></order>'
        for number, (sku, price) in enumerate(zip(skus, prices, strict=True))
    ]
    events = [Event(xml=document, body=body(BODY)) for document in documents]

    def draw() -> tuple[Want, Due]:
        if chance.random() < 0.5:
            value = chance.randrange(VALUES)
            return ("xpath", f"/order/item[@sku='{symbol(value)}']"), np.flatnonzero(skus == value)
        low = round(chance.uniform(10, 98), 2)
        high = round(low + width, 2)
        is_due = (prices > low) & (prices < high)
        return ("xpath", f"/order/item[@price>{low:.2f} and @price<{high:.2f}]"), np.flatnonzero(is_due)

    return _spread("xpath", f"{count:,} XPaths of {CLIENTS} clients, 1 % each", events, count, draw)


def _for_one(name: str, about: str, events: list[Event], wants: list[Want]) -> Row:
    return Row(name, about, events, [wants], [[everything(len(events))]])


def _spread(name: str, about: str, events: list[Event], count: int, draw: Callable[[], tuple[Want, Due]]) -> Row:
    wants: list[list[Want]] = [[] for _ in range(CLIENTS)]
    matching: list[list[Due]] = [[] for _ in range(CLIENTS)]
    for number in range(count):
        want, due = draw()
        wants[number % CLIENTS].append(want)
        matching[number % CLIENTS].append(due)
    return Row(name, about, events, wants, matching)


#: The rows of a broker's table, in its order; the dearest comes last.
ROWS: dict[str, Callable[[], Row]] = {
    "alike": alike,
    "topics": topics,
    "varying": varying,
    "selector": selector,
    "selectors-1000": lambda: selectors(1_000),
    "tags": tags,
    "xpath": xpaths,
    "selectors-10000": lambda: selectors(10_000),
}


def foreign(kind: str, count: int) -> list[Want]:
    """Constraints that match no event of any row, although they look alike."""
    chance = Random(5)
    found: list[Want] = []
    for number in range(count):
        low = round(chance.uniform(1_000, 2_000), 4)
        made: dict[str, Constraint] = {
            "topic": f"foreign.{number:06}",
            "selector": (TOPIC, f"price BETWEEN {low:.4f} AND {low + RANGE:.4f}"),
            "tags": ",".join((f"Make=foreign{number:06}", *(f"{tag}=*" for tag in TAGS[1:]))),
            "integer": 1_000_000 + number,
            "xpath": f"/order/item[@sku='foreign{number:06}']",
            "constraint": f"price > {low:.4f} and sym == 'foreign{number:06}'",
        }
        found.append((kind, made[kind]))
    return found


FOREIGN_KINDS = ("topic", "selector", "tags", "integer", "xpath", "constraint")
