"""A whole network on this machine: a process a broker, each with its configuration, log and data in a directory.

A broker holds one end of a pipe whose other end is here: when this process ends, however it ends, the brokers notice
and stop, so none is left behind. Ports that the network file does not give are picked and kept bound here (not listened
on) as long as the fleet lives: nobody else gets them, and a broker that is started again finds its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from veena.address import Address, Labels, link_level
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.networks.file import BrokerEntry, LinkEntry, Network, check_connected, dump_network
from veena.runtime.transports.secret_files import open_private, write_secret

#: Brokers that start at once, for each processor: importing is all they do at first.
STARTS_PER_CPU = 2
#: How long a broker may take to stop before it is killed: its own patience and some more.
STOP_S = 15.0
#: The pause before a broker that has died is started again, doubled while it dies at once.
RESTART_S, RESTART_S_MAX = 0.2, 10.0
#: How long a broker that is added may take to reach all others.
ADD_S = 60.0
#: A broker that lived so long has not died at once.
GOOD_LIFE_S = 10.0
#: Lines of a log that are shown when its broker did not start.
LAST_LINES = 5
LOCAL_TRANSPORTS = {"tcp", "ws"}


@dataclass(slots=True)
class Member:
    """One broker of the fleet."""

    entry: BrokerEntry
    directory: Path
    url: str = ""
    pid: int = 0
    process: asyncio.subprocess.Process | None = None
    is_ready: bool = False
    #: How often it was started.
    starts: int = 0
    exit_code: int | None = None
    listening: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def label(self) -> str:
        return self.entry.label

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"


class Fleet:
    """All brokers of a network file."""

    def __init__(
        self,
        network: Network,
        directory: Path,
        *,
        restart: bool = False,
        settings: str | Callable[[str], str] = "",
        records: str = "off",
        copies: int = 1,
        open_links: bool = False,
        on_up: Callable[[Member], None] = lambda member: None,
        on_exit: Callable[[Member, int], None] = lambda member, code: None,
    ) -> None:
        """`settings` is TOML that every broker's file gets, or the one of a label; it begins with a table of its own.

        `open_links`: that brokers with a users file believe each other without certificates, on one machine.
        """
        self._held: list[socket.socket] = []
        _check_transports(network)
        self.network = replace(network, brokers=tuple(self._placed(network, entry) for entry in network.brokers))
        self.directory = directory
        self.members = [
            Member(entry, directory / re.sub(r"[^\w.-]", "_", entry.label)) for entry in self.network.brokers
        ]
        self._restart = restart
        self._settings = settings
        self._open_links = open_links
        self._records = records
        self._copies = copies
        self._on_up = on_up
        self._on_exit = on_exit
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Semaphore(STARTS_PER_CPU * (os.cpu_count() or 1))
        self._is_stopping = self._is_started = False
        self._news = asyncio.Event()
        self._trouble: ConfigError | None = None
        #: (who dials, whom) -> where it dials instead.
        self._detours: dict[tuple[str, str], str] = {}

    def divert(self, dialling: str, dialled: str, url: str) -> None:
        """Let one broker reach another by this URL; before the fleet starts."""
        self._detours[dialling, dialled] = url

    async def start(self) -> None:
        """Start every broker; returns when each is in reach of all others. Raises ConfigError when one cannot start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_network()
        for member in self.members:
            self._begin(member)
        while not all(member.is_ready for member in self.members):
            self._news.clear()
            for task in self._tasks:
                if task.done():
                    task.result()
            if self._trouble is not None:
                raise self._trouble
            await self._news.wait()
        self._is_started = True

    # --- while it runs ---

    async def add(self, label: str, neighbours: Sequence[str]) -> Member:
        """Start one more broker, which dials these; returns when it reaches everybody. Raises ConfigError if not."""
        before, known = self.network, {member.label: member.entry.address for member in self.members}
        _check_new(self.network.name, label, neighbours, known)
        labels = _fresh_labels(before)
        try:
            address = labels.add(label)
        except InvalidAddress as error:
            raise ConfigError(before.name, f"broker {label}", str(error), "choose another label") from None
        links = tuple(LinkEntry(address, known[other], link_level(address, known[other])) for other in neighbours)
        entry = self._placed(before, BrokerEntry(label, address))
        brokers = (*before.brokers, entry)
        await self._change(replace(before, labels=labels, brokers=brokers, links=(*before.links, *links)))
        member = Member(entry, self.directory / re.sub(r"[^\w.-]", "_", label))
        self.members.append(member)
        task = self._begin(member)
        try:
            async with asyncio.timeout(ADD_S):
                while not member.is_ready and not task.done():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass  # said below
        if not member.is_ready:
            await self._take_back(member, task, before)
            reason = f"does not reach all others: {last_lines(member.log)}"
            raise ConfigError(str(member.log), label, reason, "mend that, then ask again")
        return member

    async def add_link(self, one: str, other: str) -> None:
        """Let one broker dial another one from now on."""
        a, b = self._address(one), self._address(other)
        if a == b or any({link.a, link.b} == {a, b} for link in self.network.links):
            raise ConfigError(self.network.name, f"link {one} - {other}", "is there already", "name two other brokers")
        await self._change(replace(self.network, links=(*self.network.links, LinkEntry(a, b, link_level(a, b)))))

    async def drop_link(self, one: str, other: str) -> None:
        """Take the links between two brokers away; not those that hold the network together."""
        ends = {self._address(one), self._address(other)}
        links = tuple(link for link in self.network.links if {link.a, link.b} != ends)
        if len(links) == len(self.network.links):
            raise ConfigError(self.network.name, f"link {one} - {other}", "does not exist", "name the ends of a link")
        await self._change(replace(self.network, links=links))

    def _address(self, label: str) -> Address:
        found = next((member.entry.address for member in self.members if member.label == label), None)
        if found is None:
            remedy = f"name one of {', '.join(member.label for member in self.members)}"
            raise ConfigError(self.network.name, f"broker {label}", "does not exist", remedy)
        return found

    async def _change(self, network: Network) -> None:
        """Let the brokers that run read another network file; raises ConfigError for one that is not in one piece."""
        _check_transports(network)
        check_connected(network)
        self.network = network
        self._write_network()
        for member in self.members:
            self._write_config(member)
            if member.is_ready and member.process is not None and member.process.returncode is None:
                member.process.send_signal(signal.SIGHUP)

    async def _take_back(self, member: Member, task: asyncio.Task[None], before: Network) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if member.process is not None and member.process.returncode is None:
            member.process.kill()
            await member.process.wait()
        self.members.remove(member)
        self._tasks.remove(task)
        await self._change(before)

    async def stop(self) -> None:
        """Stop every broker, and wait until all are gone."""
        self._is_stopping = True
        for member in self.members:
            if member.process is not None and member.process.returncode is None:
                member.process.terminate()
        running = [member.process for member in self.members if member.process is not None]
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(process.wait() for process in running))
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for held in self._held:
            held.close()

    async def wait_all_gone(self) -> None:
        """Until no broker is left, because all have died."""
        while not all(task.done() for task in self._tasks):
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    # --- one broker ---

    def _begin(self, member: Member) -> asyncio.Task[None]:
        self._write_config(member)
        task = asyncio.get_running_loop().create_task(self._keep(member))
        task.add_done_callback(lambda _: self._news.set())
        self._tasks.append(task)
        return task

    def _write_network(self) -> None:
        """In one step: brokers may read it at any time."""
        file = self.directory / "network.toml"
        new = file.with_suffix(".new")
        write_secret(new, dump_network(self.network))
        new.replace(file)

    async def _keep(self, member: Member) -> None:
        pause = RESTART_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await self._live(member)
            if self._is_stopping:
                return
            member.exit_code, member.is_ready = code, False
            if not self._is_started and not (self._restart and member.listening.is_set()):
                self._trouble = ConfigError(
                    str(member.log), member.label, f"did not start (exit code {code}): {last_lines(member.log)}",
                    "mend that, then start the network again",
                )  # fmt: skip
                self._news.set()
                return
            self._on_exit(member, code)
            if not self._restart:
                return
            pause = RESTART_S if loop.time() - began > GOOD_LIFE_S else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, RESTART_S_MAX)

    async def _live(self, member: Member) -> int:
        """One life of a broker: its exit code."""
        member.starts += 1
        async with self._starting:
            with open(member.log, "ab", opener=open_private) as log:
                process = member.process = await spawn(member.directory / "broker.toml", log)
            try:
                await self._read_line(member, process)
            except BaseException:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                raise
        await self._read_line(member, process)
        return await process.wait()

    async def _read_line(self, member: Member, process: asyncio.subprocess.Process) -> None:
        """A broker says where it listens, and later that it reaches everybody."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            return
        told = json.loads(line)
        if "url" in told:
            member.url, member.pid = told["url"], told["pid"]
            member.listening.set()
            self._on_up(member)
        else:
            member.is_ready = True
        self._news.set()

    def _write_config(self, member: Member) -> None:
        member.directory.mkdir(parents=True, exist_ok=True)
        listen = ", ".join(json.dumps(url) for url in member.entry.listen)
        detours = {dialled: url for (dialling, dialled), url in self._detours.items() if dialling == member.label}
        if detours:
            seen = tuple(
                replace(entry, listen=(detours[entry.label],)) if entry.label in detours else entry
                for entry in self.network.brokers
            )
            write_secret(member.directory / "network.toml", dump_network(replace(self.network, brokers=seen)))
        lines = [
            "[broker]",
            f'network = "{"" if detours else "../"}network.toml"',
            f"label = {json.dumps(member.label)}",
            f"listen = [{listen}]",
            *(["open_links = true"] if self._open_links else []),
            "",
            "[store]",
            'path = "store"',
            f"records = {json.dumps(self._records)}",
            f"copies = {self._copies}",
            "",
            self._settings if isinstance(self._settings, str) else self._settings(member.label),
        ]
        write_secret(member.directory / "broker.toml", "\n".join(lines))

    # --- ports ---

    def _placed(self, network: Network, entry: BrokerEntry) -> BrokerEntry:
        wanted = list(entry.listen)
        if not wanted:
            used = {link.transport for link in network.links if link.b == entry.address} | {"tcp"}
            wanted = [f"{transport}://127.0.0.1:0" for transport in sorted(used)]
        return replace(entry, listen=tuple(map(self._with_port, wanted)))

    def _with_port(self, url: str) -> str:
        if not url.endswith(":0"):
            return url
        host = url.partition("://")[2].rpartition(":")[0].strip("[]")
        held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.append(held)
        try:
            held.bind((host, 0))
        except OSError as error:
            reason = f"cannot be listened on ({error.strerror or error})"
            raise ConfigError("network", f"listen {url}", reason, "name a host of this machine") from None
        return f"{url.removesuffix(':0')}:{held.getsockname()[1]}"


def _check_new(network: str, label: str, neighbours: Sequence[str], known: Collection[str]) -> None:
    if label in known:
        raise ConfigError(network, f"broker {label}", "runs already", "choose another label")
    if not neighbours:
        raise ConfigError(network, f"broker {label}", "has no links", "name at least one broker that it dials")
    for other in neighbours:
        if other not in known:
            reason = f"is to dial {other}, which does not exist"
            raise ConfigError(network, f"broker {label}", reason, f"name one of {', '.join(known)}")


def _fresh_labels(network: Network) -> Labels:
    """The numbers of a network's units as they are, to be added to: one that is refused leaves nothing behind."""
    labels = Labels(network.levels, network.fanout)
    for broker in network.brokers:
        labels.add(broker.label)
    return labels


def _check_transports(network: Network) -> None:
    labels = network.labels
    for link in network.links:
        if link.transport not in LOCAL_TRANSPORTS:
            entry = f"link {labels.label(link.a)} - {labels.label(link.b)}"
            reason = f"has transport {link.transport!r}, which processes of one machine do not use here"
            raise ConfigError(network.name, entry, reason, f"use one of {', '.join(sorted(LOCAL_TRANSPORTS))}")


async def spawn(config: Path, log: IO[bytes]) -> asyncio.subprocess.Process:
    """A broker's process; it ends when the one that started it does."""
    # A session of its own: Ctrl-C is for this process, which stops the brokers in good order.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "veena.cli", "broker", "run", "--json", "--until-stdin-closes", "--config", str(config),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
    )  # fmt: skip


def last_lines(path: Path) -> str:
    """What a broker said last."""
    try:
        return " / ".join(path.read_text(errors="replace").splitlines()[-LAST_LINES:]) or "it said nothing"
    except OSError:
        return "it said nothing"
