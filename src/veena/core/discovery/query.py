"""A query over advertisements: read, put to one advertisement, and its partial answers made into one (DSC-02, DSC-04).

SQL is `SELECT * | name, ... FROM adverts [WHERE condition] [ORDER BY name [ASC|DESC], ...] [LIMIT n]`. The condition is
a selector, with the selector's grammar, NULLs and complaints (docs/SELECTORS.md), so that one language asks for events
and for advertisements. Columns are properties, and beside them what each row of an answer says anyhow (`BUILT_IN`); a
property of such a name counts. An advertisement without a column has NULL there. Values of different types stand in the
order NULL, truth values, numbers, text, and what ties is ordered by client and name: the same items always give the
same answer, whoever held them. An XPath asks for the documents of which its boolean value is true. A constraint is the
Trader Constraint Language over properties, with the parser that subscriptions have (TRD-06, TRD-09); the properties
that it asks for and how many stand beside it. Properties are simple values, so a constraint over a sequence is false of
every advertisement (TRD-02), and it sees no built-in columns: offers of a trader are judged by what they state. SQL and
constraints are conditions and share all that follows.

Sorting and limiting are done where advertisements stand and again at the asker: the first n of all are among the first
n of each, so what travels is bounded by the LIMIT.

The invariant: `merge` over any split of the matches, with any of them repeated, is `merge` over all of them at once.
Rejected: SQLite in the broker (a second dialect with its own NULLs and types, and a scan of what others already hold).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from veena.address import Address
from veena.core.boundary.discovery import FoundAdvert, Scalar
from veena.core.discovery.advertisement import BUILT_IN, Properties, columns_of, document_of, read_properties
from veena.core.discovery.index import AdvertIndex, Sources, sql_sources, xpath_sources
from veena.core.interest.constraint import Want, make_want
from veena.core.wire.discovery import MAX_COLUMNS, MAX_QUERY, Advertisement, FoundRow
from veena.core.wire.header import DECODE_ERRORS
from veena.errors import InvalidConstraint, InvalidEvent, RemoteProtocolError
from veena.matching.base.work import EVENT_WORK, Meter
from veena.matching.condition.closures import compile_condition
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.lexer import MAX_NUMBER_LENGTH
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import SELECTOR_LEXICON, parse_selector
from veena.matching.condition.tree import ALWAYS, Condition, attribute_names
from veena.matching.xpath.document import parse_document
from veena.matching.xpath.engine import compile_xpath
from veena.matching.xpath.syntax import parse
from veena.matching.xpath.template import bind_text, read_constraint

#: The table that a query is over.
TABLE = "ADVERTS"
#: A higher limit is none: there are not so many advertisements.
MAX_LIMIT = (1 << 32) - 1
RESERVED = ("SELECT", "FROM", "WHERE", "ORDER", "BY", "LIMIT", "ASC", "DESC")
EVERYTHING = ("*",)

#: What looking at one advertisement costs whatever is asked, in the units of `matching.base.work`.
LOOK_WORK = 200
#: Characters of a document that are read in the time of one unit; and bytes of properties.
READ_A_UNIT = 2

_encoder = msgspec.msgpack.Encoder(order="sorted")
_columns = msgspec.msgpack.Decoder(tuple[bool | int | float | str | None, ...])


@dataclass(frozen=True, slots=True)
class Select:
    """What a SELECT says."""

    columns: tuple[str, ...]
    condition: Condition
    #: Names, and whether each is descending.
    order: tuple[tuple[str, bool], ...]
    limit: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """What stands beside a constraint: the properties that are wanted, all if none is named, and how many rows."""

    columns: tuple[str, ...] = ()
    #: 0 for no limit.
    limit: int = 0


class AdvertQuery:
    """A query made ready: a SELECT, an XPath, or with a choice a constraint.

    Raises InvalidConstraint with the position of what is wrong.
    """

    def __init__(
        self, is_sql: bool, text: str, namespaces: Mapping[str, str], full: bool, choice: Choice | None = None
    ) -> None:
        if len(text) > MAX_QUERY:
            raise InvalidConstraint(text, MAX_QUERY, f"a query has at most {MAX_QUERY} characters")
        self.full = full
        #: Characters of a condition, and how many of its terms go through whole texts.
        self._length, self._likes = len(text), text.upper().count("LIKE")
        self.columns: tuple[str, ...] = EVERYTHING
        self.order: tuple[tuple[str, bool], ...] = ()
        self.limit: int | None = None
        self._is_sql = is_sql or choice is not None
        self._sees_built_in = False
        #: Of an XPath: the same as a subscription asks it, which is what the worker evaluates.
        self.want: Want | None = None
        if choice is not None or is_sql:
            select = parse_select(text) if choice is None else _chosen(text, choice)
            self.columns, self.order, self.limit = select.columns, select.order, select.limit
            self._check = compile_condition(select.condition)
            self._formula = normal_form(select.condition)
            asked = (*attribute_names(select.condition), *select.columns, *(name for name, _ in select.order))
            self._sees_built_in = choice is None and any(name in BUILT_IN for name in asked)
        else:
            self._xpath = compile_xpath(text, namespaces)
            constraint, names = read_constraint((text, dict(namespaces)))
            self._bound, self._namespaces = bind_text(constraint, names, {}), dict(names)
            self._expression = parse(text)
            self.want = make_want("xpath", (text, dict(namespaces)), 1)

    def sources(self, index: AdvertIndex) -> Sources:
        """Where in the index every match is."""
        if self._is_sql:
            return sql_sources(self._formula, index)
        return xpath_sources(self._bound, self._expression, self._namespaces, index)

    def matches(self, advert: Advertisement, home: Address) -> bool:
        if self._is_sql:
            return self._check(self._columns_of(advert, home))
        return bool(advert.xml) and self._xpath.matches(document_of(advert))

    def judge(self, advert: Advertisement, home: Address) -> tuple[bool | None, int]:
        """Whether an advertisement matches, and about how much work that was; None where an XPath would cost more on
        its document than may be spent on one."""
        if self._is_sql:
            size = len(advert.properties)
            work = LOOK_WORK + self._length + size // READ_A_UNIT * (1 + self._likes)
            return self._check(self._columns_of(advert, home)), work
        work = LOOK_WORK + len(advert.xml) // READ_A_UNIT
        if not advert.xml:
            return False, work
        try:
            root = parse_document(document_of(advert))
        except InvalidEvent:
            return False, work
        meter = Meter(EVENT_WORK)
        meter.begin()
        matched, undecided = self._xpath.match_within(root, len(advert.xml), meter)
        return (None if undecided else bool(matched)), work + meter.spent

    def _columns_of(self, advert: Advertisement, home: Address) -> Properties:
        return columns_of(advert, home) if self._sees_built_in else read_properties(advert.properties)

    def row(self, advert: Advertisement, home: Address) -> FoundRow:
        """What of a match is sent."""
        found = FoundRow(advert.client, advert.name, home, advert.stamp)
        if not self.full and not self.order:
            return found
        columns = self._columns_of(advert, home)
        keys = _encoder.encode([columns.get(name) for name, _ in self.order]) if self.order else b""
        if not self.full:
            return msgspec.structs.replace(found, keys=keys)
        if self.columns != EVERYTHING:
            values = _encoder.encode([columns.get(name) for name in self.columns])
            return msgspec.structs.replace(found, keys=keys, values=values)
        return msgspec.structs.replace(
            found, keys=keys, values=advert.properties, xml=advert.xml, is_text=advert.is_text
        )

    def merge(self, rows: Iterable[FoundRow]) -> list[FoundRow]:
        """Each advertisement once, the latest of it, in order, up to the limit."""
        latest: dict[tuple[str, str], FoundRow] = {}
        for row in rows:
            known = latest.get((row.client, row.name))
            if known is None or (known.stamp, known.home) < (row.stamp, row.home):
                latest[row.client, row.name] = row
        return sorted(latest.values(), key=self.place)[: self.limit]

    def place(self, row: FoundRow) -> tuple[Any, ...]:
        """Where a row stands among others, as a key to sort by."""
        if not self.order:
            return row.client, row.name
        keys = _columns.decode(row.keys)
        ranks = (
            _Falling(_rank(key)) if is_descending else _rank(key)
            for key, (_, is_descending) in zip(keys, self.order, strict=True)
        )
        return (*ranks, row.client, row.name)

    def check(self, row: FoundRow) -> None:
        """Raise RemoteProtocolError unless the row answers this query."""
        try:
            if self.order and len(_columns.decode(row.keys)) != len(self.order):
                raise ValueError(f"{len(self.order)} keys are asked for")
            self.found(row)
        except (*DECODE_ERRORS, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"a row of {row.client!r:.80} is no answer: {error}") from None

    def found(self, row: FoundRow) -> FoundAdvert:
        """A row as the client gets it."""
        if not self.full:
            return FoundAdvert(row.client, row.name, row.home)
        if self.columns != EVERYTHING:
            values = _columns.decode(row.values)
            if len(values) != len(self.columns):
                raise ValueError(f"{len(values)} columns for {len(self.columns)}")
            return FoundAdvert(row.client, row.name, row.home, values=values)
        xml = (row.xml.decode() if row.is_text else row.xml) if row.xml else None
        return FoundAdvert(row.client, row.name, row.home, properties=read_properties(row.values), xml=xml)


class _Falling:
    """A key whose order is turned round."""

    __slots__ = ("_key",)

    def __init__(self, key: tuple[int, Scalar]) -> None:
        self._key = key

    def __lt__(self, other: _Falling) -> bool:
        return other._key < self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Falling) and other._key == self._key

    __hash__ = None  # type: ignore[assignment]  # a key to compare by


def _rank(value: Scalar | None) -> tuple[int, Scalar]:
    """Values of all types in one order."""
    if value is None:
        return 0, False
    return (1 if isinstance(value, bool) else 3 if isinstance(value, str) else 2), value


def _chosen(text: str, choice: Choice) -> Select:
    columns = choice.columns
    if len(columns) > MAX_COLUMNS or len(dict.fromkeys(columns)) < len(columns):
        raise InvalidConstraint(text, 0, f"properties {columns!r:.80}: name at most {MAX_COLUMNS}, each once")
    return Select(columns or EVERYTHING, parse_constraint(text), (), choice.limit or None)


# --- SELECT ---


def parse_select(text: str) -> Select:
    """Read a SELECT; raise InvalidConstraint with the position of what is wrong."""
    return _SelectParser(text).parse()


class _SelectParser:
    """The clauses around a selector; the selector's own parser reads the condition."""

    def __init__(self, text: str) -> None:
        self._text = text
        start = len(text) - len(text.lstrip(" \t\n\r\f"))
        #: Every word with its place; empty where a character is no word.
        self._words = [(match[1] or "", match.start()) for match in SELECTOR_LEXICON.pattern.finditer(text, start)]
        self._at = 0

    def parse(self) -> Select:
        self._expect("SELECT", "a query is SELECT columns FROM adverts, then WHERE, ORDER BY and LIMIT if needed")
        columns = EVERYTHING if self._takes("*") else self._names("a column", MAX_COLUMNS)
        self._expect("FROM", "after the columns; join them by commas, or write * for all")
        if not self._takes(TABLE):
            raise self._error("the only table is adverts: write FROM adverts")
        condition = self._condition() if self._takes("WHERE") else ALWAYS
        order = self._order() if self._takes("ORDER") else ()
        limit = self._limit() if self._takes("LIMIT") else None
        if self._at < len(self._words):
            raise self._error("expected WHERE, ORDER BY, LIMIT or the end, in this order")
        return Select(columns, condition, order, limit)

    def _names(self, what: str, most: int) -> tuple[str, ...]:
        names = [self._name(what)]
        while self._takes(","):
            if len(names) == most:
                raise self._error(f"at most {most} names are taken")
            names.append(self._name(what, names))
        return tuple(names)

    def _name(self, what: str, before: Iterable[str] = ()) -> str:
        word = self._word()
        if word in before:
            raise self._error(f"{word} stands there already; name it once")
        is_name = bool(word) and (word[0].isalpha() or word[0] in "_$" or not word[0].isascii())
        if not is_name or word.upper() in SELECTOR_LEXICON.fixed or word.upper() in RESERVED:
            raise self._error(f"expected the name of {what}")
        self._at += 1
        if self._word() == "(":
            raise self._error("there are no functions here; every answer says how many advertisements match")
        return word

    def _condition(self) -> Condition:
        start = self._place()
        end = next((at for at in range(self._at, len(self._words)) if self._folded(at) in ("ORDER", "LIMIT")), None)
        stop = len(self._text) if end is None else self._words[end][1]
        if not self._text[start:stop].strip():
            raise self._error("expected a condition after WHERE, for example price > 10")
        try:
            # Spaces in front keep every position that of the query.
            condition = parse_selector(" " * start + self._text[start:stop])
        except InvalidConstraint as error:
            raise InvalidConstraint(self._text, error.position, error.reason) from None
        self._at = len(self._words) if end is None else end
        return condition

    def _order(self) -> tuple[tuple[str, bool], ...]:
        self._expect("BY", "after ORDER")
        order: list[tuple[str, bool]] = []
        while not order or self._takes(","):
            if len(order) == MAX_COLUMNS:
                raise self._error(f"at most {MAX_COLUMNS} names are taken")
            name = self._name("a column to sort by", [name for name, _ in order])
            descending = self._takes("DESC")
            if not descending:
                self._takes("ASC")
            order.append((name, descending))
        return tuple(order)

    def _limit(self) -> int:
        word = self._word()
        if not (word.isascii() and word.isdigit()) or len(word) > MAX_NUMBER_LENGTH:
            raise self._error("LIMIT takes a whole number, for example LIMIT 10")
        self._at += 1
        return min(int(word), MAX_LIMIT)

    def _word(self) -> str:
        return self._words[self._at][0] if self._at < len(self._words) else ""

    def _folded(self, at: int) -> str:
        return self._words[at][0].upper()

    def _takes(self, word: str) -> bool:
        if self._word().upper() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str, where: str) -> None:
        if not self._takes(word):
            raise self._error(f"expected {word}: {where}" if word == "SELECT" else f"expected {word} {where}")

    def _place(self) -> int:
        return self._words[self._at][1] if self._at < len(self._words) else len(self._text)

    def _error(self, reason: str) -> InvalidConstraint:
        return InvalidConstraint(self._text, self._place(), reason)
