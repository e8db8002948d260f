"""Control frames for brokers that are not neighbours: they travel inside `Routed`, hop by hop along the routing cache.

A goal may be a larger unit: then whichever broker of it is reached first takes the frame. What finds no way is dropped,
because every question that is asked this way has a time-out and can be asked again; so a courier keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from veena.address import Address, Unit, as_seen, format_address
from veena.core.links.link import Link
from veena.core.topology.next_hops import Hops
from veena.core.wire.codec import disclose, enclose
from veena.core.wire.control import MAX_ENCLOSED, MAX_HOPS, Frame, Routed
from veena.errors import RemoteProtocolError


class Courier:
    """One a broker; `links` are its open links by connection id."""

    def __init__(self, own: Address, fanout: int, hops: Hops, links: Mapping[int, Link]) -> None:
        self._own = own
        self._fanout = fanout
        self._hops = hops
        self._links = links

    def is_here(self, unit: Unit) -> bool:
        return self._own[: len(unit)] == unit

    def send(self, to: Unit, frame: Frame, now_ns: int) -> None:
        """Set a frame on its way to a unit that this broker is not in; one that is too large is dropped like one
        that finds no way."""
        kind, payload = enclose(frame)
        if len(payload) <= MAX_ENCLOSED:
            self._forward(Routed(to, self._own, MAX_HOPS, kind, payload), now_ns)

    def take(self, frame: Routed, now_ns: int) -> Frame | None:
        """The frame inside when it has come to its goal; otherwise it is passed on.

        RemoteProtocolError for paths that no broker of this network writes: whoever passes them on has not checked.
        """
        self._check(frame)
        if not self.is_here(frame.to):
            if frame.hops_left:
                self._forward(Routed(frame.to, frame.origin, frame.hops_left - 1, frame.kind, frame.payload), now_ns)
            return None
        if frame.origin == self._own:
            return None  # forged: what a broker writes to itself needs no link
        try:
            return disclose(frame.kind, frame.payload)
        except RemoteProtocolError:
            return None  # the fault of its origin: the neighbour who passed it on is innocent

    def _check(self, frame: Routed) -> None:
        levels = len(self._own)
        if len(frame.origin) != levels or len(frame.to) > levels:
            raise RemoteProtocolError(
                f"routed from {format_address(frame.origin)} to {format_address(frame.to)}: a broker of this network"
                f" has {levels} identifiers, and a unit not more"
            )
        if max(*frame.origin, *frame.to) >= self._fanout:
            raise RemoteProtocolError(
                f"routed from {format_address(frame.origin)} to {format_address(frame.to)}: units here are numbered 0"
                f" to {self._fanout - 1}"
            )

    def _forward(self, frame: Routed, now_ns: int) -> None:
        """Over the next hop to the unit of this broker's map that the goal lies in."""
        hop = self._hops.hop(as_seen(self._own, frame.to))
        link = self._links.get(hop.connection) if hop is not None else None
        if link is not None:
            link.send(frame, now_ns)
