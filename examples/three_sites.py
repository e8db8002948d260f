"""Three sites, a cluster of brokers each, in one file: an event enters a site only when somebody there wants it.

It starts the network itself: `python examples/three_sites.py`.
"""

import asyncio

import veena
from veena import testing

SITES = {"paris": 2, "rome": 2, "oslo": 2}


def copies(net: testing.AsyncNetwork, site: str) -> int:
    """How many copies of events the brokers of a site have got from elsewhere or from each other."""
    return sum(net.statistics(broker).broker.router.copies_in for broker in net.brokers if broker.startswith(site))


async def main() -> None:
    async with (
        testing.network(SITES) as net,
        veena.connect(net.url("paris.1")) as paris,
        veena.connect(net.url("rome.2")) as rome,
        veena.connect(net.url("oslo.2")) as oslo,
    ):
        print(f"{len(net.brokers)} brokers run: {', '.join(net.brokers)}")

        async def day(title: str, *readers: veena.Subscription) -> None:
            before = {site: copies(net, site) for site in SITES}
            for number in range(100):
                await paris.publish(topic="measure", properties={"celsius": number})
            await paris.publish(topic="measure", properties={"celsius": 1000})  # wanted by every reader, the last one
            got = [0 for _ in readers]
            for at, reader in enumerate(readers):
                while (await reader.next(timeout=10.0)).properties["celsius"] != 1000:
                    got[at] += 1
            entered = ", ".join(f"{site} {copies(net, site) - before[site]}" for site in SITES)
            print(f"{title}: of 100 events in paris readers got {got}; copies received in {entered}")

        warm = await rome.subscribe(topic="measure", selector="celsius >= 90")
        await day("only rome wants some", warm)
        at_home = await oslo.subscribe(topic="measure", scope="cluster")
        await day("oslo wants all of its own site", warm)
        everything = await oslo.subscribe(topic="measure")
        await day("oslo wants everything", warm, everything)
        await oslo.publish(topic="measure", properties={"celsius": -7})
        print(f"oslo's own site: {(await at_home.next(timeout=10.0)).properties['celsius']} degrees, and nothing else")


asyncio.run(main())
