"""Subscribe, publish, receive: the first program. Start a broker with `veena broker run`, then run this."""

import asyncio
import sys

import veena


async def main(url: str) -> None:
    async with veena.connect(url, client_id="alice") as client:
        quotes = await client.subscribe(topic="quotes", selector="price > 10 AND sym LIKE 'IB%'")
        await client.publish(topic="quotes", properties={"price": 9.5, "sym": "IBM"}, body=b"too cheap")
        await client.publish(topic="quotes", properties={"price": 12.5, "sym": "IBM"}, body=b"hello", reliable=True)
        event = await quotes.next(timeout=5.0)
        print(event.topic, dict(event.properties), bytes(event.body).decode())


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
