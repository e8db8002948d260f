"""The ends of a broker's links: frames to bytes and back, dialling and back-off.

The core names links by numbers and decides everything; here a number gets a stream. A link of one's own is dialled for
as long as the broker runs: again after a pause that doubles up to a bound and is drawn at random around its value, so
that a hundred brokers whose common neighbour comes back do not all call in the same moment.

**Writing.** What follows from the inputs of one turn of the event loop is one write for each link: a client's read that
brings a hundred events is a hundred inputs and one write.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from veena.address import format_address
from veena.core.boundary.inputs_effects import (
    Arrived,
    Close,
    Dial,
    Input,
    LinkDown,
    LinkLoad,
    LinkRoom,
    LinkUp,
    Send,
    StatementRefused,
)
from veena.core.wire import codec as wire
from veena.core.wire.control import MAX_REASON, Goodbye, Hello
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import LocalProtocolError, RefusalCode, RemoteProtocolError, VeenaError
from veena.runtime.links.end import EndStatistics, LinkEnd, OwnLink
from veena.runtime.links.flapping import DEFAULT_PER_S, GOOD_LIFE_S, ShortLinks
from veena.runtime.links.trust import NotTrusted, Trust
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import Log
from veena.runtime.steps import Steps
from veena.runtime.supervision import Supervisor, once, tell_loop
from veena.runtime.transports.certificate import NONE_REVOKED
from veena.runtime.transports.registry import Secrets, connect
from veena.runtime.transports.senders import Sender, place_of
from veena.runtime.transports.stream import CLOSED, Bytes, Listener, Stream
from veena.runtime.transports.url import Url, is_loopback, parse_url

#: How often load is measured.
MEASURE_S = 1.0
#: Dials at once that the core has asked for; the core asks again.
MAX_DIALS = 16
#: A peer whose links come and go is refused after so long; with so many that wait for it, at once.
HOLD_S = 1.0
MAX_HELD = 256
#: No link has this number.
NO_LINK = 0
#: What a dial may end with; a name that no host can have is a UnicodeError.
NOT_REACHED = (OSError, VeenaError, UnicodeError)
#: What is logged where a peer inside TLS hangs up before its Hello: it has no other way to refuse a certificate.
REFUSED_IN_TLS = (
    f"{CLOSED} without a word: does it refuse this broker's certificate (revoked, expired)? its log says so"
)


@dataclass(frozen=True, slots=True)
class Retry:
    """The pause before a link of one's own is dialled again; after one that lived `GOOD_LIFE_S` the shortest again."""

    first_s: float = 0.2
    longest_s: float = 15.0
    #: And how many short links a second others may make.
    short_per_s: float = DEFAULT_PER_S


