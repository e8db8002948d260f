"""Who comes under the address of a neighbour to which there is a link already: another life of it, or an impostor.

A broker that was restarted says so by another incarnation, and so can anybody. Only the old link can tell the two
apart. So the newcomer waits, with whatever it says behind its Hello, while the old link is asked for a sign of life. If
that one answers, the newcomer is refused. If the old link is closed, or is silent for as long as a suspicion takes, the
newcomer comes in at that moment and need not dial again.

The invariant: an open link is never closed because of a Hello alone; no claimant waits longer than a greeting may take.

Rejected: refusing the newcomer at once. A broker that lost its power would come back only when its pause between two
dials happens to end after its neighbour has noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from veena.address import format_address
from veena.core.boundary.inputs_effects import Numbered
from veena.core.links.link import Link
from veena.core.wire.control import Hello
from veena.errors import RefusalCode, RemoteProtocolError

#: Claimants at once, and frames of each that are kept: what a broker tells in the first seconds of a link. Who is one
#: too many, or says more, dials again.
MAX_CLAIMANTS = 8
MAX_HELD = 256


class Verdict(Enum):
    """What is to be done about a claimant now."""

    WAIT = "wait"
    #: No other link has the address any more, or the one that has is dead.
    ADMIT = "admit"
    REFUSE = "refuse"


@dataclass(slots=True)
class Claimant:
    """A link whose Hello names an address that another link has."""

    link: Link
    hello: Hello
    since_ns: int
    #: When to look again.
    due_ns: int
    #: The Hello and what came behind it.
    held: list[Numbered] = field(default_factory=list)

    def hold(self, numbered: Numbered) -> None:
        if len(self.held) >= MAX_HELD:
            raise RemoteProtocolError(f"more than {MAX_HELD} frames while another link has this address: connect again")
        self.held.append(numbered)


class Claimants:
    """The claimants of one broker, by link number; `patience_ns` is how long a link may be silent before it is dead."""

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._waiting: dict[int, Claimant] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def of(self, link: Link) -> Claimant | None:
        return self._waiting.get(link.number)

    def wait(self, link: Link, hello: Hello, rivals: list[Link], now_ns: int) -> Claimant:
        """Let a newcomer wait, and ask the links that have its address."""
        if len(self._waiting) >= MAX_CLAIMANTS:
            raise refused(hello)
        # Only an answer that was given after this moment counts.
        since_ns = max([now_ns, *(rival.answered_ns + 1 for rival in rivals)])
        found = self._waiting[link.number] = Claimant(link, hello, since_ns, since_ns + self._patience_ns)
        link.is_claimant = True
        for rival in rivals:
            rival.probe(now_ns)
        return found

    def leave(self, link: Link) -> None:
        """It waits no more."""
        self._waiting.pop(link.number, None)
        link.is_claimant = False

    def review(self, open_links: Iterable[Link], now_ns: int) -> list[tuple[Claimant, Verdict, list[Link]]]:
        """What is to be done about each claimant, with the links that have its address."""
        links = list(open_links)
        judged = []
        for each in self._waiting.values():
            rivals = [other for other in links if other.neighbour == each.hello.address]
            judged.append((each, self._judge(each, rivals, now_ns), rivals))
            if now_ns >= each.due_ns:
                each.due_ns = now_ns + self._patience_ns
        return judged

    def _judge(self, claimant: Claimant, rivals: list[Link], now_ns: int) -> Verdict:
        if any(rival.answered_ns >= claimant.since_ns for rival in rivals):
            return Verdict.REFUSE
        if all(self._is_dead(rival, claimant.since_ns, now_ns) for rival in rivals):
            return Verdict.ADMIT
        return Verdict.WAIT

    def _is_dead(self, rival: Link, since_ns: int, now_ns: int) -> bool:
        return rival.heard_ns <= since_ns and now_ns >= since_ns + self._patience_ns

    def next_wakeup(self) -> int | None:
        return min((each.due_ns for each in self._waiting.values()), default=None)

    def check(self, links: dict[int, Link]) -> None:
        for number, each in self._waiting.items():
            assert links[number] is each.link and each.link.connection is None, "who waits is not greeted"
            assert each.link.is_claimant and 1 <= len(each.held) <= MAX_HELD
        assert len(self._waiting) <= MAX_CLAIMANTS


def rivals_of(hello: Hello, links: Iterable[Link]) -> list[Link]:
    """The links to another life of whoever says this; RemoteProtocolError where the address belongs to another broker.

    Two brokers were then given one address, in two parts of a unit that did not hear each other.
    """
    same = [link for link in links if link.neighbour == hello.address]
    for other in same:
        if other.name != hello.name:
            raise RemoteProtocolError(f"the address of {other.name!r} was given to {hello.name!r} too: join again")
    return [link for link in same if link.incarnation != hello.incarnation]


def refused(hello: Hello) -> RemoteProtocolError:
    """What a claimant is told whose address is in use."""
    error = RemoteProtocolError(
        f"address {format_address(hello.address)} with incarnation {hello.incarnation}: this neighbour answers over"
        " another link; stop one of the two"
    )
    error.code = RefusalCode.DENIED
    return error
