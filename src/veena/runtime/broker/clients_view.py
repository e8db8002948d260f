"""One broker's clients as an adviser sees them: who is attached, from where, and how far away (FUT-06).

A client's place is what it says itself (attribute `place`) or what the operator says (`[locator] regions`). The list
also has the measured round trip, what went over the connection, and which publishers the clients here hear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from veena.address import Unit
from veena.core.broker import Broker
from veena.runtime.clients.conversation import Conversation
from veena.runtime.clients.service import Conversations
from veena.runtime.config.schema import Config
from veena.runtime.locator.regions import Regions

#: Clients that are listed, the farthest first: more than anybody looks through.
MAX_LISTED = 10_000
#: The attribute by which a client says where it is.
PLACE = "place"

Urls = tuple[str, ...]
Label = Callable[[Unit], str]


def clients_view(
    broker: Broker, config: Config, clients: Conversations, urls: Urls, others: Iterable[Urls], label: Label
) -> dict[str, Any]:
    """What a broker says of those who are attached to it; `urls` are its own, `others` those of other brokers."""
    regions = Regions(config.tables.locator.regions, config.labels, config.levels, config.fanout)
    everybody = list(clients.sessions.values())
    everybody.sort(key=lambda who: -(who.traffic.round_trip_s or 0.0))
    return {
        "broker": label(config.address),
        "address": list(config.address),
        "place": config.tables.broker.place,
        "urls": list(urls),
        "brokers": [list(each) for each in others],
        "total": len(everybody),
        "clients": [_client(broker, label, regions, who) for who in everybody[:MAX_LISTED]],
        "heard": [
            {
                "publisher": each.publisher,
                "origin": label(config.address if each.origin is None else each.origin),
                "copies": each.copies,
            }
            for each in clients.audience.heard()
        ],
    }


def _client(broker: Broker, label: Label, regions: Regions, who: Conversation) -> dict[str, Any]:
    region = regions.unit_of(who.stream.ip)
    traffic = who.traffic
    trip = traffic.round_trip_s
    queue = broker.events.outlet.clogged.get(who.session)
    return {
        "id": who.client_id,
        "user": who.principal_name,
        "place": "" if who.hello is None else dict(who.hello.attributes).get(PLACE, ""),
        "region": None if region is None else label(region),
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
