"""Many events at once: publish without waiting for each, take and acknowledge them in batches."""

import asyncio
import sys

import veena

COUNT = 2_000


async def main(url: str) -> None:
    async with veena.connect(url, client_id="meter") as client:
        readings = await client.subscribe(topic="readings", durable="all", ack="manual")
        # At most 1,000 are not accepted yet; each receipt can be awaited for its event's id.
        async with client.pipeline(window=1_000) as pipeline:
            receipts = [await pipeline.publish(topic="readings", properties={"watt": n}) for n in range(COUNT)]
        print(f"{len(receipts)} events are on the broker's disk, in their order")
        seen: list[object] = []
        async for batch in readings.batches(max=500, wait=0.1):  # up to 500, or what came within 0.1 s of the first
            seen += [event.properties["watt"] for event in batch]
            await batch.ack()  # none of them comes again
            if len(seen) == COUNT:
                break
        print(f"{len(seen)} events came, in order: {seen == list(range(COUNT))}")
        wrong = [veena.Event(topic="readings"), veena.Event(topic="readings", properties={"watt": [1, 2]})]  # a list
        try:
            await client.publish_many(wrong, reliable=True)
        except veena.VeenaError as error:
            print(f"refused: {error}")
            print(f"published all the same: {sum(each is not None for each in error.published or ())}")
        await readings.delete()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
