"""What the tests of the pages look at: brokers with users, a simulation, a portal, and a real Chromium."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect

from tests.runtime.processes import Started
from tools.browser import find_browser
from veena import collab, testing
from veena.runtime.transports.secret_files import write_secret
from veena.services.application.heat import PARAMETERS, HeatPlate
from veena.services.domain.categories import AccessControl

SHAPE = {"west.eu.paris": 2, "west.eu.rome": 1, "west.us.boston": 1, "east.jp.tokyo": 2}
PASSWORDS = {"ann": "ann's secret", "bob": "bob's secret", "joe": "joe's secret", "sim": "sim's", "root": "root's"}
#: Flags for a machine where everything is root's and nothing may be asked of other hosts.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
#: Far more than anything takes, also on a busy machine.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
DESK = (1180, 900)
PHONE = (390, 844)


def write_users(path: Path) -> None:
    """Two seniors, a junior, a simulation, and one who may do everything."""
    hasher = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)  # quick: nobody attacks this
    categories = {"ann": "senior", "bob": "senior", "joe": "junior", "sim": "application"}
    users = {name: (category, hasher.hash(PASSWORDS[name])) for name, category in categories.items()}
    everything = f'\n[user.root]\npassword = "{hasher.hash(PASSWORDS["root"])}"\nroles = ["all"]\n'
    write_secret(path, AccessControl().users_toml(users) + everything + '\n[role.all]\nrules = [{ allow = "*" }]\n')


@dataclass
class Plate:
    """The simulation, in a thread of its own."""

    url: str
    rows: int = 24
    stop: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        plate = HeatPlate(self.rows, self.rows)
        with collab.application(
            "heat", self.url, parameters=PARAMETERS, period=0.2, state_period=0.5, client_id="sim/heat", user="sim",
            password=PASSWORDS["sim"],
        ) as app:  # fmt: skip
            self.ready.set()
            while app.running and not self.stop.wait(0.05):
                plate.step(**app.values)
                app.publish_statistics(step=plate.steps, **plate.statistics())
                app.publish_field(plate.field, step=plate.steps)


@contextmanager
def simulation(url: str, rows: int = 24) -> Iterator[Plate]:
    plate = Plate(url, rows)
    thread = threading.Thread(target=plate.run, daemon=True)
    thread.start()
    assert plate.ready.wait(30), "the simulation did not begin"
    try:
        yield plate
    finally:
        plate.stop.set()
        thread.join(30)


@dataclass
class Site:
    """A running portal and what is behind it."""

    network: testing.Network
    url: str
    browser: Browser
    #: What browsers complained about, and where they asked; looked at when a context is closed.
    faults: list[str] = field(default_factory=list)

    def at(self, url: str) -> Site:
        """The same browser, at another portal."""
        return Site(self.network, url, self.browser)

    @contextmanager
    def visitor(
        self, name: str = "", *, size: tuple[int, int] = DESK, dark: bool = False, path: str = ""
    ) -> Iterator[Page]:
        """A browser of its own, signed in as somebody if a name is given; nothing may go wrong in it."""
        faults: list[str] = []
        context: BrowserContext = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: self._check(request.url, faults))
        page.goto(self.url + path)
        if name:
            sign_in(page, name)
        yield page
        context.close()
        assert not faults, faults

    def _check(self, url: str, faults: list[str]) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            faults.append(f"a request to another host: {url}")


def sign_in(page: Page, name: str, password: str | None = None) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORDS[name] if password is None else password)
    page.get_by_role("button", name="Sign in").click()


@contextmanager
def portal(url: str, errors: Path, *options: str) -> Iterator[str]:
    """`veena dashboard` as a user starts it; where it is."""
    started = Started("dashboard", "--url", url, "--listen", "127.0.0.1:0", *options, errors=errors)
    try:
        yield started.line().split()[-1]
    finally:
        code = started.end(signal.SIGTERM)
    said = errors.read_text()
    assert code == 0 and "Traceback" not in said and "Error" not in said, said
    assert not any(password in said for password in PASSWORDS.values())


@dataclass
class Pause:
    """A process that is there and does nothing, from `begin` to `end`."""

    pid: int

    def begin(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def paused(pid: int) -> Iterator[Pause]:
    pause = Pause(pid)
    try:
        yield pause
    finally:
        pause.end()


@contextmanager
def site(directory: Path, playwright: Playwright, rows: int = 24) -> Iterator[Site]:
    """Everything together."""
    write_users(directory / "users.toml")
    settings: dict[str, dict[str, Any]] = {
        "broker": {"open_links": True},
        "auth": {"users_file": str(directory / "users.toml"), "tell": True},
        "store": {"records": "all"},
        # Brokers, simulation and tests share a process here: nobody is suspected for a second of silence.
        "links": {"heartbeat_s": 1.0},
    }
    executable = find_browser()
    assert executable is not None, "no Chromium is here: run `python tools/browser.py`"
    browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
    try:
        with testing.network(SHAPE, settings=settings) as network:
            first, last = network.brokers[0], network.brokers[-1]
            with simulation(network.url(last), rows), portal(network.url(first), directory / "portal.log") as url:
                yield Site(network, url, browser)
    finally:
        browser.close()
