"""The fingerprint of a run: a hash of what was given to brokers and what they told their clients, as numbers.

It must tell two runs apart whenever a broker was given something else, at another time, or told a client something
else. It must not tell them apart because somebody renamed a class or reworded a reason. So it holds the codes below,
addresses, times, ids and what lies in frames, and never the name of a class, the name of a field or a reason.

The layout, big-endian:

    an input     code (1 byte) | parts of the address (1) | time in ns (8) | address (1 byte a part)
    an effect    the same, then what `_FACTS` gives for its class
    a frame      kind (1) | flags (2) | number (8) | payload; of frames with a reason and of events that brokers write
                 themselves, only their numbers

The invariant: a code stays for ever. A new input or effect takes the next free code; the code of a deleted one is never
used again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from veena.address import Address, Unit
from veena.core.boundary import clients, user_shares
from veena.core.boundary import discovery as discovery_boundary
from veena.core.boundary import evaluation as evaluation_boundary
from veena.core.boundary import explain as explain_boundary
from veena.core.boundary import inputs_effects as boundary
from veena.core.boundary import staging as stage
from veena.core.boundary.explain import Handed, Happened, Hop, Reason
from veena.core.boundary.inputs_effects import Effect, Input, ToClient
from veena.core.messages.addresses import INTERNAL
from veena.core.publishing.log import DEAD_LETTERS
from veena.core.wire.burst import ORIGIN_OFFSET, SIZES_OFFSET
from veena.core.wire.codec import KINDS
from veena.core.wire.control import Frame, Goodbye, Routed
from veena.core.wire.event import EventFrame
from veena.core.wire.membership import IdentifierReply, SetupRedirected, SetupRefused, SpokesmanReply
from veena.core.wire.trace_facts import What
from veena.event import EventId

INPUT_CODES: dict[type[Input], int] = {
    boundary.LinkUp: 1,
    boundary.LinkDown: 2,
    boundary.Arrived: 3,
    boundary.LinkLoad: 4,
    boundary.LinkRoom: 5,
    boundary.Stored: 6,
    boundary.StoreFailed: 7,
    boundary.LogRead: 8,
    boundary.AskToSpeak: 9,
    boundary.Merged: 10,
    boundary.ClientUp: 11,
    boundary.ClientDown: 12,
    boundary.Subscribe: 13,
    boundary.Unsubscribe: 14,
    boundary.Acknowledge: 15,
    boundary.Forget: 16,
    boundary.Publish: 17,
    boundary.PublishBatch: 18,
    stage.ReleaseStaged: 19,
    discovery_boundary.Advertise: 20,
    discovery_boundary.Withdraw: 21,
    discovery_boundary.Query: 22,
    clients.SessionClogged: 23,
    clients.SessionClear: 24,
    clients.AskWanted: 25,
    clients.Unwatch: 26,
    clients.Request: 27,
    explain_boundary.Explain: 28,
    explain_boundary.Trace: 29,
    explain_boundary.Denied: 30,
    clients.RightsChanged: 31,
    boundary.ReadFailed: 32,
    user_shares.UserShares: 33,
    boundary.Granted: 34,
    boundary.ClockSet: 35,
    evaluation_boundary.Evaluated: 36,
}

#: From 128 on, so that no effect has the code of an input.
EFFECT_CODES: dict[type[Effect], int] = {
    boundary.Send: 128,
    boundary.Close: 129,
    boundary.Dial: 130,
    boundary.Store: 131,
    boundary.Read: 132,
    boundary.Unreachable: 133,
    boundary.Reachable: 134,
    boundary.MaySpeak: 135,
    boundary.Restart: 136,
    boundary.ClientRefused: 137,
    boundary.Welcome: 138,
    boundary.Active: 139,
    boundary.Accepted: 140,
    boundary.AcceptedRun: 141,
    boundary.PublishRefused: 142,
    boundary.Deliver: 143,
    boundary.DeliverBurst: 144,
    boundary.DeliverMixed: 190,
    boundary.DeadLetter: 145,
    discovery_boundary.Advertised: 146,
    discovery_boundary.AdvertRefused: 147,
    discovery_boundary.Answer: 148,
    discovery_boundary.QueryRefused: 149,
    clients.Pause: 150,
    clients.Resume: 151,
    clients.Dropped: 152,
    clients.CloseSession: 153,
    clients.Wanted: 154,
    clients.Unanswered: 155,
    clients.CaughtUp: 156,
    explain_boundary.Explained: 157,
    explain_boundary.Traced: 158,
    explain_boundary.ExplainRefused: 159,
    stage.StagedReleased: 160,
    stage.StagedHeld: 161,
    clients.AskRoom: 162,
    clients.SubscriptionState: 163,
    evaluation_boundary.Evaluate: 165,
    boundary.StatementRefused: 164,
}

REASON_CODES: dict[Reason, int] = {
    Reason.DELIVERED: 1,
    Reason.KEPT: 2,
    Reason.HAD: 3,
    Reason.NOT_SUBSCRIBED: 4,
    Reason.NOT_MATCHED: 5,
    Reason.OUT_OF_SCOPE: 6,
    Reason.UNFIT: 7,
    Reason.NOT_ACTIVE: 8,
    Reason.SHARED: 9,
    Reason.EXPIRED: 10,
    Reason.DROPPED: 11,
    Reason.DENIED: 12,
    Reason.DEAD_LETTER: 13,
    Reason.NO_ROUTE: 14,
    Reason.WAITING: 15,
    Reason.UNKNOWN: 16,
}

WHAT_CODES: dict[What, int] = {
    What.ACCEPTED: 1,
    What.LOGGED: 2,
    What.TAKEN: 3,
    What.SENT: 4,
    What.DELIVERED: 5,
    What.KEPT: 6,
    What.WITHHELD: 7,
    What.HAD: 8,
    What.EXPIRED: 9,
    What.DROPPED: 10,
    What.STOPPED: 11,
    What.BURIED: 12,
    What.DENIED: 13,
}

#: Frames between brokers that hold a reason.
WITH_REASON: tuple[type[Frame], ...] = (Goodbye, SetupRedirected, SetupRefused, IdentifierReply, SpokesmanReply)
_KINDS_WITH_REASON = frozenset(kind for kind, frame in KINDS.items() if frame in WITH_REASON)
#: How the publishers of events begin that brokers write themselves: their bodies or headers may hold reasons.
_OF_BROKERS = (INTERNAL.encode(), DEAD_LETTERS.encode())

_STEP = struct.Struct(">BBQ")
_EVENT = struct.Struct(">HQQIH")
_CONTROL = struct.Struct(">BHQ")
#: Length and version of a frame say nothing about a run.
_KIND_OFFSET = 5
_MASK = (1 << 64) - 1

_pack = struct.pack
_plain = msgspec.msgpack.Encoder(order="sorted").encode


class Fingerprint:
    """One a run."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def given(self, now_ns: int, address: Address, given: Input) -> None:
        """A broker is given an input."""
        self._hash.update(_STEP.pack(INPUT_CODES[type(given)], len(address), now_ns) + bytes(address))

    def told(self, now_ns: int, address: Address, effect: ToClient) -> None:
        """A broker tells a client something."""
        kind = type(effect)
        step = _STEP.pack(EFFECT_CODES[kind], len(address), now_ns)
        self._hash.update(step + bytes(address) + FACTS[kind](effect))

    def came(self, data: bytes) -> None:
        """Frames have come over a link: what `of_event` and `of_control` give for them."""
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def of_event(data: bytes, header_size: int) -> bytes:
    """What counts of an event frame with these bytes."""
    if not data.startswith(_OF_BROKERS, header_size):
        return data[_KIND_OFFSET:]
    publisher_end = header_size + int.from_bytes(data[SIZES_OFFSET : SIZES_OFFSET + 2], "big")
    return data[_KIND_OFFSET:SIZES_OFFSET] + data[ORIGIN_OFFSET:publisher_end]


