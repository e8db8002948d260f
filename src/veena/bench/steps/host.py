"""The broker that is measured, a process of its own: it runs as `veena broker run` does, and says how long its steps
took when a line on standard input asks.

Each line is answered by the longest step since the last `forget`, as JSON. `forget` forgets it, `tell` only asks,
`reload` reads the configuration again first, `drain` sends all clients elsewhere first.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from veena.runtime.broker.node import Node
from veena.runtime.broker.process import run, settle_down
from veena.runtime.config.reader import load_config
from veena.runtime.logging.logs import configure


async def serve(path: Path) -> None:
    """Be a broker until standard input ends."""
    node = Node(load_config(path))
    await node.start()
    settle_down()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps({"url": node.urls[0], "http": node.http_url}), flush=True)
    while line := (await lines.readline()).decode().strip():
        if line == "forget":
            node.steps.forget()
        elif line == "reload":
            node.reload(load_config(path))
        elif line == "drain":
            node.clients.drain(node.urls)
        print(json.dumps(asdict(node.steps.statistics())), flush=True)
    await node.stop(0.0)


if __name__ == "__main__":
    configure("warning", "plain")
    run(serve(Path(sys.argv[1])))
