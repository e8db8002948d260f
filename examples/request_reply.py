"""Questions and answers: who asks knows a topic and nobody behind it; one answer, many, or none.

Start a broker with `veena broker run`, then run this; the URL of another broker may follow.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

import veena

STATIONS = {"Oslo": -4.5, "Rome": 17.0, "Syracuse": 9.5}


async def serve(client: veena.Client, name: str, temperature: float) -> None:
    """A station answers questions about all stations, and those about itself."""

    async def answer(question: veena.Event) -> None:
        await client.reply(question, properties={"station": name, "celsius": temperature})

    await client.subscribe(topic="weather", selector=f"station = '{name}' OR station = 'all'", on_event=answer)


async def main(url: str) -> None:
    async with AsyncExitStack() as stack:
        for name, temperature in STATIONS.items():
            station = await stack.enter_async_context(veena.connect(url))
            await serve(station, name, temperature)
        asker = await stack.enter_async_context(veena.connect(url))
        one = await asker.request(topic="weather", properties={"station": "Rome"}, timeout=5.0)
        print(f"Rome: {one.properties['celsius']} degrees")
        many = await asker.request(topic="weather", properties={"station": "all"}, answers=3, timeout=5.0)
        listed = sorted((event.properties["station"], event.properties["celsius"]) for event in many)
        print(f"all: {', '.join(f'{name} {celsius}' for name, celsius in listed)}")
        try:
            await asker.request(topic="weather", properties={"station": "Atlantis"}, timeout=5.0)
        except veena.Unanswered as error:
            print(f"Atlantis: {error}")  # the broker knows that nobody wants it: this did not take five seconds


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
