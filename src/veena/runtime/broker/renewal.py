"""A core made anew in the same process, after an exception that nobody foresaw left its state in doubt (design §14).

    frame --> core raises --> driver gives that core nothing more --> Renewal.doubt
      the frame goes into the quarantine, and its sender is refused for a time that doubles (`access.suspects`)
      every link and session is closed, the doors stay open; what is on its way to the disk gets there
      a core begins with what the disk remembers, by the steps of the start, under the next incarnation
      links greet again as after a restart, and clients attach again

For everybody outside this is a restart that takes a moment: nothing was accepted that is not on disk, and a broker may
be killed at any point of any input. So I1 and I5 hold as they do for `kill -9`.

**When the process ends instead** (exit code 70, as it does without any of this):

- No sender can be named: a timer, an answer of the disk, a rule of access. Nobody can be refused, so it may happen
  again at once, and whoever watches the process has to see it.
- Frames of more than `MAX_SENDERS` senders within `WINDOW_S`: the fault lies in the broker or on its disk, not in one
  sender.
- The disk does not take what is on its way to it, or does not give back what it has: there is nothing to begin with.

A sender is whoever is at the other end of the connection: a frame that an honest neighbour passes on costs that
neighbour its link, and the time. A link or session that comes or goes counts as an input of its sender, too.

Rejected: going on with the half-changed core (nobody knows what it would lose or do twice); mending it by undoing the
input (every table of the core would need that); ending the process for any frame (one client could keep a broker down).
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from veena.address import format_address
from veena.core.boundary.explain import Denied
from veena.core.boundary.inputs_effects import Arrived, Input
from veena.core.boundary.stored import Disk, Identity
from veena.core.wire import codec as wire
from veena.core.wire.client import ClientHello
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import ConfigError, VeenaError
from veena.runtime.access.suspects import Suspects
from veena.runtime.broker.driver import Driver
from veena.runtime.broker.entrance import Entrance
from veena.runtime.broker.quarantine import MAX_TRACE, Caught, Quarantine, hex_of
from veena.runtime.clients.conversation import Conversation
from veena.runtime.clients.service import Conversations
from veena.runtime.config.schema import Config
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import Log
from veena.runtime.store.store import Store
from veena.runtime.supervision import once, shown
from veena.runtime.transports.senders import Sender

#: Senders whose frames may lead to an exception within this time, before the broker ends.
MAX_SENDERS: Final = 5
WINDOW_S: Final = 600.0
#: What everybody else is told.
REASON: Final = "this broker makes its core anew: connect again"


@dataclass(frozen=True, slots=True)
class RenewalStatistics:
    #: How often the core was made anew since the start, and how long the last time took.
    renewed: int = 0
    last_s: float = 0.0
    #: Frames that were put into the quarantine since the start, and senders that are refused now.
    quarantined: int = 0
    refused_senders: int = 0
    is_under_way: bool = False
    #: The last exception and its sender; "" if there was none.
    last: str = ""


NO_RENEWAL: Final = RenewalStatistics()


def remembered(store: Store, config: Config, log: Log) -> Disk:
    """What a broker remembers, under the address of its configuration: what every core begins with."""
    disk = store.load(Identity(config.name, config.address, 0))
    found = disk.identity
    if found.name != config.name:
        reason = f"belongs to broker {found.name!r}, not to {config.name!r}"
        raise ConfigError(str(store.path), "store", reason, "name another [store] path, or that broker")
    if found.address != config.address:
        log.warning(
            "this broker has another address than when it ran last",
            before=format_address(found.address),
            now=format_address(config.address),
        )
    disk.identity = replace(found, address=config.address)
    return disk


class Renewal:
    """What one broker does about a core in doubt.

    `remember` ends what works for the old core beside it and returns what the disk has; `let_in` opens the doors when
    the new one lives; `fail` ends the broker.
    """

    def __init__(
        self,
        driver: Driver,
        clients: Conversations,
        entrance: Entrance,
        quarantine: Quarantine,
        remember: Callable[[], Awaitable[Disk]],
        let_in: Callable[[], None],
        fail: Callable[[BaseException], None],
        *,
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._clients = clients
        self._entrance = entrance
        self._quarantine = quarantine
        self._remember = remember
        self._let_in = let_in
        self._fail = fail
        self._audit = audit
        self._clock = clock
        self.suspects = Suspects(clock)
        #: When frames of whom led to exceptions, within the window.
        self._times: deque[tuple[float, str]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._renewed = self._quarantined = 0
        self._last_s = 0.0
        self._last = ""
        driver.on_doubt = self.doubt
        driver.links.why_refused = clients.why_refused = self.suspects.why_not

    @property
    def why_not_ready(self) -> str | None:
        """What is wrong while no core lives; None at all other times."""
        return None if self._task is None else f"its core is made anew after {self._last}"

    def statistics(self) -> RenewalStatistics:
        return RenewalStatistics(
            self._renewed,
            self._last_s,
            self._quarantined,
            self.suspects.refused(),
            self._task is not None,
            self._last,
        )

    async def stop(self) -> None:
        """The broker ends: begin nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- from the exception to a new core ---

    def doubt(self, given: Input | None, error: Exception) -> bool:
        """An exception came of this input: whether its sender can be refused, and the core is going to be made anew."""
        sender, who = self._sender(given)
        if given is None or sender is None:
            return False
        now = self._clock()
        refused_s = self.suspects.caught(sender.name)
        self._last = f"{shown(error)}, by {type(given).__name__} of {sender.name}"
        if not self._is_one_of_few(sender.name, now):
            self._driver.log.error(
                "frames of too many senders led to exceptions: the broker stops", senders=MAX_SENDERS
            )
            self._keep(self._caught(given, sender, who, error))
            return False
        self._driver.log.failure(
            f"a frame of {sender.name} led to an exception that nobody foresaw: it goes into the quarantine, the sender"
            f" is refused for {refused_s:.0f} seconds, and the core is made anew from disk",
            error,
        )
        self._entrance.strangers.closed = REASON
        why = self.suspects.why_not(sender.name) or REASON
        culprit = (getattr(given, "link", 0), getattr(given, "session", 0))
        caught = self._caught(given, sender, who, error)
        self._task = once("making the core anew", self._renew(caught, culprit, why))
        return True

    async def _renew(self, caught: Caught, culprit: tuple[int, int], why: str) -> None:
        began = self._clock()
        try:
            # Whoever gave the input has returned by now, and finds its connection closed.
            self._driver.links.break_all(REASON, culprit[0], why)
            self._clients.break_all(REASON, culprit[1], why)
            await asyncio.to_thread(self._keep, caught)
            disk = await self._remember()
            self._driver.links.open()
            self._clients.open()
            self._driver.begin_again(disk)
            if self._clients.access is not None:
                self._clients.access.attach_again()
            self._let_in()
        except Exception as error:  # there is no core, and none can be made
            self._driver.log.failure("the core cannot be made anew: the broker stops", error)
            self._fail(error)
            return
        finally:
            self._task = None
        self._renewed += 1
        self._last_s = self._clock() - began
        self._driver.log.info(
            "the core was made anew",
            incarnation=self._driver.broker.identity.incarnation,
            seconds=f"{self._last_s:.3f}",
        )

    def _is_one_of_few(self, sender: str, now: float) -> bool:
        self._times.append((now, sender))
        while self._times and now - self._times[0][0] > WINDOW_S:
            self._times.popleft()
        return len({name for _, name in self._times}) <= MAX_SENDERS

    def _sender(self, given: Input | None) -> tuple[Sender | None, Conversation | None]:
        """Whose input it is; for a session with its conversation."""
        link, session = getattr(given, "link", 0), getattr(given, "session", 0)
        if link:
            return self._driver.links.sender(link), None
        if session and type(given) is not Denied:  # an event of somebody else
            return self._clients.sender(session) or (None, None)
        return None, None

    # --- the quarantine ---

    def _caught(self, given: Input, sender: Sender, who: Conversation | None, error: Exception) -> Caught:
        data = b"".join(frames_of(given, self._driver.codec, who))
        trace = "".join(traceback.format_exception(error))
        identity = self._driver.broker.identity
        return Caught(
            time.time_ns(),
            identity.name,
            identity.incarnation,
            sender.name,
            sender.peer,
            sender.proven,
            sender.transport,
            type(given).__name__,
            hex_of(data),
            len(data),
            shown(error),
            trace if len(trace) <= MAX_TRACE else trace[: MAX_TRACE // 2] + "\n...\n" + trace[-MAX_TRACE // 2 :],
        )

    def _keep(self, caught: Caught) -> None:
        """Without its file the frame is still in the log as an exception, so the broker goes on."""
        try:
            path = str(self._quarantine.keep(caught))
        except OSError as error:
            self._driver.log.error("the quarantine cannot be written", reason=str(error))
            return
        self._quarantined += 1
        self._driver.log.info("a frame is in the quarantine", file=path, sender=caught.sender)
        if self._audit is not None:
            self._audit.note("frame quarantined", certificate=caught.proven, address=caught.peer, reason=caught.error)


def frames_of(given: Input, codec: EventCodec, who: Conversation | None) -> Iterator[bytes]:
    """The frames that an input came of, as they go over the wire. What cannot be encoded again is left out."""
    if type(given) is Arrived:
        for number, frame in given.frames:
            with suppress(VeenaError):
                yield codec.encode(frame, number) if isinstance(frame, EventFrame) else wire.encode(frame, number)
        return
    control = None if who is None else who.heeded or who.hello
    if isinstance(control, ClientHello):
        control = msgspec.structs.replace(control, password="", token="")
    if control is not None:
        with suppress(VeenaError):
            yield wire.encode(control, 0)
    for burst in getattr(given, "bursts", ()):
        yield bytes(burst.data)
    event = getattr(given, "frame", None)
    if isinstance(event, EventFrame):
        with suppress(VeenaError):
            yield codec.encode(event, 0)
