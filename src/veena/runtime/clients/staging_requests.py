"""What clients ask of staging, frame by frame; and the events behind an AskStage, which are not published yet.

They are checked like those that are published: the same rights, the same bounds, once a burst. What is wrong with one
of them is told when all of them have come, and nothing of that chunk is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veena.core.messages.addresses import is_internal
from veena.core.wire.burst import EventBurst
from veena.core.wire.control import Frame
from veena.core.wire.event import PRIORITY_MASK, RELIABLE, EventFrame
from veena.core.wire.staging import AskAbandon, AskPublish, AskPublished, AskStage, TellPublished, TellStaged
from veena.errors import InvalidEvent, RefusalCode, RemoteProtocolError
from veena.matching.xpath.document import check_document
from veena.runtime.clients.conversation import Conversation
from veena.runtime.clients.staging import Incoming, Refusal, Then, payer

#: Bytes of the events behind one AskStage: one write to the disk. A client in a hurry sends about a megabyte.
MAX_CHUNK_BYTES = 32 << 20
#: Chunks of one client that are not answered yet: far more than one that waits for answers has on their way.
MAX_CHUNKS = 64
_NO_STAGING: Refusal = (RefusalCode.STORE, "this broker stages nothing: it has no store; ask one that does")


def _stage(who: Conversation, frame: AskStage) -> None:
    if who.incoming is not None:
        raise RemoteProtocolError(f"AskStage {frame.number}: {who.incoming.left} events of the one before are missing")
    if who.about is not None:
        raise RemoteProtocolError(f"AskStage {frame.number} behind {type(who.about).__name__}: its event is missing")
    who.incoming = Incoming(frame, _NO_STAGING if who.house.staging is None else None)


def take(who: Conversation, bursts: list[EventBurst]) -> list[EventBurst]:
    """Take events that are to be staged; those behind them, which are not."""
    rest = list(reversed(bursts))
    while rest and who.incoming is not None:
        incoming, burst = who.incoming, rest.pop()
        if burst.count > incoming.left:
            codec = who.house.codec
            rest += [
                EventBurst(frame, frame.sequence, 1, frame.sequence, codec.encode(frame, 0), codec, frame)
                for frame in reversed(burst.frames())
            ]
            continue
        _add(who, incoming, burst)
        if not incoming.left:
            who.incoming = None
            _finish(who, incoming)
    return rest[::-1]


def _payer(who: Conversation) -> str:
    return payer(who.owner, who.client_id)


def _add(who: Conversation, incoming: Incoming, burst: EventBurst) -> None:
    at = incoming.ask.first + incoming.ask.rows - incoming.left
    incoming.left -= burst.count
    if incoming.refused is None:
        wrong = _wrong(who, burst.like)
        if wrong is not None:
            incoming.refused = (wrong[0], f"row {at}: {wrong[1]}")
    size = len(burst.data)
    if incoming.refused is None and incoming.size + size > MAX_CHUNK_BYTES:
        incoming.refused = (
            RefusalCode.LIMIT,
            f"more than {MAX_CHUNK_BYTES} bytes behind one AskStage: send fewer rows each",
        )
    if incoming.refused is None:
        assert who.house.staging is not None
        incoming.refused = who.house.staging.take_room(_payer(who), size, who.limits.staged_share)
    if incoming.refused is None:
        incoming.data.append(burst.data)
        incoming.size += size
    else:
        incoming.abandon(who.house.staging, _payer(who))


def _wrong(who: Conversation, like: EventFrame) -> Refusal | None:
    """Why such an event cannot be published by this client."""
    if like.flags & ~(RELIABLE | PRIORITY_MASK):
        raise RemoteProtocolError(f"event flags {like.flags:#06x}: a client sets priority and reliable alone")
    if like.tail[: like.publisher_length] != who.client_id.encode():
        return RefusalCode.INVALID, f"its publisher is not the client {who.client_id!r} who stages it"
    if like.to_serve or like.served:
        return RefusalCode.INVALID, "it names units: destinations are the broker's to compute"
    try:
        event = like.event()
        if event.xml is not None:
            check_document(event.xml)
    except InvalidEvent as error:
        return RefusalCode.INVALID, str(error)
    if any(map(is_internal, event.to)):
        return RefusalCode.INVALID, "ids that begin with ~ are the brokers' own; name clients"
    if who.rights is not None and not who.rights.may_publish(event):
        reason = f"the rights of {who.principal_name!r} do not allow to publish {who.rights.why_not_publish(event)}"
        return RefusalCode.DENIED, reason
    return None


def _finish(who: Conversation, incoming: Incoming) -> None:
    """All events of a chunk have come."""
    ask = incoming.ask
    if incoming.refused is not None:
        who.refuse(ask.number, *incoming.refused)
        return
    staging = who.house.staging
    assert staging is not None
    if who.chunks >= MAX_CHUNKS:
        staging.give_room(_payer(who), incoming.size)
        who.refuse(ask.number, RefusalCode.LIMIT, f"{who.chunks} chunks are not answered yet: wait for some of them")
        return
    who.chunks += 1
    answer = _answer(who, ask.number)

    def then(told: TellStaged | TellPublished | Refusal) -> None:
        who.chunks -= 1
        answer(told)

    staging.stage(who.owner, who.client_id, ask, b"".join(incoming.data), then)


def _publish(who: Conversation, frame: AskPublish) -> None:
    staging = who.house.staging
    if staging is None:
        who.refuse(frame.number, *_NO_STAGING)
    else:
        staging.publish(who.owner, who.client_id, who.incarnation, frame, _answer(who, frame.number))


def _abandon(who: Conversation, frame: AskAbandon) -> None:
    staging = who.house.staging
    if staging is None:
        who.refuse(frame.number, *_NO_STAGING)
    else:
        staging.abandon(who.owner, frame, _answer(who, frame.number))


def _published(who: Conversation, frame: AskPublished) -> None:
    staging = who.house.staging
    if staging is None:
        who.refuse(frame.number, *_NO_STAGING)
    else:
        who.say(TellPublished(frame.number, staging.last_batch(who.owner, frame.query)))


def _answer(who: Conversation, number: int) -> Then:
    """Tell the client, if it is still there."""

    def then(told: TellStaged | TellPublished | Refusal) -> None:
        if who.has_ended():
            return
        if isinstance(told, tuple):
            who.refuse(number, *told)
        else:
            who.say(told)

    return then


STAGE_ASKS: dict[type[Frame], Callable[[Conversation, Any], None]] = {
    AskStage: _stage,
    AskPublish: _publish,
    AskAbandon: _abandon,
    AskPublished: _published,
}
