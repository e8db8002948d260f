"""What a client asks about the past of an event and about its broker: the answers, gathered from their frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from veena.address import Address, Unit, format_address
from veena.core.boundary.explain import Handed, Happened, Hop, Reason
from veena.core.wire.explain import (
    MAX_QUESTION_MS,
    MAX_SENT_AWAY,
    AskExplain,
    AskMove,
    AskReport,
    AskTrace,
    HopRow,
    TellExplained,
    TellMoved,
    TellReport,
    TellTraced,
)
from veena.errors import LocalProtocolError, NotConnected, RemoteProtocolError, TimedOut, VeenaError
from veena.event import EventId, check_client_id

if TYPE_CHECKING:
    from veena.client.session import Session

#: Facts of one trace and bytes of one report that are gathered: more than any broker sends.
MAX_FACTS = 1 << 20
MAX_REPORT = 64 << 20
#: Beyond the broker's own deadline: it says itself who was silent.
GRACE_S = 5.0
#: How long a report may take.
REPORT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What both kinds of answers have."""

    #: Where the event was accepted and when; empty and 0 where nobody remembers it.
    origin: Address
    accepted_ns: int
    #: Units from which nothing came: what they know is not in the answer.
    silent: tuple[Unit, ...]
    #: "off", "deliveries", "all" -> how many brokers answered that remember so much.
    heard: Mapping[str, int]
    labels: Mapping[Unit, str]

    def label(self, unit: Unit) -> str:
        """The name of a unit in the broker's network file, else its address."""
        return self.labels.get(unit) or format_address(unit)


@dataclass(frozen=True, slots=True)
class TraceAnswer(_Known):
    """The way of an event, in the order of time."""

    hops: tuple[Hop, ...]
    handed: tuple[Handed, ...]
    #: What else became of copies: kept, expired, dropped, denied ...
    happened: tuple[Happened, ...]


@dataclass(frozen=True, slots=True)
class Explanation(_Known):
    """What became of an event for a client."""

    reason: Reason
    text: str
    at_ns: int
    broker: Address
    unit: Unit
    level: int
    subscriptions: tuple[int, ...]
    way: tuple[Hop, ...]

    @property
    def is_delivered(self) -> bool:
        return self.reason is Reason.DELIVERED


@dataclass(frozen=True, slots=True)
class SentAway:
    """Clients that their broker told to go elsewhere, and those that it does not have."""

    sent: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Gathered:
    future: asyncio.Future[Any]
    #: What came before the last part.
    traced: list[TellTraced] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    facts: int = 0


class PastQuestions:
    """The questions of one client that are not answered yet."""

    def __init__(self) -> None:
        self._open: dict[int, _Gathered] = {}

    def ask(self, number: int) -> asyncio.Future[Any]:
        found = self._open[number] = _Gathered(asyncio.get_running_loop().create_future())
        return found.future

    def forget(self, number: int) -> None:
        self._open.pop(number, None)

    def hear_traced(self, frame: TellTraced) -> None:
        found = self._open.get(frame.number)
        if found is None:
            return
        found.traced.append(frame)
        found.facts += len(frame.hops) + len(frame.handed) + len(frame.happened) + len(frame.labels)
        if found.facts > MAX_FACTS:
            raise RemoteProtocolError(f"trace {frame.number} of more than {MAX_FACTS} facts")
        if not frame.more:
            self._resolve(frame.number, _trace_answer(found.traced))

    def hear_explained(self, frame: TellExplained) -> None:
        if frame.number in self._open:
            self._resolve(frame.number, _explanation(frame))

    def hear_report(self, frame: TellReport) -> None:
        found = self._open.get(frame.number)
        if found is None:
            return
        found.data += frame.data
        if len(found.data) > MAX_REPORT:
            raise RemoteProtocolError(f"report {frame.number} of more than {MAX_REPORT} bytes")
        if frame.more:
            return
        try:
            report = json.loads(found.data)
        except ValueError as error:
            raise RemoteProtocolError(f"report {frame.number} is no JSON: {error}") from None
        self._resolve(frame.number, report)

    def hear_moved(self, frame: TellMoved) -> None:
        if frame.number in self._open:
            self._resolve(frame.number, frame)

    def hear_refused(self, number: int, error: VeenaError) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            _fail(found.future, error)

    def detached(self, reason: str) -> None:
        """The connection is gone, and with it what was asked over it."""
        for found in self._open.values():
            _fail(found.future, NotConnected(f"the connection was lost ({reason}): ask again"))
        self._open.clear()

    def _resolve(self, number: int, answer: object) -> None:
        found = self._open.pop(number)
        if not found.future.done():
            found.future.set_result(answer)


