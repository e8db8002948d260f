"""What a broker still has to do before it may sleep, and for how long it may sleep then.

After each input the broker gives its parts a turn (`Broker._flush`). Most inputs need only some of that work, and the
hot ones almost none. This object remembers which:

- `Work`: what has happened since the broker last told its neighbours what is new;
- `Turn`: which parts get a turn after the present input;
- `Timers`: which of the next wake-up times are still valid.

    input or frame             Work becomes             Turn becomes
    subscription, record, ...  CONTROL                  EVERYTHING
    event, burst, disk         EVENTS, or stays CONTROL as it was (3)
    receipt (`Have`)           CONTROL (1)              EVERYTHING, or as it was
    signs of life alone        as it was                ONE_LINK (2)
    bursts on the fast path    EVENTS                   NOTHING (2)

(1) If it is news, or if events passed before; otherwise Work stays as it was. (2) With CONTROL it is EVERYTHING.
(3) `take_link`, with which the turn begins, makes it EVERYTHING again.

`begin_settling` ends CONTROL: Work becomes NONE and Timers becomes UNKNOWN.

The invariant: `LEGAL_IN_INPUT` names every pair of Work and Turn that may occur, `LEGAL_AT_REST` every pair that the
broker may keep from one input to the next. A pair that is in neither would lose work: CONTROL must never be followed by
less than EVERYTHING, and the fast path always leaves EVENTS behind. Timers may have any value beside each pair: the
broker asks for the times when it is about to sleep, which may be between any two inputs.

Rejected: a flag for each question. Six flags have 64 combinations, and nothing said which of them were meant.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from veena.core.links.link import Link


class Work(Enum):
    """What has happened since the broker last told its neighbours what is new."""

    #: Nothing, or signs of life alone.
    NONE = 0
    #: Events passed. They need no announcement, but they may have set a timer: the next receipt is a time to look.
    EVENTS = 1
    #: Something beside events changed, and others may have to hear of it. Also the state before the first input, and
    #: the state after an input that the broker refused when it had already begun to take it in.
    CONTROL = 2


class Turn(Enum):
    """Which parts get a turn after an input."""

    #: Every part and every link.
    EVERYTHING = 0
    #: One link: nothing but signs of life came over it, and only that link may have something to answer.
    ONE_LINK = 1
    #: None: every event of the input took the fast path, which leaves no frame to send and sets no timer.
    NOTHING = 2


class Timers(Enum):
    """Which of the next wake-up times are still valid."""

    UNKNOWN = 0
    #: Only that of links over transports that lose frames is not: events on such links set timers.
    BEAT_UNKNOWN = 1
    KNOWN = 2


#: The same by short names: every event asks for some, and a look-up in an Enum takes longer than the question.
NONE: Final = Work.NONE
EVENTS: Final = Work.EVENTS
CONTROL: Final = Work.CONTROL
EVERYTHING: Final = Turn.EVERYTHING
ONE_LINK: Final = Turn.ONE_LINK
NOTHING: Final = Turn.NOTHING

#: What the broker may keep from one input to the next.
LEGAL_AT_REST = frozenset(
    {
        (NONE, EVERYTHING),
        (EVENTS, EVERYTHING),
        (EVENTS, NOTHING),
        (CONTROL, EVERYTHING),
    }
)
#: What may occur while the broker handles an input.
LEGAL_IN_INPUT = LEGAL_AT_REST | {(NONE, ONE_LINK), (EVENTS, ONE_LINK)}


class Schedule:
    """One a broker; a new one begins with CONTROL, since nothing was told yet."""

    def __init__(self) -> None:
        self.work = CONTROL
        self.turn = EVERYTHING
        self.timers = Timers.UNKNOWN
        #: The link of `Turn.ONE_LINK`; None with any other turn.
        self._link: Link | None = None
        #: When the broker has to wake up next, and when for links over transports that lose frames.
        self._wakeup_ns: int | None = None
        self._beat_ns: int | None = None

    # --- an input ---

    def control_changed(self) -> None:
        """Something beside events happened: after this input the broker tells whoever has to know."""
        self.work = CONTROL
        self.turn, self._link = EVERYTHING, None

    def events_passed(self) -> None:
        """An event or an answer of the disk came: nothing has to be announced, but a timer may have been set."""
        if self.work is NONE:
            self.work = EVENTS

    def signs_came(self, link: Link) -> None:
        """Nothing but signs of life came over this link."""
        if self.work is not CONTROL:
            self.turn, self._link = ONE_LINK, link

    def receipt_came(self, is_news: bool) -> None:
        """A neighbour passed receipts on. One that is no news is still a time to look at timers that events set."""
        if is_news or self.work is not NONE:
            self.control_changed()

    def take_fast_path(self) -> bool:
        """All events of this input took the fast path; whether that leaves nothing to do."""
        if self.work is CONTROL:
            return False
        self.work, self.turn = EVENTS, NOTHING
        return True

    # --- what follows an input ---

    def take_link(self) -> Link | None:
        """The only link that gets a turn; None where every part does. From now on every part does."""
        link, self._link = self._link, None
        self.turn = EVERYTHING
        return link

    def begin_settling(self) -> None:
        """The broker is about to tell others what changed. What changes meanwhile is work of its own."""
        assert self.work is CONTROL
        self.work, self.timers = NONE, Timers.UNKNOWN

    def timer_changed(self) -> None:
        """A part has set a timer while it handled an event: the times that were found are not valid any more."""
        self.timers = Timers.UNKNOWN

    def beat_changed(self) -> None:
        """A link over a transport that loses frames has a new timer."""
        if self.timers is Timers.KNOWN:
            self.timers = Timers.BEAT_UNKNOWN

    # --- sleep ---

    def know_wakeup(self, wakeup_ns: int | None) -> None:
        """The broker has looked when it has to wake up, for anything but links that lose frames."""
        assert self.timers is Timers.UNKNOWN
        self._wakeup_ns, self.timers = wakeup_ns, Timers.BEAT_UNKNOWN

    def know_beat(self, beat_ns: int | None) -> None:
        """The broker has looked when it has to wake up for links that lose frames."""
        assert self.timers is Timers.BEAT_UNKNOWN
        self._beat_ns, self.timers = beat_ns, Timers.KNOWN

    def wakeups(self) -> tuple[int | None, int | None]:
        """The times that were found: in general, and for links that lose frames."""
        assert self.timers is Timers.KNOWN
        return self._wakeup_ns, self._beat_ns

    @property
    def took_fast_path(self) -> bool:
        """Whether the last input left nothing to do."""
        return self.turn is NOTHING

    def check(self) -> None:
        """Assert that the broker may keep this state until its next input."""
        assert (self.work, self.turn) in LEGAL_AT_REST, f"{self.work} with {self.turn}: work would be lost"
        assert self._link is None, "a link is named only while its signs of life are handled"
