"""Menus and questions about them: the XML side of the matching workloads, after the papers' `/menu/softdrinks`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from lxml import etree

from veena.event import Event
from veena.matching.base.engine import Constraint

DISHES = ("softdrinks", "starters", "mains", "desserts", "wines", "teas")
NAMES = ("cola", "lemonade", "soup", "salad", "steak", "pasta", "cake", "ice", "merlot", "assam")
#: About 2 kB and 100 elements.
ITEMS = 16


def menu_document(random: Random, _profiles: int) -> Event:
    items = "".join(_item(random, number) for number in range(ITEMS))
    return Event(xml=f"<menu><place>{random.choice('ABCDE')}</place>{items}</menu>")


def _item(random: Random, number: int) -> str:
    dish = random.choice(DISHES)
    return (
        f'<{dish} id="{number}" size="{random.choice("SML")}"><name>{random.choice(NAMES)}</name>'
        f"<price>{random.uniform(0, 10):.2f}</price><stock>{random.randrange(1000)}</stock>"
        f"<origin><country>{random.choice('ABCDE')}</country></origin></{dish}>"
    )


def menu_xpath(random: Random, _index: int) -> Constraint:
    """`/menu/softdrinks[price>K]`, other dishes, other comparisons; about one in 200 is true of a menu."""
    if random.random() < 0.5:
        return f"/menu/{random.choice(DISHES)}[price>{random.uniform(9.5, 20):.4f}]"
    return f"/menu/{random.choice(DISHES)}[stock<{random.uniform(-900, 50):.4f}]"


def mixed_xpath(random: Random, index: int) -> Constraint:
    """Attributes, any depth, conjunctions, functions, negation in turn; one in 20 with a position and a sum."""
    dish, name = random.choice(DISHES), random.choice(NAMES)
    price, stock = f"{random.uniform(8, 20):.3f}", random.randrange(990, 3000)
    shapes = (
        f"/menu/{dish}[price>{price}]",
        f"/menu/{dish}[@size='{random.choice('SML')}' and price>{price}]",
        f"//{dish}[name='{name}' and stock>{stock}]",
        f"/menu/{dish}[origin/country='{random.choice('ABCDEFGHIJ')}']/stock>{stock}",
        f"/menu/*[stock>{stock}]/name",
        f"/menu/{dish}[price>{price} or stock>{stock}]",
        f"/menu/{dish}[starts-with(name, '{name[:3]}') and price>{price}]",
        f"count(//{dish})>{random.randrange(4, 40)}",
        f"/menu/{dish}[not(price<{price})]",
        f"//{dish}[@size='{random.choice('SML')}']/stock>{stock}",
    )
    if index % 20 == 19:
        return f"/menu/{dish}[{random.randrange(2, 5)}]/price + 1 > {price}"
    return shapes[index % len(shapes)]


def scan_xpath(constraint: Constraint) -> Callable[[Any], bool]:
    """One lxml XPath a profile."""
    compiled = etree.XPath(f"boolean({constraint})")
    return lambda document: bool(compiled(document))


def view_xml(event: Event) -> Any:
    assert isinstance(event.xml, str)
    return etree.fromstring(event.xml)
