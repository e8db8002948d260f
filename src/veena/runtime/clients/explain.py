"""What a client asks about the past of an event, and about its broker: which way, why not, how it is doing.

Answers about an event show what others want and got, so rights are tested twice: before anybody is asked (`explain`,
which only what became of an event for oneself does not need), and on the event itself when the answer is there, by the
same rules as at its delivery (design §9). A publisher may ask about its own events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from veena.address import Unit
from veena.core.boundary.explain import Explain, Explained, ExplainRefused, Handed, Hop, Trace, Traced
from veena.core.interest.constraint import SUBSCRIBED
from veena.core.wire.control import Frame
from veena.core.wire.discovery import MAX_SILENT
from veena.core.wire.event import EventFrame
from veena.core.wire.explain import (
    MAX_FACTS,
    MAX_REPORT,
    MAX_WAY,
    AskExplain,
    AskMove,
    AskReport,
    AskTrace,
    HandedRow,
    HappenedRow,
    HopRow,
    TellExplained,
    TellReport,
    TellTraced,
)
from veena.errors import InvalidEvent, RefusalCode
from veena.event import EventId
from veena.runtime.clients.conversation import Conversation
from veena.runtime.clients.redirect import move

#: Bytes of facts in one frame of a trace: below any control frame's limit, with one fact more.
PAGE_BYTES = 128 << 10
#: Units of one hop in the way of an explanation, and subscriptions of one delivery: what people look at.
MAX_SHOWN_UNITS = 32
MAX_SHOWN_SUBSCRIPTIONS = 256

#: The name of a unit, if the network file gives it one.
LabelOf = Callable[[Unit], str | None]


# --- asking ---


def _trace(who: Conversation, frame: AskTrace) -> None:
    if _may_explain(who, frame.number, "which way events went"):
        who.give(Trace(who.session, frame.number, EventId(*frame.event_id), frame.deadline_ms))


def _explain(who: Conversation, frame: AskExplain) -> None:
    is_own = frame.client_id == who.client_id
    if is_own or _may_explain(who, frame.number, "what became of events for other clients"):
        event_id = EventId(*frame.event_id)
        who.give(Explain(who.session, frame.number, event_id, frame.client_id, frame.deadline_ms))


def _may_explain(who: Conversation, number: int, what: str) -> bool:
    if who.rights is None or who.rights.allows("explain"):
        return True
    who.refuse(
        number, RefusalCode.DENIED, f"the rights of {who.principal_name!r} do not allow to ask {what}: allow 'explain'"
    )
    return False


def _report(who: Conversation, frame: AskReport) -> None:
    if who.rights is not None and not who.rights.allows("status"):
        reason = f"the rights of {who.principal_name!r} do not allow to ask how a broker is doing: allow 'status'"
        who.refuse(frame.number, RefusalCode.DENIED, reason)
        return
    report = who.house.reports.get(frame.what)
    if report is None:
        who.refuse(frame.number, RefusalCode.INVALID, f"this broker makes no report of its {frame.what}")
        return
    data = report()
    starts = range(0, max(len(data), 1), MAX_REPORT)
    who.say(*(TellReport(frame.number, data[at : at + MAX_REPORT], at != starts[-1]) for at in starts))


ASKS: dict[type[Frame], Callable[[Conversation, Any], None]] = {
    AskTrace: _trace,
    AskExplain: _explain,
    AskReport: _report,
    AskMove: move,
}


# --- answering ---


def refused(who: Conversation, effect: ExplainRefused) -> None:
    who.refuse(effect.number, effect.why, effect.reason)


def traced(who: Conversation, effect: Traced) -> None:
    if _may_read(who, effect.number, effect.event):
        who.say(*trace_frames(effect, who.house.label_of))


def explained(who: Conversation, effect: Explained) -> None:
    if _may_read(who, effect.number, effect.event):
        who.say(explanation_frame(effect, who.house.label_of))


TELLS: dict[type[Any], Callable[[Conversation, Any], None]] = {
    ExplainRefused: refused,
    Traced: traced,
    Explained: explained,
}


def _may_read(who: Conversation, number: int, frame: EventFrame | None) -> bool:
    """Whether the client might be handed such an event at all; where nobody remembers it, nothing is shown."""
    if who.rights is None or frame is None or frame.publisher == who.client_id:
        return True
    try:
        event = frame.event()
    except InvalidEvent:
        may = False
    else:
        may = any(who.rights.may_read(event, engine) for engine in SUBSCRIBED)
    if not may:
        who.refuse(number, RefusalCode.DENIED, f"the rights of {who.principal_name!r} do not allow to read this event")
    return may


def explanation_frame(effect: Explained, label_of: LabelOf) -> TellExplained:
    found = effect.verdict
    way = tuple(_hop_row(hop, MAX_SHOWN_UNITS) for hop in found.way[:MAX_WAY])
    units = [found.broker, found.unit, found.origin, *effect.silent[:MAX_SILENT]]
    for hop in way:
        units += (hop.sender, hop.receiver, *hop.units)
    return TellExplained(
        effect.number,
        found.reason.value,
        found.text,
        found.at_ns,
        found.broker,
        found.unit,
        found.level,
        found.subscriptions[:MAX_SHOWN_SUBSCRIPTIONS],
        way,
        found.accepted_ns,
        found.origin,
        effect.silent[:MAX_SILENT],
        effect.heard,  # type: ignore[arg-type]  # levels as the settings have them
        tuple(_labels(units, label_of))[:MAX_FACTS],
    )


def trace_frames(effect: Traced, label_of: LabelOf) -> list[TellTraced]:
    """A trace in frames of moderate size."""
    units: list[Unit] = [effect.origin, *effect.silent[:MAX_SILENT]]
    for hop in effect.hops:
        units += (hop.sender, hop.receiver, *hop.units)
    for one in effect.handed:
        units.append(one.broker)
    for each in effect.happened:
        units += (each.broker, *each.units)
    facts: list[HopRow | HandedRow | HappenedRow | tuple[Unit, str]] = [
        *(_hop_row(hop) for hop in effect.hops),
        *map(_handed_row, effect.handed),
        *(
            HappenedRow(each.broker, each.what, each.at_ns, each.client_id, each.units, each.text)
            for each in effect.happened
        ),
        *_labels(units, label_of),
    ]
    pages = list(_pages(facts))
    silent, last = effect.silent[:MAX_SILENT], len(pages) - 1
    return [
        TellTraced(
            effect.number,
            effect.origin,
            effect.accepted_ns,
            tuple(fact for fact in page if type(fact) is HopRow),
            tuple(fact for fact in page if type(fact) is HandedRow),
            tuple(fact for fact in page if type(fact) is HappenedRow),
            tuple(fact for fact in page if type(fact) is tuple),
            silent if at == last else (),
            effect.heard if at == last else (),  # type: ignore[arg-type]  # as above
            more=at != last,
        )
        for at, page in enumerate(pages)
    ]


def _pages(facts: Iterable[Any]) -> Iterator[list[Any]]:
    page: list[Any] = []
    size = 0
    for fact in facts:
        if len(page) == MAX_FACTS or size > PAGE_BYTES:
            yield page
            page, size = [], 0
        page.append(fact)
        size += _size(fact)
    yield page


def _size(fact: HopRow | HandedRow | HappenedRow | tuple[Unit, str]) -> int:
    """No less than what it takes on the wire."""
    if type(fact) is tuple:
        return 32 + 4 * len(fact[1])
    if isinstance(fact, HandedRow):
        return 64 + 4 * len(fact.client_id) + 9 * len(fact.subscriptions)
    text = 4 * (len(fact.text) + len(fact.client_id)) if isinstance(fact, HappenedRow) else 0
    return 96 + text + 10 * len(fact.units)  # type: ignore[union-attr]


def _hop_row(hop: Hop, most: int = 1 << 9) -> HopRow:
    return HopRow(hop.sender, hop.receiver, hop.units[:most], hop.sent_ns, hop.entered_ns)


def _handed_row(one: Handed) -> HandedRow:
    return HandedRow(one.broker, one.client_id, one.session, one.subscriptions[:MAX_SHOWN_SUBSCRIPTIONS], one.at_ns)


def _labels(units: Iterable[Unit], label_of: LabelOf) -> Iterator[tuple[Unit, str]]:
    for unit in dict.fromkeys(units):
        label = label_of(unit) if unit else None
        if label is not None:
            yield unit, label
