"""Content, not channels: three desks on one topic, each gets what its SQL-92 selector wants and nothing else.

Start a broker with `veena broker run`, then run this; the URL of another broker may follow.
"""

import asyncio
import sys

import veena

DESKS = {
    "bargains": "price < 20 AND sym IN ('IBM', 'SUN')",
    "blue chips": "sym LIKE 'I%' AND volume >= 400",
    "alarms": "price NOT BETWEEN 10 AND 100 OR halted",
}
QUOTES = [
    {"sym": "IBM", "price": 12.5, "volume": 400, "halted": False},
    {"sym": "INTC", "price": 44.0, "volume": 9000, "halted": False},
    {"sym": "SUN", "price": 5.25, "volume": 1200, "halted": False},
    {"sym": "ORCL", "price": 31.0, "volume": 700, "halted": True},
    {"sym": "MSFT", "price": 60.0, "volume": 100, "halted": False},
]


async def main(url: str) -> None:
    async with veena.connect(url) as market, veena.connect(url) as floor:
        wanted = {desk: await floor.subscribe(topic="quotes", selector=text) for desk, text in DESKS.items()}
        closing = await floor.subscribe(topic="quotes", selector="sym = 'CLOSE'")
        try:
            await floor.subscribe(topic="quotes", selector="price > AND 10")
        except veena.InvalidConstraint as error:
            print(f"refused before it is sent: {error}")
        for quote in (*QUOTES, {"sym": "CLOSE"}):
            await market.publish(topic="quotes", properties=quote)
        await closing.next(timeout=5.0)  # events of one publisher come in order: everything before is there
        for desk, subscription in wanted.items():
            got = [f"{event.properties['sym']} at {event.properties['price']}" for event in subscription.take()]
            print(f"{desk:10} {DESKS[desk]:42} {', '.join(got)}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
