"""pytest fixtures: real brokers for a test, gone when it ends.

    def test_it(veena_broker: str) -> None: ...                          # the URL of a broker

    @pytest.mark.veena_network({"paris": 2, "rome": 1})                  # arguments of veena.testing.network
    def test_them(veena_network: veena.testing.Network) -> None: ...     # three brokers without the mark

Tests with and without async use them alike: the brokers run in a thread of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from veena.testing import broker, network

if TYPE_CHECKING:
    from veena.testing import Network

MARKS = (
    "veena_network(shape, *, brokers, ...): what the fixture veena_network starts, as veena.testing.network takes it",
    "veena_broker(*, settings, ...): what the fixture veena_broker starts, as veena.testing.broker takes it",
)


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


@pytest.fixture
def veena_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a broker that was started for this test."""
    mark = request.node.get_closest_marker("veena_broker")
    with broker(**({} if mark is None else mark.kwargs)) as url:
        yield url


@pytest.fixture
def veena_network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """A network of brokers that was started for this test."""
    mark = request.node.get_closest_marker("veena_network")
    with network(*(() if mark is None else mark.args), **({} if mark is None else mark.kwargs)) as running:
        yield running
