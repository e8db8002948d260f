"""A neighbour of one broker that lies about what others want: hostile, inside the network, without signatures."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.core.event_world import Stage
from veena.address import Address, Unit, link_level
from veena.core.boundary.inputs_effects import Arrived, Numbered
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.control import Frame, Goodbye, Heartbeat, Hello
from veena.core.wire.header import VERSION
from veena.core.wire.interest import STANDING, Claim, Digest, Have, Interest, Mark, Row, Version

#: The address that the liar says it has: nobody else's.
IDENTIFIER = 31
MICROSECOND_NS = 1000
#: How often it lies.
PAUSE_NS = 50 * MILLISECOND_NS


class Liar:
    """A link of its own to one broker of a stage."""

    def __init__(self, stage: Stage, contact: str, address: Address | None = None) -> None:
        self._stage = stage
        self._contact = stage.addresses[contact]
        self.address = address or (*self._contact[:-1], IDENTIFIER)
        self.level = link_level(self._contact, self.address)
        self.is_gone = False
        #: Why it was sent away.
        self.goodbyes: list[str] = []
        self._number = 0
        self._link = stage.world.visit(self._contact, "", self._came)
        settings = stage.world.settings
        hello = Hello(VERSION, VERSION, settings.network, settings.levels, 32, self.address, 1, 77, 1000)
        self.say(hello)

    def say(self, *frames: Frame) -> None:
        """Let frames arrive at once."""
        numbered = []
        for frame in frames:
            self._number += 1
            numbered.append((self._number, frame))
        self._stage.world.give(self._contact, Arrived(self._link, tuple(numbered)))

    def _came(self, frames: tuple[Numbered, ...]) -> None:
        for _, frame in frames:
            if isinstance(frame, Goodbye):
                self.goodbyes.append(frame.reason)
            if isinstance(frame, Heartbeat) and not self.is_gone:
                self.say(Heartbeat(frame.sent_ns, frame.sent_ns))

    def leave(self) -> None:
        self.is_gone = True
        self._stage.world.leave(self._link)

    def lie_for(self, time_ns: int, lie: Callable[[], Frame]) -> None:
        """Say something again and again, and let the world go on meanwhile."""
        until_ns = self._stage.world.now_ns + time_ns
        while self._stage.world.now_ns < until_ns:
            self.say(lie())
            self._stage.wait(PAUSE_NS)

    # --- lies ---

    def version(self, speaker: Address, ahead_ns: int = 30 * SECOND_NS) -> Version:
        """A version that beats whatever the speaker can have told."""
        world = self._stage.world
        wall_ns = world.now_ns + world.nodes[self._contact].wall_offset_ns + ahead_ns
        return wall_ns // MILLISECOND_NS, speaker, wall_ns // MICROSECOND_NS

    def wants_nothing(self, unit: Unit, speaker: Address, ahead_ns: int = 30 * SECOND_NS) -> Interest:
        """The unit does not want anything that it wants."""
        table = self._stage.world.broker(self._contact).profiles.table
        version = self.version(speaker, ahead_ns)
        rows = [Row(unit, row.key, version, False, row.kind, b"", row.scope) for row in table.rows(unit)]
        mark = Row(unit, bytes(speaker), version, True, STANDING, b"", 0)
        return Interest((*rows, mark))

    def wants_no_digest(self, unit: Unit) -> Interest:
        """The same of a unit that tells a digest, in the name of whoever told the last one."""
        known = self._stage.world.broker(self._contact).profiles.table.digest(unit)
        speaker = (*unit, *(0 for _ in self.address[len(unit) :])) if known is None else known.version[1]
        return Interest((), (Digest(unit, self.version(speaker), ()),))

    def has_everything(self, teller: Address, about: Unit, speaker: Address) -> Have:
        """A broker says that it has heard what it has not."""
        version = self.version(speaker)
        return Have((Claim(teller, teller, version[2], 0, True, False, False, (Mark(about, version),)),))

    def resigns(self, teller: Address) -> Have:
        """A broker says that it speaks no longer."""
        return Have((Claim(teller, teller, self.version(teller)[2], 0, True, True, True, ()),))


def draw_lie(liar: Liar, chance: Random, victim: Address) -> Callable[[], Frame]:
    """Some lie about a broker and the units that it is in."""
    kinds: list[Callable[[], Frame]] = [
        lambda: liar.wants_nothing(victim, victim),
        lambda: liar.wants_nothing(victim, victim, -SECOND_NS),
        lambda: liar.wants_nothing(victim[:-1], victim),
        lambda: liar.wants_no_digest(victim[:-2]),
        lambda: liar.resigns(victim),
    ]
    return chance.choice(kinds)
