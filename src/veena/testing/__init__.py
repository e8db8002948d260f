"""Real brokers for the tests of those who build on Veena: started in no time, killed, restarted and cut at will.

    def test_two_sites() -> None:
        with veena.testing.network({"paris": 2, "rome": 2}) as net:
            with veena.blocking.connect(net.url("paris.1")) as client:
                net.kill("paris.2")
                net.cut("paris", "rome")

    async def test_one_broker() -> None:
        async with veena.testing.broker() as url, veena.connect(url) as client:
            ...

Everything is real: sockets on loopback, the store on disk, the brokers of production. Only their patience is shorter,
so that a test does not wait for what a network of machines would have to. Brokers run in this process, in the loop of
the test or (for `with`) in a thread of their own; with `processes=True` each is a process. Nothing is left behind.

`veena.testing.plugin` has the pytest fixtures `veena_broker` and `veena_network`. This module imports nothing heavy, so
that a test run that does not use it does not pay for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veena.testing.networks import AsyncNetwork, Network, SingleBroker, Starting

__all__ = ["AsyncNetwork", "Network", "SingleBroker", "Starting", "broker", "network"]


def network(
    shape: str | PathLike[str] | Mapping[str, int] | None = None,
    *,
    brokers: int = 3,
    processes: bool = False,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    directory: str | PathLike[str] | None = None,
) -> Starting:
    """A network of real brokers, to be used by `with` (a `Network`) or `async with` (an `AsyncNetwork`).

    `shape` is a network file, or clusters with how many brokers each (`{"paris": 2, "rome": 1}`; `"eu.paris"` lies in
    super-cluster `eu`); without it there is one cluster `a` with so many `brokers`: `a.1`, `a.2`, ... `settings`
    are tables of every broker's configuration (`{"limits": {"connections": 10}}`). Configurations, logs and stores are
    kept in `directory`, if one is named.
    """
    from veena.testing.networks import Starting

    return Starting(shape, brokers, processes, settings or {}, directory)


def broker(
    *,
    process: bool = False,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    directory: str | PathLike[str] | None = None,
) -> SingleBroker:
    """One broker, to be used by `with` or `async with`, which give its URL."""
    from veena.testing.networks import SingleBroker

    return SingleBroker(network(brokers=1, processes=process, settings=settings, directory=directory))


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("veena.testing.networks"), name)
    raise AttributeError(f"module 'veena.testing' has no attribute {name!r}")