class Links:
    """All links of one broker."""

    def __init__(
        self,
        give: Callable[[Input], None],
        codec: EventCodec,
        secrets: Secrets,
        retry: Retry,
        log: Log,
        supervisor: Supervisor,
        steps: Steps,
    ) -> None:
        self._give = give
        self.codec = codec
        self._secrets = secrets
        self._retry = retry
        self._short_links = ShortLinks(retry.short_per_s)
        #: Connections that wait for their refusal.
        self._held: dict[Stream, asyncio.TimerHandle] = {}
        self._log = log
        self._supervisor = supervisor
        self.steps = steps
        self._last = 0
        self._ends: dict[int, LinkEnd] = {}
        #: Ends with something to write when this turn of the loop is over.
        self._dirty: list[LinkEnd] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: The neighbours that this broker dials, and who does it.
        self._kept: dict[tuple[Url, ...], asyncio.Task[None]] = {}
        self._dials = 0
        #: May change while a broker runs.
        self.trust = Trust()
        #: The certificates that are good no more.
        self.revoked = NONE_REVOKED
        #: Where links taken and refused are written down, if anywhere.
        self.audit: AuditLog | None = None
        #: Why a sender is refused for now, if so.
        self.why_refused: Callable[[str], str | None] = lambda sender: None
        #: The end whose `LinkDown` the core is given now.
        self._leaving: LinkEnd | None = None
        #: Why nobody becomes a link now; empty when all is well.
        self._closed = ""
        self._is_stopping = False
        self._measuring: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._measuring = asyncio.get_running_loop().call_later(MEASURE_S, self._measure)

    # --- connections ---

    def accept(self, stream: Stream, data: bytes) -> Listener:
        """Another broker has connected and said this much."""
        why_not = self._short_links.why_not(source_of(stream), time.monotonic())
        if why_not is not None:
            return self._refuse_later(stream, why_not)
        end = self._meet(stream, own=None, dialled=False)
        end.is_accepted = True
        if end.number != NO_LINK:
            end.received(data)
        return end

    def _meet(self, stream: Stream, own: OwnLink | None, dialled: bool) -> LinkEnd:
        """One link more, if its peer may be a neighbour; whoever has made it, the same is asked."""
        if self._closed:
            return self._turn_away(stream)
        why_not = self.revoked.why_not(stream.certificate, time.time()) or self.trust.why_not(stream)
        return self._open(stream, own, dialled) if why_not is None else self._refuse(stream, why_not)

    def _refuse(self, stream: Stream, reason: str, code: RefusalCode = RefusalCode.DENIED) -> LinkEnd:
        self._note_refusal(stream, code, reason)
        refused = LinkEnd(NO_LINK, stream, None, self)  # whatever it says goes nowhere
        stream.write([wire.encode(Goodbye(reason[:MAX_REASON]), 0)])
        stream.close(reason)
        return refused

    def _refuse_later(self, stream: Stream, reason: str) -> LinkEnd:
        """Refuse a peer that comes too often, but let it wait for that: most dial again as soon as they are told."""
        if len(self._held) >= MAX_HELD:
            return self._refuse(stream, reason, RefusalCode.BUSY)

        def refuse() -> None:
            del self._held[stream]
            self._refuse(stream, reason, RefusalCode.BUSY)

        self._held[stream] = asyncio.get_running_loop().call_later(HOLD_S, refuse)
        return LinkEnd(NO_LINK, stream, None, self)

    def _let_go(self) -> None:
        """Close what waits for its refusal."""
        for stream, timer in self._held.items():
            timer.cancel()
            stream.close("this broker is stopping")
        self._held.clear()

    def _turn_away(self, stream: Stream) -> LinkEnd:
        stream.write([wire.encode(Goodbye(self._closed[:MAX_REASON]), 0)])
        stream.close(self._closed)
        return LinkEnd(NO_LINK, stream, None, self)

    def _note_refusal(self, stream: Stream, code: RefusalCode, reason: str) -> None:
        self._log.noise("link refused", peer=stream.peer, proven=stream.proven, code=code, reason=reason)
        if self.audit is not None:
            self.audit.note("link refused", certificate=stream.proven, address=stream.peer, code=code, reason=reason)

    def note_statement(self, effect: StatementRefused) -> None:
        """A neighbour passed on what was not signed by whoever may say it; its link stays."""
        end = self._ends.get(effect.link)
        peer, proven = (None, None) if end is None else (end.stream.peer, end.stream.proven)
        why, reason = effect.why, effect.reason
        self._log.noise("statement refused", link=effect.link, peer=peer, proven=proven, code=why, reason=reason)
        if self.audit is not None:
            self.audit.note("statement refused", certificate=proven, address=peer, code=why, reason=reason)

    def keep(self, urls: Sequence[Url]) -> None:
        """Keep a link to the broker that listens on these; the first that answers is taken."""
        own = OwnLink(tuple(urls))
        name = f"link to {urls[0]}"
        self._kept[own.urls] = self._with(self._supervisor.task(name, lambda: self._keep(own)))

    def follow(self, neighbours: Iterable[Sequence[str]]) -> None:
        """Keep a link to each of these brokers, and to no others: what the configuration says now."""
        wanted = {tuple(map(parse_url, urls)): None for urls in neighbours}
        for urls in [urls for urls in self._kept if urls not in wanted]:
            self._release(urls)
        for urls in wanted:
            if urls not in self._kept:
                self.keep(urls)

    def _release(self, urls: tuple[Url, ...]) -> None:
        """Keep a link no longer: its end is told why."""
        self._kept.pop(urls).cancel()
        reason = "this link is no longer part of the network"
        for end in list(self._ends.values()):
            if end.own is not None and end.own.urls == urls:
                end.put([wire.encode(Goodbye(reason), 0)])
                end.flush()
                end.stream.close(reason)

    def dial(self, effect: Dial) -> None:
        """The core asks for a link that the configuration does not have."""
        if self._dials < MAX_DIALS:
            self._dials += 1
            self._with(once("a dial that the broker asked for", self._dial(effect)))

    async def stop(self) -> None:
        """Close every link, with what was written sent."""
        self._is_stopping = True
        if self._measuring is not None:
            self._measuring.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in list(self._ends.values()):
            end.put([wire.encode(Goodbye("this broker is stopping"), 0)])
            end.flush()
            end.stream.close("this broker is stopping")
        self._ends.clear()
        self._let_go()

    def abort(self) -> None:
        """Break off every link without a word; `stop` is still to be called."""
        ends, self._ends = list(self._ends.values()), {}
        for end in ends:
            end.stream.abort("killed")

    # --- between two lives of the core ---

    def break_all(self, reason: str, culprit: int, why: str) -> None:
        """End every link, with what was written sent, and take none until `open`; `why` is for the culprit's."""
        self._closed = reason
        ends, self._ends = list(self._ends.values()), {}
        for end in ends:
            told = why if end.number == culprit else reason
            if end.number == culprit:
                self._note_refusal(end.stream, RefusalCode.QUARANTINED, told)
            end.put([wire.encode(Goodbye(told[:MAX_REASON]), 0)])
            end.flush()
            end.stream.close(told)

    def open(self) -> None:
        """Take links again; those of one's own are dialled again by themselves."""
        self._closed = ""

    def sender(self, number: int) -> Sender | None:
        """Who is at the other end of a link, as far as it was said or proved; None without that link."""
        end = self._ends.get(number)
        if end is None and self._leaving is not None and self._leaving.number == number:
            end = self._leaving
        return None if end is None else sender_of(end)

    def __len__(self) -> int:
        return len(self._ends)

    def _open(self, stream: Stream, own: OwnLink | None, dialled: bool) -> LinkEnd:
        self._last += 1
        end = LinkEnd(self._last, stream, own, self)
        self._ends[end.number] = end
        self._note("link up", end, proven=stream.proven)
        if self.audit is not None:
            self.audit.note(
                "link taken" if own is None else "link made", certificate=stream.proven, address=stream.peer
            )
        self._give(LinkUp(end.number, True, stream.ip, dialled))
        return end

    def _note(self, what: str, end: LinkEnd, **fields: str | None) -> None:
        """Links that others make can be as many as they like: only a few lines tell of them."""
        if end.own is not None:
            self._log.info(f"own {what}", link=end.number, peer=end.stream.peer, **fields)
        else:
            self._log.noise(what, level=logging.INFO, link=end.number, peer=end.stream.peer, **fields)

    async def _keep(self, own: OwnLink) -> None:
        pause = self._retry.first_s
        while True:
            began = time.monotonic()
            try:
                await self._connect(own.urls, own, dialled=False)
                await own.over.wait()
                own.over.clear()
            except NOT_REACHED as error:
                self._log.noise("link cannot be made", to=str(own.urls[0]), reason=str(error) or type(error).__name__)
            pause = self._retry.first_s if time.monotonic() - began > GOOD_LIFE_S else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, self._retry.longest_s)

    async def _dial(self, effect: Dial) -> None:
        try:
            self._check_dial(effect)
            await self._connect([parse_url(text) for text in effect.listen], None, dialled=True)
        except NOT_REACHED as error:
            self._log.noise("broker cannot be dialled", to=format_address(effect.address), reason=str(error))
        finally:
            self._dials -= 1

    async def _connect(self, urls: Sequence[Url], own: OwnLink | None, dialled: bool) -> None:
        ends: list[LinkEnd] = []

        def met(stream: Stream) -> LinkEnd:
            ends.append(self._meet(stream, own, dialled))
            return ends[-1]

        for at, url in enumerate(urls):
            try:
                self._check_place(url)
                await connect(url, met, self._secrets)
                if ends[-1].number == NO_LINK:
                    raise NotTrusted(self._closed or "the peer may not be a neighbour")
                return
            except NOT_REACHED:
                if at == len(urls) - 1:
                    raise

    def _check_dial(self, effect: Dial) -> None:
        why_not = self.trust.why_not_dial(effect, time.time())
        if why_not is not None:
            self._refuse_dial(", ".join(effect.listen), why_not)

    def _check_place(self, url: Url) -> None:
        why_not = self.trust.why_not_place(url)
        if why_not is not None:
            self._refuse_dial(str(url), why_not)

    def _refuse_dial(self, where: str, why_not: str) -> None:
        if self.audit is not None:
            self.audit.note("dial refused", address=where, code=RefusalCode.DENIED, reason=why_not)
        raise NotTrusted(why_not)

    def _with(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """One task more that ends with these links."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- what the core wants ---

    def send(self, effect: Send) -> None:
        """Everything for one link, in one write; the tails of events go as they came."""
        end = self._ends.get(effect.link)
        if end is None:
            return
        parts: list[Bytes] = []
        header = self.codec.header
        try:
            for number, frame in effect.frames:
                if type(frame) is EventFrame:
                    parts.append(
                        header(
                            frame,
                            number,
                            to_serve=frame.to_serve,
                            served=frame.served,
                            ttl_ms=frame.ttl_ms,
                            flags=frame.flags,
                        )
                    )
                    parts.append(frame.tail)
                    end.taken += len(parts[-2]) + len(parts[-1])
                else:
                    parts.append(wire.encode(frame, number))  # type: ignore[arg-type]
        except LocalProtocolError as error:
            self._log.error("frame cannot be sent", link=end.number, reason=str(error))
            end.stream.abort(str(error))
            return
        if end.put(parts):
            if not self._dirty:
                asyncio.get_running_loop().call_soon(self._write_all)
            self._dirty.append(end)

    def _write_all(self) -> None:
        dirty, self._dirty = self._dirty, []
        with self.steps.step("writing", "links"):
            for end in dirty:
                end.flush()

    def close(self, effect: Close) -> None:
        end = self._ends.pop(effect.link, None)
        if end is None:
            return
        if effect.why is None:
            self._note("link closed", end, reason=effect.reason)
        else:
            self._note_refusal(end.stream, effect.why, effect.reason)
        self._note_life(end)
        end.flush()
        end.stream.close(effect.reason)

    # --- what an end tells ---

    def arrived(self, end: LinkEnd, frames: list[wire.Numbered]) -> None:
        if end.number not in self._ends:
            return
        if not end.is_judged:
            code, why_not = RefusalCode.DENIED, self._judge_greeting(end, frames)
            if why_not is None:
                code, why_not = RefusalCode.QUARANTINED, self.why_refused(sender_of(end).name)
            if why_not is not None:
                self._note_refusal(end.stream, code, why_not)
                self._end(end, why_not)
                return
        self._give(Arrived(end.number, frames))

    def _judge_greeting(self, end: LinkEnd, frames: list[wire.Numbered]) -> str | None:
        """Why the peer may not be a neighbour by what it says first, if so: its Hello, or a question without one."""
        for _, frame in frames:
            if type(frame) is Hello:
                end.hello, end.is_judged = frame, True
                why_not = self.trust.why_not_greeting(end.stream, frame, time.time())
                if why_not is None:
                    end.granted_until = self.trust.granted_until(frame)
                return why_not
            if type(frame) is not Goodbye and self.trust.asks_names:
                return f"{type(frame).__name__} before a Hello: brokers of this network have a name and an address"
        return None

    def fault(self, end: LinkEnd, error: RemoteProtocolError) -> None:
        """It sent what it must not: it is told so, and the link is over."""
        if self._ends.pop(end.number, None) is None:
            return
        self._log.noise("link broken off", link=end.number, peer=end.stream.peer, reason=str(error))
        end.put([wire.encode(Goodbye(error.reply[:MAX_REASON]), 0)])
        end.flush()
        end.stream.close(error.reply)
        self._gone(end, str(error))

    def over(self, end: LinkEnd, reason: str) -> None:
        if self._ends.pop(end.number, None) is not None and not self._is_stopping:
            is_unheard = end.own is not None and end.hello is None and end.stream.proven is not None
            self._note("link down", end, reason=REFUSED_IN_TLS if is_unheard and reason == CLOSED else reason)
            self._gone(end, reason)

    def _note_life(self, end: LinkEnd) -> None:
        """A link that somebody else made is over: how long it lived counts."""
        if end.is_accepted:
            now = time.monotonic()
            self._short_links.ended(source_of(end.stream), now - end.began, now)

    def _gone(self, end: LinkEnd, reason: str) -> None:
        self._note_life(end)
        self._leaving = end
        self._give(LinkDown(end.number, reason))
        self._leaving = None

    def room(self, end: LinkEnd, size: int | None) -> None:
        if end.number in self._ends:
            self._give(LinkRoom(end.number, size))

    # --- what changes while links are there ---

    def renew(self, secrets: Secrets) -> None:
        """Dial with these from now on."""
        self._secrets = secrets

    def judge_all(self, why_not: Callable[[Stream], str | None]) -> int:
        """End the links that would not be taken now; how many. `why_not` says why a connection must end, if so."""
        ended, now = 0, time.time()
        for end in list(self._ends.values()):
            reason = why_not(end.stream) or self.trust.why_not(end.stream)
            if reason is None and end.hello is not None:
                reason = self.trust.why_not_greeting(end.stream, end.hello, now)
                end.granted_until = inf if reason else self.trust.granted_until(end.hello)
            if reason is not None:
                self._note_end(end, reason)
                self._end(end, reason)
                ended += 1
        return ended

    def _note_end(self, end: LinkEnd, reason: str) -> None:
        self._log.warning("link ended", link=end.number, peer=end.stream.peer, reason=reason)
        if self.audit is not None:
            self.audit.note("link ended", address=end.stream.peer, certificate=end.stream.proven, reason=reason)

    def _end(self, end: LinkEnd, reason: str) -> None:
        del self._ends[end.number]
        end.put([wire.encode(Goodbye(reason[:MAX_REASON]), 0)])
        end.flush()
        end.stream.close(reason)
        self._gone(end, reason)

    # --- load ---

    def _measure(self) -> None:
        self._measuring = asyncio.get_running_loop().call_later(MEASURE_S, self._measure)
        with self.steps.step("a look at the load", "links"):
            self._look_at_all(time.time())

    def _look_at_all(self, now: float) -> None:
        for end in list(self._ends.values()):
            try:
                self._look_at(end, now)
            except Exception as error:  # the others are to be looked at as well
                tell_loop("looking after a link failed", error)
                self._end(end, "this broker failed to look after the link: connect again")

    def _look_at(self, end: LinkEnd, now: float) -> None:
        expired = self.revoked.why_not(end.stream.certificate, now)
        if expired is None and now >= end.granted_until:
            expired = "the grant that this broker showed has expired: show a new one"
        if expired is not None:
            self._note_end(end, expired)
            self._end(end, expired)
            return
        news = end.measure()
        if news is not None:
            self._give(LinkLoad(end.number, news))

    def statistics(self) -> tuple[EndStatistics, ...]:
        return tuple(end.statistics() for end in self._ends.values())


def source_of(stream: Stream) -> str:
    """Who makes a link, as far as links are counted: nothing that a peer may choose anew each time."""
    if stream.proven is not None:
        return f"certificate {stream.proven!r}"
    place = place_of(stream.ip)
    return "brokers of this machine" if is_loopback(place) else f"brokers at {place}"


def sender_of(end: LinkEnd) -> Sender:
    """A broker by the name that its certificate proves; without one, by what it says of itself and its place."""
    stream, hello = end.stream, end.hello
    if stream.proven is not None:
        return Sender.of(stream, f"broker with certificate {stream.proven!r}", is_placed=False)
    if hello is None:
        return Sender.of(stream, "somebody who sent no greeting")
    return Sender.of(stream, f"broker {format_address(hello.address)} ({hello.name!r})")
