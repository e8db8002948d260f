"""format("veena") with brokers that ask who it is: TLS, tokens and rights hold for Spark as for any client."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import veena.blocking
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config

CERTIFICATES = Path(__file__).parents[1] / "runtime" / "certificates"
AUTHORITY = CERTIFICATES / "authority.pem"
#: alice may do everything; bob may read what is not secret, and publish nothing.
USERS = f"""
[user.alice]
tokens = ["{digest_of("hers")}"]
roles = ["chief"]
[user.bob]
tokens = ["{digest_of("his")}"]
roles = ["reader"]
[role.chief]
rules = [{{ allow = "*" }}]
[role.reader]
rules = [{{ deny = "subscribe", topic = "secret.*" }}, {{ allow = "subscribe" }}]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("secured")
    (place / "users.toml").write_text(USERS)
    files = {"certificate": "broker.pem", "key": "broker.key", "authority": "authority.pem"}
    config = f'[broker]\nlisten = ["veenas://127.0.0.1:0"]\n[auth]\nusers_file = "{place}/users.toml"\n[tls]\n'
    config += "".join(f'{key} = "{CERTIFICATES}/{name}"\n' for key, name in files.items())
    loop = veena.blocking.LoopThread()

    async def started() -> Node:
        node = Node(parse_config(config))
        await node.start()
        return node

    node = loop.wait(started())
    try:
        tls = ssl.create_default_context(cafile=str(AUTHORITY))
        with veena.blocking.connect(node.urls[0], client_id="alice", user="alice", token="hers", tls=tls) as alice:
            for number in range(20):
                topic = f"{'secret' if number % 4 == 0 else 'open'}.{number}"
                alice.publish(topic=topic, properties={"n": number}, reliable=True)
        yield node.urls[0]
    finally:
        loop.wait(node.stop(0.0))
        loop.stop()


def options(url: str, user: str, token: str) -> dict[str, str]:
    return {"url": url, "user": user, "token": token, "caFile": str(AUTHORITY)}


def topics(spark: SparkSession, url: str, user: str, token: str) -> list[str]:
    rows = spark.read.format("veena").options(**options(url, user, token)).load().select("topic").collect()
    return sorted(str(row.topic) for row in rows)


def test_each_user_reads_what_its_rights_allow(url: str, spark: SparkSession) -> None:
    """SEC-05: what alice published reaches Spark inside TLS; bob does not get what he may not read."""
    everything = sorted(f"{'secret' if number % 4 == 0 else 'open'}.{number}" for number in range(20))
    assert topics(spark, url, "alice", "hers") == everything
    assert topics(spark, url, "bob", "his") == [topic for topic in everything if topic.startswith("open")]


def test_who_is_not_known_is_told_so(url: str, spark: SparkSession) -> None:
    with pytest.raises(Exception, match="token is not known here"):
        topics(spark, url, "bob", "guessed")


def test_rows_are_written_by_those_who_may_publish(url: str, spark: SparkSession) -> None:
    rows = spark.createDataFrame([("open.new",)], "topic string").coalesce(1)
    rows.write.format("veena").options(**options(url, "alice", "hers")).mode("append").save()
    assert "open.new" in topics(spark, url, "alice", "hers")
    with pytest.raises(Exception, match=r"do not allow|may not publish|not allowed"):
        rows.write.format("veena").options(**options(url, "bob", "his")).mode("append").save()
