"""Batches that are staged and published as a whole: once, in order, by who may, through kills (EVT-02, GUA-02)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread

import pytest

import veena.blocking
import veena.testing
from tests.runtime.processes import until
from tests.runtime.wording import Wording
from veena.blocking import Subscription
from veena.core.wire.codec import encode
from veena.core.wire.event import EventCodec
from veena.core.wire.staging import AskStage, TellStaged
from veena.errors import AccessDenied, NotConnected, Refused, RemoteProtocolError
from veena.event import Event, EventId
from veena.runtime.access.users import hash_password
from veena.spark.log.connection import Access
from veena.spark.sink.staging_client import Published, StageClient, StagedPart
from veena.testing.networks import Network

SINK = Access(client_id="sink")
USERS = """
[user.loader]
password = "{password}"
roles = ["loader"]
[user.other]
password = "{password}"
roles = ["all"]
[role.loader]
rules = [{{ deny = "publish", topic = "secret.*" }}, {{ allow = "publish" }}]
[role.all]
rules = [{{ allow = "*" }}]
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """One broker, in this process, for all tests that leave it alive."""
    with veena.testing.network(brokers=1, settings={"store": {"staged_bytes": 200_000}}) as running:
        yield running


@pytest.fixture
def client(network: Network) -> Iterator[StageClient]:
    with StageClient(network.url(), SINK) as made:
        yield made


@contextmanager
def reading(url: str, topic: str, durable: str | None = None) -> Iterator[Subscription]:
    with veena.blocking.connect(url, client_id=f"reader-{topic}") as reader:
        yield reader.subscribe(topic=topic, durable=durable) if durable else reader.subscribe(topic=topic)


def staged(client: StageClient, query: str, batch: int, topic: str, bodies: Sequence[str]) -> StagedPart:
    part = client.part(query, batch)
    for body in bodies:
        part.add(Event(topic=topic, body=body.encode()))
    return part.finish()


def bodies(found: Subscription, count: int) -> list[str]:
    """What so many events say; of a reliable stream more would have come between them."""
    return [bytes(found.next(timeout=20).body).decode() for _ in range(count)]


def test_a_batch_is_public_as_a_whole_in_order_and_once(network: Network, client: StageClient) -> None:
    """Parts in the order in which they are named, rows in theirs; nothing of attempts that are not named; once."""
    with reading(network.url(), "whole") as found:
        second = staged(client, "whole", 0, "whole", ["c", "d"])
        staged(client, "whole", 0, "whole", ["of an attempt that failed"])
        first = staged(client, "whole", 0, "whole", ["a", "b"])
        assert client.published("whole") == -1
        assert client.publish("whole", 0, [first, second]) == Published(0, 4)
        assert client.publish("whole", 0, [first, second]) == Published(0, 0)
        again = staged(client, "whole", 0, "whole", ["a", "b"])
        assert again.known and not again.rows
        assert client.publish("whole", 1, [staged(client, "whole", 1, "whole", ["e"])]) == Published(1, 1)
        events = [found.next(timeout=20) for _ in range(5)]
        assert [bytes(event.body).decode() for event in events] == ["a", "b", "c", "d", "e"]
        ids = [event.event_id for event in events if event.event_id is not None]
        assert {(each.publisher, each.incarnation) for each in ids} == {("sink", ids[0].incarnation)}
        assert [each.sequence for each in ids] == [0, 1, 2, 3, 0]
        assert ids[4].timestamp > ids[3].timestamp == ids[0].timestamp
        assert client.published("whole") == 1
    until(lambda: not network.statistics("a.1").staging.releasing)
    told = network.statistics("a.1").staging
    assert told.bytes == 0 and told.parts == 0 and told.repeated >= 1, "leftovers of a published batch are dropped"


def test_what_is_abandoned_is_never_seen(network: Network, client: StageClient) -> None:
    with reading(network.url(), "left") as found:
        part = staged(client, "left", 0, "left", ["never"])
        client.abandon("left", 0)
        with pytest.raises(Refused, match=r"part [0-9a-f]{32} is not here \(any more\); run the batch again"):
            client.publish("left", 0, [part])
        assert client.publish("left", 0, [staged(client, "left", 0, "left", ["seen"])]).rows == 1
        assert bodies(found, 1) == ["seen"]


def test_a_batch_is_not_published_with_less_than_it_has(client: StageClient, wording: Wording) -> None:
    part = staged(client, "less", 0, "less", ["a", "b"])
    with pytest.raises(Refused, match=wording.of("has 2 rows on disk, not 3; run the batch again")):
        client.publish("less", 0, [StagedPart(part.name, 3)])
    with pytest.raises(Refused, match=wording.of("a part is named twice")):
        client.publish("less", 0, [part, part])
    with (
        StageClient(client.url, Access(client_id="another")) as another,
        pytest.raises(Refused, match=wording.of("was staged by client 'sink'; publish it as that client")),
    ):
        another.publish("less", 0, [part])
    client.abandon("less", 0)


