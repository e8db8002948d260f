"""Every exception that Veena raises on purpose, on one screen.

A message names the field, the value that was found, what was expected and what to do. A peer's fault carries the reply
that its link or session is closed with; nothing else suffers from it.
"""

from __future__ import annotations


class VeenaError(Exception):
    """The root: `except VeenaError` catches whatever Veena raises on purpose."""


class ProtocolError(VeenaError):
    """Somebody broke the rules of a conversation."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the conversation does not allow now."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what it must not; `reply` is what it is told before its link closes."""

    def __init__(self, reason: str, reply: str | None = None) -> None:
        super().__init__(reason)
        self.reply = reason if reply is None else reply


class OtherVersion(RemoteProtocolError):
    """The peer speaks a version of the wire that this side does not; the text names both."""


class InvalidConstraint(VeenaError):
    """A constraint that no engine will store; `position` is the offset into `text` where it went wrong."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at position {position} of {_shortened(text)})" if text else reason)
        self.text = text
        self.position = position
        self.reason = reason


class InvalidAddress(VeenaError, ValueError):
    """A unit's address, label or identifier that cannot stand for a place in the network."""


class InvalidEvent(VeenaError, ValueError):
    """An event, or an id of one, that must not be published."""


class UnrelatedEvents(VeenaError, TypeError):
    """Two event ids of different publishers or incarnations were compared: they have no order (UID-09)."""


class AccessDenied(VeenaError):
    """The rights of this client do not allow it."""


class NotConnected(VeenaError, ConnectionError):
    """No broker answers, or the client has been closed."""


class Refused(VeenaError):
    """A broker did not do what a client asked for; the message says why and what to do."""


class Overloaded(VeenaError):
    """It cannot be sent now, and the caller did not want to wait."""


class TimedOut(VeenaError, TimeoutError):
    """Nothing came within the time that was given."""


class Unanswered(TimedOut):
    """A request without an answer: nobody wants it, or nobody answered in time."""


class StoreError(VeenaError):
    """The disk did not take or give back what it should; `file` is which, and `remedy` what to do."""

    def __init__(self, file: str, reason: str, remedy: str) -> None:
        super().__init__(f"store {file}: {reason}; {remedy}")
        self.file = file
        self.reason = reason
        self.remedy = remedy

    @classmethod
    def told(cls, text: str) -> StoreError:
        """What a broker says to a client of its own disk, word for word."""
        found = cls("", text, "")
        found.args = (text,)
        return found


class ConfigError(VeenaError):
    """A file of settings that cannot be used; `entry` is where in it, and `remedy` what to write instead."""

    def __init__(self, file: str, entry: str, reason: str, remedy: str) -> None:
        super().__init__(f"{file}: {entry}: {reason}; {remedy}")
        self.file = file
        self.entry = entry
        self.reason = reason
        self.remedy = remedy


class DataLost(VeenaError):
    """Rows of a broker's table were given up before they were read: those from `asked` on, up to `first`."""

    def __init__(self, broker: str, table: str, asked: int, first: int) -> None:
        super().__init__(
            f"{table} of broker {broker!r}: offset {asked} was asked for, but what is kept begins at {first}; the rows"
            f" between were given up by age or size: read on from {first}, and raise history_s or max_bytes in [store],"
            " or commit what was read, so that more is kept"
        )
        self.broker = broker
        self.table = table
        self.asked = asked
        self.first = first


class PipelineError(VeenaError):
    """A job on Spark that cannot run as it was asked for; the message names what was found and what to do."""


def _shortened(text: str, limit: int = 80) -> str:
    return repr(text) if len(text) <= limit else repr(text[: limit - 3] + "...")
