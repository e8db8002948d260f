"""A broker as a pure state machine: composition only. What each part decides stands in its own module.

    Input --> Broker.handle --> link (greeting, heartbeat, suspicion, load)
                            --> topology: connection table --> map --> next hops, paths, controllers
                            --> membership (who is let in, address changes)
                            --> interest (clients' constraints, what units want)
                            --> discovery (advertisements, queries)
                            --> publishing (publishers, log) --> routing (duties) --> delivery (clients)
          <-- effects: one Send a link and input, Close, one Store an input, Deliver, Reachable / Unreachable

A rejected input leaves the state untouched; a peer that sends what it must not loses its link and nothing else suffers.
The same class runs under asyncio in production and by the thousand in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable

from veena.core.boundary.inputs_effects import (
    QUIET,
    Arrived,
    AskToSpeak,
    ClockSet,
    Close,
    Effect,
    Granted,
    Input,
    LinkDown,
    LinkLoad,
    LinkRoom,
    LinkUp,
    Merged,
    Restart,
    Send,
    Stored,
    StoreFailed,
)
from veena.core.boundary.settings import Settings, check_place
from veena.core.boundary.signing import Signing
from veena.core.boundary.stored import Disk, Identity
from veena.core.boundary.tickets import Ledger
from veena.core.delivery.match_cache import Receivers
from veena.core.discovery.service import Discovery
from veena.core.event_side import Events
from veena.core.exchange import Exchange
from veena.core.interest.service import Profiles
from veena.core.links.claimants import Claimant, Claimants, Verdict, refused, rivals_of
from veena.core.links.early import MAX_WORK, work_of
from veena.core.links.link import Link, LinkState, greeting, tell_room
from veena.core.links.monitor import Watch
from veena.core.links.relay import Courier
from veena.core.membership.redial import make_contacts
from veena.core.membership.service import Membership, Reception
from veena.core.reachability import Reach
from veena.core.schedule import CONTROL, Schedule, Timers
from veena.core.startup import Threshold
from veena.core.statistics import BrokerStatistics
from veena.core.topology.connection import establish
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.next_hops import Hops
from veena.core.wire.burst import EventBurst
from veena.core.wire.control import (
    MAX_LISTEN,
    MAX_REASON,
    Frame,
    Goodbye,
    Hello,
    ReliableBurst,
    Routed,
)
from veena.core.wire.event import EventFrame
from veena.core.wire.interest import Have
from veena.core.wire.membership import Contacts
from veena.core.wire.signatures import Credentials, Proofs
from veena.errors import LocalProtocolError, RefusalCode, RemoteProtocolError, VeenaError

#: Links of one broker: more than a broker of 64 neighbours a level and 8 levels has.
MAX_LINKS = 1024
#: Reasons for the end of a link that whoever looks after links must know of.
_TOLD = (RefusalCode.DENIED, RefusalCode.CLOCK)
#: What comes often, and after which there is often nothing to do.
_RECEIPTS = (Have, Credentials, Proofs)
#: 64 bits of chance for a nonce.
Chance = Callable[[int], int]


class Broker:
    """One broker; `chance(64)` gives 64 random bits. Without `signing` nothing is signed or checked."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        chance: Chance,
        now_ns: int,
        listen: tuple[str, ...] = (),
        joined_ns: int | None = None,
        disk: Disk | None = None,
        grant: bytes = b"",
        wall_offset_ns: int = 0,
        signing: Signing | None = None,
    ) -> None:
        check_place(identity.address, settings)
        self.identity, self.settings, self._chance = identity, settings, chance
        self.map = NetworkMap(identity.address)
        self.hops = Hops(self.map)
        self.table = ConnectionTable(self.map, settings.fanout)
        self.listen, self._grant = listen[:MAX_LISTEN], grant
        found = disk or Disk(identity)
        self.profiles = Profiles(
            self.map, settings, now_ns, found.known, joined_ns is not None, identity.incarnation, wall_offset_ns
        )
        #: What is still to be done before this broker may sleep.
        self.schedule, self.ledger = Schedule(), Ledger()
        self._links: dict[int, Link] = {}
        self._by_connection: dict[int, Link] = {}
        self.reception = Reception(
            identity,
            settings.network,
            Membership(identity, settings.fanout, settings.rules, listen, joined_ns, now_ns),
            Courier(identity.address, settings.fanout, self.hops, self._by_connection),
            (self.map, self.table),
            self._links,
            self._by_connection,
        )
        self.claimants = Claimants(settings.suspect_after_ns)
        self.contacts, self.dialler = make_contacts(
            self.map, self._by_connection, self.profiles, identity, listen, settings, grant
        )
        self._effects: list[Effect] = []
        self.exchange = Exchange(
            identity.address, settings, self.profiles, self.contacts, (self.table, self.hops),
            (self._links, self._by_connection), self.schedule, self._refuse, self._effects, signing, grant,
        )  # fmt: skip
        self.watch = Watch(
            identity.address, self.map, self.table, self._by_connection, settings.cost_hold_ns, self.exchange.learn
        )
        routes, writes = (self.map, self.hops, self.profiles, self._by_connection), (self.ledger, self._effects, found)
        self.events = Events(*routes, settings, *writes, chance, now_ns)
        self.discovery = Discovery(settings, self.profiles, self.reception, *writes, *self.events.paid_work(), now_ns)
        self._threshold = Threshold(identity, self.ledger, self._effects, self._link_up, self._arrived)
        self.table.others_speak = self.profiles.claims.others_speak
        self._reach = Reach(self.map, self.table, self._by_connection, self.events)
        self._next_load_check_ns = now_ns + settings.load_check_ns
        #: When to look for what is out of reach: a while after the map changed, four times within the patience.
        self._reconcile_at_ns: int | None = None
        self._event_frames = self.events.frame_handlers()
        self._inputs = self._input_handlers()
        self._frames = self._frame_handlers()

    def _input_handlers(self) -> dict[type[Input], Callable[..., bool | None]]:
        """Who handles an input; True where nothing is left to be done about it (`Publishers.publish_batch`)."""
        return {
            LinkUp: self._link_up,
            LinkDown: self._link_down,
            Arrived: self._arrived,
            LinkLoad: self._link_load,
            LinkRoom: lambda given, now: tell_room(self._links, given, now),
            Stored: lambda given, now: self.ledger.stored(given.ticket, now),
            StoreFailed: lambda given, now: self.ledger.failed(given.ticket, given.reason, now),
            AskToSpeak: lambda given, now: self._attend(self.reception.ask_to_speak(given, now), now),
            Granted: self._granted,
            ClockSet: self.exchange.clock_set,
            Merged: lambda given, now: self._attend(self.reception.merged(given, now), now),
            **self.events.input_handlers(),
            **self.discovery.input_handlers(self.events.sessions.client),
        }

    def _frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        return {
            Hello: self._on_hello,
            Goodbye: self._on_goodbye,
            Routed: self._on_routed,
            **self.exchange.frame_handlers(),
            Contacts: self.contacts.handle,
            **self.profiles.beyond.frame_handlers(),
            **self._event_frames,
        }

    # --- the boundary ---

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        kind, schedule = type(given), self.schedule
        self.profiles.meter.begin()
        if kind not in QUIET:
            schedule.control_changed()
        elif kind is not Arrived:
            schedule.events_passed()
        is_done = self._inputs[kind](given, now_ns)
        return self._take_effects() if is_done and schedule.take_fast_path() else self._flush(now_ns)

    def again(self, session: int, burst: EventBurst, now_ns: int) -> Receivers | None:
        """`handle` for a burst like one before: who gets it as it came; None, and nothing has changed, for others."""
        if self.schedule.work is CONTROL:
            return None
        self.schedule.events_passed()
        return self.events.publishers.again(session, burst, now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        self.profiles.meter.begin()
        self.schedule.control_changed()
        for link in list(self._links.values()):
            reason = link.tick(now_ns)
            if reason is not None:
                self._close(link, reason, now_ns)
            else:
                self.watch.judge(link, now_ns)
        if now_ns >= self._next_load_check_ns:
            self._next_load_check_ns = now_ns + self.settings.load_check_ns
            for link in self._by_connection.values():
                self.watch.announce_cost(link, now_ns)
        if self._reconcile_at_ns is not None and now_ns >= self._reconcile_at_ns:
            self._reconcile_at_ns = None
            patience, forget = self.settings.reconcile_ns, self.settings.tombstone_ns // 2
            for level in self.table.reconcile(now_ns, patience, forget, self._by_connection):
                self.hops.invalidate(level)
        self.table.has_forgotten = self.profiles.reconcile(now_ns) or self.table.has_forgotten
        self.table.expire(now_ns - self.settings.tombstone_ns)
        self._attend(self.reception.tick(now_ns), now_ns)
        self.exchange.tick(now_ns)
        self.profiles.tick(now_ns)
        self.events.tick(now_ns)
        self.contacts.tick(now_ns)
        self.discovery.tick(now_ns)
        self._effects += self.dialler.tick(now_ns)
        return self._flush(now_ns)

    def next_wakeup(self) -> int | None:
        """Not later than anything has to be done; where only events went by it may be too early.

        Events set no timer below a heartbeat, except that of links over transports that lose frames; a broker without
        links has no heartbeat.
        """
        schedule = self.schedule
        if schedule.timers is Timers.UNKNOWN:
            schedule.know_wakeup(self._next_wakeup())
        if schedule.timers is Timers.BEAT_UNKNOWN:
            beats = (link.next_wakeup() for link in self._links.values() if not link.ordered)
            schedule.know_beat(min(beats, default=None))
        lonely = None if self._by_connection else self.events.next_wakeup()
        return min((time for time in (*schedule.wakeups(), lonely) if time is not None), default=None)

    def _next_wakeup(self) -> int | None:
        due = [link.next_wakeup() for link in self._links.values() if link.ordered]
        if self._by_connection:
            due.append(self._next_load_check_ns)
        if self._reconcile_at_ns is not None:
            due.append(self._reconcile_at_ns)
        expiry = self.table.next_expiry(self.settings.tombstone_ns)
        parts = (
            self.claimants, self.reception.membership, self.profiles, self.events, self.contacts, self.dialler,
            self.discovery, self.exchange,
        )  # fmt: skip
        due += [time for time in (expiry, *(part.next_wakeup() for part in parts)) if time is not None]
        return min(due, default=None)

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            self.identity.address,
            self.identity.incarnation,
            len(self.map.reachable()),
            len(self.map.edges()),
            len(self.table),
            tuple(link.statistics() for link in self._links.values()),
            self.hops.statistics(),
            self.profiles.statistics(),
            *self.events.statistics(),
            self.exchange.records,
            self.exchange.news,
            self.exchange.statements.statistics(),
            self.discovery.statistics(),
        )

    def check(self) -> None:
        """Assert every invariant."""
        self.schedule.check()
        self.map.check()
        self.table.check()
        self.reception.membership.check()
        self.profiles.check()
        self.events.check()
        self.contacts.check()
        self.dialler.check()
        self.discovery.check()
        self.claimants.check(self._links)
        self.exchange.check()
        for number, link in self._links.items():
            assert link.number == number
            link.check()
            assert link.connection is None or self._by_connection[link.connection] is link
            assert not link.outbox, "everything goes out with the input that caused it"
        assert self._threshold.is_open or not self._links, "nobody is greeted before the identity is on disk"

    # --- inputs ---

    def _link_up(self, given: LinkUp, now_ns: int) -> None:
        self.schedule.control_changed()
        if given.link in self._links or given.link in self._threshold:
            raise LocalProtocolError(f"link {given.link} is in use: give each new connection a new number")
        if len(self._links) + len(self._threshold) >= MAX_LINKS:
            self._effects.append(Close(given.link, f"this broker has {MAX_LINKS} links already: try another"))
            return
        if not self._threshold.is_open:
            self._threshold.wait(given)
            return
        hello = greeting(self.identity, self.settings, self._chance(64), self.listen, self._grant)
        self._links[given.link] = Link(given.link, given.ordered, hello, self.settings, now_ns, given.ip)
        self._links[given.link].least_step = int(given.dialled)

    def _granted(self, given: Granted, now_ns: int) -> None:
        self._grant = given.grant
        self.contacts.granted(given.grant, now_ns)
        self.exchange.renewed(given.signing, given.grant, now_ns)

    def _link_down(self, given: LinkDown, now_ns: int) -> None:
        self._threshold.leave(given.link)
        link = self._links.get(given.link)
        if link is not None:
            self._drop(link, now_ns)

    def _link_load(self, given: LinkLoad, now_ns: int) -> None:
        link = self._links.get(given.link)
        if link is not None:
            was_clogged, link.utilisation = link.is_clogged, given.utilisation
            self.events.router.is_stale |= link.is_clogged != was_clogged

    def _arrived(self, given: Arrived, now_ns: int) -> None:
        link, schedule = self._links.get(given.link), self.schedule
        if link is None:  # closed here while its last frames were on the way, or not greeted yet
            if given.link in self._threshold:
                self._threshold.hold(given)
            return
        are_signs = not link.is_waiting
        if not are_signs:
            schedule.events_passed()
        try:
            for sent_as, frame in given.frames:
                for number, ready in link.arrive(sent_as, frame, now_ns):
                    are_signs = False
                    if type(ready) is EventFrame and not link.is_claimant:
                        schedule.events_passed()
                        self.events.arrived(link, number, ready, now_ns)
                        continue
                    self._take(link, number, ready, now_ns)
                    if link.state is LinkState.CLOSED:
                        return
        except VeenaError as error:
            self._refuse(link, error, now_ns)
            return
        if self.claimants:
            schedule.control_changed()
        elif are_signs:
            schedule.signs_came(link)
        self.watch.judge(link, now_ns)

    def _take(self, link: Link, number: int, ready: Frame | EventFrame, now_ns: int) -> None:
        """A frame whose turn it is."""
        schedule, claimant = self.schedule, self.claimants.of(link) if link.is_claimant else None
        if claimant is not None and type(ready) is not Goodbye:
            claimant.hold((number, ready))
            return
        if type(ready) is EventFrame:
            schedule.events_passed()
            self.events.arrived(link, number, ready, now_ns)
            return
        assert isinstance(ready, Frame)
        if self.exchange.holds_back(link, ready):
            return
        if type(ready) is ReliableBurst:
            schedule.events_passed()
            self.events.runs.arrived(link, number, ready, now_ns)
            return
        handler = self._frames.get(type(ready))
        if type(ready) in self._event_frames:
            schedule.events_passed()
        elif type(ready) not in _RECEIPTS:
            schedule.control_changed()
        if handler is not None:
            handler(link, ready, now_ns)
        elif self.reception.handles(ready):
            self._attend(self.reception.take(ready, link, now_ns), now_ns)
        else:
            raise RemoteProtocolError(f"{type(ready).__name__} has no place on this link")

    def _refuse(self, link: Link, error: VeenaError, now_ns: int) -> None:
        """A peer sent what it must not: it is told so, and its link is over."""
        reason = error.reply if isinstance(error, RemoteProtocolError) else str(error)
        self._close(link, reason, now_ns, error.code if error.code in _TOLD else None)

    # --- frames ---

    def _on_hello(self, link: Link, hello: Hello, now_ns: int) -> None:
        rivals = rivals_of(hello, self._by_connection.values())
        if rivals and link.state is LinkState.GREETING:
            self.claimants.wait(link, hello, rivals, now_ns).hold((1, hello))
            return
        link.greeted(hello)
        assert link.connection is not None
        self._by_connection[link.connection] = link
        self.hops.open(link.connection, hello.address)
        self.events.opened(link, now_ns)
        self.reception.membership.claim(hello.name, link.level, now_ns)
        self.hops.invalidate(link.level)  # others may have told of this connection before its Hello came
        self.exchange.learn(establish(self.identity.address, hello.address, link.level, link.connection), None, now_ns)
        self.watch.announce_cost(link, now_ns)
        self.exchange.tell_everything(link, now_ns)
        self.profiles.beyond.opened(link, now_ns)

    def _review_claimants(self, now_ns: int) -> None:
        for claimant, verdict, rivals in self.claimants.review(self._by_connection.values(), now_ns):
            if verdict is Verdict.WAIT:
                continue
            self.claimants.leave(claimant.link)
            if verdict is Verdict.REFUSE:
                self._refuse(claimant.link, refused(claimant.hello), now_ns)
                continue
            for rival in rivals:
                self._close(rival, "this neighbour was started again", now_ns)
            self._admit(claimant, now_ns)

    def _admit(self, claimant: Claimant, now_ns: int) -> None:
        """Nobody else has its address: its Hello counts, and what came behind it, in steps."""
        link, work = claimant.link, MAX_WORK
        try:
            for number, frame in claimant.held:
                if work <= 0 and self.exchange.puts_off(link, frame, now_ns):
                    continue
                work -= work_of(frame)
                self._take(link, number, frame, now_ns)
                if link.state is LinkState.CLOSED:
                    return
        except VeenaError as error:
            self._refuse(link, error, now_ns)

    def _on_goodbye(self, link: Link, frame: Goodbye, now_ns: int) -> None:
        self._effects.append(Close(link.number, f"the peer said goodbye: {frame.reason}"))
        self._drop(link, now_ns)

    def _on_routed(self, link: Link, frame: Routed, now_ns: int) -> None:
        self._attend(self.reception.take_routed(frame, now_ns), now_ns)

    # --- what follows ---

    def _attend(self, effects: list[Effect], now_ns: int) -> None:
        """What the reception decided; before a restart under a new address every link is closed."""
        if any(isinstance(effect, Restart) for effect in effects):
            for link in list(self._links.values()):
                self._close(link, "this broker has a new address: connect again", now_ns)
        self._effects += effects

    def _close(self, link: Link, reason: str, now_ns: int, why: RefusalCode | None = None) -> None:
        """Give up a link: tell the peer why, and everybody else that the connection is over."""
        if link.state is not LinkState.CLOSED:
            link.outbox.append((0, Goodbye(reason[:MAX_REASON])))
            self._effects += [Send(link.number, tuple(link.outbox)), Close(link.number, reason, why)]
            link.outbox.clear()
            self._drop(link, now_ns)

    def _drop(self, link: Link, now_ns: int) -> None:
        link.state = LinkState.CLOSED
        self.schedule.control_changed()
        self.exchange.closed(link)
        self.claimants.leave(link)
        del self._links[link.number]
        if link.connection is not None and self._by_connection.pop(link.connection, None) is not None:
            self.hops.close(link.connection)
            self.events.closed(link.connection, now_ns)
            self.profiles.beyond.closed(link.connection, now_ns)
            level = self.table.withdraw(link.connection, now_ns)
            if level is not None:
                self.hops.invalidate(level)

    def _flush(self, now_ns: int) -> list[Effect]:
        """Pass on the news, look after the links that it concerns, and make one write a link."""
        schedule = self.schedule
        only = schedule.take_link()
        if schedule.work is CONTROL:
            schedule.begin_settling()
            self._settle(now_ns)
        if only is None:
            if self.events.flush(now_ns):
                schedule.events_passed()
            if self.events.router.resending.behind:
                schedule.timer_changed()
            self._effects += self.ledger.flush()
        for link in self._links.values() if only is None else (only,):
            if not link.ordered:
                link.acknowledge()
                if not link.is_due_known:
                    schedule.beat_changed()
            if link.outbox:
                self._effects.append(Send(link.number, tuple(link.outbox)))
                link.outbox.clear()
            if link.blocked is not None:
                schedule.control_changed()
        if schedule.work is CONTROL:
            return self._flush(now_ns)
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        effects = self._effects[:]
        self._effects.clear()  # the list is shared with the parts
        return effects

    def _settle(self, now_ns: int) -> None:
        """Something beside events happened: whoever has to know of it is told."""
        for blocked in [each for each in self._links.values() if each.blocked is not None]:
            self._close(blocked, str(blocked.blocked), now_ns)
        if self.claimants:
            self._review_claimants(now_ns)
        self.profiles.flush(now_ns)
        self.exchange.pass_on_wants(now_ns)  # before the connections that bring their units into reach
        news = self.table.take_news()
        while news:
            self.exchange.pass_on(news, now_ns)
            for record, _ in news:
                link = self._by_connection.get(record.id)
                if link is not None and (not record.up or self.watch.is_forged(link, record)):
                    # Others could not reach this end and withdrew its connection, or somebody speaks in its name: it
                    # gets a new one.
                    self._close(link, "this connection was reported as lost: connect again", now_ns)
            for link in self.watch.given_up():
                self._close(link, "nobody hears it any more", now_ns)
            news = self.table.take_news()
        self.profiles.map_changed(now_ns)
        self.contacts.flush(now_ns)
        self.discovery.flush(now_ns)
        self.dialler.flush(now_ns)
        self.profiles.beyond.flush(now_ns)
        self._effects += self.events.sessions.active(self.profiles.active(now_ns), now_ns)
        self._effects += self._reach.report(now_ns)
        if self._reconcile_at_ns is None and self.table.needs_reconciling():
            self._reconcile_at_ns = now_ns + self.settings.reconcile_ns // 4
