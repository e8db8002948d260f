"""One broker of a test's network: in this process, or as a process of its own.

It keeps its port and its disk over its lives. The port is held (bound, not listened on) as long as the network lives,
so that nobody else gets it while the broker is dead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from veena.address import Address, as_seen
from veena.errors import ConfigError
from veena.runtime.broker.node import Node
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.config.reader import load_config
from veena.runtime.fleet.fleet import last_lines, spawn
from veena.runtime.logging.logs import Log
from veena.runtime.networks.model import BrokerEntry
from veena.testing.doors import HOST

#: Tables of a broker's configuration file, with their keys.
Settings = Mapping[str, Mapping[str, Any]]
#: How long a process may take to stop before it is killed.
STOP_S = 10.0
#: As in production, but with less patience: lost heartbeats are noticed within a second, closed sockets at once.
BRISK: Settings = {
    "store": {"path": "store", "arrive_s": 1.0},
    "links": {"heartbeat_s": 0.25, "retry_s": 0.02, "retry_s_max": 0.25},
}

_logger = logging.getLogger("veena.testing")
_logger.addHandler(logging.NullHandler())


class Place:
    """Where a broker is: its port, its directory, its configuration."""

    def __init__(self, entry: BrokerEntry, directory: Path) -> None:
        self.label = entry.label
        self.address = entry.address
        self.directory = directory / re.sub(r"[^\w.-]", "_", entry.label)
        self._held = socket.socket(socket.AF_INET)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((HOST, 0))
        self.port: int = self._held.getsockname()[1]

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"veena://{HOST}:{self.port}"

    @property
    def config(self) -> Path:
        return self.directory / "broker.toml"

    def write_config(self, door: str, settings: Settings) -> None:
        """The file that its broker is started with; what the test sets wins."""
        self.directory.mkdir(parents=True, exist_ok=True)
        place = {"network": "../network.toml", "label": self.label, "listen": [self.url], "announce": [door]}
        lines: list[str] = []
        for table in dict.fromkeys(("broker", *BRISK, *settings)):
            own = place if table == "broker" else {}
            lines.append(f"[{table}]")
            for key, value in {**BRISK.get(table, {}), **settings.get(table, {}), **own}.items():
                lines.append(f"{key} = {_toml(value)}")
        self.config.write_text("\n".join(lines) + "\n")

    def close(self) -> None:
        self._held.close()


class Broker(Protocol):
    """A broker that lives."""

    async def start(self) -> None:
        """Until it listens."""

    async def kill(self) -> None:
        """End it at once, without a word to anybody."""

    async def stop(self, drain_s: float) -> None:
        """End it in good order; clients get so long to go elsewhere."""

    def reaches(self, others: list[Address]) -> bool:
        """Whether it knows the way to all of these."""


class InProcess:
    """A broker in this process."""

    def __init__(self, place: Place) -> None:
        self._node = Node(load_config(place.config), Log(_logger))

    async def start(self) -> None:
        await self._node.start()

    async def kill(self) -> None:
        await self._node.kill()

    async def stop(self, drain_s: float) -> None:
        await self._node.stop(drain_s)

    def reaches(self, others: list[Address]) -> bool:
        if self._node.failure is not None:
            reason = str(self._node.failure)
            raise ConfigError(self._node.config.label, "broker", f"has stopped: {reason}", "see its log")
        host = self._node.config.address
        wanted = {as_seen(host, other) for other in others if other != host}
        return self._node.driver.is_remembered and wanted <= self._node.driver.reached.keys()

    def statistics(self) -> NodeStatistics:
        return self._node.statistics()


class AsProcess:
    """A broker as a process."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._log = place.directory / "broker.log"
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_ready = False

    async def start(self) -> None:
        with self._log.open("ab") as lines:
            process = self._process = await spawn(self._place.config, lines)
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except BaseException:
            await self.kill()
            raise
        if not line:
            await process.wait()
            raise self._has_ended("did not start")
        self._listening = asyncio.get_running_loop().create_task(self._read(process.stdout))

    async def _read(self, lines: asyncio.StreamReader) -> None:
        """It says once that it reaches everybody."""
        self._is_ready = bool(await lines.readline())

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._gone()

    async def stop(self, drain_s: float) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._gone()

    async def _gone(self) -> None:
        process = self._process
        assert process is not None
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if self._listening is not None:
            await self._listening

    def reaches(self, others: list[Address]) -> bool:
        if self._process is None or self._process.returncode is not None:
            raise self._has_ended("has stopped")
        return self._is_ready

    def _has_ended(self, how: str) -> ConfigError:
        log, code = self._log, None if self._process is None else self._process.returncode
        return ConfigError(str(log), self._place.label, f"{how} (exit code {code}): {last_lines(log)}", "mend that")


def _toml(value: object) -> str:
    """A value as TOML; JSON is that for all but tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
