"""The fingerprint of a run counts codes, addresses, times and ids, and neither names of classes nor reasons."""

from __future__ import annotations

import inspect
import struct
from typing import get_args

import msgspec

from veena.core.boundary.explain import Reason
from veena.core.boundary.inputs_effects import AcceptedRun, ClientRefused, Deliver, Effect, Input, Stored, ToClient
from veena.core.wire import codec as wire
from veena.core.wire import control as frames
from veena.core.wire import membership as setup_frames
from veena.core.wire.control import Frame, Goodbye, Heartbeat, Routed
from veena.core.wire.event import EventCodec
from veena.core.wire.trace_facts import What
from veena.errors import RefusalCode
from veena.event import Event, EventId
from veena.sim.world import fingerprint
from veena.sim.world.fingerprint import Fingerprint, of_control, of_event

HOST = (0, 1, 2, 6)
CODEC = EventCodec(4, 32)


def hash_of(data: bytes) -> str:
    """The hash of these bytes alone."""
    made = Fingerprint()
    made.came(data)
    return made.hexdigest()


def told(effect: ToClient) -> str:
    made = Fingerprint()
    made.told(5, HOST, effect)
    return made.hexdigest()


def event(publisher: str, body: bytes = b"x", **headers: str) -> bytes:
    of = Event(topic="t", body=body, headers=headers, event_id=EventId(publisher, 1, 2, 3), timestamp_ns=4)
    return CODEC.encode(CODEC.frame(of), 9)


def test_every_input_and_effect_has_a_code_of_its_own() -> None:
    """A new one needs the next free code."""
    assert set(fingerprint.INPUT_CODES) == set(get_args(Input))
    assert set(fingerprint.EFFECT_CODES) == set(get_args(Effect))
    assert set(fingerprint.FACTS) == set(get_args(ToClient))
    codes = [*fingerprint.INPUT_CODES.values(), *fingerprint.EFFECT_CODES.values()]
    assert len(set(codes)) == len(codes) and min(codes) > 0 and max(codes) < 256
    assert set(fingerprint.REASON_CODES) == set(Reason) and len(set(fingerprint.REASON_CODES.values())) == len(Reason)
    assert set(fingerprint.WHAT_CODES) == set(What) and len(set(fingerprint.WHAT_CODES.values())) == len(What)


def test_an_input_counts_as_code_time_and_address() -> None:
    """The layout of the module's text, byte for byte: no name of a class is in it."""
    made = Fingerprint()
    made.given(5, HOST, Stored(1))
    assert made.hexdigest() == hash_of(struct.pack(">BBQ4B", 6, 4, 5, *HOST))


def test_an_effect_counts_as_code_and_numbers() -> None:
    run = AcceptedRun(3, 7, 1, 2)
    assert told(run) == hash_of(struct.pack(">BBQ4B4Q", 141, 4, 5, *HOST, 3, 7, 1, 2))
    assert told(run) != told(AcceptedRun(3, 7, 1, 3))


def test_reasons_do_not_count() -> None:
    """A reworded refusal is the same run; one for another subscription is not."""
    assert told(ClientRefused(1, 2, RefusalCode.INVALID, "no")) == told(
        ClientRefused(1, 2, RefusalCode.INVALID, "certainly not")
    )
    assert told(ClientRefused(1, 2, RefusalCode.INVALID, "no")) != told(ClientRefused(1, 3, RefusalCode.INVALID, "no"))
    assert told(ClientRefused(1, 0, RefusalCode.INVALID, "no")) != told(
        ClientRefused(1, None, RefusalCode.INVALID, "no")
    )


def test_no_effect_counts_with_its_reason() -> None:
    """No function of `FACTS` reads a field that holds a text for people."""
    for facts in fingerprint.FACTS.values():
        words = inspect.getsource(facts).replace("REASON_CODES[found.reason]", "")
        assert ".reason" not in words and ".text" not in words


def test_a_delivery_counts_with_its_event_and_receivers() -> None:
    frame = CODEC.read(event("alice"))
    assert told(Deliver(frame, ((1, (2,)),))) == told(Deliver(frame, ((1, (2,)),)))
    others = [((1, (3,)),), ((2, (2,)),), ((1, (2,)), (2, ())), ((1, (2, 2)),)]
    assert len({told(Deliver(frame, each)) for each in others} | {told(Deliver(frame, ((1, (2,)),)))}) == 5
    assert told(Deliver(CODEC.read(event("bob")), ((1, (2,)),))) != told(Deliver(frame, ((1, (2,)),)))


def test_frames_count_without_reasons_and_versions() -> None:
    """What a client published counts whole; what brokers write of their own may hold reasons."""

    def control(frame: Frame, number: int = 1) -> bytes:
        kind, payload = wire.enclose(frame)
        return of_control(kind, number, payload, frame)

    assert control(Goodbye("a")) == control(Goodbye("b")) != control(Goodbye("a"), 2)
    assert control(Heartbeat(1, 0)) != control(Heartbeat(2, 0))
    routed = [Routed(HOST, HOST, 3, *wire.enclose(Goodbye(reason))) for reason in "ab"]
    assert control(routed[0]) == control(routed[1]) != control(msgspec.structs.replace(routed[0], hops_left=4))

    def counted(data: bytes) -> bytes:
        return of_event(data, CODEC.header_size)

    assert counted(event("alice", b"a")) != counted(event("alice", b"b"))
    letters = "veena.dead-letters.0.1.2.6"
    assert (
        counted(event(letters, reason="late")) == counted(event(letters, reason="too late")) != counted(event("~0.1"))
    )
    assert counted(event("alice")) == event("alice")[5:], "length and version do not count"


def test_every_frame_with_a_reason_is_known() -> None:
    """Of frames between brokers; clients speak with brokers as inputs and effects here."""
    found = {
        kind
        for module in (frames, setup_frames)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Frame) and "reason" in kind.__struct_fields__
    }
    assert found == set(fingerprint.WITH_REASON)
