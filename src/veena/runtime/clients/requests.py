"""What a client asks of its broker, frame by frame: checked against its rights and limits, then given to the core.

Each function deals with one kind of frame. What is denied, wrong in itself or too much is refused to the client; only
what breaks the rules of a conversation raises, and ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from veena.core.boundary.clients import AskWanted, Request, Unwatch
from veena.core.boundary.discovery import Advertise, Answer, FoundAdvert, Query, Withdraw
from veena.core.boundary.inputs_effects import Acknowledge, Forget, Publish, PublishBatch, Subscribe, Unsubscribe
from veena.core.interest.constraint import SUBSCRIBED, make_want
from veena.core.interest.digest import ANY_STRUCTURED, required_atoms
from veena.core.wire.burst import EventBurst
from veena.core.wire.client import (
    MAX_ROWS,
    Acknowledged,
    AskAdvertise,
    AskForget,
    AskQuery,
    AskRequest,
    AskSubscribe,
    AskUnsubscribe,
    AskUnwatch,
    AskWatch,
    AskWithdraw,
    Farewell,
    FoundRow,
    Pause,
    Resume,
    TellAnswer,
    had_of,
    shown,
)
from veena.core.wire.control import Frame, Goodbye, Heartbeat
from veena.core.wire.event import PRIORITY_MASK, RELIABLE, EventFrame
from veena.core.wire.header import DECODE_ERRORS, explain
from veena.errors import InvalidConstraint, InvalidEvent, RefusalCode, RemoteProtocolError
from veena.event import Event, EventId
from veena.matching.base.engine import Constraint
from veena.runtime.clients.conversation import Conversation, Handlers
from veena.runtime.clients.explain import ASKS
from veena.runtime.clients.staging_requests import STAGE_ASKS, take
from veena.runtime.clients.table_service import READER_ASKS

#: Bytes of rows in one frame of an answer: below any control frame's limit, with one row more.
ANSWER_BYTES = 128 * 1024

_constraint = msgspec.msgpack.Decoder(int | str | tuple[str, str | dict[str, str]])
_properties = msgspec.msgpack.Decoder(dict[str, bool | int | float | str])
_encoder = msgspec.msgpack.Encoder()


def publish(who: Conversation, frame: EventFrame) -> None:
    """An event: to be published, asked as a request, or only compared with what is wanted."""
    about, who.about = who.about, None
    if frame.flags & ~(RELIABLE | PRIORITY_MASK):
        raise RemoteProtocolError(f"event flags {frame.flags:#06x}: a client sets priority and reliable alone")
    if type(about) is AskWatch:
        _watch(who, about.number, frame)
        return
    place = (frame.timestamp, frame.sequence)
    why = RefusalCode.DENIED
    refused = None if who.rights is None else _denied(who, frame)
    if refused is None and frame.reliable:
        if len(who.unaccepted) >= who.limits.unaccepted:
            why = RefusalCode.LIMIT
            refused = f"{len(who.unaccepted)} reliable events are not accepted yet: wait for some of them"
        else:
            who.unaccepted[place] = None
    if refused is not None:
        if type(about) is AskRequest:
            who.refuse(about.number, why, refused)
        else:
            who.refuse_event(*place, why, refused)
    elif type(about) is AskRequest:
        who.give(Request(who.session, about.number, frame, about.deadline_ms, about.answers))
    else:
        who.give(Publish(who.session, frame))


def publish_again(who: Conversation, frame: Frame | EventBurst) -> int:
    """Publish what is like the read before it, if nothing has to be decided anew; how many events it was, or 0."""
    if type(frame) is not EventBurst or frame.like is not who.usual:
        return 0
    receivers = who.house.driver.again(who.session, frame)
    if receivers is None:
        return 0
    if receivers:
        who.house.deliver_burst(frame, receivers)
    return frame.count


def publish_all(who: Conversation, bursts: list[EventBurst]) -> None:
    """The events of a read, as far as nothing else came between them: in one go where nothing stands against it."""
    who.usual = None
    if who.incoming is not None or who.about is not None or who.rights is not None or not who.house.batches:
        bursts = [part for burst in bursts for part in burst.alike()]
    if who.incoming is not None:
        bursts = take(who, bursts)
    elif len(bursts) == 1 and who.house.batches and _is_allowed(who, bursts[0]):
        who.usual = None if bursts[0].like.flags & RELIABLE else bursts[0].like
        who.house.driver.give(PublishBatch(who.session, bursts))
        return
    batch: list[EventBurst] = []
    for burst in bursts:
        if who.house.batches and _is_allowed(who, burst):
            batch.append(burst)
            continue
        if batch:
            who.give(PublishBatch(who.session, batch))
            batch = []
        for frame in burst.frames():
            publish(who, frame)
    if batch:
        who.give(PublishBatch(who.session, batch))


def _is_allowed(who: Conversation, burst: EventBurst) -> bool:
    """Whether all events of a burst are to be published, and nothing has to be said of any of them."""
    like = burst.like
    if who.about is not None or like.flags & ~(RELIABLE | PRIORITY_MASK):
        return False
    if who.rights is not None and _denied(who, like) is not None:
        return False
    if like.flags & RELIABLE:
        if len(who.unaccepted) + burst.count > who.limits.unaccepted:
            return False
        for sequence in burst.sequences():
            who.unaccepted[like.timestamp, sequence] = None
    return True


def _denied(who: Conversation, frame: EventFrame) -> str | None:
    """Why the client may not publish it."""
    assert who.rights is not None
    try:
        event = frame.event()
    except InvalidEvent:
        return None  # the core says what is wrong with it
    if who.rights.may_publish(event) or (event.to and not event.topic and _is_reply(event.to)):
        return None
    return f"the rights of {who.principal_name!r} do not allow to publish {who.rights.why_not_publish(event)}"


def _is_reply(to: Iterable[str]) -> bool:
    """Whether an event only answers requests: who was asked may always answer."""
    return all(each.startswith("~") and "/!" in each for each in to)


def _about(who: Conversation, frame: AskRequest | AskWatch) -> None:
    if who.about is not None:
        raise RemoteProtocolError(f"{type(frame).__name__} {frame.number} behind another one: its event is missing")
    who.about = frame


def _watch(who: Conversation, number: int, frame: EventFrame) -> None:
    if who.rights is not None and not who.rights.allows("watch"):
        who.refuse(
            number, RefusalCode.DENIED, f"the rights of {who.principal_name!r} do not allow to watch what is wanted"
        )
        return
    try:
        event = frame.event()
    except InvalidEvent as error:
        who.refuse(number, RefusalCode.INVALID, str(error))
        return
    denied = may_not_watch(who, event)
    if denied is None:
        who.give(AskWanted(who.session, number, frame))
    else:
        who.refuse(number, RefusalCode.DENIED, denied)


def may_not_watch(who: Conversation, event: Event) -> str | None:
    """Why the client may not know whether an event is wanted: who may not publish it has no use for that."""
    if who.rights is None or who.rights.may_publish(event):
        return None
    denied = who.rights.why_not_publish(event)
    return f"the rights of {who.principal_name!r} do not allow to publish {denied}: watch only what may be published"


# --- subscriptions ---


def _subscribe(who: Conversation, frame: AskSubscribe) -> None:
    number, levels = frame.subscription, who.house.settings.levels
    try:
        constraint: Constraint = _constraint.decode(frame.constraint)
    except DECODE_ERRORS as error:
        who.refuse(number, RefusalCode.INVALID, f"constraint of subscription {number}: {error}")
        return
    if len(who.subscriptions) >= who.limits.subscriptions:
        who.refuse(
            number, RefusalCode.LIMIT, f"{len(who.subscriptions)} subscriptions: more are not allowed to this client"
        )
        return
    scope = frame.scope or levels
    denied = may_not_subscribe(who, frame.engine, constraint, scope)
    if denied is not None:
        who.refuse(number, RefusalCode.DENIED, denied)
        return
    is_new = number not in who.subscriptions
    if is_new:
        who.subscriptions.add(number, frame.engine, bool(frame.durable), bool(frame.group))
    who.give(
        Subscribe(
            who.session,
            number,
            frame.engine,
            constraint,
            scope,
            frame.durable,
            frame.ack,
            had_of(frame.had),
            frame.home if len(frame.home) == levels else None,
            frame.since_ns or None,
            frozenset(shown(frame.skips)),
            frame.group,
        )
    )


def may_not_subscribe(who: Conversation, engine: str, constraint: Constraint, scope: int) -> str | None:
    """Why the client may not have this subscription; None if it may."""
    rights = who.rights
    if rights is None or engine not in SUBSCRIBED:
        return None
    topic = constraint if engine == "topic" else constraint[0] if isinstance(constraint, tuple) else None
    if engine == "xpath":
        topic = None
    if not rights.allows("subscribe", engine, topic if isinstance(topic, str) else None):
        what = f"topic {topic!r}" if topic is not None else f"engine {engine!r}"
        return f"the rights of {who.principal_name!r} do not allow to subscribe to {what}"
    if scope > 1 and not rights.allows("wide"):
        return f"the rights of {who.principal_name!r} end at the cluster: subscribe with scope='cluster'"
    try:
        is_wide = engine == "constraint" and ANY_STRUCTURED in required_atoms(make_want(engine, constraint, scope))
    except InvalidConstraint:
        return None  # the core says what is wrong with it
    if is_wide and not rights.allows("everything"):
        return f"the rights of {who.principal_name!r} do not allow a constraint that any event may satisfy"
    return None


def _unsubscribe(who: Conversation, frame: AskUnsubscribe) -> None:
    who.subscriptions.discard(frame.subscription)
    who.give(Unsubscribe(who.session, frame.subscription))


def _forget(who: Conversation, frame: AskForget) -> None:
    who.subscriptions.discard(frame.subscription)
    who.give(Forget(who.session, frame.subscription))


def _acknowledge(who: Conversation, frame: Acknowledged) -> None:
    if frame.subscription in who.subscriptions:  # otherwise it ended while this was on its way
        who.give(Acknowledge(who.session, frame.subscription, tuple(EventId(*each) for each in frame.ids)))


# --- advertisements ---


def _advertise(who: Conversation, frame: AskAdvertise) -> None:
    scope = frame.scope or who.house.settings.levels
    if who.rights is not None and not (who.rights.allows("advertise") and (scope == 1 or who.rights.allows("wide"))):
        reason = f"the rights of {who.principal_name!r} do not allow to advertise that far"
        who.refuse_advert(frame.name, RefusalCode.DENIED, reason)
        return
    try:
        properties = _properties.decode(frame.properties) if frame.properties else {}
        xml = (str(frame.xml, "utf-8") if frame.is_text else frame.xml) if frame.xml else None
    except DECODE_ERRORS as error:
        reason = f"advertisement {frame.name!r}: {explain(error, AskAdvertise)}"
        who.refuse_advert(frame.name, RefusalCode.INVALID, reason)
        return
    who.give(Advertise(who.session, frame.name, scope, properties, xml, frame.lease_ms / 1000))


def _withdraw(who: Conversation, frame: AskWithdraw) -> None:
    who.give(Withdraw(who.session, frame.name))


def _query(who: Conversation, frame: AskQuery) -> None:
    realm = frame.realm or who.house.settings.levels
    if who.rights is not None and not (who.rights.allows("query") and (realm == 1 or who.rights.allows("wide"))):
        who.refuse(
            frame.number, RefusalCode.DENIED, f"the rights of {who.principal_name!r} do not allow to ask that far"
        )
        return
    namespaces = dict(frame.namespaces)
    who.give(
        Query(
            who.session, frame.number, frame.language, frame.text, realm, frame.full, namespaces, frame.deadline_ms,
            frame.columns, frame.limit,
        )
    )  # fmt: skip


def answer_frames(answer: Answer) -> list[TellAnswer]:
    """An answer, or a piece of one, in frames of moderate size; the last one has the counts."""
    pages = list(_pages(answer))
    if answer.more:
        return [TellAnswer(answer.number, answer.columns, page, more=True) for page in pages]
    frames = [TellAnswer(answer.number, answer.columns, page, more=True) for page in pages[:-1]]
    last = TellAnswer(
        answer.number,
        answer.columns,
        pages[-1],
        matched=answer.matched,
        silent=answer.silent,
        truncated=answer.truncated,
        undecided=answer.undecided,
    )
    return [*frames, last]


def _pages(answer: Answer) -> Iterator[tuple[FoundRow, ...]]:
    page: list[FoundRow] = []
    size = 0
    for found in answer.rows:
        row = _row(found)
        if len(page) == MAX_ROWS or size > ANSWER_BYTES:
            yield tuple(page)
            page, size = [], 0
        page.append(row)
        size += len(row.values) + len(row.properties) + len(row.xml) + len(row.client) + len(row.name) + 64
    yield tuple(page)


def _row(found: FoundAdvert) -> FoundRow:
    xml = b"" if found.xml is None else found.xml.encode() if isinstance(found.xml, str) else found.xml
    return FoundRow(
        found.client,
        found.name,
        found.home,
        b"" if found.values is None else _encoder.encode(found.values),
        b"" if found.properties is None else _encoder.encode(dict(found.properties)),
        xml,
        isinstance(found.xml, str),
    )


# --- the conversation itself ---


def _heartbeat(who: Conversation, frame: Heartbeat) -> None:
    now_ns = round(who.house.clock() * 1e9)
    if frame.echo_ns:
        who.traffic.measured((now_ns - frame.echo_ns) / 1e9)
    if frame.sent_ns:
        who.say(Heartbeat(now_ns, frame.sent_ns))


def _of_tables(who: Conversation, frame: Any) -> None:
    """A reader's question about the broker's tables."""
    tables = who.house.tables
    if tables is None:
        who.refuse(frame.number, RefusalCode.INVALID, "this broker shows its tables to nobody: it has no store")
    else:
        tables.ask(who, frame)


def _farewell(who: Conversation, frame: Farewell | Goodbye) -> None:
    who.end(RefusalCode.BYE, frame.reason, lost=isinstance(frame, Farewell) and frame.why is not RefusalCode.BYE)


_OF_FRAME: dict[type[Frame], Callable[[Conversation, Any], None]] = {
    AskSubscribe: _subscribe,
    AskUnsubscribe: _unsubscribe,
    AskForget: _forget,
    Acknowledged: _acknowledge,
    AskRequest: _about,
    AskWatch: _about,
    AskUnwatch: lambda who, frame: who.give(Unwatch(who.session, frame.number)),
    AskAdvertise: _advertise,
    AskWithdraw: _withdraw,
    AskQuery: _query,
    **ASKS,
    **STAGE_ASKS,
    **dict.fromkeys(READER_ASKS, _of_tables),
    Pause: lambda who, frame: who.reading.clog("client"),
    Resume: lambda who, frame: who.reading.unclog("client"),
    Heartbeat: _heartbeat,
    Farewell: _farewell,
    Goodbye: _farewell,
}

REQUESTS = Handlers(_OF_FRAME, publish_all, publish_again)
