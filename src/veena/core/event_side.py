"""The event side of a broker, composed: publishers, the log, duties, clients and second copies.

    publish --> `publishing.log` --> `boundary.tickets` (disk) --> `routing.router`
            --> neighbours (`topology.next_hops`), and clients (`delivery.delivery`)
    copy over a link --> `routing.router`, or `publishing.replica_holder` when it is one to keep

What each decides stands in its own module; this one says who is told of what, and in which order things go out at the
end of an input: duties first, then what there is room for in the log, then what must be on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from veena.address import Unit
from veena.core.boundary.clients import AskWanted, SessionClear, SessionClogged, Unwatch
from veena.core.boundary.evaluation import Evaluated
from veena.core.boundary.explain import Explain, Trace
from veena.core.boundary.inputs_effects import Effect, Input, LogRead, Publish, PublishBatch, ReadFailed
from veena.core.boundary.settings import Settings
from veena.core.boundary.staging import ReleaseStaged
from veena.core.boundary.stored import Disk, Entry, Known
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.boundary.user_shares import UserTable
from veena.core.delivery.delivery import Ends, EndStatistics
from veena.core.delivery.evaluations import Evaluations, EvaluationStatistics
from veena.core.delivery.fast_path import PlainWay
from veena.core.delivery.held_streams import HeldStatistics, HeldStreams
from veena.core.delivery.in_flight import Flight, Run
from veena.core.delivery.match_cache import Decisions
from veena.core.delivery.session_queue import Outlet, OutletStatistics
from veena.core.discovery.doubts import AskWorker
from veena.core.durable.failover.service import Standing
from veena.core.durable.statistics import DurableStatistics
from veena.core.explain.query import Explainer
from veena.core.interest.constraint import Want
from veena.core.interest.digest import Outlined
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.publishing.batch_release import Releases
from veena.core.publishing.log import Origin
from veena.core.publishing.pending import OriginStatistics
from veena.core.publishing.publishers import Publishers
from veena.core.publishing.replica_holder import KeptCopies
from veena.core.publishing.replica_sender import Copies, CopyStatistics
from veena.core.routing.burst_router import BurstWay
from veena.core.routing.router import Router, RouterStatistics
from veena.core.routing.run_router import RunWay
from veena.core.sessions.quench import Quench, QuenchStatistics
from veena.core.sessions.sessions import Sessions
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.next_hops import Hops
from veena.core.wire.control import AntiEvent, Burst, Done, Frame, Held, Open, Refused, Release
from veena.core.wire.event import COPY, EventFrame
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent


class Events:
    """One a broker; `links` are its open links by connection id, `effects` the list that all parts add to."""

    def __init__(
        self,
        network: NetworkMap,
        hops: Hops,
        profiles: Profiles,
        links: Mapping[int, Link],
        settings: Settings,
        ledger: Ledger,
        effects: list[Effect],
        disk: Disk,
        chance: Callable[[int], int],
        now_ns: int,
    ) -> None:
        self._settings = settings
        self._host = network.host
        self._profiles = profiles
        self._ledger = ledger
        self.records = profiles.records
        self.records.restore(disk.noted, now_ns)
        self._effects = effects
        self.outlet = Outlet(settings, profiles.clients, effects, self.records)
        interest = profiles.interest
        self.decisions = Decisions(network.host, profiles.clients, interest, settings.top == "interest")
        self.evaluations = Evaluations(effects)
        self.held = HeldStreams(self, settings, self.evaluations, self.outlet, self.records)
        self.ends = Ends(
            self, network.host, profiles, self.decisions, self.outlet, self.held, ledger, effects, disk, now_ns
        )
        self.router = Router(network, hops, links, self.decisions, self.ends, settings.fanout, self.records)
        self.copies = Copies(network.host, links, settings)
        self.kept_copies = KeptCopies(network, links, settings, ledger, disk.kept)
        self.reader = LogReader(effects)
        self.origin = Origin(
            network.host, settings, self.router, self.copies, interest, ledger, self.reader, effects, disk, self._stored
        )
        self.quench = Quench(network.host, settings, profiles, effects, self._user_of)
        self.plain = plain = PlainWay(network.host, profiles, self.decisions, self.ends, self._left_behind_gates)
        self.bursts = BurstWay(network.host, settings, profiles, self.decisions, self.ends, self.router, links, effects)
        self.runs = RunWay(network.host, profiles, self.bursts, self.ends, self.router, links, effects)
        ways = (self.router, plain, self.bursts, self.runs)
        self.publishers = Publishers(network.host, settings, profiles, self.decisions, self.origin, *ways, effects)
        self.releases = Releases(network.host, profiles, self.decisions, self.origin, self.router, ledger, effects)
        services = (self.publishers, self.origin, self.ends, self.outlet, ledger, self.reader, self.evaluations)
        sessions = Sessions(network.host, settings, profiles, *services, effects, disk, chance, now_ns)
        self.sessions = sessions
        #: Units out of reach, and since when.
        self._lost_ns: dict[Unit, int] = {}
        #: Units that a former life of this broker knew, and this one has not met: how long it was dead nobody says.
        self._unmet: dict[Unit, None] = dict.fromkeys(disk.known)
        self.explainer = Explainer(
            network.host, settings, self.records, self.router, self.origin, self.sessions.post, effects,
            profiles.all_known, self._lost_ns.get, lambda session: session in profiles.clients,
            profiles.is_ready, self._user_of,
        )  # fmt: skip
        self.standing = Standing(
            network, settings, sessions.durables, sessions.roaming, sessions.post, self.origin, self.router, ledger,
            self.reader, disk, now_ns,
        )  # fmt: skip
        self._next_look_ns = 0
        self._connect_parts()

    def _user_of(self, session: int) -> str:
        """Whose session it is."""
        return self.sessions.users.of(session, "")

    def _connect_parts(self) -> None:
        """Give the parts what they need of parts that were made after them."""
        sessions = self.sessions
        # They are told in this order; nobody was told of anything before.
        observers = (sessions.roaming, sessions.shared, self.standing.telling, self.standing.standbys)
        sessions.durables.observers.extend(observers)
        if self._settings.copies == 2:
            self.router.duties.observers.append(self.standing.served)
        self.origin.plain, self.origin.runs = self.plain, self.runs
        self.router.looks_again = self._looks_again
        self.router.may_enter = self._profiles.leases.may_enter
        self.kept_copies.acknowledge = self.router.duties.acknowledge
        self.kept_copies.adopt = self.origin.adopt

    def _looks_again(self, connection: int, flight: Flight, now_ns: int) -> bool:
        """The near gatekeeper's second look, with the wants of the unit beyond the link."""
        origin = flight.frame.origin_address or self._host
        if self._profiles.beyond.is_blind(connection, origin, now_ns):
            return True
        try:
            is_old = bool(flight.adopted | flight.late) or self.decisions.is_old(flight.frame, now_ns)
            return self._profiles.beyond.wants(connection, flight.event(), origin, now_ns, is_old=is_old)
        except InvalidEvent:
            return False

    def _left_behind_gates(self, wanted: Sequence[int], events: Sequence[Outlined], now_ns: int) -> list[int]:
        """The same look for many plain events that are published here (`Router.left_behind_gates`)."""
        beyond = self._profiles.beyond

        def ask(connection: int, numbers: list[int]) -> list[bool] | None:
            found = beyond.wants_batch(connection, [events[at] for at in numbers], now_ns)
            beyond.stopped(0 if found is None else found.count(False))
            return found

        return self.router.left_behind_gates(wanted, ask, now_ns)

    # --- what the ends pass on (`ends.EventSide`) ---

    def receive(self, frame: EventFrame, now_ns: int) -> None:
        self.standing.dealing_with(frame)
        try:
            self.sessions.receive(frame, now_ns)
        finally:
            self.standing.dealing_with(None)

    def keep(self, frame: EventFrame, sessions: list[int], now_ns: int) -> list[tuple[int, int]]:
        self.standing.dealing_with(frame)
        try:
            return self.sessions.keep(frame, sessions, now_ns)
        finally:
            self.standing.dealing_with(None)

    def group_event(self, session: int, frame: EventFrame, now_ns: int) -> None:
        self.standing.dealing_with(frame)
        try:
            self.sessions.shared.on_group_event(session, frame, now_ns)
        finally:
            self.standing.dealing_with(None)

    def asked(self, session: int, subscription: int) -> tuple[Want, str] | None:
        return self.sessions.asked_by(session, subscription)

    def suspend(self, session: int, subscription: int, missed: int, reason: str, now_ns: int) -> None:
        self.sessions.suspend(session, subscription, missed, reason, now_ns)

    def end_suspended(self, session: int, subscription: int, now_ns: int) -> None:
        self.sessions.end_suspended(session, subscription, now_ns)

    def must_wait(self, flight: Flight) -> bool:
        return self.standing.must_wait(flight)

    def places_saved(self, flights: list[Flight], now_ns: int) -> None:
        self.router.delivered(self.standing.safe(flights), now_ns)

    def bursts_saved(self, offsets: list[int], runs: list[Run], now_ns: int) -> None:
        self.origin.bursts_served(offsets, now_ns)
        for run in runs:
            self.router.run_delivered(run, now_ns)

    def _stored(self, entry: Entry, now_ns: int) -> None:
        self.sessions.stored(entry, now_ns)

    # --- what comes in ---

    def frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        router = self.router
        return {
            Burst: self.bursts.arrived,
            Done: self._on_done,
            Refused: router.on_refused,
            Held: lambda link, frame, now: router.on_held(link, frame.units, now),
            Open: lambda link, frame, now: router.on_open(link, frame.units, now),
            AntiEvent: lambda link, frame, now: None,  # a copy is taken back before it is sent, or not at all
            Release: lambda link, frame, now: self.kept_copies.release(link, frame),
        }

    def input_handlers(self) -> dict[type[Input], Callable[..., bool | None]]:
        return {
            SessionClogged: self.outlet.clog,
            SessionClear: self.outlet.clear,
            AskWanted: self.quench.ask,
            Unwatch: self.quench.unwatch,
            Explain: self.explainer.ask,
            Trace: self.explainer.ask,
            LogRead: self.reader.on_read,
            ReadFailed: self.reader.on_failed,
            Evaluated: self.evaluations.on_evaluated,
            Publish: self._publish,
            PublishBatch: self.publishers.publish_batch,
            ReleaseStaged: self.releases.release,
            **self.sessions.input_handlers(),
        }

    def paid_work(self) -> tuple[UserTable, AskWorker]:
        """The users, and what has the worker evaluate something at the expense of one."""
        return self.sessions.users, self.evaluations.ask

    def arrived(self, link: Link, number: int, frame: EventFrame, now_ns: int) -> None:
        """An event frame came over a link."""
        if frame.flags & COPY:
            self.kept_copies.keep(link, number, frame)
        else:
            self.router.arrived(link, number, frame, now_ns)

    def _on_done(self, link: Link, frame: Done, now_ns: int) -> None:
        self.router.on_done(link, frame, now_ns)
        self.copies.on_done(link, frame, now_ns)

    def opened(self, link: Link, now_ns: int) -> None:
        """A connection was made."""
        link.on_sent = self._on_sent
        if self.records.is_on:
            link.on_lost = self._on_lost
        self.router.is_stale = True
        self.copies.changed(now_ns)

    def _on_sent(self, connection: int, ticket: int, number: int, now_ns: int) -> None:
        """An event that had to wait for room on a link has its number now."""
        self.router.numbered(connection, ticket, number, now_ns)
        self.copies.numbered(connection, ticket, number)

    def _on_lost(self, frame: EventFrame, expired: bool, now_ns: int) -> None:
        """A best-effort event that waited for room on a link will not go."""
        what, text = (What.EXPIRED, "") if expired else (What.DROPPED, "best effort: the link had no room")
        self.records.note(frame, what, now_ns, units=self.router.units(frame.to_serve), text=text)

    def closed(self, connection: int, now_ns: int) -> None:
        self.router.closed(connection, now_ns)
        self.bursts.closed(connection)
        self.copies.changed(now_ns)

    def _publish(self, given: Publish, now_ns: int) -> None:
        self.publishers.publish(given, now_ns)

    def reach_changed(self, found: list[Unit], lost: list[Unit], now_ns: int) -> None:
        """Units came into reach or left it. After an absence inside an own unit others hold a backlog for us."""
        self.standing.reach_changed()
        if found:  # who was apart from us has not heard, for a while, what we have
            self.decisions.wary_until_ns = now_ns + self._settings.lease_ns
        for unit in lost:
            self._lost_ns[unit] = now_ns
        for unit in found:
            since = self._lost_ns.pop(unit, now_ns)
            was_dead = self._unmet.pop(unit, unit) is None
            if len(unit) > 1 and (was_dead or now_ns - since >= self._settings.absent_after_ns):
                self.ends.gather(self._settings.merge_ns, now_ns)

    def _look_after_the_absent(self, now_ns: int) -> None:
        for flight, mask in self.router.overdue(now_ns - self._settings.absent_after_ns):
            flight.adopted |= mask
            self.origin.look_after(flight, mask, now_ns)

    def tick(self, now_ns: int) -> None:
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + self._settings.heartbeat_ns
            self._look_after_the_absent(now_ns)
            self._ledger.write_again()
            self.reader.read_again()
            self.router.sweep(now_ns)
            self.copies.tick(now_ns)
            self.kept_copies.tick(now_ns)
        self.ends.tick(now_ns)
        self.held.tick(now_ns)
        self.evaluations.tick(now_ns)
        self.origin.tick(now_ns)
        self.sessions.tick(now_ns)
        self.standing.tick(now_ns)
        self.quench.tick(now_ns)
        self.explainer.tick(now_ns)
        self.ends.expire(now_ns - 2 * self._settings.retention_ns)

    def flush(self, now_ns: int) -> bool:
        """The end of an input; whether it changed what clients want."""
        self.router.flush(now_ns)
        self.origin.pump(now_ns)
        self.held.end_some(now_ns)
        has_changed = self.sessions.flush(now_ns)
        self.standing.flush(now_ns)
        self.ends.flush()
        if self.quench.is_watched:
            self.quench.look(now_ns)
        known = self._profiles.leases.take_known()
        if known is not None:
            self._ledger.write(Known(known))
        if self.records.is_on:
            noted = self.records.take(self._effects, now_ns)
            if noted is not None:
                self._ledger.write(noted)
        return has_changed

    def next_wakeup(self) -> int | None:
        is_busy = len(self.router.duties) or self.copies.is_busy or len(self.kept_copies) or self.reader.must_read_again
        look = self._next_look_ns if is_busy else None
        parts = (
            self.router, self.origin, self.ends, self.held, self.evaluations, self.sessions, self.standing, self.quench,
            self.explainer,
        )  # fmt: skip
        return min((time for time in (look, *(part.next_wakeup() for part in parts)) if time is not None), default=None)

    def statistics(
        self,
    ) -> tuple[
        RouterStatistics,
        OriginStatistics,
        CopyStatistics,
        EndStatistics,
        OutletStatistics,
        QuenchStatistics,
        DurableStatistics,
        EvaluationStatistics,
        HeldStatistics,
    ]:
        copies = self.copies.statistics(len(self.kept_copies), self.kept_copies.bytes)
        parts = (self.ends.statistics(), self.outlet.statistics(), self.quench.statistics(), self.sessions.statistics())
        outside = (self.evaluations.statistics(), self.held.statistics())
        return self.router.statistics, self.origin.statistics(), copies, *parts, *outside

    def check(self) -> None:
        self.router.check()
        self.origin.check()
        self.copies.check()
        self.ends.check()
        self.outlet.check()
        self.held.check()
        self.evaluations.check()
        self.quench.check()
        self.sessions.check()
        self.standing.check()
        self.explainer.check()
        self.decisions.check()