def test_rows_of_best_effort_and_of_every_lane_are_published(network: Network, client: StageClient) -> None:
    with reading(network.url(), "lanes") as found:
        part = client.part("lanes", 0)
        for number in range(30):
            part.add(Event(topic="lanes", body=b"%d" % number, priority=number % 10), reliable=number % 3 != 0)
        assert client.publish("lanes", 0, [part.finish()]).rows == 30
        assert sorted(map(int, bodies(found, 30))) == list(range(30))


def test_staged_bytes_are_bounded_and_the_remedy_is_named(network: Network, client: StageClient) -> None:
    part = client.part("large", 0)
    for _ in range(10):
        part.add(Event(topic="large", body=bytes(50_000)))
    with pytest.raises(Refused, match=r"'sink' has \d+ bytes staged here, of at most 100000: .*`staged_share`"):
        part.finish()
    filled = [staged(client, "filled", 0, "large", ["x" * 90_000])]
    with StageClient(network.url(), Access(client_id="second")) as second:
        filled.append(staged(second, "filled", 0, "large", ["x" * 90_000]))
        with StageClient(network.url(), Access(client_id="third")) as third:
            told = r"of at most 200000: publish smaller batches, or raise \[store\] staged_bytes"
            with pytest.raises(Refused, match=told):
                staged(third, "filled", 0, "large", ["x" * 30_000])
        second.abandon("filled", 0)
    client.abandon("large", 0)
    client.abandon("filled", 0)
    until(lambda: network.statistics("a.1").staging.bytes == 0)


def test_what_must_not_be_published_is_refused_when_it_is_staged(client: StageClient) -> None:
    """The row is named; nothing of its chunk is kept, and the connection lives on."""
    for event, reason in (
        (Event(topic="t", xml="<open>"), "row 1: .*open"),
        (Event(to=("~0.0.0.1/post",)), "row 1: ids that begin with ~ are the brokers' own"),
    ):
        part = client.part("wrong", 0)
        part.add(Event(topic="t"))
        part.add(event)
        with pytest.raises(Refused, match=reason):
            part.finish()
    assert client.published("wrong") == -1


def test_rows_out_of_their_order_are_refused(network: Network, client: StageClient) -> None:
    """A part that lost its beginning, with a store that was emptied, must be staged anew; half a chunk is a fault."""
    wire, name = client.connected(), bytes(16)

    def stage(first: int, count: int) -> object:
        number = wire.open()
        frames = b"".join(
            client.codec.encode_event(Event(topic="t", event_id=EventId("sink", 0, 0, first + at)), 0, reliable=True)
            for at in range(count)
        )
        wire.send_bytes(encode(AskStage(number, "order", 0, name, first, count), 0) + frames)
        return wire.wait(number)

    with pytest.raises(Refused, match="rows before 5 are not here"):
        stage(5, 1)
    told = stage(0, 2)
    assert isinstance(told, TellStaged) and told.rows == 2
    again = stage(0, 2)
    assert isinstance(again, TellStaged) and again.rows == 2, "what came before is answered, not kept twice"
    with pytest.raises(Refused, match="rows 2 to 6 are missing"):
        stage(7, 1)
    number = wire.open()
    wire.send(AskStage(number, "order", 0, name, 2, 1), AskStage(number, "order", 0, name, 3, 1))
    with pytest.raises((Refused, RemoteProtocolError), match="1 events of the one before are missing"):
        wire.wait(number)
    client.close()
    with pytest.raises(Refused, match="has 2 rows on disk, not 3"):
        client.publish("order", 0, [StagedPart(name, 3)])
    assert client.publish("order", 0, [StagedPart(name, 2)]).rows == 2


def test_rights_are_those_of_publishing_and_batches_belong_to_their_user(tmp_path: Path, wording: Wording) -> None:
    """SEC: each row is tested; nobody publishes, or learns of, another user's batch."""
    file = tmp_path / "users.toml"
    file.write_text(USERS.format(password=hash_password("open sesame")))
    with veena.testing.broker(settings={"auth": {"users_file": str(file)}}) as url:
        loader = Access(user="loader", password="open sesame")
        other = Access(user="other", password="open sesame")
        with StageClient(url, loader) as mine, StageClient(url, other) as theirs:
            part = mine.part("night", 0)
            part.add(Event(topic="open"))
            part.add(Event(topic="secret.x"))
            with pytest.raises(
                AccessDenied, match=wording.of(r"row 1: the rights of 'loader' do not allow .* 'secret\.x'")
            ):
                part.finish()
            good = staged(mine, "night", 0, "open", ["a"])
            with pytest.raises(Refused, match=wording.of("is not here")):
                theirs.publish("night", 0, [good])
            assert mine.publish("night", 0, [good]).rows == 1
            assert (mine.published("night"), theirs.published("night")) == (0, -1)


