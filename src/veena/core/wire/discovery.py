"""The control frames of discovery: what brokers say to each other about advertisements and queries (DSC).

All of them travel inside `Routed`, to a broker or to whichever broker of a unit is reached first; one that comes over a
link by itself has no place there. Values of many types (properties, columns) are msgpack inside bytes: their bound is
then one number, and who only passes a frame on never looks at them. `discovery.advertisement` and `discovery.query`
read and check them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from veena.address import MAX_LEVELS
from veena.core.wire.control import U8, U32, U63, ClientId, Frame, Level, UnitPath
from veena.core.wire.interest import Count

#: A document of an advertisement: a description, not the thing described. The whole of one fits a page.
MAX_ADVERT_XML = 64 * 1024
#: All properties of an advertisement as msgpack.
MAX_ADVERT_PROPERTIES = 16 * 1024
MAX_ADVERT_NAME = 255
#: Advertisements, removals or rows in one frame, and about as many bytes: a page of these crosses a link in
#: milliseconds, so that heartbeats behind it do not wait.
MAX_PAGE_ITEMS = 1024
MAX_PAGE_BYTES = 128 * 1024
#: Homes in one frame: about 20 KiB.
MAX_MARKS = 512
#: Units that are named as silent; where there are more, the larger unit is named instead.
MAX_SILENT = 64
#: As long as any selector or XPath may be (`condition_lexer.MAX_TEXT_LENGTH`).
MAX_QUERY = 16 * 1024
MAX_NAMESPACES = 32
#: The longest patience with which somebody may ask.
MAX_DEADLINE_MS = 60_000
#: Pages that one controller sends for one query; what is beyond is counted and not sent.
MAX_ANSWER_PAGES = 16
#: Columns of one query: as many as an advertisement has properties.
MAX_COLUMNS = 64

AdvertName = Annotated[str, Meta(min_length=1, max_length=MAX_ADVERT_NAME)]
#: How far: 1 is the cluster, the number of levels the whole system.
Reach = Annotated[int, Meta(ge=1, le=MAX_LEVELS)]
#: Properties; or columns, with a byte for each that is NULL and with what is no property: client, name and home.
MAX_BUILT_IN = 4096
Values = Annotated[bytes, Meta(max_length=MAX_ADVERT_PROPERTIES + MAX_BUILT_IN)]
Document = Annotated[bytes, Meta(max_length=MAX_ADVERT_XML)]
#: Properties that a constraint asks for; none: all of them.
Chosen = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=MAX_COLUMNS)]
SilentUnits = Annotated[tuple[UnitPath, ...], Meta(max_length=MAX_SILENT)]
#: By level from 1 on: when, in its home's count, an advertisement of that reach last changed; 0 for never.
Versions = Annotated[tuple[Count, ...], Meta(max_length=MAX_LEVELS)]
#: Prefix and address of a namespace.
Namespace = tuple[
    Annotated[str, Meta(min_length=1, max_length=255)], Annotated[str, Meta(min_length=1, max_length=1024)]
]


class Advertisement(Struct, frozen=True, array_like=True, gc=False):
    """One advertisement as it stands at its home and its controllers."""

    client: ClientId
    name: AdvertName
    scope: Reach
    #: When its home took it: where a client advertises anew elsewhere, the later one counts.
    stamp: U63
    #: A map of names to values.
    properties: Values
    xml: Document = b""
    #: Whether the document came as text: an encoding declared in it says nothing then.
    is_text: bool = False
    #: How long it stands without its client, and so how long others keep it when its home is lost; 0 for unknown.
    lease_ms: U32 = 0
    #: Whether its home has it from a former life, and its client has not advertised it again since.
    is_orphan: bool = False


class ShelfMark(Struct, frozen=True, array_like=True, gc=False):
    """How far a broker's own advertisements have changed."""

    home: UnitPath
    versions: Versions
    #: How long ago the home said so.
    age_ms: U32


