"""What a client asks of discovery, and what it is told: the Inputs and Effects of advertisements and queries (DSC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from veena.address import Address, Unit
from veena.errors import RefusalCode

#: A property of an advertisement; a column of an answer may also be None, which is NULL.
Scalar = str | bool | int | float

DEFAULT_LEASE_S = 60.0
DEFAULT_DEADLINE_MS = 2000


@dataclass(frozen=True, slots=True)
class Advertise:
    """A client offers something: properties that SQL can ask for, a document that XPath can, or both (DSC-01).

    `(client id, name)` is its id; advertising under a name again replaces what stood there. It may be found inside the
    client's unit of level `scope` (1 is the cluster). It stands while the client is attached, and after a lost
    connection for `lease_s` more seconds.
    """

    session: int
    name: str
    scope: int
    properties: Mapping[str, Scalar] = field(default_factory=dict)
    xml: str | bytes | None = None
    lease_s: float = DEFAULT_LEASE_S


@dataclass(frozen=True, slots=True)
class Withdraw:
    """A client offers it no longer."""

    session: int
    name: str


@dataclass(frozen=True, slots=True)
class Query:
    """A client asks for advertisements inside its own unit of level `realm` (DSC-02, DSC-03).

    `sql` is `SELECT columns FROM adverts [WHERE ...] [ORDER BY ...] [LIMIT n]`; of an `xpath` the boolean value counts;
    a `constraint` has its columns and its limit beside it (TRD-06). Without `full` the answer holds ids alone (DSC-05).
    """

    session: int
    number: int
    language: Literal["sql", "xpath", "constraint"]
    text: str
    realm: int
    full: bool = True
    namespaces: Mapping[str, str] = field(default_factory=dict)
    deadline_ms: int = DEFAULT_DEADLINE_MS
    #: With a constraint: the properties that are wanted, all if none is named; and how many rows, 0 for no limit.
    columns: tuple[str, ...] = ()
    limit: int = 0


DiscoveryInput = Advertise | Withdraw | Query


@dataclass(frozen=True, slots=True)
class Advertised:
    """The advertisement stands at this broker and on its disk, or is withdrawn there; its controllers hear of it within
    their intervals."""

    session: int
    name: str


@dataclass(frozen=True, slots=True)
class AdvertRefused:
    """It was not taken, or there was none to withdraw; `reason` names field, value and remedy. Nothing changed."""

    session: int
    name: str
    why: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class FoundAdvert:
    """One advertisement of an answer. What the query did not ask for is None."""

    client: str
    name: str
    home: Address
    #: The columns of a SELECT, in its order.
    values: tuple[Scalar | None, ...] | None = None
    #: All properties and the document, for `SELECT *` and XPath.
    properties: Mapping[str, Scalar] | None = None
    xml: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query: each advertisement once, in the order that was asked for, else by client and name."""

    session: int
    number: int
    columns: tuple[str, ...]
    rows: tuple[FoundAdvert, ...]
    #: How many advertisements match, as far as units answered; a LIMIT makes `rows` shorter.
    matched: int
    #: Units whose advertisements are missing, because nobody in them answered in time.
    silent: tuple[Unit, ...]
    #: More matched than an answer may hold.
    truncated: bool
    #: Advertisements on whose documents an XPath costs more than is spent on one: they may match or not.
    undecided: int = 0
    #: Rows of the same answer follow in the next one.
    more: bool = False

    @property
    def complete(self) -> bool:
        return not self.silent and not self.truncated and not self.undecided


@dataclass(frozen=True, slots=True)
class QueryRefused:
    """A query that cannot be asked; `reason` says what is wrong, and where."""

    session: int
    number: int
    why: RefusalCode
    reason: str


DiscoveryEffect = Advertised | AdvertRefused | Answer | QueryRefused
