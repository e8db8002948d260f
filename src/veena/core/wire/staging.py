"""How many clients publish one batch together, all of it or nothing, and once (the sink of `format("veena")`).

    AskStage + event frames   --> on disk, for nobody yet    --> TellStaged        every task of a batch, part by part
    AskPublish                --> all parts, in one sync     --> TellPublished     one client, when every task is done
    AskAbandon                --> none of them               --> TellPublished
    AskPublished              --> how far the query is       --> TellPublished

A *query* is a name that outlives whoever runs it, and its batches have ascending numbers. A batch that was published is
known by its number: staging it again is answered with `known`, publishing it again changes nothing. A *part* is what
one attempt of one task staged, under 16 random bytes; which parts make up the batch is said when it is published, so
that what failed attempts left behind is never seen.

The events of a part come as ordinary event frames behind AskStage, so that rights, bounds and bursts are those of
publishing. Their ids are only placeholders: a batch gets its ids when it is published (`publishing.batch_release`).

A question that is refused is answered by `TellRefused`, an AskStage behind the last of its events.

The invariant: as in `client`, whatever was decoded obeys every bound here; each frame may be sent again.

Rejected: rows inside the control frame (an event may be larger than one); a transaction's number that the broker gives
(who asks again after a crash has lost it).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from veena.core.wire.client import Number
from veena.core.wire.control import U32, Frame

#: A query's name: Spark's are 36 characters, those of people longer.
MAX_QUERY_NAME = 200
#: Events behind one AskStage: one write to the disk, and later one turn of the core.
MAX_STAGE_ROWS = 4096
#: Parts of one batch: as many as one control frame has room for.
MAX_PARTS = 16_384
PART_BYTES = 16
MAX_BATCH = (1 << 62) - 1

QueryName = Annotated[str, Meta(min_length=1, max_length=MAX_QUERY_NAME)]
Batch = Annotated[int, Meta(ge=0, le=MAX_BATCH)]
PartName = Annotated[bytes, Meta(min_length=PART_BYTES, max_length=PART_BYTES)]


class AskStage(Frame, frozen=True):
    """The `rows` event frames behind this one are the rows of a part from `first` on: keep them, publish none yet."""

    number: Number
    query: QueryName
    batch: Batch
    part: PartName
    first: U32
    rows: Annotated[int, Meta(ge=1, le=MAX_STAGE_ROWS)]


class AskPublish(Frame, frozen=True):
    """A batch is these parts, in this order, each with so many rows: publish all of it, unless it is published."""

    number: Number
    query: QueryName
    batch: Batch
    parts: Annotated[tuple[tuple[PartName, U32], ...], Meta(max_length=MAX_PARTS)]
    #: Whether the query goes on after this; otherwise its name is forgotten as soon as staged rows would be.
    lasting: bool = True


class AskAbandon(Frame, frozen=True):
    """A batch will not be published: forget what is staged for it."""

    number: Number
    query: QueryName
    batch: Batch


class AskPublished(Frame, frozen=True):
    """Which batch of a query was published last?"""

    number: Number
    query: QueryName


class TellStaged(Frame, frozen=True):
    """So many rows of the part are on disk; `known`: its batch was published before, nothing has to be staged."""

    number: Number
    rows: U32
    known: bool = False


class TellPublished(Frame, frozen=True):
    """The last batch of the query that is published, -1 for none; `rows` of it were, now."""

    number: Number
    batch: Annotated[int, Meta(ge=-1, le=MAX_BATCH)]
    rows: U32 = 0
