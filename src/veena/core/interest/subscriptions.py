"""The clients of one broker: their sessions, what each subscribed to, and which of them an event is for.

A client may have several subscriptions; together they are its profile, and an event that satisfies any of them is for
it once (PRF-01, PRF-06). One that attached as reachable can be written to by its id: an event with addressees is for
the sessions of these clients and nobody else (EVT-05, RTE-04). Whether the client's device and clearances suit an event
is asked at the end (`eligibility`, PRF-03).

Subscriptions go when they are cancelled or when the session ends (PRF-07). After a lost connection they get no more
events at once, but their wants linger for a grace, as if somebody still had them: a client that dials again and
subscribes anew finds them told, and nothing is said twice (PRF-08). No session is matched with what lingers; if the
client does not come back, the removal was scheduled and takes place.

The invariant: the engines hold exactly the subscriptions and ids of open sessions. Every want that was handed out by
`open` or `subscribe` is handed back once, by `unsubscribe`, `close` or `expire`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from veena.address import Address
from veena.core.boundary.session_id import is_brokers
from veena.core.interest.constraint import Want, add_profile, create_engine, make_want, reach_want, remove_profile
from veena.core.interest.eligibility import CLEARANCE, Fitness
from veena.core.interest.recipient_engine import AddresseeEngine
from veena.core.wire.event import EventFrame
from veena.errors import InvalidEvent, LocalProtocolError, RefusalCode
from veena.event import Event, check_client_id
from veena.matching.base.engine import Constraint, Engine
from veena.matching.base.work import Meter

#: Sessions of one broker, and subscriptions of one session: bounds, not limits of the design (CLI-09).
MAX_SESSIONS = 1 << 20
MAX_SUBSCRIPTIONS = 1 << 16
#: Bits of the number of a subscription, which its client chooses.
NUMBER_BITS = 32
NUMBERS = (1 << NUMBER_BITS) - 1
#: Under this number it is known how far it is heard that a session of this broker's own can be written to
#: (`durable.home_registry`).
REACH = 0
#: Wants that linger: clients that come and go in a storm must not fill the memory; the oldest go first.
MAX_LINGERING = 1 << 16
#: Subscriptions, and wants that linger, that one step drops: some milliseconds.
AT_ONCE = 512
#: How that header begins in the bytes of an event.
_CLEARANCE = CLEARANCE.encode()

#: Session -> its subscriptions for which it was not decided whether they want an event.
Doubts = dict[int, tuple[int, ...]]

#: Places in a session's row of subscriptions that may be empty in any case.
FEW = 16


class Numbered:
    """The wants of one session by the numbers of its subscriptions: a dict, as far as a session needs one.

    Clients number their subscriptions one after the other, so most stand in a row, at 8 bytes each. A number that would
    leave more places empty than are taken stands in a dict, at 60 or more with the number itself.

    The invariant: a number is in one of the two, and of the places of the row at least half were taken when it grew.
    """

    __slots__ = ("_count", "_others", "_row")

    def __init__(self) -> None:
        self._row: list[Want | None] = []
        self._others: dict[int, Want] = {}
        #: How many places of the row are taken.
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._others)

    def get(self, number: int) -> Want | None:
        if 0 <= number < len(self._row):
            return self._row[number]
        return self._others.get(number)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __setitem__(self, number: int, want: Want) -> None:
        """A number that is not there yet."""
        if len(self._row) <= number <= 2 * self._count + FEW:
            grown = range(len(self._row), number + 1)
            self._row += [None] * len(grown)
            few = grown if len(grown) < len(self._others) else [each for each in self._others if each <= number]
            for other in few:
                if other in self._others:
                    self._place(other, self._others.pop(other))
        if number < len(self._row):
            self._place(number, want)
        else:
            self._others[number] = want

    def _place(self, number: int, want: Want) -> None:
        self._row[number] = want
        self._count += 1

    def pop(self, number: int) -> Want:
        """The want of a number that is there, which it is no longer."""
        if number >= len(self._row):
            return self._others.pop(number)
        want = self._row[number]
        if want is None:
            raise KeyError(number)
        self._row[number] = None
        self._count -= 1
        if not self._count:
            self._row = []
        return want

    def items(self) -> Iterator[tuple[int, Want]]:
        for number, want in enumerate(self._row):
            if want is not None:
                yield number, want
        yield from self._others.items()

    def check(self) -> None:
        assert self._count == sum(want is not None for want in self._row)
        assert all(number >= len(self._row) for number in self._others)


@dataclass(slots=True)
class Session:
    """One client's conversation with the broker."""

    client_id: str
    fitness: Fitness
    #: A profile id has the session's place in its upper bits and the number of the subscription in the lower ones: so
    #: nothing needs to be kept to come from one to the other.
    place: int
    #: Profile id and want of a client that can be written to.
    reach: tuple[int, Want] | None = None
    subscriptions: Numbered = field(default_factory=Numbered)
    #: Whether nobody is told any longer what it asks for.
    is_silent: bool = False

    def profile(self, subscription: int) -> int:
        return self.place << NUMBER_BITS | subscription


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    sessions: int
    subscriptions: int
    #: Wants of lost connections whose grace is not over.
    lingering: int


