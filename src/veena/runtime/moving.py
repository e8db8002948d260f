"""Who is attached to a broker, from where, and sending some of them to another one (FUT-06, FUT-07).

The list is what an adviser needs: each client's place by its own word (attribute `place`) or by the operator's
(`[locator] regions`), its measured round trip, what went over its connection; and whom the clients here hear.

An induced roam is a redirection like that of a broker with too many clients: the client leaves in good order, attaches
where it was sent, and what is durable or reliable follows, once and in order. A client that finds nobody there comes
back: it was sent, not thrown out. Who asks for it needs the right `move`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from veena.core.ask_frames import AskMove, TellMoved
from veena.core.client_frames import TellRedirect
from veena.errors import ConfigError, RefusalCode
from veena.runtime.regions import Regions
from veena.runtime.transport_url import parse_url

if TYPE_CHECKING:
    from veena.runtime.conversation import Conversation
    from veena.runtime.node import Node

#: Clients that are listed, the farthest first: more than anybody looks through.
MAX_LISTED = 10_000
#: The attribute by which a client says where it is.
PLACE = "place"
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


def clients_view(node: Node) -> dict[str, Any]:
    """What a broker says of those who are attached to it."""
    config = node.config
    regions = Regions(config.tables.locator.regions, config.labels, config.levels, config.fanout)
    everybody = list(node.clients.sessions.values())
    everybody.sort(key=lambda who: -(who.traffic.round_trip_s or 0.0))
    return {
        "broker": node.label(config.address),
        "address": list(config.address),
        "place": config.tables.broker.place,
        "urls": list(node.urls),
        "brokers": [list(urls) for urls in node.locator.places()],
        "total": len(everybody),
        "clients": [_client(node, regions, who) for who in everybody[:MAX_LISTED]],
        "heard": [
            {
                "publisher": each.publisher,
                "origin": node.label(config.address if each.origin is None else each.origin),
                "copies": each.copies,
            }
            for each in node.clients.audience.heard()
        ],
    }


def clients_report(node: Node) -> bytes:
    return json.dumps(clients_view(node)).encode()


def _client(node: Node, regions: Regions, who: Conversation) -> dict[str, Any]:
    region = regions.unit_of(who.stream.ip)
    traffic = who.traffic
    trip = traffic.round_trip_s
    queue = node.driver.broker.events.outlet.clogged.get(who.session)
    return {
        "id": who.client_id,
        "user": who.principal_name,
        "place": "" if who.hello is None else dict(who.hello.attributes).get(PLACE, ""),
        "region": None if region is None else node.label(region),
        "ip": who.stream.ip,
        "round_trip_ms": None if trip is None else round(1000 * trip, 3),
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "published": traffic.published,
        "subscriptions": len(who.subscriptions),
        "durable": who.subscriptions.durable,
        # It does not read as fast as events come for it, and so many wait.
        "slow": queue is not None,
        "waiting": 0 if queue is None else queue.lanes.events,
    }
