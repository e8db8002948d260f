"""Veena: a content-based event mesh. Everything a user needs by name stands here.

What an application rarely needs all of (the client, the engines) is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from veena.errors import (
    AccessDenied,
    ConfigError,
    InvalidAddress,
    InvalidConstraint,
    InvalidEvent,
    LocalProtocolError,
    NotConnected,
    Overloaded,
    ProtocolError,
    Refused,
    RemoteProtocolError,
    StoreError,
    TimedOut,
    Unanswered,
    UnrelatedEvents,
    VeenaError,
)
from veena.event import Event, EventId

if TYPE_CHECKING:
    from veena import blocking, collab, matching, testing
    from veena.client import Client, Subscription, connect

__version__ = "0.1.0"

#: Names that are looked up on their first use, and the modules that they are in; a module's own name is the module.
_LATER = {
    "blocking": "veena.blocking",
    "client": "veena.client",
    "collab": "veena.collab",
    "matching": "veena.matching",
    "testing": "veena.testing",
    "Client": "veena.client",
    "Subscription": "veena.client",
    "connect": "veena.client",
}

__all__ = [
    "AccessDenied",
    "Client",
    "ConfigError",
    "Event",
    "EventId",
    "InvalidAddress",
    "InvalidConstraint",
    "InvalidEvent",
    "LocalProtocolError",
    "NotConnected",
    "Overloaded",
    "ProtocolError",
    "Refused",
    "RemoteProtocolError",
    "StoreError",
    "Subscription",
    "TimedOut",
    "Unanswered",
    "UnrelatedEvents",
    "VeenaError",
    "__version__",
    "blocking",
    "collab",
    "connect",
    "matching",
    "testing",
]


def __getattr__(name: str) -> Any:
    where = _LATER.get(name)
    if where is None:
        raise AttributeError(f"module 'veena' has no attribute {name!r}")
    module = importlib.import_module(where)
    return module if where == f"veena.{name}" else getattr(module, name)
