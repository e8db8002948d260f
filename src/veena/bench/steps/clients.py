"""What clients do, at its largest size: attach, subscribe, publish, acknowledge, stage, leave."""

from __future__ import annotations

from itertools import islice

import msgspec

from veena.bench.steps.stage import Action, Peer, Stage
from veena.core.wire.client import (
    MAX_RUNS,
    MAX_SHOWN,
    MAX_STREAMS,
    Acknowledged,
    AskForget,
    AskSubscribe,
    AskUnsubscribe,
    AskWatch,
    Places,
    TellAccepted,
    TellActive,
    TellCaughtUp,
    TellDenied,
    TellRefused,
)
from veena.core.wire.control import MAX_IDS, Frame
from veena.core.wire.staging import MAX_STAGE_ROWS, AskPublish, AskStage, TellPublished, TellStaged
from veena.event import Event

#: Subscriptions of one client; durable subscriptions of one user.
SUBSCRIPTIONS = 65_536
DURABLES = 10_000
#: Characters of an XPath, and bytes of a large body.
LONGEST_XPATH = 4_000
LARGE = 900_000
#: Reliable events of a large log.
EVENTS = 20_000


def packed(constraint: object) -> bytes:
    return msgspec.msgpack.encode(constraint)


def subscribe(number: int, engine: str, constraint: object, **more: object) -> AskSubscribe:
    return AskSubscribe(number, engine, packed(constraint), **more)  # type: ignore[arg-type]


async def all_answered(peer: Peer, frames: list[AskSubscribe]) -> None:
    """Each is active at the broker, or refused."""
    for first in range(0, len(frames), 512):
        some = frames[first : first + 512]
        peer.say(*some)
        await peer.drained()
    await peer.quiet()


async def topics(stage: Stage) -> None:
    """As many subscriptions to topics as a client may have; then it ends them, then goes."""
    peer = await stage.client("many")
    async with stage.measured():
        await all_answered(peer, [subscribe(n, "topic", f"t.{n}") for n in range(SUBSCRIPTIONS)])
    async with stage.measured():
        for first in range(0, SUBSCRIPTIONS, 1024):
            peer.say(*(AskUnsubscribe(n) for n in range(first, first + 1024)))
            await peer.drained()
        await peer.quiet()


async def leaving(stage: Stage) -> None:
    """A client with as many subscriptions as it may have goes, without a word."""
    peer = await stage.client("many")
    await all_answered(peer, [subscribe(n, "topic", f"t.{n}") for n in range(SUBSCRIPTIONS)])
    other = await stage.client("other")
    async with stage.measured():
        stage.hang_up([peer])
        await wait_for_clients(stage, 1)
        await other.quiet()


async def wait_for_clients(stage: Stage, count: int) -> None:
    """Until so many are attached."""
    while True:
        found = (await stage.status())["clients"]
        if found["clients"] + found["greeting"] == count:
            return


async def selectors(stage: Stage) -> None:
    """Thousands of selectors on one topic, alike but for their constants."""
    peer = await stage.client("many")
    async with stage.measured():
        await all_answered(
            peer, [subscribe(n, "selector", ["quotes", f"price > {n} AND name = 'n{n}'"]) for n in range(8000)]
        )


async def tag_sets(stage: Stage) -> None:
    """Thousands of sets of tags."""
    peer = await stage.client("many")
    async with stage.measured():
        asked = [subscribe(n, "tags", f"Make=m{n % 90},Model=x{n},Color=c{n % 7}") for n in range(8000)]
        await all_answered(peer, asked)


async def long_selectors(stage: Stage) -> None:
    """The longest selectors: many terms, nested, with texts."""
    peer = await stage.client("many")
    texts = [
        " OR ".join(f"attribute{n} = {n}" for n in range(490)),
        " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(245)),
        " AND ".join(f"a{n} LIKE '%x{n}%y%'" for n in range(490)),
        f"a IN ({', '.join(repr(f'value{n}') for n in range(990))})",
        "NOT (" * 60 + "a = 1" + ")" * 60,
        "a LIKE '" + "%_x" * 340 + "'",
        " + ".join(["a"] * 990) + " > 1",
    ]
    async with stage.measured():
        await all_answered(
            peer, [subscribe(n, "selector", ["t", f"{text}"]) for n, text in enumerate([*texts, *texts, *texts])]
        )


