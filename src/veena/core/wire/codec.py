"""Frames as bytes and bytes as frames.

A frame is a fixed header of sixteen bytes and a payload: msgpack for control frames, a layout of its own for events
(`event`). The format is binary, versioned and language-neutral (IOP-08); `docs/WIRE.md` gives it byte by byte.

The decoder takes whatever a read brought and gives back all frames that are complete, because every step that is taken
once a read and not once a frame is what makes a relay fast. What remains is at most one partial frame; memory grows
with bytes that came, never with a length that was merely claimed. A kind's limit is known from the header, so an
oversize frame is refused before it is collected.

The invariants: whatever comes in, the decoder raises RemoteProtocolError and nothing else; after that it stays dead,
since on a stream nothing behind a broken frame can be trusted. Frames before the broken one in the same read are
dropped with it: nothing of them was acknowledged, so they come again. How a stream is cut into reads makes no
difference to valid frames (TRN-01).

Rejected: an own resynchronisation mark (a peer that errs once errs again; the link is dialled anew instead).
"""

from __future__ import annotations

import struct

import msgspec

from veena.core.wire.bounds import out_of_range
from veena.core.wire.burst import BurstReader, EventBurst
from veena.core.wire.client import (
    Acknowledged,
    AskAdvertise,
    AskForget,
    AskQuery,
    AskRequest,
    AskSubscribe,
    AskUnsubscribe,
    AskUnwatch,
    AskWatch,
    AskWithdraw,
    ClientHello,
    ClientWelcome,
    Farewell,
    Matched,
    Pause,
    Resume,
    TellAccepted,
    TellActive,
    TellAdvertised,
    TellAdvertRefused,
    TellAnswer,
    TellCaughtUp,
    TellDenied,
    TellDropped,
    TellRedirect,
    TellRefused,
    TellState,
    TellUnanswered,
    TellWanted,
)
from veena.core.wire.control import (
    MAX_REASON,
    AntiEvent,
    Burst,
    Connections,
    Done,
    Frame,
    Goodbye,
    Heartbeat,
    Held,
    Hello,
    Open,
    Received,
    Refresh,
    Refused,
    Release,
    Routed,
)
from veena.core.wire.discovery import Ask, Found, Shelf, ShelfRequest, Standing, StandingRequest
from veena.core.wire.event import COPY_BELOW, EventCodec, EventFrame, check_max_frame
from veena.core.wire.explain import (
    AskExplain,
    AskMove,
    AskReport,
    AskTrace,
    TellExplained,
    TellMoved,
    TellReport,
    TellTraced,
)
from veena.core.wire.header import (
    DECODE_ERRORS,
    DEFAULT_MAX_FRAME,
    EVENT,
    HEADER,
    HEADER_SIZE,
    MAX_CONTROL_FRAME,
    MAX_DATAGRAM,
    MAX_EVENT_DATAGRAM,
    MAX_FRAME,
    VERSION,
    VERSION_LOW,
    explain,
    spoken,
)
from veena.core.wire.interest import FarDigest, FarHave, FarInterest, Have, Interest
from veena.core.wire.locator import AskLocate, TellLocated
from veena.core.wire.log_tables import (
    AskBrokers,
    AskLogAt,
    AskLogCommit,
    AskLogEnds,
    AskLogMore,
    AskLogRead,
    TellBlock,
    TellBlockPart,
    TellBrokers,
    TellCommitted,
    TellGap,
    TellLogAt,
    TellLogEnds,
)
from veena.core.wire.membership import (
    ClientRenumber,
    Contacts,
    GateReply,
    GateRequest,
    IdentifierRelease,
    IdentifierReply,
    IdentifierRequest,
    Renumber,
    SetupAccepted,
    SetupCancel,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
    SlotRelease,
    SlotReply,
    SlotRequest,
    SpokesmanReply,
    SpokesmanRequest,
)
from veena.core.wire.signatures import Credentials, Proofs
from veena.core.wire.staging import AskAbandon, AskPublish, AskPublished, AskStage, TellPublished, TellStaged
from veena.errors import LocalProtocolError, OtherVersion, RemoteProtocolError

