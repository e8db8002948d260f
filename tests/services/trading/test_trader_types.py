"""Service types and offers: what must be said, what may, and what is too much."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from veena.client.questions import Found as FoundAdvert
from veena.errors import ConfigError, InvalidConstraint, InvalidEvent
from veena.services.trading.offers import (
    MAX_OFFER_BYTES,
    Offer,
    advertised,
    columns_for,
    constraint_for,
    make_offer,
    offer_of,
)
from veena.services.trading.service_types import APPLICATION, Mode, PropertyType, ServiceType, ServiceTypes
from veena.services.trading.service_types_file import load_service_types


def simulations() -> ServiceTypes:
    types = ServiceTypes.standard()
    grid = PropertyType("grid", ("complex",))
    types.add(
        ServiceType(
            "Simulation", (PropertyType("cells", ("int",), Mode.MANDATORY), PropertyType("any"), grid), APPLICATION
        )
    )
    return types


def test_a_service_type_is_an_interface_with_property_types() -> None:
    """TRD-01, TRD-02: the channel's interface, and properties with types and modes, inherited ones first."""
    types = simulations()
    assert types.of("Simulation").interface.startswith("veena:channel")
    found = types.properties("Simulation")
    assert list(found)[:2] == ["name", "network"] and found["network"].mode is Mode.MANDATORY
    assert types.line("Simulation") == ("Simulation", APPLICATION)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"network": 1, "cells": 1}, "'name'"),
        ({"name": "x", "cells": 1}, "'network'"),
        ({"name": "x", "network": 1}, "'cells'"),
        ({"name": "x", "network": "1", "cells": 1}, "'network' of type 'Simulation' is '1': expected int"),
        ({"name": "x", "network": True, "cells": 1}, "'network'"),
        ({"name": "x", "network": 1, "cells": 1.5}, "'cells'"),
        ({"name": "x", "network": 1, "cells": 1, "any": [1]}, "'any'"),
        ({"name": "x", "network": 1, "cells": 1, "load": float("nan")}, "'load'"),
        ({"name": "x", "network": 1, "cells": 1, "load": b"x"}, "'load'"),
        ({"name": "x", "network": 1, "cells": 1, "$type": 1}, "'$type'"),
        ({"name": "x", "network": 1, "cells": 1, "grid": 3}, "'grid'"),
    ],
)
def test_an_offer_that_lacks_or_bends_a_property_is_refused(properties: dict[str, object], words: str) -> None:
    """TRD-02, TRD-03, TRD-05: the property is named."""
    with pytest.raises(InvalidEvent) as caught:
        simulations().check("Simulation", properties)
    assert words in str(caught.value)


def test_own_properties_and_complex_ones_are_taken() -> None:
    given = {"name": "x", "network": 1, "cells": 1, "load": 0.5, "grid": {"n": [1, 2]}, "owner": "a", "any": True}
    simulations().check("Simulation", given)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ServiceType("a b"), "letters"),
        (ServiceType("A", base="B"), "'B' is not known"),
        (ServiceType("A", (PropertyType("x", ("set",)),)), "'set'"),
        (ServiceType("A", (PropertyType("x y"),)), "letters"),
        (ServiceType("A", (PropertyType("network", ("int",)),), APPLICATION), "mandatory"),
        (ServiceType("A", (PropertyType("category", ("int",)),), APPLICATION), "only text"),
        (ServiceType(APPLICATION, base="Simulation"), "below"),
    ],
)
def test_a_type_that_contradicts_itself_or_its_base_is_refused(kind: ServiceType, words: str) -> None:
    """TRD-01."""
    with pytest.raises(InvalidEvent) as caught:
        simulations().add(kind)
    assert words in str(caught.value)


def test_a_constraint_over_a_complex_property_is_an_error_with_its_place() -> None:
    """TRD-02: only simple types can be used in constraints."""
    types = simulations()
    with pytest.raises(InvalidConstraint) as caught:
        types.check_constraint("Simulation", "cells > 3 and 1 in grid")
    assert caught.value.position == 19 and "grid" in caught.value.reason
    types.check_constraint("Simulation", "cells > 3")
    types.check_constraint("Unheard", "1 in grid")


def test_an_offer_is_an_advertisement_and_back() -> None:
    """TRD-05, TRD-06: with the properties that were asked for and no others; complex ones come along."""
    given = {"name": "heat", "network": 258, "cells": 9, "grid": {"n": [1, 2]}}
    offer = make_offer("Simulation", "heat", 258, given, "alice")
    assert (offer.network, offer.application, offer.reference) == (258, "heat", "258/heat")
    told = advertised(offer, ("Simulation", APPLICATION))
    assert offer_of(FoundAdvert("alice", "heat", (0, 1), properties=told), ()) == offer
    columns = columns_for(["cells", "grid", "owner"])
    values = tuple(told.get(column) for column in columns)
    chosen = offer_of(FoundAdvert("alice", "heat", (0, 1), values=values), columns)
    assert chosen == Offer("Simulation", "258/heat", {"cells": 9}, "alice", "heat", {"grid": {"n": [1, 2]}})
    assert (
        constraint_for(APPLICATION, "cells > 3 or exist x", 7)
        == "$Application and network == 7 and (cells > 3 or exist x)"
    )


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"$service_type": 1},
        {"$service_type": "A", "$reference": "x/heat"},
        {"$service_type": "A", "$reference": "1/"},
    ],
)
def test_what_others_advertise_is_no_offer(properties: dict[str, str | int]) -> None:
    assert offer_of(FoundAdvert("bob", "x", (0, 1), properties=dict(properties)), ()) is None


def test_an_entry_is_metadata_of_less_than_two_kilobytes() -> None:
    """DIS-12: what is larger is refused with its size; a usual one is far below."""
    usual = make_offer(APPLICATION, "heat", 1, {"name": "heat", "network": 1, "category": "junior"}, "alice")
    assert len(msgspec.msgpack.encode(advertised(usual, (APPLICATION,)))) < 200
    large = make_offer(APPLICATION, "heat", 1, {"name": "heat", "network": 1, "about": "x" * 2000}, "alice")
    with pytest.raises(InvalidEvent, match=f"below {MAX_OFFER_BYTES}"):
        advertised(large, (APPLICATION,))
    with pytest.raises(InvalidEvent, match="'table'"):
        advertised(make_offer(APPLICATION, "h", 1, {"table": [object()]}, "alice"), (APPLICATION,))


FILE = """
[type.CFD]
base = "Application"
properties.cells = { types = ["int"], mandatory = true }
properties.mesh = { types = ["complex"] }

[type.Wave]
base = "CFD"
"""


def test_types_come_from_a_file(tmp_path: Path) -> None:
    """DIS-17, TRD-01: a new type needs no code."""
    file = tmp_path / "types.toml"
    file.write_text(FILE)
    types = load_service_types(file)
    assert types.line("Wave") == ("Wave", "CFD", APPLICATION)
    types.check("Wave", {"name": "x", "network": 1, "cells": 3})
    with pytest.raises(InvalidEvent, match="'cells'"):
        types.check("Wave", {"name": "x", "network": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[type.CFD", "types.toml"),
        ("[type.CFD]\nbases = 1", "bases"),
        ("[type.CFD]\nbase = 'X'", "its base 'X' is not known"),
        ("[type.CFD]\nproperties.x = { types = ['set'] }", "'set'"),
        ("[kind.CFD]", "kind"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "types.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_service_types(file)
    assert words in str(caught.value)
    with pytest.raises(ConfigError, match="none"):
        load_service_types(tmp_path / "none.toml")
