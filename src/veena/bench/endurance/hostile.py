"""What a broker process does when it is abused, while two honest clients go on.

Each attack is made against a real process over real sockets. Afterwards it is told what became of the attacker, how
often the broker spoke of it in its log, with a line or without one (lines that strangers cause are limited, so they are
counted by the broker's statistics and not in the file), the longest time that the honest subscriber waited for an event
during the attack, and how much memory the process has: it may rise while an attack lasts, and is back when all are
over.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from veena.client import Client, connect
from veena.core.wire.client import AskSubscribe, ClientHello, ClientWelcome, TellActive, TellRefused
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.errors import VeenaError
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet
from veena.runtime.networks.file import parse_network

ALONE = '[network]\nname = "alone"\nlevels = 1\n[[broker]]\naddress = "b"\n'
#: How long a stranger may take to say who it is, in this trial.
IDENTIFY_S = 2.0
SETTINGS = f"[limits]\nidentify_s = {IDENTIFY_S}\nunidentified = 4096\n"
#: The pause between two events of the honest publisher.
PULSE_S = 0.01
#: Connections of the honest clients.
HONEST = 2
PATIENCE_S = 60.0
POLL_S = 0.05
#: A share of the memory before, and bytes, by which it may be more when all is over: an allocator keeps some.
SLACK, SLACK_BYTES = 0.10, 8 << 20
#: Document type definitions that grow to gigabytes where entities are expanded.
BOMB = (
    '<!DOCTYPE l [<!ENTITY a "' + "a" * 100 + '">'
    + "".join(f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in pairwise("abcdefghij"))
    + "]><l>&j;</l>"
)  # fmt: skip

Say = Callable[[str], None]


@dataclass(slots=True)
class Trial:
    """One attack and what it did."""

    name: str
    outcome: str = ""
    seconds: float = 0.0
    #: Lines that the broker wrote to its log because of it, and occurrences that had none of their own.
    log_lines: int = 0
    left_out: int = 0
    #: The honest subscriber's longest wait, in seconds, and the events that it got meanwhile.
    longest_wait_s: float = 0.0
    deliveries: int = 0
    memory_mib: float = 0.0


@dataclass(slots=True)
class Report:
    before_mib: float = 0.0
    after_mib: float = 0.0
    missing: int = 0
    trials: list[Trial] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Nobody else lost anything, everything went on, and the memory is back."""
        allowed = self.before_mib * (1 + SLACK) + SLACK_BYTES / (1 << 20)
        return not self.missing and self.after_mib <= allowed and all(trial.deliveries for trial in self.trials)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_sound": self.is_sound}


