"""The asker's side of a query: which units are asked for what, and their answers made into one (DSC-02..05).

An advertisement of scope s stands with every controller up to level s, so a query of realm r needs one controller of
the host's own unit of level r, for everything that reaches so far; one of each smaller own unit, for what reaches no
further than that; and, if the realm is the whole system, one of each other unit of the highest level. These parts have
no advertisement in common, and together they hold all that the asker may see: each is answered once, however many
controllers hold it. No part lies outside the realm, and a way to a unit never leaves the unit around both ends, so no
broker outside the realm sees the query (DSC-03).

Answers come straight here. What has not come by the deadline is named; a unit that is known but out of reach is named
without being asked. A long answer is told in pieces, so that no step of the broker does all of it.

The invariant: an open query waits for at least one part, and for no longer than its deadline; or it is being told.
Rejected: asking one controller that asks the others (answers would make the way twice, and a silent one could not be
told from a slow one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from veena.address import Address, Unit, contains
from veena.core.boundary.discovery import Answer
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.boundary.user_shares import Tally
from veena.core.discovery.gathering import Gathering
from veena.core.discovery.query import AdvertQuery
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.discovery import Found, FoundRow, QueryPart
from veena.errors import LocalProtocolError, RemoteProtocolError

#: Queries that wait for answers, or whose answers are being told: of one user, and of all.
MAX_OPEN_OF_USER = 64
MAX_OPEN = 1024
#: Rows, and bytes of them, that are told at once, and the pause before the next ones.
PIECE = 1024
PIECE_BYTES = 512 << 10
PAUSE_NS = 4 * MILLISECOND_NS
#: What one answer may hold, and all that are being put together: beyond it rows are dropped and the answer says so.
MAX_ANSWER_BYTES = 16 << 20
MAX_GATHERED_BYTES = 256 << 20


@dataclass(slots=True)
class _Open:
    """A query that waits."""

    session: int
    number: int
    user: str
    query: AdvertQuery
    until_ns: int
    found: Gathering
    #: Units that have not answered, each with the pages that came.
    pending: dict[Unit, dict[int, Found]] = field(default_factory=dict)
    silent: dict[Unit, None] = field(default_factory=dict)
    matched: int = 0
    undecided: int = 0
    bytes: int = 0
    truncated: bool = False
    #: The rows that are not told yet, once they are being told, and when the next ones are.
    rows: Iterator[FoundRow] | None = None
    tell_ns: int = 0


def parts_of(network: NetworkMap, realm: int, others: list[Unit]) -> list[QueryPart]:
    """Who is asked for what; `others` are the known units of the highest level beside the host's own."""
    levels = network.levels
    top = min(realm, levels - 1)
    parts = [
        QueryPart(network.own(level), level, levels if level == top else level) for level in range(min(1, top), top + 1)
    ]
    if realm == levels:
        parts += [QueryPart(unit, levels, levels) for unit in sorted(others)]
    return parts


def row_weight(row: FoundRow) -> int:
    """About how many bytes a row takes in a frame."""
    return 64 + 2 * (len(row.client) + len(row.name)) + len(row.keys) + len(row.values) + len(row.xml)


