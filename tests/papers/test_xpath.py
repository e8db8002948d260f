"""The papers' menu (figure 10) and the XPath profiles over it."""

from __future__ import annotations

import pytest

from veena import Event, matching
from veena.matching.xpath.document import parse_document
from veena.matching.xpath.engine import XPathEngine, compile_xpath

#: MAT-51, FIX-31.
MENU = b"""<?xml version="1.0" encoding="ISO-8859-1"?>
<menu>
  <softdrinks>
    <brand>Minute Maid</brand>
    <fruit>Apple</fruit>
    <source>Brazil</source>
    <company>Coca Cola</company>
    <price>2.90</price>
    <year>2003</year>
  </softdrinks>
</menu>
"""


def test_the_menu_is_read_in_its_encoding() -> None:
    """MAT-51: the ISO-8859-1 declaration is honoured, in bytes; a text that still carries it is read as it is."""
    accented = MENU.replace(b"Minute Maid", b"Caf\xe9")
    assert parse_document(accented).findtext("softdrinks/brand") == "Café"
    assert parse_document(accented.decode("iso-8859-1")).findtext("softdrinks/brand") == "Café"
    assert compile_xpath("/menu/softdrinks[brand = 'Café']").matches(accented)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("/menu/softdrinks[price>1.80]", True),
        ("/menu/softdrinks[price>3]", False),
        ("/menu/softdrinks[price>1 and year<2004]", True),
        ("/menu/softdrinks[brand='Minute Maid']/company", True),
        ("//softdrinks[fruit='Orange']", False),
        ("count(/menu/softdrinks) = 1", True),
        ("contains(/menu/softdrinks/company, 'Cola')", True),
        ("/menu/softdrinks[source='Brazil' or source='Peru']", True),
        ("/menu/softdrinks/child::*[last()][self::year]", True),
        ("//price/following-sibling::year = 2003", True),
        ("not(/menu/softdrinks/sugar)", True),
    ],
)
def test_profiles_over_the_menu(text: str, matches: bool) -> None:
    """MAT-50, MAT-52, FIX-31: the query is run on the entire document; axes, predicates and functions of XPath 1.0."""
    engine = matching.create("xpath")
    engine.add(7, text, 0b100)
    event = Event(xml=MENU)
    assert engine.match(event) == ([7] if matches else [])
    assert engine.destinations(event) == (0b100 if matches else 0)
    assert compile_xpath(text).matches(MENU) is matches


def test_advertisements_are_found_by_query() -> None:
    """DSC-02: an XPath query against stored documents is the same question, asked the other way round."""
    adverts = {
        "printer": "<service><kind>printer</kind><pages>20</pages></service>",
        "plotter": "<service><kind>plotter</kind><pages>2</pages></service>",
    }
    query = compile_xpath("/service[pages >= 10]")
    assert [name for name, document in adverts.items() if query.matches(document)] == ["printer"]


def test_thirty_two_destinations_are_found_without_naming_profiles() -> None:
    """EXP-33: profiles spread evenly over 32 destinations; when all match, as many looks as there are questions."""
    work = []
    for profiles in (320, 3200):
        engine = XPathEngine()
        for profile_id in range(profiles):
            engine.add(profile_id, f"/menu/softdrinks[price>{profile_id / profiles}]", 1 << profile_id % 32)
        before = engine.statistics().evaluations
        assert engine.destinations(Event(xml=MENU)) == (1 << 32) - 1
        work.append(engine.statistics().evaluations - before)
    assert work[0] == work[1] <= 32
