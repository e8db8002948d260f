"""What neighbours tell each other of the network: connections, wants, receipts; taken in, passed on, told anew.

A new link begins with everything that each side knows; from then on each passes its news on to all others. A frame is
taken whole or not at all. A frame whose numbers are ahead of this broker's clock waits, and those behind it on its link
with it (`links.early`): their order is what makes an acknowledgement mean something.

The invariant: on every link wants go out before the connections that bring their units into reach, so no unit is ever
in reach with less than it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veena.address import Address
from veena.core.boundary.inputs_effects import ClockSet
from veena.core.boundary.settings import Settings
from veena.core.interest.service import Profiles
from veena.core.links.early import ORDERED, EarlyFrames
from veena.core.links.link import Link
from veena.core.membership.redial import ContactBook
from veena.core.schedule import Schedule
from veena.core.topology.connection import check_record
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.next_hops import Hops
from veena.core.wire.control import ConnectionRecord, Connections, Frame, Refresh
from veena.core.wire.interest import Have, Interest
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
    ) -> None:
        self._host, self._settings = host, settings
        self._profiles, self._contacts = profiles, contacts
        self._table, self._hops = routes
        #: All links by number, and those that are greeted by their connection.
        self._links, self._by_connection = links
        self._schedule = schedule
        self._refuse = refuse
        self._early = EarlyFrames()
        #: Records that came, and that were passed on.
        self.records = self.news = 0

    def frame_handlers(self) -> dict[type[Frame], Callable[..., None]]:
        return {
            Connections: self._on_connections,
            Refresh: self._on_refresh,
            Interest: self._on_interest,
            Have: self._on_have,
        }

    def next_wakeup(self) -> int | None:
        return self._early.next_wakeup()

    def check(self) -> None:
        self._early.check()

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

    def _on_connections(self, link: Link, frame: Connections, now_ns: int) -> None:
        for record in frame.records:
            if record.level < link.level:
                raise RemoteProtocolError(
                    f"connection {record.id:x} of level {record.level} must not cross a link of level {link.level}"
                )
            check_record(record, self._host, self._settings.fanout)
        self.records += len(frame.records)
        for record in frame.records:  # only now: a frame is taken whole or not at all
            self.learn(record, link.number, now_ns)
        if frame.complete:
            self._profiles.snapshot_taken(link.level)

    def _on_refresh(self, link: Link, frame: Refresh, now_ns: int) -> None:
        # What has changed since it was told everything it has heard anyway.
        if now_ns >= link.refreshed_ns + self._settings.heartbeat_ns:
            link.refreshed_ns = now_ns
            self.tell_everything(link, now_ns)

    def _on_interest(self, link: Link, frame: Interest, now_ns: int) -> None:
        wait_ns = self._profiles.epochs.wait_for(frame, now_ns)
        if wait_ns:
            self._hold(link, frame, now_ns + wait_ns)
        else:
            self._profiles.handle(frame, link.number, link.level, now_ns)

    def _on_have(self, link: Link, frame: Have, now_ns: int) -> None:
        wait_ns = self._profiles.epochs.wait_for_claims(frame.claims, now_ns)
        if wait_ns:
            self._hold(link, frame, now_ns + wait_ns)
            return
        # All links of a cluster bring the same claims, so most are no news.
        self._schedule.receipt_came(self._profiles.handle_claims(frame, link.number, link.level, now_ns))

    def _hold(self, link: Link, frame: Frame, until_ns: int) -> None:
        self._schedule.control_changed()
        self._early.hold(link.number, frame, until_ns)

    def tick(self, now_ns: int) -> None:
        """Take in what waited for this broker's clock to get there."""
        handlers = self.frame_handlers()
        for number in self._early.due(now_ns):
            link = self._links[number]
            try:
                for frame in self._early.take(number):
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

    # --- telling ---

    def tell_everything(self, link: Link, now_ns: int) -> None:
        self._contacts.tell_everything(link, now_ns)
        link.tell(self._profiles.frames(self._profiles.everything(now_ns), link.level), now_ns)
        link.tell(self._table.frames(self._table.everything(), link.level, link.connection, True), now_ns)

    def pass_on(self, news: list[tuple[ConnectionRecord, int | None]], now_ns: int) -> None:
        self.news += len(news)
        for link in list(self._by_connection.values()):
            told = (record for record, source in news if source != link.number)
            link.tell(self._table.frames(told, link.level, link.connection), now_ns)

    def pass_on_wants(self, now_ns: int) -> None:
        news = self._profiles.news()
        for link in list(self._by_connection.values()) if news else ():
            told = (item for item, source in news if source != link.number)
            link.tell(self._profiles.frames(told, link.level), now_ns)
