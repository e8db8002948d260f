"""What clients ask, at its largest size: advertisements and queries, traces, reports, reads of the log, monitoring."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from veena.bench.steps.clients import all_answered, subscribe
from veena.bench.steps.stage import Action, Peer, Stage
from veena.core.wire.client import (
    AskAdvertise,
    AskQuery,
    AskWithdraw,
    TellAdvertised,
    TellAdvertRefused,
    TellAnswer,
    TellRefused,
)
from veena.core.wire.explain import AskExplain, AskReport, AskTrace, TellExplained, TellReport, TellTraced
from veena.core.wire.log_tables import COLUMNS, MAX_BLOCKS, AskLogMore, AskLogRead, TellBlock
from veena.event import Event

#: Advertisements of one client.
ADVERTS = 4096


async def advertise(peer: Peer, count: int, document: str) -> None:
    """So many advertisements, each with properties and this document."""
    for first in range(0, count, 64):
        for number in range(first, min(first + 64, count)):
            texts = {f"p{n}": f"text {n * number}" for n in range(12)}
            properties = {"kind": f"k{number % 10}", "price": number, **texts}
            xml = document.replace("NUMBER", str(number)).encode()
            peer.say(AskAdvertise(f"a{number}", 4, msgspec.msgpack.encode(properties), xml))
        await peer.drained()
    await peer.hear(TellAdvertised, TellAdvertRefused, count=count)


async def answered(peer: Peer, number: int, language: str, text: str, **more: object) -> list[TellAnswer]:
    """The frames of the answer; a refusal is a fault of the action."""
    peer.say(AskQuery(number, language, text, 4, deadline_ms=60_000, **more))  # type: ignore[arg-type]

    def is_over() -> bool:
        return any(isinstance(f, TellRefused) or (isinstance(f, TellAnswer) and not f.more) for f in peer.frames)

    await peer.until(is_over)
    return await peer.hear(TellAnswer, TellRefused)


async def adverts(stage: Stage) -> None:
    """The most advertisements of one client, some of the largest; then it takes them back; then it goes."""
    peer = await stage.client("offering")
    async with stage.measured():
        await advertise(peer, ADVERTS, "<offer><id>NUMBER</id></offer>")
    async with stage.measured():
        for first in range(0, ADVERTS, 256):
            peer.say(*(AskWithdraw(f"a{n}") for n in range(first, first + 256)))
            await peer.drained()
        await peer.hear(TellAdvertised, TellAdvertRefused, count=ADVERTS)
    other = await stage.client("large")
    large = "<offer>" + "".join(f"<i n='{n}'>{n}</i>" for n in range(1300)) + "</offer>"
    properties = msgspec.msgpack.encode({f"p{n}": "x" * 200 for n in range(64)})
    async with stage.measured():
        other.say(*(AskAdvertise(f"b{n}", 4, properties, large[:60_000].encode()) for n in range(4)))
        other.say(*(AskAdvertise(f"c{n}", 4, properties, large.encode()) for n in range(40)))
        await other.hear(TellAdvertised, TellAdvertRefused, count=44)
    left = await own_adverts(stage)
    await advertise(peer, ADVERTS, "<offer><id>NUMBER</id></offer>")
    async with stage.measured():
        stage.hang_up([peer])
        while await own_adverts(stage) > left:  # they are taken back some at a time
            await other.quiet()


async def own_adverts(stage: Stage) -> int:
    """How many advertisements the broker has of its own clients."""
    count: int = (await stage.status())["broker"]["discovery"]["own"]
    return count


async def queries(stage: Stage) -> None:
    """SQL and constraints over thousands of advertisements that all have to be looked at, sorted and sent."""
    for number in range(2):
        peer = await stage.client(f"offering{number}")
        await advertise(peer, ADVERTS, "<offer><id>NUMBER</id></offer>")
    asker = await stage.client("asker")
    asked = [
        ("sql", "SELECT * FROM adverts"),
        ("sql", "SELECT p1, price FROM adverts WHERE p1 LIKE '%5%7%' ORDER BY p1, price DESC"),
        ("sql", "SELECT * FROM adverts WHERE price * 2 + 1 > 10 AND NOT (p2 LIKE '%z%') ORDER BY kind, p3 LIMIT 10"),
        ("constraint", "price * 2 > 10 and not (p1 == 'y')"),
    ]
    async with stage.measured():
        for number, (language, text) in enumerate(asked):
            await answered(asker, number, language, text)
        for number in range(100, 132):
            asker.say(AskQuery(number, "sql", asked[2][1], 4, deadline_ms=60_000))
        await asker.until(
            lambda: (
                sum(isinstance(f, TellRefused) or (isinstance(f, TellAnswer) and not f.more) for f in asker.frames)
                >= 32
            )
        )


async def xpath_queries(stage: Stage) -> None:
    """XPaths over thousands of documents, and the most expensive ones over the largest documents."""
    peer = await stage.client("offering")
    await advertise(peer, 2000, "<offer><id>NUMBER</id>" + "<item><price>3</price></item>" * 20 + "</offer>")
    other = await stage.client("large")
    await advertise(other, 4, "<r>" + "<a>" * 50 + "<b/>" * 3900 + "</a>" * 50 + "</r>")
    asker = await stage.client("asker")
    async with stage.measured():
        for number, text in enumerate(
            (
                "//item[price = 3]",
                "count(//item) > 3 and contains(string(/), '3')",
                "//item[position() > 3]/price = 4",
                "count(//b[count(//b) > 3]) > 1",
                "//*[count(.//*) > count(..//*)]",
            )
        ):
            await answered(asker, number, "xpath", text)


async def explaining(stage: Stage) -> None:
    """Traces and explanations of an event that a thousand clients got."""
    peers = await stage.clients("crowd", 500)
    for peer in peers:
        peer.say(subscribe(1, "topic", "news"))
    for peer in peers:
        await peer.quiet()
    writer = await stage.client("writer")
    writer.publish(Event(topic="news", body=b"x"), reliable=True)
    await peers[-1].until(lambda: peers[-1].events)
    event_id = (writer.client_id, writer.incarnation, 1, 1)
    async with stage.measured():
        writer.say(*(AskTrace(number, event_id, 2000) for number in range(60)))
        await writer.until(lambda: sum(isinstance(f, TellTraced) and not f.more for f in writer.frames) >= 60)
        writer.say(*(AskExplain(100 + number, event_id, f"crowd/{number}", 2000) for number in range(60)))
        await writer.until(lambda: sum(isinstance(f, TellExplained | TellRefused) for f in writer.frames) >= 60)


async def reports(stage: Stage) -> None:
    """What a broker with a thousand clients, each with subscriptions, says of itself."""
    peers = await stage.clients("crowd", 1000)
    for at, peer in enumerate(peers):
        peer.say(*(subscribe(n, "topic", f"t.{at}.{n}") for n in range(10)))
    for peer in peers:
        await peer.quiet()
    asker = peers[0]
    async with stage.measured():
        reports: tuple[Literal["status", "map", "clients"], ...] = ("status", "map", "clients")
        for number, what in enumerate(reports):
            asker.say(AskReport(number, what))
            await asker.until(lambda: any(isinstance(f, TellReport) and not f.more for f in asker.frames))
            await asker.hear(TellReport)
        for path in ("/statusz", "/metrics", "/readyz", "/metrics"):
            await stage.page(path)


async def log_reads(stage: Stage) -> None:
    """Reads of the log with selectors, by several readers at once."""
    writer = await stage.client("writer")
    for _ in range(20):
        writer.publish(*(Event(topic="kept", body=b"y" * 40) for _ in range(1000)), reliable=True)
        await writer.quiet()
    reader = await stage.client("reader")
    await all_answered(reader, [subscribe(1, "topic", "other")])
    columns = tuple(COLUMNS["events"])
    async with stage.measured():
        for number in range(8):
            reader.say(
                AskLogRead(
                    number, "events", 0, 1 << 40, columns, selector="JMSPriority > 3 AND a IS NULL", blocks=MAX_BLOCKS
                )
            )
        await asyncio.gather(*(read_on(reader, number) for number in range(8)))


async def read_on(reader: Peer, number: int) -> None:
    """Whenever a read has sent as many blocks as it was asked for, ask for more, until it has sent its last."""
    asked = MAX_BLOCKS

    def came() -> list[TellBlock]:
        return [frame for frame in reader.frames if isinstance(frame, TellBlock) and frame.number == number]

    def is_over() -> bool:
        return any(block.last for block in came())

    def is_due() -> bool:
        return is_over() or len(came()) >= asked

    while True:
        await reader.until(is_due)
        if is_over():
            return
        reader.say(AskLogMore(number, MAX_BLOCKS))
        asked += MAX_BLOCKS


QUESTION_ACTIONS: dict[str, Action] = {
    "4,096 advertisements, taken back, left behind": adverts,
    "SQL and constraints over 8,192 advertisements": queries,
    "XPaths over 2,000 advertisements": xpath_queries,
    "120 traces and explanations": explaining,
    "reports and monitoring with 1,000 clients": reports,
    "reads of the log": log_reads,
}
