"""Shares of one user over all of its connections and client ids: offers, queries, staged bytes (real brokers)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import veena
from tests.runtime.client_brokers import run, until
from tests.runtime.raw_client import RawClient, attach
from veena.core.wire.client import AskQuery, TellAnswer, TellRefused
from veena.core.wire.log_tables import AskLogRead
from veena.core.wire.staging import AskStage, TellStaged
from veena.errors import RefusalCode, Refused
from veena.event import Event, EventId
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.clients.table_service import MAX_READS_OF_USER
from veena.runtime.config.reader import parse_config

#: Bytes that may be staged at the broker, and the bodies of one chunk.
STAGED = 1 << 20
CHUNK = 100_000


@asynccontextmanager
async def _broker(folder: Path) -> AsyncIterator[Node]:
    users = folder / "users.toml"
    limits = "limits = { offers = 20, staged_share = 0.25 }\n"
    users.write_text(
        "\n".join(
            f'[user.{name}]\ntokens = ["{digest_of(name)}"]\nroles = ["all"]\n' + (limits if name == "mallory" else "")
            for name in ("mallory", "honest")
        )
        + '[role.all]\nrules = [{ allow = "*" }]\n'
    )
    users.chmod(0o600)
    text = (
        f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "{users}"\n'
        f'[store]\npath = "{folder}/store"\nstaged_bytes = {STAGED}\n'
    )
    node = Node(parse_config(text))
    await node.start()
    try:
        yield node
    finally:
        await node.stop(0.0)


async def _raw(node: Node, user: str, client_id: str) -> RawClient:
    return await attach(node.urls[0], client_id, user=user, token=user)


def test_a_user_with_many_connections_has_one_share_of_offers(tmp_path: Path) -> None:
    """Twenty connections offer thirty things each; the user has its share, is told how to get more, and another
    user offers what it wants."""

    async def scenario() -> None:
        async with _broker(tmp_path) as node:

            async def offer(number: int) -> int:
                name = f"mallory/{number}"
                client = veena.connect(node.urls[0], client_id=name, user="mallory", token="mallory")
                taken = 0
                async with client:
                    for each in range(30):
                        try:
                            await client.advertise(f"offer {each}", properties={"n": each})
                            taken += 1
                        except Refused as error:
                            refusals.append(error)
                    await gate.wait()
                return taken

            gate, refusals = asyncio.Event(), list[Refused]()
            tasks = [asyncio.create_task(offer(number)) for number in range(20)]
            async with veena.connect(node.urls[0], client_id="honest", user="honest", token="honest") as honest:
                await until(lambda: node.driver.statistics().discovery.own == 20)
                for each in range(40):
                    await honest.advertise(f"good {each}", properties={"n": each})
                assert (await honest.query(sql="SELECT n FROM adverts WHERE n >= 0")).matched == 60
                gate.set()
                assert sum(await asyncio.gather(*tasks)) == 20
                assert all(each.code is RefusalCode.LIMIT and "`offers`" in str(each) for each in refusals)
                await until(lambda: node.driver.statistics().discovery.own == 40)

    run(scenario())


def test_a_user_with_many_connections_has_one_share_of_queries(tmp_path: Path) -> None:
    """A flood of queries from many connections is refused beyond the share, and holds up nobody."""

    async def scenario() -> None:
        async with (
            _broker(tmp_path) as node,
            veena.connect(node.urls[0], client_id="honest", user="honest", token="honest") as honest,
        ):
            for each in range(300):
                await honest.advertise(f"good {each}", xml=f"<r>{'<a><b>1</b></a>' * 100}<n>{each}</n></r>")
            floods = [await _raw(node, "mallory", f"mallory/{number}") for number in range(6)]
            for flood in floods:
                text = "count(//a[b = 1]) > 3 and //n != 5"
                flood.say(*(AskQuery(number, "xpath", text, 4, full=False, deadline_ms=60_000) for number in range(40)))
            answer = await honest.query(sql="SELECT name FROM adverts WHERE name = 'good 7'", timeout=20.0)
            assert answer.matched == 1 and answer.complete

            def ends(flood: RawClient) -> list[TellRefused | TellAnswer]:
                return [each for each in flood.frames if isinstance(each, TellRefused | TellAnswer)]

            await until(lambda: all(len(ends(flood)) == 40 for flood in floods))
            refused = [each for flood in floods for each in ends(flood) if isinstance(each, TellRefused)]
            answers = [each for flood in floods for each in ends(flood) if isinstance(each, TellAnswer)]
            assert refused and all(each.why is RefusalCode.LIMIT and "'mallory'" in each.reason for each in refused)
            assert len(answers) >= 64 and all(each.matched == 299 and not each.undecided for each in answers)
            assert node.steps.statistics().longest_ever_s < 0.25, node.steps.statistics()
            for flood in floods:
                flood.stream.close("done")

    run(scenario())


def test_a_user_with_many_connections_has_one_share_of_what_is_staged(tmp_path: Path) -> None:
    """Whatever a user stages by many clients, others have room; what goes gives room back."""

    async def scenario() -> None:
        async with _broker(tmp_path) as node:
            told = [await _stage(await _raw(node, "mallory", f"mallory/{number}"), number) for number in range(8)]
            taken = [each for each in told if isinstance(each, TellStaged)]
            assert len(taken) == STAGED // 4 // CHUNK
            for each in told[len(taken) :]:
                assert isinstance(each, TellRefused) and each.why is RefusalCode.LIMIT
                assert "user 'mallory' has" in each.reason and "`staged_share`" in each.reason
            assert node.staging.statistics().bytes <= STAGED // 4
            for number in range(5):
                raw = await _raw(node, "honest", f"honest/{number}")
                assert isinstance(await _stage(raw, 100 + number), TellStaged)

    run(scenario())


async def _stage(raw: RawClient, number: int) -> TellStaged | TellRefused:
    """A chunk of one event."""
    event_id = EventId(raw.client_id, raw.incarnation, 1, 1)
    event = Event(topic="t", body=bytes(CHUNK), event_id=event_id)
    raw.say(AskStage(number, f"q{number}", 1, bytes([number]) * 16, 0, 1))
    raw.stream.write([raw.codec.encode_event(event, 0, reliable=True)])
    await until(lambda: any(isinstance(each, TellStaged | TellRefused) for each in raw.frames))
    return next(each for each in raw.frames if isinstance(each, TellStaged | TellRefused))


@pytest.mark.parametrize("name", ["offers", "staged_share"])
def test_the_shares_are_limits_of_a_user(name: str) -> None:
    text = f"[limits.client]\n{name} = 0\n"
    with pytest.raises(Exception, match=name):
        parse_config(text)
    assert msgspec.structs.asdict(parse_config("").tables.limits.client)[name]


def test_a_user_with_many_connections_has_one_share_of_reads_of_the_log(tmp_path: Path) -> None:
    """Reads that are opened and not asked on leave others theirs."""

    async def scenario() -> None:
        async with _broker(tmp_path) as node:
            async with veena.connect(node.urls[0], client_id="honest", user="honest", token="honest") as honest:
                for number in range(8):
                    await honest.publish(topic="t", body=b"%d" % number, reliable=True)
            readers = [await _raw(node, "mallory", f"mallory/{number}") for number in range(6)]
            for reader in readers:
                reader.say(*(_read(number) for number in range(16)))
            await until(lambda: node.tables.statistics().reads == MAX_READS_OF_USER)

            def refused() -> list[TellRefused]:
                return [each for one in readers for each in one.frames if isinstance(each, TellRefused)]

            await until(lambda: len(refused()) == 6 * 16 - MAX_READS_OF_USER)
            assert all(each.why is RefusalCode.LIMIT and "user 'mallory'" in each.reason for each in refused())
            other = await _raw(node, "honest", "honest/reader")
            other.say(_read(1))
            await until(lambda: node.tables.statistics().reads == MAX_READS_OF_USER + 1)

    run(scenario())


def _read(number: int) -> AskLogRead:
    """A read of a row at a time, of which one block is asked for: it stays open."""
    return AskLogRead(number, "events", 0, 1 << 40, ("offset", "body"), blocks=1, max_rows=1)