async def long_xpaths(stage: Stage) -> None:
    """The longest XPaths."""
    peer = await stage.client("many")
    texts = [
        " or ".join(f"//a{n}/b[c = {n}]" for n in range(900))[:LONGEST_XPATH].rpartition(" or ")[0],
        "/" + "/".join("a[b]" for _ in range(60)),
        "//a" + "[b = 1]" * 60,
        "count(" + "//a" * 60 + ") > 1",
        " or ".join(f"//*[@x{n} = '{n}']" for n in range(800))[:LONGEST_XPATH].rpartition(" or ")[0],
    ]
    async with stage.measured():
        await all_answered(peer, [subscribe(n, "xpath", [text, {}]) for n, text in enumerate([*texts, *texts])])


async def constraints(stage: Stage) -> None:
    """Trader constraints, short and many, long and few."""
    peer = await stage.client("many")
    long = " and ".join(f"(x{n} == {n} or exist y{n})" for n in range(300))
    async with stage.measured():
        asked = [subscribe(n, "constraint", f"price < {n} and name == 'n{n}'") for n in range(4000)]
        asked += [subscribe(9000 + n, "constraint", long + f" or z == {n}") for n in range(8)]
        await all_answered(peer, asked)


async def hellos(stage: Stage) -> None:
    """The longest hello: the last events of 2,048 streams, and thousands that were had out of turn."""
    had = tuple((f"p{n:03}", 1, 4, 1 << 60, n) for n in range(MAX_STREAMS))
    skips = (Places("p000", 1, 4, tuple((1 << 60, 2 * n, 2 * n) for n in range(MAX_RUNS))),)
    whole = (Places("p000", 1, 4, ((1 << 60, 0, MAX_SHOWN - 1),)),)
    async with stage.measured():
        for number in range(8):
            await stage.client(f"c{number}", had=had, skips=whole if number % 2 else skips)
        peer = await stage.client("durable")
        await all_answered(
            peer,
            [
                subscribe(n, "topic", f"t.{n}", durable=f"d{n}", had=had, skips=skips if n % 2 else whole)
                for n in range(16)
            ],
        )


async def crowds(stage: Stage) -> None:
    """A thousand clients of one topic attach, get an event each, and go at once."""
    async with stage.measured():
        peers = await stage.clients("crowd", 1000)
        for peer in peers:
            peer.say(subscribe(1, "topic", "news"))
        for peer in peers:
            await peer.quiet()
    writer = await stage.client("writer")
    async with stage.measured():
        writer.publish(*(Event(topic="news", body=b"x" * 100) for _ in range(50)))
        for peer in peers:
            await peer.until(lambda peer=peer: peer.events >= 50)  # type: ignore[misc]
        writer.publish(*(Event(topic="news", body=b"x" * LARGE) for _ in range(1)))
        for peer in peers[:20]:
            await peer.until(lambda peer=peer: peer.events >= 51)  # type: ignore[misc]
    async with stage.measured():
        stage.hang_up(peers)
        await wait_for_clients(stage, 1)


async def headers(stage: Stage) -> None:
    """Events with the most properties, headers, tags and destinations, to selectors that read them."""
    reader, writer = await stage.client("reader"), await stage.client("writer")
    await all_answered(
        reader,
        [subscribe(n, "selector", ["t", f"p{n} = 'x{n}' OR p{n + 1} LIKE '%q%'"]) for n in range(1000)]
        + [subscribe(2000, "topic", "t")],
    )
    events = [
        Event(
            topic="t",
            properties={f"p{n}": f"x{n}-{number}" * 4 for n in range(1024)},
            headers={f"h{n}": "y" * 40 for n in range(200)},
        )
        for number in range(8)
    ]
    events += [Event(topic="t", tags={f"t{n}": f"v{n}{number}" * 5 for n in range(256)}) for number in range(8)]
    events += [Event(topic="t", to=tuple(f"client-{n}" for n in range(4096))) for _ in range(4)]
    for is_reliable in (False, True):
        async with stage.measured():
            for event in events:
                writer.publish(event, reliable=is_reliable)
            await writer.quiet()


