"""What crosses the boundary for quality of service: slow clients, back-pressure to publishers, quench.

Inputs and Effects like those of `inputs_effects`, which counts them among its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.core.wire.event import EventFrame

# --- inputs ---


@dataclass(frozen=True, slots=True)
class SessionClogged:
    """A client does not read: what is on its way to it is above the driver's mark. Hand it nothing more for now."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionClear:
    """It reads again: what is on its way to it has fallen below the driver's mark."""

    session: int


@dataclass(frozen=True, slots=True)
class AskWanted:
    """A publisher asks whether an event like this one would be for anybody, now and until `Unwatch` (SYS-01).

    The frame is one that `EventCodec.frame` makes: engines see its fields; id and body do not matter.
    """

    session: int
    number: int
    frame: EventFrame


@dataclass(frozen=True, slots=True)
class Unwatch:
    """It no longer asks."""

    session: int
    number: int


ServiceInput = SessionClogged | SessionClear | AskWanted | Unwatch


# --- effects ---


@dataclass(frozen=True, slots=True)
class Pause:
    """This broker is filling up: a publisher had better wait; soon it will be refused."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused publisher may go on."""

    session: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Tell a client that reads again how many events it missed, before those that waited are handed to it."""

    session: int
    count: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close a client's connection and answer `ClientDown`; it is handed nothing more."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The answer to `AskWanted`, at once and whenever it changes: whether anybody may want such an event."""

    session: int
    number: int
    wanted: bool


ServiceEffect = Pause | Resume | Dropped | CloseSession | Wanted
