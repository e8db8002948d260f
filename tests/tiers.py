"""Which parameters of a test run every time (`make test`), and which only in `make slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """All values as parameters of a test: the first `quick` of them run every time, the others in `make slow`.

    Put first what finds most in the least time: every property needs one parameter that is always tested.
    """
    parameters = list(values)
    return [*parameters[:quick], *(slow(value) for value in parameters[quick:])]


def slow(value: Any) -> Any:
    """One parameter, or a tuple of one for each name, that runs in `make slow` alone."""
    given = value if isinstance(value, tuple) else (value,)
    return pytest.param(*given, marks=pytest.mark.slow)
