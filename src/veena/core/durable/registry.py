"""Durable subscriptions: what their clients want is kept while they are away (CLI-05, CLI-07, FLT-05, design §7).

A durable subscription is kept at one broker, its *home*: the one where its client attached last. To the rest of the
network it is a subscription like any other, of a session of the broker's own (`session_id`); it is announced again
before anything else when the broker is started again. Every reliable event that satisfies it goes into the log, for its
inbox (`intake`, `cursor`), and counts as delivered here once it is on disk. Who is attached is handed the event at
once; who is behind is read to from the log, as fast as it acknowledges (`redelivery`).

When the client attaches elsewhere, the subscription moves there with everything that is kept for it (`handover`).

The invariant: what was kept is handed over in the order of its streams, each event until somebody acknowledges it; what
was acknowledged is not handed over again, except after a crash of this broker, and then with a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from veena.core.boundary.inputs_effects import (
    Acknowledge,
    Active,
    ClientDown,
    ClientRefused,
    ClientUp,
    Effect,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.session_id import SessionId, brokers_session, durable_number, is_clients
from veena.core.boundary.stored import STANDBY, Disk, Entry, Forgotten, Reached
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.boundary.user_shares import UserTable, user_of_client
from veena.core.delivery.evaluations import Evaluations
from veena.core.delivery.held_streams import HeldStreams
from veena.core.delivery.session_queue import Outlet
from veena.core.durable.charges import Charges
from veena.core.durable.cursor import Inbox, Reader
from veena.core.durable.home_registry import Homes
from veena.core.durable.intake import Intake, KeepsEvents
from veena.core.durable.redelivery import Handing
from veena.core.durable.statistics import DurableStatistics
from veena.core.durable.subscription import (
    Durable,
    DurableObserver,
    Key,
    State,
    restored,
)
from veena.core.interest.constraint import Want
from veena.core.interest.service import Profiles
from veena.core.messages.addresses import INTERNAL
from veena.core.messages.kinds import MAX_VERSION, STAND_IN_VERSIONS
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import Place, Stream, event_key
from veena.errors import LocalProtocolError, RefusalCode
from veena.matching.base.engine import Constraint

#: Durable subscriptions of one broker.
MAX_DURABLES = 100_000
MAX_NAME = 255


class Durables:
    """The durable subscriptions of one broker."""

    def __init__(
        self,
        profiles: Profiles,
        ledger: Ledger,
        log: KeepsEvents,
        reader: LogReader,
        outlet: Outlet,
        held: HeldStreams,
        evaluations: Evaluations,
        was_handed: Callable[[tuple[Stream, Place], int], bool],
        effects: list[Effect],
        disk: Disk,
        users: UserTable,
        now_ns: int,
    ) -> None:
        self._profiles = profiles
        self._ledger = ledger
        self._log = log
        self._effects = effects
        #: Those that are here, and all by their numbers.
        self.here: dict[Key, Durable] = {}
        self.all: dict[int, Durable] = {}
        self._by_inbox: dict[int, Durable] = {}
        self._named: dict[Key, dict[int, Durable]] = {}
        self._homes = Homes(profiles, self.new_session)
        self._readers: dict[tuple[int, int], Durable] = {}
        self._by_session: dict[int, dict[int, None]] = {}
        #: Whom to tell, in this order; `event_side` fills it, when all of them exist.
        self.observers: list[DurableObserver] = []
        self._users = users
        self.charges = Charges(users, self._tell_state, self.save)
        self.handing = Handing(
            ledger, reader, effects, outlet, held, evaluations, profiles, self.observers, self._emptied,
            self.charges.settle, self.rest,
        )  # fmt: skip
        self.intake = Intake(
            self.all, self.here, self.named, log, outlet, self.charges, self.handing, was_handed, self.observers
        )
        entries: dict[int, list[Entry]] = {}
        for entry in disk.entries:
            for inbox in entry.inboxes:
                entries.setdefault(inbox, []).append(entry)
        numbers = [number for each in disk.registered.values() for number in (*each.inboxes, each.aside)]
        self._next_number = 1 + max((*numbers, *entries), default=0)
        for registered in disk.registered.values():
            if registered.state != STANDBY:
                self._add(restored(registered, disk, entries), True, now_ns)

    # --- coming and going ---

    def subscribe(
        self,
        given: Subscribe,
        client_id: str,
        version: int,
        is_elsewhere: bool,
        now_ns: int,
        *,
        was_accepted: bool,
        owner: str = "",
    ) -> Durable:
        """Attach a session to a durable subscription, which is made if it is not here; for one that was accepted before
        no quota holds. It is charged to its reader's user, or to the owner that is given."""
        is_passing = not given.durable
        name = given.durable or f"~past/{given.session}/{given.subscription}"
        if not 0 < len(name) <= MAX_NAME or not name.isprintable() or (name.startswith(INTERNAL) and not is_passing):
            raise LocalProtocolError(f"durable name {name[:80]!r}: expected 1 to {MAX_NAME} printable characters")
        if self.read_by(given.session, given.subscription) is not None:
            raise LocalProtocolError(f"subscription {given.subscription} of {client_id}: the number is in use")
        version = self._version((client_id, name), version) if is_clients(given.session) else version
        durable = self.here.get((client_id, name))
        if durable is None:
            owner = owner or self._users.of(given.session, client_id)
            durable = self._make(given, (client_id, name), version, is_elsewhere, was_accepted, owner, now_ns)
        else:
            if is_clients(given.session):
                self.charges.give_to(durable, self._users.of(given.session, client_id))
            if (durable.engine, durable.constraint, durable.scope) != (given.engine, given.constraint, given.scope):
                self._replace(durable, given, now_ns)
            durable.version = version
            self.wake(durable)
        self.save(durable)
        first = durable.inboxes[0]
        reader = Reader(given.session, given.subscription, first.number, first.cursor)
        reader.presents(given.had, given.skips, given.ack == "manual")
        durable.readers[given.session, given.subscription] = reader
        durable.read_ns = now_ns
        self._readers[given.session, given.subscription] = durable
        self._by_session.setdefault(given.session, {})[given.subscription] = None
        if durable.level:
            self._effects.append(Active(given.session, given.subscription, durable.level))
        told = self.charges.state(durable, given.session, given.subscription) if is_clients(given.session) else None
        self._effects += [] if told is None else [told]
        self.handing.pump(durable)
        return durable

    def _version(self, key: Key, version: int) -> int:
        """The version of an attachment: later than all that are known here, whatever clock gave them."""
        known = max((each.version for each in self.named(key)), default=0)
        return version if version > known else min(known + STAND_IN_VERSIONS, MAX_VERSION)

    def _make(
        self,
        given: Subscribe,
        key: Key,
        version: int,
        is_elsewhere: bool,
        was_accepted: bool,
        owner: str,
        now_ns: int,
    ) -> Durable:
        if len(self.all) >= MAX_DURABLES:
            reason = f"this broker keeps {MAX_DURABLES} durable subscriptions already: try another one"
            raise LocalProtocolError(reason, code=RefusalCode.LIMIT)
        refused = None if was_accepted or not given.durable else self.charges.why_not_another(owner)
        if refused is not None:
            raise LocalProtocolError(refused, code=RefusalCode.LIMIT)
        start = self._log.next_offset
        numbers = [self.new_number(), self.new_number()] if is_elsewhere else [self.new_number()]
        durable = Durable(
            numbers[-1], *key, given.engine, given.constraint, given.scope, version,
            State.ARRIVING if is_elsewhere else State.HOME, [Inbox(number, start, start) for number in numbers],
        )  # fmt: skip
        durable.is_passing, durable.made, durable.owner = not given.durable, version, owner
        self._add(durable, was_accepted, now_ns)
        for number in numbers if given.durable else ():
            self._ledger.write(Reached(number, start))
        return durable

    def stand_in(self, given: Subscribe, key: Key, version: int, now_ns: int) -> Durable:
        """Be the home of a subscription in place of one that is out of reach (`standby`); nobody reads it yet."""
        durable = self._make(given, key, version, True, True, user_of_client(key[0]), now_ns)
        self.save(durable)
        return durable

    def new_session(self) -> SessionId:
        """The number of a session that is this broker's own."""
        return brokers_session(self.new_number())

    def new_number(self) -> int:
        """A number for a subscription, an inbox or a session of the broker's own."""
        self._next_number += 1
        return self._next_number - 1

    def _add(self, durable: Durable, was_accepted: bool, now_ns: int) -> None:
        """Want what it wants, in a session that does not end."""
        session = durable.session
        inputs = (
            ClientUp(session, durable.client_id),
            Subscribe(session, 1, durable.engine, durable.constraint, durable.scope),
        )
        for each in inputs:
            refused = self._profiles.client(each, now_ns, was_accepted)
            if refused:
                self._profiles.client(ClientDown(session), now_ns)
                raise LocalProtocolError(refused[0].reason, code=refused[0].why)
        self.all[durable.number] = durable
        self._named.setdefault(durable.key, {})[durable.number] = durable
        for inbox in durable.inboxes:
            self._by_inbox[inbox.number] = durable
        if not durable.is_passing:
            self.charges.enter(durable)
        if durable.is_here:
            self.here[durable.key] = durable
            if not durable.is_passing:
                self._homes.keep(durable, now_ns)
        else:
            self._profiles.moved(session, now_ns)
            self._profiles.silence(session, now_ns)

    def _replace(self, durable: Durable, given: Subscribe, now_ns: int) -> None:
        """Another constraint under the same name: what was kept stays."""
        session, old = durable.session, durable.subscription
        new = Subscribe(session, old + 1, given.engine, given.constraint, given.scope)
        refused = self._profiles.client(new, now_ns, replaces=old)
        if refused:
            raise LocalProtocolError(refused[0].reason, code=refused[0].why)
        self._profiles.client(Unsubscribe(session, old), now_ns)
        durable.engine, durable.constraint, durable.scope = given.engine, given.constraint, given.scope
        durable.subscription, durable.level = old + 1, 0

    def detach(self, session: int, subscription: int, now_ns: int) -> bool:
        """A session stops reading; the subscription stays. False when it read nothing under this number."""
        durable = self._readers.pop((session, subscription), None)
        if durable is None:
            return False
        durable.readers.pop((session, subscription)).question = None
        del self._by_session[session][subscription]
        if not self._by_session[session]:
            del self._by_session[session]
        if durable.is_passing and durable.number in self.all:
            self.remove(durable, now_ns)
        return True

    def closed(self, session: int, now_ns: int) -> None:
        for subscription in list(self._by_session.get(session, {})):
            self.detach(session, subscription, now_ns)

    def forget(self, session: int, subscription: int, now_ns: int) -> None:
        """End a durable subscription for good."""
        durable = self._readers.get((session, subscription))
        if durable is None:
            raise LocalProtocolError(f"session {session} has no durable subscription {subscription}")
        for each in self.observers:
            each.on_forgotten(durable, now_ns)
        self.remove(durable, now_ns)

    def remove(self, durable: Durable, now_ns: int) -> None:
        was_here = durable.is_here
        durable.become(State.LEFT)
        is_passing, durable.is_passing = durable.is_passing, False
        for session, subscription in list(durable.readers):
            self.detach(session, subscription, now_ns)
        if was_here:
            del self.here[durable.key]
            self._profiles.client(ClientDown(durable.session), now_ns)
            self._homes.leave(durable, now_ns)
        else:
            if durable.withdraw_ns is not None:
                self.withdraw(durable, now_ns)
            self._profiles.drop_silent(durable.session, now_ns)
        del self.all[durable.number], self._named[durable.key][durable.number]
        if not self._named[durable.key]:
            del self._named[durable.key]
        for inbox in durable.inboxes:
            del self._by_inbox[inbox.number]
        self.handing.forget(durable)
        if not is_passing:
            self.charges.remove(durable, was_here)
            self._ledger.write(Forgotten(durable.number))
            for each in self.observers:
                each.on_removed(durable)

    def leave(self, durable: Durable, now_ns: int) -> None:
        """It is somebody else's from now on. It still matches, and is told until it is withdrawn."""
        for each in self.observers:
            each.on_left(durable, now_ns)
        for session, subscription in list(durable.readers):
            self.detach(session, subscription, now_ns)
            reason = f"durable subscription {durable.name!r} of {durable.client_id} is read elsewhere now"
            if is_clients(session):
                self._effects.append(ClientRefused(session, subscription, RefusalCode.MOVED, reason))
        del self.here[durable.key]
        self.charges.left(durable)
        self._profiles.moved(durable.session, now_ns)
        self._homes.leave(durable, now_ns)

    def withdraw(self, durable: Durable, now_ns: int) -> None:
        """Of what it wants only old events are wanted here from now on."""
        durable.withdraw_ns = None
        self._profiles.silence(durable.session, now_ns)

    # --- who reads, and what it is handed ---

    def asked(self, session: int, subscription: int) -> tuple[str, Constraint, int] | None:
        """What a session reads under this number, if anything."""
        durable = self._readers.get((session, subscription))
        return None if durable is None else (durable.engine, durable.constraint, durable.scope)

    def read_by(self, session: int, subscription: int) -> Durable | None:
        """The durable subscription that a session reads under this number."""
        return self._readers.get((session, subscription))

    def rest(self, durable: Durable, reason: str, now_ns: int) -> None:
        """Evaluating a subscription costs too much: nothing more is handed over, what is kept stays, who reads it is
        told."""
        if durable.rest(reason):
            self._tell_state(durable)

    def wake(self, durable: Durable) -> None:
        """What could not be evaluated, or is being, is tried once more."""
        rested = bool(durable.rests)
        durable.go_on()
        if rested:
            self._tell_state(durable)
        self.handing.pump(durable)

    def named(self, key: Key) -> list[Durable]:
        """A client's subscription of a name as it is here, and as it was when it left, oldest first."""
        return list(self._named.get(key, {}).values())

    def set_aside(self, durable: Durable, frame: EventFrame, now_ns: int) -> int:
        """Keep an event where nobody reads it, until it is known whether it is needed; its offset."""
        if durable.aside is None:
            durable.aside = Inbox(self.new_number(), self._log.next_offset, self._log.next_offset)
            self.save(durable)
            self._ledger.write(Reached(durable.aside.number, durable.aside.front))
        self.intake.enter(durable, durable.aside, frame, now_ns)
        return durable.aside.end - 1

    def take_aside(self, durable: Durable, offset: int) -> None:
        """What is below and at this offset was looked at."""
        assert durable.aside is not None
        durable.aside.pass_over(offset)
        self.charges.settle(durable)
        self._ledger.write(Reached(durable.aside.number, offset + 1))

    def close_moved(self, durable: Durable, floor: dict[Stream, Place]) -> None:
        """No more is waited for; up to these places everything is in the older inbox, or was had. Stragglers may come
        yet: what came by itself stays known by its ids."""
        for inbox in durable.inboxes[:-1]:
            inbox.is_closed = True
        if durable.state is State.ARRIVING and floor:
            durable.live.floor.update(floor)
            self._ledger.write(Reached(durable.number, durable.live.cursor, tuple(floor.items())))
        self.set_state(durable, State.OPEN)
        self.handing.pump(durable)

    def set_state(self, durable: Durable, state: State) -> None:
        durable.become(state)
        self.save(durable)

    def acknowledge(self, given: Acknowledge, now_ns: int) -> None:
        """A client has these for good."""
        durable = self._readers.get((given.session, given.subscription))
        if durable is None:
            reason = f"session {given.session} has no durable subscription {given.subscription} to acknowledge for"
            raise LocalProtocolError(reason)
        self.handing.acknowledge(durable, ((each.publisher.encode(), *each[1:]) for each in given.ids), now_ns)

    def deny(self, session: int, subscription: int, frame: EventFrame, now_ns: int) -> None:
        """A client was not given an event, because it may not read it: the subscription passes over it."""
        durable = self._readers.get((session, subscription))
        if durable is not None and frame.reliable:
            self.handing.deny(durable, event_key(frame), now_ns)

    def stored(self, entry: Entry) -> None:
        """An entry is on disk."""
        for number in entry.inboxes:
            durable = self._by_inbox.get(number)
            if durable is not None:
                inbox = durable.inbox(number)
                inbox.stored = max(inbox.stored, entry.offset + 1)
                if durable.is_here:
                    self.handing.pump(durable)
                else:
                    for each in self.observers:
                        each.on_stored(durable)

    def receivers_of(self, entry: Entry) -> list[Durable]:
        """The subscriptions for which an entry of the log is kept."""
        return [self._by_inbox[number] for number in entry.inboxes if number in self._by_inbox]

    def save(self, durable: Durable) -> None:
        """Write a subscription down as it is now."""
        if not durable.is_passing:
            self._ledger.write(durable.registration())
            for each in self.observers:
                each.on_saved(durable)

    def _emptied(self, durable: Durable, inbox: Inbox) -> None:
        del self._by_inbox[inbox.number]
        self.save(durable)

    def cleared(self, session: int, now_ns: int) -> None:
        """A session that was clogged takes events again."""
        for subscription in self._by_session.get(session, {}):
            self.handing.pump(self._readers[session, subscription])

    def _tell_state(self, durable: Durable) -> None:
        """A subscription is suspended, or goes on: who reads it is told."""
        for session, subscription in filter(lambda key: is_clients(key[0]), durable.readers):
            self._effects.append(self.charges.state_now(durable, session, subscription))
        for each in self.observers:
            each.on_suspension(durable)

    # --- what others say ---

    def active(self, found: Iterable[Active], now_ns: int) -> list[Active]:
        """Whose subscriptions were acknowledged further: for a durable one that is everybody who reads it."""
        told: list[Active] = []
        for each in found:
            if is_clients(each.session):
                told.append(each)
                continue
            durable = self.all.get(durable_number(each.session))
            for concerned in self._homes.of(each.session) if durable is None else (durable,):
                if self._homes.rises(concerned):
                    told += [Active(*reader, concerned.level) for reader in concerned.readers]
            if durable is not None and each.level >= durable.scope:
                for observer in self.observers:
                    observer.on_active(durable, now_ns)
        return told

    def want(self, durable: Durable) -> Want:
        return self._profiles.clients.want(durable.session, durable.subscription)

    def statistics(self) -> DurableStatistics:
        suspended, users = self.charges.statistics()
        return DurableStatistics(
            len(self.all),
            len(self._readers),
            self.intake.kept,
            self.handing.handed,
            self.handing.redelivered,
            self.handing.acknowledged,
            self.handing.expired,
            self.handing.denied,
            kept_bytes=self.charges.bytes,
            suspended=suspended,
            missed=self.charges.missed,
            users=users,
        )

    def check(self) -> None:
        assert self.observers, "somebody has to forward what comes for those that left"
        self.charges.check()
        assert len(self.here) == sum(durable.is_here for durable in self.all.values())
        assert len(self._readers) == sum(len(durable.readers) for durable in self.all.values())
        for durable in self.all.values():
            assert durable.inboxes
            for inbox in durable.inboxes:
                inbox.check()
                assert self._by_inbox[inbox.number] is durable
