"""What becomes of attached clients when users, rights or certificates change: they stay, are narrowed, or have to go.

- The user is gone or revoked, its password or token changed, or its certificate is not good any more: the session ends
  with `denied`.
- Its clearances changed, or it lost a right whose effects stay in the network (`LASTING`): the session ends with
  `busy`, and the client attaches again as what it is now.
- A subscription is not allowed any more: it ends with `denied`. Of a durable one the cursor stays where it is. So does
  a watch of an event that the client may not publish any more.
- Any other right changed: the next event or question is judged by the new rules. Open reads of tables end with `busy`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from veena.core.boundary.clients import RightsChanged, Unwatch
from veena.core.boundary.inputs_effects import Unsubscribe
from veena.core.wire.event import EventFrame
from veena.errors import AccessDenied, InvalidEvent, RefusalCode
from veena.runtime.access.log_ins import proven_by
from veena.runtime.access.rights import Action, Rights
from veena.runtime.access.users import Principal
from veena.runtime.clients.conversation import Conversation, House
from veena.runtime.clients.requests import may_not_subscribe, may_not_watch
from veena.runtime.transports.stream import Stream

#: Actions whose effects stay in the network until who asked for them is gone.
LASTING: Final[tuple[Action, ...]] = ("advertise", "watch", "wide", "log")


@dataclass(slots=True)
class Judged:
    """What came of it."""

    ended: int = 0
    narrowed: int = 0


def judge_all(house: House, why_not: Callable[[Stream], str | None]) -> Judged:
    """Judge everybody who is connected by the users of now; `why_not` says why a connection must end, if so."""
    judged = Judged()
    house.begin()
    try:
        for who in list(house.everybody.values()):
            reason = why_not(who.stream)
            if reason is not None:
                _end(who, RefusalCode.DENIED, reason, judged)
            elif who.principal is not None:
                _judge(house, who, who.principal, judged)
    finally:
        house.finish()
    return judged


def _judge(house: House, who: Conversation, before: Principal, judged: Judged) -> None:
    try:
        now = house.users.again(before, who.client_id, proven_by(who.stream))
    except AccessDenied as error:
        _end(who, RefusalCode.DENIED, str(error), judged)
        return
    if now.clearances != before.clearances or _has_lost(before.rights, now.rights):
        _end(who, RefusalCode.BUSY, f"the rights of {now.name!r} changed: attach again", judged)
        return
    is_same = _rules(now.rights) == _rules(before.rights)
    who.judged(now)
    if is_same:
        return
    if house.tables is not None:
        house.tables.judged(who)
    ended = 0
    for number in who.subscriptions.numbers():
        asked = house.driver.asked(who.session, number)
        reason = None if asked is None else may_not_subscribe(who, *asked)
        if reason is not None:
            house.driver.give(Unsubscribe(who.session, number))
            who.subscription_refused(number, RefusalCode.DENIED, reason)
            ended += 1
    for number, event in house.driver.watched(who.session):
        reason = may_not_watch(who, event)
        if reason is not None:
            house.driver.give(Unwatch(who.session, number))
            who.refuse(number, RefusalCode.DENIED, reason)
    house.driver.give(RightsChanged(who.session))
    judged.narrowed += 1
    who.note("rights changed", ended_subscriptions=ended)


def _end(who: Conversation, why: RefusalCode, reason: str, judged: Judged) -> None:
    judged.ended += 1
    who.note("session ended", code=why, reason=reason)
    who.end(why, reason)


def _has_lost(before: Rights | None, now: Rights | None) -> bool:
    """Whether something lasting was allowed, and is not any more."""
    if now is None:
        return False
    return any((before is None or before.allows(action)) and not now.allows(action) for action in LASTING)


def _rules(rights: Rights | None) -> object:
    return None if rights is None else rights.rules


def why_over(who: Conversation) -> str | None:
    """Why a session ends by itself now: its token, or its certificate, has expired."""
    now = time.time()
    if who.principal is not None and who.principal.until is not None and who.principal.until <= now:
        return f"the token of user {who.principal.name!r} has expired: ask for a new one"
    return who.house.revoked.why_not(who.stream.certificate, now)


def why_unreadable(who: Conversation, frame: EventFrame, numbers: tuple[int, ...]) -> str:
    """The rule that forbids an event to the first of these subscriptions."""
    assert who.rights is not None
    try:
        return who.rights.why_not_read(frame.event(), who.subscriptions.engine(numbers[0]))
    except InvalidEvent as error:
        return f"what cannot be read is not handed to clients with rules: {error}"
