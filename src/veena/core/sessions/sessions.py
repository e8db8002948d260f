"""Clients' conversations with a broker, composed: what they subscribe to, publish, acknowledge and ask for.

Subscriptions that go with their session are the profiles' business (`interest.service`); those that outlive it are kept
(`durable.subscription`) and follow their client (`durable.handover`). What brokers tell each other for that goes by
`messages.mailbox`.

A client's mistake costs it one refusal, which names what is wrong; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from veena.address import Address
from veena.core.boundary.clients import Request, RightsChanged, SubscriptionState, Unanswered
from veena.core.boundary.explain import Denied
from veena.core.boundary.inputs_effects import (
    Acknowledge,
    Active,
    ClientDown,
    ClientInput,
    ClientRefused,
    ClientUp,
    Effect,
    Forget,
    Input,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.session_id import durable_number
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Disk, Entry
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.boundary.user_shares import UserShares, UserTable
from veena.core.delivery.delivery import Ends
from veena.core.delivery.evaluations import Evaluations
from veena.core.delivery.session_queue import Outlet
from veena.core.durable.groups import Shared, group_id
from veena.core.durable.handover import Roaming
from veena.core.durable.home_registry import OtherHomes
from veena.core.durable.missed import MissedEvents
from veena.core.durable.registry import Durables
from veena.core.durable.replay import Pasts
from veena.core.durable.statistics import DurableStatistics
from veena.core.interest.constraint import Want, make_want
from veena.core.interest.service import Profiles
from veena.core.messages.addresses import MARK, place_of
from veena.core.messages.mailbox import Post
from veena.core.publishing.log import Origin
from veena.core.publishing.publishers import Publishers
from veena.core.sessions.presented import Presented
from veena.core.sessions.requests import Requests
from veena.core.wire.event import EventFrame
from veena.core.wire.trace_facts import What
from veena.errors import InvalidConstraint, LocalProtocolError, RefusalCode
from veena.event import Event
from veena.matching.base.engine import Constraint

#: What the client of a subscription can do that costs too much, and how many of these a session's broker remembers.
CHEAPER = "subscribe to something cheaper instead (docs/XPATH.md, Work)"
MAX_SUSPENDED = 1024
#: Why an event is not kept for a durable subscription.
SUSPENDED = "the durable subscription is suspended: its owner has its share of the store"


class Sessions:
    """One a broker."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        publishers: Publishers,
        origin: Origin,
        ends: Ends,
        outlet: Outlet,
        ledger: Ledger,
        reader: LogReader,
        evaluations: Evaluations,
        effects: list[Effect],
        disk: Disk,
        chance: Callable[[int], int],
        now_ns: int,
    ) -> None:
        self._host = host
        self._profiles = profiles
        self._clients = profiles.clients
        self._interest = profiles.interest
        self._records = profiles.records
        self._publishers = publishers
        self._origin = origin
        self._ends = ends
        self._before = ends.before
        self._outlet = outlet
        self._held = ends.held
        self._evaluations = evaluations
        self._effects = effects
        #: Subscriptions that were ended because they cost too much: their clients may still end them.
        self._suspended: dict[int, dict[int, None]] = {}
        self.users = UserTable()
        self.presented = Presented()
        self.requests = Requests(host, effects, chance, publishers.publish, self._is_wanted, self.users)
        self.post = Post(host, origin)
        self.durables = Durables(
            profiles, ledger, origin, reader, outlet, ends.held, evaluations, ends.was_handed, effects, disk,
            self.users, now_ns,
        )  # fmt: skip
        self.elsewhere = OtherHomes(profiles.interest, host)
        self.roaming = Roaming(host, settings, self.durables, self.elsewhere, self.post, ledger, reader, disk, now_ns)
        self.pasts = Pasts(
            host, settings, self.durables, self.post, reader, effects, profiles.interest.vertices,
            lambda: origin.next_offset, self.roaming.open, self.users,
        )  # fmt: skip
        self.missed = MissedEvents(host, settings, profiles, ends, self.post, origin, reader)
        self.shared = Shared(
            host, settings, self.durables, self.post, effects, self.elsewhere,
            profiles.is_ready, origin.new_incarnation, origin.bury, self.users, now_ns,
        )  # fmt: skip
        outlet.on_clear.append(self.durables.cleared)
        ends.held.on_clear.append(self.durables.cleared)

    def input_handlers(self) -> dict[type[Input], Callable[..., None]]:
        inputs = (ClientUp, ClientDown, Subscribe, Unsubscribe, Acknowledge, Forget)
        return {
            **dict.fromkeys(inputs, self.client),
            Request: self._request,
            Denied: self._denied,
            UserShares: self._set_shares,
            RightsChanged: lambda given, now_ns: self.shared.rights_changed(given.session, now_ns),
        }

    def _set_shares(self, given: UserShares, now_ns: int) -> None:
        self.users.shares = given

    def _denied(self, given: Denied, now_ns: int) -> None:
        """A client was not given an event: a group has it for another member, what is kept for one owner passes on."""
        if not given.is_handed:
            self._records.denied(given.frame, given.session, given.rule, now_ns)
        for number in given.subscriptions:
            if not self.shared.hand_back(given.session, number, given.frame, now_ns):
                self.durables.deny(given.session, number, given.frame, now_ns)

    def _request(self, given: Request, now_ns: int) -> None:
        try:
            self.requests.request(given, now_ns)
        except LocalProtocolError as error:
            self._effects.append(Unanswered(given.session, given.number, 0, error.code, str(error)))

    def _is_wanted(self, event: Event, now_ns: int) -> bool:
        """Whether anybody may want an event that is published here."""
        if self._interest.destinations(event, self._host, now_ns):
            return True
        return bool(self._clients.matching(event, self._host))

    def receive(self, frame: EventFrame, now_ns: int) -> None:
        """An event for a place here."""
        for place in map(place_of, frame.section.to):
            if place is not None and place.unit == self._host and place.who.startswith(MARK):
                self.requests.arrived(place.who, frame)
                return
        self.post.arrived(frame, now_ns)

    def client(self, given: ClientInput, now_ns: int) -> None:
        """What a client asks for; a refusal if it cannot be."""
        try:
            if isinstance(given, Subscribe) and self._is_taken(given):
                raise LocalProtocolError(
                    f"subscription {given.subscription}: the session has one of this number; end that, or use another"
                )
            if not self._was_suspended(given) and not self._durable(given, now_ns):
                self._plain(given, now_ns)
        except (LocalProtocolError, InvalidConstraint) as error:
            subscription = None if isinstance(given, ClientUp | ClientDown) else given.subscription
            self._effects.append(ClientRefused(given.session, subscription, error.code, str(error)))

    def asked(self, session: int, subscription: int) -> tuple[str, Constraint, int] | None:
        """Engine, constraint and scope of a subscription, ordinary, kept or shared; None if there is none."""
        key = (session, subscription)
        if self._clients.has(*key):
            want = self._clients.want(*key)
            return want.engine, want.constraint, want.scope
        return self.durables.asked(*key) or self.shared.asked(*key)

    def asked_by(self, session: int, subscription: int) -> tuple[Want, str] | None:
        """What a subscription asks for, and whose it is; None if there is none."""
        if self._clients.has(session, subscription):
            user = self.users.of(session, self._clients.client_id(session))
            return self._clients.want(session, subscription), user
        durable = self.durables.read_by(session, subscription)
        if durable is None:
            return None
        return make_want(durable.engine, durable.constraint, durable.scope), durable.owner

    def suspend(self, session: int, subscription: int, missed: int, reason: str, now_ns: int) -> None:
        """Evaluating a subscription costs too much: its client is told. A durable one rests, another is ended soon."""
        durable = self.durables.read_by(session, subscription)
        if durable is not None:
            self.durables.rest(durable, reason, now_ns)
            return
        text = f"subscription {subscription} is suspended: {reason}; {CHEAPER}"
        state = SubscriptionState(session, subscription, missed, RefusalCode.WORK, text)
        self._effects.append(state)
        if self._records.is_on:
            self._records.suspended(session, subscription, now_ns)
        suspended = self._suspended.setdefault(session, {})
        suspended[subscription] = None
        if len(suspended) > MAX_SUSPENDED:
            del suspended[next(iter(suspended))]

    def end_suspended(self, session: int, subscription: int, now_ns: int) -> None:
        """End a subscription that was suspended, if it is still there."""
        if self._clients.has(session, subscription):
            self._profiles.client(Unsubscribe(session, subscription), now_ns)

    def _was_suspended(self, given: ClientInput) -> bool:
        """Whether a client ends what was ended already, or uses its number for something else; noted once."""
        if not self._suspended or not isinstance(given, Subscribe | Unsubscribe):
            return False
        found = self._suspended.get(given.session, {})
        if given.subscription not in found:
            return False
        del found[given.subscription]
        return isinstance(given, Unsubscribe)

    def _is_taken(self, given: Subscribe) -> bool:
        """Whether its session has a subscription of the same number, ordinary or kept."""
        key = (given.session, given.subscription)
        return self.durables.read_by(*key) is not None or self._clients.has(*key)

    def _plain(self, given: ClientInput, now_ns: int, was_accepted: bool = False) -> None:
        if isinstance(given, ClientDown):
            self.durables.closed(given.session, now_ns)
            self.shared.closed(given.session, now_ns)
            self.requests.detach(given.session)
            self.presented.left(given.session)
            self._publishers.farewell(given.session)
            self._leave_evaluations(given.session, now_ns)
            self.users.left(given.session)
            self._before.detach(given.session)
            self._outlet.detach(given.session, now_ns)
        if isinstance(given, ClientUp):
            self.presented.hold(given.user or given.client_id, given)
        refused = self._profiles.client(given, now_ns, was_accepted)
        self._effects += refused
        if isinstance(given, ClientUp) and refused:
            self.presented.left(given.session)
        elif isinstance(given, ClientUp):
            self.users.came(given.session, given.user or given.client_id)
            reply_to = self.requests.attach(given.session)
            self._publishers.welcome(given.session, given.client_id, reply_to, now_ns)
            self._ends.attach(given.session, given.had, given.skips)
            self._outlet.attach(given)

    def _leave_evaluations(self, session: int, now_ns: int) -> None:
        """A session is over: nobody waits for what is evaluated for it."""
        self._suspended.pop(session, None)
        self._held.detach(session, now_ns)
        if session in self._clients:
            self._evaluations.drop_dead(self.users.of(session, self._clients.client_id(session)))

    def _durable(self, given: ClientInput, now_ns: int) -> bool:
        """Deal with what concerns a durable subscription; False for everything else."""
        if isinstance(given, Subscribe) and given.group:
            self._clients.client_id(given.session)  # raises when it is not open
            self.shared.subscribe(given, now_ns)
            if self._records.is_on:
                want = make_want(given.engine, given.constraint, given.scope)
                self._records.client(given, want.asked, now_ns, group_id(given.group, want))
        elif isinstance(given, Subscribe) and (given.durable or given.since_ns is not None):
            self.presented.hold(self.users.of(given.session, ""), given)
            try:
                self._subscribe(given, now_ns)
            except (LocalProtocolError, InvalidConstraint):
                self.presented.release(given.session, given.subscription)
                raise
        elif isinstance(given, Unsubscribe):
            key = (given.session, given.subscription)
            if self._records.is_on:
                self._records.left_group(*key, now_ns)
            self._before.unsubscribe(*key)
            self._held.unsubscribed(*key, now_ns)
            self.presented.release(*key)
            return self.durables.detach(*key, now_ns) or self.shared.leave(*key, now_ns)
        elif isinstance(given, Acknowledge):
            if not self.shared.acknowledge(given, now_ns):
                self.durables.acknowledge(given, now_ns)
        elif isinstance(given, Forget):
            self.durables.forget(given.session, given.subscription, now_ns)
            self.presented.release(given.session, given.subscription)
        else:
            return False
        return True

    def _subscribe(self, given: Subscribe, now_ns: int) -> None:
        """A subscription that is kept, or that has a past."""
        client_id = self._clients.client_id(given.session)
        is_new = not given.durable or (client_id, given.durable) not in self.durables.here
        is_elsewhere = bool(given.durable) and is_new and self._is_elsewhere(client_id, given, now_ns)
        has_past = is_new and not is_elsewhere and given.since_ns is not None
        if has_past:
            self.pasts.check_room(given)
        version = self._origin.new_incarnation(now_ns)
        # That its client says so is not enough.
        was_here = bool(self.durables.named((client_id, given.durable)))
        was_accepted = is_elsewhere and (was_here or self.elsewhere.is_announced(client_id))
        durable = self.durables.subscribe(
            given, client_id, version, is_elsewhere or has_past, now_ns, was_accepted=was_accepted
        )
        if given.durable:
            self._records.reads(given.session, now_ns)
        if has_past:
            self.pasts.subscribe(given, durable, now_ns)
        if is_new and given.durable:
            self.roaming.arriving(durable, given.home, now_ns)

    def flush(self, now_ns: int) -> bool:
        """Subscriptions that have all of their past are ordinary ones from now on; whether there are any."""
        self.durables.charges.flush(now_ns)
        self.durables.handing.go_on()
        passing = self.durables.handing.take_passing()
        for durable in passing:
            is_there = durable.number in self.durables.all and durable.is_passing
            if is_there and durable.is_read and not self.pasts.is_open(durable):
                ((session, subscription),) = durable.readers
                given = Subscribe(session, subscription, durable.engine, durable.constraint, durable.scope)
                self._before.inherit(session, subscription, durable.estate())
                self.durables.remove(durable, now_ns)
                self._plain(given, now_ns, was_accepted=True)
        return bool(passing)

    def _is_elsewhere(self, client_id: str, given: Subscribe, now_ns: int) -> bool:
        """Whether something may be kept for the client at another broker, or is still on its way from here."""
        if given.home is not None and given.home != self._host:
            return True
        if self.durables.named((client_id, given.durable)):
            return True
        return self.elsewhere.may_exist(client_id, now_ns)

    def keep(self, frame: EventFrame, sessions: list[int], now_ns: int) -> list[tuple[int, int]]:
        """An event is for these durable subscriptions; who is handed it at once, or once that is evaluated."""
        intake = self.durables.intake
        found = intake.keep(frame, sessions, now_ns) if frame.reliable else intake.show(frame, sessions)
        if self._records.is_on:
            self._note_kept(frame, sessions, found, now_ns)
        return found

    def stored(self, entry: Entry, now_ns: int) -> None:
        """An entry of the log for inboxes is on disk."""
        self.durables.stored(entry)
        if self._records.is_on:
            for durable in self.durables.receivers_of(entry):
                self._records.note_kept(entry.frame, durable.session, durable.name, entry.accepted_ns)

    def _note_kept(self, frame: EventFrame, sessions: list[int], handed: list[tuple[int, int]], now_ns: int) -> None:
        records = self._records
        for session in sessions:
            durable = self.durables.all.get(durable_number(session))
            if frame.reliable and durable is not None and durable.is_suspended:
                records.note(frame, What.DROPPED, now_ns, session=session, text=SUSPENDED)
            elif frame.reliable and durable is not None and durable.is_here:
                records.note_kept(frame, session, durable.name, now_ns)
                if durable.rests:
                    records.note(frame, What.WITHHELD, now_ns, session=session, text=durable.rests)
            elif not frame.reliable and durable is not None and not any(each in durable.readers for each in handed):
                text = "best effort: the client was not there, or did not read"
                records.note(frame, What.DROPPED, now_ns, session=session, text=text)

    def active(self, found: list[Active], now_ns: int) -> list[Active]:
        self.pasts.active(found, now_ns)
        return self.shared.active(self.durables.active(found, now_ns), now_ns)

    def tick(self, now_ns: int) -> None:
        self.durables.handing.tick(now_ns)
        self.durables.charges.tick(now_ns)
        self.roaming.tick(now_ns)
        self.pasts.tick(now_ns)
        self.missed.tick(now_ns)
        self.shared.tick(now_ns)
        self.requests.tick(now_ns)

    def next_wakeup(self) -> int | None:
        parts = (
            self.durables.handing, self.durables.charges, self.roaming, self.pasts, self.missed, self.shared,
            self.requests,
        )  # fmt: skip
        due = [part.next_wakeup() for part in parts]
        return min((time for time in due if time is not None), default=None)

    def statistics(self) -> DurableStatistics:
        shared = self.shared
        return replace(self.durables.statistics(), handed_back=shared.handed_back, parked=shared.parked())

    def check(self) -> None:
        self.durables.check()
        self.roaming.check()
        self.requests.check()
        self.missed.check()
        self.shared.check()
