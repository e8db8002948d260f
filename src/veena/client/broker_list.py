"""The brokers that a client knows, and the order in which it tries them (CLI-04, IOP-06).

What was said last counts most: a broker that sends the client elsewhere, then a locator, then the broker where the
client was (what is kept for it is there), then the URLs that the application gave, then those that were heard of
before. A locator is asked whenever the client has to look for a broker. If it is silent, or answers what cannot be
right, the client goes on with what it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from veena.core.wire.client import MAX_URLS
from veena.core.wire.control import MAX_URL
from veena.core.wire.locator import AskLocate, Located
from veena.errors import ConfigError, NotConnected, VeenaError
from veena.runtime.locator.client import ask, locator_url
from veena.runtime.pki.recipients import Recipients
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.stream import Stream
from veena.runtime.transports.url import parse_url

if TYPE_CHECKING:
    from veena.client.session import Greeting

#: Brokers that were heard of and not named by the application: as many as two answers hold.
MAX_LEARNED = 2 * MAX_URLS
_LONGEST_US = (1 << 32) - 1


class Places:
    """Where one client may attach."""

    def __init__(self, urls: Sequence[str], greeting: Greeting, secrets: Secrets) -> None:
        self.urls = tuple(urls)
        self._greeting = greeting
        self._secrets = secrets
        #: Where it was attached last.
        self._last = ""
        #: The newest first.
        self._learned: tuple[str, ...] = ()
        self._round_trips: dict[str, int] = {}
        self._recipients = Recipients()

    def judge(self, url: str, stream: Stream) -> None:
        """Raise NotConnected where credentials must not be sent to whoever has answered there."""
        is_given = any(url in (each, locator_url(each)) for each in self.urls)
        self._recipients.check(url, stream.certificate, is_given)

    def replace(self, urls: Sequence[str]) -> None:
        """From now on these, and nothing that was heard before."""
        self.urls, self._last, self._learned = tuple(urls), "", ()
        self._recipients = Recipients()

    def attached(self, url: str) -> None:
        self._last = url
        self._learn((url,))

    def measured(self, url: str, seconds: float) -> None:
        """How far away a broker is."""
        self._round_trips.pop(url, None)
        self._round_trips[url] = min(_LONGEST_US, round(seconds * 1e6))
        if len(self._round_trips) > MAX_URLS:
            del self._round_trips[next(iter(self._round_trips))]

    async def round(self, told: Sequence[str], faults: dict[str, str]) -> list[str]:
        """The brokers to try now, in order; `told` is where the client was sent. Faults of locators are noted."""
        found = dict.fromkeys(url for url in told if self._may_follow(url, faults))
        plain = [url for url in self.urls if locator_url(url) is None]
        if not found and len(plain) < len(self.urls):
            found = dict.fromkeys(await self._located(faults, is_last_hope=not plain and not self._learned))
        last = [self._last] if self._last else []
        return list(dict.fromkeys((*found, *last, *plain, *self._learned)))

    def _may_follow(self, url: str, faults: dict[str, str]) -> bool:
        """Whether the client may go where it was sent: to a broker's URL, and not from inside TLS to outside."""
        if url in self.urls:
            return locator_url(url) is None
        try:
            told = parse_url(url)
        except ConfigError as error:
            faults[url] = f"sent to a wrong URL: {error}"
            return False
        if not told.is_secure and all(parse_url(locator_url(each) or each).is_secure for each in self.urls):
            faults[url] = f"sent to {url}, which is not inside TLS: not followed"
            return False
        return True

    async def _located(self, faults: dict[str, str], is_last_hope: bool) -> list[str]:
        """What the first locator says that answers; raise its refusal when there is nobody else to turn to."""
        refusal: VeenaError | None = None
        for url in self.urls:
            place = locator_url(url)
            if place is None:
                continue
            try:
                found = await ask(place, self._question(), self._secrets, judge=self.judge)
            except NotConnected as error:
                faults[url] = str(error)
            except VeenaError as error:
                faults[url], refusal = str(error), error
            else:
                faults.pop(url, None)
                urls = _urls(found)
                self._learn(urls)
                return urls
        if refusal is not None and is_last_hope:
            raise refusal
        return []

    def _question(self) -> AskLocate:
        greeting = self._greeting
        return AskLocate(
            greeting.client_id,
            greeting.user,
            greeting.password,
            greeting.token,
            False,
            self._last if len(self._last) <= MAX_URL else "",
            tuple((url, time) for url, time in self._round_trips.items() if len(url) <= MAX_URL),
        )

    def _learn(self, urls: Iterable[str]) -> None:
        self._learned = tuple(dict.fromkeys((*urls, *self._learned)))[:MAX_LEARNED]


def _urls(brokers: Sequence[Located]) -> list[str]:
    """One URL of each broker first, then the others: a broker that is down is down on all of them."""
    return [broker.urls[0] for broker in brokers] + [url for broker in brokers for url in broker.urls[1:]]