def test_leftovers_expire() -> None:
    """What nobody published is dropped; a query that says it goes on is remembered, another one is not."""
    with (
        veena.testing.network(brokers=1, settings={"store": {"staged_s": 0.4}}) as network,
        StageClient(network.url(), SINK) as client,
    ):
        staged(client, "old", 0, "old", ["a", "b"])
        client.publish("lasting", 3, [], lasting=True)
        client.publish("passing", 3, [], lasting=False)
        until(lambda: network.statistics("a.1").staging.expired == 1)
        until(lambda: network.statistics("a.1").staging.bytes == 0)
        until(lambda: client.published("passing") == -1)
        assert client.published("lasting") == 3


def places(directory: Path) -> tuple[int, list[str]]:
    """How many rows of a broker's store are staged, and what those say that are in its log."""
    codec = EventCodec(2, 32)
    with closing(sqlite3.connect(directory / "a.1" / "store" / "veena.db")) as store:
        store.execute("BEGIN")
        left = store.execute("SELECT coalesce(sum(row_count), 0) FROM staged").fetchone()[0]
        log = store.execute("SELECT frame FROM log WHERE inboxes IS NULL ORDER BY offset").fetchall()
    frames = [codec.read(frame) for (frame,) in log]
    return left, [bytes(frame.body).decode() for frame in frames if frame.publisher == "sink"]


def test_a_broker_that_is_killed_after_staging_and_while_it_publishes_publishes_once(tmp_path: Path) -> None:
    """GUA-02: `kill -9` between staging and publishing, and with a published batch that is half in the log. Every row
    is in one place whenever the broker dies: staged, or in the log."""
    expected = [str(number) for number in range(5000)]
    with (
        veena.testing.network(brokers=1, processes=True, directory=tmp_path) as network,
        StageClient(network.url(), SINK) as client,
    ):
        part = staged(client, "killed", 0, "killed", expected)
        network.kill("a.1")
        assert places(tmp_path) == (len(expected), [])
        network.restart("a.1")
        assert client.publish("killed", 0, [part]) == Published(0, len(expected))
        for _ in range(2):
            network.kill("a.1")
            left, logged = places(tmp_path)
            assert logged == expected[: len(expected) - left]
            network.restart("a.1")
            until(lambda: not left or places(tmp_path)[0] < left)  # noqa: B023
        assert client.publish("killed", 0, [part]) == Published(0, 0)
        until(lambda: not places(tmp_path)[0])
        assert places(tmp_path) == (0, expected)


def test_a_broker_that_comes_back_goes_on_and_counts_its_bytes(tmp_path: Path) -> None:
    """What was staged, what is half released and what queries were published are known again."""
    with veena.testing.network(brokers=1, directory=tmp_path) as network:
        with StageClient(network.url(), SINK) as client:
            part = staged(client, "back", 4, "back", [str(number) for number in range(2500)])
            waiting = staged(client, "back", 5, "back", ["waits"])
            assert client.publish("back", 4, [part]).rows == 2500
            network.kill("a.1")
            network.restart("a.1")
            until(lambda: not network.statistics("a.1").staging.releasing)
            told = network.statistics("a.1").staging
            assert (told.parts, told.queries) == (1, 1) and 0 < told.bytes < 200, "of the row that waits"
            assert client.published("back") == 4
            assert client.publish("back", 5, [waiting]) == Published(5, 1)
            until(lambda: network.statistics("a.1").staging.bytes == 0)
        assert places(tmp_path) == (0, [*map(str, range(2500)), "waits"])


def test_batches_that_are_tried_again_through_random_kills_are_published_once(tmp_path: Path) -> None:
    """GUA-02, I1: a sink that goes on as Spark would, each batch until it is known to be published; and its reader."""
    chance, batches, rows = Random(11), 12, 20
    with veena.testing.network(brokers=1, processes=True, directory=tmp_path) as network:
        with reading(network.url(), "many", "all") as found:
            assert found is not None
        is_over = Flag()

        def kill() -> None:
            for _ in range(5):
                if is_over.wait(chance.uniform(0.05, 0.4)):
                    return
                network.kill("a.1")
                network.restart("a.1")

        killer = Thread(target=kill)
        killer.start()
        try:
            for batch in range(batches):
                _publish_until_known(network.url(), batch, rows, chance)
        finally:
            is_over.set()
            killer.join()
        expected = [f"{batch}.{row}" for batch in range(batches) for row in range(rows)]
        with reading(network.url(), "many", "all") as found:
            assert bodies(found, len(expected)) == expected
        assert places(tmp_path) == (0, expected)


def _publish_until_known(url: str, batch: int, rows: int, chance: Random) -> None:
    """Try a batch as new drivers do, some of which die before they know that it is published."""
    while True:
        with StageClient(url, SINK, timeout=10) as client:
            try:
                part = staged(client, "many", batch, "many", [f"{batch}.{row}" for row in range(rows)])
                client.publish("many", batch, [part])
            except (Refused, NotConnected):
                continue
        if chance.random() < 0.7:
            return