async def bodies(stage: Stage) -> None:
    """The largest bodies, and the largest batches of small ones."""
    reader, writer = await stage.client("reader"), await stage.client("writer")
    await all_answered(reader, [subscribe(1, "topic", "t"), subscribe(2, "topic", "kept", durable="kept")])
    async with stage.measured():
        for is_reliable in (False, True):
            for _ in range(12):
                writer.publish(Event(topic="t", body=b"x" * LARGE), reliable=is_reliable)
                await writer.drained()
        await writer.quiet()
    async with stage.measured():
        for _ in range(4):
            writer.publish(*(Event(topic="kept", body=b"y" * 20) for _ in range(3000)), reliable=True)
            await writer.quiet()
        writer.publish(*(Event(topic=f"t.{n}", body=b"y" * 20) for n in range(20_000)))
        await writer.quiet()


async def documents(stage: Stage) -> None:
    """Large XML to XPaths."""
    reader, writer = await stage.client("reader"), await stage.client("writer")
    await all_answered(
        reader,
        [subscribe(n, "xpath", [f"//item[price > {n} and name = 'n{n}']", {}]) for n in range(200)]
        + [subscribe(500 + n, "xpath", [f"count(//a//b//c) > {n}", {}]) for n in range(20)],
    )
    flat = "<r>" + "".join(f"<item><price>{n}</price><name>n{n}</name></item>" for n in range(700)) + "</r>"
    deep = "<a><b><c>" * 20 + "</c></b></a>" * 20
    async with stage.measured():
        for document in (flat, deep, f"<r>{deep * 30}</r>", flat.replace("n", "n" * 60)):
            writer.publish(Event(xml=document))
            await writer.quiet()


async def acknowledgements(stage: Stage) -> None:
    """Acknowledgements of thousands of events of durable subscriptions, out of order, many in one read."""
    reader, writer = await stage.client("reader"), await stage.client("writer")
    await all_answered(reader, [subscribe(1, "topic", "kept", durable="kept", ack="manual")])
    for _ in range(10):
        writer.publish(*(Event(topic="kept", body=b"y") for _ in range(1000)), reliable=True)
        await writer.quiet()
    await reader.until(lambda: reader.events >= 256)
    ids = [(writer.client_id, writer.incarnation, 1, n) for n in range(10_000, 0, -1)]
    frames: list[Frame] = [Acknowledged(1, tuple(ids[at : at + MAX_IDS])) for at in range(0, len(ids), MAX_IDS)]
    async with stage.measured():
        for _ in range(8):
            reader.say(*frames)
            await reader.drained()
        await reader.quiet()


async def durables(stage: Stage) -> None:
    """A user makes as many durable subscriptions as it may, goes, attaches again and reads them all."""
    peer = await stage.client("many")
    asked = [subscribe(n, "topic", f"t.{n}", durable=f"d{n}") for n in range(DURABLES)]
    async with stage.measured():
        await all_answered(peer, asked)
        await peer.hear(TellActive, TellRefused, count=DURABLES)
    async with stage.measured():
        stage.hang_up([peer])
        await wait_for_clients(stage, 0)
    async with stage.measured():
        peer = await stage.client("many")
        await all_answered(peer, asked)
    async with stage.measured():
        for first in range(0, DURABLES, 512):
            peer.say(*(AskForget(n) for n in range(first, min(first + 512, DURABLES))))
            await peer.drained()
        await peer.quiet()


