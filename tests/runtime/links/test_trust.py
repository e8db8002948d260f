"""Who may be a broker: at real brokers, over real sockets, with real certificates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.runtime.raw_link import link_to
from tests.runtime.streams import until
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import Config


def write_users(directory: Path) -> Path:
    path = directory / "users.toml"
    path.write_text('[user.alice]\ntokens = ["sha256:' + 64 * "0" + '"]\n')
    path.chmod(0o600)
    return path


def guarded(directory: Path, broker: str = "") -> Config:
    """A broker with users, which listens without TLS."""
    return parse_config(
        f'[broker]\nname = "b1"\naddress = "0.0.0.1"\nlisten = ["veena://127.0.0.1:0"]\n{broker}'
        f'[auth]\nusers_file = "{write_users(directory)}"\n'
    )


async def refused(node: Node) -> str:
    """What a broker without any secret is told."""
    link = await link_to(node.urls[0], (0, 0, 0, 7))
    await until(link.goodbyes)
    assert not node.driver.statistics().links
    return link.goodbyes()[0]


@pytest.mark.parametrize("setting", ["", "plaintext = true\n"])
def test_a_stranger_is_no_broker_where_there_are_users(tmp_path: Path, setting: str) -> None:
    """SEC: "without TLS" was "without rights" too, and whoever dialled in as a broker read everybody's events."""

    async def run() -> None:
        node = Node(guarded(tmp_path, setting))
        await node.start()
        assert "brokers show a certificate here" in await refused(node)
        await node.stop()

    asyncio.run(run())


def test_no_reload_opens_links(tmp_path: Path) -> None:
    """SEC: a reload said that it needs a restart, and yet anybody was a broker from then on."""

    async def run() -> None:
        node = Node(guarded(tmp_path))
        await node.start()
        opened = guarded(tmp_path, "plaintext = true\nopen_links = true\n")
        for _ in range(2):  # it is said as often as it is read
            taken, left = node.reload(opened)
            assert not taken and left == ["[broker] plaintext", "[broker] open_links"]
            assert "brokers show a certificate here" in await refused(node)
        await node.stop()
        node = Node(opened)
        await node.start()
        link = await link_to(node.urls[0], (0, 0, 0, 7))
        await until(lambda: (0, 0, 0, 7) in node.driver.reached)
        assert not link.goodbyes()
        await node.stop()

    asyncio.run(run())
