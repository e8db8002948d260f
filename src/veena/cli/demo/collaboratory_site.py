"""The two domains of `veena demo collaboratory`: brokers as processes, users with roles, services, and a simulation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veena.client import Client, connect
from veena.collab import Application, application
from veena.runtime.access.users import digest_of, new_token
from veena.runtime.fleet.fleet import Fleet
from veena.runtime.networks.file import make_network
from veena.runtime.transports.secret_files import write_secret
from veena.services.application.heat import PARAMETERS, HeatPlate
from veena.services.domain.categories import AccessControl
from veena.services.domain.services import DomainServices

#: Two brokers a domain, and two links between the domains, so that no broker's death parts them.
BROKERS = ("L.a.1", "L.a.2", "R.a.1", "R.a.2")
LINKS = (("L.a.1", "L.a.2"), ("R.a.1", "R.a.2"), ("L.a.1", "R.a.1"), ("L.a.2", "R.a.2"))
#: The users of each domain by name, with their categories. Only bob is known in both.
USERS: Mapping[str, Mapping[str, str]] = {
    "L": {"jim": "junior", "alice": "senior", "bob": "senior", "services-l": "service"},
    "R": {
        "bob": "senior", "guest-1": "junior", "guest-2": "junior", "guest-3": "junior", "heat": "application",
        "services-r": "service",
    },
}  # fmt: skip
#: Steps of the plate in one of the program, and a pause after it: others want the processor too.
STEPS = 5
STEP_S = 0.01
PERIOD_S = 0.1
POLL_S = 0.02

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Counters:
    """What the brokers of a domain have counted."""

    #: Copies of events that came into the domain, less those that left it.
    copies_in: int
    #: Bytes that came over the links to other domains.
    bytes_in: int
    #: Events that were handed to clients' sessions.
    handed: int

    def since(self, before: Counters) -> Counters:
        return Counters(self.copies_in - before.copies_in, self.bytes_in - before.bytes_in, self.handed - before.handed)


class Site:
    """Both domains, up and running; `async with Site(directory, say) as site`."""

    def __init__(self, directory: Path, say: Say) -> None:
        self._directory = directory
        self._say = say
        self._stack = AsyncExitStack()
        self._tokens = {name: new_token() for users in USERS.values() for name in users}
        self.services: dict[str, DomainServices] = {}
        network = make_network("collaboratory", BROKERS, LINKS, levels=3)
        self.fleet = Fleet(network, directory, settings=self._settings, open_links=True)

    async def __aenter__(self) -> Site:
        self._directory.mkdir(parents=True, exist_ok=True)
        for domain, users in USERS.items():
            write_secret(self._directory / f"users-{domain}.toml", self._users(users))
        self._stack.push_async_callback(self.fleet.stop)
        try:
            self._say("starting four brokers in two domains")
            await self.fleet.start()
            self._say("starting the services of both domains")
            for domain, broker, other in (("L", "L.a.2", "R"), ("R", "R.a.2", "L")):
                client = await self.attach(f"services-{domain.lower()}", broker)
                services = DomainServices(client, domain, links=(other,))
                self.services[domain] = await self._stack.enter_async_context(services)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # --- who is who ---

    def url(self, broker: str) -> str:
        return next(member.url for member in self.fleet.members if member.label == broker)

    def client(self, user: str, broker: str) -> Client:
        """A client that is not open yet."""
        return connect(self.url(broker), client_id=user, user=user, token=self._tokens[user])

    async def attach(self, user: str, broker: str) -> Client:
        """A client that stays until the end, or until somebody closes it."""
        return await self._stack.enter_async_context(self.client(user, broker))

    def token(self, user: str) -> str:
        return self._tokens[user]

    def _users(self, users: Mapping[str, str]) -> str:
        tables = [
            f'[user.{name}]\ntokens = ["{digest_of(self._tokens[name])}"]\nroles = ["{category}"]\n'
            for name, category in users.items()
        ]
        return "\n".join([*tables, AccessControl().roles_toml()])

    def _settings(self, label: str) -> str:
        return f'[auth]\nusers_file = "../users-{label[0]}.toml"\n'

    # --- what the brokers counted ---

    async def counters(self, domain: str) -> Counters:
        """The sum over a domain's brokers, as each of them says of itself."""
        found = [await self._status(member.url) for member in self.fleet.members if member.label[0] == domain]
        copies = sum(
            status["broker"]["router"]["copies_in"] - status["broker"]["router"]["copies_out"] for status in found
        )
        return Counters(
            copies, sum(map(_bytes_across, found)), sum(int(status["clients"]["delivered"]) for status in found)
        )

    async def _status(self, url: str) -> dict[str, Any]:
        domain = next(member.label[0] for member in self.fleet.members if member.url == url)
        user = f"services-{domain.lower()}"
        async with connect(url, client_id=f"{user}/counters", user=user, token=self._tokens[user]) as client:
            return await client.status()


def _bytes_across(status: dict[str, Any]) -> int:
    """Bytes that a broker got over links to other domains."""
    own = status["broker"]["address"][0]
    across = {link["link"] for link in status["broker"]["links"] if link["neighbour"] and link["neighbour"][0] != own}
    return sum(int(each["bytes_in"]) for each in status["transports"] if each["link"] in across)


class Simulation(threading.Thread):
    """The heated plate in domain R, as a program of its own; it can be held, so that counters can be read."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        super().__init__(name="heat", daemon=True)
        self.app: Application = application(
            "heat", urls, user="heat", token=token, client_id="heat", parameters=PARAMETERS, period=PERIOD_S,
            state_period=3600.0, properties={"kind": "simulation", "cells": 64 * 64},
        )  # fmt: skip
        self.plate = HeatPlate()
        self._goes = threading.Event()
        self._holds = threading.Event()
        self._goes.set()
        self.is_ready = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self.app as app:
                self.is_ready.set()
                while app.running:
                    values = app.values
                    for _ in range(STEPS):
                        self.plate.step(**values)
                    app.publish_statistics(step=self.plate.steps, **self.plate.statistics())
                    app.publish_field(self.plate.field, step=self.plate.steps)
                    time.sleep(STEP_S)
                    while not self._goes.is_set():
                        self._holds.set()
                        self._goes.wait(POLL_S)
                    self._holds.clear()
        except BaseException as error:
            self.error = error
        finally:
            self.is_ready.set()

    async def hold(self) -> None:
        """Until it publishes nothing more."""
        self._goes.clear()
        await asyncio.to_thread(self._holds.wait)
        sent = -1
        while sent != self.app.statistics().published:
            sent = self.app.statistics().published
            await asyncio.sleep(3 * PERIOD_S)

    def go(self) -> None:
        self._goes.set()

    async def end(self) -> None:
        self.app.stop()
        self.go()
        await asyncio.to_thread(self.join)
        if self.error is not None:
            raise self.error
