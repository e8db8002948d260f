"""What a neighbour says, at its largest size: maps, wants, digests, acknowledgements, shelves, questions."""

from __future__ import annotations

import time

import msgspec

from veena.bench.steps.clients import all_answered, subscribe
from veena.bench.steps.questions import advertise
from veena.bench.steps.stage import HOME, LEVELS, Action, Peer, Stage
from veena.core.interest.constraint import make_want
from veena.core.wire.codec import enclose
from veena.core.wire.control import MAX_RECORDS, ConnectionRecord, Connections, Frame, Routed
from veena.core.wire.discovery import MAX_MARKS as SHELF_MARKS
from veena.core.wire.discovery import Advertisement, Ask, QueryPart, Shelf, ShelfMark, Standing
from veena.core.wire.interest import (
    MAX_DIGEST_BYTES,
    MAX_DIGESTS,
    MAX_ROWS,
    Claim,
    Digest,
    DigestPart,
    FarInterest,
    FarWant,
    Have,
    Interest,
    Mark,
    Row,
)

MATE = (0, 0, 0, 2)
FAR = (1, 0, 0, 0)


def routed(frame: Frame, origin: tuple[int, ...]) -> Routed:
    return Routed(HOME, origin, 3, *enclose(frame))


async def heard(stage: Stage, link: Peer) -> None:
    """Until the broker has dealt with what the link said: it still answers a client."""
    await link.drained()
    other = await stage.client(f"onlooker{time.monotonic_ns()}")
    for _ in range(20):
        await other.quiet()


async def maps(stage: Stage) -> None:
    """A neighbour whose map has tens of thousands of connections, which all change."""
    link = await stage.neighbour(MATE)
    records = [
        ConnectionRecord(1000 + n, 0, (0, 0, 0, 3 + n % 29), (0, 0, 0, 3 + (n + 1 + n % 7) % 29), True, (0, 0), (0, 0))
        for n in range(20_000)
    ]
    records = [
        r if r.low < r.high else ConnectionRecord(r.id, 0, r.high, r.low, True, (0, 0), (0, 0))
        for r in records
        if r.low != r.high
    ]
    async with stage.measured():
        for first in range(0, len(records), MAX_RECORDS):
            some = tuple(records[first : first + MAX_RECORDS])
            link.say(Connections(some, first + MAX_RECORDS >= len(records)))
        await heard(stage, link)
    async with stage.measured():
        stage.hang_up([link])
        link = await stage.neighbour(MATE)
        await heard(stage, link)


def rows(first: int, epoch: int) -> tuple[Row, ...]:
    """What a frame has of the wants of a neighbour."""
    made = []
    for number in range(first, first + MAX_ROWS):
        want = make_want("selector", (f"t.{number % 50}", f"price > {number} AND a = 'x{number}'"), LEVELS)
        made.append(Row(MATE, want.key, (epoch, MATE, 1 + number), True, want.kind, want.payload, want.scope))
    return tuple(made)


async def wants(stage: Stage) -> None:
    """A neighbour wants 40,000 things, and then none of them."""
    link, epoch = await stage.neighbour(MATE), time.time_ns() // 1_000_000
    async with stage.measured():
        for first in range(0, 40_000, MAX_ROWS):
            link.say(Interest(rows(first, epoch)))
            await link.drained()
        await heard(stage, link)
    async with stage.measured():
        stage.hang_up([link])
        await heard(stage, await stage.neighbour((0, 0, 0, 3)))


async def far_wants(stage: Stage) -> None:
    """A neighbour of another super-super-cluster wants 20,000 things."""
    link = await stage.neighbour(FAR)
    async with stage.measured():
        for number, first in enumerate(range(0, 20_000, MAX_ROWS), 1):
            some = []
            for n in range(first, first + MAX_ROWS):
                want = make_want("selector", (f"t.{n % 50}", f"price > {n} AND a = 'x{n}'"), LEVELS)
                some.append(FarWant(want.kind, want.payload, want.scope))
            link.say(FarInterest(number, number == 1, 0, tuple(some)))
            await link.drained()
        await heard(stage, link)


