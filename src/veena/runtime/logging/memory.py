"""How much memory this process has now, where the system says it."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path


def memory_bytes() -> int:
    """What is resident; where only the highest value so far is told, that one."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
