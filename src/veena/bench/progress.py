"""Where a long benchmark stands, on standard error: one line that changes on a terminal, elsewhere a line at times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

#: Where it stands is told so often where nobody watches, and whenever something else begins.
LINE_S = 10.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """What to call with where it stands; the first word says what is being done."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("starting") as status:
            yield status.update
        return
    begin = time.monotonic()
    last_told, last_phase = float("-inf"), ""

    def say(text: str) -> None:
        nonlocal last_told, last_phase
        now, phase = time.monotonic(), text.split(" ", 1)[0]
        if now - last_told >= LINE_S or phase != last_phase:
            last_told, last_phase = now, phase
            print(f"{now - begin:6.0f} s  {text}", file=sys.stderr, flush=True)

    yield say
