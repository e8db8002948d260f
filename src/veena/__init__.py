"""Veena: a content-based event mesh. Everything a user needs by name stands here."""

from veena.errors import (
    AccessDenied,
    ConfigError,
    InvalidAddress,
    InvalidConstraint,
    InvalidEvent,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    StoreError,
    UnrelatedEvents,
    VeenaError,
)
from veena.event import Event, EventId

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "ConfigError",
    "Event",
    "EventId",
    "InvalidAddress",
    "InvalidConstraint",
    "InvalidEvent",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "StoreError",
    "UnrelatedEvents",
    "VeenaError",
    "__version__",
]
