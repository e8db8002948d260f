"""Asking a broker where to connect, or how it is doing: one question, one answer, one connection (IOP-06).

Used by clients, by the command line, and by locators who ask the brokers that they know. An answer is believed only as
far as it can be: every URL in it must be one, and whoever asked inside TLS is not sent outside of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from veena.core.wire.client import Farewell, code_of
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import MAX_REASON, Goodbye
from veena.core.wire.header import MAX_CONTROL_FRAME
from veena.core.wire.locator import AskLocate, Located, TellLocated
from veena.errors import AccessDenied, ConfigError, NotConnected, RefusalCode, Refused, RemoteProtocolError, VeenaError
from veena.runtime.transports.registry import NO_SECRETS, Secrets, connect
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.url import Url, parse_url

#: How long a broker may take to answer: it knows the answer already.
ANSWER_S = 3.0
#: `veena+locator://host:port` is a locator that is reached by `veena://host:port`, and so for every transport.
LOCATOR = "+locator"


def locator_url(text: str) -> str | None:
    """The URL by which a locator is reached; None for the URL of an ordinary broker."""
    scheme, colon, rest = text.partition("://")
    if not colon or not scheme.endswith(LOCATOR):
        return None
    return f"{scheme.removesuffix(LOCATOR)}://{rest}"


#: Raises VeenaError where nothing must be said to whoever has answered at a URL.
Judge = Callable[[str, Stream], None]


def anybody(url: str, stream: Stream) -> None:
    """Whoever answers may be asked."""


async def ask(
    url: str,
    question: AskLocate,
    secrets: Secrets = NO_SECRETS,
    patience_s: float = ANSWER_S,
    judge: Judge = anybody,
) -> tuple[Located, ...]:
    """What that broker answers, with only the URLs that may be used.

    Raises NotConnected when it does not answer, AccessDenied or Refused when it does not want to, and
    RemoteProtocolError for an answer that nobody may follow.
    """
    place = parse_url(url)
    asking = _Asking(url)
    try:
        async with asyncio.timeout(patience_s):
            stream = await connect(place, asking.accept, secrets)
            judge(url, stream)
            stream.write((encode(question, 0),))
            answer = await asking.answer
    except TimeoutError:
        raise NotConnected(f"{url} did not answer within {patience_s:g} seconds") from None
    except OSError as error:
        raise NotConnected(f"{url}: {error.strerror or error}") from None
    finally:
        asking.leave()
    return _usable(url, place, answer)


def _usable(url: str, place: Url, answer: TellLocated) -> tuple[Located, ...]:
    found: list[Located] = []
    for broker in answer.brokers:
        good: list[str] = []
        for text in broker.urls:
            try:
                told = parse_url(text)
            except ConfigError as error:
                raise RemoteProtocolError(f"{url} names {broker.name!r} with a wrong URL: {error}") from None
            if told.is_secure or not place.is_secure:
                good.append(text)
        if good:
            found.append(_with_urls(broker, tuple(good)))
    if not found:
        raise RemoteProtocolError(
            f"{url} was asked inside TLS and names brokers outside of it only: let them listen on veenas:// or wss://"
        )
    return tuple(found)


def _with_urls(broker: Located, urls: tuple[str, ...]) -> Located:
    return Located(urls, broker.name, broker.address, broker.load, broker.clients, broker.room)


class _Asking:
    """The asker's side of the connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stream: Stream | None = None
        self._decoder = Decoder(max_frame=MAX_CONTROL_FRAME)
        self.answer: asyncio.Future[TellLocated] = asyncio.get_running_loop().create_future()

    def accept(self, stream: Stream) -> _Asking:
        self._stream = stream
        return self

    def received(self, data: Bytes) -> None:
        if self.answer.done():
            return
        try:
            for _, frame in self._decoder.feed(bytes(data)):
                if isinstance(frame, TellLocated):
                    self.answer.set_result(frame)
                elif isinstance(frame, Farewell) and frame.why is RefusalCode.DENIED:
                    self._fail(AccessDenied(frame.reason))
                elif isinstance(frame, Farewell | Goodbye):
                    self._fail(Refused(f"{self._url}: {frame.reason}", code=code_of(frame)))
                else:
                    raise RemoteProtocolError(f"{type(frame).__name__} instead of an answer to where to connect")
                return
        except VeenaError as error:
            self._fail(RemoteProtocolError(f"{self._url}: {error}"[:MAX_REASON]))

    def closed(self, reason: str) -> None:
        if not self.answer.done():
            self._fail(NotConnected(f"{self._url}: closed without an answer ({reason})"))

    def _fail(self, error: VeenaError) -> None:
        self.answer.set_exception(error)
        self.answer.exception()  # who waited may have gone

    def clogged(self) -> None:
        """A question is short."""

    def cleared(self) -> None:
        """As above."""

    def leave(self) -> None:
        if self._stream is not None:
            self._stream.abort("answered")
        self.answer.cancel()