async def backlog(stage: Stage) -> None:
    """A durable subscription that gets what was kept for it, and `since` over a large log."""
    writer = await stage.client("writer")
    peer = await stage.client("reader")
    await all_answered(peer, [subscribe(1, "topic", "kept", durable="kept")])
    await peer.hear(TellActive)
    stage.hang_up([peer])
    async with stage.measured():
        for _ in range(EVENTS // 1000):
            writer.publish(*(Event(topic="kept", body=b"y" * 40) for _ in range(1000)), reliable=True)
            await writer.until(lambda: accepted(writer) + refused(writer) >= writer.sent)
    async with stage.measured():
        peer = await stage.client("reader")
        peer.acknowledges = 1
        peer.say(subscribe(1, "topic", "kept", durable="kept"))
        await peer.until(lambda: peer.events >= EVENTS)
    async with stage.measured():
        past = await stage.client("past")
        past.say(subscribe(1, "topic", "kept", since_ns=1), subscribe(2, "topic", "other", since_ns=1))
        await past.hear(TellCaughtUp, count=2)
        past.say(*(subscribe(10 + n, "selector", ["kept", f"a{n} = 1"], since_ns=1) for n in range(8)))
        await past.hear(TellCaughtUp, count=8)


def accepted(peer: Peer) -> int:
    told = [frame for frame in peer.frames if isinstance(frame, TellAccepted)]
    return sum(last - first + 1 for frame in told for _, first, last in frame.runs)


def refused(peer: Peer) -> int:
    return sum(isinstance(frame, TellDenied) for frame in peer.frames)


async def groups(stage: Stage) -> None:
    """A group of two hundred members gets events, and they go."""
    peers = await stage.clients("member", 200)
    async with stage.measured():
        for peer in peers:
            peer.say(subscribe(1, "topic", "work", durable="all", group="crew"))
        for peer in peers:
            await peer.quiet()
    writer = await stage.client("writer")
    async with stage.measured():
        for _ in range(5):
            writer.publish(*(Event(topic="work", body=b"y") for _ in range(1000)), reliable=True)
            await writer.quiet()
    async with stage.measured():
        stage.hang_up(peers)
        await wait_for_clients(stage, 1)


async def watches(stage: Stage) -> None:
    """As many questions as may be whether an event is wanted, and somebody who subscribes."""
    askers, other = await stage.clients("asker", 8), await stage.client("other")
    async with stage.measured():
        for number in range(2000):
            asker = askers[number % 8]
            asker.say(AskWatch(number))
            asker.publish(Event(topic=f"t.{number}", properties={"a": number}))
        for asker in askers:
            await asker.quiet()
    async with stage.measured():
        await all_answered(other, [subscribe(n, "selector", [f"t.{n}", f"a = {n}"]) for n in range(500)])


async def staging(stage: Stage) -> None:
    """The largest chunks are staged, and a batch of them published."""
    peer = await stage.client("writer")
    names = [bytes([number]) * 16 for number in range(8)]
    async with stage.measured():
        for number, name in enumerate(names):
            peer.say(AskStage(number, "q", 1, name, 0, MAX_STAGE_ROWS))
            for some in batches(range(MAX_STAGE_ROWS), 512):
                peer.publish(*(Event(topic=f"t.{n % 7}", body=b"z" * 100) for n in some), reliable=True)
            await peer.hear(TellStaged, TellRefused)
    async with stage.measured():
        peer.say(AskPublish(50, "q", 1, tuple((name, MAX_STAGE_ROWS) for name in names)))
        (told,) = await peer.hear(TellPublished, TellRefused)
        if isinstance(told, TellRefused):
            raise RuntimeError(told.reason)
        while b"veena_staged_releasing 0.0" not in await stage.page("/metrics"):
            pass


def batches(items: range, size: int) -> list[list[int]]:
    found = iter(items)
    return [some for _ in range(0, len(items), size) if (some := list(islice(found, size)))]


CLIENT_ACTIONS: dict[str, Action] = {
    "65,536 subscriptions to topics, made and ended": topics,
    "a client with 65,536 subscriptions goes": leaving,
    "8,000 selectors on one topic": selectors,
    "8,000 sets of tags": tag_sets,
    "the longest selectors": long_selectors,
    "the longest XPaths": long_xpaths,
    "4,000 trader constraints, and the longest": constraints,
    "the longest hellos": hellos,
    "1,000 clients attach, get events, go": crowds,
    "events with the largest headers": headers,
    "the largest bodies and batches": bodies,
    "the largest documents to XPaths": documents,
    "acknowledgements of 10,000 events": acknowledgements,
    "10,000 durable subscriptions": durables,
    "what was kept, and since, over 20,000 events": backlog,
    "a group of 200 members": groups,
    "2,000 watched events": watches,
    "the largest staged batch": staging,
}
