"""The process that sends: what it shall do comes as JSON on standard input, what it did goes out as JSON.

It is the least important process of its processor, so that honest clients there are measured and not it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

import msgspec

from veena.bench.fuzzing.attackers import ATTACKERS
from veena.bench.fuzzing.loads import load
from veena.bench.fuzzing.pace import Pace

NICE = 10


class Task(msgspec.Struct, frozen=True):
    """What to send, where to, for how long and how fast; without a corpus it is honest."""

    door: str
    places: list[tuple[str, int]]
    seconds: float
    frames_per_second: float
    frame_bytes: float = 0.0
    seed: int = 0
    corpus: str = ""


class Sent(msgspec.Struct, frozen=True):
    """What was sent."""

    frames: int
    bytes: int
    connections: int


async def send(task: Task) -> Sent:
    """Let a process of its own do it, and wait for its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = await process.communicate(msgspec.json.encode(task))
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"the sender for {task.door} ended: {errors.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(out, type=Sent)


def main() -> int:
    os.nice(NICE)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    pace = Pace(task.frames_per_second, task.seconds)
    if task.corpus:
        attacker = ATTACKERS[task.door](*task.places[0], Random(task.seed), pace)
        attacker.run(Path(task.corpus))
    else:
        load(task.door, task.places, pace, task.frame_bytes)
    sys.stdout.buffer.write(msgspec.json.encode(Sent(pace.frames, pace.bytes, pace.connections)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
