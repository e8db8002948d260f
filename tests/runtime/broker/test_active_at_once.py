"""A broker process by itself: subscriptions are active before it looks at what comes behind them (ACT-02)."""

from __future__ import annotations

import asyncio

import msgspec

import veena.testing
from tests.runtime.raw_client import attach
from tests.runtime.streams import until
from veena.core.wire.client import AskSubscribe, TellActive
from veena.core.wire.codec import encode
from veena.core.wire.event import EventFrame
from veena.event import Event, EventId

COUNT = 50
LEVELS = 2


def test_each_is_active_before_the_event_that_was_sent_behind_it() -> None:
    """One write has all of them, each with an event behind it: no timer of the broker can ring in between."""

    async def scenario() -> None:
        async with veena.testing.broker(process=True) as url:
            client = await attach(url, "reader", LEVELS)
            await client.subscribe("first")  # until the broker has waited for neighbours long enough
            frames: list[bytes] = []
            for number in range(2, COUNT):
                topic = f"topic-{number}"
                frames.append(encode(AskSubscribe(number, "topic", msgspec.msgpack.encode(topic)), 0))
                event_id = EventId(client.client_id, client.incarnation, 1, number)
                event = Event(topic=topic, body=topic.encode(), event_id=event_id)
                frames.append(client.codec.encode_event(event, 0, reliable=False))
            client.frames.clear()
            client.stream.write(frames)
            await until(lambda: len(client.bodies()) == COUNT - 2)
            seen: list[int | str] = []
            for frame in client.frames:
                if isinstance(frame, TellActive) and frame.level == LEVELS:
                    seen.append(frame.subscription)
                elif isinstance(frame, EventFrame):
                    seen.append(str(bytes(frame.body), "ascii"))
            assert seen == [each for number in range(2, COUNT) for each in (number, f"topic-{number}")]
            client.stream.close("done")

    asyncio.run(scenario())
