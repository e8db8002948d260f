"""The brokers of a network as a reader sees them: which there are, how long their logs are, what is committed there.

Everything here runs in the driver. Brokers are found through the URLs that were given, each is known by its permanent
name from then on, and each keeps one connection. A broker that does not answer is asked again until the patience of the
call is over; then the caller decides what its absence means. A stream goes on without it, a batch must not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from veena.errors import AccessDenied, NotConnected, Refused, TimedOut, VeenaError
from veena.runtime.locator.client import locator_url
from veena.spark.source.offsets import LOG, PASSED, Place, Places

if TYPE_CHECKING:
    from veena.spark.log.client import BrokerLog, LogClient
    from veena.spark.source.options import Options

Answer = TypeVar("Answer")

#: Brokers come and go seldom; new ones are looked for this often.
DISCOVER_S: Final = 10.0
#: Between two tries, doubled each time from the first to the second.
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 2.0
#: Brokers that are asked at the same time.
ASKED_AT_ONCE: Final = 16
#: A broker that has not answered a question for so long is away.
ANSWER_S: Final = 10.0
#: What means that a broker is away for now: it may be back.
AWAY: Final = (NotConnected, TimedOut, OSError)

_logger = logging.getLogger("veena.spark")


@dataclass(frozen=True, slots=True)
class Kept:
    """One log: the first row that is still there, and the one that comes next."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The logs of all brokers that answered, and who did not, with the reason."""

    logs: Mapping[Place, Kept]
    away: Mapping[str, str] = field(default_factory=dict)
    #: Brokers that keep no such table, with what they say of it.
    without: Mapping[str, str] = field(default_factory=dict)


class Brokers:
    """Connections to the brokers of one network, for one reader. Not for several threads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[str, BrokerLog] = {}
        self._unanswered: dict[str, str] = {}
        self._looked = float("-inf")
        self._clients: dict[str, LogClient] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close every connection."""
        for name in list(self._clients):
            self._drop(name)

    def known(self, patience_s: float = 0.0) -> Mapping[str, BrokerLog]:
        """The brokers by their permanent names; raises NotConnected when nobody ever answered.

        With patience every URL is asked until it answers: a broker that was named must not be missed for a moment's
        absence.
        """
        if time.monotonic() - self._looked < DISCOVER_S:
            return self._known
        deadline, pause = time.monotonic() + patience_s, PAUSE_S
        faults = self._look(self._options.urls)
        while faults and time.monotonic() + pause < deadline:
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)
            faults = self._look(faults)
        if not self._known:
            told = "; ".join(why if why.startswith(url) else f"{url}: {why}" for url, why in faults.items())
            raise NotConnected(f"no broker answers ({told}): start one, or check option url")
        urls = {each.url for each in self._known.values()}
        self._unanswered = {url: why for url, why in faults.items() if url not in urls and locator_url(url) is None}
        self._looked = time.monotonic()
        return self._known

    def _look(self, urls: Iterable[str]) -> dict[str, str]:
        """Ask each of these who is there; which did not answer, and why."""
        faults: dict[str, str] = {}
        for url in urls:
            try:
                client = self._at(url)
                found = [client.broker] if self._options.named_only else client.brokers()
            except AWAY as error:
                self._drop(url)
                faults[url] = str(error)
            else:
                self._known |= {each.name: each for each in found}
        return faults

    def seen(self, patience_s: float = 0.0, names: Iterable[str] | None = None) -> Seen:
        """How long the logs of all brokers are now; raises Refused when all who answer keep no such table."""
        known = self.known(patience_s)
        named = None if names is None else set(names)
        wanted = [name for name in known if named is None or name in named]
        logs: dict[Place, Kept] = {}
        # One that was named and has never answered is away, whatever it is called.
        away = dict(self._unanswered) if named is None or named - known.keys() else {}
        without: dict[str, str] = {}

        def ask(name: str) -> dict[Place, Kept] | OSError | VeenaError:
            try:
                return patiently(lambda: self._logs(name), patience_s, lambda: self._drop(name))
            except (Refused, *AWAY) as error:
                return error

        with ThreadPoolExecutor(ASKED_AT_ONCE, "veena-ends") as pool:
            for name, answer in zip(wanted, pool.map(ask, wanted), strict=True):
                if isinstance(answer, dict):
                    logs |= answer
                elif isinstance(answer, Refused):
                    without[name] = str(answer)
                else:
                    away[name] = str(answer)
        if without and not logs:
            raise Refused("; ".join(f"{name}: {why}" for name, why in sorted(without.items())[:3]))
        return Seen(logs, away, without)

    def offset_at(self, place: Place, at_ns: int, patience_s: float) -> int:
        """The first row of that log that was written then or later."""
        broker, log = place

        def ask() -> int:
            client = self._to(broker)
            return client.passed_at(at_ns) if log == PASSED else client.offset_at(self._options.table, at_ns)

        return patiently(ask, patience_s, lambda: self._drop(broker))

    def commit(self, reader: str, places: Places) -> dict[str, str]:
        """Tell brokers that everything below these places is done with; who did not take it, and why."""
        away: dict[str, str] = {}
        for (broker, log), offset in sorted(places.items()):
            if log == PASSED and not offset:
                continue
            try:
                self._to(broker).commit(reader, self._options.table, -offset if log == PASSED else offset)
            except AWAY as error:
                self._drop(broker)
                away[broker] = str(error)
            except AccessDenied as error:  # who may read may not always say what is kept
                away[broker] = str(error)
        return away

    def find(self, names: Iterable[str], patience_s: float) -> None:
        """Look for brokers until all of these are known; raises NotConnected for those that are not to be found."""

        def look() -> None:
            missing = sorted(set(names) - self._known.keys())
            if missing:
                self._looked = float("-inf")
                missing = sorted(set(missing) - self.known().keys())
            if missing:
                raise NotConnected(
                    f"brokers {', '.join(missing)} are not to be found through {', '.join(self._options.urls)}: start "
                    "them; if they are gone for good, begin with a new checkpoint"
                )

        patiently(look, patience_s, lambda: None)

    def url(self, name: str) -> str:
        """Where that broker listens."""
        return self._known[name].url

    def _logs(self, name: str) -> dict[Place, Kept]:
        ends = self._to(name).ends(self._options.table)
        logs = {(name, LOG): Kept(ends.first, ends.next)}
        if ends.passed_next:
            logs[name, PASSED] = Kept(ends.passed_first, ends.passed_next)
        return logs

    def _to(self, name: str) -> LogClient:
        with self._lock:
            client = self._clients.get(name)
        if client is None:
            self.find((name,), 0.0)
            client = self._opened(name, self.url(name))
        return client

    def _at(self, url: str) -> LogClient:
        with self._lock:
            client = self._clients.get(url)
        return client or self._opened(url, url)

    def _opened(self, key: str, url: str) -> LogClient:
        from veena.spark.log.client import LogClient

        client = LogClient(url, self._options.access, ANSWER_S)
        with self._lock:
            self._clients[key] = client
        return client

    def _drop(self, key: str) -> None:
        with self._lock:
            client = self._clients.pop(key, None)
        if client is not None:
            client.close()


def patiently(ask: Callable[[], Answer], patience_s: float, again: Callable[[], None]) -> Answer:
    """What `ask` gives, asked again while the other side is away and there is time; `again` clears up before."""
    deadline = time.monotonic() + patience_s
    pause = PAUSE_S
    while True:
        try:
            return ask()
        except AWAY as error:
            again()
            if time.monotonic() + pause > deadline:
                raise
            _logger.info("asking again in %.1f s: %s", pause, error)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_S_MAX)
