"""A second client of the same user at the same broker: what one process needs when its conversations must not mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from veena.client.client import Client


def companion(client: Client, name: str, attributes: Mapping[str, str] | None = None) -> Client:
    """A client that is not open yet, with the URLs and credentials of another one; its id stands below that one's."""
    greeting = replace(
        client._greeting,
        client_id=f"{client.client_id}/{name}",
        reachable=False,
        attributes=tuple((attributes or {}).items()),
    )
    return Client(client._urls, greeting, client._secrets, client._timeout, client._reconnect, is_named=False)
