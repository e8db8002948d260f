"""Discovery: clients advertise what they offer, others find it with SQL, XPath or constraints (DSC-01..06, IOP-04).

This composes the parts: `home_registry` keeps what the host's clients advertise, `controller` what a controller holds
of its units, `orphaned` what lost brokers had, `store` finds in all of it, `persistence` writes it down, `open_queries`
asks and gathers. A query goes to one controller of each unit of its realm and
each answers straight to the asker; nobody else is bothered, where TTL flooding asks everybody within range and still
misses who is out of it.

The first broker of a unit that a frame reaches from outside has a link of that unit's level: it is a gatekeeper, hence
a controller, and can answer. Inside the own unit the map names the controllers, some of them only by the smaller unit
that they are in; then the frame is sent there, and whoever gets it sees more of that unit and passes it on.

What came back from a disk, or is kept for a home that is not heard, is shown unless its client has taken it back since,
and not before those were heard who would know. A home that is heard after that, and still has it from a client that is
there, is right: that client advertises the same by two brokers, and has taken back only one.

The invariant: nobody is answered with an advertisement whose scope does not hold both the asker and its home.
A frame that breaks the rules is the fault of its origin, which may be far away: it changes nothing, and no link closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from veena.address import Address, Unit, contains, format_address
from veena.core.boundary.discovery import (
    Advertise,
    Advertised,
    AdvertRefused,
    DiscoveryInput,
    Query,
    QueryRefused,
    Withdraw,
)
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Effect, Input
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Disk
from veena.core.boundary.tickets import Ledger
from veena.core.boundary.user_shares import UserTable
from veena.core.discovery.advertisement import id_of, make_advert
from veena.core.discovery.controller import Office
from veena.core.discovery.doubts import AskWorker, Doubts
from veena.core.discovery.gathering import Gathering
from veena.core.discovery.home_registry import OwnShelf
from veena.core.discovery.open_queries import Questions, parts_of, row_weight
from veena.core.discovery.orphaned import Estate
from veena.core.discovery.persistence import AdvertKeeper
from veena.core.discovery.query import LOOK_WORK, AdvertQuery, Choice
from veena.core.discovery.searches import WAITS, Search, Searches
from veena.core.discovery.store import AdvertStore
from veena.core.interest.service import Profiles
from veena.core.membership.service import Reception
from veena.core.trust.epochs import first_number
from veena.core.wire.control import Frame
from veena.core.wire.discovery import (
    MAX_ANSWER_PAGES,
    MAX_DEADLINE_MS,
    MAX_NAMESPACES,
    MAX_PAGE_BYTES,
    MAX_PAGE_ITEMS,
    Advertisement,
    Ask,
    DiscoveryFrame,
    Found,
    FoundRow,
    QueryPart,
    Shelf,
    ShelfRequest,
    Standing,
    StandingRequest,
)
from veena.errors import InvalidConstraint, LocalProtocolError, RemoteProtocolError

#: A frame that looks for a controller is passed on so often: once a level on the way down, and once more where two maps
#: disagree.
MAX_RELAYS = 9
#: What reading a character of a query costs, and sorting and sending a row, in the units of `matching.base.work`.
PARSE_WORK = 30
ROW_WORK = 400

Handler = Callable[..., None]


@dataclass(frozen=True, slots=True)
class DiscoveryStatistics:
    #: Advertisements of the host's own clients, and all that it holds with theirs.
    own: int
    held: int
    held_bytes: int
    #: Brokers whose shelves are held here.
    homes: int
    #: Brokers that are away, or not heard since a restart, of whom something is held here.
    absent_homes: int
    open_queries: int
    #: Questions answered as a controller, and advertisements that were looked at for them.
    answered: int
    evaluated: int


class Discovery:
    """One a broker; what clients are told is appended to `effects`."""

    def __init__(
        self,
        settings: Settings,
        profiles: Profiles,
        reception: Reception,
        ledger: Ledger,
        effects: list[Effect],
        disk: Disk,
        users: UserTable,
        ask_worker: AskWorker,
        now_ns: int,
    ) -> None:
        self._ask_worker = ask_worker
        network = self._map = reception.map
        self._profiles = profiles
        self._courier = reception.courier
        self._effects = effects
        self._users = users
        self.store = AdvertStore()
        self.shelf = OwnShelf(network.levels, first_number(reception.identity.incarnation))
        self.estate = Estate(self.store)
        self.office = Office(network, settings, profiles.leases, self.shelf, self.store, self.estate, self._say)
        self._keeper = AdvertKeeper(network.host, self.store, self.shelf, self.estate, ledger, effects)
        self._keeper.restore(disk, self.office.lease_ns, now_ns)
        self._questions = Questions(network)
        self._clients: dict[int, str] = {}
        self._answered = 0
        self._searches = Searches()
        #: The query that was read last, and what it was read from.
        self._last_read: tuple[Any, AdvertQuery] = (None, AdvertQuery(True, "SELECT * FROM adverts", {}, False))
        self._inputs: dict[type[Input], Handler] = {
            Advertise: self._advertise,
            Withdraw: self._withdraw,
            Query: self._query,
        }
        self._frames: dict[type[Frame], Handler] = {
            Standing: lambda frame, origin, now: self.office.hear(frame, now),
            StandingRequest: self._on_standing_request,
            ShelfRequest: self._on_shelf_request,
            Shelf: self.office.take,
            Ask: self._on_ask,
            Found: self._on_found,
        }
        reception.routed.update(dict.fromkeys(self._frames, self.take))

    # --- clients ---

    def input_handlers(self, attend: Callable[[ClientUp | ClientDown, int], None]) -> dict[type[Input], Handler]:
        """What clients ask of discovery, and their coming and going, which `attend` deals with first."""

        def came(given: ClientUp, now_ns: int) -> None:
            attend(given, now_ns)
            if given.session in self._profiles.clients:
                self.client_up(given.session, self._profiles.clients.client_id(given.session))

        def left(given: ClientDown, now_ns: int) -> None:
            attend(given, now_ns)
            self.client_down(given, now_ns)

        return {**dict.fromkeys(self._inputs, self.handle), ClientUp: came, ClientDown: left}

    def handle(self, given: DiscoveryInput, now_ns: int) -> None:
        """What a client asks for; a refusal if it cannot be."""
        try:
            if given.session not in self._clients:
                raise LocalProtocolError(f"session {given.session} is not open")
            self._inputs[type(given)](given, now_ns)
        except (LocalProtocolError, InvalidConstraint) as error:
            if isinstance(given, Query):
                self._effects.append(QueryRefused(given.session, given.number, error.code, str(error)))
            else:
                self._keeper.replies.tell(AdvertRefused(given.session, given.name, error.code, str(error)))

    def client_up(self, session: int, client_id: str) -> None:
        self._clients[session] = client_id
        self.shelf.client_came(client_id)
        self._touch(client_id)

    def client_down(self, given: ClientDown, now_ns: int) -> None:
        client = self._clients.pop(given.session, None)
        self._questions.close_session(given.session)
        self._keeper.replies.close_session(given.session)
        if client is not None and client not in self._clients.values():
            for found, gone in self.shelf.client_left(client, given.lost or given.dismissed, now_ns):
                self._withdrawn(found, gone, now_ns)
            self._touch(client)

    def _touch(self, client: str) -> None:
        """The client came or went: since when it is away is to be written down."""
        self.store.touched.update(((self._map.host, key), None) for key in self.shelf.ids(client))

    def _advertise(self, given: Advertise, now_ns: int) -> None:
        self._keeper.check_room()
        advert = make_advert(given, self._clients[given.session], self._map.levels, now_ns)
        user = self._users.of(given.session, advert.client)
        self.shelf.put(advert, given.lease_s, user, self._users.share(user).offers)
        self.store.put(self._map.host, advert)
        self.office.own_changed(now_ns)
        self._keeper.replies.tell(Advertised(given.session, given.name))

    def _withdraw(self, given: Withdraw, now_ns: int) -> None:
        client = self._clients[given.session]
        found = self.shelf.withdraw((client, given.name), now_ns)
        if found is None:
            raise LocalProtocolError(f"{client} has no advertisement {given.name!r:.80} here")
        self._withdrawn(*found, now_ns)
        self._keeper.replies.tell(Advertised(given.session, given.name))

    def _withdrawn(self, found: Advertisement, gone: Advertisement | None, now_ns: int) -> None:
        if gone is None:
            self.store.remove(self._map.host, id_of(found))
        else:
            self.store.bury(self._map.host, gone, now_ns)
        self.office.own_changed(now_ns)

    # --- asking ---

    def _query(self, given: Query, now_ns: int) -> None:
        if not 1 <= given.realm <= self._map.levels:
            raise LocalProtocolError(
                f"realm {given.realm}: expected 1 (the cluster) to {self._map.levels} (the system)"
            )
        if not 1 <= given.deadline_ms <= MAX_DEADLINE_MS:
            raise LocalProtocolError(f"deadline {given.deadline_ms} ms: expected 1 to {MAX_DEADLINE_MS}")
        if given.language not in ("sql", "xpath", "constraint"):
            raise LocalProtocolError(f"language {given.language!r}: expected 'sql', 'xpath' or 'constraint'")
        if len(given.namespaces) > MAX_NAMESPACES:
            raise LocalProtocolError(f"{len(given.namespaces)} namespaces: at most {MAX_NAMESPACES} are taken")
        is_sql, is_constraint = given.language != "xpath", given.language == "constraint"
        choice = Choice(given.columns, given.limit) if is_constraint else None
        query = AdvertQuery(is_sql, given.text, given.namespaces, given.full, choice)
        user = self._users.of(given.session, self._clients[given.session])
        asked = self._questions.open(given.session, given.number, user, query, given.deadline_ms, now_ns)
        others = self._profiles.leases.siblings(self._map.levels - 1)
        parts = parts_of(self._map, given.realm, others)
        for part in parts:
            self._questions.await_part(asked, part.unit)
        namespaces = tuple(sorted(given.namespaces.items()))
        ask = Ask(
            self._map.host, asked, tuple(parts[:1]), is_sql, given.text, namespaces, given.full,
            is_constraint=is_constraint, columns=given.columns, limit=given.limit, deadline_ms=given.deadline_ms,
        )  # fmt: skip
        self._pass_on(ask, parts, now_ns)

    def _pass_on(self, ask: Ask, parts: list[QueryPart], now_ns: int) -> None:
        """Answer what can be answered here, and send the rest to one controller of each unit, one frame each."""
        goals: dict[Unit, list[QueryPart]] = {}
        for part in sorted(parts, key=lambda part: len(part.unit)):
            level = self._map.level(part.unit)
            if not contains(part.unit, self._map.host):
                goal: Unit | None = part.unit if ask.asker == self._map.host else None
            elif level == 0 or (self.office.controls(level) and not self._knows_better(level, ask, now_ns)):
                self._begin_search(ask, part, now_ns)
                continue
            else:
                goal = self.office.nearest(level, goals)
            if goal is not None and goal in self._map.reachable():
                goals.setdefault(goal, []).append(part)
            elif ask.asker == self._map.host:
                self._questions.take_silence(ask.number, part.unit)
        for goal, wanted in goals.items():
            self._say(goal, replace(ask, parts=tuple(wanted), hops=ask.hops + 1), now_ns)

    def _knows_better(self, level: int, ask: Ask, now_ns: int) -> bool:
        """Whether another controller should be asked instead: the host has only just become one."""
        return ask.hops <= 1 and self.office.is_settling(level, now_ns) and self.office.nearest(level) is not None

    def _on_ask(self, ask: Ask, origin: Address, now_ns: int) -> None:
        if len(ask.asker) == self._map.levels and ask.hops <= MAX_RELAYS:
            self._pass_on(ask, [part for part in ask.parts if contains(part.unit, self._map.host)], now_ns)

    # --- answering ---

    def _begin_search(self, ask: Ask, part: QueryPart, now_ns: int) -> None:
        """Answer a part of a query from what is held here, as soon as a search through it is over."""
        owner = (ask.asker, self._questions.user(ask.number) if ask.asker == self._map.host else "")
        if not self._searches.has_room(owner):
            self._say(ask.asker, Found(ask.number, part.unit, 0, 1, 0, (), (part.unit,)), now_ns)
            return
        until_ns = now_ns + ask.deadline_ms * MILLISECOND_NS

        def is_wanted(now_ns: int) -> bool:
            return now_ns < until_ns and (ask.asker != self._map.host or self._questions.waits(ask.number, part.unit))

        self._searches.begin(owner, self._search(ask, part, now_ns), is_wanted, now_ns)

    def _search(self, ask: Ask, part: QueryPart, now_ns: int) -> Search:
        """Everything that answers this part, and then the frames that say so."""
        try:
            query = self._read(ask)
        except InvalidConstraint:
            return  # its broker let it through: the asker sees a silent unit
        yield PARSE_WORK * len(ask.text)
        levels, level = self._map.levels, self._map.level(part.unit)
        is_settling = level > 0 and self.office.is_settling(level, now_ns)

        def is_visible(home: Address, advert: Advertisement) -> bool:
            size = levels - advert.scope
            return (
                part.low <= advert.scope <= part.high
                and contains(part.unit, home)
                and home[:size] == ask.asker[:size]
                and self._is_credible(home, advert, is_settling)
            )

        self._answered += 1
        found, doubts = Gathering(query), self._doubts(ask, query, now_ns)
        numbers = self.store.candidates(query)
        yield len(numbers)
        for number in numbers:
            candidate = self.store.candidate(number, is_visible)
            if candidate is None:
                yield LOOK_WORK
                continue
            home, advert = candidate
            is_match, work = query.judge(advert, home)
            if is_match is None:
                doubts.put(home, advert, self._searches.now_ns)
            elif is_match:
                found.add(query.row(advert, home))
            yield work
        while doubts.is_open:
            yield WAITS
        for home, advert in doubts.matched:
            found.add(query.row(advert, home))
        yield from self._tell_found(ask, part, found, doubts.close(), now_ns)

    def _doubts(self, ask: Ask, query: AdvertQuery, now_ns: int) -> Doubts:
        """For half of the deadline a search waits for verdicts: its answer has to travel, too."""
        is_here = ask.asker == self._map.host
        user = self._questions.user(ask.number) if is_here else f"@{format_address(ask.asker)}"
        until_ns = now_ns + ask.deadline_ms * MILLISECOND_NS // 2
        return Doubts(self._ask_worker, user, query.want, lambda: self._searches.now_ns < until_ns)

    def _tell_found(self, ask: Ask, part: QueryPart, found: Gathering, undecided: int, now_ns: int) -> Search:
        """The frames of an answer. How many there are is known with the last of them: they are made first."""
        silent = tuple(self.office.silent(self._map.level(part.unit), now_ns))
        pages: list[tuple[FoundRow, ...]] = []
        for page in _paged(found):
            pages.append(page)
            yield ROW_WORK * len(page)
        for number, page in enumerate(pages):
            frame = Found(
                ask.number, part.unit, number, len(pages), found.count, page, silent, undecided=undecided
            )  # fmt: skip
            self._say(ask.asker, frame, now_ns)
            yield ROW_WORK * len(page)

    def _read(self, ask: Ask) -> AdvertQuery:
        """The query of a frame; several parts of one are read once."""
        key = (ask.is_sql, ask.text, ask.namespaces, ask.full, ask.is_constraint, ask.columns, ask.limit)
        if self._last_read[0] != key:
            choice = Choice(ask.columns, ask.limit) if ask.is_constraint else None
            query = AdvertQuery(ask.is_sql, ask.text, dict(ask.namespaces), ask.full, choice)
            self._last_read = key, query
        return self._last_read[1]

    def _is_credible(self, home: Address, advert: Advertisement, is_settling: bool) -> bool:
        """Whether an advertisement stands, as far as is known here."""
        if home == self._map.host:
            return not advert.is_orphan or (not is_settling and not self.store.is_withdrawn(advert, 0))
        if self.estate.is_doubted(home):
            return False
        is_away = advert.is_orphan or home in self.estate
        return not self.store.is_withdrawn(advert, 0 if is_away else self.office.heard_ns(home))

    def _on_found(self, frame: Found, origin: Address, now_ns: int) -> None:
        self._questions.take(frame, origin)

    def _on_standing_request(self, frame: StandingRequest, origin: Address, now_ns: int) -> None:
        level = self._map.level(frame.unit)
        if level >= self._map.levels - 1:
            raise RemoteProtocolError(f"the shelves of {frame.unit}: nobody controls a unit around one of the highest")
        if not contains(frame.unit, self._map.host) or frame.hops > MAX_RELAYS:
            return
        if len(frame.contact) != self._map.levels or not contains(frame.unit[:-1], frame.contact):
            return  # only a controller of the enclosing unit has a reason to ask
        if level == 0 or self.office.controls(level):
            for told in self.office.round_frames(level, now_ns):
                self._say(frame.contact, replace(told, within=frame.contact), now_ns)
        else:
            goal = self.office.nearest(level)
            if goal is not None:
                self._say(goal, replace(frame, hops=frame.hops + 1), now_ns)

    def _on_shelf_request(self, frame: ShelfRequest, origin: Address, now_ns: int) -> None:
        is_inside = len(frame.contact) == self._map.levels and contains(self._map.own(frame.level), frame.contact)
        if is_inside and 1 <= frame.level < self._map.levels:
            self._say(frame.contact, self.shelf.page(frame.level, frame.since), now_ns)

    # --- the broker's side ---

    def take(self, frame: Frame, origin: Address, now_ns: int) -> None:
        """A frame that came from afar; raise RemoteProtocolError for one that breaks the rules, changing nothing."""
        self._frames[type(frame)](frame, origin, now_ns)

    def _say(self, to: Unit, frame: DiscoveryFrame, now_ns: int) -> None:
        if to == self._map.host:
            self.take(frame, self._map.host, now_ns)
        else:
            self._courier.send(to, frame, now_ns)

    def flush(self, now_ns: int) -> None:
        """After each input that was more than events: offices follow the map, answers go out, changes to the disk."""
        self._searches.new_slice()
        self.office.map_changed(now_ns)
        self._effects += self._questions.answers(now_ns)
        self._keeper.flush(now_ns)

    def tick(self, now_ns: int) -> None:
        for gone in self.shelf.expire(now_ns):
            self._withdrawn(gone, None, now_ns)
        self._searches.tick(now_ns)
        self.store.expire(now_ns)
        self.estate.expire(now_ns)
        self.office.tick(self._profiles.speakers.levels(), now_ns)

    def next_wakeup(self) -> int | None:
        parts = (self.shelf, self.store, self.estate, self.office, self._questions, self._keeper, self._searches)
        due = [part.next_wakeup() for part in parts]
        return min((time for time in due if time is not None), default=None)

    def statistics(self) -> DiscoveryStatistics:
        return DiscoveryStatistics(
            len(self.shelf),
            len(self.store),
            self.store.bytes,
            len(self.office.homes()),
            len(self.estate),
            len(self._questions),
            self._answered,
            self.store.evaluated,
        )

    def check(self) -> None:
        self.shelf.check()
        self.office.check()
        self.store.check()
        self.estate.check()
        self._keeper.check()
        self._questions.check()
        self._searches.check()
        assert self.store.of(self._map.host) == len(self.shelf), "what is on the own shelf can be found here"


def _paged(found: Gathering) -> Iterator[tuple[FoundRow, ...]]:
    """Pages of these rows, at least one, at most as many as one controller may send."""
    page: list[FoundRow] = []
    size, pages = 0, 1
    for row in found.in_order():
        weight = row_weight(row)
        if page and (size + weight > MAX_PAGE_BYTES or len(page) == MAX_PAGE_ITEMS):
            if pages == MAX_ANSWER_PAGES:
                break
            yield tuple(page)
            page, size, pages = [], 0, pages + 1
        page.append(row)
        size += weight
    yield tuple(page)
