"""How parts of a unit that fell apart find each other again: contacts, and when somebody dials one (design §6).

A path to a unit never leaves the unit that encloses both (SPR-01). So a unit that comes apart inside, because the one
broker between its halves died, is two islands to itself although the network around it is whole. Its parts then dial
each other over listen addresses that they learned while they were together: a link like any other, announced one cost
step dearer, so that it is left as soon as the proper links are back.

*Contacts.* A broker tells its cluster where it listens; the speaker of a unit (the lowest of its live controllers)
tells the enclosing unit of up to four brokers in it, from as many of its parts as possible; and so on upwards. One
statement a unit is kept, the one with the highest (number, teller), and passed on once. A statement about a unit of
level l crosses no link above level l. Of two speakers of a unit in two parts each tells what it knows when that
changes, and neither answers the other, so they do not outbid each other; the last word stands until they meet.

*Dialling.* A sibling unit that has been out of reach for `dial_after_ns` is dialled by the lowest broker of the own
part, its contacts in turn, with pauses that double, and so many times only; if that does not help, the next two brokers
try as well. The side with the higher address waits a little longer, so that usually one of the two dials. Parts that
are known to live, because they speak for a unit of the host's own by a detour, come first and without waiting.

The invariants: at most four contacts a unit, each a broker of it; nobody is dialled to whom there is a link, who is in
reach, or who was not known before it was out of reach.

Rejected: a spare identifier for the part without the lowest address (every client, cursor and want of it would move,
twice); asking others for a way around (it would cross units that nobody in it wants, and breaks SPR-01).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest

from msgspec import structs

from veena.address import Address, Unit, as_seen, format_address
from veena.core.boundary.inputs_effects import Dial
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import MAX_URL
from veena.core.wire.interest import MAX_COUNT
from veena.core.wire.membership import MAX_CONTACTS, MAX_PLACE_LISTEN, MAX_STATEMENTS, Contacts, Place, Statement
from veena.errors import RemoteProtocolError

#: A transport and an address for it. Whoever dials it knows the transport; here it only has to look like one.
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,15}:[!-~]+")
#: Numbers jump at most so far: nobody tells that often in the time that others remember the last statement.
MAX_JUMP = 1 << 32
#: Pauses between two tries of one unit: the first, and the longest.
FIRST_PAUSE_NS = 5 * SECOND_NS
LONGEST_PAUSE_NS = 60 * SECOND_NS
#: About half an hour: by then what is out of reach is forgotten.
MAX_TRIES = 32
#: Brokers of one part that dial, lowest first, each this many times `dial_after_ns` later than the one before.
MAX_DIALLERS = 3
LATER = 4


@dataclass(slots=True)
class _Quest:
    """A unit that is out of reach."""

    since_ns: int
    #: Not dialled before this.
    next_ns: int = 0
    pause_ns: int = FIRST_PAUSE_NS
    tries: int = 0


class ContactBook:
    """Which brokers can be dialled, a few for each unit around the host and each of its own."""

    def __init__(
        self,
        network: NetworkMap,
        links: Mapping[int, Link],
        speaks_for: Callable[[], list[int]],
        listen: tuple[str, ...],
        incarnation: int,
        settings: Settings,
        grant: bytes = b"",
    ) -> None:
        self._map = network
        self._links = links
        self._speaks_for = speaks_for
        self._fanout = settings.fanout
        self._gather_ns = max(settings.batch_ns)
        self._statements: dict[Unit, Statement] = {}
        #: Those that `check` has gone through: they do not change.
        self._checked: dict[Unit, Statement] = {}
        self._news: list[tuple[Statement, int | None]] = []
        #: The last statement about each own unit that came by a detour, because its teller is out of reach.
        self.apart: dict[Unit, Statement] = {}
        #: By level, what this broker has told as a speaker.
        self._told: dict[int, tuple[Place, ...]] = {}
        self._map_version = -1
        #: When to look whether something has to be told.
        self._due_ns: int | None = None
        #: Counts changes of what is known.
        self.changes = 0
        #: Statements whose number nobody can have counted to.
        self.dropped = 0
        urls = tuple(url for url in listen if is_url(url))[:MAX_PLACE_LISTEN]
        self._own: tuple[Place, ...] = (Place(network.host, urls, grant),) if urls else ()
        if self._own:
            self._tell(0, self._own, max(incarnation, 1))

    def statement(self, unit: Unit) -> Statement | None:
        return self._statements.get(unit)

    def places(self, unit: Unit) -> tuple[Place, ...]:
        known = self._statements.get(unit)
        return () if known is None else known.places

    def handle(self, link: Link, frame: Contacts, now_ns: int) -> None:
        """A frame is taken whole or not at all."""
        for statement in frame.statements:
            self._check(statement, link.level)
        for statement in frame.statements:
            self._learn(statement, link.number)

    def _check(self, statement: Statement, link_level: int) -> None:
        """Raise RemoteProtocolError unless this may be told to the host over a link of this level.

        Nothing here depends on what this broker knows: what it takes, its neighbours take from it.
        """
        host, unit, size = self._map.host, statement.unit, len(statement.unit)
        name = f"contacts of {format_address(unit)}"
        if size > len(host) or unit[:-1] != host[: size - 1]:
            raise RemoteProtocolError(f"{name} must not be told to {format_address(host)}")
        if len(host) - size < link_level:
            raise RemoteProtocolError(f"{name} must not cross a link of level {link_level}")
        if statement.number > MAX_COUNT:
            raise RemoteProtocolError(f"{name} have the number {statement.number}: nobody counts so far")
        addresses = [place.address for place in statement.places]
        for address in (statement.teller, *addresses):
            if len(address) != len(host) or address[:size] != unit or max(address) >= self._fanout:
                raise RemoteProtocolError(f"{name} name {format_address(address)}, which is no broker of it")
        if len(dict.fromkeys(addresses)) < len(addresses):
            raise RemoteProtocolError(f"{name} name a broker twice")
        for place in statement.places:
            if not place.listen or not all(map(is_url, place.listen)):
                raise RemoteProtocolError(
                    f"{name}: {format_address(place.address)} listens on {place.listen}: expected transport:address"
                )

    def _learn(self, statement: Statement, source: int | None) -> None:
        known = self._statements.get(statement.unit)
        if known is not None:
            if (statement.number, statement.teller) <= (known.number, known.teller):
                return
            if statement.number > known.number + MAX_JUMP:
                self.dropped += 1
                return
        self._statements[statement.unit] = statement
        if self._map.host[: len(statement.unit)] == statement.unit and not self._reaches(statement.teller):
            self.apart[statement.unit] = statement
        self.changes += 1
        self._map_version = -1
        self._news.append((statement, source))

    # --- telling ---

    def _tell(self, level: int, places: tuple[Place, ...], number: int) -> None:
        self._told[level] = places
        self._learn(Statement(self._map.own(level), min(number, MAX_COUNT), self._map.host, places), None)

    def granted(self, grant: bytes, now_ns: int) -> None:
        """Tell others this grant of the host's from now on."""
        self._own = tuple(structs.replace(place, grant=grant) for place in self._own)
        self._due_ns = now_ns

    def tick(self, now_ns: int) -> None:
        """Tell what is due: of units that this broker speaks for, what is not known of them or no longer true."""
        if self._due_ns is None or now_ns < self._due_ns:
            return
        self._due_ns = None
        levels = self._speaks_for()
        self._told = {level: told for level, told in self._told.items() if level in levels}
        for level in levels:
            places = self._chosen(level) if level else self._own
            known = self._statements.get(self._map.own(level))
            if not places or (known is not None and known.places == places):
                continue
            if known is not None and self._told.get(level) == places and not self._reaches(known.teller):
                continue  # the other part of the unit had the last word, and says nothing wrong
            self._tell(level, places, 1 if known is None else known.number + 1)

    def _reaches(self, broker: Address) -> bool:
        return broker == self._map.host or as_seen(self._map.host, broker) in self._map.reachable()

    def _chosen(self, level: int) -> tuple[Place, ...]:
        """The contacts of the host's own unit: one of each of its parts in reach, then a second one of each."""
        size, own = self._map.levels - level + 1, self._map.own(level - 1)
        parts = sorted({own: None} | {unit: None for unit in self._map.reachable() if len(unit) == size})
        rounds = zip_longest(*(self.places(unit) for unit in parts))
        return tuple(place for place in chain.from_iterable(rounds) if place is not None)[:MAX_CONTACTS]

    def flush(self, now_ns: int) -> None:
        """Pass on the news; look again, a while later, when the map or a statement changed."""
        if self._map_version != self._map.version:
            self._map_version = self._map.version
            self.apart = {unit: told for unit, told in self.apart.items() if not self._reaches(told.teller)}
            if self._due_ns is None and self._statements:
                self._due_ns = now_ns + self._gather_ns
        if self._news:
            news, self._news = self._news, []
            for link in self._links.values():
                self._send(link, (statement for statement, source in news if source != link.number), now_ns)

    def tell_everything(self, link: Link, now_ns: int) -> None:
        """What a new link begins with."""
        self._send(link, self._statements.values(), now_ns)

    def _send(self, link: Link, statements: Iterable[Statement], now_ns: int) -> None:
        told = [each for each in statements if self._map.level(each.unit) >= link.level]
        for at in range(0, len(told), MAX_STATEMENTS):
            link.send(Contacts(tuple(told[at : at + MAX_STATEMENTS])), now_ns)

    def next_wakeup(self) -> int | None:
        return self._due_ns

    def check(self) -> None:
        fresh = [each for each in self._statements.items() if self._checked.get(each[0]) is not each[1]]
        for unit, statement in fresh:
            assert statement.unit == unit
            assert 1 <= len(statement.places) <= MAX_CONTACTS
            self._check(statement, 0)
        if fresh:
            self._checked = dict(self._statements)


