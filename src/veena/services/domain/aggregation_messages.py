"""What users tell the aggregation service of their domain: an interest in a remote application, and its end (DIS-15).

Both are requests of type `Messaging`, `subscribe` and `unsubscribe`, whose domain is the network number of the domain;
all of it stands in properties. An interest is told again before its lease ends: a service that is new hears of it then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veena.client import Client
from veena.errors import InvalidEvent, Refused
from veena.event import Event, Value
from veena.services.trading.messages import content_of

SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"
#: How long an interest stands without being told again.
LEASE_S = 30.0
#: How long a user waits for the aggregate before its own subscription.
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Interest:
    """What a member wants of an application in the domain of a network number."""

    #: The client's id, `#`, and one of its subscriptions: nobody speaks for another client.
    member: str
    network: int
    application: str
    constraint: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """The service's answer: members and texts of the aggregate, and whether it had to be changed for this one."""

    members: int
    texts: int
    changed: bool


async def tell(client: Client, network: int, event_name: str, interest: Interest, timeout: float = ANSWER_S) -> Joined:
    """Tell the service of a domain; raise Unanswered when none runs."""
    properties: dict[str, Value] = {
        "member": interest.member,
        "network": interest.network,
        "application": interest.application,
        "constraint": interest.constraint,
    }
    answer = await client.request(timeout=timeout, **content_of(str(network), event_name, properties, b""))
    found = answer.properties
    error = found.get("error")
    if isinstance(error, str):
        raise Refused(f"the aggregation service of domain {network}: {error}")
    return Joined(_number(found.get("members")), _number(found.get("texts")), found.get("changed") is True)


def _number(value: Value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def read_interest(event: Event) -> Interest:
    """Raise InvalidEvent naming what is missing, or that somebody speaks for another client."""
    found = event.properties
    member, application, constraint = (found.get(name) for name in ("member", "application", "constraint"))
    network = found.get("network")
    for name, value in (("member", member), ("application", application)):
        if not isinstance(value, str) or not 1 <= len(value) <= 512:
            raise InvalidEvent(f"{name} {value!r:.80}: expected a text of 1 to 512 characters")
    if not isinstance(network, int) or isinstance(network, bool) or network < 0:
        raise InvalidEvent(f"network {network!r:.80}: expected the number of a domain")
    if not isinstance(constraint, str):
        raise InvalidEvent(f"constraint {constraint!r:.80}: expected a text, empty for everything")
    assert isinstance(member, str) and isinstance(application, str) and event.event_id is not None
    if not member.startswith(f"{event.event_id.publisher}#"):
        raise InvalidEvent(
            f"member {member!r:.80}: expected one of {event.event_id.publisher}, which speaks for itself alone"
        )
    return Interest(member, network, application, constraint)
