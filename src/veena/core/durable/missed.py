"""What subscriptions missed while somebody lied about what this broker wants: origins are asked for it again.

    lie heard, answered --> quiet for a while --> AskMissed to everybody --> each reads its log: Missed
    lie about a larger unit: its speaker says Mistold to every broker of the unit, and each of these asks

An origin that believed a lie has accepted events without a duty towards those who were lied about; a relay may have
done a duty too early in the same way. Nobody but the one who was lied about knows the truth and the time
(`trust.contradictions`). It asks every origin for what was accepted in that time and is, by the interest map of
today, for its unit; answers go to it alone. What it has had already it drops by the ids that it remembers; the rest is
handed to those subscriptions that were there when the event was accepted, marked as late. So who unsubscribed and
subscribed again is given nothing old, and nobody is given anything twice.

A question names a time by how long ago it was, so clocks need not agree. Logs are read in slices.

The invariant: a broker reads its log for each asker once at a time; the last question of those that came meanwhile is
answered next.

Rejected: a mark on the corrected row that lets every origin look again by itself (relays that had done their duty too
early are found by nobody, and a row that was told honestly would have to prove it); sending the events again on the
ordinary way (brokers around would hand them to whoever has subscribed since).
"""

from __future__ import annotations

from collections.abc import Sequence

from veena.address import Address, as_seen
from veena.core.boundary.settings import MILLISECOND_NS, READ_BATCH, Settings
from veena.core.boundary.stored import Entry
from veena.core.boundary.tickets import LogReader
from veena.core.delivery.delivery import Ends
from veena.core.delivery.in_flight import Flight
from veena.core.interest.service import Profiles
from veena.core.messages.addresses import INTERNAL, broker_id, everybody_id
from veena.core.messages.kinds import AskMissed, Missed, Mistold
from veena.core.messages.mailbox import Post
from veena.core.publishing.log import Origin
from veena.core.wire.event import BACKLOG, EventCodec
from veena.core.wire.event_id import event_key
from veena.errors import InvalidEvent, VeenaError

#: Brokers whose questions are answered at a time: more than a super-cluster has.
MAX_ASKERS = 1024


class MissedEvents:
    """What this broker's subscriptions missed, and what others missed as far as it lies in this broker's log."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        ends: Ends,
        post: Post,
        log: Origin,
        reader: LogReader,
    ) -> None:
        self._host = host
        self._settings = settings
        self._profiles = profiles
        self._ends = ends
        self._post = post
        self._log = log
        self._reader = reader
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        #: Who is being answered, with the next question of each.
        self._answering: dict[Address, AskMissed | None] = {}
        self.asked = self.recovered = 0
        post.deals_with(Mistold, self._on_mistold)
        post.deals_with(AskMissed, self._on_ask)
        post.deals_with(Missed, self._on_missed)

    # --- who asks ---

    def tick(self, now_ns: int) -> None:
        """Ask for what was missed while lies were told that are over now."""
        for level, since_ns in self._profiles.contradictions.take(now_ns):
            age_ms = _age_ms(since_ns, now_ns)
            if level:
                unit = self._host[: len(self._host) - level]
                self._post.send(everybody_id(unit), Mistold(level, age_ms), now_ns)
            else:
                self._ask(age_ms, now_ns)

    def _ask(self, age_ms: int, now_ns: int) -> None:
        self.asked += 1
        scope = self._profiles.clients.widest_scope()
        if scope:
            unit = self._host[: len(self._host) - scope]
            self._post.send(everybody_id(unit), AskMissed(age_ms), now_ns)

    def _on_mistold(self, message: Mistold, origin: Address, now_ns: int) -> None:
        if origin[: len(origin) - message.level] == self._host[: len(self._host) - message.level]:
            self._ask(message.age_ms, now_ns)

    def _on_missed(self, message: Missed, origin: Address, now_ns: int) -> None:
        try:
            frame = self._codec.read(message.frame)
            frame.event()  # its tail may be broken too
        except VeenaError:
            return
        accepted_ns = now_ns - message.age_ms * MILLISECOND_NS
        begun = self._profiles.contradictions.had_begun

        def had_begun(session: int, subscription: int) -> bool:
            return begun(session, subscription, accepted_ns)

        self.recovered += self._ends.hand_missed(Flight(event_key(frame), frame, now_ns), had_begun, now_ns)

    # --- who is asked ---

    def _on_ask(self, message: AskMissed, origin: Address, now_ns: int) -> None:
        if origin == self._host:
            return  # its own events it matches with its own subscriptions
        if origin in self._answering:
            self._answering[origin] = message
        elif len(self._answering) < MAX_ASKERS:
            self._answering[origin] = None
            since_ns = max(0, now_ns - message.age_ms * MILLISECOND_NS)
            self._read(origin, since_ns, 0, self._log.next_offset)

    def _read(self, asker: Address, since_ns: int, offset: int, until: int) -> None:
        """Answer from the log, up to when the question came: the lie was over by then."""
        bit = self._profiles.interest.bit(as_seen(self._host, asker))

        def found(entries: Sequence[Entry], now_ns: int) -> None:
            for entry in entries:
                if entry.offset < until and self._is_for(entry, bit, now_ns):
                    age_ms = _age_ms(entry.accepted_ns, now_ns)
                    self._post.send(broker_id(asker), Missed(age_ms, self._codec.encode(entry.frame, 0)), now_ns)
            if len(entries) == READ_BATCH and entries[-1].offset < until:
                self._read(asker, since_ns, entries[-1].offset + 1, until)
            else:
                self._answered(asker, now_ns)

        def failed(reason: str, now_ns: int) -> None:
            self._answered(asker, now_ns)

        self._reader.read(offset, READ_BATCH, found, since_ns=since_ns, otherwise=failed)

    def _answered(self, asker: Address, now_ns: int) -> None:
        message = self._answering.pop(asker)
        if message is not None:
            self._on_ask(message, asker, now_ns)

    def _is_for(self, entry: Entry, bit: int, now_ns: int) -> bool:
        """Whether clients in the asker's unit may want what this broker accepted. Messages of brokers are left out."""
        frame = entry.frame
        if entry.inboxes or frame.flags & BACKLOG or not frame.reliable or frame.publisher.startswith(INTERNAL):
            return False
        ttl_ms = frame.ttl_after(now_ns - entry.accepted_ns)
        try:
            return ttl_ms > 0 and bool(self._profiles.interest.ever(frame.event(), self._host, now_ns) & bit)
        except InvalidEvent:
            return False

    def next_wakeup(self) -> int | None:
        return self._profiles.contradictions.next_wakeup()

    def check(self) -> None:
        assert len(self._answering) <= MAX_ASKERS


def _age_ms(since_ns: int, now_ns: int) -> int:
    """How long ago something was; more rather than less."""
    return max(0, -((since_ns - now_ns) // MILLISECOND_NS))