#: Every control frame by its kind. A kind keeps its number for ever; a new frame is one line.
KINDS: dict[int, type[Frame]] = {
    1: Hello,
    2: Connections,
    3: Heartbeat,
    4: Goodbye,
    5: Received,
    6: Done,
    7: Refused,
    8: Open,
    9: AntiEvent,
    10: Routed,
    11: Refresh,
    12: Interest,
    13: Held,
    14: Release,
    15: Have,
    17: Burst,
    20: FarInterest,
    21: FarDigest,
    22: FarHave,
    23: Contacts,
    24: Credentials,
    25: Proofs,
    32: SetupRequest,
    33: SetupAccepted,
    34: SetupRedirected,
    35: SetupRefused,
    36: SetupCancel,
    37: SlotRequest,
    38: SlotReply,
    39: SlotRelease,
    40: IdentifierRequest,
    41: IdentifierReply,
    42: IdentifierRelease,
    43: SpokesmanRequest,
    44: SpokesmanReply,
    45: Renumber,
    46: ClientRenumber,
    47: GateRequest,
    48: GateReply,
    56: Standing,
    57: StandingRequest,
    58: ShelfRequest,
    59: Shelf,
    60: Ask,
    61: Found,
    64: ClientHello,
    65: ClientWelcome,
    66: AskSubscribe,
    67: AskUnsubscribe,
    68: AskForget,
    69: Acknowledged,
    70: AskRequest,
    71: AskWatch,
    72: AskUnwatch,
    73: AskAdvertise,
    74: AskWithdraw,
    75: AskQuery,
    76: TellRefused,
    77: TellActive,
    78: TellAccepted,
    79: TellDenied,
    80: Matched,
    81: TellDropped,
    82: TellCaughtUp,
    83: Pause,
    84: Resume,
    85: TellUnanswered,
    86: TellAdvertised,
    87: TellAdvertRefused,
    88: TellAnswer,
    89: TellWanted,
    90: TellRedirect,
    91: Farewell,
    92: AskTrace,
    93: AskExplain,
    94: AskReport,
    95: TellTraced,
    96: TellExplained,
    97: TellReport,
    98: AskMove,
    99: TellMoved,
    100: AskLocate,
    101: TellLocated,
    104: AskLogEnds,
    105: AskLogAt,
    106: AskLogRead,
    107: AskLogMore,
    108: AskLogCommit,
    109: AskBrokers,
    110: TellLogEnds,
    111: TellLogAt,
    112: TellBlock,
    113: TellBlockPart,
    114: TellGap,
    115: TellCommitted,
    116: TellBrokers,
    117: TellState,
    120: AskStage,
    121: AskPublish,
    122: AskAbandon,
    123: AskPublished,
    124: TellStaged,
    125: TellPublished,
}

HELLO = 1
GOODBYE = 4
CLIENT_HELLO = 64
FAREWELL = 91
#: Kinds that are read whatever their version: the first frame says which versions are spoken, the last one why not.
OF_ANY_VERSION = (HELLO, GOODBYE, CLIENT_HELLO, FAREWELL)

_kinds = {frame: kind for kind, frame in KINDS.items()}
_decoders = {kind: msgspec.msgpack.Decoder(frame) for kind, frame in KINDS.items()}
_encoder = msgspec.msgpack.Encoder()

#: A partial frame up to this size is joined with the read behind it; a longer one is collected by itself.
JOIN_BELOW = 16 * 1024

#: The longest control frame by kind; 0 where there is no such kind.
_CONTROL_LIMITS = tuple(MAX_CONTROL_FRAME if kind in KINDS else 0 for kind in range(256))

#: The same for a side that takes no frame that changes a broker's address.
_LIMITS_WITHOUT_RENUMBER = tuple(
    0 if KINDS.get(kind) is Renumber else each for kind, each in enumerate(_CONTROL_LIMITS)
)

#: A frame and its number on the connection.
Numbered = tuple[int, Frame | EventFrame]


def encode(frame: Frame, number: int, version: int = VERSION) -> bytes:
    """A control frame as bytes; raise LocalProtocolError for what a peer would refuse. Events are the codec's."""
    kind = _kinds.get(type(frame))
    if kind is None:
        raise LocalProtocolError(f"{type(frame).__name__} is no frame: add it to KINDS")
    payload = b""
    try:
        payload = _encoder.encode(frame)
        # Structs do not check themselves when they are made; better to fail here than to lose the link over there.
        _decoders[kind].decode(payload)
        length = HEADER_SIZE + len(payload)
        if length > MAX_CONTROL_FRAME:
            raise ValueError(f"{length} bytes; a control frame has at most {MAX_CONTROL_FRAME}")
        return HEADER.pack(length, version, kind, 0, number) + payload
    except (*DECODE_ERRORS, TypeError, OverflowError, struct.error) as error:
        reason = _reason(error, type(frame), payload)
        raise LocalProtocolError(f"{type(frame).__name__} number {number} cannot be sent: {reason}") from None


def enclose(frame: Frame) -> tuple[int, bytes]:
    """Kind and payload of a control frame, to travel inside a Routed frame."""
    return _kinds[type(frame)], _encoder.encode(frame)


def disclose(kind: int, payload: bytes) -> Frame:
    """The frame that was enclosed."""
    if kind not in KINDS or KINDS[kind] is Routed:
        raise RemoteProtocolError(f"a frame of kind {kind} cannot be routed")
    return _decode_control(payload, VERSION, kind, 0)


