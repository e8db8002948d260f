"""Connections: how a link between two brokers is told to others, and what it costs.

A connection is `<n^x, n^y, l>`: a link of level l between two ends that are named as coarsely as the listener needs
them (GPP-03). The broker that has the link names itself as a broker and the far end as its level-l unit (GPP-05). A
gatekeeper that passes it on over a level-p link hides what lies below: an end finer than level p, and not yet as coarse
as the connection, becomes the gatekeeper's own level-p unit (GPP-07). So `5 - SC-2` is `c - SC-2` for the neighbouring
clusters and `SC-1 - SC-2` for the other super-clusters. The invariant: a copy that does not name a unit of the listener
itself names both ends exactly as the listener's own map needs them, whichever way it took.

The record is the frame's own (`ConnectionRecord`): what is stored is what is sent. Its ends are ordered by their
level-l units, which every listener can see, so that `low` is the same end for all.

Costs follow the link cost matrix, x + y for ends of level x and y (LCM-01, LCM-02). A loaded link adds one of three
announced steps; the last step takes it out of every path (LCM-03, design rule 7).
"""

from __future__ import annotations

from veena.address import FANOUTS, Address, format_address
from veena.core.wire.control import ConnectionRecord
from veena.errors import RemoteProtocolError

#: What a link's announced load step adds to its cost. The last step is no cost: no path uses the link.
STEP_COSTS = (0, 4, 16)
ABSENT = len(STEP_COSTS)
#: (version, step) before anything was announced.
NO_COST = (0, 0)


def link_cost(x: int, y: int) -> int:
    """The link cost matrix: ends of level x and y."""
    return x + y


def step(record: ConnectionRecord) -> int:
    """The announced load step of a connection: the worse of what its two ends say."""
    return max(record.low_cost[1], record.high_cost[1])


def establish(own: Address, far: Address, level: int, connection_id: int) -> ConnectionRecord:
    """What the broker `own` tells about its new link to `far` (GPP-05)."""
    far_unit = far[: len(far) - level]
    low, high = (own, far_unit) if own < far else (far_unit, own)
    return ConnectionRecord(connection_id, level, low, high, True, NO_COST, NO_COST)


def with_cost(record: ConnectionRecord, own: Address, far: Address, cost: tuple[int, int]) -> ConnectionRecord:
    """The record with what its end `own` announces now; the lower of the two ends has the first of the two fields."""
    low, high = (cost, record.high_cost) if own < far else (record.low_cost, cost)
    return ConnectionRecord(record.id, record.level, record.low, record.high, record.up, low, high)


def rewritten(record: ConnectionRecord, sender: Address, over: int) -> ConnectionRecord:
    """The copy that a broker sends over one of its links of level `over` (GPP-07)."""
    levels = len(sender)
    low, high = record.low, record.high
    # An end of level x is named by levels - x identifiers: "x < lc and p > x" is a matter of lengths.
    coarsest = levels - record.level
    allowed = levels - over
    if len(low) > coarsest and len(low) > allowed:
        low = sender[:allowed]
    if len(high) > coarsest and len(high) > allowed:
        high = sender[:allowed]
    if low is record.low and high is record.high:
        return record
    return ConnectionRecord(record.id, record.level, low, high, record.up, record.low_cost, record.high_cost)


def is_fine(record: ConnectionRecord, own: Address) -> bool:
    """Whether no end is a unit that the listener itself is in: such a copy went a detour (GPP-19)."""
    return not (
        (len(record.low) < len(own) and own[: len(record.low)] == record.low)
        or (len(record.high) < len(own) and own[: len(record.high)] == record.high)
    )


def check_record(record: ConnectionRecord, own: Address, fanout: int = FANOUTS[-1]) -> None:
    """Raise RemoteProtocolError unless this can be a connection of one of the listener's contexts (GPP-03, GPP-06)."""
    levels = len(own)
    level = record.level
    if level >= levels:
        raise RemoteProtocolError(f"connection {record.id:x}: level {level} in a network of {levels} levels")
    context = own[: levels - level - 1]
    coarsest = levels - level
    for end in (record.low, record.high):
        if max(end) >= fanout:
            raise RemoteProtocolError(
                f"connection {record.id:x} names {format_address(end)}: units here are numbered 0 to {fanout - 1}"
            )
        if not coarsest <= len(end) <= levels:
            raise RemoteProtocolError(
                f"connection {record.id:x}: an end of level {levels - len(end)} on a link of level {level}"
            )
        if end[: len(context)] != context:
            raise RemoteProtocolError(
                f"connection {record.id:x} of level {level} names {format_address(end)}, which lies outside"
                f" {format_address(context) or 'the network'}: it must not come here"
            )
        # A vertex of the listener's map is a sibling of one of its own units, or such a unit itself.
        if own[: len(end) - 1] != end[:-1]:
            raise RemoteProtocolError(
                f"connection {record.id:x} names {format_address(end)}, finer than {format_address(own)} may see"
            )
    if len(record.low) > coarsest and len(record.high) > coarsest:
        raise RemoteProtocolError(f"connection {record.id:x}: neither end is a unit of level {level}")
    if not record.low[:coarsest] < record.high[:coarsest]:
        raise RemoteProtocolError(
            f"connection {record.id:x} of level {level}: the ends {format_address(record.low)} and"
            f" {format_address(record.high)} must lie in two units of that level, the lower first"
        )


def merged(one: ConnectionRecord, other: ConnectionRecord, own: Address) -> ConnectionRecord:
    """What is known after both copies: the finer names, down if either is, the newest cost of each end.

    Of copies that tell the truth the result is the same in whatever order they come, which is what makes the maps
    converge. A lie of the same fineness does not replace what is known.
    """
    # Of two detour copies the longer name wins too: inside a unit that fell apart it is what the neighbours need.
    finer = max(one, other, key=lambda copy: (is_fine(copy, own), len(copy.low) + len(copy.high)))
    return ConnectionRecord(
        one.id,
        one.level,
        finer.low,
        finer.high,
        one.up and other.up,
        max(one.low_cost, other.low_cost),
        max(one.high_cost, other.high_cost),
    )