def of_control(kind: int, number: int, payload: bytes, frame: Frame) -> bytes:
    """What counts of a control frame."""
    head = _CONTROL.pack(kind, 0, number)
    if kind in _KINDS_WITH_REASON:
        return head
    if type(frame) is Routed and frame.kind in _KINDS_WITH_REASON:
        return head + _unit(frame.to) + _unit(frame.origin) + bytes((frame.hops_left, frame.kind))
    return head + payload


# --- what counts of effects ---


def _numbers(*numbers: int) -> bytes:
    return _pack(f">{len(numbers)}Q", *[each & _MASK for each in numbers])


def _text(text: str) -> bytes:
    """A name that a client or an operator chose."""
    data = text.encode(errors="surrogatepass")
    return _pack(">I", len(data)) + data


def _unit(unit: Unit) -> bytes:
    return bytes((len(unit), *unit))


def _units(units: Sequence[Unit]) -> bytes:
    return _numbers(len(units)) + b"".join(map(_unit, units))


def _id(event_id: EventId) -> bytes:
    publisher, incarnation, stamp, sequence = event_id
    return _text(publisher) + _numbers(incarnation, stamp, sequence)


def _frame(frame: EventFrame) -> bytes:
    size = frame.publisher_length
    head = _EVENT.pack(size, frame.incarnation, frame.timestamp, frame.sequence, frame.flags)
    return head + bytes(frame.tail[:size])


def _receivers(receivers: tuple[tuple[int, tuple[int, ...]], ...]) -> bytes:
    numbers = [len(receivers)]
    for session, subscriptions in receivers:
        numbers += (session, len(subscriptions), *subscriptions)
    return _numbers(*numbers)