class Decoder:
    """The receiving side of one stream.

    `codec` reads event frames; a broker knows it from its configuration, a client sets it when the Hello has come. A
    side without `renumber` refuses Renumber frames like a kind that does not exist, with a reason of its own.
    """

    __slots__ = ("_bursts", "_error", "_limits", "_max_frame", "_partial", "codec")

    def __init__(
        self, codec: EventCodec | None = None, max_frame: int = DEFAULT_MAX_FRAME, *, renumber: bool = True
    ) -> None:
        self.codec = codec
        self._limits = _CONTROL_LIMITS if renumber else _LIMITS_WITHOUT_RENUMBER
        self._max_frame = check_max_frame(max_frame)
        #: The beginning of one frame, never more.
        self._partial = bytearray()
        self._error: RemoteProtocolError | None = None
        self._bursts: BurstReader | None = None

    @property
    def buffered(self) -> int:
        """Bytes of the frame that has not come completely."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[Numbered]:
        """All frames that these bytes complete; raise RemoteProtocolError if they err, and from then on always.

        Long events are views of `data`, which therefore must not change: it has to be bytes.
        """
        if self._error is not None:
            raise RemoteProtocolError(str(self._error), self._error.reply)
        frames: list[Numbered] = []
        try:
            self._decode_all(data, frames)
        except RemoteProtocolError as error:
            self._error = error
            self._partial = bytearray()
            raise
        return frames

    def feed_bursts(self, data: bytes) -> list[Frame | EventBurst]:
        """The same for a broker that listens to a client: events in bursts, and no numbers."""
        if self._error is not None:
            raise RemoteProtocolError(str(self._error), self._error.reply)
        if self._bursts is not None and not self._partial and len(data) <= self._max_frame:
            lone = self._bursts.lone(data)
            if lone is not None:
                return [lone]
        try:
            return self._find_bursts(data)
        except RemoteProtocolError as error:
            self._error = error
            self._partial = bytearray()
            raise

    def _find_bursts(self, data: bytes) -> list[Frame | EventBurst]:
        found: list[Frame | EventBurst] = []
        offset = 0
        if self._partial:
            if len(self._partial) < JOIN_BELOW:
                # One copy of the read, so that a burst does not end where a read does.
                data = bytes(self._partial) + data
                self._partial = bytearray()
            else:
                frames: list[Numbered] = []
                offset = self._complete(data, frames)
                found += [self._alone(frame) if isinstance(frame, EventFrame) else frame for _, frame in frames]
        end = len(data)
        reader = self._bursts
        if reader is None and self.codec is not None:
            reader = self._bursts = BurstReader(self.codec)
        unpack = HEADER.unpack_from
        max_frame = self._max_frame
        while end - offset >= HEADER_SIZE:
            length, version, kind, flags, _ = unpack(data, offset)
            limit = max_frame if kind == EVENT else self._limits[kind]
            if not HEADER_SIZE <= length <= limit or not VERSION_LOW <= version <= VERSION:
                _check_header(length, version, kind, limit)
            if length > end - offset:
                break
            if kind == EVENT and reader is not None:
                burst = reader.read(data, offset, end, length, flags)
                found.append(burst)
                offset += len(burst.data)
            else:
                found.append(_decode_control(data[offset + HEADER_SIZE : offset + length], version, kind, flags))
                offset += length
        if offset < end:
            self._partial += data[offset:] if offset else data
        return found

    def _alone(self, frame: EventFrame) -> EventBurst:
        """A burst of one, of a long frame that came in pieces."""
        assert self.codec is not None
        return EventBurst(frame, frame.sequence, 1, frame.sequence, self.codec.encode(frame, 0), self.codec, frame)

    def _decode_all(self, data: bytes, frames: list[Numbered]) -> None:
        offset = self._complete(data, frames) if self._partial else 0
        end = len(data)
        unpack = HEADER.unpack_from
        max_frame = self._max_frame
        codec = self.codec
        append = frames.append
        while end - offset >= HEADER_SIZE:
            length, version, kind, flags, number = unpack(data, offset)
            limit = max_frame if kind == EVENT else self._limits[kind]
            if not HEADER_SIZE <= length <= limit or not VERSION_LOW <= version <= VERSION:
                _check_header(length, version, kind, limit)
            if length > end - offset:
                break
            if kind == EVENT and codec is not None:
                append((number, codec.decode(data, offset, length, flags)))
            else:
                append((number, _decode_control(data[offset + HEADER_SIZE : offset + length], version, kind, flags)))
            offset += length
        if offset < end:
            self._partial += data[offset:] if offset else data

    def _complete(self, data: bytes, frames: list[Numbered]) -> int:
        """Add to the partial frame what belongs to it; how many bytes that took."""
        partial = self._partial
        taken = 0
        if len(partial) < HEADER_SIZE:
            taken = HEADER_SIZE - len(partial)
            partial += data[:taken]
            if len(partial) < HEADER_SIZE:
                return len(data)
        header: tuple[int, int, int, int, int] = HEADER.unpack_from(partial)
        length, version, kind, flags, number = header
        _check_header(length, version, kind, self._max_frame if kind == EVENT else self._limits[kind])
        needed = length - len(partial)
        if needed > len(data) - taken:
            partial += memoryview(data)[taken:]
            return len(data)
        partial += memoryview(data)[taken : taken + needed]
        self._partial = bytearray()
        # A long buffer is not copied again: it belongs to the frame alone now, so a view of it is safe.
        whole = bytes(partial) if length < COPY_BELOW else memoryview(partial).toreadonly()
        frames.append((number, _decode(whole, length, version, kind, flags, self.codec)))
        return taken + needed


def decode_datagram(data: bytes, codec: EventCodec | None = None) -> Numbered:
    """The one frame of a datagram. A broken one says nothing about the next: who calls decides how many are enough."""
    if len(data) < HEADER_SIZE:
        raise RemoteProtocolError(f"datagram of {len(data)} bytes: a frame has at least {HEADER_SIZE}")
    length, version, kind, flags, number = HEADER.unpack_from(data)
    limit = MAX_EVENT_DATAGRAM if kind == EVENT else min(_CONTROL_LIMITS[kind], MAX_DATAGRAM)
    _check_header(length, version, kind, limit)
    if length != len(data):
        raise RemoteProtocolError(f"datagram of {len(data)} bytes holds a frame of {length}: send one frame in each")
    return number, _decode(data, length, version, kind, flags, codec)


def agreed_version(mine: Hello, theirs: Hello) -> int:
    """The version to write from now on: the lower of the two high ones, if both speak it."""
    version = min(mine.version_high, theirs.version_high)
    if version < max(mine.version_low, theirs.version_low):
        raise RemoteProtocolError(
            f"the peer speaks {spoken(theirs.version_low, theirs.version_high)}, this side"
            f" {spoken(mine.version_low, mine.version_high)}: upgrade the older one"
        )
    return version


def _check_header(length: int, version: int, kind: int, limit: int) -> None:
    """Raise what is wrong with a header, if something is."""
    if not VERSION_LOW <= version <= VERSION and kind not in OF_ANY_VERSION:
        if not HEADER_SIZE <= length <= MAX_FRAME:  # such as the first bytes of an answer by HTTP
            raise RemoteProtocolError(f"{length} as a frame's length, which no version of Veena has: is the URL right?")
        raise _other_version(version)
    if not limit:
        if KINDS.get(kind) is Renumber:
            raise RemoteProtocolError("Renumber: brokers of this network keep their addresses while they run")
        raise RemoteProtocolError(f"frame of kind {kind}: there is no such kind in version {version}")
    if not HEADER_SIZE <= length <= limit:
        raise RemoteProtocolError(f"frame of kind {kind} with {length} bytes: expected {HEADER_SIZE} to {limit}")


def _other_version(version: int) -> OtherVersion:
    mine = spoken(VERSION_LOW, VERSION)
    return OtherVersion(f"frame of wire version {version}; this side speaks {mine}: upgrade the older one")


def _decode(
    data: bytes | memoryview, length: int, version: int, kind: int, flags: int, codec: EventCodec | None
) -> Frame | EventFrame:
    """The frame that begins with the data."""
    if kind == EVENT and codec is not None:
        return codec.decode(data, 0, length, flags)
    return _decode_control(data[HEADER_SIZE:length], version, kind, flags)


def _decode_control(payload: bytes | memoryview, version: int, kind: int, flags: int) -> Frame:
    if kind == EVENT:
        raise RemoteProtocolError("event frame before the Hello: its layout is not agreed yet")
    if flags:
        raise RemoteProtocolError(f"flags {flags:#06x} in a {KINDS[kind].__name__}: control frames have none")
    try:
        return _decoders[kind].decode(payload)
    except DECODE_ERRORS as error:
        if not VERSION_LOW <= version <= VERSION:
            raise _other_version(version) from None
        reason = f"{KINDS[kind].__name__} of {len(payload)} bytes: {_reason(error, KINDS[kind], payload)}"
        raise RemoteProtocolError(reason[:MAX_REASON]) from None


def _reason(error: Exception, frame: type[Frame], payload: bytes | memoryview) -> str:
    """What is wrong with a payload; of a number that is out of its range also the value and the range."""
    reason, range_fault = explain(error, frame), out_of_range(frame, payload)
    return f"{reason}; {range_fault}" if range_fault else reason
