"""What neighbours tell each other of the network: connections, wants, receipts; taken in, passed on, told anew.

A new link begins with everything that each side knows; from then on each passes its news on to all others. A frame is
taken whole or not at all. A frame whose numbers are ahead of this broker's clock waits, and those behind it on its link
with it (`links.early`): their order is what makes an acknowledgement mean something.

The invariant: on every link wants go out before the connections that bring their units into reach, so no unit is ever
in reach with less than it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from veena.address import Address
from veena.core.boundary.inputs_effects import ClockSet, Effect
from veena.core.boundary.settings import Settings
from veena.core.boundary.signing import Signing
from veena.core.interest.service import Profiles
from veena.core.links.early import MAX_WORK, ORDERED, EarlyFrames, work_of
from veena.core.links.link import Link
from veena.core.membership.redial import ContactBook
from veena.core.schedule import Schedule
from veena.core.signing import StatementSigner
from veena.core.topology.connection import check_record
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.next_hops import Hops
from veena.core.wire.control import ConnectionRecord, Connections, Frame, Refresh
from veena.core.wire.event import EventFrame
from veena.core.wire.interest import Have, Interest
from veena.core.wire.signatures import Credentials, Proofs
from veena.errors import RemoteProtocolError, VeenaError


class Exchange:
    """One a broker."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        contacts: ContactBook,
        routes: tuple[ConnectionTable, Hops],
        links: tuple[Mapping[int, Link], Mapping[int, Link]],
        schedule: Schedule,
        refuse: Callable[[Link, VeenaError, int], None],
        effects: list[Effect],
        signing: Signing | None = None,
        grant: bytes = b"",
    ) -> None:
        self._host, self._settings = host, settings
        self._profiles, self._contacts = profiles, contacts
        self._table, self._hops = routes
        #: All links by number, and those that are greeted by their connection.
        self._links, self._by_connection = links
        self._schedule = schedule
        self._refuse = refuse
        self.statements = StatementSigner(host, settings, profiles, self._table, links[1], signing, grant, effects)
        self._early = EarlyFrames()
        #: Records that came, and that were passed on.
        self.records = self.news = 0

    def frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        return {
            Connections: self._on_connections,
            Refresh: self._on_refresh,
            Interest: self._on_interest,
            Have: self._on_have,
            Credentials: self._on_credentials,
            Proofs: self._on_proofs,
        }

    def next_wakeup(self) -> int | None:
        return self._early.next_wakeup()

    def check(self) -> None:
        self._early.check()
        self.statements.check()

    @property
    def neighbours(self) -> Mapping[int, Link]:
        """The greeted links, by their connections."""
        return self._by_connection

    # --- taking in ---

    def learn(self, record: ConnectionRecord, source: int | None, now_ns: int) -> None:
        self._schedule.control_changed()
        level = self._table.learn(record, source, now_ns)
        if level is not None:
            self._hops.invalidate(level)

    def holds_back(self, link: Link, frame: Frame) -> bool:
        """Whether a frame has to wait behind an earlier one of its link; it then does."""
        if link.number not in self._early or type(frame) not in ORDERED:
            return False
        self._early.hold(link.number, frame)
        return True

    def puts_off(self, link: Link, frame: Frame | EventFrame, now_ns: int) -> bool:
        """Let a frame wait for the next step, if it is one of statements; whether it does."""
        if not isinstance(frame, ORDERED):
            return False
        self._hold(link, frame, now_ns)
        return True

    def _on_credentials(self, link: Link, frame: Credentials, now_ns: int) -> None:
        if not self._must_wait(link, frame, now_ns):
            self.statements.credentials_came(link, frame)

    def _on_proofs(self, link: Link, frame: Proofs, now_ns: int) -> None:
        self.statements.proofs_came(link, frame)

    def _must_wait(self, link: Link, frame: Frame, now_ns: int) -> bool:
        """Whether a frame waits until its signatures may be checked; it then does."""
        wait_ns = self.statements.wait_for(link, frame, now_ns)
        if wait_ns:
            self._hold(link, frame, now_ns + wait_ns)
        return wait_ns > 0

    def _on_connections(self, link: Link, frame: Connections, now_ns: int) -> None:
        if self._must_wait(link, frame, now_ns):
            return
        for record in frame.records:
            if record.level < link.level:
                raise RemoteProtocolError(
                    f"connection {record.id:x} of level {record.level} must not cross a link of level {link.level}"
                )
            check_record(record, self._host, self._settings.fanout)
        self.records += len(frame.records)
        taken, proofs = self.statements.enter(link, frame, now_ns)
        assert isinstance(taken, Connections)
        for record in taken.records:  # only now: a frame is taken whole or not at all
            self.learn(record, link.number, now_ns)
        self.statements.keep(link, taken, proofs)
        if frame.complete:
            self._profiles.snapshot_taken(link.level)

    def _on_refresh(self, link: Link, frame: Refresh, now_ns: int) -> None:
        # What has changed since it was told everything it has heard anyway.
        if now_ns >= link.refreshed_ns + self._settings.heartbeat_ns:
            link.refreshed_ns = now_ns
            self.statements.refreshed(link)
            self.tell_everything(link, now_ns)

    def _on_interest(self, link: Link, frame: Interest, now_ns: int) -> None:
        wait_ns = self._profiles.epochs.wait_for(frame, now_ns)
        if wait_ns:
            self._hold(link, frame, now_ns + wait_ns)
        elif not self._must_wait(link, frame, now_ns):
            taken, proofs = self.statements.enter(link, frame, now_ns)
            assert isinstance(taken, Interest)
            self._profiles.handle(taken, link.number, link.level, now_ns)
            self.statements.keep(link, taken, proofs)

    def _on_have(self, link: Link, frame: Have, now_ns: int) -> None:
        wait_ns = self._profiles.epochs.wait_for_claims(frame.claims, now_ns)
        if wait_ns:
            self._hold(link, frame, now_ns + wait_ns)
            return
        if self._must_wait(link, frame, now_ns):
            return
        taken, proofs = self.statements.enter(link, frame, now_ns)
        assert isinstance(taken, Have)
        missed = self._profiles.claims.missed
        # All links of a cluster bring the same claims, so most are no news.
        self._schedule.receipt_came(self._profiles.handle_claims(taken, link.number, link.level, now_ns))
        self.statements.keep(link, taken, proofs)
        if self._profiles.claims.missed != missed:
            link.ask_again(now_ns)

    def _hold(self, link: Link, frame: Frame, until_ns: int) -> None:
        self._schedule.control_changed()
        self._early.hold(link.number, frame, until_ns)

    def tick(self, now_ns: int) -> None:
        """Take in what waited for this broker's clock to get there, as much as one step has time for."""
        handlers, work = self.frame_handlers(), MAX_WORK
        for number in self._early.due(now_ns):
            link = self._links[number]
            if work <= 0:
                return  # the others are due still
            try:
                for frame in self._early.take(number, work, now_ns):
                    work -= work_of(frame)
                    handlers[type(frame)](link, frame, now_ns)
            except VeenaError as error:
                self._refuse(link, error, now_ns)

    def clock_set(self, given: ClockSet, now_ns: int) -> None:
        """The wall clock differs from what was known; what is from ahead of it now is forgotten and asked for again."""
        if self._profiles.clock_set(given.offset_ns, now_ns):
            for link in self._by_connection.values():
                link.tell([Refresh()], now_ns)
        self._early.hurry(now_ns)
        self.tick(now_ns)

    def closed(self, link: Link) -> None:
        self._early.forget(link.number)
        self.statements.closed(link)

    # --- telling ---

    def tell_everything(self, link: Link, now_ns: int) -> None:
        self._contacts.tell_everything(link, now_ns)
        self._tell(link, self._profiles.frames(self._profiles.everything(now_ns), link.level), now_ns)
        self._tell_connections(link, self._table.everything(), now_ns, complete=True)

    def pass_on(self, news: list[tuple[ConnectionRecord, int | None]], now_ns: int) -> None:
        self.news += len(news)
        for link in list(self._by_connection.values()):
            self._tell_connections(link, [record for record, source in news if source != link.number], now_ns)

    def pass_on_wants(self, now_ns: int) -> None:
        news = self._profiles.news()
        for link in list(self._by_connection.values()) if news else ():
            told = (item for item, source in news if source != link.number)
            self._tell(link, self._profiles.frames(told, link.level), now_ns)

    def renewed(self, signing: Signing | None, grant: bytes, now_ns: int) -> None:
        """The host shows another certificate or grant with what it signs: it says that again."""
        for record in self.statements.renewed(signing, grant, now_ns):
            self.learn(record, None, now_ns)

    def _tell_connections(
        self, link: Link, records: Iterable[ConnectionRecord], now_ns: int, complete: bool = False
    ) -> None:
        # Where connections are signed, the two ends of one give each other their signatures over itself.
        own_id = None if self.statements.is_far(link) else link.connection
        self._tell(link, self._table.frames(records, link.level, own_id, complete), now_ns)

    def _tell(self, link: Link, frames: Sequence[Frame], now_ns: int) -> None:
        for frame in self.statements.signed(link, frames):
            link.send(frame, now_ns)
