"""Sends clients of a broker to another one (FUT-06, FUT-07). `clients_view` lists whom to send.

An induced roam is a redirection like that of a broker with too many clients: the client leaves in good order, attaches
where it was sent, and what is durable or reliable follows, once and in order. A client that finds nobody there comes
back: it was sent, not thrown out. Who asks for it needs the right `move`.
"""

from __future__ import annotations

import logging

from veena.core.wire.client import TellRedirect
from veena.core.wire.explain import AskMove, TellMoved
from veena.errors import ConfigError, RefusalCode
from veena.runtime.clients.conversation import Conversation
from veena.runtime.transports.url import parse_url

INDUCED = "another broker is nearer"


def move(who: Conversation, frame: AskMove) -> None:
    """Send clients of this broker elsewhere, on somebody's word."""
    if who.rights is not None and not who.rights.allows("move"):
        reason = f"the rights of {who.principal_name!r} do not allow to send clients elsewhere: allow 'move'"
        who.refuse(frame.number, RefusalCode.DENIED, reason)
        return
    try:
        for url in frame.urls:
            parse_url(url)
    except ConfigError as error:
        who.refuse(frame.number, RefusalCode.INVALID, str(error))
        return
    here: dict[str, list[Conversation]] = {}
    for each in who.house.sessions.values():
        here.setdefault(each.client_id, []).append(each)
    sent: list[str] = []
    absent: list[str] = []
    for client_id in dict.fromkeys(frame.clients):
        found = here.get(client_id)
        (sent if found else absent).append(client_id)
        for each in found or ():
            each.say(TellRedirect(frame.urls, frame.reason or INDUCED))
    who.house.log.noise(
        "clients are sent elsewhere", level=logging.INFO, by=who.name, count=len(sent), to=",".join(frame.urls)
    )
    who.say(TellMoved(frame.number, tuple(sent), tuple(absent)))
