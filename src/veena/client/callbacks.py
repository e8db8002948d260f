"""A function that is called with each event of a subscription, for applications that do not want to loop themselves."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

from veena.client.subscription import Subscription
from veena.errors import VeenaError
from veena.event import Event

Callback = Callable[[Event], Awaitable[None] | None]
logger = logging.getLogger("veena.client")


async def call_with_each(subscription: Subscription, callback: Callback) -> None:
    """Until the subscription is over; a function that fails is told of, and called with the next event."""
    try:
        async for event in subscription:
            try:
                result = callback(event)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("the function that is called with the events of %r failed", subscription)
    except VeenaError as error:
        logger.info("%r is over: %s", subscription, error)
