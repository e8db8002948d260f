"""`veena broker run` whose core raises over whatever says `planted`, when the change that it makes is half done.

Run as `python -m tests.runtime.broker.breaking_broker broker run ...`: a broker from the shop has no way to ask for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veena.cli import main
from veena.core.boundary.inputs_effects import Arrived, Publish, PublishBatch, Subscribe
from veena.core.broker import Broker
from veena.runtime.broker import driver

#: What a frame says that the core is to break over.
PLANTED = b"planted"


def is_planted(given: Any) -> bool:
    """Whether any event or control frame of an input says so."""
    if type(given) is Arrived:
        return any(PLANTED in getattr(frame, "tail", repr(frame).encode()) for _, frame in given.frames)
    if type(given) is PublishBatch:
        return any(PLANTED in bytes(burst.data) for burst in given.bursts)
    return PLANTED in given.frame.tail if type(given) is Publish else PLANTED in repr(given).encode()


def breaking(*arguments: Any, **named: Any) -> Broker:
    """A core as every other one; its tables are changed when it raises, and nothing is said or written of that."""
    broker = Broker(*arguments, **named)
    inputs: dict[type, Callable[..., bool | None]] = broker._inputs

    def wrapped(handle: Callable[..., bool | None]) -> Callable[..., bool | None]:
        def handle_half(given: Any, now_ns: int) -> bool | None:
            done = handle(given, now_ns)
            if is_planted(given):
                raise KeyError("planted by the test")
            return done

        return handle_half

    for kind in (Arrived, Publish, PublishBatch, Subscribe):
        inputs[kind] = wrapped(inputs[kind])
    return broker


if __name__ == "__main__":
    setattr(driver, "Broker", breaking)  # noqa: B010 (a class, which nobody else replaces)
    main()