async def digests(stage: Stage) -> None:
    """Frames of 32 digests of the largest size."""
    link = await stage.neighbour((0, 0, 1, 0))
    parts = (DigestPart(LEVELS, True, b"\xff\x0f" * (MAX_DIGEST_BYTES // 2)),)
    async with stage.measured():
        for turn in range(6):
            epoch = time.time_ns() // 1_000_000
            link.say(
                Interest(
                    (),
                    tuple(
                        Digest((0, 2 + n % 29), (epoch, (0, 2 + n % 29, 0, 0), turn * 100 + n), parts)
                        for n in range(MAX_DIGESTS)
                    ),
                )
            )
        await heard(stage, link)


async def claims(stage: Stage) -> None:
    """Acknowledgements of as many marks as a frame may have."""
    link = await stage.neighbour(MATE)
    async with stage.measured():
        for turn in range(6):
            now = time.time_ns() // 1_000_000
            marks = tuple(Mark((0, 0, 0, m % 30), (now, (0, 0, 0, m % 30), m)) for m in range(180))
            some = tuple(Claim(MATE, MATE, now + 50 * turn + n, 0, True, False, True, marks) for n in range(28))
            link.say(Have(some))
        await heard(stage, link)


async def shelves(stage: Stage) -> None:
    """Shelves of a neighbour: the largest pages, told and told again; queries about all of them."""
    link = await stage.neighbour(MATE)
    await heard(stage, link)
    version = time.time_ns() // 1_000_000
    async with stage.measured():
        marks = tuple(ShelfMark((0, 0, 0, 2 + n % 30), (version,) * 3, 0) for n in range(SHELF_MARKS))
        mark = (ShelfMark(MATE, (version,) * 3, 0),)
        link.say(routed(Standing(MATE, MATE, HOME, 1, 1, 0, mark), MATE))
        link.say(routed(Standing((0, 0, 0), MATE, HOME, 1, 1, 0, marks), MATE))
        for page in range(40):
            some = tuple(
                Advertisement(
                    f"c{page}", f"a{n}", LEVELS, version, msgspec.msgpack.encode({"price": n, "page": page}),
                    f"<r><i>{n}</i></r>".encode(),
                )
                for n in range(500)
            )  # fmt: skip
            up_to = version - 40 + page
            link.say(routed(Shelf(1, 0 if not page else up_to - 1, up_to, version, some), MATE))
            await link.drained()
        await heard(stage, link)


async def asked(stage: Stage) -> None:
    """A neighbour asks queries that take long, many at once."""
    peer = await stage.client("offering")
    await advertise(peer, 2000, "<offer><id>NUMBER</id>" + "<item><price>3</price></item>" * 20 + "</offer>")
    other = await stage.client("large")
    await advertise(other, 4, "<r>" + "<a>" * 50 + "<b/>" * 3900 + "</a>" * 50 + "</r>")
    link = await stage.neighbour(MATE)
    await heard(stage, link)
    async with stage.measured():
        texts = ["//item[position() > 3]/price = 4", "count(//b[count(//b) > 3]) > 1", "//*[count(.//*) > 3]"]
        for number in range(12):
            part = (QueryPart(HOME, 0, LEVELS),)
            link.say(routed(Ask(MATE, number, part, False, texts[number % 3], (), True), MATE))
            link.say(routed(Ask(MATE, 100 + number, part, True, "SELECT * FROM adverts ORDER BY p1", (), True), MATE))
        await heard(stage, link)


async def first_words(stage: Stage) -> None:
    """A neighbour comes to a broker whose clients want 20,000 things."""
    peer = await stage.client("many")
    await all_answered(peer, [subscribe(n, "topic", f"t.{n}") for n in range(15_000)])
    await all_answered(peer, [subscribe(20_000 + n, "selector", [f"q.{n % 40}", f"price > {n}"]) for n in range(5000)])
    async with stage.measured():
        link = await stage.neighbour(MATE)
        await heard(stage, link)
        far = await stage.neighbour(FAR)
        await heard(stage, far)
        await heard(stage, link)


NEIGHBOUR_ACTIONS: dict[str, Action] = {
    "a neighbour with 20,000 connections": maps,
    "a neighbour that wants 40,000 things": wants,
    "a far neighbour that wants 20,000 things": far_wants,
    "frames of 32 digests": digests,
    "acknowledgements of 5,000 marks": claims,
    "shelves of 20,000 advertisements": shelves,
    "a neighbour's queries": asked,
    "a link of a broker with 20,000 wants": first_words,
}
