"""The control frames: what brokers say to each other beside events.

This file decides which fields a frame has and what each may hold; `codec` decides how it becomes bytes. A frame is a
frozen struct that travels as an *array*, so a later version appends a field with a default: an old reader ignores what
it does not know, a new reader fills in what an old writer left out (two adjacent versions work together). The bounds
stand in the types, so that the decoder in C refuses a hostile frame before anything of it is built.

The invariant: a frame that `codec` gave out obeys every bound here, rules between fields included (`__post_init__`), so
the core never checks sizes again. Requirements: GPP (connections), LCM (costs), TRN-05 (links lose and reorder), ERP,
DST (refusals name units), UID-02.

Rejected: maps with field names (twice the bytes, and every name is then a promise); one catch-all frame with a type
tag inside (bounds would have to be checked by hand).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from veena.address import MAX_LEVELS
from veena.event import MAX_CLIENT_ID_LENGTH

#: Connection records in a frame: about 50 KiB at most, so that heartbeats behind it do not wait long.
MAX_RECORDS = 1024
#: Every vertex of a map is at most levels x fan-out of them: 8 x 64.
MAX_UNITS = 512
#: Ranges of numbers in one acknowledgement; who has more holes sends a second frame.
MAX_RANGES = 1024
#: One exception vector: 65,536 frames, more than a link has open.
MAX_VECTOR = 8192
#: All exception vectors of an acknowledgement together.
MAX_VECTORS = 32 * 1024
#: Ids in one anti-event: with the longest ids in four-byte characters still within a control frame.
MAX_IDS = 256
#: One bit a unit, levels x fan-out of them.
MAX_UNIT_VECTOR = MAX_UNITS // 8
#: What a read of a stream brings, and the event that began before it; a burst is not cut.
MAX_BURST_BYTES = 320 * 1024
#: Reliable events in one frame: above what a broker takes in as one burst.
MAX_BURST_EVENTS = 1024
MAX_NETWORK_NAME = 64
#: A permanent broker id is a UUID, a label or a fingerprint of a certificate.
MAX_PERMANENT_ID = 256
#: A control frame inside another one: above the largest that is routed (64 places with four long addresses each).
MAX_ENCLOSED = 384 * 1024
#: Links that a routed frame may cross: twice the longest way through any network that was measured.
MAX_HOPS = 64
#: Listen addresses a broker can announce: a few transports on a few interfaces.
MAX_LISTEN = 16
MAX_URL = 255
#: A text for people, shortened by who sends it.
MAX_REASON = 1024
#: Slower than once an hour is no heartbeat.
MAX_HEARTBEAT_MS = 3_600_000
#: A grant (`runtime.pki.grant`): the longest names of network and broker, an address, two times and a signature.
MAX_GRANT = 768
MAX_VERSION = 255
#: The announced steps of a link's cost: 0, +4, +16, absent.
MAX_STEP = 3

U8 = Annotated[int, Meta(ge=0, le=255)]
U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
#: Times in nanoseconds, offsets and counts: SQLite stores 64 bits with a sign.
U63 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
#: Numbers of frames, and bits that nobody calculates with: what chance drew, ids of connections and of events. A store
#: keeps them as bits too. The upper bound is the format's own: msgpack has no integer above 2^64 - 1.
U64 = Annotated[int, Meta(ge=0)]
Version = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
Level = Annotated[int, Meta(ge=0, le=MAX_LEVELS - 1)]
#: The path of a unit, highest identifier first; what the network's own fan-out allows is checked by the core.
UnitPath = Annotated[tuple[Annotated[int, Meta(ge=0, le=63)], ...], Meta(min_length=1, max_length=MAX_LEVELS)]
Units = Annotated[tuple[UnitPath, ...], Meta(min_length=1, max_length=MAX_UNITS)]
#: First and last number, both included.
Range = tuple[U64, U64]
Ranges = Annotated[tuple[Range, ...], Meta(max_length=MAX_RANGES)]
#: (version, step): the higher version wins.
Cost = tuple[U63, Annotated[int, Meta(ge=0, le=MAX_STEP)]]
Text = Annotated[str, Meta(max_length=MAX_REASON)]
ClientId = Annotated[str, Meta(min_length=1, max_length=MAX_CLIENT_ID_LENGTH)]
#: (publisher, incarnation, timestamp, sequence).
WireId = tuple[ClientId, U64, U64, U32]


class Frame(Struct, frozen=True, array_like=True, gc=False):
    """What goes over a link, events aside."""


class Hello(Frame, frozen=True):
    """The first frame in each direction: who speaks, which versions, and the constants of the network."""

    version_low: Version
    version_high: Version
    network: Annotated[str, Meta(min_length=1, max_length=MAX_NETWORK_NAME)]
    levels: Annotated[int, Meta(ge=1, le=MAX_LEVELS)]
    fanout: Literal[32, 64]
    address: UnitPath
    #: Grows with every start of the broker: a peer that comes back with another one has forgotten its duties.
    incarnation: U63
    #: Chance for the id of this connection, which both ends compute from both Hellos.
    nonce: U64
    #: How often this side sends a heartbeat; the peer derives its suspicion from it.
    heartbeat_ms: Annotated[int, Meta(ge=1, le=MAX_HEARTBEAT_MS)]
    listen: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_URL)], ...], Meta(max_length=MAX_LISTEN)
    ] = ()
    #: The broker's permanent id: addresses change when units merge, this does not.
    name: Annotated[str, Meta(max_length=MAX_PERMANENT_ID)] = ""
    #: Whether this side reads bursts.
    bursts: bool = False
    #: What lets a broker of this name live at this address, signed by the authority of the network; empty without one.
    grant: Annotated[bytes, Meta(max_length=MAX_GRANT)] = b""

    def __post_init__(self) -> None:
        if self.version_low > self.version_high:
            raise ValueError(f"version_low {self.version_low} is above version_high {self.version_high}")
        if len(self.address) != self.levels:
            raise ValueError(f"address has {len(self.address)} parts in a network of {self.levels} levels")
        if max(self.address) >= self.fanout:
            raise ValueError(f"address {self.address} does not fit a fan-out of {self.fanout}")


class ConnectionRecord(Struct, frozen=True, array_like=True, gc=False):
    """One edge of the map as its ends announce it; each end has its own cost and version."""

    id: U64
    level: Level
    low: UnitPath
    high: UnitPath
    up: bool
    low_cost: Cost
    high_cost: Cost


class Connections(Frame, frozen=True):
    """Connection information; `complete` marks the last frame of a full snapshot."""

    records: Annotated[tuple[ConnectionRecord, ...], Meta(max_length=MAX_RECORDS)]
    complete: bool


class Refresh(Frame, frozen=True):
    """Asks for everything again that a new link begins with: the sender has forgotten what it could not reach."""


class Heartbeat(Frame, frozen=True):
    """`sent_ns` of the sender's clock; `echo_ns` is the peer's last `sent_ns`, 0 before one came: the round trip.

    A client answers its broker's answer at once, with `sent_ns` 0, which asks for nothing: so the broker knows it too.
    """

    sent_ns: U63
    echo_ns: U63


class Goodbye(Frame, frozen=True):
    """The last frame: why this side closes."""

    reason: Text


class Routed(Frame, frozen=True):
    """A control frame on its way to a broker, or to whichever broker of a larger unit it reaches first."""

    to: UnitPath
    origin: UnitPath
    hops_left: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    #: Kind and payload of the frame inside, as they would stand on the wire.
    kind: U8
    payload: Annotated[bytes, Meta(max_length=MAX_ENCLOSED)]


class Received(Frame, frozen=True):
    """Over a transport that loses and reorders: everything up to `up_to` has come except the `missing` ranges."""

    up_to: U64
    missing: Ranges = ()

    def __post_init__(self) -> None:
        _check_ranges(self.missing)
        if self.missing and self.missing[-1][1] > self.up_to:
            raise ValueError(f"missing range {self.missing[-1]} ends above up_to {self.up_to}")


class Done(Frame, frozen=True):
    """Everything below these event frames of the connection has them; one frame a read batch.

    `exceptions` is empty or holds one bit vector a range: bit i (the lowest bit of byte 0 is bit 0) set means that
    frame `first + i` is not done. Bits beyond the vector's end count as done.
    """

    ranges: Ranges
    exceptions: Annotated[tuple[Annotated[bytes, Meta(max_length=MAX_VECTOR)], ...], Meta(max_length=MAX_RANGES)] = ()

    def __post_init__(self) -> None:
        _check_ranges(self.ranges)
        if self.exceptions and len(self.exceptions) != len(self.ranges):
            raise ValueError(f"{len(self.exceptions)} exception vectors for {len(self.ranges)} ranges")
        if sum(map(len, self.exceptions)) > MAX_VECTORS:
            raise ValueError(f"exception vectors of more than {MAX_VECTORS} bytes")
        for (first, last), vector in zip(self.ranges, self.exceptions, strict=False):
            if int.from_bytes(vector, "little").bit_length() > last - first + 1:
                raise ValueError(f"exception vector reaches beyond its range {first} to {last}")

    def contains(self, number: int) -> bool:
        """Whether this acknowledges that frame. Ask it for open frames; a range may claim more than was ever sent."""
        index = bisect_right(self.ranges, number, key=_first) - 1
        if index < 0 or number > self.ranges[index][1]:
            return False
        if not self.exceptions:
            return True
        byte, bit = divmod(number - self.ranges[index][0], 8)
        vector = self.exceptions[index]
        return byte >= len(vector) or not vector[byte] >> bit & 1


class Refused(Frame, frozen=True):
    """No way to these units now, or no room: the peer holds its duties for them until they are opened.

    The sender has forgotten what came for them with frame `since` and later; 0 when it has forgotten everything.
    """

    units: Units
    since: U64 = 0


class Open(Frame, frozen=True):
    """The refusal of these units is over."""

    units: Units


class Held(Frame, frozen=True):
    """The answer to Refused: nothing for these units follows until they are opened."""

    units: Units


class AntiEvent(Frame, frozen=True):
    """Take back events: by their frame numbers on this connection, or by id where the connection is a new one."""

    numbers: Ranges = ()
    ids: Annotated[tuple[WireId, ...], Meta(max_length=MAX_IDS)] = ()

    def __post_init__(self) -> None:
        _check_ranges(self.numbers)


class Burst(Frame, frozen=True):
    """Best-effort events that came one behind the other and are alike, and what they are to serve and have served.

    They have the same publisher, incarnation, timestamp, flags, origin and matching section (its time apart), and
    ascending sequences. Only for a peer whose Hello says `bursts`.
    """

    to_serve: Annotated[bytes, Meta(min_length=1, max_length=MAX_UNIT_VECTOR)]
    served: Annotated[bytes, Meta(min_length=1, max_length=MAX_UNIT_VECTOR)]
    #: Their frames one behind the other, without numbers of a connection; vectors in them mean nothing.
    events: Annotated[bytes, Meta(min_length=1, max_length=MAX_BURST_BYTES)]


class ReliableBurst(Frame, frozen=True):
    """The same with reliable events: they take the numbers of the connection from this frame's own on, one each.

    Their sequences have no holes. The receiver acknowledges each event by its number (`Done`), usually all of them as
    one range. Only over ordered transports, for a peer whose Hello says `bursts`.
    """

    to_serve: Annotated[bytes, Meta(min_length=1, max_length=MAX_UNIT_VECTOR)]
    served: Annotated[bytes, Meta(min_length=1, max_length=MAX_UNIT_VECTOR)]
    #: How many events, and numbers.
    count: Annotated[int, Meta(ge=2, le=MAX_BURST_EVENTS)]
    #: Their frames one behind the other, as in a `Burst`.
    events: Annotated[bytes, Meta(min_length=1, max_length=MAX_BURST_BYTES)]


class Release(Frame, frozen=True):
    """Whoever keeps second copies of these events for the sender may forget them: those that they are for have them."""

    ids: Annotated[tuple[WireId, ...], Meta(max_length=MAX_IDS)]


def done_with_runs(numbers: list[int], runs: list[Range]) -> list[Done]:
    """The frames that acknowledge these numbers and runs of numbers, in any order."""
    if numbers:
        return done(sorted([*numbers, *(number for first, last in runs for number in range(first, last + 1))]))
    ranges: list[Range] = []
    for first, last in sorted(runs):
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return [Done(tuple(ranges[at : at + MAX_RANGES])) for at in range(0, len(ranges), MAX_RANGES)]


def done(numbers: Iterable[int]) -> list[Done]:
    """The frames, usually one, that acknowledge exactly these ascending numbers."""
    frames: list[Done] = []
    ranges: list[Range] = []
    vectors: list[bytes] = []
    size = 0
    for item, vector in _spans(numbers):
        if len(ranges) == MAX_RANGES or size + len(vector) > MAX_VECTORS:
            frames.append(_done(ranges, vectors))
            ranges, vectors, size = [], [], 0
        ranges.append(item)
        vectors.append(vector)
        size += len(vector)
    if ranges:
        frames.append(_done(ranges, vectors))
    return frames


#: A range costs up to 19 bytes, so up to 64 missing frames (8 bytes of vector) are cheaper as bits.
_HOLE = 65
#: Integers of this many bits are still quick to shift.
_SPAN = 4096


def _spans(numbers: Iterable[int]) -> Iterator[tuple[Range, bytes]]:
    """Runs of numbers with their exception vectors; a short hole becomes bits, a long one ends the run."""
    first = last = -2
    holes = 0
    for number in numbers:
        assert number > last, "numbers must ascend"
        if number == last + 1:
            pass
        elif first >= 0 and number - last <= _HOLE and number - first < _SPAN:
            holes |= ((1 << (number - last - 1)) - 1) << (last + 1 - first)
        else:
            if first >= 0:
                yield (first, last), _vector(holes)
            first, holes = number, 0
        last = number
    if first >= 0:
        yield (first, last), _vector(holes)


def _vector(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _done(ranges: list[Range], vectors: list[bytes]) -> Done:
    return Done(tuple(ranges), tuple(vectors) if any(vectors) else ())


def _first(item: Range) -> int:
    return item[0]


def _check_ranges(ranges: tuple[Range, ...]) -> None:
    before = -1
    for first, last in ranges:
        if not before < first <= last:
            raise ValueError(f"range {first} to {last}: ranges must ascend and not overlap")
        before = last
