"""A broker as a pure state machine: composition only. What each part decides stands in its own module.

    Input --> Broker.handle --> link (greeting, heartbeat, suspicion, load)
                            --> dissemination (connection table) --> map --> hops, paths, controllers
                            --> reception (who is let in, address changes)
                            --> profiles (clients' wants, what units want)
          <-- effects: one Send a link and input, Close, Store, Reachable / Unreachable

A rejected input leaves the state untouched; a peer that sends what it must not loses its link and nothing else suffers.
The same class runs under asyncio in production and by the thousand in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veena.address import Unit, check_unit, format_address
from veena.core.boundary import (
    Arrived,
    AskToSpeak,
    ClientDown,
    ClientInput,
    ClientUp,
    Close,
    Effect,
    Identity,
    Input,
    LinkDown,
    LinkLoad,
    LinkUp,
    Merged,
    Reachable,
    Restart,
    Send,
    Store,
    Stored,
    StoreFailed,
    Subscribe,
    Unreachable,
    Unsubscribe,
)
from veena.core.broker_statistics import BrokerStatistics
from veena.core.connection import ABSENT, check_record, establish, with_cost
from veena.core.courier import Courier
from veena.core.dissemination import ConnectionTable
from veena.core.frames import (
    MAX_HEARTBEAT_MS,
    MAX_LISTEN,
    MAX_REASON,
    ConnectionRecord,
    Connections,
    Frame,
    Goodbye,
    Hello,
    Refresh,
    Routed,
)
from veena.core.hops import Hops
from veena.core.interest_frames import Interest
from veena.core.link import Link, LinkState
from veena.core.map import NetworkMap
from veena.core.membership import Membership
from veena.core.profiles import Profiles
from veena.core.reception import Reception
from veena.core.settings import Settings
from veena.core.wire_header import VERSION, VERSION_LOW
from veena.errors import LocalProtocolError, RemoteProtocolError, VeenaError

#: Links of one broker: more than a broker of 64 neighbours a level and 8 levels has.
MAX_LINKS = 1024
#: 64 bits of chance for a nonce.
Chance = Callable[[int], int]


class Broker:
    """One broker; `chance(64)` gives 64 random bits."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        chance: Chance,
        now_ns: int,
        listen: tuple[str, ...] = (),
        joined_ns: int | None = None,
    ) -> None:
        if len(identity.address) != settings.levels:
            raise LocalProtocolError(
                f"address {format_address(identity.address)} in a network of {settings.levels} levels: give it"
                f" {settings.levels} parts"
            )
        check_unit(identity.address, settings.fanout)
        self.identity = identity
        self.settings = settings
        self.map = NetworkMap(identity.address)
        self.hops = Hops(self.map)
        self.table = ConnectionTable(self.map, settings.fanout)
        self.listen = listen[:MAX_LISTEN]
        self.profiles = Profiles(self.map, settings, now_ns)
        self._chance = chance
        self._links: dict[int, Link] = {}
        self._by_connection: dict[int, Link] = {}
        self.reception = Reception(
            identity,
            settings.network,
            Membership(identity.address, identity.name, settings.fanout, settings.rules, listen, joined_ns),
            Courier(identity.address, self.hops, self._by_connection),
            (self.map, self.table),
            self._links,
            self._by_connection,
        )
        #: Links that came up before the identity was on disk: nobody is greeted until then.
        self._early: list[LinkUp] = []
        self._stored = False
        self._is_storing = False
        self._ticket = 0
        self._effects: list[Effect] = []
        self._store()
        self._shown: dict[Unit, None] = dict(self.map.reachable())
        self._shown_version = self.map.version
        self._next_load_check_ns = now_ns + settings.load_check_ns
        #: When to look for what is out of reach: a while after the map changed, four times within the patience.
        self._reconcile_at_ns: int | None = None
        self._records = 0
        self._news = 0
        self._inputs = self._input_handlers()
        self._frames = self._frame_handlers()

    def _input_handlers(self) -> dict[type[Input], Callable[..., None]]:
        return {
            LinkUp: self._link_up,
            LinkDown: self._link_down,
            Arrived: self._arrived,
            LinkLoad: self._link_load,
            Stored: self._on_stored,
            StoreFailed: self._on_store_failed,
            AskToSpeak: lambda given, now: self._attend(self.reception.ask_to_speak(given, now), now),
            Merged: lambda given, now: self._attend(self.reception.merged(given, now), now),
            ClientUp: self._client,
            ClientDown: self._client,
            Subscribe: self._client,
            Unsubscribe: self._client,
        }

    def _frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        return {
            Hello: self._on_hello,
            Connections: self._on_connections,
            Goodbye: self._on_goodbye,
            Routed: self._on_routed,
            Refresh: self._on_refresh,
            Interest: self._on_interest,
        }

    # --- the boundary ---

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        self._inputs[type(given)](given, now_ns)
        return self._flush(now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        for link in list(self._links.values()):
            reason = link.tick(now_ns)
            if reason is not None:
                self._close(link, reason, now_ns)
            else:
                self._judge(link, now_ns)
        if now_ns >= self._next_load_check_ns:
            self._next_load_check_ns = now_ns + self.settings.load_check_ns
            for link in self._by_connection.values():
                self._announce_cost(link, now_ns)
        if self._reconcile_at_ns is not None and now_ns >= self._reconcile_at_ns:
            self._reconcile_at_ns = None
            patience, forget = self.settings.reconcile_ns, self.settings.tombstone_ns // 2
            for level in self.table.reconcile(now_ns, patience, forget, self._by_connection):
                self.hops.invalidate(level)
            self.table.has_forgotten = self.profiles.reconcile(now_ns) or self.table.has_forgotten
        self.table.expire(now_ns - self.settings.tombstone_ns)
        self._attend(self.reception.tick(now_ns), now_ns)
        self.profiles.tick(now_ns)
        return self._flush(now_ns)

    def next_wakeup(self) -> int | None:
        due = [link.next_wakeup() for link in self._links.values()]
        if self._by_connection:
            due.append(self._next_load_check_ns)
        if self._reconcile_at_ns is not None:
            due.append(self._reconcile_at_ns)
        expiry = self.table.next_expiry(self.settings.tombstone_ns)
        others = (expiry, self.reception.membership.next_wakeup(), self.profiles.next_wakeup())
        due += [time for time in others if time is not None]
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
            self._records,
            self._news,
        )

    def check(self) -> None:
        """Assert every invariant."""
        self.map.check()
        self.table.check()
        self.reception.membership.check()
        self.profiles.check()
        for number, link in self._links.items():
            assert link.number == number
            link.check()
            assert link.connection is None or self._by_connection[link.connection] is link
            assert not link.outbox, "everything goes out with the input that caused it"
        assert self._stored or not self._links, "nobody is greeted before the identity is on disk"

    # --- inputs ---

    def _on_stored(self, given: Stored, now_ns: int) -> None:
        self._check_ticket(given.ticket)
        self._stored = True
        early, self._early = self._early, []
        for up in early:
            self._link_up(up, now_ns)

    def _on_store_failed(self, given: StoreFailed, now_ns: int) -> None:
        """Nobody is greeted; the next link that comes up is a reason to try again."""
        self._check_ticket(given.ticket)
        self._is_storing = False
        for up in self._early:
            self._effects.append(Close(up.link, f"this broker could not store its identity: {given.reason}"))
        self._early.clear()

    def _store(self) -> None:
        self._ticket += 1
        self._is_storing = True
        self._effects.append(Store(self._ticket, self.identity))

    def _check_ticket(self, ticket: int) -> None:
        if ticket != self._ticket or not self._is_storing:
            raise LocalProtocolError(f"ticket {ticket} was never given out, or was answered before")

    def _link_up(self, given: LinkUp, now_ns: int) -> None:
        if given.link in self._links or any(up.link == given.link for up in self._early):
            raise LocalProtocolError(f"link {given.link} is in use: give each new connection a new number")
        if len(self._links) + len(self._early) >= MAX_LINKS:
            self._effects.append(Close(given.link, f"this broker has {MAX_LINKS} links already: try another"))
            return
        if not self._stored:
            self._early.append(given)
            if not self._is_storing:
                self._store()
            return
        hello = Hello(
            VERSION_LOW,
            VERSION,
            self.settings.network,
            self.settings.levels,
            self.settings.fanout,  # type: ignore[arg-type]  # checked by Settings
            self.identity.address,
            self.identity.incarnation,
            self._chance(64),
            min(MAX_HEARTBEAT_MS, max(1, self.settings.heartbeat_ns // 1_000_000)),
            self.listen,
            self.identity.name,
        )
        self._links[given.link] = Link(given.link, given.ordered, hello, self.settings, now_ns, given.ip)

    def _link_down(self, given: LinkDown, now_ns: int) -> None:
        self._early = [up for up in self._early if up.link != given.link]
        link = self._links.get(given.link)
        if link is not None:
            self._drop(link, now_ns)

    def _link_load(self, given: LinkLoad, now_ns: int) -> None:
        link = self._links.get(given.link)
        if link is not None:
            link.utilisation = given.utilisation

    def _arrived(self, given: Arrived, now_ns: int) -> None:
        link = self._links.get(given.link)
        if link is None:
            return  # a link that was closed here while its last frames were on the way
        try:
            for number, frame in given.frames:
                for ready in link.arrive(number, frame, now_ns):
                    handler = self._frames.get(type(ready))
                    if handler is not None:
                        handler(link, ready, now_ns)
                    elif self.reception.handles(ready):
                        self._attend(self.reception.take(ready, link, now_ns), now_ns)
                    else:
                        raise RemoteProtocolError(f"{type(ready).__name__} has no place on this link")
                    if link.state is LinkState.CLOSED:
                        return
        except VeenaError as error:
            self._close(link, error.reply if isinstance(error, RemoteProtocolError) else str(error), now_ns)
            return
        self._judge(link, now_ns)

    def _client(self, given: ClientInput, now_ns: int) -> None:
        self._effects += self.profiles.client(given, now_ns)

    # --- frames ---

    def _on_hello(self, link: Link, hello: Hello, now_ns: int) -> None:
        link.greeted(hello)
        assert link.connection is not None
        for other in [each for each in self._by_connection.values() if each.neighbour == hello.address]:
            if other.name != hello.name:
                # Two brokers were given one address, in two parts of a unit that did not hear each other.
                raise RemoteProtocolError(f"the address of {other.name!r} was given to {hello.name!r} too: join again")
            if other.incarnation < hello.incarnation:
                self._close(other, "this neighbour was started again", now_ns)
        self._by_connection[link.connection] = link
        self.hops.open(link.connection, hello.address)
        self.reception.membership.claim(hello.name, link.level, now_ns)
        self.hops.invalidate(link.level)  # others may have told of this connection before its Hello came
        self._learn(establish(self.identity.address, hello.address, link.level, link.connection), None, now_ns)
        self._tell_everything(link, now_ns)

    def _on_refresh(self, link: Link, frame: Refresh, now_ns: int) -> None:
        # What has changed since it was told everything it has heard anyway.
        if now_ns >= link.refreshed_ns + self.settings.heartbeat_ns:
            link.refreshed_ns = now_ns
            self._tell_everything(link, now_ns)

    def _on_interest(self, link: Link, frame: Interest, now_ns: int) -> None:
        self.profiles.handle(frame, link.number, link.level, now_ns)

    def _tell_everything(self, link: Link, now_ns: int) -> None:
        # Wants before connections: a unit is never in reach with less than it wants.
        self._tell(link, self.profiles.frames(self.profiles.table.everything(), link.level), now_ns)
        self._tell(link, self.table.frames(self.table.everything(), link.level, link.connection, True), now_ns)

    def _on_connections(self, link: Link, frame: Connections, now_ns: int) -> None:
        for record in frame.records:
            if record.level < link.level:
                raise RemoteProtocolError(
                    f"connection {record.id:x} of level {record.level} must not cross a link of level {link.level}"
                )
            check_record(record, self.identity.address, self.settings.fanout)
        self._records += len(frame.records)
        for record in frame.records:  # only now: a frame is taken whole or not at all
            self._learn(record, link.number, now_ns)

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

    def _learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> None:
        level = self.table.learn(record, source, now_ns)
        if level is not None:
            self.hops.invalidate(level)

    def _judge(self, link: Link, now_ns: int) -> None:
        """Suspect or clear a link by what was heard of it, and say so."""
        suspect = link.is_suspect(now_ns)
        if link.state is LinkState.OPEN and suspect:
            link.suspect(now_ns)
            self._announce_cost(link, now_ns)
        elif link.state is LinkState.SUSPECTED and not suspect:
            link.clear()
            self._announce_cost(link, now_ns)

    def _announce_cost(self, link: Link, now_ns: int) -> None:
        """Tell everybody of the context what this link costs now; load at most once in `cost_hold_ns` a link."""
        assert link.connection is not None
        assert link.neighbour is not None
        wanted, (version, announced) = link.wanted_step(), link.cost
        by_load = link.state is LinkState.OPEN and announced < ABSENT
        if wanted == announced or (by_load and now_ns < link.cost_changed_ns + self.settings.cost_hold_ns):
            return
        link.cost = (version + 1, wanted)
        if by_load:
            link.cost_changed_ns = now_ns
        known = self.table.record(link.connection)
        if known is not None:
            self._learn(with_cost(known, self.identity.address, link.neighbour, link.cost), None, now_ns)

    def _close(self, link: Link, reason: str, now_ns: int) -> None:
        """Give up a link: tell the peer why, and everybody else that the connection is over."""
        if link.state is not LinkState.CLOSED:
            link.outbox.append((0, Goodbye(reason[:MAX_REASON])))
            self._effects += [Send(link.number, tuple(link.outbox)), Close(link.number, reason)]
            link.outbox.clear()
            self._drop(link, now_ns)

    def _drop(self, link: Link, now_ns: int) -> None:
        link.state = LinkState.CLOSED
        del self._links[link.number]
        if link.connection is not None and self._by_connection.pop(link.connection, None) is not None:
            self.hops.close(link.connection)
            level = self.table.withdraw(link.connection, now_ns)
            if level is not None:
                self.hops.invalidate(level)

    def _flush(self, now_ns: int) -> list[Effect]:
        """Pass on the news, look after the links that it concerns, and make one write a link."""
        for blocked in [each for each in self._links.values() if each.blocked is not None]:
            self._close(blocked, str(blocked.blocked), now_ns)
        news = self.table.take_news()
        while news:
            self._news += len(news)
            self._pass_on(news, now_ns)
            for record, _ in news:
                link = self._by_connection.get(record.id)
                if link is not None and (not record.up or self._is_forged(link, record)):
                    # Others could not reach this end and withdrew its connection, or somebody speaks in its name: it
                    # gets a new one.
                    self._close(link, "this connection was reported as lost: connect again", now_ns)
            self._confirm_by_report(now_ns)
            news = self.table.take_news()
        self.profiles.map_changed(now_ns)
        self._pass_on_wants(now_ns)
        self._report_reach(now_ns)
        for link in self._links.values():
            link.acknowledge()
            if link.outbox:
                self._effects.append(Send(link.number, tuple(link.outbox)))
                link.outbox.clear()
        if self._reconcile_at_ns is None and self.table.needs_reconciling():
            self._reconcile_at_ns = now_ns + self.settings.reconcile_ns // 4
        effects, self._effects = self._effects, []
        return effects

    def _is_forged(self, link: Link, record: ConnectionRecord) -> bool:
        """Whether a cost is told in this end's name that it never told."""
        assert link.neighbour is not None
        mine = record.low_cost if self.identity.address < link.neighbour else record.high_cost
        return mine > link.cost

    def _pass_on(self, news: list[tuple[ConnectionRecord, int | None]], now_ns: int) -> None:
        for link in list(self._by_connection.values()):
            told = (record for record, source in news if source != link.number)
            self._tell(link, self.table.frames(told, link.level, link.connection), now_ns)

    def _pass_on_wants(self, now_ns: int) -> None:
        news = self.profiles.news()
        for link in list(self._by_connection.values()) if news else ():
            told = (item for item, source in news if source != link.number)
            self._tell(link, self.profiles.frames(told, link.level), now_ns)

    def _tell(self, link: Link, frames: Sequence[Frame], now_ns: int) -> None:
        for frame in frames:
            link.send(frame, now_ns)

    def _confirm_by_report(self, now_ns: int) -> None:
        """A suspected neighbour that nobody else reaches either is dead: a peer's report confirms (FLT-02)."""
        for link in list(self._by_connection.values()):
            if link.state is not LinkState.SUSPECTED or link.level or link.neighbour is None:
                continue
            if not self.map.neighbours(link.neighbour) and self.table.was_given_up(link.neighbour, link.heard_ns):
                self._close(link, "nobody hears it any more", now_ns)

    def _report_reach(self, now_ns: int) -> None:
        """Say which units came into reach and which were lost since the last input."""
        if self.map.version == self._shown_version:
            return
        self._shown_version = self.map.version
        reach = self.map.reachable()
        found = [Reachable(unit) for unit in reach if unit not in self._shown]
        if found and self.table.has_forgotten:
            self.table.has_forgotten = False
            for link in self._by_connection.values():
                link.send(Refresh(), now_ns)
        self._effects += found
        self._effects += [Unreachable(unit) for unit in self._shown if unit not in reach]
        self._shown = dict(reach)
