"""Every exception that Veena raises on purpose, and the codes of refusals.

A message names the field, the value that was found, what was expected and what to do. A peer's fault carries the reply
that its link or session is closed with; nothing else suffers from it.

A message is for people and may be reworded at any time. Programs decide by an exception's class and by its `code`.
"""

from __future__ import annotations

from enum import StrEnum


class RefusalCode(StrEnum):
    """Why a broker refused a request or ended a conversation. The values are the words on the wire (docs/WIRE.md)."""

    #: The rights of the client do not allow it. Give up, or attach as a user who may.
    DENIED = "denied"
    #: The request itself is wrong: an unknown name, a constraint that no engine reads, an id twice. Correct it.
    INVALID = "invalid"
    #: The client, or its broker, has as many of these as it may have. End some, ask for less, or ask another broker.
    LIMIT = "limit"
    #: Evaluating what the client asks for takes more work than it may. Subscribe to something cheaper (docs/XPATH.md).
    WORK = "work"
    #: The broker has too much to do. The same request can succeed here in a moment: retry.
    BUSY = "busy"
    #: The broker has just started and does not know the others yet. Retry here in a moment, or ask another broker.
    STARTING = "starting"
    #: The disk of the broker failed. Try another broker; this one needs its operator.
    STORE = "store"
    #: Another session of the same client reads the durable subscription at another broker. Give up here.
    MOVED = "moved"
    #: Nobody in the network wants the request. Retry when somebody has subscribed to it.
    UNWANTED = "unwanted"
    #: The deadline of the request passed before enough answers came. Retry with a longer deadline.
    EXPIRED = "expired"
    #: The peer broke the rules of the conversation, which is over. Upgrade or repair the program; retrying is no use.
    PROTOCOL = "protocol"
    #: The client did not read what was sent to it, or was silent; the conversation is over. Attach again.
    SLOW = "slow"
    #: The broker stops, and the conversation is over. Attach to another broker.
    CLOSING = "closing"
    #: A frame of this sender made the broker fail, and is in its quarantine; the sender is refused for a growing time.
    #: Tell the operator of the broker; attach again later, or at another broker.
    QUARANTINED = "quarantined"
    #: The clocks of two brokers differ by more than either believes. Set both clocks; the link comes back by itself.
    CLOCK = "clock"
    #: No refusal: the side that ends the conversation needs nothing more from it.
    BYE = "bye"

    @property
    def is_passing(self) -> bool:
        """True when the same request can succeed at the same broker in a moment."""
        return self is RefusalCode.BUSY or self is RefusalCode.STARTING


class VeenaError(Exception):
    """The root: `except VeenaError` catches whatever Veena raises on purpose."""

    #: Why, for programs. None where no request was refused, such as a connection that was lost.
    code: RefusalCode | None = None
    #: When only some of many events were published: the id of each, None for one that was not, or is not known to be.
    published: tuple[str | None, ...] | None = None

    def __init__(self, *args: object, code: RefusalCode | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code


class ProtocolError(VeenaError):
    """Somebody broke the rules of a conversation."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the conversation does not allow now."""

    code: RefusalCode = RefusalCode.INVALID


class RemoteProtocolError(ProtocolError):
    """The peer sent what it must not; `reply` is what it is told before its link closes."""

    code: RefusalCode = RefusalCode.PROTOCOL

    def __init__(self, reason: str, reply: str | None = None) -> None:
        super().__init__(reason)
        self.reply = reason if reply is None else reply


class ClockDiffers(RemoteProtocolError):
    """The peer passes on what is said to be of a time that this side's clock has not nearly reached."""

    code: RefusalCode = RefusalCode.CLOCK


class NotSigned(RemoteProtocolError):
    """The peer passes on a statement of another unit that nobody of that unit has signed."""

    code: RefusalCode = RefusalCode.DENIED


class OtherVersion(RemoteProtocolError):
    """The peer speaks a version of the wire that this side does not; the text names both."""


class InvalidConstraint(VeenaError):
    """A constraint that no engine will store; `position` is the offset into `text` where it went wrong."""

    code: RefusalCode = RefusalCode.INVALID

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at position {position} of {_shortened(text)})" if text else reason)
        self.text = text
        self.position = position
        self.reason = reason


class InvalidAddress(VeenaError, ValueError):
    """A unit's address, label or identifier that cannot stand for a place in the network."""

    code: RefusalCode = RefusalCode.INVALID


class InvalidEvent(VeenaError, ValueError):
    """An event, or an id of one, that must not be published."""

    code: RefusalCode = RefusalCode.INVALID


class UnrelatedEvents(VeenaError, TypeError):
    """Two event ids of different publishers or incarnations were compared: they have no order (UID-09)."""


class AccessDenied(VeenaError):
    """The rights of this client do not allow it."""

    code: RefusalCode = RefusalCode.DENIED


class NotConnected(VeenaError, ConnectionError):
    """No broker answers, or the client has been closed."""


class Refused(VeenaError):
    """A broker did not do what a client asked for; the message says why and what to do."""

    code: RefusalCode = RefusalCode.INVALID


class Overloaded(VeenaError):
    """It cannot be sent now, and the caller did not want to wait."""

    code: RefusalCode = RefusalCode.BUSY


class TimedOut(VeenaError, TimeoutError):
    """Nothing came within the time that was given."""


class Unanswered(TimedOut):
    """A request without an answer: nobody wants it, or nobody answered in time."""

    code: RefusalCode = RefusalCode.EXPIRED


class StoreError(VeenaError):
    """The disk did not take or give back what it should; `file` is which, and `remedy` what to do."""

    code: RefusalCode = RefusalCode.STORE

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


def refusal(code: RefusalCode, reason: str) -> AccessDenied | Refused:
    """What a client raises when its broker refuses a request."""
    return AccessDenied(reason) if code is RefusalCode.DENIED else Refused(reason, code=code)


def _shortened(text: str, limit: int = 80) -> str:
    return repr(text) if len(text) <= limit else repr(text[: limit - 3] + "...")