class Questions:
    """The open queries of one broker."""

    def __init__(self, network: NetworkMap) -> None:
        self._map = network
        self._open: dict[int, _Open] = {}
        self._of_user = Tally(MAX_OPEN, MAX_OPEN_OF_USER)
        self._last = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, session: int, number: int, user: str, query: AdvertQuery, deadline_ms: int, now_ns: int) -> int:
        """Begin a query; the number that its frames carry."""
        if any(each.session == session and each.number == number for each in self._open.values()):
            raise LocalProtocolError(f"query {number} is open already: give each query a number of its own")
        self._of_user.admit(user, f"query {number}")
        self._of_user.add(user)
        self._last += 1
        until_ns = now_ns + deadline_ms * MILLISECOND_NS
        self._open[self._last] = _Open(session, number, user, query, until_ns, Gathering(query))
        return self._last

    def _close(self, asked: int) -> _Open:
        found = self._open.pop(asked)
        self._of_user.add(found.user, -1)
        self._bytes -= found.bytes
        return found

    def user(self, asked: int) -> str:
        """Whose query this is."""
        found = self._open.get(asked)
        return "" if found is None else found.user

    def waits(self, asked: int, unit: Unit) -> bool:
        """Whether the answer of this unit is still waited for."""
        found = self._open.get(asked)
        return found is not None and unit in found.pending

    def await_part(self, asked: int, unit: Unit) -> None:
        self._open[asked].pending[unit] = {}

    def take_silence(self, asked: int, unit: Unit) -> None:
        """Nobody in that unit can be asked: it will not be waited for, and be named.

        A query that comes back from a controller may be over, and a forged one was never asked: nothing changes then.
        """
        found = self._open.get(asked)
        if found is not None and found.pending.pop(unit, None) is not None:
            found.silent[unit] = None

    def take(self, frame: Found, origin: Address) -> None:
        """A page of an answer; raise RemoteProtocolError for one that answers nothing that was asked."""
        found = self._open.get(frame.number)
        if found is None or frame.unit not in found.pending:
            return  # too late
        pages = found.pending[frame.unit]
        known = next(iter(pages.values()), frame)
        if len(origin) != self._map.levels or not contains(frame.unit, origin):
            raise RemoteProtocolError(f"{origin} answers for {frame.unit}, where it is not")
        if frame.page >= frame.pages or frame.pages != known.pages or frame.page in pages:
            return  # two controllers answered: the pages of the first one count
        for unit in frame.silent:
            if not contains(frame.unit, unit):
                raise RemoteProtocolError(f"{frame.unit} names {unit} as silent, which is no part of it")
        for row in frame.rows:
            if len(row.home) != self._map.levels or not contains(frame.unit, row.home):
                raise RemoteProtocolError(f"{frame.unit} answers with an advertisement of {row.home}")
            found.query.check(row)
        pages[frame.page] = frame
        size = sum(map(row_weight, frame.rows))
        if found.bytes + size > MAX_ANSWER_BYTES or self._bytes + size > MAX_GATHERED_BYTES:
            found.truncated = True
        else:
            found.bytes += size
            self._bytes += size
            found.found.add_all(frame.rows)
        if len(pages) == frame.pages:
            del found.pending[frame.unit]
            found.matched += frame.matched
            found.undecided += frame.undecided
            found.silent.update(dict.fromkeys(frame.silent))
            sent = sum(len(page.rows) for page in pages.values())
            limit = frame.matched if found.query.limit is None else min(found.query.limit, frame.matched)
            found.truncated |= sent < limit

    def close_session(self, session: int) -> None:
        for asked in [asked for asked, each in self._open.items() if each.session == session]:
            self._close(asked)

    def answers(self, now_ns: int) -> list[Answer]:
        """The queries that are answered, or whose time is over: all of each, or the next piece of a long answer."""
        answers: list[Answer] = []
        room, size = PIECE, PIECE_BYTES
        for asked, each in list(self._open.items()):
            if now_ns < each.tell_ns or (each.pending and now_ns < each.until_ns and each.rows is None):
                continue
            if room <= 0 or size <= 0:
                each.tell_ns = now_ns + PAUSE_NS
                continue
            rows = self._piece(each, room, size)
            room, size = room - len(rows), size - sum(map(row_weight, rows))
            answers.append(self._answer(each, rows, is_last=room > 0 and size > 0))
            if answers[-1].more:
                each.tell_ns = now_ns + PAUSE_NS
            else:
                self._close(asked)
        return answers

    def _piece(self, found: _Open, room: int, size: int) -> list[FoundRow]:
        """The next rows of an answer."""
        if found.rows is None:
            found.silent.update(dict.fromkeys(found.pending))
            found.pending.clear()
            found.rows = found.found.in_order()
        rows: list[FoundRow] = []
        for row in islice(found.rows, room):
            rows.append(row)
            size -= row_weight(row)
            if size <= 0:
                break
        return rows

    def _answer(self, found: _Open, rows: list[FoundRow], is_last: bool) -> Answer:
        is_all = found.query.limit is None and not found.truncated
        return Answer(
            found.session,
            found.number,
            found.query.columns,
            tuple(found.query.found(row) for row in rows),
            found.found.count if is_all else found.matched,
            tuple(sorted(found.silent)),
            found.truncated,
            found.undecided,
            more=not is_last,
        )

    def next_wakeup(self) -> int | None:
        return min((each.until_ns if each.rows is None else each.tell_ns for each in self._open.values()), default=None)

    def check(self) -> None:
        assert self._bytes == sum(each.bytes for each in self._open.values())
        assert self._of_user.count == len(self._open)
        assert all(each.pending or each.tell_ns for each in self._open.values()), "what is answered is told"
