"""Brokers, a process each, and clients on them: opened and closed as one, whatever fails on the way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from veena.client import Client, connect
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import Network

Say = Callable[[str], None]


class MannedFleet(ABC):
    """What experiments on live brokers have in common; `_attach` brings in the clients."""

    def __init__(self, network: Network, directory: Path, say: Say, records: str = "off") -> None:
        self._say = say
        self._up = 0
        self.fleet = Fleet(network, directory, records=records, on_up=self._came_up)
        self._at = {member.label: member for member in self.fleet.members}
        #: What is to be closed, the last first; the brokers when all else is.
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self.fleet.stop)
        try:
            await self.fleet.start()
            self._say("connecting the clients")
            await self._attach()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._say("stopping the brokers")
        await self._stack.aclose()

    @abstractmethod
    async def _attach(self) -> None:
        """Connect the clients; all brokers are in reach of each other."""

    def _came_up(self, member: Member) -> None:
        self._up += 1
        self._say(f"starting brokers: {self._up} of {len(self._at)}")

    async def _connect(self, label: str, name: str) -> Client:
        return await self._stack.enter_async_context(connect(self._at[label].url, client_id=name))