class Hostile:
    """A broker, two honest clients, and everybody else."""

    def __init__(self, directory: Path, say: Say = lambda text: None, connections: int = 10_000) -> None:
        self._fleet = Fleet(parse_network(ALONE), directory, settings=SETTINGS)
        self._say, self._connections = say, connections
        self._chance = Random(9)
        self._got: list[float] = []
        self._sent = 0
        #: Ends the pulse between two events: one that is broken off may arrive and not be counted.
        self._is_over = False

    async def run(self) -> Report:
        report = Report()
        await self._fleet.start()
        member = self._fleet.members[0]
        self._host, _, port = member.url.partition("://")[2].rpartition(":")
        self._port, self._pid = int(port), member.pid
        try:
            async with (
                connect(member.url, client_id="honest-writer") as writer,
                connect(member.url, client_id="honest-reader") as reader,
            ):
                self._url, self._honest = member.url, reader
                wanted = await reader.subscribe(topic="honest", on_event=lambda _: self._got.append(time.monotonic()))
                pulse = asyncio.create_task(self._pulse(writer))
                await self._warm_up()
                report.before_mib = self._memory()
                for attack in ATTACKS:
                    report.trials.append(await self._try(attack))
                await asyncio.sleep(2 * IDENTIFY_S)
                self._is_over = True
                await pulse
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        while len(self._got) < self._sent:
                            await asyncio.sleep(POLL_S)
                report.missing, report.after_mib = self._sent - len(self._got), self._memory()
                await wanted.close()
        finally:
            await self._fleet.stop()
        return report

    async def _pulse(self, writer: Client) -> None:
        while not self._is_over:
            await writer.publish(topic="honest", body=b"x" * 100, reliable=True)
            self._sent += 1
            await asyncio.sleep(PULSE_S)

    async def _warm_up(self) -> None:
        """Let everything that is made once be made: a few of each attack."""
        connections, self._connections = self._connections, 200
        for attack in ATTACKS:
            await attack(self)
        self._connections = connections
        await asyncio.sleep(2 * IDENTIFY_S)

    async def _try(self, attack: Attack) -> Trial:
        name = attack.__name__.replace("_", " ")
        self._say(name)
        trial = Trial(name)
        lines, left_out = await self._lines()
        begin, got = time.monotonic(), len(self._got)
        trial.outcome = await attack(self)
        trial.seconds = round(time.monotonic() - begin, 2)
        await self._delivered(2)
        times = [begin, *self._got[got:], time.monotonic()]
        trial.longest_wait_s = round(max(late - early for early, late in pairwise(times)), 3)
        trial.deliveries = len(times) - 2
        trial.memory_mib = self._memory()
        after, left_out_after = await self._lines()
        trial.log_lines, trial.left_out = after - lines, left_out_after - left_out
        return trial

    async def _lines(self) -> tuple[int, int]:
        """What the broker has written and left out, once it has done with everybody but the honest clients."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = await self._honest.status()
            if status["entrance"]["connections"] <= HONEST or time.monotonic() > deadline:
                return status["lines"]["written"], status["lines"]["left_out"]
            await asyncio.sleep(POLL_S)

    def _memory(self) -> float:
        """MiB of the broker that are in memory."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)

    async def _attach(self, client_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Decoder]:
        """A client without a library, as far as its welcome."""
        reader, writer = await self._dial()
        decoder = Decoder()
        writer.write(encode(ClientHello(VERSION_LOW, VERSION, client_id), 0))
        assert isinstance(decoder.feed(await reader.read(1 << 16))[0][1], ClientWelcome)
        return reader, writer, decoder

    async def _delivered(self, more: int) -> None:
        """Until so many more honest events have come, for a while: that they do not is told by the trial."""
        wanted = len(self._got) + more
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while len(self._got) < wanted:
                    await asyncio.sleep(PULSE_S)

    # --- attacks ---

    async def random_bytes(self) -> str:
        closed = 0
        for _ in range(200):
            reader, writer = await self._dial()
            with suppress(OSError):
                writer.write(self._chance.randbytes(self._chance.randint(1, 5000)))
                writer.write_eof()
                closed += await _is_closed(reader)
            writer.transport.abort()
        return f"{closed} of 200 closed"

    async def half_open(self) -> str:
        made = [await self._dial() for _ in range(200)]
        closed = sum(await asyncio.gather(*(_is_closed(reader) for reader, _ in made)))
        for _, writer in made:
            writer.transport.abort()
        return f"{closed} of 200 closed when they had said nothing for {IDENTIFY_S:g} s"

    async def slow_loris(self) -> str:
        hello = encode(ClientHello(VERSION_LOW, VERSION, "loris"), 0)

        async def drip() -> bool:
            reader, writer = await self._dial()
            with suppress(OSError):
                for at in range(len(hello) - 1):
                    writer.write(hello[at : at + 1])
                    await asyncio.sleep(IDENTIFY_S / 10)
                    if reader.at_eof():
                        break
            found = await _is_closed(reader)
            writer.transport.abort()
            return found

        closed = sum(await asyncio.gather(*(drip() for _ in range(50))))
        return f"{closed} of 50 closed before they had said who they are"

    async def never_reads(self) -> str:
        """A subscriber whose socket nobody reads, on a topic that floods."""
        reader, writer, _ = await self._attach("deaf")
        writer.write(encode(AskSubscribe(1, "topic", msgspec.msgpack.encode("flood")), 0))
        await reader.read(1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with connect(self._url, client_id="flood") as flood:
            events = [Event(topic="flood", body=bytes(1024))] * 500
            for _ in range(40):
                await flood.publish_many(events)
        peak = self._memory()
        writer.transport.abort()
        return f"20 MiB flowed past it, the broker held {peak:g} MiB in all"

    async def connections_opened_and_closed(self) -> str:
        for at in range(self._connections):
            _, writer = await self._dial()
            if at % 3 == 0:
                writer.write(b"\0")
            writer.transport.abort()
        return f"{self._connections} opened and closed"

    async def frames_at_and_past_the_limit(self) -> str:
        async with connect(self._url, client_id="large") as client:
            welcome = client._session.welcome
            assert welcome is not None
            room = welcome.max_frame - 1024
            await client.publish(topic="large", body=bytes(room), reliable=True)
            try:
                await client.publish(topic="large", body=bytes(welcome.max_frame), reliable=True)
            except VeenaError as error:
                refused = type(error).__name__
            else:
                refused = "taken"
        reader, writer = await self._dial()
        writer.write((1 << 30).to_bytes(4, "big") + b"\x01\x10" + bytes(4096))
        closed = await _is_closed(reader)
        writer.transport.abort()
        return f"{room} bytes taken, {welcome.max_frame} refused ({refused}); a frame of 1 GiB: {_end(closed)}"

    async def xml_bombs(self) -> str:
        async with connect(self._url, client_id="bomber") as client:
            await client.subscribe(xpath="/l[. > 1]")
            refused = 0
            for _ in range(50):
                try:
                    await client.publish(xml=BOMB, reliable=True)
                except VeenaError:
                    refused += 1
        return f"{refused} of 50 refused"

    async def constraints_at_the_limit(self) -> str:
        """As long as they may be, and beyond: sent without the checks that the client library makes."""
        long = " OR ".join(f"p{at} LIKE '%x{at}%'" for at in range(499))
        deep = "(" * 5000 + "a = 1" + ")" * 5000
        many = " OR ".join(f"a = {at}" for at in range(1200))
        texts = [*(f"{long} OR n = {at}" for at in range(20)), deep, many]
        reader, writer, decoder = await self._attach("wordy")
        for number, text in enumerate(texts, 1):
            writer.write(encode(AskSubscribe(number, "selector", msgspec.msgpack.encode(("wordy", text))), 0))
        made: set[int] = set()
        refused: set[int] = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(made) + len(refused) < len(texts):
                for _, frame in decoder.feed(await reader.read(1 << 16)):
                    if isinstance(frame, TellActive):
                        made.add(frame.subscription)
                    elif isinstance(frame, TellRefused):
                        refused.add(frame.number)
        async with connect(self._url, client_id="teller") as client:
            await client.publish(topic="wordy", properties={"p1": "x" * 10_000}, reliable=True)
        writer.transport.abort()
        return f"{len(made)} as long as may be taken, {len(refused)} longer or deeper refused"


Attack = Callable[[Hostile], Awaitable[str]]
ATTACKS: tuple[Any, ...] = (
    Hostile.random_bytes,
    Hostile.half_open,
    Hostile.slow_loris,
    Hostile.never_reads,
    Hostile.connections_opened_and_closed,
    Hostile.frames_at_and_past_the_limit,
    Hostile.xml_bombs,
    Hostile.constraints_at_the_limit,
)


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the broker ends a connection, with or without a word."""
    try:
        async with asyncio.timeout(5 * IDENTIFY_S):
            while await reader.read(1 << 16):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def _end(closed: bool) -> str:
    return "closed" if closed else "NOT closed"