class Clients:
    """Sessions and the engines that match events to them."""

    def __init__(
        self, host: Address, share: Callable[[Want], Want] = lambda want: want, meter: Meter | None = None
    ) -> None:
        self._host = host
        #: What evaluating constraints may cost.
        self._meter = meter or Meter()
        #: Subscriptions that were not decided for an event, because that would have cost more.
        self.undecided = 0
        #: The object of an equal want that is held already.
        self._share = share
        self._sessions: dict[int, Session] = {}
        #: Sessions that are over and have subscriptions left to drop, with the time until when these linger.
        self._departing: dict[int, tuple[Session, int | None]] = {}
        self._engines: dict[tuple[int, int], Engine] = {}
        #: Place -> session, and the places that are free below the highest.
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._addressees = AddresseeEngine()
        #: Profile id -> session of a reachable client, ascending.
        self._reachable: dict[int, int] = {}
        self._next_reachable = 0
        #: The profile id of the subscription that was made last, the object that its engine holds: another one of the
        #: same value takes 32 bytes for as long as it is waited for, and leaves a hole when it goes.
        self._newest = 0
        #: Counts what changes the answers of `matching`.
        self.changes = 0
        #: Subscriptions that may tell events apart by time or id (`delivery.match_cache`).
        self.untimely = 0
        #: Wants that are still told, each with the time when that ends, ascending.
        self._lingering: deque[tuple[int, Want]] = deque()
        #: How often each of them lingers.
        self._graces: dict[bytes, int] = {}

    def open(
        self, session: int, client_id: str, reachable: bool = False, attributes: Mapping[str, str] | None = None
    ) -> Want | None:
        """Begin a session; the want to tell if the client is reachable."""
        if session in self._sessions:
            raise LocalProtocolError(f"session {session} is open already: give each conversation a number of its own")
        if len(self._sessions) >= MAX_SESSIONS:
            reason = f"this broker has {MAX_SESSIONS} sessions: try another one"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        try:
            check_client_id(client_id)
        except InvalidEvent as error:
            raise LocalProtocolError(str(error)) from None
        fitness = Fitness(attributes or {})
        place = self._free.pop() if self._free else len(self._places)
        self._places[place] = session
        found = self._sessions[session] = Session(client_id, fitness, place)
        if not reachable:
            return None
        self.changes += 1
        want = reach_want(client_id, len(self._host))
        found.reach = (self._next_reachable, want)
        self._addressees.add(self._next_reachable, client_id, 0)
        self._reachable[self._next_reachable] = session
        self._next_reachable += 1
        return want

    def __contains__(self, session: int) -> bool:
        """Whether this session is open."""
        return session in self._sessions

    def close(self, session: int, until_ns: int | None = None) -> list[Want]:
        """End a session; the wants that are gone with it. With a time given they linger until then."""
        found = self._sessions.get(session)
        if found is None:
            return []
        wants = [self._drop(found, subscription) for subscription, _ in list(found.subscriptions.items())]
        wants += self._end(session, found)
        self._free_place(found)
        return self._let_linger(wants, until_ns)

    def is_large(self, session: int) -> bool:
        """Whether an open session has more subscriptions than one step drops."""
        return len(self._sessions[session].subscriptions) > AT_ONCE if session in self._sessions else False

    def depart(self, session: int, until_ns: int | None) -> list[Want]:
        """End a large session: nothing is for it any more, and `drop_some` drops its subscriptions."""
        found = self._sessions[session]
        self._departing[session] = found, until_ns
        return self._let_linger(self._end(session, found), until_ns)

    def drop_some(self) -> tuple[list[tuple[int, int, Want]], list[Want]]:
        """Drop a few subscriptions of sessions that have departed: these, and the wants that are gone now. A session
        none of whose subscriptions is among them is over."""
        for session, (found, until_ns) in self._departing.items():
            numbers = [number for number, _ in islice(found.subscriptions.items(), AT_ONCE)]
            dropped = [(session, number, self._drop(found, number)) for number in numbers]
            if not dropped:
                del self._departing[session]
                self._free_place(found)
            return dropped, self._let_linger([want for _, _, want in dropped], until_ns)
        return [], []

    def _end(self, session: int, found: Session) -> list[Want]:
        """Nothing is for a session any more; the want of its client's id, if there is one."""
        self.changes += 1
        del self._sessions[session]
        if found.reach is None:
            return []
        self._addressees.remove(found.reach[0])
        del self._reachable[found.reach[0]]
        return [found.reach[1]]

    def _free_place(self, found: Session) -> None:
        del self._places[found.place]
        self._free.append(found.place)

    def _let_linger(self, wants: list[Want], until_ns: int | None) -> list[Want]:
        """Let wants linger until then; those that are gone at once."""
        if until_ns is None:
            return wants
        # A clock that stepped back must not put a later time behind an earlier one.
        until_ns = max(until_ns, self._lingering[-1][0]) if self._lingering else until_ns
        for want in wants:
            self._lingering.append((until_ns, want))
            self._graces[want.key] = self._graces.get(want.key, 0) + 1
        excess = len(self._lingering) - MAX_LINGERING
        return [self._end_oldest() for _ in range(excess)]

    def expire(self, now_ns: int) -> list[Want]:
        """Wants whose grace is over, as many as one step can drop."""
        wants: list[Want] = []
        while self._lingering and self._lingering[0][0] <= now_ns and len(wants) < AT_ONCE:
            wants.append(self._end_oldest())
        return wants

    def _end_oldest(self) -> Want:
        """The want that has lingered longest, which it does no more."""
        want = self._lingering.popleft()[1]
        self._graces[want.key] -= 1
        if not self._graces[want.key]:
            del self._graces[want.key]
        return want

    def lingering(self, want: Want) -> int:
        """How many subscriptions to this are over and still told."""
        return self._graces.get(want.key, 0)

    def next_wakeup(self) -> int | None:
        if self._departing:
            return 0
        return self._lingering[0][0] if self._lingering else None

    def _here(self, session: int) -> Session | None:
        """A session that is open, or that has departed and has subscriptions left."""
        return self._sessions.get(session) or self._departing.get(session, (None, None))[0]

    def subscribe(
        self,
        session: int,
        subscription: int,
        engine: str,
        constraint: Constraint,
        scope: int,
        admit: Callable[[Want], None] = lambda want: None,
    ) -> Want:
        """Store a subscription; raise InvalidConstraint, or LocalProtocolError where the numbers are wrong or where
        what it asks for is not admitted."""
        found = self._sessions.get(session)
        if found is None:
            raise LocalProtocolError(f"session {session} is not open")
        if not 0 <= subscription <= NUMBERS:
            raise LocalProtocolError(
                f"subscription {subscription} of {found.client_id}: numbers have {NUMBER_BITS} bits"
            )
        if subscription in found.subscriptions or len(found.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise LocalProtocolError(
                f"subscription {subscription} of {found.client_id}: the number is in use, or the client has"
                f" {MAX_SUBSCRIPTIONS} already"
            )
        levels = len(self._host)
        if not 1 <= scope <= levels:
            raise LocalProtocolError(f"scope {scope}: expected 1 (the cluster) to {levels} (the whole system)")
        if is_brokers(session) and found.reach:
            raise LocalProtocolError(f"session {session} tells where {found.client_id} is, and asks for nothing else")
        want = self._share(make_want(engine, constraint, scope))
        admit(want)
        slot = (want.kind, want.scope)
        if slot not in self._engines:
            self._engines[slot] = create_engine(want.kind)
        profile = found.profile(subscription)
        add_profile(self._engines[slot], profile, want)  # raises for what cannot be read
        self._newest = profile
        self.changes += 1
        self.untimely += want.is_untimely
        found.subscriptions[subscription] = want
        return want

    def unsubscribe(self, session: int, subscription: int) -> Want:
        """Drop a subscription; raise LocalProtocolError if there is none."""
        found = self._sessions.get(session)
        if found is None or subscription not in found.subscriptions:
            raise LocalProtocolError(f"session {session} has no subscription {subscription}")
        return self._drop(found, subscription)

    def _drop(self, found: Session, subscription: int) -> Want:
        self.changes += 1
        want = found.subscriptions.pop(subscription)
        self.untimely -= want.is_untimely
        remove_profile(self._engines[want.kind, want.scope], found.profile(subscription), want)
        return want

    def want(self, session: int, subscription: int) -> Want:
        """What a subscription asks for."""
        want = self._sessions[session].subscriptions.get(subscription)
        if want is None:
            raise KeyError(subscription)
        return want

    def silence(self, session: int) -> list[Want]:
        """Everything that a session asks for, which is not told from now on; nothing when it is not open."""
        found = self._sessions.get(session)
        if found is None:
            return []
        found.is_silent = True
        return [want for _, want in found.subscriptions.items()]

    def told(self, session: int) -> list[tuple[int, Want]]:
        """The subscriptions of a session, as far as others are told of them."""
        found = self._sessions.get(session)
        if found is None or found.is_silent:
            return []
        reach = [(REACH, found.reach[1])] if is_brokers(session) and found.reach else []
        return [*found.subscriptions.items(), *reach]

    def told_want(self, session: int, subscription: int) -> Want | None:
        """What a subscription asks for, if others are told of it."""
        found = self._here(session)
        if found is None or found.is_silent:
            return None
        if is_brokers(session) and subscription == REACH and found.reach:
            return found.reach[1]
        return found.subscriptions.get(subscription)

    def profile(self, session: int, subscription: int) -> int:
        """One number for a subscription of an open session; the same object that its engine holds, of the newest."""
        here = self._here(session)
        assert here is not None
        found = here.profile(subscription)
        return self._newest if found == self._newest else found

    def subscription(self, profile: int) -> tuple[int, int]:
        """The session and the subscription of such a number."""
        return self._places[profile >> NUMBER_BITS], profile & NUMBERS

    def profile_want(self, profile: int) -> Want:
        """What the subscription of such a number asks for, which others are told."""
        want = self.told_want(*self.subscription(profile))
        assert want is not None
        return want

    def client_id(self, session: int) -> str:
        """Whose session it is."""
        found = self._sessions.get(session)
        if found is None:
            raise LocalProtocolError(f"session {session} is not open")
        return found.client_id

    def is_cleared(self, session: int, frame: EventFrame) -> bool:
        """Whether the client of an open session was given the clearance that an event asks for."""
        if _CLEARANCE not in bytes(frame.tail[frame.publisher_length :][: frame.matching_length]):
            return True  # no header has that name
        try:
            return self._sessions[session].fitness.is_cleared(frame.section.headers)
        except InvalidEvent:
            return False

    def suits(self, session: int, frame: EventFrame) -> bool:
        """Whether the client of an open session may have an event and can use it."""
        try:
            return self._sessions[session].fitness.suits(frame.event())
        except InvalidEvent:
            return False

    def widest_scope(self) -> int:
        """The widest scope of any subscription; 0 where there is none."""
        return max((scope for (_, scope), engine in self._engines.items() if len(engine)), default=0)

    def has(self, session: int, subscription: int) -> bool:
        found = self._sessions.get(session)
        return found is not None and subscription in found.subscriptions

    def matching(self, event: Event, origin: Address) -> dict[int, list[int]]:
        """The sessions that an event published at `origin` is for, each with its matching subscriptions; an addressee
        has none. Subscriptions that were not decided are among them."""
        return self.judge(event, origin)[0]

    def judge(self, event: Event, origin: Address) -> tuple[dict[int, list[int]], Doubts]:
        """The same, and which of these subscriptions were not decided: finding out would have cost too much here."""
        doubts: dict[int, list[int]] = {}
        found = self._addressed(event) if event.to else self._subscribed(event, origin, doubts)
        fit = {
            session: sorted(found[session]) for session in sorted(found) if self._sessions[session].fitness.suits(event)
        }
        return fit, {session: tuple(numbers) for session, numbers in doubts.items() if session in fit}

    def _subscribed(self, event: Event, origin: Address, doubts: dict[int, list[int]]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        self._meter.event()
        for (_, scope), engine in self._engines.items():
            size = len(self._host) - scope
            if origin[:size] == self._host[:size]:
                matched, undecided = engine.match_within(event, self._meter)
                self.undecided += len(undecided)
                for profile in matched:
                    session = self._places[profile >> NUMBER_BITS]
                    if session in self._departing:
                        continue
                    found.setdefault(session, []).append(profile & NUMBERS)
                for profile in undecided:
                    session = self._places[profile >> NUMBER_BITS]
                    found.setdefault(session, []).append(profile & NUMBERS)
                    doubts.setdefault(session, []).append(profile & NUMBERS)
        return found

    def engines(self) -> list[tuple[int, Engine]]:
        """Everything that sessions ask for, by kind; one of them may be empty."""
        return [(kind, engine) for (kind, _), engine in self._engines.items()]

    def receivers(self, profiles: Iterable[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The sessions that have these profiles, with their subscriptions, for an event that asks for nothing special
        of whoever gets it."""
        found: dict[int, list[int]] = {}
        for profile in profiles:
            session = self._places[profile >> NUMBER_BITS]
            if session in found:
                found[session].append(profile & NUMBERS)
            elif session not in self._departing and self._sessions[session].fitness.takes_events:
                found[session] = [profile & NUMBERS]
        return tuple([(session, tuple(sorted(found[session]))) for session in sorted(found)])

    def _addressed(self, event: Event) -> dict[int, list[int]]:
        """One session a client: of several the latest, for the earlier ones may be dead without anybody knowing."""
        sessions = [self._reachable[profile] for profile in self._addressees.match(event)]
        latest = {self._sessions[session].client_id: session for session in sessions}
        return {session: [] for session in latest.values()}

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(len(self._sessions), sum(map(len, self._engines.values())), len(self._lingering))

    def check(self) -> None:
        here = {**self._sessions, **{session: found for session, (found, _) in self._departing.items()}}
        assert len(here) == len(self._sessions) + len(self._departing)
        for found in here.values():
            found.subscriptions.check()
        held = sum(len(found.subscriptions) for found in here.values())
        assert held == sum(map(len, self._engines.values()))
        assert {found.place: session for session, found in here.items()} == self._places
        assert sorted([*self._places, *self._free]) == list(range(len(self._places) + len(self._free)))
        assert (
            len(self._addressees)
            == len(self._reachable)
            == sum(found.reach is not None for found in self._sessions.values())
        )
        assert len(self._lingering) == sum(self._graces.values()) <= MAX_LINGERING
