"""What crosses the boundary for batches that are staged first (`wire.staging`), and what of it goes to the disk.

Staged rows are the driver's business until their batch is published: the core never sees them before, and holds none in
memory. Then it is given them chunk by chunk (`ReleaseStaged`), with the ids that they were given with the publication.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.core.wire.event import EventFrame

# --- on disk ---


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows of a part, from `first` on; the first ones make the part. `data` are their event frames, end to end."""

    part: int
    owner: str
    publisher: str
    query: str
    batch: int
    name: bytes
    at_ns: int
    first: int
    rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BatchPublished:
    """A batch is public: its parts, each with the sequence number of its first row, are to be released in this turn."""

    owner: str
    query: str
    batch: int
    publisher: str
    incarnation: int
    stamp: int
    turn: int
    at_ns: int
    lasting: bool
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartsDropped:
    """What is staged in these parts is for nobody."""

    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QueriesForgotten:
    """By owner and name: nobody will ask about these again."""

    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Unstaged:
    """The rows of a part from `first` on that came together are in the log, or were passed on; `last` of that part."""

    part: int
    first: int
    last: bool


StageWrite = Staged | BatchPublished | PartsDropped | QueriesForgotten | Unstaged


# --- input ---


@dataclass(frozen=True, slots=True)
class ReleaseStaged:
    """Publish these rows of a part, which are on disk from `first` on; the answer is one of the effects below."""

    part: int
    first: int
    last: bool
    frames: tuple[EventFrame, ...]


# --- effects ---


@dataclass(frozen=True, slots=True)
class StagedReleased:
    """The rows are in the log and no longer staged, which one sync has made true; `passed` are those of best effort."""

    part: int
    first: int
    passed: tuple[EventFrame, ...]


@dataclass(frozen=True, slots=True)
class StagedHeld:
    """Not now, and nothing has changed: give the same again in a while."""

    part: int
    first: int
    reason: str


StageEffect = StagedReleased | StagedHeld
