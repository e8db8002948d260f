"""The folder that a demo fills: one demo at a time has it, and begins anew what an earlier one left, and nothing else.

A lock file in it holds the process id of the demo that has the folder. The lock goes with the process, however that
ends, and the file stays as the sign that a demo was here. Brokers of a demo that was killed end by themselves, because
the demo was their standard input: they are waited for.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from veena.errors import ConfigError, StoreError
from veena.runtime.store.file import locked

NAME = "demo"
#: How long brokers of a demo that was killed may take to end.
ENDING_S = 30.0
POLL_S = 0.05


@contextmanager
def demo_folder(out: Path, folders: Sequence[str], files: Sequence[str], signs: Sequence[str]) -> Iterator[None]:
    """Have the folder while inside. `folders` and `files` of an earlier demo are removed; one that left no lock file,
    because it is of an earlier version, is known by all of `signs`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be made ({error.strerror})", "name another folder") from None
    was_demo = (out / f"{NAME}.lock").exists() or all((out / each).exists() for each in signs)
    there = [out / each for each in folders if (out / each).exists()]
    if there and not was_demo:
        what = "has something that no demo left there, which would be mixed with the demo's own"
        raise ConfigError("--out", str(there[0]), what, "name another folder")
    try:
        lock = locked(out / NAME)
    except StoreError as error:
        raise ConfigError(
            "--out", str(out), f"is {error.reason}, a demo", "wait for it, or name another folder"
        ) from None
    try:
        if there and not (out / files[0]).exists():
            typer.echo(f"a demo that was killed left {', '.join(map(str, there))}: begun anew", err=True)
        for each in there:
            _wait_for_brokers(each)
            shutil.rmtree(each)
        for name in files:
            (out / name).unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def _wait_for_brokers(folder: Path) -> None:
    """Until no broker has a store below this folder."""
    until = time.monotonic() + ENDING_S
    for lock in sorted(folder.glob("*/store/*.lock")):
        store = lock.with_suffix("")
        while True:
            try:
                os.close(locked(store))
                break
            except StoreError as error:
                if time.monotonic() > until:
                    raise ConfigError(
                        "--out", str(store), f"is {error.reason}", "end that, or name another folder"
                    ) from None
                time.sleep(POLL_S)
