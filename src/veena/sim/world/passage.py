"""Frames pass through the wire format, as they do between processes; the same bytes are read once.

A claim or a want goes over all links of a broker, and on from there: most of what arrives in a large network has been
read before. What bytes mean does not depend on who reads them, and frames do not change, so a control frame of known
bytes is the one that was made of them then.
"""

from __future__ import annotations

from collections.abc import Iterator

from veena.core.boundary.inputs_effects import Numbered
from veena.core.wire import codec as wire
from veena.core.wire.control import Frame, ReliableBurst
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import DEFAULT_MAX_FRAME, link_frame
from veena.sim.world.fingerprint import of_control, of_event

#: Frames that are remembered: more than are under way at any time in a network of hundreds of brokers.
MAX_REMEMBERED = 65_536


class Passage:
    """The wire between all brokers of a world."""

    def __init__(self, levels: int, fanout: int) -> None:
        self._codec = EventCodec(levels, fanout, link_frame(DEFAULT_MAX_FRAME))
        self._read: dict[tuple[int, bytes], Frame | EventFrame] = {}

    def encode(self, frame: Frame | EventFrame, number: int) -> bytes:
        return self._codec.encode(frame, number) if isinstance(frame, EventFrame) else wire.encode(frame, number)

    def through(self, frames: tuple[Numbered, ...]) -> tuple[bytes, tuple[Numbered, ...]]:
        """What counts of these frames for the fingerprint, and what arrives."""
        counted: list[bytes] = []
        arrived: list[Numbered] = []
        for number, frame in frames:
            if isinstance(frame, EventFrame):
                data = self._codec.encode(frame, number)
                arrived += wire.Decoder(self._codec, self._codec.max_frame).feed(data)
                counted.append(of_event(data, self._codec.header_size))
            else:
                kind, payload = wire.enclose(frame)
                known = self._read.get((kind, payload))
                if known is None:
                    ((_, known),) = wire.Decoder(self._codec, self._codec.max_frame).feed(wire.encode(frame, number))
                    self._remember(kind, payload, known)
                arrived.append((number, known))
                counted.append(of_control(kind, number, payload, frame))
        return b"".join(counted), tuple(arrived)

    def each_event(self, frames: tuple[Numbered, ...]) -> Iterator[tuple[int, EventFrame]]:
        """The events among these frames with their numbers, those of a burst of reliable ones too."""
        for number, frame in frames:
            if isinstance(frame, EventFrame):
                yield number, frame
            elif isinstance(frame, ReliableBurst):
                to_serve, served = int.from_bytes(frame.to_serve, "big"), int.from_bytes(frame.served, "big")
                events = wire.Decoder(self._codec, self._codec.max_frame).feed(frame.events)
                for at, (_, event) in enumerate(events):
                    assert isinstance(event, EventFrame)
                    yield number + at, event.copy(to_serve, served, event.ttl_ms)

    def _remember(self, kind: int, payload: bytes, frame: Frame | EventFrame) -> None:
        if len(self._read) >= MAX_REMEMBERED:
            self._read.clear()
        self._read[kind, payload] = frame
