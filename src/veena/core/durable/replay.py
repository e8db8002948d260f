"""Subscriptions with a past: `since` asks every origin in scope for what it accepted from a time on (design §7).

    subscribe since T --> acknowledged --> Since to every broker in scope --> each reads its log: Past, PastEnd
    what came from the logs first, then what came by itself meanwhile, without what came both ways

A broker is asked when it already knows that the subscription is there, so whatever it accepts later comes by itself:
there is no gap. The two parts are joined as for a client that came from elsewhere (`registry`): what comes from the
logs is an older inbox. When somebody in every unit has answered and nothing more comes, or after a while, the rest is
opened and the client is told. How many brokers a unit has is not known here, so the far ones may answer later still:
what they send is handed over with the mark `late` where it is out of order. After a longer while nothing of the past is
waited for any more, and a subscription that is not durable is an ordinary one from then on.

How far the past goes back is a matter of each log's retention: where it begins later, that is told.

The invariant: an event of the past is handed over once, and before every later one of its stream that came by itself,
unless it is marked late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from veena.address import Address, Unit, as_seen
from veena.core.boundary.clients import CaughtUp
from veena.core.boundary.inputs_effects import Active, Effect, Subscribe
from veena.core.boundary.session_id import durable_number
from veena.core.boundary.settings import READ_BATCH, Settings
from veena.core.boundary.stored import Entry
from veena.core.boundary.tickets import LogReader
from veena.core.boundary.user_shares import Tally, UserTable
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable, State
from veena.core.interest.constraint import KINDS, create_engine, keyed_want
from veena.core.messages.addresses import INTERNAL, broker_id, everybody_id
from veena.core.messages.kinds import Past, PastEnd, Since
from veena.core.messages.mailbox import Post
from veena.core.wire.event import BACKLOG, EventCodec, EventFrame
from veena.errors import InvalidConstraint, InvalidEvent, VeenaError
from veena.matching.base.engine import Engine
from veena.matching.base.work import Meter

#: Subscriptions of one broker that wait for their past, and questions of others that are being answered.
MAX_OPEN = 1000
#: The part of these that the subscriptions of one user may be.
MAX_OPEN_OF_USER = MAX_OPEN // 4
#: Questions for which the log is read at a time; the others take turns with them, a part of the log each.
AT_ONCE = 8
#: In times of `arrive_ns` after the question: how long units that are silent are waited for, and how long answers are
#: taken that come after the client was told. A broker twenty slow hops away answers within the second.
PATIENCE = 2
TAIL = 4
_BROKERS = INTERNAL.encode()


@dataclass(slots=True, eq=False)
class _Asked:
    """A subscription that waits for its past."""

    durable: Durable
    session: int
    subscription: int
    since_ns: int
    until_ns: int
    user: str
    #: When the last answer came, and the units that have answered at all.
    heard_ns: int = 0
    answered: dict[Unit, None] = field(default_factory=dict)
    is_asked: bool = False
    #: The client was told that it has its past: answers are still taken, until then.
    is_told: bool = False
    gone_ns: int = 0


class Pasts:
    """The past of one broker's subscriptions, and of others' as far as it lies in this broker's log."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        durables: Durables,
        post: Post,
        reader: LogReader,
        effects: list[Effect],
        vertices: Callable[[], Sequence[Unit]],
        log_end: Callable[[], int],
        opens: Callable[[Durable, int], None],
        users: UserTable,
    ) -> None:
        self._host = host
        self._settings = settings
        self._durables = durables
        self._users = users
        self._post = post
        self._reader = reader
        self._effects = effects
        self._vertices = vertices
        self._log_end = log_end
        self._opens = opens
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._asked: dict[int, _Asked] = {}
        self._of_user = Tally(MAX_OPEN, MAX_OPEN_OF_USER)
        self._answering = 0
        #: Parts of the log that the disk reads now, and those that are to be read next.
        self._reading = 0
        self._turns: deque[Callable[[], None]] = deque()
        post.deals_with(Since, self._on_since)
        post.deals_with(Past, self._on_past)
        post.deals_with(PastEnd, self._on_end)

    # --- who asks ---

    def subscribe(self, given: Subscribe, durable: Durable, now_ns: int) -> None:
        """A subscription was made that wants its past."""
        assert given.since_ns is not None
        until_ns = now_ns + PATIENCE * self._settings.arrive_ns
        user = self._users.of(given.session, durable.client_id)
        asked = _Asked(durable, given.session, given.subscription, given.since_ns, until_ns, user)
        self._asked[durable.number] = asked
        self._of_user.add(user)

    def _end(self, number: int) -> None:
        self._of_user.add(self._asked.pop(number).user, -1)

    def check_room(self, given: Subscribe) -> None:
        what = f"subscription {given.subscription} with a past that it waits for"
        self._of_user.admit(self._users.of(given.session, ""), what)

    def active(self, found: Sequence[Active], now_ns: int) -> None:
        """Some subscriptions are acknowledged further."""
        for each in found:
            asked = self._asked.get(durable_number(each.session))
            if asked is not None and not asked.is_asked and each.level >= asked.durable.scope:
                self._ask(asked, now_ns)

    def _ask(self, asked: _Asked, now_ns: int) -> None:
        asked.is_asked, asked.heard_ns = True, now_ns
        asked.until_ns = now_ns + PATIENCE * self._settings.arrive_ns
        want = self._durables.want(asked.durable)
        unit = self._host[: len(self._host) - want.scope]
        message = Since(asked.durable.number, asked.since_ns, want.engine, want.payload, want.scope)
        self._post.send(everybody_id(unit), message, now_ns)

    def _on_past(self, message: Past, origin: Address, now_ns: int) -> None:
        durable = self._durables.all.get(message.number)
        if durable is None or not durable.is_here:
            return
        try:
            frame = self._codec.read(message.frame)
            frame.event()  # its tail may be broken too
        except VeenaError:
            return
        asked = self._asked.get(message.number)
        if asked is not None:
            asked.heard_ns = now_ns
        self._durables.intake.add_moved(durable, frame, now_ns)

    def _on_end(self, message: PastEnd, origin: Address, now_ns: int) -> None:
        asked = self._asked.get(message.number)
        if asked is not None:
            asked.heard_ns = now_ns
            asked.answered[as_seen(self._host, origin)] = None
            asked.gone_ns = max(asked.gone_ns, message.gone_ns)

    def _silent(self, asked: _Asked) -> tuple[Unit, ...]:
        size = len(self._host) - asked.durable.scope
        return tuple(unit for unit in self._vertices() if len(unit) > size and unit not in asked.answered)

    # --- who is asked ---

    def _on_since(self, message: Since, origin: Address, now_ns: int) -> None:
        try:
            want = keyed_want(KINDS.index(message.engine), message.constraint, message.scope)
            engine = create_engine(want.kind)
            engine.add(1, want.constraint, 1)
        except (ValueError, msgspec.MsgspecError, InvalidConstraint):
            return
        if self._answering >= MAX_OPEN:
            return  # the asker goes on without this part, and is told so
        self._answering += 1
        self._read(message, origin, engine, 0, self._log_end())

    def _read(self, message: Since, origin: Address, engine: Engine, offset: int, until: int) -> None:
        """Read a part of the log for a question, when it is its turn."""

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            self._reading -= 1
            meter = Meter()
            meter.begin()
            for entry in entries:
                frame = _matching(engine, entry, meter) if entry.offset < until and _is_own(entry) else None
                if frame is not None:
                    data = self._codec.encode(frame, 0)
                    self._post.send(broker_id(origin), Past(message.number, data), now_ns)
            if len(entries) < READ_BATCH or entries[-1].offset + 1 >= until:
                self._answering -= 1
                gone_ns = self._reader.begins_ns if self._reader.begins_ns > message.since_ns else 0
                self._post.send(broker_id(origin), PastEnd(message.number, gone_ns), now_ns)
            else:
                self._read(message, origin, engine, entries[-1].offset + 1, until)
            self._take_turns()

        def failed(reason: str, now_ns: int) -> None:
            # The asker goes on without this log, and is told that what was accepted here until now may be missing.
            self._reading -= 1
            self._answering -= 1
            self._post.send(broker_id(origin), PastEnd(message.number, now_ns), now_ns)
            self._take_turns()

        self._turns.append(
            lambda: self._reader.read(offset, READ_BATCH, found, since_ns=message.since_ns, otherwise=failed)
        )
        self._take_turns()

    def _take_turns(self) -> None:
        while self._turns and self._reading < AT_ONCE:
            self._reading += 1
            self._turns.popleft()()

    # --- time ---

    def tick(self, now_ns: int) -> None:
        for number, asked in list(self._asked.items()):
            durable = asked.durable
            if number not in self._durables.all or not durable.is_here:
                self._end(number)
                continue
            if now_ns < self._due(asked):
                continue
            if not asked.is_asked:  # somebody does not acknowledge: ask those who can be reached
                self._ask(asked, now_ns)
                continue
            if asked.is_told:
                self._end(number)
                self._durables.handing.pump(durable)
                continue
            asked.is_told, asked.until_ns = True, asked.until_ns + (TAIL - PATIENCE) * self._settings.arrive_ns
            silent = self._silent(asked)
            self._effects.append(CaughtUp(asked.session, asked.subscription, silent, asked.gone_ns))
            if durable.state is State.ARRIVING:
                self._opens(durable, now_ns)

    def is_open(self, durable: Durable) -> bool:
        """Whether something of its past may still come."""
        return durable.number in self._asked

    def next_wakeup(self) -> int | None:
        return min(map(self._due, self._asked.values()), default=None)

    def _due(self, asked: _Asked) -> int:
        """When to look at it again, if nothing comes."""
        if not asked.is_asked or asked.is_told or self._silent(asked):
            return asked.until_ns
        return min(asked.until_ns, asked.heard_ns + self._settings.merge_ns)


def _is_own(entry: Entry) -> bool:
    """Whether this broker accepted it: not what it keeps for clients, nor for others who are absent, nor what brokers
    write to each other."""
    frame = entry.frame
    if entry.inboxes or frame.flags & BACKLOG:
        return False
    return frame.tail[:1] != _BROKERS or not frame.section.to


def _matching(engine: Engine, entry: Entry, meter: Meter) -> EventFrame | None:
    """An event of the log that satisfies the constraint, or may satisfy it where finding out would cost too much: then
    it is marked, and the asker evaluates it."""
    try:
        event = entry.frame.event()
    except InvalidEvent:
        return None
    meter.event()
    if event.to:
        return None
    matched, undecided = engine.match_within(event, meter)
    return entry.frame if matched else entry.frame.doubtful_copy() if undecided else None
