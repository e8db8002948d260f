"""The folder in which an experiment leaves its report."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from veena.errors import ConfigError, VeenaError


def prepare(out: Path) -> None:
    """Make the folder, and complain now about what would be missing after minutes of measuring."""
    if find_spec("matplotlib") is None:
        raise VeenaError("figures need matplotlib: pip install 'veena[plot]'")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be made ({error.strerror})", "name another folder") from None