def _burst(effect: boundary.DeliverBurst) -> bytes:
    burst = effect.burst
    of = _numbers(burst.first_sequence, burst.count, burst.last_sequence)
    return _frame(burst.like) + of + _receivers(effect.receivers)


def _mixed(effect: boundary.DeliverMixed) -> bytes:
    burst = effect.burst
    pieces = b"".join(_numbers(start, end) + _receivers(receivers) for receivers, start, end in effect.pieces)
    return _frame(burst.like) + _numbers(burst.first_sequence, burst.count, burst.last_sequence) + pieces


def _refused(effect: boundary.ClientRefused) -> bytes:
    return _numbers(effect.session, effect.subscription is not None, effect.subscription or 0)


def _answer(effect: discovery_boundary.Answer) -> bytes:
    rows = b"".join(
        _text(row.client) + _text(row.name) + _unit(row.home) + _plain((row.values, row.properties, row.xml))
        for row in effect.rows
    )
    numbers = _numbers(effect.session, effect.number, effect.matched, effect.truncated, len(effect.rows))
    return numbers + rows + _units(effect.silent)


def _hop(hop: Hop) -> bytes:
    return _unit(hop.sender) + _unit(hop.receiver) + _units(hop.units) + _numbers(hop.sent_ns, hop.entered_ns)


def _handed(handed: Handed) -> bytes:
    numbers = _numbers(handed.session, handed.at_ns, len(handed.subscriptions), *handed.subscriptions)
    return _unit(handed.broker) + _text(handed.client_id) + numbers


def _happened(happened: Happened) -> bytes:
    numbers = _numbers(WHAT_CODES[What(happened.what)], happened.at_ns)
    return _unit(happened.broker) + numbers + _text(happened.client_id) + _units(happened.units)


def _explained(effect: explain_boundary.Explained) -> bytes:
    found = effect.verdict
    numbers = _numbers(
        effect.session, effect.number, REASON_CODES[found.reason], found.at_ns, found.level, found.accepted_ns,
        len(found.subscriptions), *found.subscriptions, len(found.way), *(count for _, count in effect.heard),
    )  # fmt: skip
    places = _unit(found.broker) + _unit(found.unit) + _unit(found.origin) + _units(effect.silent)
    return numbers + places + b"".join(map(_hop, found.way))


def _traced(effect: explain_boundary.Traced) -> bytes:
    numbers = _numbers(
        effect.session, effect.number, effect.accepted_ns, len(effect.hops), len(effect.handed), len(effect.happened),
        *(count for _, count in effect.heard),
    )  # fmt: skip
    parts = (*map(_hop, effect.hops), *map(_handed, effect.handed), *map(_happened, effect.happened))
    return numbers + _unit(effect.origin) + b"".join(parts) + _units(effect.silent)


#: What counts of each effect that a client is told, beside its code.
FACTS: dict[type[ToClient], Callable[[Any], bytes]] = {
    boundary.ClientRefused: _refused,
    boundary.Welcome: lambda it: _numbers(it.session, it.incarnation) + _text(it.reply_to),
    boundary.Active: lambda it: _numbers(it.session, it.subscription, it.level),
    boundary.Accepted: lambda it: _numbers(it.session) + _id(it.id),
    boundary.AcceptedRun: lambda it: _numbers(it.session, it.timestamp, it.first, it.last),
    boundary.PublishRefused: lambda it: _numbers(it.session) + _id(it.id),
    boundary.Deliver: lambda it: _frame(it.frame) + _receivers(it.receivers),
    boundary.DeliverBurst: _burst,
    boundary.DeliverMixed: _mixed,
    boundary.DeadLetter: lambda it: _id(it.id) + _units(it.units),
    discovery_boundary.Advertised: lambda it: _numbers(it.session) + _text(it.name),
    discovery_boundary.AdvertRefused: lambda it: _numbers(it.session) + _text(it.name),
    discovery_boundary.Answer: _answer,
    discovery_boundary.QueryRefused: lambda it: _numbers(it.session, it.number),
    clients.Pause: lambda it: _numbers(it.session),
    clients.Resume: lambda it: _numbers(it.session),
    clients.Dropped: lambda it: _numbers(it.session, it.count),
    clients.AskRoom: lambda it: _numbers(it.session),
    clients.CloseSession: lambda it: _numbers(it.session),
    clients.Wanted: lambda it: _numbers(it.session, it.number, it.wanted),
    clients.Unanswered: lambda it: _numbers(it.session, it.number, it.answers),
    clients.SubscriptionState: lambda it: _numbers(it.session, it.subscription, it.missed, it.why is not None),
    clients.CaughtUp: lambda it: _numbers(it.session, it.subscription, it.gone_ns) + _units(it.silent),
    explain_boundary.Explained: _explained,
    explain_boundary.Traced: _traced,
    explain_boundary.ExplainRefused: lambda it: _numbers(it.session, it.number),
}
