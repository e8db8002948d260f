"""A worker that stops in the middle of its work and comes again: nothing is lost, what it did not finish comes again.

Start a broker with `veena broker run`, then run this; the URL of another broker may follow.
"""

import asyncio
import sys

import veena

JOBS = ("copy", "convert", "compress", "mail")


async def work(url: str, crash_at: str | None, count: int) -> None:
    """One life of the worker. Its subscription is kept for it under its client id and the name `jobs`."""
    async with veena.connect(url, client_id="worker") as worker:
        jobs = await worker.subscribe(topic="jobs", durable="jobs", ack="manual")
        for _ in range(count):
            event = await jobs.next(timeout=10.0)
            job = bytes(event.body).decode()
            if job == crash_at:
                print(f"  {job}: begun, and the worker dies before it has acknowledged it")
                return
            await jobs.ack(event)  # only now the broker forgets it
            print(f"  {job}: done{' (it had been handed out before)' if event.redelivered else ''}")


async def main(url: str) -> None:
    async with veena.connect(url, client_id="worker") as once:
        subscription = await once.subscribe(topic="jobs", durable="jobs")  # exists from now on, worker or not
        await subscription.close()
    async with veena.connect(url) as boss:
        for job in JOBS:
            await boss.publish(topic="jobs", body=job.encode(), reliable=True)  # on the broker's disk when it returns
    print(f"{len(JOBS)} jobs were published while no worker was there")
    print("the worker's first life:")
    await work(url, "convert", len(JOBS))
    print("its second life:")
    await work(url, None, len(JOBS) - 1)
    async with veena.connect(url, client_id="worker") as worker:
        await (await worker.subscribe(topic="jobs", durable="jobs")).delete()  # kept no longer


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
