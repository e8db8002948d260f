"""Advertisements and queries for tests: made by hand, and drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from veena.address import Address
from veena.core.boundary.discovery import Advertise, Scalar
from veena.core.boundary.inputs_effects import Effect, Store, Stored
from veena.core.broker import Broker
from veena.core.discovery.advertisement import make_advert
from veena.core.discovery.query import AdvertQuery, Choice
from veena.core.discovery.store import AdvertStore
from veena.core.wire.discovery import Advertisement

LEVELS = 4
HOME: Address = (0, 0, 0, 1)
OTHER: Address = (0, 0, 0, 2)


def advert(
    name: str,
    properties: Mapping[str, Scalar] | None = None,
    xml: str | bytes | None = None,
    *,
    client: str = "alice",
    scope: int = LEVELS,
    now_ns: int = 0,
) -> Advertisement:
    return make_advert(Advertise(1, name, scope, properties or {}, xml), client, LEVELS, now_ns)


def sql(text: str, full: bool = True) -> AdvertQuery:
    return AdvertQuery(True, text, {}, full)


def xpath(text: str, namespaces: Mapping[str, str] | None = None, full: bool = True) -> AdvertQuery:
    return AdvertQuery(False, text, namespaces or {}, full)


def constraint(text: str, columns: tuple[str, ...] = (), limit: int = 0, full: bool = True) -> AdvertQuery:
    return AdvertQuery(True, text, {}, full, Choice(columns, limit))


def names(store: AdvertStore, query: AdvertQuery) -> list[str]:
    """What is found, sorted by name."""
    return sorted(found.name for _, found in store.find(query, lambda home, found: True))


def scanned(adverts: list[Advertisement], query: AdvertQuery) -> list[str]:
    """What looking at all of them finds."""
    return sorted(each.name for each in adverts if query.matches(each, HOME))


def synced(broker: Broker, effects: list[Effect], now_ns: int = 0) -> list[Effect]:
    """What follows when the disk has taken what was to be written."""
    tickets = [each.ticket for each in effects if isinstance(each, Store)]
    return [told for ticket in tickets for told in broker.handle(Stored(ticket), now_ns)]


# --- drawn ---

_texts = st.sampled_from(["", "a", "b", "IBM", "1", "2.5", "x" * 200])
_values = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.0, 1e300]), _texts)
properties = st.dictionaries(st.sampled_from([*"pqrs", "name"]), _values, max_size=4)

_leaves = st.sampled_from(["", "1", "2", "2.0", "a", "b", " 1 ", "-1", "y" * 200])


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> str:
    """Small documents of few names, with attributes, and the same name at several depths."""
    name = draw(st.sampled_from("abc"))
    attributes = "".join(f' {key}="{draw(_leaves)}"' for key in draw(st.lists(st.sampled_from("kl"), unique=True)))
    inner = draw(_leaves)
    if depth and draw(st.booleans()):
        inner += "".join(draw(st.lists(elements(depth=depth - 1), max_size=3)))
    return f"<{name}{attributes}>{inner}</{name}>"


_numbers = st.sampled_from(["-1", "0", "1", "2", "2.5", "1.0"])
_quoted = st.sampled_from(["'a'", "'b'", "''", "'IBM'", "'1'", "'" + "x" * 200 + "'"])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """Conditions over the properties of `properties`, and over what every advertisement has."""
    name = draw(st.sampled_from([*"pqrs", "name", "home"]))
    kind = draw(st.integers(0, 8 if depth else 5))
    if kind == 0:
        return f"{name} {draw(st.sampled_from(['=', '<>']))} {draw(st.one_of(_numbers, _quoted))}"
    if kind == 1:
        return f"{name} {draw(st.sampled_from(['<', '<=', '>', '>=']))} {draw(_numbers)}"
    if kind == 2:
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(_numbers)} AND {draw(_numbers)}"
    if kind == 3:
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({draw(_quoted)}, {draw(_quoted)})"
    if kind == 4:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 5:
        return draw(
            st.sampled_from(
                [
                    f"{name} LIKE 'I%'",
                    f"{name} LIKE 'ad1%'",
                    f"{name} = '0.0.0.1'",
                    f"{name} LIKE '%'",
                    f"{name} LIKE 'xx%x'",
                    f"{name} LIKE '!I%' ESCAPE '!'",
                    f"{name} = TRUE",
                    f"{name} + 1 > 2",
                    f"{name} NOT LIKE '_'",
                ]
            )
        )
    if kind == 6:
        return f"NOT ({draw(conditions(depth=depth - 1))})"
    joint = "AND" if kind == 7 else "OR"
    return f"({draw(conditions(depth=depth - 1))}) {joint} ({draw(conditions(depth=depth - 1))})"


@st.composite
def trader_conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """The same in the Trader Constraint Language."""
    name: str = draw(st.sampled_from([*"pqrs", "name"]))
    kind = draw(st.integers(0, 7 if depth else 4))
    literal = draw(st.one_of(_numbers, _quoted, st.sampled_from(["TRUE", "FALSE"])))
    if kind <= 1:
        return f"{name} {draw(st.sampled_from(['==', '!=', '<', '<=', '>', '>=']))} {literal}"
    if kind == 2:
        return f"{draw(st.sampled_from(['', 'not ']))}exist {name}"
    if kind == 3:
        return f"{name} in ({draw(_quoted)}, {draw(_quoted)})"
    if kind == 4:
        return draw(st.sampled_from([f"'B' ~ {name}", f"1 in {name}", f"{name} + 1 > 2", f"{name} == q", name]))
    if kind == 5:
        return f"not ({draw(trader_conditions(depth=depth - 1))})"
    joint = "and" if kind == 6 else "or"
    return f"({draw(trader_conditions(depth=depth - 1))}) {joint} ({draw(trader_conditions(depth=depth - 1))})"


@st.composite
def paths(draw: st.DrawFn) -> str:
    """XPaths of many shapes over the documents of `elements`."""
    steps = "".join(
        draw(st.sampled_from(["/", "//"])) + draw(st.sampled_from(["a", "b", "c", "*"]))
        for _ in range(draw(st.integers(1, 3)))
    )
    literal = draw(st.sampled_from(["1", "2", "'a'", "'1'", "''", "'" + "y" * 200 + "'"]))
    operator = draw(st.sampled_from(["=", "!=", "<", ">="]))
    return draw(
        st.sampled_from(
            [
                steps,
                f"{steps}[{operator_test(operator, literal)}]",
                f"{steps}[b {operator} {literal}]",
                f"{steps}[@k {operator} {literal} and c]",
                f"{steps}[not(b = {literal})]",
                f"{steps}[b = {literal} or @l]",
                f"{steps}/text() = {literal}",
                f"{steps}[2]",
                f"{steps}[b {operator} {literal}][1]",
                f"{steps}[{literal} {operator} @k][last()]",
                f"{steps}[1][not(b) or @k = {literal}]",
                f"count({steps}) > 1",
                f"string({steps}) = {literal}",
                f"contains({steps}, 'a')",
                f"{steps} | /c",
                f"{steps}/@* = {literal}",
                f"not({steps})",
                f"{steps}/.. and /a",
                f"{steps}/following-sibling::b",
            ]
        )
    )


def operator_test(operator: str, literal: str) -> str:
    return f". {operator} {literal}"