class Dialler:
    """Which of them is dialled, and when. `known` gives the units that this broker has met or heard of."""

    def __init__(
        self,
        network: NetworkMap,
        links: Mapping[int, Link],
        book: ContactBook,
        known: Callable[[], list[Unit]],
        settings: Settings,
    ) -> None:
        self._map = network
        self._links = links
        self._book = book
        self._known = known
        self._after_ns = settings.dial_after_ns
        #: Time for a connection to be made, and for those behind it to come into reach: they need no dialling then.
        self._gap_ns = settings.heartbeat_ns
        self._quests: dict[Unit, _Quest] = {}
        self._free_ns = 0
        self._seen = (-1, -1)
        #: What is dialled next, and when.
        self._next: tuple[int, Unit] | None = None

    def flush(self, now_ns: int) -> None:
        """Follow the map."""
        seen = (self._map.version, self._book.changes)
        if seen == self._seen:
            return
        self._seen = seen
        reach = self._map.reachable()
        found = [unit for unit in self._quests if unit in reach]
        self._quests = {unit: self._quests.get(unit) or _Quest(now_ns) for unit in self._known() if unit not in reach}
        if found:  # something has healed: it is worth a try soon
            for quest in self._quests.values():
                quest.pause_ns = FIRST_PAUSE_NS
                quest.next_ns = min(quest.next_ns, now_ns + FIRST_PAUSE_NS)
        self._plan()

    def _plan(self) -> None:
        """Decide what comes next."""
        living = self._living()
        due = [
            (time_ns, unit not in living, quest.tries, -len(unit), unit)
            for unit, quest in self._quests.items()
            if (time_ns := self._due(unit, quest, unit in living)) is not None
        ]
        # What is due when the next may be dialled at all is as good as due at once: then those that live come first.
        first = min((each[0] for each in due), default=0)
        ready = [each for each in due if each[0] <= max(first, self._free_ns)]
        self._next = None
        if ready:
            best = min(ready, key=lambda each: each[1:])
            self._next = (max(best[0], self._free_ns), best[4])

    def _due(self, unit: Unit, quest: _Quest, lives: bool) -> int | None:
        """When this unit may be dialled by this broker; None for never."""
        own = self._map.host[: len(unit)]
        rank = sum(other < self._map.host[: len(other)] for other in self._map.reachable() if len(other) >= len(unit))
        if rank >= MAX_DIALLERS or quest.tries >= MAX_TRIES or not self._book.places(unit):
            return None
        later_ns = self._after_ns * LATER * rank + (FIRST_PAUSE_NS if unit < own and not lives else 0)
        return max(quest.next_ns, quest.since_ns + self._after_ns + later_ns)

    def _living(self) -> dict[Unit, None]:
        """Units out of reach that are heard of by a detour: somebody out of reach speaks for a unit of the host's."""
        return {
            as_seen(self._map.host, address): None
            for statement in self._book.apart.values()
            for address in (statement.teller, *(place.address for place in statement.places))
        }

    def tick(self, now_ns: int) -> list[Dial]:
        if self._next is None or now_ns < self._next[0]:
            return []
        unit = self._next[1]
        quest = self._quests[unit]
        place = self._choose(unit, quest)
        quest.tries += 1
        quest.next_ns = now_ns + quest.pause_ns
        quest.pause_ns = min(2 * quest.pause_ns, LONGEST_PAUSE_NS)
        if place is not None:
            self._free_ns = now_ns + self._gap_ns
        self._plan()
        return [] if place is None else [Dial(place.address, place.listen, place.grant)]

    def _choose(self, unit: Unit, quest: _Quest) -> Place | None:
        """The next contact in turn to whom there is no link."""
        places = self._book.places(unit)
        turn = quest.tries % len(places)
        linked = {link.neighbour: None for link in self._links.values()}
        return next((place for place in places[turn:] + places[:turn] if place.address not in linked), None)

    def next_wakeup(self) -> int | None:
        return None if self._next is None else self._next[0]

    def check(self) -> None:
        if self._seen[0] == self._map.version:
            reach = self._map.reachable()
            for unit, quest in self._quests.items():
                assert unit not in reach, "what is in reach is not dialled"
                assert quest.tries <= MAX_TRIES


def make_contacts(
    network: NetworkMap,
    links: Mapping[int, Link],
    profiles: Profiles,
    identity: Identity,
    listen: tuple[str, ...],
    settings: Settings,
    grant: bytes = b"",
) -> tuple[ContactBook, Dialler]:
    """Both for one broker; `links` are its open links by connection id."""
    book = ContactBook(network, links, profiles.speakers.levels, listen, identity.incarnation, settings, grant)
    return book, Dialler(network, links, book, profiles.leases.known, settings)


def is_url(text: str) -> bool:
    return len(text) <= MAX_URL and _URL.fullmatch(text) is not None
