"""Put a running program on the mesh: it registers itself, shows its state and obeys who steers it (COL-01, COL-02).

    with veena.collab.application("heat", url, parameters={"diffusivity": Parameter(0.1, low=0, high=0.25)}) as app:
        while app.running:                            # obeys: waits while paused, False when stopped
            temperature = step(temperature, app["diffusivity"])
            app.publish_statistics(mean=temperature.mean())
            app.publish_field(temperature)

A thread of its own talks to the broker. The computation never waits for the network: what it publishes is lined up, the
newest of it if need be, and what others ask for is carried out between two steps, where `running` is asked. A broker
that dies costs nothing but what was best effort meanwhile: the program goes on, and is back as soon as a broker is.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from veena.blocking import LoopThread
from veena.client.client import CONNECT_S, DEFAULT_URL, Client, connect
from veena.errors import AccessDenied, LocalProtocolError, NotConnected, VeenaError
from veena.services.application import application as services
from veena.services.application.application import (
    GOODBYE_S,
    LOCK_TIMEOUT_S,
    PERIOD_S,
    STATE_PERIOD_S,
    ApplicationStatistics,
)
from veena.services.application.desk import Answer
from veena.services.application.parameters import Parameter, ParameterView
from veena.services.dictionary.dictionary import Dictionary
from veena.services.member.member import Member
from veena.services.structured import Scalar

__all__ = ["Answer", "Application", "Member", "Parameter", "ParameterView", "application"]

#: Between two attempts of a program that began without a broker.
RETRY_S = 1.0
logger = logging.getLogger("veena.services")


def application(
    name: str,
    url: str | Sequence[str] = DEFAULT_URL,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    category: str = "",
    properties: Mapping[str, Scalar] | None = None,
    dictionary: Dictionary | None = None,
    period: float = PERIOD_S,
    state_period: float = STATE_PERIOD_S,
    lock_timeout: float = LOCK_TIMEOUT_S,
    client_id: str | None = None,
    user: str = "",
    password: str = "",
    token: str = "",
    tls: ssl.SSLContext | None = None,
    timeout: float = CONNECT_S,
    required: bool = True,
) -> Application:
    """A program on the mesh, to be used as `with veena.collab.application(...) as app`.

    `category` is the lowest category of clients that it is for; nothing is for everybody. Statistics and fields go out
    at most once in `period` seconds, the state at every change and every `state_period`. Who steers and says nothing
    for `lock_timeout` seconds steers no longer. With `required=False` the program begins also when no broker answers
    within `timeout`, and appears on the mesh when one does.
    """
    own = client_id or f"{user or name}/{uuid.uuid4().hex[:12]}"
    client = connect(url, client_id=own, user=user, password=password, token=token, tls=tls, timeout=timeout)
    inner = services.Application(
        client, name, parameters=parameters, category=category, properties=properties, dictionary=dictionary,
        period=period, state_period=state_period, lock_timeout=lock_timeout,
    )  # fmt: skip
    return Application(inner, client, required)


class Application:
    """The program's side; made by `application`. Its methods are called by the thread that computes."""

    def __init__(self, inner: services.Application, client: Client, required: bool) -> None:
        self._inner = inner
        self._client = client
        self._required = required
        self._loop: LoopThread | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._news = threading.Event()
        inner.desk.on_news = self._news.set

    # --- coming and going ---

    def __enter__(self) -> Application:
        if self._loop is not None:
            raise LocalProtocolError("this application runs already: make another one by veena.collab.application(...)")
        loop = self._loop = LoopThread()  # before others can find it: it is one program from here on
        try:
            loop.wait(self._open())
        except BaseException:
            self._loop = None
            loop.wait(self._client.close())
            loop.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.wait(self._close())
            finally:
                loop.stop()

    async def _open(self) -> None:
        try:
            await self._client.open()
        except NotConnected as error:
            if self._required:
                raise
            logger.warning("application %s begins without a broker: %s", self._inner.name, error)
            self._opening = asyncio.get_running_loop().create_task(self._open_later())
        else:
            await self._inner.open()
            self._is_open = True

    async def _open_later(self) -> None:
        while not self._is_open:
            await asyncio.sleep(RETRY_S)
            try:
                await self._client.open()
                await self._inner.open()
                self._is_open = True
            except NotConnected:
                continue
            except VeenaError as error:
                logger.warning("application %s is not on the mesh: %s", self._inner.name, error)
                if isinstance(error, AccessDenied):
                    return

    async def _close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._is_open:
            await self._inner.close()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._client.close()
        except TimeoutError:
            logger.info("application %s: the broker did not take the goodbye", self._inner.name)

    # --- the computation ---

    @property
    def running(self) -> bool:
        """Asked between two steps: carries out what others asked for, waits while paused; False when to end."""
        desk = self._inner.desk
        while True:
            self._news.clear()
            self._inner.boundary()
            if not desk.is_paused or desk.is_stopped:
                return not desk.is_stopped
            self._news.wait()

    def __getitem__(self, name: str) -> Any:
        """A parameter's value now; it changes between two steps only."""
        return self._inner[name]

    @property
    def values(self) -> dict[str, Any]:
        """All parameters, such as for `step(**app.values)`."""
        return self._inner.desk.values

    @property
    def steps(self) -> int:
        """How often `running` was asked."""
        return self._inner.steps

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def publish_statistics(self, *, step: int | None = None, **numbers: object) -> None:
        """Numbers of this step, as properties that constraints can ask for; the newest, at most every `period`."""
        self._inner.publish_statistics(step=step, **numbers)

    def publish_field(self, field: Any, *, step: int | None = None, name: str = "", **numbers: object) -> bool:
        """An array as binary, at most every `period`; whether it was taken. `name` tells fields of a program apart."""
        return self._inner.publish_field(field, step=step, name=name, **numbers)

    def show(self, name: str, value: Scalar) -> None:
        """Set a parameter oneself, such as a read-only one that shows what was found."""
        self._inner.show(name, value)

    def stop(self) -> None:
        """Let `running` be False from now on."""
        self._inner.settle_later(self._inner.desk.end())
        self._news.set()

    def statistics(self) -> ApplicationStatistics:
        return self._inner.statistics()