# --- asking ---


async def trace(session: Session, event_id: EventId | str, timeout: float) -> TraceAnswer:
    wanted, deadline_ms = _event_id(event_id), _deadline(timeout)
    await session.wait_attached(timeout)
    number = session.new_number()
    answer: TraceAnswer = await _ask(session, AskTrace(number, wanted, deadline_ms), timeout, f"trace of {wanted}")
    return answer


async def explain(session: Session, event_id: EventId | str, client_id: str, timeout: float) -> Explanation:
    wanted, deadline_ms = _event_id(event_id), _deadline(timeout)
    check_client_id(client_id)
    await session.wait_attached(timeout)
    ask = AskExplain(session.new_number(), wanted, client_id, deadline_ms)
    answer: Explanation = await _ask(session, ask, timeout, f"explanation of {wanted} for {client_id}")
    return answer


async def status(session: Session, timeout: float) -> dict[str, Any]:
    await session.wait_attached(timeout)
    found: dict[str, Any] = await _ask(session, AskReport(session.new_number(), "status"), timeout, "status")
    return found


async def topology(session: Session, timeout: float) -> dict[str, Any]:
    await session.wait_attached(timeout)
    found: dict[str, Any] = await _ask(session, AskReport(session.new_number(), "map"), timeout, "map")
    return found


async def attached(session: Session, timeout: float) -> dict[str, Any]:
    await session.wait_attached(timeout)
    found: dict[str, Any] = await _ask(session, AskReport(session.new_number(), "clients"), timeout, "list of clients")
    return found


async def send_away(
    session: Session, clients: Sequence[str], urls: tuple[str, ...], reason: str, timeout: float
) -> SentAway:
    sent: list[str] = []
    absent: list[str] = []
    for at in range(0, len(clients), MAX_SENT_AWAY):
        await session.wait_attached(timeout)
        frame = AskMove(session.new_number(), tuple(clients[at : at + MAX_SENT_AWAY]), urls, reason)
        answer: TellMoved = await _ask(session, frame, timeout, "sending clients elsewhere")
        sent += answer.sent
        absent += answer.absent
    return SentAway(tuple(sent), tuple(absent))


async def _ask(session: Session, frame: AskTrace | AskExplain | AskReport | AskMove, timeout: float, what: str) -> Any:
    past = session.questions.past
    future = past.ask(frame.number)
    session.send(frame)
    try:
        async with asyncio.timeout(timeout + GRACE_S):
            return await future
    except TimeoutError as error:
        if isinstance(error, TimedOut):
            raise
        raise TimedOut(f"{what}: the broker said nothing within {timeout + GRACE_S:g} seconds") from None
    finally:
        past.forget(frame.number)


def _event_id(given: EventId | str) -> EventId:
    return EventId.parse(given) if isinstance(given, str) else given


def _deadline(timeout: float) -> int:
    if not 0 < timeout * 1000 <= MAX_QUESTION_MS:
        raise LocalProtocolError(f"timeout {timeout:g}: expected up to {MAX_QUESTION_MS // 1000} seconds")
    return max(1, round(timeout * 1000))


# --- answers ---


def _trace_answer(parts: list[TellTraced]) -> TraceAnswer:
    last = parts[-1]
    return TraceAnswer(
        last.origin,
        last.accepted_ns,
        last.silent,
        dict(last.heard),
        {unit: label for part in parts for unit, label in part.labels},
        tuple(_hop(row) for part in parts for row in part.hops),
        tuple(
            Handed(row.broker, row.client_id, row.session, row.subscriptions, row.at_ns)
            for part in parts
            for row in part.handed
        ),
        tuple(
            Happened(row.broker, row.what, row.at_ns, row.client_id, row.units, row.text)
            for part in parts
            for row in part.happened
        ),
    )


def _explanation(frame: TellExplained) -> Explanation:
    try:
        reason = Reason(frame.reason)
    except ValueError:
        reason = Reason.UNKNOWN  # of a newer broker: its text says it
    return Explanation(
        frame.origin,
        frame.accepted_ns,
        frame.silent,
        dict(frame.heard),
        dict(frame.labels),
        reason,
        frame.text,
        frame.at_ns,
        frame.broker,
        frame.unit,
        frame.level,
        frame.subscriptions,
        tuple(map(_hop, frame.way)),
    )


def _hop(row: HopRow) -> Hop:
    return Hop(row.sender, row.receiver, row.units, row.sent_ns, row.entered_ns)


def _fail(future: asyncio.Future[Any], error: VeenaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # who waited may have gone