class Standing(Frame, frozen=True):
    """To the controllers of the enclosing unit: which brokers of `unit` have advertisements for them, how new."""

    unit: UnitPath
    teller: UnitPath
    #: Where it is being spread: the broker it is for, or a unit whose gates pass it on to each other.
    within: UnitPath
    round: U63
    #: Of so many frames that together tell everything this is one; 0 for a frame that tells changes only.
    parts: U32
    part: U32
    marks: Annotated[tuple[ShelfMark, ...], Meta(max_length=MAX_MARKS)] = ()
    #: Parts of the unit that the teller has not heard from.
    silent: SilentUnits = ()


class StandingRequest(Frame, frozen=True):
    """A new controller asks a part of its unit for its Standing."""

    unit: UnitPath
    contact: UnitPath
    hops: U8 = 0


class ShelfRequest(Frame, frozen=True):
    """A controller of this level asks a broker for its advertisements that changed after `since`."""

    level: Level
    since: Count
    contact: UnitPath


class Removal(Struct, frozen=True, array_like=True, gc=False):
    """An advertisement that is there no more, or not for controllers of that level."""

    client: ClientId
    name: AdvertName


class Shelf(Frame, frozen=True):
    """The answer: everything that changed after `since` and up to `up_to`; ask again if that is below `latest`."""

    level: Level
    #: 0: forget what was held before.
    since: Count
    up_to: Count
    latest: Count
    adverts: Annotated[tuple[Advertisement, ...], Meta(max_length=MAX_PAGE_ITEMS)] = ()
    removed: Annotated[tuple[Removal, ...], Meta(max_length=MAX_PAGE_ITEMS)] = ()
    #: What clients withdrew themselves: advertisements without properties and document, for as long as their lease.
    withdrawn: Annotated[tuple[Advertisement, ...], Meta(max_length=MAX_PAGE_ITEMS)] = ()


class QueryPart(Struct, frozen=True, array_like=True, gc=False):
    """Of a query what one controller of `unit` answers: advertisements in it whose scope is `low` to `high`."""

    unit: UnitPath
    low: Annotated[int, Meta(ge=0, le=MAX_LEVELS)]
    high: Reach


class Ask(Frame, frozen=True):
    """A query on its way to a controller."""

    asker: UnitPath
    number: U63
    parts: Annotated[tuple[QueryPart, ...], Meta(min_length=1, max_length=MAX_LEVELS)]
    is_sql: bool
    text: Annotated[str, Meta(max_length=MAX_QUERY)]
    namespaces: Annotated[tuple[Namespace, ...], Meta(max_length=MAX_NAMESPACES)]
    #: The advertisements themselves, not their ids alone (DSC-05).
    full: bool
    hops: U8 = 0
    #: The text is a constraint, not a SELECT; `is_sql` is set then, so that who does not know constraints stays silent.
    is_constraint: bool = False
    columns: Chosen = ()
    #: 0 for no limit.
    limit: U32 = 0
    #: For how long the asker waits from now on: a search that takes longer is given up.
    deadline_ms: Annotated[int, Meta(ge=0, le=MAX_DEADLINE_MS)] = MAX_DEADLINE_MS


class FoundRow(Struct, frozen=True, array_like=True, gc=False):
    """One advertisement that was found."""

    client: ClientId
    name: AdvertName
    home: UnitPath
    stamp: U63
    #: Arrays of what the query sorts by, and of its columns; of all columns a map.
    keys: Values = b""
    values: Values = b""
    xml: Document = b""
    is_text: bool = False


class Found(Frame, frozen=True):
    """Straight to the asker: what a controller of `unit` found."""

    number: U63
    unit: UnitPath
    page: U8
    pages: Annotated[int, Meta(ge=1, le=MAX_ANSWER_PAGES)]
    #: How many advertisements match, sent or not.
    matched: U32
    rows: Annotated[tuple[FoundRow, ...], Meta(max_length=MAX_PAGE_ITEMS)] = ()
    #: Parts of the unit whose advertisements are missing here.
    silent: SilentUnits = ()
    #: Advertisements with documents on which the query costs more than is spent on one: they may match or not.
    undecided: U32 = 0


DiscoveryFrame = Standing | StandingRequest | ShelfRequest | Shelf | Ask | Found
