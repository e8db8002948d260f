"""A broker as a process: signals, exit codes, and the end when whoever started it is gone.

| signal | what it does |
|---|---|
| SIGTERM, SIGINT | drain: clients are sent to another broker, the store is flushed, exit code 0; a second: at once |
| SIGHUP | read the configuration again and take over what may change |
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from veena.address import format_address
from veena.core.boundary.inputs_effects import Restart
from veena.errors import ConfigError
from veena.runtime.broker.node import Node
from veena.runtime.config.schema import Config
from veena.runtime.logging.logs import Log, configure
from veena.runtime.supervision import once

#: Stopped as it was told.
EXIT_STOPPED = 0
#: The configuration cannot be used, or a port is taken.
EXIT_CONFIG = 2
#: The store cannot be used.
EXIT_STORE = 3
#: The broker has broken its own rules; everything accepted is on disk (EX_SOFTWARE).
EXIT_FAILURE = 70
#: The broker was given another address: start it again under that (EX_TEMPFAIL).
EXIT_NEW_ADDRESS = 75

#: New objects after which young garbage is looked for, and how long the disk's thread may keep others waiting.
COLLECT_AFTER = 20_000
SWITCH_S = 0.0005
#: Blocks from here on get pages of their own, which go back when they do: tables that grow leave no holes behind. The
#: C library would raise its threshold after the first one that it frees. Buffers of events are smaller.
LARGE_BYTES = 1 << 20
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
#: How often memory is given back.
GIVE_BACK_S = 20.0
#: More connections than one process serves.
MAX_FILES = 1 << 18

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on uvloop where it is installed."""
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def serve(
    config: Config,
    reload: Callable[[], Config],
    on_listening: Callable[[Node], None],
    on_ready: Callable[[Node], None],
    until_stdin_closes: bool = False,
) -> int:
    """Run one broker until it is told to stop; its exit code. Raises ConfigError and StoreError before it has begun."""
    loop = asyncio.get_running_loop()
    log = Log()
    _allow_many_files()
    node = Node(config, log)
    loop.set_exception_handler(lambda _, context: node.supervisor.unexpected(context))
    threading.excepthook = node.supervisor.unexpected_in_thread
    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            os._exit(EXIT_STOPPED)  # asked twice: whoever asks does not want to wait
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    await node.start()
    settle_down()
    loop.add_signal_handler(signal.SIGHUP, _reload, node, reload, log)
    if until_stdin_closes:
        _watch_stdin(loop, stop)
    tidying = node.supervisor.task("giving memory back", lambda: _give_back(node))
    on_listening(node)
    waiting = [
        once("telling that the broker is ready", _when_ready(node, on_ready)),
        loop.create_task(_wait(stop)),
        loop.create_task(_wait(node.ended)),
    ]
    await asyncio.wait(waiting[1:], return_when=asyncio.FIRST_COMPLETED)
    for task in (*waiting, tidying):
        task.cancel()
    await asyncio.gather(*waiting, tidying, return_exceptions=True)
    await node.stop()
    return _exit_code(node, log)


def settle_down() -> None:
    """What is there now stays; garbage in cycles is rare, and looking for it holds up events."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_S)
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if adjust is not None:
        adjust(_MMAP_THRESHOLD, LARGE_BYTES)


async def _give_back(node: Node) -> None:
    """After clients have come and gone, give the system the memory back that the C library keeps for the next ones."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    before = 0
    while trim is not None:
        await asyncio.sleep(GIVE_BACK_S)
        clients = node.clients.statistics()
        gone = clients.attached + clients.refused + clients.at_fault - clients.clients
        if gone != before:
            before = gone
            trim(0)


def _allow_many_files() -> None:
    """A connection is an open file: use all that the system allows, not the cautious default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _when_ready(node: Node, then: Callable[[Node], None]) -> None:
    await node.wait_ready()
    then(node)


def _reload(node: Node, load: Callable[[], Config], log: Log) -> None:
    try:
        new = load()
        configure(new.tables.log.level, new.tables.log.format)
        node.reload(new)
        fault = ""
    except ConfigError as error:
        fault = str(error)
        log.error("configuration not taken over: it has faults", reason=fault)
    if node.mark is not None:
        node.mark.reloaded(fault)


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Whoever started this holds the other end of a pipe: when it is gone, however it went, this stops too."""
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, readable)


def _exit_code(node: Node, log: Log) -> int:
    if isinstance(node.failure, Restart):
        log.warning(
            "put this address and network into the configuration, and start again",
            address=format_address(node.failure.identity.address),
            network=node.failure.network,
        )
        return EXIT_NEW_ADDRESS
    return EXIT_STOPPED if node.failure is None else EXIT_FAILURE
